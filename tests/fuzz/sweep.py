"""The sweep: each column of each layout set to each extreme, one run of the whole program each.

    python -m tests.fuzz sweep [--seconds 600] [--runs N] [--part 1/2] [--seeds NAME ...]

Every run exports a small profile in which one column has one extreme value in all of its rows or in
one of them, loads the file in the trace processor, and checks what exports promise. What breaks is
written to a file, a line of JSON each, with all that shows it again.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from tests.fuzz.extremes import EXTREMES, Extreme
from tests.fuzz.file_columns import Column, columns_of
from tests.fuzz.findings import Fault, fault_of
from tests.fuzz.sweep_seeds import Seed, made_seeds, real_seeds
from tests.fuzz.whole_program import WholeProgram
from timeline.errors import TimelineError, TimelineWarning

__all__ = ["Case", "Sweeper", "Tally", "cases", "main"]

FOUND = Path("fuzz-corpus", "sweep.jsonl")
LONGEST_SECONDS = 30
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Case:
    """One change of one file of a profile."""

    path: Path
    column: Column
    extreme: Extreme
    one: bool

    @property
    def place(self) -> str:
        """The column, whatever the numbers in the name of its file."""
        return f"{re.sub('[0-9]+', '#', self.path.name)}: {self.column.name}"

    @property
    def name(self) -> str:
        """What is changed, for people."""
        return f"{self.place} = {self.extreme.name} in {'one row' if self.one else 'all rows'}"


@dataclass
class Tally:
    """What came of runs.

    reached: columns of which some value changed the file, and where it was merely refused or told.
    """

    runs: int = 0
    refused: int = 0
    drew: int = 0
    checked: int = 0
    skipped: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    columns: set[str] = field(default_factory=set)
    reached: set[str] = field(default_factory=set)
    refusing: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        rate = self.runs / self.seconds if self.seconds else 0.0
        runs = max(self.runs, 1)
        return (
            f"{self.runs} runs of the whole program, {rate:.1f}/s; {self.drew} "
            f"({self.drew / runs:.0%}) drew a slice, {self.refused} ({self.refused / runs:.0%}) "
            f"were refused, {self.checked} were checked in depth; {len(self.columns)} columns, "
            f"of which {len(self.reached)} reach the picture and "
            f"{len(self.refusing - self.reached)} are only refused; "
            f"{sum(self.faults.values())} faults of {len(self.faults)} kinds"
        )


def cases(capture: Path, random: Random | None = None) -> Iterator[Case]:
    """All changes of a capture; in random order if one is given."""
    columns: dict[str, tuple[Path, Column]] = {}
    for path in sorted(capture.rglob("*")):
        if path.is_file():
            for column in columns_of(path):
                place = f"{re.sub('[0-9]+', '#', path.name)}: {column.name}"
                columns.setdefault(place, (path, column))
    every = [
        Case(path, column, extreme, one)
        for extreme in EXTREMES
        for one in (False, True)
        for path, column in columns.values()
    ]
    if random is not None:
        random.shuffle(every)
    yield from every


class _TookTooLong(Exception):  # noqa: N818 - it is no error of the profile
    """One run took more processor time than any may."""


class Sweeper:
    """Runs cases of one seed, in a directory that is removed with it."""

    def __init__(self, seed: Seed, tally: Tally, random: Random) -> None:
        self._seed, self._tally = seed, tally
        self._place = tempfile.TemporaryDirectory(
            prefix="tlexport-sweep-", dir=MEMORY if MEMORY.is_dir() else None
        )
        root = Path(self._place.name)
        capture = root / "capture"
        capture.mkdir()
        seed.write(capture)
        self._capture = capture
        self._program = WholeProgram(capture, root)
        self._cases = cases(capture, random)
        self._began: float | None = None
        self.plain = self._run(None)

    def close(self) -> None:
        """Remove all files."""
        self._place.cleanup()

    def sweep(self, only: str = "") -> Iterator[tuple[Case, Fault | None]]:
        """Run each case whose name contains a text; gives what broke, if anything did."""
        for case in self._cases:
            if only not in case.name:
                continue
            before = case.path.read_bytes()
            changed = case.column.change(before, case.extreme, case.one)
            if changed is None or changed == before:
                self._tally.skipped += 1
                continue
            place = f"{self._seed.name}: {case.place}"
            self._tally.columns.add(place)
            case.path.write_bytes(changed)
            try:
                found = self._run(case)
            finally:
                case.path.write_bytes(before)
            if isinstance(found, Fault):
                self._tally.faults[found.kind] += 1
                yield case, found
            elif found is None:
                self._tally.refusing.add(place)
                yield case, None
            else:
                if found != self.plain:
                    self._tally.reached.add(place)
                yield case, None

    def _run(self, case: Case | None) -> bytes | Fault | None:
        """What a run draws, None where it is refused."""
        tally = self._tally
        self._began = time.process_time()
        signal.signal(signal.SIGPROF, self._tick)
        signal.setitimer(signal.ITIMER_PROF, 1.0, 1.0)
        began = time.monotonic()
        before = self._program.runs, self._program.drew, self._program.checked
        refused = self._program.refused
        try:
            return self._program.run(None if case is None else case.name)
        except TimelineError:
            self._program.refused += 1
            return None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
            found = fault_of(error)
            return Fault(re.sub(r"\d+", "#", found.kind)[:600], found.told)
        finally:
            self._began = None
            signal.setitimer(signal.ITIMER_PROF, 0)
            tally.runs += self._program.runs - before[0]
            tally.drew += self._program.drew - before[1]
            tally.checked += self._program.checked - before[2]
            tally.refused += self._program.refused - refused
            tally.seconds += time.monotonic() - began

    def _tick(self, signum: int, frame: FrameType | None) -> None:
        if self._began is not None and time.process_time() - self._began > LONGEST_SECONDS:
            self._began = None
            raise _TookTooLong(f"took more than {LONGEST_SECONDS} s")


# -- the command ---------------------------------------------------------------------------------


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/fuzz sweep", description="Sweep all columns.")
    parser.add_argument("--seeds", nargs="*", default=[], help="their names (default: all)")
    parser.add_argument("--seconds", type=float, default=600, help="of all (600)")
    parser.add_argument("--runs", type=int, default=10**9, help="of each seed (no limit)")
    parser.add_argument("--part", default="1/1", help="which of how many parts of the seeds (1/1)")
    parser.add_argument("--order", type=int, default=1, help="seed of the random order (1)")
    parser.add_argument("--found", type=Path, default=FOUND, help=f"findings ({FOUND})")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Sweep the seeds in turns until the time is over; 1 if anything was found."""
    options = _parse(arguments)
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", TimelineWarning)
    part, parts = map(int, options.part.split("/"))
    seeds = [*made_seeds(), *real_seeds()]
    if options.seeds:
        seeds = [seed for seed in seeds if seed.name in options.seeds]
    seeds = seeds[part - 1 :: parts]
    tally, kinds = Tally(), dict[str, str]()
    until = time.monotonic() + options.seconds
    options.found.parent.mkdir(parents=True, exist_ok=True)
    with options.found.open("a") as found:
        rounds = 0
        while time.monotonic() < until and rounds < 1000:
            for number, seed in enumerate(seeds):
                left = (until - time.monotonic()) / (len(seeds) - number)
                if left <= 0:
                    break
                _sweep_one(seed, tally, Random(options.order + rounds), left, options, kinds, found)
                print(f"{seed.name}: {tally}", flush=True)
            rounds += 1
            if options.runs < 10**9:
                break
    unreached = sorted(tally.columns - tally.reached)
    print("Columns that do not reach the picture:", *unreached, sep="\n  ")
    print(tally)
    for kind, name in kinds.items():
        print(f"{tally.faults[kind]} x {kind}\n    {name}")
    return 1 if tally.faults else 0


def _sweep_one(
    seed: Seed,
    tally: Tally,
    random: Random,
    seconds: float,
    options: argparse.Namespace,
    kinds: dict[str, str],
    found: Any,
) -> None:
    until = time.monotonic() + seconds
    try:
        sweeper = Sweeper(seed, tally, random)
    except TimelineError:
        return
    try:
        if isinstance(sweeper.plain, Fault):
            kind = sweeper.plain.kind
            if kind not in kinds:
                kinds[kind] = f"{seed.name} as it is"
                told = {"seed": seed.name, "case": None, "kind": kind, "told": sweeper.plain.told}
                found.write(json.dumps(told) + "\n")
                found.flush()
            tally.faults[kind] += 1
        for done, (case, fault) in enumerate(sweeper.sweep(options.only)):
            if fault is not None and fault.kind not in kinds:
                kinds[fault.kind] = f"{seed.name}: {case.name}"
                told = {"seed": seed.name, "case": case.name, "kind": fault.kind}
                found.write(json.dumps(told | {"told": fault.told}) + "\n")
                found.flush()
            if time.monotonic() > until or done > options.runs:
                break
    finally:
        sweeper.close()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
