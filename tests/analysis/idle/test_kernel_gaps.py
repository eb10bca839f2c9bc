"""Proves who makes gaps between kernels, on few kernels whose launches and waits are known."""

from __future__ import annotations

import pytest

from tests.support.made_launches import Call, Step, Task, made_records
from timeline.analysis.cut import cut
from timeline.analysis.idle.idle_causes import measure_idle
from timeline.analysis.idle.kernel_gaps import CallsOutside, GapSums, KernelGaps
from timeline.analysis.overlap import measure_overlap
from timeline.records.tables import Records
from timeline.selection import Selection

WAIT = "aclrtSynchronizeStream"


def gaps_of(records: Records) -> KernelGaps:
    """The gaps of all records of a rank."""
    overlap = measure_overlap(records.tasks, records.ops)
    return measure_idle(cut(records, Selection()), overlap).times.kernel_gaps


def queued(count: int, gap_ns: int) -> tuple[list[Call], list[Task]]:
    """Kernels of 100 ns that are all launched before the first of them ends."""
    calls = [Call(-500 + at, -499 + at, "launch", connection=at) for at in range(count)]
    starts_ns = [at * (100 + gap_ns) for at in range(count)]
    return calls, [Task(at_ns, at_ns + 100, at) for at, at_ns in enumerate(starts_ns)]


def test_gaps_of_queued_kernels_are_the_devices() -> None:
    """No launch is late, and the device needs each gap."""
    calls, tasks = queued(12, 40)
    gaps = gaps_of(made_records(calls=calls, tasks=tasks))
    assert gaps.all == gaps.queued == GapSums(11, 440, 40)
    assert (gaps.late, gaps.waited, gaps.least_ns) == (GapSums(), GapSums(), 40)
    assert gaps.span_ns == 12 * 100 + 440
    assert gaps.before == CallsOutside(12, "launch", 12)


def test_a_launch_at_the_end_of_a_kernel_is_late() -> None:
    """One that begins a nanosecond before is not; the time up to the start is the device's."""
    calls = [Call(99, 110, "launch", connection=1), Call(300, 320, "launch", connection=2)]
    tasks = [Task(0, 100), Task(150, 300, 1), Task(380, 400, 2)]
    gaps = gaps_of(made_records(calls=calls, tasks=tasks))
    assert (gaps.queued, gaps.late) == (GapSums(1, 50, 50), GapSums(1, 80, 80))
    assert (gaps.least_ns, gaps.start_ns) == (0, 60)


@pytest.mark.parametrize("late_ns", [0, 30])
def test_waits_after_each_kernel_are_seen_through_clocks(late_ns: int) -> None:
    """Also if the host's clock is late, so that waits seem to return within the next kernel."""
    tasks = [Task(at, at + 100) for at in range(0, 1000, 150)]
    calls = [Call(task.start_ns + 10 + late_ns, task.end_ns + 40 + late_ns, WAIT) for task in tasks]
    gaps = gaps_of(made_records(calls=calls, tasks=tasks))
    assert gaps.all == gaps.waited == GapSums(6, 300, 50)
    assert gaps.call == WAIT
    assert gaps.queued == gaps.late == GapSums()


def test_a_wait_for_queued_kernels_is_no_gap() -> None:
    """It covers the gaps of the device, and returns after the last kernel."""
    calls, tasks = queued(5, 40)
    wait = Call(50, tasks[-1].end_ns + 10, WAIT)
    gaps = gaps_of(made_records(calls=[*calls, wait], tasks=tasks))
    assert (gaps.waited, gaps.call) == (GapSums(), "")


def test_calls_outside_count_once() -> None:
    """Calls inside calls are part of these; those that reach into kernels are left out."""
    calls = [
        Call(0, 500, "GetWorkspaceSize"),
        Call(100, 300, "Tiling"),
        Call(500, 600, "Malloc"),
        Call(900, 1100, "launch", connection=1),
        Call(1300, 1350, "Reset"),
    ]
    gaps = gaps_of(made_records(calls=calls, tasks=[Task(1000, 1200, 1)]))
    assert gaps.before == CallsOutside(600, "GetWorkspaceSize", 500)
    assert gaps.after == CallsOutside(50, "Reset", 50)


def test_ranks_with_steps_have_none() -> None:
    """Steps say where time goes."""
    calls, tasks = queued(5, 40)
    made = made_records(calls=calls, tasks=tasks, steps=[Step(0, 1000, 1)])
    assert gaps_of(made) == KernelGaps()
