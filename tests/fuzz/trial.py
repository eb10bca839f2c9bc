"""What a reader made of one input: records, a refusal, or a fault."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.fuzz.findings import Fault, fault_of
from tests.fuzz.fuzzed_export import WAYS, FuzzedExport
from tests.fuzz.promises import BrokenPromise, check_records, check_valid
from tests.fuzz.target import Target
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.errors import TimelineError

LONGEST_SECONDS = 10
MOST_MEMORY_BYTES = 1 << 30
ONE_EXPORT_IN = 32
"""Inputs of which one goes through the whole program, in a way that its content chooses."""
ONE_LOOK_IN = 8
"""Inputs of which one is compared with the file afterwards."""


class _TookTooLong(Exception):  # noqa: N818 - it is no error of the profile
    """One input took more processor time than any may."""


class Trial:
    """Tries inputs of one target in one capture directory."""

    def __init__(self, target: Target, directory: Path) -> None:
        self._target = target
        self._capture, sound, output = (
            directory / name for name in ("run/capture", "run/sound", "written")
        )
        for place in (self._capture, sound, output):
            place.mkdir(parents=True)
        self._files: Sequence[Path] = target.capture(self._capture)
        target.capture(sound)
        self._program = FuzzedExport(self._capture, sound, output)
        self._unraisable: list[BaseException] = []
        self._began: float | None = None
        self._tree = self._names()
        self.refused = self.exported = 0
        """Inputs that were no profile, and those that went through the whole program."""
        self.ways: Sequence[int] = range(WAYS)
        """The ways through the whole program that are tried where everything is."""
        self.way = 0
        """The last one that was tried."""
        gc.collect()
        gc.freeze()
        sys.unraisablehook = self._note_unraisable

    def _note_unraisable(self, what: sys.UnraisableHookArgs) -> None:
        if what.exc_value is not None:
            self._unraisable.append(what.exc_value)

    def fault(self, data: bytes, *, everything: bool = False) -> Fault | None:
        """The fault of an input, None where it reads or is refused.

        everything: look at the file and run the whole program in any case.
        """
        try:
            with self._watched():
                self._try(data, everything)
        except TimelineError:
            self.refused += 1
        except BaseException as error:  # whatever it is, it is the finding
            if isinstance(error, KeyboardInterrupt):
                raise
            return fault_of(error)
        if self._unraisable:
            return fault_of(self._unraisable.pop())
        return None

    def _try(self, data: bytes, everything: bool) -> None:
        for path in self._files:
            with path.open("wb", buffering=0) as file:
                file.write(data)
        chance = zlib.crc32(data)
        try:
            records = self._target.read(self._capture)
            if records is not None:
                check_records(records)
                check_valid(drop_invalid_rows(records))
        finally:
            if everything or chance % ONE_LOOK_IN == 0:
                self._look(data)
        if everything:
            self.exported += 1
            self._export_in_all_ways()
        elif chance // ONE_LOOK_IN % ONE_EXPORT_IN == 0:
            self.exported += 1
            self._export(chance // ONE_LOOK_IN // ONE_EXPORT_IN % WAYS)

    def _export_in_all_ways(self) -> None:
        """Run the whole program in all ways; what some refuse, others may draw.

        Each may take as long as an input that goes one way.
        """
        refusal: TimelineError | None = None
        for way in self.ways:
            self._began = time.process_time()
            try:
                self._export(way)
            except TimelineError as error:
                refusal = error
        if refusal is not None:
            raise refusal

    def _export(self, way: int) -> None:
        self.way = way
        self._program.run(way)

    def _look(self, data: bytes) -> None:
        """Nothing in the capture changed, and nothing came or went."""
        for path in self._files:
            if path.read_bytes() != data:
                raise BrokenPromise("the input is not what it was")
        if self._names() != self._tree:
            raise BrokenPromise("the capture holds other files than before")

    def _names(self) -> list[str]:
        return [name for _, _, files in os.walk(self._capture) for name in sorted(files)]

    # -- limits ------------------------------------------------------------------------------------

    @contextmanager
    def _watched(self) -> Iterator[None]:
        self._began = time.process_time()
        try:
            yield
        finally:
            self._began = None

    def watch(self) -> None:
        """From now on, end what takes too long, and take warnings for errors."""
        signal.signal(signal.SIGPROF, self._tick)
        signal.setitimer(signal.ITIMER_PROF, 1.0, 1.0)
        warnings.simplefilter("error")

    def _tick(self, signum: int, frame: FrameType | None) -> None:
        if self._began is not None and time.process_time() - self._began > LONGEST_SECONDS:
            self._began = None
            raise _TookTooLong(f"took more than {LONGEST_SECONDS} s")


def limit_memory() -> None:
    """Let this process have a gigabyte more than it has.

    That is of what it can write to: each trace processor reserves four more, and uses little.
    """
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[5])
    most = pages * resource.getpagesize() + MOST_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
