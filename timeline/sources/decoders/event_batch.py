"""Events of trace files, scanned or decoded, held until there are enough to become columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.strings import Interner, StringPool
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
    JsonValues,
    ScannedColumns,
)
from timeline.sources.decoders.trace_events import (
    WHOLE_ARGS,
    Complete,
    Counter,
    EventFormat,
    Flow,
    Ignored,
    Metadata,
    Other,
)

try:
    from timeline.sources.decoders._scanner import Scanner
except ImportError:
    Scanner = None  # type: ignore[assignment, misc]


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

    def add(self, events: Sequence[Any]) -> tuple[list[Metadata], int]:
        """Take in events in file order; return the metadata, and the number of events not drawn."""
        metadata: list[Metadata] = []
        others: list[Other] = []
        lists: dict[type, list[Any]] = {
            Complete: self.intervals,
            Counter: self.counters,
            Flow: self.arrows,
            Metadata: metadata,
            Other: others,
            Ignored: [],
        }
        appends: dict[type, Callable[[Any], None]] = {}
        for event in events:
            kind = type(event)
            if kind not in appends:
                of_kind = (found for base, found in lists.items() if issubclass(kind, base))
                appends[kind] = next(of_kind, self.instants).append
            appends[kind](event)
        return metadata, len(others)


class _Values:
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

    def codes(self, texts: Sequence[str]) -> Int64:
        self.values += self._codes.number(texts)
        return self._codes.of(texts)


@dataclass(frozen=True)
class _DecodedColumns(EventColumns):
    """Events of which intervals and instants, the first rows, have their args as objects."""

    objects: Sequence[Any]
    codes: _Values

    def args_at(self, rows: Rows) -> GivenArgs:
        """Return what looks up the args of rows, each of which is an interval or an instant."""
        every = [self.objects[row].args for row in rows.tolist()]
        held = [args for args in every if args is not None]
        places = np.array([at for at, args in enumerate(every) if args is not None], np.intp)

        def given(arg: str) -> tuple[Rows, ArgValues]:
            found = list(held if arg == WHOLE_ARGS else map(attrgetter(arg), held))
            if found and isinstance(found[0], msgspec.Raw):
                found = [bytes(value).decode("utf-8", "replace") or None for value in found]
            at = np.array([row for row, value in enumerate(found) if value is not None], np.intp)
            values = [value for value in found if value is not None]
            return places[at], _arg_values(values, self.codes, self.values)

        return given


def _arg_values(found: Sequence[Any], codes: _Values, values: JsonValues) -> ArgValues:
    """Return the values of args; `values` holds what `codes` numbers here for the first time."""
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
    codes.code(0)  # as the scanner has it
    empty = codes.code("")
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
    counts = [len(intervals), len(instants), len(counters)]
    phases = np.repeat(np.array([COMPLETE, INSTANT, COUNTER], np.uint8), counts)
    names = codes.codes([event.name for event in chain(intervals, instants, counters)])
    columns: dict[str, Any] = {
        "phase": np.concatenate([phases, np.array(arrow_phases, np.uint8)]),
        "group": _int32(lane[:first_counter], counted, lane[first_counter:]),
        "name": _int32(names, np.full(len(arrows), empty, np.int64)),
        "category": _int32(
            codes.codes([event.cat for event in chain(intervals, instants)]),
            np.full(len(counters), empty, np.int64),
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
    row = np.arange(first_counter, first_arrow, dtype=np.int32)
    row = np.repeat(row, [len(args) for args in counter_args])
    keys = codes.codes(list(chain.from_iterable(counter_args)))
    group_codes = [_group_codes(group, codes) for group in groups]
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
    """Return the process and thread of each event; see `_distinct`."""
    lanes = [(event.pid, event.tid) for event in events]
    if float in set(map(type, chain.from_iterable(lanes))):
        return [(_distinct(event.pid), _distinct(event.tid)) for event in events]
    return lanes


def _distinct(value: object) -> object:
    """Key a float apart from the integer that it equals: 3.0 and 3 are different processes."""
    return (value,) if type(value) is float else value


def _group_codes(group: tuple[object, ...], codes: _Values) -> list[int]:
    """Return the codes of a lane, or of the keys, the process and the name of counters."""
    found: Iterable[object] = group if len(group) == 2 else group[:-1]
    return [codes.code(value[0] if type(value) is tuple else value) for value in found]


def _arrow_id(written: bytes, codes: _Values) -> int:
    """Return a plain decimal as it is; of whatever else there is, the complement of the code.

    Ids are opaque text: they exceed 2**64, and one may be used again.
    """
    if written.isdigit() and written[0] != _ZERO:
        digits = len(written)
        if digits < len(_MOST) or (digits == len(_MOST) and written <= _MOST):
            return int(written)
    return ~codes.code(written.decode("utf-8", "surrogateescape"))


_decode_metadata = msgspec.json.Decoder(Metadata).decode


def is_compiled() -> bool:
    """Return whether this installation has the compiled scanner."""
    return Scanner is not None


@dataclass(frozen=True)
class ScannedEvents:
    """Counts and metadata of the events of one text, which the scanner holds."""

    held: int
    metadata: list[Metadata]
    others: int
    """Events of a phase that is not drawn."""
    unread: int
    """Counter events that were not asked for."""

    def __len__(self) -> int:
        return self.held + len(self.metadata) + self.others + self.unread


class EventScanner:
    """Reads the events of some files of one format, whose distinct values it numbers.

    It holds them until they are taken.
    """

    def __init__(self, events: EventFormat[Any], strings: StringPool, *, counters: bool) -> None:
        self._values = JsonValues(strings)
        self._has_undecoded = False
        self._odd_times: list[tuple[int, bytes, bytes]] = []
        self._arg_numbers = events.arg_numbers
        self._scanner = Scanner(
            events.keys,
            events.first_loose,
            events.first_raw,
            counters,
            events.has_instants,
            events.has_whole_args,
        )

    def scan(self, text: bytes) -> tuple[ScannedEvents, int] | None:
        """Read whole events up to the last, or one that only the decoder can read, and their bytes.

        None if that is the first, or from the first value on that cannot be decoded, because the
        same value may come again. Times that are not plain decimals are read when events are taken.
        """
        if self._has_undecoded:
            return None
        scanned = self._scanner.scan(text)
        used, texts, groups, held, metadata, odd_times, others, unread = scanned
        self._has_undecoded = not self._values.add_texts(texts, groups)
        if not used:
            return None
        named = None if self._has_undecoded else _decoded(metadata)
        if named is None:
            self._scanner.undo()
            return None
        self._odd_times += odd_times
        return ScannedEvents(held, named, others, unread), used

    def take(self) -> ScannedColumns:
        """Return the events that are held, and let go of them."""
        events = ScannedColumns.of(self._scanner.take(), self._values, self._arg_numbers)
        odd, self._odd_times = self._odd_times, []
        if not odd:
            return events
        rows: Int64 = np.array([row for row, _, _ in odd])
        start_ns, end_ns = interval_ns([ts for _, ts, _ in odd], [dur for _, _, dur in odd])
        is_interval = events.phase[rows] == COMPLETE
        return events.with_times(rows, start_ns, rows[is_interval], end_ns[is_interval])


def _decoded(metadata: Sequence[bytes]) -> list[Metadata] | None:
    """Decode metadata events; None if one cannot be decoded."""
    try:
        return [_decode_metadata(event) for event in metadata]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


HELD_EVENTS = 1 << 15
"""Events that are held as objects before they become columns."""

COLUMNS_PER_OBJECT = 4
"""Events in columns that take as much memory as one object."""
LEAST_PER_BLOCK = 2048
"""Events that a block of objects counts for at least: each keeps the text of its block alive.

Blocks differ in their number of events: call stacks and shapes take thousands of bytes.
"""


class EventBatch:
    """Events that were read and not used yet."""

    def __init__(self, events: EventFormat[Any], strings: StringPool, *, counters: bool) -> None:
        """Begin empty; counters: whether counter events are asked for."""
        self._format, self._strings, self._with_counters = events, strings, counters
        self._scanner = self._new_scanner() if is_compiled() else None
        self._runs: list[EventColumns | DecodedEvents] = []
        self.size = 0
        """Events that are held, in objects: columns take less memory."""
        self.others = 0
        """Events of a phase that is not drawn, of all that were added."""
        self.unread = 0
        """Counter events that were not asked for, of those that were scanned."""

    def _new_scanner(self) -> EventScanner:
        return EventScanner(self._format, self._strings, counters=self._with_counters)

    @property
    def scan(self) -> Callable[[bytes], tuple[ScannedEvents, int] | None] | None:
        """The faster way to read events, where there is one; see `read_events`."""
        return self._scan if self._scanner else None

    def _scan(self, text: bytes) -> tuple[ScannedEvents, int] | None:
        assert self._scanner is not None
        return self._scanner.scan(text)

    def add(self, events: Sequence[Any] | ScannedEvents) -> list[Metadata]:
        """Keep the events that `read_events` returns; the metadata among them is for the caller."""
        if isinstance(events, ScannedEvents):
            self.others += events.others
            self.unread += events.unread
            self.size += -(-len(events) // COLUMNS_PER_OBJECT)
            return events.metadata
        self.size += max(len(events), LEAST_PER_BLOCK)
        return self._add_decoded(events)

    def _take_scanned(self) -> None:
        """Put what the scanner holds behind the runs."""
        if self._scanner and len(held := self._scanner.take()):
            self._runs.append(held)

    def _add_decoded(self, events: Sequence[Any]) -> list[Metadata]:
        """Keep decoded events, together with those that were read just before."""
        self._take_scanned()
        if not self._runs or not isinstance(self._runs[-1], DecodedEvents):
            self._runs.append(DecodedEvents())
        decoded = self._runs[-1]
        assert isinstance(decoded, DecodedEvents)
        metadata, others = decoded.add(events)
        self.others += others
        if not self._with_counters:
            decoded.counters.clear()
        return metadata

    def take(self) -> list[EventColumns]:
        """Return the events that are held, parts in file order, and let go of them."""
        self._take_scanned()
        parts = [
            _columns(run, self._strings) if isinstance(run, DecodedEvents) else run
            for run in self._runs
            if run
        ]
        self._runs, self.size = [], 0
        if self._scanner and self._format.has_whole_args:
            # They may differ from event to event, and the scanner keeps what it has seen.
            self._scanner = self._new_scanner()
        return parts
