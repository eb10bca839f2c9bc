"""Step of each task, communication op and plane task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from timeline.columns.chunks import chunks, compute_in_chunks
from timeline.columns.columns import Int64, Rows
from timeline.columns.distinct import NO_ROWS, distinct_pairs, rows_by_value
from timeline.columns.intervals import open_at
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, PlaneTasks, Records, Steps, Tasks

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
    if not records.tells_free:
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
    if known.on_device:
        open_rows = np.flatnonzero(is_open)
        for graph, of_graph in rows_by_value(table.graph[open_rows]):
            if graph in known.on_device:
                windows, rows = known.windows(graph), open_rows[of_graph]
                step[rows] = _open_step(windows, table.start_ns[rows])
        is_open &= step == NO_STEP
    if len(known.on_host.rows):
        is_open &= table.launch_ns != NO_TIME
        step[is_open] = _open_step(known.on_host, table.launch_ns[is_open])
    return step


@dataclass(frozen=True)
class _KnownSteps:
    """Steps by graph and iteration, steps marked on the host, and the others by graph."""

    steps: Steps
    on_device: Mapping[int, Rows]
    on_host: _Windows

    @classmethod
    def of(cls, steps: Steps) -> _KnownSteps:
        on_device = np.flatnonzero(~steps.host)
        by_graph = rows_by_value(steps.graph[on_device])
        return cls(
            steps,
            {graph: on_device[rows] for graph, rows in by_graph},
            _windows_of(steps, np.flatnonzero(steps.host)),
        )

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

    def windows(self, graph: int) -> _Windows:
        """Return the intervals of the steps of a graph that has some."""
        return _windows_of(self.steps, self.on_device[graph])


@dataclass(frozen=True)
class _Windows:
    """Half-open intervals, (k,) each, in which records belong to steps; rows are those of Steps."""

    rows: Rows
    start_ns: Int64
    end_ns: Int64


def _windows_of(steps: Steps, rows: Rows) -> _Windows:
    return _Windows(rows, steps.start_ns[rows], steps.end_ns[rows])


def _open_step(windows: _Windows, moments_ns: Int64) -> Rows:
    """Return the step whose window began last at each timestamp, NO_STEP if it is over."""
    at = open_at(moments_ns, windows.start_ns, windows.end_ns)
    return np.where(at >= 0, windows.rows[at], NO_STEP)


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
    step[rows] = _open_step(windows, table.start_ns[rows])
    return step


def _device_spans(records: Records, tasks: Rows, ops: Rows) -> tuple[Int64, Int64]:
    """Return first start and last end of the tasks and ops of each step, NO_TIME for none."""
    count = len(records.steps)
    never, latest = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    # The last place holds NO_STEP.
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
    ops_of = dict(rows_by_value(records.ops.group))
    without = np.flatnonzero(planes.iteration == NO_ID)
    for group, at_rows in rows_by_value(planes.group[without]):
        of_group, rows = ops_of.get(group, NO_ROWS), without[at_rows]
        if not len(of_group):
            continue
        # A task may begin in the same nanosecond in which its op ends.
        at = open_at(
            planes.start_ns[rows], records.ops.start_ns[of_group], records.ops.end_ns[of_group] + 1
        )
        step[rows[at >= 0]] = ops[of_group[at[at >= 0]]]
    rest = np.flatnonzero((step == NO_STEP) & (planes.launch_ns == NO_TIME))
    if len(windows.rows) and not len(records.ops):
        step[rest] = _open_step(windows, planes.start_ns[rest])
    return step
