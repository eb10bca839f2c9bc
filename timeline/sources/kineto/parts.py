"""The ranks that one PyTorch trace holds: processes of merged traces, or devices of one process."""

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
from timeline.sources.kineto.tables import KinetoTable, device_ids, kineto_format, tables_of

_BRACKETED = re.compile(r"\[([^\]]+)\]\s*(.*)")
"""How SGLang's merger calls the processes of a rank: [TP00-DP01] 1234."""
_RANK = re.compile(r"(?i)(?<![a-z])rank[ _-]?(\d{1,9})(?!\d)")
_AXIS = re.compile(r"([A-Za-z]+)[-_]?(\d{1,9})")
_AXES = ("DP", "PP", "TP")
"""From that whose ranks are furthest apart to that whose ranks are neighbours."""
_LEAST_SHARE = 0.1
_LEAST_STEP = 1_000
"""Pids of merged ranks are moved by a power of ten, of which each rank takes a multiple."""


@dataclass
class _Process:
    """A process of a trace, by its events.

    place: its number in order of appearance. ranks: those among the args of its events. spans:
    whether it has any interval; launches: whether one is a call of the runtime. kernels: how many
    of them ran on each device.
    """

    pid: object
    place: int
    names: list[str] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    spans: bool = False
    launches: bool = False
    kernels: Multiset[int] = field(default_factory=Multiset)


class _Processes(dict[object, _Process]):
    """Processes by pid, each of which begins when it is first asked for."""

    def __missing__(self, pid: object) -> _Process:
        process = self[pid] = _Process(pid, len(self))
        return process


_KeyOf = Callable[[_Process], Any]
"""What the processes of one rank have in common: a rank or a label, None for one that has none."""


def find_parts(path: Path) -> list[tuple[Part, int | None]]:
    """Return the parts of a trace that are ranks of their own, none where all of it is one rank.

    And the rank of each, None for a device of a process, whose rank is counted on from that. In a
    distributed run, a device that runs a few kernels alone is that of another process.

    Raises:
        SourceError: the file cannot be read.
    """
    processes = _read_processes(path)
    working = [one for one in processes if one.launches or one.kernels]
    by_offset = _key_by_offset(_step_of_pids(working))
    for key_of in (_key_by_arg, _key_by_pid, _key_by_name, by_offset):
        keys = {key_of(one) for one in working}
        if None not in keys and len(keys) > 1:
            return _merged(processes, key_of)
    kernels = sum((one.kernels for one in working), start=Multiset[int]())
    devices, world = sorted(kernels), read_header(path).world
    if len(devices) < 2 or sum(one.launches for one in working) > 1:
        return []
    is_run_of_others = world not in (None, 1, len(devices))
    if is_run_of_others and min(kernels.values()) < _LEAST_SHARE * max(kernels.values()):
        return []
    return [(Part.of_device(device), None) for device in devices]


def _merged(processes: Sequence[_Process], key_of: _KeyOf) -> list[tuple[Part, int | None]]:
    """Return the parts by the key of their processes; what has none goes with the first part."""
    keys = [key for one in processes if one.spans and (key := key_of(one)) is not None]
    step = _step_of_pids(processes) if isinstance(keys[0], int) else 0
    by_offset = _key_by_offset(step)
    pids: dict[Any, list[tuple[object, object]]] = {key: [] for key in keys}
    for one in processes:
        key = key_of(one)
        key = by_offset(one) if key is None else key
        pids.get(keys[0] if key is None else key, []).append((one.pid, _pid_before(one.pid, step)))
    return [
        (
            Part(
                f"rank_{key}" if isinstance(key, int) else key,
                processes=tuple(pids[key]),
                is_first=key == keys[0],
            ),
            rank,
        )
        for key, rank in _ranks_of(list(pids)).items()
    ]


def _pid_before(pid: object, step: int) -> object:
    """Return the pid that a process had before traces were merged."""
    if isinstance(pid, str) and (match := _BRACKETED.fullmatch(pid)):
        return int(match[2]) if match[2].isdecimal() else match[2]
    return pid % step if step and isinstance(pid, int) else pid


def _ranks_of(keys: Sequence[Any]) -> dict[Any, int]:
    """Return the rank of each key, which is a number or a label such as TP00-PP01.

    Where the numbers of one axis are all different they are the ranks. Else ranks are counted in
    order of the data-parallel, pipeline and tensor-parallel number, as frameworks number them.
    """
    if all(isinstance(key, int) for key in keys):
        return {key: key for key in sorted(keys)}
    places = {key: {axis: int(number) for axis, number in _AXIS.findall(key)} for key in keys}
    ordered = sorted(keys, key=lambda key: [places[key].get(axis, 0) for axis in _AXES])
    ranks = dict(zip(ordered, range(len(keys)), strict=True))
    for axis in _AXES:
        numbers = {key: found[axis] for key, found in places.items() if axis in found}
        if len(set(numbers.values())) == len(keys):
            ranks = numbers
    return ranks


# -- what tells the processes of one rank from those of others -------------------------------------


def _key_by_arg(process: _Process) -> int | None:
    """Return the rank that all events of a process have among their args."""
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
    """Return the rank by which pids were moved, if they were."""
    return lambda one: _as_rank(one.pid // step) if step and isinstance(one.pid, int) else None


def _as_rank(number: int) -> int | None:
    return number if is_rank(number) else None


def _step_of_pids(processes: Sequence[_Process]) -> int:
    """Return by what each rank's pids were moved more than those of the rank before; 0 if not.

    The pid of a device is its number, so the rest of it is how far it was moved.
    """
    moved = {
        one.pid - device
        for one in processes
        for device in one.kernels
        if isinstance(one.pid, int) and device != NO_ID
    }
    common, step = math.gcd(*moved), 1
    while common and common % (10 * step) == 0:
        step *= 10
    return step if len(moved) > 1 and step >= _LEAST_STEP else 0


# -- reading ---------------------------------------------------------------------------------------


def _read_processes(path: Path) -> list[_Process]:
    """Return the processes of a trace in the order in which they come."""
    processes, held = _Processes(), EventBatch(kineto_format(), StringPool(), counters=False)
    for metadata in held.read(path):
        for event in metadata:
            one = processes[event.pid]
            if event.name == "process_name" and event.args:
                one.names.append(text(event.args.name))
        if held.is_full():
            _add(held.take(), processes)
    _add(held.take(), processes)
    return list(processes.values())


def _add(parts: Sequence[EventColumns], processes: _Processes) -> None:
    """Take in what events say about their processes."""
    for events in parts:
        spans = EventRows(events, np.flatnonzero(events.phase == COMPLETE))
        place = spans.by_lane(np.int64, lambda pid, _: processes[pid].place)
        table, device = tables_of(spans), device_ids(spans)
        known = list(processes.values())
        for at, rows in rows_by_value(place):
            one, of_process = known[at], table[rows]
            one.spans = True
            one.launches |= KinetoTable.RUNTIME in of_process
            one.kernels.update(device[rows[of_process == KinetoTable.KERNEL]].tolist())
        rows, ranks = spans.given("rank")
        for at, rank in distinct_pairs(place[rows], ranks.ids(NO_ID))[0].tolist():
            known[at].ranks.add(rank)
