"""What all programs share that run for hours: processes, counts, findings, and less collecting."""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import resource
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fuzz.findings import Fault
from tests.fuzz.ledger import Counts, Ledger
from timeline.errors import TimelineWarning

COLLECT_EVERY = 100
MOST_BYTES = 6 << 30
"""What a process may take of memory: an input that makes it want more is a finding, not the end."""


class Sweeping:
    """Adds up what runs of one process come to, tells the ledger, and writes down what is found."""

    def __init__(self, program: str, ledger: Ledger, found: Path, seconds: float) -> None:
        self._program, self._ledger, self._found = program, ledger, found
        self._until = time.monotonic() + seconds
        self._fresh, self._all = Counts(), Counts()

    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self._until

    @property
    def seconds_left(self) -> float:
        """How long it goes on."""
        return self._until - time.monotonic()

    def add(self, counts: Counts, fault: Fault | None, shown_by: Mapping[str, Any]) -> None:
        """Add what came of a run; the first fault of a kind is written with what shows it."""
        if fault is not None:
            if not self._all.faults[fault.kind] and not self._fresh.faults[fault.kind]:
                told = {**shown_by, "kind": fault.kind, "told": fault.told}
                print(f"{shown_by}: {fault.kind}\n{fault.told}", flush=True)
                with self._found.open("a", encoding="utf-8") as found:
                    found.write(json.dumps(told) + "\n")
            counts.faults[fault.kind] += 1
        self._fresh.add(counts)
        if self._ledger.is_due():
            self._tell()

    def end(self) -> None:
        """Tell the ledger what it does not know yet."""
        self._tell()

    def _tell(self) -> None:
        self._ledger.add(self._program, self._fresh)
        self._all.add(self._fresh)
        self._fresh = Counts()
        print(f"{self._program}: {self._all}", flush=True)


@contextmanager
def run_unhindered() -> Iterator[Callable[[int], None]]:
    """Take warnings for errors, bound memory, and look for cyclic garbage only now and then.

    Gives what is to be called with the number of each run: a fifth of the time of a small export
    went into looking through all modules.
    """
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", TimelineWarning)
    bounds = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, bounds[1]))
    gc.collect()
    gc.freeze()
    gc.disable()

    def tidy(number: int) -> None:
        if number % COLLECT_EVERY == 0:
            gc.collect()

    try:
        yield tidy
    finally:
        gc.enable()
        gc.unfreeze()
        resource.setrlimit(resource.RLIMIT_DATA, bounds)


def in_processes(
    work: Callable[[argparse.Namespace, int], None],
    options: argparse.Namespace,
    program: str,
    processes: int,
) -> int:
    """Do the work in so many processes, each told its number; 1 if any run showed a fault."""
    before = _faults(options.corpus, program)
    if processes == 1:
        work(options, 0)
    else:
        context = multiprocessing.get_context("spawn")
        started = [context.Process(target=work, args=(options, part)) for part in range(processes)]
        for process in started:
            process.start()
        for process in started:
            process.join()
        if any(process.exitcode for process in started):
            return 1
    return int(_faults(options.corpus, program) > before)


def _faults(corpus: Path, program: str) -> int:
    counts = Ledger(corpus).counts().get(program, Counts())
    return sum(counts.faults.values())
