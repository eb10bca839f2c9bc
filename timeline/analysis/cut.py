"""Cut: the part of a rank's records within a selection or a window."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.steps import (
    Membership,
    RecordedSteps,
    StepTrace,
    assign_steps,
    recorded_steps,
    step_trace,
)
from timeline.columns.columns import Bool, Int64, Rows
from timeline.columns.intervals import IntervalSet, are_touching, union
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import Records
from timeline.selection import Selection


@dataclass(frozen=True)
class Cut:
    """Selected records and the step of each.

    around: records of all steps within the selected graphs and window: device work of several steps
    may overlap, so the time of a step is measured among all. op_rows: per selected op, its row
    among those of the profile. op_iterations: per op of the profile, selected or not, the number of
    its step, NO_ID for none. recorded and trace: per step, the extent of its recording, and its
    components. host_rows: per selected host event, its row among those of the profile.
    """

    records: Records
    membership: Membership
    around: Records
    op_rows: Rows
    op_iterations: Int64
    recorded: RecordedSteps
    trace: StepTrace
    host_rows: Rows

    @property
    def every_step(self) -> bool:
        """Return whether no choice of steps left out a step."""
        return self.records is self.around


def cut(records: Records, selection: Selection) -> Cut:
    """Keep the records of the graphs and steps of a selection.

    Without a choice of steps, records outside all steps are kept too. Host events and counter
    samples are kept if they touch the time of the selection.
    """
    membership, steps = assign_steps(records), records.steps
    chosen = _among(steps.graph, selection.graphs) | steps.host
    # NO_STEP is -1, so it selects the appended NO_ID.
    op_iterations = np.append(steps.iteration, NO_ID)[membership.ops]
    part = Cut(
        records,
        membership,
        records,
        np.arange(len(records.ops)),
        op_iterations,
        recorded_steps(steps, membership),
        step_trace(steps),
        np.arange(len(records.host)),
    )
    graphs = selection.graphs
    if graphs is not None:
        tasks, ops, planes, parts = (
            _among(table.graph, graphs)
            for table in (records.tasks, records.ops, records.planes, records.parts)
        )
        own = _among(records.host.graph, graphs) | (records.host.graph == NO_GRAPH)
        part = _cut_to(part, chosen, (tasks, ops, planes, parts), own)
        part = replace(part, around=part.records)
    if selection.steps is not None:
        part = cut_steps(part, _among(part.records.steps.iteration, selection.steps))
    return part


def cut_steps(part: Cut, chosen: Bool) -> Cut:
    """Keep the records of some of the selected steps, given as a mask."""
    records, membership = part.records, part.membership
    tasks, ops, planes = (
        # NO_STEP is -1, so it selects the appended False.
        np.append(chosen, [False])[step]
        for step in (membership.tasks, membership.ops, membership.planes)
    )
    parts = np.isin(records.parts.iteration, records.steps.iteration[chosen])
    every = np.ones(len(records.host), np.bool_)
    return _cut_to(part, chosen, (tasks, ops, planes, parts), every)


def _cut_to(part: Cut, steps: Bool, masks: tuple[Bool, Bool, Bool, Bool], host: Bool) -> Cut:
    """Keep the masked steps and records, and host events and samples that touch their time.

    masks: of tasks, ops, tasks of planes and parts of steps. host: mask of host events to consider.
    """
    records = part.records
    tasks, ops, planes, parts = masks
    touched, times_ns = _touched(part, steps, tasks, ops), records.samples.time_ns
    host &= are_touching(records.host.start_ns, records.host.end_ns, touched)
    kept = records.filter(
        tasks=tasks,
        ops=ops,
        planes=planes,
        steps=steps,
        parts=parts,
        host=host,
        samples=are_touching(times_ns, times_ns, touched),
    )
    return _taken(part, kept, steps, ops, host)


def _taken(part: Cut, kept: Records, steps: Bool, ops: Bool, host: Bool) -> Cut:
    """Return a cut of the kept records, of which `steps`, `ops` and `host` are masks."""
    return replace(
        part,
        records=kept,
        membership=assign_steps(kept),
        op_rows=part.op_rows[ops],
        recorded=part.recorded.take(steps),
        trace=part.trace.take(steps),
        host_rows=part.host_rows[host],
    )


def _among(ids: Int64, wanted: frozenset[int] | None) -> Bool:
    if wanted is None:
        return np.ones(len(ids), np.bool_)
    return np.isin(ids, np.fromiter(wanted, np.int64))


def _touched(part: Cut, chosen: Bool, tasks: Bool, ops: Bool) -> IntervalSet:
    """Return the time of the chosen steps on host and device, or of the records without steps."""
    records, membership = part.records, part.membership
    starts, ends = [records.steps.start_ns[chosen]], [records.steps.end_ns[chosen]]
    on_device = chosen & (membership.device_start_ns != NO_TIME)
    starts.append(membership.device_start_ns[on_device])
    ends.append(membership.device_end_ns[on_device])
    if not chosen.any():
        for table, mask in ((records.tasks, tasks), (records.ops, ops)):
            starts.append(table.start_ns[mask])
            ends.append(table.end_ns[mask])
    return union(np.concatenate(starts), np.concatenate(ends))


def device_span_ns(records: Records) -> tuple[int, int] | None:
    """Return first start and last end of tasks, ops and graph steps; None without any."""
    starts, ends = [], []
    graph_steps = records.steps.take(~records.steps.host)
    for table in (records.tasks, records.ops, graph_steps):
        if len(table):
            starts.append(int(table.start_ns.min()))
            ends.append(int(table.end_ns.max()))
    return (min(starts), max(ends)) if starts else None


def host_span_ns(records: Records) -> tuple[int, int] | None:
    """Return first start and last end of steps and calls of the host; None without any."""
    tables = [table for table in (records.steps, records.host) if len(table)]
    if not tables:
        return None
    starts_ns, ends_ns = ([getattr(one, name) for one in tables] for name in ("start_ns", "end_ns"))
    return min(int(one.min()) for one in starts_ns), max(int(one.max()) for one in ends_ns)


def cut_window(part: Cut, start_ns: int, end_ns: int) -> Cut:
    """Keep whole all records that lie at least partly in [start_ns, end_ns)."""
    window = IntervalSet(np.array([start_ns]), np.array([end_ns]))
    records, membership = part.records, part.membership
    steps = are_touching(records.steps.start_ns, records.steps.end_ns, window)
    on_device = membership.device_start_ns != NO_TIME
    steps |= on_device & are_touching(membership.device_start_ns, membership.device_end_ns, window)
    ops = are_touching(records.ops.start_ns, records.ops.end_ns, window)
    host = are_touching(records.host.start_ns, records.host.end_ns, window)
    kept = _touching_records(records, steps, window)
    taken = _taken(part, kept, steps, ops, host)
    every = np.ones(len(part.around.steps), np.bool_)
    return replace(
        taken,
        around=kept if part.every_step else _touching_records(part.around, every, window),
        recorded=part.recorded.within(steps, taken.membership, start_ns, end_ns),
    )


def _touching_records(records: Records, steps: Bool, window: IntervalSet) -> Records:
    return records.filter(
        steps=steps,
        samples=are_touching(records.samples.time_ns, records.samples.time_ns, window),
        **{
            name: are_touching(table.start_ns, table.end_ns, window)
            for name, table in (
                ("tasks", records.tasks),
                ("ops", records.ops),
                ("planes", records.planes),
                ("parts", records.parts),
                ("host", records.host),
            )
        },
    )
