"""WorkerPool, which processes ranks in this process, in several, or on a Dask cluster."""

from __future__ import annotations

import contextlib
import errno
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
from timeline.ranks.shared_columns import pack_if_many
from timeline.sources.files.opened import counting
from timeline.sources.source import Source

if TYPE_CHECKING:
    from timeline.encoders.piece_maker import EncodingWorkers

# -- bytes read ------------------------------------------------------------------------------------


REPORT_BYTES = 1 << 16
"""Number of further bytes that are read before progress is reported again."""
_RANK, _BYTES, _CELLS = range(3)
"""Positions of the cells of a slot, and their number."""
_NO_RANK = -1


@dataclass
class ReadCounts:
    """Slots, one per process: the rank that it reads, and the bytes of it read so far."""

    cells: MutableSequence[int]

    def bytes_of_ranks(self) -> dict[int, int]:
        """Return the bytes read of each rank that is being read, or was last in its slot."""
        cells = list(self.cells)
        pairs = zip(cells[_RANK::_CELLS], cells[_BYTES::_CELLS], strict=True)
        return {rank: size_bytes for rank, size_bytes in pairs if rank != _NO_RANK}

    def clear(self) -> None:
        """Reset all slots before ranks are read again."""
        for at in range(_RANK, len(self.cells), _CELLS):
            self.cells[at] = _NO_RANK


@dataclass
class LocalCounts(ReadCounts):
    """Counts of this process alone, which also refreshes the progress while it reads."""

    cells: MutableSequence[int] = field(default_factory=lambda: [_NO_RANK, 0])
    report: Callable[[], None] = lambda: None


@dataclass
class SharedCounts(ReadCounts):
    """Counts of several processes in shared memory; taken: number of slots in use."""

    taken: Any

    @classmethod
    def of(cls, jobs: int) -> SharedCounts:
        """Return slots for `jobs` processes.

        Raises:
            OSError: this machine has no memory that processes can share.
        """
        from multiprocessing import get_context

        context = get_context("spawn")  # forked processes can use its locks too
        return cls(context.RawArray("q", [_NO_RANK, 0] * jobs), context.Value("i", 0))


_SLOT: tuple[ReadCounts, int] | None = None
"""The slot of this process if it is a worker: the counts, and its number in them."""


def take_slot(counts: SharedCounts) -> None:
    """Take a slot in which this process counts the bytes that it reads from now on."""
    global _SLOT  # noqa: PLW0603
    with counts.taken.get_lock():
        number = counts.taken.value
        counts.taken.value = number + 1
    _SLOT = (counts, number % (len(counts.cells) // _CELLS))


@contextmanager
def count_bytes_read(rank: int, local: LocalCounts | None) -> Iterator[None]:
    """Count the bytes read of a rank in a `with` block: in `local`, else in the worker's slot."""
    slot = _SLOT if local is None else (local, 0)
    if slot is None:
        yield
        return
    counts, number = slot
    counts.cells[_CELLS * number + _BYTES] = 0
    counts.cells[_CELLS * number + _RANK] = rank
    unreported_bytes = 0

    def count(size_bytes: int) -> None:
        nonlocal unreported_bytes
        unreported_bytes += size_bytes
        if unreported_bytes >= REPORT_BYTES:
            counts.cells[_CELLS * number + _BYTES] += unreported_bytes
            unreported_bytes = 0
            if local is not None:
                local.report()

    with counting(count):
        yield


# -- pools -----------------------------------------------------------------------------------------


RANKS_PER_PROCESS = 2
"""Ranks submitted at a time per process: one that is read, one that waits."""
WORTH_PROCESSES_BYTES = 32 << 20
"""Total size below which reading takes less time than starting processes."""
MOST_WINDOWS_PROCESSES = 61
"""Maximum number of processes that Windows can wait for at once."""
UNPACKED_PER_PACKED = 10
"""Typical ratio of unpacked to packed bytes of compressed text, and so of the time to read it."""
UNSHARED = frozenset({errno.EROFS, errno.ENOSPC, errno.EACCES, errno.ENOENT, errno.ENOSYS})
"""Error numbers that mean that processes cannot share memory, for which Linux has /dev/shm."""
_ALONE = "one process reads all ranks, as /dev/shm, or what is in its place, cannot be written."
_DIED_TWICE = "its process died, and so did another one,"

_Request = TypeVar("_Request")
_Output = TypeVar("_Output")
Work = Callable[[Source, _Request], _Output]
"""A function that processes one rank as a request says."""
_Result = TypeVar("_Result")


def _shut_down(executor: Executor) -> None:
    executor.shutdown(wait=False, cancel_futures=True)


def _nothing_to_close() -> None:
    """Do nothing, for pools without resources besides their executor."""


@dataclass
class WorkerPool:
    """Pool of `jobs` processes that process ranks; they are started when first needed.

    sizes_bytes: stored bytes of each rank, of which progress is reported. failures: with
    keep_going, the reason for each rank that was left out.
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
    """Exceptions that mean a worker died of the rank whose result is awaited."""
    shares_memory: bool = True
    """Whether workers run on this machine, so that columns can be sent to them fast."""
    sizes_bytes: Mapping[int, int] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    counts: ReadCounts | None = None
    """Bytes read of ranks in progress; None if they cannot be counted or no progress is shown."""
    is_alone: bool = False
    """Whether this process works alone because no other one could be started."""
    _executor: Executor | None = None

    def results(
        self,
        sources: Sequence[Source],
        work: Work[_Request, _Output],
        requests: Sequence[_Request],
        *,
        every: bool = False,
    ) -> Iterator[tuple[Source, _Output]]:
        """Process each rank, and yield results in the order of the sources.

        Only a few ranks are in progress at any time, however many there are.

        Args:
            work: processes a rank as its request says; both must be picklable.
            every: whether a rank that fails is an error even with keep_going.

        Raises:
            TimelineError: the error of the first rank that fails, unless it may be left out.
        """
        leave_out = self.keep_going and not every
        waiting = deque(zip(sources, requests, strict=True))
        submitted = deque[tuple[Source, _Request, Future[_Output]]]()
        ranks = [source.identity.rank for source in sources]
        sizes_bytes = {rank: self.sizes_bytes.get(rank, 0) for rank in ranks}
        in_part = None if self.counts is None else self.counts.bytes_of_ranks
        read = RanksRead(self.progress, sizes_bytes, in_part)
        if isinstance(self.counts, LocalCounts):
            self.counts.report = read.report
        while waiting or submitted:
            while waiting and len(submitted) < RANKS_PER_PROCESS * self.jobs:
                source, request = waiting.popleft()
                future = self._submit(work, source, request)
                future.add_done_callback(partial(_note, read, source.identity.rank))
                submitted.append((source, request, future))
            source, request, future = submitted.popleft()
            self._wait(future, read)
            try:
                yield source, self._result(source, future)
            except _LostError:
                # Any submitted rank may be the cause: all run again, and this one alone.
                waiting.extendleft((each, asked) for each, asked, _ in reversed(submitted))
                submitted.clear()
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
            if isinstance(self._executor, _Inline) and self.jobs > 1:
                self.jobs, self.is_alone = 1, True
        try:
            local = self.counts if isinstance(self.counts, LocalCounts) else None
            return self._executor.submit(_counted, work, source, request, local)
        except self.worker_lost as error:
            failed: Future[_Output] = Future()
            failed.set_exception(error)
            return failed

    def _wait(self, future: Future[_Output], read: RanksRead) -> None:
        """Wait until a rank is read, and report progress meanwhile."""
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
        """Return this machine's idle worker processes for encoding; None if there are none."""
        if self._executor is None or self.jobs < 2 or not self.shares_memory:
            return None
        from timeline.encoders.piece_maker import EncodingWorkers  # only where a file is written

        return EncodingWorkers(self._executor, self.jobs)

    def left_out(self) -> tuple[str, ...]:
        """Return sentences: each rank that was left out, with the reason, and missing processes."""
        ranks = [f"rank {rank} is left out: {why}" for rank, why in self.failures.items()]
        return (*ranks, _ALONE) if self.is_alone else tuple(ranks)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Stop all workers."""
        self._stop()
        self.close()


def _note(read: RanksRead, rank: int, future: Future[_Output]) -> None:
    """Count a rank as read, unless its worker died or it failed."""
    if not future.cancelled() and future.exception() is None:
        read.note(rank)


def _counted(
    work: Work[_Request, _Output], source: Source, request: _Request, local: LocalCounts | None
) -> _Output:
    with count_bytes_read(source.identity.rank, local):
        return work(source, request)


class _LostError(Exception):
    """A worker died, and with it the results of all submitted ranks."""


class _Inline(Executor):
    """Executor that runs each call immediately, in this process."""

    def __init__(self, ranks: int) -> None:
        """ranks: number of results, which are packed if there are many."""
        self._ranks = ranks

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        future: Future[_Result] = Future()
        try:
            future.set_result(pack_if_many(fn(*args, **kwargs), self._ranks))
        except (TimelineError, MemoryError) as error:
            future.set_exception(error)
        return future


def worker_pool_for(
    sources: Sequence[Source], reading: ReadingOptions, progress: Progress
) -> WorkerPool:
    """Return a pool that uses this process, several on this machine, or a cluster.

    Raises:
        UsageError: the cluster that the executor option names cannot be reached.
    """
    stored = {source.identity.rank: _Stored.of(source) for source in sources}
    sizes_bytes = {rank: sizes.size_bytes for rank, sizes in stored.items()}
    jobs, keep_going = reading.jobs, reading.keep_going
    if reading.executor:
        return _cluster_pool(reading.executor, progress, keep_going, sizes_bytes)
    if jobs is None:
        large = sum(sizes.unpacked_bytes for sizes in stored.values()) >= WORTH_PROCESSES_BYTES
        jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        jobs = (jobs or 1) if large else 1
    most = MOST_WINDOWS_PROCESSES if sys.platform == "win32" else len(sources)
    jobs = max(1, min(jobs, len(sources), most))
    counts = None if isinstance(progress, Silent) else _counts(jobs)
    inline = partial(_Inline, len(sources))
    start = inline if jobs == 1 else partial(_processes, jobs, counts, inline)
    return WorkerPool(start, jobs, progress, keep_going, sizes_bytes=sizes_bytes, counts=counts)


def _counts(jobs: int) -> ReadCounts | None:
    if jobs == 1:
        return LocalCounts()
    with contextlib.suppress(OSError):  # then only whole ranks are counted
        return SharedCounts.of(jobs)
    return None


def _processes(jobs: int, counts: ReadCounts | None, otherwise: Callable[[], Executor]) -> Executor:
    """Return worker processes; `otherwise` if they could not share memory with this one."""
    from timeline.ranks.executors import Processes

    try:
        return Processes(jobs, counts if isinstance(counts, SharedCounts) else None)
    except OSError as error:
        if error.errno not in UNSHARED:
            raise
        return otherwise()


@dataclass(frozen=True)
class _Stored:
    """The size of a rank's files, as stored and approximately unpacked."""

    size_bytes: int = 0
    unpacked_bytes: int = 0

    @classmethod
    def of(cls, source: Source) -> _Stored:
        """Sum the files of a source; a file that cannot be accessed counts as empty."""
        size_bytes = unpacked_bytes = 0
        for path in source.files:
            with contextlib.suppress(OSError):  # its reader will report it
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
