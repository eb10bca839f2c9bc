"""The command that looks closer at what a verdict names, and how paths are typed in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from timeline.declarations import spelled_flags
from timeline.printable import command_line
from timeline.selection import Kind

if TYPE_CHECKING:
    from timeline.figures.verdict import Verdict
    from timeline.options import ReadingOptions

__all__ = ["COMMANDS", "see_why", "typed_path"]

COMMANDS = ("compare", "show")
"""First words of a command line that are no path."""


def see_why(path: Path, kind: Kind, reading: ReadingOptions, verdict: Verdict) -> str:
    """The command that shows in detail the slowest step of the ranks that tell why it is slow.

    path: of the profile, as given. Empty where nothing is slow, and of a detail.
    """
    slowest = verdict.step_extreme
    if kind is not Kind.SUMMARY or (slowest is None and verdict.culprit is None):
        return ""
    words = ["tlexport", typed_path(path), "--ranks", ",".join(map(str, verdict.telling_ranks))]
    if slowest is not None:
        words += ["--steps", str(slowest.slowest)]
    return command_line([*words, *spelled_flags(reading), "--kind", "detail"])


def typed_path(path: Path) -> str:
    """A path as the first word of a command line, where one that is called like a command has ./.

    >>> typed_path(Path("show")), typed_path(Path("runs/show"))
    ('./show', 'runs/show')
    """
    text = str(path)
    return f"./{text}" if text in COMMANDS or text.startswith("-") else text
