"""Proves that a comparison tells classes of work and reserved memory, wherever it is read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import timeline
from simulator.writers.companions.memory import (
    RESERVED_BYTES,
    application_memory,
    write_memory_tables,
)
from tests.support.html_page import read
from tests.support.profile_shelf import ProfileShelf
from timeline.comparison.comparison import Comparison
from timeline.comparison.parts import select_classes
from timeline.reports.terminal import PIPE_WIDTH, Display
from timeline.reports.terminal_comparison import comparison_text

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
