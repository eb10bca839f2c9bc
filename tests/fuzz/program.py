"""The command: runs of targets, one process after another, and a table of them."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import targets  # noqa: F401 - it registers them
from tests.fuzz.findings import Findings
from tests.fuzz.target import TARGETS, Target, chosen
from tests.fuzz.worker import COUNTS, SCRATCH
from tests.support.places import ROOT

MOST_DEATHS = 20
"""A target whose process dies so often is left alone."""
ATHERIS_FOUND = frozenset({70, 71, 77})
"""Exit codes of a process that leaves the input behind that ended it: too long, memory, crash."""
LINE = "{:<18}{:>12}{:>9}{:>12}{:>10}{:>8}{:>10}"


@dataclass(frozen=True)
class Outcome:
    """What came of one target; rates are per second of fuzzing, the start left out."""

    name: str
    runs: int
    refused: int
    exported: int
    faults: int
    seconds: float

    def line(self, kinds: int) -> str:
        """A row of the table."""
        rate = self.runs / self.seconds if self.seconds else 0.0
        counts = (self.runs, self.refused, self.exported, kinds, self.faults)
        runs, *others = (f"{count:,}".replace(",", " ") for count in counts)
        return LINE.format(self.name, runs, f"{rate:.0f}", *others)


@dataclass(frozen=True)
class Fuzzing:
    """Where inputs are kept, and how long each target is fuzzed."""

    corpus: Path
    seconds: float
    runs: int

    def findings(self, target: Target) -> Findings:
        """The findings of a target."""
        return Findings(self.corpus / f"{target.name}-findings", target.form.suffix)

    def outcome(self, target: Target) -> Outcome:
        """Fuzz a target until its time or runs are over; a process that dies is replaced."""
        kept = self.corpus / target.name
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="tlexport-fuzz-", dir=SCRATCH) as name:
            state, seeds = Path(name) / "state", Path(name) / "seeds"
            state.write_bytes(bytes(COUNTS.size))
            seeds.mkdir()
            for _ in range(MOST_DEATHS):
                runs, _, _, _, spent = COUNTS.unpack(state.read_bytes())
                seconds = int(self.seconds - spent / 1e6)
                if seconds < 1 or runs >= self.runs:
                    break
                where = (state, kept, self.findings(target).directory, seeds)
                self._run("fuzz", target.name, *where, seconds, self.runs - runs)
            runs, refused, exported, faults, spent = COUNTS.unpack(state.read_bytes())
        return Outcome(target.name, runs, refused, exported, faults, spent / 1e6)

    def shrink(self, target: Target) -> None:
        """Make what was found small."""
        findings = self.findings(target)
        if findings.inputs():
            self._run("shrink", target.name, findings.directory)

    def attempt(self, target: Target, paths: Sequence[Path]) -> None:
        """Try single inputs."""
        self._run("try", target.name, *paths)

    def _run(self, *arguments: object) -> None:
        """Run a worker.

        Raises:
            SystemExit: it failed by itself, not by an input.
        """
        places = [str(ROOT), str(ROOT / "examples")]
        log = self.corpus / f"{arguments[1]}.log"
        self.corpus.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            done = subprocess.run(
                [sys.executable, "-m", "tests.fuzz.worker", *map(str, arguments)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
                stdout=None if arguments[0] == "try" else output,
                stderr=output,
                check=False,
            )
        if done.returncode > 0 and done.returncode not in ATHERIS_FOUND:
            end = log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"{end}\n{arguments[0]} {arguments[1]}: ended by itself, see {log}.")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/fuzz", description="Fuzz the readers.")
    parser.add_argument("targets", nargs="*", help=f"default: all of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=60, help="of each target (60)")
    parser.add_argument("--runs", type=int, default=10**9, help="of each target (no limit)")
    parser.add_argument("--corpus", type=Path, default=Path("fuzz-corpus"), help="(fuzz-corpus)")
    parser.add_argument("--try", dest="inputs", type=Path, nargs="+", help="only try these files")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz what is asked for; 1 if anything was found."""
    options = _parse(arguments)
    fuzzing = Fuzzing(options.corpus.resolve(), options.seconds, options.runs)
    if options.inputs:
        for target in chosen(options.targets):
            fuzzing.attempt(target, options.inputs)
        return 0
    heads = ("runs", "runs/s", "refused", "exported", "kinds", "faults")
    print(LINE.format("target", *heads), flush=True)
    outcomes, found = [], []
    for target in chosen(options.targets):
        outcomes.append(fuzzing.outcome(target))
        fuzzing.shrink(target)
        findings = fuzzing.findings(target)
        inputs = findings.inputs()
        found += [f"{path}: {findings.kind(path)}" for path in inputs]
        print(outcomes[-1].line(len(inputs)), flush=True)
    if len(outcomes) > 1:
        sums = (
            sum(getattr(one, name) for one in outcomes)
            for name in ("runs", "refused", "exported", "faults", "seconds")
        )
        print(Outcome("all", *sums).line(len(found)), flush=True)
    print("\n".join(found) or "Nothing was found.")
    return 1 if found else 0
