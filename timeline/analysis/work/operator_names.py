"""What kind of operator an operator is, by its name."""

from __future__ import annotations

import re
import string

from timeline.patterns import compile_late

__all__ = ["operator_type"]

MOST_CHARACTERS = 4096
"""Longer names are of no operator, and some patterns take the square of their length."""
_NUMBERED = compile_late(r"-op\d+$")
_NUMBERS = "0123456789_"
_PLACE = compile_late(r"(?:stream \d+ )?task \d+(?: context \d+)? \(.*\)")
"""What a task is called of which only its place is known."""
_HASH = compile_late(r"_(?:[0-9a-f]{32,}|\d{16,})(?:_.*)?$")
"""What the compiler adds to a name: a hash, and then how and for which shapes it compiled."""
_ENTRY = compile_late(r"(?:__kernel\d*|(?:_\d+)?_mix_ai[cv])$")
"""Endings of entry points in a compiled kernel."""
_CALL = compile_late(r"aclnn([^_]*)(?:_[^_]+_(.+))?$")
_PART = compile_late(r"(?:trans|.*[A-Za-z]\d+)_([A-Z]\w*)$")
"""What a graph inserted, or a part of a numbered operator; other names are whole: Fused_Mul."""
_LAST_TYPE = compile_late(r"_([A-Z][A-Za-z0-9]*)$")
"""The last piece of a name, if it is written as types are."""
_INSIDE = compile_late(r".*[a-z]\d+(?:Left|Right)?(?=[A-Z][a-z])")
"""The operator that another one was split from, with its number."""
_TYPE = compile_late(r"[A-Z][A-Za-z0-9]*")
"""How types are written; other names, as of kernels that are no operators, stay as they are."""
_VERSIONED = compile_late(r"(.*V\d)\d*$")
"""Versions have one digit: TopKV241 is the copy 41 of TopKV2."""
_COPIES = compile_late(r"(?:[0-9]+_)+")
_MANGLED = compile_late(r"_Z([0-9]{1,9})(.+)")
_NAMED_OTHERWISE = {"atomic_memset": "MemSet"}
"""Types of operators that a graph adds by itself, by their names."""


def operator_type(name: str) -> str:
    """The type of an operator of which only the name is known, empty where the name tells none.

    A graph names its operators `scope/Type-op12`, `Type12` or `trans_Type_12`, a part of one
    `Type12_Part` or `Type12LeftPart`, and a single call `aclnnCall_Kernel_Type` (names and types
    stand side by side in kernel_details.csv and op_summary). A compiled kernel may show its symbol:
    `Type_hash_mode_key_mix_aic`, `te_type_hash__kernel0`. Other kernels are their own type, as in
    op_statistic: `add_kernel`, of which `add_kernel_0_mix_aic` is the symbol.

    >>> operator_type("Default/network/Cast-op239"), operator_type("aclnnMm_MatMulCommon_MatMulV2")
    ('Cast', 'MatMulV2')
    >>> operator_type("Add_ee98c6628030785f610b924ab1557b31_high_performance_210000000")
    'Add'
    """
    if len(name) > MOST_CHARACTERS:
        return name
    if _PLACE.fullmatch(name):
        return ""
    last = _NUMBERED.sub("", name.rpartition("/")[2]) or name
    if call := _CALL.match(last):
        kernel = call[2] or call[1]
        part = _LAST_TYPE.search(kernel)
        return part[1] if part else kernel
    symbol = _function(last)
    kernel = _HASH.sub("", symbol)
    while (shorter := _ENTRY.sub("", kernel)) != kernel:
        kernel = shorter
    if kernel != symbol:
        kernel = kernel.removeprefix("te_")
    copies = _COPIES.match(kernel[::-1])  # from the end, since searching for it takes a square
    kind = (kernel[: -copies.end()] if copies else kernel) or kernel
    if part := _PART.fullmatch(kind):
        kind = part[1]
    if not _TYPE.fullmatch(kind):
        return _NAMED_OTHERWISE.get(kind.partition("-")[0], kind)
    if inside := _INSIDE.match(kind):
        kind = kind[inside.end() :]
    versioned = _VERSIONED.match(kind)
    return versioned[1] if versioned else kind.rstrip(string.digits)


def _function(symbol: str) -> str:
    """The name of a function without its namespace, template and parameters, mangled or not.

    >>> _function("void ops::add_custom<half>(unsigned char*)"), _function("_Z10add_customPhS_")
    ('add_custom', 'add_custom')
    """
    if mangled := _MANGLED.match(symbol):
        return mangled[2][: int(mangled[1])]
    words = re.split(r"[<(]", symbol, maxsplit=1)[0].split()
    return words[-1].rpartition("::")[2] if words else ""
