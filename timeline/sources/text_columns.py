"""Turns a CSV file into columns of text, some tens of thousands of rows at a time."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from timeline.errors import SourceError
from timeline.records.columns import Bool, Codes, Float64

__all__ = ["NOT_GIVEN", "CsvColumns", "coded", "name_of", "numbers", "unit_of"]

BLOCK_ROWS = 65_536
NOT_GIVEN = frozenset({"", "N/A", "NA", "-", "None", "null"})
"""How the writers spell that there is no value."""
_IN_BRACKETS = re.compile(r"(.*)\(([^()]+)\)")
Block = dict[str, Sequence[str]]
"""Stripped cells by column."""


class CsvColumns:
    """The rows of a CSV file as blocks of columns; lines with too few cells are counted.

    Cells lose the blanks and tabs around them; bytes that are no UTF-8 are replaced. A line that
    repeats the header, as joined slices do, is no row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: tuple[str, ...] = ()
        """The columns, known once the first block was asked for."""
        self.short_lines = 0
        self.first_short_line = 0

    def blocks(self) -> Iterator[Block]:
        """The rows, in order.

        Raises:
            SourceError: the file cannot be read, or has no header.
        """
        try:
            with self.path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
                rows = csv.reader(file)
                self.header = tuple(name.strip() for name in next(rows, []))
                if not any(self.header):
                    raise SourceError(self.path, "is empty.")
                while lines := list(islice(rows, BLOCK_ROWS)):
                    yield self._block(lines, rows.line_num - len(lines))
        except OSError as error:
            raise SourceError(self.path, f"cannot be read: {error.strerror}.") from error
        except csv.Error as error:
            raise SourceError(self.path, f"is not a table: {error}.") from error

    def _block(self, lines: list[list[str]], before: int) -> Block:
        width = len(self.header)
        whole = [line[:width] for line in lines if len(line) >= width]
        if len(whole) < len(lines):
            for number, line in enumerate(lines, before + 1):
                if line and len(line) < width:
                    self.first_short_line = self.first_short_line or number
                    self.short_lines += 1
        columns: list[Sequence[str]] = [
            [cell.strip() for cell in column] for column in zip(*whole, strict=True)
        ]
        columns = columns or [[] for _ in self.header]
        return self._without_headers(dict(zip(self.header, columns, strict=True)))

    def _without_headers(self, block: Block) -> Block:
        first = self.header[0]
        if first not in block[first]:
            return block
        kept = [
            at
            for at, row in enumerate(zip(*block.values(), strict=True))
            if row[0] != first or row != self.header
        ]
        return {name: [cells[at] for at in kept] for name, cells in block.items()}


def name_of(column: str) -> str:
    """The name of a column without its unit: "Total Reserved" of "Total Reserved(MB)"."""
    match = _IN_BRACKETS.fullmatch(column)
    return match[1].strip() if match else column


def unit_of(column: str) -> str:
    """The unit of a column, empty where it has none: "MB" of "Total Reserved(MB)"."""
    match = _IN_BRACKETS.fullmatch(column)
    return match[2] if match else ""


def numbers(cells: Sequence[str]) -> tuple[Float64, Bool]:
    """Cells as (n,) float64, NaN where there is no number, and whether a value was given."""
    given = np.fromiter((cell not in NOT_GIVEN for cell in cells), np.bool_, len(cells))
    texts = cells if given.all() else [c if c not in NOT_GIVEN else "nan" for c in cells]
    try:
        values = np.array(list(map(float, texts)), np.float64)
    except ValueError:
        values = np.array([_number(text) for text in texts], np.float64)
    return values, given


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def coded(cells: Sequence[str], known: dict[str, int]) -> Codes:
    """Cells as (n,) numbers in the order in which they were first seen; `known` grows."""
    return np.fromiter((known.setdefault(cell, len(known)) for cell in cells), np.int32, len(cells))
