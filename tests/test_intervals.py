"""Proves interval arithmetic and overlap against sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from random_intervals import EPOCH_NS, Interval, columns_of, covered_ns, intervals

from timeline.analysis.intervals import Intervals, subtract, union
from timeline.analysis.overlap import (
    Overlap,
    overlap_of,
    overlap_of_stretches,
    totals_by_step,
)
from timeline.records.columns import Int64
from timeline.records.tables import CommunicationOps, Tasks

TaskRow = tuple[Interval, bool]
"""The interval of a task, and whether it computes."""

task_rows = intervals().flatmap(
    lambda pairs: st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)).map(
        lambda computes: list(zip(pairs, computes, strict=True))
    )
)


def assert_normal(found: Intervals) -> None:
    """Intervals are non-empty, ascend, and have a gap between them."""
    assert (found.end_ns > found.start_ns).all()
    assert (found.start_ns[1:] > found.end_ns[:-1]).all()


def held_by(found: Intervals) -> set[int]:
    """Every nanosecond of normal intervals."""
    assert_normal(found)
    return covered_ns(found.start_ns, found.end_ns)


@given(intervals())
def test_union_covers_the_same_nanoseconds(pairs: list[Interval]) -> None:
    start_ns, end_ns = columns_of(pairs)
    merged = union(start_ns, end_ns)
    wanted = covered_ns(start_ns, end_ns)
    assert held_by(merged) == wanted
    assert merged.total_ns == len(wanted)
    assert merged.span_ns == ((min(wanted), max(wanted) + 1) if wanted else None)


@given(intervals(), intervals())
def test_subtract_removes_exactly_the_nanoseconds_of_the_right_side(
    left: list[Interval], right: list[Interval]
) -> None:
    rest = subtract(union(*columns_of(left)), union(*columns_of(right)))
    assert held_by(rest) == covered_ns(*columns_of(left)) - covered_ns(*columns_of(right))


def test_union_leaves_its_arguments_alone() -> None:
    start_ns, end_ns = np.array([5, 0]), np.array([9, 6])
    union(start_ns, end_ns)
    assert (start_ns.tolist(), end_ns.tolist()) == ([5, 0], [9, 6])


def overlap_from(tasks: list[TaskRow], ops: list[Interval]) -> Overlap:
    return overlap_of(tasks_of(tasks), ops_of(ops))


def tasks_of(rows: list[TaskRow]) -> Tasks:
    start_ns, end_ns = columns_of([pair for pair, _ in rows])
    return Tasks.of(
        len(rows),
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "name": np.zeros(len(rows), np.int32),
            "compute": np.array([computes for _, computes in rows], np.bool_),
        },
    )


def ops_of(pairs: list[Interval]) -> CommunicationOps:
    start_ns, end_ns = columns_of(pairs)
    none: Int64 = np.zeros(len(pairs), np.int64)
    return CommunicationOps.of(
        len(pairs), {"start_ns": start_ns, "end_ns": end_ns, "group": none, "name": none}
    )


def computed_ns(rows: list[TaskRow]) -> set[int]:
    """Nanoseconds in which a task computes; other tasks (waits, copies) do not count."""
    return covered_ns(*columns_of([pair for pair, computes in rows if computes]))


def span_of(busy: set[int]) -> set[int]:
    """All nanoseconds between the first and the last busy one."""
    return set(range(min(busy), max(busy) + 1)) if busy else set()


def assert_identity(overlap: Overlap) -> None:
    """Every nanosecond of the span is computing, not overlapped or free, and only one of them."""
    totals = overlap.totals_ns()
    spent = totals["computing_ns"] + totals["not_overlapped_ns"] + totals["free_ns"]
    assert spent == overlap.span_ns


@given(task_rows, intervals())
def test_overlap_parts_the_span_between_first_and_last_record(
    tasks: list[TaskRow], ops: list[Interval]
) -> None:
    overlap = overlap_from(tasks, ops)
    computing, communication = computed_ns(tasks), covered_ns(*columns_of(ops))
    span = span_of(computing | communication)
    assert held_by(overlap.computing) == computing
    assert held_by(overlap.communication) == communication
    assert held_by(overlap.not_overlapped) == communication - computing
    assert held_by(overlap.free) == span - computing - communication
    assert overlap.span_ns == len(span)
    assert overlap.totals_ns() == {
        "computing_ns": len(computing),
        "communication_ns": len(communication),
        "not_overlapped_ns": len(communication - computing),
        "free_ns": len(span - computing - communication),
    }
    assert_identity(overlap)


Stretch = tuple[list[TaskRow], list[Interval]]

stretches_of_time = st.lists(st.tuples(task_rows, intervals()), max_size=4)


def laid_out(
    stretches: list[Stretch], outside: Stretch
) -> tuple[Tasks, CommunicationOps, Int64, Int64]:
    """All records as tables, shuffled by stretch, and the stretch of each, -1 for those outside."""
    parts = [outside, *stretches]
    return (
        tasks_of([row for tasks, _ in parts for row in tasks]),
        ops_of([pair for _, ops in parts for pair in ops]),
        np.repeat(np.arange(len(parts)) - 1, [len(tasks) for tasks, _ in parts]),
        np.repeat(np.arange(len(parts)) - 1, [len(ops) for _, ops in parts]),
    )


@given(stretches_of_time, st.tuples(task_rows, intervals()))
def test_totals_of_steps_are_those_of_each_step_alone(
    stretches: list[Stretch], outside: Stretch
) -> None:
    """Steps may overlap each other; records outside all steps count for none."""
    totals = totals_by_step(*laid_out(stretches, outside), len(stretches))
    assert len(totals) == len(stretches)
    for step, (tasks, ops) in enumerate(stretches):
        alone = overlap_from(tasks, ops)
        assert {
            "computing_ns": totals.computing_ns[step],
            "communication_ns": totals.communication_ns[step],
            "not_overlapped_ns": totals.not_overlapped_ns[step],
            "free_ns": totals.free_ns[step],
        } == alone.totals_ns()
        assert totals.span_ns[step] == alone.span_ns
        assert totals.known[step] == bool(tasks or ops)


@given(stretches_of_time, st.tuples(task_rows, intervals()))
def test_stretches_count_shared_time_once_and_time_between_them_never(
    stretches: list[Stretch], outside: Stretch
) -> None:
    moved = [shifted(tasks, ops, 150 * at) for at, (tasks, ops) in enumerate(stretches)]
    for parts in (stretches, moved):  # on top of each other, and far apart
        joined = overlap_of_stretches(*laid_out(parts, outside), len(parts))
        computing, communication, spans = set[int](), set[int](), set[int]()
        for tasks, ops in parts:
            computed, communicated = computed_ns(tasks), covered_ns(*columns_of(ops))
            computing |= computed
            communication |= communicated
            spans |= span_of(computed | communicated)
        assert held_by(joined.computing) == computing
        assert held_by(joined.communication) == communication
        assert held_by(joined.not_overlapped) == communication - computing
        assert held_by(joined.free) == spans - computing - communication
        assert joined.span_ns == len(spans)
        assert_identity(joined)


def shifted(
    tasks: list[TaskRow], ops: list[Interval], by_ns: int
) -> tuple[list[TaskRow], list[Interval]]:
    return (
        [((start + by_ns, end + by_ns), computes) for (start, end), computes in tasks],
        [(start + by_ns, end + by_ns) for start, end in ops],
    )


def test_one_stretch_is_the_whole() -> None:
    at = EPOCH_NS
    rows = [((at, at + 5), True), ((at + 9, at + 12), True)], [(at + 3, at + 7)]
    one = overlap_from(*rows)
    joined = overlap_of_stretches(*laid_out([rows], ([], [])), 1)
    assert joined.totals_ns() == one.totals_ns()
    assert joined.span_ns == one.span_ns == 12
    assert one.totals_ns() == {
        "computing_ns": 8,
        "communication_ns": 4,
        "not_overlapped_ns": 2,
        "free_ns": 2,
    }
