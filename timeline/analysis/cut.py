"""Cut: the part of the records of a rank that a selection or a window asks for."""

from __future__ import annotations

import numpy as np

from timeline.analysis.recorded_steps import RecordedSteps, recorded_steps
from timeline.analysis.step_membership import NO_STEP, Membership, assign_steps
from timeline.analysis.step_trace import StepTrace, step_trace
from timeline.columns.columns import Bool, Int64, Rows
from timeline.columns.intervals import IntervalSet, union
from timeline.frozen import dataclass
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import Records
from timeline.selection import Selection

__all__ = ["Cut", "cut", "cut_steps", "cut_window", "device_span_ns", "host_span_ns"]


@dataclass(frozen=True)
class Cut:
    """Selected records, the step of each, and the runs of neighbouring selected steps.

    run: per step, the number of its run; steps of one run follow each other without an unselected
    step between them. Time between runs belongs to what was not selected. op_rows: per selected
    op, its row among those of the profile. op_iterations: per op of the profile, selected or not,
    the number of its step, NO_ID for none. recorded and trace: per step, what the recording holds
    of it, and what it consists of.
    """

    records: Records
    membership: Membership
    run: Int64
    op_rows: Rows
    op_iterations: Int64
    recorded: RecordedSteps
    trace: StepTrace


def cut(records: Records, selection: Selection) -> Cut:
    """Keep what the graphs and steps of a selection ask for.

    Without a choice of steps, records outside all steps are kept too. Host events are kept when
    they touch the time of what is selected; counters likewise.
    """
    membership = assign_steps(records)
    steps = records.steps
    in_graph = _among(steps.graph, selection.graphs) | steps.host
    chosen = in_graph & _among(steps.iteration, selection.steps)
    run = _runs(in_graph, chosen)
    recorded, trace = recorded_steps(steps, membership), step_trace(steps)
    # NO_STEP, which is -1, picks the NO_ID at the end.
    op_iterations = np.append(steps.iteration, NO_ID)[membership.ops]
    if selection.graphs is None and selection.steps is None:
        rows = np.arange(len(records.ops))
        return Cut(records, membership, run, rows, op_iterations, recorded, trace)
    tasks = _wanted(records.tasks.graph, membership.tasks, chosen, selection)
    ops = _wanted(records.ops.graph, membership.ops, chosen, selection)
    planes = _wanted(records.planes.graph, membership.planes, chosen, selection)
    touched = _touched(records, membership, chosen, tasks, ops)
    host = records.host
    kept = records.filter(
        tasks=tasks,
        ops=ops,
        planes=planes,
        steps=chosen,
        parts=_among(records.parts.graph, selection.graphs)
        & _among(records.parts.iteration, selection.steps),
        host=_touching(host.start_ns, host.end_ns, touched)
        & (_among(host.graph, selection.graphs) | (host.graph == NO_GRAPH)),
        samples=_touching(records.samples.time_ns, records.samples.time_ns, touched),
    )
    rows = np.flatnonzero(ops)
    recorded, trace = recorded.take(chosen), trace.take(chosen)
    return Cut(kept, assign_steps(kept), run[chosen], rows, op_iterations, recorded, trace)


def cut_steps(part: Cut, chosen: Bool) -> Cut:
    """Keep what belongs to some of the selected steps, a mask of them, as if only those were."""
    records, membership = part.records, part.membership
    tasks, ops, planes = (
        _in_steps(step, chosen) for step in (membership.tasks, membership.ops, membership.planes)
    )
    touched = _touched(records, membership, chosen, tasks, ops)
    host, times_ns = records.host, records.samples.time_ns
    kept = records.filter(
        tasks=tasks,
        ops=ops,
        planes=planes,
        steps=chosen,
        parts=np.isin(records.parts.iteration, records.steps.iteration[chosen]),
        host=_touching(host.start_ns, host.end_ns, touched),
        samples=_touching(times_ns, times_ns, touched),
    )
    # Of steps that were selected, those left out part a run in two.
    run = np.cumsum(~chosen)[chosen] + part.run[chosen] * (len(chosen) + 1)
    _, run = np.unique(run, return_inverse=True)
    return Cut(
        kept,
        assign_steps(kept),
        run.reshape(-1).astype(np.int64),
        part.op_rows[ops],
        part.op_iterations,
        part.recorded.take(chosen),
        part.trace.take(chosen),
    )


def _in_steps(step: Rows, chosen: Bool) -> Bool:
    # NO_STEP, which is -1, picks the one at the end.
    return np.append(chosen, [False])[step]


def _among(ids: Int64, wanted: frozenset[int] | None) -> Bool:
    if wanted is None:
        return np.ones(len(ids), np.bool_)
    return np.isin(ids, np.fromiter(wanted, np.int64))


def _wanted(graph: Int64, step: Int64, chosen: Bool, selection: Selection) -> Bool:
    wanted = _among(graph, selection.graphs)
    if selection.steps is not None:
        in_step = step != NO_STEP
        wanted &= in_step
        wanted[in_step] &= chosen[step[in_step]]
    return wanted


def _runs(in_graph: Bool, chosen: Bool) -> Int64:
    """Number the runs of chosen steps; steps of graphs that were not asked for do not part them."""
    run = np.zeros(len(chosen), np.int64)
    is_chosen = chosen[in_graph]
    starts = is_chosen & ~np.concatenate([[False], is_chosen[:-1]])
    run[in_graph] = np.cumsum(starts)
    return run


def _touched(
    records: Records, membership: Membership, chosen: Bool, tasks: Bool, ops: Bool
) -> IntervalSet:
    """The time of the selected steps, on host and device, and of the selected records."""
    starts, ends = [records.steps.start_ns[chosen]], [records.steps.end_ns[chosen]]
    on_device = chosen & (membership.device_start_ns != NO_TIME)
    starts.append(membership.device_start_ns[on_device])
    ends.append(membership.device_end_ns[on_device])
    if not chosen.any():
        for table, mask in ((records.tasks, tasks), (records.ops, ops)):
            starts.append(table.start_ns[mask])
            ends.append(table.end_ns[mask])
    return union(np.concatenate(starts), np.concatenate(ends))


def _touching(start_ns: Int64, end_ns: Int64, touched: IntervalSet) -> Bool:
    """Which intervals share a moment with any of the given ones."""
    at = np.searchsorted(touched.end_ns, start_ns, side="right")
    if not len(touched):
        return np.zeros(len(start_ns), np.bool_)
    nearest = np.minimum(at, len(touched) - 1)
    begins = touched.start_ns[nearest]
    return (at < len(touched)) & ((begins < end_ns) | (begins <= start_ns))


def device_span_ns(records: Records) -> tuple[int, int] | None:
    """First start and last end of tasks, communication ops and graph steps; None without any."""
    starts, ends = [], []
    graph_steps = records.steps.take(~records.steps.host)
    for table in (records.tasks, records.ops, graph_steps):
        if len(table):
            starts.append(int(table.start_ns.min()))
            ends.append(int(table.end_ns.max()))
    return (min(starts), max(ends)) if starts else None


def host_span_ns(records: Records) -> tuple[int, int] | None:
    """First start and last end of steps and calls of the host; None without any."""
    tables = [table for table in (records.steps, records.host) if len(table)]
    if not tables:
        return None
    starts_ns, ends_ns = ([getattr(one, name) for one in tables] for name in ("start_ns", "end_ns"))
    return min(int(one.min()) for one in starts_ns), max(int(one.max()) for one in ends_ns)


def cut_window(part: Cut, start_ns: int, end_ns: int) -> Cut:
    """Keep what lies at least partly in [start_ns, end_ns), whole."""
    window = IntervalSet(np.array([start_ns]), np.array([end_ns]))
    records = part.records
    steps = _touching(records.steps.start_ns, records.steps.end_ns, window)
    on_device = part.membership.device_start_ns != NO_TIME
    steps |= on_device & _touching(
        part.membership.device_start_ns, part.membership.device_end_ns, window
    )
    ops = _touching(records.ops.start_ns, records.ops.end_ns, window)
    kept = records.filter(
        tasks=_touching(records.tasks.start_ns, records.tasks.end_ns, window),
        ops=ops,
        planes=_touching(records.planes.start_ns, records.planes.end_ns, window),
        steps=steps,
        parts=_touching(records.parts.start_ns, records.parts.end_ns, window),
        host=_touching(records.host.start_ns, records.host.end_ns, window),
        samples=_touching(records.samples.time_ns, records.samples.time_ns, window),
    )
    rows, membership = part.op_rows[ops], assign_steps(kept)
    recorded = part.recorded.within(steps, membership, len(kept.steps))
    run, trace = part.run[steps], part.trace.take(steps)
    return Cut(kept, membership, run, rows, part.op_iterations, recorded, trace)
