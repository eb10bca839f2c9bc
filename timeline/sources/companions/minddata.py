"""Counters of the queues and processors that MindData sampled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.columns import Float64, Int64
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Omission, OmissionCode
from timeline.sources.common.decimals import whole_numbers
from timeline.sources.common.losses import LossLog, counted_losses
from timeline.sources.decoders.json_values import read_json
from timeline.sources.profiler_tables.data_preparation import SIZE_LINE, read_queue_lines

__all__ = ["AddSamples", "read_cpu_use", "read_queue_sizes", "read_queue_trace"]

AddSamples = Callable[[str, str, str, Int64, Float64], None]
"""Takes group, name, unit, times in ns and values."""
CPU_GROUP, QUEUE_GROUP = "MindData CPU", "MindData Queue"
_NS_IN_MS = 1_000_000
_FIELDS = 5
_NO_SAMPLE = "lines without a time or of no known kind"
_MOST_MS = 9 * 10**12
_OF_HOST = {
    "user_utilization": ("Host User", "%"),
    "sys_utilization": ("Host System", "%"),
    "io_utilization": ("Host I/O Wait", "%"),
    "idle_utilization": ("Host Idle", "%"),
    "context_switch_count": ("Context Switches", ""),
    "runnable_process": ("Runnable Processes", ""),
}
_OF_TASK = {"user_utilization": "User", "sys_utilization": "System"}
_TIMED = {b"0": "Pipeline Time", b"1": "Push Time", b"2": "Batch Time"}


def read_cpu_use(path: Path, rank: int, add: AddSamples) -> list[Omission]:
    """Read minddata_cpu_utilization_R.json: lists of samples beside one list of times (ms).

    A process or an operation has no first sample, because its use is that since the one before.

    Raises:
        SourceError: the file cannot be read.
    """
    document = read_json(path)
    time_ns = _times_ns(document)
    damage = LossLog(path)

    def draw(metrics: Any, key: str, name: str, unit: str) -> None:
        if isinstance(metrics, dict) and key in metrics:
            values = _values(metrics[key])
            missing = len(time_ns) - len(values)
            sample_ns = time_ns[missing:] if missing in (0, 1) else np.full(len(values), NO_TIME)
            _add_timed(add, damage, (CPU_GROUP, name, unit), sample_ns, values)

    for key, (name, unit) in _OF_HOST.items():
        draw(document.get("device_info"), key, name, unit)
    for key, label in _OF_TASK.items():
        draw(document.get("process_info"), key, f"Process {label}", "%")
    for op in _objects(document.get("op_info")):
        for key, label in _OF_TASK.items():
            draw(op.get("metrics"), key, f"Op {op.get('op_id')} {label}", "%")
    return list(damage.omissions(rank))


def read_queue_sizes(path: Path, times: Path | None, rank: int, add: AddSamples) -> list[Omission]:
    """Read pipeline_profiling_R.json: how full the output queue of each operation is.

    It has no times: the monitor that samples processors samples the queues in the same round, so
    the times are those of minddata_cpu_utilization_R.json, the first to the first. The files are
    saved one after the other, so one may have a sample more.

    Raises:
        SourceError: a file cannot be read.
    """
    document = read_json(path)
    time_ns = _times_ns(read_json(times)) if times else np.empty(0, np.int64)
    damage = LossLog(path)
    for op in _objects(document.get("op_info")):
        metrics = op.get("metrics")
        queue = metrics.get("output_queue") if isinstance(metrics, dict) else None
        if not isinstance(queue, dict):
            continue  # such an operation has no queue
        values = _values(queue.get("size"))
        sample_ns = np.full(len(values), NO_TIME)
        if abs(len(values) - len(time_ns)) <= 1:
            count = min(len(values), len(time_ns))
            sample_ns[:count] = time_ns[:count]
        name = f"{op.get('op_type', 'Op')} {op.get('op_id')}"
        _add_timed(add, damage, (QUEUE_GROUP, name, ""), sample_ns, values)
    return list(damage.omissions(rank))


def _add_timed(
    add: AddSamples, damage: LossLog, series: tuple[str, str, str], time_ns: Int64, values: Float64
) -> None:
    """Add the samples of a series that have a number and a time; the others are noted."""
    good = np.isfinite(values) & (time_ns != NO_TIME)
    if not good.all():
        where = f"sample {int(np.argmin(good))} of {series[1]}"
        damage.add("samples without a time or a number", where, int(np.count_nonzero(~good)))
    add(*series, time_ns[good], values[good])


def read_queue_trace(path: Path, rank: int, add: AddSamples) -> list[Omission]:
    """Read device_queue_profiling_R.txt or dataset_iterator_profiling_R.txt.

    One line is: kind, more, batch, value, time (ms). Kind 0 is how long (ms) a batch took, `more`
    tells for what; kind 1 is how full the queue was, `more` is its capacity. Older versions write
    no time.

    Raises:
        SourceError: the file cannot be read.
    """
    damage, untimed = LossLog(path), 0
    where = "Device Queue" if path.name.startswith("device_queue") else "Iterator Queue"
    for found in read_queue_lines(path, damage, _NO_SAMPLE):
        whole = found.take(found.count == _FIELDS)
        untimed += len(found) - len(whole)
        time_ms, timed = whole_numbers(whole.column(4), 0)
        values, valued = whole_numbers(whole.column(3), 0)
        good = timed & valued & (np.abs(time_ms) < _MOST_MS)
        damage.add_lines(_NO_SAMPLE, whole.lines[~good])
        is_size = whole.where(0, {SIZE_LINE})
        series = [(where, "", is_size)]
        series += [
            (f"{where} {name}", "ms", ~is_size & whole.where(1, {code}))
            for code, name in _TIMED.items()
        ]
        for name, unit, rows in series:
            kept = rows & good
            if kept.any():
                time_ns, numbers = time_ms[kept] * _NS_IN_MS, values[kept].astype(np.float64)
                add(QUEUE_GROUP, name, unit, time_ns, numbers)
    reason = f"lines of {path.name} without a time, as older versions write them"
    return [
        *damage.omissions(rank),
        *counted_losses({reason: untimed}, rank, OmissionCode.NO_TIME, loss=False),
    ]


def _times_ns(document: dict[str, Any]) -> Int64:
    """The times (ms) of samples; NO_TIME where one is no whole number."""
    stamps = document.get("time_stamp")
    times = stamps if isinstance(stamps, list) else []
    return np.array(
        [
            int(time) * _NS_IN_MS if _is_number(time) and 0 <= time < _MOST_MS else int(NO_TIME)
            for time in times
        ],
        np.int64,
    )


def _values(samples: Any) -> Float64:
    """Samples as floats, NaN where one is no number."""
    values = samples if isinstance(samples, list) else []
    return np.array([float(one) if _is_number(one) else np.nan for one in values], np.float64)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _objects(entries: Any) -> list[dict[str, Any]]:
    return [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
