"""Records of ranks whose every column may hold extremes: ids, times, names, amounts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from tests.support.random_intervals import EPOCH_NS
from timeline.columns.columns import ColumnTable, Int64
from timeline.columns.strings import StringPool
from timeline.ranges import FURTHEST_NS, LARGEST_ID
from timeline.records.clock import Clock
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import (
    GPU,
    CommunicationOps,
    CounterSamples,
    CounterSeries,
    FlowEnd,
    Flows,
    HostEvents,
    PlaneTasks,
    Records,
    StepPart,
    StepParts,
    Steps,
    Tasks,
)
from timeline.sources.source import Identity, ReadRequest

IDS = (
    *(0, 1, 2, 7, (1 << 16) - 1, (1 << 31) - 1, 1 << 31, NO_GRAPH, 1 << 32, 1 << 53),
    *(LARGEST_ID - 1, LARGEST_ID, NO_ID, -2, -LARGEST_ID, -LARGEST_ID - 1),
)
"""The ends of every type of number that an id passes through, and what stands for none."""
REALS = (0.0, -0.0, 1.0, -1.5, 1e-308, 1.7e308, 2.0**53 + 1, np.nan, np.inf, -np.inf)
LENGTHS_NS = (0, 1, 2, 999, 10**6, 10**12, 86_400 * 10**9, 1 << 61)
BASES_NS = (
    *(0, 1, -1, 10**9, EPOCH_NS, -EPOCH_NS),
    *(FURTHEST_NS - 10**9, FURTHEST_NS, -FURTHEST_NS, -FURTHEST_NS + 10**9),
)
"""Where profiles begin."""
LONG_NAME = "n" * (1 << 20)
NAMES: tuple[str, ...] = (
    *("", "N/A", "MatMul", "Add", "Add", "hcom_allReduce__123_0", "ProfilerStep#2", "Iteration 1"),
    *("aten::mm", "Computing", "Free", "Communication", "Counters", "Group 0", "Plane 0"),
    *(
        "\x00",
        "\x1b[31mred",
        "\u202eright to left",
        "a\nb\r\tc",
        '"</script>',
        "=1+1",
        "x\u00b2",
        "Stream " + "9" * 5000,
        "9" * 5000,
        "_Z" + "9" * 5000,
        "Iteration \u0663",
        "\ud7ff\ue000",
    ),
    *("\U0001f389", "Default/network/layer.1/Conv2D-op1", "x" * 70_000, "0" * 400),
)
USUAL_NAMES: tuple[str, ...] = ("MatMul", "Add", "hcom_allReduce__1_0", "aten::mm")
LAYERS = ("Python", "CANN", "Python", "CANN", "HCCL", "Runtime", "Ascend Hardware", "", "Counters")
MOST_ROWS = 8

_Table = TypeVar("_Table", bound=ColumnTable)


@dataclass(frozen=True)
class ExtremeShape:
    """What extremes are drawn from: one number gives one rank of records, always the same.

    calm: the share of columns that hold what profiles hold; empty: that of tables without rows.
    """

    seed: int
    rows: int = MOST_ROWS
    calm: float = 0.6
    empty: float = 0.0


@dataclass(frozen=True)
class ExtremeSource:
    """A rank of such records."""

    rank: int
    shape: ExtremeShape
    clock: Clock = field(default_factory=Clock)
    files: tuple[Path, ...] = ()
    layout: str = "made"

    @property
    def identity(self) -> Identity:
        """See `Source.identity`."""
        return Identity(self.rank, Path(f"rank{self.rank}"))

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        assert wanted.layers
        return extreme_records(self.rank, self.shape)


def extreme_sources(most_rows: int = MOST_ROWS) -> st.SearchStrategy[tuple[ExtremeSource, ...]]:
    """One rank or several, with ids up to the largest."""
    shapes = st.builds(
        ExtremeShape,
        st.integers(0, (1 << 32) - 1),
        st.integers(0, most_rows),
        st.sampled_from((0.3, 0.6, 0.9, 1.0)),
    )
    ranks = st.sampled_from((0, 1, (1 << 16) - 1, 1 << 31, 1 << 53, LARGEST_ID))
    return st.lists(
        st.tuples(ranks, shapes), min_size=1, max_size=3, unique_by=lambda one: one[0]
    ).map(
        lambda found: tuple(ExtremeSource(rank, shape) for rank, shape in sorted(found, key=_rank))
    )


def _rank(one: tuple[int, ExtremeShape]) -> int:
    return one[0]


def extreme_records(rank: int, shape: ExtremeShape) -> Records:
    """One rank of a shape."""
    return _Maker(rank, shape).records()


def with_strings_in_other_order(records: Records) -> Records:
    """The same records, as if the strings had been met in the opposite order."""
    strings = StringPool()
    strings.codes(reversed(list(records.strings)))
    tables: dict[str, Any] = {
        one.name: _renumbered(table, records.strings, strings)
        for one in dataclasses.fields(records)
        if isinstance(table := getattr(records, one.name), ColumnTable)
    }
    return dataclasses.replace(records, strings=strings, **tables)


def _renumbered(table: ColumnTable, before: StringPool, now: StringPool) -> ColumnTable:
    codes = {
        column.name: now.translate(getattr(table, column.name), before)
        for column in dataclasses.fields(table)
        if column.metadata["dtype"] == np.int32
    }
    return dataclasses.replace(table, **codes)


class _Maker:
    def __init__(self, rank: int, shape: ExtremeShape) -> None:
        self._random = np.random.default_rng([shape.seed, rank % (1 << 31)])
        self._rank, self._shape = rank, shape
        self._strings = StringPool()
        self._base_ns = self._one_of(BASES_NS if self._stirred() else (EPOCH_NS,))

    def records(self) -> Records:
        tasks = self._spans(Tasks, compute=self._flags, copy=self._rare_flags)
        ops = self._spans(CommunicationOps)
        host = self._spans(HostEvents, layer=self._layers)
        planes = self._spans(PlaneTasks)
        series = self._table(CounterSeries, {})
        lengths = {
            FlowEnd.HOST: len(host),
            FlowEnd.TASK: len(tasks),
            FlowEnd.OP: len(ops),
            FlowEnd.PLANE: len(planes),
        }
        return Records(
            self._rank,
            self._strings,
            tasks=tasks,
            planes=planes,
            ops=ops,
            steps=self._steps(),
            parts=self._spans(StepParts, kind=self._kinds),
            host=host,
            series=series,
            samples=self._samples(len(series)),
            flows=self._flows(lengths),
            hardware=self._one_of(("Ascend Hardware", "Ascend Hardware", GPU)),
            numbered_ops=bool(self._random.integers(2)),
            records_copies=bool(tasks.copy.any() or self._random.integers(2)),
        )

    # -- tables ------------------------------------------------------------------------------------

    def _spans(self, table: type[_Table], **columns: Any) -> _Table:
        count = self._count()
        start_ns, end_ns = self._intervals(count)
        given = {name: make(count) for name, make in columns.items()}
        return self._table(table, {"start_ns": start_ns, "end_ns": end_ns, **given}, count)

    def _table(
        self, kind: type[_Table], given: Mapping[str, Any], count: int | None = None
    ) -> _Table:
        rows = self._count() if count is None else count
        values: dict[str, Any] = {}
        for column in dataclasses.fields(kind):
            dtype, default = column.metadata["dtype"], column.metadata["default"]
            if column.name in given:
                values[column.name] = given[column.name]
            elif default is not None and self._random.random() < 0.4:
                continue  # as where a source does not tell it
            elif column.name.endswith("_ns"):
                values[column.name] = self._moments(rows)
            elif dtype == np.int64:
                values[column.name] = self._ids(rows)
            elif dtype == np.int32:
                values[column.name] = self._names(rows)
            elif dtype == np.float64:
                values[column.name] = self._reals(rows)
        return kind.of(rows, values)

    def _steps(self) -> Steps:
        steps = self._spans(Steps, host=self._rare_flags)
        if self._stirred():
            return steps
        numbers = np.arange(1, len(steps) + 1)
        return dataclasses.replace(steps, iteration=numbers, graph=np.full(len(steps), NO_GRAPH))

    def _samples(self, series: int) -> CounterSamples:
        count = self._count() if series else 0
        return CounterSamples.of(
            count,
            {
                "time_ns": self._moments(count),
                "series": self._random.integers(0, max(series, 1), count),
                "value": self._reals(count),
            },
        )

    def _flows(self, lengths: Mapping[FlowEnd, int]) -> Flows:
        held = [kind for kind, length in lengths.items() if length]
        count = self._count() if held else 0
        kinds = {
            end: np.array([self._one_of(held) for _ in range(count)], np.int64)
            for end in ("source", "target")
        }
        rows = {
            end: np.array(
                [self._random.integers(lengths[FlowEnd(kind)]) for kind in chosen.tolist()],
                np.int64,
            )
            for end, chosen in kinds.items()
        }
        return Flows.of(
            count,
            {
                "category": self._strings.codes(
                    self._one_of(("launch", "async_npu", "fwdbwd", "\x00")) for _ in range(count)
                ),
                "source_kind": kinds["source"],
                "source_row": rows["source"],
                "target_kind": kinds["target"],
                "target_row": rows["target"],
            },
        )

    # -- columns -----------------------------------------------------------------------------------

    def _count(self) -> int:
        if self._shape.empty and self._random.random() < self._shape.empty:
            return 0
        return int(self._random.integers(0, self._shape.rows + 1))

    def _stirred(self) -> bool:
        return bool(self._random.random() >= self._shape.calm)

    def _one_of(self, values: Any) -> Any:
        return values[int(self._random.integers(len(values)))]

    def _intervals(self, count: int) -> tuple[Int64, Int64]:
        """Intervals: one after the other, all equal, nested, of no length, or anything at all."""
        if not self._stirred():
            steps = self._random.integers(0, 5_000, 2 * count).cumsum()
            return self._base_ns + steps[0::2], self._base_ns + steps[1::2]
        way = int(self._random.integers(5))
        offsets = self._random.integers(0, 10_000, count)
        if way == 0:
            offsets = np.zeros(count, np.int64)
        starts = [self._within(self._base_ns + offset) for offset in offsets.tolist()]
        if way == 1:
            starts = [self._within(self._one_of(BASES_NS)) for _ in range(count)]
        lengths = [self._one_of(LENGTHS_NS) for _ in range(count)]
        if way == 2:
            lengths = [0] * count
        ends = [self._within(start + length) for start, length in zip(starts, lengths, strict=True)]
        if way == 3 and count:
            starts[0], ends[-1] = self._one_of((NO_TIME, ends[0] + 1)), self._one_of((NO_TIME, -1))
        return np.array(starts, np.int64), np.array(ends, np.int64)

    def _within(self, time_ns: int) -> int:
        return max(-(1 << 63), min((1 << 63) - 1, int(time_ns)))

    def _moments(self, count: int) -> Int64:
        if self._stirred():
            found = [self._one_of((*BASES_NS, NO_TIME, self._base_ns)) for _ in range(count)]
            return np.array(found, np.int64)
        moments: Int64 = self._base_ns + self._random.integers(0, 20_000, count)
        return moments

    def _ids(self, count: int) -> Int64:
        if not self._stirred():
            return self._random.integers(0, 4, count)
        if self._random.integers(3) == 0:
            return np.full(count, self._one_of(IDS), np.int64)
        return np.array([self._one_of(IDS) for _ in range(count)], np.int64)

    def _reals(self, count: int) -> Any:
        if not self._stirred():
            return self._random.normal(100.0, 10.0, count)
        return np.array([self._one_of(REALS) for _ in range(count)], np.float64)

    def _names(self, count: int) -> Any:
        names = NAMES if self._stirred() else USUAL_NAMES
        if self._random.random() < 0.002:
            names = (LONG_NAME,)
        return self._strings.codes(self._one_of(names) for _ in range(count))

    def _layers(self, count: int) -> Any:
        layers = LAYERS if self._stirred() else LAYERS[:2]
        return self._strings.codes(self._one_of(layers) for _ in range(count))

    def _flags(self, count: int) -> Any:
        return self._random.random(count) < 0.7

    def _rare_flags(self, count: int) -> Any:
        return self._random.random(count) < 0.1

    def _kinds(self, count: int) -> Int64:
        return np.array([int(self._one_of(tuple(StepPart))) for _ in range(count)], np.int64)
