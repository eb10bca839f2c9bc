"""WorkerPool: does the work of ranks in this process, in several, or on a Dask cluster."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from timeline.errors import SourceError, TimelineError, WorkerError
from timeline.options import ReadingOptions
from timeline.progress import UPDATE_SECONDS, Progress, RanksRead, Silent
from timeline.ranks.shared_columns import kept
from timeline.sources.files.opened import counting
from timeline.sources.source import Source

if TYPE_CHECKING:
    from timeline.encoders.piece_maker import EncodingWorkers

# -- bytes read ------------------------------------------------------------------------------------


TOLD_BYTES = 1 << 16
"""Fewer bytes more than those told last are told later."""
_RANK, _BYTES, _CELLS = range(3)
_NOBODY = -1


@dataclass
class ReadCounts:
    """By place the rank that is read there, and how many bytes of it are read."""

    cells: MutableSequence[int]

    def bytes_of_ranks(self) -> dict[int, int]:
        """Return the bytes that are read of each rank in work, or last."""
        cells = list(self.cells)
        pairs = zip(cells[_RANK::_CELLS], cells[_BYTES::_CELLS], strict=True)
        return {rank: size_bytes for rank, size_bytes in pairs if rank != _NOBODY}

    def clear(self) -> None:
        """Forget the ranks in work: they are read again."""
        for at in range(_RANK, len(self.cells), _CELLS):
            self.cells[at] = _NOBODY


@dataclass
class LocalCounts(ReadCounts):
    """Those of this process alone, which tells them: nobody else has time to look."""

    cells: MutableSequence[int] = field(default_factory=lambda: [_NOBODY, 0])
    tell: Callable[[], None] = lambda: None


@dataclass
class SharedCounts(ReadCounts):
    """Those of several processes; taken: how many have a place."""

    taken: Any

    @classmethod
    def of(cls, jobs: int) -> SharedCounts:
        """Return places for so many processes.

        Raises:
            OSError: this machine has no memory that processes share.
        """
        from multiprocessing import get_context

        context = get_context("spawn")  # whose locks copies of this process take too
        return cls(context.RawArray("q", [_NOBODY, 0] * jobs), context.Value("i", 0))


_PLACE: tuple[ReadCounts, int] | None = None
"""Of this process, where it works for another."""


def take_place(counts: SharedCounts) -> None:
    """Take a place for what this process reads from now on."""
    global _PLACE  # noqa: PLW0603
    with counts.taken.get_lock():
        place = counts.taken.value
        counts.taken.value = place + 1
    _PLACE = (counts, place % (len(counts.cells) // _CELLS))


@contextmanager
def counted_here(rank: int, local: LocalCounts | None) -> Iterator[None]:
    """Run a `with` block in which a rank is read, in this process or one with a place."""
    place = _PLACE if local is None else (local, 0)
    if place is None:
        yield
        return
    counts, at = place
    counts.cells[_CELLS * at + _BYTES] = 0
    counts.cells[_CELLS * at + _RANK] = rank
    waiting = 0

    def count(size_bytes: int) -> None:
        nonlocal waiting
        waiting += size_bytes
        if waiting >= TOLD_BYTES:
            counts.cells[_CELLS * at + _BYTES] += waiting
            waiting = 0
            if local is not None:
                local.tell()

    with counting(count):
        yield


# -- pools -----------------------------------------------------------------------------------------


RANKS_PER_PROCESS = 2
"""Ranks in work for each process: one that is read, one that waits."""
WORTH_PROCESSES_BYTES = 32 << 20
"""Below this size reading takes less time than starting processes."""
MOST_WINDOWS_PROCESSES = 61
"""Windows waits for no more at once."""
UNPACKED_PER_PACKED = 10
"""Text that is compressed takes about so many times as long to read as its size says."""
_DIED_TWICE = "its process died, and so did another one,"

_Request = TypeVar("_Request")
_Output = TypeVar("_Output")
Work = Callable[[Source, _Request], _Output]
"""What is done for a rank and a request."""
_Result = TypeVar("_Result")


def _shut_down(executor: Executor) -> None:
    executor.shutdown(wait=False, cancel_futures=True)


def _nothing_to_close() -> None:
    """Do nothing: most pools hold nothing but their executor."""


@dataclass
class WorkerPool:
    """Does the work of ranks in as many processes as `jobs`, and starts these when they are needed.

    sizes_bytes: what is stored of each rank, as far as it is known; progress tells how much of it
    is read. failures: with keep_going, the ranks that were left out and why.
    """

    start: Callable[[], Executor]
    jobs: int
    progress: Progress
    keep_going: bool = False
    stop: Callable[[Executor], None] = _shut_down
    close: Callable[[], None] = _nothing_to_close
    result: Callable[[Future[Any]], Any] = Future.result
    """Waits for the result of a rank."""
    worker_lost: tuple[type[BaseException], ...] = (BrokenExecutor,)
    """Exceptions that mean a worker died without saying which rank it was reading."""
    rank_killed_worker: tuple[type[BaseException], ...] = ()
    """Exceptions that mean a worker died of the very rank whose result was asked for."""
    shares_memory: bool = True
    """Whether workers run on this machine, so that columns come to them fast."""
    sizes_bytes: Mapping[int, int] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    counts: ReadCounts | None = None
    """How much is read of the ranks in work, where that can be told and somebody looks."""
    _executor: Executor | None = None

    def results(
        self,
        sources: Sequence[Source],
        work: Work[_Request, _Output],
        requests: Sequence[_Request],
        *,
        every: bool = False,
    ) -> Iterator[tuple[Source, _Output]]:
        """Do the work of each rank; results come in the order of the sources.

        Only a few ranks are in work or waiting at any time, whatever their number.

        Args:
            work: what is done for a rank and its request; both travel to the process that does it.
            every: whether no rank may be left out now, keep_going or not.

        Raises:
            TimelineError: that of the first rank that fails, unless they are to be left out.
        """
        leave_out = self.keep_going and not every
        waiting = deque(zip(sources, requests, strict=True))
        in_work = deque[tuple[Source, _Request, Future[_Output]]]()
        ranks = [source.identity.rank for source in sources]
        sizes_bytes = {rank: self.sizes_bytes.get(rank, 0) for rank in ranks}
        in_part = None if self.counts is None else self.counts.bytes_of_ranks
        read = RanksRead(self.progress, sizes_bytes, in_part)
        if isinstance(self.counts, LocalCounts):
            self.counts.tell = read.report
        while waiting or in_work:
            while waiting and len(in_work) < RANKS_PER_PROCESS * self.jobs:
                source, request = waiting.popleft()
                future = self._submit(work, source, request)
                future.add_done_callback(partial(_note, read, source.identity.rank))
                in_work.append((source, request, future))
            source, request, future = in_work.popleft()
            self._wait(future, read)
            try:
                yield source, self._result(source, future)
            except _LostError:
                # Nobody knows whose fault it was: those in work are done again, this one alone.
                waiting.extendleft((each, asked) for each, asked, _ in reversed(in_work))
                in_work.clear()
                self._stop()
                output = self._alone(work, source, request, leave_out=leave_out)
                if output is not None:
                    yield source, output
            except TimelineError as error:
                self._fail(source, error, leave_out=leave_out)

    def _submit(
        self, work: Work[_Request, _Output], source: Source, request: _Request
    ) -> Future[_Output]:
        if self._executor is None:
            self._executor = self.start()
        try:
            local = self.counts if isinstance(self.counts, LocalCounts) else None
            return self._executor.submit(_counted, work, source, request, local)
        except self.worker_lost as error:
            failed: Future[_Output] = Future()
            failed.set_exception(error)
            return failed

    def _wait(self, future: Future[_Output], read: RanksRead) -> None:
        """Wait until a rank is read, and meanwhile tell how much of those in work is."""
        if self.counts is not None:
            while wait([future], UPDATE_SECONDS).not_done:
                read.report()

    def _result(self, source: Source, future: Future[_Output]) -> _Output:
        try:
            return cast("_Output", self.result(future))
        except self.worker_lost as error:
            raise _LostError from error
        except self.rank_killed_worker as error:
            raise WorkerError(source.identity.rank, _DIED_TWICE) from error
        except MemoryError as error:
            raise WorkerError(source.identity.rank, "there is not enough memory") from error

    def _alone(
        self,
        work: Work[_Request, _Output],
        source: Source,
        request: _Request,
        *,
        leave_out: bool,
    ) -> _Output | None:
        try:
            return self._result(source, self._submit(work, source, request))
        except _LostError:
            self._stop()
            lost = WorkerError(source.identity.rank, _DIED_TWICE)
            self._fail(source, lost, leave_out=leave_out)
        except TimelineError as error:
            self._fail(source, error, leave_out=leave_out)
        return None

    def _fail(self, source: Source, error: TimelineError, *, leave_out: bool) -> None:
        if not leave_out:
            if isinstance(error, SourceError) and len(self.sizes_bytes) > 1 and not self.keep_going:
                error.offer_others()
            raise error
        self.failures[source.identity.rank] = str(error)

    def _stop(self) -> None:
        executor, self._executor = self._executor, None
        if self.counts is not None:
            self.counts.clear()
        if executor is not None:
            self.stop(executor)

    def encoders(self) -> EncodingWorkers | None:
        """Return the processes of this machine that have done their work, if there are any."""
        if self._executor is None or self.jobs < 2 or not self.shares_memory:
            return None
        from timeline.encoders.piece_maker import EncodingWorkers  # tables need no encoders

        return EncodingWorkers(self._executor, self.jobs)

    def left_out(self) -> tuple[str, ...]:
        """Return the ranks that were left out and why, for people."""
        return tuple(f"rank {rank} is left out: {why}" for rank, why in self.failures.items())

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Leave no worker behind, whatever ended their work."""
        self._stop()
        self.close()


def _note(read: RanksRead, rank: int, future: Future[_Output]) -> None:
    """Count a rank that is read; one that was lost is read again."""
    if not future.cancelled() and future.exception() is None:
        read.note(rank)


def _counted(
    work: Work[_Request, _Output], source: Source, request: _Request, local: LocalCounts | None
) -> _Output:
    with counted_here(source.identity.rank, local):
        return work(source, request)


class _LostError(Exception):
    """A worker is gone, and with it the results of all that were in work."""


class _Inline(Executor):
    """Does everything at once, in this process."""

    def __init__(self, ranks: int) -> None:
        """Keep so many results; ranks: how many."""
        self._ranks = ranks

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        future: Future[_Result] = Future()
        try:
            future.set_result(kept(fn(*args, **kwargs), self._ranks))
        except (TimelineError, MemoryError) as error:
            future.set_exception(error)
        return future


def worker_pool_for(
    sources: Sequence[Source], reading: ReadingOptions, progress: Progress
) -> WorkerPool:
    """Choose who works on ranks: this process, several of this machine, or a cluster.

    Raises:
        UsageError: the executor names no cluster that can be reached.
    """
    stored = {source.identity.rank: _Stored.of(source) for source in sources}
    sizes_bytes = {rank: found.size_bytes for rank, found in stored.items()}
    jobs, keep_going = reading.jobs, reading.keep_going
    if reading.executor:
        return _cluster_pool(reading.executor, progress, keep_going, sizes_bytes)
    if jobs is None:
        large = sum(found.unpacked_bytes for found in stored.values()) >= WORTH_PROCESSES_BYTES
        jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        jobs = (jobs or 1) if large else 1
    most = MOST_WINDOWS_PROCESSES if sys.platform == "win32" else len(sources)
    jobs = max(1, min(jobs, len(sources), most))
    counts = None if isinstance(progress, Silent) else _counts(jobs)
    inline = partial(_Inline, len(sources))
    start = inline if jobs == 1 else partial(_processes, jobs, counts)
    return WorkerPool(start, jobs, progress, keep_going, sizes_bytes=sizes_bytes, counts=counts)


def _counts(jobs: int) -> ReadCounts | None:
    if jobs == 1:
        return LocalCounts()
    with contextlib.suppress(OSError):  # then only whole ranks are counted
        return SharedCounts.of(jobs)
    return None


def _processes(jobs: int, counts: ReadCounts | None) -> Executor:
    from timeline.ranks.executors import Processes

    return Processes(jobs, counts if isinstance(counts, SharedCounts) else None)


@dataclass(frozen=True)
class _Stored:
    """The bytes of a rank's files, and about as many as they have where none is compressed."""

    size_bytes: int = 0
    unpacked_bytes: int = 0

    @classmethod
    def of(cls, source: Source) -> _Stored:
        """Sum the files of a source; one that is gone or cannot be seen counts for nothing."""
        size_bytes = unpacked_bytes = 0
        for path in source.files:
            with contextlib.suppress(OSError):  # its reader will say so
                file_bytes = path.stat().st_size
                size_bytes += file_bytes
                unpacked_bytes += file_bytes * (UNPACKED_PER_PACKED if path.suffix == ".gz" else 1)
        return cls(size_bytes, unpacked_bytes)


def _cluster_pool(
    address: str, progress: Progress, keep_going: bool, sizes_bytes: Mapping[int, int]
) -> WorkerPool:
    from timeline.ranks.executors import Cluster, DiedTwiceError

    cluster = Cluster(address)
    from distributed.scheduler import KilledWorker

    return WorkerPool(
        lambda: cluster,
        max(1, cluster.threads()),
        progress,
        keep_going,
        stop=lambda _: cluster.drop(),
        close=cluster.close,
        result=cluster.result,
        worker_lost=(KilledWorker,),
        rank_killed_worker=(DiedTwiceError,),
        shares_memory=False,
        sizes_bytes=sizes_bytes,
    )
