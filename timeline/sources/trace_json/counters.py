"""Turns counter events into series and samples, some tens of thousands of events at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from timeline.columns.columns import Float64, Int64, Rows, TableBuilder
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct
from timeline.columns.interner import Interner
from timeline.columns.strings import StringPool
from timeline.records.tables import CounterSamples, CounterSeries
from timeline.sources.common.counters import factor_of, name_and_unit
from timeline.sources.common.decimals import moments_ns, real
from timeline.sources.trace_json.event_columns import ArgValues, ScannedEvents
from timeline.sources.trace_json.events import Counter
from timeline.sources.trace_json.spellings import Spellings

__all__ = ["CounterEvents", "CounterKey", "CounterReader", "decoded_counters", "scanned_counters"]

CounterKey = tuple[object, str]
"""(pid, name) of counter events."""
_NUMBERS = frozenset({int, float, bool})
_SeriesKey = tuple[object, str, str]
"""Process id, name and unit of a series."""


class CounterEvents(ABC):
    """Events of one process and name whose args have the same keys."""

    pid: object
    name: str
    keys: Sequence[str]
    time_ns: Int64

    @abstractmethod
    def objects(self, key: str) -> list[Any]:
        """The value of an arg in each event."""

    @abstractmethod
    def numbers(self, key: str) -> tuple[Rows | slice, Float64]:
        """Which values of an arg are numbers, and these."""


@dataclass(frozen=True)
class _DecodedCounters(CounterEvents):
    """Events that are objects."""

    pid: object
    name: str
    keys: Sequence[str]
    time_ns: Int64
    values: list[Any]
    """Of all args, event after event."""

    def objects(self, key: str) -> list[Any]:
        return self.values[self.keys.index(key) :: len(self.keys)]

    def numbers(self, key: str) -> tuple[Rows | slice, Float64]:
        return _numbers(self.objects(key))


def decoded_counters(groups: Mapping[CounterKey, Sequence[Counter]]) -> list[CounterEvents]:
    """Events that are grouped by process and name, by the keys of their args too."""
    parts = [
        (pid, name, keys, own)
        for (pid, name), events in groups.items()
        for keys, own in _alike(events)
    ]
    time_ns = moments_ns([event.ts for *_, events in parts for event in events])
    firsts = np.cumsum([0, *(len(events) for *_, events in parts)]).tolist()
    return [
        _DecodedCounters(
            pid,
            name,
            keys,
            time_ns[first : first + len(events)],
            list(chain.from_iterable((event.args or {}).values() for event in events)),
        )
        for (pid, name, keys, events), first in zip(parts, firsts, strict=False)
    ]


def _alike(events: Sequence[Counter]) -> list[tuple[tuple[str, ...], Sequence[Counter]]]:
    """Events by the keys of their args, without those that have none."""
    args = [event.args or {} for event in events]
    keys = tuple(args[0])
    # The keys of one event differ, so the same few over and over are those of each event.
    if keys and list(chain.from_iterable(args)) == list(keys) * len(args):
        return [(keys, events)]
    by_keys: dict[tuple[str, ...], list[Counter]] = defaultdict(list)
    for event, own in zip(events, args, strict=True):
        if own:
            by_keys[tuple(own)].append(event)
    return list(by_keys.items())


@dataclass
class CounterReader:
    """Collects samples, and numbers the series that they are of."""

    _series: Interner[_SeriesKey] = field(default_factory=Interner)
    _samples: TableBuilder[CounterSamples] = field(
        default_factory=lambda: TableBuilder(CounterSamples)
    )

    def add(self, parts: Iterable[CounterEvents]) -> None:
        """Take the samples out of events."""
        self._samples.add(
            CounterSamples.concat([samples for part in parts for samples in self._samples_of(part)])
        )

    def _samples_of(self, part: CounterEvents) -> Iterator[CounterSamples]:
        """One table for each arg that is sampled; those named *_id only tell series apart."""
        ids = [key for key in part.keys if key.endswith("_id")]
        held = [key for key in part.keys if not key.endswith("_id")]
        labels, which = _labels({key: part.objects(key) for key in ids}, len(part.time_ns))
        for key in held:
            series, unit = name_and_unit(part.name, key, len(held))
            rows = self._series.of([(part.pid, series + label, unit) for label in labels])
            kept, values = part.numbers(key)
            yield CounterSamples(part.time_ns[kept], rows[which][kept], values)

    def tables(
        self, process: Callable[[object], str], strings: StringPool
    ) -> tuple[CounterSeries, CounterSamples]:
        """The series that have samples, grouped by the name of their process, and all samples."""
        samples = self._samples.joined()
        keys = list(self._series)
        rows: dict[tuple[str, str, str], int] = {}
        renumbered = np.zeros(len(keys), np.int64)
        for old in distinct(samples.series).tolist():
            pid, name, unit = keys[old]
            renumbered[old] = rows.setdefault((process(pid), name, unit), len(rows))
        if not rows:
            return CounterSeries.empty(), CounterSamples.empty()
        groups, names, units = zip(*rows, strict=True)
        factors = np.array([factor_of(name, unit) for _, name, unit in keys])
        series = CounterSeries.of(
            len(rows),
            {
                "group": strings.codes(groups),
                "name": strings.codes(names),
                "unit": strings.codes(units),
            },
        )
        columns = {
            "time_ns": samples.time_ns,
            "series": renumbered[samples.series],
            "value": samples.value * factors[samples.series],
        }
        return series, CounterSamples.of(len(samples), columns)


def _labels(ids: Mapping[str, Sequence[Any]], count: int) -> tuple[list[str], Int64]:
    """The distinct labels that ids make, and which one each of some events has."""
    if not ids:
        return [""], constant(0, count, np.int64)
    seen: Interner[tuple[Any, ...]] = Interner()
    which = seen.of(list(zip(*map(_distinct, ids.values()), strict=True)))
    labels = [
        "".join(f" {name[:-3]} {value}" for name, value in zip(ids, values, strict=True))
        for values in seen
    ]
    return labels, which


def _distinct(values: Sequence[Any]) -> Iterable[Any]:
    """The values as they are where those are equal that are spelled alike; else their spelling."""
    return values if set(map(type, values)) in ({int}, {str}) else map(str, values)


def _numbers(values: Sequence[Any]) -> tuple[Rows | slice, Float64]:
    """Which of some values are numbers, and these."""
    if set(map(type, values)) <= _NUMBERS:
        column = np.array(values)
        if column.dtype != np.object_:  # which holds integers beyond 64 bits
            return slice(None), column.astype(np.float64)
    kept = [at for at, value in enumerate(values) if isinstance(value, (int, float))]
    return np.array(kept, np.intp), np.array([real(values[at]) for at in kept], np.float64)


@dataclass(frozen=True)
class _ScannedCounters(CounterEvents):
    """Rows of scanned events."""

    pid: object
    name: str
    keys: list[str]
    time_ns: Int64
    values: ArgValues
    """Of all args, event after event."""
    spellings: Spellings

    def _values(self, key: str) -> ArgValues:
        count = len(self.keys)
        return self.values[np.arange(self.keys.index(key), count * len(self.time_ns), count)]

    def objects(self, key: str) -> list[Any]:
        return self._values(key).objects(self.spellings)

    def numbers(self, key: str) -> tuple[Rows | slice, Float64]:
        return self._values(key).reals(self.spellings)


def scanned_counters(
    events: ScannedEvents, rows: Rows, spellings: Spellings
) -> Iterator[_ScannedCounters]:
    """The counter events among some, which are at these rows, but for those without args."""
    order = rows[np.argsort(events.group[rows], kind="stable")]
    groups, first = np.unique(events.group[order], return_index=True)
    bounds = [*first.tolist(), len(order)]
    first_arg = np.searchsorted(events.arg_row, order)
    for place, group in enumerate(groups.tolist()):
        process, name, keys = spellings.counters(group)
        own = slice(*bounds[place : place + 2])
        args = first_arg[own, np.newaxis] + np.arange(len(keys))
        if keys:
            yield _ScannedCounters(
                process,
                name,
                keys,
                events.start_ns[order[own]],
                events.args[args.reshape(-1)],
                spellings,
            )
