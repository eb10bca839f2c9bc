"""Series and samples of counters from the counter events of traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timeline.columns.columns import Int64, Rows, TableBuilder
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct, distinct_as_met, distinct_values
from timeline.columns.interner import Interner
from timeline.columns.strings import NO_TEXT, StringPool
from timeline.layers import Layer
from timeline.records.tables import CounterSamples, CounterSeries, Omission, OmissionCode
from timeline.sources.common.counters import factor_of, name_and_unit, scaled
from timeline.sources.decoders.event_columns import ArgValues, EventColumns

_SeriesKey = tuple[object, str, str]
"""Process id, name and unit of a series."""


@dataclass(frozen=True)
class CounterEvents:
    """Counter events of one process and name whose args have the same keys."""

    pid: object
    name: str
    keys: Sequence[str]
    time_ns: Int64
    """(n,)"""
    args: ArgValues
    """The values of all keys, event after event."""

    def values(self, key: str) -> ArgValues:
        """The value of an arg in each event."""
        return self.args[self.keys.index(key) :: len(self.keys)]


def counters_at(events: EventColumns, rows: Rows) -> Iterator[CounterEvents]:
    """The counter events at some rows, but for those without args."""
    groups, group_of = distinct_values(events.group[rows])
    if len(groups) <= np.iinfo(np.uint16).max:
        group_of = group_of.astype(np.uint16)  # which sorts in one pass
    order = np.argsort(group_of, kind="stable")
    bounds = [0, *np.cumsum(np.bincount(group_of)).tolist()]
    order = rows.take(order)
    counts = np.bincount(events.flat.row, minlength=len(events))
    first_arg = (np.cumsum(counts) - counts).take(order)
    for at, group in enumerate(groups.tolist()):
        process, name, keys = events.values.counters(group)
        of_group = slice(*bounds[at : at + 2])
        args = first_arg[of_group, np.newaxis] + np.arange(len(keys))
        if keys:
            yield CounterEvents(
                process,
                name,
                keys,
                events.start_ns.take(order[of_group]),
                events.flat.value.take(args.reshape(-1)),
            )


@dataclass
class CounterReader:
    """Collects samples, and numbers the series that they are of.

    strange: how many have a value that is given and is no number.
    """

    strange: int = 0
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
        sampled = [key for key in part.keys if not key.endswith("_id")]
        labels, which = _labels({key: part.values(key) for key in ids}, len(part.time_ns))
        for key in sampled:
            series, unit = name_and_unit(part.name, key, len(sampled))
            rows = self._series.of([(part.pid, series + label, unit) for label in labels])
            every = part.values(key)
            good, values = every.reals()
            if len(good) < len(part.time_ns):
                self.strange += _count_strange(every, good)
            yield CounterSamples(part.time_ns[good], rows[which][good], values)

    def omissions(self, rank: int) -> tuple[Omission, ...]:
        """The samples that are not in the tables."""
        if not self.strange:
            return ()
        reason, counters = "samples of counters that are no numbers", frozenset({Layer.COUNTERS})
        code = OmissionCode.NO_TIME
        return (Omission(reason, self.strange, rank, loss=True, code=code, layers=counters),)

    def tables(
        self, process: Callable[[object], str], strings: StringPool
    ) -> tuple[CounterSeries, CounterSamples]:
        """The series that have samples, grouped by the name of their process, and all samples."""
        samples = self._samples.build()
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
            "value": scaled(samples.value, factors[samples.series]),
        }
        return series, CounterSamples.of(len(samples), columns)


def _count_strange(values: ArgValues, numbers: Rows) -> int:
    """How many values are neither at these rows nor say that there is none."""
    others = np.ones(len(values.value), np.bool_)
    others[numbers] = False
    rest = values[np.flatnonzero(others)].objects()
    return sum(
        value is not None and not (type(value) is str and value in NO_TEXT) for value in rest
    )


def _labels(ids: Mapping[str, ArgValues], count: int) -> tuple[list[str], Int64]:
    """The distinct labels that ids make, and which one each of some events has."""
    if not ids:
        return [""], constant(0, count, np.int64)
    if len(ids) == 1:
        ((name, values),) = ids.items()
        if values.are_whole():
            found, which = distinct_as_met(values.value)
            return [f" {name[:-3]} {value}" for value in found.tolist()], which
    seen: Interner[tuple[Any, ...]] = Interner()
    objects = (_distinct(values.objects()) for values in ids.values())
    which = seen.of(list(zip(*objects, strict=True)))
    labels = [
        "".join(f" {name[:-3]} {value}" for name, value in zip(ids, values, strict=True))
        for values in seen
    ]
    return labels, which


def _distinct(values: Sequence[Any]) -> Iterable[Any]:
    """The values as they are where those are equal that are spelled alike; else their spelling."""
    return values if set(map(type, values)) in ({int}, {str}) else map(str, values)
