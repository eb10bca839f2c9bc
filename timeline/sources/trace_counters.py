"""Turns counter events into series and samples, some tens of thousands of events at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timeline.records.strings import StringPool
from timeline.records.tables import CounterSamples, CounterSeries
from timeline.sources.counter_units import name_and_unit
from timeline.sources.microseconds import moments_ns
from timeline.sources.trace_events import Counter

__all__ = ["CounterReader"]


@dataclass(frozen=True)
class _Layout:
    """Which args of an event hold values, and which only tell series apart (those named *_id)."""

    values: tuple[str, ...]
    ids: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> _Layout:
        held = tuple(names)
        return cls(
            tuple(name for name in held if not name.endswith("_id")),
            tuple(name for name in held if name.endswith("_id")),
        )


@dataclass
class CounterReader:
    """Collects samples; most events look like one before, so what their args mean is kept."""

    _series: dict[tuple[object, str, str], int] = field(default_factory=dict)
    _layouts: dict[tuple[str, ...], _Layout] = field(default_factory=dict)
    _rows: dict[tuple[object, ...], list[int]] = field(default_factory=dict)
    _samples: list[CounterSamples] = field(default_factory=list)

    def add(self, events: Sequence[Counter]) -> None:
        """Take the samples out of events."""
        times, rows, values = [], [], list[Any]()
        layouts, known = self._layouts, self._rows
        for event in events:
            args = event.args
            if not args:
                continue
            names = tuple(args)
            layout = layouts.get(names)
            if layout is None:
                layout = layouts[names] = _Layout.of(names)
            if layout.ids:
                key = (event.pid, event.name, names, *[args[name] for name in layout.ids])
                held = [args[name] for name in layout.values]
            else:
                key = (event.pid, event.name, names)
                held = list(args.values())
            own = known.get(key)
            if own is None:
                own = known[key] = self._series_of(event, args, layout)
            rows += own
            values += held
            times += [event.ts] * len(held)
        made = np.array(values)
        if made.dtype.kind not in "iufb":
            kept = [at for at, value in enumerate(values) if isinstance(value, (int, float))]
            made = np.array([values[at] for at in kept], np.float64)
            rows, times = [rows[at] for at in kept], [times[at] for at in kept]
        if len(made):
            columns = {"time_ns": moments_ns(times), "series": rows, "value": made}
            self._samples.append(CounterSamples.of(len(made), columns))

    def _series_of(self, event: Counter, args: dict[str, Any], layout: _Layout) -> list[int]:
        ids = "".join(f" {name[:-3]} {args[name]}" for name in layout.ids)
        made = []
        for value in layout.values:
            name, unit = name_and_unit(event.name, value, len(layout.values))
            key = (event.pid, name + ids, unit)
            made.append(self._series.setdefault(key, len(self._series)))
        return made

    def tables(
        self, process: Callable[[object], str], strings: StringPool
    ) -> tuple[CounterSeries, CounterSamples]:
        """The series that have samples, grouped by the name of their process, and all samples."""
        samples = CounterSamples.concat(self._samples)
        keys = list(self._series)
        rows: dict[tuple[str, str, str], int] = {}
        renumbered = np.zeros(len(keys), np.int64)
        for old in _in_order_of_appearance(samples.series):
            pid, name, unit = keys[old]
            renumbered[old] = rows.setdefault((process(pid), name, unit), len(rows))
        if not rows:
            return CounterSeries.empty(), CounterSamples.empty()
        groups, names, units = zip(*rows, strict=True)
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
            "value": samples.value,
        }
        return series, CounterSamples.of(len(samples), columns)


def _in_order_of_appearance(values: np.ndarray) -> list[int]:
    distinct, first = np.unique(values, return_index=True)
    return [int(value) for value in distinct[np.argsort(first)]]
