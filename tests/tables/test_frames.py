"""Proves that a table is the same rows in every library that it is handed to."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest

from timeline.tables.table import MOST_ROWS_SHOWN, Table

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


ROWS: list[dict[str, Any]] = [
    {"whole": INT64.min, "gaps": 2**62, "share": 0.0, "share_gaps": 0.25, "name": '矩阵乘 "a,b"'},
    {"whole": -1, "gaps": None, "share": 0.1, "share_gaps": None, "name": ""},
    {"whole": 0, "gaps": 3, "share": 1 / 3, "share_gaps": 0.5, "name": None},
    {"whole": INT64.max, "gaps": None, "share": -1.5, "share_gaps": None, "name": "<Mul>\n🧮"},
]
sizes = pytest.mark.parametrize("rows", [0, 1, 4])


@sizes
def test_plain_rows(rows: int) -> None:
    """Rows are Python's own values, None where one is not given."""
    table = made(rows)
    assert table.to_dicts() == ROWS[:rows]
    assert len(table) == rows
    assert {type(value) for row in table for value in row} <= {int, float, str, type(None)}


@sizes
def test_csv(rows: int) -> None:
    """What is not given is empty; quotes, commas and line ends come back."""
    read = list(csv.DictReader(io.StringIO(made(rows).to_csv(), newline="")))
    assert read == [
        {name: "" if value is None else str(value) for name, value in row.items()}
        for row in ROWS[:rows]
    ]


@sizes
def test_pandas(rows: int) -> None:
    """Columns have the same dtype whatever they hold, and no integer becomes a float."""
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = made(rows).to_pandas()
    assert [str(dtype) for dtype in frame.dtypes] == [
        *("int64", "Int64", "float64", "Float64", "string")
    ]
    found = frame.astype(object).where(frame.notna(), None).to_dict("records")
    assert found == ROWS[:rows]
    assert isinstance(frame.index, pd.RangeIndex)
    assert frame["gaps"].sum() == sum(row["gaps"] or 0 for row in ROWS[:rows])


@sizes
def test_arrow(rows: int) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = made(rows).to_arrow()
    assert table.schema.types == [
        *(pa.int64(), pa.int64(), pa.float64(), pa.float64(), pa.string())
    ]
    assert table.to_pylist() == ROWS[:rows]


@sizes
def test_polars(rows: int) -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")
    frame = made(rows).to_polars()
    assert frame.dtypes == [pl.Int64, pl.Int64, pl.Float64, pl.Float64, pl.String]
    assert frame.to_dicts() == ROWS[:rows]


def test_html() -> None:
    """Names are shown and never obeyed; of a long table the first rows are shown, and how many."""
    shown = made()._repr_html_()
    assert shown.count("<tr>") == 1 + len(ROWS)
    assert "&lt;Mul&gt;" in shown
    assert "<Mul>" not in shown
    assert "None" not in shown
    long = Table({"row": np.arange(MOST_ROWS_SHOWN + 7)})._repr_html_()
    assert long.count("<tr>") == 1 + MOST_ROWS_SHOWN
    assert "and 7 more rows" in long
    assert "<tr>" in Table({"row": np.arange(0)})._repr_html_()
