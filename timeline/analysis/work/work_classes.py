"""Classes of device work, such as matmul, derived from operators, kernels and launching calls."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from timeline.analysis.idle.launches import device_items
from timeline.analysis.work.framework_calls import CallKind, FrameworkCalls
from timeline.analysis.work.operator_names import kernel_type, operator_type
from timeline.columns.chunks import chunks
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import distinct
from timeline.columns.group_by import sum_by
from timeline.columns.intervals import first_open_at
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import FORWARD_BACKWARD, FRAMEWORK_LAUNCH, GPU, FlowEnd, Records
from timeline.records.task_kinds import GPU_KERNEL_TYPES, Unit, have_type, unit_of

FLASH_ATTENTION, PAGED_ATTENTION = "flash attention", "paged attention"
CONVOLUTION, MATMUL = "convolution", "matmul"
OTHER_CUBE, VECTOR, EITHER = "other cube", "vector", "other cube and vector"
TRANSPOSES, MOVES = "transposes and casts", "tensor moves"
AI_CPU, OTHER = "AI CPU", "other"
_CUBE_OF_RUNTIME = "KERNEL_AICORE"

CLASSES = (
    FLASH_ATTENTION,
    PAGED_ATTENTION,
    CONVOLUTION,
    MATMUL,
    OTHER_CUBE,
    VECTOR,
    EITHER,
    TRANSPOSES,
    MOVES,
    AI_CPU,
    OTHER,
)
"""All classes, in display order."""

_WORD = r"(?<![a-z0-9])(?:{})(?![a-z0-9])"
"""A whole word between underscores and colons."""
_GPU_PATTERNS = (
    # Compiled kernels may be named after operators although they only move or add.
    (VECTOR, r"^triton_(?:poi|red|per|for|spl|unk)_"),
    (
        PAGED_ATTENTION,
        r"paged_?attention|unified_attention|withpagedkvcache|decode_attention"
        r"|fwd_(?:grouped_)?kernel_stage",
    ),
    (
        FLASH_ATTENTION,
        r"flash(?!infer)|fmha|sdpa|scaled_dot_product|(?:efficient|fusion|fused)_?att|attn_(?:fwd|bwd)"
        r"|efficient attention|^bwd_kernel_d|" + _WORD.format("mha|mla|attention|flex_attention"),
    ),
    (
        CONVOLUTION,
        r"conv(?!ert)|igemm|im2d?2?col|col2im|winograd|[wd]grad_|fprop|bwd_weight|bwd_data",
    ),
    (
        MATMUL,
        _WORD.format(
            r"\w*(?<!fb)gemm\w*|\w*matmul\w*|gemv|(?:add|b|badd|addb)?mm|(?:add)?mv|bmm"
            r"|linear|nvjet\w*|cijk\w*|marlin\w*|fused_moe_kernel|wvsplitk\w*|splitkreduce_kernel"
        )
        + r"|^cublas|split-k",
    ),
    (
        TRANSPOSES,
        r"transpose|nchwtonhwc|nhwctonchw|^aten::(?:_?to_copy|_foreach_copy_|copy_|clone"
        r"|contiguous|permute)$",
    ),
)
"""Lower-case patterns of the names of launching operators or GPU kernels.

The first match counts; everything else is vector.
"""


def distinguish_vector(*runs: Iterable[str]) -> bool:
    """Return whether the task types of all runs distinguish vector from cube cores in the same way.

    runs: the task types of each run. Traces call both cores AI_CORE, as do chips on which one core
    does both; GPUs have neither. Databases of level 0 use the runtime's KERNEL_AICORE for tasks
    that others split into AI_CORE and MIX_AIV.
    """
    by_runtime = set()
    for cores in map(frozenset, runs):
        units = {unit_of(core) for core in cores}
        if Unit.CUBE in units:
            by_runtime.add(_CUBE_OF_RUNTIME in cores)
            if Unit.VECTOR not in units:
                return False
    return len(by_runtime) < 2


def computing_class(kind: str, name: str, core: str, *, vector_known: bool) -> str:
    """Return the class of an operator, one of `CLASSES`.

    Types decide as in the overall table of msprof-analyze compare: FlashAttention*,
    PagedAttention*, Conv* and *MatMul*, then the cube or vector core that ran it; vector operators
    that only change layout or type (TransData, Transpose, Cast) form their own class. Unlike there,
    these are also recognised by type and not by name, all tensor moves form a class instead of
    copies alone, and so does the AI CPU, which counts as vector there. Kernels of GPUs are
    classified by the operator that launched them, then by their own name.

    Args:
        kind: the type.
        name: of the operator; used only for kernels of GPUs.
        core: the task type.
        vector_known: whether cube and vector are distinguished; see `distinguish_vector`.
    """
    lower, unit = kind.lower(), unit_of(core)
    if core.lower() in GPU_KERNEL_TYPES:
        gpu_class = _named_gpu_class(kind) or gpu_kernel_class(name)
        return EITHER if gpu_class == VECTOR and not vector_known else gpu_class
    if "flashattention" in lower:
        return FLASH_ATTENTION
    if "pagedattention" in lower:
        return PAGED_ATTENTION
    if lower.startswith("conv"):
        return CONVOLUTION
    if "matmul" in lower:
        return MATMUL
    if unit is Unit.AI_CPU:
        return AI_CPU
    if lower.startswith(("transdata", "transpose", "cast")):
        return TRANSPOSES
    if lower.startswith("tensormove"):
        return MOVES
    if unit is Unit.CUBE:
        return OTHER_CUBE if vector_known else EITHER
    if unit in (Unit.VECTOR, Unit.MIXED_VECTOR):
        return VECTOR if vector_known else EITHER
    return OTHER


def gpu_kernel_class(name: str) -> str:
    """Return the class of a GPU kernel by its own name, vector if no pattern matches."""
    return _named_gpu_class(kernel_type(name)) or VECTOR


@functools.cache
def _gpu_patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Compile the patterns when the first kernel of a GPU is seen: NPUs have none."""
    return tuple((label, re.compile(pattern)) for label, pattern in _GPU_PATTERNS)


def _named_gpu_class(name: str) -> str:
    """Return the class of the first pattern that matches a name, empty for none."""
    lower = name.lower()
    return next((label for label, pattern in _gpu_patterns() if pattern.search(lower)), "")


Classes = npt.NDArray[np.int8]
"""A WorkClass for each row."""


class WorkClass(enum.IntEnum):
    """Class of a device task in a comparison; classes are disjoint."""

    UNKNOWN = 0
    """There is no evidence of its class."""
    FORWARD_CONVOLUTION = 1
    BACKWARD_CONVOLUTION = 2
    FORWARD_ATTENTION = 3
    BACKWARD_ATTENTION = 4
    PAGED_ATTENTION = 5
    MATMUL = 6
    CUBE = 7
    """Other work on a cube core."""
    VECTOR = 8
    """Other work on a vector core."""
    SDMA = 9
    LCCL = 10
    CUBE_OR_VECTOR = 11
    """Other work on a core that the run does not identify as cube or vector."""
    OTHER = 12
    """Work on another unit, such as the AI CPU, or not a kernel."""

    @property
    def metric(self) -> str:
        """Return the name in a comparison, empty if it has no row of its own."""
        return _METRICS.get(self, "")


_METRICS = {
    WorkClass.FORWARD_CONVOLUTION: "forward convolution",
    WorkClass.BACKWARD_CONVOLUTION: "backward convolution",
    WorkClass.FORWARD_ATTENTION: "forward flash attention",
    WorkClass.BACKWARD_ATTENTION: "backward flash attention",
    WorkClass.PAGED_ATTENTION: "paged attention",
    WorkClass.MATMUL: "matmul",
    WorkClass.CUBE: "cube",
    WorkClass.VECTOR: "vector",
    WorkClass.SDMA: "SDMA",
    WorkClass.LCCL: "lccl",
}
_ATTENTION_CALLS = (
    "flash_attention",
    "fusion_attention",
    "flashattn",
    "xformers_flash",
    "efficient_attention",
    "flash2attn",
)
_CONVOLUTION_CALLS = ("aten::conv",)
_MATMUL_CALLS = ("aten::addmm", "aten::bmm", "aten::mm", "aten::matmul")
_BACKWARD = ("bwd", "backward", "back", "grad")
"""Lower-case parts of the names of operators and kernels that compute gradients."""
_CUTLASS = "cutlass"
"""Part of the names of GPU kernels that multiply matrices.

msprof-analyze takes any name with gemm or conv for such a kernel, including those of FBGEMM that
only permute.
"""
_GPU_CLASSES = {
    "paged attention": WorkClass.PAGED_ATTENTION,
    "flash attention": WorkClass.FORWARD_ATTENTION,
    "convolution": WorkClass.FORWARD_CONVOLUTION,
    "matmul": WorkClass.MATMUL,
}
_OF_BACKWARD = {
    WorkClass.FORWARD_ATTENTION: WorkClass.BACKWARD_ATTENTION,
    WorkClass.FORWARD_CONVOLUTION: WorkClass.BACKWARD_CONVOLUTION,
}
_NO_TYPE = frozenset({"", "N/A"})
"""Types of tasks that stand for no type."""
_LCCL_KERNEL = "kernel_aivec"
"""Name of LCCL kernels, which have none of their own."""
_EVENT_WAITS = frozenset({"EVENT_WAIT_SQE", "EVENT_WAIT"})


class ClassTimes(ColumnTable):
    """Number and duration of tasks, one row per classification and class with a metric.

    launch: True for classes by launching call, False for classes by kernel. known: whether the rank
    identifies the work of the class; count and total_ns are 0 if not.
    """

    launch: Bool = column(np.bool_)
    work_class: Int64 = column(np.int64)
    known: Bool = column(np.bool_, 0)
    count: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)


def with_work_classes(records: Records) -> Records:
    """Return the records of a rank with the classes of its tasks.

    A kernel has one class, in this order: SDMA of tensor moves and paged attention, by name and
    type; attention, convolution and matmul, by the framework call that launched it, else by its
    type; then the core that ran it. Communication has none. Copies on computing streams are SDMA by
    launch; by kernel only kernels are. This follows msprof-analyze (`compare`,
    categorize_computing_performance_data), except that work on neither core is OTHER, not vector.
    """
    tasks = records.tasks
    by_kernel = np.zeros(len(tasks), np.int8)
    computing = np.flatnonzero(tasks.compute)
    by_kernel[computing] = _classes_by_kernel(records, computing)
    by_launch = by_kernel.copy()
    calls = _LaunchingCalls.of(records)
    requested_ns = _requested_ns(records)[computing]
    if calls is None or not (requested_ns != NO_TIME).any():
        by_launch[computing] = WorkClass.UNKNOWN
    else:
        is_fixed = np.isin(by_kernel[computing], (WorkClass.SDMA, WorkClass.PAGED_ATTENTION))
        rows = np.flatnonzero((requested_ns != NO_TIME) & ~is_fixed)
        classes = calls.classes_at(requested_ns[rows])
        by_launch[computing[rows]] = np.where(
            classes == WorkClass.UNKNOWN, by_kernel[computing[rows]], classes
        )
        by_launch[_copies_of_computing(records)] = WorkClass.SDMA
    lccl = _lccl_tasks(records)
    by_kernel[lccl] = by_launch[lccl] = WorkClass.LCCL
    return replace(records, tasks=replace(tasks, kernel_class=by_kernel, launch_class=by_launch))


def sum_classes(records: Records) -> ClassTimes:
    """Return the number and duration of tasks of each class.

    Durations come from a table of kernels if it lists them. Without tasks that compute there are no
    rows.

    records: from `with_work_classes`, or a part of them.
    """
    tasks = records.tasks
    if not tasks.compute.any():
        return ClassTimes.empty()
    own_ns = tasks.end_ns - tasks.start_ns
    lengths_ns = np.where(tasks.listed_length == NO_ID, own_ns, tasks.listed_length)
    parts = [
        _summed(classes, lengths_ns, tasks.compute, records.hardware, launch=launch)
        for classes, launch in ((tasks.kernel_class, False), (tasks.launch_class, True))
    ]
    return ClassTimes.concat(parts)


def _summed(
    classes: Classes, lengths_ns: Int64, computing: Bool, hardware: str, *, launch: bool
) -> ClassTimes:
    count = np.bincount(classes, minlength=len(WorkClass))
    total_ns = sum_by(classes, lengths_ns, len(WorkClass))
    some = np.bincount(classes[computing], minlength=len(WorkClass))
    known = np.full(len(WorkClass), some[WorkClass.UNKNOWN + 1 :].any())
    if some[WorkClass.CUBE_OR_VECTOR]:
        known[[WorkClass.CUBE, WorkClass.VECTOR]] = False
    if hardware == GPU:
        known[WorkClass.LCCL] = False
        known[WorkClass.SDMA] &= launch
    rows = np.array(list(_METRICS), np.int64)
    return ClassTimes(
        np.full(len(rows), launch),
        rows,
        known[rows],
        np.where(known[rows], count[rows], 0),
        np.where(known[rows], total_ns[rows], 0),
    )


def _classes_by_kernel(records: Records, rows: Rows) -> Classes:
    """Return the classes of computing tasks by type and name alone."""
    tasks, pool = records.tasks, records.strings
    names, types, units = tasks.name[rows], tasks.op_type[rows], tasks.task_type[rows]
    on_gpu = records.hardware == GPU
    by_name = _by_code(pool, names, _gpu_class if on_gpu else _class_of_name)
    by_rule = by_name[names]
    if not on_gpu:
        by_type = _by_code(pool, types, _class_of_type)
        moves = _by_code(pool, names, _is_tensor_move)
        given = _by_code(pool, types, lambda kind: kind not in _NO_TYPE)
        by_rule = np.where(given[types] != 0, by_type[types], by_rule)
        by_rule = np.where(moves[names] != 0, WorkClass.SDMA, by_rule)
    has_vector = any(unit_of(pool[code]) is Unit.VECTOR for code in distinct(units).tolist())
    by_unit = _by_code(pool, units, lambda core: _class_of_core(core, vector_known=has_vector))
    classes: Classes = np.where(by_rule == WorkClass.OTHER, by_unit[units], by_rule).astype(np.int8)
    return classes


def _by_code(pool: StringPool, codes: Codes, meaning: Callable[[str], int]) -> Classes:
    """Return a table of the meaning of each name that occurs, by code."""
    table = np.zeros(len(pool), np.int8)
    for code in distinct(codes).tolist():
        table[code] = meaning(pool[code])
    return table


def _class_of_name(name: str) -> int:
    """Return the class of a kernel by its name only; UNKNOWN without a name."""
    kind = operator_type(name)
    return _class_of_type(kind) if kind else WorkClass.UNKNOWN


def _class_of_type(kind: str) -> int:
    """Return the class of a type, OTHER if the core that ran the kernel decides."""
    lower = kind.lower()
    if "pagedattention" in lower:
        return WorkClass.PAGED_ATTENTION
    if "flashattention" in lower or "fusedinferattention" in lower:
        return _directed(WorkClass.FORWARD_ATTENTION, lower)
    if lower.startswith("conv"):
        return _directed(WorkClass.FORWARD_CONVOLUTION, lower)
    return WorkClass.MATMUL if "matmul" in lower else WorkClass.OTHER


def _gpu_class(name: str) -> int:
    lower = name.lower()
    by_kernel = _GPU_CLASSES.get(gpu_kernel_class(name))
    if by_kernel is not None:
        return _directed(by_kernel, f"{lower} {kernel_type(name).lower()}")
    return WorkClass.CUBE if _CUTLASS in lower else WorkClass.VECTOR


def _directed(forward: WorkClass, lower: str) -> WorkClass:
    return _OF_BACKWARD.get(forward, forward) if _holds(lower, _BACKWARD) else forward


def _holds(lower: str, words: tuple[str, ...]) -> bool:
    return any(word in lower for word in words)


def _is_tensor_move(name: str) -> bool:
    lower = name.lower()
    return lower.startswith("aclnninplacecopy") and "tensormove" in lower


def _class_of_core(core: str, *, vector_known: bool) -> int:
    """Return the class of a kernel without a class of its own, by the core that ran it.

    vector_known: whether the run names vector cores; if not, AI_CORE may be either.
    """
    if core.lower() in GPU_KERNEL_TYPES:
        return WorkClass.VECTOR
    unit = unit_of(core)
    if unit in (Unit.AI_CPU, Unit.OTHER_CORE) or (unit is None and vector_known):
        return WorkClass.OTHER
    if not vector_known:
        return WorkClass.CUBE_OR_VECTOR
    return WorkClass.CUBE if unit is Unit.CUBE else WorkClass.VECTOR


def _requested_ns(records: Records) -> Int64:
    """Return when the framework requested each task, NO_TIME if not recorded.

    On NPUs this is the start of the framework's arrow, on GPUs of the launching runtime call.
    """
    requested_ns = np.full(len(records.tasks), NO_TIME)
    if records.hardware == GPU:
        items = device_items(records)
        some = np.flatnonzero(~items.is_op & (items.launch != NO_ID))
        requested_ns[items.row[some]] = items.launch_start_ns[some]
        return requested_ns
    calls, tasks = records.arrows(FRAMEWORK_LAUNCH, FlowEnd.TASK)
    start_ns = records.host.start_ns[calls]
    order = np.argsort(start_ns, kind="stable")
    # If several calls requested a task, the last one stays.
    requested_ns[tasks[order]] = start_ns[order]
    return requested_ns


@dataclass(frozen=True)
class _LaunchingCalls:
    """Framework calls with a class, in order of start, outer ones first; (n,) each."""

    start_ns: Int64 = field(repr=False)
    end_ns: Int64 = field(repr=False)
    classes: Classes = field(repr=False)

    @classmethod
    def of(cls, records: Records) -> _LaunchingCalls | None:
        """Return the calls of a rank; None if no operators of a framework are recorded."""
        host, pool = records.host, records.strings
        calls = FrameworkCalls(host, pool)
        by_name = _by_code(pool, host.name, _class_of_call)
        rows, any_operator = [np.empty(0, np.intp)], False
        for chunk in chunks(len(host)):
            kinds = calls.kinds(host.layer[chunk], host.name[chunk])
            any_operator |= bool((kinds == CallKind.OPERATOR).any())
            is_call = np.isin(kinds, (CallKind.OPERATOR, CallKind.OPERATOR_OR_ANNOTATION))
            has_class = is_call & (by_name[host.name[chunk]] != WorkClass.UNKNOWN)
            rows.append(np.flatnonzero(has_class) + chunk.start)
        if not any_operator:
            return None
        launching = np.concatenate(rows)
        launching = launching[np.lexsort((-host.end_ns[launching], host.start_ns[launching]))]
        classes = by_name[host.name[launching]]
        backward = np.isin(host.thread[launching], _backward_threads(records))
        of_thread = backward & (classes == WorkClass.FORWARD_CONVOLUTION)
        classes = np.where(of_thread, np.int8(WorkClass.BACKWARD_CONVOLUTION), classes)
        return cls(host.start_ns[launching], host.end_ns[launching], classes)

    def classes_at(self, times_ns: Int64) -> Classes:
        """Return the class of the call around each timestamp that began first, UNKNOWN for none.

        Calls of all threads count, including one that ends at the timestamp.
        """
        at = first_open_at(times_ns, self.start_ns, self.end_ns + 1)
        classes: Classes = np.append(self.classes, np.int8(WorkClass.UNKNOWN))[at]
        return classes


def _class_of_call(name: str) -> int:
    """Return the class of the work that a framework call launches, UNKNOWN if it may be any."""
    lower = name.lower()
    if _holds(lower, _ATTENTION_CALLS):
        return _directed(WorkClass.FORWARD_ATTENTION, lower)
    if _holds(lower, _CONVOLUTION_CALLS):
        return _directed(WorkClass.FORWARD_CONVOLUTION, lower)
    return WorkClass.MATMUL if _holds(lower, _MATMUL_CALLS) else WorkClass.UNKNOWN


def _backward_threads(records: Records) -> Int64:
    """Return the threads that compute gradients, empty if forward runs only on that same thread."""
    forward, backward = (
        distinct(records.host.thread[rows])
        for rows in records.arrows(FORWARD_BACKWARD, FlowEnd.HOST)
    )
    return backward if len(np.setdiff1d(forward, backward)) or len(backward) > 1 else backward[:0]


def _copies_of_computing(records: Records) -> Rows:
    """Return the copies on computing streams.

    If any stream waits for events, only streams that do so count.
    """
    tasks = records.tasks
    computing = tasks.stream[tasks.compute]
    waiting = tasks.stream[have_type(_EVENT_WAITS, tasks.task_type, records.strings)]
    streams = np.intersect1d(computing, waiting) if len(waiting) else distinct(computing)
    return np.flatnonzero(tasks.copy & np.isin(tasks.stream, streams) & (tasks.stream != NO_ID))


def _lccl_tasks(records: Records) -> Rows:
    """Return the kernels of LCCL; none if no kernel has a name of its own."""
    tasks, pool = records.tasks, records.strings
    unnamed = _by_code(pool, tasks.name, lambda name: name.lower() == _LCCL_KERNEL)
    is_lccl = unnamed[tasks.name] != 0
    named = tasks.compute & ~is_lccl
    return np.flatnonzero(is_lccl) if named.any() else np.empty(0, np.intp)
