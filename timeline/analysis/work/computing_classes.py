"""Classes of computing, such as matmul, by the type, name and core of an operator."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from timeline.analysis.work.kernel_names import kernel_type
from timeline.records.task_kinds import GPU_KERNEL_TYPES, Unit, unit_of

__all__ = ["CLASSES", "computing_class", "gpu_kernel_class", "tells_vector"]

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
"""All classes, in the order in which they are told."""

_WORD = r"(?<![a-z0-9])(?:{})(?![a-z0-9])"
"""A whole word between underscores and colons."""
_GPU_CLASSES = (
    # Compiled kernels are named after operators beside which they only move or add up.
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
"""What the launching operator or the kernel of a GPU is called, in small letters; the first that
matches counts, and all else is vector."""


def tells_vector(*runs: Iterable[str]) -> bool:
    """Return whether runs tell vector cores from cube cores alike by the task types that they hold.

    Traces call both AI_CORE, as do chips on which one core does both; GPUs have neither. What the
    runtime calls KERNEL_AICORE, as databases of level 0 do, others divide into AI_CORE and MIX_AIV.
    """
    by_runtime = set()
    for cores in map(frozenset, runs):
        units = {unit_of(core) for core in cores}
        if Unit.CUBE in units:
            by_runtime.add(_CUBE_OF_RUNTIME in cores)
            if Unit.VECTOR not in units:
                return False
    return len(by_runtime) < 2


def computing_class(kind: str, name: str, core: str, *, told: bool) -> str:
    """The class of an operator, one of `CLASSES`.

    Types decide as in the overall table of msprof-analyze compare: FlashAttention*,
    PagedAttention*, Conv* and *MatMul*, then cube or vector by what ran it; vector operators that
    only change layout or type (TransData, Transpose, Cast) are apart. Otherwise than there, types
    decide on those too and not names, all tensor moves are apart and not those of copies alone,
    and so is the AI CPU, which counts as vector there. Of kernels of GPUs the operator that
    launched them decides, and then their own name.

    Args:
        kind: the type.
        name: of the operator; needed for kernels of GPUs alone.
        core: the task type.
        told: whether cube and vector are told apart; see `tells_vector`.
    """
    lower, unit = kind.lower(), unit_of(core)
    if core.lower() in GPU_KERNEL_TYPES:
        found = _gpu_class(kind) or gpu_kernel_class(name)
        return EITHER if found == VECTOR and not told else found
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
        return OTHER_CUBE if told else EITHER
    if unit in (Unit.VECTOR, Unit.MIXED_VECTOR):
        return VECTOR if told else EITHER
    return OTHER


def gpu_kernel_class(name: str) -> str:
    """The class of a kernel of a GPU by its own name, vector where that tells no other."""
    return _gpu_class(kernel_type(name)) or VECTOR


@functools.cache
def _gpu_classes() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Compiled when the first kernel of a GPU is seen: NPUs have none."""
    return tuple((label, re.compile(pattern)) for label, pattern in _GPU_CLASSES)


def _gpu_class(name: str) -> str:
    """The class that a name tells, empty for none."""
    lower = name.lower()
    return next((label for label, pattern in _gpu_classes() if pattern.search(lower)), "")
