"""What the lanes of an Ascend trace stand for: streams, planes, groups, threads of the host."""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from dataclasses import dataclass, field

from timeline.sources.common.decimals import whole_number
from timeline.sources.common.overlap_analysis import OVERLAP_PROCESS
from timeline.sources.common.trace_names import LaneNames
from timeline.sources.decoders.event_values import LaneKey
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
    """What the names of an Ascend trace tell of its lanes."""

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
        """These names, and others for what has none of these."""
        return AscendLanes(
            {**more.processes, **self.processes},
            {**more.threads, **self.threads},
            {**more.labels, **self.labels},
        )

    def known(self, key: LaneKey) -> bool:
        """Whether a lane has the names that decide what it is; host threads need none."""
        process = self.processes.get(key[0])
        by_thread = process in (HARDWARE, STEP_TRACE) or process in COMMUNICATION
        return process is not None and (key in self.threads or not by_thread)

    def meaning(self, key: LaneKey) -> LaneMeaning:
        """What is known of a lane so far."""
        process = self.process(key[0])
        group = self.group(key) if process in COMMUNICATION else ""
        return process, self.labels.get(key[0], ""), self.threads.get(key, ""), group

    def kind(self, key: LaneKey) -> LaneKind:
        """What the events of a lane are."""
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
        """The stream id of a hardware lane, or None where its name gives none."""
        match = _STREAM.fullmatch(self.threads.get(key, ""))
        return int(match[1]) if match else None

    def plane(self, key: LaneKey) -> int:
        """The plane number of a plane lane."""
        match = _PLANE.fullmatch(self.threads.get(key, ""))
        assert match is not None
        return int(match[1])

    def graph(self, key: LaneKey) -> int | None:
        """The graph id of a step-trace lane."""
        match = _MODEL.fullmatch(self.threads.get(key, ""))
        return int(match[1]) if match else None

    def group(self, key: LaneKey) -> str:
        """The communication group of a plane or op lane.

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
    """The lanes of one process that are no planes, by their place."""

    places: list[int]
    """Ascending."""
    names: dict[int, str]

    def of(self, place: int) -> str:
        """The name of the last one at or before a place, of the first where there is none."""
        return self.names[self.places[max(0, bisect_right(self.places, place) - 1)]]


def _order(tid: object) -> int:
    """Where a lane is among those of its process; one without a number is first."""
    return whole_number(tid) or 0
