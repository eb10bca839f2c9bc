"""Settings of the process for a short command, its exit, and the handling of signals.

This module is imported first, so that signals are handled early, and therefore imports little.
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
"""Message, and arg of a KeyboardInterrupt, after the timeline was written."""
SIGNALLED = 128
"""Offset from the number of a signal to the exit code of a command that it ended, as in shells."""

COLLECT_AFTER = 200_000
"""Number of new objects between garbage collections; imports create half as many, no garbage."""
MALLOC_SETTINGS = {
    -8: 1,  # M_ARENA_MAX: memory freed by one thread serves the others
    -3: 32 << 20,  # M_MMAP_THRESHOLD: the largest that glibc takes
    -1: 64 << 20,  # M_TRIM_THRESHOLD: free memory that is kept; more would raise the peak
}
"""Numbers of parameters of glibc's `malloc.h`, and their values."""


def tune_for_one_command() -> None:
    """Configure malloc, BLAS and garbage collection; call this before importing NumPy.

    tlexport multiplies no matrices, but NumPy's BLAS library would start one thread per core, which
    spin for a while before they sleep.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _keep_freed_memory()
    gc.set_threshold(COLLECT_AFTER)
    # Frozen objects are not searched for cycles when the interpreter exits.
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory instead of returning it to the system.

    Each page from the system costs some microseconds: a summary needs 40 % fewer. Other C libraries
    have no such settings.
    """
    import ctypes  # NumPy imports it too

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        for parameter, value in MALLOC_SETTINGS.items():
            mallopt(parameter, value)


def exit_with(run: Callable[[], int]) -> NoReturn:
    """End the process with the exit code of a function, without finalising the interpreter.

    Threads are joined, and exit handlers that the function registers run. Then the process ends:
    freeing a thousand modules and their objects would take 5 % of the time of a small command.
    """
    code: list[int] = []
    atexit.register(_leave, code)  # registered first, since handlers run in reverse order
    try:
        code.append(run())
    except SystemExit as leaving:  # such as by `--help`
        if isinstance(leaving.code, int):
            code.append(leaving.code)
        raise
    sys.exit(code[0])


def _leave(code: Sequence[int]) -> None:
    if not code:
        return  # an error, which the interpreter prints
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        return  # the interpreter fails to flush it as well, and reports that
    os._exit(code[0])


_BY_OTHERS = tuple(
    number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)
"""Signals from `timeout`, a scheduler or a shutdown, and from a closing terminal (not Windows)."""
ENDING = (signal.SIGINT, *_BY_OTHERS)
"""The signals that ask a command to end."""


class Terminated(KeyboardInterrupt):
    """A signal, by number, that asked the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise `Terminated` for signals in a `with` block, so that temporary files are removed.

    Signals that the program handles itself or that `nohup` disabled are not affected. Outside of
    the main thread this does nothing.
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
    # A repeated signal, as schedulers send, must not interrupt the handling of the first one.
    signal.signal(number, signal.SIG_IGN)
    raise Terminated(number)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """End the process immediately on a signal in a `with` block, for imports, which write nothing.

    An exception would not work: NumPy reports one during its import as a broken installation, and
    one in a callback of the import system is lost. Signals that the program handles itself are not
    affected. Outside of the main thread this does nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in ENDING if is_main}
    replaced = (_raise, signal.default_int_handler)
    ours = [number for number, handler in before.items() if handler in replaced]
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
    """Print that a signal ends the command, and whether the timeline was written.

    Returns:
        The exit code for the signal.
    """
    what = "interrupted" if number == signal.SIGINT else "terminated"
    outcome = WRITTEN_BEFORE if written else NOTHING_WRITTEN
    if sys.stderr is not None:
        with contextlib.suppress(OSError):  # a closed terminal shows nothing
            sys.stderr.write(f"tlexport: {what}; {outcome}\n")
    return SIGNALLED + number


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Delay signals until the end of a `with` block, in all threads, unlike blocking them.

    Outside of the main thread this does nothing.
    """
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
