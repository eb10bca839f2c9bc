"""Events of PyTorch traces, and what is read of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.profile_shelf import Event
from timeline.columns.columns import Codes
from timeline.columns.strings import StringPool
from timeline.layers import Layer
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS
from timeline.sources.kineto.header import KinetoHeader
from timeline.sources.kineto.source import read_kineto
from timeline.sources.source import ReadRequest

KERNEL: Event = {
    "ph": "X",
    "cat": "kernel",
    "name": "gemm",
    "pid": 0,
    "tid": 7,
    "ts": 10,
    "dur": 5,
    "args": {"device": 0, "stream": 7, "correlation": 3},
}
CALL: Event = {
    "ph": "X",
    "cat": "cuda_runtime",
    "name": "cudaLaunchKernel",
    "pid": 100,
    "tid": 101,
    "ts": 1,
    "dur": 2,
    "args": {"cbid": 211, "correlation": 3},
}


def spelled(records: Records, codes: Codes) -> list[str]:
    return [records.strings[code] for code in codes.tolist()]


Write = Callable[..., Path]


def read(path: Path, base_ns: int = 0, layers: frozenset[Layer] = DETAIL_LAYERS) -> Records:
    return read_kineto(path, 0, KinetoHeader(None, base_ns), StringPool(), ReadRequest(layers))
