"""Proves what is summed of queues against plain Python, and that curves are of bounded length."""

from __future__ import annotations

from statistics import fmean

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timeline.analysis.data_queues import MOST_POINTS, QueueCurves, QueueSums, with_queue_sums
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import ProfilerTables, Queue, QueueRecords

BATCHES = st.lists(
    st.tuples(
        st.integers(1, 10**6),
        st.integers(0, 5) | st.just(NO_ID),
        st.sampled_from([5, NO_ID]),
        st.integers(0, 10**12) | st.just(NO_TIME),
    ),
    max_size=40,
)


def tables_of(
    queue: Queue, steps: list[int], size: list[int], capacity: list[int], total: list[int]
) -> ProfilerTables:
    columns = {"step": steps, "size": size, "capacity": capacity, "total_ns": total}
    columns["queue"] = [int(queue)] * len(steps)
    return ProfilerTables(tables={QueueRecords: QueueRecords.of(len(steps), columns)})


@given(batches=BATCHES, queue=st.sampled_from(Queue))
def test_sums_are_of_all_batches_of_which_a_value_is_known(
    batches: list[tuple[int, int, int, int]], queue: Queue
) -> None:
    """How often a queue was empty and full, and the mean time, are those of a loop over batches."""
    columns = [list(column) for column in zip(*batches, strict=True)] or [[], [], [], []]
    sums = with_queue_sums(tables_of(queue, *columns)).of(QueueSums)
    if not batches:
        assert not len(sums)
        return
    sized = [(size, capacity) for _, size, capacity, _ in batches if size != NO_ID]
    bounded = [pair for pair in sized if pair[1] != NO_ID]
    known_ns = [time_ns for *_, time_ns in batches if time_ns != NO_TIME]
    assert sums.queue.tolist() == [queue]
    assert sums.records[0] == (len(sized) or len({step for step, *_ in batches}))
    assert sums.found_empty[0] == (sum(size == 0 for size, _ in sized) if sized else NO_ID)
    full = sum(size == capacity for size, capacity in bounded) if bounded else NO_ID
    assert sums.found_full[0] == full
    if known_ns:
        assert abs(sums.total_ns[0] - fmean(known_ns)) <= 1
    else:
        assert sums.total_ns[0] == NO_TIME
    assert sums.get_ns[0] == NO_TIME


@given(count=st.integers(1, 5 * MOST_POINTS), seed=st.integers(0, 99))
def test_a_curve_is_short_and_keeps_the_extremes(count: int, seed: int) -> None:
    """However many batches there are, in whatever order: no size below or above is lost."""
    chance = np.random.default_rng(seed)
    steps, size = chance.permutation(count), chance.integers(0, 64, count)
    made = with_queue_sums(
        tables_of(Queue.HOST, steps.tolist(), size.tolist(), [64] * count, [NO_TIME] * count)
    )
    curve = made.of(QueueCurves)
    assert len(curve) == min(count, MOST_POINTS)
    assert (curve.least.min(), curve.greatest.max()) == (size.min(), size.max())
    assert curve.first.tolist() == sorted(set(curve.first.tolist()))
    if count <= MOST_POINTS:
        assert curve.least.tolist() == size[np.argsort(steps)].tolist()
    assert not len(made.of(QueueRecords))
