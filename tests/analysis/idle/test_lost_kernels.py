"""Proves that launches whose kernels were lost are told from those that rightly have none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.scenario import Scenario
from simulator.simulation import make_run
from simulator.writers.kineto import lost_kernels, overrunning_kernel, write_kineto
from tests.support.kineto_traces import CALL, KERNEL, read
from tests.support.profile_shelf import Event, tiny_run
from tests.support.read_profiles import records_by_rank
from tests.support.run_command import Command
from timeline.analysis.idle.launches import with_lost_kernels

LOST = " without a kernel, though later ones have theirs: the profiler lost what they launched."
LOST_ONE = " without a kernel, though later ones have theirs: the profiler lost it."


def call(ts: int, correlation: int, name: str = "cudaLaunchKernel", **fields: Any) -> Event:
    return CALL | {"ts": ts, "dur": 2, "name": name, "args": {"correlation": correlation}} | fields


def launched(ts: int, start: int, correlation: int, stream: int = 7) -> list[Event]:
    """A call and its kernel, which takes 5 us."""
    args = {"device": 0, "stream": stream, "correlation": correlation}
    return [call(ts, correlation), KERNEL | {"ts": start, "args": args}]


def lost_in(tmp_path: Path, *events: Event) -> tuple[list[tuple[int, int]], str]:
    """When kernels may have run that are not recorded, in us, and what is said of them."""
    path = tmp_path / "rank0.pt.trace.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    records = with_lost_kernels(read(path))
    times = records.unrecorded
    (warning,) = records.warnings or ("",)
    starts, ends = (times.start_ns // 1000).tolist(), (times.end_ns // 1000).tolist()
    return list(zip(starts, ends, strict=True)), warning.removeprefix("rank 0: ")


def test_what_was_launched_between_recorded_kernels(tmp_path: Path) -> None:
    """It ran after the kernel that was launched before, and not before its own launch."""
    around = [*launched(0, 10, 1), *launched(40, 90, 9)]
    lost = [call(20, 2), call(30, 3)]
    assert lost_in(tmp_path, *around, *lost) == ([(20, 90)], f"2 launches{LOST}")
    early = [*launched(0, 30, 1), *launched(40, 90, 9), call(20, 2)]
    assert lost_in(tmp_path, *early) == ([(35, 90)], f"1 launch{LOST_ONE}")


def test_kernels_may_be_lost_at_the_beginning_and_in_several_places(tmp_path: Path) -> None:
    trace = [
        call(0, 1),
        *launched(5, 20, 2),
        call(30, 3),
        *launched(35, 50, 4),
        *launched(60, 70, 5),
    ]
    assert lost_in(tmp_path, *trace) == ([(0, 20), (30, 50)], f"2 launches{LOST}")


def test_streams_run_beside_each_other(tmp_path: Path) -> None:
    """What is lost ran between kernels of the busier stream around it."""
    busy = [*launched(0, 10, 1), *launched(60, 90, 2), *launched(62, 96, 3)]
    other = launched(40, 41, 4, stream=20)
    assert lost_in(tmp_path, *busy, *other, call(30, 5)) == ([(30, 90)], f"1 launch{LOST_ONE}")


def test_graphs_lose_their_kernels_too(tmp_path: Path) -> None:
    trace = [*launched(0, 10, 1), call(20, 2, "cudaGraphLaunch"), *launched(40, 90, 9)]
    assert lost_in(tmp_path, *trace) == ([(20, 90)], f"1 launch{LOST_ONE}")


@pytest.mark.parametrize(
    "between",
    [
        [call(50, 2)],
        [call(20, 2, "cudaLaunchHostFunc")],
        [call(20, 2, "cudaMemsetAsync")],
        [call(10, 7, "cudaStreamBeginCapture"), call(20, 2), call(30, 8, "cudaStreamEndCapture")],
        [call(20, 2), call(30, 8, "hipStreamEndCapture")],
        [call(10, 7, "cudaStreamBeginCapture"), call(20, 2)],
        [call(20, 1)],
    ],
)
def test_what_rightly_has_no_kernel(tmp_path: Path, between: list[Event]) -> None:
    """The last launches, what runs on the host, what is captured, and a call around another."""
    trace = [*launched(0, 10, 1), *launched(40, 90, 9)]
    assert lost_in(tmp_path, *trace, *between) == ([], "")


def test_captures_are_those_of_a_thread(tmp_path: Path) -> None:
    """And launches after a capture are none of it."""
    trace = [*launched(0, 10, 1), *launched(40, 90, 9)]
    begin, end = call(12, 7, "cudaStreamBeginCapture"), call(16, 8, "cudaStreamEndCapture")
    elsewhere = call(20, 2, tid=5)
    assert lost_in(tmp_path, *trace, begin, elsewhere)[1] == f"1 launch{LOST_ONE}"
    assert lost_in(tmp_path, *trace, begin, end, call(20, 2))[1] == f"1 launch{LOST_ONE}"


def test_no_kernel_at_all(tmp_path: Path) -> None:
    """Whatever else the device did."""
    said = "12 launches, and no kernel: the profiler lost what they launched."
    calls = [call(10 * at, at) for at in range(1, 13)]
    assert lost_in(tmp_path, *calls) == ([], said)
    copy = KERNEL | {"cat": "gpu_memcpy", "args": {"stream": 7, "correlation": 50}}
    assert lost_in(tmp_path, *calls, call(2, 50, "cudaMemcpyAsync"), copy) == ([], said)


def test_idle_time_with_lost_kernels_is_not_that_of_the_host(
    tmp_path: Path, command: Command
) -> None:
    """Up to their first launch the host was late, and after it nobody knows."""
    trace = [*launched(0, 10, 1), call(30, 2), *launched(40, 90, 9)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": trace}), encoding="utf-8")
    report = command.report(path, "-o", tmp_path / "out.pftrace")
    assert {row["cause"]: row["total_ns"] for row in report["idle"]} == {
        "outside_calls": 15_000,
        "kernels_not_recorded": 60_000,
    }
    assert any("us kernels not recorded" in one for one in report["verdict"]["sentences"])
    assert f"rank 0: 1 launch{LOST_ONE}" in report["warnings"]


def test_lost_records_of_a_run_are_found(tmp_path: Path) -> None:
    """Of a simulated run: when the lost kernels ran, and the duration that runs over others."""
    run = tiny_run(ops_per_step=12)
    write_kineto(run, tmp_path, damaged_step=1)
    for rank, records in records_by_rank(tmp_path).items():
        lost = lost_kernels(run.rank(rank), 1)
        found = with_lost_kernels(records)
        cut, said = found.warnings
        assert cut.startswith(f"rank {rank}: 1 task of the device cannot have run as long")
        assert said == f"rank {rank}: {len(lost)} launches{LOST}"
        times = found.unrecorded
        for task in lost:
            at = np.searchsorted(times.start_ns, run.wall_ns(task.start_ns), side="right") - 1
            assert times.end_ns[at] >= run.wall_ns(task.end_ns)
        overrun = overrunning_kernel(run.rank(rank), 1)
        (row,) = np.flatnonzero(records.tasks.start_ns == run.wall_ns(overrun.start_ns))
        next_ns = min(
            start_ns
            for start_ns, stream in zip(
                records.tasks.start_ns.tolist(), records.tasks.stream.tolist(), strict=True
            )
            if start_ns > records.tasks.start_ns[row] and stream == records.tasks.stream[row]
        )
        assert run.wall_ns(overrun.end_ns) <= records.tasks.end_ns[row] <= next_ns


def test_a_slow_rank_with_lost_kernels_is_not_said_to_launch_late(
    tmp_path: Path, command: Command
) -> None:
    """Its device did not idle when they ran: what is missing is not taken for a late host."""
    run = make_run(ranks=4, steps=4, scenario=Scenario(slow_computing={1: 1.6}))
    packed = write_kineto(run, tmp_path)[1]
    trace = json.loads(gzip.decompress(packed.read_bytes()))
    kernels = [
        event
        for event in sorted(trace["traceEvents"], key=lambda event: float(event.get("ts", 0)))
        if event.get("cat") == "kernel" and "nccl" not in event["name"]
    ]
    for event in kernels[2::5]:
        trace["traceEvents"].remove(event)
    packed.write_bytes(gzip.compress(json.dumps(trace).encode()))
    found = command.report(tmp_path)["verdict"]["findings"]
    assert next(one["ranks"] for one in found if one["fault"]) == [1]
    assert not [one for one in found if one["fault"] and one["cause"] == "host"]
