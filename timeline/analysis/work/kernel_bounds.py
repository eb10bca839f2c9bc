"""Bounds of kernels: busiest pipe, cores in use and clock, as the counters of their cores say.

All of it follows from sums over kernels that are weighted by their duration, so that the sums of
operators, types or a whole rank are those of their kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, ColumnTable, Float64, Int64, Rows, column
from timeline.columns.distinct import distinct_pairs, distinct_values, rows_by_value
from timeline.columns.group_by import sum_by, sum_rows
from timeline.records.kernel_metrics import (
    CUBE_SIDE,
    PIPES,
    VECTOR_SIDE,
    CoreCounts,
    KernelMetrics,
)
from timeline.records.not_given import NO_ID
from timeline.records.tables import Tasks

LEAST_BOUND = 0.3
"""If no pipe is busy for a larger share of the time, latency bounds a kernel: it has too little
work, or its instructions wait for each other."""
LATENCY = "latency"
_FASTEST_MHZ = 1900
"""No clock of an AI Core is faster: Ascend 310 to 910C run at 680 to 1850 MHz."""
_MOST_WHOLE = 1 << 62
_LEAST_CORE_NS = 1000
"""Minimum time in the cores for its rounding to a nanosecond not to change a clock by much."""


class KernelSums(ColumnTable):
    """Sums over the kernels of an operator, one row each.

    operator: row in OperatorTimes. measured_ns: duration of kernels with a ratio of any pipe.
    timed_ns: duration of kernels with a time in the cores, which core_ns sums. cycles: of all
    cores, which a single core would take clocked_ns for. split_ns: duration of kernels with a
    number of cores in use, and cores_ns the same times cores; counted_ns: duration of those among
    them whose cores follow from cycles, not from blocks.
    """

    operator: Int64 = column(np.int64)
    measured_ns: Int64 = column(np.int64, 0)
    timed_ns: Int64 = column(np.int64, 0)
    core_ns: Int64 = column(np.int64, 0)
    cycles: Int64 = column(np.int64, 0)
    clocked_ns: Int64 = column(np.int64, 0)
    split_ns: Int64 = column(np.int64, 0)
    cores_ns: Int64 = column(np.int64, 0)
    counted_ns: Int64 = column(np.int64, 0)


_SUMS = tuple(KernelSums.__annotations__)[1:]


class PipeTimes(ColumnTable):
    """Time in which a pipe was busy, a row per operator, side of the cores and pipe.

    operator: row in OperatorTimes. pipe: position in PIPES. busy_ns: duration of its kernels times
    the ratio of the pipe.
    """

    operator: Int64 = column(np.int64)
    side: Int64 = column(np.int64)
    pipe: Int64 = column(np.int64)
    busy_ns: Float64 = column(np.float64)


@dataclass(frozen=True)
class Bounds:
    """Bounds of groups of kernels, (groups,); all but the bound are NaN if unknown.

    bound: name of a pipe or LATENCY, empty if no ratio was measured. bound_share: share of the time
    in which the busiest pipe is busy. next_pipe, next_share: the same of the second busiest. cores:
    number of cores in use, the mean of the kernels weighted by duration. are_counted: True if most
    of that follows from cycles, so that cores count only while they are busy. outside_core: share
    of the duration in which no core runs the kernel, for launch and synchronisation of its blocks.
    """

    bound: npt.NDArray[np.object_]
    bound_share: Float64
    next_pipe: npt.NDArray[np.object_]
    next_share: Float64
    cores: Float64
    are_counted: Bool
    clock_ghz: Float64
    outside_core: Float64


@dataclass(frozen=True, slots=True)
class KernelTotals:
    """Measurements of the cores, summed by operator; cores: how many the device has."""

    sums: KernelSums = field(default_factory=KernelSums.empty)
    pipes: PipeTimes = field(default_factory=PipeTimes.empty)
    cores: CoreCounts = CoreCounts()

    def __bool__(self) -> bool:
        return len(self.sums) > 0

    @classmethod
    def of(
        cls,
        tasks: Tasks,
        rows: Rows,
        operator: Int64,
        metrics: KernelMetrics,
        cores: CoreCounts,
        seen: CoreCounts,
    ) -> KernelTotals:
        """Sum the kernels among tasks.

        Blocks beyond the cores run in waves; the time in the cores, as profilers write it, is that
        of a mean block times waves. Where blocks or the number of cores are not recorded, cores in
        use follow from cycles and clock.

        Args:
            tasks, metrics: of the whole rank.
            rows: of the tasks.
            operator: (rows,) row in OperatorTimes of each.
            cores: of the device.
            seen: see `cores_seen`, in place of what is not recorded of the device.
        """
        measured = tasks.metrics[rows] != NO_ID
        rows, operator = rows[measured], operator[measured]
        at = tasks.metrics[rows]
        duration_ns = tasks.end_ns[rows] - tasks.start_ns[rows]
        given = np.zeros(len(rows), np.bool_)
        pipes = []
        for side, pipe, ratios in metrics.ratios:
            ratio = ratios[at]
            given |= ~np.isnan(ratio)
            busy_ns = np.bincount(operator, np.nan_to_num(ratio) * duration_ns)
            busy = np.flatnonzero(busy_ns)
            pipes.append(
                PipeTimes.of(len(busy), operator=busy, side=side, pipe=pipe, busy_ns=busy_ns[busy])
            )
        core_ns = [metrics.core_ns(side)[at] for side in (CUBE_SIDE, VECTOR_SIDE)]
        cycles = [metrics.cycles(side)[at] for side in (CUBE_SIDE, VECTOR_SIDE)]
        longest_ns = np.maximum(*core_ns)
        on_cube = np.where(longest_ns > 0, core_ns[CUBE_SIDE], cycles[CUBE_SIDE]) > 0

        def of_side(cube: Any, vector: Any) -> npt.NDArray[Any]:
            values: npt.NDArray[Any] = np.where(on_cube, cube, vector)
            return values

        own_ns, own_cycles = of_side(*core_ns), of_side(*cycles)
        most, at_once = of_side(cores.cube, cores.vector), of_side(seen.cube, seen.vector)
        stated_mhz = of_side(cores.cube_mhz, cores.vector_mhz)
        mhz = np.where(stated_mhz > 0, stated_mhz, of_side(seen.cube_mhz, seen.vector_mhz))
        blocks = np.maximum(tasks.blocks[rows], 0)
        waves = np.where(most > 0, -(-blocks // np.maximum(most, 1)), 1)
        is_split = (blocks > 0) & ((most > 0) | (blocks <= at_once))
        used = np.where(is_split, blocks / np.maximum(waves, 1), 0)
        is_counted = ~is_split & (own_cycles > 0) & (mhz > 0)
        counted_ns = np.where(is_counted, own_cycles * 1000 / np.maximum(mhz, 1), 0)
        is_clocked = is_counted | (is_split & (own_ns > 0) & (own_cycles > 0))
        sums = KernelSums.of(
            len(rows),
            operator=operator,
            measured_ns=np.where(given, duration_ns, 0),
            timed_ns=np.where(longest_ns > 0, duration_ns, 0),
            core_ns=_whole(longest_ns),
            cycles=_whole(np.where(is_clocked, own_cycles, 0)),
            clocked_ns=_whole(np.where(is_clocked, own_ns * used + counted_ns, 0)),
            split_ns=np.where(is_split | is_counted, duration_ns, 0),
            cores_ns=_whole(duration_ns * used + counted_ns),
            counted_ns=np.where(is_counted, duration_ns, 0),
        )
        return cls(sum_rows(sums, ("operator",), _SUMS)[0], PipeTimes.concat(pipes))

    @classmethod
    def join(
        cls, parts: Iterable[KernelTotals], operator: Int64, cores: CoreCounts
    ) -> KernelTotals:
        """Return the sums of all parts; operator: the row of each operator of theirs."""
        parts = list(parts)
        sums = KernelSums.concat(part.sums for part in parts)
        pipes = PipeTimes.concat(part.pipes for part in parts)
        moved = replace(sums, operator=operator[sums.operator])
        return cls(
            sum_rows(moved, ("operator",), _SUMS)[0],
            replace(pipes, operator=operator[pipes.operator]),
            cores,
        )

    @property
    def clock_hz(self) -> float:
        """Return the clock of the cores over all kernels, 0 if not measured."""
        clocked_ns = int(self.sums.clocked_ns.sum())
        return float(self.sums.cycles.sum()) / clocked_ns * 1e9 if clocked_ns else 0.0

    def bounds(self, group: Int64, groups: int) -> Bounds:
        """Return what bounds each group of operators.

        group: (operators,) of each row of OperatorTimes.
        """
        return bounds_of([(self, group)], groups)


def bounds_of(parts: Iterable[tuple[KernelTotals, Int64]], groups: int) -> Bounds:
    """Return what bounds groups of operators of several ranks, from the sums over all of them.

    parts: the totals of each rank, and the group of each row of its OperatorTimes.
    """
    sums = {name: np.zeros(groups, np.int64) for name in _SUMS}
    busy_ns = np.zeros((groups, 2, len(PIPES)))
    for kernels, group in parts:
        for name, total in sums.items():
            np.add.at(total, group[kernels.sums.operator], getattr(kernels.sums, name))
        pipes = kernels.pipes
        np.add.at(busy_ns, (group[pipes.operator], pipes.side, pipes.pipe), pipes.busy_ns)
    share = _quotient(busy_ns.max(axis=1), sums["measured_ns"][:, None])
    order = np.argsort(-share, axis=1, kind="stable")
    shares = np.take_along_axis(share, order, axis=1)
    pipe, bound_share = order[:, 0], shares[:, 0]
    names = np.array([*PIPES, LATENCY, ""], object)
    pipe = np.where(bound_share >= LEAST_BOUND, pipe, len(PIPES))
    return Bounds(
        bound=names[np.where(np.isnan(bound_share), len(PIPES) + 1, pipe)],
        bound_share=bound_share,
        next_pipe=names[order[:, 1]],
        next_share=shares[:, 1],
        cores=_quotient(sums["cores_ns"], sums["split_ns"]),
        are_counted=2 * sums["counted_ns"] > sums["split_ns"],
        clock_ghz=_quotient(sums["cycles"], sums["clocked_ns"]),
        outside_core=1 - np.minimum(_quotient(sums["core_ns"], sums["timed_ns"]), 1),
    )


_ALIKE = 1.4
"""Quotient of durations up to which one median stands for both."""
_LEAST_OF_KIND = 3
"""Minimum number of runs of one name, shape and stream for a median of their own."""


class KernelRuns(ColumnTable):
    """First run and other runs of each operator, one row each.

    A run is the kernels of one call, or a kernel without a call.

    operator: row in OperatorTimes. count: number of its runs. first_ns: duration of the first;
    median_ns: of the others, or of that one if there are no others. least_ns, most_ns: shortest and
    longest run. alike: 0 if a median hides that runs differ: their quartiles, or the medians of
    their streams, names and shapes, are more than `_ALIKE` apart.
    """

    operator: Int64 = column(np.int64)
    count: Int64 = column(np.int64)
    first_ns: Int64 = column(np.int64)
    median_ns: Int64 = column(np.int64)
    least_ns: Int64 = column(np.int64)
    most_ns: Int64 = column(np.int64)
    alike: Int64 = column(np.int64, 1)

    @classmethod
    def of_tasks(cls, tasks: Tasks, rows: Rows, operator: Int64) -> KernelRuns:
        """Return the runs of each operator.

        rows: of the tasks that compute. operator: (rows,) row in OperatorTimes of each.
        """
        start_ns, calls = tasks.start_ns[rows], tasks.call[rows]
        kernels_ns = tasks.end_ns[rows] - start_ns
        calls = np.where(calls == NO_ID, -1 - np.arange(len(calls)), calls)
        _, kind = distinct_pairs(
            tasks.name[rows].astype(np.int64), tasks.input_shapes[rows].astype(np.int64)
        )
        _, kind = distinct_pairs(kind, tasks.stream[rows])
        runs = []
        for one, places in rows_by_value(operator):
            distinct_calls, run = distinct_values(calls[places])
            durations_ns = sum_by(run, kernels_ns[places], len(distinct_calls))
            first = int(run[np.argmin(start_ns[places])])
            others_ns = np.delete(durations_ns, first) if len(durations_ns) > 1 else durations_ns
            first_ns, median_ns = int(durations_ns[first]), int(np.median(others_ns))
            kinds = np.zeros(len(durations_ns), np.int64)
            kinds[run] = kind[places]
            kinds = np.delete(kinds, first) if len(kinds) > 1 else kinds
            ends = int(durations_ns.min()), int(durations_ns.max())
            alike = int(_are_alike(others_ns, kinds))
            runs.append((one, len(durations_ns), first_ns, median_ns, *ends, alike))
        columns = np.array(runs, np.int64).reshape(-1, 7).T
        return cls(*(np.ascontiguousarray(values) for values in columns))


def warm_rows(start_ns: Int64, operator: Int64) -> Rows:
    """Return the rows of all runs but the first of operators with several.

    start_ns, operator: (runs,) of each.
    """
    order = np.argsort(start_ns, kind="stable")
    _, first, count = np.unique(operator[order], return_index=True, return_counts=True)
    return np.delete(np.arange(len(order)), order[first[count > 1]])


def _are_alike(durations_ns: Int64, kind: Int64) -> bool:
    """Return whether one median stands for runs of several kinds; of single runs, quartiles say."""
    low, high = np.quantile(durations_ns, (0.25, 0.75))
    medians = [
        np.median(durations_ns[places])
        for _, places in rows_by_value(kind)
        if len(places) >= _LEAST_OF_KIND
    ]
    return bool(max([high, *medians]) <= _ALIKE * min([low, *medians]))


def cores_seen(tasks: Tasks, metrics: KernelMetrics) -> CoreCounts:
    """Return how many blocks each side of the cores is seen to run at a time, and at what clock.

    Cycles / blocks / time in the cores is the clock divided by the waves of a kernel. Above half of
    the fastest clock it is the clock itself, and all blocks ran in one wave. A single block always
    does; the clock is NO_ID if no kernel shows it.
    """
    if not len(metrics):
        return CoreCounts()
    rows = np.flatnonzero(tasks.metrics != NO_ID)
    at, blocks = tasks.metrics[rows], tasks.blocks[rows]
    most, mhz = list[int](), list[int]()
    for side in (CUBE_SIDE, VECTOR_SIDE):
        core_ns, cycles = metrics.core_ns(side)[at], metrics.cycles(side)[at]
        fastest = core_ns * blocks * (_FASTEST_MHZ / 1000)
        is_one_wave = (core_ns >= _LEAST_CORE_NS) & (2 * cycles > fastest) & (cycles <= fastest)
        clocks_mhz = (cycles * 1000)[is_one_wave] / (core_ns * blocks)[is_one_wave]
        most.append(int(blocks[is_one_wave].max(initial=1)))
        mhz.append(round(float(np.median(clocks_mhz))) if len(clocks_mhz) else NO_ID)
    return CoreCounts(*most, *mhz)


def bound_of_each(metrics: KernelMetrics) -> tuple[Int64, Float64]:
    """Return the position in PIPES of each kernel's busiest pipe, (kernels,), and its ratio.

    The position is len(PIPES) if latency bounds the kernel; the ratio is NaN if none was measured.
    """
    shares = np.full((len(PIPES), len(metrics)), np.nan)
    for _, pipe, ratios in metrics.ratios:
        shares[pipe] = np.fmax(shares[pipe], ratios)
    known = np.nan_to_num(shares, nan=-1)
    pipe, share = known.argmax(axis=0), known.max(axis=0, initial=-1)
    return np.where(share >= LEAST_BOUND, pipe, len(PIPES)), np.where(share < 0, np.nan, share)


def _whole(values: npt.NDArray[Any]) -> Int64:
    whole: Int64 = np.rint(np.minimum(values, _MOST_WHOLE)).astype(np.int64)
    return whole


def _quotient(values: npt.NDArray[Any], of: Int64) -> Float64:
    """Return values / of, NaN where that is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(of > 0, values / of, np.nan)
