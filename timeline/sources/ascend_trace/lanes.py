"""Lanes of an Ascend trace: their kinds, their events, and tables that grow lane by lane."""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Generic, TypeVar

import numpy as np

from timeline.columns.columns import Codes, Int64, Rows, TableBuilder
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct_as_met
from timeline.records.tables import Spans
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.overlap_analysis import OVERLAP_PROCESS
from timeline.sources.common.trace_names import LaneNames
from timeline.sources.decoders.event_columns import EventColumns, EventRows, LaneKey
from timeline.sources.decoders.exported_values import text
from timeline.sources.decoders.trace_events import Metadata

LaneMeaning = tuple[str, str, str, str]
"""Process, its label, thread and communication group: all that decides how a lane is read."""

HARDWARE = "Ascend Hardware"
COMMUNICATION = frozenset({"HCCL", "Communication"})
"""Newer CANN calls the process Communication."""
STEP_TRACE = "Step Trace"

_STREAM = re.compile(r"Stream ([0-9]{1,9})")
_PLANE = re.compile(r"Plane ([0-9]{1,9})")
_MODEL = re.compile(r"(?:Step Trace\()?Model ID\)?:\s*([0-9]{1,10})\)?")
_GROUP = re.compile(r"(.+?) Communication")
_OF_DEVICE = re.compile(r"[ND]PU\b")


class LaneKind(enum.Enum):
    """The table a lane's events belong to."""

    STREAM = enum.auto()
    STEP_TRACE = enum.auto()
    PLANE = enum.auto()
    OPS = enum.auto()
    HOST = enum.auto()
    OTHER = enum.auto()
    """What msprof labels as of a device and no table holds, as missions of CCUs, or blocks."""
    DERIVED = enum.auto()
    """Overlap Analysis: recomputed from records, never drawn; it tells the rule of free time, and
    what computes where tasks do not."""


@dataclass
class AscendLanes(LaneNames):
    """Names of the lanes of an Ascend trace, and what follows from them."""

    labels: dict[object, str] = field(default_factory=dict)
    """Whether a process is of the CPU, an NPU or a DPU."""
    _heads: dict[object, _Heads] | None = field(default=None, init=False, compare=False)
    """By process, while no further name is known."""

    def add(self, event: Metadata) -> None:
        """See `LaneNames.add`; take labels as well."""
        super().add(event)
        if event.name == "process_labels" and event.args:
            self.labels[event.pid] = text(event.args.labels)
        self._heads = None

    def with_more(self, more: AscendLanes) -> AscendLanes:
        """Return these names, completed by others."""
        return AscendLanes(
            {**more.processes, **self.processes},
            {**more.threads, **self.threads},
            {**more.labels, **self.labels},
        )

    def known(self, key: LaneKey) -> bool:
        """Return whether a lane has the names that decide what it is; host threads need none."""
        process = self.processes.get(key[0])
        by_thread = process in (HARDWARE, STEP_TRACE) or process in COMMUNICATION
        return process is not None and (key in self.threads or not by_thread)

    def meaning(self, key: LaneKey) -> LaneMeaning:
        """Return what is known of a lane so far."""
        process = self.process(key[0])
        group = self.group(key) if process in COMMUNICATION else ""
        return process, self.labels.get(key[0], ""), self.threads.get(key, ""), group

    def kind(self, key: LaneKey) -> LaneKind:
        """Return what the events of a lane are."""
        process, thread = self.process(key[0]), self.threads.get(key, "")
        if process == OVERLAP_PROCESS:
            return LaneKind.DERIVED
        if process == STEP_TRACE or (process == HARDWARE and _MODEL.fullmatch(thread)):
            return LaneKind.STEP_TRACE
        if process == HARDWARE:
            return LaneKind.STREAM
        if process in COMMUNICATION:
            return LaneKind.PLANE if _PLANE.fullmatch(thread) else LaneKind.OPS
        return LaneKind.OTHER if _OF_DEVICE.match(self.labels.get(key[0], "")) else LaneKind.HOST

    def stream(self, key: LaneKey) -> int | None:
        """Return the stream id of a hardware lane, or None if its name gives none."""
        match = _STREAM.fullmatch(self.threads.get(key, ""))
        return int(match[1]) if match else None

    def plane(self, key: LaneKey) -> int:
        """Return the plane number of a plane lane."""
        match = _PLANE.fullmatch(self.threads.get(key, ""))
        assert match is not None
        return int(match[1])

    def graph(self, key: LaneKey) -> int | None:
        """Return the graph id of a step-trace lane."""
        match = _MODEL.fullmatch(self.threads.get(key, ""))
        return int(match[1]) if match else None

    def group(self, key: LaneKey) -> str:
        """Return the communication group of a plane or op lane.

        msprof numbers lanes so that the planes of a group follow its op lane; older CANN has one
        op lane, "Communication Kernel", after the planes.
        """
        if self._heads is None:
            self._heads = self._find_heads()
        heads = self._heads.get(key[0])
        match = heads and _GROUP.fullmatch(heads.of(_order(key[1])))
        return match[1] if match else "Group 0"

    def _find_heads(self) -> dict[object, _Heads]:
        named: dict[object, dict[int, str]] = {}
        for (pid, tid), name in self.threads.items():
            if name and _PLANE.fullmatch(name) is None:
                named.setdefault(pid, {}).setdefault(_order(tid), name)
        return {pid: _Heads(sorted(names), names) for pid, names in named.items()}


@dataclass(frozen=True)
class _Heads:
    """The lanes of one process that are not planes, by their place."""

    places: list[int]
    """Ascending."""
    names: dict[int, str]

    def of(self, place: int) -> str:
        """Return the name of the last one at or before a place, else of the first."""
        return self.names[self.places[max(0, bisect_right(self.places, place) - 1)]]


def _order(tid: object) -> int:
    """Return where a lane is among those of its process; one without a number is first."""
    return whole_number(tid) or 0


_Kind = TypeVar("_Kind", bound=Hashable)


class LaneEvents(EventRows):
    """The intervals of some lanes, lane after lane."""

    def __init__(
        self, keys: Sequence[LaneKey], counts: Sequence[int], events: EventColumns, rows: Rows
    ) -> None:
        """Take the keys of the lanes, and how many events each has."""
        super().__init__(events, rows)
        self.keys, self.counts = keys, counts

    def of_lanes(self, values: Sequence[int]) -> Int64:
        """One id per lane as a column of the events."""
        if len(set(values)) == 1:
            return constant(values[0], len(self), np.int64)
        return np.repeat(np.array(values, np.int64), self.counts)

    def codes_of_lanes(self, values: Sequence[str]) -> Codes:
        """One string per lane as a column of the events."""
        return self.of_lanes([self.strings.code(value) for value in values]).astype(np.int32)


def lanes_of(events: EventColumns, rows: Rows) -> dict[int, LaneKey]:
    """Return the lanes of some rows by group, in the order in which they begin."""
    groups, _ = distinct_as_met(events.group[rows])
    return {group: events.values.lane(group) for group in groups.tolist()}


def lanes_by(
    kind_of: Callable[[LaneKey], _Kind],
    lanes: Mapping[int, LaneKey],
    events: EventColumns,
    rows: Rows,
) -> Iterator[tuple[_Kind, LaneEvents]]:
    """Return the lanes of some rows, those of a kind together."""
    by_kind: dict[_Kind, dict[int, LaneKey]] = {}
    for group, key in lanes.items():
        by_kind.setdefault(kind_of(key), {})[group] = key
    every = list(chain.from_iterable(by_kind.values()))
    few = len(every) <= np.iinfo(np.int16).max  # whose numbers sort in one pass
    number = np.zeros(max(lanes, default=0) + 1, np.int16 if few else np.int32)
    number[every] = np.arange(len(every))
    lane = number.take(events.group.take(rows))
    by_lane = rows.take(np.argsort(lane, kind="stable"))
    counts = np.bincount(lane, minlength=len(every)).tolist()
    first_lane = first_row = 0
    for kind, alike in by_kind.items():
        of_kind = counts[first_lane : first_lane + len(alike)]
        its = by_lane[first_row : first_row + sum(of_kind)]
        yield kind, LaneEvents(list(alike.values()), of_kind, events, its)
        first_lane, first_row = first_lane + len(alike), first_row + len(its)


_Table = TypeVar("_Table", bound=Spans)


class LaneTable(Generic[_Table]):
    """Rows of lanes while they come, in parts of any size.

    In the table that is made of them, lanes follow each other as they first came, and rows of a
    lane are in file order: the size of the parts is not seen in it.
    """

    def __init__(self, kind: type[_Table]) -> None:
        self._builder = TableBuilder(kind)
        self._runs: defaultdict[LaneKey, list[tuple[int, int]]] = defaultdict(list)
        """The first row of each part of a lane, and the row behind its last."""

    def add(self, table: _Table, lanes: LaneEvents) -> None:
        """Put the rows of some lanes, lane after lane, behind those that were added before."""
        first = self._builder.rows
        for key, count in zip(lanes.keys, lanes.counts, strict=True):
            self._runs[key].append((first, first + count))
            first += count
        self._builder.add(table)

    def __contains__(self, key: LaneKey) -> bool:
        return key in self._runs

    def rows_of(self, key: LaneKey) -> Rows:
        """Return the rows of a lane in the table that was built."""
        ((first, stop),) = self._runs[key]
        return np.arange(first, stop)

    def build(self) -> _Table:
        """All rows, lane after lane."""
        every, order = list(chain.from_iterable(self._runs.values())), None
        if any(stop != first for (_, stop), (first, _) in pairwise(every)):
            order = np.concatenate([np.arange(*run) for run in every])
        table = self._builder.build(order)
        first = 0
        for key, runs in self._runs.items():
            count = sum(stop - first for first, stop in runs)
            self._runs[key] = [(first, first + count)]
            first += count
        return table
