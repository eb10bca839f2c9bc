"""All small tables of a rank, told apart by their class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import TypeVar

import numpy as np

from timeline.columns.columns import ColumnTable
from timeline.columns.strings import StringPool
from timeline.frozen import dataclass
from timeline.records.not_given import NO_GRAPH, NO_ID

__all__ = ["ProfilerTables"]

_Table = TypeVar("_Table", bound=ColumnTable)


@dataclass(frozen=True, slots=True)
class ProfilerTables:
    """The small tables of one rank; strings are codes of their own pool.

    A table with a column `step` or `graph` holds NO_ID or NO_GRAPH there in rows that are of no
    step or graph. One with a column `mean` marks rows in it that the file makes of several steps.
    """

    strings: StringPool = field(default_factory=StringPool)
    tables: Mapping[type[ColumnTable], ColumnTable] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many rows all tables have."""
        return sum(map(len, self.tables.values()))

    def of(self, kind: type[_Table]) -> _Table:
        """The table of a class, without rows where no file fills it."""
        found = self.tables.get(kind)
        return found if isinstance(found, kind) else kind.empty()

    @property
    def steps(self) -> frozenset[int]:
        """The steps that any row is of."""
        return self._distinct("step", NO_ID)

    @property
    def graphs(self) -> frozenset[int]:
        """The graphs that any row is of."""
        return self._distinct("graph", NO_GRAPH)

    def _distinct(self, name: str, absent: int) -> frozenset[int]:
        columns = [getattr(table, name) for table in self.tables.values() if hasattr(table, name)]
        found = {number for column in columns for number in np.unique(column).tolist()}
        return frozenset(found - {absent})

    def selected(
        self, steps: frozenset[int] | None, graphs: frozenset[int] | None
    ) -> ProfilerTables:
        """The rows of some steps and graphs, and those that are of none; None selects all.

        The means that a file makes are of all steps, so they go where steps are selected.
        """
        if steps is None and graphs is None:
            return self
        return ProfilerTables(
            self.strings,
            {kind: _selected(table, steps, graphs) for kind, table in self.tables.items()},
        )


def _selected(
    table: ColumnTable, steps: frozenset[int] | None, graphs: frozenset[int] | None
) -> ColumnTable:
    stays = np.ones(len(table), np.bool_)
    names = {one.name for one in fields(table)}
    for name, chosen, absent in (("step", steps, NO_ID), ("graph", graphs, NO_GRAPH)):
        if chosen is not None and name in names:
            ids = getattr(table, name)
            stays &= np.isin(ids, sorted(chosen)) | (ids == absent)
    if steps is not None and "mean" in names:
        stays &= ~getattr(table, "mean")  # noqa: B009 - not every table has it
    return table.take(stays)
