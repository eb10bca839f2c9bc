"""The formats that can be written, by suffix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from timeline.encoders.chrome import encode_chrome
from timeline.encoders.deflate import gzipped
from timeline.encoders.perfetto import encode_perfetto
from timeline.encoders.perfetto_tracks import clock_ns
from timeline.encoders.tally import Tally
from timeline.errors import UsageError
from timeline.tracks.model import Timeline

__all__ = ["FORMATS", "Format", "format_of"]


@dataclass(frozen=True)
class Format:
    """A way to encode: its name and suffix, and the encoder."""

    name: str
    suffix: str
    _encode: Callable[[Timeline, Tally | None], Iterator[bytes]]
    _start_ns: Callable[[int], int]

    def encode(self, timeline: Timeline, tally: Tally | None = None) -> Iterator[bytes]:
        """The bytes of the file; tally is told whose they are, before a gzip of the whole."""
        return self._encode(timeline, tally)

    def size_of(self, timeline: Timeline) -> int:
        """The bytes a timeline takes, without writing it."""
        return sum(len(piece) for piece in self.encode(timeline))

    def offset_ns(self, first_ns: int) -> int:
        """What is added to each time of a timeline that begins at first_ns."""
        return self._start_ns(first_ns) - first_ns


def _packed(timeline: Timeline, tally: Tally | None) -> Iterator[bytes]:
    return encode_perfetto(timeline, tally=tally)


def _packed_whole(timeline: Timeline, tally: Tally | None) -> Iterator[bytes]:
    """Perfetto packets that are compressed with the file, not in chunks."""
    return gzipped(encode_perfetto(timeline, compressed=False, tally=tally))


def _chrome(timeline: Timeline, tally: Tally | None) -> Iterator[bytes]:
    return encode_chrome(timeline, tally=tally)


def _chrome_packed(timeline: Timeline, tally: Tally | None) -> Iterator[bytes]:
    return gzipped(encode_chrome(timeline, tally=tally))


def _at_zero(_first_ns: int) -> int:
    return 0


FORMATS = (
    Format("pftrace", ".pftrace", _packed, clock_ns),
    Format("pftrace", ".pftrace.gz", _packed_whole, clock_ns),
    Format("json", ".json", _chrome, _at_zero),
    Format("json", ".json.gz", _chrome_packed, _at_zero),
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
