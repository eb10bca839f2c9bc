"""Bounds of kernels (busiest pipe, cores, clock) and their work, as counters and shapes tell them.

All of it follows from sums over kernels that are weighted by their duration, so that the sums of
operators, types or a whole rank are those of their kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Codes, ColumnTable, Float64, Int64, Rows, column
from timeline.columns.distinct import distinct_values, rows_by_value
from timeline.columns.group_by import group_by, sum_rows
from timeline.columns.strings import NO_NAME, StringPool
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


# -- work from shapes ------------------------------------------------------------------------------


Shape = tuple[int, ...]
_PRODUCT = re.compile(r"(?:batch)?mat_?mul|^(?:aten::)?(?:mm|addmm|bmm|baddbmm|linear)$|gemm", re.I)
_CONVOLUTION = re.compile(r"^conv[23]d$|^(?:aten::)?_?conv(?:olution|[12]d)", re.I)
_UNKNOWN_WORK = re.compile(r"grouped|conv|attention|quant", re.I)
"""Types whose operations shapes do not tell, unless they are products or convolutions as above."""
_NUMBERS = re.compile(r"\d+")
_MOST_DIGITS = 15
_BITS = re.compile(r"(\d+)$")
_SIZES = {"FLOAT": 4, "DOUBLE": 8, "BOOL": 1, "HALF": 2, "LONG": 8, "INT": 4, "BF16": 2, "C10": 2}
_FAST_TYPES = frozenset({"FLOAT16", "HALF", "BF16", "BFLOAT16", "DT_BF16", "C10::BFLOAT16"})
FLOP_PER_CYCLE = {True: 8192, False: 2048}
"""Operations of a cube core in a cycle: of numbers of 16 bits, and of 32 bits."""


class WorkSums(ColumnTable):
    """Work of an operator that its shapes tell, one row each.

    operator: row in OperatorTimes. flop: operations, of runs that take flop_ns in all. products_ns:
    duration of matrix products and convolutions, whose operations may not be known. moved_bytes:
    inputs and outputs, of runs that take moved_ns. peak_cycles: cycles that one cube core would
    take for flop at its peak.
    """

    operator: Int64 = column(np.int64)
    flop: Float64 = column(np.float64, 0)
    flop_ns: Float64 = column(np.float64, 0)
    products_ns: Float64 = column(np.float64, 0)
    moved_bytes: Float64 = column(np.float64, 0)
    moved_ns: Float64 = column(np.float64, 0)
    peak_cycles: Float64 = column(np.float64, 0)


_WORK_SUMS = tuple(WorkSums.__annotations__)[1:]


@dataclass(frozen=True)
class Work:
    """Work of one run; None if shapes do not tell it. peak_cycles: see `WorkSums`."""

    flop: int | None
    moved_bytes: int | None
    is_product: bool
    peak_cycles: int = 0


def work_of_tasks(
    tasks: Tasks, rows: Rows, kind: Codes, operator: Int64, kinds: StringPool, strings: StringPool
) -> WorkSums:
    """Return the work of tasks, summed by operator.

    rows: of the tasks. kind, operator: (rows,) type among `kinds`, and row in OperatorTimes.
    strings: of the tasks.
    """
    keys = [
        kind.astype(np.int64),
        *(
            names[rows].astype(np.int64)
            for names in (tasks.input_shapes, tasks.output_shapes, tasks.input_types)
        ),
    ]
    groups = group_by(len(rows), keys)
    columns = np.zeros((len(groups.first), len(_WORK_SUMS)))
    for at, (of_kind, inputs, outputs, types) in enumerate(
        zip(*(values[groups.first].tolist() for values in keys), strict=True)
    ):
        if inputs == NO_NAME:
            continue
        work = shape_work(kinds[of_kind], strings[inputs], strings[outputs], strings[types])
        has_flop, has_bytes = work.flop is not None, work.moved_bytes is not None
        columns[at] = (
            work.flop or 0,
            has_flop,
            work.is_product,
            work.moved_bytes or 0,
            has_bytes,
            work.peak_cycles,
        )
    of_task = columns[groups.group]
    duration_ns = tasks.end_ns[rows] - tasks.start_ns[rows]
    for name in ("flop_ns", "products_ns", "moved_ns"):
        of_task[:, _WORK_SUMS.index(name)] *= duration_ns
    by_name = {name: of_task[:, at] for at, name in enumerate(_WORK_SUMS)}
    return _sum_work(operator, by_name)


def _sum_work(operator: Int64, columns: Mapping[str, Float64]) -> WorkSums:
    """Return the sums of columns by operator; real numbers, as operations exceed 64 bits."""
    operators, row = distinct_values(operator)
    count = len(operators)
    sums = {name: np.bincount(row, values, count) for name, values in columns.items()}
    return WorkSums.of(count, operator=operators, **sums)


def shape_work(kind: str, inputs: str, outputs: str, types: str) -> Work:
    """Return the work of one run.

    Args:
        kind: type of the operator.
        inputs, outputs: shapes as profilers write them, such as "32,64;64,10" or "[[32, 64], []]".
        types: of the inputs, such as "FLOAT16;FLOAT16".

    >>> shape_work("MatMulV2", "32,9216;4096,9216", "32,4096", "FLOAT;FLOAT").flop
    2415919104
    >>> shape_work("aten::mm", "[[8, 16], [16, 4]]", "", "").flop
    1024
    """
    shapes, made = parse_shapes(inputs), parse_shapes(outputs)
    names = [name.strip().upper() for name in types.split(";")]
    moved = _moved_bytes([*shapes, *made], names) if made else None
    is_product = bool(_PRODUCT.search(kind)) and not re.search("grouped|quant", kind, re.I)
    if is_product or _CONVOLUTION.search(kind):
        flop, padded = _product(shapes, made) if is_product else _convolution(shapes, made)
        per_cycle = FLOP_PER_CYCLE[names[0] in _FAST_TYPES]
        return Work(flop, moved, is_product=True, peak_cycles=-(-(padded or 0) // per_cycle))
    return Work(None, moved, is_product=bool(_UNKNOWN_WORK.search(kind)))


def parse_shapes(text: str) -> list[Shape]:
    """Return the shapes that a profiler writes; those of scalars are empty, all if one is absurd.

    >>> parse_shapes("32,64;64,10;"), parse_shapes("[[32, 64], [], [10]]")
    ([(32, 64), (64, 10), ()], [(32, 64), (), (10,)])
    """
    if not text:
        return []
    if text.startswith("["):
        parts: Iterable[str] = re.findall(r"\[([^\[\]]*)\]", text[1:-1])
    else:
        parts = text.strip('"').split(";")
    numbers = [_NUMBERS.findall(part) for part in parts]
    if any(len(number) > _MOST_DIGITS for shape in numbers for number in shape):
        return []
    return [tuple(map(int, shape)) for shape in numbers]


def _product(inputs: Sequence[Shape], outputs: Sequence[Shape]) -> tuple[int | None, int | None]:
    """Return the operations of a matrix product, and those of sizes padded to 16."""
    matrices = [shape for shape in inputs if len(shape) >= 2]
    if len(matrices) < 2 or not all(map(prod, matrices[:2])):
        return None, None
    left, right = matrices[:2]
    if outputs and len(outputs[0]) >= 2:
        *batch, rows, columns = outputs[0]
    elif left[-1] == right[-2]:
        *batch, rows, columns = (*left[:-1], right[-1])
    else:
        return None, None
    size = prod(left) // max(prod(batch), 1)
    inner = size // rows if size % rows == 0 and size // rows in right else 0
    if not inner and size % columns == 0 and size // columns in right:
        inner = size // columns
    if not inner:
        return None, None
    padded = prod(-(-one // 16) * 16 for one in (rows, columns, inner))
    return 2 * prod(batch) * rows * columns * inner, 2 * prod(batch) * padded


def _convolution(
    inputs: Sequence[Shape], outputs: Sequence[Shape]
) -> tuple[int | None, int | None]:
    """Return the operations of a convolution whose filters are (out, in / groups, ...)."""
    if len(inputs) < 2 or not outputs or len(inputs[1]) < 3 or len(outputs[0]) != len(inputs[1]):
        return None, None
    filters, made = inputs[1], outputs[0]
    if made[1] != filters[0]:
        return None, None
    flop = 2 * prod(made) * prod(filters[1:])
    return flop, flop


def _moved_bytes(shapes: Sequence[Shape], types: Sequence[str]) -> int | None:
    """Return the size of all shapes; those without a type of their own have the first one."""
    sizes = [_size_of(name) for name in types]
    if not sizes or None in sizes:
        return None
    given = [one for one in sizes if one is not None]
    return sum(
        prod(shape) * (given[at] if at < len(given) else given[0])
        for at, shape in enumerate(shapes)
    )


def _size_of(name: str) -> int | None:
    bare = name.removeprefix("DT_").removeprefix("C10::").removeprefix("BFLOAT").removeprefix("U")
    if bits := _BITS.search(bare):
        return max(1, int(bits[1]) // 8)
    return _SIZES.get(bare)


@dataclass(frozen=True)
class WorkRates:
    """Work of groups of operators, (groups,); NaN if unknown.

    flop, moved_bytes: totals. flop_per_s, bytes_per_s: in the time of the runs they are known of.
    utilization: flop_per_s as a share of the peak.
    """

    flop: Float64
    flop_per_s: Float64
    utilization: Float64
    moved_bytes: Float64
    bytes_per_s: Float64


@dataclass(frozen=True, slots=True)
class ShapeTotals:
    """Work of operators that shapes tell.

    peak_flop_per_s: of the device, as the user gives it; 0 if not. cycles_per_s: of all its cube
    cores together, 0 if the profile does not say.
    """

    sums: WorkSums = field(default_factory=WorkSums.empty)
    peak_flop_per_s: int = 0
    cycles_per_s: float = 0.0

    @classmethod
    def join(
        cls, parts: Iterable[WorkSums], operator: Int64, peak_flop_per_s: int, cycles_per_s: float
    ) -> ShapeTotals:
        """Return the sums of all parts; operator: the row of each operator of theirs."""
        works = WorkSums.concat(parts)
        columns = {name: getattr(works, name) for name in _WORK_SUMS}
        sums = _sum_work(operator[works.operator], columns)
        return cls(sums, peak_flop_per_s, cycles_per_s)

    @property
    def at_peak_ns(self) -> float:
        """Return how long the known operations would take at the peak, 0 if that is unknown."""
        if self.peak_flop_per_s:
            return float(self.sums.flop.sum()) / self.peak_flop_per_s * 1e9
        if self.cycles_per_s:
            return float(self.sums.peak_cycles.sum()) / self.cycles_per_s * 1e9
        return 0.0

    def rates(self, group: Int64, groups: int) -> WorkRates:
        """Return the work of groups of operators; group: of each row of OperatorTimes."""
        sums = {name: np.zeros(groups) for name in _WORK_SUMS}
        for name, total in sums.items():
            np.add.at(total, group[self.sums.operator], getattr(self.sums, name))

        def known(amount: str, during: str) -> tuple[Float64, Float64]:
            is_known = sums[during] > 0
            rate = sums[amount] / np.where(is_known, sums[during], 1) * 1e9
            return np.where(is_known, sums[amount], np.nan), np.where(is_known, rate, np.nan)

        flop, flop_per_s = known("flop", "flop_ns")
        utilization = np.full(groups, np.nan)
        if self.peak_flop_per_s:
            utilization = flop_per_s / self.peak_flop_per_s
        elif self.cycles_per_s:
            utilization = known("peak_cycles", "flop_ns")[1] / self.cycles_per_s
        return WorkRates(flop, flop_per_s, utilization, *known("moved_bytes", "moved_ns"))
