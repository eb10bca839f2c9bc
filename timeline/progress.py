"""Reporting of progress: the interface, and a line on a terminal that shows it."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol, TextIO

from timeline.language import said, spoken_language
from timeline.printable import cells_of, encoded, printable
from timeline.units import format_bytes, format_count

QUIET_SECONDS = 0.5
"""Time before progress is first shown."""
UPDATE_SECONDS = 0.1
BAR_WIDTH = 16
_ERASE = "\r\x1b[K"


class Progress(Protocol):
    """Receiver of the current stage and its progress, from any thread."""

    def report(self, stage: str, done: int, total: int) -> None:
        """Report `done` of `total` bytes of a stage; a total of 0 is unknown."""

    def finish(self) -> None:
        """End the progress; the next report starts a new one."""


class Silent:
    """Progress that shows nothing."""

    def report(self, stage: str, done: int, total: int) -> None:
        """Ignore the progress of a stage."""

    def finish(self) -> None:
        """Ignore the end."""


class RanksRead:
    """Counter of the ranks and bytes that are read, for use from any thread.

    sizes: bytes of each rank. in_part: returns the bytes read so far of ranks in progress.
    """

    def __init__(
        self,
        progress: Progress,
        sizes: Mapping[int, int],
        in_part: Callable[[], Mapping[int, int]] | None = None,
    ) -> None:
        self._progress = progress
        self._sizes = sizes
        self._in_part = in_part
        self._read = set[int]()
        self._most = 0
        self._lock = threading.Lock()
        self.report()

    def note(self, rank: int) -> None:
        """Count a rank as read, and report the progress."""
        with self._lock:
            self._read.add(rank)
        self.report()

    def report(self) -> None:
        """Report the ranks and bytes read so far."""
        with self._lock:
            self._report()

    def _report(self) -> None:
        ranks = format_count(len(self._sizes), "rank")
        several = len(self._sizes) > 1
        stage = f"Read {len(self._read)} of {ranks}" if several else f"Reading {ranks}"
        done = sum(self._sizes[rank] for rank in self._read)
        in_part = {} if self._in_part is None else self._in_part()
        done += sum(
            min(size_bytes, self._sizes[rank])  # some bytes are read, and counted, twice
            for rank, size_bytes in in_part.items()
            if rank in self._sizes and rank not in self._read
        )
        self._most = max(self._most, done)
        self._progress.report(stage, self._most, sum(self._sizes.values()))


class TerminalLine:
    """One line on a terminal, updated at most ten times a second, erased at the end.

    It is drawn by its own thread, since reporting threads are busy between two reports.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._language = spoken_language()  # other threads report, and one draws
        self._state = ("", 0, 0)
        self._shown = ""
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._thread: threading.Thread | None = None

    def report(self, stage: str, done: int, total: int) -> None:
        """Show the progress of a stage: `done` of `total` bytes; a total of 0 is unknown."""
        self._state = (stage, done, total)
        with self._lock:
            if self._thread is None:
                self._started = time.monotonic()
                self._finished.clear()
                self._thread = threading.Thread(target=self._draw, daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """Erase the line; the next report draws a new one."""
        with self._lock:
            self._finished.set()
            if self._thread is not None:
                self._thread.join()
                self._thread = None
        if self._shown:
            self._write(_ERASE)
            self._shown = ""

    def _draw(self) -> None:
        wait = QUIET_SECONDS
        while not self._finished.wait(wait):
            wait = UPDATE_SECONDS
            line = self._line()
            if line != self._shown:
                self._shown = line
                self._write(_ERASE + line)

    def _line(self) -> str:
        stage, done, total = self._state
        parts = [printable(said(stage, "", self._language))]
        if total:
            read = f"{format_bytes(done)} of {format_bytes(total)}"
            parts += [said(read, "cell", self._language), self._bar(done / total)]
        # The elapsed time shows that work goes on even if its progress is unknown.
        parts.append(f"{time.monotonic() - self._started:.1f} s")
        # A line longer than the terminal could not be erased.
        width = shutil.get_terminal_size().columns - 1
        while len(parts) > 1 and sum(map(cells_of, parts)) + 2 * len(parts) - 2 > width:
            parts.pop()
        return encoded("  ".join(parts), self._stream.encoding or "utf-8")[:width]

    def _bar(self, share: float) -> str:
        encoding = self._stream.encoding or "utf-8"
        full, empty = "━─" if encoded("━─", encoding) == "━─" else "#-"
        cells = int(BAR_WIDTH * share)
        return f"{full * cells}{empty * (BAR_WIDTH - cells)} {share:4.0%}"

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # the terminal is gone
            self._finished.set()
