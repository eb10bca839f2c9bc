"""Trace events as columns, and the args of some of them by key."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Codes, Float64, Int64, Rows
from timeline.sources.common.decimals import real
from timeline.sources.decoders.event_values import JsonValues
from timeline.sources.decoders.exported_values import is_decimal, text

Bytes = npt.NDArray[np.uint8]
COMPLETE, COUNTER, INSTANT, ARROW_START = map(ord, "XCis")
"""Phases of events."""
ARROWS = b"stf"
IS_TEXT, IS_WHOLE, IS_QUOTED_WHOLE, IS_REAL = range(4)
"""What an arg is: another value, or an integer, or one in quotes, or another number."""
NOT_HERE = -1


@dataclass(frozen=True)
class ArgValues:
    """Values of args: (n,) each, of which `kind` tells how to take `value`."""

    kind: Bytes
    value: Int64
    values: JsonValues
    """What `value` is a code of where the kind is IS_TEXT."""

    def __getitem__(self, rows: Rows | slice) -> ArgValues:
        return ArgValues(self.kind[rows], self.value[rows], self.values)

    def take(self, rows: Rows) -> ArgValues:
        """The values of some rows, which NumPy gathers so in two thirds of the time."""
        return ArgValues(self.kind.take(rows), self.value.take(rows), self.values)

    def are_whole(self) -> bool:
        """Whether all are integers as the decoder gives them."""
        return bool((self.kind == IS_WHOLE).all())

    def ids(self, default: int) -> Int64:
        """Ids or amounts; see `number`."""
        made = self.value.copy()
        reals = self.kind == IS_REAL
        if reals.any():
            made[reals] = [_whole(value, default) for value in self._reals(reals).tolist()]
        texts = self.kind == IS_TEXT
        if texts.any():
            made[texts] = self.values.numbers(self.value[texts], default)
        return made

    def names(self) -> Codes:
        """Names in the pool of strings."""
        made = np.empty(len(self.value), np.int32)
        texts = self.kind == IS_TEXT
        made[texts] = self.values.names(self.value[texts].astype(np.int32))
        if not texts.all():
            rest = self[np.flatnonzero(~texts)].objects()
            made[~texts] = self.values.strings.codes(map(text, rest))
        return made

    def reals(self) -> tuple[Rows, Float64]:
        """Which of the values are numbers, in quotes or not, and these."""
        if self.are_whole():
            return np.arange(len(self.value)), self.value.astype(np.float64)
        if (self.kind == IS_REAL).all():
            return np.arange(len(self.value)), self.value.view(np.float64)
        made = self.value.astype(np.float64)
        is_real = self.kind == IS_REAL
        made[is_real] = self._reals(is_real)
        good = np.ones(len(self.value), np.bool_)
        texts = np.flatnonzero(self.kind == IS_TEXT)
        if len(texts):
            codes = self.value[texts]
            good[texts] = self.values.meanings(codes, np.bool_, _is_number)
            made[texts] = self.values.meanings(codes, np.float64, _real)
        rows = np.flatnonzero(good)
        return rows, made[rows]

    def are_falsy(self) -> Bool:
        """Which are zero or empty."""
        made: Bool = (self.kind == IS_WHOLE) & (self.value == 0)
        made |= (self.kind == IS_REAL) & (self.value.view(np.float64) == 0)
        texts = self.kind == IS_TEXT
        made[texts] = self.values.meanings(self.value[texts], np.bool_, operator.not_)
        return made

    def of_others(self, meaning: Callable[[Any], int], default: int) -> Int64:
        """What values mean that are no numbers, each asked once; the default for numbers."""
        made = np.full(len(self.value), default, np.int64)
        texts = self.kind == IS_TEXT
        made[texts] = self.values.meanings(self.value[texts], np.int64, meaning)
        return made

    def objects(self) -> list[Any]:
        """The values as the decoder gives them."""
        made: npt.NDArray[Any] = self.value.astype(np.object_)
        for kind, objects in (
            (IS_TEXT, map(self.values.__getitem__, self.value[self.kind == IS_TEXT].tolist())),
            (IS_QUOTED_WHOLE, map(str, self.value[self.kind == IS_QUOTED_WHOLE].tolist())),
            (IS_REAL, self._reals(self.kind == IS_REAL).tolist()),
        ):
            made[self.kind == kind] = np.fromiter(objects, np.object_)
        return list(made)

    def _reals(self, rows: Bool) -> Float64:
        return self.value.view(np.float64)[rows]


def _whole(value: float, default: int) -> int:
    return int(value) if value.is_integer() and -(2.0**63) <= value < 2.0**63 else default


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and is_decimal(value))


def _real(value: Any) -> float:
    return real(value) if _is_number(value) else np.nan


@dataclass(frozen=True)
class FlatArgs:
    """Args of events, event after event: the row of the event, the number of the key, the value."""

    row: Codes
    key: Codes
    value: ArgValues


class GivenArgs(ABC):
    """The args of some rows of events."""

    @abstractmethod
    def of(self, arg: str) -> tuple[Rows, ArgValues]:
        """Which of the rows, by their place, give an arg, and its values there."""


@dataclass(frozen=True)
class EventColumns(ABC):
    """Events, (n,) each; those of a phase are in file order.

    group, name and category are codes of values. The end of an arrow is its id, or the complement
    of a code where that is no number above zero.
    """

    phase: Bytes
    group: Codes
    name: Codes
    category: Codes
    start_ns: Int64
    end_ns: Int64
    flat: FlatArgs
    """Has all args of the counters, in the order of their keys."""
    values: JsonValues

    def __len__(self) -> int:
        return len(self.phase)

    @abstractmethod
    def args_at(self, rows: Rows) -> GivenArgs:
        """The args of rows, each of which is an interval or an instant."""


_COLUMNS = {
    "phase": np.uint8,
    "group": np.int32,
    "name": np.int32,
    "category": np.int32,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "arg_row": np.int32,
    "arg_key": np.int32,
    "kind": np.uint8,
    "value": np.int64,
}
"""In the order in which the scanner gives them."""


@dataclass(frozen=True)
class ScannedColumns(EventColumns):
    """Events that the compiled scanner read, all of whose args are flat."""

    arg_numbers: Mapping[str, int]
    _by_key: list[_ArgsByKey] = field(default_factory=list)
    """One, when it is first asked for."""

    @classmethod
    def of(
        cls, columns: Sequence[bytes], values: JsonValues, arg_numbers: Mapping[str, int]
    ) -> ScannedColumns:
        """The events of texts one behind the other."""
        made: dict[str, Any] = {
            name: np.frombuffer(column, dtype)
            for (name, dtype), column in zip(_COLUMNS.items(), columns, strict=True)
        }
        args = ArgValues(made.pop("kind"), made.pop("value"), values)
        flat = FlatArgs(made.pop("arg_row"), made.pop("arg_key"), args)
        return cls(**made, flat=flat, values=values, arg_numbers=arg_numbers)

    def with_times(
        self, starts: Rows, start_ns: Int64, ends: Rows, end_ns: Int64
    ) -> ScannedColumns:
        """The events, some with other times."""
        every_start_ns, every_end_ns = self.start_ns.copy(), self.end_ns.copy()
        every_start_ns[starts], every_end_ns[ends] = start_ns, end_ns
        return replace(self, start_ns=every_start_ns, end_ns=every_end_ns)

    def args_at(self, rows: Rows) -> GivenArgs:
        """The args of rows, each of which is an interval or an instant."""
        if not self._by_key:
            self._by_key.append(_ArgsByKey(self))
        return _ScannedArgs(self._by_key[0], rows, len(self))


class _ArgsByKey:
    """The args of intervals and instants, those of a key together."""

    def __init__(self, events: ScannedColumns) -> None:
        flat, self.numbers = events.flat, events.arg_numbers
        of_counters = events.phase == COUNTER
        rows = np.flatnonzero(~of_counters[flat.row]) if of_counters.any() else None
        given = flat.key if rows is None else flat.key[rows]
        key = given.astype(np.int8)  # which sorts in one pass
        by_key = np.argsort(key, kind="stable")
        rows = by_key if rows is None else rows[by_key]
        self._row, self._values = flat.row.take(rows), flat.value.take(rows)
        counts = np.bincount(key, minlength=len(self.numbers))
        self._bounds = [0, *np.cumsum(counts).tolist()]

    def of(self, arg: str) -> tuple[Codes, ArgValues]:
        """The rows of the events that give an arg, and its values."""
        number = self.numbers[arg]
        of_key = slice(*self._bounds[number : number + 2])
        return self._row[of_key], self._values[of_key]


class _ScannedArgs(GivenArgs):
    """Args that are looked up by the row of their event."""

    def __init__(self, args: _ArgsByKey, rows: Rows, events: int) -> None:
        self._args = args
        self._place = np.full(events, NOT_HERE, np.int32)
        self._place[rows] = np.arange(len(rows))

    def of(self, arg: str) -> tuple[Rows, ArgValues]:
        """Which of the rows, by their place, give an arg, and its values there."""
        row, values = self._args.of(arg)
        place = self._place.take(row)
        held = np.flatnonzero(place != NOT_HERE)
        return place.take(held).astype(np.intp), values.take(held)
