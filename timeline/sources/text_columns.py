"""Turns a CSV file into columns of text, some tens of thousands of rows at a time."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from timeline.errors import SourceError
from timeline.records.columns import Bool, Codes, Float64
from timeline.records.tables import Omission
from timeline.sources.opened import open_text

__all__ = ["NOT_GIVEN", "CsvColumns", "coded", "name_of", "numbers", "unit_of"]

BLOCK_ROWS = 65_536
NOT_GIVEN = frozenset({"", "N/A", "NA", "-", "None", "null"})
"""How the writers spell that there is no value."""
_IN_BRACKETS = re.compile(r"(.*)\(([^()]+)\)")
Block = dict[str, Sequence[str]]
"""Stripped cells by column."""


class CsvColumns:
    """The rows of a CSV file as blocks of columns; lines with too few or many cells are counted.

    Cells lose the blanks and tabs around them; bytes that are no UTF-8 are replaced. A line that
    repeats the header, as joined slices do, is no row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: tuple[str, ...] = ()
        """The columns, known once the first block was asked for."""
        self.bad_lines = 0
        self.first_bad_line = 0

    def omissions(self, rank: int) -> list[Omission]:
        """The lines that are no rows, once all blocks are read."""
        if not self.bad_lines:
            return []
        name, first = self.path.name, self.first_bad_line
        reason = f"lines of {name} with too few or many cells, the first is line {first}"
        return [Omission(reason, self.bad_lines, rank, loss=True)]

    def blocks(self) -> Iterator[Block]:
        """The rows, in order.

        Raises:
            SourceError: the file cannot be read, or has no header.
        """
        try:
            with open_text(self.path) as file:
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
        whole = [line for line in lines if len(line) == width]
        if len(whole) < len(lines):
            whole = []
            for number, line in enumerate(lines, before + 1):
                if len(line) >= width and not any(line[width:]):
                    whole.append(line[:width])
                elif line:
                    self.first_bad_line = self.first_bad_line or number
                    self.bad_lines += 1
        columns: list[Sequence[str]] = [
            list(map(str.strip, column)) for column in zip(*whole, strict=True)
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
    with contextlib.suppress(ValueError):
        values = np.array(list(map(float, cells)), np.float64)
        if not np.isnan(values).any():
            return values, np.ones(len(cells), np.bool_)
    given = np.fromiter((cell not in NOT_GIVEN for cell in cells), np.bool_, len(cells))
    return np.array([_number(text) for text in cells], np.float64), given


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def coded(cells: Sequence[str], known: dict[str, int]) -> Codes:
    """Cells as (n,) numbers in the order in which they were first seen; `known` grows."""
    for cell in dict.fromkeys(cells):
        known.setdefault(cell, len(known))
    return np.fromiter(map(known.__getitem__, cells), np.int32, len(cells))
