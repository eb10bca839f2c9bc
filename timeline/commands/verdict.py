"""The command that says what is slow in a profile, and writes no file."""

from __future__ import annotations

import os
from dataclasses import dataclass
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
from timeline.verdict.figures import Figures
from timeline.verdict.verdict import Verdict
from timeline.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from timeline.keywords import SelectionKeywords
    from timeline.library.open_profile import Measured


@dataclass(frozen=True)
class Answer:
    """The figures of a selection, the verdict, and notes on what was read.

    see_why: the command that shows why, "" if nothing is slow.
    """

    kind: Kind
    figures: Figures
    verdict: Verdict
    see_why: str
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        profile: Profile,
        selection: Selection,
        kind: Kind,
        figures: Figures,
        notes: tuple[str, ...],
    ) -> Answer:
        """Return the answer that figures of a selection give."""
        verdict = Verdict.of(figures)
        command, verdict = see_why(profile.path, selection, kind, profile.reading, verdict)
        return cls(kind, figures, verdict, command, notes)

    def filed(self) -> FiledVerdict:
        """Return the verdict in the form in which files contain it."""
        return FiledVerdict.of_export(
            __version__, self.kind.value, self.verdict, self.figures, self.see_why, self.notes
        )


@with_keywords(VerdictKeywords, Selection, ExportOptions, ReadingOptions)
def find_verdict(
    profile: Profile | str | os.PathLike[str],
    *,
    selection: Selection | None = None,
    **keywords: Unpack[VerdictKeywords],
) -> FiledVerdict:
    """Return what is slow in a profile: the verdict of `export`, without drawing anything.

    Warnings of readers, and records that cannot be read, become a TimelineWarning.

    Args:
        profile: an open profile, or a path as for `open_profile`.
        selection: a part of the profile, all by default. Or pass its keywords instead:
        ranks, graphs, steps, window: as for a Selection.
        causes: say why devices wait and idle, which reads HCCL tasks and host calls too.
        assign_rank, align, offset, fp_start, bp_end, jobs, executor, peak_flops, keep_going,
            progress: as for `open_profile`, if a path is passed; an open profile has its own.

    Raises:
        TimelineError: something selected does not exist, or a file cannot be read.
    """
    return answer(profile, selection, keywords).filed()


def answer(
    profile: Profile | str | os.PathLike[str],
    selection: Selection | None,
    keywords: VerdictKeywords,
) -> Answer:
    """Return the verdict like `find_verdict`, together with its figures."""
    with open_if_path(profile, keywords) as source:
        source.check_open()
        # No verdict shows host calls by name, but tables of the same open profile do.
        asked = Questions(causes=keywords.get("causes", True), calls=source is profile)
        return measured_answer(source, selection, keywords, asked)[0]


def measured_answer(
    profile: Profile, selection: Selection | None, keywords: SelectionKeywords, asked: Questions
) -> tuple[Answer, Measured]:
    """Return the verdict on a selection, or on that of its keywords, and what it is made of."""
    measured = profile._measure(selection, keywords, asked)
    chosen = profile._chosen(selection, keywords)
    notes = (*profile.notes, *measured.notes)
    return Answer.of(profile, chosen, Kind.SUMMARY, measured.figures, notes), measured
