"""The raw files of MindSpore 0.x: hardware log, training trace and task names."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from simulator.model import WALL_START_NS, Kernel, RankRun, Run, Task
from simulator.writers.mindspore.text import STREAM_SHIFT, TextFiles, reduce_names, tick

JOB_TAG = 10010
FP_TAG, BP_TAG, FIRST_REDUCE_TAG, END_TAG = 1, 2, 3, 255
SLICE_BYTES = 1000
"""No multiple of the size of a record, so some lie in two slices."""
UNNAMED_TASK = 60_000
START, END, BLOCK_START = 0, 1, 2


def write_mindspore_raw(run: Run, directory: str | Path) -> list[Path]:
    """Write one `JOB*` directory per rank and return them."""
    jobs = []
    for rank in run.ranks:
        job = Path(directory) / f"JOB{rank.device:08d}"
        data = job / "data"
        data.mkdir(parents=True)
        _write_slices(
            data, f"hwts.log.data.45.dev.profiler_default_tag.{rank.device}", _log(run, rank)
        )
        trace = b"".join(_training(run, rank))
        _write_slices(data, f"training_trace.46.dev.profiler_default_tag.{rank.device}", trace)
        _write_names(run, rank, data)
        _write_clocks(run, rank, data)
        jobs.append(job)
    return jobs


def hardware_record(kind: int, tick_count: int, stream: int, task: int, count: int = 0) -> bytes:
    """One record of the hardware log; the rolling count is in the upper bits of the kind."""
    first = kind | (count & 15) << 4
    return struct.pack("<BBHHHQI44x", first, 0, 0x6BD3, 0, task, tick_count, stream)


def training_record(tag: int, stream: int, tick_count: int) -> bytes:
    """One record of the training trace."""
    return struct.pack("=QHHQ", tag, 7, stream, tick_count)


def numbered_kernels(run: Run, rank: RankRun) -> Iterator[tuple[int, Task, Kernel]]:
    """The tasks of the hardware log with their ids, which repeat every iteration."""
    ids: dict[str, int] = {}
    for task, kernel in TextFiles(run, rank, Path()).kernels(on_cpu=False):
        yield ids.setdefault(kernel.scope, len(ids) + 2), task, kernel


def _log(run: Run, rank: RankRun) -> bytes:
    """All tasks, and one without a name, one without an end, and one without a start."""
    marks = []
    for number, task, _ in numbered_kernels(run, rank):
        stream = task.stream + STREAM_SHIFT
        marks.append((tick(run, task.start_ns), 1, START, stream, number))
        marks.append((tick(run, task.start_ns), 2, BLOCK_START, stream, number))
        marks.append((tick(run, task.end_ns), 0, END, stream, number))
    first, last = min(marks)[0], max(marks)[0]
    marks += [(first - 9, 0, END, 2 + STREAM_SHIFT, 2), (last + 9, 1, START, 2 + STREAM_SHIFT, 2)]
    marks += [(first - 5, 1, START, 600, UNNAMED_TASK), (first - 3, 0, END, 600, UNNAMED_TASK)]
    return b"".join(
        hardware_record(kind, at, stream, task, count)
        for count, (at, _, kind, stream, task) in enumerate(sorted(marks))
    )


def _training(run: Run, rank: RankRun) -> Iterable[bytes]:
    for step in rank.steps:
        marks = [
            (tick(run, step.iterations[0].forward_start_ns), FP_TAG, 8),
            (tick(run, step.iterations[-1].backward_end_ns), BP_TAG, 8),
        ]
        for place, (name, one) in enumerate(reduce_names(step)):
            stream, tag = int(name.split("_")[1]), FIRST_REDUCE_TAG + 2 * place
            marks.append((tick(run, one.start_ns), tag, stream))
            marks.append((tick(run, one.end_ns), tag + 1, stream))
        yield training_record(JOB_TAG, 8, min(marks)[0])
        for at, tag, stream in sorted(marks):
            yield training_record(tag, stream, at)
        yield training_record(END_TAG, 8, tick(run, step.iterations[-1].end_ns))


def _write_slices(data: Path, name: str, content: bytes) -> None:
    for number, begin in enumerate(range(0, len(content), SLICE_BYTES)):
        path = data / f"{name}.slice_{number}"
        path.write_bytes(content[begin : begin + SLICE_BYTES])
        path.with_name(f"{path.name}.done").write_text("", encoding="utf-8")


def _write_names(run: Run, rank: RankRun, data: Path) -> None:
    names, types = {}, {}
    for number, task, kernel in numbered_kernels(run, rank):
        names[number] = f"{kernel.scope} {kernel.blocks} {number} {task.stream}\n"
        types[kernel.scope] = f"op_name:{kernel.scope} op_type:{kernel.op_type} input_id:0\n"
    for kind, lines in (("task", names.values()), ("graph", types.values())):
        path = data / f"Framework.host.vm.{kind}_desc_info.{rank.device}.slice_0"
        path.write_text("".join(lines), encoding="utf-8")


def _write_clocks(run: Run, rank: RankRun, data: Path) -> None:
    """What the clocks of the host and the counter of the device show when the run starts."""
    count = tick(run, rank.start_ns)
    host = [f"[Host]\nclock_realtime: {run.wall_ns(rank.start_ns)}"]
    host.append(f"clock_monotonic_raw: {run.monotonic_ns(rank.start_ns)}\n")
    device = f"[Dev]\nclock_realtime: {WALL_START_NS}\ncntvct: {count}\n"
    for name, text in (("host_start", "\n".join(host)), ("dev_start", device)):
        (data / f"{name}.log.{rank.device}").write_text(text, encoding="utf-8")
