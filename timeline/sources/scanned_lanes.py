"""Turns scanned events into the columns of lanes, and tells which lanes there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from timeline.columns.columns import Codes, Float64, Int64, Rows
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct
from timeline.columns.strings import NO_NAME
from timeline.sources.common.decimals import moments_ns
from timeline.sources.event_scanner import ARG_NUMBERS
from timeline.sources.lane_events import LaneEvents
from timeline.sources.scanned_events import COMPLETE, ArgValues, ScannedEvents
from timeline.sources.spellings import Spellings
from timeline.sources.trace_lanes import LaneKey

__all__ = ["ScannedLanes", "lanes_by", "lanes_of"]

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
