"""What is known of a capture's clock, and records moved by a constant."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from timeline.records.columns import Columns
from timeline.records.tables import NO_TIME, Records

__all__ = ["EARLIEST_WALL_NS", "Clock", "shifted"]

EARLIEST_WALL_NS = 10**17
"""Wall time passed this in March 1973; a monotonic clock would need three years of uptime."""


@dataclass(frozen=True)
class Clock:
    """How a capture's times relate to those of other captures.

    `host` names the machine, empty where the capture does not; captures of one machine share a
    clock. `wall_offset_ns` turns its monotonic clock into wall time, where that is known.
    """

    host: str = ""
    wall_offset_ns: int | None = None


def shifted(records: Records, offset_ns: int) -> Records:
    """All times of all tables moved by the same constant; absent times stay absent.

    A column is a time if and only if its name ends in _ns.
    """
    if not offset_ns:
        return records
    tables = {
        field.name: _shifted(table, offset_ns)
        for field in fields(records)
        if isinstance(table := getattr(records, field.name), Columns)
    }
    return replace(records, **tables)


def _shifted(table: Columns, offset_ns: int) -> Any:
    times = {
        field.name: getattr(table, field.name)
        for field in fields(table)
        if field.name.endswith("_ns")
    }
    return replace(
        table,
        **{
            name: np.where(values == NO_TIME, NO_TIME, values + offset_ns)
            for name, values in times.items()
        },
    )
