"""The ranges of times, ids, orders and amounts of memory, and the errors beyond them."""

from __future__ import annotations

from timeline.errors import RecordError, UsageError

FURTHEST_NS = (1 << 62) - 1
"""Times lie within 146 years of zero, so that the difference of any two fits 64 bits."""
LARGEST_ID = (1 << 63) - 1
"""Columns of ids hold signed 64-bit integers."""
MOST_BYTES = float(1 << 53)
"""More than any memory; a float from here on no longer distinguishes single bytes."""
LARGEST_ORDER = (1 << 31) - 1
"""The order of a row among its siblings is a signed 32-bit integer in a trace."""


def check_id(what: str, number: int) -> None:
    """Refuse an id that no column can hold.

    Raises:
        UsageError: it is negative or too large.
    """
    if number < 0:
        raise UsageError(f"{what} {number}: no id is negative.")
    if number > LARGEST_ID:
        raise UsageError(f"{what} {number}: ids end at {LARGEST_ID}.")


def check_offset(what: str, offset_ns: int) -> None:
    """Refuse to move a clock further than times reach.

    Raises:
        UsageError: it is.
    """
    if abs(offset_ns) > FURTHEST_NS:
        raise UsageError(
            f"{what}: {offset_ns} ns is too far.",
            do=f"Move a clock by at most {FURTHEST_NS // 10**9}s.",
        )


def check_span(first_ns: int, last_ns: int) -> None:
    """Refuse a span of times that reaches too far from zero.

    Raises:
        RecordError: it does.
    """
    for time_ns in (first_ns, last_ns):
        if abs(time_ns) > FURTHEST_NS:
            raise RecordError(
                f"a clock was moved to {time_ns} ns, which is more than 146 years from zero.",
                do="Move it by less with --offset, or leave all as they are with --align none.",
            )


def check_order(row: str, order: int) -> None:
    """Refuse an order of a row that its field in a trace cannot hold.

    Raises:
        RecordError: it is out of range.
    """
    if abs(order) > LARGEST_ORDER:
        raise RecordError(f"row {row}: its order is {order}; at most {LARGEST_ORDER} is possible.")
