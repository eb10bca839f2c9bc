"""Ranks within one PyTorch trace: processes of a merged trace, or devices of one process."""

from __future__ import annotations

import math
import re
from collections import Counter as Multiset
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.distinct import distinct_pairs, rows_by_value
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID
from timeline.sources.capture import Part
from timeline.sources.common.identity import is_rank
from timeline.sources.decoders.event_columns import COMPLETE, EventColumns, EventRows
from timeline.sources.decoders.exported_values import text
from timeline.sources.decoders.json_events import EventBatch
from timeline.sources.kineto.header import read_header
from timeline.sources.kineto.tables import KinetoTable, device_ids, find_tables, kineto_format
from timeline.sources.source import ReadRequest

_FORMAT = kineto_format(ReadRequest(frozenset(), every_arg=False))
_BRACKETED = re.compile(r"\[([^\]]+)\]\s*(.*)")
"""Pid that SGLang's trace merger writes for processes of a rank: [TP00-DP01] 1234."""
_RANK = re.compile(r"(?i)(?<![a-z])rank[ _-]?(\d{1,9})(?!\d)")
_AXIS = re.compile(r"([A-Za-z]+)[-_]?(\d{1,9})")
_AXES = ("DP", "PP", "TP")
"""Axes of parallelism, from the one whose ranks are furthest apart to that of neighbours."""
_LEAST_SHARE = 0.1
"""Least kernels of a device, as a share of those of the busiest, to count as a rank."""
_LEAST_STEP = 1_000
"""Least step of pids in a merged trace, where each pid is increased by rank * step."""


@dataclass
class _Process:
    """Facts about a process of a trace from its events.

    place: its index in order of appearance. ranks: ranks among args of its events. spans: whether
    it has any interval; launches: whether it has runtime calls. kernels: number of kernels by
    device.
    """

    pid: object
    place: int
    names: list[str] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    spans: bool = False
    launches: bool = False
    kernels: Multiset[int] = field(default_factory=Multiset)


class _Processes(dict[object, _Process]):
    """Processes by pid, created on first access."""

    def __missing__(self, pid: object) -> _Process:
        process = self[pid] = _Process(pid, len(self))
        return process


_KeyOf = Callable[[_Process], Any]
"""Returns a key shared by processes of one rank (a rank or a label), None if there is none."""


def find_parts(path: Path) -> list[tuple[Part, int | None]]:
    """Return the parts of a trace that are separate ranks, and their ranks; none if all is one.

    The rank of a part that is a device of one process is None, as it counts from the rank of the
    process. In a distributed run, a device that runs only a few kernels belongs to another process.

    Raises:
        SourceError: the file cannot be read.
    """
    processes = _read_processes(path)
    working = [process for process in processes if process.launches or process.kernels]
    by_offset = _key_by_offset(_find_pid_step(working))
    for key_of in (_key_by_arg, _key_by_pid, _key_by_name, by_offset):
        keys = {key_of(process) for process in working}
        if None not in keys and len(keys) > 1:
            return _split_merged(processes, key_of)
    kernels = sum((process.kernels for process in working), start=Multiset[int]())
    devices, world = sorted(kernels), read_header(path).world
    if len(devices) < 2 or sum(process.launches for process in working) > 1:
        return []
    has_other_processes = world not in (None, 1, len(devices))
    if has_other_processes and min(kernels.values()) < _LEAST_SHARE * max(kernels.values()):
        return []
    return [(Part.of_device(device), None) for device in devices]


def _split_merged(processes: Sequence[_Process], key_of: _KeyOf) -> list[tuple[Part, int | None]]:
    """Return a part for each key of processes; processes without a key go to the first part."""
    keys = [key for process in processes if process.spans and (key := key_of(process)) is not None]
    step = _find_pid_step(processes) if isinstance(keys[0], int) else 0
    by_offset = _key_by_offset(step)
    pids: dict[Any, list[tuple[object, object]]] = {key: [] for key in keys}
    for process in processes:
        key = key_of(process)
        key = by_offset(process) if key is None else key
        pair = process.pid, _restore_pid(process.pid, step)
        pids.get(keys[0] if key is None else key, []).append(pair)
    return [
        (
            Part(
                f"rank_{key}" if isinstance(key, int) else key,
                processes=tuple(pids[key]),
                is_first=key == keys[0],
            ),
            rank,
        )
        for key, rank in _assign_ranks(list(pids)).items()
    ]


def _restore_pid(pid: object, step: int) -> object:
    """Return the pid that a process had before traces were merged."""
    if isinstance(pid, str) and (match := _BRACKETED.fullmatch(pid)):
        return int(match[2]) if match[2].isdecimal() else match[2]
    return pid % step if step and isinstance(pid, int) else pid


def _assign_ranks(keys: Sequence[Any]) -> dict[Any, int]:
    """Return the rank of each key, which is a number or a label such as TP00-PP01.

    If the numbers of one axis are all different, they are the ranks. Else ranks are counted in
    order of the data-parallel, pipeline and tensor-parallel number, as frameworks number them.
    """
    if all(isinstance(key, int) for key in keys):
        return {key: key for key in sorted(keys)}
    places = {key: {axis: int(number) for axis, number in _AXIS.findall(key)} for key in keys}
    ordered = sorted(keys, key=lambda key: [places[key].get(axis, 0) for axis in _AXES])
    ranks = dict(zip(ordered, range(len(keys)), strict=True))
    for axis in _AXES:
        numbers = {key: place[axis] for key, place in places.items() if axis in place}
        if len(set(numbers.values())) == len(keys):
            ranks = numbers
    return ranks


# -- keys by which processes of one rank are grouped -----------------------------------------------


def _key_by_arg(process: _Process) -> int | None:
    """Return the only rank among args of a process's events, None if there is not exactly one."""
    return _as_rank(next(iter(process.ranks))) if len(process.ranks) == 1 else None


def _key_by_pid(process: _Process) -> str | None:
    match = _BRACKETED.fullmatch(process.pid) if isinstance(process.pid, str) else None
    return match[1] if match else None


def _key_by_name(process: _Process) -> int | None:
    for name in process.names:
        if match := _RANK.search(name):
            return int(match[1])
    return None


def _key_by_offset(step: int) -> _KeyOf:
    """Return a function that finds the rank in pids increased by rank * step; 0 if they are not."""

    def key(process: _Process) -> int | None:
        pid = process.pid
        return _as_rank(pid // step) if step and isinstance(pid, int) else None

    return key


def _as_rank(number: int) -> int | None:
    return number if is_rank(number) else None


def _find_pid_step(processes: Sequence[_Process]) -> int:
    """Return the power of ten that pids were increased by per rank when traces were merged, or 0.

    The pid of a device is its number before merging, so the difference of both is the increase.
    """
    increases = {
        process.pid - device
        for process in processes
        for device in process.kernels
        if isinstance(process.pid, int) and device != NO_ID
    }
    common, step = math.gcd(*increases), 1
    while common and common % (10 * step) == 0:
        step *= 10
    return step if len(increases) > 1 and step >= _LEAST_STEP else 0


# -- reading ---------------------------------------------------------------------------------------


def _read_processes(path: Path) -> list[_Process]:
    """Read the processes of a trace, in order of appearance."""
    processes, batch = _Processes(), EventBatch(_FORMAT, StringPool(), counters=False)
    for metadata in batch.read(path):
        for event in metadata:
            process = processes[event.pid]
            if event.name == "process_name" and event.args:
                process.names.append(text(event.args.name))
        if batch.is_full():
            _add(batch.take(), processes)
    _add(batch.take(), processes)
    return list(processes.values())


def _add(parts: Sequence[EventColumns], processes: _Processes) -> None:
    """Add facts from events to their processes."""
    for events in parts:
        spans = EventRows(events, np.flatnonzero(events.phase == COMPLETE))
        place = spans.by_lane(np.int64, lambda pid, _: processes[pid].place)
        table, device = find_tables(spans), device_ids(spans)
        in_order = list(processes.values())
        for at, rows in rows_by_value(place):
            process, tables = in_order[at], table[rows]
            process.spans = True
            process.launches |= KinetoTable.RUNTIME in tables
            process.kernels.update(device[rows[tables == KinetoTable.KERNEL]].tolist())
        rows, ranks = spans.given("rank")
        for at, rank in distinct_pairs(place[rows], ranks.ids(NO_ID))[0].tolist():
            in_order[at].ranks.add(rank)
