"""What MindSpore 2 leaves of its host: operators, stages, memory and MindData."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simulator.model import MICROSECOND_NS, MILLISECOND_NS, RankRun, Run
from simulator.writers.events import write_json, write_table

HOST_INFO = (
    "tid",
    "pid",
    "parent_pid",
    "module_name",
    "event",
    "stage",
    "level",
    "start_end",
    "custom_info",
    "memory_usage(kB)",
    "time_stamp(us)",
)
THREAD = 281_473_123_456_784
"""A pthread id, as std::thread writes it."""
QUEUE_CAPACITY = 64


@dataclass(frozen=True)
class HostSpan:
    """One operator or stage: times in ns of the run."""

    name: str
    module: str
    thread: int
    start_ns: int
    end_ns: int


def cpu_operators(rank: RankRun) -> list[HostSpan]:
    """Two operators a step that the host ran, on two threads."""
    return [
        HostSpan(name, "HostCpuOps", thread, start_ns, start_ns + length_ns)
        for step in rank.steps
        for name, thread, start_ns, length_ns in (
            ("Default/EmbeddingLookup-op7", 0, step.host_start_ns + 1_003, 12_500),
            ("Default/Cast-op9", 1, step.host_start_ns + 14_017, 2_250),
        )
    ]


def host_stages(run: Run, rank: RankRun) -> list[HostSpan]:
    """A stage of each step with one inside, and a moment; the wall clock shows whole us."""

    def whole(time_ns: int) -> int:
        return time_ns - run.wall_ns(time_ns) % MICROSECOND_NS

    found = []
    for step in rank.steps:
        start_ns, end_ns = whole(step.host_start_ns), whole(step.host_end_ns)
        inside_ns = start_ns + 5 * MICROSECOND_NS
        found += [
            HostSpan("RunGraph::launch", "GraphExecutor", THREAD, start_ns, end_ns),
            HostSpan("RunGraph::launch", "GraphExecutor", THREAD, inside_ns, inside_ns + 3_000),
            HostSpan("Batch", "Dataset", THREAD + 1, inside_ns, inside_ns),
        ]
    return found


def resident_bytes(step: int) -> int:
    """The memory of the process while a step runs."""
    return (2_000_000 + 64 * step) * 1024


def sample_times_ms(run: Run, rank: RankRun) -> list[int]:
    """When the monitor of MindData sampled, by the steady clock in ms."""
    first = run.monotonic_ns(rank.start_ns) // MILLISECOND_NS + 1
    return [first + 2 * place for place in range(5)]


def write_mindspore_host(run: Run, rank: RankRun, directory: Path) -> None:
    """Write all files of a rank into the directory of a profiler."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_cpu_operators(run, rank, directory)
    _write_host_info(run, rank, directory / "host_info")
    _write_minddata(run, rank, directory)


def _write_cpu_operators(run: Run, rank: RankRun, directory: Path) -> None:
    """One line per operator, its runs divided by blanks."""
    by_name: dict[str, list[str]] = {}
    for one in cpu_operators(rank):
        length_ms = (one.end_ns - one.start_ns) / MILLISECOND_NS
        run_text = f"{run.monotonic_ns(one.start_ns)},{length_ms},{one.thread}"
        by_name.setdefault(one.name, []).append(run_text)
    lines = [f"{name};HostCpuOps;{' '.join(runs)} \n" for name, runs in by_name.items()]
    path = directory / f"cpu_op_execute_timestamp_{rank.rank}.txt"
    path.write_text("".join(lines), encoding="utf-8")


def _write_host_info(run: Run, rank: RankRun, directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    rows = sorted(_stage_rows(run, rank), key=lambda row: int(str(row[-1])))
    write_table(directory / f"host_info_{rank.rank}.csv", HOST_INFO, rows, "\n")
    header = ("Operation", "Stage", "Occurrences", "Avg. time (us)", "Custom Info")
    rows = [("Batch", "", len(rank.steps), 0, "")]
    write_table(directory / f"dataset_{rank.rank}.csv", header, rows, "\n")


def _stage_rows(run: Run, rank: RankRun) -> Iterator[tuple[object, ...]]:
    stages = host_stages(run, rank)
    for place, one in enumerate(stages):
        event, _, stage = one.name.partition("::")
        head = (one.thread, rank.os_pid, 1, one.module, event, stage, 0)
        info = "{{a:1},{b:2}}"
        start_us, end_us = (run.wall_ns(at) // 1000 for at in (one.start_ns, one.end_ns))
        if one.start_ns == one.end_ns:
            yield (*head, 2, info, 0, start_us)
        else:
            memory = resident_bytes(place // 3) // 1024 if place % 3 == 0 else 0
            yield (*head, 0, info, memory, start_us)
            yield (*head, 1, "", 0, end_us)


def write_host_timeline(run: Run, rank: RankRun, directory: Path) -> None:
    """Write the trace and the table of memory that MindSpore makes of host_info."""
    events = []
    for one in host_stages(run, rank):
        event: dict[str, object] = {
            "name": one.name,
            "cat": one.module,
            "pid": str(rank.os_pid),
            "tid": str(one.thread),
            "ts": run.wall_ns(one.start_ns) // 1000,
            "args": {"parent_pid": "1"},
        }
        if one.start_ns == one.end_ns:
            event |= {"ph": "i"}
        else:
            event |= {"ph": "X", "dur": (one.end_ns - one.start_ns) // 1000}
        events.append(event)
    write_json(directory / f"timeline_{rank.rank}.json", events)
    rows = [row for row in _stage_rows(run, rank) if row[-2]]
    write_table(directory / f"host_memory_{rank.rank}.csv", HOST_INFO, rows, "\n")


def _write_minddata(run: Run, rank: RankRun, directory: Path) -> None:
    times_ms = sample_times_ms(run, rank)
    count = len(times_ms)
    queue = {"size": list(range(count)), "length": QUEUE_CAPACITY}
    documents = {
        "minddata_cpu_utilization": {
            "cpu_processor_num": 192,
            "device_info": {
                "user_utilization": [10 + place for place in range(count)],
                "runnable_process": [3] * count,
            },
            "process_info": {"user_utilization": [150 + place for place in range(1, count)]},
            "op_info": [{"op_id": 1, "metrics": {"sys_utilization": [7] * count}}],
            "sampling_interval": 2,
            "time_stamp": times_ms,
        },
        "pipeline_profiling": {
            "op_info": [
                {"op_id": 0, "op_type": "DeviceQueue", "metrics": None},
                {"op_id": 1, "op_type": "Batch", "metrics": {"output_queue": queue}},
            ]
        },
    }
    for name, document in documents.items():
        path = directory / f"{name}_{rank.rank}.json"
        path.write_text(json.dumps(document), encoding="utf-8")
    lines = []
    for batch, time_ms in enumerate(times_ms, 1):
        for extra, length_ms in ((1, 2), (2, 9), (0, 7)):
            lines.append(f"0 {extra} {batch} {length_ms} {time_ms}\n")
        lines.append(f"1 {QUEUE_CAPACITY} {batch} {batch + 20} {time_ms}\n")
    path = directory / f"device_queue_profiling_{rank.rank}.txt"
    path.write_text("".join(lines), encoding="utf-8")
