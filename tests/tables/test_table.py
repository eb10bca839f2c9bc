"""Proves that a table is the same as rows, as CSV and in frames, and takes one declaration."""

from __future__ import annotations

import csv
import io
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from timeline.reports.terminal import Display, named_grid
from timeline.tables.short_names import operator_label, shortened, two_lines
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
    with pytest.raises(TypeError, match=r"to_pandas\(\)"):
        pd.DataFrame(made(rows))


@sizes
def test_arrow(rows: int) -> None:
    """Arrow, and the libraries that read its streams, take a table as it is."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = made(rows).to_arrow()
    assert table.schema.types == [
        *(pa.int64(), pa.int64(), pa.float64(), pa.float64(), pa.string())
    ]
    assert table.to_pylist() == FRAME_ROWS[:rows]
    assert pa.table(made(rows)) == table


@sizes
def test_polars(rows: int) -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")
    frame = made(rows).to_polars()
    assert frame.dtypes == [pl.Int64, pl.Int64, pl.Float64, pl.Float64, pl.String]
    assert frame.to_dicts() == FRAME_ROWS[:rows]
    assert pl.DataFrame(made(rows)).equals(frame)


def test_times_become_durations_on_request() -> None:
    """To the last ns, missing ones too; other integers stay integers, booleans booleans."""
    for library in ("pandas", "pyarrow", "polars"):
        pytest.importorskip(library, reason=f"{library} is not installed")
    late = np.ma.masked_array([2**62 + 1, 0], [False, True])
    table = Table(
        {"at_ns": late, "rank": np.array([0, 1]), "profiled": np.array([True, None], object)}
    )
    frame = table.to_pandas(timedelta=True)
    assert [str(dtype) for dtype in frame.dtypes] == ["timedelta64[ns]", "int64", "boolean"]
    assert frame["at_ns"].tolist()[0].to_timedelta64() == np.timedelta64(2**62 + 1, "ns")
    assert frame["at_ns"].isna().tolist() == [False, True]
    arrow = table.to_arrow(timedelta=True)
    assert [*map(str, arrow.schema.types)] == ["duration[ns]", "int64", "bool"]
    assert arrow["at_ns"].cast("int64").to_pylist() == [2**62 + 1, None]
    polars = table.to_polars(timedelta=True)
    assert [*map(str, polars.dtypes)] == ["Duration(time_unit='ns')", "Int64", "Boolean"]
    assert polars["at_ns"].to_physical().to_list() == [2**62 + 1, None]
    assert polars["profiled"].to_list() == [True, None]


def test_a_table_shows_its_first_rows() -> None:
    """Aligned, without control characters, with its shape and the number of other rows."""
    long = Table({"row": np.arange(7), "name": np.array(["\x1b[2J" + "x" * 99] * 7, object)})
    head, names, *rows = repr(long).split("\n")
    assert head == "<Table: 7 rows, 2 columns>"
    assert names.split() == ["row", "name"]
    assert [row.split()[0] for row in rows] == ["0", "1", "2", "3", "4", "and"]
    assert "\x1b" not in repr(long)
    assert max(map(len, rows)) < 60
    assert long.shape == (7, 2)
    assert long.head(2) == long.take(slice(2))
    assert repr(Table({})) == "<Table: 0 rows, 0 columns>"


def test_an_unknown_column_is_answered_with_the_similar_one() -> None:
    with pytest.raises(KeyError, match=r"no column 'shares'; did you mean share\? .*share_gaps"):
        made()["shares"]


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


# -- short names -----------------------------------------------------------------------------------


ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, "
    "float, at::native::binary_internal::{}Functor<float> >, at::detail::Array<char*, 3> >(int, "
    "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::{}Functor<float> "
    ">, at::detail::Array<char*, 3>)"
)
KERNELS = [ADD.format(one, one) for one in ("Add", "Mul", "Div", "Sub")]


@pytest.mark.parametrize("most", [20, 40, 120])
def test_kernels_that_begin_and_end_alike_remain_apart(most: int) -> None:
    """Functors of one kernel stand in the middle of its name."""
    found = shortened(KERNELS, most)
    assert len(set(found)) == len(KERNELS)
    assert all(len(name) <= most for name in found)
    if most > 100:
        for name, one in zip(found, ("Add", "Mul", "Div", "Sub"), strict=True):
            assert one in name


def test_what_a_kernel_returns_and_takes_is_left_out_first() -> None:
    kernel = "void own::reduce_kernel<512, 1>(own::ReduceOp<float>, own::ReduceOp<float>)"
    assert shortened([kernel], 40) == ["own::reduce_kernel<512, 1>"]
    assert shortened([kernel], 90) == [kernel]


def test_scopes_keep_what_ends_them() -> None:
    name = "Default/network-TrainOneStep/" + "layers-SequentialCell/" * 8 + "MatMul-op239"
    (found,) = shortened([name], 60)
    assert found.startswith("Default/network")
    assert found.endswith("MatMul-op239")


_words = st.text(alphabet="ab<>(), :/_", max_size=70)


@given(
    st.lists(_words | st.builds(lambda word: word * 3, _words), max_size=12), st.integers(20, 50)
)
@example(["a" * 40, "a" * 41, "a" * 42 + "b", "a" * 19 + "…"], 20)
def test_different_names_remain_different(names: list[str], most: int) -> None:
    """Whatever they are; names that are short enough stay what they are."""
    found = shortened(names, most)
    for name, short in zip(names, found, strict=True):
        assert len(short) <= most
        assert short == name or len(name) > most
    assert len(set(zip(names, found, strict=True))) == len(set(names)) == len(set(found))


@given(st.text(max_size=80), st.integers(10, 40))
def test_names_are_two_lines_at_most(name: str, width: int) -> None:
    """Of the width, and without loss of anything but spaces."""
    name = name[: 2 * width].replace("\n", " ")
    lines = two_lines(name, width).split("\n")
    assert len(lines) <= 2
    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(name.split())


@pytest.mark.parametrize("width", [60, 100, 160])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_table_of_kernels_has_rows_of_two_lines(width: int, encoding: str) -> None:
    """In whatever width and encoding; no two read the same, and none is wider than the page."""
    page = Display(width, encoding, terminal=False)
    cells = [("kernel", f"{at} ms") for at in range(len(KERNELS))]
    grid = named_grid(page, width, ["operator", "core"], ["time"], KERNELS, cells)
    console = Console(file=io.StringIO(), width=width)
    console.print(grid)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().rstrip("\n").split("\n")
    assert len(lines) <= 1 + 2 * len(KERNELS)
    assert max(map(len, lines)) <= width
    shown = [cell.plain for cell in grid.columns[0].cells if isinstance(cell, Text)]
    assert len(set(shown)) == len(KERNELS)


def test_labels_of_kernels_tell_the_operator() -> None:
    """Of a framework; types of NPUs and families of kernels are told by the name itself."""
    assert operator_label("aten::mm", "ampere_sgemm") == "aten::mm: ampere_sgemm"
    assert operator_label("cuBLAS GEMM", "ampere_sgemm") == "ampere_sgemm"
    assert operator_label("MatMulV2", "Default/MatMul-op1") == "Default/MatMul-op1"
    assert operator_label("MatMulV2", "") == "MatMulV2"
