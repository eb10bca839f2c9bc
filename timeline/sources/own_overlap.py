"""Turns the Overlap Analysis that a trace holds of itself into the rule of its free time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from timeline.records.columns import Int64
from timeline.records.counting import FreeRule
from timeline.records.tables import NO_TIME
from timeline.sources.lane_events import LaneEvents

__all__ = ["OwnOverlap"]

_FREE, _BUSY = "Free", ("Computing", "Communication")


@dataclass
class _Extent:
    """First start and last end of some events, None without any."""

    start_ns: int | None = None
    end_ns: int | None = None

    def add(self, start_ns: Int64, end_ns: Int64) -> None:
        if not len(start_ns):
            return
        first, last = int(start_ns.min()), int(end_ns.max())
        self.start_ns = first if self.start_ns is None else min(self.start_ns, first)
        self.end_ns = last if self.end_ns is None else max(self.end_ns, last)


@dataclass
class OwnOverlap:
    """When the overlap events of a trace begin and end; the events themselves are not kept."""

    free: _Extent = field(default_factory=_Extent)
    busy: _Extent = field(default_factory=_Extent)

    def add(self, lanes: LaneEvents) -> None:
        """Take in the events of overlap lanes."""
        spans, names = lanes.spans(), lanes.names()
        start_ns, end_ns = spans["start_ns"], spans["end_ns"]
        timed = (start_ns != NO_TIME) & (end_ns >= start_ns)
        for extent, called in ((self.free, (_FREE,)), (self.busy, _BUSY)):
            own = timed & np.isin(names, [lanes.strings.code(name) for name in called])
            extent.add(start_ns[own], end_ns[own])

    def rule(self, where: str) -> FreeRule:
        """The outer rule where free time lies before or after all else, and else the inner one.

        where: the file, for the evidence.
        """
        busy, free = self.busy, self.free
        if busy.start_ns is None or busy.end_ns is None:
            return FreeRule()
        before_ns = after_ns = None
        if free.start_ns is not None and free.start_ns < busy.start_ns:
            before_ns = free.start_ns
        if free.end_ns is not None and free.end_ns > busy.end_ns:
            after_ns = free.end_ns
        outer = before_ns is not None or after_ns is not None
        return FreeRule(f"Overlap Analysis of {where}", outer, before_ns, after_ns)
