"""Turns a timeline display of MindSpore 0.7 to 2.2, whose rows are unnamed, into records."""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from timeline.columns.columns import Int64, Pile
from timeline.columns.constant import constant
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.tables import (
    NO_GRAPH,
    NO_ID,
    CommunicationOps,
    HostEvents,
    Omission,
    OmissionCode,
    Steps,
    Tasks,
)
from timeline.sources.common.damage import Damage, left_out
from timeline.sources.common.decimals import interval_ns
from timeline.sources.decoders.event_pieces import EventDecoder
from timeline.sources.decoders.json_events import look_for_metadata, read_events
from timeline.sources.decoders.trace_events import Other
from timeline.sources.mindspore.device_rows import AI_CORE, AI_CPU
from timeline.sources.mindspore.framework_table import OperatorShapes
from timeline.sources.mindspore.step_ticks import GROUP

__all__ = ["DISPLAY", "Display", "DisplayEvent", "Label", "names_its_rows", "read_display"]

_EMPTY = msgspec.Raw(b"")


class DisplayEvent(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An interval; its times stay text, because they are exact only as decimals."""

    name: str = ""
    pid: int | str | float = 0
    tid: int | str | float = 0
    ts: msgspec.Raw = _EMPTY
    dur: msgspec.Raw = _EMPTY
    args: dict[str, Any] | None = None


class Label(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """What rows are called: the numbers of processes and threads tell what they are."""


DISPLAY: EventDecoder[DisplayEvent | Label] = EventDecoder(DisplayEvent | Label | Other)


HOST_LAYER = "CPU OP"
_METADATA_LOOKED_AT = 64
_STREAM = re.compile(r"(?:Stream #?)?([0-9]{1,18})")
_LAST_NUMBER = re.compile(r"([0-9]{1,18})[^0-9]*$")
_STEP = re.compile(r"(?:Model ID: *([0-9]{1,18}) +Iteration ID: *)?([0-9]{1,18})")


class _Row(enum.Enum):
    """What the events of a row are."""

    AI_CORE = enum.auto()
    AI_CPU = enum.auto()
    COMMUNICATION = enum.auto()
    HOST = enum.auto()
    STEP = enum.auto()
    DERIVED = enum.auto()
    """Overlap and scopes: recomputed from records, never copied."""
    UNKNOWN = enum.auto()


_BY_PROCESS = {
    9000: _Row.AI_CPU,
    10000: _Row.COMMUNICATION,
    11000: _Row.HOST,
    12000: _Row.DERIVED,
    13000: _Row.UNKNOWN,
}
_BY_THREAD = {
    "100000": _Row.STEP,
    "Steps": _Row.STEP,
    "100001": _Row.DERIVED,
    "Scope Name": _Row.DERIVED,
    "100002": _Row.UNKNOWN,
    "100003": _Row.HOST,
}
"""Rows of the device's own process that are no streams."""


@dataclass(frozen=True)
class Display:
    """What a display holds, on its own clock: 0 is its first event."""

    tasks: Tasks
    ops: CommunicationOps
    host: HostEvents
    steps: Steps
    omissions: tuple[Omission, ...]

    @property
    def op_runs(self) -> int:
        """The number of operators that ran, as MindSpore counts it in its summary."""
        return len(self.tasks) + len(self.host)

    @property
    def last_ns(self) -> int:
        """The end of the last record but for steps, 0 without any."""
        tables = (self.tasks, self.ops, self.host)
        return max((int(table.end_ns.max()) for table in tables if len(table)), default=0)


def names_its_rows(path: Path) -> bool:
    """Whether a display names processes, which those of MindSpore 2.3 and 2.4 do: a trace view.

    Raises:
        SourceError: the file cannot be read.
    """
    first = islice(chain.from_iterable(look_for_metadata(path)), _METADATA_LOOKED_AT)
    return any(event.name == "process_name" for event in first)


def read_display(path: Path, strings: StringPool, rank: int) -> Display:
    """Read a display; the process and thread numbers tell what a row is.

    Raises:
        SourceError: the file cannot be read, is no trace, or holds no event that can be decoded.
    """
    damage, tables = Damage(path), _Tables(strings)
    for events in read_events(DISPLAY, path, damage=damage):
        tables.add(events)
    return tables.display(rank, damage)


class _Tables:
    """The tables while they grow."""

    def __init__(self, strings: StringPool) -> None:
        self._strings = strings
        self._tasks, self._ops = Pile(Tasks), Pile(CommunicationOps)
        self._host, self._steps = Pile(HostEvents), Pile(Steps)
        self._kinds: dict[tuple[object, object], _Row] = {}
        self._known: dict[int, tuple[int, int, int, int]] = {}
        self._numbers: dict[int | str | float, int] = {}
        self._derived = self._unknown = 0

    def add(self, events: Sequence[DisplayEvent | Label | Other]) -> None:
        """Sort events by what their rows are, and turn them into columns."""
        rows: dict[_Row, list[DisplayEvent]] = defaultdict(list)
        for event in events:
            if isinstance(event, DisplayEvent):
                key = event.pid, event.tid
                kind = self._kinds.get(key) or self._kinds.setdefault(key, _kind(*key))
                rows[kind].append(event)
            elif isinstance(event, Other):
                self._unknown += 1
        self._derived += len(rows[_Row.DERIVED])
        self._unknown += len(rows[_Row.UNKNOWN])
        self._add_tasks(rows[_Row.AI_CORE], AI_CORE)
        self._add_tasks(rows[_Row.AI_CPU], AI_CPU)
        self._add_ops(rows[_Row.COMMUNICATION])
        self._add_host(rows[_Row.HOST])
        self._add_steps(rows[_Row.STEP])

    def _add_tasks(self, events: list[DisplayEvent], core: str) -> None:
        count = len(events)
        names = self._strings.codes(_full_name(event) for event in events)
        about = [
            self._about(code, event) for code, event in zip(names.tolist(), events, strict=True)
        ]
        op_type, inputs, outputs, types = zip(*about, strict=True) if about else ((), (), (), ())
        streams = self._ids([event.tid for event in events])
        if core == AI_CPU:
            # Versions that do not know the stream of an AI CPU task write 0.
            streams[streams == 0] = NO_ID
            device = constant(NO_ID, count, np.int64)
        else:
            device = self._ids([event.pid for event in events])
        values = _spans(events) | {
            "device": device,
            "stream": streams,
            "name": names,
            "task_type": constant(self._strings.code(core), count, np.int32),
            "op_type": op_type,
            "input_shapes": inputs,
            "output_shapes": outputs,
            "input_types": types,
            "compute": constant(True, count, np.bool_),
        }
        self._tasks.add(Tasks.of(count, values))

    def _ids(self, values: list[int | str | float]) -> Int64:
        known = self._numbers
        for value in set(values) - known.keys():
            known[value] = _stream(value)
        return np.array([known[value] for value in values], np.int64)

    def _about(self, name: int, event: DisplayEvent) -> tuple[int, int, int, int]:
        """Type, shapes and types of an operator: those of the first event that tells them."""
        found = self._known.get(name)
        if found is None:
            if not event.args:
                return NO_NAME, NO_NAME, NO_NAME, NO_NAME
            shapes, code = OperatorShapes.of(event.args), self._strings.code
            kind = event.args.get("type")
            found = (
                code(kind if isinstance(kind, str) else ""),
                code(shapes.inputs),
                code(shapes.outputs),
                code(shapes.types),
            )
            self._known[name] = found
        return found

    def _add_ops(self, events: list[DisplayEvent]) -> None:
        values = _spans(events) | {
            "group": constant(self._strings.code(GROUP), len(events), np.int32),
            "name": self._strings.codes(event.name for event in events),
        }
        self._ops.add(CommunicationOps.of(len(events), values))

    def _add_host(self, events: list[DisplayEvent]) -> None:
        values = _spans(events) | {
            "layer": constant(self._strings.code(HOST_LAYER), len(events), np.int32),
            "thread": [_thread(event.tid) for event in events],
            "name": self._strings.codes(_full_name(event) for event in events),
        }
        self._host.add(HostEvents.of(len(events), values))

    def _add_steps(self, events: list[DisplayEvent]) -> None:
        found = [(event, _STEP.fullmatch(event.name.strip())) for event in events]
        named = [(event, match) for event, match in found if match]
        self._unknown += len(found) - len(named)
        values = _spans([event for event, _ in named]) | {
            "graph": [int(match[1]) if match[1] else NO_GRAPH for _, match in named],
            "iteration": [int(match[2]) for _, match in named],
        }
        self._steps.add(Steps.of(len(named), values))

    def display(self, rank: int, damage: Damage) -> Display:
        """All that was read."""
        derived = {"overlap and scopes, which are computed anew": self._derived}
        unknown = {"trace events that stand for nothing known": self._unknown}
        return Display(
            self._tasks.joined(),
            self._ops.joined(),
            self._host.joined(),
            self._steps.joined(),
            (
                *damage.omissions(rank),
                *left_out(derived, rank, OmissionCode.REPEATED, loss=False),
                *left_out(unknown, rank, OmissionCode.NOT_DRAWN),
            ),
        )


def _spans(events: Sequence[DisplayEvent]) -> dict[str, Int64]:
    start_ns, end_ns = interval_ns([event.ts for event in events], [event.dur for event in events])
    return {"start_ns": start_ns, "end_ns": end_ns}


def _kind(pid: object, tid: object) -> _Row:
    process = _stream(pid)
    if process in _BY_PROCESS:
        return _BY_PROCESS[process]
    return _BY_THREAD.get(str(tid), _Row.AI_CORE)


def _stream(value: object) -> int:
    match = _STREAM.fullmatch(str(value).strip())
    return int(match[1]) if match else NO_ID


def _thread(value: object) -> int:
    match = _LAST_NUMBER.search(str(value))
    return int(match[1]) if match else 0


def _full_name(event: DisplayEvent) -> str:
    full = event.args.get("fullname") if event.args else None
    return full if isinstance(full, str) and full else event.name
