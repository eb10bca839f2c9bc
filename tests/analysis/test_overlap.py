"""Proves overlap of computing and communication against sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_intervals import (
    EPOCH_NS,
    Interval,
    columns_of,
    covered_ns,
    intervals,
    normal_ns,
)
from timeline.analysis.overlap import (
    Overlap,
    measure_overlap,
    measure_overlap_of_stretches,
    totals_by_step,
)
from timeline.columns.columns import Int64
from timeline.records.counting_rules import FreeRule
from timeline.records.tables import CommunicationOps, Tasks

TaskRow = tuple[Interval, str]
"""The interval of a task, and what it does."""
COMPUTES, COPIES, WAITS = "computes", "copies", "waits"

task_rows = intervals().flatmap(
    lambda pairs: st.lists(
        st.sampled_from([COMPUTES, COPIES, WAITS]), min_size=len(pairs), max_size=len(pairs)
    ).map(lambda doing: list(zip(pairs, doing, strict=True)))
)


def overlap_from(tasks: list[TaskRow], ops: list[Interval]) -> Overlap:
    return measure_overlap(tasks_of(tasks), ops_of(ops))


def tasks_of(rows: list[TaskRow]) -> Tasks:
    start_ns, end_ns = columns_of([pair for pair, _ in rows])
    return Tasks.of(
        len(rows),
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "name": np.zeros(len(rows), np.int32),
            "compute": np.array([does == COMPUTES for _, does in rows], np.bool_),
            "copy": np.array([does == COPIES for _, does in rows], np.bool_),
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
    return nanoseconds_of(rows, COMPUTES)


def copied_ns(rows: list[TaskRow]) -> set[int]:
    """Nanoseconds in which a task copies."""
    return nanoseconds_of(rows, COPIES)


def nanoseconds_of(rows: list[TaskRow], doing: str) -> set[int]:
    return covered_ns(*columns_of([pair for pair, does in rows if does == doing]))


def span_of(busy: set[int]) -> set[int]:
    """All nanoseconds between the first and the last busy one."""
    return set(range(min(busy), max(busy) + 1)) if busy else set()


def assert_identity(overlap: Overlap) -> None:
    """Every nanosecond of the span is computing, not overlapped or free, and only one of them.

    And every free one is a copy, idle or outside.
    """
    totals, parts = overlap.totals_ns(), overlap.free_parts()
    spent = totals["computing_ns"] + totals["not_overlapped_ns"] + totals["free_ns"]
    assert spent == overlap.span_ns
    assert parts.copies_ns is not None
    assert totals["free_ns"] == parts.copies_ns + parts.idle_ns + (parts.outside_ns or 0)


@given(task_rows, intervals())
def test_overlap_parts_the_span_between_first_and_last_record(
    tasks: list[TaskRow], ops: list[Interval]
) -> None:
    overlap = overlap_from(tasks, ops)
    computing, communication = computed_ns(tasks), covered_ns(*columns_of(ops))
    span = span_of(computing | communication)
    assert normal_ns(overlap.computing) == computing
    assert normal_ns(overlap.communication) == communication
    assert normal_ns(overlap.not_overlapped) == communication - computing
    free = span - computing - communication
    assert normal_ns(overlap.free) == free
    assert normal_ns(overlap.copies) == free & copied_ns(tasks)
    assert normal_ns(overlap.idle) == free - copied_ns(tasks)
    assert overlap.span_ns == len(span)
    assert overlap.totals_ns() == {
        "computing_ns": len(computing),
        "communication_ns": len(communication),
        "not_overlapped_ns": len(communication - computing),
        "free_ns": len(span - computing - communication),
    }
    assert_identity(overlap)


moments = st.none() | st.integers(-40, 140).map(lambda ns: EPOCH_NS + ns)


@given(task_rows, intervals(), moments, moments)
def test_the_outer_rule_adds_what_lies_before_and_after_and_changes_nothing_else(
    tasks: list[TaskRow], ops: list[Interval], start_ns: int | None, end_ns: int | None
) -> None:
    inner = overlap_from(tasks, ops)
    rule = FreeRule("told", True, start_ns, end_ns)
    outer = measure_overlap(tasks_of(tasks), ops_of(ops), rule)
    busy = computed_ns(tasks) | covered_ns(*columns_of(ops))
    before, after = set[int](), set[int]()
    if busy:
        before = set(range(min(busy) if start_ns is None else start_ns, min(busy)))
        after = set(range(max(busy) + 1, max(busy) + 1 if end_ns is None else end_ns))
    assert normal_ns(outer.free) == normal_ns(inner.free) | before | after
    assert (outer.before_ns, outer.after_ns) == (len(before), len(after))
    assert outer.free_parts().copies_ns == inner.free_parts().copies_ns
    assert outer.free_parts().idle_ns == inner.free_parts().idle_ns
    assert_identity(outer)


def test_where_the_rule_is_not_told_outside_is_not_known_and_free_is_the_inner_one() -> None:
    at = EPOCH_NS
    rows = [((at, at + 5), COMPUTES), ((at + 9, at + 12), COMPUTES)]
    found = measure_overlap(tasks_of(rows), ops_of([]), FreeRule())
    assert found.outside_ns is None
    assert found.totals_ns() == overlap_from(rows, []).totals_ns()
    assert_identity(found)


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
        assert totals.copies_ns[step] == alone.copies.total_ns
        assert totals.idle_ns[step] == alone.idle.total_ns
        assert totals.span_ns[step] == alone.span_ns
        assert totals.known[step] == bool(tasks or ops)


@given(stretches_of_time, st.tuples(task_rows, intervals()))
def test_stretches_count_shared_time_once_and_time_between_them_never(
    stretches: list[Stretch], outside: Stretch
) -> None:
    moved = [shifted(tasks, ops, 150 * at) for at, (tasks, ops) in enumerate(stretches)]
    for parts in (stretches, moved):  # on top of each other, and far apart
        joined = measure_overlap_of_stretches(*laid_out(parts, outside), len(parts))
        computing, communication, spans = set[int](), set[int](), set[int]()
        copied = set[int]()
        for tasks, ops in parts:
            computed, communicated = computed_ns(tasks), covered_ns(*columns_of(ops))
            computing |= computed
            communication |= communicated
            spans |= span_of(computed | communicated)
            copied |= copied_ns(tasks)
        assert normal_ns(joined.computing) == computing
        assert normal_ns(joined.communication) == communication
        assert normal_ns(joined.not_overlapped) == communication - computing
        assert normal_ns(joined.free) == spans - computing - communication
        assert normal_ns(joined.copies) == (spans - computing - communication) & copied
        assert joined.span_ns == len(spans)
        assert_identity(joined)


def shifted(
    tasks: list[TaskRow], ops: list[Interval], by_ns: int
) -> tuple[list[TaskRow], list[Interval]]:
    return (
        [((start + by_ns, end + by_ns), does) for (start, end), does in tasks],
        [(start + by_ns, end + by_ns) for start, end in ops],
    )


def test_one_stretch_is_the_whole() -> None:
    at = EPOCH_NS
    rows = [((at, at + 5), COMPUTES), ((at + 9, at + 12), COMPUTES)], [(at + 3, at + 7)]
    one = overlap_from(*rows)
    joined = measure_overlap_of_stretches(*laid_out([rows], ([], [])), 1)
    assert joined.totals_ns() == one.totals_ns()
    assert joined.span_ns == one.span_ns == 12
    assert one.totals_ns() == {
        "computing_ns": 8,
        "communication_ns": 4,
        "not_overlapped_ns": 2,
        "free_ns": 2,
    }
