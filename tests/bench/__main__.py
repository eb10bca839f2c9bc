"""Measures how fast tlexport reads large inputs that are made from real profiles.

    python tests/bench [traces databases causes starts growth] [--runs 5] [--json table.json]

Inputs are made by tools/scaleup.py of the shared directory, in a temporary directory. Every run is
a process of its own, so times hold the start of Python, and peaks are those of that process. What
is not named takes some minutes; `growth` makes a database of 2 GB and takes longer, `causes` too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from timeline.sources.decoders.scanner import is_compiled

ROOT = Path(__file__).resolve().parents[2]
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_SCHEMA = "perfetto.protos.perfetto.trace.perfetto_trace_pb2"
DEVICE_LAYERS = "steps,overlap,hardware,communication,counters"
MEGABYTE = 1_000_000


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


TLEXPORT = (sys.executable, "-m", "timeline")


@dataclass(frozen=True)
class Inputs:
    """Makes profiles of any size from the real ones."""

    shared: Path
    directory: Path

    def trace(self, ranks: int, megabytes: int) -> Path:
        """torch_npu text captures with a trace of some size each."""
        made = self.directory / f"trace-{ranks}-{megabytes}"
        for rank in range(ranks):
            source = self.shared / f"data/torch-npu-text/rank{rank}_ascend_pt"
            capture = made / source.name
            output = capture / "ASCEND_PROFILER_OUTPUT"
            output.mkdir(parents=True)
            for name in (f"profiler_info_{rank}.json", "profiler_metadata.json"):
                shutil.copyfile(source / name, capture / name)
            self._scale(
                "json",
                source / "ASCEND_PROFILER_OUTPUT/trace_view.json",
                output / "trace_view.json",
                "--mb",
                str(megabytes),
            )
        return made

    def database(self, tasks: int) -> Path:
        """A torch_npu capture with a database of some tasks, and the CANN calls beside them."""
        made = self.directory / f"database-{tasks}"
        self._capture(made, 0, tasks)
        return made

    def cluster(self, ranks: int, tasks: int) -> Path:
        """Captures of some ranks that share so many tasks, with all calls of the host."""
        made = self.directory / f"cluster-{ranks}-{tasks}"
        for rank in range(ranks):
            path = self._capture(made, rank, tasks // ranks, "--host")
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("UPDATE RANK_DEVICE_MAP SET rankId = ?", (rank,))
        return made

    def _capture(self, made: Path, rank: int, tasks: int, *options: str) -> Path:
        """The database of a capture, made of that of one of the two real ranks."""
        real = rank % 2
        source = self.shared / f"data/torch-npu-db/rank{real}_ascend_pt"
        output = made / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        said = json.loads((source / f"profiler_info_{real}.json").read_text(encoding="utf-8"))
        told = json.dumps(said | {"rank_id": rank})
        (output.parent / f"profiler_info_{rank}.json").write_text(told, encoding="utf-8")
        read = source / "ASCEND_PROFILER_OUTPUT" / f"ascend_pytorch_profiler_{real}.db"
        target = output / f"ascend_pytorch_profiler_{rank}.db"
        self._scale("db", read, target, "--tasks", str(tasks), *options)
        return target

    def _scale(self, kind: str, source: Path, target: Path, *size: str) -> None:
        tool = self.shared / "tools/scaleup.py"
        command = [sys.executable, str(tool), kind, "--src", str(source), "--out", str(target)]
        subprocess.run([*command, *size], check=True, stdout=subprocess.DEVNULL)

    def ranks(self, count: int) -> Path:
        """Many small ranks."""
        made = self.directory / f"ranks-{count}"
        maker = ROOT / "examples/make_profile.py"
        command = [sys.executable, str(maker), str(made), "--layout", "torch-db"]
        subprocess.run([*command, "--ranks", str(count)], check=True, stdout=subprocess.DEVNULL)
        return made


def traces(bench: Bench, inputs: Inputs) -> Iterator[Row]:
    """JSON, against what only loads it."""
    path = inputs.trace(ranks=2, megabytes=200)
    (one,) = (path / "rank0_ascend_pt").rglob("trace_view.json")
    size = one.stat().st_size / MEGABYTE
    for kind in ("detail", "summary"):
        command = bench.export(one.parent, "--kind", kind)
        yield bench.measure(f"JSON -> {kind}", command, size, "MB")
    loads = "import orjson, sys; orjson.loads(open(sys.argv[1], 'rb').read())"
    command = [sys.executable, "-c", loads, str(one)]
    yield bench.measure("orjson.loads of that JSON", command, size, "MB")
    imports = (
        "import sys; sys.path.insert(0, sys.argv[2]);"
        "from tests.support.perfetto_sql import TraceProcessor;"
        "TraceProcessor.load(open(sys.argv[1], 'rb').read())"
    )
    command = [sys.executable, "-c", imports, str(one), str(ROOT)]
    yield bench.measure("trace processor's import of that JSON", command, size, "MB")
    for jobs in ("1", "2"):
        command = bench.export(path, "--kind", "detail", "--jobs", jobs)
        yield bench.measure(f"2 ranks of JSON -> detail, --jobs {jobs}", command, 2 * size, "MB")


def databases(bench: Bench, inputs: Inputs) -> Iterator[Row]:
    """Databases of growing size."""
    for tasks in (100_000, 1_000_000):
        path = inputs.database(tasks)
        millions, label = tasks / 1e6, f"{tasks:,}".replace(",", " ")
        for name, options in (
            ("detail with CANN calls", ("--kind", "detail")),
            ("detail of the device", ("--kind", "detail", "--layers", DEVICE_LAYERS)),
            ("summary", ("--kind", "summary")),
        ):
            command = bench.export(path, *options)
            work = f"database of {label} tasks -> {name}"
            yield bench.measure(work, command, millions, "M tasks")


def causes(bench: Bench, inputs: Inputs) -> Iterator[Row]:
    """What it costs to say why devices wait and idle, and that it grows with the tasks."""
    for ranks, tasks in ((1, 250_000), (1, 500_000), (1, 1_000_000), (8, 1_000_000)):
        path = inputs.cluster(ranks, tasks)
        label = f"{tasks:,}".replace(",", " ")
        for option in ("--no-causes", "--causes"):
            command = bench.export(path, "--kind", "summary", option)
            work = f"{label} tasks with all calls in {ranks} ranks -> summary, {option}"
            yield bench.measure(work, command, tasks / 1e6, "M tasks")
        shutil.rmtree(path)


def growth(bench: Bench, inputs: Inputs) -> Iterator[Row]:
    """Whether time and memory keep to the number of tasks."""
    for tasks in (100_000, 1_000_000, 10_000_000):
        path, label = inputs.database(tasks), f"{tasks:,}".replace(",", " ")
        for kind in ("detail", "summary"):
            command = bench.export(path, "--kind", kind)
            yield bench.measure(f"{label} tasks -> {kind}", command, tasks / 1e6, "M tasks")
        shutil.rmtree(path)


def starts(bench: Bench, inputs: Inputs) -> Iterator[Row]:
    """What must feel immediate, and many ranks."""
    yield bench.measure("--help", [*TLEXPORT, "--help"])
    path = inputs.ranks(64)
    yield bench.measure("--list of 64 ranks", [*TLEXPORT, str(path), "--list"])
    path = inputs.ranks(1_000)
    for jobs in ("1", "2"):
        command = bench.export(path, "--jobs", jobs)
        yield bench.measure(f"1 000 small ranks -> summary, --jobs {jobs}", command, 1000, "ranks")


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    head = ("work", "wall s", "CPU s", "peak MB", "rate")
    lines = [head, tuple("---" for _ in head), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def machine() -> str:
    """Where this was measured."""
    with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    model = models[0] if models else platform.processor()
    compiled = "with" if is_compiled() else "without"
    python = platform.python_version()
    return f"{os.cpu_count()} cores of {model}, Python {python}, {compiled} the compiled parts"


def main() -> None:
    """Measure everything, or the parts that are named."""
    parts: dict[str, Callable[[Bench, Inputs], Iterator[Row]]] = {
        "traces": traces,
        "databases": databases,
        "starts": starts,
    }
    usual = list(parts)
    parts |= {"causes": causes, "growth": growth}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="*", choices=[*parts, []], help=f"default: {' '.join(usual)}"
    )
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the table here")
    asked = parser.parse_args()
    if not (asked.shared / "tools/scaleup.py").is_file():
        raise SystemExit(f"{asked.shared}: has no tools/scaleup.py to make large inputs with.")
    with tempfile.TemporaryDirectory(prefix="tlexport-bench-") as name:
        bench, inputs = Bench(asked.runs, Path(name)), Inputs(asked.shared, Path(name))
        bench.compile()
        rows = [row for part in asked.parts or usual for row in parts[part](bench, inputs)]
    print(f"{machine()}; medians of {asked.runs} runs\n\n{table(rows)}")
    if asked.json:
        found = [asdict(row) | {"rate": row.rate} for row in rows]
        asked.json.write_text(json.dumps({"machine": machine(), "rows": found}, indent=2))


if __name__ == "__main__":
    main()
