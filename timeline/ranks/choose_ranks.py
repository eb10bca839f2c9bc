"""The sources of selected ranks, and checks whose errors name the ranks, graphs and steps found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from timeline.errors import SelectionError, SourceError, spell_ids
from timeline.selection import Selection
from timeline.sources.source import Source

_LISTED = {
    "rank": "Profile.ranks lists them.",
    "graph": "Profile.steps() lists them.",
    "step": "Profile.steps() lists them.",
}
"""Where somebody who calls functions finds what there is."""


def numbers_of(sources: Sequence[Source]) -> frozenset[int]:
    """Return the numbers of the ranks of some sources."""
    return frozenset(source.identity.rank for source in sources)


def choose_ranks(sources: Sequence[Source], selection: Selection, path: Path) -> tuple[Source, ...]:
    """Choose the sources of the selected ranks; all where none is selected.

    Raises:
        SelectionError: a rank is not there.
    """
    known = [source.identity.rank for source in sources]
    if selection.ranks is None:
        return tuple(sources)
    if not selection.ranks:
        raise SelectionError("no rank is selected.", do="Name one with --ranks.")
    check_known("rank", selection.ranks, known, path)
    return tuple(source for source in sources if source.identity.rank in selection.ranks)


def check_known(noun: str, wanted: frozenset[int], known: Iterable[int], path: Path) -> None:
    """Make sure that all ids that are wanted are among those that are there.

    Raises:
        SelectionError: one is not.
    """
    found = set(known)
    absent = wanted - found
    if absent:
        if not found:
            raise SelectionError(f"this profile has no {noun}s; drop --{noun}s.")
        are = "is" if len(absent) == 1 else "are"
        plural = noun if len(absent) == 1 else f"{noun}s"
        near = _nearest(min(absent), found)
        raise SelectionError(
            f"{plural} {spell_ids(absent)} {are} not in {path}: found {noun}s {spell_ids(found)}"
            + (f"; the nearest are {near}." if "..." in spell_ids(found) else "."),
            do="Use --list to see them.",
            python_do=_LISTED[noun],
        )


def _nearest(wanted: int, found: Iterable[int]) -> str:
    return spell_ids(sorted(found, key=lambda known: abs(known - wanted))[:2])


_LEFT_OUT = "Run it without --keep-going, for one of the --ranks, to see each reason."


def check_any(
    sources: Sequence[Source], failures: Mapping[int, str], path: Path, do: str = _LEFT_OUT
) -> None:
    """Make sure that leaving ranks out left any.

    failures: why ranks are left out, the first of which is told. do: how to see the others.

    Raises:
        SourceError: it did not.
    """
    if not sources:
        raise SourceError(
            path,
            f"no rank can be read. {next(iter(failures.values()))}",
            do=do if len(failures) > 1 else "Check that it can be read and is complete.",
        )
