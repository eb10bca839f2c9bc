"""Which kernels of GPUs communicate, by what launched them and by their names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from timeline.records.task_kinds import UNKNOWN_OP, function_parts, spelled_kind

_MOST_CACHED = 1 << 14


@dataclass(frozen=True)
class Communication:
    """What a kernel moves data by.

    library: for people, who name groups by it. op: what it does, as far as the kernel tells.
    """

    library: str
    op: str


_COLLECTIVE = r"(?i:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)"
"""In snake_case or CamelCase, as the authors of a library like."""
_SCOPE = r"(?i:block|warp|wave|thread|lane|cta|grid|cluster)_?(?i:wide_?|level_?)?"
"""Whose threads a reduction within one kernel is over, which computes."""
_COMPUTES = rf"triton_|allToAllV?\Z|.*(?:(?i:gemm|matmul)|{_SCOPE}{_COLLECTIVE})"
_ENGINE = r"(?:vllm|sglang|aiter|flashinfer|tensorrt_llm)"
_FUNCTIONS = (
    ("NCCL", UNKNOWN_OP, r"(?:nccl|rccl|msccl(?!pp))\w*"),
    ("PCCL", UNKNOWN_OP, r"pccl(?:Dev)?Kernel\w*"),
    ("MSCCL++", UNKNOWN_OP, r"(?:\w+::)*mscclpp::.*"),
    ("oneCCL", UNKNOWN_OP, r"(?:one)?ccl_\w+|oneccl\w*(?:::.*)?"),
    ("NVSHMEM", "", r"(?:\w+::)*nvshmem\w*(?:::.*)?"),
    ("DeepEP", "", r"(?:\w+::)*(?:deep_)?ep::(?:\w+::)*(?:inter|intra)node\w*::\w+"),
    ("DeepEP", "", r"(?:\w+::)*(?:deep|hybrid)_ep::(?:\w+::)*(?!get_)\w*(?:dispatch|combine)\w*"),
    ("MORI", "", r"mori::(?:\w+::)*Ep(?:Dispatch|Combine)\w*"),
    ("MoE all-to-all", "all_to_all", r"(?:\w+::)*moe(?:A2A|AllToAll)\w*"),
    ("MoE all-to-all", "all_to_all", r"(?:\w+::)*a2a_kernels::\w*(?:[dD]ispatch|[cC]ombine)\w*"),
    ("Symmetric memory", "", r"c10d::symmetric_memory::.*|(?:\w+::)*multimem_\w+"),
    ("Symmetric memory", "", r"(?:\w+::)*(?:one|two)_shot_\w*reduce\w*"),
    ("User buffers", "", r"(?:\w+::)*userbuffers_\w+"),
    ("Custom all-reduce", "all_reduce", r"(?:\w+::)*cross_device_reduce\w*"),
    ("Custom all-reduce", "all_reduce", r"(?:\w+::)*quickreduce::.*"),
    ("Custom collective", "", rf"{_ENGINE}::(?:\w+::)*barrier_kernel"),
    ("Custom collective", "", rf"(?!{_COMPUTES})(?:\w+::)*\w*{_COLLECTIVE}\w*"),
)  # fmt: skip
"""Who kernels are of, what they do where their own name does not tell, and their functions.

Kernels that Triton fused are named after all operators around them, collectives included; those
that multiply too compute. Names that say little (barrier_kernel, allToAllV) count where their
namespace is known.
"""
_LAUNCHERS = (
    ("NCCL", r"(?:\w*ccl|gloo|ucc|mpi):.*|record_param_comms|_?c10d(?:_functional)?::.*"),
    ("Symmetric memory", r"symm_mem::(?!_async|fused).*"),
    ("Custom collective", rf"(?!aten::|.*(?:_mm|linear)|{_COMPUTES})\w+::\w*{_COLLECTIVE}\w*"),
)
"""Whose kernels the operators and annotations launch that communicate."""


@lru_cache(maxsize=_MOST_CACHED)
def function_path(kernel: str) -> str:
    """The function of a kernel with its namespaces, without types, templates and parameters.

    >>> function_path("void ns::(anonymous namespace)::reduce_1stage<float, 4>(ns::Data*)")
    'ns::reduce_1stage'
    >>> function_path("_ZN2ns13reduce_1stageIfLi4EEEvPT_")
    'ns::reduce_1stage'
    """
    return "::".join(function_parts(kernel)) or kernel


@lru_cache(maxsize=_MOST_CACHED)
def communication_of(kernel: str, launcher: str = "") -> Communication | None:
    """What a kernel communicates, None if it computes.

    Its own name tells, or else what launched it.

    Args:
        kernel: its name.
        launcher: the innermost operator or annotation around its launch, empty where not known.
    """
    path = function_path(kernel)
    for library, does, pattern in _FUNCTIONS:
        if _whole(pattern, path):
            return Communication(library, _op_of(path.rpartition("::")[2], does))
    for library, pattern in _LAUNCHERS:
        if _whole(pattern, launcher):
            return Communication(library, launched_op(launcher) or UNKNOWN_OP)
    return None


def launched_op(launcher: str) -> str:
    """What an operator or annotation says that it launches; empty where it says nothing.

    >>> launched_op("nccl:all_to_all"), launched_op("nccl:send 0->1"), launched_op("aten::mm")
    ('all_to_all', 'send', '')
    """
    if not any(_whole(pattern, launcher) for _, pattern in _LAUNCHERS):
        return ""
    return launcher.rpartition(":")[2].partition(" ")[0] if ":" in launcher else ""


def _op_of(name: str, does: str) -> str:
    if does == UNKNOWN_OP and spelled_kind(name):
        return name
    return does or name


def _whole(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None
