"""Step trace of a rank: the components of each step, as shown by MindInsight."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Bool, ColumnTable, Int64, ascending, column, sort_rows
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Steps


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
