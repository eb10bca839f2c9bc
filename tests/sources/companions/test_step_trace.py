"""Proves that the mean row of a step trace and its points are read, in all their spellings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from timeline.records.not_given import NO_GRAPH
from timeline.records.profiler_tables import ProfilerTables, StepPoints, StepTraceMeans
from timeline.sources.companions.delimited import TablesBuilder
from timeline.sources.companions.file_kinds import find_numbered_files
from timeline.sources.companions.step_trace import read_step_trace

HEADER = "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail"
STEP = "1,100,300,200,110,250,10,140,50"
TRACE, POINTS = "step_trace_raw_0_detail_time.csv", "step_trace_point_info.json"
MARKS = "Framework.host.vm.point.0.slice_0"


def read(directory: Path, name: str, text: str) -> tuple[ProfilerTables, list[str]]:
    (directory / name).write_text(text)
    # Files without a number are of a rank that has others.
    (directory / "flops_summary_0.json").write_text("{}")
    into = TablesBuilder(0)
    read_step_trace(find_numbered_files([directory], 0), into)
    tables, omissions = into.build()
    return tables, [one.reason for one in omissions]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("-,105,305,210,115,255,12,141,52", [(2100, 120, 1410, 520)]),
        ("0,0,0,0,0,0,1243211,0,0", [(0, 12_432_110, 0, 0)]),
        ("0,0,0,0,0,0,0,0,0", [(0, 0, 0, 0)]),
        ("0,105,305,210,115,255,12,141,52", [(2100, 120, 1410, 520)]),
        ("-,0,0,9,0,0,9,9,9\n-,0,0,210,0,0,12,141,52", [(2100, 120, 1410, 520)]),
        ("2,300,500,200,310,450,10,140,50", []),
    ],
)
@pytest.mark.parametrize("end", ["\n", ""])
def test_the_mean_of_the_file(
    tmp_path: Path, last: str, expected: list[tuple[int, ...]], end: str
) -> None:
    """Ticks of 10 ns; marked by a dash or by zeros; of several the last; it may lack an end."""
    tables, lost = read(tmp_path, TRACE, f"{HEADER}\n{STEP}\n{last}{end}")
    means = tables.of(StepTraceMeans)
    names = ("total_ns", "interval_ns", "fp_bp_ns", "tail_ns")
    assert list(zip(*(getattr(means, name).tolist() for name in names), strict=True)) == expected
    assert not lost


def test_columns_that_a_file_lacks_are_not_known(tmp_path: Path) -> None:
    """Inference has no backward, and columns are found by their names."""
    tables, _ = read(
        tmp_path,
        TRACE,
        "step_num,start_point,end_point,fp_point,fp,iteration_interval,total\n-,1,2,1,3,4,9\n",
    )
    means = tables.of(StepTraceMeans)
    assert (int(means.total_ns[0]), int(means.interval_ns[0])) == (90, 40)
    assert int(means.fp_bp_ns[0]) == int(means.tail_ns[0]) == np.iinfo(np.int64).min


def test_means_go_where_steps_are_selected(tmp_path: Path) -> None:
    """Nobody knows what of a mean is of some steps."""
    tables, _ = read(tmp_path, TRACE, f"{HEADER}\n{STEP}\n{STEP.replace('1,', '-,', 1)}\n")
    assert len(tables.of(StepTraceMeans)) == 1
    assert not len(tables.selected(frozenset({1}), None).of(StepTraceMeans))
    assert len(tables.selected(None, frozenset({1})).of(StepTraceMeans)) == 1


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (POINTS, '{"fp_start": "a", "bp_end": "b"}', [(NO_GRAPH, "a", "b")]),
        (POINTS, '{"fp_start": "a"}', [(NO_GRAPH, "a", "")]),
        (
            "step_trace_point_info_0.json",
            '{"fp_start": "a", "bp_end": "b"}',
            [(NO_GRAPH, "a", "b")],
        ),
        (POINTS, '[{"fp_start": "a", "bp_end": "b"}, {"fp_start": "c"}]', [(NO_GRAPH, "a", "b")]),
        (
            POINTS,
            '{"model_1": {"fp_start": "a", "bp_end": "b"}, "graph_4": {"fp_start": "c"}}',
            [(1, "a", "b"), (4, "c", "")],
        ),
        (MARKS, "1 a\n2 b\n3 AllReduce-op1\n", [(NO_GRAPH, "a", "b")]),
    ],
)
def test_where_forward_begins_and_backward_ends(
    tmp_path: Path, name: str, text: str, expected: list[tuple[int, str, str]]
) -> None:
    """In a file of the rank or of all, of each graph or of all, of each step on GPUs."""
    tables, lost = read(tmp_path, name, text)
    points, strings = tables.of(StepPoints), tables.strings
    found = zip(
        points.graph.tolist(), points.fp_start.tolist(), points.bp_end.tolist(), strict=True
    )
    assert [(graph, strings[begin], strings[end]) for graph, begin, end in found] == expected
    assert not lost


@pytest.mark.parametrize("text", ["{", "3", "{}", '{"fp_start": 3}'])
def test_points_that_cannot_be_read_are_told(tmp_path: Path, text: str) -> None:
    """With the file."""
    tables, lost = read(tmp_path, POINTS, text)
    assert len(lost) == 1
    assert POINTS in lost[0]
    assert not len(tables.of(StepPoints))
