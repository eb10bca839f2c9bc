"""Turns the stages of an export into one line on a terminal that updates in place."""

from __future__ import annotations

import sys
import time
from typing import Protocol, TextIO

from timeline.printable import printable

__all__ = ["Progress", "Silent", "TerminalLine"]

QUIET_SECONDS = 0.5
"""A run shorter than this shows nothing."""
UPDATE_SECONDS = 0.1


class Progress(Protocol):
    """Told what is being done, and how far it is."""

    def report(self, stage: str, done: int, total: int) -> None:
        """`done` of `total` parts of a stage are finished."""

    def finish(self) -> None:
        """Nothing more will come."""


class Silent:
    """Shows nothing."""

    def report(self, stage: str, done: int, total: int) -> None:
        """See `Progress`."""

    def finish(self) -> None:
        """See `Progress`."""


class TerminalLine:
    """One line on a terminal, at most ten times a second, erased at the end."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._shown = False
        self._next = time.monotonic() + QUIET_SECONDS

    def report(self, stage: str, done: int, total: int) -> None:
        """See `Progress`."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + UPDATE_SECONDS
        share = f" {done * 100 // total}%" if total else ""
        self._stream.write(f"\r\x1b[K{printable(stage)}{share}")
        self._stream.flush()
        self._shown = True

    def finish(self) -> None:
        """See `Progress`."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False
