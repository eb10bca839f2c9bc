"""The sweep: each column of each layout set to each extreme, and any two of them at once.

    python tests/fuzz sweep [--seconds 600] [--processes 2] [--seeds NAME ...]

Every input is a small profile in which one column or two have an extreme value in all of their rows
or in one of them. The whole program draws it, the file is loaded in the trace processor, and all
that exports promise is checked. No input comes twice, however often the sweep is started: what was
run is in the corpus, with the counts. What breaks is written to a file there, a line of JSON each,
with all that shows it again.
"""

from __future__ import annotations

import argparse
import re
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from tests.fuzz.extremes import EXTREMES, Extreme
from tests.fuzz.file_columns import Column, columns_of, unnumbered_name
from tests.fuzz.findings import Fault, fault_of
from tests.fuzz.input_tree import InputTree, SeenInputs
from tests.fuzz.ledger import CORPUS, Counts, Ledger
from tests.fuzz.long_runs import Sweeping, in_processes, run_unhindered
from tests.fuzz.sweep_seeds import Seed, made_seeds, real_seeds
from tests.fuzz.whole_program import Drawn, WholeProgram
from timeline.errors import TimelineError

LONGEST_SECONDS = 30
MEMORY = Path("/dev/shm")
PAIR_IN = 4
"""Cases of which one changes two columns at once."""
MOST_TRIES = 50
"""Cases without a change that was not met before, after which a seed is left for another one."""
TURN_SECONDS = 12.0
USUAL_SECONDS = 0.08
"""Seeds that take longer than this have shorter turns."""
EMPTY_SHARE = 0.03
"""Of their turn have seeds that hold no slice."""


@dataclass(frozen=True)
class Change:
    """One change of one file of a profile."""

    path: Path
    column: Column
    extreme: Extreme
    one: bool

    @property
    def place(self) -> str:
        """The column, whatever the numbers in the name of its file."""
        return f"{unnumbered_name(self.path)}: {self.column.name}"

    @property
    def name(self) -> str:
        """What is changed, for people."""
        return f"{self.place} = {self.extreme.name} in {'one row' if self.one else 'all rows'}"


@dataclass(frozen=True)
class Case:
    """Changes of a profile that are made at once."""

    changes: tuple[Change, ...]

    @property
    def name(self) -> str:
        """What is changed, for people."""
        return " and ".join(change.name for change in self.changes)


@dataclass(frozen=True)
class Outcome:
    """What came of a case: a fault, what was drawn, or neither where it was refused."""

    case: Case
    counts: Counts
    drawn: Drawn | None = None
    fault: Fault | None = None


class _TookTooLong(Exception):  # noqa: N818 - it is no error of the profile
    """One run took more processor time than any may."""


class Sweeper:
    """Runs cases of one seed, in a directory that is removed with it."""

    def __init__(self, seed: Seed, random: Random) -> None:
        self.seed, self._random = seed, random
        self._place = tempfile.TemporaryDirectory(
            prefix="tlexport-sweep-", dir=MEMORY if MEMORY.is_dir() else None
        )
        root = Path(self._place.name)
        capture = root / "capture"
        capture.mkdir()
        seed.write(capture)
        self._tree = InputTree(capture)
        self._program = WholeProgram(capture, root)
        self._columns = self._find_columns()
        self._singles = self._every_change()
        self._began: float | None = None
        began = time.process_time()
        self.plain = self._run(Case(()), {}, everything=True)
        self.seconds = time.process_time() - began
        """What the profile takes as it is, with everything that is checked."""

    def close(self) -> None:
        """Remove all files."""
        self._place.cleanup()

    def sweep(self, seen: SeenInputs, part: int = 0, parts: int = 1) -> Iterator[Outcome]:
        """Run cases whose input nobody ran, in random order, until there are no more.

        part, parts: inputs are dealt to so many processes, and this is one of them.
        """
        useless = 0
        while useless < MOST_TRIES:
            case = self._next_case()
            changed = self._changed(case)
            useless += 1
            if changed is None:
                continue
            key = self._tree.key(changed)
            if key % parts == part and seen.add(key):
                useless = 0
                yield self._run(case, changed, chance=key)

    def again(self, name: str) -> Outcome | None:
        """Run the case of a name, whoever ran it before; None where it changes nothing."""
        wanted = name.split(" and ")
        named = {change.name: change for change in self._every_change() if change.name in wanted}
        if len(named) < len(set(wanted)):
            return None
        case = Case(tuple(named[one] for one in wanted))
        changed = self._changed(case)
        if changed is None:
            return None
        return self._run(case, changed, chance=self._tree.key(changed), everything=True)

    def _find_columns(self) -> dict[str, tuple[Path, Column]]:
        """The columns by their place, each in the first file that has it."""
        columns: dict[str, tuple[Path, Column]] = {}
        for path in self._tree.paths:
            for column in columns_of(path):
                place = f"{unnumbered_name(path)}: {column.name}"
                columns.setdefault(place, (path, column))
        return columns

    def _every_change(self) -> list[Change]:
        """All changes of one column, in random order."""
        every = [
            Change(path, column, extreme, one)
            for extreme in EXTREMES
            for one in (False, True)
            for path, column in self._columns.values()
        ]
        self._random.shuffle(every)
        return every

    def _next_case(self) -> Case:
        if self._singles and self._random.randrange(PAIR_IN):
            return Case((self._singles.pop(),))
        if not self._columns:
            return Case(())
        columns = list(self._columns.values())
        return Case(
            tuple(
                Change(
                    *self._random.choice(columns),
                    self._random.choice(EXTREMES),
                    self._random.random() < 0.5,
                )
                for _ in range(2)
            )
        )

    def _changed(self, case: Case) -> dict[Path, bytes] | None:
        """The files that a case changes; None where all of it cannot be done or changes nothing."""
        changed: dict[Path, bytes] = {}
        for change in case.changes:
            before = changed.get(change.path) or self._tree.content(change.path)
            try:
                after = change.column.change(before, change.extreme, change.one)
            except (ValueError, IndexError, KeyError):  # the first change took away the second's
                return None
            if after is None or after == before:
                return None
            changed[change.path] = after
        return changed or None

    def _run(
        self,
        case: Case,
        changed: Mapping[Path, bytes],
        *,
        chance: int = 0,
        everything: bool = False,
    ) -> Outcome:
        program = self._program
        runs, loaded, deep = program.runs, program.loaded, program.deep
        drawn: Drawn | None = None
        fault: Fault | None = None
        began = time.monotonic()
        self._began = time.process_time()
        signal.signal(signal.SIGPROF, self._tick)
        signal.setitimer(signal.ITIMER_PROF, 1.0, 1.0)
        try:
            with self._tree.holding(changed):
                drawn = program.run(chance, everything=everything)
        except TimelineError:
            pass
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
            found = fault_of(error)
            fault = Fault(re.sub(r"\d+", "#", found.kind)[:600], found.told)
        finally:
            self._began = None
            signal.setitimer(signal.ITIMER_PROF, 0)
        counts = Counts(
            runs=program.runs - runs,
            inputs=1,
            drew=drawn is not None and drawn.has_slices,
            refused=drawn is None and fault is None,
            loaded=program.loaded - loaded,
            deep=program.deep - deep,
            seconds=time.monotonic() - began,
        )
        return Outcome(case, counts, drawn, fault)

    def _tick(self, signum: int, frame: FrameType | None) -> None:
        if self._began is not None and time.process_time() - self._began > LONGEST_SECONDS:
            self._began = None
            raise _TookTooLong(f"took more than {LONGEST_SECONDS} s")


# -- the command ---------------------------------------------------------------------------------


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/fuzz sweep", description="Sweep all columns.")
    parser.add_argument("--seeds", nargs="*", default=[], help="their names (default: all)")
    parser.add_argument("--seconds", type=float, default=600, help="of all (600)")
    parser.add_argument("--runs", type=int, default=10**9, help="inputs of each process (no limit)")
    parser.add_argument("--processes", type=int, default=1, help="that run at once (1)")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help=f"of counts ({CORPUS})")
    parser.add_argument("--case", help="run the case of this name again, and count nothing")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Sweep the seeds in turns until the time is over; 1 if anything was found."""
    options = _parse(arguments)
    if options.case:
        return _run_again(options)
    return in_processes(_sweep, options, "sweep", options.processes)


def _seeds(names: Sequence[str]) -> list[Seed]:
    return [seed for seed in (*made_seeds(), *real_seeds()) if not names or seed.name in names]


def _run_again(options: argparse.Namespace) -> int:
    shown = 0
    for seed in _seeds(options.seeds):
        sweeper = Sweeper(seed, Random(0))
        outcome = sweeper.again(options.case)
        if outcome is not None:
            shown += outcome.fault is not None
            said = "drawn" if outcome.drawn else "refused"
            print(f"{seed.name}: {outcome.fault.told if outcome.fault else said}")
        sweeper.close()
    return int(shown > 0)


def _sweep(options: argparse.Namespace, part: int) -> None:
    """Sweep the seeds in turns, each until its turn or the time is over."""
    ledger = Ledger(options.corpus)
    seen = SeenInputs(options.corpus / "sweep-inputs.bin")
    random = Random(ledger.take("sweep", "rounds"))
    sweeping = Sweeping("sweep", ledger, options.corpus / "sweep.jsonl", options.seconds)
    sweepers: dict[str, Sweeper | None] = {}
    seeds, inputs = _seeds(options.seeds), 0
    with run_unhindered() as tidy:
        while seeds and not sweeping.is_over() and inputs < options.runs:
            random.shuffle(seeds)
            for seed in seeds:
                sweeper = _sweeper_of(seed, sweepers, random, sweeping)
                if sweeper is None:
                    continue
                turn = min(_turn_seconds(sweeper), sweeping.seconds_left)
                until = time.monotonic() + turn
                for outcome in sweeper.sweep(seen, part, options.processes):
                    inputs += 1
                    tidy(inputs)
                    shown = {"seed": seed.name, "case": outcome.case.name}
                    sweeping.add(outcome.counts, outcome.fault, shown)
                    if time.monotonic() > until or inputs >= options.runs:
                        break
                seen.keep()
                if sweeping.is_over() or inputs >= options.runs:
                    break
            seeds = [seed for seed in seeds if sweepers.get(seed.name, True) is not None]
    sweeping.end()
    for sweeper in sweepers.values():
        if sweeper is not None:
            sweeper.close()


def _sweeper_of(
    seed: Seed, sweepers: dict[str, Sweeper | None], random: Random, sweeping: Sweeping
) -> Sweeper | None:
    """The sweeper of a seed; None where the seed itself is refused or shows a fault."""
    if seed.name not in sweepers:
        made = Sweeper(seed, random)
        if made.plain.fault is not None:
            sweeping.add(Counts(), made.plain.fault, {"seed": seed.name, "case": None})
        sweepers[seed.name] = made if made.plain.drawn is not None else None
    return sweepers[seed.name]


def _turn_seconds(sweeper: Sweeper) -> float:
    drawn = sweeper.plain.drawn
    share = 1.0 if drawn is not None and drawn.has_slices else EMPTY_SHARE
    runs = max(1, sweeper.plain.counts.runs)
    return TURN_SECONDS * share * min(1.0, USUAL_SECONDS * runs / sweeper.seconds)
