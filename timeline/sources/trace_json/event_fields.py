"""Turns fields of trace events into columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np

from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.constant import constant
from timeline.columns.strings import NO_NAME, StringPool
from timeline.sources.common.decimals import interval_ns
from timeline.sources.trace_json.events import Value, number, text

__all__ = ["Interval", "first_ids", "ids_of", "names_of", "numbered", "spans_of"]


class Interval(Protocol):
    """An event that has a name, and a start and length in decimal microseconds."""

    name: str
    ts: msgspec.Raw
    dur: msgspec.Raw


def spans_of(events: Sequence[Interval]) -> dict[str, Int64]:
    """Start and end of events, under the names of their columns."""
    start_ns, end_ns = interval_ns([event.ts for event in events], [event.dur for event in events])
    return {"start_ns": start_ns, "end_ns": end_ns}


def numbered(names: Sequence[str], pattern: re.Pattern[str]) -> tuple[Rows, list[int]]:
    """The names that are of a pattern as a whole, and the numbers that are its first group."""
    numbers = {name: int(match[1]) for name in set(names) if (match := pattern.fullmatch(name))}
    rows = [row for row, name in enumerate(names) if name in numbers] if numbers else []
    return np.array(rows, np.intp), [numbers[names[row]] for row in rows]


def ids_of(values: Sequence[Value], default: int) -> Int64:
    """Ids or amounts as a column; see `number`."""
    absent = values.count(None)
    if absent == len(values):
        return constant(default, len(values), np.int64)
    given = [default if value is None else value for value in values] if absent else values
    made = np.array(given)
    if made.dtype == np.int64:
        return made
    return np.fromiter((number(value, default) for value in given), np.int64, len(given))


def first_ids(first: Sequence[Value], second: Sequence[Value], default: int) -> Int64:
    """The same of two spellings, the first that is given."""
    absent = first.count(None)
    if absent == len(first):
        return ids_of(second, default)
    if not absent:
        return ids_of(first, default)
    return ids_of(
        [two if one is None else one for one, two in zip(first, second, strict=True)], default
    )


def names_of(values: Sequence[Value], strings: StringPool) -> Codes:
    """Names as a column."""
    if values.count(None) == len(values):
        return constant(NO_NAME, len(values), np.int32)
    return strings.codes([value if type(value) is str else text(value) for value in values])
