"""Reader of the timeline display of MindSpore 0.7 to 2.2, a trace JSON with unnamed rows."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.columns import Codes, TableBuilder
from timeline.columns.constant import constant
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_GRAPH, NO_ID
from timeline.records.tables import (
    CommunicationOps,
    HostEvents,
    Omission,
    OmissionCode,
    Steps,
    Tasks,
)
from timeline.sources.common.losses import LossLog, counted_losses
from timeline.sources.companions.file_kinds import CPU_LAYER
from timeline.sources.companions.framework import format_tensors, tensors_of
from timeline.sources.companions.step_trace import GROUP
from timeline.sources.decoders.event_columns import COMPLETE, EventColumns, EventRows
from timeline.sources.decoders.json_events import EventBatch, look_for_metadata
from timeline.sources.decoders.trace_events import WHOLE_ARGS, Complete, EventFormat, Ignored, Other
from timeline.sources.mindspore.records_builder import AI_CORE, AI_CPU


class DisplayComplete(Complete, gc=False, tag_field="ph", tag="X"):
    """An interval with args of any keys."""

    args: dict[str, Any] | None = None


class _Label(Ignored, gc=False, tag_field="ph", tag="M"):
    """Labels of rows, which are skipped because numbers of processes and threads identify rows."""


DISPLAY = EventFormat(DisplayComplete | _Label | Other)


_METADATA_LOOKED_AT = 64
_STREAM = re.compile(r"(?:Stream #?)?([0-9]{1,18})")
_LAST_NUMBER = re.compile(r"([0-9]{1,18})[^0-9]*$")
_STEP = re.compile(r"(?:Model ID: *([0-9]{1,18}) +Iteration ID: *)?([0-9]{1,18})")


class _Row(enum.IntEnum):
    """The kind of events in a row."""

    AI_CORE = enum.auto()
    AI_CPU = enum.auto()
    COMMUNICATION = enum.auto()
    HOST = enum.auto()
    STEP = enum.auto()
    DERIVED = enum.auto()
    """Overlap and scopes, which are recomputed from records."""
    UNKNOWN = enum.auto()


_KIND_BY_PROCESS = {
    9000: _Row.AI_CPU,
    10000: _Row.COMMUNICATION,
    11000: _Row.HOST,
    12000: _Row.DERIVED,
    13000: _Row.UNKNOWN,
}
_KIND_BY_THREAD = {
    "100000": _Row.STEP,
    "Steps": _Row.STEP,
    "100001": _Row.DERIVED,
    "Scope Name": _Row.DERIVED,
    "100002": _Row.UNKNOWN,
    "100003": _Row.HOST,
}
"""Kinds of rows in the process of the device that are not streams."""


@dataclass(frozen=True)
class Display:
    """Records of a display, on a clock that is 0 at its first event."""

    tasks: Tasks
    ops: CommunicationOps
    host: HostEvents
    steps: Steps
    omissions: tuple[Omission, ...]

    @property
    def op_runs(self) -> int:
        """Number of operators that ran, by the count of MindSpore's summary."""
        return len(self.tasks) + len(self.host)

    @property
    def last_ns(self) -> int:
        """The end of the last record, not counting steps; 0 without any."""
        tables = (self.tasks, self.ops, self.host)
        return max((int(table.end_ns.max()) for table in tables if len(table)), default=0)


def names_its_rows(path: Path) -> bool:
    """Return whether a display names its processes, as a trace view of MindSpore 2.3 and 2.4 does.

    Raises:
        SourceError: the file cannot be read.
    """
    first = islice(chain.from_iterable(look_for_metadata(path)), _METADATA_LOOKED_AT)
    return any(event.name == "process_name" for event in first)


def read_display(path: Path, strings: StringPool, rank: int) -> Display:
    """Read a display, whose process and thread numbers decide the kind of each row.

    Raises:
        SourceError: the file cannot be read, is not a trace, or holds no event that can be decoded.
    """
    damage, tables = LossLog(path), _Tables(strings)
    batch = EventBatch(DISPLAY, strings, counters=False)
    for _ in batch.read(path, damage):
        if batch.is_full():
            tables.add(batch.take())
    tables.add(batch.take())
    return tables.display(rank, damage, batch.others + batch.unread)


class _Tables:
    """Builders of the tables of a display."""

    def __init__(self, strings: StringPool) -> None:
        self._strings = strings
        # One builder per core keeps the order of rows independent of the size of batches.
        self._tasks = {core: TableBuilder(Tasks) for core in (AI_CORE, AI_CPU)}
        self._ops = TableBuilder(CommunicationOps)
        self._host, self._steps = TableBuilder(HostEvents), TableBuilder(Steps)
        self._operators: dict[int, tuple[int, int, int, int]] = {}
        """Codes of type, input shapes, output shapes and data types, by name of the operator."""
        self._derived = self._unknown = 0

    def add(self, parts: Sequence[EventColumns]) -> None:
        """Add events to tables by the kind of their row."""
        for events in parts:
            rows = np.flatnonzero(events.phase == COMPLETE)
            self._unknown += len(events) - len(rows)
            complete = EventRows(events, rows)
            kinds = complete.by_lane(np.int64, _find_kind)
            by_kind = {kind: complete.at(np.flatnonzero(kinds == kind)) for kind in _Row}
            self._derived += len(by_kind[_Row.DERIVED])
            self._unknown += len(by_kind[_Row.UNKNOWN])
            self._add_tasks(by_kind[_Row.AI_CORE], AI_CORE)
            self._add_tasks(by_kind[_Row.AI_CPU], AI_CPU)
            self._add_ops(by_kind[_Row.COMMUNICATION])
            self._add_host(by_kind[_Row.HOST])
            self._add_steps(by_kind[_Row.STEP])

    def _add_tasks(self, events: EventRows, core: str) -> None:
        count, args = len(events), events.objects(WHOLE_ARGS)
        names = self._names(events, args)
        operators = map(self._describe, names.tolist(), args)
        op_type, inputs, outputs, types = zip(*operators, strict=True) if count else ((),) * 4
        streams = events.by_lane(np.int64, lambda _, thread: _parse_id(thread))
        if core == AI_CPU:
            # Versions that do not know the stream of an AI CPU task write 0.
            streams = np.where(streams == 0, NO_ID, streams)
            device = constant(NO_ID, count, np.int64)
        else:
            device = events.by_lane(np.int64, lambda process, _: _parse_id(process))
        values = events.spans() | {
            "device": device,
            "stream": streams,
            "name": names,
            "task_type": self._strings.code(core),
            "op_type": op_type,
            "input_shapes": inputs,
            "output_shapes": outputs,
            "input_types": types,
            "compute": True,
        }
        self._tasks[core].add(Tasks.of(count, values))

    def _names(self, events: EventRows, args: Sequence[Any]) -> Codes:
        return self._strings.codes(map(_choose_name, events.format_names(), args))

    def _describe(self, name: int, args: dict[str, Any] | None) -> tuple[int, int, int, int]:
        """Return codes of an operator's type, shapes and data types, from its first args."""
        operator = self._operators.get(name)
        if operator is None:
            if not args:
                return NO_NAME, NO_NAME, NO_NAME, NO_NAME
            kind, code = args.get("type"), self._strings.code
            inputs, outputs, types = map(code, format_tensors(tensors_of(args)))
            operator = code(kind if isinstance(kind, str) else ""), inputs, outputs, types
            self._operators[name] = operator
        return operator

    def _add_ops(self, events: EventRows) -> None:
        values = events.spans() | {
            "group": self._strings.code(GROUP),
            "name": events.names(),
        }
        self._ops.add(CommunicationOps.of(len(events), values))

    def _add_host(self, events: EventRows) -> None:
        values = events.spans() | {
            "layer": self._strings.code(CPU_LAYER),
            "thread": events.by_lane(np.int64, lambda _, thread: _parse_thread(thread)),
            "name": self._names(events, events.objects(WHOLE_ARGS)),
        }
        self._host.add(HostEvents.of(len(events), values))

    def _add_steps(self, events: EventRows) -> None:
        names = [_STEP.fullmatch(name.strip()) for name in events.format_names()]
        rows = np.array([row for row, match in enumerate(names) if match], np.intp)
        matches = [match for match in names if match]
        self._unknown += len(names) - len(matches)
        values = events.spans(rows) | {
            "graph": [int(match[1]) if match[1] else NO_GRAPH for match in matches],
            "iteration": [int(match[2]) for match in matches],
        }
        self._steps.add(Steps.of(len(matches), values))

    def display(self, rank: int, damage: LossLog, others: int) -> Display:
        """Build the display.

        others: number of events of phases that are not read.
        """
        derived = {"overlap and scopes, which are computed anew": self._derived}
        unknown = {"trace events that stand for nothing known": self._unknown + others}
        tasks = self._tasks[AI_CORE]
        tasks.extend(self._tasks[AI_CPU])
        return Display(
            tasks.build(),
            self._ops.build(),
            self._host.build(),
            self._steps.build(),
            (
                *damage.omissions(rank),
                *counted_losses(derived, rank, OmissionCode.REPEATED, loss=False),
                *counted_losses(unknown, rank, OmissionCode.NOT_DRAWN),
            ),
        )


def _find_kind(pid: object, tid: object) -> _Row:
    process = _parse_id(pid)
    if process in _KIND_BY_PROCESS:
        return _KIND_BY_PROCESS[process]
    return _KIND_BY_THREAD.get(str(tid), _Row.AI_CORE)


def _parse_id(value: object) -> int:
    match = _STREAM.fullmatch(str(value).strip())
    return int(match[1]) if match else NO_ID


def _parse_thread(value: object) -> int:
    match = _LAST_NUMBER.search(str(value))
    return int(match[1]) if match else 0


def _choose_name(name: str, args: dict[str, Any] | None) -> str:
    full = args.get("fullname") if args else None
    return full if isinstance(full, str) and full else name
