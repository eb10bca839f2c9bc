"""Proves what is made of samples of memory and queues, and of a step trace."""

from __future__ import annotations

from random import Random
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.analysis.data_queues import MOST_POINTS, QueueCurves, QueueSums, with_queue_sums
from timeline.analysis.memory import allocated_memory, memory_peaks
from timeline.analysis.steps import StepTrace, step_trace
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import ProfilerTables, Queue, QueueRecords
from timeline.records.tables import CounterSamples, CounterSeries, Records, Steps

# -- memory ----------------------------------------------------------------------------------------


def _sampled(*values: float) -> Records:
    """A rank with samples of what all allocators hold, in MB."""
    strings = StringPool()
    codes = strings.codes(["Framework Memory", "PTA Allocated", "MB"])
    series = CounterSeries(codes[:1], codes[1:2], codes[2:])
    samples = CounterSamples.of(
        len(values),
        {
            "time_ns": np.arange(len(values)),
            "series": np.zeros(len(values), np.int64),
            "value": np.array(values),
        },
    )
    return Records(0, strings, series=series, samples=samples)


@pytest.mark.parametrize("odd", [1e308, float(1 << 62), np.inf, np.nan, -1e308, -np.inf])
def test_samples_that_no_memory_can_have_are_none(odd: float) -> None:
    records = _sampled(1.5, odd, 2.0)
    assert memory_peaks(records).table.peak_bytes.tolist() == [2 << 20]
    assert allocated_memory(records, 10).peak_bytes == 2 << 20


def test_without_any_other_samples_nothing_is_told() -> None:
    records = _sampled(np.inf, 1e300)
    assert not len(memory_peaks(records).table)
    assert allocated_memory(records, 10).peak_bytes < 0


# -- queues ----------------------------------------------------------------------------------------


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


# -- step traces -----------------------------------------------------------------------------------


LENGTHS = st.tuples(*[st.integers(1, 10**9)] * 3)
"""Interval, forward and backward, tail."""


def made_steps(parts: list[tuple[int, int, int]], *, waits: bool, first: int = 1) -> Steps:
    """Steps one after another. waits: whether each starts where the one before ends."""
    interval, fp_bp, tail = np.array(parts).T
    ends = 1000 + np.cumsum(interval + fp_bp + tail)
    begins = ends - interval - fp_bp - tail
    fp_ns = begins + interval
    return Steps.of(
        len(parts),
        {
            "start_ns": begins if waits else fp_ns,
            "end_ns": ends,
            "fp_start_ns": fp_ns,
            "bp_end_ns": fp_ns + fp_bp,
            "graph": np.zeros(len(parts), np.int64),
            "iteration": np.arange(first, first + len(parts)),
        },
    )


def parts_of(trace: StepTrace) -> list[tuple[int, int, int]]:
    columns = (trace.interval_ns, trace.fp_bp_ns, trace.tail_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(st.lists(LENGTHS, min_size=2, max_size=20), st.booleans(), st.randoms())
def test_parts_of_steps_are_told(
    parts: list[tuple[int, int, int]], waits: bool, shuffle: Random
) -> None:
    """What was put together comes apart again, in any order of rows; the first has no interval."""
    steps = made_steps(parts, waits=waits)
    shuffled = list(range(len(steps)))
    shuffle.shuffle(shuffled)
    order = np.array(shuffled)
    trace = step_trace(steps.take(order)).take(np.argsort(order))
    assert parts_of(trace)[1:] == parts[1:]
    assert parts_of(trace)[0] == (NO_TIME, *parts[0][1:])
    assert trace.first.tolist() == [True] + [False] * (len(parts) - 1)
    assert (
        trace.total_ns[1:] == trace.interval_ns[1:] + trace.fp_bp_ns[1:] + trace.tail_ns[1:]
    ).all()
    assert (trace.total_ns == steps.end_ns - steps.start_ns + trace.lead_ns).all()


@given(st.lists(LENGTHS, min_size=4, max_size=20), st.integers(1, 2))
def test_steps_that_are_not_there_hide_no_interval_of_others(
    parts: list[tuple[int, int, int]], lost: int
) -> None:
    """A wait behind a step that is missing is told where its file tells it, and never guessed."""
    for waits in (True, False):
        steps = made_steps(parts, waits=waits)
        kept = np.delete(np.arange(len(steps)), lost)
        trace = step_trace(steps.take(kept))
        expected = [NO_TIME, *(part[0] for part in parts[1:])]
        del expected[lost]
        if not waits:
            expected[lost] = NO_TIME  # the one behind
        assert trace.interval_ns.tolist() == expected


def test_graphs_have_a_first_step_each() -> None:
    """Steps of one graph between those of another are what its step waits behind."""
    steps = made_steps([(10, 5, 1)] * 4, waits=False)
    graphs, numbers = np.array([1, 2, 1, 2]), np.array([1, 1, 2, 2])
    trace = step_trace(
        Steps.of(
            4,
            {
                **{name: getattr(steps, name) for name in ("start_ns", "end_ns", "fp_start_ns")},
                "graph": graphs,
                "iteration": numbers,
            },
        )
    )
    assert trace.first.tolist() == [True, True, False, False]
    assert trace.interval_ns.tolist() == [NO_TIME, NO_TIME, 10, 10]
    assert (trace.fp_bp_ns == NO_TIME).all()


def test_steps_marked_on_the_host_are_no_step_trace() -> None:
    """Their windows say nothing of what the device did."""
    steps = made_steps([(10, 5, 1)] * 2, waits=True)
    hosts = Steps.of(
        2,
        {
            "start_ns": steps.start_ns,
            "end_ns": steps.end_ns,
            "graph": [0, 0],
            "iteration": [1, 2],
            "host": [True, True],
        },
    )
    trace = step_trace(hosts)
    assert (trace.total_ns == NO_TIME).all()
    assert not trace.first.any()
