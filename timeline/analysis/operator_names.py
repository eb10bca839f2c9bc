"""Turns names of operators into what kind of operator they are."""

from __future__ import annotations

import re

__all__ = ["operator_type"]

_NUMBERED = re.compile(r"-op\d+$")
_COPY_NUMBER = re.compile(r"(?<![vV\d])\d+$")


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
