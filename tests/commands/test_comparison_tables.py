"""Proves that a comparison tells operators, classes of work and memory, as its options say."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import timeline
from simulator.writers.companions.memory import (
    RESERVED_BYTES,
    application_memory,
    write_memory_tables,
)
from tests.support.html_page import read
from tests.support.profile_shelf import Event, ProfileShelf, change_events
from timeline.cli.main import main
from timeline.commands.compare import compare
from timeline.comparison.comparison import Comparison
from timeline.comparison.parts import select_classes
from timeline.errors import UsageError
from timeline.reports.terminal import PIPE_WIDTH, Display
from timeline.reports.terminal_comparison import comparison_text
from timeline.tables.table import Table

# -- operators -------------------------------------------------------------------------------------


TABLES = ("framework_operators", "operator_memory", "modules")
WITHOUT_EFFECT = "--max-kernels, --map-operators, --match-shapes: without effect, as "


def by_name(table: Table) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in table.to_dicts()}


def allocate(capture: Path, *rows: str) -> None:
    """Put an operator_memory.csv beside a trace; rows say name, size, and begin and end in us."""
    header = "Name,Size(KB),Allocation Time(us),Release Time(us),Device Type\r\n"
    text = header + "".join(f"{row},NPU:0\r\n" for row in rows)
    (capture / "ASCEND_PROFILER_OUTPUT" / "operator_memory.csv").write_text(text)


@pytest.mark.parametrize("other", ["torch-text", "torch-db"])
def test_layouts_of_a_run_tell_the_same_operators_and_modules(
    shelf: ProfileShelf, here: Path, other: str
) -> None:
    """What computes does so for the same operators and modules, forward and backward."""
    base, new = shelf.get("torch-text").path, shelf.get(other).path
    found = compare(base, new, output=here / "a.pftrace").comparison
    operators = by_name(found.framework_operators)
    for name in ("aten::convolution", "AddmmBackward0", "Optimizer.step#SGD.step"):
        assert operators[name]["base_ns"] == operators[name]["new_ns"] > 0
        assert operators[name]["base_count"] == operators[name]["new_count"] == 6
    assert not found.modules["delta_total_ns"].any()
    paths = zip(*(found.modules[name].tolist() for name in ("path", "direction")), strict=True)
    assert {("Conv2d_0", "forward"), ("Conv2d_0", "backward")} <= set(paths)


def test_operators_inside_are_told_where_others_launch_more_kernels(
    shelf: ProfileShelf, here: Path
) -> None:
    """The optimizer of this run launches six kernels in a step."""
    profile = shelf.get("torch-text", ops_per_step=36).path
    plain = compare(profile, profile, output=here / "a.pftrace").comparison
    few = compare(profile, profile, output=here / "b.pftrace", max_kernels=4).comparison
    assert "Optimizer.step#SGD.step" in by_name(plain.framework_operators)
    inside = set(by_name(few.framework_operators)) - set(by_name(plain.framework_operators))
    assert any(name.startswith("aclnnForeach") for name in inside)


def test_what_operators_allocate_is_compared(
    shelf: ProfileShelf, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In JSON, in words, and on the page; a damaged row is counted."""
    runs = [shelf.copy("torch-text", here / name) for name in ("base", "new")]
    for run, size in zip(runs, (1024, 4096), strict=True):
        for capture in run.captures:
            at = _first_update(capture) + 2
            allocate(capture, f"aten::empty,{size},{at},{at + 40}", "lost,1,,", "x,?,1,2")
    words = ["-v", "--report", "page.html", "--markdown", "short.md"]
    assert main(["compare", "base", "new", *words]) == 0
    said = capsys.readouterr().out
    assert "memory, allocated by operator" in said
    assert "What operators allocate" in (here / "page.html").read_text(encoding="utf-8")
    assert "| `Optimizer.step#SGD.step` |" in (here / "short.md").read_text(encoding="utf-8")
    assert main(["compare", "base", "new", "--json", "-o", "b.pftrace"]) == 0
    report = json.loads(capsys.readouterr().out)
    lost = [row["rows"] for row in report["omitted"] if "valid time or size" in row["reason"]]
    assert sum(lost) == 8  # two rows of each rank of both runs
    found = report["comparison"]["operator_memory"]
    (row,) = (row for row in found if row["name"] == "Optimizer.step#SGD.step")
    # Of two ranks with three steps each; one allocation in one of them.
    assert row["base_bytes"] == round(2 * 1024 * 1024 / 6)
    assert row["new_bytes"] == round(2 * 4096 * 1024 / 6)
    assert row["base_held_ns"] == round(2 * 40_000 / 6)


def _first_update(capture: Path) -> int:
    """When the first step of the optimizer begins, in whole microseconds."""
    trace = json.loads((capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_text())
    return min(
        int(float(event["ts"])) for event in trace if event["name"] == "Optimizer.step#SGD.step"
    )


def test_operators_and_modules_are_renamed_by_a_file(
    shelf: ProfileShelf, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Old names become new ones in both runs."""
    names = {"aten::convolution": "aten::conv2d", "Conv2d": "Convolution"}
    (here / "names.json").write_text(json.dumps(names))
    profile = str(shelf.get("torch-text").path)
    assert main(["compare", profile, profile, "--json", "--map-operators", "names.json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparison"]
    told = {row["name"] for row in found["framework_operators"]}
    assert "aten::conv2d" in told
    assert "aten::convolution" not in told
    renamed = [row for row in found["modules"] if row["path"] == "Convolution_0"]
    assert [row["class"] for row in renamed] == ["Convolution", "Convolution"]
    report = compare(profile, profile, output=here / "b.pftrace", map_operators=names)
    assert "aten::conv2d" in report.comparison.framework_operators["name"].tolist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--max-kernels", "3"), "max-kernels 3: it is not an integer from 4 on. Write one"),
        (("--max-kernels", "many"), "max-kernels many: it is not an integer from 4 on"),
        (("--map-operators", "none.json"), "map-operators none.json: No such file or directory."),
        (
            ("--map-operators", "text.json"),
            "map-operators text.json: it is not valid JSON.",
        ),
        (
            ("--map-operators", "list.json"),
            "map-operators list.json: it is not an object",
        ),
        (("--map-operators", "number.json"), "it is not an object of names. Give a JSON object"),
    ],
)
def test_what_no_option_means_is_said(
    shelf: ProfileShelf,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    """With what to do and exit code 2; nothing is written."""
    for name, text in (("text", "aten::mm"), ("list", '["a"]'), ("number", '{"aten::mm": 1}')):
        (here / f"{name}.json").write_text(text)
    before = sorted(here.iterdir())
    profile = str(shelf.get("torch-text").path)
    assert main(["compare", profile, profile, *words]) == 2
    assert said in capsys.readouterr().err
    assert sorted(here.iterdir()) == before
    with pytest.raises(UsageError, match="max-kernels 0"):
        compare(profile, profile, output=here / "a.pftrace", max_kernels=0)


@pytest.mark.parametrize(
    ("base", "new", "keywords", "why"),
    [
        ("mindstudio", "torch-text", {}, "base recorded no operators of a framework."),
        ("mindstudio", "raw", {}, "base and new recorded no operators of a framework."),
        ("torch-text", "torch-text", {"causes": False}, "host calls are not read without causes."),
    ],
)
def test_options_without_effect_are_told(
    shelf: ProfileShelf, here: Path, base: str, new: str, keywords: dict[str, Any], why: str
) -> None:
    """The comparison is made, and its tables of operators have no rows."""
    options: dict[str, Any] = {
        "max_kernels": "10",
        "map_operators": {"a": "b"},
        "match_shapes": True,
    }
    runs = (shelf.get(base).path, shelf.get(new).path)
    report = compare(*runs, here / "a.pftrace", **{**options, **keywords})
    assert WITHOUT_EFFECT + why in report.warnings
    for name in TABLES:
        assert not len(getattr(report.comparison, name))
        assert "base_count" in getattr(report.comparison, name).columns or name == "modules"


SHAPES = "2,3;3,4"
OF_CONVOLUTION = "aten::convolution"


def _with_shapes(event: Event) -> Event:
    """The shapes of one operator, and of no other."""
    args = {name: value for name, value in event.get("args", {}).items() if name != "Input Dims"}
    if event.get("name") == OF_CONVOLUTION:
        args["Input Dims"] = SHAPES.replace(";", ";\r\n")
    return event | {"args": args}


@pytest.mark.parametrize(
    "columns", [("inputShapes", "inputDtypes"), ("inputDtypes", "inputShapes")]
)
def test_shapes_of_a_trace_match_those_of_a_database(
    shelf: ProfileShelf, here: Path, columns: tuple[str, str]
) -> None:
    """Both part them by lines; operators that tell none have an empty one.

    columns: of shapes and types, which torch_npu swapped.
    """
    trace, database = (shelf.copy(name, here / name) for name in ("torch-text", "torch-db"))
    for capture in trace.captures:
        change_events(capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json", _with_shapes)
    for capture in database.captures:
        (path,) = capture.glob("ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_*.db")
        with closing(sqlite3.connect(path)) as opened, opened:
            ((last,),) = opened.execute("SELECT MAX(id) FROM STRING_IDS")
            opened.execute("UPDATE PYTORCH_API SET inputShapes = NULL, inputDtypes = NULL")
            texts = (SHAPES.replace(";", ";\r\n"), "float;\r\nlong int;\r\nScalar")
            for number, (column, text) in enumerate(zip(columns, texts, strict=True), last + 1):
                opened.execute("INSERT INTO STRING_IDS VALUES (?, ?)", (number, text))
                opened.execute(
                    f"UPDATE PYTORCH_API SET {column} = ? "
                    "WHERE name = (SELECT id FROM STRING_IDS WHERE value = ?)",
                    (number, OF_CONVOLUTION),
                )
    report = compare(trace.path, database.path, output=here / "a.pftrace", match_shapes=True)
    rows = report.comparison.framework_operators.to_dicts()
    found = {row["name"]: row for row in rows}
    assert len(found) == len(rows)
    assert found[OF_CONVOLUTION]["shapes"] == SHAPES
    assert found[OF_CONVOLUTION]["delta_ns"] == found[OF_CONVOLUTION]["delta_count"] == 0
    assert found["aten::batch_norm"]["shapes"] == ""


# -- classes of work and memory --------------------------------------------------------------------


DISPLAY = Display(PIPE_WIDTH, "utf-8", terminal=False)
METRICS = [
    "forward convolution",
    "backward convolution",
    "forward flash attention",
    "backward flash attention",
    "paged attention",
    "matmul",
    "cube",
    "vector",
    "SDMA",
    "lccl",
]


def compared(
    one: str,
    other: str,
    shelf: ProfileShelf,
    here: Path,
    *,
    report: Path | None = None,
    markdown: Path | None = None,
) -> Comparison:
    base, new = shelf.get(one).path, shelf.get(other).path
    found = timeline.compare(base, new, here / "t.pftrace", report=report, markdown=markdown)
    return found.comparison


@pytest.mark.parametrize(
    ("one", "other"), [("torch-text", "torch-db"), ("torch-db", "torch-db"), ("kineto", "kineto")]
)
def test_classes_take_no_longer_than_operators(
    one: str, other: str, shelf: ProfileShelf, tmp_path: Path
) -> None:
    """Each kernel is in one of them at most, per step as the operators are."""
    comparison = compared(one, other, shelf, tmp_path)
    classes = [row for row in comparison.overall.to_dicts() if row["by"]]
    assert [row["metric"] for row in classes] == METRICS * 2
    for by in ("kernel", "launch"):
        its = [row for row in classes if row["by"] == by]
        exclusive = [row for row in its if row["metric"] not in ("SDMA", "lccl")]
        for side in ("base", "new"):
            operators = int(comparison.operators[f"{side}_ns"].sum())
            told = [row[f"{side}_ns"] for row in exclusive if row[f"{side}_ns"] is not None]
            assert 0 < sum(told) <= operators + len(METRICS) + len(comparison.operators)
            counts = [row[f"{side}_count"] or 0 for row in exclusive]
            assert 0 < sum(counts) <= int(comparison.operators[f"{side}_count"].sum())


def test_two_layouts_of_a_run_tell_the_same_classes(shelf: ProfileShelf, tmp_path: Path) -> None:
    comparison = compared("torch-text", "torch-db", shelf, tmp_path)
    for row in comparison.overall.to_dicts():
        if row["by"]:
            assert (row["base_ns"], row["base_count"]) == (row["new_ns"], row["new_count"]), row


def test_without_host_calls_nothing_is_told_by_launch(shelf: ProfileShelf, tmp_path: Path) -> None:
    path = shelf.get("torch-db").path
    report = timeline.compare(path, path, tmp_path / "t.pftrace", causes=False)
    rows = [row for row in report.comparison.overall.to_dicts() if row["by"] == "launch"]
    # LCCL has kernels of its own, whatever launched them.
    assert {row["base_ns"] for row in rows if row["metric"] != "lccl"} == {None}


def test_people_see_classes_that_ran_and_no_others(shelf: ProfileShelf, tmp_path: Path) -> None:
    """In a terminal that is asked for more, on the page, and from the file."""
    comparison = compared("torch-text", "torch-db", shelf, tmp_path, report=tmp_path / "t.html")
    page = read((tmp_path / "t.html").read_bytes())
    text = comparison_text(comparison, DISPLAY, verbose=True)
    assert "class of work" not in comparison_text(comparison, DISPLAY)
    for by in ("launch", "kernel"):
        shown = select_classes(comparison.overall, by)
        names = shown["metric"].tolist()
        assert names
        assert page.column(f"classes-{by}", "Class") == names
        assert list(map(int, page.column(f"classes-{by}", "Now"))) == shown["new_ns"].tolist()
        (block,) = (part for part in text.split("\n\n") if f"class of work, by {by}" in part)
        assert [line.split("  ")[0] for line in block.splitlines()[1:]] == names


def test_runs_of_other_hardware_say_nothing_of_classes_that_one_cannot_have(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    comparison = compared("kineto", "torch-text", shelf, tmp_path, markdown=tmp_path / "t.md")
    rows = {(row["by"], row["metric"]): row for row in comparison.overall.to_dicts()}
    assert rows["kernel", "lccl"]["base_ns"] is None
    assert rows["kernel", "lccl"]["new_ns"] == 0
    assert rows["kernel", "matmul"]["base_count"] > 0
    assert "lccl" not in (tmp_path / "t.md").read_text()


def reserved(path: Path, here: Path, layers: str | None = None) -> list[int]:
    """What both runs of a comparison of a run with itself are said to have reserved at most."""
    selection = timeline.Selection(layers=layers)
    report = timeline.compare(path, path, here / f"{layers}.pftrace", selection=selection)
    rows = [row for row in report.comparison.memory.to_dicts() if row["metric"]]
    assert [(row["metric"], row["group"], row["name"]) for row in rows] == [
        ("reserved", "", "reserved")
    ] * len(rows)
    return [row[name] for row in rows for name in ("base_bytes", "new_bytes")]


def test_reserved_memory_of_tables_is_compared(shelf: ProfileShelf, tmp_path: Path) -> None:
    """The most of all components; nobody has to draw counters, with which it is the same."""
    profile = shelf.copy("torch-text", tmp_path / "run")
    most = RESERVED_BYTES
    for rank, capture in zip(profile.run.ranks, profile.captures, strict=True):
        write_memory_tables(profile.run, rank, capture / "ASCEND_PROFILER_OUTPUT")
        most = max([most, *(round(value) for _, value in application_memory(rank))])
    assert reserved(profile.path, tmp_path) == [most, most]
    assert reserved(profile.path, tmp_path, "steps,counters") == [most, most]


def test_reserved_memory_of_a_table_is_read_in_its_unit(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """Of the rows that tell it; what is no number is counted as damage."""
    profile = shelf.copy("torch-text", tmp_path / "run")
    table = profile.captures[0] / "ASCEND_PROFILER_OUTPUT" / "memory_record.csv"
    rows = ["Component,Timestamp(us),Total Allocated(KB),Total Reserved(KB)"]
    rows += ["PTA,1.5,1,7.25", "PTA,1.75,9,", "APP,2.5,1,much"]
    table.write_text("\n".join(rows))
    report = timeline.compare(profile.path, profile.path, tmp_path / "t.pftrace")
    (row,) = report.comparison.memory.to_dicts()
    assert row["base_bytes"] == 7.25 * 1024
    said = {omission.reason: omission.rows for omission in report.omissions}
    assert any("not numbers" in reason and count == 1 for reason, count in said.items())


def test_reserved_memory_of_databases_is_compared(shelf: ProfileShelf, tmp_path: Path) -> None:
    profile = shelf.copy("torch-db", tmp_path / "run")
    for capture in profile.captures:
        (database,) = (capture / "ASCEND_PROFILER_OUTPUT").glob("ascend_pytorch*.db")
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("CREATE TABLE MEMORY_RECORD (timestamp, totalReserved INTEGER)")
            rows = [(1, 5), (2, 1 << 40), (3, None)]
            connection.executemany("INSERT INTO MEMORY_RECORD VALUES (?, ?)", rows)
    assert reserved(profile.path, tmp_path) == [1 << 40, 1 << 40]
