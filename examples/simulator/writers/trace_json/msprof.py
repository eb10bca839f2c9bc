"""The trace events and operator rows of msprof for one rank, in either of two dialects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from simulator.model import MIB, NO_ID, CannCall, Collective, Iteration, Kernel, RankRun, Run, Task
from simulator.overlap import sweep
from simulator.writers.events import (
    Event,
    exact_us,
    fine_us,
    overlap_events,
    overlap_process,
    plane_arguments,
    process,
    slice_event,
    text_us,
)

HOST_LEVELS = {"acl": "AscendCL", "node": "Node", "hccl": "Hccl"}
TWIN_NAMES = {
    "Memcpy": "SDMA",
    "Reduce_Inline": "SDMA",
    "Notify_Record": "Write Value",
    "Notify_Wait": "Notify Wait",
}
DEVICE_TYPES = {
    "AI_VECTOR_CORE": "AI_CORE",
    "MEMCPY_ASYNC": "PCIE_DMA_SQE",
    "EVENT_RECORD": "EVENT_RECORD_SQE",
    "EVENT_WAIT": "EVENT_WAIT_SQE",
    "PROFILING_ENABLE": "PLACE_HOLDER_SQE",
    "PROFILING_DISABLE": "PLACE_HOLDER_SQE",
}
RUNTIME_TYPES = {
    "AI_CORE": "KERNEL_AICORE",
    "AI_VECTOR_CORE": "KERNEL_AIVEC",
    "MIX_AIV": "KERNEL_MIX_AIV",
    "AI_CPU": "KERNEL_AICPU",
    "PROFILING_ENABLE": "TASK_TIMEOUT_SET",
    "PROFILING_DISABLE": "KERNEL_AICPU",
}
"""What CANN 9 calls tasks. The switches stand for tasks of the runtime that AI CPUs run, too."""
PMU_COLUMNS = ("aicore_time(us)", "aic_total_cycles", "aiv_time(us)", "aiv_total_cycles")
SHAPE_COLUMNS = (
    "HF32 Eligible",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
    "Context ID",
)


@dataclass(frozen=True)
class Dialect:
    """What differs between releases of CANN, and between single operators and graphs."""

    communication: str
    communication_core: str
    labels_device: bool
    host_device: int | None
    graph_mode: bool
    layers: dict[str, int] = field(hash=False)
    types: str = "queue"
    """How tasks are called: by the "queue" they are in, by the "runtime", or kernels as "Other"."""

    def pid(self, rank: RankRun, layer: str) -> int:
        device = rank.device
        if layer in ("CANN", "Framework") and self.host_device is not None:
            device = self.host_device
        return (rank.os_pid << 10 | self.layers[layer] << 5 | device) & NO_ID

    def label(self, rank: RankRun) -> str:
        return f"NPU {rank.device}" if self.labels_device else "NPU"

    def model(self, iteration: Iteration) -> int:
        return iteration.graph if self.graph_mode else NO_ID

    def kernel_name(self, kernel: Kernel) -> str:
        return kernel.scope if self.graph_mode else kernel.name


CANN_8 = Dialect(
    communication="HCCL",
    communication_core="HCCL",
    labels_device=False,
    host_device=None,
    graph_mode=False,
    layers={
        "CANN": 7,
        "Ascend Hardware": 13,
        "AI Core Freq": 14,
        "Communication": 15,
        "HBM": 17,
        "LLC": 18,
        "NPU MEM": 19,
        "Overlap Analysis": 23,
    },
)
CANN_8_3_GRAPH = Dialect(
    communication="Communication",
    communication_core="COMMUNICATION",
    labels_device=True,
    host_device=31,
    graph_mode=True,
    layers={
        "Framework": 4,
        "CANN": 8,
        "Ascend Hardware": 14,
        "AI Core Freq": 15,
        "Communication": 16,
        "HBM": 18,
        "LLC": 19,
        "NPU MEM": 20,
        "Overlap Analysis": 24,
    },
)


CANN_9 = replace(CANN_8_3_GRAPH, types="runtime")
UNKNOWN_TYPES = replace(CANN_8_3_GRAPH, types="Other")


def msprof_metadata(run: Run, rank: RankRun, dialect: Dialect) -> list[Event]:
    """Name every process and thread of `msprof_events`."""
    label = dialect.label(rank)
    streams = {task.stream for iteration in rank.iterations for task in iteration.tasks}
    streams |= {task.stream for task in rank.switches}
    rows = {
        "Ascend Hardware": [(stream, f"Stream {stream}") for stream in sorted(streams)],
        "Communication": [
            row
            for number, thread in enumerate(group_threads(run, rank).values())
            for row in (
                (thread, f"Group {number} Communication"),
                *((thread + plane + 1, f"Plane {plane}") for plane in range(run.planes)),
            )
        ],
    }
    events: list[Event] = []
    for layer, sort_index in dialect.layers.items():
        if layer in ("Framework", "CANN", "Overlap Analysis"):
            continue
        name = dialect.communication if layer == "Communication" else layer
        pid = dialect.pid(rank, layer)
        events += process(pid, name, label, sort_index, rows.get(layer, ()))
    threads = [(thread, f"Thread {thread}") for thread in rank.threads]
    events += process(dialect.pid(rank, "CANN"), "CANN", "CPU", dialect.layers["CANN"], threads)
    overlap = "Overlap Analysis"
    return events + overlap_process(dialect.pid(rank, overlap), label, dialect.layers[overlap])


def group_threads(run: Run, rank: RankRun) -> dict[str, int]:
    """The thread of each group, before those of its planes; groups count as they come."""
    found: dict[str, int] = {}
    for iteration in rank.iterations:
        for one in iteration.collectives:
            found.setdefault(one.group, (run.planes + 1) * len(found))
    return found


def msprof_events(run: Run, rank: RankRun, dialect: Dialect) -> list[Event]:
    """All events of one rank in order of time."""
    clock = wall_clock(run)
    overlap_pid = dialect.pid(rank, "Overlap Analysis")
    events = [
        *_hardware_events(run, rank, dialect),
        *_communication_events(run, rank, dialect),
        *_cann_events(run, rank, dialect),
        *_counter_events(run, rank, dialect),
        *overlap_events(sweep(rank.iterations), overlap_pid, clock),
    ]
    return sorted(events, key=lambda event: event["ts"])


def kernel_flow_id(connection_id: int) -> str:
    """Kernels get ids beyond 64 bits, which is why readers must treat them as text."""
    return str((142_000 + connection_id << 48) + NO_ID)


def collective_flow_id(collective: Collective) -> str:
    """Built on the connection of the acl call, one below that of the operator itself."""
    return str((collective.connection_id - 1 << 32) + NO_ID)


def operator_rows(run: Run, rank: RankRun, dialect: Dialect) -> list[tuple[int, list[str]]]:
    """One row per kernel and collective with its step, from "Model ID" to the last PMU column."""
    found: list[tuple[int, int, int, list[str], list[str]]] = []
    for step in rank.steps:
        for iteration in step.iterations:
            model = str(dialect.model(iteration))
            for task, kernel in iteration.kernels:
                head, tail = _kernel_cells(task, kernel, model, dialect)
                found.append((task.start_ns, task.end_ns, step.id, head, tail))
            for one in iteration.collectives:
                head = [model, "N/A", "N/A", one.name, one.op_type, "N/A"]
                head.append(dialect.communication_core)
                tail = ["0", *["N/A"] * (1 + len(SHAPE_COLUMNS) + len(PMU_COLUMNS))]
                found.append((one.start_ns, one.end_ns, step.id, head, tail))
    found.sort(key=lambda row: row[0])
    rows = []
    previous_ns = found[0][0]
    for start_ns, end_ns, step_id, head, tail in found:
        wait_ns = max(0, start_ns - previous_ns)
        start = exact_us(run.wall_ns(start_ns)) + "\t"
        times = [start, exact_us(end_ns - start_ns), exact_us(wait_ns)]
        rows.append((step_id, [*head, *times, *tail]))
        previous_ns = end_ns
    return rows


def wall_clock(run: Run) -> Callable[[int], str]:
    """Write times of the run as text of Unix microseconds."""
    return lambda time_ns: text_us(run.wall_ns(time_ns))


def _kernel_cells(
    task: Task, kernel: Kernel, model: str, dialect: Dialect
) -> tuple[list[str], list[str]]:
    head = [model, str(task.task_id), str(task.stream), dialect.kernel_name(kernel)]
    head += [kernel.op_type, "dynamic", kernel.core]
    shapes = [
        f'"{kernel.input_shapes}"',
        kernel.input_types,
        kernel.input_formats,
        f'"{kernel.output_shapes}"',
        kernel.output_types,
        kernel.output_formats,
    ]
    eligible = "YES" if kernel.core == "AI_CORE" else "NO"
    context = "N/A" if task.context_id == NO_ID else str(task.context_id)
    busy = [exact_us(task.duration_ns * 9 // 10), str(task.duration_ns * 9 // 10 * 18 // 10)]
    idle = ["0.0", "0"]
    pmu = [*busy, *idle] if kernel.core == "AI_CORE" else [*idle, *busy]
    if kernel.core == "AI_CPU":
        pmu = ["N/A"] * len(PMU_COLUMNS)
    return head, [str(kernel.blocks), "0", eligible, *shapes, context, *pmu]


def _hardware_events(run: Run, rank: RankRun, dialect: Dialect) -> Iterator[Event]:
    pid, clock = dialect.pid(rank, "Ascend Hardware"), wall_clock(run)
    placed = [(task, NO_ID) for task in rank.switches]
    for iteration in rank.iterations:
        placed += [(task, dialect.model(iteration)) for task in iteration.tasks]
    for task, model in placed:
        name, task_type = hardware_name(task, dialect)
        args = {
            "Model Id": model,
            "Task Type": task_type,
            "Physic Stream Id": task.stream,
            "Task Id": task.task_id,
            "Batch Id": 0,
            "Subtask Id": task.context_id,
            "connection_id": task.connection_id,
        }
        if task.kind == "MEMCPY_ASYNC" and dialect.graph_mode:
            args["size(B)"] = task.duration_ns * 24
            args |= {"bandwidth(GB/s)": 24.0, "operation": "host to device"}
        ts = clock(task.start_ns)
        yield slice_event(name, pid, task.stream, ts, fine_us(task.duration_ns), args)
        if task.kernel:
            yield _flow_end(kernel_flow_id(task.connection_id), pid, task.stream, ts)
        elif task.kind == "MEMCPY_ASYNC":
            yield _flow_end(str(task.connection_id), pid, task.stream, ts)


def hardware_name(task: Task, dialect: Dialect) -> tuple[str, str]:
    if task.kernel:
        core = task.kernel.core
        kinds = {"queue": DEVICE_TYPES, "runtime": RUNTIME_TYPES, "Other": {core: "Other"}}
        return dialect.kernel_name(task.kernel), kinds[dialect.types].get(core, core)
    if task.transfer:
        return TWIN_NAMES[task.kind], TWIN_NAMES[task.kind]
    if dialect.types == "runtime":
        kind = RUNTIME_TYPES.get(task.kind, task.kind)
        return kind, kind
    return task.kind, DEVICE_TYPES[task.kind]


def _communication_events(run: Run, rank: RankRun, dialect: Dialect) -> Iterator[Event]:
    pid, clock = dialect.pid(rank, "Communication"), wall_clock(run)
    threads = group_threads(run, rank)
    for iteration in rank.iterations:
        model = dialect.model(iteration)
        for one in iteration.collectives:
            args = {
                "connection_id": one.connection_id,
                "model id": model,
                "data_type": one.data_type,
                "alg_type": one.algorithm,
                "count": one.count,
            }
            ts = clock(one.start_ns)
            duration_us = fine_us(one.duration_ns)
            thread = threads[one.group]
            yield slice_event(one.name, pid, thread, ts, duration_us, args)
            yield _flow_end(collective_flow_id(one), pid, thread, ts)
            for task in one.tasks:
                yield _plane_event(task, (pid, thread), clock(task.start_ns), model)


def _plane_event(task: Task, group: tuple[int, int], ts: str, model: int) -> Event:
    assert task.transfer is not None
    ids = {"stream id": task.stream, "task id": task.task_id, "context id": task.context_id}
    args = plane_arguments(task, ids, str) | {"model id": model}
    duration_us = fine_us(task.duration_ns)
    pid, thread = group
    return slice_event(task.kind, pid, thread + task.transfer.plane + 1, ts, duration_us, args)


def _cann_events(run: Run, rank: RankRun, dialect: Dialect) -> Iterator[Event]:
    pid, clock = dialect.pid(rank, "CANN"), wall_clock(run)
    kernels = {
        task.connection_id: dialect.kernel_name(kernel)
        for iteration in rank.iterations
        for task, kernel in iteration.kernels
    }
    for call in rank.cann_calls:
        item = kernels.get(call.connection_id, call.item)
        args = {
            "Thread Id": call.thread,
            "Mode": call.mode,
            "level": call.level,
            "id": call.name if call.level == "acl" else "0",
            "item_id": item,
            "connection_id": call.connection_id,
        }
        name = f"{HOST_LEVELS[call.level]}@{call.name}"
        duration_us = (call.end_ns - call.start_ns) / 1000
        yield slice_event(name, pid, call.thread, clock(call.start_ns), duration_us, args)
        flow = _launch_flow(call, call.connection_id in kernels)
        if flow:
            flow_id, start_ns = flow
            yield {
                "name": f"HostToDevice{flow_id}",
                "ph": "s",
                "cat": "HostToDevice",
                "id": flow_id,
                "pid": pid,
                "tid": call.thread,
                "ts": clock(start_ns),
            }


def _launch_flow(call: CannCall, launches_kernel: bool) -> tuple[str, int] | None:
    """The flow that leaves a call: kernels leave from inside it, everything else at its start."""
    if launches_kernel:
        middle_ns = call.start_ns + (call.end_ns - call.start_ns) // 20 * 10
        return kernel_flow_id(call.connection_id), middle_ns
    if call.name == "aclrtMemcpyAsync":
        return str(call.connection_id), call.start_ns
    if call.mode == "HOST_HCCL":
        return str((call.connection_id << 32) + NO_ID), call.start_ns
    return None


def _flow_end(flow_id: str, pid: int, tid: int, ts: str) -> Event:
    return {
        "name": f"HostToDevice{flow_id}",
        "ph": "f",
        "id": flow_id,
        "ts": ts,
        "cat": "HostToDevice",
        "pid": pid,
        "tid": tid,
        "bp": "e",
    }


def _counter_events(run: Run, rank: RankRun, dialect: Dialect) -> Iterator[Event]:
    clock = wall_clock(run)
    for counter in rank.counters:
        pid = dialect.pid(rank, counter.family)
        for time_ns, value in counter.samples:
            ts = clock(time_ns)
            for name, args in _readings(counter.family, counter.series, counter.unit, value):
                yield {"name": name, "ts": ts, "pid": pid, "tid": 0, "args": args, "ph": "C"}


def _readings(
    family: str, series: str, unit: int, value: int
) -> Iterator[tuple[str, dict[str, float]]]:
    if family == "HBM":
        yield f"HBM {unit}/{series}", {f"{series}(MB/s)": value / MIB}
    elif family == "LLC":
        # The hit rate is a fraction in spite of its name; the databases hold the percentage.
        rate = series == "Hit Rate"
        reading = {"Hit Rate(%)": value / 100_000} if rate else {"Throughput(MB/s)": value / MIB}
        yield f"LLC {unit} Read/{series}", reading
    elif family == "NPU MEM":
        for memory, kilobytes in (("DDR", 0.0), ("HBM", value / 1024), ("Memory", value / 1024)):
            yield f"{series}/{memory}", {"KB": kilobytes}
    else:
        yield family, {"MHz": value}
