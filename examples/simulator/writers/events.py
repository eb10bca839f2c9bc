"""Trace events, JSON documents and CSV tables, as all layouts spell them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from simulator.model import Task
from simulator.overlap import CATEGORIES, Segment

Event = dict[str, Any]
Clock = Callable[[int], float | str]
"""Writes a time of the run as the `ts` of one layout."""


def text_us(time_ns: int) -> str:
    """Microseconds with three decimals, or with none where nothing follows the point."""
    whole, rest = divmod(time_ns, 1000)
    return f"{whole}.{rest:03d}" if rest else str(whole)


def exact_us(time_ns: int) -> str:
    """Microseconds with three decimals, always."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def fine_us(duration_ns: int) -> float:
    """A duration with the fractions of a nanosecond that a frequency conversion leaves behind.

    They stay below half a nanosecond, so rounding gives back the duration.
    """
    fraction = duration_ns // 10 % 16
    return round(duration_ns / 1000 + fraction / 32_000, 8)


def process(
    pid: int, name: str, label: str, sort_index: int, threads: Iterable[tuple[int, str]] = ()
) -> list[Event]:
    """Name a process and its threads, in the order and with the key order profilers use."""
    events = [_metadata("process_name", pid, 0, {"name": name})]
    named = list(threads)
    events += [_metadata("thread_name", pid, tid, {"name": text}) for tid, text in named]
    events += [_metadata("thread_sort_index", pid, tid, {"sort_index": tid}) for tid, _ in named]
    events.append(_metadata("process_labels", pid, 0, {"labels": label}))
    events.append(_metadata("process_sort_index", pid, 0, {"sort_index": sort_index}))
    return events


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> Event:
    return {"name": name, "pid": pid, "tid": tid, "args": args, "ph": "M"}


def thread_order(pid: int, tid: int, name: str, sort_index: int) -> list[Event]:
    """Name one thread whose place among the others is not its id."""
    return [
        _metadata("thread_name", pid, tid, {"name": name}),
        _metadata("thread_sort_index", pid, tid, {"sort_index": sort_index}),
    ]


def slice_event(
    name: str, pid: int, tid: int, ts: float | str, dur: float, args: dict[str, Any] | None = None
) -> Event:
    event: Event = {"name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    if args is not None:
        event["args"] = args
    event["ph"] = "X"
    return event


def overlap_process(pid: int, label: str, sort_index: int) -> list[Event]:
    """Name the overlap process, whose threads profilers leave unsorted."""
    named = process(pid, "Overlap Analysis", label, sort_index, enumerate(CATEGORIES))
    return [event for event in named if event["name"] != "thread_sort_index"]


def overlap_events(segments: Iterable[Segment], pid: int, clock: Clock) -> list[Event]:
    return [
        slice_event(
            one.category,
            pid,
            CATEGORIES.index(one.category),
            clock(one.start_ns),
            one.duration_ns / 1000,
        )
        for one in segments
    ]


def plane_arguments(
    task: Task, ids: dict[str, Any], notify: type[str] | type[int]
) -> dict[str, Any]:
    """The arguments of a plane task; `ids` are the ones its hardware twin shares."""
    transfer = task.transfer
    assert transfer is not None
    bandwidth = transfer.size_bytes / task.duration_ns if task.duration_ns else 0.0
    return {
        "notify_id": notify(transfer.notify_id),
        "duration estimated(us)": transfer.estimate_us,
        **ids,
        "task type": transfer.kind,
        "src rank": transfer.source_rank,
        "dst rank": transfer.target_rank,
        "transport type": transfer.transport,
        "size(Byte)": transfer.size_bytes,
        "data type": transfer.data_type,
        "link type": transfer.link,
        "bandwidth(GB/s)": bandwidth,
    }


def write_table(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[object]], line_end: str
) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator=line_end)
        writer.writerow(header)
        writer.writerows(rows)


def write_json(path: Path, document: object, indent: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=indent), encoding="utf-8", newline="")
