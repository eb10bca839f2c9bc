"""The types of tasks, communication ops, data and GPU kernels, by their names."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from timeline.columns.columns import Bool, Codes
from timeline.columns.distinct import distinct
from timeline.columns.strings import NO_NAME, StringPool


class Unit(enum.Enum):
    """A unit that runs the tasks of a type."""

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
    """Return the unit of a type, None if the type runs no operators or is unknown."""
    return _UNITS.get(kind)


def have_type(kinds: frozenset[str], codes: Codes, strings: StringPool) -> Bool:
    """Return which rows of a column of task types hold one of some types."""
    return _are_types(codes, strings, kinds.__contains__)


def compute_by_type(types: Codes, strings: StringPool, names: Codes | None = None) -> Bool:
    """Return which tasks compute, where no table tells which of them ran an operator.

    A kernel that is called by its type ran none, nor does one of communication, and of AI CPU
    tasks only the name tells.

    Args:
        types: (n,) the types of the tasks.
        names: (n,) what the tasks are called, None if no name was recorded.
    """
    on_core = _are_types(types, strings, _is_core)
    if names is None:
        return on_core
    named = (names != types) & (names != NO_NAME)
    kernels = _are_types(types, strings, lambda kind: kind.startswith(KERNEL))
    found: Bool = (on_core & (named | ~kernels)) | (run_on_ai_cpu(types, strings) & named)
    return found & ~drive_communication(names, strings)


def ends_as_communication(name: str) -> bool:
    """Return whether a kernel has a name of those that run communication."""
    return name.endswith(_COMMUNICATION_KERNELS)


def drive_communication(names: Codes, strings: StringPool) -> Bool:
    """Return which tasks have names of kernels for communication: they do not compute."""
    return _are_types(names, strings, ends_as_communication)


def run_on_ai_cpu(types: Codes, strings: StringPool) -> Bool:
    """Return which tasks an AI CPU ran: operators, and tasks of the runtime."""
    return _are_types(types, strings, _is_ai_cpu)


def may_compute(types: Codes, strings: StringPool) -> Bool:
    """Return which tasks have a type that leaves open if they ran an operator."""
    return _are_types(types, strings, lambda kind: kind in UNTOLD_TYPES or _is_ai_cpu(kind))


def _is_ai_cpu(kind: str) -> bool:
    return unit_of(kind) is Unit.AI_CPU


def _is_core(kind: str) -> bool:
    return not _is_ai_cpu(kind) and (unit_of(kind) is not None or kind.startswith(KERNEL))


def _are_types(codes: Codes, strings: StringPool, holds: Callable[[str], bool]) -> Bool:
    found = [code for code in distinct(codes).tolist() if holds(strings[code])]
    return np.isin(codes, np.array(found, np.int32))


# -- communication ops -----------------------------------------------------------------------------


_NUMBERS = "0123456789_"
STEMS = 1 << 10
"""Names differ by their numbers, and ops have few others."""
NAMES = 1 << 14
"""Names that are remembered as they are: each is asked for several times."""
_NUMBERED = re.compile(r"-op\d+$")
_COLLECTIVES = {
    "batchsendrecv": "BatchSendRecv",
    "alltoallvc": "AlltoAllVC",
    "alltoallv": "AlltoAllV",
    "alltoall": "AlltoAll",
    "allgather": "AllGather",
    "allreduce": "AllReduce",
    "reducescatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "barrier": "Barrier",
    "scatter": "Scatter",
    "gather": "Gather",
    "reduce": "Reduce",
    "sendrecv": "SendRecv",
    "receive": "Receive",
    "recv": "Receive",
    "send": "Send",
}
"""Longer names before those that are part of them."""
KINDS = tuple(dict.fromkeys(_COLLECTIVES.values()))
"""What communication ops do, where their names tell."""
BATCH = "BatchSendRecv"
"""Sends and receives between pipeline stages, which both ranks record under one name."""
POINT_TO_POINT = ("Send", "Receive", "SendRecv", BATCH)
"""Kinds of ops that do not join a whole group."""

UNKNOWN_OP = "collective"
"""The op of a kernel that serves several, where nothing tells which of them it was."""


@lru_cache(maxsize=NAMES)
def collective_kind(name: str) -> str:
    """Return the kind of a communication op, the same for all ways in which ops are named.

    >>> collective_kind("hcom_allReduce__586_0_1"), collective_kind("Default/AllReduce-op7")
    ('AllReduce', 'AllReduce')
    """
    last = name.rpartition("/")[2]
    stem = last.rstrip(_NUMBERS)
    return format_kind(stem) or _NUMBERED.sub("", last).partition("__")[0]


@lru_cache(maxsize=STEMS)
def format_kind(stem: str) -> str:
    """Return the kind that a name states, given without the numbers at its end."""
    plain = stem.lower().replace("_", "")
    return next((kind for spelled, kind in _COLLECTIVES.items() if spelled in plain), "")


# -- data ------------------------------------------------------------------------------------------


_BITS = re.compile(r"\d+")
_NAMED = {
    "bool": 1,
    "byte": 1,
    "char": 1,
    "short": 2,
    "half": 2,
    "int": 4,
    "float": 4,
    "long": 8,
    "double": 8,
    "complexhalf": 4,
    "complexfloat": 8,
    "complexdouble": 16,
    "float4_e2m1fn_x2": 1,
}
"""Names without their bits (c10::ScalarType of PyTorch), and those whose digits are none."""


_MOST_DIGITS = 4
"""Of a number of bits; a longer number in a name is none."""


def element_bytes(name: str) -> int | None:
    """Return the bytes of one element, None if the name does not state them.

    All but a few names tell their bits.

    >>> element_bytes("FP32"), element_bytes("BFloat16"), element_bytes("Long")
    (4, 2, 8)
    >>> element_bytes("9" * 30) is None
    True
    """
    named = _NAMED.get(name.lower())
    if named is not None:
        return named
    bits = _BITS.search(name)
    if bits is None or len(bits[0]) > _MOST_DIGITS:
        return None
    return int(bits[0]) // 8 or None


# -- functions of GPU kernels ----------------------------------------------------------------------


_UNNAMED = re.compile(
    r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\}|(?<!\w)\w*_GLOBAL__N_\w*)::"
)
_BRACKET = re.compile(r"->|[<>(){}\[\]]")
_CLOSING = {"<": ">", "(": ")", "{": "}", "[": "]"}
_MANGLED = re.compile(r"_ZL?(N[rVK]*)?")
_SOURCE_NAME = re.compile(r"L?([1-9][0-9]{0,8})")
_UNNAMED_PART = re.compile(r"_GLOBAL__N|_INTERNAL_")
_PUNCTUATION = re.compile(r"[()<>{}\[\],*&\s]+")


def function_parts(name: str) -> list[str]:
    """Return namespaces and function, without types, template arguments and parameters.

    Those without a name are left out. A name that is none of a function may have no parts.

    >>> function_parts("void ns::(anonymous namespace)::reduce<float, 4>(ns::Data*)")
    ['ns', 'reduce']
    >>> function_parts("_ZN2ns6reduceIfLi4EEEvPT_"), function_parts("ampere_sgemm_32x32_tn")
    (['ns', 'reduce'], ['ampere_sgemm_32x32_tn'])
    """
    return _mangled_parts(name) if name.startswith("_Z") else _written_parts(name)


def _written_parts(name: str) -> list[str]:
    outline = _outline(_UNNAMED.sub("", name).replace("operator()", "operator"))
    words = outline.split()
    path = words[-1].partition(".")[0] or words[-1] if words else ""
    return [part for part in (_PUNCTUATION.sub("", name) for name in path.split("::")) if part]


def _outline(name: str) -> str:
    """Return the part of a name outside of brackets, up to its parameters; it may break off."""
    kept, opened, first = list[str](), list[str](), 0
    for found in _BRACKET.finditer(name):
        bracket = found[0]
        if bracket in _CLOSING:
            if not opened:
                kept.append(name[first : found.start()])
                if bracket == "(":
                    return "".join(kept)
            opened.append(_CLOSING[bracket])
        elif opened and bracket == opened[-1]:
            opened.pop()
            first = found.end()
    if not opened:
        kept.append(name[first:])
    return "".join(kept)


def _mangled_parts(name: str) -> list[str]:
    """Return namespaces and function of a kernel as the Itanium ABI mangles it.

    Each part of a name is its length and its letters; template arguments follow the function.
    """
    parts = list[str]()
    start = _MANGLED.match(name)
    at = start.end() if start else 0
    while found := _SOURCE_NAME.match(name, at):
        at = found.end() + int(found[1])
        parts.append(name[found.end() : at])
        if start is None or not start[1]:
            break
    return [part for part in parts if not _UNNAMED_PART.match(part)]
