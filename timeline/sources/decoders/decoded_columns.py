"""Columns of events that the decoder read: what the compiled scanner cannot read, or is not there.

Their args stay objects until they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.interner import Interner
from timeline.columns.strings import StringPool
from timeline.sources.common.decimals import interval_ns, moments_ns
from timeline.sources.decoders.event_columns import (
    COMPLETE,
    COUNTER,
    INSTANT,
    IS_REAL,
    IS_TEXT,
    IS_WHOLE,
    ArgValues,
    EventColumns,
    FlatArgs,
    GivenArgs,
)
from timeline.sources.decoders.event_format import WHOLE_ARGS
from timeline.sources.decoders.event_values import JsonValues
from timeline.sources.decoders.trace_events import Counter, Flow

_ZERO = ord("0")
_MOST = b"%d" % np.iinfo(np.int64).max
"""The largest id of an arrow that is held as it is."""


@dataclass
class DecodedEvents:
    """Events as the decoder gives them, by what their columns are made of."""

    intervals: list[Any] = field(default_factory=list)
    """Of a type that has the fields of `Complete`, and args."""
    instants: list[Any] = field(default_factory=list)
    counters: list[Counter] = field(default_factory=list)
    arrows: list[Flow] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.intervals or self.instants or self.counters or self.arrows)

    def columns(self, strings: StringPool) -> EventColumns:
        """The columns of all of them."""
        return _columns(self, strings)


class _Values:
    """Values by code while columns are made; texts and numbers that are alike have one."""

    def __init__(self) -> None:
        self._codes: Interner[object] = Interner()
        self.values: list[Any] = []

    def code(self, value: Any) -> int:
        """The code of a value, a new one for each list or object."""
        key: object = value
        if isinstance(value, (list, dict)):
            key = (type(value), len(self.values))
        elif type(value) is not str:
            key = (type(value), repr(value))
        code = self._codes[key]
        if code == len(self.values):
            self.values.append(value)
        return code

    def codes(self, texts: Sequence[str]) -> Int64:
        """The codes of strings."""
        self.values += self._codes.number(texts)
        return self._codes.of(texts)


@dataclass(frozen=True)
class _DecodedColumns(EventColumns):
    """Events of which intervals and instants, the first rows, have their args as objects."""

    objects: Sequence[Any]
    codes: _Values

    def args_at(self, rows: Rows) -> GivenArgs:
        """The args of rows, each of which is an interval or an instant."""
        args = [self.objects[row].args for row in rows.tolist()]
        return _DecodedArgs(args, self.codes, self.values)


class _DecodedArgs(GivenArgs):
    def __init__(self, args: list[Any], codes: _Values, values: JsonValues) -> None:
        self._codes, self._values = codes, values
        self._places = None
        if None in args:
            self._places = np.array([at for at, one in enumerate(args) if one is not None], np.intp)
        self._args = args if self._places is None else [one for one in args if one is not None]

    def of(self, arg: str) -> tuple[Rows, ArgValues]:
        """Which of the rows, by their place, give an arg, and its values there."""
        found = list(self._args if arg == WHOLE_ARGS else map(attrgetter(arg), self._args))
        if found and isinstance(found[0], msgspec.Raw):
            found = [bytes(value).decode("utf-8", "replace") or None for value in found]
        absent = found.count(None)
        if absent == len(found):
            return np.empty(0, np.intp), _arg_values([], self._codes, self._values)
        if not absent:
            rows = np.arange(len(found)) if self._places is None else self._places
            return rows, _arg_values(found, self._codes, self._values)
        rows = np.array([at for at, value in enumerate(found) if value is not None], np.intp)
        given = [value for value in found if value is not None]
        if self._places is not None:
            rows = self._places[rows]
        return rows, _arg_values(given, self._codes, self._values)


def _arg_values(found: Sequence[Any], codes: _Values, values: JsonValues) -> ArgValues:
    """The values of args; `values` holds what `codes` numbers here for the first time."""
    kind, value = _kinds_and_values(found, codes)
    values.add(codes.values[len(values) :], [])
    return ArgValues(kind, value, values)


def _kinds_and_values(found: Sequence[Any], codes: _Values) -> tuple[Any, Int64]:
    kinds = set(map(type, found))
    if kinds == {int}:
        column = np.array(found)
        if column.dtype == np.int64:
            return np.full(len(found), IS_WHOLE, np.uint8), column
    elif kinds == {str}:
        return np.full(len(found), IS_TEXT, np.uint8), codes.codes(found)
    elif kinds == {float}:
        reals = np.array(found, np.float64)
        return np.full(len(found), IS_REAL, np.uint8), reals.view(np.int64)
    elif kinds == {int, float}:
        wholes = np.array([one for one in found if type(one) is int])
        if wholes.dtype == np.int64:
            is_whole = np.fromiter((type(one) is int for one in found), np.bool_, len(found))
            value = np.empty(len(found), np.int64)
            value[is_whole] = wholes
            value.view(np.float64)[~is_whole] = [one for one in found if type(one) is float]
            return np.where(is_whole, IS_WHOLE, IS_REAL).astype(np.uint8), value
    kind = np.full(len(found), IS_TEXT, np.uint8)
    value = np.empty(len(found), np.int64)
    reals = value.view(np.float64)
    for row, one in enumerate(found):
        if type(one) is int and -(1 << 63) <= one < 1 << 63:
            kind[row], value[row] = IS_WHOLE, one
        elif type(one) is float:
            kind[row], reals[row] = IS_REAL, one
        else:
            value[row] = codes.code(one)
    return kind, value


def _columns(events: DecodedEvents, strings: StringPool) -> EventColumns:
    intervals, instants = events.intervals, events.instants
    counters, arrows = events.counters, events.arrows
    codes = _Values()
    zero, empty = codes.code(0), codes.code("")
    groups: Interner[tuple[object, ...]] = Interner()
    arrow_phases = [ord(type(event).__struct_config__.tag) for event in arrows]  # type: ignore[arg-type]
    counter_args = [event.args or {} for event in counters]
    lane = groups.of(_lanes([*intervals, *instants, *arrows]))
    pids: list[object] = [event.pid for event in counters]
    if float in set(map(type, pids)):
        pids = list(map(_distinct, pids))
    keys_of = zip(counter_args, pids, [event.name for event in counters], strict=True)
    counted = groups.of([(*args, pid, name, None) for args, pid, name in keys_of])
    start_ns, end_ns = interval_ns([one.ts for one in intervals], [one.dur for one in intervals])
    first_counter = len(intervals) + len(instants)
    first_arrow = first_counter + len(counters)
    nothing = np.full(len(counters), empty, np.int64)
    columns: dict[str, Any] = {
        "phase": np.concatenate(
            [
                np.full(len(intervals), COMPLETE, np.uint8),
                np.full(len(instants), INSTANT, np.uint8),
                np.full(len(counters), COUNTER, np.uint8),
                np.array(arrow_phases, np.uint8),
            ]
        ),
        "group": _int32(lane[:first_counter], counted, lane[first_counter:]),
        "name": _int32(
            codes.codes([event.name for event in chain(intervals, instants, counters)]),
            np.full(len(arrows), empty, np.int64),
        ),
        "category": _int32(
            codes.codes([event.cat for event in chain(intervals, instants)]),
            nothing,
            codes.codes([event.cat for event in arrows]),
        ),
    }
    rest_ns = moments_ns([event.ts for event in chain(instants, counters, arrows)])
    columns["start_ns"] = np.concatenate([start_ns, rest_ns])
    ids = [_arrow_id(bytes(event.id).strip(b'"'), codes) for event in arrows]
    other_ends = rest_ns[: first_arrow - len(intervals)]
    columns["end_ns"] = np.concatenate([end_ns, other_ends, np.array(ids, np.int64)])
    kind, value = _kinds_and_values(
        list(chain.from_iterable(args.values() for args in counter_args)), codes
    )
    counts = [len(args) for args in counter_args]
    row = np.repeat(np.arange(first_counter, first_arrow, dtype=np.int32), counts)
    keys = codes.codes(list(chain.from_iterable(counter_args)))
    group_codes = [_group_codes(group, codes) for group in groups]
    assert zero == 0
    values = JsonValues(strings)
    values.add(codes.values, group_codes)
    return _DecodedColumns(
        **columns,
        flat=FlatArgs(row, keys.astype(np.int32), ArgValues(kind, value, values)),
        values=values,
        objects=[*intervals, *instants],
        codes=codes,
    )


def _int32(*parts: Int64) -> Codes:
    return np.concatenate(parts).astype(np.int32)


def _lanes(events: Sequence[Any]) -> list[tuple[object, object]]:
    """The process and thread of each event; see `_distinct`."""
    lanes = [(event.pid, event.tid) for event in events]
    if float in set(map(type, chain.from_iterable(lanes))):
        return [(_distinct(event.pid), _distinct(event.tid)) for event in events]
    return lanes


def _distinct(value: object) -> object:
    """A process or thread, a float as a tuple: 3.0 is another one than 3, and they are equal."""
    return (value,) if type(value) is float else value


def _group_codes(group: tuple[object, ...], codes: _Values) -> list[int]:
    """The codes of a lane, or of the keys, the process and the name of counters."""
    found: Iterable[object] = group if len(group) == 2 else group[:-1]
    return [codes.code(value[0] if type(value) is tuple else value) for value in found]


def _arrow_id(spelled: bytes, codes: _Values) -> int:
    """A plain decimal as it is; of whatever else there is, the complement of the code.

    Ids are opaque text: they exceed 2**64, and one may be used again.
    """
    if spelled.isdigit() and spelled[0] != _ZERO:
        digits = len(spelled)
        if digits < len(_MOST) or (digits == len(_MOST) and spelled <= _MOST):
            return int(spelled)
    return ~codes.code(spelled.decode("utf-8", "surrogateescape"))
