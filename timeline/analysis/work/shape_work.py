"""Work of operators, in operations and bytes, as the shapes of their tensors say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from timeline.columns.columns import Codes, ColumnTable, Float64, Int64, Rows, column
from timeline.columns.distinct import distinct_values
from timeline.columns.group_by import group_by
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID
from timeline.records.tables import Tasks

Shape = tuple[int, ...]
_PRODUCT = re.compile(r"(?:batch)?mat_?mul|^(?:aten::)?(?:mm|addmm|bmm|baddbmm|linear)$|gemm", re.I)
_CONVOLUTION = re.compile(r"^conv[23]d$|^(?:aten::)?_?conv(?:olution|[12]d)", re.I)
_BACKWARD = re.compile(r"^conv2dbackprop(?:input|filter)(?:d|v2)?$", re.I)
_TRANSFORMED = "TransData"
"""Type of operators that change the format of a tensor."""
_BLOCK = 16
"""Number of output channels that filters of format FRACTAL_Z hold side by side."""
_UNKNOWN_WORK = re.compile(r"grouped|conv|attention|quant", re.I)
"""Types whose operations shapes do not tell, unless they are products or convolutions as above.

Attributes, which profiles of Ascend lack, say whether attention is causal, in which order its
dimensions are and how long the sequences of a batch are; values, how many rows groups have.
"""
_SHAPE = re.compile(r"[\d,\s]*")
_NUMBERS = re.compile(r"\d+")
_MOST_DIGITS = 15
_MOST_WORK = (1 << 63) - 1
"""No run does more operations, or moves more bytes."""
_TORCH = "aten::"
_FIRST_MATRIX = {"mm": 0, "bmm": 0, "matmul": 0, "linear": 0, "addmm": 1, "baddbmm": 1}
"""Position of the first matrix among the inputs of PyTorch's products; a bias may be before it."""
_FRACTAL = ((16, 8), (16, 16), (16, 32), (16, 64))
"""Last dimensions of tensors in the format FRACTAL_NZ, whose sizes are no longer in the shape."""
_BITS = re.compile(r"(\d+)$")
_SIZES = {"FLOAT": 4, "DOUBLE": 8, "BOOL": 1, "HALF": 2, "LONG": 8, "INT": 4, "BF16": 2, "C10": 2}
_FAST_TYPES = frozenset({"FLOAT16", "HALF", "BF16", "BFLOAT16", "DT_BF16", "C10::BFLOAT16"})
_FAST_CYCLE = 8192
FLOP_PER_CYCLE = dict.fromkeys(_FAST_TYPES, _FAST_CYCLE) | {"FLOAT": 2048, "FLOAT32": 2048}
"""Operations of a cube core in a cycle by type of the first input; others are not known."""


class WorkSums(ColumnTable):
    """Work of an operator that its shapes tell, one row each.

    operator: row in OperatorTimes. flop: operations, of runs that take flop_ns in all. products_ns:
    duration of matrix products and convolutions, whose operations may not be known. moved_bytes:
    inputs and outputs, of runs that take moved_ns. peak_cycles: cycles that one cube core would
    take for flop at its peak, of runs that take peak_ns.
    """

    operator: Int64 = column(np.int64)
    flop: Float64 = column(np.float64, 0)
    flop_ns: Float64 = column(np.float64, 0)
    products_ns: Float64 = column(np.float64, 0)
    moved_bytes: Float64 = column(np.float64, 0)
    moved_ns: Float64 = column(np.float64, 0)
    peak_cycles: Float64 = column(np.float64, 0)
    peak_ns: Float64 = column(np.float64, 0)


_WORK_SUMS = tuple(WorkSums.__annotations__)[1:]


@dataclass(frozen=True)
class Work:
    """Work of one run; None if shapes do not tell it.

    peak_cycles: see `WorkSums`; 0 if not known.
    """

    flop: int | None
    moved_bytes: int | None
    is_product: bool
    peak_cycles: int = 0


def call_shares(tasks: Tasks) -> Float64 | None:
    """Return the share of each task in the kernels' time of its call, (tasks,); None without calls.

    The work of a call is that of all its kernels together, and is divided among them by duration.
    """
    rows = np.flatnonzero(tasks.compute & (tasks.call != NO_ID))
    if not len(rows):
        return None
    _, call = distinct_values(tasks.call[rows])
    duration_ns = tasks.end_ns[rows] - tasks.start_ns[rows]
    total_ns, count = np.bincount(call, duration_ns)[call], np.bincount(call)[call]
    shares = np.ones(len(tasks))
    shares[rows] = np.where(total_ns > 0, duration_ns / np.maximum(total_ns, 1), 1 / count)
    return shares


def work_of_tasks(
    tasks: Tasks,
    rows: Rows,
    kind: Codes,
    operator: Int64,
    kinds: StringPool,
    strings: StringPool,
    shares: Float64 | None = None,
) -> WorkSums:
    """Return the work of tasks, summed by operator.

    rows: of the tasks, among which are those that changed formats of filters. kind, operator:
    (rows,) type among `kinds`, and row in OperatorTimes. strings: of the tasks. shares: see
    `call_shares`.
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
    distinct = [
        (kinds[of_kind], strings[inputs], strings[outputs], strings[given])
        for of_kind, inputs, outputs, given in zip(
            *(values[groups.first].tolist() for values in keys), strict=True
        )
    ]
    filters = filters_by_format(shapes[:3] for shapes in distinct)
    for at, (type_name, inputs, outputs, types) in enumerate(distinct):
        if not inputs:
            continue
        work = shape_work(type_name, inputs, outputs, types, filters)
        has_flop, has_bytes = work.flop is not None, work.moved_bytes is not None
        columns[at] = (
            work.flop or 0,
            has_flop,
            work.is_product,
            work.moved_bytes or 0,
            has_bytes,
            work.peak_cycles,
            work.peak_cycles > 0,
        )
    of_task = columns[groups.group]
    duration_ns = tasks.end_ns[rows] - tasks.start_ns[rows]
    for name in ("flop_ns", "products_ns", "moved_ns", "peak_ns"):
        of_task[:, _WORK_SUMS.index(name)] *= duration_ns
    if shares is not None:
        for name in ("flop", "moved_bytes", "peak_cycles"):
            of_task[:, _WORK_SUMS.index(name)] *= shares[rows]
    by_name = {name: of_task[:, at] for at, name in enumerate(_WORK_SUMS)}
    return _sum_work(operator, by_name)


def _sum_work(operator: Int64, columns: Mapping[str, Float64]) -> WorkSums:
    """Return the sums of columns by operator; real numbers, as operations exceed 64 bits."""
    operators, row = distinct_values(operator)
    count = len(operators)
    sums = {name: np.bincount(row, values, count) for name, values in columns.items()}
    return WorkSums.of(count, operator=operators, **sums)


def shape_work(
    kind: str, inputs: str, outputs: str, types: str, filters: Mapping[Shape, Shape] | None = None
) -> Work:
    """Return the work of one run.

    Args:
        kind: type of the operator.
        inputs, outputs: shapes as profilers write them, such as "32,64;64,10" or "[[32, 64], []]".
        types: of the inputs, such as "FLOAT16;FLOAT16".
        filters: see `filters_by_format`.

    >>> shape_work("MatMulV2", "32,9216;4096,9216", "32,4096", "FLOAT;FLOAT").flop
    2415919104
    >>> shape_work("aten::mm", "[[8, 16], [16, 4]]", "", "").flop
    1024
    """
    shapes, made = parse_shapes(inputs), parse_shapes(outputs)
    names = [name.strip().upper() for name in types.split(";")]
    moved = _moved_bytes([*shapes, *made], names) if shapes and made else None
    is_product = bool(_PRODUCT.search(kind)) and not re.search("grouped|quant", kind, re.I)
    if is_product:
        flop, padded = _product(kind, shapes, made)
        per_cycle = FLOP_PER_CYCLE.get(names[0].removeprefix("DT_"))
        peak_cycles = -(-padded // per_cycle) if padded and per_cycle else 0
        return Work(flop, moved, is_product=True, peak_cycles=peak_cycles)
    is_backward = bool(_BACKWARD.search(kind))
    if is_backward or _CONVOLUTION.search(kind):
        results = made if not is_backward else [one for one in shapes if len(one) == 5][-1:]
        flop, padded = _blocked_convolution([*shapes, *made], results, filters or {})
        if flop is None and not is_backward:
            flop, padded = _convolution(shapes, made)
        if flop is not None and flop > _MOST_WORK:
            flop = padded = None
        # Those of 32 bits may run as HF32, twice as fast, which nothing here says.
        is_fast = names[-1 if is_backward else 0] in _FAST_TYPES
        peak_cycles = -(-(padded or 0) // _FAST_CYCLE) if is_fast else 0
        return Work(flop, moved, is_product=True, peak_cycles=peak_cycles)
    return Work(None, moved, is_product=bool(_UNKNOWN_WORK.search(kind)))


def parse_shapes(text: str) -> list[Shape]:
    """Return the shapes that a profiler writes; those of scalars are empty.

    There are none if one of them is absurd, not known (-1), or one of a list of tensors.

    >>> parse_shapes("32,64;64,10;"), parse_shapes("[[32, 64], [], [10]]")
    ([(32, 64), (64, 10), ()], [(32, 64), (), (10,)])
    """
    if not text:
        return []
    if text.startswith("[") and ";" not in text:
        parts: Sequence[str] = re.findall(r"\[([^\[\]]*)\]", text[1:-1])
    else:
        parts = text.strip('"').split(";")
    if not all(map(_SHAPE.fullmatch, parts)):
        return []
    numbers = [_NUMBERS.findall(part) for part in parts]
    if any(len(number) > _MOST_DIGITS for shape in numbers for number in shape):
        return []
    return [tuple(map(int, shape)) for shape in numbers]


def _product(
    kind: str, inputs: Sequence[Shape], outputs: Sequence[Shape]
) -> tuple[int | None, int | None]:
    """Return the operations of a matrix product, and those of sizes padded to 16.

    Both are None if the last two dimensions of the matrices, either of which may be transposed, do
    not fit together, or if the other ones are not those of a batch.
    """
    nothing, name = (None, None), kind.removeprefix(_TORCH)
    first = _FIRST_MATRIX.get(name, None if kind.startswith(_TORCH) else 0)
    matrices = [] if first is None else [*inputs[first : first + 2], *outputs[:1]]
    if len(matrices) < 2 or any(len(one) < 2 or not all(one) for one in matrices):
        return nothing
    if any(len(one) > 3 and one[-2:] in _FRACTAL for one in matrices) and kind == name:
        return nothing
    left, right, *made = matrices
    if name == "linear":
        right = (*right[:-2], right[-1], right[-2])
    if len(made[0] if made else right) == 2:
        left = (prod(left[:-1]), left[-1])
    try:
        batch = np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        return nothing
    rows, columns = made[0][-2:] if made else (left[-2], right[-1])
    may_turn = bool(made)
    inners = {one[1] for one in _turned(left, may_turn) if one[0] == rows} & {
        one[0] for one in _turned(right, may_turn) if one[1] == columns
    }
    if len(inners) != 1 or (made and batch != made[0][:-2]):
        return nothing
    (inner,) = inners
    flop = 2 * prod(batch) * rows * columns * inner
    padded = 2 * prod(batch) * prod(-(-one // 16) * 16 for one in (rows, columns, inner))
    return (flop, padded) if flop <= _MOST_WORK else nothing


def _turned(shape: Shape, may_turn: bool) -> list[Shape]:
    """Return the last two dimensions of a matrix, also the other way round if it may be turned."""
    return [shape[-2:], shape[:-3:-1]] if may_turn else [shape[-2:]]


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


def filters_by_format(operators: Iterable[tuple[str, str, str]]) -> dict[Shape, Shape]:
    """Return filters (out, in / groups, height, width) by their shape in the format FRACTAL_Z.

    That is (in blocks x height x width, out blocks, 16, size of an in block), so that it hides how
    many channels fill the last block: only the change between both formats says so. Shapes of
    several filters are left out.

    operators: type, inputs and outputs of each.
    """
    filters = dict[Shape, set[Shape]]()
    for kind, inputs, outputs in operators:
        if kind != _TRANSFORMED:
            continue
        ends = [*parse_shapes(inputs)[:1], *parse_shapes(outputs)[:1]]
        if [len(shape) for shape in ends] != [4, 4]:
            continue
        for plain, blocked in (ends, reversed(ends)):
            out, within, height, width = plain
            rows, out_blocks, side, depth = blocked
            blocks = -(-within // max(depth, 1)) * height * width, -(-out // _BLOCK)
            if side == _BLOCK and depth and blocks == (rows, out_blocks):
                filters.setdefault(blocked, set()).add(plain)
    return {blocked: plain.pop() for blocked, plain in filters.items() if len(plain) == 1}


def _blocked_convolution(
    shapes: Sequence[Shape], results: Sequence[Shape], filters: Mapping[Shape, Shape]
) -> tuple[int | None, int | None]:
    """Return the operations of a convolution in formats of the device, and those of whole blocks.

    shapes: of all tensors, with the filter in FRACTAL_Z. results: of the convolution, or the
    gradients of it, in NC1HWC0: (images, channel blocks, height, width, size of a block).
    """
    blocked = next((shape for shape in shapes if shape in filters), None)
    if blocked is None or not results or len(results[0]) != 5:
        return None, None
    plain, (images, blocks, height, width, size) = filters[blocked], results[0]
    if blocks != -(-plain[0] // max(size, 1)):
        return None, None
    places = 2 * images * height * width
    return places * prod(plain), places * prod(blocked)


def _moved_bytes(shapes: Sequence[Shape], types: Sequence[str]) -> int | None:
    """Return the size of all shapes; those without a type of their own have the first one."""
    sizes = [_size_of(name) for name in types]
    if not sizes or None in sizes:
        return None
    given = [one for one in sizes if one is not None]
    moved = sum(
        prod(shape) * (given[at] if at < len(given) else given[0])
        for at, shape in enumerate(shapes)
    )
    return moved if moved <= _MOST_WORK else None


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

    def at_peak(self) -> tuple[Float64, Float64]:
        """Return how long the work of each row would take at the peak, and the time of those runs.

        Both are 0 where work or peak are not known.
        """
        sums = self.sums
        if self.peak_flop_per_s:
            return sums.flop / self.peak_flop_per_s * 1e9, sums.flop_ns
        if self.cycles_per_s:
            return sums.peak_cycles / self.cycles_per_s * 1e9, sums.peak_ns
        return np.zeros(len(sums)), np.zeros(len(sums))


def rates_of(parts: Iterable[tuple[ShapeTotals, Int64]], groups: int) -> WorkRates:
    """Return the work of groups of operators of several ranks, from the sums over all of them.

    parts: the totals of each rank, and the group of each row of its OperatorTimes.
    """
    names = (*_WORK_SUMS, "at_peak_ns", "with_peak_ns")
    sums = {name: np.zeros(groups) for name in names}
    for shapes, group in parts:
        columns = {name: getattr(shapes.sums, name) for name in _WORK_SUMS}
        columns["at_peak_ns"], columns["with_peak_ns"] = shapes.at_peak()
        for name, total in sums.items():
            np.add.at(total, group[shapes.sums.operator], columns[name])

    def of_known(amount: str, during: str) -> tuple[Float64, Float64]:
        is_known = sums[during] > 0
        rate = sums[amount] / np.where(is_known, sums[during], 1)
        return np.where(is_known, np.rint(sums[amount]), np.nan), np.where(is_known, rate, np.nan)

    flop, flop_per_ns = of_known("flop", "flop_ns")
    moved_bytes, bytes_per_ns = of_known("moved_bytes", "moved_ns")
    utilization = of_known("at_peak_ns", "with_peak_ns")[1]
    return WorkRates(flop, flop_per_ns * 1e9, utilization, moved_bytes, bytes_per_ns * 1e9)
