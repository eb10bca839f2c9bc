"""Proves that floating-point operations are read from every layout of their files."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.simulation import make_run
from simulator.writers.mindspore.tables.flops import operators_of, write_flops
from simulator.writers.mindspore.text import TextFiles
from timeline.records.profiler_tables import FlopLevel, FlopRows, FlopUnit
from timeline.sources.companions.delimited import TablesBuilder
from timeline.sources.companions.file_kinds import find_numbered_files
from timeline.sources.companions.flops import read_flops

Row = dict[str, object]
OPERATORS, SUMMARY = "flops_0.txt", "flops_summary_0.json"
SCOPES, STEPS = "flops_scope_0.json", "flops_utilization_step_0.json"


def read(directory: Path, number: int = 0) -> tuple[list[Row], list[tuple[str, int]]]:
    """The rows of a rank, without what they do not tell, and what could not be read."""
    into = TablesBuilder(number)
    read_flops(find_numbered_files([directory], number), into)
    tables, omissions = into.build()
    table, strings = tables.of(FlopRows), tables.strings
    rows = [
        {
            "level": FlopLevel(int(table.level[at])).name,
            "name": strings[table.name[at]],
            "parent": strings[table.parent[at]],
            "step": int(table.step[at]),
            "unit": FlopUnit(int(table.unit[at])).name,
            "flop": int(table.flop[at]),
            "rate": int(table.flop_per_s[at]),
            "share": float(table.utilization[at]),
        }
        for at in range(len(table))
    ]
    absent = ("", -1)
    told = [
        {key: value for key, value in row.items() if value not in absent and value == value}
        for row in rows
    ]
    return told, [(one.reason, one.rows) for one in omissions]


def read_text(directory: Path, name: str, *lines: str) -> tuple[list[Row], list[tuple[str, int]]]:
    (directory / name).write_text("\n".join(lines))
    return read(directory)


@pytest.mark.parametrize(
    "header",
    [
        "full_kernel_name, FLOPs, FLOPS, FLOPS utilization",
        "op_full_name, MFLOPs(10^6), GFLOPS(10^9), FLOPS utilization(%) ",
        "op_full_name,MFLOPs,GFLOPS,FLOPS utilization(%)",
        "op_full_name, MFLOPs(10^6, all), GFLOPS",
        "",
    ],
)
@pytest.mark.parametrize("comma", [", ", ","])
def test_four_cells_are_of_all_units(tmp_path: Path, header: str, comma: str) -> None:
    """Whatever a header calls it, it is MFLOP, GFLOP/s and percent; there may be none."""
    lines = [header] if header else []
    rows, lost = read_text(tmp_path, OPERATORS, *lines, comma.join(["a/b-op1", "0.1", "3e3", "33"]))
    told = {"flop": 100_000, "rate": 3_000_000_000_000, "share": 0.33}
    assert rows == [{"level": "OPERATOR", "name": "a/b-op1", "unit": "ALL", **told}]
    assert not lost


@pytest.mark.parametrize(
    ("cells", "shares"), [("1, 2, 30, 4, 5, 60", (0.3, 0.6)), ("1, 2, 4, 5", (None, None))]
)
def test_cube_and_vector_are_told_apart(
    tmp_path: Path, cells: str, shares: tuple[float | None, ...]
) -> None:
    """By the number of cells: MindSpore 1.3 has seven, 2.1 has no shares."""
    rows, lost = read_text(tmp_path, OPERATORS, "op_full_name, a, b, c, d", f"x-op1, {cells}")
    found = [(row["unit"], row["flop"], row["rate"], row.get("share")) for row in rows]
    assert found == [
        ("CUBE", 1_000_000, 2_000_000_000, shares[0]),
        ("VECTOR", 4_000_000, 5_000_000_000, shares[1]),
    ]
    assert not lost


@given(st.decimals(0, 10**9, places=6))
def test_work_is_exact(tmp_path_factory: pytest.TempPathFactory, mflop: Decimal) -> None:
    """Not one operation is lost on the way from a decimal number."""
    directory = tmp_path_factory.mktemp("flops")
    rows, _ = read_text(directory, OPERATORS, f"x-op1, {mflop}, 1, 1")
    assert rows[0]["flop"] == int(mflop * 10**6)


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    """Each kind with its first line; whole lines are read."""
    lines = ("name, a, b, c", "x-op1, 1, 1", "y-op2, 1, ?, 1", ", 1, 1, 1", "z-op3, 1, 1, 1")
    rows, lost = read_text(tmp_path, OPERATORS, *lines)
    assert [row["name"] for row in rows] == ["z-op3"]
    assert lost == [
        ("flops_0.txt: rows with too few or many cells, the first at line 2", 1),
        ("flops_0.txt: rows with a cell that cannot be read, the first at line 3", 2),
    ]


def test_open_cells_are_not_known(tmp_path: Path) -> None:
    """A row with any number tells that; a unit without one has no row; shares may have a sign."""
    lines = ("x-op1, 1, -, 30%, , -, -", "y-op2, 1, 2, 3, 4, 5, ", "z-op3, -, , -, -, -, -")
    rows, lost = read_text(tmp_path, OPERATORS, *lines)
    assert rows == [
        {"level": "OPERATOR", "name": name, "unit": unit, "flop": flop * 10**6, **more}
        for name, unit, flop, more in (
            ("x-op1", "CUBE", 1, {"share": 0.3}),
            ("y-op2", "CUBE", 1, {"rate": 2 * 10**9, "share": 0.03}),
            ("y-op2", "VECTOR", 4, {"rate": 5 * 10**9}),
        )
    ]
    assert lost == [("flops_0.txt: rows with a cell that cannot be read, the first at line 3", 1)]


@pytest.mark.parametrize(
    "cells", ["5%, 1, 1", "1, 5%, 1", "5%, 1", "1, 2, 3, 5%, 1, 1", "1, 2, 3%%"]
)
def test_a_percentage_is_no_work(tmp_path: Path, cells: str) -> None:
    """In columns of MFLOP and GFLOP/s, and in the summary of a rank; the row is counted as lost."""
    rows, lost = read_text(tmp_path, OPERATORS, "a-op0, 1, 1, 1", f"x-op1, {cells}")
    assert [row["name"] for row in rows] == ["a-op0"]
    assert len(lost) == 1
    (tmp_path / SUMMARY).write_text('{"FLOPs": "5%", "FLOPS": 1, "FLOPS_Utilization": "3%"}')
    rows, _ = read(tmp_path)
    assert [(row.get("flop"), row.get("share")) for row in rows if row["level"] == "RANK"] == [
        (None, 0.03)
    ]


def test_runs_of_an_operator_are_one_row(tmp_path: Path) -> None:
    """Mean work of a run; all work by all time, here 4 MFLOP in 1.5 ms; shares weigh by time."""
    rows, _ = read_text(tmp_path, OPERATORS, "x-op1, 1, 2, 20", "x-op1, 3, 3, 30", "y-op2, 1, 1, 1")
    assert [(row["name"], row["flop"], row["rate"]) for row in rows] == [
        ("x-op1", 2_000_000, 2_666_666_667),
        ("y-op2", 1_000_000, 1_000_000_000),
    ]
    assert rows[0]["share"] == pytest.approx((0.2 * 0.5 + 0.3 * 1.0) / 1.5)


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (
            '{"FLOPs": 107145.034, "FLOPS": 9868.936, "FLOPS_Utilization": 3.765}',
            [("ALL", 107_145_034_000, 9_868_936_000_000, 0.03765)],
        ),
        (
            '{"cube_FLOPs": 1.5, "vec_FLOPs": 0.25, "cube_FLOPS": 3, "vec_FLOPS": 4}',
            [("CUBE", 1_500_000, 3_000_000_000, None), ("VECTOR", 250_000, 4_000_000_000, None)],
        ),
        (
            '{"cube_FLOPs": 1.5, "vec_FLOPs": 0, "cube_FLOPS": 3,"vec_FLOPS": 0, '
            '"cube_FLOPS_Utilization": 22.9, "vec_FLOPS_Utilization": 0}',
            [("CUBE", 1_500_000, 3_000_000_000, 0.229), ("VECTOR", 0, 0, 0.0)],
        ),
    ],
)
def test_a_summary_is_of_the_rank(tmp_path: Path, held: str, expected: list[object]) -> None:
    """In either form."""
    rows, lost = read_text(tmp_path, SUMMARY, held)
    assert [(row["unit"], row["flop"], row["rate"], row.get("share")) for row in rows] == expected
    assert {row["level"] for row in rows} == {"RANK"}
    assert not lost


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (SUMMARY, '{"FLOPs": "much"}', "values that are not numbers, the first at FLOPs"),
        (SUMMARY, "{}", "objects without FLOPs, the first at its beginning"),
        (SCOPES, '{"data": []}', "objects without links, the first at data"),
        (
            SCOPES,
            '{"data": {"links": [{"source": "a", "value": 1}, 3]}}',
            "links without a source, a target and a value, the first at link 0",
        ),
        (STEPS, "steps, x\n1,2\n3", "rows with a cell that cannot be read, the first at line 3"),
    ],
)
def test_what_is_no_such_file_is_told(tmp_path: Path, name: str, text: str, reason: str) -> None:
    """Nothing is made of it, and nothing fails."""
    _, lost = read_text(tmp_path, name, text)
    assert [one for one, _ in lost] == [f"{name}: {reason}"]


def test_scopes_are_pairs(tmp_path: Path) -> None:
    """The same scope in two others is two rows, by the names of the file."""
    links = (
        '{"source": "Total", "target": "Default", "value": 4655.465}',
        '{"source": "Default", "target": "x(2_Default)", "value": 1}',
        '{"source": "y(Default)", "target": "x(2_Default)", "value": 0.001}',
    )
    rows, lost = read_text(
        tmp_path, SCOPES, f'{{"data": {{"links": [{", ".join(links)}]}}, "max_scope_num": 7}}'
    )
    assert [(row["parent"], row["name"], row["flop"]) for row in rows] == [
        ("Total", "Default", 4_655_465_000),
        ("Default", "x(2_Default)", 1_000_000),
        ("y(Default)", "x(2_Default)", 1_000),
    ]
    assert not lost


def test_steps_have_their_utilization(tmp_path: Path) -> None:
    """The file is called JSON and is none."""
    rows, lost = read_text(tmp_path, STEPS, "steps, FLOPS_Utilization %", "1,3.2", "2,0.0")
    assert [(row["step"], row["share"]) for row in rows] == [(1, 0.032), (2, 0.0)]
    assert not lost


@pytest.mark.parametrize("cells", [4, 5, 7])
def test_a_rank_of_a_made_profile(tmp_path: Path, cells: int) -> None:
    """Every version tells the same work of each operator of a run; its scopes sum to all of it."""
    run = make_run(1, 2, ops_per_step=24)
    write_flops(run, run.rank(0), tmp_path, cells=cells)
    rows, lost = read(tmp_path)
    works = operators_of(TextFiles(run, run.rank(0), tmp_path).kernels(on_cpu=False))
    found: dict[object, int] = {}
    for row in rows:
        if row["level"] == "OPERATOR":
            found[row["name"]] = found.get(row["name"], 0) + int(str(row["flop"]))
    assert found == {work.name: round(work.mflop * 10**6) for work in works}
    assert not lost
    if cells == 4:
        top = [row["flop"] for row in rows if row.get("parent") == "Total"]
        all_flop = next(row["flop"] for row in rows if row["level"] == "RANK")
        assert sum(map(int, map(str, top))) == pytest.approx(int(str(all_flop)), abs=2_000)
        assert sum(row["level"] == "STEP" for row in rows) == len(run.rank(0).steps)
