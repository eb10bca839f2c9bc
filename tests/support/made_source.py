"""Ranks of random records that do something before they are read, as workers meet them.

Workers import this module, so it imports little.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.random_records import Sizes, random_records
from timeline.records.clock import Clock
from timeline.records.tables import Records
from timeline.sources.source import Identity, ReadRequest


@dataclass(frozen=True)
class Nap:
    """Takes its time."""

    seconds: float

    def __call__(self) -> None:
        time.sleep(self.seconds)


@dataclass(frozen=True)
class Death:
    """Kills the process that reads; with a marker, only as long as that is not there.

    tally: a file that gets a byte for each death.
    """

    after_seconds: float = 0.0
    marker: Path | None = None
    tally: Path | None = None

    def __call__(self) -> None:
        time.sleep(self.after_seconds)
        if self.tally is not None:
            with self.tally.open("ab") as file:
                file.write(b"x")
        if self.marker is not None:
            if self.marker.exists():
                return
            self.marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Fault:
    """Raises an error; with a marker, only from the second time on."""

    error: BaseException
    after_seconds: float = 0.0
    marker: Path | None = None

    def __call__(self) -> None:
        time.sleep(self.after_seconds)
        if self.marker is not None and not self.marker.exists():
            self.marker.touch()
            return
        raise self.error


@dataclass(frozen=True)
class Interrupt:
    """Interrupts this process."""

    def __call__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        raise AssertionError("reading went on")


Deed = Callable[[], None]
TINY = Sizes(steps=2, tasks=6, ops=1, planes=1, calls=3, samples=2, names=4)
WALL = Clock()


def no_deed() -> None:
    """Read, and nothing else."""


@dataclass(frozen=True)
class MadeSource:
    """A rank of random records that does a deed before it is read.

    With a clock that has an offset to wall time, its records count from the start of its host.
    """

    rank: int
    deed: Deed = no_deed
    sizes: Sizes = TINY
    clock: Clock = WALL
    seed: int = 1
    files: tuple[Path, ...] = ()
    layout: str = "made"

    @property
    def identity(self) -> Identity:
        return Identity(self.rank, Path(f"rank{self.rank}"))

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        assert wanted.layers
        self.deed()
        records = random_records(self.rank, self.sizes, self.seed)
        return _moved(records, -(self.clock.wall_offset_ns or 0))


def _moved(records: Records, offset_ns: int) -> Records:
    """The same records on a clock that is moved by a constant."""
    samples = records.samples
    return replace(
        records,
        tasks=records.tasks.shifted(offset_ns),
        planes=records.planes.shifted(offset_ns),
        ops=records.ops.shifted(offset_ns),
        steps=records.steps.shifted(offset_ns),
        parts=records.parts.shifted(offset_ns),
        host=records.host.shifted(offset_ns),
        samples=replace(samples, time_ns=samples.time_ns + offset_ns),
    )


def made_sources(count: int, deeds: dict[int, Deed]) -> list[MadeSource]:
    """Ranks from 0 on, some of which do a deed."""
    return [MadeSource(rank, deeds.get(rank, no_deed)) for rank in range(count)]
