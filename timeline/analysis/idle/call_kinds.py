"""Host calls that wait for the device or for data, or launch, recognised by name."""

from __future__ import annotations

import re

import numpy as np

from timeline.columns.columns import Codes
from timeline.columns.strings import StringPool

_FOR_DEVICE = re.compile(
    r"synchroni[sz]e|syncstream|(?:aclrt|cuda|hip)Memcpy$|aten::item$|_local_scalar_dense$", re.I
)
"""Calls that return when the device has finished earlier work: of CANN, MindSpore and the runtimes
of GPUs, and operators of PyTorch that read a value.
"""
_FOR_DATA = re.compile(r"enumerate\(DataLoader\)|dataloader.*__next__", re.I)
"""Iterators of PyTorch's DataLoader, as its own ranges and as Python frames name them."""
_FETCHES = re.compile(r"get_?next(?!\w*grad)", re.I)
"""Operators that fetch the next data."""

_LAUNCHES = re.compile(r"launch(?!.*host)", re.I)
"""GPU runtime calls that launch kernels or graphs; not cudaLaunchHostFunc."""
_BEGINS_CAPTURE = re.compile(r"begincapture", re.I)
_ENDS_CAPTURE = re.compile(r"endcapture|graphinstantiate", re.I)


def names_waiting_for_device(strings: StringPool) -> Codes:
    """Return the codes of the calls that wait for the device, (k,) ascending."""
    return _named(strings, _FOR_DEVICE, "sync", "memcpy", "item", "_local_scalar_dense")


def names_waiting_for_data(strings: StringPool) -> Codes:
    """Return the codes of the calls that wait for data, (k,) ascending."""
    return _named(strings, _FOR_DATA, "dataloader")


def fetching_names(strings: StringPool) -> Codes:
    """Return the codes of the operators that fetch data on the device, (k,) ascending."""
    return _named(strings, _FETCHES, "next")


def launching_names(strings: StringPool) -> Codes:
    """Return the codes of the calls that launch kernels, (k,) ascending."""
    return _named(strings, _LAUNCHES, "launch")


def capture_edges(strings: StringPool) -> tuple[Codes, Codes]:
    """Return the codes of the calls that begin, and of those that end, the capture of a stream."""
    return (
        _named(strings, _BEGINS_CAPTURE, "begincapture"),
        _named(strings, _ENDS_CAPTURE, "endcapture", "graphinstantiate"),
    )


def _named(strings: StringPool, pattern: re.Pattern[str], *words: str) -> Codes:
    """Return the codes of the strings that contain a pattern, (k,) ascending.

    words: lower-case words, at least one of which every match contains.
    """
    having = strings.codes_with(words).tolist()
    return np.array([code for code in having if pattern.search(strings[code])], np.int32)
