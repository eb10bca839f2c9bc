"""The ranks that one PyTorch trace holds: processes of merged traces, or devices of one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.distinct import distinct, distinct_pairs
from timeline.columns.strings import StringPool
from timeline.frozen import dataclass
from timeline.patterns import compile_late
from timeline.records.not_given import NO_ID
from timeline.sources.capture import Part
from timeline.sources.decoders.event_batch import HELD_EVENTS, EventBatch
from timeline.sources.decoders.event_columns import COMPLETE, EventColumns
from timeline.sources.decoders.event_rows import EventRows
from timeline.sources.decoders.exported_values import text
from timeline.sources.decoders.json_events import read_events
from timeline.sources.kineto.events import KINETO, KinetoTable, tables_of

__all__ = ["TracePart", "find_parts"]

_BRACKETED = compile_late(r"\[([^\]]+)\]\s*(.*)")
"""How SGLang's merger calls the processes of a rank: [TP00-DP01] 1234."""
_RANK = compile_late(r"(?i)(?<![a-z])rank[ _-]?(\d{1,9})(?!\d)")
_AXIS = compile_late(r"([A-Za-z]+)[-_]?(\d{1,9})")
_AXES = ("DP", "PP", "TP")
"""From that whose ranks are furthest apart to that whose ranks are neighbours."""
_LEAST_STEP = 1_000
"""Pids of merged ranks are moved by a power of ten, of which each rank takes a multiple."""


@dataclass(frozen=True)
class TracePart:
    """A part of a trace, and its rank or its device, each None where the other tells it."""

    part: Part
    rank: int | None = None
    device: int | None = None


@dataclass
class _Process:
    """What the events of a process tell.

    ranks: those among the args of its events. spans: whether it has any interval; launches: whether
    one is a call of the runtime. devices: those of the kernels among them.
    """

    pid: object
    names: list[str] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    spans: bool = False
    launches: bool = False
    devices: set[int] = field(default_factory=set)


_KeyOf = Callable[[_Process], Any]
"""What the processes of one rank have in common: a rank or a label, None for one that has none."""


def find_parts(path: Path) -> list[TracePart]:
    """Return the parts of a trace that are ranks of their own, none where all of it is one rank.

    Raises:
        SourceError: the file cannot be read.
    """
    processes = _read_processes(path)
    working = [one for one in processes if one.launches or one.devices]
    for key_of in (_key_by_arg, _key_by_pid, _key_by_name, _key_by_offset(working)):
        keys = {key_of(one) for one in working}
        if None not in keys and len(keys) > 1:
            return _merged(processes, key_of)
    devices = sorted(device for one in working for device in one.devices)
    if len(devices) < 2 or sum(one.launches for one in working) > 1:
        return []
    return [TracePart(Part.of_device(device), device=device) for device in devices]


def _merged(processes: Sequence[_Process], key_of: _KeyOf) -> list[TracePart]:
    """Return the parts by the key of their processes; what has none goes with the first part."""
    keys = [key for one in processes if one.spans and (key := key_of(one)) is not None]
    ranks = _ranks_of(list(dict.fromkeys(keys)))
    step = _step_of_pids(processes) if isinstance(keys[0], int) else 0
    pids: dict[object, list[tuple[object, object]]] = {key: [] for key in ranks}
    for one in processes:
        key = key_of(one)
        key = keys[0] if key is None else key
        if key in pids:
            pids[key].append((one.pid, _pid_before(one.pid, step)))
    return [
        TracePart(Part(_name_of(key), tuple(pids[key]), is_first=key == keys[0]), rank)
        for key, rank in ranks.items()
    ]


def _name_of(key: object) -> str:
    return f"rank_{key}" if isinstance(key, int) else str(key)


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
    for axis in reversed(_AXES):
        numbers = [found[axis] for found in places.values() if axis in found]
        if len(set(numbers)) == len(keys):
            return {
                key: places[key][axis] for key in sorted(keys, key=lambda key: places[key][axis])
            }
    ordered = sorted(keys, key=lambda key: [places[key].get(axis, 0) for axis in _AXES])
    return {key: rank for rank, key in enumerate(ordered)}


# -- what tells the processes of one rank from those of others -------------------------------------


def _key_by_arg(process: _Process) -> int | None:
    """The rank that all events of a process have among their args."""
    return next(iter(process.ranks)) if len(process.ranks) == 1 else None


def _key_by_pid(process: _Process) -> str | None:
    match = _BRACKETED.fullmatch(process.pid) if isinstance(process.pid, str) else None
    return match[1] if match else None


def _key_by_name(process: _Process) -> int | None:
    for name in process.names:
        if match := _RANK.search(name):
            return int(match[1])
    return None


def _key_by_offset(working: Sequence[_Process]) -> _KeyOf:
    """The rank by which all pids were moved, where the devices of several ranks have one number."""
    step = _step_of_pids(working)

    def key_of(process: _Process) -> int | None:
        return process.pid // step if step and isinstance(process.pid, int) else None

    return key_of


def _step_of_pids(processes: Sequence[_Process]) -> int:
    """Return by what each rank's pids were moved more than those of the rank before; 0 if not.

    The pid of a device is its number, so the rest of it is how far it was moved.
    """
    moved = {
        one.pid - device
        for one in processes
        for device in one.devices
        if isinstance(one.pid, int) and device != NO_ID
    }
    common, step = math.gcd(*moved), 1
    while common and common % (10 * step) == 0:
        step *= 10
    return step if len(moved) > 1 and step >= _LEAST_STEP else 0


# -- reading ---------------------------------------------------------------------------------------


def _read_processes(path: Path) -> list[_Process]:
    """Return the processes of a trace in the order in which they come."""
    processes: dict[object, _Process] = {}
    held = EventBatch(KINETO, StringPool(), counters=False)
    for events in read_events(KINETO.decoder, path, scan=held.scan):
        for event in held.add(events):
            process = processes.setdefault(event.pid, _Process(event.pid))
            if event.name == "process_name" and event.args:
                process.names.append(text(event.args.name))
        if held.size > HELD_EVENTS:
            _add(processes, held.take())
    _add(processes, held.take())
    return list(processes.values())


def _add(processes: dict[object, _Process], parts: Sequence[EventColumns]) -> None:
    """Take in what events tell of their processes."""

    def place(pid: object, _: object) -> int:
        processes.setdefault(pid, _Process(pid))
        return list(processes).index(pid)

    for events in parts:
        spans = EventRows(events, np.flatnonzero(events.phase == COMPLETE))
        table, places = tables_of(spans), spans.by_lane(np.int64, place)
        known = list(processes.values())
        for at in distinct(places).tolist():
            known[at].spans = True
        for at in distinct(places[table == KinetoTable.RUNTIME]).tolist():
            known[at].launches = True
        of_kernels = np.flatnonzero(table == KinetoTable.KERNEL)
        kernels = spans.at(of_kernels)
        devices = kernels.ids(kernels.processes(NO_ID), "device", "device_inside")
        rows, ranks = spans.given("rank")
        for pairs, field_name in (
            (distinct_pairs(places[of_kernels], devices), "devices"),
            (distinct_pairs(places[rows], ranks.ids(NO_ID)), "ranks"),
        ):
            for at, number in pairs[0].tolist():
                getattr(known[at], field_name).add(number)
