"""Process settings for a short command, its end, and signals that end it.

This is loaded before all else, so that signals are obeyed from then on: it imports little.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

NOTHING_WRITTEN = "nothing was written."
WRITTEN_BEFORE = "the timeline was written before."
"""An arg of an interrupt that came later than that."""
SIGNALLED = 128
"""What shells add to the number of the signal that ended a command."""

COLLECT_AFTER = 200_000
"""New objects before cycles are looked for; imports alone make half as many, and no garbage."""
MALLOC_SETTINGS = {
    -8: 1,  # M_ARENA_MAX: what one thread freed, another one has
    -3: 32 << 20,  # M_MMAP_THRESHOLD: the largest that glibc takes
    -1: 64 << 20,  # M_TRIM_THRESHOLD: free memory that is kept; more adds to the most that is held
}
"""Numbers of parameters of glibc's `malloc.h`, and their values."""


def tune_for_one_command() -> None:
    """Set malloc, one BLAS thread and rare garbage collection; to be called before NumPy's import.

    Nothing here multiplies matrices, but the library that NumPy does it with would start a thread
    for each core, which spin for a while before they sleep.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _keep_freed_memory()
    gc.set_threshold(COLLECT_AFTER)
    # The interpreter would look for cycles among all objects that are left before it ends.
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def _keep_freed_memory() -> None:
    """Have glibc hand freed memory out again that it would give back to the system.

    Each page that the system gives takes some microseconds: of those of a summary, two fifths are
    saved. Other libraries of C have no such settings.
    """
    import ctypes  # NumPy does too

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        for parameter, value in MALLOC_SETTINGS.items():
            mallopt(parameter, value)


def exit_with(run: Callable[[], int]) -> NoReturn:
    """End the process with the exit code that a function returns, and without taking it apart.

    Threads are waited for, and what is registered for the exit while the function runs is done.
    Then the system takes back all memory at once: to free a thousand modules and their objects one
    by one takes a twentieth of the time of a small command.
    """
    code: list[int] = []
    atexit.register(_leave, code)  # first of all, since the interpreter calls the last one first
    try:
        code.append(run())
    except SystemExit as asked:  # such as by `--help`
        if isinstance(asked.code, int):
            code.append(asked.code)
        raise
    sys.exit(code[0])


def _leave(code: Sequence[int]) -> None:
    if not code:
        return  # an error, which the interpreter tells
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        return  # the interpreter fails to flush it as well, and tells so
    os._exit(code[0])


_BY_OTHERS = tuple(
    number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)
"""Signals of `timeout`, a scheduler or a shutdown; of a terminal that is closed (not Windows)."""
ENDING = (signal.SIGINT, *_BY_OTHERS)
"""The signals that ask a command to end."""


class Terminated(KeyboardInterrupt):
    """Somebody else asked the process to end, by a signal of this number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise `Terminated` where a signal would end the process at once, and leave things behind.

    Where a program has a use of its own for a signal, `nohup` has switched it off, or this is not
    the main thread, nothing changes.
    """
    is_main = threading.current_thread() is threading.main_thread()
    unhandled = [
        number for number in _BY_OTHERS if is_main and signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in unhandled:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in unhandled:
            signal.signal(number, signal.SIG_DFL)


def _raise(number: int, _frame: object) -> None:
    # Who asks again, as schedulers do, does not keep the first from being carried out.
    signal.signal(number, signal.SIG_IGN)
    raise Terminated(number)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """End the process at once by a signal: while it imports modules, and has nothing to undo.

    An exception would not do: NumPy takes one in its import for a broken installation, and one in
    a callback of the import system is lost. Where a program has a use of its own for a signal, or
    this is not the main thread, nothing changes.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in ENDING if is_main}
    ours = [number for number, do in before.items() if do in (_raise, signal.default_int_handler)]
    for number in ours:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _end(number: int, _frame: object) -> None:
    os._exit(say_interrupted(number))


def say_interrupted(number: int, *, written: bool = False) -> int:
    """Say by what kind of signal the command ends, and what became of its output.

    Returns:
        The exit code that says it too.
    """
    what = "interrupted" if number == signal.SIGINT else "terminated"
    outcome = WRITTEN_BEFORE if written else NOTHING_WRITTEN
    if sys.stderr is not None:
        with contextlib.suppress(OSError):  # a terminal that is closed shows nothing
            sys.stderr.write(f"tlexport: {what}; {outcome}\n")
    return SIGNALLED + number


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Put signals off until the end of the block, in all threads: blocking does so in one alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    handlers = ((number, signal.getsignal(number)) for number in ENDING)
    before = {number: handler for number, handler in handlers if handler is not None}
    for number in before:
        signal.signal(number, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])
