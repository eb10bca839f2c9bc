"""Proves that sums, shapes and descriptions of operators are read from files of any version."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simulator.model import RankRun, Run
from simulator.simulation import make_run
from simulator.writers.mindspore.tables.operators import (
    write_dynamic_shapes,
    write_framework_texts,
    write_operator_sums,
)
from simulator.writers.mindspore.text import TextFiles
from timeline.columns.columns import ColumnTable
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import (
    FrameworkOperators,
    OperatorRuns,
    OperatorSource,
    OperatorSums,
    ProfilerTables,
    RunLevel,
)
from timeline.sources.companions.delimited import TablesBuilder
from timeline.sources.companions.file_kinds import find_numbered_files
from timeline.sources.companions.operators import read_operators

Rows = list[dict[str, Any]]


def read(directory: Path) -> tuple[ProfilerTables, list[str]]:
    into = TablesBuilder(0)
    read_operators(find_numbered_files([directory], 0), into)
    tables, omissions = into.build()
    return tables, [omission.reason for omission in omissions]


def rows_of(tables: ProfilerTables, kind: type[ColumnTable], **wanted: int) -> Rows:
    """The rows of a table with texts instead of codes, of some values."""
    found = []
    table = tables.of(kind)
    for row in range(len(table)):
        values = {
            name: tables.strings[int(column[row])] if column.dtype == "int32" else int(column[row])
            for name, column in table.columns().items()
        }
        if wanted.items() <= values.items():
            found.append(values)
    return found


@pytest.fixture
def run() -> tuple[Run, RankRun]:
    run = make_run(1, 3, ops_per_step=24)
    return run, run.rank(0)


def test_types_are_the_sums_of_their_operators(tmp_path: Path, run: tuple[Run, RankRun]) -> None:
    """Mean times frequency of all operators of a type is its total, within rounding."""
    write_operator_sums(*run, tmp_path)
    tables, omissions = read(tmp_path)
    assert not omissions
    source = int(OperatorSource.AICORE_INTERMEDIATE)
    types = rows_of(tables, OperatorSums, source=source, level=int(RunLevel.TYPE))
    names = rows_of(tables, OperatorSums, source=source, level=int(RunLevel.NAME))
    totals, counts = Counter[str](), Counter[str]()
    for row in names:
        totals[row["kind"]] += row["total_ns"]
        counts[row["kind"]] += row["count"]
    assert {row["kind"]: row["count"] for row in types} == counts
    assert {row["kind"]: row["total_ns"] for row in types} == pytest.approx(totals, abs=30)
    kernels = TextFiles(*run, tmp_path).kernels(on_cpu=False)
    assert {row["name"] for row in names} == {kernel.scope for _, kernel in kernels}


def test_types_are_summed_where_they_have_no_file(tmp_path: Path, run: tuple[Run, RankRun]) -> None:
    """Without the file of types its rows are made of those of operators."""
    write_operator_sums(*run, tmp_path)
    with_file, _ = read(tmp_path)
    (tmp_path / "aicore_intermediate_0_type.csv").unlink()
    without, _ = read(tmp_path)
    source = int(OperatorSource.AICORE_INTERMEDIATE)
    expected, found = (
        {
            row["kind"]: (row["count"], row["total_ns"])
            for row in rows_of(tables, OperatorSums, source=source, level=int(RunLevel.TYPE))
        }
        for tables in (with_file, without)
    )
    assert found.keys() == expected.keys()
    for kind, (count, total_ns) in found.items():
        assert count == expected[kind][0]
        assert total_ns == pytest.approx(expected[kind][1], abs=30)


@pytest.mark.parametrize("header", ["kernel_type,total_time", "op_type,execution_time"])
def test_headers_of_types_vary(tmp_path: Path, header: str) -> None:
    """A column is found under each of its names, and a frequency that lacks is not invented."""
    (tmp_path / "aicore_intermediate_0_type.csv").write_text(f"{header}\nMatMul,20.65774\n")
    (row,) = rows_of(read(tmp_path)[0], OperatorSums)
    assert (row["kind"], row["total_ns"], row["count"], row["mean_ns"]) == (
        "MatMul",
        20657740,
        NO_ID,
        NO_TIME,
    )


@pytest.mark.parametrize("header", ["full_kernel_name", "full_kernel_time", "full_op_name"])
def test_headers_of_operators_vary(tmp_path: Path, header: str) -> None:
    """A column is found under each of its names; a type is told, else the last part of the name."""
    (tmp_path / "aicore_intermediate_0_detail.csv").write_text(
        f"{header},execution_time\nDefault/net/MatMul-op9,0.0013606666666666667\n"
    )
    (row,) = rows_of(read(tmp_path)[0], OperatorSums)
    assert (row["kind"], row["name"]) == ("MatMul", "Default/net/MatMul-op9")
    assert (row["mean_ns"], row["total_ns"]) == (1361, NO_TIME)
    (tmp_path / "framework_raw_0.csv").write_text(
        "full_op_name,op_type\nDefault/net/MatMul-op9,MatMulV2\n"
    )
    assert rows_of(read(tmp_path)[0], OperatorSums)[0]["kind"] == "MatMulV2"


@pytest.mark.parametrize(
    ("text", "run_ns"),
    [
        (
            "serial_number,kernel_type,total_time,dispatch_time,execution_time,run_start,run_end\n"
            "1,InitData,7.906,0.15,0.22,154901853050,154901853210\n",
            160_000,
        ),
        (
            "serial_number,op_type,total_time,dispatch_time,run_start,run_end\n"
            "1,InitData,7.906,0.15,154901853050,154901853210\n",
            160_000,
        ),
        (
            "serial_number,op_type,total_time,dispatch_time,execution_time,run_start,run_end\n"
            "1,InitData,7.906,0.15,7.756,154901853.05,154901860.956\n",
            7_756_000,
        ),
        ("serial_number,kernel_type,total_time,dispatch_time\n1,InitData,7.906,0.15\n", NO_TIME),
        (
            "serial_number,kernel_type,total_time(us),dispatch_time(us)\n1,InitData,7906,150\n",
            NO_TIME,
        ),
    ],
)
def test_runs_of_ai_cpus_are_in_the_units_of_their_version(
    tmp_path: Path, text: str, run_ns: int
) -> None:
    """Starts and ends are microseconds, or milliseconds of versions 2.1 and 2.2."""
    (tmp_path / "aicpu_intermediate_0.csv").write_text(text)
    row, _ = rows_of(read(tmp_path)[0], OperatorSums)
    assert (row["kind"], row["count"], row["total_ns"], row["dispatch_ns"], row["run_ns"]) == (
        "InitData",
        1,
        7_906_000,
        150_000,
        run_ns,
    )


def test_runs_of_steps_are_those_of_the_run(tmp_path: Path, run: tuple[Run, RankRun]) -> None:
    """Types and operators of each step have the runs and times of the simulated kernels."""
    write_dynamic_shapes(*run, tmp_path)
    tables, omissions = read(tmp_path)
    assert not omissions
    counts, totals = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for step in run[1].steps:
        for iteration in step.iterations:
            for task, kernel in iteration.kernels:
                counts[step.id, kernel.op_type] += 1
                totals[step.id, kernel.op_type] += task.duration_ns
    for level in (RunLevel.TYPE, RunLevel.NAME):
        found, found_ns = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
        for row in rows_of(tables, OperatorRuns, level=int(level)):
            found[row["step"], row["kind"]] += row["count"]
            found_ns[row["step"], row["kind"]] += row["total_ns"]
        assert (found, found_ns) == (counts, totals)


def test_operators_that_run_twice_in_a_step_are_one_row(tmp_path: Path) -> None:
    """Equal names and shapes are summed, others stay apart; a damaged run is counted."""
    once = {"op_side": "gpu", "op_type": "Add", "op_name": "Add-op6", "dur": 1.5}
    runs = [once | {"shape_info": ["[32, 1]", [32, 1]]}] * 2 + [once | {"shape_info": ["[8, 1]"]}]
    document = {"operator": {"1": [*runs, {"op_name": "x"}], "first": []}, "kernel": {}}
    (tmp_path / "dynamic_shape_info_0.json").write_text(json.dumps(document))
    tables, omissions = read(tmp_path)
    rows = rows_of(tables, OperatorRuns, level=int(RunLevel.NAME))
    assert [(row["shapes"], row["count"], row["total_ns"]) for row in rows] == [
        ("32,1;32,1", 2, 3000),
        ("8,1", 1, 1500),
    ]
    (type_row,) = rows_of(tables, OperatorRuns, level=int(RunLevel.TYPE))
    assert (type_row["count"], type_row["total_ns"], type_row["side"]) == (3, 4500, "gpu")
    assert sorted(omissions) == [
        "dynamic_shape_info_0.json: runs without a length, the first at operator of step 1",
        "dynamic_shape_info_0.json: steps that cannot be read, the first at operator of step first",
    ]


def test_sums_by_type_stand_in_for_operators(tmp_path: Path) -> None:
    """Where the file lists no operators of a step, its own sums are taken."""
    document = {"operator_type": {"3": {"Add": [307.04, 2, 153.52]}}}
    (tmp_path / "dynamic_shape_info_0.json").write_text(json.dumps(document))
    (row,) = rows_of(read(tmp_path)[0], OperatorRuns)
    assert (row["step"], row["kind"], row["count"], row["total_ns"]) == (3, "Add", 2, 307_040)


def test_times_by_step_on_ascend(tmp_path: Path) -> None:
    """On Ascend each operator has a time, in milliseconds, and shapes for each step."""
    shapes = [
        f"{{Input_0: {{format: ND, data_type: INT32, shape: {size}, 1}}, "
        f"Output_0: {{format: ND, data_type: INT32, shape: 9}}}},11,AI_CORE"
        for size in (32, 8)
    ]
    detail = {"op_exe_time": [0.5, 0.25], "op_shape": shapes, "op_exe_occurrences": 2}
    document = {"Add": [{"Add-op6": detail}], "op_type": {"Add": [0.5, 0.25]}}
    (tmp_path / "dynamic_shape_info_0.json").write_text(json.dumps(document))
    tables, omissions = read(tmp_path)
    assert not omissions
    rows = rows_of(tables, OperatorRuns, level=int(RunLevel.NAME))
    assert [(row["step"], row["name"], row["shapes"], row["total_ns"]) for row in rows] == [
        (1, "Add-op6", "32,1", 500_000),
        (2, "Add-op6", "8,1", 250_000),
    ]


def test_raw_texts_describe_operators_as_the_table_does(
    tmp_path: Path, run: tuple[Run, RankRun]
) -> None:
    """Types, blocks and tensors of each operator are those of its kernel, either way."""
    write_framework_texts(*run, tmp_path)
    raw, omissions = read(tmp_path)
    assert not omissions
    found = rows_of(raw, FrameworkOperators)
    kernels = {
        kernel.scope: kernel for _, kernel in TextFiles(*run, tmp_path).kernels(on_cpu=False)
    }
    assert {row["name"] for row in found} == kernels.keys()
    for row in found:
        kernel = kernels[row["name"]]
        assert (row["kind"], row["blocks"]) == (kernel.op_type, kernel.blocks)
        shapes = [tensor["shape"] for tensor in json.loads(row["inputs"])]
        expected = [
            [int(size) for size in one.split(",")] for one in kernel.input_shapes.split(";")
        ]
        assert shapes == expected
    TextFiles(*run, tmp_path).framework()
    by_name = {row["name"]: row for row in rows_of(read(tmp_path)[0], FrameworkOperators)}
    for row in found:
        told, raw_tensors = (json.loads(one["outputs"]) for one in (by_name[row["name"]], row))
        assert [one["shape"] for one in told] == [one["shape"] for one in raw_tensors]


@pytest.mark.parametrize(
    ("numbers", "types"),
    [(("39", "40", "31"), ["float16", "float32", "int32"]), (("42", "43", "34"), None)],
)
def test_numbers_of_data_types_are_those_of_their_version(
    tmp_path: Path, numbers: tuple[str, ...], types: list[str] | None
) -> None:
    """Numbers beyond the older ones show that a file counts as newer versions do."""
    tensors = " ".join(
        f'input_id:{at} input_format:ND input_data_type:{number} input_shape:"1"'
        for at, number in enumerate(numbers)
    )
    path = tmp_path / "Framework.host.vm.graph_desc_info.0.slice_0"
    path.write_text(f"op_name:a/Add-op1 op_type:Add {tensors}\n")
    (row,) = rows_of(read(tmp_path)[0], FrameworkOperators)
    told = [tensor["type"] for tensor in json.loads(row["inputs"])]
    assert told == (types or ["float16", "float32", "int32"])


def test_types_that_mindspore_misnamed_are_set_right(tmp_path: Path) -> None:
    """A table with NUMBER_TYPE_END names newer numbers as if they were older ones."""
    info = {
        f"input_{at}": {"format": "ND", "data_type": f"NUMBER_TYPE_{kind}", "shape": "2, 3"}
        for at, kind in enumerate(("END", "UINT8", "FLOAT16"))
    }
    text = json.dumps(info).replace('"', '""')
    path = tmp_path / "framework_raw_0.csv"
    path.write_text(f'task_id,full_op_name,op_type,op_info\n4,a/Add-op1,Add,"{text}"\n')
    (row,) = rows_of(read(tmp_path)[0], FrameworkOperators)
    tensors = json.loads(row["inputs"])
    assert [tensor["type"] for tensor in tensors] == ["float16", "int32", "uint32"]
    assert [tensor["shape"] for tensor in tensors] == [[2, 3]] * 3


def test_lines_that_describe_nothing_are_counted(tmp_path: Path) -> None:
    """Damage in raw texts is told with its file and line."""
    graph = tmp_path / "Framework.host.vm.graph_desc_info.0.JOB2.slice_0"
    graph.write_text("op_name:a/Add-op1 op_type:Add\nnothing\n")
    tasks = tmp_path / "Framework.host.vm_task_desc_info.0.slice_0"
    tasks.write_text("a/Add-op1 2 7 0\na/Add-op1 two 7 0\n")
    tables, omissions = read(tmp_path)
    (row,) = rows_of(tables, FrameworkOperators)
    assert (row["kind"], row["blocks"], row["task"], row["stream"]) == ("Add", 2, 7, 0)
    assert omissions == [
        f"{graph.name}: lines without op_name, the first at line 2",
        f"{tasks.name}: lines that are not a task, the first at line 2",
    ]
