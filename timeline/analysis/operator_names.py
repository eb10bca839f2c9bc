"""Turns names of operators and collectives into what kind of operator or collective they are."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["KINDS", "collective_kind", "operator_type"]

_NUMBERED = re.compile(r"-op\d+$")
_NUMBERS = "0123456789_"
STEMS = 1 << 10
"""Names differ by their numbers, and ops have few others."""
_COPY_NUMBER = re.compile(r"(?<![vV\d])\d+$")
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


def operator_type(name: str) -> str:
    """The type of an operator of which only the name is known.

    A graph names its operators `scope/Type-op12` or `Type12`, and a part of one `Type12_Part`; a
    single call is named `aclnnCall_Kernel_Type` (names and types stand side by side in
    kernel_details.csv and op_summary).

    >>> operator_type("Default/network/Cast-op239"), operator_type("aclnnMm_MatMulCommon_MatMulV2")
    ('Cast', 'MatMulV2')
    """
    last = _NUMBERED.sub("", name.rpartition("/")[2])
    parts = [part for part in last.split("_") if part and not part.isdigit()]
    if not parts:
        return last or name
    if last.startswith("aclnn"):
        return parts[-1]
    return _COPY_NUMBER.sub("", parts[-1]) or parts[-1]


def collective_kind(name: str) -> str:
    """What a communication op does, the same for all ways in which ops are named.

    >>> collective_kind("hcom_allReduce__586_0_1"), collective_kind("Default/AllReduce-op7")
    ('AllReduce', 'AllReduce')
    """
    last = name.rpartition("/")[2]
    return _spelled_kind(last.rstrip(_NUMBERS)) or _NUMBERED.sub("", last).partition("__")[0]


@lru_cache(maxsize=STEMS)
def _spelled_kind(stem: str) -> str:
    """What the name of a communication op spells, given without the numbers at its end."""
    plain = stem.lower().replace("_", "")
    return next((kind for spelled, kind in _COLLECTIVES.items() if spelled in plain), "")
