"""Tables of named columns, and the declarations that the tables of a run are made of."""

from __future__ import annotations

import csv
import enum
import io
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Codes, ColumnTable
from timeline.printable import printable
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.tables.short_names import shortened

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from timeline.analysis.path.critical_path import CriticalPath
    from timeline.analysis.rank_facts import RankFacts
    from timeline.analysis.waits.exposed_waiting import ExposedParts
    from timeline.analysis.waits.waiting import Waiting

Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Columns by name, such as those of one rank, which are joined to a table."""


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


def sum_rows(
    table: Table,
    keys: Sequence[str],
    sums: Sequence[str],
    *,
    least: Sequence[str] = (),
    largest: Sequence[str] = (),
    by: str = "",
) -> Table:
    """Return a row for each distinct combination of keys, in order of appearance.

    Args:
        keys: columns; what is masked in one is equal to what is masked.
        sums, least, largest: columns of which rows have the sum, the least and the largest value;
            masked if no row of the key has one.
        by: the column by which the largest rows come first instead.
    """
    rows = list(zip(*(table[name].tolist() for name in keys), strict=True))
    number = {key: at for at, key in enumerate(dict.fromkeys(rows))}
    row = np.array([number[key] for key in rows], np.intp)
    columns = {name: table[name][np.unique(row, return_index=True)[1]] for name in keys}
    for names, combine in ((sums, np.add), (least, np.minimum), (largest, np.maximum)):
        for name in names:
            known = ~np.ma.getmaskarray(table[name])
            values, of_row = np.ma.getdata(table[name])[known], row[known]
            combined = np.zeros(len(number), values.dtype)
            combined[of_row] = 0 if combine is np.add else values
            combine.at(combined, of_row, values)
            absent = np.ones(len(number), np.bool_)
            absent[of_row] = False
            columns[name] = np.ma.masked_array(combined, absent) if absent.any() else combined
    summed = Table(columns)
    if not by:
        return summed
    return summed.take(np.argsort(-np.ma.filled(summed[by], 0), kind="stable"))


# -- declarations ----------------------------------------------------------------------------------


class Kind(enum.Enum):
    """The kinds of values in a column."""

    INTEGER = "integer"
    """Masked if not given. Times end in _ns, sizes in _bytes."""
    REAL = "real"
    SHARE = "share"
    """A real number of which 1 is the whole."""
    TEXT = "text"
    """None if not given; also lists and truth values."""
    LABEL = "label"
    """Text that is empty if not given."""

    @property
    def dtype(self) -> type:
        """Return int, float or object."""
        return {Kind.INTEGER: int, Kind.REAL: float, Kind.SHARE: float}.get(self, object)


class Col(NamedTuple):
    """The declaration of a column: its name, the meaning of its values, and its heading in a page.

    meaning: what its name does not say; empty if it says all. unit: of amounts, which a page shows
    with a prefix, such as FLOP.
    """

    name: str
    kind: Kind = Kind.INTEGER
    meaning: str = ""
    title: str = ""
    unit: str = ""

    @property
    def heading(self) -> str:
        """Return the title, by default the name without its unit."""
        bare = self.name.removesuffix("_ns").removesuffix("_bytes").removesuffix("_gb_s")
        return self.title or bare.replace("_", " ").capitalize()


def columns_in(schema: str) -> tuple[Col, ...]:
    """Return the columns that a text declares, a line for one, or for several without a meaning.

    >>> [(one.name, one.kind.name, one.meaning) for one in columns_in("rank, text name: of a rank")]
    [('rank', 'INTEGER', ''), ('name', 'TEXT', 'of a rank')]

    A line is `KIND NAME = TITLE in UNIT: MEANING`, of which all but the name may be missing; the
    kind is that of all columns behind it in the line, by default an integer.
    """
    columns = list[Col]()
    for line in filter(str.strip, schema.splitlines()):
        head, _, meaning = " ".join(line.split()).partition(": ")
        kind = Kind.INTEGER
        for one in head.split(", "):
            name, _, title = one.partition(" = ")
            word, _, rest = name.partition(" ")
            if rest:
                kind, name = Kind(word), rest
            title, _, unit = title.partition(" in ")
            columns.append(Col(name, kind, meaning, title, unit))
    return tuple(columns)


class Run(Protocol):
    """The measurements that tables are made of: facts of ranks on one clock, and other tables."""

    @property
    def facts(self) -> Sequence[RankFacts]:
        """Return the facts of each rank."""

    @property
    def rank_waiting(self) -> Waiting:
        """Return who waits for whom in collectives."""

    @property
    def path(self) -> CriticalPath:
        """Return what determined the steps; without segments if nobody asked for causes."""

    @property
    def ordinary(self) -> Sequence[Bool]:
        """Return which steps of each rank are ordinary."""

    @property
    def exposed_parts(self) -> tuple[ExposedParts, ExposedParts]:
        """Return the parts of exposed communication, of ranks and of their steps."""

    def __getitem__(self, name: str) -> Table:
        """Return another table of the run."""


class Json(NamedTuple):
    """The form of a table in the JSON report.

    key: that of the report. shape: makes its value; by default an object per row. meaning: its
    documentation if it has other names than the columns. more: follows what columns mean.
    """

    key: str
    shape: Callable[[Run, Table], Any] = lambda _run, table: table.to_dicts()
    meaning: str = ""
    more: str = ""


class Method(NamedTuple):
    """The method of a profile that gives a table.

    by: the value of its `by` that chooses the table, if it gives several; the default first.
    levels: values of the column `level`, of which `by` chooses one. questions: fields of
    `Questions` beyond those always asked. kept: the figures of a selection are cached.
    """

    name: str
    by: str = ""
    levels: tuple[str, ...] = ()
    questions: Mapping[str, Any] = {}
    kept: bool = True


class View(NamedTuple):
    """The form of a table in a page.

    anchor: its address in the page. columns: their names, in order. where: a column and the value
    that shown rows have in it. order: the column by which the largest come first; empty for the
    table's own order. most: rows shown. noun: what rows are called. bars: columns with a bar in
    each cell. titles: headings that differ from those of the columns. section: the title of the
    section of the page that shows it; empty for that of all other tables.
    """

    anchor: str
    caption: str
    columns: tuple[str, ...]
    where: tuple[str, object] | None = None
    order: str = ""
    most: int = 120
    noun: str = "row"
    bars: tuple[str, ...] = ()
    titles: Mapping[str, str] = {}
    section: str = ""


@dataclass(frozen=True)
class Spec:
    """The declaration of a table of a run.

    Its schema, its key in the JSON report, its method of a profile with its help, its part of the
    page, and its documentation follow from it.

    rows: what rows are of, without "a row per". schema: see `columns_in`. make: returns the table
    of a run, or yields the columns of its parts, such as ranks, in any order. note: a sentence on
    all of it.
    """

    name: str
    rows: str
    schema: str = field(repr=False)
    make: Callable[[Run], Table | Iterable[Columns]] = field(repr=False)
    json: Json | None = None
    method: Method | None = None
    views: tuple[View, ...] = ()
    note: str = ""

    @cached_property
    def columns(self) -> tuple[Col, ...]:
        """Return the declared columns."""
        return columns_in(self.schema)

    @cached_property
    def kinds(self) -> dict[str, type]:
        """Return int, float or object for each column."""
        return {one.name: one.kind.dtype for one in self.columns}

    def of_rows(self, rows: Iterable[Sequence[Any]] = ()) -> Table:
        """Return a table of rows, each with a value for each column, or None."""
        return Table.of_rows(self.kinds, rows)

    def of_run(self, run: Run) -> Table:
        """Return the table of a run, with all columns even without rows."""
        made = self.make(run)
        if isinstance(made, Table):
            return made
        columns = join_parts(made, self.kinds)
        if not columns or not len(columns[self.columns[0].name]):
            return self.of_rows()
        return Table({name: masked_if_needed(column) for name, column in columns.items()})

    def part(
        self, rank: int, rows: ColumnTable, strings: Iterable[str], /, **made: npt.NDArray[Any]
    ) -> Columns:
        """Return the columns of one rank.

        A column that is not among `made` is the column of `rows` with its name: strings for codes,
        and values that stand for "not given" masked, or None or empty as its kind says.
        """
        labels = np.array([*strings, ""], object)
        columns = {"rank": np.full(len(rows), rank, np.int64), **made}
        for one in self.columns:
            if one.name not in columns:
                pool = texts_or_none(labels) if one.kind is Kind.TEXT else labels
                columns[one.name] = _shown(rows, one.name, pool)
        return columns

    def documented(self, quoted: str = "{}") -> str:
        """Return its columns and its note; quoted: the format of names."""
        columns = ", ".join(
            quoted.format(one.name) + (f" ({one.meaning})" if one.meaning else "")
            for one in self.columns
        )
        return f"{columns}. {self.note}" if self.note else columns


def _shown(rows: ColumnTable, name: str, pool: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column with strings instead of codes, and masked where nothing is given."""
    values: npt.NDArray[Any] = getattr(rows, name)
    if values.dtype == np.int32:
        return np.asarray(pool[values])
    if values.dtype.kind == "f":
        return masked_if_needed(np.ma.masked_invalid(values))
    default = rows.__dataclass_fields__[name].metadata["default"]
    return given(values, default) if default in (NO_ID, NO_GRAPH, NO_TIME) else values
