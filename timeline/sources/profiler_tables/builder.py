"""Collects the tables that files fill, and what of them cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from timeline.columns.columns import ColumnTable
from timeline.errors import SourceError
from timeline.records.profiler_tables.profiler_tables import ProfilerTables
from timeline.records.tables import Omission
from timeline.sources.common.losses import LossLog, unreadable_file

__all__ = ["TablesBuilder", "table_of_rows"]

_Table = TypeVar("_Table", bound=ColumnTable)


def table_of_rows(kind: type[_Table], rows: Sequence[tuple[int | None, ...]]) -> _Table:
    """A table of rows of whole numbers, each in the order of its columns; the last may lack."""
    names = [*kind.empty().columns()][: len(rows[0]) if rows else None]
    columns = np.array(rows, np.int64).reshape(-1, len(names)).T
    return kind.of(len(rows), dict(zip(names, columns, strict=True)))


class TablesBuilder:
    """Collects the tables of one rank while its files are read.

    rank: whose they are. strings: where texts of all tables go, which hold their codes. known:
    tables that were read before, to which rows are added.
    """

    def __init__(self, rank: int, known: ProfilerTables | None = None) -> None:
        known = known or ProfilerTables()
        self.rank = rank
        self.strings = known.strings
        self._parts = {kind: [table] for kind, table in known.tables.items()}
        self._omissions: list[Omission] = []

    def add(self, kind: type[ColumnTable], count: int, columns: Mapping[str, Any]) -> None:
        """Add rows to a table; columns as for `ColumnTable.of`."""
        self._parts.setdefault(kind, []).append(kind.of(count, columns))

    def add_rows(self, kind: type[ColumnTable], rows: Sequence[tuple[int, ...]]) -> None:
        """Add rows of whole numbers to a table, each in the order of its columns."""
        self._parts.setdefault(kind, []).append(table_of_rows(kind, rows))

    @contextmanager
    def reading(self, path: Path, warnings: list[str] | None = None) -> Iterator[LossLog]:
        """Read a file within this: the log counts what is damaged, a SourceError all of it.

        warnings: takes a remark on a file that cannot be read, where more than counting is needed.
        """
        losses = LossLog(path)
        try:
            yield losses
        except SourceError as error:
            self._omissions.append(unreadable_file(error, self.rank))
            if warnings is not None:
                warnings.append(f"rank {self.rank}: {error}")
        self._omissions += losses.omissions(self.rank)

    def build(self) -> tuple[ProfilerTables, tuple[Omission, ...]]:
        """All tables, and what could not be read of their files."""
        tables = {kind: kind.concat(parts) for kind, parts in self._parts.items()}
        return ProfilerTables(self.strings, tables), tuple(self._omissions)
