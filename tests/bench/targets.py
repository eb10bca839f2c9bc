"""What exports may cost: ratios of CPU to yardsticks that run in between."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.inputs import Inputs
from tests.bench.peers import HTA, MERGE, MINDINSIGHT, Peer, Peers
from tests.bench.runs import TLEXPORT, Bench, Run

_SMALL_TASKS = 1_000
_SMALL_MEGABYTES = 4
"""A trace of about so many tasks."""
_READING = (sys.executable, "-m", "tests.bench.reading")
"""What an export reads, and nothing else: the floor of what exports cost."""
_DEVICE_TABLES = ("TASK", "COMPUTE_TASK_INFO", "COMMUNICATION_OP", "STRING_IDS")
_CALL_TABLES = ("CANN_API", "PYTORCH_API", "COMMUNICATION_TASK_INFO")


@dataclass(frozen=True)
class Target:
    """A ratio that is asked for: of our CPU to a yardstick's at most, or the other way at least.

    without: what is taken off ours before; scale: how much more work ours is than the yardstick.
    """

    work: str
    ours: str
    yardstick: str
    bound: float
    at_least: bool = False
    without: str | None = None
    scale: float = 1.0

    def ratio(self, cpu_s: Mapping[str, float]) -> float:
        """The ratio of one round of runs."""
        ours_s = cpu_s[self.ours] - (cpu_s[self.without] if self.without else 0.0)
        yardstick_s = cpu_s[self.yardstick] * self.scale
        return yardstick_s / ours_s if self.at_least else ours_s / yardstick_s


@dataclass(frozen=True)
class Ratio:
    """One line of the table; without numbers, why there are none."""

    work: str
    bound: str
    ours_s: float = 0.0
    yardstick: str = ""
    yardstick_s: float = 0.0
    ratio: float = 0.0
    absent: str = ""

    @staticmethod
    def head() -> tuple[str, ...]:
        return ("work", "CPU s", "yardstick", "CPU s of it", "ratio", "target")

    def cells(self) -> tuple[str, ...]:
        if self.absent:
            return (self.work, "", self.absent, "", "", self.bound)
        numbers = (f"{self.ours_s:.2f}", self.yardstick, f"{self.yardstick_s:.2f}")
        return (self.work, *numbers, f"{self.ratio:.2f}", self.bound)


def _compare(
    bench: Bench, commands: Mapping[str, Sequence[str] | None], asked: Sequence[Target]
) -> Iterator[Ratio]:
    """The ratios that are asked for, of medians of rounds in which each command runs once."""
    possible = {name: command for name, command in commands.items() if command}
    rounds = bench.interleave(possible) if len(possible) > 1 else []

    def median_s(name: str) -> float:
        return statistics.median(runs[name].cpu_s for runs in rounds)

    for target in asked:
        bound = f"{'>=' if target.at_least else '<='} {target.bound:g}"
        if {target.ours, target.yardstick} <= possible.keys():
            ratio = Ratio(
                target.work,
                bound,
                median_s(target.ours),
                target.yardstick,
                median_s(target.yardstick),
                statistics.median(target.ratio(_cpu_s(runs)) for runs in rounds),
            )
        else:
            ratio = Ratio(target.work, bound, absent=f"{target.yardstick}: cannot be had here")
        print("  ".join(ratio.cells()), file=sys.stderr, flush=True)
        yield ratio


def _cpu_s(runs: Mapping[str, Run]) -> dict[str, float]:
    return {name: run.cpu_s for name, run in runs.items()}


def database_targets(bench: Bench, inputs: Inputs) -> Iterator[Ratio]:
    """A large database, against what only steps the rows of its tables."""
    path, small = inputs.cluster(1, 1_000_000), inputs.cluster(1, _SMALL_TASKS)
    (database,) = path.rglob("*.db")
    (small_database,) = small.rglob("*.db")
    without_causes = ("--kind", "summary", "--no-causes")
    device, calls = "stepping", "stepping, calls too"
    commands = {
        device: _stepping(bench, database, *_DEVICE_TABLES),
        calls: _stepping(bench, database, *_DEVICE_TABLES, *_CALL_TABLES),
        "small": bench.export(small, *without_causes),
        "summary": bench.export(path, *without_causes),
        "causes": bench.export(path, "--kind", "summary", "--causes"),
        "detail": bench.export(path, "--kind", "detail"),
        "reading": [*_READING, str(database)],
        "start": [*_READING, str(small_database)],
    }
    label = "database of 1 000 000 tasks with all calls"
    asked = (
        Target(f"{label} -> detail", "detail", calls, 4.5),
        Target(
            f"({label} -> summary, --no-causes) - small", "summary", device, 0.8, without="small"
        ),
        Target(
            f"({label}, its columns read and not used) - small",
            "reading",
            device,
            0.8,
            without="start",
        ),
        Target(f"{label} -> summary, --causes", "causes", calls, 3),
    )
    yield from _compare(bench, commands, asked)
    for made in (path, small):
        shutil.rmtree(made)


def _stepping(bench: Bench, database: Path, *tables: str) -> list[str] | None:
    """What steps the rows of tables; None where its program cannot be compiled."""
    program = bench.directory / "stepping"
    compiler = shutil.which("cc")
    if not program.exists() and compiler:
        source = str(Path(__file__).with_name("stepping.c"))
        subprocess.run([compiler, "-O2", "-o", str(program), source, "-lsqlite3"], check=False)
    return [str(program), str(database), *tables] if program.exists() else None


def trace_targets(bench: Bench, inputs: Inputs) -> Iterator[Ratio]:
    """JSON, against what only loads it."""
    path, small = inputs.trace(1, 200), inputs.trace(1, _SMALL_MEGABYTES)
    (trace,) = path.rglob("trace_view.json")
    loads = "import orjson, sys; orjson.loads(open(sys.argv[1], 'rb').read())"
    yardstick = "orjson.loads of it"
    exports = {
        "summary, --no-causes": (8, ("--kind", "summary", "--no-causes")),
        "summary, --causes": (5, ("--kind", "summary", "--causes")),
        "detail": (5, ("--kind", "detail")),
    }
    commands = {yardstick: [sys.executable, "-c", loads, str(trace)]}
    asked = []
    for work, (bound, options) in exports.items():
        commands[work] = bench.export(path, *options)
        commands[f"small, {work}"] = bench.export(small, *options)
        label = f"JSON of 200 MB -> {work}"
        without_start = Target(
            f"({label}) - small", work, yardstick, bound, at_least=True, without=f"small, {work}"
        )
        asked += [without_start, Target(label, work, yardstick, bound, at_least=True)]
    commands["reading"] = [*_READING, str(trace)]
    label = "JSON of 200 MB, scanned and not used"
    asked.append(Target(label, "reading", yardstick, 5, at_least=True))
    yield from _compare(bench, commands, asked)
    for made in (path, small):
        shutil.rmtree(made)


def rank_targets(bench: Bench, inputs: Inputs) -> Iterator[Ratio]:
    """Many small ranks, against fewer; and a small profile, against the import of NumPy."""
    many, some, one = (inputs.ranks(count) for count in (512, 64, 1))
    of_some, imports = "64 small ranks -> detail", "python -c 'import numpy'"
    commands = {
        "many": bench.export(many, "--kind", "detail"),
        of_some: bench.export(some, "--kind", "detail"),
        "verdict": [*TLEXPORT, str(one), "--verdict"],
        imports: [sys.executable, "-c", "import numpy"],
    }
    asked = (
        Target("512 small ranks -> detail", "many", of_some, 9),
        Target("verdict of a small profile", "verdict", imports, 2),
    )
    yield from _compare(bench, commands, asked)


def growth_targets(bench: Bench, inputs: Inputs) -> Iterator[Ratio]:
    """CPU a task of ten times the tasks, which needs 4 GB of disk."""
    sizes = (1_000_000, 10_000_000)
    small, large = (inputs.database(tasks) for tasks in sizes)
    kinds = ("summary", "detail")
    commands = {f"{kind} of 1 000 000": bench.export(small, "--kind", kind) for kind in kinds}
    commands |= {kind: bench.export(large, "--kind", kind) for kind in kinds}
    asked = [
        Target(
            f"database of 10 000 000 tasks -> {kind}, a task",
            kind,
            f"{kind} of 1 000 000",
            1.3,
            scale=sizes[1] / sizes[0],
        )
        for kind in kinds
    ]
    yield from _compare(bench, commands, asked)
    for made in (small, large):
        shutil.rmtree(made)


def peer_targets(bench: Bench, inputs: Inputs) -> Iterator[Ratio]:
    """Beside other tools, as far as the package index has them: they are installed before."""
    peers = Peers(bench.directory / "peers")
    merged = str(bench.directory / "merged.json")
    kineto, mindspore, traces = inputs.kineto(140), inputs.mindspore(200), inputs.trace(2, 200)
    each = [str(path) for path in sorted(traces.rglob("trace_view.json"))]
    beside: tuple[tuple[str, float, Path, Peer, list[str]], ...] = (
        ("Kineto trace of 140 MB -> summary", 10, kineto, HTA, [str(kineto)]),
        (
            "MindSpore timelines of 2 x 200 MB -> detail",
            10,
            mindspore,
            MINDINSIGHT,
            [str(mindspore), merged],
        ),
        ("JSON of 2 x 200 MB -> detail", 12, traces, MERGE, [*each, merged]),
    )
    for work, bound, profile, peer, arguments in beside:
        commands = {peer.name: peers.command(peer, *arguments)}
        targets = [Target(work, work, peer.name, bound, at_least=True)]
        if commands[peer.name]:
            kind = work.rpartition(" ")[2]
            commands[work] = bench.export(profile, "--kind", kind)
            if peer is MERGE:  # which merges in one process
                alone = f"{work}, --jobs 1"
                commands[alone] = bench.export(profile, "--kind", kind, "--jobs", "1")
                targets.append(Target(alone, alone, peer.name, bound, at_least=True))
        yield from _compare(bench, commands, targets)
