"""The task types of all formats, and what a task of each does: compute, copy or neither."""

from __future__ import annotations

import numpy as np

from timeline.records.columns import Bool, Codes
from timeline.records.strings import StringPool

__all__ = ["COMPUTE_TYPES", "COPY_TYPES", "UNCOUNTED_TYPES", "are_of"]

COMPUTE_TYPES = frozenset(
    {
        "AI_CORE",
        "AI_VECTOR_CORE",
        "AIV",
        "AIV_SQE",
        "AIC",
        "MIX_AIC",
        "MIX_AIV",
        "AI_CPU",
        "AI_CPU_SQE",
        "AICPU",
        "DSA",
        "DSA_SQE",
        "VECTOR_CORE",
    }
)
"""Types that compute, where no table tells which tasks ran an operator."""

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
    held = [code for kind in kinds if (code := strings.find(kind)) is not None]
    return np.isin(codes, np.array(held, np.int32))
