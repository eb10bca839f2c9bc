"""Intervals of a trace, those of lanes of one kind together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np

from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct_as_met
from timeline.sources.decoders.event_columns import EventColumns
from timeline.sources.decoders.event_rows import EventRows
from timeline.sources.decoders.event_values import LaneKey

_Kind = TypeVar("_Kind", bound=Hashable)


class LaneEvents(EventRows):
    """The intervals of some lanes, lane after lane."""

    def __init__(
        self, keys: Sequence[LaneKey], counts: Sequence[int], events: EventColumns, rows: Rows
    ) -> None:
        """keys and counts: the lanes, and the events of each."""
        super().__init__(events, rows)
        self.keys, self.counts = keys, counts

    def of_lanes(self, values: Sequence[int]) -> Int64:
        """One id per lane as a column of the events."""
        if len(set(values)) == 1:
            return constant(values[0], len(self), np.int64)
        return np.repeat(np.array(values, np.int64), self.counts)

    def codes_of_lanes(self, values: Sequence[str]) -> Codes:
        """One string per lane as a column of the events."""
        return self.of_lanes([self.strings.code(value) for value in values]).astype(np.int32)


def lanes_of(events: EventColumns, rows: Rows) -> dict[int, LaneKey]:
    """The lanes of some rows by group, in the order in which they begin."""
    groups, _ = distinct_as_met(events.group[rows])
    return {group: events.values.lane(group) for group in groups.tolist()}


def lanes_by(
    kind_of: Callable[[LaneKey], _Kind],
    lanes: Mapping[int, LaneKey],
    events: EventColumns,
    rows: Rows,
) -> Iterator[tuple[_Kind, LaneEvents]]:
    """The lanes of some rows, those of a kind together."""
    by_kind: dict[_Kind, dict[int, LaneKey]] = {}
    for group, key in lanes.items():
        by_kind.setdefault(kind_of(key), {})[group] = key
    every = list(chain.from_iterable(by_kind.values()))
    few = len(every) <= np.iinfo(np.int16).max  # whose numbers sort in one pass
    number = np.zeros(max(lanes, default=0) + 1, np.int16 if few else np.int32)
    number[every] = np.arange(len(every))
    lane = number.take(events.group.take(rows))
    by_lane = rows.take(np.argsort(lane, kind="stable"))
    counts = np.bincount(lane, minlength=len(every)).tolist()
    first_lane = first_row = 0
    for kind, alike in by_kind.items():
        of_kind = counts[first_lane : first_lane + len(alike)]
        its = by_lane[first_row : first_row + sum(of_kind)]
        yield kind, LaneEvents(list(alike.values()), of_kind, events, its)
        first_lane, first_row = first_lane + len(alike), first_row + len(its)
