"""Proves that a table says the same as rows, as CSV and in a notebook."""

from __future__ import annotations

import csv
import io
import unicodedata

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


def test_a_notebook_obeys_nothing() -> None:
    """Names are escaped, and a long table is cut with a note."""
    rows: list[tuple[int | None, str]] = [(None, "<script>")] * (MOST_ROWS_SHOWN + 5)
    shown = _table(rows)._repr_html_()
    assert "<script>" not in shown
    assert shown.count("&lt;script&gt;") == MOST_ROWS_SHOWN
    assert "5 more rows" in shown


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames(library: str) -> None:
    """Frames of other libraries keep integers with gaps exact."""
    pytest.importorskip(library)
    table = _table([(None, "a"), (2**62 + 1, "b")])
    if library == "pandas":
        found = table.to_pandas().to_dict("list")
    else:
        frame = table.to_polars() if library == "polars" else table.to_arrow()
        found = {
            name: frame[name].to_list() if library == "polars" else frame[name].to_pylist()
            for name in ("number", "name")
        }
    assert found["number"][1] == 2**62 + 1
    assert found["name"] == ["a", "b"]
