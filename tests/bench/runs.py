"""Runs of commands as processes of their own, and what they cost."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import ROOT

TLEXPORT = (sys.executable, "-m", "timeline")
MEGABYTE = 1_000_000
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_SCHEMA = "perfetto.protos.perfetto.trace.perfetto_trace_pb2"


@dataclass(frozen=True)
class Run:
    """One run of a command: seconds on the clock and of the processor, and the peak in bytes."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


@dataclass(frozen=True)
class Row:
    """One line of the table; `rate` is `amount` of the unit for each second."""

    work: str
    wall_s: float
    cpu_s: float
    peak_mb: int
    amount: float = 0.0
    unit: str = ""

    @property
    def rate(self) -> float:
        return self.amount / self.wall_s

    @staticmethod
    def head() -> tuple[str, ...]:
        return ("work", "wall s", "CPU s", "peak MB", "rate")

    def cells(self) -> tuple[str, ...]:
        rate = f"{self.rate:,.2f} {self.unit}/s" if self.amount else ""
        return (self.work, f"{self.wall_s:.2f}", f"{self.cpu_s:.2f}", str(self.peak_mb), rate)


@dataclass(frozen=True)
class Bench:
    """Runs commands and remembers their medians."""

    runs: int
    directory: Path

    def measure(
        self, work: str, command: Sequence[str], amount: float = 0.0, unit: str = ""
    ) -> Row:
        found = [self._run(command) for _ in range(self.runs)]
        row = Row(
            work,
            statistics.median(run.wall_s for run in found),
            statistics.median(run.cpu_s for run in found),
            round(statistics.median(run.peak_bytes for run in found) / MEGABYTE),
            amount,
            unit,
        )
        print("  ".join(row.cells()), file=sys.stderr, flush=True)
        return row

    def _run(self, command: Sequence[str]) -> Run:
        begin = time.perf_counter()
        with (self.directory / "log.txt").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment())
            _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - begin
        if status:
            said = (self.directory / "log.txt").read_text(errors="replace")
            raise SystemExit(f"{' '.join(command)}: exit status {status}\n{said}")
        process.returncode = 0
        return Run(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)

    def _environment(self) -> dict[str, str]:
        """That of a user, whose second run finds the package compiled to bytecode."""
        kept = {key: value for key, value in os.environ.items() if key != _NO_BYTECODE}
        return kept | {"PYTHONPYCACHEPREFIX": str(self.directory / "bytecode")}

    def compile(self) -> None:
        """Have the bytecode there before the first run."""
        compiles = [sys.executable, "-m", "compileall", "-q", str(ROOT / "timeline")]
        imports = [sys.executable, "-c", "import timeline.commands.export, rich.table, " + _SCHEMA]
        for command in (compiles, imports):
            subprocess.run(command, check=True, env=self._environment())

    def export(self, path: Path, *options: str) -> list[str]:
        """The command that exports a profile."""
        output = self.directory / "timeline.pftrace"
        return [*TLEXPORT, str(path), "-o", str(output), "--force", "--quiet", *options]
