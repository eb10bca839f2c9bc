"""How many bytes an element of a data type takes, by its name."""

from __future__ import annotations

import re

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
    """The bytes of one element, None where the name does not tell.

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
