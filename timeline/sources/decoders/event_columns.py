"""Trace events as columns: distinct JSON values by code, args by key, and views of rows."""

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
"""(pid, tid) as written in the file."""
NOT_KNOWN = -1
"""The string code of a value that was not added to the pool of strings yet."""
_Scalar = TypeVar("_Scalar", np.int64, np.float64, np.bool_)


class JsonValues:
    """Distinct JSON values, numbered by codes, and their codes in a pool of strings.

    It also holds groups, which are lists of codes: process and thread of a lane; or keys of args,
    process and name of counters.
    """

    def __init__(self, strings: StringPool) -> None:
        self.strings = strings
        self._values: list[Any] = []
        self._codes: Codes = np.empty(0, np.int32)
        self._groups: list[Sequence[int]] = []
        self.pids: Mapping[object, object] | None = None
        """If set, replaces process ids by others; processes that it lacks become None."""

    def add(self, values: Sequence[Any], groups: Sequence[Sequence[int]]) -> None:
        """Add values and groups, which get the next codes."""
        self._values += values
        self._groups += groups

    def add_texts(self, texts: Sequence[bytes], groups: Sequence[bytes]) -> bool:
        """Add values as JSON text and groups as int32; return whether all values were decoded."""
        values, are_decoded = _decode(texts)
        self.add(values, [np.frombuffer(group, np.int32).tolist() for group in groups])
        return are_decoded

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, code: int) -> Any:
        return self._values[code]

    def lane(self, group: int) -> LaneKey:
        """Return process and thread of a group that is a lane."""
        _, thread = self._groups[group]
        return self.process(group), self[thread]

    def counters(self, group: int) -> tuple[object, str, list[str]]:
        """Return process, name and keys of a group of counters."""
        *keys, _, name = self._groups[group]
        return self.process(group), self[name], [self[key] for key in keys]

    def process(self, group: int) -> object:
        """Return the process of a group of either kind."""
        process = self[self._groups[group][-2]]
        return process if self.pids is None else self.pids.get(process)

    def names(self, codes: Codes) -> Codes:
        """Return the values as strings of the pool, (n,) int32 codes."""
        if len(self._codes) < len(self._values):
            more = np.full(2 * len(self._values) - len(self._codes), NOT_KNOWN, np.int32)
            self._codes = np.concatenate([self._codes, more])
        string_codes = self._codes[codes]
        if (string_codes == NOT_KNOWN).any():
            fresh = distinct(codes[string_codes == NOT_KNOWN])
            self._codes[fresh] = self.strings.codes(self.texts(fresh))
            string_codes = self._codes[codes]
        return string_codes

    def texts(self, codes: Codes | Int64) -> list[str]:
        """Return the values as strings; numbers are formatted, null is the empty string."""
        values = list(map(self._values.__getitem__, codes.tolist()))
        return values if set(map(type, values)) == {str} else list(map(text, values))

    def numbers(self, codes: Int64, default: int) -> Int64:
        """Return the values as ids or amounts, `default` for values that are not int64."""
        return self.meanings(codes, np.int64, lambda value: number(value, default))

    def meanings(
        self, codes: Codes | Int64, dtype: type[_Scalar], meaning: Callable[[Any], float]
    ) -> npt.NDArray[_Scalar]:
        """Return `meaning(value)` for each code; it is called once per distinct value."""

        def table(distinct_codes: npt.NDArray[np.integer[Any]]) -> npt.NDArray[_Scalar]:
            values = [meaning(self._values[code]) for code in distinct_codes.tolist()]
            return np.array(values, dtype)

        return map_values(codes, table)


def _decode(texts: Sequence[bytes]) -> tuple[list[Any], bool]:
    """Decode JSON texts; return the values, None for invalid ones, and whether all are valid."""
    try:
        values: list[Any] = msgspec.json.decode(b"[" + b",".join(texts) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [_decode_one(text) for text in texts], False
    return values, True


def _decode_one(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


Bytes = npt.NDArray[np.uint8]
COMPLETE, COUNTER, INSTANT, ARROW_START = map(ord, "XCis")
"""Phases of events, as codes of their characters."""
ARROWS = b"stf"
"""Phases of the start, steps and end of arrows."""
IS_TEXT, IS_WHOLE, IS_QUOTED_WHOLE, IS_REAL = range(4)
"""Kinds of arg values: code of any other JSON value, integer, integer in quotes, other number."""
NOT_HERE = -1
"""The position of a row that is not part of a view."""


@dataclass(frozen=True)
class ArgValues:
    """Values of args, (n,) each.

    kind: how to interpret `value`, see IS_TEXT. value: an integer, the bits of a float64 (IS_REAL),
    or a code in `values` (IS_TEXT).
    """

    kind: Bytes
    value: Int64
    values: JsonValues

    def __getitem__(self, rows: Rows | slice) -> ArgValues:
        return ArgValues(self.kind[rows], self.value[rows], self.values)

    def are_whole(self) -> bool:
        """Return whether all values are integers without quotes."""
        return bool((self.kind == IS_WHOLE).all())

    def ids(self, default: int) -> Int64:
        """Return the values as ids or amounts, `default` for values that are not int64."""
        ids = self.value.copy()
        reals = self.kind == IS_REAL
        if reals.any():
            ids[reals] = [_whole(value, default) for value in self._reals(reals).tolist()]
        texts = self.kind == IS_TEXT
        if texts.any():
            ids[texts] = self.values.numbers(self.value[texts], default)
        return ids

    def names(self) -> Codes:
        """Return the values as strings of the pool, (n,) int32 codes."""
        names = np.empty(len(self.value), np.int32)
        texts = self.kind == IS_TEXT
        names[texts] = self.values.names(self.value[texts].astype(np.int32))
        if not texts.all():
            numbers = self[np.flatnonzero(~texts)].objects()
            names[~texts] = self.values.strings.codes(map(text, numbers))
        return names

    def reals(self) -> tuple[Rows, Float64]:
        """Return the rows of values that are numbers, in quotes or not, and these numbers."""
        reals = self.value.astype(np.float64)
        is_real = self.kind == IS_REAL
        reals[is_real] = self._reals(is_real)
        are_numbers = np.ones(len(self.value), np.bool_)
        texts = np.flatnonzero(self.kind == IS_TEXT)
        if len(texts):
            codes = self.value[texts]
            are_numbers[texts] = self.values.meanings(codes, np.bool_, _is_number)
            reals[texts] = self.values.meanings(codes, np.float64, _real)
        rows = np.flatnonzero(are_numbers)
        return rows, reals[rows]

    def are_falsy(self) -> Bool:
        """Return a mask of values that are zero, empty, false or null."""
        are_falsy: Bool = (self.kind == IS_WHOLE) & (self.value == 0)
        are_falsy |= (self.kind == IS_REAL) & (self.value.view(np.float64) == 0)
        texts = self.kind == IS_TEXT
        are_falsy[texts] = self.values.meanings(self.value[texts], np.bool_, operator.not_)
        return are_falsy

    def of_others(self, meaning: Callable[[Any], int], default: int) -> Int64:
        """Return `meaning(value)`, called once per distinct value, or `default` for numbers."""
        meanings = np.full(len(self.value), default, np.int64)
        texts = self.kind == IS_TEXT
        meanings[texts] = self.values.meanings(self.value[texts], np.int64, meaning)
        return meanings

    def objects(self) -> list[Any]:
        """Return the values as decoded JSON values."""
        objects: npt.NDArray[Any] = self.value.astype(np.object_)
        for kind, values in (
            (IS_TEXT, map(self.values.__getitem__, self.value[self.kind == IS_TEXT].tolist())),
            (IS_QUOTED_WHOLE, map(str, self.value[self.kind == IS_QUOTED_WHOLE].tolist())),
            (IS_REAL, self._reals(self.kind == IS_REAL).tolist()),
        ):
            objects[self.kind == kind] = np.fromiter(values, np.object_)
        return list(objects)

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
    """Args of all events, (n,) each, in order of events: row of the event, key number and value."""

    row: Codes
    key: Codes
    value: ArgValues


GivenArgs = Callable[[str], tuple[Rows, ArgValues]]
"""A function that returns, for an arg's name, the positions (among some rows) of the events that
have it, and its values there."""


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
"""The columns of events and args in the order of the scanner's output."""


@dataclass(frozen=True)
class EventColumns:
    """Columns of events, (n,) each; the events of each phase are in file order.

    group: number of the lane or counters in `values`. name, category: codes in `values`. end_ns: of
    an arrow, its id if that is a positive int64, else the complement of a code. Keys of args are
    numbers of `arg_numbers`; those of counters are codes in `values`.
    """

    phase: Bytes
    group: Codes
    name: Codes
    category: Codes
    start_ns: Int64
    end_ns: Int64
    flat: FlatArgs
    """All args; the args of a counter are in the order of the keys of its group."""
    values: JsonValues
    arg_numbers: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.phase)

    @classmethod
    def of_scanned(
        cls, columns: Sequence[bytes], values: JsonValues, arg_numbers: Mapping[str, int]
    ) -> EventColumns:
        """Return the columns in the output of the compiled scanner."""
        arrays: dict[str, Any] = {
            name: np.frombuffer(column, dtype)
            for (name, dtype), column in zip(_COLUMNS.items(), columns, strict=True)
        }
        args = ArgValues(arrays.pop("kind"), arrays.pop("value"), values)
        flat = FlatArgs(arrays.pop("arg_row"), arrays.pop("arg_key"), args)
        return cls(**arrays, flat=flat, values=values, arg_numbers=arg_numbers)

    @cached_property
    def _args_by_key(self) -> tuple[Codes, ArgValues, list[int]]:
        """Args of intervals and instants, sorted by key: event rows, values, bounds of each key."""
        are_counters = self.phase == COUNTER
        rows = np.flatnonzero(~are_counters[self.flat.row]) if are_counters.any() else slice(None)
        # int8 is sorted in one pass (radix sort), int16 in two.
        few = len(self.arg_numbers) <= np.iinfo(np.int8).max + 1
        key = self.flat.key[rows].astype(np.int8 if few else np.int16)
        by_key = np.argsort(key, kind="stable")
        rows = by_key if isinstance(rows, slice) else rows[by_key]
        counts = np.bincount(key, minlength=len(self.arg_numbers))
        bounds = [0, *np.cumsum(counts).tolist()]
        return self.flat.row.take(rows), self.flat.value[rows], bounds

    def args_at(self, rows: Rows) -> GivenArgs:
        """Return a function that finds args of the events at rows (intervals or instants)."""
        args_row, values, bounds = self._args_by_key
        place_of = np.full(len(self), NOT_HERE, np.int32)
        place_of[rows] = np.arange(len(rows))

        def given(arg: str) -> tuple[Rows, ArgValues]:
            number = self.arg_numbers[arg]
            of_key = slice(bounds[number], bounds[number + 1])
            place = place_of.take(args_row[of_key])
            in_rows = np.flatnonzero(place != NOT_HERE)
            return place.take(in_rows).astype(np.intp), values[of_key][in_rows]

        return given


_MOST_ID = int(np.iinfo(np.int64).max)
"""The largest id of an arrow that is stored as a number."""


def columns_of_decoded(
    events: Sequence[Any], form: EventFormat, strings: StringPool
) -> EventColumns:
    """Convert decoded events to the same columns that the scanner produces from text."""
    codes = _ValueCodes()
    phase = np.array([ord(type(event).__struct_config__.tag) for event in events], np.uint8)
    groups: Interner[tuple[object, ...]] = Interner()
    durations = [getattr(event, "dur", b"") for event in events]
    start_ns, end_ns = interval_ns([event.ts for event in events], durations)
    end_ns = np.where(phase == COMPLETE, end_ns, start_ns)
    arrows = np.flatnonzero(np.isin(phase, list(ARROWS)))
    end_ns[arrows] = [codes.arrow_id(bytes(events[row].id)) for row in arrows.tolist()]
    args = [
        (row, key, value)
        for row, event in enumerate(events)
        for key, value in _args_of(event, form, codes)
    ]
    kind, value = np.full(len(args), IS_TEXT, np.uint8), np.empty(len(args), np.int64)
    reals = value.view(np.float64)
    for at, (_, _, one) in enumerate(args):
        if type(one) is int and -(1 << 63) <= one < 1 << 63:
            kind[at], value[at] = IS_WHOLE, one
        elif type(one) is float:
            kind[at], reals[at] = IS_REAL, one
        else:
            value[at] = codes.code(one)
    values = JsonValues(strings)
    columns = EventColumns(
        phase,
        groups.of([_group_key(event) for event in events]).astype(np.int32),
        codes.codes([getattr(event, "name", "") for event in events]),
        codes.codes([getattr(event, "cat", "") for event in events]),
        start_ns,
        end_ns,
        FlatArgs(
            np.array([row for row, _, _ in args], np.int32),
            np.array([key for _, key, _ in args], np.int32),
            ArgValues(kind, value, values),
        ),
        values,
        form.arg_numbers,
    )
    # A float is wrapped in a tuple, see `_group_key`.
    groups_of_codes = [
        [codes.code(one[0] if type(one) is tuple else one) for one in group] for group in groups
    ]
    values.add(codes.values, groups_of_codes)
    return columns


def _args_of(event: Any, form: EventFormat, codes: _ValueCodes) -> Iterator[tuple[int, Any]]:
    """Yield (key, value) of an event's args; keys are arg numbers, those of counters codes."""
    args = getattr(event, "args", None)
    if args is None:
        return
    if isinstance(event, Counter):
        yield from ((codes.code(key), value) for key, value in args.items())
        return
    by_name = {WHOLE_ARGS: args} if form.has_whole_args else msgspec.structs.asdict(args)
    for name, value in by_name.items():
        if value is None:
            continue
        if isinstance(value, msgspec.Raw):
            if string := bytes(value).decode("utf-8", "replace"):
                yield form.arg_numbers[name], string
        else:
            yield form.arg_numbers[name], value


def _group_key(event: Any) -> tuple[object, ...]:
    """Return a hashable key of an event's lane, or of a counter's keys, process and name.

    Floats are wrapped in a tuple, so that process 3.0 differs from process 3.
    """
    pid = (event.pid,) if type(event.pid) is float else event.pid
    if isinstance(event, Counter):
        return *(event.args or ()), pid, event.name
    return pid, (event.tid,) if type(event.tid) is float else event.tid


class _ValueCodes:
    """The codes of distinct values while columns are built; equal strings and numbers share one."""

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
        """Return an id as a number if it is a positive int64, else the complement of a code.

        Ids are opaque text; they may exceed 2**64.
        """
        text = written.strip(b'"').decode("utf-8", "surrogateescape")
        is_plain = text.isascii() and text.isdecimal() and not text.startswith("0")
        if is_plain and len(text) < 20 and int(text) <= _MOST_ID:
            return int(text)
        return ~self.code(text)


class EventRows:
    """A view of intervals or instants at some rows; args are named by the fields of their type."""

    def __init__(self, events: EventColumns, rows: Rows) -> None:
        self.events, self.rows = events, rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def strings(self) -> StringPool:
        """The pool of strings to which name codes refer."""
        return self._values.strings

    @property
    def _values(self) -> JsonValues:
        return self.events.values

    @cached_property
    def _args(self) -> GivenArgs:
        return self.events.args_at(self.rows)

    def at(self, places: Rows | Bool) -> EventRows:
        """Return a view of some of the rows, given by positions in this view or by a mask."""
        return EventRows(self.events, self.rows[places])

    def spans(self, places: Rows | None = None) -> dict[str, Int64]:
        """Return the columns start_ns and end_ns, of all rows or those at some positions."""
        rows = self.rows if places is None else self.rows[places]
        return {
            "start_ns": self.events.start_ns.take(rows),
            "end_ns": self.events.end_ns.take(rows),
        }

    def names(self) -> Codes:
        """Return the name of each event as a string code."""
        return self._values.names(self.events.name[self.rows])

    def format_names(self) -> list[str]:
        """Return the name of each event as a string."""
        return list(map(self._values.__getitem__, self.events.name[self.rows].tolist()))

    def by_name(self, dtype: type[_Scalar], meaning: Callable[[str], Any]) -> npt.NDArray[_Scalar]:
        """Return `meaning(name)` of each event; it is called once per distinct name."""
        return self._values.meanings(self.events.name[self.rows], dtype, meaning)

    def categories(self) -> Codes:
        """Return the category of each event as a string code, empty if it has none."""
        return self._values.names(self.events.category[self.rows])

    def format_categories(self) -> list[str]:
        """Return the category of each event as a string."""
        return list(map(self._values.__getitem__, self.events.category[self.rows].tolist()))

    def by_category(
        self, dtype: type[_Scalar], meaning: Callable[[str], Any]
    ) -> npt.NDArray[_Scalar]:
        """Return `meaning(category)` of each event; it is called once per distinct category."""
        return self._values.meanings(self.events.category[self.rows], dtype, meaning)

    def processes(self, default: int) -> Int64:
        """Return the process id of each event, `default` if it is not a number."""
        return self.by_lane(np.int64, lambda process, _: number(process, default))

    def threads(self, default: int) -> Int64:
        """Return the thread id of each event, `default` if it is not a number."""
        return self.by_lane(np.int64, lambda _, thread: number(thread, default))

    def lanes(self) -> dict[str, Int64]:
        """Return the columns process and thread, NO_ID for ids that are not numbers."""
        return {"process": self.processes(NO_ID), "thread": self.threads(NO_ID)}

    def by_lane(
        self, dtype: type[_Scalar], meaning: Callable[[Any, Any], Any]
    ) -> npt.NDArray[_Scalar]:
        """Return `meaning(process, thread)` of each event; it is called once per distinct pair."""

        def table(groups: Codes) -> npt.NDArray[_Scalar]:
            lanes = map(self._values.lane, groups.tolist())
            return np.array([meaning(*lane) for lane in lanes], dtype)

        return map_values(self.events.group[self.rows], table)

    def numbered(self, pattern: re.Pattern[str]) -> tuple[Rows, list[int]]:
        """Return the positions of events with a name that matches, and the numbers in group 1."""
        codes = self.events.name[self.rows]
        numbers = {
            code: int(match[1])
            for code in distinct(codes).tolist()
            if (match := pattern.fullmatch(self._values[code]))
        }
        places = np.flatnonzero(np.isin(codes, list(numbers)))
        return places, [numbers[code] for code in codes[places].tolist()]

    def given(self, arg: str) -> tuple[Rows, ArgValues]:
        """Return the positions of events that have an arg, and its values there."""
        return self._args(arg)

    def are_given(self, arg: str) -> Bool:
        """Return a mask of events that have an arg; null counts only for args of type Any."""
        are_given = np.zeros(len(self), np.bool_)
        are_given[self.given(arg)[0]] = True
        return are_given

    def ids(self, default: int | Int64, *args: str) -> Int64:
        """Return an arg as ids or amounts; of several args, the first that an event has.

        default: the value of events without any of the args. A single number is also the value for
        args that are not int64; with an array these become NO_ID.
        """
        given = [(places, values) for places, values in map(self.given, args) if len(places)]
        if not given:
            if isinstance(default, int):
                return constant(default, len(self), np.int64)
            return default
        no_id = default if isinstance(default, int) else NO_ID
        ids = np.full(len(self), default) if isinstance(default, int) else default.copy()
        for places, values in reversed(given):
            ids[places] = values.ids(no_id)
        return ids

    def arg_names(self, arg: str) -> Codes:
        """Return the value of an arg as a string code, empty if it is absent."""
        places, values = self.given(arg)
        if not len(places):
            return constant(NO_NAME, len(self), np.int32)
        names = np.full(len(self), NO_NAME, np.int32)
        names[places] = values.names()
        return names

    def levels(self) -> Codes:
        """Return the arg `level` of each call as a string code, else its category."""
        levels = self.categories()
        places, values = self.given("level")
        given = np.flatnonzero(~values.are_falsy())
        levels[places[given]] = values[given].names()
        return levels

    def reals(self, arg: str) -> Float64:
        """Return the value of an arg as a number, NaN if it is absent or not a number."""
        places, values = self.given(arg)
        rows, numbers = values.reals()
        reals = np.full(len(self), np.nan)
        reals[places[rows]] = numbers
        return reals

    def moments(self, arg: str) -> Int64:
        """Return timestamps in ns of an arg in decimal microseconds, NO_TIME if it is absent."""
        places, values = self.given(arg)
        times_ns = np.full(len(self), NO_TIME)
        times_ns[places] = parse_times_ns([value.encode() for value in values.objects()])
        return times_ns

    def objects(self, arg: str) -> list[Any]:
        """Return the decoded JSON value of an arg of each event, None if it is absent."""
        places, values = self.given(arg)
        objects: list[Any] = [None] * len(self)
        for place, value in zip(places.tolist(), values.objects(), strict=True):
            objects[place] = value
        return objects
