"""Proves that small tables are found by every name that they have, for the rank in that name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from timeline.sources.companions.file_kinds import (
    NumberedFile,
    find_numbered_files,
    numbers_in,
    table_number,
)

NAMES = [
    ("flops_7.txt", NumberedFile.FLOPS),
    ("flops_summary_7.json", NumberedFile.FLOPS_SUMMARY),
    ("flops_scope_7.json", NumberedFile.FLOPS_SCOPE),
    ("flops_utilization_step_7.json", NumberedFile.FLOPS_STEPS),
    ("device_queue_profiling_7.txt", NumberedFile.DEVICE_QUEUE),
    ("dataset_iterator_profiling_7.txt", NumberedFile.ITERATOR_QUEUE),
    ("minddata_aicpu_7.txt", NumberedFile.GET_NEXT),
    ("minddata_getnext_profiling_7.txt", NumberedFile.GET_NEXT_GPU),
    ("pipeline_profiling_7.json", NumberedFile.PIPELINE),
    ("minddata_pipeline_raw_7.csv", NumberedFile.PIPELINE_TABLE),
    ("minddata_cpu_utilization_7.json", NumberedFile.PROCESSORS),
    ("DATA_PREPROCESS.dev.TDT.7.slice_0", NumberedFile.ENQUEUED),
    ("step_trace_raw_7_detail_time.csv", NumberedFile.STEP_TRACE),
    ("ascend_cluster_analyse_pipeline-parallel_2_16_7.csv", NumberedFile.PARALLEL_TIMES),
    ("ascend_cluster_analyse_data-parallel_1_8_7.csv", NumberedFile.PARALLEL_TIMES),
    ("hccl_raw_7.csv", NumberedFile.HCCL),
    ("parallel_strategy_7.json", NumberedFile.PARALLEL_STRATEGY),
    ("aicpu_intermediate_7.csv", NumberedFile.AICPU_SUMS),
    ("aicore_intermediate_7_type.csv", NumberedFile.AICORE_TYPES),
    ("aicore_intermediate_7_detail.csv", NumberedFile.AICORE_DETAIL),
    ("framework_raw_7.csv", NumberedFile.FRAMEWORK),
    ("dynamic_shape_info_7.json", NumberedFile.DYNAMIC_SHAPES),
    ("Framework.host.vm.graph_desc_info.7.slice_0", NumberedFile.GRAPH_DESCRIPTIONS),
    ("Framework.host.vm_graph_desc_info.7.slice_0", NumberedFile.GRAPH_DESCRIPTIONS),
    ("Framework.host.vm_graph_desc_info.7.JOB2.slice_0", NumberedFile.GRAPH_DESCRIPTIONS),
    ("Framework.host.vm.task_desc_info.7.JOBABCD.slice_0", NumberedFile.TASK_DESCRIPTIONS),
    ("Framework.host.vm.task_desc_info.7.GDJB12.slice_0", NumberedFile.TASK_DESCRIPTIONS),
    ("Framework.host.task_desc_info.7.slice_0", NumberedFile.TASK_DESCRIPTIONS),
    ("Framework.host.vm_point.7.slice_0", NumberedFile.STEP_MARKS),
    ("Framework.host.vm.point7.slice_0", NumberedFile.STEP_MARKS),
    ("DATA_PREPROCESS.dev.AICPU.7.slice_0", NumberedFile.AICPU_LOG),
    ("DATA_PREPROCESS.AICPU.7.slice_0", NumberedFile.AICPU_LOG),
    ("output_data_preprocess_aicpu_7.txt", NumberedFile.AICPU_TEXT),
    ("memory_usage_7.pb", NumberedFile.MEMORY_USAGE),
]
BESIDE = [
    ("step_trace_point_info_7.json", NumberedFile.STEP_POINTS),
    ("profiler_info_7.json", NumberedFile.PROFILER_INFO),
    ("cpu_op_execute_timestamp_7.txt", NumberedFile.CPU_OPERATORS),
    ("host_info_7.csv", NumberedFile.HOST_STAGES),
    ("host_memory_7.csv", NumberedFile.HOST_MEMORY),
    ("dataset_7.csv", NumberedFile.DATASET),
]
OTHERS = [
    ("profiler_metadata.json", NumberedFile.METADATA),
    ("dataset.csv", NumberedFile.DATASET_OF_ANY),
    ("timeline_7.json", NumberedFile.HOST_TIMELINE),
]
"""Without a number, or not a file of MindSpore in any directory."""


def settle(directory: Path) -> None:
    """Make a directory look as if it was written long ago, as most are."""
    os.utime(directory, (1e9, 1e9))


def test_every_kind_has_a_name_here() -> None:
    assert {kind for _, kind in NAMES + BESIDE + OTHERS} == {*NumberedFile}


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(("name", "kind"), NAMES + BESIDE)
def test_a_name_tells_the_kind_and_the_rank(
    tmp_path: Path, name: str, kind: NumberedFile, suffix: str
) -> None:
    """Packed or not; most kinds make a directory a profile, and others lie beside those."""
    (tmp_path / (name + suffix)).write_bytes(b"")
    assert find_numbered_files([tmp_path], 7) == {kind: (tmp_path / (name + suffix),)}
    assert find_numbered_files([tmp_path], 0) == {}
    is_alone = (name, kind) in NAMES
    assert numbers_in(tmp_path) == ({7} if is_alone else set())
    assert table_number(name) == (7 if is_alone else None)


@pytest.mark.parametrize(
    "name",
    [
        "flops_07.txt",
        "flops_7.txt.bak",
        "my_flops_7.txt",
        "hccl_raw_-1.csv",
        "step_trace_raw_7.csv",
        "DATA_PREPROCESS.dev.AICPUMI.7.slice_0",
        "DATA_PREPROCESS.dev.AICPU.7.slice_0.done",
        "aicore_intermediate_7.csv",
        "trace_view.json",
    ],
)
def test_other_names_are_of_no_kind(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    assert table_number(name) is None
    assert find_numbered_files([tmp_path], 7) == {}


def test_what_marks_steps_is_of_every_rank_that_has_none_of_its_own(tmp_path: Path) -> None:
    """Older versions write it without a number; alone it tells of no rank."""
    shared = tmp_path / "step_trace_point_info.json"
    shared.write_bytes(b"")
    assert find_numbered_files([tmp_path], 0) == {}
    for name in ("flops_0.txt", "flops_1.txt", "step_trace_point_info_1.json"):
        (tmp_path / name).write_bytes(b"")
    points = [find_numbered_files([tmp_path], rank)[NumberedFile.STEP_POINTS] for rank in (0, 1)]
    assert points == [(shared,), (tmp_path / "step_trace_point_info_1.json",)]


def test_the_timeline_of_the_host_lies_in_a_directory_of_its_own(tmp_path: Path) -> None:
    """Other programs call a file so too."""
    inside = tmp_path / "host_info"
    inside.mkdir()
    for directory in (tmp_path, inside):
        (directory / "timeline_7.json").write_bytes(b"")
    found = find_numbered_files([tmp_path, inside], 7)
    assert found == {NumberedFile.HOST_TIMELINE: (inside / "timeline_7.json",)}


def test_slices_are_in_order_and_the_nearest_directory_counts(tmp_path: Path) -> None:
    """Of each kind the first directory that has one is taken, whole; others may not be there."""
    near, far = tmp_path / "near", tmp_path / "far"
    for directory, numbers in ((near, (10, 9, 0)), (far, (0, 1))):
        directory.mkdir()
        for number in numbers:
            (directory / f"DATA_PREPROCESS.dev.AICPU.3.slice_{number}").write_bytes(b"")
    (far / "flops_3.txt").write_bytes(b"")
    found = find_numbered_files([tmp_path / "absent", near, far], 3)
    assert found[NumberedFile.FLOPS] == (far / "flops_3.txt",)
    names = [path.name.rpartition("_")[2] for path in found[NumberedFile.AICPU_LOG]]
    assert names == ["0", "9", "10"]
    assert {path.parent for path in found[NumberedFile.AICPU_LOG]} == {near}


def test_a_directory_is_listed_once_for_all_its_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it has not changed: thousands of ranks may share it."""
    for rank in range(50):
        (tmp_path / f"flops_{rank}.txt").write_bytes(b"")
    settle(tmp_path)
    listed: list[Path] = []
    iterate = Path.iterdir

    def count(path: Path) -> Iterator[Path]:
        listed.append(path)
        return iterate(path)

    monkeypatch.setattr(Path, "iterdir", count)
    assert all(find_numbered_files([tmp_path], rank) for rank in range(50))
    assert listed == [tmp_path]
    (tmp_path / "hccl_raw_0.csv").write_bytes(b"")
    assert NumberedFile.HCCL in find_numbered_files([tmp_path], 0)
    assert numbers_in(tmp_path) == {*range(50)}
