"""Tables of named columns, and the declarations from which the tables of a run are built."""

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

from timeline.columns.columns import Bool, Codes, ColumnTable, Rows
from timeline.errors import did_you_mean
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
"""Columns by name, such as those of one rank, which are joined into a table."""


def cell_html(value: object) -> str:
    """Return a value as HTML, empty for None."""
    return "" if value is None else _escaped(str(value))


def table_html(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return an HTML table; head: plain text, rows: cells that are already HTML."""
    names = "".join(f"<th>{_escaped(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{content}</td>" for content in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def paragraph_html(*lines: str) -> str:
    """Return lines of text as a paragraph, empty if there are none."""
    return f"<p>{'<br>'.join(map(_escaped, lines))}</p>" if lines else ""


def link_html(path: Path) -> str:
    """Return a link to a file; relative paths stay so, as notebooks serve their own folder."""
    target = path.as_uri() if path.is_absolute() else urllib.parse.quote(path.as_posix())
    return f'<a href="{_escaped(target)}" download>{_escaped(str(path))}</a>'


def _escaped(text: str) -> str:
    import html  # loads a table of all HTML entities, which only notebooks need

    return html.escape(text)


MOST_ROWS_SHOWN = 60
"""Maximum number of rows shown in a notebook; the others are counted."""
MOST_SHOWN = 80
"""Maximum length of operator names in a notebook, where paths and sentences are whole, and of texts
at a terminal."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of strings that spreadsheets take for formulas."""
PARTS_AT_ONCE = 256
"""Number of parts of a table that are held in memory before they are joined."""
MOST_IN_REPR = 40
"""Maximum length of a text in the repr of a table."""
OPERATOR_COLUMNS = frozenset({"type", "name", "shapes"})
"""Columns with names of operators."""


def join_columns(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Join one or more parts of a column; the result is masked if any part is."""
    values = np.concatenate([np.ma.getdata(part) for part in parts])
    if not any(np.ma.isMaskedArray(part) for part in parts):
        return values
    return np.ma.masked_array(values, np.concatenate([np.ma.getmaskarray(part) for part in parts]))


def join_parts(
    parts: Iterable[Mapping[str, npt.NDArray[Any]]], names: Iterable[str]
) -> dict[str, npt.NDArray[Any]]:
    """Join the columns of parts, such as ranks; without any part, return no columns.

    Parts may be generated lazily: at most PARTS_AT_ONCE are in memory at a time, since a part with
    few rows takes far more memory than its rows.
    """
    names = tuple(names)
    parts, joined = iter(parts), list[Mapping[str, npt.NDArray[Any]]]()
    while batch := list(islice(parts, PARTS_AT_ONCE)):
        joined.append({name: join_columns([part[name] for part in batch]) for name in names})
    if len(joined) < 2:
        return dict(joined[0]) if joined else {}
    return {name: join_columns([part[name] for part in joined]) for name in names}


def longest_first(parts: Iterable[Columns], names: Iterable[str]) -> list[Columns]:
    """Return parts joined into one, if any: by total_ns in descending order, ties by texts."""
    joined = Table(join_parts(parts, names))
    if not joined.columns:
        return []
    texts = [column.tolist() for column in joined.columns.values() if column.dtype == object]
    keys = [
        (-total_ns, *(text or "" for text in row))
        for total_ns, *row in zip(
            np.ma.filled(joined["total_ns"], -1).tolist(), *texts, strict=True
        )
    ]
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.intp)
    return [joined.take(order).columns]


def _are_equal(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Return whether two columns have equal values and the same masked rows; NaN equals NaN."""
    given = ~np.ma.getmaskarray(one)
    if one.dtype != other.dtype or not np.array_equal(given, ~np.ma.getmaskarray(other)):
        return False
    values, others = np.ma.getdata(one)[given], np.ma.getdata(other)[given]
    return np.array_equal(values, others, equal_nan=one.dtype.kind == "f")


def masked_if_needed(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column without its mask if nothing is masked."""
    return column if np.ma.getmaskarray(column).any() else np.ma.getdata(column)


def given(values: npt.NDArray[Any] | Codes, absent: int) -> npt.NDArray[Any]:
    """Return the values, masked where they equal `absent`."""
    not_given = values == absent
    return np.ma.masked_array(values, not_given) if not_given.any() else np.asarray(values)


def no_numbers(count: int) -> npt.NDArray[Any]:
    """Return a column of `count` masked integers."""
    return np.ma.masked_array(np.zeros(count, np.int64), True)


def texts_or_none(strings: Iterable[str]) -> npt.NDArray[np.object_]:
    """Return strings as an object array, with None instead of empty ones."""
    return np.array([string or None for string in strings], object)


@dataclass(frozen=True, repr=False, eq=False)
class Table:
    """Columns by name, all equally long: int64, float64 or strings (object).

    Missing numbers are masked (`numpy.ma`); in rows of Python values they are None, in data frames
    NA or null.
    """

    columns: Mapping[str, npt.NDArray[Any]]

    @classmethod
    def of_rows(cls, kinds: Mapping[str, type], rows: Iterable[Sequence[Any]]) -> Table:
        """Return a table of a few rows, each with a value or None for each column.

        kinds: int, float, or object for strings and lists, by column name.
        """
        columns: dict[str, npt.NDArray[Any]] = {}
        rows = list(rows)
        for at, (name, kind) in enumerate(kinds.items()):
            values = [row[at] for row in rows]
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

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows and of columns."""
        return len(self), len(self.columns)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        try:
            return self.columns[name]
        except KeyError:
            near = did_you_mean(name, self.columns)
            there = f" Columns: {', '.join(self.columns)}."
            raise KeyError(f"there is no column {name!r}{near}{there}") from None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield rows of Python values."""
        return zip(*(column.tolist() for column in self.columns.values()), strict=True)

    def __repr__(self) -> str:
        size = f"<Table: {len(self)} rows, {len(self.columns)} columns>"
        return f"{size}\n{self.to_text(5, most=MOST_IN_REPR)}".rstrip()

    def to_text(self, rows: int = 100, *, most: int = MOST_SHOWN) -> str:
        """Return the first rows in aligned columns, with the number of the other rows.

        most: maximum length of texts, at least 20; the middle of longer ones is left out.
        """
        shown = self.head(rows)
        lines = [""] * (len(shown) + 1)
        for name, column in shown.columns.items():
            texts = ["" if one is None else printable(str(one)) for one in column.tolist()]
            cells = [name, *shortened(texts, most)]
            align = str.ljust if column.dtype.kind == "O" else str.rjust
            width = max(map(len, cells))
            lines = [
                f"{line}  {align(cell, width)}" for line, cell in zip(lines, cells, strict=True)
            ]
        rest = [f"and {len(self) - len(shown)} more rows"] if len(self) > len(shown) else []
        return "\n".join([*(line[2:].rstrip() for line in lines), *rest])

    def head(self, rows: int = 5) -> Table:
        """Return the first rows."""
        return self.take(slice(max(rows, 0)))

    def take(self, rows: npt.NDArray[Any] | slice) -> Table:
        """Return the rows chosen by a mask, positions or a slice."""
        return Table({name: column[rows] for name, column in self.columns.items()})

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a mapping for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self]

    def to_csv(self, *, safe: bool = False) -> str:
        r"""Return comma-separated text with a header and line feeds; missing values are empty.

        Args:
            safe: write an apostrophe before strings that begin like a formula, which a spreadsheet
                would run, and control characters, which a terminal would interpret, as escapes
                such as \x1b. Names in a profile may hold either.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(map(_defused, self) if safe else self)
        return text.getvalue()

    def to_pandas(self, *, timedelta: bool = False) -> pd.DataFrame:
        """Return a pandas data frame; integers with missing values are Int64, strings are string.

        Args:
            timedelta: turn integers in columns named _ns into timedelta64[ns].

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas as pd

        dtypes = {"i": "Int64", "f": "Float64", "O": "string", "b": "boolean", "m": "m8[ns]"}
        frame: dict[str, Any] = {}
        for name, column in self.columns.items():
            kind = _frame_kind(name, column, timedelta)
            bare = kind in "if" and not np.ma.isMaskedArray(column)
            frame[name] = column if bare else pd.array(column.tolist(), dtype=dtypes[kind])
        return pd.DataFrame(frame)

    def to_arrow(self, *, timedelta: bool = False) -> pa.Table:
        """Return an Arrow table.

        Args:
            timedelta: turn integers in columns named _ns into durations in ns.

        Raises:
            ImportError: pyarrow is not installed.
        """
        import pyarrow as pa

        types = {"i": pa.int64(), "f": pa.float64(), "O": pa.string(), "b": pa.bool_()}
        types["m"] = pa.duration("ns")
        return pa.table(
            {
                name: pa.array(column.tolist(), types[_frame_kind(name, column, timedelta)])
                for name, column in self.columns.items()
            }
        )

    def to_polars(self, *, timedelta: bool = False) -> pl.DataFrame:
        """Return a polars data frame.

        Args:
            timedelta: turn integers in columns named _ns into durations in ns.

        Raises:
            ImportError: polars is not installed.
        """
        import polars as pl

        types = {"i": pl.Int64, "f": pl.Float64, "O": pl.String, "b": pl.Boolean}
        kinds = {name: _frame_kind(name, one, timedelta) for name, one in self.columns.items()}
        frame = pl.DataFrame(
            {name: column.tolist() for name, column in self.columns.items()},
            schema={name: types.get(kind, pl.Int64) for name, kind in kinds.items()},
        )
        times = [name for name, kind in kinds.items() if kind == "m"]
        return frame.with_columns(pl.col(times).cast(pl.Duration("ns"))) if times else frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule of the Arrow C stream interface, which data frame libraries read.

        Raises:
            ImportError: pyarrow is not installed.
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Refuse: as one array, or as rows of `pandas.DataFrame(table)`, columns lose their names.

        Raises:
            TypeError: always.
        """
        raise TypeError("a Table is not an array: use to_pandas(), or one column of it.")

    def _repr_html_(self) -> str:
        shown = self.take(np.arange(min(len(self), MOST_ROWS_SHOWN)))
        rest = len(self) - len(shown)
        cells = [
            shortened([value or "" for value in column.tolist()], MOST_SHOWN)
            if name in OPERATOR_COLUMNS
            else column.tolist()
            for name, column in shown.columns.items()
        ]
        rows = (map(cell_html, row) for row in zip(*cells, strict=True))
        note = paragraph_html(*([f"and {rest} more rows"] if rest else []))
        return table_html(self.columns, rows) + note


def _frame_kind(name: str, column: npt.NDArray[Any], timedelta: bool) -> str:
    """Return the kind of a column in a data frame.

    That is i for integers, m for times that become durations, f, b for booleans, and O for text.
    """
    kind = column.dtype.kind
    if kind == "i" and timedelta and name.endswith("_ns"):
        return "m"
    if kind == "O" and any(isinstance(value, bool) for value in column.tolist()):
        return "b"
    return kind


def _defused(row: Iterable[Any]) -> list[Any]:
    """Return values that no spreadsheet evaluates and no terminal interprets."""
    return [
        ("'" if value.startswith(_FORMULA) else "") + printable(value)
        if isinstance(value, str)
        else value
        for value in row
    ]


def number_rows(table: Table, keys: Sequence[str]) -> Rows:
    """Return the number of each row's combination of keys, (n,), in order of appearance."""
    rows = list(zip(*(table[name].tolist() for name in keys), strict=True))
    number = {key: at for at, key in enumerate(dict.fromkeys(rows))}
    return np.array([number[key] for key in rows], np.intp)


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
        keys: columns to group by; masked values count as equal.
        sums, least, largest: columns to reduce to the sum, minimum and maximum; masked if all
            values of a group are.
        by: a column; if given, rows are sorted by it in descending order.
    """
    row = number_rows(table, keys)
    count = int(row.max(initial=-1)) + 1
    columns = {name: table[name][np.unique(row, return_index=True)[1]] for name in keys}
    for names, combine in ((sums, np.add), (least, np.minimum), (largest, np.maximum)):
        for name in names:
            known = ~np.ma.getmaskarray(table[name])
            values, group = np.ma.getdata(table[name])[known], row[known]
            combined = np.zeros(count, values.dtype)
            combined[group] = 0 if combine is np.add else values
            combine.at(combined, group, values)
            absent = np.ones(count, np.bool_)
            absent[group] = False
            columns[name] = np.ma.masked_array(combined, absent) if absent.any() else combined
    summed = Table(columns)
    if not by:
        return summed
    return summed.take(np.argsort(-np.ma.filled(summed[by], 0), kind="stable"))


def lines_by(rows: Table, keys: Sequence[str]) -> dict[tuple[Any, ...], tuple[str, int]]:
    """Return the line of code that takes most time of each combination of keys, and that time.

    rows: with a column `line`, None where it is unknown; such keys are left out. Its time is in
    `line_ns` if there is such a column, or else all of total_ns.
    """
    if not len(rows):
        return {}
    time = "line_ns" if "line_ns" in rows.columns else "total_ns"
    longest = sum_rows(rows, (*keys, "line"), (time,), by=time)
    lines: dict[tuple[Any, ...], tuple[str, int]] = {}
    for *key, line, line_ns in zip(
        *(longest[name].tolist() for name in (*keys, "line", time)), strict=True
    ):
        if line:
            lines.setdefault(tuple(key), (line, line_ns))
    return lines


def longest_lines(rows: Table, summed: Table, keys: Sequence[str]) -> npt.NDArray[Any]:
    """Return the line of code that takes most of the time of each row of sums, None if unknown.

    rows: what was summed, with a column `line`. keys: columns of both.
    """
    lines = lines_by(rows, keys)
    every = zip(*(summed[name].tolist() for name in keys), strict=True)
    return np.array([*(lines.get(key, (None,))[0] for key in every), None], object)[:-1]


# -- declarations ----------------------------------------------------------------------------------


class Kind(enum.Enum):
    """The kinds of values in a column."""

    INTEGER = "integer"
    """An integer, masked if missing. Names of times end in _ns, of sizes in _bytes."""
    REAL = "real"
    SHARE = "share"
    """A real number that is 1 for the whole."""
    TEXT = "text"
    """A string, list or boolean, None if missing."""
    LABEL = "label"
    """A string, empty if missing."""

    @property
    def dtype(self) -> type:
        """Return int, float or object."""
        return {Kind.INTEGER: int, Kind.REAL: float, Kind.SHARE: float}.get(self, object)


class Col(NamedTuple):
    """The declaration of a column.

    meaning: documentation beyond the name, empty if the name suffices. title: heading in a page.
    unit: of amounts that a page shows with a metric prefix, such as FLOP.
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
    """Parse a schema, in which a line declares one column, or several separated by commas.

    >>> [(one.name, one.kind.name, one.meaning) for one in columns_in("rank, text name: of a rank")]
    [('rank', 'INTEGER', ''), ('name', 'TEXT', 'of a rank')]

    A line is `KIND NAME = TITLE in UNIT: MEANING`; all but the name may be left out. The kind
    applies to all columns after it in the line and is an integer by default.
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
    """The measurements of which tables are built: facts of ranks on one clock, and other tables."""

    @property
    def facts(self) -> Sequence[RankFacts]:
        """Return the facts of each rank."""

    @property
    def rank_waiting(self) -> Waiting:
        """Return the waits of ranks for each other in collectives."""

    @property
    def path(self) -> CriticalPath:
        """Return the critical path of the steps, without segments if causes are not requested."""

    @property
    def ordinary(self) -> Sequence[Bool]:
        """Return a mask of ordinary steps for each rank."""

    @property
    def exposed_parts(self) -> tuple[ExposedParts, ExposedParts]:
        """Return the parts of exposed communication of ranks, and of all their steps."""

    def __getitem__(self, name: str) -> Table:
        """Return another table of the run."""


class Json(NamedTuple):
    """The form of a table in the JSON report.

    key: in the report. shape: returns the value, by default an object per row. meaning:
    documentation, if the keys differ from the columns. more: text after that of the columns.
    """

    key: str
    shape: Callable[[Run, Table], Any] = lambda _run, table: table.to_dicts()
    meaning: str = ""
    more: str = ""


class Method(NamedTuple):
    """The method of a profile that returns a table.

    by: value of the method's argument `by` that selects this table, if it returns several; the
    first declared is the default. levels: values of the column `level`, of which `by` selects one.
    questions: fields of `Questions` that the table needs. kept: whether the figures of a selection
    are cached.
    """

    name: str
    by: str = ""
    levels: tuple[str, ...] = ()
    questions: Mapping[str, Any] = {}
    kept: bool = True


class View(NamedTuple):
    """The form of a table in a page.

    anchor: its address in the page. columns: names of the shown columns. where: a column and a
    value, to show only rows with it. order: column to sort by in descending order; empty for the
    table's own order. most: maximum number of rows. noun: for counting rows. bars: columns with a
    bar in each cell. titles: headings that differ from those of the columns. section: title of the
    section whose code in `timeline/reports/html/` shows the table, since a title that is new shows
    it nowhere; empty for the section "Other tables".
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

    Its columns, its key in the JSON report, its method of a profile, its place in the page, and its
    documentation are derived from it.

    row_per: the things that have one row each, such as "rank and step", as documentation prints
    them after "a row per". schema: see `columns_in`. make: returns the table of a run, or yields
    the columns of its parts, such as ranks, in any order. note: a sentence on the whole table.
    """

    name: str
    row_per: str
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
        """Return a table of rows, each with a value or None for each column."""
        return Table.of_rows(self.kinds, rows)

    def of_run(self, run: Run) -> Table:
        """Return the table of a run, with all columns even if there are no rows."""
        parts = self.make(run)
        if isinstance(parts, Table):
            return parts
        columns = join_parts(parts, self.kinds)
        if not columns or not len(columns[self.columns[0].name]):
            return self.of_rows()
        return Table({name: masked_if_needed(column) for name, column in columns.items()})

    def part(
        self, rank: int, rows: ColumnTable, strings: Iterable[str], /, **more: npt.NDArray[Any]
    ) -> Columns:
        """Return the columns of one rank.

        A declared column that is not among `more` is taken from `rows` by its name, with strings
        instead of codes, and missing values masked, None or empty, depending on its kind.
        """
        labels = np.array([*strings, ""], object)
        columns = {"rank": np.full(len(rows), rank, np.int64), **more}
        for one in self.columns:
            if one.name not in columns:
                pool = texts_or_none(labels) if one.kind is Kind.TEXT else labels
                columns[one.name] = _shown(rows, one.name, pool)
        return columns

    def documented(self, quoted: str = "{}") -> str:
        """Return documentation of its columns, and its note; quoted: format of column names."""
        columns = ", ".join(
            quoted.format(one.name) + (f" ({one.meaning})" if one.meaning else "")
            for one in self.columns
        )
        return f"{columns}. {self.note}" if self.note else columns


def _shown(rows: ColumnTable, name: str, pool: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column with strings instead of codes, and missing values masked."""
    values: npt.NDArray[Any] = getattr(rows, name)
    if values.dtype == np.int32:
        return np.asarray(pool[values])
    if values.dtype.kind == "f":
        return masked_if_needed(np.ma.masked_invalid(values))
    default = rows.__dataclass_fields__[name].metadata["default"]
    return given(values, default) if default in (NO_ID, NO_GRAPH, NO_TIME) else values
