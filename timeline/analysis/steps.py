"""Steps: as marked or derived, the records, period and components of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from timeline.columns.chunks import chunks, compute_in_chunks
from timeline.columns.columns import Bool, ColumnTable, Int64, Rows, ascending, column, sort_rows
from timeline.columns.distinct import NO_ROWS, distinct, distinct_pairs, rows_by_value
from timeline.columns.intervals import open_at, open_at_by_key
from timeline.columns.strings import StringPool
from timeline.options import StepOperators
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, PlaneTasks, Records, Steps, Tasks

_GET_NEXT = ("getnext", "initdataset", "get_next", "dequeue")
_ALL_REDUCE = ("allreduce", "all_reduce")
_GRADIENTS = "Gradients/"
"""Scope of the operators of the backward pass."""


def with_steps(records: Records, operators: StepOperators) -> Records:
    """Return the records with steps for every graph, ordered by start.

    A graph without markers gets steps derived from its tasks as documented by MindSpore: an
    iteration begins at each get_next (or at each run of the named FP operator), forward starts at
    the first task after get_next, and backward ends with the task before the last AllReduce.
    Records with host steps keep those: they cover all graphs.
    """
    steps = [records.steps, _named_by_source(records)]
    if not records.steps.host.any():
        marked = set(records.steps.graph.tolist()) | set(steps[1].graph.tolist())
        steps += _derive_all(records, marked, operators)
    every = Steps.concat(steps)
    every = every.take(np.lexsort((every.iteration, every.graph, every.start_ns)))
    parts = records.parts
    return replace(
        records, steps=every, parts=parts.take(np.argsort(parts.start_ns, kind="stable"))
    )


def _named_by_source(records: Records) -> Steps:
    """Return steps known only from the iteration ids of tasks (without a step trace)."""
    tasks = records.tasks
    numbered = tasks.iteration != NO_ID
    known = set(zip(records.steps.graph.tolist(), records.steps.iteration.tolist(), strict=True))
    if not numbered.any():
        return Steps.empty()
    pairs, which = distinct_pairs(tasks.graph[numbered], tasks.iteration[numbered])
    start_ns = np.full(len(pairs), np.iinfo(np.int64).max)
    end_ns = np.full(len(pairs), np.iinfo(np.int64).min)
    np.minimum.at(start_ns, which, tasks.start_ns[numbered])
    np.maximum.at(end_ns, which, tasks.end_ns[numbered])
    new = np.array([pair not in known for pair in map(tuple, pairs.tolist())], np.bool_)
    return Steps.of(
        int(new.sum()),
        {
            "start_ns": start_ns[new],
            "end_ns": end_ns[new],
            "graph": pairs[new, 0],
            "iteration": pairs[new, 1],
        },
    )


@dataclass(frozen=True)
class _Marked:
    """Marks of steps in the names of tasks (n,) and ops (m,).

    heads: whether a step may begin with the task; of several get_next in a row the first counts.
    backward: whether it may be the last of the backward; reduces: whether the op is an AllReduce.
    """

    heads: Bool
    backward: Bool
    reduces: Bool

    @classmethod
    def of(cls, records: Records, operators: StepOperators) -> _Marked:
        tasks, strings = records.tasks, records.strings
        if operators.fp_start:
            heads = _is_operator(tasks, strings, operators.fp_start)
        else:
            fetching = strings.codes_with(_GET_NEXT)
            heads = np.isin(tasks.name, fetching) | np.isin(tasks.op_type, fetching)
        if operators.bp_end:
            backward = _is_operator(tasks, strings, operators.bp_end)
        else:
            backward = np.isin(tasks.name, strings.codes_with((_GRADIENTS.lower(),)))
        reduces = np.isin(records.ops.name, strings.codes_with(_ALL_REDUCE))
        return cls(heads, backward, reduces)


def _derive_all(records: Records, marked: set[int], operators: StepOperators) -> Iterator[Steps]:
    graphs = [graph for graph in distinct(records.tasks.graph).tolist() if graph not in marked]
    if not graphs:
        return
    wanted, marks = np.array(graphs, np.int64), _Marked.of(records, operators)
    reduces_of = dict(rows_by_value(records.ops.graph, wanted))
    for graph, rows in rows_by_value(records.tasks.graph, wanted):
        ordered = rows[np.argsort(records.tasks.start_ns[rows], kind="stable")]
        graph_ops = reduces_of.get(graph, NO_ROWS)
        reduces = records.ops.take(graph_ops[marks.reduces[graph_ops]])
        yield _derive(records.tasks.take(ordered), reduces, marks, ordered, operators)


def _derive(
    tasks: Tasks, reduces: CommunicationOps, marks: _Marked, rows: Rows, operators: StepOperators
) -> Steps:
    """Return the steps of one graph.

    Tasks are in order of start; `rows` are their rows in the marks.
    """
    named = marks.heads[rows]
    first = np.flatnonzero(named) if operators.fp_start else _runs(named)
    if not len(first):
        return Steps.empty()
    stop = np.append(first[1:], len(tasks))
    start_ns = tasks.start_ns[first]
    end_ns = np.maximum.reduceat(tasks.end_ns, first)
    computes = np.flatnonzero(tasks.compute)
    fp_start_ns = start_ns
    if not operators.fp_start:
        at = np.append(computes, len(tasks))[np.searchsorted(computes, first, side="right")]
        fp_start_ns = np.where(at < stop, np.append(tasks.start_ns, NO_TIME)[at], NO_TIME)
    step = np.searchsorted(start_ns, reduces.start_ns, side="right") - 1
    inside = step >= 0
    np.maximum.at(end_ns, step[inside], reduces.end_ns[inside])
    last_reduce_ns = np.full(len(first), NO_TIME)
    np.maximum.at(last_reduce_ns, step[inside], reduces.start_ns[inside])
    bp_end_ns = _last_end_ns(tasks, np.flatnonzero(marks.backward[rows]), first, stop)
    if not operators.bp_end:
        until = np.minimum(np.searchsorted(tasks.start_ns, last_reduce_ns), stop)
        before_ns = _last_end_ns(tasks, computes, first, until)
        bp_end_ns = np.where(last_reduce_ns == NO_TIME, bp_end_ns, before_ns)
    return Steps.of(
        len(first),
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "fp_start_ns": fp_start_ns,
            "bp_end_ns": bp_end_ns,
            "graph": np.full(len(first), tasks.graph[0]),
            "iteration": np.arange(1, len(first) + 1),
        },
    )


def _last_end_ns(tasks: Tasks, rows: Rows, first: Rows, stop: Rows) -> Int64:
    """Return the end of the last of some ascending rows in each range [first, stop), or NO_TIME."""
    at = np.searchsorted(rows, stop) - 1
    last = np.append(rows, -1)[at]
    return np.where(last >= first, np.append(tasks.end_ns, NO_TIME)[last], NO_TIME)


def _is_operator(tasks: Tasks, strings: StringPool, name: str) -> Bool:
    """Return a mask of tasks of the operator, by its full name or by its last part."""
    codes = strings.codes_where(
        string == name or string.rpartition("/")[2] == name for string in strings
    )
    return np.isin(tasks.name, codes)


def _runs(marked: Bool) -> Int64:
    """Return the first of each run of marked rows: one get_next may be several tasks."""
    before = np.concatenate([[False], marked[:-1]])
    return np.flatnonzero(marked & ~before)


NO_STEP = -1
"""Step of a record outside all steps."""


@dataclass(frozen=True)
class Membership:
    """Row of Steps that each record belongs to, NO_STEP for none.

    tasks, ops and planes are as long as those tables; device_start_ns and device_end_ns are, per
    step, the first start and last end of its tasks and ops on the device (NO_TIME for a step
    without any); if tasks are not recorded, they include the marks of forward start and step end.
    """

    tasks: Rows
    ops: Rows
    planes: Rows
    device_start_ns: Int64
    device_end_ns: Int64


def assign_steps(records: Records) -> Membership:
    """Assign every device record to at most one step.

    In this order: by graph and iteration if the source names the iteration; by the graph's own step
    that contains the start; by the host step that contains the launch. A record with an unknown
    launch belongs to the host step whose device work began last before it starts, as long as that
    step continues. HCCL tasks follow their op.
    """
    known_steps = _KnownSteps.of(records.steps)
    tasks, ops = _of_table(records.tasks, known_steps), _of_table(records.ops, known_steps)
    windows = _host_windows(records, tasks, ops)
    tasks = _by_window(records.tasks, tasks, windows)
    ops = _by_window(records.ops, ops, windows)
    start_ns, end_ns = _device_spans(records, tasks, ops)
    if not records.free_is_known:
        marked = (start_ns != NO_TIME) & (records.steps.fp_start_ns != NO_TIME)
        start_ns = np.where(marked, np.minimum(start_ns, records.steps.fp_start_ns), start_ns)
        end_ns = np.where(marked, np.maximum(end_ns, records.steps.end_ns), end_ns)
    planes = _steps_of_planes(records, ops, known_steps, windows)
    return Membership(tasks, ops, planes, start_ns, end_ns)


def _of_table(table: Tasks | CommunicationOps | PlaneTasks, known: _KnownSteps) -> Rows:
    if not len(known.steps):
        return np.full(len(table), NO_STEP, np.intp)
    return compute_in_chunks(np.intp, lambda rows: _of_rows(rows, known), table)


def _of_rows(table: Tasks | CommunicationOps | PlaneTasks, known: _KnownSteps) -> Rows:
    step = np.full(len(table), NO_STEP, np.intp)
    is_open = table.iteration == NO_ID
    if not is_open.all():
        named = ~is_open
        step[named] = known.by_iteration(table.graph[named], table.iteration[named])
    marked = known.on_device
    if len(marked.rows):
        rows = np.flatnonzero(is_open)
        at = open_at_by_key(
            table.graph[rows],
            table.start_ns[rows],
            known.steps.graph[marked.rows],
            marked.start_ns,
            marked.end_ns,
        )
        step[rows] = np.append(marked.rows, NO_STEP)[at]
        is_open &= step == NO_STEP
    if len(known.on_host.rows):
        is_open &= table.launch_ns != NO_TIME
        step[is_open] = known.on_host.steps_at(table.launch_ns[is_open])
    return step


@dataclass(frozen=True)
class _KnownSteps:
    """Steps by graph and iteration, those marked on the host, and the others."""

    steps: Steps
    on_device: _Windows
    on_host: _Windows

    @classmethod
    def of(cls, steps: Steps) -> _KnownSteps:
        return cls(steps, _Windows.of(steps, ~steps.host), _Windows.of(steps, steps.host))

    @cached_property
    def row_of(self) -> Mapping[tuple[int, int], int]:
        """Return the row of each graph and iteration, which not every source names."""
        keys = zip(self.steps.graph.tolist(), self.steps.iteration.tolist(), strict=True)
        return {key: row for row, key in enumerate(keys)}

    def by_iteration(self, graph: Int64, iteration: Int64) -> Rows:
        """Return the step of each graph and iteration, NO_STEP for none."""
        pairs, which = distinct_pairs(graph, iteration)
        keys = map(tuple, pairs.tolist())
        return np.array([self.row_of.get(key, NO_STEP) for key in keys], np.intp)[which]


@dataclass(frozen=True)
class _Windows:
    """Half-open intervals, (k,) each, in which records belong to steps; rows are those of Steps."""

    rows: Rows
    start_ns: Int64
    end_ns: Int64

    @classmethod
    def of(cls, steps: Steps, some: Bool) -> _Windows:
        rows = np.flatnonzero(some)
        return cls(rows, steps.start_ns[rows], steps.end_ns[rows])

    def steps_at(self, times_ns: Int64) -> Rows:
        """Return the step whose window began last at each timestamp, NO_STEP if it is over."""
        at = open_at(times_ns, self.start_ns, self.end_ns)
        steps: Rows = np.append(self.rows, NO_STEP)[at]
        return steps


def _host_windows(records: Records, tasks: Rows, ops: Rows) -> _Windows:
    """Return the device windows of host steps, by torch_npu's rule.

    Each lasts from the first start on the device, or else on the host, to the last end of both.
    """
    steps = records.steps
    rows = np.flatnonzero(steps.host)
    first_ns, last_ns = _device_spans(records, tasks, ops)
    known = first_ns[rows] != NO_TIME
    start_ns = np.where(known, first_ns[rows], steps.start_ns[rows])
    end_ns = np.where(known, np.maximum(last_ns[rows], steps.end_ns[rows]), steps.end_ns[rows])
    return _Windows(rows, start_ns, end_ns)


def _by_window(table: Tasks | CommunicationOps, step: Rows, windows: _Windows) -> Rows:
    if not len(windows.rows):
        return step
    rows = np.flatnonzero(
        (step == NO_STEP) & (table.launch_ns == NO_TIME) & (table.iteration == NO_ID)
    )
    if not len(rows):
        return step
    step = step.copy()
    step[rows] = windows.steps_at(table.start_ns[rows])
    return step


def _device_spans(records: Records, tasks: Rows, ops: Rows) -> tuple[Int64, Int64]:
    """Return first start and last end of the tasks and ops of each step, NO_TIME for none."""
    count = len(records.steps)
    never, latest = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    # The last element collects the records of NO_STEP, which is -1.
    start_ns, end_ns = np.full(count + 1, never), np.full(count + 1, latest)
    for table, step in ((records.tasks, tasks), (records.ops, ops)):
        for chunk in chunks(len(table)):
            np.minimum.at(start_ns, step[chunk], table.start_ns[chunk])
            np.maximum.at(end_ns, step[chunk], table.end_ns[chunk])
    start_ns[start_ns == never] = NO_TIME
    return start_ns[:-1], end_ns[:-1]


def _steps_of_planes(records: Records, ops: Rows, known: _KnownSteps, windows: _Windows) -> Rows:
    planes = records.planes
    step = _of_table(planes, known).copy()
    without = np.flatnonzero(planes.iteration == NO_ID)
    at = ops_of_planes(records, without)
    step[without[at >= 0]] = ops[at[at >= 0]]
    rest = np.flatnonzero((step == NO_STEP) & (planes.launch_ns == NO_TIME))
    if len(windows.rows) and not len(records.ops):
        step[rest] = windows.steps_at(planes.start_ns[rest])
    return step


def ops_of_planes(records: Records, rows: Rows) -> Rows:
    """Return the op of its group during which each of some HCCL tasks begins, -1 for none."""
    planes, ops = records.planes, records.ops
    # A task may begin in the same nanosecond in which its op ends.
    return open_at_by_key(
        planes.group[rows], planes.start_ns[rows], ops.group, ops.start_ns, ops.end_ns + 1
    )


WHOLE = 0.95
"""Minimum share of device records, relative to previous steps, for the last step of a graph to be
complete; tasks of one graph vary less than the loss at the end of a recording.
"""


class RecordedSteps(ColumnTable):
    """Extent of the recording of steps, one row per step.

    begin_ns, end_ns: its period, see `step_periods`. tasks, ops: number of device tasks of any
    kind, and of communication ops, see `assign_steps`. first: whether it is the first of its graph
    with device records in the whole recording, selected or not. cut: whether the end of the
    recording, or a window, leaves out a part of its device records.
    """

    begin_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)
    tasks: Int64 = column(np.int64)
    ops: Int64 = column(np.int64)
    first: Bool = column(np.bool_)
    cut: Bool = column(np.bool_)

    def on_device(self, membership: Membership) -> tuple[Int64, Int64]:
        """Return when the device works on the launches of each step, within its period.

        NO_TIME for a step without device work.
        """
        start_ns, end_ns = membership.device_start_ns, membership.device_end_ns
        known = start_ns != NO_TIME
        start_ns, end_ns = (
            np.clip(at_ns, self.begin_ns, self.end_ns) for at_ns in (start_ns, end_ns)
        )
        return np.where(known, start_ns, NO_TIME), np.where(known, end_ns, NO_TIME)

    def within(
        self, rows: Rows | Bool, membership: Membership, start_ns: int, end_ns: int
    ) -> RecordedSteps:
        """Return some steps within a window [start_ns, end_ns), given what remains of them."""
        kept = self.take(rows)
        tasks, ops = _counted(membership, len(kept))
        less = (tasks < kept.tasks) | (ops < kept.ops)
        begin_ns, stop_ns = (
            np.clip(times_ns, start_ns, end_ns) for times_ns in (kept.begin_ns, kept.end_ns)
        )
        return RecordedSteps(begin_ns, stop_ns, tasks, ops, kept.first, kept.cut | less)

    def moved(self, move: ClockMove) -> RecordedSteps:
        """Return the steps on another clock."""
        return replace(self, begin_ns=move.of(self.begin_ns), end_ns=move.of(self.end_ns))


def recorded_steps(steps: Steps, membership: Membership) -> RecordedSteps:
    """Return the extent of each step in the whole recording of a rank, in order of start."""
    tasks, ops = _counted(membership, len(steps))
    first, cut = np.zeros((2, len(steps)), np.bool_)
    is_there = tasks > 0 if tasks.any() else ops > 0
    there = np.flatnonzero(is_there)
    for _, at in rows_by_value(steps.graph[there]):
        rows = there[at]
        first[rows[0]] = True
        cut[rows[-1]] = any(_lacks_records(counts[rows]) for counts in (tasks, ops))
    return RecordedSteps(*step_periods(steps, membership), tasks, ops, first, cut)


def step_periods(steps: Steps, membership: Membership) -> tuple[Int64, Int64]:
    """Return begin and end of the period of each step: together they cover the recording.

    A step ends with its mark, or with the last device work launched in it if that is later, and
    begins where the previous step ended; the first one begins with its mark or its device work. So
    a stall before a step is part of it, and steps that overlap on the device share no time: b(k) =
    max(b(k-1), end of mark k, end of the device work of step k).
    """
    start_ns, end_ns = steps.start_ns, steps.end_ns
    known = membership.device_start_ns != NO_TIME
    first_ns = np.where(known, np.minimum(membership.device_start_ns, start_ns), start_ns)
    last_ns = np.where(known, np.maximum(membership.device_end_ns, end_ns), end_ns)
    order = np.lexsort((last_ns, end_ns))
    upto_ns = np.maximum.accumulate(last_ns[order])
    begin_ns, stop_ns = np.empty((2, len(order)), np.int64)
    begin_ns[order[:1]] = first_ns.min(initial=np.iinfo(np.int64).max)
    begin_ns[order[1:]], stop_ns[order] = upto_ns[:-1], upto_ns
    return begin_ns, stop_ns


def _counted(membership: Membership, count: int) -> tuple[Int64, Int64]:
    tasks, ops = (
        np.bincount(step[step >= 0], minlength=count).astype(np.int64)
        for step in (membership.tasks, membership.ops)
    )
    return tasks, ops


def _lacks_records(counts: Int64) -> bool:
    """Return whether the last step has fewer records than those between the first and it."""
    between = counts[1:-1]
    return len(between) > 0 and bool(counts[-1] < WHOLE * np.median(between))


class StepTrace(ColumnTable):
    """Components of steps, one row per step of the whole recording; times on the clock as recorded.

    A step begins at the end of the step before it, so that it includes the wait for data: total =
    interval + fp_bp + tail. NO_TIME is unknown: all of a step that is marked on the host, and the
    interval of the first step of a graph.
    """

    first: Bool = column(np.bool_)
    """True for the first step of its graph, selected or not."""
    lead_ns: Int64 = column(np.int64)
    """Time between the begin of the step and its own start: 0 if the source includes the wait."""
    total_ns: Int64 = column(np.int64)
    interval_ns: Int64 = column(np.int64)
    fp_bp_ns: Int64 = column(np.int64)
    tail_ns: Int64 = column(np.int64)


def step_trace(steps: Steps) -> StepTrace:
    """Return the step trace of all steps of a rank, in any order.

    The previous step is the one at whose end the wait of `data_aug_bounds` begins. In MindSpore's
    own files a step begins where the previous one ended, even if that one is not in the file.
    """
    marked = ~steps.host
    first, follows = _order(steps, marked)
    by_start = np.flatnonzero(marked)[sort_rows(steps.start_ns[marked])]
    holds_wait = (steps.end_ns[by_start[:-1]] == steps.start_ns[by_start[1:]]).any()
    has_fp = marked & (steps.fp_start_ns != NO_TIME)
    has_bp = marked & (steps.bp_end_ns != NO_TIME)
    if holds_wait:
        begin_ns, known = steps.start_ns, has_fp & ~first
    else:
        wait_start_ns = np.full(len(steps), NO_TIME)
        wait_start_ns[marked] = data_aug_bounds(steps.take(marked))[0]
        known = has_fp & follows & (wait_start_ns != NO_TIME)
        begin_ns = np.where(known, wait_start_ns, steps.start_ns)
    return StepTrace(
        first,
        steps.start_ns - begin_ns,
        _given(steps.end_ns - begin_ns, marked),
        _given(steps.fp_start_ns - begin_ns, known),
        _given(steps.bp_end_ns - steps.fp_start_ns, has_fp & has_bp),
        _given(steps.end_ns - steps.bp_end_ns, has_bp),
    )


def data_aug_bounds(steps: Steps) -> tuple[Int64, Int64]:
    """Return the wait for data before each step, as [start_ns, end_ns); NO_TIME for none.

    It lasts from the latest end of any step of any graph before the step's FP start up to that FP
    start (msprof's Data Aug Bound, MindInsight's step interval). Exports draw it one step late.
    """
    ends_ns = ascending(steps.end_ns)
    at = np.searchsorted(ends_ns, steps.fp_start_ns, side="left") - 1
    known = (at >= 0) & (steps.fp_start_ns != NO_TIME)
    if not len(steps):
        return steps.start_ns, steps.end_ns
    start_ns = np.where(known, ends_ns[np.maximum(at, 0)], NO_TIME)
    return start_ns, np.where(known, steps.fp_start_ns, NO_TIME)


def _order(steps: Steps, marked: Bool) -> tuple[Bool, Bool]:
    """Return masks of the first step of each graph, and of steps with the next number."""
    rows = np.flatnonzero(marked)
    order = rows[sort_rows(steps.graph[marked], steps.iteration[marked], steps.start_ns[marked])]
    graph, iteration = steps.graph[order], steps.iteration[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = graph[1:] != graph[:-1]
    first, follows = np.zeros((2, len(steps)), np.bool_)
    first[order] = begins
    follows[order] = ~begins & (np.diff(iteration, prepend=0) == 1)
    return first, follows


def _given(values_ns: Int64, given: Bool) -> Int64:
    return np.where(given, values_ns, NO_TIME)
