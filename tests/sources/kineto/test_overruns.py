"""Proves that durations which run over whole later kernels of their stream are cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kineto_traces import CALL, KERNEL, Write, read
from tests.support.profile_shelf import Event
from timeline.analysis.overlap import measure_overlap
from timeline.records.tables import Records, Tasks
from timeline.sources.kineto.tables import clip_overruns


@dataclass
class _Kernels:
    """Events of kernels, numbered one after the other."""

    made: int = 0

    def __call__(
        self, start: float, dur: float, *, correlation: int = 0, **fields: object
    ) -> Event:
        self.made += 1
        args = {"device": 0, "stream": 7, "correlation": correlation or self.made, **fields}
        stream = args["stream"]
        return KERNEL | {"ts": start, "dur": dur, "tid": stream, "args": args}


@pytest.fixture
def kernel() -> _Kernels:
    return _Kernels()


def ends(records: Records) -> list[int]:
    return [end // 1000 for end in records.tasks.end_ns.tolist()]


def test_a_duration_over_two_whole_kernels_is_cut(write: Write, kernel: _Kernels) -> None:
    """At the next start of its stream, with a warning that counts and names it."""
    trace = [kernel(0, 900), kernel(10, 5), kernel(20, 5), kernel(30, 5)]
    records = read(write(trace))
    assert ends(records) == [10, 15, 25, 35]
    assert measure_overlap(records.tasks, records.ops).totals_ns()["computing_ns"] == 25_000
    assert records.warnings == (
        "rank 0: 1 task of the device cannot have run as long as recorded, because two or more "
        "whole kernels ran meanwhile on the same stream; each is cut where the next task starts. "
        "The first is gemm on stream 7.",
    )


def test_several_durations_are_cut(write: Write, kernel: _Kernels) -> None:
    """Also inside each other, of a copy, and on several streams, each at its own next start."""
    copy = kernel(50, 700) | {"cat": "gpu_memcpy", "name": "Memcpy HtoD"}
    trace = [kernel(0, 900), kernel(10, 800), kernel(20, 5), kernel(40, 5), copy, kernel(60, 5)]
    trace += [kernel(80, 5), *(kernel(at, dur, stream=9) for at, dur in ((5, 70), (8, 1), (9, 1)))]
    records = read(write(trace))
    by_start = sorted(zip(records.tasks.start_ns.tolist(), ends(records), strict=True))
    assert [end for _, end in by_start] == [10, 8, 9, 10, 20, 25, 45, 60, 65, 85]
    assert "rank 0: 4 tasks of the device" in records.warnings[0]


@pytest.mark.parametrize(
    "others",
    [
        [(6, 5), (12, 5)],
        [(6, 2), (9, 20)],
        [(6, 2)],
        [(0, 3), (0, 3)],
        [(4, 0), (6, 0)],
    ],
)
def test_other_overlap_is_left(
    write: Write, kernel: _Kernels, others: list[tuple[int, int]]
) -> None:
    """Of kernels that are launched early, of one that lies inside, of those that begin at once."""
    records = read(write([kernel(0, 10), *(kernel(*times) for times in others)]))
    assert ends(records) == [10, *(start + dur for start, dur in others)]
    assert not records.warnings


def test_other_streams_and_devices_do_not_count(write: Write, kernel: _Kernels) -> None:
    """What runs beside a kernel says nothing of its duration."""
    elsewhere = [kernel(at, 1, stream=9) for at in (2, 4)]
    beyond = [kernel(at, 1, device=1) for at in (2, 4)]
    records = read(write([kernel(0, 10), *elsewhere, *beyond]))
    assert ends(records)[0] == 10


@pytest.mark.parametrize("recorded", [True, False])
def test_branches_of_graphs_overlap(write: Write, kernel: _Kernels, recorded: bool) -> None:
    """Whether the call that launched the graph is recorded, or the kernels share its number."""
    trace = [kernel(at, dur, correlation=50) for at, dur in ((0, 90), (10, 5), (20, 5), (30, 5))]
    launch = CALL | {"name": "cudaGraphLaunch", "ts": -5, "args": {"correlation": 50}}
    records = read(write([launch, *trace] if recorded else trace))
    assert ends(records) == [90, 15, 25, 35]
    assert not records.warnings


def test_kernels_that_no_graph_is_known_to_have_launched(write: Write, kernel: _Kernels) -> None:
    """Without a correlation they may be of any graph that the trace launches."""
    trace = [kernel(at, dur) for at, dur in ((0, 90), (10, 5), (20, 5))]
    for event in trace:
        del event["args"]["correlation"]
    launch = CALL | {"name": "hipGraphLaunch", "ts": -5}
    assert ends(read(write([launch, *trace]))) == [90, 15, 25]
    assert ends(read(write(trace))) == [10, 15, 25]


_Times = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 1)), max_size=9)


@given(_Times)
def test_the_rule_is_what_it_says(times: list[tuple[int, int, int]]) -> None:
    """Compared with the same rule in words, for any kernels on two streams."""
    rows = [(start, start + length, stream) for start, length, stream in times]
    wanted = []
    for start, end, stream in rows:
        later = [one for one in rows if one[2] == stream and start < one[0] < one[1]]
        broken = sum(one[1] <= end for one in later) >= 2
        wanted.append(min(one[0] for one in later) if broken else end)
    columns = np.array(rows, np.int64).reshape(-1, 3)
    tasks = Tasks.of(
        len(rows),
        {
            "start_ns": columns[:, 0],
            "end_ns": columns[:, 1],
            "stream": columns[:, 2],
            "name": np.zeros(len(rows), np.int32),
            "compute": np.ones(len(rows), np.bool_),
        },
    )
    cut, which = clip_overruns(tasks, np.zeros(len(rows), np.bool_))
    assert cut.end_ns.tolist() == wanted
    assert sorted(which.tolist()) == [at for at, row in enumerate(rows) if row[1] != wanted[at]]
