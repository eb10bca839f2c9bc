"""The rows without a parent: what they are called, and in which order they are seen.

Version 52 of the Perfetto UI sorts them by name alone, whatever order a file gives them; leading
spaces sort first and are not seen. As soon as one of them has rows below it, it hides those that
have none in a folded group, so each needs one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from timeline.tracks.model import Track

WHAT_IS_SLOW = "   What is slow"
WHAT_CHANGED = "   What changed"
STEPS = "  Steps"
CRITICAL_PATH = " Critical path"
NOTES = " Notes"

MOST_BESIDE = 128
"""Rows of ranks that stand beside each other. Version 52 keeps all rows that are not folded in its
document, and takes about 3 ms a rank for each redraw, as while one scrolls."""
RANKS_OF_FOLDER = 100

SLOWS_OTHERS = "slows the others"
IDLES_FOR_DATA = "waits for data"

RunRank: TypeAlias = tuple[str, int]
"""What a run is called, empty for one alone, and a rank of it."""


@dataclass(frozen=True)
class SlowStep:
    """The step that is called the slowest; graph: None where its number alone tells it."""

    graph: int | None
    step: int


@dataclass(frozen=True)
class Highlights:
    """What names of rows and slices point at: ranks, each with a remark, and the slowest step.

    telling: ranks to look at, with a remark or without.
    """

    ranks: Mapping[RunRank, str] = field(default_factory=dict)
    step: SlowStep | None = None
    telling: Collection[int] = ()


NOTHING_TO_POINT_AT = Highlights()


def rank_rows(
    runs: Mapping[str, Iterable[int]], remarks: Mapping[RunRank, str]
) -> dict[RunRank, str]:
    """The names of the rows of ranks: those with a remark come before all others.

    Where a rank has one in any run, its rows of all runs do.

    Args:
        runs: the ranks of each run by what it is called, which is empty for one alone.

    >>> rank_rows({"": (5, 10)}, {("", 5): SLOWS_OTHERS})
    {('', 5): ' Rank 05: slows the others', ('', 10): 'Rank 10'}
    """
    every = [(run, rank) for run, ranks in runs.items() for rank in ranks]
    width = max((len(str(rank)) for _, rank in every), default=1)
    told = {rank for _, rank in remarks}
    names = dict[RunRank, str]()
    for run, rank in every:
        first = " " if rank in told else ""
        name = " ".join(filter(None, (f"{first}Rank {rank:0{width}}", run)))
        remark = remarks.get((run, rank))
        names[run, rank] = f"{name}: {remark}" if remark else name
    return names


def rank_folders(names: Mapping[RunRank, str], telling: Collection[int] = ()) -> dict[RunRank, str]:
    """The rows, folded at first, that hold ranks without a remark, where there are many ranks.

    Args:
        names: those of the rows of ranks.
        telling: ranks that are not folded either.

    >>> [*rank_folders({("", rank): f"Rank {rank:03}" for rank in range(130)}).values()][99:101]
    ['Ranks 000-099', 'Ranks 100-199']
    """
    if len(names) <= MOST_BESIDE:
        return {}
    width = max(len(str(rank)) for _, rank in names)
    folders = dict[RunRank, str]()
    for (run, rank), name in names.items():
        if seen_name(name) == name and rank not in telling:
            first = rank // RANKS_OF_FOLDER * RANKS_OF_FOLDER
            last = first + RANKS_OF_FOLDER - 1
            folders[run, rank] = f"Ranks {first:0{width}}-{last:0{width}}"
    return folders


def named_rank(name: str) -> int | None:
    """The rank that the name of a row tells, None if it tells none."""
    word, _, rest = name.strip().partition(" ")
    number = rest.partition(" ")[0].rstrip(":")
    return int(number) if word == "Rank" and number.isdecimal() else None


def layer_row(place: int, name: str) -> str:
    """The name of the row of a layer of all ranks, the how manyth it is."""
    return f"{place} {name}"


def seen_name(name: str) -> str:
    """A name as it is read."""
    return name.strip()


def in_order(tracks: Sequence[Track]) -> tuple[Track, ...]:
    """The tracks, of which rows without a parent have the order in which the viewer shows them."""
    names = sorted({track.name for track in tracks if track.parent is None})
    place = {name: order for order, name in enumerate(names)}
    return tuple(
        replace(track, order=place[track.name]) if track.parent is None else track
        for track in tracks
    )
