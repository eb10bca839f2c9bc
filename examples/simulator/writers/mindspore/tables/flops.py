"""Floating-point operations: of operators, of scopes, of steps and of the whole rank."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path

from simulator.model import Kernel, RankRun, Run, Task
from simulator.writers.mindspore.text import TextFiles

PEAK_FLOP_PER_S = 256e12
"""Of the AI Cores: frequency times cores times 4096 times 2."""
HEADERS = {
    4: "op_full_name, MFLOPs(10^6), GFLOPS(10^9), FLOPS utilization(%) ",
    5: "op_full_name,MFLOPs(10^6 cube),GFLOPS(10^9 cube),MFLOPs(10^6 vector),GFLOPS(10^9 vector)",
    7: "full_kernel_name, MFLOPs(10^6 cube), GFLOPS(10^9 cube), FLOPS utilization(cube), "
    "MFLOPs(10^6 vector), GFLOPS(10^9 vector), FLOPS utilization(vec)",
}
"""By the cells of a row: MindSpore 1.6 to 2.0, 2.1, and 1.3."""


@dataclass(frozen=True)
class Work:
    """What one operator does in a run, and how long it takes in the mean."""

    name: str
    mflop: float
    ms: float
    cube: bool

    @property
    def gflop_per_s(self) -> float:
        return self.mflop / self.ms

    @property
    def percent(self) -> float:
        return self.gflop_per_s * 1e9 / PEAK_FLOP_PER_S * 100


def write_flops(run: Run, rank: RankRun, profiler: Path, *, cells: int = 4) -> None:
    """Write the four files as MindSpore 2.0 does, or those of a version with other cells.

    cells: of a row of operators. With 5, as MindSpore 2.1 writes it, a line stands for each time
    that an operator runs, and there are neither scopes nor steps.
    """
    kernels = TextFiles(run, rank, profiler).kernels(on_cpu=False)
    works = operators_of(kernels)
    lines = [HEADERS[cells]]
    if cells == 5:
        lines += [_cells(work_of(task, kernel), 5) for task, kernel in kernels]
    else:
        lines += [_cells(work, cells) for work in works]
    path = profiler / f"flops_{rank.rank}.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    _write_summary(rank, profiler, kernels, works, cells)
    if cells != 5:
        _write_scopes(rank, profiler, works)
        _write_steps(rank, profiler)


def operators_of(kernels: list[tuple[Task, Kernel]]) -> list[Work]:
    """The operators of tasks, each once, in order of their first start."""
    runs: dict[str, list[Work]] = {}
    for task, kernel in kernels:
        runs.setdefault(kernel.scope, []).append(work_of(task, kernel))
    return [
        Work(name, works[0].mflop, sum(work.ms for work in works) / len(works), works[0].cube)
        for name, works in runs.items()
    ]


def work_of(task: Task, kernel: Kernel) -> Work:
    """What one task does: a multiplication and an addition for each pair of values that meet."""
    sizes = [
        [int(size) for size in shape.strip('"').split(",") if size]
        for shape in kernel.input_shapes.split(";")
    ]
    cube = "MatMul" in kernel.op_type or "Conv" in kernel.op_type
    elements = prod(sizes[0]) if sizes and sizes[0] else 1
    depth = sizes[1][-1] if cube and len(sizes) > 1 and sizes[1] else 1
    return Work(kernel.scope, 2 * elements * depth / 1e6, task.duration_ns / 1e6, cube)


def _cells(work: Work, cells: int) -> str:
    its = [work.mflop, work.gflop_per_s, work.percent]
    if cells == 4:
        return ", ".join(map(str, [work.name, *its]))
    none = [0.0] * 3
    both = [*its, *none] if work.cube else [*none, *its]
    if cells == 5:
        return ",".join(map(str, [work.name, *both[:2], *both[3:5]]))
    return ", ".join(map(str, [work.name, *both]))


def _write_summary(
    rank: RankRun,
    profiler: Path,
    kernels: list[tuple[Task, Kernel]],
    works: list[Work],
    cells: int,
) -> None:
    """All work, and the mean over operators of their rates."""
    if cells == 4:
        shares = [_utilization(rank, step) for step in range(len(rank.steps))]
        held = {
            "FLOPs": round(sum(work.mflop for work in works), 3),
            "FLOPS": round(sum(work.gflop_per_s for work in works) / len(works), 3),
            "FLOPS_Utilization": round(sum(shares) / len(shares), 3),
        }
    else:
        every = [work_of(*pair) for pair in kernels] if cells == 5 else works
        held = {}
        for name, cube in (("cube", True), ("vec", False)):
            its = [work for work in every if work.cube is cube]
            held[f"{name}_FLOPs"] = round(sum(work.mflop for work in its), 4)
            held[f"{name}_FLOPS"] = round(sum(work.gflop_per_s for work in its) / len(every), 4)
    path = profiler / f"flops_summary_{rank.rank}.json"
    path.write_text(json.dumps(held), encoding="utf-8")


def _write_scopes(rank: RankRun, profiler: Path, works: list[Work]) -> None:
    """A link from each scope to each inside it; names tell how deep a scope is, and of what."""
    links: dict[tuple[str, str], float] = {}
    most = 0
    for work in works:
        scopes = work.name.split("/")[:-1]
        most = max(most, len(scopes))
        named = [f"{name}({level}_{scopes[0]})" for level, name in enumerate(scopes)]
        path = ["Total", *scopes[:1], *named[1:]]
        for pair in pairwise(path):
            links[pair] = links.get(pair, 0) + work.mflop
    data = {
        "nodes": [{"name": name} for name in sorted({end for pair in links for end in pair})],
        "links": [
            {"source": source, "target": target, "value": round(mflop, 3)}
            for (source, target), mflop in links.items()
        ],
    }
    target = profiler / f"flops_scope_{rank.rank}.json"
    target.write_text(json.dumps({"data": data, "max_scope_num": most}), encoding="utf-8")


def _write_steps(rank: RankRun, profiler: Path) -> None:
    """What is called JSON and is a table."""
    lines = ["steps, FLOPS_Utilization %"]
    lines += [f"{step + 1},{_utilization(rank, step)}" for step in range(len(rank.steps))]
    path = profiler / f"flops_utilization_step_{rank.rank}.json"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _utilization(rank: RankRun, step: int) -> float:
    """The percentage of the peak that is used between forward and backward of a step."""
    iterations = rank.steps[step].iterations
    begin_ns, end_ns = iterations[0].forward_start_ns, iterations[-1].backward_end_ns
    mflop = sum(
        work_of(task, kernel).mflop
        for one in iterations
        for task, kernel in one.kernels
        if kernel.core != "AI_CPU" and begin_ns <= task.start_ns < end_ns
    )
    return mflop * 1e6 / ((end_ns - begin_ns) / 1e9) / PEAK_FLOP_PER_S * 100
