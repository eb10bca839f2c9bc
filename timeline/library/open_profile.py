"""An open profile: its captures, and the cached figures of selections."""

from __future__ import annotations

import functools
import sys
import warnings
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from timeline.analysis.questions import Questions
from timeline.errors import TimelineWarning, UsageError, in_python
from timeline.keywords import SelectionKeywords
from timeline.options import ReadingOptions
from timeline.progress import Progress
from timeline.selection import Selection, select
from timeline.sources.finding.discovery import Discovered
from timeline.sources.source import Source
from timeline.units import format_count

if TYPE_CHECKING:
    from timeline.ranks.read_ranks import JoinedRanks
    from timeline.verdict.figures import Figures

_PACKAGE = "timeline."


@dataclass(frozen=True)
class Measured:
    """The figures of one selection, the ranks they are of, and notes on what was read."""

    figures: Figures
    joined: JoinedRanks
    notes: tuple[str, ...]


def measure(
    path: Path,
    sources: Sequence[Source],
    reading: ReadingOptions,
    progress: Progress,
    selection: Selection,
    questions: Questions,
) -> Measured:
    """Read the figures of a selection, and warn about lost records.

    Raises:
        TimelineError: something selected does not exist, or a file cannot be read.
    """
    from timeline.verdict.figures import Figures

    ranks = read_and_warn(path, sources, reading, progress, selection, questions)
    figures = Figures.of(ranks.facts, ranks.waiting, ranks.path, ranks.on_disk)
    return Measured(figures, ranks, ranks.notes)


def read_and_warn(
    path: Path,
    sources: Sequence[Source],
    reading: ReadingOptions,
    progress: Progress,
    selection: Selection,
    questions: Questions,
) -> JoinedRanks:
    """Read the facts of the selected ranks, and warn about lost records at the caller's line.

    Raises:
        TimelineError: something selected does not exist, or a file cannot be read.
    """
    from timeline.ranks.read_ranks import read_facts

    try:
        ranks = read_facts(path, sources, reading, progress, selection, questions)
    finally:
        progress.finish()
    omissions = [omission for facts in ranks.facts for omission in facts.omissions]
    lost = [
        f"rank {omission.rank}: {omission.reason} ({format_count(omission.rows, 'record')})"
        for omission in omissions
        if omission.loss
    ]
    caller = _frames_of_package()
    for warning in (*ranks.warnings, *lost):
        warnings.warn(in_python(warning), TimelineWarning, stacklevel=caller)
    return ranks


def _frames_of_package() -> int:
    """Return the `stacklevel` of warnings that points at the code that called this package."""
    frame, count = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        frame, count = frame.f_back, count + 1
    return count


MOST_SELECTIONS = 16
"""Number of selections whose figures are cached; figures are small, and records are not kept."""
ALWAYS_ASKED = Questions(causes=True, calls=True)
"""Questions that every reading answers.

Causes are included because they need HCCL tasks and host calls, which also align clocks and measure
links: without them, figures would differ.
"""


class OpenProfile:
    """A profile that is open until it is closed, with cached figures.

    path: as passed. sources: one capture per rank, ascending. notes: assumptions about captures,
    and captures that are not used. found: all captures at the path, including older runs.
    """

    def __init__(
        self,
        path: Path,
        found: Discovered,
        reading: ReadingOptions,
        progress: Progress,
        place: ExitStack,
    ) -> None:
        self.path = path
        self.sources = found.sources
        self.notes = found.notes
        self.found = found
        self.reading = reading
        self.progress = progress
        self._close = weakref.finalize(self, place.close)
        # The cache holds no reference to the profile, which would keep an archive unpacked.
        self._reader = (path, found.sources, reading, progress)
        read = functools.partial(measure, *self._reader)
        self._read = functools.lru_cache(MOST_SELECTIONS)(read)

    def close(self) -> None:
        """Remove unpacked and fetched files; nothing can be read afterwards.

        A second call does nothing.
        """
        self._close()

    def check_open(self) -> None:
        """Check that files can still be read.

        Raises:
            UsageError: the profile is closed.
        """
        if not self._close.alive:
            raise UsageError(f"the profile {self.path} is closed; open it again.")

    def _measure(
        self,
        selection: Selection | None,
        keywords: SelectionKeywords,
        questions: Questions = ALWAYS_ASKED,
    ) -> Measured:
        """Return the figures of a selection, or of its keywords, from the cache if possible."""
        return self._read(self._chosen(selection, keywords), questions)

    def _chosen(self, selection: Selection | None, keywords: SelectionKeywords) -> Selection:
        """Return the selection without layers, which only matter for drawing.

        Raises:
            UsageError: the profile is closed, or a value is invalid.
        """
        chosen = select(selection, keywords)
        self.check_open()
        return replace(chosen, layers=None)
