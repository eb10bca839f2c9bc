"""The formats that can be written, by suffix.

The encoder of each is imported where it is used: a file has one format, and a listing none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from timeline.encoders.compression import BEST_LEVEL, TrackSizes, gzip_pieces
from timeline.encoders.encoding_workers import EncodingWorkers
from timeline.errors import OutputError, UsageError
from timeline.tracks.model import Timeline

__all__ = ["FORMATS", "Format", "format_of"]

DAY_NS = 86_400 * 10**9
MOST_JSON_NS = (1 << 42) * 1000
"""Viewers read microseconds into doubles, whose step is below a nanosecond up to 2^42 (50 days)."""


@dataclass(frozen=True)
class Format:
    """A way to encode: its name and suffix, and the encoder."""

    name: str
    suffix: str
    _encode: Callable[[Timeline, TrackSizes | None, int, EncodingWorkers | None], Iterator[bytes]]
    _start_ns: Callable[[int], int]
    most_ns: int | None = None
    """The longest span whose every time the format holds exactly; None for any."""

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

    def encode(
        self,
        timeline: Timeline,
        sizes: TrackSizes | None = None,
        *,
        level: int = BEST_LEVEL,
        workers: EncodingWorkers | None = None,
    ) -> Iterator[bytes]:
        """The bytes of the file; sizes is told whose they are, before a gzip of the whole.

        level: how hard is tried to compress them, where the format does. workers: other processes
        that have time, where the format can make use of them.
        """
        return self._encode(timeline, sizes, level, workers)

    def size_of(self, timeline: Timeline) -> int:
        """The bytes a timeline takes, without writing it."""
        return sum(len(piece) for piece in self.encode(timeline))

    def load(self) -> None:
        """Load the encoder, so that copies of this process have it."""
        self.size_of(Timeline((), 0, None))

    def offset_ns(self, first_ns: int) -> int:
        """What is added to each time of a timeline that begins at first_ns."""
        return self._start_ns(first_ns) - first_ns


def _perfetto(
    timeline: Timeline, sizes: TrackSizes | None, level: int | None, workers: EncodingWorkers | None
) -> Iterator[bytes]:
    from timeline.encoders.perfetto import encode_perfetto

    return encode_perfetto(timeline, level=level, sizes=sizes, workers=workers)


def _perfetto_gzipped(
    timeline: Timeline, sizes: TrackSizes | None, level: int, workers: EncodingWorkers | None
) -> Iterator[bytes]:
    """Packets that are compressed with the file, not in blocks."""
    return gzip_pieces(_perfetto(timeline, sizes, None, workers), level)


def _perfetto_clock_ns(first_ns: int) -> int:
    from timeline.encoders.perfetto_tracks import clock_ns

    return clock_ns(first_ns)


def _chrome(
    timeline: Timeline, sizes: TrackSizes | None, _level: int, _workers: EncodingWorkers | None
) -> Iterator[bytes]:
    from timeline.encoders.chrome import encode_chrome

    return encode_chrome(timeline, sizes=sizes)


def _chrome_gzipped(
    timeline: Timeline, sizes: TrackSizes | None, level: int, workers: EncodingWorkers | None
) -> Iterator[bytes]:
    return gzip_pieces(_chrome(timeline, sizes, level, workers), level)


def _at_zero(_first_ns: int) -> int:
    return 0


FORMATS = (
    Format("pftrace", ".pftrace", _perfetto, _perfetto_clock_ns),
    Format("pftrace", ".pftrace.gz", _perfetto_gzipped, _perfetto_clock_ns),
    Format("json", ".json", _chrome, _at_zero, MOST_JSON_NS),
    Format("json", ".json.gz", _chrome_gzipped, _at_zero, MOST_JSON_NS),
)


def format_of(path: Path) -> Format:
    """The format that a path's suffix names.

    Raises:
        UsageError: it names none.
    """
    for form in FORMATS:
        if path.name.endswith(form.suffix):
            return form
    known = ", ".join(form.suffix for form in FORMATS)
    raise UsageError(f"{path}: unknown suffix.", do=f"Use one of {known}.")
