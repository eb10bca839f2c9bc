"""Trace events as columns: distinct values by code, args by key, and rows of one phase."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Codes, Float64, Int64, Rows
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct, map_values
from timeline.columns.strings import NO_NAME, Interner, StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.sources.common.decimals import interval_ns, parse_times_ns, real
from timeline.sources.decoders.exported_values import is_decimal, number, text
from timeline.sources.decoders.trace_events import WHOLE_ARGS, Counter, EventFormat

LaneKey = tuple[object, object]
"""(pid, tid) as the file has them."""
NOT_KNOWN = -1
_Scalar = TypeVar("_Scalar", np.int64, np.float64, np.bool_)


class JsonValues:
    """Distinct JSON values by code, and their codes in a pool of strings.

    A group is a list of such codes: process and thread of a lane, or the keys of the args of
    counters, their process and their name.
    """

    def __init__(self, strings: StringPool) -> None:
        self.strings = strings
        self._values: list[Any] = []
        self._codes: Codes = np.empty(0, np.int32)
        self._groups: list[Sequence[int]] = []
        self.pids: Mapping[object, object] | None = None
        """The ids to use in place of those of processes, None for processes that are left out."""

    def add(self, values: Sequence[Any], groups: Sequence[Sequence[int]]) -> None:
        """Take in the next values and groups, whose codes follow on those before."""
        self._values += values
        self._groups += groups

    def add_texts(self, texts: Sequence[bytes], groups: Sequence[bytes]) -> bool:
        """Take in values as JSON and groups as int32; True if all of the values can be decoded."""
        values, are_good = _decoded(texts)
        self.add(values, [np.frombuffer(group, np.int32).tolist() for group in groups])
        return are_good

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, code: int) -> Any:
        return self._values[code]

    def lane(self, group: int) -> LaneKey:
        """Return the process and thread that a group stands for."""
        _, thread = self._groups[group]
        return self.process(group), self[thread]

    def counters(self, group: int) -> tuple[object, str, list[str]]:
        """Return the process, the name and the keys that a group of counters stands for."""
        *keys, _, name = self._groups[group]
        return self.process(group), self[name], [self[key] for key in keys]

    def process(self, group: int) -> object:
        """Return the process of a group of either kind."""
        process = self[self._groups[group][-2]]
        return process if self.pids is None else self.pids.get(process)

    def names(self, codes: Codes) -> Codes:
        """Return the codes of the values as strings of the pool, (n,) int32; see `text`."""
        if len(self._codes) < len(self._values):
            more = np.full(2 * len(self._values) - len(self._codes), NOT_KNOWN, np.int32)
            self._codes = np.concatenate([self._codes, more])
        found = self._codes[codes]
        if (found == NOT_KNOWN).any():
            fresh = distinct(codes[found == NOT_KNOWN])
            self._codes[fresh] = self.strings.codes(self.texts(fresh))
            found = self._codes[codes]
        return found

    def texts(self, codes: Codes | Int64) -> list[str]:
        """Return the values as strings; numbers are formatted, and null is the empty string."""
        found = list(map(self._values.__getitem__, codes.tolist()))
        return found if set(map(type, found)) == {str} else list(map(text, found))

    def numbers(self, codes: Int64, default: int) -> Int64:
        """Return the values as ids or amounts; see `number`."""
        return self.meanings(codes, np.int64, lambda value: number(value, default))

    def meanings(
        self, codes: Codes | Int64, dtype: type[_Scalar], meaning: Callable[[Any], float]
    ) -> npt.NDArray[_Scalar]:
        """Return what the values mean; each distinct one is asked once."""

        def table(found: npt.NDArray[np.integer[Any]]) -> npt.NDArray[_Scalar]:
            return np.array([meaning(self._values[code]) for code in found.tolist()], dtype)

        return map_values(codes, table)


def _decoded(texts: Sequence[bytes]) -> tuple[list[Any], bool]:
    """Decode each text: the values, None for one that is not JSON, and whether all were decoded."""
    try:
        values: list[Any] = msgspec.json.decode(b"[" + b",".join(texts) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [_one(text) for text in texts], False
    return values, True


def _one(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


Bytes = npt.NDArray[np.uint8]
COMPLETE, COUNTER, INSTANT, ARROW_START = map(ord, "XCis")
"""Phases of events."""
ARROWS = b"stf"
IS_TEXT, IS_WHOLE, IS_QUOTED_WHOLE, IS_REAL = range(4)
"""Kinds of values: anything else, an integer, an integer in quotes, another number."""
NOT_HERE = -1


@dataclass(frozen=True)
class ArgValues:
    """Values of args: (n,) each; `kind` says how to take `value`."""

    kind: Bytes
    value: Int64
    values: JsonValues
    """What `value` is a code of where the kind is IS_TEXT."""

    def __getitem__(self, rows: Rows | slice) -> ArgValues:
        return ArgValues(self.kind[rows], self.value[rows], self.values)

    def are_whole(self) -> bool:
        """Return True if all are integers as the decoder gives them."""
        return bool((self.kind == IS_WHOLE).all())

    def ids(self, default: int) -> Int64:
        """Return the values as ids or amounts; see `number`."""
        made = self.value.copy()
        reals = self.kind == IS_REAL
        if reals.any():
            made[reals] = [_whole(value, default) for value in self._reals(reals).tolist()]
        texts = self.kind == IS_TEXT
        if texts.any():
            made[texts] = self.values.numbers(self.value[texts], default)
        return made

    def names(self) -> Codes:
        """Return the values as names in the pool of strings."""
        made = np.empty(len(self.value), np.int32)
        texts = self.kind == IS_TEXT
        made[texts] = self.values.names(self.value[texts].astype(np.int32))
        if not texts.all():
            rest = self[np.flatnonzero(~texts)].objects()
            made[~texts] = self.values.strings.codes(map(text, rest))
        return made

    def reals(self) -> tuple[Rows, Float64]:
        """Return the rows of the values that are numbers, in quotes or not, and the numbers."""
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
        """Return a mask of the values that are zero or empty."""
        made: Bool = (self.kind == IS_WHOLE) & (self.value == 0)
        made |= (self.kind == IS_REAL) & (self.value.view(np.float64) == 0)
        texts = self.kind == IS_TEXT
        made[texts] = self.values.meanings(self.value[texts], np.bool_, operator.not_)
        return made

    def of_others(self, meaning: Callable[[Any], int], default: int) -> Int64:
        """Return the meaning of values that are not numbers, each asked once, else the default."""
        made = np.full(len(self.value), default, np.int64)
        texts = self.kind == IS_TEXT
        made[texts] = self.values.meanings(self.value[texts], np.int64, meaning)
        return made

    def objects(self) -> list[Any]:
        """Return the values as the decoder gives them."""
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
    """Args of events, event after event: row of the event, number of the key, and value."""

    row: Codes
    key: Codes
    value: ArgValues


GivenArgs = Callable[[str], tuple[Rows, ArgValues]]
"""Looks an arg of some rows up: the places of the rows that give it, and its values there."""


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
class EventColumns:
    """Events, (n,) each; those of a phase are in file order.

    group, name and category are codes of values. The end of an arrow is its id, or the complement
    of a code where that is not a number above zero. Keys of the args of counters are codes too;
    others are their numbers in `arg_numbers`.
    """

    phase: Bytes
    group: Codes
    name: Codes
    category: Codes
    start_ns: Int64
    end_ns: Int64
    flat: FlatArgs
    """All args, those of a counter in the order of their keys."""
    values: JsonValues
    arg_numbers: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.phase)

    @classmethod
    def of_scanned(
        cls, columns: Sequence[bytes], values: JsonValues, arg_numbers: Mapping[str, int]
    ) -> EventColumns:
        """Return the columns that the compiled scanner gives."""
        made: dict[str, Any] = {
            name: np.frombuffer(column, dtype)
            for (name, dtype), column in zip(_COLUMNS.items(), columns, strict=True)
        }
        args = ArgValues(made.pop("kind"), made.pop("value"), values)
        flat = FlatArgs(made.pop("arg_row"), made.pop("arg_key"), args)
        return cls(**made, flat=flat, values=values, arg_numbers=arg_numbers)

    @cached_property
    def _args_by_key(self) -> tuple[Codes, ArgValues, list[int]]:
        """Args of intervals and instants, ordered by key: rows, values, and bounds of each key."""
        of_counters = self.phase == COUNTER
        rows = np.flatnonzero(~of_counters[self.flat.row]) if of_counters.any() else slice(None)
        key = self.flat.key[rows].astype(np.int8)  # sorts in one pass
        by_key = np.argsort(key, kind="stable")
        rows = by_key if isinstance(rows, slice) else rows[by_key]
        counts = np.bincount(key, minlength=len(self.arg_numbers))
        bounds = [0, *np.cumsum(counts).tolist()]
        return self.flat.row.take(rows), self.flat.value[rows], bounds

    def args_at(self, rows: Rows) -> GivenArgs:
        """Return what looks up the args of rows, each of which is an interval or an instant."""
        args_row, values, bounds = self._args_by_key
        place_of = np.full(len(self), NOT_HERE, np.int32)
        place_of[rows] = np.arange(len(rows))

        def given(arg: str) -> tuple[Rows, ArgValues]:
            number = self.arg_numbers[arg]
            of_key = slice(bounds[number], bounds[number + 1])
            place = place_of.take(args_row[of_key])
            held = np.flatnonzero(place != NOT_HERE)
            return place.take(held).astype(np.intp), values[of_key][held]

        return given


_MOST_ID = int(np.iinfo(np.int64).max)
"""The largest id of an arrow that is held as it is."""


def columns_of_decoded(
    events: Sequence[Any], form: EventFormat, strings: StringPool
) -> EventColumns:
    """Return decoded events as columns, as the scanner makes them of text."""
    numbered = _Numbered()
    phase = np.array([ord(type(event).__struct_config__.tag) for event in events], np.uint8)
    groups: Interner[tuple[object, ...]] = Interner()
    durations = [getattr(event, "dur", b"") for event in events]
    start_ns, end_ns = interval_ns([event.ts for event in events], durations)
    end_ns = np.where(phase == COMPLETE, end_ns, start_ns)
    arrows = np.flatnonzero(np.isin(phase, list(ARROWS)))
    end_ns[arrows] = [numbered.arrow_id(bytes(events[row].id)) for row in arrows.tolist()]
    given = [
        (row, key, value)
        for row, event in enumerate(events)
        for key, value in _args_of(event, form, numbered)
    ]
    kind, value = np.full(len(given), IS_TEXT, np.uint8), np.empty(len(given), np.int64)
    reals = value.view(np.float64)
    for at, (_, _, one) in enumerate(given):
        if type(one) is int and -(1 << 63) <= one < 1 << 63:
            kind[at], value[at] = IS_WHOLE, one
        elif type(one) is float:
            kind[at], reals[at] = IS_REAL, one
        else:
            value[at] = numbered.code(one)
    values = JsonValues(strings)
    columns = EventColumns(
        phase,
        groups.of([_group_key(event) for event in events]).astype(np.int32),
        numbered.codes([getattr(event, "name", "") for event in events]),
        numbered.codes([getattr(event, "cat", "") for event in events]),
        start_ns,
        end_ns,
        FlatArgs(
            np.array([row for row, _, _ in given], np.int32),
            np.array([key for _, key, _ in given], np.int32),
            ArgValues(kind, value, values),
        ),
        values,
        form.arg_numbers,
    )
    # A float is keyed by a tuple of its own.
    of_groups = [
        [numbered.code(one[0] if type(one) is tuple else one) for one in group] for group in groups
    ]
    values.add(numbered.values, of_groups)
    return columns


def _args_of(event: Any, form: EventFormat, numbered: _Numbered) -> Iterator[tuple[int, Any]]:
    """Return the args of an event by the numbers or, of a counter, the codes of their keys."""
    args = getattr(event, "args", None)
    if args is None:
        return
    if isinstance(event, Counter):
        yield from ((numbered.code(key), value) for key, value in args.items())
        return
    named = {WHOLE_ARGS: args} if form.has_whole_args else msgspec.structs.asdict(args)
    for name, value in named.items():
        if value is None:
            continue
        if isinstance(value, msgspec.Raw):
            if spelled := bytes(value).decode("utf-8", "replace"):
                yield form.arg_numbers[name], spelled
        else:
            yield form.arg_numbers[name], value


def _group_key(event: Any) -> tuple[object, ...]:
    """Return what makes a lane, or the counters of one name and process.

    A float is keyed apart from the integer that it equals: 3.0 and 3 are different processes.
    """
    pid = (event.pid,) if type(event.pid) is float else event.pid
    if isinstance(event, Counter):
        return *(event.args or ()), pid, event.name
    return pid, (event.tid,) if type(event.tid) is float else event.tid


class _Numbered:
    """Values by code while columns are made; equal strings and numbers share one."""

    def __init__(self) -> None:
        self._codes: Interner[object] = Interner()
        self.values: list[Any] = []

    def code(self, value: Any) -> int:
        """Return the code of a value, a new one for each list or object."""
        key: object = value
        if isinstance(value, (list, dict)):
            key = (type(value), len(self.values))
        elif type(value) is not str:
            key = (type(value), repr(value))
        code = self._codes[key]
        if code == len(self.values):
            self.values.append(value)
        return code

    def codes(self, texts: Sequence[str]) -> Codes:
        """Return the codes of strings, (n,) int32."""
        self.values += self._codes.number(texts)
        return self._codes.of(texts).astype(np.int32)

    def arrow_id(self, written: bytes) -> int:
        """Return a plain decimal as it is; of whatever else there is, the complement of the code.

        Ids are opaque text: they exceed 2**64, and one may be used again.
        """
        text = written.strip(b'"').decode("utf-8", "surrogateescape")
        is_plain = text.isascii() and text.isdecimal() and not text.startswith("0")
        if is_plain and len(text) < 20 and int(text) <= _MOST_ID:
            return int(text)
        return ~self.code(text)


class EventRows:
    """Intervals or instants at some rows of events; args are called as the fields of their type."""

    def __init__(self, events: EventColumns, rows: Rows) -> None:
        self.events, self.rows = events, rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def strings(self) -> StringPool:
        """The pool that names are codes of."""
        return self._values.strings

    @property
    def _values(self) -> JsonValues:
        return self.events.values

    @cached_property
    def _args(self) -> GivenArgs:
        return self.events.args_at(self.rows)

    def at(self, places: Rows | Bool) -> EventRows:
        """Return some of the rows."""
        return EventRows(self.events, self.rows[places])

    def spans(self, places: Rows | None = None) -> dict[str, Int64]:
        """Return start and end of all rows or of some, under the names of their columns."""
        rows = self.rows if places is None else self.rows[places]
        return {
            "start_ns": self.events.start_ns.take(rows),
            "end_ns": self.events.end_ns.take(rows),
        }

    def names(self) -> Codes:
        """Return the name of each event."""
        return self._values.names(self.events.name[self.rows])

    def format_names(self) -> list[str]:
        """Return the name of each event as a string."""
        return list(map(self._values.__getitem__, self.events.name[self.rows].tolist()))

    def by_name(self, dtype: type[_Scalar], meaning: Callable[[str], Any]) -> npt.NDArray[_Scalar]:
        """Return what the name of each event means; each distinct one is asked once."""
        return self._values.meanings(self.events.name[self.rows], dtype, meaning)

    def categories(self) -> Codes:
        """Return the category of each event, empty if it has none."""
        return self._values.names(self.events.category[self.rows])

    def format_categories(self) -> list[str]:
        """Return the category of each event as a string."""
        return list(map(self._values.__getitem__, self.events.category[self.rows].tolist()))

    def by_category(
        self, dtype: type[_Scalar], meaning: Callable[[str], Any]
    ) -> npt.NDArray[_Scalar]:
        """Return what the category of each event means; each distinct one is asked once."""
        return self._values.meanings(self.events.category[self.rows], dtype, meaning)

    def processes(self, default: int) -> Int64:
        """Return the number of the process of each event; see `number`."""
        return self.by_lane(np.int64, lambda process, _: number(process, default))

    def threads(self, default: int) -> Int64:
        """Return the number of the thread of each event; see `number`."""
        return self.by_lane(np.int64, lambda _, thread: number(thread, default))

    def lanes(self) -> dict[str, Int64]:
        """Return process and thread by name of column, NO_ID for those that are not numbers."""
        return {"process": self.processes(NO_ID), "thread": self.threads(NO_ID)}

    def by_lane(
        self, dtype: type[_Scalar], meaning: Callable[[Any, Any], Any]
    ) -> npt.NDArray[_Scalar]:
        """Return what the process and thread of each event mean; each pair is asked once."""

        def table(groups: Codes) -> npt.NDArray[_Scalar]:
            lanes = map(self._values.lane, groups.tolist())
            return np.array([meaning(*lane) for lane in lanes], dtype)

        return map_values(self.events.group[self.rows], table)

    def numbered(self, pattern: re.Pattern[str]) -> tuple[Rows, list[int]]:
        """Return the events whose name matches a pattern, and the numbers in its first group."""
        codes = self.events.name[self.rows]
        numbers = {
            code: int(match[1])
            for code in distinct(codes).tolist()
            if (match := pattern.fullmatch(self._values[code]))
        }
        places = np.flatnonzero(np.isin(codes, list(numbers)))
        return places, [numbers[code] for code in codes[places].tolist()]

    def given(self, arg: str) -> tuple[Rows, ArgValues]:
        """Return the places of the rows that give an arg, and its values there."""
        return self._args(arg)

    def are_given(self, arg: str) -> Bool:
        """Return a mask of the events that give an arg, be it null if any value is allowed."""
        made = np.zeros(len(self), np.bool_)
        made[self.given(arg)[0]] = True
        return made

    def ids(self, default: int | Int64, *args: str) -> Int64:
        """Read ids or amounts, of several args the first one present; see `number`.

        default: for rows that give none; and for values that are not ids, if it is one number.
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
        """Return the names that an arg gives, empty where it is absent."""
        places, values = self.given(arg)
        if not len(places):
            return constant(NO_NAME, len(self), np.int32)
        made = np.full(len(self), NO_NAME, np.int32)
        made[places] = values.names()
        return made

    def levels(self) -> Codes:
        """Return the arg `level` of each call, or else its category."""
        made = self.categories()
        places, values = self.given("level")
        given = np.flatnonzero(~values.are_falsy())
        made[places[given]] = values[given].names()
        return made

    def reals(self, arg: str) -> Float64:
        """Return the numbers that an arg gives, NaN where it gives none."""
        places, values = self.given(arg)
        good, numbers = values.reals()
        made = np.full(len(self), np.nan)
        made[places[good]] = numbers
        return made

    def moments(self, arg: str) -> Int64:
        """Return the timestamps that an arg gives as decimal microseconds, NO_TIME where absent."""
        places, values = self.given(arg)
        made = np.full(len(self), NO_TIME)
        made[places] = parse_times_ns([value.encode() for value in values.objects()])
        return made

    def objects(self, arg: str) -> list[Any]:
        """Return the value of an arg of each event as the decoder gives it, None if absent."""
        places, values = self.given(arg)
        made: list[Any] = [None] * len(self)
        for place, value in zip(places.tolist(), values.objects(), strict=True):
            made[place] = value
        return made
