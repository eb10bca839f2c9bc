"""Turns counter events into series and samples, some tens of thousands of events at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timeline.records.columns import Int64, Pile, constant
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


@dataclass
class CounterReader:
    """Collects samples, and numbers the series that they are of."""

    _series: dict[_SeriesKey, int] = field(default_factory=dict)
    _samples: Pile[CounterSamples] = field(default_factory=lambda: Pile(CounterSamples))

    def add(self, groups: Mapping[CounterKey, Sequence[Counter]]) -> None:
        """Take the samples out of events that are grouped by process and name."""
        for (pid, name), events in groups.items():
            by_shape: dict[tuple[str, ...], list[Counter]] = defaultdict(list)
            for event in events:
                if event.args:
                    by_shape[tuple(event.args)].append(event)
            for shape, own in by_shape.items():
                self._add(pid, name, shape, own)

    def _add(
        self, pid: object, name: str, shape: tuple[str, ...], events: Sequence[Counter]
    ) -> None:
        """Samples of events with the same args: those named *_id only tell series apart."""
        args: list[dict[str, Any]] = [event.args or {} for event in events]
        ids = [arg for arg in shape if arg.endswith("_id")]
        held = [arg for arg in shape if not arg.endswith("_id")]
        labels, which = _labels(args, ids)
        time_ns = moments_ns([event.ts for event in events])
        for arg in held:
            series, unit = name_and_unit(name, arg, len(held))
            rows = np.array([self._row((pid, series + label, unit)) for label in labels])
            values = [own[arg] for own in args]
            try:
                numbers = values if set(map(type, values)) <= _NUMBERS else None
                column = None if numbers is None else np.array(numbers, np.float64)
            except OverflowError:
                column = None
            if column is None:
                self._add_some(time_ns, rows[which], values)
            else:
                columns = {"time_ns": time_ns, "series": rows[which], "value": column}
                self._samples.add(CounterSamples.of(len(values), columns))

    def _row(self, key: _SeriesKey) -> int:
        return self._series.setdefault(key, len(self._series))

    def _add_some(self, time_ns: Int64, rows: Int64, values: Sequence[Any]) -> None:
        """Samples of which some are no numbers."""
        kept = [at for at, value in enumerate(values) if isinstance(value, (int, float))]
        columns = {
            "time_ns": time_ns[kept],
            "series": rows[kept],
            "value": [real(values[at]) for at in kept],
        }
        self._samples.add(CounterSamples.of(len(kept), columns))

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


def _labels(args: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> tuple[list[str], Int64]:
    """The distinct labels that ids make, and which one each event has."""
    if not ids:
        return [""], constant(0, len(args), np.int64)
    seen: dict[tuple[str, ...], int] = {}
    which = [seen.setdefault(tuple(str(own[arg]) for arg in ids), len(seen)) for own in args]
    labels = [
        "".join(f" {name[:-3]} {value}" for name, value in zip(ids, values, strict=True))
        for values in seen
    ]
    return labels, np.array(which, np.int64)
