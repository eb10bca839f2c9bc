"""A table of named columns as rows, CSV, frames of other libraries, and HTML in a notebook."""

from __future__ import annotations

import csv
import io
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Codes
from timeline.printable import printable
from timeline.tables.short_names import shortened

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


def cell_html(value: object) -> str:
    """Return a value as HTML, empty for None."""
    return "" if value is None else _escaped(str(value))


def table_html(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table with a head of text and cells of HTML."""
    names = "".join(f"<th>{_escaped(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{content}</td>" for content in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def paragraph_html(*lines: str) -> str:
    """Return lines of text as a paragraph, empty if there are none."""
    return f"<p>{'<br>'.join(map(_escaped, lines))}</p>" if lines else ""


def link_html(path: Path) -> str:
    """Return a link to a file; relative paths stay so, as notebooks serve files beside them."""
    target = path.as_uri() if path.is_absolute() else urllib.parse.quote(path.as_posix())
    return f'<a href="{_escaped(target)}" download>{_escaped(str(path))}</a>'


def _escaped(text: str) -> str:
    import html  # it loads all entities of HTML, and most commands show nothing in a notebook

    return html.escape(text)


MOST_ROWS_SHOWN = 60
"""Rows in a notebook; the rest is counted."""
MOST_SHOWN = 80
"""Characters in a notebook of what operators are called; paths and sentences are shown whole."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How text begins that spreadsheets take for a formula."""
PARTS_AT_ONCE = 256
"""Parts of a table that are in memory until they are joined."""
OF_OPERATORS = frozenset({"type", "name", "shapes"})
"""Columns that say what an operator is called."""


def join_columns(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Join the parts of a column, at least one; masked if one of them is."""
    values = np.concatenate([np.ma.getdata(part) for part in parts])
    if not any(np.ma.isMaskedArray(part) for part in parts):
        return values
    return np.ma.masked_array(values, np.concatenate([np.ma.getmaskarray(part) for part in parts]))


def join_parts(
    parts: Iterable[Mapping[str, npt.NDArray[Any]]], names: Iterable[str]
) -> dict[str, npt.NDArray[Any]]:
    """Join the columns of parts, such as ranks; without any part there is no column.

    Parts may be made lazily: only some are in memory at a time, since a part with few rows
    takes far more memory than its rows.
    """
    names = tuple(names)
    parts, joined = iter(parts), list[Mapping[str, npt.NDArray[Any]]]()
    while some := list(islice(parts, PARTS_AT_ONCE)):
        joined.append({name: join_columns([part[name] for part in some]) for name in names})
    if len(joined) < 2:
        return dict(joined[0]) if joined else {}
    return {name: join_columns([part[name] for part in joined]) for name in names}


def _are_equal(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Return whether two columns have equal values and gaps in the same rows; NaN equals NaN."""
    given = ~np.ma.getmaskarray(one)
    if one.dtype != other.dtype or not np.array_equal(given, ~np.ma.getmaskarray(other)):
        return False
    values, others = np.ma.getdata(one)[given], np.ma.getdata(other)[given]
    return np.array_equal(values, others, equal_nan=one.dtype.kind == "f")


def masked_if_needed(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column without its mask if nothing is masked."""
    return column if np.ma.getmaskarray(column).any() else np.ma.getdata(column)


def given(values: npt.NDArray[Any] | Codes, absent: int) -> npt.NDArray[Any]:
    """Return the values, masked where they are absent."""
    not_given = values == absent
    return np.ma.masked_array(values, not_given) if not_given.any() else np.asarray(values)


def no_numbers(count: int) -> npt.NDArray[Any]:
    """Return a column of so many numbers, none of which is given."""
    return np.ma.masked_array(np.zeros(count, np.int64), True)


def texts_or_none(texts: Iterable[str]) -> npt.NDArray[np.object_]:
    """Return strings as objects, None for empty ones."""
    return np.array([text or None for text in texts], object)


@dataclass(frozen=True, repr=False, eq=False)
class Table:
    """Columns by name, all equally long: int64, float64 or strings (object).

    Values that are not given are masked (`numpy.ma`), and None or NA everywhere else.
    """

    columns: Mapping[str, npt.NDArray[Any]]

    @classmethod
    def of_rows(cls, kinds: Mapping[str, type], rows: Iterable[Sequence[Any]]) -> Table:
        """Return a table of few rows, each with a value for each column, or None.

        kinds: int, float or object for texts and lists, by the name of the column.
        """
        columns: dict[str, npt.NDArray[Any]] = {}
        found = list(rows)
        for at, (name, kind) in enumerate(kinds.items()):
            values = [row[at] for row in found]
            if kind is object:
                column = np.empty(len(values), object)
                column[:] = values
            else:
                absent = [value is None for value in values]
                given = np.array([value or 0 for value in values], np.dtype(kind))
                column = np.ma.masked_array(given, absent) if any(absent) else given
            columns[name] = column
        return cls(columns)

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same columns in the same order, with the same values."""
        if not isinstance(other, Table):
            return NotImplemented
        return list(self.columns) == list(other.columns) and all(
            _are_equal(column, other[name]) for name, column in self.columns.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield rows of Python values."""
        return zip(*(column.tolist() for column in self.columns.values()), strict=True)

    def __repr__(self) -> str:
        return f"<Table {len(self)} rows: {', '.join(self.columns)}>"

    def take(self, rows: npt.NDArray[Any] | slice) -> Table:
        """Return the rows chosen by a mask, positions or a slice."""
        return Table({name: column[rows] for name, column in self.columns.items()})

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a mapping for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self]

    def to_csv(self, *, safe: bool = False) -> str:
        r"""Return comma-separated text with a header and line feeds; gaps are empty.

        Names come from the profile. A spreadsheet runs those that begin like a formula, and a
        terminal obeys control characters.

        Args:
            safe: write an apostrophe before what begins like a formula, and control characters as
                escapes such as \x1b.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(map(_defused, self) if safe else self)
        return text.getvalue()

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame; integers with gaps are Int64, strings are string.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas as pd

        kinds = {"i": "Int64", "f": "Float64", "O": "string"}
        return pd.DataFrame(
            {
                name: pd.array(column.tolist(), dtype=kinds[column.dtype.kind])
                if np.ma.isMaskedArray(column) or column.dtype.kind == "O"
                else column
                for name, column in self.columns.items()
            }
        )

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table.

        Raises:
            ImportError: pyarrow is not installed.
        """
        import pyarrow as pa

        kinds = {"i": pa.int64(), "f": pa.float64(), "O": pa.string()}
        return pa.table(
            {
                name: pa.array(column.tolist(), kinds[column.dtype.kind])
                for name, column in self.columns.items()
            }
        )

    def to_polars(self) -> pl.DataFrame:
        """Return a polars frame.

        Raises:
            ImportError: polars is not installed.
        """
        import polars as pl

        kinds = {"i": pl.Int64, "f": pl.Float64, "O": pl.String}
        return pl.DataFrame(
            {name: column.tolist() for name, column in self.columns.items()},
            schema={name: kinds[column.dtype.kind] for name, column in self.columns.items()},
        )

    def _repr_html_(self) -> str:
        shown = self.take(np.arange(min(len(self), MOST_ROWS_SHOWN)))
        rest = len(self) - len(shown)
        cells = [
            shortened([value or "" for value in column.tolist()], MOST_SHOWN)
            if name in OF_OPERATORS
            else column.tolist()
            for name, column in shown.columns.items()
        ]
        rows = (map(cell_html, row) for row in zip(*cells, strict=True))
        note = paragraph_html(*([f"and {rest} more rows"] if rest else []))
        return table_html(self.columns, rows) + note


def _defused(row: Iterable[Any]) -> list[Any]:
    """Return values that no spreadsheet evaluates and no terminal obeys."""
    return [
        ("'" if value.startswith(_FORMULA) else "") + printable(value)
        if isinstance(value, str)
        else value
        for value in row
    ]


def join_tables(
    parts: Iterable[Mapping[str, npt.NDArray[Any]]], kinds: Mapping[str, type] | None = None
) -> Table:
    """Join parts that have the same columns into one table.

    kinds: as for `Table.of_rows`, in the order of the columns; without parts and kinds there are
    no columns.
    """
    columns = list(parts)
    if not columns:
        return Table.of_rows(kinds or {}, ())
    names = kinds or columns[0]
    return Table({name: join_columns([part[name] for part in columns]) for name in names})
