"""PieceMaker, which encodes batches of tracks in threads of this process or in other processes."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from timeline.encoders.formats import Format
from timeline.encoders.pieces import (
    TEXT_SEQUENCE,
    Compression,
    Packing,
    Piece,
    TrackBatch,
    batch_tracks,
    in_file_order,
)
from timeline.tracks.model import Timeline, Track

if TYPE_CHECKING:
    from timeline.encoders.chrome import ChromeEncoder
    from timeline.encoders.perfetto import PerfettoEncoder

THREADS = min(4, os.cpu_count() or 1)
"""Number of threads that encode; they release the interpreter lock most of the time."""
ALONE_SECONDS = 0.25
"""Time that one thread encodes before others help. For less work, two threads take as long as one
and 40 % more CPU time.
"""
BATCHES_PER_WORKER = 4
"""Maximum number of batches in progress or waiting for each process."""
MOST_BATCHES_SENT = 32
"""Maximum number of batches in progress or waiting, however many processes there are."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class EncodingWorkers:
    """Idle worker processes on this machine, and their number."""

    executor: Executor
    jobs: int


class PieceMaker:
    """Encodes the pieces of a file; their bytes do not depend on the thread or process used.

    The caller's thread encodes the first pieces, so small files start no threads.
    """

    def __init__(
        self,
        form: Format,
        tracks: Sequence[Track],
        first_ns: int,
        workers: EncodingWorkers | None = None,
    ) -> None:
        """tracks: all rows that the file may have. workers: processes that may help."""
        self.encoder = form.encoder(tracks, first_ns)
        self.packing = form.packing
        self._batch_elements = form.batch_elements
        self.first_ns = first_ns
        self._workers = workers if form.sent else None

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        """Return threads of this process, started on first use and ended at exit."""
        return ThreadPoolExecutor(THREADS)

    def __enter__(self) -> PieceMaker:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if "threads" in self.__dict__:
            self.threads.shutdown()

    def make_file(
        self,
        timeline: Timeline,
        tracks: Sequence[Track],
        sentences: Sequence[Track] = (),
        compression: Compression = Compression.BEST,
        report: Callable[[int], None] = lambda _: None,
    ) -> Iterator[Piece]:
        """Yield all pieces of a file.

        tracks: the timeline's tracks of records. sentences: its few short tracks of sentences.
        report: called with the number of slices encoded since the last call.
        """
        yield self.opening(timeline, sentences, compression)
        batches = batch_tracks(in_file_order(tracks), self.first_ns, least=self._batch_elements)
        for piece, slices in self.make_all(batches, compression):
            report(slices)
            yield piece
        yield self.closing(tracks, compression)

    def opening(
        self, timeline: Timeline, sentences: Sequence[Track], compression: Compression
    ) -> Piece:
        """Return the first piece of a file: attributes, descriptors of rows, and sentences."""
        rows = self.encoder.opening(timeline)
        batches = batch_tracks(sentences, self.first_ns, TEXT_SEQUENCE)
        return self.packing.pack(chain(rows, *map(self.encoder.encode, batches)), compression)

    def closing(self, tracks: Sequence[Track], compression: Compression) -> Piece:
        """Return the last piece of a file, given all encoded tracks."""
        return self.packing.pack(self.encoder.closing(tracks), compression)

    def make(self, batch: TrackBatch, compression: Compression, *, arrows: bool = False) -> Piece:
        """Encode and compress a batch; arrows: include events of arrows, which end a file."""
        return self.packing.pack(self.encoder.encode(batch, arrows=arrows), compression)

    def make_all(
        self, batches: Iterable[TrackBatch], compression: Compression
    ) -> Iterator[tuple[Piece, int]]:
        """Yield pieces in the order of their batches, and the number of slices of each.

        Few batches are in progress at a time. If a process dies, its batches are encoded here.
        """
        most = THREADS
        if self._workers is not None:
            most = min(BATCHES_PER_WORKER * self._workers.jobs, MOST_BATCHES_SENT)
        submitted = deque[tuple[TrackBatch, Future[Piece] | None]]()
        helped_from_s = time.monotonic() + ALONE_SECONDS
        for number, batch in enumerate(batches):
            if number == 0 or time.monotonic() < helped_from_s:
                yield self.make(batch, compression), batch.slices
                continue
            submitted.append((batch, self._submit(batch, compression)))
            if len(submitted) > most:
                yield self._result(*submitted.popleft(), compression)
        while submitted:
            yield self._result(*submitted.popleft(), compression)

    def map(
        self, function: Callable[[_Item], _Result], items: Iterable[_Item]
    ) -> Iterator[_Result]:
        """Apply a function to items in order, in threads after ALONE_SECONDS."""
        waiting = iter(items)
        helped_from_s = time.monotonic() + ALONE_SECONDS
        for item in waiting:
            yield function(item)
            if time.monotonic() >= helped_from_s:
                break
        yield from self.threads.map(function, waiting)

    def _submit(self, batch: TrackBatch, compression: Compression) -> Future[Piece] | None:
        """Submit a batch; return None if the processes have died."""
        if self._workers is None:
            return self.threads.submit(self.make, batch, compression)
        try:
            return self._workers.executor.submit(
                _make, self.encoder, self.packing, batch.for_sending(), compression
            )
        except BrokenExecutor:
            return None

    def _result(
        self, batch: TrackBatch, future: Future[Piece] | None, compression: Compression
    ) -> tuple[Piece, int]:
        if future is not None:
            try:
                return future.result(), batch.slices
            except (BrokenExecutor, MemoryError):
                pass
        return self.make(batch, compression), batch.slices


def _make(
    encoder: ChromeEncoder | PerfettoEncoder,
    packing: Packing,
    batch: TrackBatch,
    compression: Compression,
) -> Piece:
    return packing.pack(encoder.encode(batch), compression)
