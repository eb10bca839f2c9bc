"""A profile that is open: its captures, and a cache of the figures that were read."""

from __future__ import annotations

import functools
import weakref
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from timeline.analysis.questions import Questions
from timeline.errors import UsageError
from timeline.keywords import SelectionKeywords
from timeline.library.measure import Measured, measure
from timeline.options import ReadingOptions
from timeline.progress import Progress
from timeline.selection import Selection, select
from timeline.sources.finding.discovery import Discovered

MOST_SELECTIONS = 16
"""Number of selections whose figures are cached; figures are small, records are not kept."""
ALWAYS_ASKED = Questions(causes=True)
"""Questions that every reading answers.

Causes are among them because HCCL tasks and host calls, which they need, also align clocks and
measure links: without them, figures would differ.
"""


class OpenProfile:
    """A profile that is open until it is closed, with the figures that were read from it.

    path: as given. sources: a capture per rank, ascending. notes: what was assumed of captures, and
    which ones were passed over. found: all captures at the path, older runs too.
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
        """Remove what was unpacked; nothing can be read any more. A second call does nothing."""
        self._close()

    def check_open(self) -> None:
        """Make sure that files can still be read.

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
        """Return the selection on an open profile; without layers, which only drawings have."""
        chosen = select(selection, keywords)
        self.check_open()
        return replace(chosen, layers=None)
