"""Proves overlap against sets of single nanoseconds, and which steps a run is judged by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, starmap
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_tables import table_of
from tests.support.random_intervals import (
    EPOCH_NS,
    Interval,
    columns_of,
    covered_ns,
    intervals,
    normal_ns,
)
from timeline.analysis.ordinary_steps import ordinary_steps
from timeline.analysis.overlap import (
    Overlap,
    measure_overlap,
    overlap_by_launch,
    overlap_within,
    totals_by_period,
)
from timeline.analysis.rank_facts import RankFacts
from timeline.columns.columns import Int64
from timeline.columns.intervals import union
from timeline.columns.strings import StringPool
from timeline.options import StepOperators
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.records.clock import FreeRule
from timeline.records.not_given import NO_TIME
from timeline.records.tables import CommunicationOps, Records, Steps, Tasks
from timeline.selection import Selection

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
    made = [
        {"start_ns": start, "end_ns": end, "compute": does == COMPUTES, "copy": does == COPIES}
        for (start, end), does in rows
    ]
    return table_of(Tasks, made, name=0)


def ops_of(pairs: list[Interval]) -> CommunicationOps:
    made = [{"start_ns": start, "end_ns": end} for start, end in pairs]
    return table_of(CommunicationOps, made, group=0, name=0)


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

moments_of_steps = st.integers(-5, 60)
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
def test_work_counts_for_the_step_that_launched_it_by_the_rule_of_profilers(
    stretches: list[Stretch], outside: Stretch
) -> None:
    """Steps may overlap each other; records outside all steps count for none."""
    tasks, ops, task_step, op_step = laid_out(stretches, outside)
    totals = overlap_by_launch(tasks, task_step, ops, op_step, len(stretches))
    assert totals == [overlap_from(*stretch).totals_ns() for stretch in stretches]


@given(task_rows, intervals(), st.lists(moments_of_steps, max_size=4))
def test_periods_part_the_time_of_the_device(
    tasks: list[TaskRow], ops: list[Interval], edges: list[int]
) -> None:
    """Nothing counts twice, and what lies before and after the work in a period is not in it."""
    bounds = [EPOCH_NS + edge for edge in sorted(edges)]
    periods = list(pairwise(bounds))
    columns = np.array(periods, np.int64).reshape(-1, 2).T
    whole = overlap_from(tasks, ops)
    totals = totals_by_period(whole, *columns)
    computed, communicated = computed_ns(tasks), covered_ns(*columns_of(ops))
    for step, period in enumerate(map(set, starmap(range, periods))):
        busy = (computed | communicated) & period
        span = span_of(busy)
        free = span - busy
        assert totals.known[step] == bool(busy)
        assert totals.span_ns[step] == len(span)
        assert totals.start_ns[step] == (min(busy) if busy else NO_TIME)
        assert totals.computing_ns[step] == len(computed & period)
        assert totals.communication_ns[step] == len(communicated & period)
        assert totals.not_overlapped_ns[step] == len((communicated - computed) & period)
        assert totals.free_ns[step] == len(free)
        assert totals.copies_ns[step] == len(free & copied_ns(tasks))
        assert totals.idle_ns[step] == len(free - copied_ns(tasks))


@given(task_rows, intervals(), st.lists(moments_of_steps, max_size=6), st.booleans())
def test_selected_periods_hold_what_lies_in_them(
    tasks: list[TaskRow], ops: list[Interval], edges: list[int], with_edges: bool
) -> None:
    """Time between two of them counts for nothing."""
    bounds = [EPOCH_NS + edge for edge in sorted(edges)]
    periods = list(zip(bounds[::2], bounds[1::2], strict=False))
    columns = np.array(periods, np.int64).reshape(-1, 2).T
    selected = union(*columns)
    part = overlap_within(overlap_from(tasks, ops), tasks_of(tasks), selected, edges=with_edges)
    computed, communicated = computed_ns(tasks), covered_ns(*columns_of(ops))
    inside, spans = normal_ns(selected), set[int]()
    for period in zip(selected.start_ns.tolist(), selected.end_ns.tolist(), strict=True):
        reached = set(range(*period))
        spans |= reached if with_edges else span_of((computed | communicated) & reached)
    assert normal_ns(part.computing) == computed & inside
    assert normal_ns(part.communication) == communicated & inside
    assert normal_ns(part.free) == spans - computed - communicated
    assert normal_ns(part.copies) == normal_ns(part.free) & copied_ns(tasks)
    assert part.span_ns == len(spans)
    assert_identity(part)


# -- steps that a run is judged by -----------------------------------------------------------------


STEP_NS, TASK_NS = 100_000, 1_000
Tallies = list[list[int]]
"""Of each graph, the number of device tasks of each step."""


def recorded(rank: int, graphs: Tallies) -> Records:
    """Steps of graphs that run by turns, each with so many tasks."""
    steps, tasks = list[tuple[int, int, int]](), list[tuple[int, int, int]]()
    for graph, counts in enumerate(graphs):
        for step, count in enumerate(counts, 1):
            start_ns = (step * len(graphs) + graph) * STEP_NS
            steps.append((start_ns, graph, step))
            tasks += [(start_ns + turn * TASK_NS, graph, step) for turn in range(count)]

    def made(rows: list[tuple[int, int, int]], length_ns: int) -> list[dict[str, int]]:
        return [
            {"start_ns": at_ns, "end_ns": at_ns + length_ns, "graph": graph, "iteration": step}
            for at_ns, graph, step in rows
        ]

    return Records(
        rank,
        StringPool(),
        tasks=table_of(Tasks, made(tasks, TASK_NS), name=0, compute=True),
        steps=table_of(Steps, made(sorted(steps), STEP_NS)),
    )


def facts_of(records: Records, **request: object) -> RankFacts:
    selection = Selection()
    wanted = RankRequest(selection, StepOperators(), draw=False, **request)  # type: ignore[arg-type]
    return draw_rank_from_records(records, wanted).facts


def chosen(facts: list[RankFacts]) -> list[set[tuple[int, int]]]:
    """The graph and number of each ordinary step of each rank."""
    return [
        set(zip(rank.steps.graph[rows].tolist(), rank.steps.iteration[rows].tolist(), strict=True))
        for rank, rows in zip(facts, ordinary_steps(facts), strict=True)
    ]


def with_tasks(counts: list[int]) -> set[int]:
    return {step for step, count in enumerate(counts, 1) if count}


def cut_steps(counts: list[int]) -> set[int]:
    """The last step of a graph with tasks, if it is cut at the end."""
    there = sorted(with_tasks(counts))
    if len(there) < 3:
        return set()
    usual = median(counts[step - 1] for step in there[1:-1])
    return {there[-1]} if counts[there[-1] - 1] < 0.95 * usual else set()


def odd_steps(counts: list[int]) -> set[int]:
    """The steps of a graph that are without tasks, or cut at the end."""
    return set(range(1, len(counts) + 1)) - with_tasks(counts) | cut_steps(counts)


COUNTS = st.lists(st.sampled_from([0, 18, 20, 20, 20]), max_size=7)


@given(st.integers(1, 2).flatmap(lambda graphs: st.lists(
    st.lists(COUNTS, min_size=graphs, max_size=graphs), min_size=1, max_size=3)))  # fmt: skip
def test_cut_steps_are_not_ordinary(ranks: list[Tallies]) -> None:
    """Nor are those without tasks; if fewer than three are left, those that are not cut count."""
    facts = [facts_of(recorded(rank, graphs)) for rank, graphs in enumerate(ranks)]
    several = any(sum(map(bool, graphs)) > 1 for graphs in ranks)

    def keys(graphs: Tallies, steps_of: Callable[[list[int]], set[int]]) -> set[tuple[int, int]]:
        return {
            (graph * several, step)
            for graph, counts in enumerate(graphs)
            for step in steps_of(counts)
        }

    measured = [keys(graphs, with_tasks) for graphs in ranks]
    counted = [graphs for graphs, its in zip(ranks, measured, strict=True) if its]
    odd, cut = (
        set().union(*(keys(graphs, steps_of) for graphs in counted))
        for steps_of in (odd_steps, cut_steps)
    )
    plain, whole = [its - odd for its in measured], [its - cut for its in measured]
    wanted = plain if len(set().union(*plain)) >= 3 else whole if any(whole) else measured
    found = [{(graph * several, step) for graph, step in steps} for steps in chosen(facts)]
    assert found == wanted


def test_a_window_cuts_steps() -> None:
    """A step of which a window leaves a part is not ordinary; a whole one is."""
    records = recorded(0, [[20] * 8])
    window_ns = (3 * STEP_NS + 5 * TASK_NS, 7 * STEP_NS + 5 * TASK_NS)
    assert chosen([facts_of(records, window_ns=window_ns)]) == [{(0, 4), (0, 5), (0, 6)}]
    assert chosen([facts_of(records)]) == [{(0, step) for step in range(1, 9)}]


@pytest.mark.parametrize(("more_ns", "first"), [(STEP_NS // 3, 1), (STEP_NS, 2)])
def test_a_first_step_is_ordinary_unless_it_warms_up(more_ns: int, first: int) -> None:
    """It warms up where it takes half as long again as the others do."""
    records = recorded(0, [[20] * 8])
    steps = records.steps
    start_ns = np.where(steps.iteration == 1, steps.start_ns - more_ns, steps.start_ns)
    facts = facts_of(replace(records, steps=replace(steps, start_ns=start_ns)))
    assert chosen([facts]) == [{(0, step) for step in range(first, 9)}]


def test_a_step_that_warms_up_stays_that_when_others_are_selected() -> None:
    """A selection does not make its own first step a warm-up."""
    records = recorded(0, [[20] * 8])
    wanted = RankRequest(Selection(steps=range(3, 8)), StepOperators(), draw=False)
    facts = draw_rank_from_records(records, wanted).facts
    assert chosen([facts]) == [{(0, step) for step in range(3, 8)}]
