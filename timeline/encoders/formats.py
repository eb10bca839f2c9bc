"""The formats that can be written, by suffix."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from timeline.encoders.chrome import encode_chrome
from timeline.encoders.perfetto import encode_perfetto
from timeline.encoders.sink import GZIP_LEVEL
from timeline.encoders.tally import Tally
from timeline.errors import OutputError
from timeline.tracks.model import Timeline

__all__ = ["FORMATS", "Format", "format_of"]


@dataclass(frozen=True)
class Format:
    """A way to encode: its name and suffix, the encoder, and whether the file is gzipped."""

    name: str
    suffix: str
    _encode: Callable[[Timeline, Tally | None], Iterator[bytes]]
    gzipped: bool

    def encode(self, timeline: Timeline, tally: Tally | None = None) -> Iterator[bytes]:
        """The bytes of the file before it is gzipped; tally is told whose they are."""
        return self._encode(timeline, tally)

    def size_of(self, timeline: Timeline) -> int:
        """The bytes a timeline takes, without writing it."""
        if not self.gzipped:
            return sum(len(piece) for piece in self.encode(timeline))
        packer = zlib.compressobj(GZIP_LEVEL)
        return sum(len(packer.compress(piece)) for piece in self.encode(timeline)) + len(
            packer.flush()
        )


def _packed(timeline: Timeline, tally: Tally | None) -> Iterator[bytes]:
    return encode_perfetto(timeline, tally=tally)


def _plain(timeline: Timeline, tally: Tally | None) -> Iterator[bytes]:
    """Perfetto packets that are compressed with the file, not one by one."""
    return encode_perfetto(timeline, compressed=False, tally=tally)


def _chrome(timeline: Timeline, tally: Tally | None) -> Iterator[bytes]:
    return encode_chrome(timeline, tally=tally)


FORMATS = (
    Format("pftrace", ".pftrace", _packed, False),
    Format("pftrace", ".pftrace.gz", _plain, True),
    Format("json", ".json", _chrome, False),
    Format("json", ".json.gz", _chrome, True),
)


def format_of(path: Path) -> Format:
    """The format that a path's suffix names.

    Raises:
        OutputError: it names none.
    """
    for form in FORMATS:
        if path.name.endswith(form.suffix):
            return form
    known = ", ".join(form.suffix for form in FORMATS)
    raise OutputError(f"{path}: unknown suffix; use one of {known}.")
