"""The command that says what is slow in a profile, and writes no file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from timeline.analysis.questions import Questions
from timeline.commands.inputs import open_if_path
from timeline.commands.next_command import see_why
from timeline.declarations import with_keywords
from timeline.keywords import VerdictKeywords
from timeline.options import ExportOptions, ReadingOptions
from timeline.profile import Profile
from timeline.reports.filed_verdict import FiledVerdict
from timeline.selection import Kind, Selection
from timeline.verdict.verdict import Verdict
from timeline.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Unpack


@with_keywords(VerdictKeywords, Selection, ExportOptions, ReadingOptions)
def find_verdict(
    profile: Profile | str | os.PathLike[str],
    *,
    selection: Selection | None = None,
    **keywords: Unpack[VerdictKeywords],
) -> FiledVerdict:
    """Say what is slow in a profile: what `export` would say of it, without drawing anything.

    What readers have to say, and records that cannot be read, are a TimelineWarning.

    Args:
        profile: one that is open, or a path as for `open_profile`.
        selection: which part; all if not given. Or its keywords instead:
        ranks, graphs, steps, window: as for a Selection.
        causes: say why devices wait and idle, which reads HCCL tasks and host calls too.
        assign_rank, align, offset, fp_start, bp_end, jobs, executor, keep_going, progress: how a
            path is opened; see `open_profile`. A profile that is open has its own.

    Raises:
        TimelineError: something selected is not there, or a file cannot be read.
    """
    with open_if_path(profile, keywords) as source:
        source.check_open()
        asked = Questions(causes=keywords.get("causes", True))
        measured = source._measure(selection, keywords, asked)
        chosen = source._chosen(selection, keywords)
        command, verdict = see_why(
            source.path, chosen, Kind.SUMMARY, source.reading, Verdict.of(measured.figures)
        )
        notes = (*source.notes, *measured.notes)
        return FiledVerdict.of_export(
            __version__, Kind.SUMMARY.value, verdict, measured.figures, command, notes
        ).as_read()
