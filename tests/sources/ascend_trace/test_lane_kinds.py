"""Proves that planes belong to the group whose lane is before them, among any number of lanes."""

from __future__ import annotations

from timeline.sources.ascend_trace.lane_kinds import AscendLanes


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
