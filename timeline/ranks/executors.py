"""Executors that work on ranks: processes of this machine, and a Dask cluster."""

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
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

from timeline.errors import UsageError
from timeline.process import ENDING, signals_held, tune_for_one_command
from timeline.ranks.shared_columns import (
    SharedArguments,
    SharedResult,
    close_shared_file,
    open_shared_file,
)
from timeline.ranks.workers import SharedCounts, take_place

# -- processes of this machine ---------------------------------------------------------------------


THREADS = Path("/proc/self/task")
"""Has an entry for each thread of this process, those of libraries included."""
SOON_SECONDS = 0.2
"""In which the thread that manages processes ends once these have; it needs some milliseconds."""
_Result = TypeVar("_Result")


@contextlib.contextmanager
def starting_processes() -> Iterator[None]:
    """Start processes in a `with` block: they run nothing of the caller's, and cannot be ended.

    A new process would run the caller's script again, and its imports would answer Ctrl-C with a
    traceback; it takes signals once it has begun. So would one that gets only half of what to
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


class Processes(ProcessPoolExecutor):
    """Processes that begin without the caller's script, and end when they are not waited for."""

    def __init__(self, jobs: int, counts: SharedCounts | None = None) -> None:
        """Start no process yet; counts: where they report how much of their ranks is read."""
        self._others = frozenset(multiprocessing.active_children())
        context = multiprocessing.get_context(_start_method())
        super().__init__(jobs, context, _begin, (counts,))

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Have a worker call a function; large columns go through shared files, there and back."""
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
        """Start the threads that send calls and take results, or say that there is no memory.

        The second would start the first, and die unseen where memory is too short for that: nobody
        would take results then. Workers come before threads, for they may be copies.
        """
        if vars(self)["_executor_manager_thread"] is not None:
            return
        try:
            if not vars(self)["_safe_to_dynamically_spawn_children"]:
                self._launch_processes()  # type: ignore[attr-defined]
            vars(self)["_call_queue"]._start_thread()
            super()._start_executor_manager_thread()
        except RuntimeError as error:  # no thread can be started
            vars(self)["_executor_manager_thread"] = None
            raise MemoryError(str(error)) from error

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers; without waiting, those that are at work are killed.

        A worker that is stopped in the midst of a result leaves half of it behind. The thread that
        reads results, which the interpreter joins when it ends, would wait for the rest for ever:
        this process could write it too. So that end of the pipe is closed. In older versions of
        Python it would also wait for what is sent to workers to be taken.
        """
        ours = set(multiprocessing.active_children()) - self._others
        with signals_held():
            manager = vars(self)["_executor_manager_thread"]
            ends = [vars(self)[queue] for queue in ("_result_queue", "_call_queue")]
            if vars(self)["_broken"] or manager is None:
                # No thread ends them, nor one that was starting when another one died.
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
    """Run a call in the worker; large columns of its result go through the shared file at `path`.

    call: the function, its arguments and its keywords, as they were before `SharedArguments`.
    """
    function, args, kwargs = call
    return SharedResult(function(*args, **kwargs), path)


def _start_method() -> str:
    """Return fork if a copy of this process is sane, else spawn, which imports all again.

    A copy is only sane where this process has one thread: another might be in the midst of
    something that nobody ends in the copy.
    """
    with contextlib.suppress(OSError):  # only Linux tells
        if hasattr(os, "fork") and len(list(THREADS.iterdir())) == 1:
            return "fork"
    return "spawn"


def _begin(counts: SharedCounts | None) -> None:
    """Die of signals without a word, and with the process that asks for the work."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    tune_for_one_command()
    if counts is not None:
        take_place(counts)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# -- a Dask cluster --------------------------------------------------------------------------------


DASK = "dask://"
"""What addresses of Dask schedulers begin with."""
CONNECT_SECONDS = 10
PATIENCE_SECONDS = 60.0
"""For which a cluster may have no worker: new ones take a while to start."""
LOOK_SECONDS = 5.0
TRIES = 2


class DiedTwiceError(Exception):
    """Two workers died while they did a piece of work."""


class Cluster(Executor):
    """Has the workers of a cluster call functions.

    Its scheduler would give work to four workers, one after the other, if each dies, and then blame
    what only waited for one of them, too. So what begins is counted here.
    """

    def __init__(self, address: str) -> None:
        """Connect to the scheduler at an address.

        Raises:
            UsageError: there is none, or Dask is not installed.
        """
        if not address.startswith(DASK):
            raise UsageError(
                f"--executor {address} is no Dask address.", do=f"Write {DASK}HOST:PORT."
            )
        try:
            from distributed import Client
        except ImportError as error:
            raise UsageError("--executor needs Dask.", do="pip install 'tlexport[dask]'") from error
        self._address = address
        try:
            self._client = Client(f"tcp://{address.removeprefix(DASK)}", timeout=CONNECT_SECONDS)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--executor {address}: no scheduler answers there: {error}.",
                do="Start one with: dask scheduler",
            ) from error
        self._executor = self._client.get_executor(pure=False)

    def threads(self) -> int:
        """Return how many pieces of work run at once."""
        return sum(self._client.nthreads().values())

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Have a worker call a function."""
        name = f"tlexport-{uuid.uuid4().hex}"
        future: Future[_Result] = self._executor.submit(_call, name, fn, *args, **kwargs)
        return future

    def result(self, future: Future[_Result]) -> _Result:
        """Return the result of a call, as long as there is a worker that may do it.

        Raises:
            UsageError: there is none, or no scheduler any more.
        """
        seen = time.monotonic()
        while True:
            try:
                return future.result(LOOK_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
            except CancelledError as error:
                raise UsageError(
                    f"--executor {self._address}: its scheduler is gone.", do="Start it again."
                ) from error
            now = time.monotonic()
            if self.threads():
                seen = now
            elif now - seen > PATIENCE_SECONDS:
                raise UsageError(
                    f"--executor {self._address}: it has no workers.",
                    do=f"Start some with: dask worker tcp://{self._address.removeprefix(DASK)}",
                )

    def drop(self) -> None:
        """Forget all work that is not done; the next begins as if there had been none."""
        self._executor.shutdown(wait=False)
        self._executor = self._client.get_executor(pure=False)

    def close(self) -> None:
        """Leave the cluster as it was."""
        self._executor.shutdown(wait=False)
        self._client.close()


def _call(name: str, fn: Callable[..., _Result], *args: Any, **kwargs: Any) -> _Result:
    """Call a function in a worker, unless others died of it.

    Raises:
        DiedTwiceError: two of them did.
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
