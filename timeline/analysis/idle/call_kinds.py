"""What calls on the host do, by their names: wait for the device, or for data."""

from __future__ import annotations

import re

from timeline.columns.columns import Codes
from timeline.columns.strings import StringPool
from timeline.patterns import compile_late

__all__ = ["fetching_names", "names_waiting_for_data", "names_waiting_for_device"]

_FOR_DEVICE = compile_late(
    r"synchroni[sz]e|syncstream|(?:aclrt|cuda|hip)Memcpy$|aten::item$|_local_scalar_dense$", re.I
)
"""Calls that return when the device has done what was asked before: of CANN and MindSpore, of the
runtimes of GPUs, and operators of PyTorch that read a value."""
_FOR_DATA = compile_late(r"enumerate\(DataLoader\)|dataloader.*__next__", re.I)
"""Iterators of PyTorch's DataLoader, as its own ranges and as frames of Python spell them."""
_FETCHES = compile_late(r"get_?next(?!\w*grad)", re.I)
"""Operators that fetch the next data."""


def names_waiting_for_device(strings: StringPool) -> Codes:
    """Codes of the calls that wait for the device, (k,) ascending."""
    return strings.codes_where(bool(_FOR_DEVICE.search(string)) for string in strings)


def names_waiting_for_data(strings: StringPool) -> Codes:
    """Codes of the calls that wait for data, (k,) ascending."""
    return strings.codes_where(bool(_FOR_DATA.search(string)) for string in strings)


def fetching_names(strings: StringPool) -> Codes:
    """Codes of the operators that fetch data on the device, (k,) ascending."""
    return strings.codes_where(bool(_FETCHES.search(string)) for string in strings)
