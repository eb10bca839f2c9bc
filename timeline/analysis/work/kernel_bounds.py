"""Bounds of kernels: their busiest pipe, their cores and clock, and the time outside of these.

All of it follows from sums over kernels that are weighted by their duration, so that the sums of
operators, types or a whole rank are those of their kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import ColumnTable, Float64, Int64, Rows, column
from timeline.columns.distinct import rows_by_value
from timeline.columns.group_by import sum_rows
from timeline.records.kernel_metrics import (
    CUBE_SIDE,
    PIPES,
    VECTOR_SIDE,
    CoreCounts,
    KernelMetrics,
)
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Tasks

LEAST_BOUND = 0.3
"""If no pipe is busy for a larger share of the time, latency bounds a kernel: it has too little
work, or its instructions wait for each other."""
LATENCY = "latency"


class KernelSums(ColumnTable):
    """Sums over the kernels of an operator, one row each.

    operator: row in OperatorTimes. measured_ns: duration of kernels with a ratio of any pipe.
    timed_ns: duration of kernels with a time in the cores, which core_ns sums. cycles: of all
    cores, and block_core_ns the time in the cores times blocks, of kernels with both. split_ns:
    duration of kernels with a number of blocks, and block_ns the same times blocks.
    """

    operator: Int64 = column(np.int64)
    measured_ns: Int64 = column(np.int64, 0)
    timed_ns: Int64 = column(np.int64, 0)
    core_ns: Int64 = column(np.int64, 0)
    cycles: Int64 = column(np.int64, 0)
    block_core_ns: Int64 = column(np.int64, 0)
    split_ns: Int64 = column(np.int64, 0)
    block_ns: Int64 = column(np.int64, 0)


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
    number of cores in use, the mean of the kernels weighted by duration. outside_core: share of the
    duration in which no core runs the kernel, for launch and synchronisation of its blocks.
    """

    bound: npt.NDArray[np.object_]
    bound_share: Float64
    next_pipe: npt.NDArray[np.object_]
    next_share: Float64
    cores: Float64
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
        cls, tasks: Tasks, rows: Rows, operator: Int64, metrics: KernelMetrics, cores: CoreCounts
    ) -> KernelTotals:
        """Sum the kernels among tasks.

        rows: of the tasks. operator: (rows,) row in OperatorTimes of each. cores: of the device,
        which run as many blocks at a time.
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
        core_ns = {side: metrics.core_ns(side)[at] for side in (CUBE_SIDE, VECTOR_SIDE)}
        longest_ns = np.maximum(core_ns[CUBE_SIDE], core_ns[VECTOR_SIDE])
        blocks = np.maximum(tasks.blocks[rows], 0)
        on_cube = core_ns[CUBE_SIDE] > 0
        most = np.where(on_cube, cores.cube, cores.vector)
        blocks = np.where(most != NO_ID, np.minimum(blocks, most), blocks)
        own_core_ns = np.where(on_cube, core_ns[CUBE_SIDE], core_ns[VECTOR_SIDE])
        cycles = np.where(on_cube, metrics.cycles(CUBE_SIDE)[at], metrics.cycles(VECTOR_SIDE)[at])
        clocked = (own_core_ns > 0) & (blocks > 0) & (cycles > 0)
        sums = KernelSums.of(
            len(rows),
            operator=operator,
            measured_ns=np.where(given, duration_ns, 0),
            timed_ns=np.where(longest_ns > 0, duration_ns, 0),
            core_ns=_whole(longest_ns),
            cycles=_whole(np.where(clocked, cycles, 0)),
            block_core_ns=_whole(np.where(clocked, own_core_ns * blocks, 0)),
            split_ns=np.where(blocks > 0, duration_ns, 0),
            block_ns=duration_ns * blocks,
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
        core_ns = int(self.sums.block_core_ns.sum())
        return float(self.sums.cycles.sum()) / core_ns * 1e9 if core_ns else 0.0

    def bounds(self, group: Int64, groups: int) -> Bounds:
        """Return what bounds each group of operators.

        group: (operators,) of each row of OperatorTimes.
        """
        sums = {name: np.zeros(groups, np.int64) for name in _SUMS}
        for name, total in sums.items():
            np.add.at(total, group[self.sums.operator], getattr(self.sums, name))
        busy_ns = np.zeros((groups, 2, len(PIPES)))
        pipes = self.pipes
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
            cores=_quotient(sums["block_ns"], sums["split_ns"]),
            clock_ghz=_quotient(sums["cycles"], sums["block_core_ns"]),
            outside_core=1 - np.minimum(_quotient(sums["core_ns"], sums["timed_ns"]), 1),
        )


class KernelRuns(ColumnTable):
    """First run, other runs and gaps of each operator, one row each.

    operator: row in OperatorTimes. first_ns: duration of its first run; median_ns: of the others,
    or of that one if there are no others. gap_ns: median time from the end of a kernel to the start
    of the next one on its stream, NO_TIME if none follows.
    """

    operator: Int64 = column(np.int64)
    first_ns: Int64 = column(np.int64)
    median_ns: Int64 = column(np.int64)
    gap_ns: Int64 = column(np.int64, NO_TIME)

    @classmethod
    def of_tasks(cls, tasks: Tasks, rows: Rows, operator: Int64) -> KernelRuns:
        """Return the runs of each operator.

        rows: of the tasks that compute. operator: (rows,) row in OperatorTimes of each.
        """
        order = np.lexsort((tasks.start_ns[rows], tasks.stream[rows]))
        rows, operator = rows[order], operator[order]
        start_ns, end_ns = tasks.start_ns[rows], tasks.end_ns[rows]
        stream = tasks.stream[rows]
        follows = np.append(stream[1:] == stream[:-1], False)
        gap_ns = np.append(start_ns[1:], 0) - end_ns
        runs = []
        for one, places in rows_by_value(operator):
            durations_ns = (end_ns - start_ns)[places]
            first = int(np.argmin(start_ns[places]))
            others_ns = np.delete(durations_ns, first) if len(places) > 1 else durations_ns
            gaps_ns = np.maximum(gap_ns[places][follows[places]], 0)
            gap = int(np.median(gaps_ns)) if len(gaps_ns) else int(NO_TIME)
            runs.append((one, int(durations_ns[first]), int(np.median(others_ns)), gap))
        columns = np.array(runs, np.int64).reshape(-1, 4).T
        return cls(*(np.ascontiguousarray(values) for values in columns))


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


def _whole(values: Float64) -> Int64:
    return np.rint(values).astype(np.int64)


def _quotient(values: npt.NDArray[Any], of: Int64) -> Float64:
    """Return values / of, NaN where that is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(of > 0, values / of, np.nan)
