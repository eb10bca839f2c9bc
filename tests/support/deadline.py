"""A limit of time for what might wait forever: the test fails and shows where it waits."""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import sys
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise AssertionError in what runs longer, with the stacks of all threads on stderr.

    It is raised again each time that as many seconds have passed, for cleaning up may hang too.
    Deadlines may be nested: the outer one counts on when the inner one is over. Without limit
    where there are no alarms (Windows), and in threads, which receive none.
    """
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def stop(*_: object) -> None:
        faulthandler.dump_traceback(sys.__stderr__.fileno() if sys.__stderr__ else 2)
        raise AssertionError(f"took longer than {seconds:g} s")

    handler = signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
