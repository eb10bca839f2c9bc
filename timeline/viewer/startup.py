"""Commands that the Perfetto UI runs once it has opened a file, and their queries in SQL."""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from timeline.encoders.chrome import OVERVIEW
from timeline.layers import Layer, spec_of
from timeline.tracks.partition import PARTITION

UNFOLDED = (Layer.STEPS, Layer.OVERLAP, Layer.HARDWARE, Layer.COMMUNICATION)
"""The layers that explain most of why a rank is slow."""


@dataclass(frozen=True)
class Command:
    """A command of the UI and its arguments.

    The UI runs only those on its startup list, documented in its "Commands Automation Reference":
    pinning, unfolding, queries and tracks made of them. A newer UI reports any other to the user.
    Versions that do not know a parameter ignore it.
    """

    id: str
    args: tuple[str, ...]


def rows_of_ranks(ranks: Iterable[int], *, by_layer: bool, is_json: bool) -> str:
    """Return the regular expression (of JavaScript) of the rows with the time of ranks.

    It matches their path, or their name in versions that know names alone. Rows of the same name in
    other layers, or in other processes of .json, do not match.
    """
    which = "|".join(map(str, ranks))
    folder = r"(Ranks \d+-\d+ > )? *"
    above = rf"{OVERVIEW} \d+ > " if is_json else rf"\d+ {PARTITION} > " if by_layer else folder
    return rf"^{above}Rank 0*({which})\b[^>]*$"


def unfold_and_pin(rows: str) -> tuple[Command, ...]:
    """Unfold rows and pin them, which keeps them in sight while others are scrolled."""
    return (
        # Without "path", newer versions ask the user what to match.
        Command("dev.perfetto.ExpandTracksByRegex", (rows, "path")),
        Command("dev.perfetto.PinTracksByRegex", (rows, "path")),
    )


def unfold_layers() -> Command:
    """Unfold some layers of every unfolded rank, and in .json the overview of all ranks."""
    names = "|".join((*(spec_of(layer).name for layer in UNFOLDED), rf"{OVERVIEW} \d+"))
    return Command("dev.perfetto.ExpandTracksByRegex", (f"(^|> )({names})$", "path"))


def answers(views: Sequence[tuple[str, str]]) -> tuple[Command, ...]:
    """Open a table for each view below the question that it answers, the last one in front.

    views: the question, and the view of `queries.sql` that answers it.
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
    """Pin a row with the slices that a query returns, as no command can add a note."""
    return Command("dev.perfetto.AddDebugSliceTrack", (query, title))


_DEFINES = re.compile(r"CREATE (?:OR REPLACE PERFETTO|VIRTUAL) (?:TABLE|VIEW|FUNCTION) (\w+)")
_COMMENT = re.compile(r"--.*")
_WORD = re.compile(r"\w+")


def queries_text() -> str:
    """Return all queries as one script, for the Perfetto UI or a trace processor."""
    file = importlib.resources.files("timeline.viewer") / "queries.sql"
    return file.read_text(encoding="utf-8")


def definitions(names: Iterable[str]) -> str:
    """Return the definitions of views and of all they need, as one line without comments.

    Raises:
        KeyError: there is no such view.
    """
    statements = _statements()
    needed, asked = set[str](), list(names)
    while asked:
        name = asked.pop()
        if name not in needed:
            needed.add(name)
            asked += statements.keys() & set(_WORD.findall(statements[name]))
    return " ".join(f"{statements[name]};" for name in statements if name in needed)


@functools.cache
def _statements() -> dict[str, str]:
    """Return the statements by the name that each defines, in the order of the script."""
    text = " ".join(_COMMENT.sub("", queries_text()).split())
    by_name = dict[str, str]()
    for statement in map(str.strip, text.split(";")):
        defined = _DEFINES.match(statement)
        if defined is not None:
            by_name[defined[1]] = statement
    return by_name
