"""Turns ranks into their shares on several processes, or on a Dask cluster, in the ranks' order."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from timeline.errors import TimelineError, UsageError, WorkerError
from timeline.options import ReadingOptions
from timeline.progress import Progress, RanksRead
from timeline.share import Request, Share
from timeline.sources.base import Source
from timeline.termination import ENDING, signals_held

__all__ = ["Crew", "crew_for", "starting_processes"]

AHEAD = 2
"""Ranks in work for each process: one that is read, one that waits."""
WORTH_PROCESSES_BYTES = 32 << 20
"""Below this size reading takes less time than starting processes."""
MOST_WINDOWS_PROCESSES = 61
"""Windows waits for no more at once."""
TIMES_PACKED = 10
"""Text that is compressed takes about so many times as long to read as its size says."""
DASK = "dask://"
_CONNECT_SECONDS = 10
_DIED = "its process died"

Work = Callable[[Source, Request], Share]
_Result = TypeVar("_Result")


def _shut_down(executor: Executor) -> None:
    executor.shutdown(wait=False, cancel_futures=True)


def _nothing_to_close() -> None:
    """Most crews hold nothing but their executor."""


@dataclass
class Crew:
    """Those who do the work of each rank.

    failures: with keep_going, the ranks that were left out and why.
    """

    start: Callable[[], Executor]
    jobs: int
    progress: Progress
    keep_going: bool = False
    stop: Callable[[Executor], None] = _shut_down
    close: Callable[[], None] = _nothing_to_close
    lost: tuple[type[BaseException], ...] = (BrokenExecutor,)
    """What it means that a worker is gone, and nobody knows which rank was to blame."""
    killed: tuple[type[BaseException], ...] = ()
    """The same where it was the rank that was asked for."""
    failures: dict[int, str] = field(default_factory=dict)
    _executor: Executor | None = None

    def shares(
        self,
        sources: Sequence[Source],
        work: Work,
        requests: Sequence[Request],
        *,
        every: bool = False,
    ) -> Iterator[tuple[Source, Share]]:
        """Do the work of each rank; results come in the order of the sources.

        Only a few ranks are in work or waiting at any time, whatever their number.

        Args:
            every: whether no rank may be left out now, keep_going or not.

        Raises:
            TimelineError: that of the first rank that fails, unless they are to be left out.
        """
        leave_out = self.keep_going and not every
        waiting = deque(zip(sources, requests, strict=True))
        in_work = deque[tuple[Source, Request, Future[Share]]]()
        sizes = {source.identity.rank: _stored_bytes(source) for source in sources}
        read = RanksRead(self.progress, sizes)
        while waiting or in_work:
            while waiting and len(in_work) < AHEAD * self.jobs:
                source, request = waiting.popleft()
                future = self._submit(work, source, request)
                future.add_done_callback(partial(_note, read, source.identity.rank))
                in_work.append((source, request, future))
            source, request, future = in_work.popleft()
            try:
                yield source, self._result(source, future)
            except _LostError:
                # Nobody knows whose fault it was: those in work are done again, this one alone.
                waiting.extendleft((own, wanted) for own, wanted, _ in reversed(in_work))
                in_work.clear()
                self._stop()
                share = self._alone(work, source, request, leave_out=leave_out)
                if share is not None:
                    yield source, share
            except TimelineError as error:
                self._fail(source, error, leave_out=leave_out)

    def _submit(self, work: Work, source: Source, request: Request) -> Future[Share]:
        if self._executor is None:
            self._executor = self.start()
        try:
            return self._executor.submit(work, source, request)
        except self.lost as error:
            failed: Future[Share] = Future()
            failed.set_exception(error)
            return failed

    def _result(self, source: Source, future: Future[Share]) -> Share:
        try:
            return future.result()
        except self.lost as error:
            raise _LostError from error
        except self.killed as error:
            if not getattr(error, "allowed_failures", 1):
                raise _LostError from error  # it may only have waited where another one died
            raise WorkerError(source.identity.rank, _DIED) from error
        except MemoryError as error:
            raise WorkerError(source.identity.rank, "there is not enough memory") from error

    def _alone(
        self, work: Work, source: Source, request: Request, *, leave_out: bool
    ) -> Share | None:
        try:
            return self._result(source, self._submit(work, source, request))
        except _LostError:
            self._stop()
            lost = WorkerError(source.identity.rank, _DIED)
            self._fail(source, lost, leave_out=leave_out)
        except TimelineError as error:
            self._fail(source, error, leave_out=leave_out)
        return None

    def _fail(self, source: Source, error: TimelineError, *, leave_out: bool) -> None:
        if not leave_out:
            raise error
        self.failures[source.identity.rank] = str(error)

    def _stop(self) -> None:
        """Stop all that works, at once."""
        executor, self._executor = self._executor, None
        if executor is not None:
            self.stop(executor)

    def left_out(self) -> tuple[str, ...]:
        """The ranks that were left out and why, for people."""
        return tuple(f"rank {rank} is left out: {why}" for rank, why in self.failures.items())

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Nothing of the crew is left behind, whatever ends its work."""
        self._stop()
        self.close()


@contextlib.contextmanager
def starting_processes() -> Iterator[None]:
    """While processes may start: they run nothing of the caller's, and cannot be ended yet.

    A new process would run the caller's script again, and its imports would answer Ctrl-C with a
    traceback; it takes signals once it has begun. So would one that is told only half of what to
    do, because this process was interrupted.
    """
    main = sys.modules["__main__"]
    masks = hasattr(signal, "pthread_sigmask")
    with signals_held():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING) if masks else set()
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main
            if masks:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _note(read: RanksRead, rank: int, future: Future[Share]) -> None:
    """Count a rank that is read; one that was lost is read again."""
    if not future.cancelled() and future.exception() is None:
        read.note(rank)


class _LostError(Exception):
    """A worker is gone, and with it the results of all that were in work."""


class _Inline(Executor):
    """Does everything at once, in this process."""

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        future: Future[_Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except (TimelineError, MemoryError) as error:
            future.set_exception(error)
        return future


def crew_for(sources: Sequence[Source], reading: ReadingOptions, progress: Progress) -> Crew:
    """The crew for some ranks: this process, several of this machine, or a cluster.

    Raises:
        UsageError: the executor names no cluster that can be reached.
    """
    jobs, keep_going = reading.jobs, reading.keep_going
    if reading.executor:
        return _dask_crew(reading.executor, progress, keep_going=keep_going)
    if jobs is None:
        large = sum(_size_bytes(source) for source in sources) >= WORTH_PROCESSES_BYTES
        jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        jobs = (jobs or 1) if large else 1
    most = MOST_WINDOWS_PROCESSES if sys.platform == "win32" else len(sources)
    jobs = max(1, min(jobs, len(sources), most))
    if jobs == 1:
        return Crew(_Inline, 1, progress, keep_going)
    others = frozenset(multiprocessing.active_children())

    def stop(executor: Executor) -> None:
        ours = set(multiprocessing.active_children()) - others
        _shut_down(executor)
        for child in ours:
            child.terminate()

    return Crew(lambda: _Processes(jobs), jobs, progress, keep_going, stop)


def _size_bytes(source: Source) -> int:
    """The size of what a rank holds, as far as it shows how long reading will take."""
    return _stored_bytes(source, TIMES_PACKED)


def _stored_bytes(source: Source, times_packed: int = 1) -> int:
    total = 0
    for path in source.files:
        with contextlib.suppress(OSError):  # its reader will say so
            total += path.stat().st_size * (times_packed if path.suffix == ".gz" else 1)
    return total


class _Processes(ProcessPoolExecutor):
    """Processes that begin without the caller's script."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs, multiprocessing.get_context("spawn"), _begin)

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        with starting_processes():
            return super().submit(fn, *args, **kwargs)


def _begin() -> None:
    """Die of Ctrl-C without a word, and with the process that asks for the work."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _dask_crew(address: str, progress: Progress, *, keep_going: bool) -> Crew:
    if not address.startswith(DASK):
        raise UsageError(f"--executor {address} is no Dask address.", do=f"Write {DASK}HOST:PORT.")
    try:
        from distributed import Client
        from distributed.scheduler import KilledWorker
    except ImportError as error:
        raise UsageError("--executor needs Dask.", do="pip install 'tlexport[dask]'") from error
    try:
        client = Client(f"tcp://{address.removeprefix(DASK)}", timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--executor {address}: no scheduler answers there: {error}.",
            do="Start one with: dask scheduler",
        ) from error
    return Crew(
        lambda: client.get_executor(pure=False),
        max(1, sum(client.nthreads().values())),
        progress,
        keep_going,
        stop=lambda executor: executor.shutdown(wait=False),
        close=client.close,
        lost=(),
        killed=(KilledWorker,),
    )
