"""The command that looks closer at what a verdict names, and how paths are typed in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from timeline.declarations import spelled_flags
from timeline.errors import spell_ids
from timeline.printable import command_line
from timeline.selection import Kind, Selection

if TYPE_CHECKING:
    from timeline.figures.verdict import Verdict
    from timeline.options import ReadingOptions

COMMANDS = ("compare", "show")
"""First words of a command line that are no path."""


def see_why(
    path: Path, selection: Selection, kind: Kind, reading: ReadingOptions, verdict: Verdict
) -> str:
    """Return the command that shows in detail a step in which the first finding is to be seen.

    All ranks that were selected are, as who waits for whom is known only where all members of a
    group are read; without steps, only those that tell most. Empty where nothing is slow, and of a
    detail. path: of the profile, as given.
    """
    step = verdict.telling_step
    if kind is not Kind.SUMMARY or (step is None and verdict.culprit is None):
        return ""
    words, ranks = ["tlexport", typed_path(path)], selection.ranks
    if step is None:
        ranks = frozenset(verdict.telling_ranks) or ranks
    if ranks is not None:
        words += ["--ranks", spell_ids(ranks, most=len(ranks)).replace(", ", ",")]
    if step is not None:
        words += ["--steps", str(step)]
    return command_line([*words, *spelled_flags(reading), "--kind", "detail"])


def typed_path(path: Path) -> str:
    """A path as the first word of a command line, where one that is called like a command has ./.

    >>> typed_path(Path("show")), typed_path(Path("runs/show"))
    ('./show', 'runs/show')
    """
    text = str(path)
    return f"./{text}" if text in COMMANDS or text.startswith("-") else text
