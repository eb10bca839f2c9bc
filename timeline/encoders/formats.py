"""The formats that can be written, by suffix.

The encoder of each is imported where it is used: a file has one format, and a listing none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from timeline.encoders.pieces import GZIPPED, PACKETS, PLAIN, Compression, Packing
from timeline.errors import OutputError, UsageError
from timeline.tracks.model import Timeline, Track

if TYPE_CHECKING:
    from timeline.encoders.chrome import ChromeEncoder
    from timeline.encoders.perfetto import PerfettoEncoder

TEXT_BATCH_ELEMENTS = 1 << 12
"""Smaller batches of text, which is encoded slowly: progress is reported by batch."""
DAY_NS = 86_400 * 10**9
MOST_JSON_NS = (1 << 42) * 1000
"""Viewers read microseconds into doubles, whose step is below a nanosecond up to 2^42 (50 days)."""


@dataclass(frozen=True)
class Format:
    """A way to write a timeline: its name and suffix, and how it is compressed.

    most_ns: the longest span whose every time the format holds exactly; None for any.
    folds: whether rows below rows below others are folded with them where it is opened.
    sent: whether batches are worth being sent to other processes, whatever else those do.
    batch_elements: slices and samples that fill a batch; as many as any batch has if None.
    """

    name: str
    suffix: str
    packing: Packing
    most_ns: int | None = None
    folds: bool = False
    sent: bool = False
    batch_elements: int | None = None

    def check_span(self, target: Path, span_ns: int) -> None:
        """Refuse a timeline whose times would be rounded where it is opened.

        Raises:
            OutputError: it spans more than the format holds.
        """
        if self.most_ns is not None and span_ns >= self.most_ns:
            raise OutputError(
                f"{target}: the picture spans {span_ns / DAY_NS:.1f} days, and viewers read times "
                f"in {self.suffix} to the nanosecond only up to {self.most_ns // DAY_NS} days.",
                do="Write .pftrace instead, or take a part of it with --window or --steps.",
            )

    def encoder(self, tracks: Sequence[Track], first_ns: int) -> ChromeEncoder | PerfettoEncoder:
        """Return the encoder of timelines with some of these rows that begin at first_ns."""
        if self.name == "json":
            from timeline.encoders.chrome import ChromeEncoder

            return ChromeEncoder(tracks, first_ns)
        from timeline.encoders.perfetto import PerfettoEncoder

        return PerfettoEncoder()

    def load(self) -> None:
        """Load the modules that encode and compress, so that forked processes have them."""
        self.packing.pack(self.encoder((), 0).opening(Timeline((), 0, None)), Compression.FAST)

    def offset_ns(self, first_ns: int) -> int:
        """Return what is added to each time of a timeline that begins at first_ns."""
        if self.name == "json":
            return -first_ns
        from timeline.encoders.perfetto import clock_ns

        return clock_ns(first_ns) - first_ns


FORMATS = (
    Format("pftrace", ".pftrace", PACKETS, folds=True, sent=True),
    Format("pftrace", ".pftrace.gz", GZIPPED, folds=True, sent=True),
    Format("json", ".json", PLAIN, MOST_JSON_NS, batch_elements=TEXT_BATCH_ELEMENTS),
    Format("json", ".json.gz", GZIPPED, MOST_JSON_NS, batch_elements=TEXT_BATCH_ELEMENTS),
)


def format_of(path: Path) -> Format:
    """Return the format that a path's suffix names.

    Raises:
        UsageError: it names none.
    """
    for form in FORMATS:
        if path.name.endswith(form.suffix):
            return form
    suffixes = ", ".join(form.suffix for form in FORMATS)
    raise UsageError(f"{path}: unknown suffix.", do=f"Use one of {suffixes}.")
