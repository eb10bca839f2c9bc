"""Turns columns of figures into cells of a table: text for people, and what it is sorted by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.printable import printable
from timeline.report_page.drawing import Scale

__all__ = ["Cell", "Column", "Listing", "integers", "listing", "shares", "texts", "times"]

THIN = "\u202f"
"""Between thousands."""
NOTHING = "–"
_FINER = {"s": Scale("ms", 10**6), "ms": Scale("µs", 10**3), "µs": Scale("ns", 1)}
_LEAST = 10
"""A column is told in a finer unit where its largest value has fewer than two digits."""


@dataclass(frozen=True)
class Cell:
    """What is read, and what it is sorted by where that is a number; bar: from 0 to 1."""

    text: str
    value: int | float | None = None
    bar: float | None = None


@dataclass(frozen=True)
class Column:
    """A column: its title, whether it holds numbers, and its cells."""

    title: str
    number: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Listing:
    """A table of the page; note: what is to be said of it."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    note: str = ""

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        """Its cells by row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))


def listing(name: str, caption: str, columns: Sequence[Column | None], note: str = "") -> Listing:
    """A table of the columns that are given."""
    return Listing(name, caption, tuple(column for column in columns if column), note)


def texts(title: str, values: npt.NDArray[Any]) -> Column | None:
    """Words; None where all are empty."""
    spelled = [printable(str(value)) for value in values.tolist()]
    if not any(spelled):
        return None
    return Column(title, False, tuple(Cell(own or NOTHING) for own in spelled))


def integers(title: str, values: npt.NDArray[Any]) -> Column | None:
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


def times(
    title: str, values_ns: npt.NDArray[Any], *, like_ns: int = 0, bars: bool = False
) -> Column | None:
    """Times, all in one unit; None where none is given. Cells are sorted by nanoseconds.

    like_ns: the time whose unit they take, where it is not the largest of them.
    """
    given = values_ns.tolist()
    largest_ns = max((value for value in given if value is not None), default=None)
    if largest_ns is None:
        return None
    told_ns = like_ns or largest_ns
    scale = Scale.of(told_ns)
    if told_ns < _LEAST * scale.ns and scale.unit in _FINER:
        scale = _FINER[scale.unit]
    digits = 0 if scale.ns == 1 else 3
    return Column(
        f"{title} ({scale.unit})",
        True,
        tuple(
            Cell(NOTHING, -1)
            if value is None
            else Cell(
                f"{value / scale.ns:,.{digits}f}".replace(",", THIN),
                value,
                value / largest_ns if bars and largest_ns else None,
            )
            for value in given
        ),
    )


def shares(title: str, parts: npt.NDArray[Any], of: npt.NDArray[Any] | int) -> Column:
    """Shares in percent, each with a bar."""
    values = np.ma.filled(parts / np.maximum(of, 1), 0.0).tolist()
    return Column(title, True, tuple(Cell(_percent(own), round(own, 6), own) for own in values))


def _percent(share: float) -> str:
    return "<0.1%" if 0 < share < 0.0005 else f"{100 * share:.1f}%"
