"""What the Perfetto UI does by itself once it has opened a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from timeline.encoders.chrome import OVERVIEW
from timeline.layers import Layer, spec_of
from timeline.tracks.partition import PARTITION
from timeline.viewer.queries import definitions

UNFOLDED = (Layer.STEPS, Layer.OVERLAP, Layer.HARDWARE, Layer.COMMUNICATION)
"""The layers that say most of why a rank is slow."""


@dataclass(frozen=True)
class Command:
    """A command of the UI and its arguments.

    Only those on its list for startup run, as "Commands Automation Reference" in its documentation
    tells: pinning, unfolding, queries and tracks made of them. A newer UI tells the user of any
    other. Versions that do not know a parameter go without it.
    """

    id: str
    args: tuple[str, ...]


def rows_of_ranks(ranks: Iterable[int], *, by_layer: bool, is_json: bool) -> str:
    """The regular expression (of JavaScript) of the rows that part the time of ranks.

    It finds them by their path, and in versions that know names alone by their name: not where
    rows of other layers, or in .json other processes, are called the same.
    """
    which = "|".join(map(str, ranks))
    folder = r"(Ranks \d+-\d+ > )? *"
    above = rf"{OVERVIEW} \d+ > " if is_json else rf"\d+ {PARTITION} > " if by_layer else folder
    return rf"^{above}Rank 0*({which})\b[^>]*$"


def unfold_and_pin(rows: str) -> tuple[Command, ...]:
    """Unfold rows and pin them; what is pinned keeps in sight while others are scrolled."""
    return (
        # Without "path", newer versions ask the user what to match.
        Command("dev.perfetto.ExpandTracksByRegex", (rows, "path")),
        Command("dev.perfetto.PinTracksByRegex", (rows, "path")),
    )


def unfold_layers() -> Command:
    """Unfold some layers of every rank that is unfolded, and in .json what tells of all ranks."""
    names = "|".join((*(spec_of(layer).name for layer in UNFOLDED), rf"{OVERVIEW} \d+"))
    return Command("dev.perfetto.ExpandTracksByRegex", (f"(^|> )({names})$", "path"))


def answers(views: Sequence[tuple[str, str]]) -> tuple[Command, ...]:
    """Open a table for each view, the last one in sight, below the question that it answers.

    views: what is asked, and the view of `queries.sql` that answers.
    """
    if not views:
        return ()
    asked = definitions(view for _, view in views)
    tables = (f"/* {question} */ SELECT * FROM {view}" for question, view in views)
    return (
        Command("dev.perfetto.RunQuery", (asked,)),
        *(Command("dev.perfetto.RunQueryAndShowTab", (table,)) for table in tables),
    )


def mark(title: str, query: str) -> Command:
    """Pin a row with slices that a query answers: a note at a place, which no command can make."""
    return Command("dev.perfetto.AddDebugSliceTrack", (query, title))
