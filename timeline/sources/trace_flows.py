"""Turns the flow events of a trace into arrows between rows, and into the launch time of tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from timeline.records.columns import Int64
from timeline.records.nesting import innermost
from timeline.records.strings import StringPool
from timeline.records.tables import FlowEnd, Flows
from timeline.sources.json_events import Event
from timeline.sources.microseconds import moments_ns
from timeline.sources.trace_lanes import LaneKey

__all__ = ["LaneRows", "ResolvedFlows", "resolve_flows"]

LAUNCH = frozenset({"HostToDevice", "async_npu"})
"""Categories whose start is the moment a task was launched on the host, best first."""


@dataclass(frozen=True)
class LaneRows:
    """Where the events of one lane went: a run of rows in one table."""

    kind: FlowEnd
    first: int
    start_ns: Int64
    end_ns: Int64


@dataclass(frozen=True)
class ResolvedFlows:
    """Arrows, the launch time per (kind, row), and how many arrows lack an end."""

    flows: Flows
    launches: list[tuple[FlowEnd, int, int]]
    half: int


def resolve_flows(
    events: Sequence[Event], lanes: dict[LaneKey, LaneRows], strings: StringPool
) -> ResolvedFlows:
    """Pair flow events by category and id, and bind both ends to the rows they lie in.

    Ids are opaque text: they exceed 2**64, and one may be used again. A start binds to the
    innermost call open at its moment; an end to the row that starts at it.
    """
    times_ns = moments_ns([event.ts for event in events])
    rows = _bind(events, times_ns, lanes)
    columns: dict[str, list[int]] = defaultdict(list)
    launches: list[tuple[FlowEnd, int, int]] = []
    half = 0
    for category, start, end in _pairs(events):
        target = rows[end] if end is not None else None
        source = rows[start] if start is not None else None
        if target is not None and start is not None and category in LAUNCH:
            launches.append((target[0], target[1], int(times_ns[start])))
        if source is None or target is None:
            half += 1
            continue
        columns["category"].append(strings.code(category))
        columns["source_kind"].append(source[0])
        columns["source_row"].append(source[1])
        columns["target_kind"].append(target[0])
        columns["target_row"].append(target[1])
    if not columns:
        return ResolvedFlows(Flows.empty(), launches, half)
    return ResolvedFlows(Flows.of(len(columns["category"]), columns), launches, half)


def _pairs(events: Sequence[Event]) -> Iterator[tuple[str, int | None, int | None]]:
    """(category, position of the start, position of an end); one start may have several ends."""
    starts: dict[tuple[str, bytes], list[int]] = defaultdict(list)
    ends: dict[tuple[str, bytes], list[int]] = defaultdict(list)
    for position, event in enumerate(events):
        side = starts if event.ph == "s" else ends
        side[event.cat, bytes(event.id).strip(b'"')].append(position)
    for key in dict.fromkeys([*starts, *ends]):
        first, last = starts.get(key, []), ends.get(key, [])
        for number in range(max(len(first), len(last))):
            start = first[min(number, len(first) - 1)] if first else None
            end = last[number] if number < len(last) else None
            yield key[0], start, end


def _bind(
    events: Sequence[Event], times_ns: Int64, lanes: dict[LaneKey, LaneRows]
) -> list[tuple[FlowEnd, int] | None]:
    by_lane: dict[LaneKey, list[int]] = defaultdict(list)
    for position, event in enumerate(events):
        by_lane[event.pid, event.tid].append(position)
    bound: list[tuple[FlowEnd, int] | None] = [None] * len(events)
    for key, positions in by_lane.items():
        lane = lanes.get(key)
        if lane is None:
            continue
        moments = times_ns[positions]
        found = _starting_at(lane, moments)
        if lane.kind is FlowEnd.HOST:
            is_end = np.array([events[position].ph != "s" for position in positions])
            open_rows = innermost(lane.start_ns, lane.end_ns, moments)
            found = np.where(is_end & (found >= 0), found, open_rows)
        for position, row in zip(positions, found.tolist(), strict=True):
            if row >= 0:
                bound[position] = (lane.kind, lane.first + row)
    return bound


def _starting_at(lane: LaneRows, moments_ns_: Int64) -> Int64:
    """The row that starts at each moment, -1 for none."""
    if not len(lane.start_ns):
        return np.full(len(moments_ns_), -1, np.int64)
    order = np.argsort(lane.start_ns, kind="stable")
    ordered = lane.start_ns[order]
    at = np.minimum(np.searchsorted(ordered, moments_ns_), len(ordered) - 1)
    return np.where(ordered[at] == moments_ns_, order[at], -1)
