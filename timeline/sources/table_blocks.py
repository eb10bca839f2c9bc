"""Turns a CSV table into blocks of its wanted columns, and counts rows that are cut off."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from timeline.errors import SourceError
from timeline.records.columns import Int64
from timeline.records.tables import Omission

__all__ = ["Block", "Losses", "Spellings", "read_blocks"]

BLOCK_ROWS = 1 << 13
"""Rows whose cells are held as text at a time: some 20 MB of a table with all its counters."""

Spellings = Mapping[str, tuple[str, ...]]
"""The names of each wanted column over the versions, newest first."""


@dataclass(frozen=True)
class Block:
    """Some rows of a table: the cells of each column that it has, and the line of each row."""

    cells: Mapping[str, list[str]]
    lines: Int64

    def __len__(self) -> int:
        return len(self.lines)


class Losses:
    """Counts the rows of one table that are left out, by reason."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._found: dict[str, tuple[int, int]] = {}

    def add(self, reason: str, lines: Int64) -> None:
        """Count rows by the lines that they are on."""
        if len(lines):
            rows, first = self._found.get(reason, (0, int(lines[0])))
            self._found[reason] = rows + len(lines), first

    def omissions(self, rank: int | None) -> tuple[Omission, ...]:
        """What was counted, with the first line of each reason."""
        return tuple(
            Omission(f"rows of {self._name} {reason}, first in line {line}", rows, rank, loss=True)
            for reason, (rows, line) in self._found.items()
        )


def read_blocks(
    path: Path, wanted: Spellings, required: Sequence[str], losses: Losses
) -> Iterator[Block]:
    """Read the wanted columns of a table.

    A line is a row, whatever quotes say: a quote that is never closed costs its own row only.
    Blank lines and repeated headers are no rows. Cells that a short row lacks are empty; a last
    line that is short and has no end was cut off while it was written, and is counted.

    Raises:
        SourceError: the file cannot be read, or lacks a required column.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            line, header = _header(file)
            places = _places(path, header, wanted, required)
            while lines := list(islice(file, BLOCK_ROWS)):
                yield _block(lines, line + 1, header, places, places[required[0]], losses)
                line += len(lines)
    except OSError as error:
        raise SourceError(path, f"cannot be read: {error.strerror}.") from error


def _header(lines: Iterator[str]) -> tuple[int, list[str]]:
    """The line of the header, from 1, and its names."""
    number = 0
    for number, line in enumerate(lines, 1):
        names = [name.strip() for name in _row(line)]
        if any(names):
            return number, names
    return number, []


def _places(
    path: Path, header: list[str], wanted: Spellings, required: Sequence[str]
) -> dict[str, int]:
    places = {
        key: header.index(name)
        for key, names in wanted.items()
        for name in names[::-1]
        if name in header
    }
    for key in required:
        if key not in places:
            raise SourceError(
                path,
                f"has no column {' or '.join(wanted[key])}; "
                f"found {', '.join(header)[:200] or 'nothing'}.",
            )
    return places


def _block(
    lines: list[str],
    first: int,
    header: list[str],
    places: Mapping[str, int],
    mark: int,
    losses: Losses,
) -> Block:
    rows = _rows(lines)
    numbers = np.arange(first, first + len(rows))
    cut_off = len(rows[-1]) < len(header) and not lines[-1].endswith(("\n", "\r"))
    if cut_off and rows[-1]:
        losses.add("that are cut off", numbers[-1:])
        rows[-1] = []
    name = header[mark]
    held = [
        at
        for at, row in enumerate(rows)
        if row and (len(row) <= mark or row[mark].strip() != name or not _is_header(row, header))
    ]
    if len(held) < len(rows):
        rows, numbers = [rows[at] for at in held], numbers[held]
    most = max(places.values())
    if any(len(row) <= most for row in rows):
        rows = [row + [""] * (most + 1 - len(row)) for row in rows]
    return Block({key: [row[at] for row in rows] for key, at in places.items()}, numbers)


def _is_header(row: list[str], header: list[str]) -> bool:
    """Whether a row is a header again; files put together may have a byte order mark inside."""
    return [cell.strip().lstrip("\ufeff") for cell in row] == header


def _rows(lines: list[str]) -> list[list[str]]:
    """The cells of each line."""
    try:
        rows = list(csv.reader(lines))
    except csv.Error:
        rows = []
    closed = len(rows) == len(lines) and not (rows[-1] and "\n" in rows[-1][-1])
    return rows if closed else [_row(line) for line in lines]


def _row(line: str) -> list[str]:
    """The cells of one line; of one that no reader of CSV takes, what lies between commas."""
    line = line.rstrip("\r\n")
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return line.split(",")
