"""Proves that each step of a step trace consists of its parts, whoever tells when it starts."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timeline.analysis.steps import StepTrace, step_trace
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Steps

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
