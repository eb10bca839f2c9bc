"""The text export of MindSpore 2.5 and later: trace_view.json and its two tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

from simulator.model import FrameworkCall, RankRun, Run
from simulator.overlap import CATEGORIES, COMMUNICATION, COMPUTING, FREE, NOT_OVERLAPPED
from simulator.writers.events import Event, process, text_us, write_json, write_table
from simulator.writers.session import worker_name, write_profiler_metadata
from simulator.writers.trace_json import torch_text
from simulator.writers.trace_json.msprof import (
    CANN_8,
    group_threads,
    msprof_events,
    msprof_metadata,
    operator_rows,
    wall_clock,
)
from simulator.writers.trace_json.torch_text import STEP_TRACE_TIME

KERNEL_DETAILS = ("Step ID", *torch_text.KERNEL_DETAILS[1:])
"""Those of op_summary under the names of kernel_details, without the device."""
NAME, TASK, STREAM = (KERNEL_DETAILS.index(name) for name in ("Name", "Task ID", "Stream ID"))
MINDSPORE_PID = 1
BARE_ROWS = 5
"""The writer finds no launch for one of so many rows and writes the name of the kernel alone."""


def write_mindspore_export(
    run: Run, directory: str | Path, *, steps: bool = True, trace: bool = True
) -> list[Path]:
    """Write one `*_ascend_ms` directory per rank, as MindSpore 2.6 does, and return them.

    Without `steps` nobody called profiler.step(), so that there is one step, called 0. Without
    `trace` there are the tables alone.
    """
    workers = []
    for rank in run.ranks:
        name = worker_name(run, rank).replace("_ascend_pt", "_ascend_ms")
        worker, launches = Path(directory) / name, _launches(rank)
        output = worker / "ASCEND_PROFILER_OUTPUT"
        npu_events = msprof_events(run, rank, CANN_8)
        events = [
            *_framework_events(run, rank, launches, steps=steps),
            *msprof_metadata(run, rank, CANN_8),
            *npu_events,
            *_launch_flows(run, rank, launches),
        ]
        if trace:
            write_json(output / "trace_view.json", events)
        output.mkdir(parents=True, exist_ok=True)
        header, first = (KERNEL_DETAILS, 0) if steps else (KERNEL_DETAILS[1:], 1)
        rows = [row[first:] for row in _kernel_rows(run, rank, launches)]
        write_table(output / "kernel_details.csv", header, rows, "\r\n")
        overlap = [event for event in npu_events if event["name"] in CATEGORIES]
        sums = list(_step_rows(run, rank, overlap, steps=steps))
        write_table(output / "step_trace_time.csv", STEP_TRACE_TIME, sums, "\r\n")
        document = {
            "profiler_parameters": {"profiler_level": "Level1", "activities": ["CPU", "NPU"]},
            "ms_profiler_info": {},
            "ms_version": "2.6.0",
            "cann_version": "8.0",
            "jit_level": "O0",
        }
        write_json(worker / f"profiler_info_{rank.rank}.json", document, indent=4)
        write_profiler_metadata(run, rank, worker)
        workers.append(worker)
    return workers


def _launches(rank: RankRun) -> dict[int, tuple[str, FrameworkCall]]:
    """The event that launched each task or op, by connection: what MindSpore calls it, and when."""
    scopes: dict[int, str] = {}
    for iteration in rank.iterations:
        scopes |= {task.connection_id: kernel.scope for task, kernel in iteration.kernels}
        scopes |= {one.connection_id: one.scope for one in iteration.collectives}
    return {
        connection: (f"Kernel::KernelLaunch::{scopes[connection]}", call)
        for call in rank.framework_calls
        for connection in call.launches
        if connection in scopes
    }


def _kernel_rows(
    run: Run, rank: RankRun, launches: dict[int, tuple[str, FrameworkCall]]
) -> Iterator[list[str]]:
    """Rows of msprof, named by the launch and the kernel as far as the writer finds the launch."""
    connections: dict[int, int] = {}
    for iteration in rank.iterations:
        for task, _ in iteration.kernels:
            connections[run.wall_ns(task.start_ns)] = task.connection_id
        for one in iteration.collectives:
            connections[run.wall_ns(one.start_ns)] = one.connection_id
    for number, (step, cells) in enumerate(operator_rows(run, rank, CANN_8)):
        row = [str(step), *cells]
        start_ns = int(Decimal(row[KERNEL_DETAILS.index("Start Time(us)")].strip()) * 1000)
        launch = launches.get(connections[start_ns])
        if launch and (number + rank.rank) % BARE_ROWS:
            row[NAME] = f"{launch[0]}/{row[NAME]}"
        yield row


def _step_rows(
    run: Run, rank: RankRun, overlap: Sequence[Event], *, steps: bool
) -> Iterator[list[object]]:
    """Sum segments whole in the step in whose window on the host they start, and clip free time."""
    clock = wall_clock(run)
    windows = {
        step.id: (Decimal(clock(step.host_start_ns)), Decimal(clock(step.host_end_ns)))
        for step in rank.steps
    }
    if not steps:
        windows = {0: (Decimal(0), Decimal("Infinity"))}
    parts = [(one["name"], Decimal(one["ts"]), Decimal(str(one["dur"]))) for one in overlap]
    for step, (begin, end) in windows.items():
        sums = dict.fromkeys(CATEGORIES, Decimal("0.000"))
        for name, start, length in parts:
            if name == FREE:
                inside = min(start + length, end) - max(start, begin)
                sums[name] += max(inside, Decimal("0.000"))
            elif begin <= start <= end:
                sums[name] += length
        exposed, communication = sums[NOT_OVERLAPPED], sums[COMMUNICATION]
        row = [sums[COMPUTING], exposed, communication - exposed, communication, sums[FREE]]
        yield [step, *row, 0, 0, exposed, 0]


def _framework_events(
    run: Run,
    rank: RankRun,
    launches: dict[int, tuple[str, FrameworkCall]],
    *,
    steps: bool,
) -> Iterator[Event]:
    spans = [(name, one.thread, one.start_ns, one.end_ns) for name, one in launches.values()]
    if steps:
        spans += [
            (f"ProfilerStep#{step.id}", rank.main_thread, step.host_start_ns, step.host_end_ns)
            for step in rank.steps
        ]
    for name, thread, start_ns, end_ns in sorted(set(spans), key=lambda span: span[2:]):
        yield {
            "name": name,
            "pid": MINDSPORE_PID,
            "tid": thread,
            "ts": wall_clock(run)(start_ns),
            "dur": text_us(end_ns - start_ns),
            "ph": "X",
            "args": {"mindspore_op": name.rpartition("::")[2]},
        }
    threads = [(thread, f"Thread {thread}") for thread in rank.threads]
    yield from process(MINDSPORE_PID, "MindSpore", "CPU", 1, threads)


def _launch_flows(
    run: Run, rank: RankRun, launches: dict[int, tuple[str, FrameworkCall]]
) -> Iterator[Event]:
    """Tie launches to what they launched; the id is the start on the device as text."""
    clock, lanes = wall_clock(run), group_threads(run, rank)
    hardware, communication = (
        CANN_8.pid(rank, layer) for layer in ("Ascend Hardware", "Communication")
    )
    places = [
        (task.connection_id, hardware, task.stream, task.start_ns)
        for iteration in rank.iterations
        for task, _ in iteration.kernels
    ]
    places += [
        (one.connection_id, communication, lanes[one.group], one.start_ns)
        for iteration in rank.iterations
        for one in iteration.collectives
    ]
    for connection, pid, tid, start_ns in places:
        if connection not in launches:
            continue
        _, call = launches[connection]
        ends = [("s", MINDSPORE_PID, call.thread, call.start_ns), ("f", pid, tid, start_ns)]
        for end, of_pid, of_tid, time_ns in ends:
            yield {
                "ph": end,
                "bp": "e",
                "name": "mindspore_to_npu",
                "id": clock(start_ns),
                "pid": of_pid,
                "tid": of_tid,
                "ts": clock(time_ns),
                "cat": "async_npu",
            }
