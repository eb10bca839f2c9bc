"""Painters of the summary: the steps of a rank, and its overlap analysis."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from timeline.analysis.idle.idle_sums import CAUSES, IdleParts
from timeline.analysis.overlap import OverlapTotals
from timeline.analysis.selected_rank import SelectedRank
from timeline.analysis.steps import data_aug_bounds
from timeline.columns.columns import Bool, Int64
from timeline.columns.distinct import distinct
from timeline.columns.intervals import IntervalSet
from timeline.columns.strings import StringPool
from timeline.layers import Category, Layer, SliceKind
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import Records, StepPart, StepParts, Steps
from timeline.tracks import descriptions
from timeline.tracks.painter import (
    ArgColumn,
    LayerDrawing,
    Painter,
    PaintLayer,
    SliceTable,
    integers,
    names,
)
from timeline.tracks.partition import COPIES, IDLE

OVERLAP_ROWS = tuple(descriptions.OVERLAP)
"""Names of rows as in the profiler's own overlap analysis, in its order."""


def _paint_overlap(drawing: LayerDrawing) -> None:
    """Draw the four rows of the overlap analysis of one rank, and the parts of free time.

    Copies and idle have rows only if free time is not all idle; idle has one also if its causes are
    known. A rank with tables only has just the row of communication, since its computing is not
    recorded.
    """
    painter, parent = drawing.painter, drawing.add_row()
    overlap, records = drawing.rank.overlap, drawing.rank.records
    meanings = dict(descriptions.OVERLAP)
    if records.communication_rule.of_tasks:
        meanings["Communication"] = descriptions.COMMUNICATION_BY_TASKS
    if overlap.outside_ns:
        meanings["Free"] = descriptions.FREE_OUTSIDE
    parts = (overlap.computing, overlap.communication, overlap.not_overlapped, overlap.free)
    rows = [
        (name, intervals, meanings[name])
        for name, intervals in zip(OVERLAP_ROWS, parts, strict=True)
    ]
    if len(overlap.copies):
        rows.append((COPIES, overlap.copies, descriptions.COPIES))
    idle = drawing.rank.idle
    if records.tables_only:
        rows, idle = rows[1:2], None
    has_causes = idle is not None and idle.parts.has_causes
    if not has_causes and not records.tables_only and overlap.idle.total_ns < overlap.free.total_ns:
        rows.append((IDLE, overlap.idle, descriptions.IDLE))
    for order, (name, intervals, meaning) in enumerate(rows):
        drawn = _plain(intervals, name, records.strings)
        painter.add_flat_row(name, parent, order, drawn, meaning)
    if idle is not None and has_causes:
        drawn = _idle_parts(idle.parts, records.strings)
        painter.add_flat_row(IDLE, parent, len(rows), drawn, descriptions.IDLE_BY_CAUSE)


def _idle_parts(parts: IdleParts, strings: StringPool) -> SliceTable:
    labels = strings.codes(cause.label for cause in CAUSES)
    return SliceTable(
        parts.start_ns,
        parts.end_ns,
        labels[parts.cause],
        SliceKind.OVERLAP,
        [names("call", parts.call)],
        category=Category.IDLE,
    )


def _plain(intervals: IntervalSet, name: str, strings: StringPool) -> SliceTable:
    codes = np.full(len(intervals), strings.code(name), np.int32)
    category = Category.IDLE if name == IDLE else None
    return SliceTable(
        intervals.start_ns, intervals.end_ns, codes, SliceKind.OVERLAP, category=category
    )


def _paint_steps(drawing: LayerDrawing) -> None:
    """Draw the step trace of one rank: all graphs in one row, or a row for each."""
    painter, parent, selected = drawing.painter, drawing.add_row(), drawing.rank
    records = selected.records
    steps = records.steps
    marked = ~steps.host
    graphs = distinct(steps.graph[marked]).tolist()
    several = len(graphs) > 1
    order = 0
    if drawing.options.merge_graphs or not several:
        if marked.any():
            _paint_graph(painter, parent, selected, marked, "Iterations", order, named=several)
            order += 1
    else:
        for graph in graphs:
            rows = marked & (steps.graph == graph)
            _paint_graph(painter, parent, selected, rows, _graph_name(graph), order, named=False)
            order += 1
    if steps.host.any():
        _paint_host_steps(painter, parent, selected, order)
    _paint_parts(painter, parent, records, order + 2)


def _graph_name(graph: int) -> str:
    return "Step mode" if graph == NO_GRAPH else f"Graph {graph}"


def _paint_graph(
    painter: Painter,
    parent: int,
    selected: SelectedRank,
    rows: Bool,
    name: str,
    order: int,
    *,
    named: bool,
) -> None:
    """Draw iterations with FP/BP and refresh inside, and the waits for data on another row."""
    records, strings = selected.records, selected.records.strings
    steps = records.steps
    at = np.flatnonzero(rows)
    labels = [
        f"{_graph_name(graph)} Iteration {iteration}" if named else f"Iteration {iteration}"
        for graph, iteration in zip(
            steps.graph[at].tolist(), steps.iteration[at].tolist(), strict=True
        )
    ]
    has_bp = (steps.bp_end_ns[at] != NO_TIME) & (steps.bp_end_ns[at] <= steps.end_ns[at])
    has_both = (
        has_bp
        & (steps.fp_start_ns[at] != NO_TIME)
        & (steps.fp_start_ns[at] <= steps.bp_end_ns[at])
        & (steps.fp_start_ns[at] >= steps.start_ns[at])
    )
    forward, refresh = at[has_both], at[has_bp]
    count, inner = len(at), len(forward) + len(refresh)
    owner = np.concatenate([at, forward, refresh])
    is_step = np.arange(count + inner) < count
    drawn = SliceTable(
        np.concatenate([steps.start_ns[at], steps.fp_start_ns[forward], steps.bp_end_ns[refresh]]),
        np.concatenate([steps.end_ns[at], steps.bp_end_ns[forward], steps.end_ns[refresh]]),
        np.concatenate(
            [
                strings.codes(labels),
                np.full(len(forward), strings.code("FP/BP"), np.int32),
                np.full(len(refresh), strings.code("Iteration Refresh"), np.int32),
            ]
        ),
        SliceKind.STEP,
        _step_args(selected, owner, is_step),
    )
    painter.add_nested_row(name, parent, order * 2, drawn, descriptions.ITERATIONS)
    _paint_data_aug(painter, parent, selected, at, name, order * 2 + 1)


def _step_args(selected: SelectedRank, owner: Int64, is_step: Bool) -> list[ArgColumn]:
    """Return the args graph and iteration for every slice, and times of the step for steps."""
    records, totals = selected.records, selected.step_totals
    args = spent_args(totals, owner, is_step, records_copies=records.records_copies)
    if records.tables_only:
        # Leave out what is not recorded: idle time, and computing unless a file sums it up.
        summed = ("computing_ns", "not_overlapped_ns", "free_ns") * bool(totals.computing_ns.any())
        args = [
            one for one in args if one.name in ("period_ns", "span_ns", "communication_ns", *summed)
        ]
    return [*_ids(records.steps, owner), *args]


def _ids(steps: Steps | StepParts, rows: Int64) -> list[ArgColumn]:
    return [
        integers("graph", steps.graph[rows], NO_GRAPH),
        integers("iteration", steps.iteration[rows]),
    ]


def spent_args(
    totals: OverlapTotals, owner: Int64, shown: Bool, *, records_copies: bool
) -> list[ArgColumn]:
    """Return args with the times of steps by what the device did.

    owner: (n,) the step of each slice. shown: (n,) mask of the slices that get the args if their
    step has device work.
    """
    present = shown & totals.known[owner]
    whole_ns = np.maximum(totals.period_ns, 1)
    columns = {
        "period_ns": totals.period_ns,
        "span_ns": totals.span_ns,
        "computing_ns": totals.computing_ns,
        "communication_ns": totals.communication_ns,
        "not_overlapped_ns": totals.not_overlapped_ns,
        "free_ns": totals.free_ns,
        **({"copies_ns": totals.copies_ns} if records_copies else {}),
        "idle_ns": totals.idle_ns,
        "not_overlapped_percent": rounded_percent(totals.not_overlapped_ns, whole_ns),
        "free_percent": rounded_percent(totals.free_ns, whole_ns),
        "idle_percent": rounded_percent(totals.idle_ns, whole_ns),
    }
    return [
        integers(name, np.where(present, values[owner], NO_ID), NO_ID)
        for name, values in columns.items()
    ]


def rounded_percent(part_ns: Int64, whole_ns: Int64) -> Int64:
    """Return the share of the whole, rounded to the nearest percent."""
    return (part_ns * 200 + whole_ns) // (2 * whole_ns)


def _paint_data_aug(
    painter: Painter, parent: int, selected: SelectedRank, at: Int64, name: str, order: int
) -> None:
    records, strings = selected.records, selected.records.strings
    start_ns, end_ns = data_aug_bounds(records.steps)
    waits = at[start_ns[at] != NO_TIME]
    if not len(waits):
        return
    drawn = SliceTable(
        start_ns[waits],
        end_ns[waits],
        np.full(len(waits), strings.code("Data Aug Bound"), np.int32),
        SliceKind.STEP,
        _step_args(selected, waits, np.zeros(len(waits), np.bool_))[:2],
    )
    label = "Data Aug Bound" if name == "Iterations" else f"{name} Data Aug Bound"
    painter.add_flat_row(label, parent, order, drawn, descriptions.DATA_AUG_BOUND)


def _paint_host_steps(painter: Painter, parent: int, selected: SelectedRank, order: int) -> None:
    records, strings = selected.records, selected.records.strings
    steps = records.steps
    at = np.flatnonzero(steps.host)
    iterations = steps.iteration[at].tolist()
    args = _step_args(selected, at, np.ones(len(at), np.bool_))
    painter.add_flat_row(
        "ProfilerStep",
        parent,
        order * 2,
        SliceTable(
            steps.start_ns[at],
            steps.end_ns[at],
            strings.codes(f"ProfilerStep#{iteration}" for iteration in iterations),
            SliceKind.STEP,
            args,
        ),
        descriptions.PROFILER_STEPS,
    )
    start_ns, end_ns = selected.cut.recorded.on_device(selected.cut.membership)
    started = np.flatnonzero(start_ns[at] != NO_TIME)
    on_device = at[started]
    painter.add_flat_row(
        "Step on device",
        parent,
        order * 2 + 1,
        SliceTable(
            start_ns[on_device],
            end_ns[on_device],
            strings.codes(f"Step {iterations[row]}" for row in started.tolist()),
            SliceKind.STEP,
            _step_args(selected, on_device, np.ones(len(on_device), np.bool_)),
        ),
        descriptions.STEPS_ON_DEVICE,
    )


def _paint_parts(painter: Painter, parent: int, records: Records, order: int) -> None:
    parts, strings = records.parts, records.strings
    for kind, name, meaning in (
        (StepPart.REDUCE, "Reduce", descriptions.REDUCE),
        (StepPart.GET_NEXT, "GetNext", descriptions.GET_NEXT),
    ):
        at = np.flatnonzero(parts.kind == kind)
        if not len(at):
            continue
        drawn = SliceTable(
            parts.start_ns[at],
            parts.end_ns[at],
            strings.codes(f"{name} {number}" for number in parts.number[at].tolist()),
            SliceKind.STEP,
            _ids(parts, at),
        )
        painter.add_flat_row(name, parent, order * 2 + int(kind), drawn, meaning)


PAINTERS: Mapping[Layer | None, PaintLayer] = {
    Layer.STEPS: _paint_steps,
    Layer.OVERLAP: _paint_overlap,
}
"""The painter of each layer of the summary."""
