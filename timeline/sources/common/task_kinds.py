"""The task types of all formats, and what a task of each does: compute, copy or neither."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from timeline.columns.columns import Bool, Codes
from timeline.columns.distinct import distinct
from timeline.columns.strings import NO_NAME, StringPool

__all__ = [
    "COPY_TYPES",
    "UNCOUNTED_TYPES",
    "are_of",
    "compute_by_type",
    "may_compute",
    "run_on_ai_cpu",
]

CORE_TYPES = frozenset(
    {
        "AI_CORE",
        "AI_VECTOR_CORE",
        "AIV",
        "AIV_SQE",
        "AIC",
        "MIX_AIC",
        "MIX_AIV",
        "DSA",
        "DSA_SQE",
        "VECTOR_CORE",
    }
)
"""Types of what only ever runs operators."""

AI_CPU_TYPES = frozenset({"AI_CPU", "AI_CPU_SQE", "AICPU", "AICPU_D", "AICPU_H", "KERNEL_AICPU"})
"""Types of what runs operators, but also tasks of the runtime such as setting a timeout."""

UNTOLD_TYPES = frozenset({"", "Other"})
"""What writers call types that they do not know."""

KERNEL = "KERNEL_"
"""What the runtime puts before the unit that a kernel runs on."""

COPY_TYPES = frozenset(
    {
        "MEMCPY_ASYNC",
        "SDMA",
        "SDMA_SQE",
        "PCIE_DMA",
        "PCIE_DMA_SQE",
        "ASYNCDMA",
        "UBDMA",
        "gpu_memcpy",
        "gpu_memset",
        "memcpy",
        "memset",
        "Memcpy",
        "Memset",
    }
)
"""Types that move or fill memory: of the runtime, of the device, and of PyTorch's GPU traces."""

UNCOUNTED_TYPES = frozenset(
    {
        "KERNEL_AICORE",
        "KERNEL_AIVEC",
        "FFTS_PLUS",
        "KERNEL_MIX_AIC",
        "KERNEL_MIX_AIV",
        "PROFILING_ENABLE",
        "PROFILING_DISABLE",
    }
)
"""Types that do not widen the time in which msprof counts what is free, by its outer rule."""


def are_of(kinds: frozenset[str], codes: Codes, strings: StringPool) -> Bool:
    """Which rows of a column of task types hold one of some types."""
    return _holding(codes, strings, kinds.__contains__)


def compute_by_type(types: Codes, strings: StringPool, names: Codes | None = None) -> Bool:
    """Which tasks compute, where no table tells which of them ran an operator.

    A kernel that is called by its type ran none, and of AI CPU tasks only the name tells.

    Args:
        types: (n,) the types of the tasks.
        names: (n,) what the tasks are called, None where no name was recorded.
    """
    on_core = _holding(types, strings, lambda kind: kind in CORE_TYPES or _is_core_kernel(kind))
    if names is None:
        return on_core
    named = (names != types) & (names != NO_NAME)
    kernels = _holding(types, strings, lambda kind: kind.startswith(KERNEL))
    found: Bool = (on_core & (named | ~kernels)) | (run_on_ai_cpu(types, strings) & named)
    return found


def run_on_ai_cpu(types: Codes, strings: StringPool) -> Bool:
    """Which tasks an AI CPU ran: operators, and tasks of the runtime."""
    return are_of(AI_CPU_TYPES, types, strings)


def may_compute(types: Codes, strings: StringPool) -> Bool:
    """Which tasks have a type that does not tell whether they ran an operator."""
    return are_of(AI_CPU_TYPES | UNTOLD_TYPES, types, strings)


def _is_core_kernel(kind: str) -> bool:
    return kind.startswith(KERNEL) and kind not in AI_CPU_TYPES


def _holding(codes: Codes, strings: StringPool, holds: Callable[[str], bool]) -> Bool:
    held = [code for code in distinct(codes).tolist() if holds(strings[code])]
    return np.isin(codes, np.array(held, np.int32))
