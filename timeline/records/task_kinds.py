"""The task types of all formats, and what a task of each does: compute, copy or neither."""

from __future__ import annotations

import enum
from collections.abc import Callable

import numpy as np

from timeline.columns.columns import Bool, Codes
from timeline.columns.distinct import distinct
from timeline.columns.strings import NO_NAME, StringPool


class Unit(enum.Enum):
    """What runs the tasks of a type."""

    CUBE = enum.auto()
    VECTOR = enum.auto()
    MIXED_VECTOR = enum.auto()
    """A vector core that a cube core may help: it tells nothing of which cores a run names."""
    OTHER_CORE = enum.auto()
    """Another unit that only ever runs operators."""
    AI_CPU = enum.auto()
    """It runs operators, but also tasks of the runtime such as setting a timeout."""


_UNITS = {
    "AI_CORE": Unit.CUBE,
    "AIC": Unit.CUBE,
    "MIX_AIC": Unit.CUBE,
    "KERNEL_AICORE": Unit.CUBE,
    "KERNEL_MIX_AIC": Unit.CUBE,
    "AI_VECTOR_CORE": Unit.VECTOR,
    "AIV": Unit.VECTOR,
    "AIV_SQE": Unit.VECTOR,
    "VECTOR_CORE": Unit.VECTOR,
    "KERNEL_AIVEC": Unit.VECTOR,
    "MIX_AIV": Unit.MIXED_VECTOR,
    "KERNEL_MIX_AIV": Unit.MIXED_VECTOR,
    "DSA": Unit.OTHER_CORE,
    "DSA_SQE": Unit.OTHER_CORE,
    "AI_CPU": Unit.AI_CPU,
    "AI_CPU_SQE": Unit.AI_CPU,
    "AICPU": Unit.AI_CPU,
    "AICPU_D": Unit.AI_CPU,
    "AICPU_H": Unit.AI_CPU,
    "KERNEL_AICPU": Unit.AI_CPU,
}
"""Types of what runs operators, as the scheduler, the runtime and the exporters call them."""

KERNEL = "KERNEL_"
"""What the runtime puts before the unit that a kernel runs on; it may name units of tomorrow."""

UNTOLD_TYPES = frozenset({"", "Other"})
"""What writers call types that they do not know."""

_COMMUNICATION_KERNELS = ("AivKernel", "AicpuKernel")
"""How the names of kernels end that run communication, whatever core they run on.

Each is a task, and its op is another record. msprof counts none as computing (SepOneTask of
overlap_analysis_processor.cpp, filter_aiv_communication of its Python).
"""

GPU_KERNEL_TYPES = frozenset({"kernel", "mtia_ccp_events"})
"""Types of kernels in PyTorch's traces of GPUs, in small letters."""

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


def unit_of(kind: str) -> Unit | None:
    """What runs the tasks of a type, None where the type runs no operators or is not known."""
    return _UNITS.get(kind)


def have_type(kinds: frozenset[str], codes: Codes, strings: StringPool) -> Bool:
    """Which rows of a column of task types hold one of some types."""
    return _are_types(codes, strings, kinds.__contains__)


def compute_by_type(types: Codes, strings: StringPool, names: Codes | None = None) -> Bool:
    """Which tasks compute, where no table tells which of them ran an operator.

    A kernel that is called by its type ran none, nor does one of communication, and of AI CPU
    tasks only the name tells.

    Args:
        types: (n,) the types of the tasks.
        names: (n,) what the tasks are called, None where no name was recorded.
    """
    on_core = _are_types(types, strings, _is_core)
    if names is None:
        return on_core
    named = (names != types) & (names != NO_NAME)
    kernels = _are_types(types, strings, lambda kind: kind.startswith(KERNEL))
    found: Bool = (on_core & (named | ~kernels)) | (run_on_ai_cpu(types, strings) & named)
    return found & ~drive_communication(names, strings)


def ends_as_communication(name: str) -> bool:
    """Whether a kernel is called as those are that run communication."""
    return name.endswith(_COMMUNICATION_KERNELS)


def drive_communication(names: Codes, strings: StringPool) -> Bool:
    """Which tasks are called as the kernels that run communication: they do not compute."""
    return _are_types(names, strings, ends_as_communication)


def run_on_ai_cpu(types: Codes, strings: StringPool) -> Bool:
    """Which tasks an AI CPU ran: operators, and tasks of the runtime."""
    return _are_types(types, strings, _is_ai_cpu)


def may_compute(types: Codes, strings: StringPool) -> Bool:
    """Which tasks have a type that does not tell whether they ran an operator."""
    return _are_types(types, strings, lambda kind: kind in UNTOLD_TYPES or _is_ai_cpu(kind))


def _is_ai_cpu(kind: str) -> bool:
    return unit_of(kind) is Unit.AI_CPU


def _is_core(kind: str) -> bool:
    return not _is_ai_cpu(kind) and (unit_of(kind) is not None or kind.startswith(KERNEL))


def _are_types(codes: Codes, strings: StringPool, holds: Callable[[str], bool]) -> Bool:
    found = [code for code in distinct(codes).tolist() if holds(strings[code])]
    return np.isin(codes, np.array(found, np.int32))
