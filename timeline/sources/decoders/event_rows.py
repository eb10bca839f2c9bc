"""Some rows of trace events, of one phase, as the columns that tables are made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Codes, Float64, Int64, Rows
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct, map_values
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.sources.common.decimals import moments_ns
from timeline.sources.decoders.event_columns import ArgValues, EventColumns, GivenArgs
from timeline.sources.decoders.event_values import JsonValues
from timeline.sources.decoders.exported_values import number

_Scalar = TypeVar("_Scalar", np.int64, np.float64, np.bool_)


class EventRows:
    """Intervals or instants at some rows of events; args are called as the fields of their type."""

    def __init__(self, events: EventColumns, rows: Rows) -> None:
        self.events, self.rows = events, rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def strings(self) -> StringPool:
        """What names are codes of."""
        return self._values.strings

    @property
    def _values(self) -> JsonValues:
        return self.events.values

    @cached_property
    def _args(self) -> GivenArgs:
        return self.events.args_at(self.rows)

    def at(self, places: Rows | Bool) -> EventRows:
        """Some of the rows."""
        return EventRows(self.events, self.rows[places])

    def spans(self, places: Rows | None = None) -> dict[str, Int64]:
        """Start and end of all rows or of some, under the names of their columns."""
        rows = self.rows if places is None else self.rows[places]
        return {
            "start_ns": self.events.start_ns.take(rows),
            "end_ns": self.events.end_ns.take(rows),
        }

    def names(self) -> Codes:
        """The name of each event."""
        return self._values.names(self.events.name[self.rows])

    def spelled_names(self) -> list[str]:
        """The name of each event as a string."""
        return list(map(self._values.__getitem__, self.events.name[self.rows].tolist()))

    def by_name(self, dtype: type[_Scalar], meaning: Callable[[str], Any]) -> npt.NDArray[_Scalar]:
        """What the name of each event means; each is asked once."""
        return self._values.meanings(self.events.name[self.rows], dtype, meaning)

    def categories(self) -> Codes:
        """The category of each event, empty where it has none."""
        return self._values.names(self.events.category[self.rows])

    def spelled_categories(self) -> list[str]:
        """The category of each event as a string."""
        return list(map(self._values.__getitem__, self.events.category[self.rows].tolist()))

    def by_category(
        self, dtype: type[_Scalar], meaning: Callable[[str], Any]
    ) -> npt.NDArray[_Scalar]:
        """What the category of each event means; each is asked once."""
        return self._values.meanings(self.events.category[self.rows], dtype, meaning)

    def processes(self, default: int) -> Int64:
        """The number of the process of each event; see `number`."""
        return self.by_lane(np.int64, lambda process, _: number(process, default))

    def threads(self, default: int) -> Int64:
        """The number of the thread of each event; see `number`."""
        return self.by_lane(np.int64, lambda _, thread: number(thread, default))

    def lanes(self) -> dict[str, Int64]:
        """Process and thread, NO_ID for those that are no numbers, under names of columns."""
        return {"process": self.processes(NO_ID), "thread": self.threads(NO_ID)}

    def by_lane(
        self, dtype: type[_Scalar], meaning: Callable[[Any, Any], Any]
    ) -> npt.NDArray[_Scalar]:
        """What the process and thread of each event mean; each pair is asked once."""

        def table(groups: Codes) -> npt.NDArray[_Scalar]:
            lanes = map(self._values.lane, groups.tolist())
            return np.array([meaning(*lane) for lane in lanes], dtype)

        return map_values(self.events.group[self.rows], table)

    def numbered(self, pattern: re.Pattern[str]) -> tuple[Rows, list[int]]:
        """The events whose whole name has a pattern, and the numbers that are its first group."""
        codes = self.events.name[self.rows]
        numbers = {
            code: int(match[1])
            for code in distinct(codes).tolist()
            if (match := pattern.fullmatch(self._values[code]))
        }
        places = np.flatnonzero(np.isin(codes, list(numbers)))
        return places, [numbers[code] for code in codes[places].tolist()]

    def given(self, arg: str) -> tuple[Rows, ArgValues]:
        """Where an arg is given, and its values there."""
        return self._args.of(arg)

    def are_given(self, arg: str) -> Bool:
        """Whether each event gives an arg, be it null where any value may be."""
        made = np.zeros(len(self), np.bool_)
        made[self.given(arg)[0]] = True
        return made

    def ids(self, default: int | Int64, *args: str) -> Int64:
        """Ids or amounts: of several args the first that is given; see `number`.

        default: where none is given. Where that is no id either, the default if it is one number.
        """
        given = [(places, values) for places, values in map(self.given, args) if len(places)]
        if not given:
            if isinstance(default, int):
                return constant(default, len(self), np.int64)
            return default
        no_id = default if isinstance(default, int) else NO_ID
        made = np.full(len(self), default) if isinstance(default, int) else default.copy()
        for places, values in reversed(given):
            made[places] = values.ids(no_id)
        return made

    def arg_names(self, arg: str) -> Codes:
        """The names that an arg gives, empty where it is absent."""
        places, values = self.given(arg)
        if not len(places):
            return constant(NO_NAME, len(self), np.int32)
        made = np.full(len(self), NO_NAME, np.int32)
        made[places] = values.names()
        return made

    def levels(self) -> Codes:
        """The arg `level` of each call, or else its category."""
        made = self.categories()
        places, values = self.given("level")
        given = np.flatnonzero(~values.are_falsy())
        made[places[given]] = values[given].names()
        return made

    def reals(self, arg: str) -> Float64:
        """The numbers that an arg gives, NaN where it gives none."""
        places, values = self.given(arg)
        good, numbers = values.reals()
        made = np.full(len(self), np.nan)
        made[places[good]] = numbers
        return made

    def moments(self, arg: str) -> Int64:
        """The moments that an arg gives as decimal microseconds, NO_TIME where it gives none."""
        places, values = self.given(arg)
        made = np.full(len(self), NO_TIME)
        made[places] = moments_ns([value.encode() for value in values.objects()])
        return made

    def objects(self, arg: str) -> list[Any]:
        """The value of an arg of each event as the decoder gives it, None where it is absent."""
        places, values = self.given(arg)
        made: list[Any] = [None] * len(self)
        for place, value in zip(places.tolist(), values.objects(), strict=True):
            made[place] = value
        return made
