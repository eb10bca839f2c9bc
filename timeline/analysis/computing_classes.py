"""Turns the type, name and core of an operator into a class of computing."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["CLASSES", "computing_class", "tells_vector"]

FLASH_ATTENTION, PAGED_ATTENTION = "flash attention", "paged attention"
CONVOLUTION, MATMUL = "convolution", "matmul"
OTHER_CUBE, VECTOR, EITHER = "other cube", "vector", "other cube and vector"
TRANSPOSES, MOVES = "transposes and casts", "tensor moves"
AI_CPU, OTHER = "AI CPU", "other"

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

_VECTOR_CORES = frozenset({"AI_VECTOR_CORE", "AIV", "AIV_SQE", "VECTOR_CORE", "KERNEL_AIVEC"})
_MIXED_VECTOR_CORES = frozenset({"MIX_AIV", "KERNEL_MIX_AIV"})
_CUBE_CORES = frozenset({"AI_CORE", "AIC", "MIX_AIC", "KERNEL_AICORE", "KERNEL_MIX_AIC"})
_AI_CPU_CORES = frozenset({"AI_CPU", "AI_CPU_SQE", "AICPU", "KERNEL_AICPU"})
_GPU_CORE = "kernel"
_GPU_NAMES = (
    (FLASH_ATTENTION, ("flash", "fmha", "fusion_attention", "efficient_attention")),
    (CONVOLUTION, ("conv", "wgrad", "dgrad", "fprop")),
    (MATMUL, ("gemm", "gemv", "matmul", "cutlass", "cublas")),
    (TRANSPOSES, ("transpose", "nchwtonhwc", "nhwctonchw")),
)


def tells_vector(cores: Iterable[str]) -> bool:
    """Whether a run tells vector cores from cube cores by the task types that it holds.

    Traces call both AI_CORE, as do chips on which one core does both; GPUs have neither.
    """
    held = set(cores)
    return bool(held & _VECTOR_CORES) or not held & _CUBE_CORES


def computing_class(kind: str, name: str, core: str, *, told: bool) -> str:
    """The class of an operator, one of `CLASSES`.

    Types decide as in the overall table of msprof-analyze compare: FlashAttention*,
    PagedAttention*, Conv* and *MatMul*, then cube or vector by what ran it; vector operators that
    only change layout or type (TransData, Transpose, Cast) are apart. Otherwise than there, types
    decide on those too and not names, all tensor moves are apart and not those of copies alone,
    and so is the AI CPU, which counts as vector there. Kernels of GPUs have no type: their names
    decide.

    Args:
        kind: the type.
        name: of the operator; needed for kernels of GPUs alone.
        core: the task type.
        told: whether cube and vector are told apart; see `tells_vector`.
    """
    lower = kind.lower()
    if "flashattention" in lower:
        return FLASH_ATTENTION
    if "pagedattention" in lower:
        return PAGED_ATTENTION
    if lower.startswith("conv"):
        return CONVOLUTION
    if "matmul" in lower:
        return MATMUL
    if core in _AI_CPU_CORES:
        return AI_CPU
    if lower.startswith(("transdata", "transpose", "cast")):
        return TRANSPOSES
    if lower.startswith("tensormove"):
        return MOVES
    if core == _GPU_CORE:
        return _gpu_class(f"{name} {kind}".lower(), told=told)
    if core in _CUBE_CORES:
        return OTHER_CUBE if told else EITHER
    if core in _VECTOR_CORES or core in _MIXED_VECTOR_CORES:
        return VECTOR if told else EITHER
    return OTHER


def _gpu_class(name: str, *, told: bool) -> str:
    found = (own for own, marks in _GPU_NAMES if any(mark in name for mark in marks))
    return next(found, VECTOR if told else EITHER)
