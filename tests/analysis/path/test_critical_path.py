"""Proves that critical paths are whole and end, and that they go where time was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import at_most
from tests.support.random_records import Sizes, random_records
from tests.support.simulated_cluster import COMPUTE_NS, TRANSFER_NS, Cluster, simulate
from timeline.analysis.path.critical_path import (
    CriticalPath,
    PathRank,
    PathSteps,
    Segments,
    find_critical_path,
)
from timeline.analysis.path.rank_path import PathItems, PathKind, RankPath, leading_items, rank_path
from timeline.analysis.waits.collectives import rank_collectives
from timeline.analysis.waits.waiting import OpArrivals, measure_waiting, op_arrivals
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Records, Tasks

LAST = 1000
"""Random times lie below."""


def _check(path: CriticalPath) -> None:
    """Segments of each path follow each other without a gap, from its beginning to its end."""
    steps, segments = path.steps, path.segments
    for row, (start_ns, end_ns) in enumerate(
        zip(steps.start_ns.tolist(), steps.end_ns.tolist(), strict=True)
    ):
        its = segments.take(segments.path == row)
        spans = list(zip(its.start_ns.tolist(), its.end_ns.tolist(), strict=True))
        assert sum(end - start for start, end in spans) == end_ns - start_ns
        assert all(start < end for start, end in spans)
        assert all(one[1] == other[0] for one, other in pairwise(spans))
        if spans:
            assert (spans[0][0], spans[-1][1]) == (start_ns, end_ns)


@st.composite
def _ranks(draw: st.DrawFn) -> list[PathRank]:
    """Ranks of any items, and of any claim of who came last, even where that cannot be."""
    count = draw(st.integers(1, 4))
    ops = [draw(st.integers(0, 5)) for _ in range(count)]
    return [_rank(draw, at, ops) for at in range(count)]


def _rank(draw: st.DrawFn, own: int, ops: Sequence[int]) -> PathRank:
    tasks = draw(st.integers(0, 12))
    count = tasks + ops[own]
    moments = st.integers(0, LAST)
    start_ns = np.sort([draw(moments) for _ in range(count)]).astype(np.int64)
    length_ns = np.array([draw(st.integers(0, 80)) for _ in range(count)], np.int64)
    is_op = np.zeros(count, np.bool_)
    is_op[draw(st.permutations(range(count)))[: ops[own]]] = True
    back = [np.sort([draw(moments) for _ in range(3)])[::-1] for _ in range(count)]
    launch_ns, asked_ns, host_ns = (
        np.minimum(np.array([times[column] for times in back], np.int64), start_ns)
        for column in range(3)
    )
    never = np.array([draw(st.integers(0, 4)) == 0 for _ in range(count)], np.bool_)
    before = [draw(st.integers(-1, row - 1)) for row in range(count)]
    items = PathItems.of(
        count,
        {
            "start_ns": start_ns,
            "end_ns": start_ns + length_ns,
            "kind": np.where(is_op, PathKind.TRANSFER, PathKind.COMPUTING),
            "name": np.zeros(count),
            "collective": np.where(is_op, np.cumsum(is_op) - 1, NO_ID),
            "before": np.where(never, NO_ID, before),
            "launch_ns": launch_ns,
            "asked_ns": asked_ns,
            "host_ns": np.where(never, NO_TIME, host_ns),
            "call_ns": np.full(count, LAST),
        },
    )
    some = [at for at in range(len(ops)) if ops[at]]
    last = [draw(st.sampled_from([NO_ID, *some])) for _ in range(ops[own])]
    rows = [draw(st.integers(0, ops[at] - 1)) if at >= 0 else NO_ID for at in last]
    arrivals = OpArrivals(
        np.array([draw(moments) for _ in range(ops[own])], np.int64),
        np.array(last, np.int32),
        np.array(rows, np.int32),
        np.array([draw(st.sampled_from([NO_ID, 0, 9])) for _ in range(ops[own])], np.int64),
        np.array([draw(st.integers(-1, row - 1)) for row in range(ops[own])], np.int32),
    )
    return PathRank(own, RankPath(("",), items), arrivals)


@given(_ranks(), st.lists(st.integers(0, LAST + 80), min_size=2, max_size=5))
@settings(deadline=None)
def test_paths_of_any_items_are_whole_and_end(ranks: list[PathRank], moments: list[int]) -> None:
    """Whatever is claimed of items, each path adds up to its time, without gap or overlap.

    A rank is called read if it is, even where only its op is not.
    """
    ends_ns = np.sort(np.array(moments, np.int64))
    steps = PathSteps.of(len(ends_ns) - 1, {"start_ns": ends_ns[:-1], "end_ns": ends_ns[1:]})
    found = find_critical_path(ranks, steps)
    _check(found)
    is_read = np.isin(found.segments.rank, [rank.rank for rank in ranks])
    assert found.segments.profiled.tolist() == is_read.tolist()


def _of_cluster(cluster: Cluster, records: Sequence[Records] | None = None) -> CriticalPath:
    """The only path of a simulated cluster, whose clocks are true."""
    waiting = measure_waiting(cluster.ranks)
    records = records or cluster.records
    arrivals = op_arrivals(cluster.ranks, waiting)
    ranks = [
        PathRank(
            record.rank, rank_path(record, rank.ops.selected, np.empty(0, np.int64)), arrivals[at]
        )
        for at, (record, rank) in enumerate(zip(records, cluster.ranks, strict=True))
    ]
    first_ns = min(int(record.tasks.start_ns.min()) for record in records)
    last_ns = max(int(record.ops.end_ns.max()) for record in records)
    return find_critical_path(ranks, PathSteps.of(1, {"start_ns": [first_ns], "end_ns": [last_ns]}))


def _sums(segments: Segments) -> dict[tuple[int, PathKind], int]:
    """What each rank has of each kind."""
    found: dict[tuple[int, PathKind], int] = {}
    for rank, kind, length in zip(
        segments.rank.tolist(),
        segments.kind.tolist(),
        (segments.end_ns - segments.start_ns).tolist(),
        strict=True,
    ):
        key = (rank, PathKind(kind))
        found[key] = found.get(key, 0) + length
    return found


@given(
    ranks=st.integers(2, 9),
    ops=st.integers(1, 12),
    late=st.integers(100_000, 900_000),
    seed=st.integers(0, 1 << 30),
)
@settings(max_examples=at_most(40), deadline=None)
def test_the_path_lies_on_the_rank_that_is_always_late(
    ranks: int, ops: int, late: int, seed: int
) -> None:
    """All but the transfers of a cluster with one slow rank is computing of that rank."""
    culprit = seed % ranks
    cluster = simulate(
        ranks, groups=[tuple(range(ranks))], ops=ops, late={culprit: late}, seed=seed
    )
    path = _of_cluster(cluster)
    _check(path)
    sums = _sums(path.segments)
    computing = {rank for rank, kind in sums if kind is PathKind.COMPUTING}
    assert computing == {culprit}
    assert sums[culprit, PathKind.COMPUTING] >= ops * (COMPUTE_NS + late)
    transfer_ns = sum(time for (_, kind), time in sums.items() if kind is PathKind.TRANSFER)
    assert transfer_ns == ops * TRANSFER_NS


@given(
    ranks=st.integers(2, 12),
    width=st.integers(2, 4),
    ops=st.integers(1, 6),
    seed=st.integers(0, 1 << 30),
)
@settings(max_examples=at_most(40), deadline=None)
def test_every_rank_change_is_to_the_rank_that_came_last(
    ranks: int, width: int, ops: int, seed: int
) -> None:
    """Where a path changes from rank to rank, the earlier one came last to the op after it."""
    cluster = simulate(ranks, width=width, ops=ops, seed=seed)
    path = _of_cluster(cluster)
    _check(path)
    segments = path.segments
    names = [path.strings[code] for code in segments.name.tolist()]
    rank = segments.rank.tolist()
    for row in range(1, len(rank)):
        if rank[row] != rank[row - 1]:
            assert segments.kind[row] == PathKind.TRANSFER
            assert cluster.last[names[row]] == rank[row - 1]


@given(st.integers(0, 1 << 20), st.integers(1, 6), st.integers(1, 60), st.integers(0, 4))
@settings(max_examples=at_most(40), deadline=None)
def test_paths_of_random_records_are_whole(seed: int, steps: int, tasks: int, ops: int) -> None:
    """Steps of random records, read as one rank and as several that share nothing, add up."""
    sizes = Sizes(steps=steps, tasks=tasks, ops=ops, calls=30, samples=0)
    ranks = []
    for number in range(3):
        records = random_records(number, sizes, seed)
        collectives = rank_collectives(records, np.full(len(records.ops), NO_ID))
        ends_ns = records.steps.end_ns
        path = rank_path(records, collectives.ops.selected, ends_ns)
        ranks.append((records, collectives, path))
    arrivals = op_arrivals(
        [collectives for _, collectives, _ in ranks],
        measure_waiting([collectives for _, collectives, _ in ranks]),
    )
    made = [
        PathRank(number, path, its)
        for number, ((_, _, path), its) in enumerate(zip(ranks, arrivals, strict=True))
    ]
    ends_ns = np.sort(ranks[0][0].steps.end_ns)
    starts_ns = np.concatenate([ranks[0][0].steps.start_ns[:1], ends_ns[:-1]])
    found = find_critical_path(
        made, PathSteps.of(len(ends_ns), {"start_ns": starts_ns, "end_ns": ends_ns})
    )
    _check(found)


def test_marks_of_the_profiler_are_not_in_a_path() -> None:
    """What works nothing, long before and after the kernels, neither begins nor ends a path."""
    records = random_records(0, Sizes(steps=1, tasks=20, ops=0, calls=30, samples=0), 1)
    work = records.tasks.take(records.tasks.compute | records.tasks.copy)
    mark = replace(
        work.take(np.array([0])), compute=np.zeros(1, np.bool_), copy=np.zeros(1, np.bool_)
    )
    day_ns = 86_400_000_000_000
    marks = [
        replace(mark, start_ns=at, end_ns=at)
        for at in (mark.start_ns - day_ns, mark.start_ns + day_ns)
    ]
    marked = replace(records, tasks=Tasks.concat([marks[0], work, marks[1]]))
    selected = np.zeros(len(records.ops), np.bool_)
    path = rank_path(marked, selected, np.empty(0, np.int64))
    assert path.span_ns == (int(work.start_ns.min()), int(work.end_ns.max()))
    moved = path.moved(ClockMove(offset_ns=5)).span_ns
    assert moved == (path.span_ns[0] + 5, path.span_ns[1] + 5)
    assert RankPath().moved(ClockMove(offset_ns=5)).span_ns is None


@given(st.lists(st.tuples(st.integers(NO_ID, 40), st.booleans()), min_size=1, max_size=40))
def test_what_leads_to_items_is_kept(forest: list[tuple[int, bool]]) -> None:
    """It is what walks from each of them come to; most items waited for the one just before."""
    before = [one if NO_ID <= one < row else row - 1 for row, (one, _) in enumerate(forest)]
    expected = set[int]()
    for row, (_, is_reached) in enumerate(forest):
        at = row if is_reached else NO_ID
        while at != NO_ID:
            expected.add(at)
            at = before[at]
    reached = np.array([one for _, one in forest], np.bool_)
    found = leading_items(np.array(before, np.int32), reached)
    assert set(np.flatnonzero(found).tolist()) == expected
