"""The text outputs of MindSpore 0.7 to 2.2."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simulator.model import (
    MONOTONIC_START_NS,
    WALL_START_NS,
    Collective,
    Kernel,
    RankRun,
    Run,
    Step,
    Task,
)
from simulator.recording import TICK_NS
from simulator.writers.events import write_json

FIRST_TICK = 43_806_841_592
"""What the device counters show when the run starts."""
FIRST_REDUCE_STREAM = 520
STREAM_SHIFT = 516
"""Physical streams less those that the framework knows."""


def write_mindspore_text(
    run: Run, directory: str | Path, *, version: str = "0.7", hccl: bool = False
) -> list[Path]:
    """Write one `profiler` directory that all ranks share; it is returned once per rank.

    version: "0.7", or "2.1", which writes the same values under other headers and in another order.
    hccl: whether to write the tasks of each collective too, as clusters of version 1.3 do.
    """
    profiler = Path(directory) / "profiler"
    profiler.mkdir(parents=True, exist_ok=True)
    for rank in run.ranks:
        writer = TextFiles(run, rank, profiler, newer=version == "2.1")
        writer.device_tasks()
        writer.aicpu_tasks()
        writer.step_trace()
        writer.framework()
        if hccl:
            writer.hccl()
    return [profiler] * len(run.ranks)


def device_ns(run: Run, time_ns: int) -> int:
    """A time of the run on the clock of a device, whose counter starts with the host."""
    return tick(run, time_ns) * TICK_NS


def tick(run: Run, time_ns: int) -> int:
    """What the device counter shows at a time of the run."""
    start_ns = MONOTONIC_START_NS if run.monotonic else WALL_START_NS
    return FIRST_TICK + (time_ns - start_ns) // TICK_NS


def reduce_names(step: Step) -> list[tuple[str, Collective]]:
    """The name that the step trace has for each collective of a step."""
    found = [collective for one in step.iterations for collective in one.collectives]
    return [
        (f"stream_{FIRST_REDUCE_STREAM + 2 * place}_parallel_0", one)
        for place, one in enumerate(found)
    ]


class TextFiles:
    """The files of one rank; its id is in all their names."""

    def __init__(self, run: Run, rank: RankRun, profiler: Path, *, newer: bool = False) -> None:
        self._run, self._rank, self._profiler, self._newer = run, rank, profiler, newer

    def kernels(self, *, on_cpu: bool) -> list[tuple[Task, Kernel]]:
        """Tasks in order of start: those of AI CPU, or all others."""
        found = [pair for one in self._rank.iterations for pair in one.kernels]
        kept = [pair for pair in found if (pair[1].core == "AI_CPU") == on_cpu]
        return sorted(kept, key=lambda pair: pair[0].start_ns)

    def _ms(self, time_ns: int) -> float:
        return tick(self._run, time_ns) / 100_000

    def _write(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        path = self._profiler / name.format(self._rank.rank)
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)

    def device_tasks(self) -> None:
        rows = [
            (
                kernel.scope,
                task.stream + STREAM_SHIFT,
                self._ms(task.start_ns),
                task.duration_ns / 1e6,
            )
            for task, kernel in self.kernels(on_cpu=False)
        ]
        name = "output_timeline_data_{}.txt"
        if self._newer:
            self._write(name, [("op_name", "stream_id", "start_time(us)", "duration(ms)"), *rows])
            return
        lines = ["op_name, stream_id, start_time(ms), duration(ms)"]
        lines += [",".join(str(value) for value in row) for row in rows]
        path = self._profiler / name.format(self._rank.rank)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def aicpu_tasks(self) -> None:
        kind = "op_type" if self._newer else "kernel_type"
        columns = ["serial_number", kind, "total_time", "dispatch_time", "execution_time"]
        rows: list[Sequence[Any]] = [[*columns, "run_start", "run_end"]]
        for number, (task, kernel) in enumerate(self.kernels(on_cpu=True), 1):
            length_ms, wait_ms = task.duration_ns / 1e6, 0.004
            times: tuple[float, float] = (
                tick(self._run, task.start_ns) / 100,
                tick(self._run, task.end_ns) / 100,
            )
            if self._newer:
                start_ms = self._ms(task.start_ns)
                times = start_ms, start_ms + length_ms + wait_ms
            shared = number, kernel.op_type, length_ms + wait_ms, wait_ms, length_ms
            rows.append((*shared, *times))
        self._write("aicpu_intermediate_{}.csv", rows)

    def step_trace(self) -> None:
        """A row per step, each from the end of the one before; the mean of all but the first last.

        Of a single step the mean is zeros.
        """
        header = ["step_num", "start_point", "end_point", "total", "fp_point", "bp_point"]
        header += ["iteration_interval", "fp_and_bp", "tail"]
        for name, _ in reduce_names(self._rank.steps[0]):
            three = [f"{name}_start_point", f"{name}_end_point", name]
            header += [three[2], *three[:2]] if self._newer else three
        rows: list[Sequence[Any]] = []
        previous: int | None = None
        for step in self._rank.steps:
            rows.append(self._step_row(step, previous))
            previous = tick(self._run, step.iterations[-1].end_ns)
        later = rows[1:]
        means = [sum(row[at] for row in later) / max(1, len(later)) for at in range(len(header))]
        mean: list[Any] = ["-" if later else 0, *map(round, means[1:])]
        self._write("step_trace_raw_{}_detail_time.csv", [header, *rows, mean])

    def step_points(self) -> None:
        """The first operator of forward, and the last of backward."""
        first = self._rank.steps[0].iterations
        begin_ns, end_ns = first[0].forward_start_ns, first[-1].backward_end_ns
        inside = [
            kernel.scope
            for task, kernel in self.kernels(on_cpu=False)
            if begin_ns <= task.start_ns and task.end_ns <= end_ns
        ]
        points = {"fp_start": inside[0], "bp_end": inside[-1]} if inside else {}
        path = self._profiler / f"step_trace_point_info_{self._rank.rank}.json"
        path.write_text(json.dumps(points), encoding="utf-8")

    def _step_row(self, step: Step, previous: int | None) -> list[int]:
        def at(time_ns: int) -> int:
            return tick(self._run, time_ns)

        end = at(step.iterations[-1].end_ns)
        forward = at(step.iterations[0].forward_start_ns)
        backward = at(step.iterations[-1].backward_end_ns)
        start = forward if previous is None else previous
        row = [step.id, start, end, end - start, forward, backward]
        row += [forward - start, backward - forward, end - backward]
        for _, one in reduce_names(step):
            first, last = at(one.start_ns), at(one.end_ns)
            row += [last - first, first, last] if self._newer else [first, last, last - first]
        return row

    def framework(self) -> None:
        """A row per operator, with the graph it is of."""
        columns = ["task_id", "stream_id", "block_dim", "full_kernel_name", "op_name"]
        columns += ["kernel_name", "kernel_type", "subgraph", "op_info", "graph_id"]
        if self._newer:
            columns = [*columns[:3], "full_op_name", "op_name", "op_type", "subgraph", "op_info"]
            columns += ["model_id", "kernel_type"]
        rows: list[Sequence[Any]] = [columns]
        seen = set()
        for one in self._rank.iterations:
            for number, (task, kernel) in enumerate(one.kernels, 1):
                if kernel.scope in seen:
                    continue
                seen.add(kernel.scope)
                scope, short = kernel.scope, kernel.scope.rpartition("/")[2]
                shared = [number, task.stream, 0 if self._newer else kernel.blocks, scope]
                part, info = scope.partition("/")[0], json.dumps(self._info(kernel))
                if self._newer:
                    rows.append([*shared, short, kernel.op_type, part, info, one.graph, "AI_CORE"])
                else:
                    rows.append([*shared, scope, short, kernel.op_type, part, info, one.graph])
        self._write("framework_raw_{}.csv", rows)

    def _info(self, kernel: Kernel) -> dict[str, Any]:
        return operator_info(kernel, newer=self._newer)

    def hccl(self) -> None:
        """A directory per collective and a file per run of it."""
        for step in self._rank.steps:
            for name, one in reduce_names(step):
                folder = f"{one.scope.rpartition('/')[2]}_{name.split('_')[1]}_1"
                path = self._profiler / f"hccl_info_{self._rank.rank}" / folder / f"{step.id}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                events = [self._hccl_event(task) for task in one.tasks]
                write_json(path, {"traceEvents": events})

    def _hccl_event(self, task: Task) -> dict[str, Any]:
        assert task.transfer is not None
        transfer, start = task.transfer, tick(self._run, task.start_ns)
        args = {
            "task type": transfer.kind.replace("_", " "),
            "src rank": f"{transfer.source_rank:#x}",
            "dst rank": f"{transfer.target_rank:#x}",
            "transport type": transfer.transport,
            "size": f"{transfer.size_bytes:#x}",
        }
        event = {"tid": transfer.plane, "ts": start / 100, "dur": task.duration_ns / 1000}
        return event | {"name": args["task type"], "ph": "X", "args": args}


def operator_info(kernel: Kernel, *, newer: bool) -> dict[str, Any]:
    """Shapes by input and output: lists of sizes, or text in newer versions."""

    def shape(text: str) -> list[int] | str:
        return text if newer else [int(size) for size in text.split(",") if size]

    inputs = zip(kernel.input_shapes.split(";"), kernel.input_types.split(";"), strict=False)
    outputs = zip(kernel.output_shapes.split(";"), kernel.output_types.split(";"), strict=False)
    prefix = ("Input_", "Output_") if newer else ("input_", "output_")
    return {
        f"{name}{number}": {"format": "DEFAULT", "data_type": kind, "shape": shape(sizes)}
        for name, tensors in zip(prefix, (inputs, outputs), strict=True)
        for number, (sizes, kind) in enumerate(tensors)
    }
