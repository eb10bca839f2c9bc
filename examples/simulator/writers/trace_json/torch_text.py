"""The text export of torch_npu: trace_view.json and its two tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from simulator.model import FrameworkCall, RankRun, Run, Step
from simulator.overlap import CATEGORIES, COMMUNICATION, COMPUTING, FREE, NOT_OVERLAPPED
from simulator.writers.events import Event, write_json, write_table
from simulator.writers.session import (
    worker_name,
    write_profiler_info,
    write_profiler_metadata,
)
from simulator.writers.trace_json.msprof import (
    CANN_8,
    PMU_COLUMNS,
    SHAPE_COLUMNS,
    Dialect,
    group_threads,
    msprof_events,
    msprof_metadata,
    operator_rows,
    wall_clock,
)

CANN_8_3 = replace(CANN_8, labels_device=True, host_device=31)
KERNEL_DETAILS = (
    "Step Id",
    "Model ID",
    "Task ID",
    "Stream ID",
    "Name",
    "Type",
    "OP State",
    "Accelerator Core",
    "Start Time(us)",
    "Duration(us)",
    "Wait Time(us)",
    "Block Dim",
    "Mix Block Dim",
    *SHAPE_COLUMNS,
    *PMU_COLUMNS,
)
STEP_TRACE_TIME = (
    "Step",
    "Computing",
    "Communication(Not Overlapped)",
    "Overlapped",
    "Communication",
    "Free",
    "Stage",
    "Bubble",
    "Communication(Not Overlapped and Exclude Receive)",
    "Preparing",
)


def write_torch_text(run: Run, directory: str | Path) -> list[Path]:
    """Write one `*_ascend_pt` directory per rank and return them."""
    workers = []
    for rank in run.ranks:
        worker = Path(directory) / worker_name(run, rank)
        output = worker / "ASCEND_PROFILER_OUTPUT"
        write_json(output / "trace_view.json", _trace_events(run, rank, CANN_8))
        rows = [[str(step_id), *cells] for step_id, cells in operator_rows(run, rank, CANN_8)]
        write_table(output / "kernel_details.csv", KERNEL_DETAILS, rows, "\r\n")
        overlap = [
            event for event in msprof_events(run, rank, CANN_8) if event["name"] in CATEGORIES
        ]
        steps = [_step_row(run, step, overlap) for step in rank.steps]
        write_table(output / "step_trace_time.csv", STEP_TRACE_TIME, steps, "\r\n")
        write_profiler_info(run, rank, worker, "text")
        write_profiler_metadata(run, rank, worker)
        workers.append(worker)
    return workers


def write_torch_text_of_one_process(run: Run, directory: str | Path) -> list[Path]:
    """Write the ranks of a run as the devices of one process, as torch_npu does since June 2025.

    Rows of tables and pids of rows name the device; calls on the host are all of one process, which
    marks no steps.
    """
    first = run.ranks[0]
    worker = Path(directory) / worker_name(run, first)
    output = worker / "ASCEND_PROFILER_OUTPUT"
    events = [
        _as_of_process(event, rank, first.os_pid)
        for rank in run.ranks
        for event in _trace_events(run, rank, CANN_8_3)
        if not event["name"].startswith("ProfilerStep")
    ]
    write_json(output / "trace_view.json", events)
    rows = [
        [str(step_id), str(rank.device), *cells]
        for rank in run.ranks
        for step_id, cells in operator_rows(run, rank, CANN_8_3)
    ]
    header = (KERNEL_DETAILS[0], "Device_id", *KERNEL_DETAILS[1:])
    write_table(output / "kernel_details.csv", header, rows, "\r\n")
    steps = [[rank.device, *_whole_row(run, rank)] for rank in run.ranks]
    write_table(output / "step_trace_time.csv", ("Device_id", *STEP_TRACE_TIME), steps, "\r\n")
    write_profiler_info(run, first, worker, "text")
    return [worker]


def _as_of_process(event: Event, rank: RankRun, process: int) -> Event:
    """The event of another process as one process of all devices writes it, ids kept apart."""
    pid = event["pid"]
    made = event | {"pid": process if pid == rank.os_pid else pid + ((process - rank.os_pid) << 10)}
    if isinstance(event.get("id"), str):
        made["id"] = f"{event['id']}{rank.rank}"
    args = dict(event.get("args", {}))
    if "connection_id" in args:
        args["connection_id"] += 1_000_000 * rank.rank
        made["args"] = args
    return made


def _trace_events(run: Run, rank: RankRun, dialect: Dialect) -> list[Event]:
    return [
        *_python_events(run, rank),
        *msprof_metadata(run, rank, dialect),
        *msprof_events(run, rank, dialect),
        *_launch_flows(run, rank, dialect),
    ]


def _whole_row(run: Run, rank: RankRun) -> list[object]:
    """Sum all overlap events, as torch_npu does where no step is marked."""
    sums = dict.fromkeys(CATEGORIES, 0.0)
    for event in msprof_events(run, rank, CANN_8_3):
        if event["name"] in CATEGORIES:
            sums[event["name"]] += float(event["dur"])
    exposed, communication = sums[NOT_OVERLAPPED], sums[COMMUNICATION]
    hidden = communication - exposed
    return ["", sums[COMPUTING], exposed, hidden, communication, sums[FREE], 0, 0, exposed, 0]


def _step_row(run: Run, step: Step, overlap: Sequence[Event]) -> list[object]:
    """Sum the overlap events that start within the step, in float microseconds as torch_npu does.

    The sums say the same as the records of the step; stage and preparing are quantised because
    a float cannot hold microseconds since 1970 any finer.
    """
    clock = wall_clock(run)
    begin_us = float(clock(step.device_start_ns))
    end_us = float(clock(step.device_end_ns))
    of_step = [event for event in overlap if begin_us <= float(event["ts"]) < end_us]
    # Added one by one: `sum` compensates rounding since Python 3.12.
    sums = dict.fromkeys(CATEGORIES, 0.0)
    for event in of_step:
        sums[event["name"]] += float(event["dur"])
    starts_us = [float(event["ts"]) for event in of_step]
    stage_us = max(float(event["ts"]) + float(event["dur"]) for event in of_step) - min(starts_us)
    busy_us = min(float(event["ts"]) for event in of_step if event["name"] != FREE)
    return [
        step.id,
        sums[COMPUTING],
        sums[NOT_OVERLAPPED],
        sums[COMMUNICATION] - sums[NOT_OVERLAPPED],
        sums[COMMUNICATION],
        sums[FREE],
        stage_us,
        0,
        sums[NOT_OVERLAPPED],
        busy_us - float(clock(step.host_start_ns)),
    ]


def _python_events(run: Run, rank: RankRun) -> Iterator[Event]:
    for call in rank.framework_calls:
        yield _call_event(run, rank, call)
        if call.category in ("enqueue", "dequeue"):
            yield _flow(
                run,
                "s" if call.category == "enqueue" else "f",
                "enqueue_to_dequeue",
                "async_task_queue",
                call.correlation_id or 0,
                (rank.os_pid, call.thread, call.start_ns),
            )
    pid = rank.os_pid
    yield _named("process_name", pid, 0, "name", "Python")
    yield _named("process_labels", pid, 0, "labels", "CPU")
    yield _named("process_sort_index", pid, 0, "sort_index", 0)
    for thread in rank.threads:
        yield _named("thread_name", pid, thread, "name", f"Thread {thread}")
        yield _named("thread_sort_index", pid, thread, "sort_index", thread)
    for call in rank.framework_calls:
        if call.sequence >= 0:
            place = (pid, call.thread, call.start_ns)
            end = "f" if call.forward_thread else "s"
            yield _flow(run, end, "fwdbwd", "fwdbwd", call.sequence, place)


def _call_event(run: Run, rank: RankRun, call: FrameworkCall) -> Event:
    args: dict[str, object]
    if call.category == "python_function":
        args = {"Python id": call.python_id, "Python parent id": call.parent_id}
        if call.module_id is not None:
            args["Python module id"] = call.module_id
    elif call.category in ("enqueue", "dequeue"):
        args = {"correlation_id": call.correlation_id}
    else:
        args = {"Sequence number": call.sequence, "Fwd thread id": call.forward_thread}
        if call.shapes:
            args |= {"Input Dims": call.shapes, "Input type": call.types}
        if call.call_stack:
            args["Call stack"] = ";\r\n".join(call.call_stack)
    return {
        "ph": "X",
        "name": call.name,
        "pid": rank.os_pid,
        "tid": call.thread,
        "ts": wall_clock(run)(call.start_ns),
        "dur": (call.end_ns - call.start_ns) / 1000,
        "cat": call.category,
        "args": args,
    }


def _launch_flows(run: Run, rank: RankRun, dialect: Dialect) -> Iterator[Event]:
    """Tie operators to what they launched; the id is the start on the device as an int of ns."""
    targets: dict[int, tuple[int, int, int]] = {}
    lanes = group_threads(run, rank)
    for iteration in rank.iterations:
        hardware = dialect.pid(rank, "Ascend Hardware")
        for task in iteration.local_tasks:
            targets.setdefault(task.connection_id, (hardware, task.stream, task.start_ns))
        for one in iteration.collectives:
            thread = lanes[one.group]
            place = (dialect.pid(rank, "Communication"), thread, one.start_ns)
            targets[one.connection_id] = place
    for call in rank.framework_calls:
        for connection_id in call.launches:
            if (target := targets.get(connection_id)) is None:  # its record is lost
                continue
            flow_id = run.wall_ns(target[2])
            source = (rank.os_pid, call.thread, call.start_ns)
            yield _flow(run, "s", "torch_to_npu", "async_npu", flow_id, source)
            yield _flow(run, "f", "torch_to_npu", "async_npu", flow_id, target)


def _flow(
    run: Run, end: str, name: str, category: str, flow_id: int, place: tuple[int, int, int]
) -> Event:
    pid, tid, time_ns = place
    return {
        "ph": end,
        "bp": "e",
        "name": name,
        "id": flow_id,
        "pid": pid,
        "tid": tid,
        "ts": wall_clock(run)(time_ns),
        "cat": category,
    }


def _named(name: str, pid: int, tid: int, key: str, value: object) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": {key: value}}
