"""The timelines of MindSpore 2.0 to 2.2: four JSON files for each graph iteration."""

from __future__ import annotations

from pathlib import Path

from simulator.model import COMMUNICATION_STREAM, Collective, Iteration, RankRun, Run, Task
from simulator.overlap import sweep
from simulator.writers.events import (
    Clock,
    Event,
    overlap_events,
    overlap_process,
    plane_arguments,
    process,
    slice_event,
    thread_order,
    write_json,
)
from simulator.writers.session import session_name, write_device_info
from simulator.writers.trace_json.step_trace import FIRST_MODEL_TID, float_step_trace

HARDWARE_PID = 3
"""The same for every device, so merging ranks by pid mixes them up."""
LAYERS = {"CANN": 2, "HCCL": 11, "Overlap Analysis": 12}
FIRST_PLANE_STREAM = 10
TWIN_NAMES = {
    "Memcpy": "MEMCPY_ASYNC",
    "Reduce_Inline": "REDUCE_ASYNC_V2",
    "Notify_Record": "NOTIFY_RECORD",
    "Notify_Wait": "NOTIFY_WAIT",
}


def write_mindspore_timeline(run: Run, directory: str | Path) -> list[Path]:
    """Write one `PROF_*` directory per rank and return them."""
    return [write_timeline_session(run, rank, Path(directory)) for rank in run.ranks]


def write_timeline_session(run: Run, rank: RankRun, directory: Path) -> Path:
    """Write the `PROF_*` directory of one rank."""
    session = directory / session_name(run, rank)
    write_device_info(run, rank, session)
    timeline = session / f"device_{rank.device}" / "timeline"
    for graph in run.graphs:
        iterations = [one for one in rank.iterations if one.graph == graph]
        step_trace = _step_trace_file(run, rank, graph, iterations)
        for one in iterations:
            hardware = _Hardware(run, rank, one)
            step_events = float_step_trace(rank, [one], HARDWARE_PID, hardware.clock)
            documents = {
                "msprof": hardware.msprof(step_events),
                "step_trace": step_trace,
                "hccl": [*hardware.hccl_metadata(), *_ordered(hardware.hccl_events())],
                "task_time": [*hardware.task_metadata(), *_ordered(hardware.task_events())],
            }
            for kind, events in documents.items():
                write_json(timeline / f"{kind}_{rank.device}_{graph}_{one.number}.json", events)
    return session


def _step_trace_file(
    run: Run, rank: RankRun, graph: int, iterations: list[Iteration]
) -> list[Event]:
    """Every file of a graph holds all its iterations, under the pid of the process."""
    pid = rank.os_pid
    return [
        process(pid, "Step Trace", "", 0)[0],
        *thread_order(pid, rank.os_pid, f"Model ID:{graph}", FIRST_MODEL_TID + graph),
        *float_step_trace(rank, iterations, pid, _float_clock(run)),
    ]


def _float_clock(run: Run) -> Clock:
    return lambda time_ns: run.monotonic_ns(time_ns) / 1000


def _ordered(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: float(event["ts"]))


class _Hardware:
    """The events of one iteration, as its msprof, hccl and task_time files show them."""

    def __init__(self, run: Run, rank: RankRun, iteration: Iteration) -> None:
        self._rank = rank
        self._iteration = iteration
        self.clock = _float_clock(run)
        self._ids = _graph_ids(iteration)

    def _pid(self, layer: str) -> int:
        return int(f"{self._rank.os_pid}{LAYERS[layer]:02d}")

    def msprof(self, step_events: list[Event]) -> list[Event]:
        rank, one = self._rank, self._iteration
        cann, overlap = self._pid("CANN"), self._pid("Overlap Analysis")
        model_name = f"Step Trace(Model ID:{one.graph})"
        model_thread = thread_order(
            HARDWARE_PID, rank.os_pid, model_name, FIRST_MODEL_TID + one.graph
        )
        hardware = process(HARDWARE_PID, "Ascend Hardware", "NPU", 3)
        threads = [(rank.main_thread, f"Thread {rank.main_thread}")]
        execution = slice_event(
            "GE@Infer",
            cann,
            rank.main_thread,
            self.clock(one.host_start_ns),
            (one.end_ns - one.host_start_ns) / 1000 + 40.0,
            {"Model Name": "", "Model Id": one.graph},
        )
        events = [
            execution,
            *step_events,
            *self.task_events(),
            *self.hccl_events(),
            *overlap_events(sweep([one]), overlap, self.clock),
        ]
        return [
            hardware[0],
            *model_thread,
            *hardware[1:],
            *process(cann, "CANN", "CPU", 2, threads),
            *self.task_metadata(),
            *self.hccl_metadata(),
            *overlap_process(overlap, "NPU", 12),
            *_ordered(events),
        ]

    def task_metadata(self) -> list[Event]:
        streams = sorted({stream for stream, _ in self._ids.values()})
        rows = [(stream, f"Stream {stream}") for stream in streams]
        return process(HARDWARE_PID, "Ascend Hardware", "NPU", 3, rows)

    def task_events(self) -> list[Event]:
        events = []
        for task in self._iteration.tasks:
            stream, task_id = self._ids[task]
            name, task_type = _hardware_name(task)
            busy_us = task.duration_ns * 9 // 10 / 1000
            on_core = task_type == "AI_CORE"
            args = {
                "Task Type": task_type,
                "Stream Id": stream,
                "Task Id": task_id,
                "Batch Id": 0,
                "Aicore Time(ms)": round(busy_us, 2) if on_core else "N/A",
                "Total Cycle": round(busy_us * 32_000) // 1000 if on_core else "N/A",
            }
            ts, duration_us = self.clock(task.start_ns), task.duration_ns / 1000
            events.append(slice_event(name, HARDWARE_PID, stream, ts, duration_us, args))
        return events

    def hccl_metadata(self) -> list[Event]:
        pid = self._pid("HCCL")
        transfers = [task.transfer for one in self._iteration.collectives for task in one.tasks]
        planes = sorted({transfer.plane for transfer in transfers if transfer is not None})
        named = process(pid, "HCCL", "NPU", 11, ((plane, f"Plane {plane}") for plane in planes))
        for event in named:
            if event["name"] == "thread_sort_index":
                event["args"]["sort_index"] += FIRST_MODEL_TID
        kernels = thread_order(pid, FIRST_MODEL_TID, "Communication Kernel", 0)
        return [*named[:-2], *kernels, *named[-2:]]

    def hccl_events(self) -> list[Event]:
        events = []
        for one in self._iteration.collectives:
            events.append(self._collective_event(one))
            events += [self._plane_event(task) for task in one.tasks]
        return events

    def _collective_event(self, one: Collective) -> Event:
        ts = self.clock(one.start_ns)
        name = f"{one.scope}_0"
        return slice_event(name, self._pid("HCCL"), FIRST_MODEL_TID, ts, one.duration_ns / 1000)

    def _plane_event(self, task: Task) -> Event:
        assert task.transfer is not None
        stream, task_id = self._ids[task]
        args = plane_arguments(task, {"stream id": stream, "task id": task_id}, int)
        if args["notify_id"] >= 1 << 63:  # a copy has none: the largest uint64 went through a float
            args["notify_id"] = float(args["notify_id"])
        ts, duration_us = self.clock(task.start_ns), task.duration_ns / 1000
        pid, plane = self._pid("HCCL"), task.transfer.plane
        return slice_event(task.kind, pid, plane, ts, duration_us, args)


def _hardware_name(task: Task) -> tuple[str, str]:
    if task.kernel:
        # This generation of devices has no vector cores: everything but AI CPU is AI_CORE.
        core = "AI_CPU" if task.kernel.core == "AI_CPU" else "AI_CORE"
        return task.kernel.scope, core
    if task.transfer:
        return TWIN_NAMES[task.kind], TWIN_NAMES[task.kind]
    return task.kind, task.kind


def _graph_ids(iteration: Iteration) -> dict[Task, tuple[int, int]]:
    """Stream and task id of each task as a sunk graph has them.

    A graph loaded once repeats its task ids every iteration. Without FFTS+ there are no context
    ids either, so each plane has a stream of its own.
    """
    last_ids: dict[int, int] = {}
    ids = {}
    for task in iteration.tasks:
        stream = task.stream
        if stream == COMMUNICATION_STREAM:
            stream = FIRST_PLANE_STREAM + (task.transfer.plane if task.transfer else 0)
        last_ids[stream] = last_ids.get(stream, 1) + 1
        ids[task] = (stream, last_ids[stream])
    return ids
