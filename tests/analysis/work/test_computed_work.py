"""Proves which ranks are told to do the same work, and why one computes longer than its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_tables import table_of
from timeline.analysis.work.computed_work import (
    NO_WORK,
    ComputingCause,
    RankWork,
    WorkTimes,
    computed_work,
    computing_causes,
    peer_classes,
)
from timeline.columns.strings import StringPool
from timeline.records.tables import (
    AI_CORE_FREQUENCY,
    CounterSamples,
    CounterSeries,
    Records,
    Steps,
    Tasks,
)

Task = tuple[int, int, str, str, int]
"""Start, length, type, shapes and step."""
TASKS = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.integers(1, 9),
        st.sampled_from(("MatMulV2", "Add", "Cast")),
        st.sampled_from(("2,3", "4,4", "")),
        st.integers(-1, 4),
    ),
    max_size=25,
)
SAMPLES = st.lists(
    st.tuples(st.integers(0, 60), st.one_of(st.integers(800, 1800), st.just(0))), max_size=6
)


def _records(tasks: list[Task], samples: Sequence[tuple[int, int]], steps: int) -> Records:
    strings = StringPool()
    return Records(
        0,
        strings,
        tasks=table_of(
            Tasks,
            [
                {
                    "start_ns": start,
                    "end_ns": start + length,
                    "name": f"{kind}7",
                    "op_type": kind,
                    "input_shapes": shapes,
                }
                for start, length, kind, shapes, _ in tasks
            ],
            strings,
            compute=True,
        ),
        steps=table_of(
            Steps,
            [{"start_ns": at, "end_ns": at + 1, "iteration": at} for at in range(steps)],
            graph=0,
        ),
        series=table_of(
            CounterSeries,
            [{"group": AI_CORE_FREQUENCY, "name": AI_CORE_FREQUENCY, "unit": "MHz"}],
            strings,
        ),
        samples=table_of(
            CounterSamples, [{"time_ns": at, "value": value} for at, value in samples], series=0
        ),
    )


def _work(tasks: list[Task], samples: Sequence[tuple[int, int]] = (), steps: int = 0) -> RankWork:
    records = _records(tasks, samples, steps)
    step = np.array([task[-1] for task in tasks], np.intp)
    by_step = np.zeros(steps, np.int64)
    for _, length, *_, at in tasks:
        if 0 <= at < steps:
            by_step[at] += length
    return computed_work(records, step, by_step, sum(length for _, length, *_ in tasks))


@given(TASKS, st.randoms(use_true_random=False))
def test_order_and_length_of_tasks_do_not_change_what_work_is(
    tasks: list[Task], random: Random
) -> None:
    """Ranks are peers however long their tasks take, and however these overlap."""
    other = [
        (start + 3, length + 1, kind, shapes, step) for start, length, kind, shapes, step in tasks
    ]
    random.shuffle(other)
    one, two = _work(tasks, steps=5), _work(other, steps=5)
    assert (one.digest, one.types_digest, one.steps) == (two.digest, two.types_digest, two.steps)


@given(TASKS.filter(bool))
def test_one_more_task_is_other_work(tasks: list[Task]) -> None:
    """Ranks that run an operator once more, or on other shapes, are no peers."""
    start, length, kind, shapes, step = tasks[0]
    whole = _work(tasks)
    more = _work([*tasks, tasks[0]])
    reshaped = _work([(start, length, kind, shapes + ",1", step), *tasks[1:]])
    assert whole.digest != more.digest and whole.types_digest != more.types_digest
    assert whole.digest != reshaped.digest and whole.types_digest == reshaped.types_digest


@given(TASKS.filter(bool), SAMPLES)
def test_the_frequency_is_the_mean_over_each_ns_of_computing(
    tasks: list[Task], samples: list[tuple[int, int]]
) -> None:
    """Each ns that a task computes counts with the sample that holds then, if that tells any."""
    samples = list(dict(samples).items())
    found = _work(tasks, samples).frequency_mhz
    samples = [one for one in samples if one[1]]
    if not samples:
        assert found is None
        return
    held = []
    for start, length, *_ in tasks:
        for moment in range(start, start + length):
            before = [one for one in sorted(samples) if one[0] <= moment]
            held.append((before[-1] if before else min(samples))[1])
    assert found == pytest.approx(sum(held) / len(held))


def _made(types: dict[str, tuple[int, int]], digest: int, mhz: float | None = None) -> RankWork:
    """Ten steps of some types: how often and how long each in one step."""
    strings = ("", *types)
    return RankWork(
        10,
        digest,
        digest // 10,
        10 * sum(count * each for count, each in types.values()),
        mhz,
        strings,
        WorkTimes.of(
            len(types),
            {
                "type": np.arange(1, len(strings)),
                "count": [10 * count for count, _ in types.values()],
                "total_ns": [10 * count * each for count, each in types.values()],
            },
        ),
    )


ORDINARY = {"MatMulV2": (20, 1000), "Add": (10, 100)}


def _cause(one: RankWork, others: list[RankWork]) -> ComputingCause:
    return ComputingCause(computing_causes([one, *others]).causes.cause[0])


def test_the_same_work_at_a_lower_frequency_is_a_matter_of_frequency() -> None:
    """12% longer at 1.50 against 1.80 GHz is the clock; at 1.79 GHz, or unknown, it is not."""
    longer = {"MatMulV2": (20, 1120), "Add": (10, 112)}
    peers = [_made(ORDINARY, 31, 1800.0)] * 3
    assert _cause(_made(longer, 31, 1500.0), peers) is ComputingCause.FREQUENCY
    assert _cause(_made(longer, 31, 1790.0), peers) is ComputingCause.OPERATORS
    assert _cause(_made(longer, 31), peers) is ComputingCause.OPERATORS


def test_more_or_other_work_is_told_from_slower_work() -> None:
    """A rank without peers is compared with those that run the same operators, else with all."""
    more = {"MatMulV2": (24, 1000), "Add": (10, 100)}
    peers = [_made(ORDINARY, 31)] * 3
    found = computing_causes([_made(more, 50), *peers])
    assert ComputingCause(found.causes.cause[0]) is ComputingCause.WORK
    assert found.strings[found.causes.type[0]] == "MatMulV2"
    assert (found.causes.count[0], found.causes.peer_count[0]) == (24, 20)
    assert found.causes.type_ns[0] - found.causes.peer_type_ns[0] == 4000
    reshaped = _made({"MatMulV2": (20, 1300), "Add": (10, 100)}, 38)
    assert _cause(reshaped, peers) is ComputingCause.SHAPES


def test_stages_of_a_pipeline_are_compared_with_their_own_kind() -> None:
    """Ranks that do another, longer work together are no reason for each other's."""
    short, long = _made(ORDINARY, 31), _made({"MatMulV2": (40, 1000)}, 72)
    found = computing_causes([short, long, long, short, short]).causes
    assert found.cause.tolist() == [ComputingCause.NONE] * 5
    assert found.peers.tolist() == [2, 1, 1, 2, 2]
    classes = peer_classes([short, long, long, short, replace(short, digest=NO_WORK)])
    assert classes[0] == classes[3] and classes[1] == classes[2]
    assert len(set(classes.tolist())) == 3


def test_each_of_two_ranks_is_the_peer_of_the_other() -> None:
    """Two ranks are compared with each other, not with what lies between them."""
    longer = _made({"MatMulV2": (20, 1500), "Add": (10, 100)}, 31)
    found = computing_causes([longer, _made(ORDINARY, 31), RankWork()]).causes
    assert found.cause.tolist() == [ComputingCause.OPERATORS, 0, 0]
    assert found.computing_ns.tolist() == [31000, 21000, 0]
    assert found.peer_ns.tolist() == [21000, 31000, 0]
