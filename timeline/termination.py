"""Turns signals that end a command into interrupts, when they can be answered."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

__all__ = ["ENDING", "Terminated", "interrupted_by_sigterm", "signals_held"]

ENDING = (signal.SIGINT, signal.SIGTERM)
"""The signals that ask a command to end."""


class Terminated(KeyboardInterrupt):
    """Somebody else asked the process to end: `timeout`, a job scheduler, a shutdown."""


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Raise `Terminated` where SIGTERM would end the process at once, and leave things behind.

    Where a program has a use of its own for the signal, or this is not its main thread, nothing
    changes.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise(number: int, _frame: object) -> None:
    # Who asks again, as schedulers do, does not keep the first from being carried out.
    signal.signal(number, signal.SIG_IGN)
    raise Terminated


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Answer signals when it is over: what one thread blocks, another one lets through."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    handlers = ((number, signal.getsignal(number)) for number in ENDING)
    before = {number: handler for number, handler in handlers if handler is not None}
    for number in before:
        signal.signal(number, lambda number, _: held.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])
