"""Exact integers and nanoseconds parsed from decimal strings, a column at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal, InvalidOperation, localcontext

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Int64
from timeline.records.not_given import NO_TIME

_DECIMAL = re.compile(r"\s*(-?)0*([0-9]{1,19})\s*", re.ASCII)
"""An integer of at most 19 ASCII digits; int() also accepts other scripts and longer numbers."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_MOST_DIGITS = 18
"""Integers of up to this many digits always fit 64 bits."""


def whole_number(value: object) -> int | None:
    """Return an int, or a string of decimal digits, as an integer; None for anything else.

    Blanks around the digits and a leading minus are accepted. A plus, digits of other scripts, and
    numbers that do not fit int64 are not.
    """
    if isinstance(value, str):
        match = _DECIMAL.fullmatch(value)
        value = int(match[1] + match[2]) if match else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if _LEAST <= value <= _MOST else None


def whole_numbers(texts: Sequence[bytes], absent: int) -> tuple[Int64, Bool]:
    """Parse integers as `whole_number` does.

    Returns:
        numbers: (n,) int64, `absent` where a string is not an integer.
        valid: (n,) bool, where a string is an integer.
    """
    if texts and max(map(len, texts)) <= _MOST_DIGITS and all(map(bytes.isdigit, texts)):
        return np.fromiter(map(int, texts), np.int64, len(texts)), np.ones(len(texts), np.bool_)
    number_of = {text: whole_number(text.decode("latin-1")) for text in dict.fromkeys(texts)}
    parsed = [number_of[text] for text in texts]
    numbers = (absent if number is None else number for number in parsed)
    valid = (number is not None for number in parsed)
    return (
        np.fromiter(numbers, np.int64, len(texts)),
        np.fromiter(valid, np.bool_, len(texts)),
    )


def real(value: float | str) -> float:
    """Return a number or a numeric string as a float; infinity if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")


FRACTION_DIGITS = 15
"""Digits kept after the decimal point: more than any export writes, so sums of two are exact."""
_PARTS_IN_NS = 10 ** (FRACTION_DIGITS - 3)
"""Units of the last kept digit per nanosecond, for times in microseconds."""
_PARTS_OF_MILLISECONDS = 10 ** (FRACTION_DIGITS - 6)
"""Units of the last kept digit per nanosecond, for times in milliseconds."""
_TENS = 10 ** np.arange(FRACTION_DIGITS + 1)
_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
"""A decimal number; Decimal() itself also accepts 1_000, inf and nan."""
_BREAK, _QUOTE, _POINT, _ZERO = b"\n", ord('"'), ord("."), ord("0")
Characters = npt.NDArray[np.uint8]
_Exact = tuple[Int64, Int64, Bool]
"""Times: whole nanoseconds, the remainder in parts of a nanosecond, and which are valid."""
_MOST_US = 9 * 10**15
"""The longest time in microseconds; longer ones do not fit 64 bits in nanoseconds."""


def interval_ns(starts: Sequence[bytes], durations: Sequence[bytes]) -> tuple[Int64, Int64]:
    """Return start and end of intervals whose start and duration are decimal microseconds.

    Start and end are rounded to the nearest nanosecond, half up. The duration is added before
    rounding, so neighbours that touch in the source touch here. float64 is too coarse: at 1.7e15 us
    its step is 0.25 us.

    Args:
        starts: n strings such as ``b'"1736408883688177.930"'`` or ``b'56635864664.91'``.
        durations: n strings; an empty one counts as 0.

    Returns:
        start_ns, end_ns: (n,) int64, NO_TIME where either string is not a number.
    """
    lengths = _split([text or b"0" for text in durations])
    return _interval_ns(_split(starts), lengths, _PARTS_IN_NS)


def _interval_ns(start: _Exact, length: _Exact, parts_in_ns: int) -> tuple[Int64, Int64]:
    """Round start and start plus length to nanoseconds; NO_TIME unless both are valid."""
    (start_ns, start_part, start_good), (length_ns, length_part, length_good) = start, length
    half = parts_in_ns // 2
    end_ns = start_ns + length_ns + (start_part + length_part + half) // parts_in_ns
    rounded_ns = start_ns + (start_part + half) // parts_in_ns
    good = start_good & length_good
    return np.where(good, rounded_ns, NO_TIME), np.where(good, end_ns, NO_TIME)


def parse_times_ns(texts: Sequence[bytes]) -> Int64:
    """Parse decimal microseconds: (n,) int64 ns, NO_TIME where a string is not a number."""
    whole_ns, part, good = _split(texts)
    return np.where(good, whole_ns + (part + _PARTS_IN_NS // 2) // _PARTS_IN_NS, NO_TIME)


def _split(texts: Sequence[bytes]) -> _Exact:
    """Parse microseconds: plain decimals all at once, any other notation one by one."""
    if not len(texts):
        empty = np.empty(0, np.int64)
        return empty, empty.copy(), np.empty(0, np.bool_)
    whole_ns, part, good = _parse_plain(_characters(texts))
    for row in np.flatnonzero(~good).tolist():
        exact = _parse_any(bytes(texts[row]).strip(b'" \t\r\n'))
        if exact is not None:
            whole_ns[row], part[row] = exact
            good[row] = True
    return whole_ns, part, good


LONGEST = 64
"""The most characters of a number that is parsed together with the others of its column."""


def _characters(texts: Sequence[bytes]) -> Characters:
    """Return the characters of each string without quotes: (width, n), padded with zeros.

    Strings longer than `LONGEST` become empty.
    """
    joined = np.frombuffer(_BREAK.join(texts) + _BREAK, np.uint8)
    ends = np.flatnonzero(joined == _BREAK[0])
    if len(ends) != len(texts):
        plain = [bytes(text) for text in texts]
        packed = np.array([text if len(text) <= LONGEST else b"" for text in plain], np.bytes_)
        return packed.view(np.uint8).reshape(len(texts), -1).T
    starts = np.concatenate([[0], ends[:-1] + 1])
    quoted = (joined[starts] == _QUOTE) & (joined[ends - 1] == _QUOTE)
    starts, ends = starts + quoted, ends - quoted
    lengths = ends - starts
    lengths[lengths > LONGEST] = 0  # parsed one by one, since they would widen the whole array
    width = max(1, int(lengths.max()))
    if lengths.min() == width and (quoted == quoted[0]).all():
        first = int(quoted[0])
        return joined.reshape(len(texts), -1)[:, first : first + width].T.copy()
    characters = np.empty((width, len(texts)), np.uint8)
    last = len(joined) - 1
    for at in range(width):
        row = joined[np.minimum(starts + at, last)]
        characters[at] = row if lengths.min() > at else np.where(lengths > at, row, 0)
    return characters


def _parse_plain(characters: Characters) -> _Exact:
    """Parse columns of characters, (width, n): digits with at most one point, below `_MOST_US`."""
    count = characters.shape[1]
    whole_us = np.zeros(count, np.int64)
    fraction = np.zeros(count, np.int64)
    fraction_digits = np.zeros(count, np.int64)
    digits = np.zeros(count, np.int64)
    past_point = np.zeros(count, np.bool_)
    plain = np.ones(count, np.bool_)
    for row in characters:
        digit = row - np.uint8(_ZERO)
        is_digit = digit < 10
        is_point = row == _POINT
        plain &= is_digit | (is_point & ~past_point) | (row == 0)
        is_whole = is_digit & ~past_point
        np.copyto(whole_us, whole_us * 10 + digit, where=is_whole)
        digits += is_whole
        is_fraction = is_digit & past_point & (fraction_digits < FRACTION_DIGITS)
        np.copyto(fraction, fraction * 10 + digit, where=is_fraction)
        fraction_digits += is_fraction
        past_point |= is_point
    fraction *= _TENS[FRACTION_DIGITS - fraction_digits]
    good = plain & (digits > 0) & (digits < 17) & (whole_us < _MOST_US)
    fraction_ns = fraction // _PARTS_IN_NS  # the division is fast, np.remainder is not
    return whole_us * 1000 + fraction_ns, fraction - fraction_ns * _PARTS_IN_NS, good


def _parse_any(text: bytes) -> tuple[int, int] | None:
    """Parse a number that may have a sign or exponent, such as 1e-05; None if it is not one."""
    if not _NUMBER.fullmatch(text):
        return None
    try:
        value_us = Decimal(text.decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return None
    if not value_us:
        return 0, 0
    # Check the exponent first: arithmetic with a huge one is impossible.
    if value_us.adjusted() > len(str(_MOST_US)) or abs(value_us) >= _MOST_US:
        return None
    with localcontext() as context:
        context.prec = 64
        parts = int(value_us.scaleb(FRACTION_DIGITS).to_integral_value(ROUND_FLOOR))
    return parts // _PARTS_IN_NS, parts % _PARTS_IN_NS


def interval_ns_of_milliseconds(
    starts: Sequence[bytes], durations: Sequence[bytes]
) -> tuple[Int64, Int64]:
    """Return start and end of intervals whose start and duration are decimal milliseconds.

    Rounding is that of `interval_ns`. NO_TIME where a string is not a number, or so large that a
    sum of two would not fit 64 bits.
    """
    lengths = _of_milliseconds([text or b"0" for text in durations])
    return _interval_ns(_of_milliseconds(starts), lengths, _PARTS_OF_MILLISECONDS)


def _of_milliseconds(texts: Sequence[bytes]) -> _Exact:
    """Parse milliseconds; `_split` takes them for microseconds, so its whole ns are whole us."""
    whole_us, part, good = _split(texts)
    good = good & (np.abs(whole_us) < _MOST_US // 2)
    whole_us = np.where(good, whole_us, 0)
    whole_ns = whole_us * 1000 + part // _PARTS_OF_MILLISECONDS
    return whole_ns, part % _PARTS_OF_MILLISECONDS, good
