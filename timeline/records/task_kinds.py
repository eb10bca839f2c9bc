"""Types of tasks, communication ops, data and GPU kernels, recognised by their names."""

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
    """A hardware unit that runs tasks."""

    CUBE = enum.auto()
    VECTOR = enum.auto()
    MIXED_VECTOR = enum.auto()
    """A vector core that a cube core may help, so the type does not determine the core."""
    OTHER_CORE = enum.auto()
    """Another unit that runs only operators."""
    AI_CPU = enum.auto()
    """A CPU that runs operators, and also tasks of the runtime such as setting a timeout."""


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
"""Units by task type, as the scheduler, the runtime and the exporters name types."""

KERNEL = "KERNEL_"
"""Prefix of the runtime's task types of kernels, also of units that are not listed here."""

_UNKNOWN_TYPES = frozenset({"", "Other"})
"""Task types that writers use for types that they do not know."""

_COMMUNICATION_KERNELS = ("AivKernel", "AicpuKernel")
"""Endings of the names of kernels that run communication, on any core.

Each is a task besides the record of its communication op. msprof counts none as computing
(SepOneTask of overlap_analysis_processor.cpp, filter_aiv_communication in its Python).
"""

GPU_KERNEL_TYPES = frozenset({"kernel", "mtia_ccp_events"})
"""Types of kernels in PyTorch's GPU traces, in lower case."""

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
"""Types of tasks that copy or fill memory, in CANN's runtime, device and PyTorch's GPU traces."""

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
"""Types of tasks that do not extend the span in which msprof's outer rule counts free time."""


def unit_of(kind: str) -> Unit | None:
    """Return the unit that runs a task type, None if it runs no operators or is unknown."""
    return _UNITS.get(kind)


def have_type(kinds: frozenset[str], codes: Codes, strings: StringPool) -> Bool:
    """Return a mask of the rows of a column of task types that hold one of `kinds`."""
    return _are_types(codes, strings, kinds.__contains__)


def compute_by_type(types: Codes, strings: StringPool, names: Codes | None = None) -> Bool:
    """Return a mask of the tasks that compute, by type and name, for files that do not state it.

    A kernel named like its type ran no operator, and communication kernels do not compute. AI CPU
    tasks compute only if they have a name of their own.

    Args:
        types: (n,) task types.
        names: (n,) task names, None if none were recorded.
    """
    on_core = _are_types(types, strings, _is_core)
    if names is None:
        return on_core
    named = (names != types) & (names != NO_NAME)
    kernels = _are_types(types, strings, lambda kind: kind.startswith(KERNEL))
    computes: Bool = (on_core & (named | ~kernels)) | (run_on_ai_cpu(types, strings) & named)
    return computes & ~drive_communication(names, strings)


def ends_as_communication(name: str) -> bool:
    """Return whether the name is that of a kernel that runs communication."""
    return name.endswith(_COMMUNICATION_KERNELS)


def drive_communication(names: Codes, strings: StringPool) -> Bool:
    """Return a mask of the tasks named like communication kernels, which do not compute."""
    return _are_types(names, strings, ends_as_communication)


def run_on_ai_cpu(types: Codes, strings: StringPool) -> Bool:
    """Return a mask of the tasks that an AI CPU ran: operators, and tasks of the runtime."""
    return _are_types(types, strings, _is_ai_cpu)


def may_compute(types: Codes, strings: StringPool) -> Bool:
    """Return a mask of the tasks whose type does not determine if they ran an operator."""
    return _are_types(types, strings, lambda kind: kind in _UNKNOWN_TYPES or _is_ai_cpu(kind))


def _is_ai_cpu(kind: str) -> bool:
    return unit_of(kind) is Unit.AI_CPU


def _is_core(kind: str) -> bool:
    return not _is_ai_cpu(kind) and (unit_of(kind) is not None or kind.startswith(KERNEL))


def _are_types(codes: Codes, strings: StringPool, holds: Callable[[str], bool]) -> Bool:
    matching = [code for code in distinct(codes).tolist() if holds(strings[code])]
    return np.isin(codes, np.array(matching, np.int32))


# -- communication ops -----------------------------------------------------------------------------


_NUMBERS = "0123456789_"
STEMS = 1 << 10
"""Size of the cache of names without their numbers, of which there are few."""
NAMES = 1 << 14
"""Size of the cache of full names, each of which is looked up several times."""
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
"""Kinds of communication ops by a part of their names; longer parts before those they contain."""
KINDS = tuple(dict.fromkeys(_COLLECTIVES.values()))
"""All kinds of communication ops that names can state."""
BATCH = "BatchSendRecv"
"""The kind of batched sends and receives between pipeline stages: both ranks use the same name."""
POINT_TO_POINT = ("Send", "Receive", "SendRecv", BATCH)
"""Kinds of ops that do not involve a whole group."""

UNKNOWN_OP = "collective"
"""The op of a kernel that implements several kinds, if its kind was not recorded."""


@lru_cache(maxsize=NAMES)
def collective_kind(name: str) -> str:
    """Return the kind of a communication op from its name, in any naming scheme.

    >>> collective_kind("hcom_allReduce__586_0_1"), collective_kind("Default/AllReduce-op7")
    ('AllReduce', 'AllReduce')
    """
    last = name.rpartition("/")[2]
    stem = last.rstrip(_NUMBERS)
    return format_kind(stem) or _NUMBERED.sub("", last).partition("__")[0]


@lru_cache(maxsize=STEMS)
def format_kind(stem: str) -> str:
    """Return the kind that a name without its trailing numbers states, "" if it states none."""
    plain = stem.lower().replace("_", "")
    return next((kind for part, kind in _COLLECTIVES.items() if part in plain), "")


# -- data ------------------------------------------------------------------------------------------


_BITS = re.compile(r"\d+")
_BYTES_BY_NAME = {
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
"""Element sizes of types whose names state no bits (c10::ScalarType of PyTorch) or others."""


_MOST_DIGITS = 4
"""Maximum number of digits of a number of bits; longer numbers in names mean something else."""


def element_bytes(name: str) -> int | None:
    """Return the size of one element of a data type, None if the name does not determine it.

    >>> element_bytes("FP32"), element_bytes("BFloat16"), element_bytes("Long")
    (4, 2, 8)
    >>> element_bytes("9" * 30) is None
    True
    """
    size_bytes = _BYTES_BY_NAME.get(name.lower())
    if size_bytes is not None:
        return size_bytes
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
    """Return the namespaces and function of a C++ name, without types, arguments and parameters.

    Unnamed namespaces are left out. A name that is not one of a function may have no parts.

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
    """Return the part of a name outside of brackets, up to its parameters; it may be truncated."""
    outside, opened, first = list[str](), list[str](), 0
    for match in _BRACKET.finditer(name):
        bracket = match[0]
        if bracket in _CLOSING:
            if not opened:
                outside.append(name[first : match.start()])
                if bracket == "(":
                    return "".join(outside)
            opened.append(_CLOSING[bracket])
        elif opened and bracket == opened[-1]:
            opened.pop()
            first = match.end()
    if not opened:
        outside.append(name[first:])
    return "".join(outside)


def _mangled_parts(name: str) -> list[str]:
    """Return the namespaces and function of a name mangled by the Itanium C++ ABI.

    Each part is its length followed by its letters; template arguments follow the function.
    """
    parts = list[str]()
    start = _MANGLED.match(name)
    at = start.end() if start else 0
    while length := _SOURCE_NAME.match(name, at):
        at = length.end() + int(length[1])
        parts.append(name[length.end() : at])
        if start is None or not start[1]:
            break
    return [part for part in parts if not _UNNAMED_PART.match(part)]
