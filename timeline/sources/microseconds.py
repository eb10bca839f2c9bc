"""Turns times written as decimal microseconds into integer nanoseconds, from their digits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import ROUND_FLOOR, Decimal, InvalidOperation, localcontext

import numpy as np

from timeline.records.columns import Bool, Int64
from timeline.records.tables import NO_TIME

__all__ = ["interval_ns", "moment_ns", "moments_ns"]

FRACTION_DIGITS = 15
"""Digits kept behind the point: more than any export writes, so sums of two are exact."""
_PARTS_IN_NS = 10 ** (FRACTION_DIGITS - 3)
_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
"""Decimal itself also takes 1_000, inf and nan."""
_MOST_US = 9 * 10**15
"""Times beyond this many microseconds do not fit 64 bits of nanoseconds."""


def interval_ns(starts: Sequence[bytes], durations: Sequence[bytes]) -> tuple[Int64, Int64]:
    """Start and end of intervals whose start and duration are decimal microseconds.

    Start and end are rounded to the nearest nanosecond, half up; the duration never is, so
    neighbours that touch in the source touch here. A float64 could not do it: at 1.7e15 us its
    step is 0.25 us.

    Args:
        starts: n texts such as ``b'"1736408883688177.930"'`` or ``b'56635864664.91'``.
        durations: n texts; an empty one is no length.

    Returns:
        start_ns, end_ns: (n,) int64, NO_TIME where a text is no number.
    """
    start_ns, start_part, start_good = _split(starts)
    length_ns, length_part, length_good = _split([text or b"0" for text in durations])
    part = start_part + length_part
    end_ns = start_ns + length_ns + (part + _PARTS_IN_NS // 2) // _PARTS_IN_NS
    rounded_ns = start_ns + (start_part + _PARTS_IN_NS // 2) // _PARTS_IN_NS
    good = start_good & length_good
    return np.where(good, rounded_ns, NO_TIME), np.where(good, end_ns, NO_TIME)


def moments_ns(texts: Sequence[bytes]) -> Int64:
    """Moments written as decimal microseconds, (n,) int64 ns, NO_TIME where there is no number."""
    whole_ns, part, good = _split(texts)
    return np.where(good, whole_ns + (part + _PARTS_IN_NS // 2) // _PARTS_IN_NS, NO_TIME)


def moment_ns(text: bytes) -> int:
    """One moment; see `moments_ns`."""
    return int(moments_ns([text])[0])


def _split(texts: Iterable[bytes]) -> tuple[Int64, Int64, Bool]:
    """Whole nanoseconds, the rest in parts of a nanosecond, and whether it is a number."""
    bare = [bytes(text).strip(b'" \t\r\n') for text in texts]
    count = len(bare)
    if not count:
        none = np.empty(0, np.int64)
        return none, none.copy(), np.empty(0, np.bool_)
    packed = np.array(bare, dtype=np.bytes_)
    width = packed.dtype.itemsize
    characters = packed.view(np.uint8).reshape(count, width).T
    whole_us = np.zeros(count, np.int64)
    fraction = np.zeros(count, np.int64)
    fraction_digits = np.zeros(count, np.int64)
    digits = np.zeros(count, np.int64)
    behind = np.zeros(count, np.bool_)
    plain = np.ones(count, np.bool_)
    for row in characters:
        digit = row.astype(np.int64) - ord("0")
        is_digit = (digit >= 0) & (digit <= 9)
        is_point = row == ord(".")
        plain &= is_digit | (is_point & ~behind) | (row == 0)
        before = is_digit & ~behind
        whole_us = np.where(before, whole_us * 10 + digit, whole_us)
        digits += before
        after = is_digit & behind & (fraction_digits < FRACTION_DIGITS)
        fraction = np.where(after, fraction * 10 + digit, fraction)
        fraction_digits += after
        behind |= is_point
    fraction *= 10 ** (FRACTION_DIGITS - fraction_digits)
    good = plain & (digits > 0) & (digits < 17) & (whole_us < _MOST_US)
    whole_ns = whole_us * 1000 + fraction // _PARTS_IN_NS
    part = fraction % _PARTS_IN_NS
    for row_number in np.flatnonzero(~good).tolist():
        exact = _exact(bare[row_number])
        if exact is not None:
            whole_ns[row_number], part[row_number] = exact
            good[row_number] = True
    return whole_ns, part, good


def _exact(text: bytes) -> tuple[int, int] | None:
    """The same for a text with a sign or an exponent, such as 1e-05; None if it is no number."""
    if not _NUMBER.fullmatch(text):
        return None
    try:
        value_us = Decimal(text.decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return None
    if not value_us.is_finite() or abs(value_us) >= _MOST_US:
        return None
    with localcontext() as context:
        context.prec = 64
        parts = int(value_us.scaleb(FRACTION_DIGITS).to_integral_value(ROUND_FLOOR))
    return parts // _PARTS_IN_NS, parts % _PARTS_IN_NS
