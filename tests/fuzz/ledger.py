"""Counts of runs that add up over all times that the programs ran, in a file of JSON."""

from __future__ import annotations

import argparse
import fcntl
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

CORPUS = Path("fuzz-corpus")
NAME = "counts.json"
KEPT_SECONDS = 20.0


@dataclass
class Counts:
    """What came of runs.

    runs: exports, comparisons and drawings; inputs: those that no run had before; drew: inputs that
    drew a slice; refused: inputs that were refused; loaded: runs whose file the trace processor
    loaded; deep: inputs that were run again in all ways that must change nothing; seconds: of one
    process; faults: how often each kind was met.
    """

    runs: int = 0
    inputs: int = 0
    drew: int = 0
    refused: int = 0
    loaded: int = 0
    deep: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        """Add what came of other runs."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def __str__(self) -> str:
        rate = self.inputs / self.seconds if self.seconds else 0.0
        share = self.drew / max(self.inputs, 1)
        return (
            f"{self.inputs} distinct inputs ({rate:.1f}/s of a process), of which {self.drew} "
            f"({share:.0%}) drew a slice and {self.refused} were refused, in {self.runs} runs; "
            f"{self.loaded} were loaded, {self.deep} checked in depth; "
            f"{sum(self.faults.values())} faults of {len(self.faults)} kinds"
        )


class Ledger:
    """The counts of all programs in a directory, and where each goes on."""

    def __init__(self, corpus: Path) -> None:
        corpus.mkdir(parents=True, exist_ok=True)
        self._path, self._lock = corpus / NAME, corpus / f"{NAME}.lock"
        self._written = time.monotonic()

    @contextmanager
    def _held(self) -> Iterator[dict[str, Any]]:
        """All that is noted, to be changed by no other process meanwhile."""
        with self._lock.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            noted = json.loads(self._path.read_text("utf-8")) if self._path.exists() else {}
            yield noted
            beside = self._path.with_suffix(".part")
            beside.write_text(json.dumps(noted, indent=1) + "\n", encoding="utf-8")
            beside.replace(self._path)

    def counts(self) -> dict[str, Counts]:
        """What came of the runs of each program so far."""
        with self._held() as noted:
            return {name: _read(one) for name, one in noted.items() if "runs" in one}

    def add(self, program: str, counts: Counts, **marks: int) -> None:
        """Add counts of a program, and note marks of it, such as where it goes on."""
        with self._held() as noted:
            before = _read(noted.get(program, {}))
            before.add(counts)
            kept = noted.get(program, {}).get("marks", {})
            noted[program] = {
                **{one.name: getattr(before, one.name) for one in fields(before)},
                "marks": kept | marks,
            }
        self._written = time.monotonic()

    def is_due(self) -> bool:
        """Whether counts were not added for a while."""
        return time.monotonic() - self._written > KEPT_SECONDS

    def take(self, program: str, mark: str, count: int = 1) -> int:
        """Take numbers that no run of a program had before; gives the first of them."""
        with self._held() as noted:
            marks = noted.setdefault(program, {}).setdefault("marks", {})
            first = int(marks.get(mark, 0))
            marks[mark] = first + count
            return first


def _read(noted: Mapping[str, Any]) -> Counts:
    known = {one.name: noted[one.name] for one in fields(Counts) if one.name in noted}
    return Counts(**known | {"faults": Counter(noted.get("faults", {}))})


def main(arguments: Sequence[str]) -> int:
    """Print what all runs came to; 1 if any found a fault."""
    parser = argparse.ArgumentParser(prog="tests/fuzz counts", description="Sums of all runs.")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help=f"({CORPUS})")
    found = Ledger(parser.parse_args(arguments).corpus).counts()
    for name, counts in found.items():
        print(f"{name}: {counts}")
        for kind, count in counts.faults.most_common():
            print(f"  {count} x {kind}")
    return int(any(counts.faults for counts in found.values()))
