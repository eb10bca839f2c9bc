"""Proves that a delimited file is read by a declaration of its columns alone.

The table of `cell`s is added as it is. In the package, tables of records are declared apart from
files, in `timeline/records/profiler_tables.py`, and a reader makes one from the other.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from timeline.columns.columns import Codes, ColumnTable, Float64, Int64
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import FLOAT_NOT_GIVEN
from timeline.records.profiler_tables import ProfilerTables
from timeline.records.tables import Omission
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.delimited import (
    Cell,
    TablesBuilder,
    Unit,
    cell,
    read_table,
    read_texts,
)


class Checkpoints(ColumnTable):
    """A made-up file, with a row per checkpoint."""

    step: Int64 = cell("step_num", "step", unit=Unit.NUMBER)
    place: Codes = cell("path", absent=NO_NAME)
    total_ns: Int64 = cell("total_time", "cost", unit=Unit.MILLISECONDS)
    share: Float64 = cell("percent", unit=Unit.PERCENT, absent=FLOAT_NOT_GIVEN)


def read(path: Path, text: str) -> tuple[ProfilerTables, tuple[Omission, ...]]:
    """The tables of a rank that has one file, and what was damaged in it."""
    path.write_text(text, encoding="utf-8")
    into = TablesBuilder(3)
    into.add(read_table(path, Checkpoints, into))
    return into.build()


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("step_num,path,total_time,percent", "2,a,1.5,50"),
        ("step, path, cost, percent", "2, a, 1.5, 50"),
        ("Percent,Cost,Unknown,Path,Step", '50,1.5,x,"a",2'),
        ("step,path,total_time(us),percent", "2,a,1500,50"),
        ("step,path,total_time(ns),percent", "2,a,1500000,50"),
    ],
)
def test_a_declared_table_is_read_however_its_header_is_spelt(
    tmp_path: Path, header: str, row: str
) -> None:
    """Columns are found by name, in any order, and times in the unit that the header tells."""
    tables, omissions = read(tmp_path / "checkpoints_3.csv", f"{header}\n{row}\n")
    found = tables.of(Checkpoints)
    assert omissions == ()
    assert (found.step.tolist(), found.total_ns.tolist(), found.share.tolist()) == (
        [2],
        [1_500_000],
        [0.5],
    )
    assert [tables.strings[code] for code in found.place] == ["a"]


def test_what_a_declared_table_need_not_have_is_not_given(tmp_path: Path) -> None:
    """Neither a column that is missing nor an empty cell of one is damage."""
    for text in ("step,cost\n1,2\n", "step,path,cost,percent\n1,,2,\n"):
        tables, omissions = read(tmp_path / "checkpoints_3.csv", text)
        found = tables.of(Checkpoints)
        assert omissions == ()
        assert found.total_ns.tolist() == [2_000_000]
        assert np.isnan(found.share).all()
        assert [tables.strings[code] for code in found.place] == [""]


def test_what_is_damaged_in_a_declared_table_is_counted_with_its_line(tmp_path: Path) -> None:
    """A row without a cell that must be there is left out; the others stay."""
    text = "step,cost\n1,2\n2,x\n\n3\n4,8\n"
    tables, (omission,) = read(tmp_path / "checkpoints_3.csv", text)
    assert tables.of(Checkpoints).step.tolist() == [1, 4]
    assert (omission.rank, omission.rows, omission.loss) == (3, 2, True)
    assert omission.reason.startswith("checkpoints_3.csv: ")
    assert omission.reason.endswith("the first at line 3")


def test_a_header_without_a_needed_column_loses_the_file(tmp_path: Path) -> None:
    tables, (omission,) = read(tmp_path / "checkpoints_3.csv", "step,path\n1,a\n")
    assert len(tables.of(Checkpoints)) == 0
    assert "headers without total_time" in omission.reason


def test_a_declared_table_follows_the_selection(tmp_path: Path) -> None:
    """By its column `step`, without a word about it."""
    tables, _ = read(tmp_path / "checkpoints_3.csv", "step,cost\n1,2\n2,4\n3,6\n")
    assert tables.selected(frozenset({2, 3}), None).of(Checkpoints).step.tolist() == [2, 3]


def test_cells_that_hold_json_are_found_by_their_headers(tmp_path: Path) -> None:
    """In the order of the declaration, with what a row or the header lacks as an empty text."""
    path = tmp_path / "checkpoints_3.csv"
    path.write_text('cost,path,step\n"{""a"": [1,2]}",x,1\n5\n', encoding="utf-8")
    cells = [Cell(("step",)), Cell(("path",)), Cell(("cost",)), Cell(("percent",), absent=NO_NAME)]
    rows = [row.cells for row in read_texts(path, cells, LossLog(path))]
    assert rows == [("1", "x", '{"a": [1,2]}', ""), ("", "", "5", "")]


def test_units_of_one_factor_are_apart() -> None:
    """Milliseconds in nanoseconds and MFLOP in FLOP have one factor, and are not one unit."""
    assert len(list(Unit)) == len(Unit.__members__)
