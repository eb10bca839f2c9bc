"""The task types of all formats, and what a task of each does: compute, copy or neither."""

from __future__ import annotations

import numpy as np

from timeline.records.columns import Bool, Codes
from timeline.records.strings import StringPool

__all__ = ["COMPUTE_TYPES", "COPY_TYPES", "are_of"]

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

COPY_TYPES = frozenset({"MEMCPY_ASYNC", "SDMA", "SDMA_SQE", "gpu_memcpy", "gpu_memset"})
"""Types that move or fill memory; those that a communication op made are no copies."""


def are_of(kinds: frozenset[str], codes: Codes, strings: StringPool) -> Bool:
    """Which rows of a column of task types hold one of some types."""
    held = [code for kind in kinds if (code := strings.find(kind)) is not None]
    return np.isin(codes, np.array(held, np.int32))
