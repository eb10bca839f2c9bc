"""The suggested commands that show a verdict in detail, and the form of paths in commands."""

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
    from timeline.verdict.slow_step import SlowBesideUsual
    from timeline.verdict.verdict import Verdict

COMMANDS = ("compare", "open", "query", "show")
"""First words of a command line that name a command instead of a path."""


def see_why(
    path: Path, selection: Selection, kind: Kind, reading: ReadingOptions, verdict: Verdict
) -> tuple[str, Verdict]:
    """Return the command that shows in detail what is slow, and the verdict with its commands.

    The command shows the steps of the first finding; it is empty if nothing is slow, or if this is
    a detail already. The verdict gets a command for each finding, see `Verdict.commands`, and one
    that compares a slow step with a usual one. Commands select the same ranks, since waits are
    known only if all members of a group are read; without steps, they select only the ranks to look
    at. path: the path of the profile as the user typed it.
    """
    if kind is not Kind.SUMMARY:
        return "", verdict
    first, ranks = verdict.steps_to_see, selection.ranks
    if not first:
        ranks = frozenset(verdict.ranks_to_see) or ranks

    def command(steps: Collection[int], pair: SlowBesideUsual | None = None) -> str:
        if not pair and not steps and verdict.culprit is None and not verdict.findings.found:
            return ""
        steps = steps or selection.steps or ()
        words = ["tlexport", *(["compare"] if pair else []), typed_path(path)]
        if ranks is not None:
            words += ["--ranks", format_ids(ranks, most=len(ranks)).replace(", ", ",")]
        if pair:
            words += ["--steps", f"{pair.usual}:{pair.slow}"]
        elif steps:
            words += ["--steps", format_ids(steps, most=len(steps)).replace(", ", ",")]
        return command_line([*words, *format_flags(reading), "--kind", "detail"])

    pair = verdict.pair_to_see
    made = replace(
        verdict,
        commands=tuple(map(command, verdict.finding_steps)),
        compare_command=command((), pair) if pair else "",
    )
    return command(first), made


def typed_path(path: Path) -> str:
    """Return a path as it can be typed after `tlexport`: with ./ before names of commands.

    >>> typed_path(Path("show")), typed_path(Path("runs/show"))
    ('./show', 'runs/show')
    """
    text = str(path)
    return f"./{text}" if text in COMMANDS or text.startswith("-") else text
