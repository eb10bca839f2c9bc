"""The process that fuzzes one target, or tries single inputs.

    python -m tests.fuzz.worker fuzz TARGET STATE CORPUS FINDINGS SEEDS SECONDS RUNS
    python -m tests.fuzz.worker shrink TARGET FINDINGS
    python -m tests.fuzz.worker try TARGET FILE...

All of the package is instrumented: new code that an input reaches makes it worth keeping. The
counts lie in STATE, a mapped file, so they outlive the process.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import atheris

if TYPE_CHECKING:
    from tests.fuzz.target import Target
    from tests.fuzz.trial import Trial

COUNTS = struct.Struct("<5Q")
"""Executions, refused, through the whole program, faults; microseconds since the first."""
SCRATCH = next(place for place in ("/dev/shm", None) if place is None or Path(place).is_dir())
"""Where captures lie: in memory, if there is such a place."""
HARD_LIMIT_SECONDS = 45
"""After this long in code that is not Python the process is given up."""
SHRINK_SECONDS = 45
WARMING = 3
"""So many seeds are tried first, all ways shared out among them."""
MOST_TRIES = 5
"""Some changes change nothing; the same input again would be a run for nothing."""


@contextlib.contextmanager
def _trial(
    name: str, *, instrumented: bool, place: Path | str | None = SCRATCH
) -> Iterator[tuple[Target, Trial]]:
    """A target with a capture, warmed up, so that limits count only what an input needs.

    Fuzzing ends the process at once, so then the place is one that the parent clears.
    """
    kept = atheris.instrument_imports(include=["timeline"])
    with kept if instrumented else contextlib.nullcontext():
        from tests.fuzz import targets  # noqa: F401 - it registers them
        from tests.fuzz.target import TARGETS
        from tests.fuzz.trial import Trial, limit_memory
    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="tlexport-fuzz-", dir=place) as directory:
        trial = Trial(target, Path(directory))
        every = trial.ways
        for number, seed in enumerate(target.seeds()[:WARMING]):
            trial.ways = every[number::WARMING]
            trial.fault(seed, everything=True)
        trial.ways = every
        limit_memory()
        trial.watch()
        yield target, trial


def fuzz(
    name: str,
    state: str,
    corpus: str,
    findings: str,
    seeds: str,
    seconds: str,
    runs: str,
) -> None:
    """Fuzz until the time or the number of runs is over; this never returns."""
    trying = _trial(name, instrumented=True, place=Path(state).parent)
    with trying as (target, trial), Path(state).open("r+b") as file:
        from tests.fuzz.findings import Findings

        counts = mmap.mmap(file.fileno(), COUNTS.size)
        kept = Findings(Path(findings), target.form.suffix)
        for number, seed in enumerate(target.seeds()):
            (Path(seeds) / f"{number}").write_bytes(seed)
        done, _, _, faults, spent = COUNTS.unpack_from(counts)
        before = COUNTS.unpack_from(counts)
        trial.refused, trial.exported = before[1], before[2]
        began = time.monotonic()

        def try_one(data: bytes) -> None:
            nonlocal done, faults
            fault = trial.fault(data)
            done += 1
            if fault is not None:
                faults += 1
                kept.add(data, fault)
            now = spent + int((time.monotonic() - began) * 1e6)
            COUNTS.pack_into(counts, 0, done, trial.refused, trial.exported, faults, now)

        def change(data: bytes, most: int, seed: int) -> bytes:
            random = Random(seed)
            for _ in range(MOST_TRIES):
                changed = target.form.change(data, random)[:most]
                if changed != data:
                    break
            return changed

        arguments = [
            "fuzz",
            f"-max_total_time={seconds}",
            f"-runs={runs}",
            f"-max_len={target.form.most_bytes}",
            "-len_control=0",
            "-reload=0",
            f"-timeout={HARD_LIMIT_SECONDS}",
            "-rss_limit_mb=3072",
            f"-artifact_prefix={findings}/",
            "-verbosity=0",
            corpus,
            seeds,
        ]
        Path(findings).mkdir(parents=True, exist_ok=True)
        atheris.Setup(arguments, try_one, custom_mutator=change)
        atheris.Fuzz()


def shrink(name: str, findings: str) -> None:
    """Make every finding as small as it gets in some time."""
    with _trial(name, instrumented=False) as (target, trial):
        from tests.fuzz.findings import Findings

        kept = Findings(Path(findings), target.form.suffix)
        for path in kept.inputs():
            data = path.read_bytes()
            fault = trial.fault(data, everything=True)
            if fault is None:
                continue
            kept.add(data, fault)
            every, trial.ways = trial.ways, [trial.way]
            small = target.form.shrink(data, _still(trial, fault.kind))
            trial.ways = every
            shown = trial.fault(small, everything=True)
            if shown is not None:
                kept.add(small, shown)


def _still(trial: Trial, kind: str) -> Callable[[bytes], bool]:
    deadline = time.monotonic() + SHRINK_SECONDS

    def still(data: bytes) -> bool:
        if time.monotonic() > deadline:
            return False
        fault = trial.fault(data, everything=True)
        return fault is not None and fault.kind == kind

    return still


def attempt(name: str, *paths: str) -> None:
    """Try inputs once and say what happened."""
    with _trial(name, instrumented=False) as (_, trial):
        for path in paths:
            refused = trial.refused
            fault = trial.fault(Path(path).read_bytes(), everything=True)
            said = "is refused" if trial.refused > refused else "reads"
            print(f"{path}: {said if fault is None else fault.told}")


def main(arguments: Sequence[str]) -> None:
    """Do what the first argument says."""
    work: dict[str, Callable[..., None]] = {"fuzz": fuzz, "shrink": shrink, "try": attempt}
    work[arguments[0]](*arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
