"""Exact integers and nanoseconds from decimal digits in text, many at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal, InvalidOperation, localcontext

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Int64
from timeline.records.not_given import NO_TIME

_DECIMAL = re.compile(r"\s*(-?)0*([0-9]{1,19})\s*", re.ASCII)
"""int() also takes digits of other scripts, and refuses thousands of them."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_MOST_DIGITS = 18
"""So many always fit 64 bits."""


def whole_number(value: object) -> int | None:
    """Return the integer that a value is or writes in decimal digits; None for anything else.

    Blanks around the digits and a minus before them are fine. A plus, digits of other scripts, and
    numbers that no column holds are not.
    """
    if isinstance(value, str):
        match = _DECIMAL.fullmatch(value)
        value = int(match[1] + match[2]) if match else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if _LEAST <= value <= _MOST else None


def whole_numbers(texts: Sequence[bytes], absent: int) -> tuple[Int64, Bool]:
    """Return `whole_number` of strings, (n,) int64, and which have one; others are `absent`."""
    if texts and max(map(len, texts)) <= _MOST_DIGITS and all(map(bytes.isdigit, texts)):
        return np.fromiter(map(int, texts), np.int64, len(texts)), np.ones(len(texts), np.bool_)
    known = {text: whole_number(text.decode("latin-1")) for text in dict.fromkeys(texts)}
    found = [known[text] for text in texts]
    numbers = (absent if number is None else number for number in found)
    good = (number is not None for number in found)
    return (
        np.fromiter(numbers, np.int64, len(texts)),
        np.fromiter(good, np.bool_, len(texts)),
    )


def real(value: float | str) -> float:
    """Return a number, or a string of one, as a float; infinite if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")


FRACTION_DIGITS = 15
"""Digits kept behind the point: more than any export writes, so sums of two are exact."""
_PARTS_IN_NS = 10 ** (FRACTION_DIGITS - 3)
_PARTS_OF_MILLISECONDS = 10 ** (FRACTION_DIGITS - 6)
"""Parts of the last digit kept in a nanosecond, where times are written in milliseconds."""
_TENS = 10 ** np.arange(FRACTION_DIGITS + 1)
_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
"""Decimal itself also takes 1_000, inf and nan."""
_BREAK, _QUOTE, _POINT, _ZERO = b"\n", ord('"'), ord("."), ord("0")
Characters = npt.NDArray[np.uint8]
_Exact = tuple[Int64, Int64, Bool]
"""Whole nanoseconds, the rest in parts of a nanosecond, and whether there is a number."""
_MOST_US = 9 * 10**15
"""Times beyond this many microseconds do not fit 64 bits of nanoseconds."""


def interval_ns(starts: Sequence[bytes], durations: Sequence[bytes]) -> tuple[Int64, Int64]:
    """Start and end of intervals whose start and duration are decimal microseconds.

    Start and end are rounded to the nearest nanosecond, half up; the duration never is, so
    neighbours that touch in the source touch here. A float64 could not do it: at 1.7e15 us its
    step is 0.25 us.

    Args:
        starts: n texts such as ``b'"1736408883688177.930"'`` or ``b'56635864664.91'``.
        durations: n texts; an empty one is not a length.

    Returns:
        start_ns, end_ns: (n,) int64, NO_TIME where a text is not a number.
    """
    lengths = _split([text or b"0" for text in durations])
    return _interval_ns(_split(starts), lengths, _PARTS_IN_NS)


def _interval_ns(start: _Exact, length: _Exact, parts_in_ns: int) -> tuple[Int64, Int64]:
    """Return rounded start and end of exact starts and lengths, NO_TIME without either."""
    (start_ns, start_part, start_good), (length_ns, length_part, length_good) = start, length
    half = parts_in_ns // 2
    end_ns = start_ns + length_ns + (start_part + length_part + half) // parts_in_ns
    rounded_ns = start_ns + (start_part + half) // parts_in_ns
    good = start_good & length_good
    return np.where(good, rounded_ns, NO_TIME), np.where(good, end_ns, NO_TIME)


def moments_ns(texts: Sequence[bytes]) -> Int64:
    """Return timestamps of decimal microseconds, (n,) int64 ns, NO_TIME without a number."""
    whole_ns, part, good = _split(texts)
    return np.where(good, whole_ns + (part + _PARTS_IN_NS // 2) // _PARTS_IN_NS, NO_TIME)


def moment_ns(text: bytes) -> int:
    """Return one timestamp; see `moments_ns`."""
    return int(moments_ns([text])[0])


def _split(texts: Sequence[bytes]) -> _Exact:
    if not len(texts):
        none = np.empty(0, np.int64)
        return none, none.copy(), np.empty(0, np.bool_)
    whole_ns, part, good = _various(_characters(texts))
    for row in np.flatnonzero(~good).tolist():
        exact = _exact(bytes(texts[row]).strip(b'" \t\r\n'))
        if exact is not None:
            whole_ns[row], part[row] = exact
            good[row] = True
    return whole_ns, part, good


LONGEST = 64
"""Characters of a number that is read with the others."""


def _characters(texts: Sequence[bytes]) -> Characters:
    """Return the characters of each string without quotes: (width, n), filled up with zeros."""
    joined = np.frombuffer(_BREAK.join(texts) + _BREAK, np.uint8)
    ends = np.flatnonzero(joined == _BREAK[0])
    if len(ends) != len(texts):
        plain = [bytes(text) for text in texts]
        packed = np.array([text if len(text) <= LONGEST else b"" for text in plain], np.bytes_)
        return packed.view(np.uint8).reshape(len(texts), -1).T
    starts = np.concatenate([[0], ends[:-1] + 1])
    quoted = joined[starts] == _QUOTE
    starts, ends = starts + quoted, ends - quoted
    lengths = ends - starts
    lengths[lengths > LONGEST] = 0  # read one by one: each would widen the rows of all
    width = max(1, int(lengths.max()))
    if lengths.min() == width and (quoted == quoted[0]).all():
        first = int(quoted[0])
        return joined.reshape(len(texts), -1)[:, first : first + width].T.copy()
    made = np.empty((width, len(texts)), np.uint8)
    last = len(joined) - 1
    for at in range(width):
        row = joined[np.minimum(starts + at, last)]
        made[at] = row if lengths.min() > at else np.where(lengths > at, row, 0)
    return made


def _various(characters: Characters) -> _Exact:
    count = characters.shape[1]
    whole_us = np.zeros(count, np.int64)
    fraction = np.zeros(count, np.int64)
    fraction_digits = np.zeros(count, np.int64)
    digits = np.zeros(count, np.int64)
    behind = np.zeros(count, np.bool_)
    plain = np.ones(count, np.bool_)
    for row in characters:
        digit = row - np.uint8(_ZERO)
        is_digit = digit < 10
        is_point = row == _POINT
        plain &= is_digit | (is_point & ~behind) | (row == 0)
        before = is_digit & ~behind
        np.copyto(whole_us, whole_us * 10 + digit, where=before)
        digits += before
        after = is_digit & behind & (fraction_digits < FRACTION_DIGITS)
        np.copyto(fraction, fraction * 10 + digit, where=after)
        fraction_digits += after
        behind |= is_point
    fraction *= _TENS[FRACTION_DIGITS - fraction_digits]
    good = plain & (digits > 0) & (digits < 17) & (whole_us < _MOST_US)
    more_ns = fraction // _PARTS_IN_NS  # which is fast, a remainder is not
    return whole_us * 1000 + more_ns, fraction - more_ns * _PARTS_IN_NS, good


def _exact(text: bytes) -> tuple[int, int] | None:
    """Return nanoseconds of a string with a sign or exponent, such as 1e-05; else None."""
    if not _NUMBER.fullmatch(text):
        return None
    try:
        value_us = Decimal(text.decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return None
    if not value_us:
        return 0, 0
    # The exponent first: of a large one no arithmetic is possible.
    if value_us.adjusted() > len(str(_MOST_US)) or abs(value_us) >= _MOST_US:
        return None
    with localcontext() as context:
        context.prec = 64
        parts = int(value_us.scaleb(FRACTION_DIGITS).to_integral_value(ROUND_FLOOR))
    return parts // _PARTS_IN_NS, parts % _PARTS_IN_NS


def interval_ns_of_milliseconds(
    starts: Sequence[bytes], durations: Sequence[bytes]
) -> tuple[Int64, Int64]:
    """Start and end of intervals whose start and duration are decimal milliseconds.

    Rounded as `interval_ns` does; NO_TIME where a text is not a number, or one so large that a
    sum of two would not fit 64 bits.
    """
    lengths = _of_milliseconds([text or b"0" for text in durations])
    return _interval_ns(_of_milliseconds(starts), lengths, _PARTS_OF_MILLISECONDS)


def _of_milliseconds(texts: Sequence[bytes]) -> _Exact:
    whole_us, part, good = _split(texts)
    good = good & (np.abs(whole_us) < _MOST_US // 2)
    whole_us = np.where(good, whole_us, 0)
    whole_ns = whole_us * 1000 + part // _PARTS_OF_MILLISECONDS
    return whole_ns, part % _PARTS_OF_MILLISECONDS, good
