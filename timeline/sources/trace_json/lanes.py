"""Turns scanned events into the columns of lanes, and tells which lanes there are."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import TypeVar, cast

import numpy as np

from timeline.columns.columns import Codes, Float64, Int64, Rows
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct
from timeline.columns.strings import NO_NAME, StringPool
from timeline.sources.common.decimals import moments_ns, real
from timeline.sources.trace_json.event_columns import COMPLETE, ArgValues, ScannedEvents
from timeline.sources.trace_json.event_fields import first_ids, ids_of, names_of, numbered, spans_of
from timeline.sources.trace_json.events import NO_ARGS, Complete, Value
from timeline.sources.trace_json.lane_names import LaneKey
from timeline.sources.trace_json.scanner import ARG_NUMBERS
from timeline.sources.trace_json.spellings import Spellings

__all__ = ["DecodedLanes", "LaneEvents", "ScannedLanes", "lanes_by", "lanes_of"]


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


NOT_HERE = -1
_Kind = TypeVar("_Kind", bound=Hashable)


def lanes_of(events: ScannedEvents, rows: Rows, spellings: Spellings) -> dict[int, LaneKey]:
    """The lanes of some rows by group, in the order in which they begin."""
    distinct, first = np.unique(events.group[rows], return_index=True)
    return {group: spellings.lane(group) for group in distinct[np.argsort(first)].tolist()}


def lanes_by(
    kind_of: Callable[[LaneKey], _Kind],
    lanes: Mapping[int, LaneKey],
    events: ScannedEvents,
    rows: Rows,
    spellings: Spellings,
) -> Iterator[tuple[_Kind, ScannedLanes]]:
    """The lanes of some rows, those of a kind together."""
    by_kind: dict[_Kind, dict[int, LaneKey]] = {}
    for group, key in lanes.items():
        by_kind.setdefault(kind_of(key), {})[group] = key
    groups, args = events.group[rows], _ArgsByKey(events)
    for kind, alike in by_kind.items():
        place = np.full(max(lanes) + 1, NOT_HERE, np.int32)
        place[list(alike)] = np.arange(len(alike))
        lane = place[groups]
        own = np.flatnonzero(lane != NOT_HERE)
        counts = np.bincount(lane[own], minlength=len(alike)).tolist()
        own = own[np.argsort(lane[own], kind="stable")]
        yield kind, ScannedLanes(list(alike.values()), counts, events, rows[own], args, spellings)


class _ArgsByKey:
    """The args of events, those of a key together."""

    def __init__(self, events: ScannedEvents) -> None:
        own = np.flatnonzero(events.phase[events.arg_row] == COMPLETE)
        key = events.arg_key[own].astype(np.int8)  # which sorts in one pass
        own = own[np.argsort(key, kind="stable")]
        self._row, self._args = events.arg_row[own], events.args[own]
        counts = np.bincount(key, minlength=len(ARG_NUMBERS))
        self._bounds = [0, *np.cumsum(counts).tolist()]

    def __call__(self, arg: str) -> tuple[Codes, ArgValues]:
        number = ARG_NUMBERS[arg]
        own = slice(*self._bounds[number : number + 2])
        return self._row[own], ArgValues(self._args.kind[own], self._args.value[own])


class ScannedLanes(LaneEvents):
    """Rows of scanned events."""

    def __init__(
        self,
        keys: Sequence[LaneKey],
        counts: Sequence[int],
        events: ScannedEvents,
        rows: Rows,
        args: _ArgsByKey,
        spellings: Spellings,
    ) -> None:
        super().__init__(keys, counts, spellings.strings)
        self._events, self._rows, self._args, self._spellings = events, rows, args, spellings
        self._place = np.full(len(events.phase), NOT_HERE, np.int32)
        self._place[rows] = np.arange(len(rows))

    def _given(self, arg: str) -> tuple[Rows, ArgValues]:
        """Where here an arg is given, and its values."""
        row, values = self._args(arg)
        place = self._place[row]
        own = np.flatnonzero(place != NOT_HERE)
        return place[own].astype(np.intp), values[own]

    def spans(self, rows: Rows | None = None) -> dict[str, Int64]:
        """See `LaneEvents`."""
        own = self._rows if rows is None else self._rows[rows]
        return {"start_ns": self._events.start_ns[own], "end_ns": self._events.end_ns[own]}

    def names(self) -> Codes:
        """See `LaneEvents`."""
        return self._spellings.names(self._events.name[self._rows])

    def spelled_names(self) -> list[str]:
        """See `LaneEvents`."""
        return list(map(self._spellings.__getitem__, self._events.name[self._rows].tolist()))

    def categories(self) -> list[str]:
        """See `LaneEvents`."""
        return list(map(self._spellings.__getitem__, self._events.category[self._rows].tolist()))

    def numbered(self, pattern: re.Pattern[str]) -> tuple[Rows, list[int]]:
        """See `LaneEvents`."""
        codes = self._events.name[self._rows]
        numbers = {
            code: int(match[1])
            for code in distinct(codes).tolist()
            if (match := pattern.fullmatch(self._spellings[code]))
        }
        rows = np.flatnonzero(np.isin(codes, list(numbers)))
        return rows, [numbers[code] for code in codes[rows].tolist()]

    def ids(self, default: int, *args: str) -> Int64:
        """See `LaneEvents`."""
        given = [(rows, values) for rows, values in map(self._given, args) if len(rows)]
        if not given:
            return constant(default, len(self), np.int64)
        made = np.full(len(self), default)
        for rows, values in reversed(given):
            made[rows] = values.ids(self._spellings, default)
        return made

    def arg_names(self, arg: str) -> Codes:
        """See `LaneEvents`."""
        rows, values = self._given(arg)
        if not len(rows):
            return constant(NO_NAME, len(self), np.int32)
        made = np.full(len(self), NO_NAME, np.int32)
        made[rows] = values.names(self._spellings)
        return made

    def levels(self) -> Codes:
        """See `LaneEvents`."""
        made = self._spellings.names(self._events.category[self._rows])
        rows, values = self._given("level")
        given = np.flatnonzero(~values.are_falsy(self._spellings))
        made[rows[given]] = values[given].names(self._spellings)
        return made

    def reals(self, arg: str) -> Float64:
        """See `LaneEvents`."""
        rows, values = self._given(arg)
        good, numbers = values.reals(self._spellings)
        made = np.full(len(self), np.nan)
        made[rows[good]] = numbers
        return made

    def moments(self, arg: str) -> Int64:
        """See `LaneEvents`."""
        rows, values = self._given(arg)
        texts = [b""] * len(self)
        for row, value in zip(rows.tolist(), values.objects(self._spellings), strict=True):
            texts[row] = value.encode()
        return moments_ns(texts)
