"""Proves that planes belong to the group whose lane is before them, among any number of lanes."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.support.trace_json_reading import HELD_COUNTS, Writer, pieces, read
from timeline.sources.ascend_trace.lanes import AscendLanes


def test_planes_follow_the_lane_of_their_group() -> None:
    """So many that passing over all names for each lane would take minutes."""
    groups, names = 10_000, AscendLanes({1: "Communication"})
    for group in range(groups):
        names.threads[1, 3 * group] = f"Group {group} Communication"
        names.threads[1, 3 * group + 1] = "Plane 0"
    for group in range(groups):
        assert names.group((1, 3 * group)) == f"Group {group}"
        assert names.group((1, 3 * group + 1)) == f"Group {group}"


def test_planes_before_the_only_lane_are_of_its_group() -> None:
    """Older CANN numbers the lane of ops behind the planes; without any, all are one group."""
    names = AscendLanes({1: "HCCL"}, {(1, 0): "Plane 0", (1, 9): "Group 7 Communication"})
    assert names.group((1, 0)) == "Group 7"
    assert AscendLanes({1: "HCCL"}, {(1, 0): "Plane 0"}).group((1, 0)) == "Group 0"


@pytest.mark.parametrize("process", ["CCU", "Fusion Task", "Block Detail"])
@pytest.mark.parametrize("held", HELD_COUNTS[:2])
def test_unknown_parts_of_a_device_are_no_host(write: Writer, process: str, held: int) -> None:
    """What msprof labels as of an NPU is counted, and no call of a host, wherever labels stand."""
    names = [
        {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}
        for pid, name in ((512, process), (31, "python3"))
    ]
    labels = [
        {"name": "process_labels", "ph": "M", "pid": pid, "args": {"labels": label}}
        for pid, label in ((512, "NPU 0"), (31, "CPU"))
    ]
    rows = [
        {"name": f"row {pid}", "ph": "X", "pid": pid, "tid": 0, "ts": f"{at}.000", "dur": 1.0}
        for pid, at in ((512, 1), (512, 3), (31, 2))
    ]
    for order in permutations([names, labels, rows]):
        path = write([event for events in order for event in events])
        with pieces(held):
            records = read(path)
        host = [records.strings[code] for code in records.host.name.tolist()]
        assert (host, len(records.tasks)) == (["row 31"], 0)
        (unread,) = [one for one in records.omissions if process in one.reason]
        assert unread.rows == 2 and unread.loss
