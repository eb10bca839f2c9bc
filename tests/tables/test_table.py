"""Proves that a table is the same as rows, as CSV, in a notebook and in frames."""

from __future__ import annotations

import csv
import io
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.tables.table import MOST_ROWS_SHOWN, Table

NAME = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=6)
ROWS = st.lists(st.tuples(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), NAME), max_size=8)


def _table(rows: list[tuple[int | None, str]]) -> Table:
    numbers = np.array([0 if number is None else number for number, _ in rows], np.int64)
    return Table(
        {
            "number": np.ma.masked_array(numbers, [number is None for number, _ in rows]),
            "name": np.array([name for _, name in rows] or [], object),
        }
    )


@given(rows=ROWS)
def test_csv_reads_back(rows: list[tuple[int | None, str]]) -> None:
    """All digits and characters survive; what is not given is empty."""
    read = list(csv.reader(io.StringIO(_table(rows).to_csv(), newline="")))
    assert read[0] == ["number", "name"]
    assert read[1:] == [["" if number is None else str(number), name] for number, name in rows]


@given(rows=ROWS, begins=st.sampled_from(["", "=", "+1", "-1", "@", "\t=", "\r=", "\x1b[2J", "a="]))
def test_a_safe_csv_holds_no_formula_and_no_controls(
    rows: list[tuple[int | None, str]], begins: str
) -> None:
    """Numbers and harmless names are as they are without it."""
    rows = [(number, begins + name) for number, name in rows]
    text = _table(rows).to_csv(safe=True)
    assert not {unicodedata.category(one) for one in text if one != "\n"} & {"Cc", "Cf", "Zl", "Zp"}
    for row, (number, name) in zip(list(csv.reader(io.StringIO(text)))[1:], rows, strict=True):
        assert row[0] == ("" if number is None else str(number))
        assert not row[1].startswith(("=", "+", "-", "@", "\t", "\r"))
        if name.isprintable() and not name.startswith(("=", "+", "-", "@")):
            assert row[1] == name


@given(rows=ROWS, seed=st.integers(0, 9))
def test_rows_and_choices(rows: list[tuple[int | None, str]], seed: int) -> None:
    """Rows, mappings and any choice of rows hold the same values, None where not given."""
    table = _table(rows)
    assert list(table) == rows
    assert table.to_dicts() == [{"number": number, "name": name} for number, name in rows]
    chosen = np.random.default_rng(seed).permutation(len(rows))
    assert list(table.take(chosen)) == [rows[at] for at in chosen.tolist()]
    assert list(table.take(chosen < 2)) == [rows[at] for at in np.flatnonzero(chosen < 2)]


@given(rows=ROWS, others=ROWS)
def test_tables_are_equal_where_their_rows_are(
    rows: list[tuple[int | None, str]], others: list[tuple[int | None, str]]
) -> None:
    """Whatever stands behind what is not given."""
    table, other = _table(rows), _table(rows)
    np.ma.getdata(other["number"])[np.ma.getmaskarray(other["number"])] = 7
    assert table == other
    assert (table == _table(others)) == (rows == others)


def test_tables_of_other_columns_are_not_equal() -> None:
    """Neither in another order, nor of another kind, nor something else; what is no number is."""
    columns = {"a": np.array([1, 2]), "b": np.array([0.5, np.nan])}
    table = Table(columns)
    assert table == Table({name: column.copy() for name, column in columns.items()})
    assert table != Table({"b": columns["b"], "a": columns["a"]})
    assert table != Table({"a": columns["a"]})
    assert table != Table({"a": columns["a"].astype(float), "b": columns["b"]})
    assert table != Table({"a": np.ma.masked_array([1, 2], [False, True]), "b": columns["b"]})
    assert table != columns


# -- in other libraries and notebooks --------------------------------------------------------------


INT64 = np.iinfo(np.int64)


def made(rows: int = 4) -> Table:
    """Every kind of column: extreme numbers, gaps, names of several scripts and none."""
    at = slice(rows)
    return Table(
        {
            "whole": np.array([INT64.min, -1, 0, INT64.max])[at],
            "gaps": np.ma.masked_array([2**62, 2, 3, 4], [False, True, False, True])[at],
            "share": np.array([0.0, 0.1, 1 / 3, -1.5])[at],
            "share_gaps": np.ma.masked_array([0.25, 2.0, 0.5, 1.0], [False, True, False, True])[at],
            "name": np.array(['矩阵乘 "a,b"', "", None, "<Mul>\n🧮"], object)[at],
        }
    )


FRAME_ROWS: list[dict[str, Any]] = [
    {"whole": INT64.min, "gaps": 2**62, "share": 0.0, "share_gaps": 0.25, "name": '矩阵乘 "a,b"'},
    {"whole": -1, "gaps": None, "share": 0.1, "share_gaps": None, "name": ""},
    {"whole": 0, "gaps": 3, "share": 1 / 3, "share_gaps": 0.5, "name": None},
    {"whole": INT64.max, "gaps": None, "share": -1.5, "share_gaps": None, "name": "<Mul>\n🧮"},
]
sizes = pytest.mark.parametrize("rows", [0, 1, 4])


@sizes
def test_pandas(rows: int) -> None:
    """Columns have the same dtype whatever they hold, and no integer becomes a float."""
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = made(rows).to_pandas()
    assert [str(dtype) for dtype in frame.dtypes] == [
        *("int64", "Int64", "float64", "Float64", "string")
    ]
    found = frame.astype(object).where(frame.notna(), None).to_dict("records")
    assert found == FRAME_ROWS[:rows]
    assert isinstance(frame.index, pd.RangeIndex)
    assert frame["gaps"].sum() == sum(row["gaps"] or 0 for row in FRAME_ROWS[:rows])


@sizes
def test_arrow(rows: int) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = made(rows).to_arrow()
    assert table.schema.types == [
        *(pa.int64(), pa.int64(), pa.float64(), pa.float64(), pa.string())
    ]
    assert table.to_pylist() == FRAME_ROWS[:rows]


@sizes
def test_polars(rows: int) -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")
    frame = made(rows).to_polars()
    assert frame.dtypes == [pl.Int64, pl.Int64, pl.Float64, pl.Float64, pl.String]
    assert frame.to_dicts() == FRAME_ROWS[:rows]


def test_html() -> None:
    """Names are shown and never obeyed; of a long table the first rows are shown, and how many."""
    shown = made()._repr_html_()
    assert shown.count("<tr>") == 1 + len(FRAME_ROWS)
    assert "&lt;Mul&gt;" in shown
    assert "<Mul>" not in shown
    assert "None" not in shown
    long = Table({"row": np.arange(MOST_ROWS_SHOWN + 7)})._repr_html_()
    assert long.count("<tr>") == 1 + MOST_ROWS_SHOWN
    assert "and 7 more rows" in long
    assert "<tr>" in Table({"row": np.arange(0)})._repr_html_()
