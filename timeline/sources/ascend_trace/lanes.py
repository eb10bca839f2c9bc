"""Lanes (process and thread) of an Ascend trace: names, kinds, events and tables by lane."""

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
"""Process, its label, thread and communication group, which decide how a lane is read."""

HARDWARE = "Ascend Hardware"
COMMUNICATION = frozenset({"HCCL", "Communication"})
"""Names of the process of communication; newer CANN calls it Communication."""
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
    """Events that msprof labels as part of a device but that no table holds, such as missions of
    CCUs or blocks."""
    DERIVED = enum.auto()
    """Overlap Analysis, which is recomputed from records instead of drawn. It shows by which rule
    free time was computed, and which tasks count as computing."""


@dataclass
class AscendLanes(LaneNames):
    """Names of the lanes of an Ascend trace, and the kinds and ids that follow from them."""

    labels: dict[object, str] = field(default_factory=dict)
    """Label of each process: CPU, NPU or DPU."""
    _heads: dict[object, _Heads] | None = field(default=None, init=False, compare=False)
    """Cached result of `_find_heads`, None after a name was added."""

    def add(self, event: Metadata) -> None:
        """See `LaneNames.add`; add process labels as well."""
        super().add(event)
        if event.name == "process_labels" and event.args:
            self.labels[event.pid] = text(event.args.labels)
        self._heads = None

    def with_more(self, more: AscendLanes) -> AscendLanes:
        """Return these names, completed by `more` where they lack one."""
        return AscendLanes(
            {**more.processes, **self.processes},
            {**more.threads, **self.threads},
            {**more.labels, **self.labels},
        )

    def has_names(self, key: LaneKey) -> bool:
        """Return whether a lane has all names that decide its kind; host threads need none."""
        process = self.processes.get(key[0])
        by_thread = process in (HARDWARE, STEP_TRACE) or process in COMMUNICATION
        return process is not None and (key in self.threads or not by_thread)

    def meaning(self, key: LaneKey) -> LaneMeaning:
        """Return the names that decide how a lane is read, as far as they were added."""
        process = self.process(key[0])
        group = self.group(key) if process in COMMUNICATION else ""
        return process, self.labels.get(key[0], ""), self.threads.get(key, ""), group

    def kind(self, key: LaneKey) -> LaneKind:
        """Return the kind of a lane."""
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
        """Return the graph id of a step-trace lane, or None if its name gives none."""
        match = _MODEL.fullmatch(self.threads.get(key, ""))
        return int(match[1]) if match else None

    def group(self, key: LaneKey) -> str:
        """Return the communication group of a plane or op lane.

        msprof numbers lanes so that the planes of a group follow the op lane that names the group.
        Older CANN has one op lane, "Communication Kernel", after all planes.
        """
        if self._heads is None:
            self._heads = self._find_heads()
        heads = self._heads.get(key[0])
        match = heads and _GROUP.fullmatch(heads.of(_lane_number(key[1])))
        return match[1] if match else "Group 0"

    def _find_heads(self) -> dict[object, _Heads]:
        names_by_process: dict[object, dict[int, str]] = {}
        for (pid, tid), name in self.threads.items():
            if name and _PLANE.fullmatch(name) is None:
                names_by_process.setdefault(pid, {}).setdefault(_lane_number(tid), name)
        return {pid: _Heads(sorted(names), names) for pid, names in names_by_process.items()}


@dataclass(frozen=True)
class _Heads:
    """Names of the lanes of one process that are not planes, by lane number."""

    numbers: list[int]
    """Ascending."""
    names: dict[int, str]

    def of(self, number: int) -> str:
        """Return the name of the last such lane up to a lane number, else of the first."""
        return self.names[self.numbers[max(0, bisect_right(self.numbers, number) - 1)]]


def _lane_number(tid: object) -> int:
    """Return the number that orders a lane within its process, 0 if its thread id has none."""
    return whole_number(tid) or 0


_Kind = TypeVar("_Kind", bound=Hashable)


class LaneEvents(EventRows):
    """Complete events of several lanes, grouped by lane."""

    def __init__(
        self, keys: Sequence[LaneKey], counts: Sequence[int], events: EventColumns, rows: Rows
    ) -> None:
        """Take the keys of the lanes and the number of events of each."""
        super().__init__(events, rows)
        self.keys, self.counts = keys, counts

    def of_lanes(self, values: Sequence[int]) -> Int64:
        """Repeat one id per lane for each event of the lane."""
        if len(set(values)) == 1:
            return constant(values[0], len(self), np.int64)
        return np.repeat(np.array(values, np.int64), self.counts)

    def codes_of_lanes(self, values: Sequence[str]) -> Codes:
        """Repeat one string per lane for each event of the lane, as codes."""
        return self.of_lanes([self.strings.code(value) for value in values]).astype(np.int32)


def find_lanes(events: EventColumns, rows: Rows) -> dict[int, LaneKey]:
    """Return the lane keys of event rows by group, in order of first appearance."""
    groups, _ = distinct_as_met(events.group[rows])
    return {group: events.values.lane(group) for group in groups.tolist()}


def split_by_kind(
    kind_of: Callable[[LaneKey], _Kind],
    lanes: Mapping[int, LaneKey],
    events: EventColumns,
    rows: Rows,
) -> Iterator[tuple[_Kind, LaneEvents]]:
    """Split event rows by the kind of their lane; yield each kind with its events."""
    by_kind: dict[_Kind, dict[int, LaneKey]] = {}
    for group, key in lanes.items():
        by_kind.setdefault(kind_of(key), {})[group] = key
    ordered = list(chain.from_iterable(by_kind.values()))
    few = len(ordered) <= np.iinfo(np.int16).max  # NumPy sorts 16-bit integers in linear time
    number = np.zeros(max(lanes, default=0) + 1, np.int16 if few else np.int32)
    number[ordered] = np.arange(len(ordered))
    lane = number.take(events.group.take(rows))
    by_lane = rows.take(np.argsort(lane, kind="stable"))
    counts = np.bincount(lane, minlength=len(ordered)).tolist()
    first_lane = first_row = 0
    for kind, kind_lanes in by_kind.items():
        kind_counts = counts[first_lane : first_lane + len(kind_lanes)]
        kind_rows = by_lane[first_row : first_row + sum(kind_counts)]
        yield kind, LaneEvents(list(kind_lanes.values()), kind_counts, events, kind_rows)
        first_lane, first_row = first_lane + len(kind_lanes), first_row + len(kind_rows)


_Table = TypeVar("_Table", bound=Spans)


class LaneTable(Generic[_Table]):
    """A table built from batches of lane events, ordered by lane.

    In the finished table, lanes are in order of first appearance and rows of a lane in file order,
    whatever the size of the batches.
    """

    def __init__(self, kind: type[_Table]) -> None:
        self._builder = TableBuilder(kind)
        self._runs: defaultdict[LaneKey, list[tuple[int, int]]] = defaultdict(list)
        """First and end row of each batch of a lane."""

    def add(self, table: _Table, lanes: LaneEvents) -> None:
        """Append the rows of a batch, which are grouped by lane."""
        first = self._builder.rows
        for key, count in zip(lanes.keys, lanes.counts, strict=True):
            self._runs[key].append((first, first + count))
            first += count
        self._builder.add(table)

    def __contains__(self, key: LaneKey) -> bool:
        return key in self._runs

    def rows_of(self, key: LaneKey) -> Rows:
        """Return the rows of a lane in the finished table."""
        ((first, stop),) = self._runs[key]
        return np.arange(first, stop)

    def build(self) -> _Table:
        """Build the table, grouped by lane."""
        runs, order = list(chain.from_iterable(self._runs.values())), None
        if any(stop != first for (_, stop), (first, _) in pairwise(runs)):
            order = np.concatenate([np.arange(*run) for run in runs])
        table = self._builder.build(order)
        first = 0
        for key, lane_runs in self._runs.items():
            count = sum(stop - first for first, stop in lane_runs)
            self._runs[key] = [(first, first + count)]
            first += count
        return table
