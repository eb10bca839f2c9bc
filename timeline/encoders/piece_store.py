"""PieceStore: pieces of a file that wait until all are made, in memory while they are few."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from types import TracebackType

from timeline.encoders.pieces import Piece

MOST_BYTES_IN_MEMORY = 64 << 20
"""Beyond that they go to a temporary file."""


class PieceStore:
    """Holds pieces by number; a later one of a number takes the place of the earlier."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(MOST_BYTES_IN_MEMORY)  # noqa: SIM115
        self._places: dict[int, tuple[int, int]] = {}
        self._light: dict[int, Piece] = {}
        self._end = 0

    def put(self, number: int, piece: Piece) -> None:
        """Hold a piece."""
        self._file.seek(self._end)
        self._file.write(piece.body)
        self._places[number] = self._end, len(piece)
        self._light[number] = Piece(b"", piece.raw_bytes, piece.checksum)
        self._end += len(piece)

    def pieces(self) -> Iterator[Piece]:
        """All pieces in order of their numbers."""
        for number in sorted(self._places):
            first, size = self._places[number]
            self._file.seek(first)
            light = self._light[number]
            yield Piece(self._file.read(size), light.raw_bytes, light.checksum)

    def __enter__(self) -> PieceStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
