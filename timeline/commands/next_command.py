"""The command that shows a verdict in detail, and the form in which paths are typed in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from timeline.declarations import format_flags
from timeline.errors import format_ids
from timeline.printable import command_line
from timeline.selection import Kind, Selection

if TYPE_CHECKING:
    from timeline.options import ReadingOptions
    from timeline.verdict.verdict import Verdict

COMMANDS = ("compare", "show")
"""First words of a command line that are not paths."""


def see_why(
    path: Path, selection: Selection, kind: Kind, reading: ReadingOptions, verdict: Verdict
) -> tuple[str, Verdict]:
    """Return the command that shows in detail what is slow, and the verdict with more of them.

    It shows steps with the first finding; it is empty if nothing is slow, and for a detail. The
    verdict gets a command for each finding, see `Verdict.commands`. Commands select all ranks that
    were selected, as waits are known only if all members of a group are read; without steps, only
    the ranks to look at. path: of the profile, as given.
    """
    if kind is not Kind.SUMMARY:
        return "", verdict
    first, ranks = verdict.steps_to_see, selection.ranks
    if not first:
        ranks = frozenset(verdict.ranks_to_see) or ranks

    def command(steps: Collection[int]) -> str:
        if not steps and verdict.culprit is None and not verdict.findings.found:
            return ""
        steps = steps or selection.steps or ()
        words = ["tlexport", typed_path(path)]
        if ranks is not None:
            words += ["--ranks", format_ids(ranks, most=len(ranks)).replace(", ", ",")]
        if steps:
            words += ["--steps", format_ids(steps, most=len(steps)).replace(", ", ",")]
        return command_line([*words, *format_flags(reading), "--kind", "detail"])

    return command(first), replace(verdict, commands=tuple(map(command, verdict.finding_steps)))


def typed_path(path: Path) -> str:
    """Return a path as the first word of a command line, with ./ before names of commands.

    >>> typed_path(Path("show")), typed_path(Path("runs/show"))
    ('./show', 'runs/show')
    """
    text = str(path)
    return f"./{text}" if text in COMMANDS or text.startswith("-") else text
