"""Commands that the Perfetto UI runs after it has opened a file, and their SQL queries."""

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
"""The layers that are unfolded, as they best explain why a rank is slow."""


@dataclass(frozen=True)
class Command:
    """A command of the UI and its arguments.

    At startup the UI runs only the commands listed in its "Commands Automation Reference": pinning,
    unfolding, queries, and tracks made from queries. Newer versions report other commands to the
    user. Unknown parameters are ignored.
    """

    id: str
    args: tuple[str, ...]


def rows_of_ranks(ranks: Iterable[int], *, by_layer: bool, is_json: bool) -> str:
    """Return a JavaScript regular expression that matches the rows with the partitions of ranks.

    It matches paths of rows, or names in UI versions that match names only. Rows of the same name
    in other layers, or in other processes of .json, do not match.
    """
    which = "|".join(map(str, ranks))
    folder = r"(Ranks \d+-\d+ > )? *"
    above = rf"{OVERVIEW} \d+ > " if is_json else rf"\d+ {PARTITION} > " if by_layer else folder
    return rf"^{above}Rank 0*({which})\b[^>]*$"


def unfold_and_pin(rows: str) -> tuple[Command, ...]:
    """Return commands that unfold rows and pin them, so that they stay visible when scrolling."""
    return (
        # Without "path", newer versions ask the user what to match.
        Command("dev.perfetto.ExpandTracksByRegex", (rows, "path")),
        Command("dev.perfetto.PinTracksByRegex", (rows, "path")),
    )


def unfold_layers() -> Command:
    """Return a command that unfolds the main layers of ranks, and in .json the overview."""
    names = "|".join((*(spec_of(layer).name for layer in UNFOLDED), rf"{OVERVIEW} \d+"))
    return Command("dev.perfetto.ExpandTracksByRegex", (f"(^|> )({names})$", "path"))


def answers(views: Sequence[tuple[str, str]]) -> tuple[Command, ...]:
    """Return commands that open a table per view, with its question as title, the last in front.

    views: pairs of a question and the view in `queries.sql` that answers it.
    """
    if not views:
        return ()
    script = definitions(view for _, view in views)
    tables = (f"/* {question} */ SELECT * FROM {view}" for question, view in views)
    return (
        Command("dev.perfetto.RunQuery", (script,)),
        *(Command("dev.perfetto.RunQueryAndShowTab", (table,)) for table in tables),
    )


def mark(title: str, query: str) -> Command:
    """Return a command that pins a row with the slices of a query; notes cannot be added."""
    return Command("dev.perfetto.AddDebugSliceTrack", (query, title))


_DEFINES = re.compile(r"CREATE (?:OR REPLACE PERFETTO|VIRTUAL) (?:TABLE|VIEW|FUNCTION) (\w+)")
_COMMENT = re.compile(r"--.*")
_WORD = re.compile(r"\w+")


def queries_text() -> str:
    """Return all queries as one script, for the Perfetto UI or a trace processor."""
    file = importlib.resources.files("timeline.viewer") / "queries.sql"
    return file.read_text(encoding="utf-8")


def definitions(names: Iterable[str]) -> str:
    """Return the definitions of views and of all that they use, as one line without comments.

    Raises:
        KeyError: a view does not exist.
    """
    statements = _statements()
    needed, unvisited = set[str](), list(names)
    while unvisited:
        name = unvisited.pop()
        if name not in needed:
            needed.add(name)
            unvisited += statements.keys() & set(_WORD.findall(statements[name]))
    return " ".join(f"{statements[name]};" for name in statements if name in needed)


@functools.cache
def _statements() -> dict[str, str]:
    """Return the statements of the script by the name that each defines, in order."""
    text = " ".join(_COMMENT.sub("", queries_text()).split())
    by_name = dict[str, str]()
    for statement in map(str.strip, text.split(";")):
        defined = _DEFINES.match(statement)
        if defined is not None:
            by_name[defined[1]] = statement
    return by_name
