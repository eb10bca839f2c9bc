"""Proves that a declaration in TABLES puts a table into JSON, page, library and reference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import timeline
from tests.support.html_page import read
from tests.support.profile_shelf import ProfileShelf
from tests.support.toy_table import TOY
from timeline.cli.main import main
from timeline.library.tables import ProfileTables
from timeline.verdict import figures
from timeline.verdict.figures import reference_lines


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the toy table to TABLES."""
    monkeypatch.setattr(figures, "TABLES", (*figures.TABLES, TOY))


def test_it_is_in_the_report_and_its_page(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON has a row for each rank, and the page a table with a title for each column."""
    path, page = shelf.get("torch-db").path, tmp_path / "page.html"
    assert (
        main([str(path), "-o", str(tmp_path / "o.pftrace"), "--json", "--report", str(page)]) == 0
    )
    report = json.loads(capsys.readouterr().out)
    rows = [{"rank": one["rank"], "tasks": one["tasks"], "toy_ns": None} for one in report["ranks"]]
    assert report["toys"] == rows
    shown = read(page.read_bytes()).tables["toys"]
    assert [column["title"] for column in shown["columns"]] == ["Rank", "Tasks"]
    assert sorted(shown["columns"][1]["values"]) == sorted(row["tasks"] for row in rows)


def test_it_is_a_table_of_the_library(shelf: ProfileShelf) -> None:
    """By its name, as rows and as CSV; a name that is near is told with an error."""
    with timeline.open_profile(shelf.get("torch-db").path) as profile:
        table = profile.table("toys", ranks=1)
        tasks = profile.tasks(ranks=1)
        assert table.to_dicts() == [{"rank": 1, "tasks": len(tasks), "toy_ns": None}]
        assert table.to_csv() == f"rank,tasks,toy_ns\n1,{len(tasks)},\n"
        with pytest.raises(timeline.UsageError, match="no table 'toy'; did you mean toys"):
            profile.table("toy")


def test_it_is_documented() -> None:
    """The reference has a row with each of its columns."""
    expected = (
        "| `toys` | a row per rank with tasks: `rank`, `tasks` (of its device), `toy_ns` (a time "
        "that is never measured) |"
    )
    assert [*reference_lines()][-1] == expected


def test_every_table_has_the_columns_that_it_declares(shelf: ProfileShelf) -> None:
    """In their order, with values of their kinds, whether it has rows or not."""
    with timeline.open_profile(shelf.get("torch-db").path) as profile:
        made = profile._measure(None, {}).figures
    for spec in figures.TABLES:
        for table in (made[spec.name], spec.of_rows()):
            kinds = {name: column.dtype.kind for name, column in table.columns.items()}
            declared = {int: "i", float: "f", object: "O"}
            assert kinds == {name: declared[kind] for name, kind in spec.kinds.items()}, spec.name
            assert list(kinds) == list(spec.kinds), spec.name


def test_every_method_that_a_table_names_is_there() -> None:
    """ProfileTables declares each method that a table names, for type checkers."""
    named = {spec.method.name for spec in figures.TABLES if spec.method and spec is not TOY}
    assert named <= set(vars(ProfileTables))
