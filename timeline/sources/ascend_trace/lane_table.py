"""A table that grows by events of lanes, and holds them lane after lane in the end."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, pairwise
from typing import Generic, TypeVar

import numpy as np

from timeline.columns.columns import Rows, TableBuilder
from timeline.records.tables import Spans
from timeline.sources.ascend_trace.lanes import LaneEvents
from timeline.sources.decoders.event_values import LaneKey

_Table = TypeVar("_Table", bound=Spans)


class LaneTable(Generic[_Table]):
    """Rows of lanes while they come, in parts of any size.

    In the table that is made of them, lanes follow each other as they first came, and rows of a
    lane are in file order: the size of the parts is not seen in it.
    """

    def __init__(self, kind: type[_Table]) -> None:
        self._builder = TableBuilder(kind)
        self._runs: defaultdict[LaneKey, list[tuple[int, int]]] = defaultdict(list)
        """The first row of each part of a lane, and the row behind its last."""

    def add(self, table: _Table, lanes: LaneEvents) -> None:
        """Put the rows of some lanes, lane after lane, behind those that were added before."""
        first = self._builder.rows
        for key, count in zip(lanes.keys, lanes.counts, strict=True):
            self._runs[key].append((first, first + count))
            first += count
        self._builder.add(table)

    def __contains__(self, key: LaneKey) -> bool:
        return key in self._runs

    def rows_of(self, key: LaneKey) -> Rows:
        """The rows of a lane in the table that was built."""
        ((first, stop),) = self._runs[key]
        return np.arange(first, stop)

    def build(self) -> _Table:
        """All rows, lane after lane."""
        every, order = list(chain.from_iterable(self._runs.values())), None
        if any(stop != first for (_, stop), (first, _) in pairwise(every)):
            order = np.concatenate([np.arange(*run) for run in every])
        table = self._builder.build(order)
        first = 0
        for key, runs in self._runs.items():
            count = sum(stop - first for first, stop in runs)
            self._runs[key] = [(first, first + count)]
            first += count
        return table
