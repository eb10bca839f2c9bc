"""Executors that process ranks: worker processes on this machine, and a Dask cluster."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

from timeline.errors import UsageError, install_command
from timeline.process import ENDING, signals_held, tune_for_one_command
from timeline.ranks.shared_columns import (
    SharedArguments,
    SharedResult,
    close_shared_file,
    open_shared_file,
)
from timeline.ranks.workers import SharedCounts, take_slot
from timeline.sources.files.remote_path import without_credentials

# -- processes of this machine ---------------------------------------------------------------------


THREADS = Path("/proc/self/task")
"""Directory with one entry per thread of this process, including threads of libraries."""
SOON_SECONDS = 0.2
"""Time for the executor's manager thread to end after its processes; it takes milliseconds."""
_Result = TypeVar("_Result")


@contextlib.contextmanager
def starting_processes() -> Iterator[None]:
    """Start worker processes in a `with` block: without the caller's script, signals blocked.

    A spawned process would otherwise run the caller's script again. A signal during its imports, or
    while this process still sends it its work, would make it print a traceback; workers unblock
    signals when they are ready.
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


class Processes(ProcessPoolExecutor):
    """Process pool whose workers do not run the caller's script, and can be killed at once."""

    def __init__(self, jobs: int, counts: SharedCounts | None = None) -> None:
        """Create the pool without starting processes; workers report bytes read in `counts`."""
        self._others = frozenset(multiprocessing.active_children())
        context = multiprocessing.get_context(_start_method())
        super().__init__(jobs, context, _begin, (counts,))

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Call a function in a worker; large columns travel through shared files both ways."""
        path = open_shared_file()
        try:
            with starting_processes():
                future = super().submit(_run, path, SharedArguments((fn, args, kwargs)))
        except BaseException as error:
            close_shared_file(path)
            if isinstance(error, OSError) and vars(self)["_broken"]:
                # Another process died while this one was started, and its pipes were closed.
                raise BrokenProcessPool(str(vars(self)["_broken"])) from error
            raise
        future.add_done_callback(lambda _: close_shared_file(path))
        return future

    def _start_executor_manager_thread(self) -> None:
        """Start the threads that send calls and receive results.

        The manager thread would start the feeder thread itself, and die silently if there is no
        memory for one, so that no result ever arrived; the feeder is started here instead. Forked
        workers start before any thread does.

        Raises:
            MemoryError: no thread can be started.
        """
        if vars(self)["_executor_manager_thread"] is not None:
            return
        try:
            if not vars(self)["_safe_to_dynamically_spawn_children"]:
                self._launch_processes()  # type: ignore[attr-defined]
            vars(self)["_call_queue"]._start_thread()
            super()._start_executor_manager_thread()
        except RuntimeError as error:
            vars(self)["_executor_manager_thread"] = None
            raise MemoryError(str(error)) from error

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers; without waiting, kill those that are busy.

        A killed worker may leave half of a result in the pipe. The thread that reads results would
        wait forever for the rest, since this process holds the writing end open too, and the
        interpreter joins that thread on exit. So the writing end is closed here. Older versions of
        Python also wait until workers have received their calls, so that end is closed as well.
        """
        ours = set(multiprocessing.active_children()) - self._others
        with signals_held():
            manager = vars(self)["_executor_manager_thread"]
            ends = [vars(self)[queue] for queue in ("_result_queue", "_call_queue")]
            if vars(self)["_broken"] or manager is None:
                # No manager thread ends them, nor a worker that was starting when another died.
                for child in ours:
                    child.kill()
            super().shutdown(wait, cancel_futures=cancel_futures)
            if wait or manager is None:
                return
            for child in ours:
                child.kill()
            for queue, end in zip(ends, ("_writer", "_reader"), strict=True):
                vars(queue)[end].close()
                manager.join(SOON_SECONDS)
                if not manager.is_alive():
                    return


def _run(path: str, call: Any) -> Any:
    """Run a call in a worker; large columns of its result go into the shared file at `path`.

    call: the function, its positional arguments and its keyword arguments.
    """
    function, args, kwargs = call
    return SharedResult(function(*args, **kwargs), path)


def _start_method() -> str:
    """Return "fork" if this process has a single thread, else "spawn", which imports all again.

    Forking with several threads is unsafe: a lock that another thread holds is never released in
    the copy.
    """
    with contextlib.suppress(OSError):  # only Linux lists threads
        if hasattr(os, "fork") and len(list(THREADS.iterdir())) == 1:
            return "fork"
    return "spawn"


def _begin(counts: SharedCounts | None) -> None:
    """Set up a worker: it dies silently of signals, and when its parent process ends."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    tune_for_one_command()
    if counts is not None:
        take_slot(counts)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# -- a Dask cluster --------------------------------------------------------------------------------


DASK = "dask://"
"""Prefix of the addresses of Dask schedulers."""
CONNECT_SECONDS = 10
PATIENCE_SECONDS = 60.0
"""Time that a cluster may be without workers, since new ones take a while to start."""
LOOK_SECONDS = 5.0
"""Interval at which a waiting client checks that the cluster has workers."""
TRIES = 2
"""Number of workers that may start one call; the call is blamed if all of them died."""


class DiedTwiceError(Exception):
    """Two workers died while running the same call."""


class Cluster(Executor):
    """Executor that runs calls on the workers of a Dask cluster.

    If workers die, Dask's scheduler gives a call to four of them in turn, and then blames calls
    that were only queued on a dead worker, too. So the starts of each call are counted here.
    """

    def __init__(self, address: str) -> None:
        """Connect to the scheduler at an address.

        Raises:
            UsageError: no scheduler answers there, or Dask is not installed.
        """
        shown = without_credentials(address)
        if not address.startswith(DASK):
            raise UsageError(
                f"--executor {shown} is not a Dask address.", do=f"Write {DASK}HOST:PORT."
            )
        try:
            from distributed import Client
        except ImportError as error:
            do = f"Run: {install_command('distributed')}"
            raise UsageError("--executor needs Dask.", do=do) from error
        self._address = shown
        try:
            self._client = Client(f"tcp://{address.removeprefix(DASK)}", timeout=CONNECT_SECONDS)
        except (OSError, ValueError) as error:
            reason = str(error).replace(address.removeprefix(DASK), shown.removeprefix(DASK))
            raise UsageError(
                f"--executor {shown}: no scheduler answers there: {reason}.",
                do="Start one with: dask scheduler",
            ) from error
        self._executor = self._client.get_executor(pure=False)

    def threads(self) -> int:
        """Return the number of calls that the cluster runs at once."""
        return sum(self._client.nthreads().values())

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Call a function in a worker of the cluster."""
        name = f"tlexport-{uuid.uuid4().hex}"
        future: Future[_Result] = self._executor.submit(_call, name, fn, *args, **kwargs)
        return future

    def result(self, future: Future[_Result]) -> _Result:
        """Wait for the result of a call, as long as the cluster has workers.

        Raises:
            UsageError: the cluster had no worker for too long, or its scheduler is gone.
        """
        last_worker_seconds = time.monotonic()
        while True:
            try:
                return future.result(LOOK_SECONDS)
            except FutureTimeoutError:  # the builtin TimeoutError only from Python 3.11 on
                if future.done():
                    raise
            except CancelledError as error:
                raise UsageError(
                    f"--executor {self._address}: its scheduler is gone.", do="Start it again."
                ) from error
            now = time.monotonic()
            if self.threads():
                last_worker_seconds = now
            elif now - last_worker_seconds > PATIENCE_SECONDS:
                raise UsageError(
                    f"--executor {self._address}: it has no workers.",
                    do=f"Start some with: dask worker tcp://{self._address.removeprefix(DASK)}",
                )

    def drop(self) -> None:
        """Cancel all unfinished calls."""
        self._executor.shutdown(wait=False)
        self._executor = self._client.get_executor(pure=False)

    def close(self) -> None:
        """Cancel unfinished calls and disconnect."""
        self._executor.shutdown(wait=False)
        self._client.close()


def _call(name: str, fn: Callable[..., _Result], *args: Any, **kwargs: Any) -> _Result:
    """Call a function in a worker of the cluster, unless earlier workers died of the same call.

    Raises:
        DiedTwiceError: two workers did.
    """
    from distributed import Event

    begun = [Event(f"{name}-{count}") for count in range(TRIES)]
    now = next((one for one in begun if not one.is_set()), None)
    try:
        if now is None:
            raise DiedTwiceError
        now.set()
        return fn(*args, **kwargs)
    finally:
        for one in begun:
            one.clear()
