"""Turns the events of lanes into columns that hold one value per lane or one per event."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import cast

import numpy as np

from timeline.columns.columns import Codes, Float64, Int64, Rows
from timeline.columns.constant import constant
from timeline.columns.strings import StringPool
from timeline.sources.common.decimals import moments_ns, real
from timeline.sources.event_columns import first_ids, ids_of, names_of, numbered, spans_of
from timeline.sources.trace_events import NO_ARGS, Complete, Value
from timeline.sources.trace_lanes import LaneKey

__all__ = ["DecodedLanes", "LaneEvents"]


class LaneEvents(ABC):
    """The events of some lanes, lane after lane; args are named as the fields of `Args`."""

    def __init__(self, keys: Sequence[LaneKey], counts: Sequence[int], strings: StringPool) -> None:
        """keys and counts: the lanes, and the events of each; strings: what names are codes of."""
        self.keys, self.counts, self.strings = keys, counts, strings

    def __len__(self) -> int:
        return sum(self.counts)

    def of_lanes(self, values: Sequence[int]) -> Int64:
        """One id per lane as a column of the events."""
        if len(set(values)) == 1:
            return constant(values[0], len(self), np.int64)
        return np.repeat(np.array(values, np.int64), self.counts)

    def codes_of_lanes(self, values: Sequence[str]) -> Codes:
        """One string per lane as a column of the events."""
        return self.of_lanes([self.strings.code(value) for value in values]).astype(np.int32)

    @abstractmethod
    def spans(self, rows: Rows | None = None) -> dict[str, Int64]:
        """Start and end of events, all or those of some rows, under the names of their columns."""

    @abstractmethod
    def names(self) -> Codes:
        """The name of each event."""

    @abstractmethod
    def spelled_names(self) -> list[str]:
        """The same as strings."""

    @abstractmethod
    def categories(self) -> list[str]:
        """The category of each event, empty where it has none."""

    @abstractmethod
    def numbered(self, pattern: re.Pattern[str]) -> tuple[Rows, list[int]]:
        """The events whose whole name has a pattern, and the numbers that are its first group."""

    @abstractmethod
    def ids(self, default: int, *args: str) -> Int64:
        """Ids or amounts: of several args the first that is given; see `number`."""

    @abstractmethod
    def arg_names(self, arg: str) -> Codes:
        """The names that an arg gives, empty where it is absent."""

    @abstractmethod
    def levels(self) -> Codes:
        """The level of each call, or else its category."""

    @abstractmethod
    def reals(self, arg: str) -> Float64:
        """The numbers that an arg gives, NaN where it gives none."""

    @abstractmethod
    def moments(self, arg: str) -> Int64:
        """The moments that an arg gives as decimal microseconds, NO_TIME where it gives none."""


class DecodedLanes(LaneEvents):
    """Events that are objects."""

    def __init__(self, lanes: Mapping[LaneKey, Sequence[Complete]], strings: StringPool) -> None:
        super().__init__(list(lanes), [len(events) for events in lanes.values()], strings)
        self._events = list(chain.from_iterable(lanes.values()))
        self._args = [event.args or NO_ARGS for event in self._events]

    def _values(self, arg: str) -> list[Value]:
        return list(map(attrgetter(arg), self._args))

    def spans(self, rows: Rows | None = None) -> dict[str, Int64]:
        """See `LaneEvents`."""
        if rows is None:
            return spans_of(self._events)
        return spans_of([self._events[row] for row in rows.tolist()])

    def names(self) -> Codes:
        """See `LaneEvents`."""
        return self.strings.codes(self.spelled_names())

    def spelled_names(self) -> list[str]:
        """See `LaneEvents`."""
        return [event.name for event in self._events]

    def categories(self) -> list[str]:
        """See `LaneEvents`."""
        return [event.cat for event in self._events]

    def numbered(self, pattern: re.Pattern[str]) -> tuple[Rows, list[int]]:
        """See `LaneEvents`."""
        return numbered(self.spelled_names(), pattern)

    def ids(self, default: int, *args: str) -> Int64:
        """See `LaneEvents`."""
        first, *others = map(self._values, args)
        return first_ids(first, others[0], default) if others else ids_of(first, default)

    def arg_names(self, arg: str) -> Codes:
        """See `LaneEvents`."""
        return names_of(self._values(arg), self.strings)

    def levels(self) -> Codes:
        """See `LaneEvents`."""
        levels = zip(self._values("level"), self._events, strict=True)
        return names_of([level or event.cat for level, event in levels], self.strings)

    def reals(self, arg: str) -> Float64:
        """See `LaneEvents`."""
        values = self._values(arg)
        return np.array(
            [real(value) if isinstance(value, (int, float)) else np.nan for value in values],
            np.float64,
        )

    def moments(self, arg: str) -> Int64:
        """See `LaneEvents`."""
        return moments_ns([bytes(cast(bytes, value)) for value in self._values(arg)])
