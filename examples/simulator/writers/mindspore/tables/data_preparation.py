"""What MindData samples of the preparation of data: its queues, the pipeline, processors."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from simulator.model import MICROSECOND_NS, MILLISECOND_NS, RankRun, Run, Step
from simulator.recording import TICK_NS
from simulator.writers.mindspore.text import device_ns, tick

CAPACITY = 64
"""Of each queue, in batches."""
SAMPLE_MS = 10
SOURCE, MAP, ROOT, CONTROL = 3, 1, 0, 4
"""Operations of the pipeline; 2, between the source and the map, has no queue."""
_TABLE = (
    "op_id",
    "op_type",
    "num_workers",
    "output_queue_size",
    "output_queue_average_size",
    "output_queue_length",
    "output_queue_usage_rate",
    "sample_interval",
    "parent_id",
    "children_id",
)
USUAL_FETCH_NS = 1_150_000
"""How long a host waits for data that is there."""
TICKS_IN_MICROSECOND = MICROSECOND_NS // TICK_NS


def write_data_preparation(run: Run, rank: RankRun, profiler: Path) -> None:
    """Write all files of the topic; the table of the pipeline repeats its JSON, as MindSpore does.

    A batch that comes late finds all queues empty, since the map is the slowest operation.
    """
    late = [is_late(step) for step in rank.steps]
    _write_host_queue(run, rank, late, profiler)
    _write_device_queue(run, rank, late, profiler)
    _write_enqueued(run, rank, late, profiler)
    _write_pipeline(late, profiler, rank.rank)
    _write_processors(run, rank, late, profiler)


def fetch_ns(step: Step) -> int:
    """How long the host of a rank waits for the data of a step."""
    return sum(
        call.end_ns - call.start_ns for call in step.framework_calls if "DataLoader" in call.name
    )


def is_late(step: Step) -> bool:
    """Whether the data of a step is not there when it is asked for."""
    return fetch_ns(step) > 2 * USUAL_FETCH_NS


def _write_host_queue(run: Run, rank: RankRun, late: list[bool], profiler: Path) -> None:
    """Lines of batches, of which the time that one took as a whole comes before its parts."""
    lines = []
    for batch, (step, empty) in enumerate(zip(rank.steps, late, strict=True), 1):
        time_ms = device_ns(run, step.host_start_ns) // MILLISECOND_NS
        get_ms, push_ms = fetch_ns(step) // MILLISECOND_NS, 1
        for what, length_ms in ((1, push_ms), (2, get_ms + push_ms), (0, get_ms)):
            lines.append(f"0 {what} {batch} {length_ms} {time_ms}\n")
        lines.append(f"1 {CAPACITY} {batch} {0 if empty else CAPACITY - batch % 3} {time_ms}\n")
    path = profiler / f"device_queue_profiling_{rank.rank}.txt"
    path.write_text("".join(lines), encoding="utf-8")


def _write_device_queue(run: Run, rank: RankRun, late: list[bool], profiler: Path) -> None:
    lines = ["node_name start_time end_time queue_size\n"]
    for step, empty in zip(rank.steps, late, strict=True):
        start_us, end_us = (
            tick(run, time_ns) // TICKS_IN_MICROSECOND
            for time_ns in step.iterations[0].next_data_ns
        )
        lines.append(f"GetNext_dequeue_wait {start_us} {end_us} {0 if empty else 3}\n")
        lines.append(f"Default/Cast-op1 {end_us} {end_us + 2} 0\n")
    path = profiler / f"minddata_aicpu_{rank.rank}.txt"
    path.write_text("".join(lines), encoding="utf-8")


def _write_enqueued(run: Run, rank: RankRun, late: list[bool], profiler: Path) -> None:
    records = [
        f"[{tick(run, step.host_start_ns) // TICKS_IN_MICROSECOND}] Enqueue data to dp, "
        f"source:0d1e, index:{batch}, size:{0 if empty else 2}\0"
        for batch, (step, empty) in enumerate(zip(rank.steps, late, strict=True), 1)
    ]
    path = profiler / f"DATA_PREPROCESS.dev.TDT.{rank.rank}.slice_0"
    path.write_bytes("".join(records).encode())


def _write_pipeline(late: list[bool], profiler: Path, number: int) -> None:
    ends = [0 if empty else CAPACITY - 2 for empty in late]
    queues = {SOURCE: [CAPACITY - 1] * len(late), MAP: ends, ROOT: ends}
    kinds = {SOURCE: ("TFReaderOp", []), 2: ("RepeatOp", [SOURCE]), MAP: ("MapOp", [2])}
    kinds |= {ROOT: ("BatchOp", [MAP]), CONTROL: ("EpochCtrlOp", [ROOT])}
    operations = [
        {
            "op_id": op,
            "op_type": kind,
            "num_workers": 8 if op in queues else 1,
            "metrics": {"output_queue": {"size": queues[op], "length": CAPACITY}}
            if op in queues
            else None,
            "children": children or None,
        }
        for op, (kind, children) in kinds.items()
    ]
    document = {"sampling_interval": SAMPLE_MS, "op_info": operations}
    path = profiler / f"pipeline_profiling_{number}.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_TABLE)
    for op, parent, children in ((ROOT, "", [MAP]), (MAP, ROOT, [SOURCE]), (SOURCE, MAP, "")):
        mean = sum(queues[op]) / len(late)
        cells = [op, kinds[op][0], 8, queues[op], mean, CAPACITY, mean / CAPACITY, SAMPLE_MS]
        writer.writerow([*cells, parent, children])
    path = profiler / f"minddata_pipeline_raw_{number}.csv"
    path.write_text(text.getvalue(), encoding="utf-8")


def _write_processors(run: Run, rank: RankRun, late: list[bool], profiler: Path) -> None:
    """Samples of a host that is busier where data is late; a process has none at first."""
    first_ms = device_ns(run, rank.steps[0].host_start_ns) // MILLISECOND_NS
    count, idle = len(late), [9 if empty else 70 for empty in late]
    document = {
        "sampling_interval": SAMPLE_MS,
        "cpu_processor_num": 192,
        "time_stamp": [first_ms + SAMPLE_MS * place for place in range(count)],
        "device_info": {
            "user_utilization": [90 - one for one in idle],
            "sys_utilization": [6] * count,
            "io_utilization": [4] * count,
            "idle_utilization": idle,
            "runable_processes": [3] * count,
            "context_switch_count": [900] * count,
        },
        "process_info": {"user_utilization": [40] * (count - 1), "sys_utilization": [5] * count},
        "op_info": [
            {"op_id": -1, "metrics": {"user_utilization": [1] * count}},
            {
                "op_id": MAP,
                "metrics": {"user_utilization": [30] * count, "sys_utilization": [2] * count},
            },
        ],
    }
    path = profiler / f"minddata_cpu_utilization_{rank.rank}.json"
    path.write_text(json.dumps(document), encoding="utf-8")
