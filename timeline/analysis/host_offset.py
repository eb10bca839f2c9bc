"""Host and device clock of one rank, fitted: nothing starts before the call that launched it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from timeline.analysis.idle.device_items import MOST_HOST_OFFSET_NS
from timeline.columns.columns import Bool, Int64
from timeline.layers import Layer
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_TIME
from timeline.records.tables import FlowEnd, Omission, OmissionCode, Records, Steps

__all__ = [
    "BACKWARDS_REASON",
    "EARLY_REASON",
    "drop_backward_arrows",
    "drop_early_arrows",
    "fit_host_clock",
]

BACKWARDS_REASON = "arrows to what began more than 1 ms before the call"
EARLY_REASON = (
    "records that start before their launch, unlike 99% of all: taken to be launched at their "
    "start, without an arrow"
)
MOST_EARLY = 100
"""One launch in so many, and always one, may start before its call: it moves no clock."""


def drop_backward_arrows(records: Records) -> Records:
    """Leave out, and count, arrows to what began too long before the call to be launched by it."""
    left = _without_arrows(records, MOST_HOST_OFFSET_NS)
    return _with_omission(left, BACKWARDS_REASON, len(records.flows) - len(left.flows))


def fit_host_clock(records: Records) -> Records:
    """Move host times back by as much as tasks start before their launch, by at most 1 ms.

    Host times are those of host events, the windows of host steps, and when something was launched;
    times of the device stay. What starts earlier than that was not launched by the call. A single
    odd record must not move all others, so of each kind of launch one percent, and always one, may
    still start early: those count as launched when they start, and their arrows are not drawn.
    """
    early_ns = max((_most_early_ns(found) for found in _earliness(records)), default=0)
    if early_ns > 0:
        back = ClockMove(-early_ns)
        records = replace(
            records,
            host=records.host.moved(back),
            allocations=records.allocations.moved(back),
            steps=_moved_host_steps(records.steps, back),
            tasks=replace(records.tasks, launch_ns=back.of(records.tasks.launch_ns)),
            ops=replace(records.ops, launch_ns=back.of(records.ops.launch_ns)),
            planes=replace(records.planes, launch_ns=back.of(records.planes.launch_ns)),
            host_offset_ns=-early_ns,
        )
    arrows = int(np.count_nonzero(_leads(records)[1] > 0))
    clipped, launches = _clipped(records)
    return _with_omission(clipped, EARLY_REASON, max(arrows, launches))


def drop_early_arrows(records: Records) -> Records:
    """Leave out the arrows to the few that start before their launch on fitted clocks."""
    if all(one.reason != EARLY_REASON for one in records.omissions):
        return records
    return _without_arrows(records, 0)


def _most_early_ns(early_ns: Int64) -> int:
    """How much earlier than launched things start, but for the few that may."""
    possible = early_ns[early_ns <= MOST_HOST_OFFSET_NS]
    left = max(len(possible) // MOST_EARLY, 1)
    if len(possible) <= left:
        return 0
    return max(int(np.partition(possible, -left - 1)[-left - 1]), 0)


def _clipped(records: Records) -> tuple[Records, int]:
    """Let what still starts before its launch be launched when it starts; count those.

    What starts earlier by more than clocks may differ was not launched by the call.
    """
    changed, count = {}, 0
    for name in ("tasks", "ops", "planes"):
        table = getattr(records, name)
        early_ns = table.launch_ns - table.start_ns
        limit_ns = MOST_HOST_OFFSET_NS + records.host_offset_ns
        early = (table.launch_ns != NO_TIME) & (early_ns > 0) & (early_ns <= limit_ns)
        if early.any():
            launch_ns = np.where(early, table.start_ns, table.launch_ns)
            changed[name] = replace(table, launch_ns=launch_ns)
            count += int(np.count_nonzero(early))
    return (replace(records, **changed) if changed else records), count


def _without_arrows(records: Records, most_early_ns: int) -> Records:
    """Return the records without arrows to what starts earlier than its call by more."""
    leads, early_ns = _leads(records)
    early = leads[early_ns > most_early_ns]
    if not len(early):
        return records
    stays = np.ones(len(records.flows), np.bool_)
    stays[early] = False
    return replace(records, flows=records.flows.take(stays))


def _with_omission(records: Records, reason: str, rows: int) -> Records:
    if not rows:
        return records
    layers = frozenset({Layer.ARROWS})
    code = OmissionCode.ARROW_BACKWARDS
    lost = Omission(reason, rows, records.rank, code=code, layers=layers)
    return replace(records, omissions=(*records.omissions, lost))


def _earliness(records: Records) -> Iterator[Int64]:
    """How much earlier things start than they were launched, by arrows and by launch times."""
    yield _leads(records)[1]
    for table in (records.tasks, records.ops, records.planes):
        known = table.launch_ns != NO_TIME
        yield table.launch_ns[known] - table.start_ns[known]


def _leads(records: Records) -> tuple[Int64, Int64]:
    """Arrows from calls to the device, and how much earlier than its call each target starts."""
    flows, host = records.flows, records.host
    from_host: Bool = flows.source_kind == FlowEnd.HOST
    found, early_ns = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for kind, table in (
        (FlowEnd.TASK, records.tasks),
        (FlowEnd.OP, records.ops),
        (FlowEnd.PLANE, records.planes),
    ):
        rows = np.flatnonzero(from_host & (flows.target_kind == kind))
        found.append(rows)
        early_ns.append(
            host.start_ns[flows.source_row[rows]] - table.start_ns[flows.target_row[rows]]
        )
    return np.concatenate(found), np.concatenate(early_ns)


def _moved_host_steps(steps: Steps, move: ClockMove) -> Steps:
    """The steps, of which those that are marked on the host are moved."""
    if not steps.host.any():
        return steps
    moved = steps.moved(move).columns()
    columns = steps.columns()
    return Steps(**{name: np.where(steps.host, moved[name], columns[name]) for name in columns})
