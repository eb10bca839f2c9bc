"""Proves which call launched what the device ran, and which host calls wait for what."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.scenario import Scenario
from simulator.simulation import make_run
from simulator.writers.kineto import lost_kernels, overrunning_kernel, write_kineto
from tests.support.kineto_traces import CALL, KERNEL, read
from tests.support.made_launches import Arrow, Call, Op, Task, made_records
from tests.support.profile_shelf import Event, ProfileShelf, tiny_run
from tests.support.random_intervals import Interval, columns_of, intervals
from tests.support.read_profiles import records_by_rank, records_of
from tests.support.run_command import Command
from timeline.analysis.idle import host_calls
from timeline.analysis.idle.host_calls import (
    Calls,
    fetching_names,
    names_waiting_for_data,
    names_waiting_for_device,
    split_by_call,
)
from timeline.analysis.idle.launches import MOST_HOST_OFFSET_NS, device_items, with_lost_kernels
from timeline.columns.columns import Codes
from timeline.columns.strings import ExtendedPool, StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import FlowEnd

# -- launches --------------------------------------------------------------------------------------


HOST, TASK, OP = FlowEnd.HOST, FlowEnd.TASK, FlowEnd.OP
LAYOUTS = ("torch-db", "torch-text", "mindstudio", "kineto")


def test_tasks_and_ops_are_in_order_of_start_and_only_those_that_compute() -> None:
    """Rows of both tables are merged by start; what copies is no item."""
    records = made_records(
        tasks=[Task(50, 60), Task(0, 10), Task(20, 30, does="copies")], ops=[Op(30, 40)]
    )
    items = device_items(records)
    assert items.start_ns.tolist() == [0, 30, 50]
    assert items.is_op.tolist() == [False, True, False]
    assert items.row.tolist() == [1, 0, 0]
    assert items.stream.tolist() == [7, NO_ID, 7]
    assert items.launch.tolist() == items.asked.tolist() == [NO_ID] * 3
    assert items.launch_start_ns.tolist() == items.asked_ns.tolist() == [NO_TIME] * 3


def test_a_launch_is_found_by_connection_and_the_latest_call_counts() -> None:
    """Only calls of runtimes launch; of two calls of one connection the inner one does."""
    records = made_records(
        calls=[
            Call(0, 90, connection=4),
            Call(10, 20, connection=4),
            Call(11, 19, connection=4, layer="Python"),
            Call(30, 35, connection=5),
        ],
        tasks=[Task(100, 110, 4)],
        ops=[Op(120, 130, 5), Op(140, 150, 6)],
    )
    items = device_items(records)
    assert items.launch.tolist() == items.asked.tolist() == [1, 3, NO_ID]
    assert items.launch_start_ns.tolist() == [10, 30, NO_TIME]
    assert items.launch_end_ns.tolist() == [20, 35, NO_TIME]


def test_many_launches_and_kernels_of_one_connection_take_little_memory() -> None:
    """Each kernel has the last call that began in time, and no pair of all is ever held."""
    count, far_ns = 10_000, 10 * MOST_HOST_OFFSET_NS
    calls = [Call(at * far_ns, at * far_ns + 10, connection=4) for at in range(count)]
    tasks = [Task(at * far_ns + 20, at * far_ns + 30, 4) for at in range(count)]
    records = made_records(calls=calls, tasks=tasks)
    tracemalloc.start()
    items = device_items(records)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert items.launch.tolist() == list(range(count))
    assert most_bytes < 20 << 20


def test_arrows_tell_launches_and_the_enqueue_that_asked() -> None:
    """The enqueue whose arrow ends at the dequeue around the launch asked for it."""
    records = made_records(
        calls=[
            Call(0, 5, "Enqueue", "Python", thread=1),
            Call(10, 30, "Dequeue", "Python", thread=2),
            Call(12, 20, "launch", "CANN", thread=2),
            Call(40, 50, "launch", "CANN", thread=2),
            Call(1, 4, "Enqueue", "Python", thread=1),
            Call(60, 70, "Dequeue", "Python", thread=2),
        ],
        tasks=[Task(100, 110), Task(120, 130)],
        arrows=[
            Arrow("HostToDevice", (HOST, 2), (TASK, 0)),
            Arrow("HostToDevice", (HOST, 3), (TASK, 1)),
            Arrow("async_task_queue", (HOST, 0), (HOST, 1)),
            Arrow("async_task_queue", (HOST, 4), (HOST, 5)),
        ],
    )
    items = device_items(records)
    assert items.launch.tolist() == [2, 3]
    assert items.asked.tolist() == [0, 3]
    assert items.asked_ns.tolist() == [0, 40]


def test_where_no_launch_is_recorded_the_framework_asked_at_launch_ns() -> None:
    """An arrow of the framework tells who asked, and the launch time when; neither is a launch."""
    records = made_records(
        calls=[Call(10, 90, "aten::add", "Python")],
        tasks=[Task(100, 110, launch_ns=20), Task(120, 130, launch_ns=30), Task(140, 150)],
        arrows=[Arrow("async_npu", (HOST, 0), (TASK, 0)), Arrow("async_npu", (HOST, 0), (TASK, 2))],
    )
    items = device_items(records)
    assert items.launch.tolist() == [NO_ID] * 3
    assert items.launch_start_ns.tolist() == [NO_TIME] * 3
    assert items.asked.tolist() == [0, NO_ID, 0]
    assert items.asked_ns.tolist() == [20, 30, 10]


def test_what_starts_too_long_before_a_call_was_not_launched_by_it() -> None:
    """The limit counts on the clocks as recorded, however far host times were moved."""
    start_ns = 10 * MOST_HOST_OFFSET_NS
    for over_ns, launched in ((0, True), (1, False)):
        at_ns = start_ns + MOST_HOST_OFFSET_NS + over_ns
        records = made_records(
            calls=[Call(at_ns, at_ns + 5, connection=3)], tasks=[Task(start_ns, start_ns + 1, 3)]
        )
        assert (device_items(records).launch.tolist() == [0]) is launched
        moved = replace(records, host=records.host.shifted(-400), host_offset_ns=-400)
        assert (device_items(moved).launch.tolist() == [0]) is launched


def test_layouts_of_one_run_name_the_same_launches(shelf: ProfileShelf) -> None:
    """Whichever file tells of a run, as many items are launched, and by calls of the same times."""
    found = {}
    for layout in LAYOUTS:
        items = device_items(records_of(shelf.get(layout).captures[0]))
        assert (items.launch != NO_ID).any(), layout
        assert (np.diff(items.start_ns) >= 0).all()
        found[layout] = np.sort(items.launch_start_ns[items.launch != NO_ID])
    first_ns = {layout: (times - times[0]).tolist() for layout, times in found.items()}
    assert first_ns["torch-db"] == first_ns["torch-text"]


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


# -- host calls that wait --------------------------------------------------------------------------


WAITING_FOR_DEVICE = (
    "aclrtSynchronizeStreamWithTimeout",
    "AscendCL@aclrtSynchroniseDevice",
    "syncStream",
    "aclrtMemcpy",
    "cudaMemcpy",
    "hipMemcpy",
    "aten::item",
    "aten::_local_scalar_dense",
)
WAITING_FOR_DATA = (
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "torch/utils/data/dataloader.py(625): __next__",
)
FETCHING = ("GetNext", "Default/GetNext-op12", "get_next")
OTHERS = (
    "",
    "aclrtMemcpyAsync",
    "cudaMemcpyAsync",
    "aten::items",
    "synchrotron",
    "enumerate(Loader)",
    "dataloader.py(12): __init__",
    "GetNextGrad",
    "next",
)


@pytest.mark.parametrize("spelled", [str, str.upper, str.lower, str.swapcase])
@pytest.mark.parametrize(
    ("codes_of", "wanted"),
    [
        (names_waiting_for_device, WAITING_FOR_DEVICE),
        (names_waiting_for_data, WAITING_FOR_DATA),
        (fetching_names, FETCHING),
    ],
)
def test_calls_are_told_by_their_names(
    codes_of: Callable[[StringPool], Codes], wanted: Sequence[str], spelled: Callable[[str], str]
) -> None:
    """Each of those that it is about is found, and no other one, in order of codes."""
    names = [*OTHERS, *FETCHING, *WAITING_FOR_DATA, *WAITING_FOR_DEVICE]
    pool = StringPool()
    pool.codes(map(spelled, names[:12]))
    pool = ExtendedPool(pool, list(map(spelled, names[12:])))
    found = codes_of(pool)
    assert [pool[code] for code in found.tolist()] == [spelled(name) for name in wanted]


def innermost_at(calls: Sequence[Interval], moment_ns: int) -> Interval | None:
    """Of the calls that are open the one that began last, the shorter one of two."""
    found = [call for call in calls if call[0] <= moment_ns < call[1]]
    return max(found, key=lambda call: (call[0], -call[1]), default=None)


def calls_of(pairs: Sequence[Interval]) -> Calls:
    start_ns, end_ns = columns_of(pairs)
    return Calls(start_ns, end_ns, np.arange(len(pairs)) + 100)


@pytest.mark.parametrize("window", [1, 3, 1 << 16])
@given(calls=intervals(), stretches=intervals())
def test_each_moment_of_each_stretch_has_its_innermost_call(
    window: int, calls: list[Interval], stretches: list[Interval]
) -> None:
    """Parts tile every stretch, and name the call, however many calls are looked at together."""
    stretches = [pair for pair in stretches if pair[1] > pair[0]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_calls, "WINDOW_CALLS", window)
        found = list(split_by_call(calls_of(calls), *columns_of(stretches)))
    named: dict[tuple[int, int], int] = {}
    for one in found:
        parts = one.stretches
        for of, start_ns, end_ns, call in zip(
            parts.stretch.tolist(),
            parts.start_ns.tolist(),
            parts.end_ns.tolist(),
            parts.call.tolist(),
            strict=True,
        ):
            for moment_ns in range(start_ns, end_ns):
                assert (of, moment_ns) not in named
                named[of, moment_ns] = call
    wanted = {
        (of, moment_ns): innermost_at(calls, moment_ns)
        for of, (start_ns, end_ns) in enumerate(stretches)
        for moment_ns in range(start_ns, end_ns)
    }
    assert named.keys() == wanted.keys()
    for key, call in named.items():
        assert (None if call == NO_ID else calls[call - 100]) == wanted[key]


@given(calls=intervals(), stretches=intervals(), some=st.lists(st.booleans(), min_size=12))
def test_the_innermost_of_some_calls_is_told_apart(
    calls: list[Interval], stretches: list[Interval], some: list[bool]
) -> None:
    """Around the innermost call, which of some others is open."""
    stretches = [pair for pair in stretches if pair[1] > pair[0]]
    for one in split_by_call(calls_of(calls), *columns_of(stretches)):
        mask = np.array([some[row - 100] for row in one.calls.row.tolist()], np.bool_)
        chosen = [call for call, is_one in zip(calls, some, strict=False) if is_one]
        for start_ns, call in zip(
            one.stretches.start_ns.tolist(), one.innermost_of(mask).tolist(), strict=True
        ):
            wanted = innermost_at(chosen, start_ns)
            assert (None if call == NO_ID else calls[call - 100]) == wanted
