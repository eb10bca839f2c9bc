"""Ranges of times, ids, orders and amounts of memory, and checks that values are within them."""

from __future__ import annotations

from timeline.errors import RecordError, UsageError

FURTHEST_NS = (1 << 62) - 1
"""Largest absolute time, 146 years, so that the difference of any two fits 64 bits."""
LARGEST_ID = (1 << 63) - 1
"""Largest id: columns of ids are signed 64-bit integers."""
MOST_BYTES = float(1 << 53)
"""Largest amount of memory; larger floats do not distinguish single bytes."""
LARGEST_ORDER = (1 << 31) - 1
"""Largest order of a row among its siblings: a signed 32-bit integer in a trace."""


def check_id(what: str, number: int) -> None:
    """Check that a column can hold an id.

    Raises:
        UsageError: it is negative or too large.
    """
    if number < 0:
        raise UsageError(f"{what} {number}: no id is negative.")
    if number > LARGEST_ID:
        raise UsageError(f"{what} {number}: ids end at {LARGEST_ID}.")


def check_offset(what: str, offset_ns: int) -> None:
    """Check that an offset of a clock is within the range of times.

    Raises:
        UsageError: it is not.
    """
    if abs(offset_ns) > FURTHEST_NS:
        raise UsageError(
            f"{what}: {offset_ns} ns is too far.",
            do=f"Move a clock by at most {FURTHEST_NS // 10**9}s.",
        )


def check_span(first_ns: int, last_ns: int) -> None:
    """Check that a span is within the range of times.

    Raises:
        RecordError: it is not.
    """
    for time_ns in (first_ns, last_ns):
        if abs(time_ns) > FURTHEST_NS:
            raise RecordError(
                f"a clock was moved to {time_ns} ns, which is more than 146 years from zero.",
                do="Move it by less with --offset, or leave all as they are with --align none.",
            )


def check_order(row: str, order: int) -> None:
    """Check that a trace can hold the order of a row.

    Raises:
        RecordError: it is out of range.
    """
    if abs(order) > LARGEST_ORDER:
        raise RecordError(f"row {row}: its order is {order}; at most {LARGEST_ORDER} is possible.")
