"""The formats that can be written, by suffix.

Encoders are imported on use, so that only the needed one is loaded.
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
"""Batch size of text formats; smaller, since progress is reported by batch and text is slow."""
DAY_NS = 86_400 * 10**9
MOST_JSON_NS = (1 << 42) * 1000
"""Longest exact span in JSON, 50 days: viewers read microseconds into doubles, which resolve
nanoseconds up to 2^42 us."""


@dataclass(frozen=True)
class Format:
    """A way to write a timeline: its name and suffix, and how it is compressed.

    most_ns: the longest span in which viewers read every time exactly; None if unlimited.
    folds: whether viewers can fold rows at several levels.
    sent: whether encoding in other processes pays for sending batches to them.
    batch_elements: slices and samples that fill a batch; None for the default.
    """

    name: str
    suffix: str
    packing: Packing
    most_ns: int | None = None
    folds: bool = False
    sent: bool = False
    batch_elements: int | None = None

    def check_span(self, target: Path, span_ns: int) -> None:
        """Check that viewers can read all times of a timeline exactly.

        Raises:
            OutputError: it is longer than the format allows.
        """
        if self.most_ns is not None and span_ns >= self.most_ns:
            raise OutputError(
                f"{target}: the picture spans {span_ns / DAY_NS:.1f} days, and viewers read times "
                f"in {self.suffix} to the nanosecond only up to {self.most_ns // DAY_NS} days.",
                do="Write .pftrace instead, or take a part of it with --window or --steps.",
            )

    def encoder(self, tracks: Sequence[Track], first_ns: int) -> ChromeEncoder | PerfettoEncoder:
        """Return an encoder for timelines with these rows, or some of them, from first_ns on."""
        if self.name == "json":
            from timeline.encoders.chrome import ChromeEncoder

            return ChromeEncoder(tracks, first_ns)
        from timeline.encoders.perfetto import PerfettoEncoder

        return PerfettoEncoder()

    def load(self) -> None:
        """Import the modules that encode and compress before processes are forked."""
        self.packing.pack(self.encoder((), 0).opening(Timeline((), 0, None)), Compression.FAST)


FORMATS = (
    Format("pftrace", ".pftrace", PACKETS, folds=True, sent=True),
    Format("pftrace", ".pftrace.gz", GZIPPED, folds=True, sent=True),
    Format("json", ".json", PLAIN, MOST_JSON_NS, batch_elements=TEXT_BATCH_ELEMENTS),
    Format("json", ".json.gz", GZIPPED, MOST_JSON_NS, batch_elements=TEXT_BATCH_ELEMENTS),
)


def format_of(path: Path) -> Format:
    """Return the format for a path's suffix.

    Raises:
        UsageError: no format has this suffix.
    """
    for form in FORMATS:
        if path.name.endswith(form.suffix):
            return form
    suffixes = ", ".join(form.suffix for form in FORMATS)
    raise UsageError(f"{path}: unknown suffix.", do=f"Use one of {suffixes}.")
