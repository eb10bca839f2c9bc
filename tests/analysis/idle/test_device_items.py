"""Proves which call launched what the device ran, and when the framework had asked for it."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np

from tests.support.made_launches import Arrow, Call, Op, Task, made_records
from tests.support.profile_shelf import ProfileShelf
from tests.support.read_profiles import records_of
from timeline.analysis.idle.launches import MOST_HOST_OFFSET_NS, device_items
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import FlowEnd

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
        arrows=[
            Arrow("async_npu", (HOST, 0), (TASK, 0)),
            Arrow("async_npu", (HOST, 0), (TASK, 2)),
        ],
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
