"""Sums of operators, their runs and shapes by step, and their descriptions by the host."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simulator.model import Kernel, RankRun, Run, Task
from simulator.writers.events import write_json
from simulator.writers.mindspore.text import TextFiles

DATA_TYPES = {"INT32": 31, "INT64": 32, "FLOAT16": 39, "FLOAT": 40, "FLOAT32": 40}
"""Numbers of types, as the first versions count them."""


def write_operator_sums(run: Run, rank: RankRun, profiler: Path) -> None:
    """Write aicore_intermediate_N_type.csv and _detail.csv, aicpu_intermediate_N.csv and
    framework_raw_N.csv.

    The files of the AI Core describe a mean step: how often each operator runs, and its mean time.
    """
    files = TextFiles(run, rank, profiler)
    runs: dict[str, list[int]] = defaultdict(list)
    kinds: dict[str, str] = {}
    for task, kernel in files.kernels(on_cpu=False):
        runs[kernel.scope].append(task.duration_ns)
        kinds[kernel.scope] = kernel.op_type
    steps = len(rank.steps)
    details = [
        (name, sum(lengths) / len(lengths) / 1e6, len(lengths) // steps)
        for name, lengths in runs.items()
    ]
    types: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    for name, mean_ms, count in details:
        types[kinds[name]][0] += mean_ms * count
        types[kinds[name]][1] += count
    all_ms = sum(total for total, _ in types.values())
    _write(
        profiler / f"aicore_intermediate_{rank.rank}_detail.csv",
        ["full_kernel_name", "execution_time", "execution_frequency"],
        details,
    )
    _write(
        profiler / f"aicore_intermediate_{rank.rank}_type.csv",
        ["kernel_type", "total_time", "execution_frequency", "percent"],
        [(kind, ms, count, f"{100 * ms / all_ms:.2f}") for kind, (ms, count) in types.items()],
    )
    files.aicpu_tasks()
    files.framework()


def write_dynamic_shapes(run: Run, rank: RankRun, profiler: Path) -> None:
    """Write dynamic_shape_info_N.json: every run of an operator by step, and sums by type."""
    operators: dict[str, list[dict[str, Any]]] = {}
    types: dict[str, dict[str, list[float]]] = {}
    for step in rank.steps:
        pairs = [pair for one in step.iterations for pair in one.kernels]
        operators[str(step.id)] = [_run_of(step.id, task, kernel) for task, kernel in pairs]
        sums = types[str(step.id)] = {}
        for task, kernel in pairs:
            total, count, _ = sums.get(kernel.op_type, (0.0, 0, 0.0))
            total += task.duration_ns / 1000
            sums[kernel.op_type] = [total, count + 1, total / (count + 1)]
    write_json(
        profiler / f"dynamic_shape_info_{rank.rank}.json",
        {"operator": operators, "kernel": {}, "operator_type": types, "kernel_type": {}},
    )


def _run_of(step: int, task: Task, kernel: Kernel) -> dict[str, Any]:
    return {
        "step": step,
        "op_side": "gpu",
        "op_type": kernel.op_type,
        "op_name": kernel.scope.rpartition("/")[2],
        "dur": task.duration_ns / 1000,
        "shape_info": [f"[{shape.replace(',', ', ')}]" for shape in kernel.input_shapes.split(";")],
    }


def write_framework_texts(run: Run, rank: RankRun, directory: Path) -> None:
    """Write the raw texts that describe operators, as the host of MindSpore 0.x leaves them."""
    described, tasks = [], []
    seen = set()
    for task, kernel in TextFiles(run, rank, directory).kernels(on_cpu=False):
        if kernel.scope in seen:
            continue
        seen.add(kernel.scope)
        described.append(_description(kernel))
        tasks.append(f"{kernel.scope} {kernel.blocks} {task.task_id} {task.stream}")
    for name, lines in (("graph_desc_info", described), ("task_desc_info", tasks)):
        path = directory / f"Framework.host.vm.{name}.{rank.rank}.slice_0"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _description(kernel: Kernel) -> str:
    parts = [f"op_name:{kernel.scope}", f"op_type:{kernel.op_type}"]
    sides = (
        ("input", kernel.input_shapes, kernel.input_types),
        ("output", kernel.output_shapes, kernel.output_types),
    )
    for side, shapes, types in sides:
        for number, (shape, kind) in enumerate(
            zip(shapes.split(";"), types.split(";"), strict=False)
        ):
            parts.append(
                f"{side}_id:{number} {side}_format:DefaultFormat "
                f'{side}_data_type:{DATA_TYPES.get(kind, 0)} {side}_shape:"{shape}"'
            )
    return " ".join(parts)


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
