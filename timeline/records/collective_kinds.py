"""What communication ops do, by their names."""

from __future__ import annotations

import re
from functools import lru_cache

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
    """What a communication op does, the same for all ways in which ops are named.

    >>> collective_kind("hcom_allReduce__586_0_1"), collective_kind("Default/AllReduce-op7")
    ('AllReduce', 'AllReduce')
    """
    last = name.rpartition("/")[2]
    stem = last.rstrip(_NUMBERS)
    return spelled_kind(stem) or _NUMBERED.sub("", last).partition("__")[0]


@lru_cache(maxsize=STEMS)
def spelled_kind(stem: str) -> str:
    """What the name of a communication op spells, given without the numbers at its end."""
    plain = stem.lower().replace("_", "")
    return next((kind for spelled, kind in _COLLECTIVES.items() if spelled in plain), "")
