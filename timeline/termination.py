"""Turns SIGTERM into an interrupt, so that it ends a command as Ctrl-C does."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

__all__ = ["Terminated", "interrupted_by_sigterm"]


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
