"""Turns counter events into series and samples, some tens of thousands of events at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from timeline.records.columns import Float64, Int64, Pile, Rows, constant
from timeline.records.numbering import Numbering
from timeline.records.strings import StringPool
from timeline.records.tables import CounterSamples, CounterSeries
from timeline.sources.counter_units import factor_of, name_and_unit
from timeline.sources.microseconds import moments_ns
from timeline.sources.trace_events import Counter
from timeline.sources.whole_numbers import real

__all__ = ["CounterKey", "CounterReader"]

CounterKey = tuple[object, str]
"""(pid, name) of counter events."""
_NUMBERS = frozenset({int, float, bool})
_SeriesKey = tuple[object, str, str]
"""Process id, name and unit of a series."""


@dataclass(frozen=True)
class _Alike:
    """Events of one process and name whose args have the same keys."""

    pid: object
    name: str
    shape: tuple[str, ...]
    events: Sequence[Counter]
    args: Sequence[dict[str, Any]]

    def columns(self) -> dict[str, list[Any]]:
        """The values of each arg."""
        values = list(chain.from_iterable(map(dict.values, self.args)))
        return {arg: values[place :: len(self.shape)] for place, arg in enumerate(self.shape)}


def _alike(pid: object, name: str, events: Sequence[Counter]) -> list[_Alike]:
    """Events by the keys of their args, without those that have none."""
    args = [event.args or {} for event in events]
    shape = tuple(args[0])
    # The keys of one event differ, so the same few over and over are those of each event.
    if shape and list(chain.from_iterable(args)) == list(shape) * len(args):
        return [_Alike(pid, name, shape, events, args)]
    places: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, own in enumerate(args):
        if own:
            places[tuple(own)].append(place)
    return [
        _Alike(pid, name, shape, [events[at] for at in own], [args[at] for at in own])
        for shape, own in places.items()
    ]


@dataclass
class CounterReader:
    """Collects samples, and numbers the series that they are of."""

    _series: Numbering[_SeriesKey] = field(default_factory=Numbering)
    _samples: Pile[CounterSamples] = field(default_factory=lambda: Pile(CounterSamples))

    def add(self, groups: Mapping[CounterKey, Sequence[Counter]]) -> None:
        """Take the samples out of events that are grouped by process and name."""
        parts = [
            part for (pid, name), events in groups.items() for part in _alike(pid, name, events)
        ]
        time_ns = moments_ns([event.ts for part in parts for event in part.events])
        samples: list[CounterSamples] = []
        first = 0
        for part in parts:
            stop = first + len(part.events)
            samples += self._samples_of(part, time_ns[first:stop])
            first = stop
        self._samples.add(CounterSamples.concat(samples))

    def _samples_of(self, part: _Alike, time_ns: Int64) -> Iterator[CounterSamples]:
        """One table for each arg that is sampled; those named *_id only tell series apart."""
        columns = part.columns()
        ids = [arg for arg in columns if arg.endswith("_id")]
        held = [arg for arg in columns if not arg.endswith("_id")]
        labels, which = _labels({arg: columns[arg] for arg in ids}, len(time_ns))
        for arg in held:
            series, unit = name_and_unit(part.name, arg, len(held))
            rows = self._series.of([(part.pid, series + label, unit) for label in labels])
            kept, values = _numbers(columns[arg])
            yield CounterSamples(time_ns[kept], rows[which][kept], values)

    def tables(
        self, process: Callable[[object], str], strings: StringPool
    ) -> tuple[CounterSeries, CounterSamples]:
        """The series that have samples, grouped by the name of their process, and all samples."""
        samples = self._samples.joined()
        keys = list(self._series)
        rows: dict[tuple[str, str, str], int] = {}
        renumbered = np.zeros(len(keys), np.int64)
        for old in np.unique(samples.series).tolist():
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
    seen: Numbering[tuple[Any, ...]] = Numbering()
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
