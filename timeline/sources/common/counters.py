"""Counters: building tables of their samples, naming series and units, reading counter events."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from timeline.columns.columns import Bool, Codes, Float64, Int64, Rows, TableBuilder
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct, distinct_as_met, distinct_values
from timeline.columns.group_by import group_by
from timeline.columns.strings import NO_TEXT, Interner, StringPool
from timeline.layers import Layer
from timeline.records.not_given import NO_ID
from timeline.records.tables import CounterSamples, CounterSeries, Omission, OmissionCode
from timeline.sources.common.counter_tables import CounterTable
from timeline.sources.decoders.csv_blocks import Block

if TYPE_CHECKING:
    from timeline.sources.decoders.event_columns import ArgValues, EventColumns

SIZES = {"B": 1, "KB": 1 << 10, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
"""Bytes by unit: exporters divide by powers of 1024."""


@dataclass(frozen=True)
class Labels:
    """The labels that distinguish the series of one table.

    texts: (k,) labels, inserted for `{}` in names of series. which: (n,) the index of each row's
    label. endings: (k,) appended to the names, or empty.
    """

    texts: Sequence[str]
    which: Int64
    endings: Sequence[str] = ()

    def series_name(self, pattern: str, at: int) -> str:
        """Return the name of the series of one label; blanks around an empty one are removed."""
        name = " ".join(pattern.format(self.texts[at]).split())
        return name + self.endings[at] if self.endings else name


class CounterBuilder:
    """Collector of samples of series, which are identified by group, name and unit."""

    def __init__(self) -> None:
        self._series: Interner[tuple[str, str, str]] = Interner()
        self._samples: list[CounterSamples] = []

    def __len__(self) -> int:
        return sum(len(part) for part in self._samples)

    def add(self, group: str, name: str, unit: str, time_ns: Int64, values: Float64) -> None:
        """Add samples to a series; do not create one for no samples."""
        if len(values):
            (row,) = self._series.of([(group, name, unit)]).tolist()
            self._append(constant(row, len(values), np.int64), time_ns, values)

    def add_table(
        self,
        table: CounterTable,
        time_ns: Int64,
        values: Mapping[str, Float64],
        tags: Mapping[str, Int64 | Codes],
        kind_name: Callable[[int], str],
    ) -> int:
        """Add the samples of a table; cut its columns to the shortest one if it is damaged.

        Args:
            values: by column.
            tags: the columns of labels and kinds, with NO_ID for none.
            kind_name: returns the name of a kind; lower-case words such as read are capitalised,
                names such as PTA stay as they are.

        Returns:
            The number of samples left out because all samples of their series are zero.
        """
        count = min(len(time_ns), *map(len, values.values()), *map(len, tags.values()))
        columns = {name: tags[name][:count] for name in (table.label, table.kind) if name}
        groups = group_by(count, columns.values())
        texts = [""] * len(groups.first)
        for name, column in columns.items():
            for at, value in enumerate(column[groups.first].tolist()):
                if value != NO_ID:
                    word = str(value) if name == table.label else kind_name(value)
                    if name == table.kind and word.islower():
                        word = word.capitalize()
                    texts[at] = f"{texts[at]} {word}".strip()
        labels = Labels(texts, groups.group)
        return sum(
            self.add_column(table, name, labels, time_ns[:count], column[:count])
            for name, column in values.items()
        )

    def add_column(
        self,
        table: CounterTable,
        column: str,
        labels: Labels,
        time_ns: Int64,
        values: Float64,
        unit: str | None = None,
    ) -> int:
        """Add the samples of one column of a table, with one series for each label.

        Args:
            unit: the unit of the values if the table does not declare it.

        Returns:
            The number of samples left out because all samples of their series are zero.
        """
        which, idle = labels.which, 0
        if table.skips_idle:
            is_busy = np.zeros(len(labels.texts), np.bool_)
            is_busy[which[values != 0]] = True
            busy = is_busy[which]
            idle = int(np.count_nonzero(~busy))
            which, time_ns, values = which[busy], time_ns[busy], values[busy]
        if not len(values):
            return idle
        series = table.values[column]
        used = distinct(which)
        keys = [
            (
                table.group,
                labels.series_name(series.name, at),
                series.unit if unit is None else unit,
            )
            for at in used.tolist()
        ]
        rows = np.zeros(len(labels.texts), np.int64)
        rows[used] = self._series.of(keys)
        self._append(rows[which], time_ns, scaled(values, series.factor))
        return idle

    def _append(self, series: Int64, time_ns: Int64, values: Float64) -> None:
        columns = {"time_ns": time_ns, "series": series, "value": values}
        self._samples.append(CounterSamples.of(len(values), columns))

    def tables(self, strings: StringPool) -> tuple[CounterSeries, CounterSamples]:
        """Return all series and all samples."""
        return _series_table(self._series, strings), CounterSamples.concat(self._samples)


def _series_table(keys: Collection[tuple[str, str, str]], strings: StringPool) -> CounterSeries:
    """Return the table of series from their groups, names and units."""
    columns = zip(*keys, strict=True) if keys else ((),) * 3
    coded = zip(("group", "name", "unit"), map(strings.codes, columns), strict=True)
    return CounterSeries.of(len(keys), dict(coded))


def scaled(values: Float64, factor: int | Int64) -> Float64:
    """Multiply values by a factor; values that become too large are infinite."""
    with np.errstate(over="ignore"):
        return values * factor


def whole_bytes(values: Float64, unit: str) -> tuple[Float64, str]:
    """Convert sizes to bytes if all become whole numbers; else return them unchanged.

    >>> whole_bytes(np.array([935.9951171875]), "MB")
    (array([9.81462016e+08]), 'B')
    """
    factor = SIZES.get(unit)
    if factor is None:
        return values, unit
    sizes = scaled(values, factor)
    finite = sizes[np.isfinite(sizes)]
    return (sizes, "B") if (finite == np.rint(finite)).all() else (values, unit)


_IN_BRACKETS = re.compile(r"(.*)\(([^()]+)\)")
_UNITS = frozenset({"MHz", "KB", "MB", "GB", "%", "B/s", "MB/s", "GB/s", "mV", "W"})
_HIT_RATE = "Hit Rate"


def factor_of(name: str, unit: str) -> int:
    """Return the factor that converts values of counter events to the unit of their series.

    Hit rates are fractions, although their args are named Hit Rate(%).
    """
    return 100 if unit == "%" and name.endswith(_HIT_RATE) else 1


def name_and_unit(event: str, key: str, keys: int) -> tuple[str, str]:
    """Return the series name and unit of one arg of a counter event.

    Args:
        event: name of the event, such as "HBM 0/Read".
        key: name of the arg, such as "Read(MB/s)", "KB" or "value".
        keys: number of values of the event; with one, the series has the name of the event.

    >>> name_and_unit("HBM 0/Read", "Read(MB/s)", 1)
    ('HBM 0/Read', 'MB/s')
    >>> name_and_unit("APP/DDR", "KB", 1)
    ('APP/DDR', 'KB')
    """
    match = _IN_BRACKETS.fullmatch(key)
    unit = match[2] if match else key if key in _UNITS else ""
    label = match[1] if match else key
    return (event if keys == 1 else f"{event} {label}"), unit


def column_name(column: str) -> str:
    """Return the name of a column without its unit: "Total Reserved" of "Total Reserved(MB)"."""
    match = _IN_BRACKETS.fullmatch(column)
    return match[1].strip() if match else column


def column_unit(column: str) -> str:
    """Return the unit of a column, empty if it has none: "MB" of "Total Reserved(MB)"."""
    match = _IN_BRACKETS.fullmatch(column)
    return match[2] if match else ""


DEVICES = ("Device_id", "Device Type", "Device")
"""Names of the column of devices in tables."""
_DEVICE = re.compile(r"(?:NPU:)?([0-9]{1,9})")


def first_of(names: Sequence[str], block: Block) -> str:
    """Return the first of some columns that a table has, empty if it has none of them."""
    return next((name for name in names if name in block), "")


def select_device_rows(block: Block, device: int | None) -> Bool:
    """Return a mask of the rows of a device, all if it is None; rows without one belong to all."""
    column = first_of(DEVICES, block)
    if device is None or not column:
        return np.ones(len(block), np.bool_)
    seen: dict[str, int] = {}
    positions = block.positions(column, seen)
    of_device: Bool = np.isin(
        positions,
        [
            at
            for text, at in seen.items()
            if (match := _DEVICE.fullmatch(text)) is None or int(match[1]) == device
        ],
    )
    return of_device


# -- counter events --------------------------------------------------------------------------------


_SeriesKey = tuple[object, str, str]
"""Process id, name and unit of a series."""


@dataclass(frozen=True)
class CounterEvents:
    """Counter events with the same process, name and keys of args."""

    pid: object
    name: str
    keys: Sequence[str]
    time_ns: Int64
    """(n,)"""
    args: ArgValues
    """Values of all keys of the first event, then of the second, and so on."""

    def values(self, at: int) -> ArgValues:
        """Return the values of the arg whose key has this position, (n,)."""
        return self.args[at :: len(self.keys)]


def counters_at(events: EventColumns, rows: Rows) -> Iterator[CounterEvents]:
    """Yield the counter events at some rows, grouped, except those without args."""
    groups, group_of = distinct_values(events.group[rows])
    if len(groups) <= np.iinfo(np.uint16).max:
        group_of = group_of.astype(np.uint16)  # NumPy sorts 16-bit integers in linear time
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
                events.flat.value[args.reshape(-1)],
            )


@dataclass
class CounterReader:
    """Collector of samples in counter events, and of their series."""

    strange: int = 0
    """Number of samples whose value is not a number."""
    _series: Interner[_SeriesKey] = field(default_factory=Interner)
    _samples: TableBuilder[CounterSamples] = field(
        default_factory=lambda: TableBuilder(CounterSamples)
    )

    def add(self, parts: Iterable[CounterEvents]) -> None:
        """Add the samples in counter events."""
        self._samples.add(
            CounterSamples.concat([samples for part in parts for samples in self._samples_of(part)])
        )

    def _samples_of(self, part: CounterEvents) -> Iterator[CounterSamples]:
        """Yield a table of samples for each arg, except args named *_id, which label series."""
        ids = {key: part.values(at) for at, key in enumerate(part.keys) if key.endswith("_id")}
        sampled = [(at, key) for at, key in enumerate(part.keys) if key not in ids]
        labels, which = _labels(ids, len(part.time_ns))
        for at, key in sampled:
            series, unit = name_and_unit(part.name, key, len(sampled))
            rows = self._series.of([(part.pid, series + label, unit) for label in labels])
            args = part.values(at)
            good, values = args.reals()
            if len(good) < len(part.time_ns):
                self.strange += _count_strange(args, good)
            yield CounterSamples(part.time_ns[good], rows[which][good], values)

    def omissions(self, rank: int) -> tuple[Omission, ...]:
        """Return an omission of the samples whose value is not a number, if there are any."""
        if not self.strange:
            return ()
        reason, counters = "samples of counters that are not numbers", frozenset({Layer.COUNTERS})
        code = OmissionCode.NO_TIME
        return (Omission(reason, self.strange, rank, loss=True, code=code, layers=counters),)

    def tables(
        self, process: Callable[[object], str], strings: StringPool
    ) -> tuple[CounterSeries, CounterSamples]:
        """Return the series with samples and all samples; `process` names the group of a pid."""
        samples = self._samples.build()
        keys = list(self._series)
        rows: dict[tuple[str, str, str], int] = {}
        renumbered = np.zeros(len(keys), np.int64)
        for old in distinct(samples.series).tolist():
            pid, name, unit = keys[old]
            renumbered[old] = rows.setdefault((process(pid), name, unit), len(rows))
        if not rows:
            return CounterSeries.empty(), CounterSamples.empty()
        factors = np.array([factor_of(name, unit) for _, name, unit in keys])
        values = scaled(samples.value, factors[samples.series])
        samples = CounterSamples(samples.time_ns, renumbered[samples.series], values)
        return _series_table(rows, strings), samples


def _count_strange(values: ArgValues, numbers: Rows) -> int:
    """Count the values that are not numbers; null and strings such as N/A mean no value."""
    others = np.ones(len(values.value), np.bool_)
    others[numbers] = False
    rest = values[np.flatnonzero(others)].objects()
    return sum(
        value is not None and not (type(value) is str and value in NO_TEXT) for value in rest
    )


def _labels(ids: Mapping[str, ArgValues], count: int) -> tuple[list[str], Int64]:
    """Return distinct labels such as " die 0" from ids by name, and each event's index in them."""
    if not ids:
        return [""], constant(0, count, np.int64)
    if len(ids) == 1:
        ((name, values),) = ids.items()
        if values.are_whole():
            distinct_ids, which = distinct_as_met(values.value)
            return [f" {name[:-3]} {value}" for value in distinct_ids.tolist()], which
    seen: Interner[tuple[Any, ...]] = Interner()
    objects = [values.objects() for values in ids.values()]
    # Equal values that are written differently, such as 3 and 3.0, are distinct.
    columns = (
        column if set(map(type, column)) in ({int}, {str}) else [str(value) for value in column]
        for column in objects
    )
    which = seen.of(list(zip(*columns, strict=True)))
    labels = [
        "".join(f" {name[:-3]} {value}" for name, value in zip(ids, values, strict=True))
        for values in seen
    ]
    return labels, which
