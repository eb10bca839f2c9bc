"""Tables of a page, made of columns: text for people, and what it is sorted by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Int64
from timeline.figures.short_names import shortened
from timeline.printable import printable
from timeline.reports.html.drawing import Scale

THIN = "\u202f"
"""Between thousands."""
NOTHING = "–"
SHORT, MIDDLE, LONG = 22, 46, 80
"""Characters that columns of three widths show in two lines; see `td.word` of the style sheet."""
MINUS = "\u2212"
_NEW = 1e9
_PREFIXES = (("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3), ("", 1))
_FINER = {"s": Scale("ms", 10**6), "ms": Scale("µs", 10**3), "µs": Scale("ns", 1)}
_LEAST = 10
"""A column is told in a finer unit where its largest value has fewer than two digits."""


@dataclass(frozen=True)
class Cell:
    """One cell: the text that is read, and the number that it is sorted by, if any.

    bar: from 0 to 1; from -1 to 1 with a role, from the middle to either side. whole: the text
    before it was shortened, empty where it was not.
    """

    text: str
    value: int | float | None = None
    bar: float | None = None
    role: str = ""
    whole: str = ""

    @property
    def extent(self) -> str:
        """How wide a column has to be that shows the text in two lines, as the style sheet says."""
        return "long" if len(self.text) > MIDDLE else "middle" if len(self.text) > SHORT else ""


@dataclass(frozen=True)
class Column:
    """A column: its title, whether it holds numbers, and its cells."""

    title: str
    number: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class PageTable:
    """A table of the page; note: what is to be said of it."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    note: str = ""

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """Its cells by row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))


def page_table(
    name: str, caption: str, columns: Sequence[Column | None], note: str = ""
) -> PageTable:
    """A table of the columns that are given."""
    return PageTable(name, caption, tuple(column for column in columns if column), note)


def text_column(title: str, values: npt.NDArray[Any]) -> Column | None:
    """Words; None where all are empty."""
    spelled = [printable(str(value)) for value in values.tolist()]
    if not any(spelled):
        return None
    cells = (
        Cell(short or NOTHING, whole="" if short == text else text)
        for short, text in zip(shortened(spelled, LONG), spelled, strict=True)
    )
    return Column(title, False, tuple(cells))


def spell_rank(number: int | None, profiled: object) -> str:
    """A rank that need not be in the profile, or be known."""
    if number is None:
        return "another rank"
    return f"rank {number}" if profiled else f"rank {number} (not read)"


def integer_column(title: str, values: npt.NDArray[Any]) -> Column | None:
    """Ids and counts; None where none is given."""
    given = values.tolist()
    if all(value is None for value in given):
        return None
    return Column(
        title,
        True,
        tuple(
            Cell(NOTHING, -1) if value is None else Cell(f"{value:,}".replace(",", THIN), value)
            for value in given
        ),
    )


def time_column(
    title: str, values_ns: npt.NDArray[Any], *, like_ns: int = 0, bars: bool = False
) -> Column | None:
    """Times, all in one unit; None where none is given. Cells are sorted by nanoseconds.

    like_ns: the time whose unit they take, where it is not the largest of them.
    """
    given = values_ns.tolist()
    largest_ns = max((value for value in given if value is not None), default=None)
    if largest_ns is None:
        return None
    scale = _scale_of(like_ns or largest_ns)
    return Column(
        f"{title} ({scale.unit})",
        True,
        tuple(
            Cell(NOTHING, -1)
            if value is None
            else Cell(
                _in_unit(value, scale),
                value,
                value / largest_ns if bars and largest_ns else None,
            )
            for value in given
        ),
    )


def _scale_of(largest_ns: int) -> Scale:
    scale = Scale.of(largest_ns)
    return _FINER.get(scale.unit, scale) if largest_ns < _LEAST * scale.ns else scale


def _in_unit(value_ns: int, scale: Scale, *, sign: str = "") -> str:
    digits = 0 if scale.ns == 1 else 3
    return sign + _thousands(value_ns / scale.ns, digits)


def columns_of_runs(base_ns: Int64, new_ns: Int64) -> list[Column]:
    """Times of two runs, all in one unit and with bars of one scale, and how they changed.

    Those that a run does not tell are masked.
    """
    delta_ns = new_ns - base_ns
    base_given, new_given, delta_given = (
        np.ma.filled(column_ns, 0) for column_ns in (base_ns, new_ns, delta_ns)
    )
    largest_ns = int(max(base_given.max(initial=0), new_given.max(initial=0)))
    furthest_ns = int(np.abs(delta_given).max(initial=0))
    scale = _scale_of(largest_ns)

    def column(title: str, values_ns: Int64) -> Column:
        cells = (
            Cell(NOTHING, -1)
            if value_ns is None
            else Cell(_in_unit(value_ns, scale), value_ns, value_ns / max(1, largest_ns))
            for value_ns in values_ns.tolist()
        )
        return Column(f"{title} ({scale.unit})", True, tuple(cells))

    changes = (
        Cell(NOTHING, 0)
        if change_ns is None
        else Cell(
            _in_unit(change_ns, scale, sign="+" if change_ns > 0 else ""),
            change_ns,
            change_ns / furthest_ns if change_ns else None,
            _role(change_ns),
        )
        for change_ns in delta_ns.tolist()
    )
    shares = (
        Cell(*_change(delta, base))
        for delta, base in zip(delta_given.tolist(), base_given.tolist(), strict=True)
    )
    return [
        column("Before", base_ns),
        column("Now", new_ns),
        Column(f"Change ({scale.unit})", True, tuple(changes)),
        Column("Change", True, tuple(shares)),
    ]


def _role(delta_ns: int) -> str:
    return "worse" if delta_ns > 0 else "better" if delta_ns < 0 else ""


def _change(delta_ns: int, base_ns: int) -> tuple[str, float]:
    """A change as a share, and what it is sorted by; what is new is larger than any share."""
    if not delta_ns:
        return NOTHING, 0
    if not base_ns:
        return "new", _NEW
    share = delta_ns / base_ns
    return ("gone" if share == -1 else f"{share:+.1%}".replace("-", MINUS)), round(share, 6)


def size_column(
    title: str, values_bytes: npt.NDArray[Any], *, signed: bool = False
) -> Column | None:
    """Sizes in MB, nothing where they are masked; None where all are 0 or masked.

    signed: whether they are changes, of which those that are more have a plus.
    """
    given = values_bytes.tolist()
    if not any(given):
        return None
    cells = (
        Cell(NOTHING, -1)
        if value is None
        else Cell(f"{'+' if signed and value > 0 else ''}{_thousands(value / 1e6, 1)}", value)
        for value in given
    )
    return Column(f"{title} (MB)", True, tuple(cells))


def rate_column(title: str, values: npt.NDArray[Any]) -> Column | None:
    """Bandwidths in GB/s; None where none is given."""
    given = values.tolist()
    if all(value is None for value in given):
        return None
    cells = (
        Cell(NOTHING, -1) if value is None else Cell(f"{value:.2f}", round(value, 4))
        for value in given
    )
    return Column(f"{title} (GB/s)", True, tuple(cells))


def scaled_column(title: str, values: npt.NDArray[Any], unit: str) -> Column | None:
    """Amounts of a unit, all with the prefix that suits the largest; None where none is given."""
    given = values.tolist()
    largest = max((value for value in given if value is not None), default=None)
    if largest is None:
        return None
    prefix, scale = next((one for one in _PREFIXES if largest >= one[1]), _PREFIXES[-1])
    cells = (
        Cell(NOTHING, -1)
        if value is None
        else Cell(_thousands(value / scale, 3 if prefix else 0), value)
        for value in given
    )
    return Column(f"{title} ({prefix}{unit})", True, tuple(cells))


def percent_column(title: str, shares: npt.NDArray[Any]) -> Column | None:
    """Shares as they are given, each with a bar; None where none is given."""
    given = shares.tolist()
    if all(value is None for value in given):
        return None
    cells = (
        Cell(NOTHING, -1)
        if value is None
        else Cell(_percent(value), round(value, 6), min(1.0, value))
        for value in given
    )
    return Column(title, True, tuple(cells))


def spell_amount(value: int, unit: str) -> str:
    """An amount in four digits, with the prefix that suits it."""
    prefix, scale = next((one for one in _PREFIXES if value >= one[1]), _PREFIXES[-1])
    return f"{value / scale:#.4g} {prefix}{unit}" if prefix else f"{value} {unit}"


def _thousands(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace(",", THIN).replace("-", MINUS)


def share_column(title: str, parts: npt.NDArray[Any], of: npt.NDArray[Any] | int) -> Column:
    """Shares in percent, each with a bar."""
    values = np.ma.filled(parts / np.maximum(of, 1), 0.0).tolist()
    return Column(
        title, True, tuple(Cell(_percent(value), round(value, 6), value) for value in values)
    )


def _percent(share: float) -> str:
    return "<0.1%" if 0 < share < 0.0005 else f"{100 * share:.1f}%"
