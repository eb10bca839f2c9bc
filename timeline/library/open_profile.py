"""A profile that was found and is open: its captures, and what was read of them."""

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
"""So many selections are remembered; their figures are small, their records are not kept."""
ALWAYS_ASKED = Questions(causes=True)
"""What every reading answers. Causes too: HCCL tasks and host calls, which they need, also tell how
clocks lie and what links moved, so that figures without them would be other ones."""


class OpenProfile:
    """A profile that is open until it is closed, with the figures that were read of it.

    path: as given. sources: a capture per rank, ascending. notes: what was assumed of captures,
    and which were passed over. found: all that lies there, older runs too.
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
        """Remove what was unpacked; nothing can be read any more. A second time does nothing."""
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
        """The figures of a selection, or of its keywords, which are remembered."""
        return self._read(self._chosen(selection, keywords), questions)

    def _chosen(self, selection: Selection | None, keywords: SelectionKeywords) -> Selection:
        """What is selected of an open profile; layers are only of drawings."""
        chosen = select(selection, keywords)
        self.check_open()
        return replace(chosen, layers=None)
