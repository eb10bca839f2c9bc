"""Parsing and formatting of sizes, durations, ids and numbers, such as "20MB" and "0,2-5"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from timeline.errors import UsageError

_BYTES = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_COUNTS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_DURATIONS_NS = {"": 1, "ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
MOST_DIGITS = 40
"""Maximum number of digits of a typed number; useful ones have less than half as many."""
_ID_RANGE = re.compile(rf"(\d{{1,{MOST_DIGITS}}})(?:-(\d{{1,{MOST_DIGITS}}}))?")
MOST_IDS = 10_000_000
"""Maximum number of ids in one range; more would only fill memory."""


def parse_bytes(text: str) -> int:
    """Parse a size; K, M and G are powers of 1024, with or without B or iB.

    >>> parse_bytes("20MB")
    20971520
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMG])(?:i?B)?|(B)?)\s*", text, re.IGNORECASE)
    if match is None:
        raise UsageError(
            f"{text!r} is not a size.", do="Write a number and B, KB, MB or GB, as in 20MB."
        )
    return _whole(match[1], _BYTES[(match[2] or "").upper()])


def parse_count(text: str) -> int:
    """Parse a number of things; K, M and G are powers of 1000.

    >>> parse_count("6M")
    6000000
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG])?\s*", text, re.IGNORECASE)
    if match is None:
        raise UsageError(f"{text!r} is not a number.", do="Write one, as in 6M or 500000.")
    return _whole(match[1], _COUNTS[(match[2] or "").upper()])


def parse_duration_ns(text: str) -> int:
    """Parse a duration; a number without a unit is in nanoseconds.

    >>> parse_duration_ns("1.5ms")
    1500000
    """
    match = re.fullmatch(r"\s*([+-]?\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s)?\s*", text)
    if match is None:
        raise UsageError(
            f"{text!r} is not a time.", do="Write a number and ns, us, ms or s, as in 1.5ms."
        )
    return _whole(match[1], _DURATIONS_NS[match[2] or ""])


def _whole(number: str, scale: int) -> int:
    """Return a decimal number times its unit, computed exactly and truncated to an integer."""
    from decimal import Decimal  # imported late: most commands have no such number

    if len(number) > MOST_DIGITS:
        raise UsageError(f"{number[:MOST_DIGITS]}... is too large a number.")
    return int(Decimal(number) * scale)


def parse_whole(text: str) -> int | None:
    """Parse a number that consists of decimal digits only; return None for any other string.

    >>> parse_whole("12"), parse_whole("²"), parse_whole("-1")
    (12, None, None)
    """
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def parse_ids(text: str, noun: str) -> frozenset[int] | None:
    """Parse a list of ids and inclusive ranges; return None for "all".

    >>> sorted(parse_ids("0,2-4", "ranks"))
    [0, 2, 3, 4]
    """
    if text.strip().lower() == "all":
        return None
    ids: set[int] = set()
    for part in text.split(","):
        match = _ID_RANGE.fullmatch(part.strip())
        if match is None:
            raise UsageError(
                f"{noun} {text}: {part.strip()!r} is not an id.",
                do="Write them as in 0,2-5, or all.",
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(
                f"{noun} {text}: the range {part.strip()} runs backwards.",
                do=f"Write {last}-{first}.",
            )
        if last - first >= MOST_IDS:
            raise UsageError(
                f"{noun} {text}: the range {part.strip()} is too long.",
                do=f"Write a range of fewer than {MOST_IDS} ids, or all.",
            )
        ids.update(range(first, last + 1))
    return frozenset(ids)


def check_range(noun: str, ids: object) -> None:
    """Check that a range has at most MOST_IDS ids.

    Raises:
        UsageError: it has more.
    """
    if isinstance(ids, range) and len(ids[: MOST_IDS + 1]) > MOST_IDS:
        raise UsageError(
            f"{noun} {ids}: the range is too long.", do=f"Give at most {MOST_IDS} ids."
        )


def format_bytes(size_bytes: int) -> str:
    """Format a size.

    >>> format_bytes(19_608_211)
    '18.7 MB'
    """
    if size_bytes < 1 << 10:
        return f"{size_bytes} B"
    for unit, scale in (("KB", 1 << 10), ("MB", 1 << 20)):
        if size_bytes < scale << 10:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes / (1 << 30):.2f} GB"


def format_duration(duration_ns: int) -> str:
    """Format a duration with three decimals.

    >>> format_duration(86_470_908)
    '86.471 ms'
    """
    for unit, scale in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if abs(duration_ns) >= scale:
            return f"{duration_ns / scale:.3f} {unit}"
    return f"{duration_ns} ns"


def format_short(duration_ns: int) -> str:
    """Format a duration in at most seven characters, with three significant digits.

    >>> format_short(86_470_908), format_short(999_600)
    ('86.5 ms', '1.00 ms')
    """
    value, unit = float(duration_ns), "ns"
    for larger in ("us", "ms", "s"):
        if abs(value) < 999.5:
            break
        value, unit = value / 1000, larger
    size = abs(value)
    digits = 0 if unit == "ns" or size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"


@dataclass(frozen=True)
class ColumnUnit:
    """The unit of all numbers of a column, that of the largest, and their number of decimals.

    >>> unit = ColumnUnit.of_times([3_740_000, 61_000, 140])
    >>> unit.title("time"), unit.format(3_740_000), unit.format(61_000), unit.format(140)
    ('time (ms)', '3.740', '0.061', '<0.001')
    """

    name: str
    scale: int
    digits: int

    @classmethod
    def of_times(cls, times_ns: Iterable[int | None]) -> ColumnUnit:
        """Return the unit of a column of times, None where unknown."""
        return cls._of(times_ns, {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1})

    @classmethod
    def of_sizes(cls, sizes_bytes: Iterable[int | None]) -> ColumnUnit:
        """Return the unit of a column of sizes, None where unknown."""
        return cls._of(sizes_bytes, {"GB": 1 << 30, "MB": 1 << 20, "KB": 1 << 10, "B": 1})

    @classmethod
    def _of(cls, values: Iterable[int | None], units: dict[str, int]) -> ColumnUnit:
        largest = max((abs(value) for value in values if value is not None), default=0)
        name, scale = next(
            one for one in units.items() if largest >= 0.9995 * one[1] or one[1] == 1
        )
        return cls(name, scale, 0 if scale == 1 else 3 if largest < 9.9995 * scale else 2)

    def title(self, text: str) -> str:
        """Return a heading with the unit."""
        return f"{text} ({self.name})"

    def format(self, value: int | None, *, signed: bool = False) -> str:
        """Format a number without its unit, or a dash if it is None; only exactly zero is 0.

        signed: whether it is a change, which has a plus if positive.
        """
        if value is None:
            return "-"
        least = 10**-self.digits
        number = f"{abs(value) / self.scale:.{self.digits}f}"
        if not (float(number) or signed):
            number = f"<{least:.{self.digits}f}"
        sign = "-" if value < 0 else "+" if signed and value else ""
        return f"{sign}{number}" if value else "0"


def format_like(duration_ns: int, other_ns: int) -> str:
    """Format a duration in the unit and digits of a longer one, unless that would print zero.

    >>> format_like(467_000, 3_074_000), format_like(3_074_000, 3_074_000)
    ('0.47 ms', '3.07 ms')
    >>> format_like(200, 3_074_000)
    '200 ns'
    """
    units = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))
    scale, unit = next((one for one in units if other_ns >= 0.9995 * one[0]), (1, "ns"))
    size = other_ns / scale
    digits = 0 if scale == 1 or size >= 999.5 else 1 if size >= 99.95 else 2
    number = f"{duration_ns / scale:.{digits}f}"
    return f"{number} {unit}" if float(number) or not duration_ns else format_short(duration_ns)


def format_rate(gb_s: float) -> str:
    """Format a bandwidth with three significant digits, small ones in smaller units than GB/s.

    >>> format_rate(15.613921), format_rate(0.2230458), format_rate(645.604), format_rate(0.00666)
    ('15.6 GB/s', '223 MB/s', '646 GB/s', '6.66 MB/s')
    """
    value, unit = gb_s * 1e9, "B/s"
    for larger in ("KB/s", "MB/s", "GB/s"):
        if abs(value) < 999.5:
            break
        value, unit = value / 1000, larger
    size = abs(value)
    return f"{value:.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f} {unit}"


def format_share(part: float, whole: float) -> str:
    """Format a share in at most four characters; only exactly zero is 0%.

    >>> format_share(1, 3), format_share(1, 1000), format_share(0, 5)
    ('33%', '<1%', '0%')
    """
    share = part / whole if whole else 0.0
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def format_number(number: int) -> str:
    """Format a number with its digits in groups of three.

    >>> format_number(1234567)
    '1 234 567'
    """
    return f"{number:,}".replace(",", " ")


def format_tenths(tenths: int) -> str:
    """Format tenths of a percent with two significant digits.

    >>> format_tenths(23), format_tenths(347)
    ('2.3%', '35%')
    """
    return f"{tenths / 10:.1f}%" if tenths < 100 else f"{tenths / 10:.0f}%"


def format_count(count: int, noun: str) -> str:
    """Format a number of things with their noun.

    >>> format_count(1, "task"), format_count(171204, "task")
    ('1 task', '171 204 tasks')
    """
    digits = format_number(count)
    return f"{digits} {noun}" if count == 1 else f"{digits} {noun}s"


def format_flop(flop: float) -> str:
    """Format a number of floating-point operations with three significant digits.

    >>> format_flop(5_385_552_000_000)
    '5.39 TFLOP'
    """
    for scale, unit in ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if flop >= scale:
            return f"{flop / scale:.3g} {unit}"
    return f"{flop:.3g} FLOP"
