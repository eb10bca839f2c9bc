"""Turns scanned counter events into the events that are alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from timeline.columns.columns import Float64, Int64, Rows
from timeline.sources.scanned_events import ArgValues, ScannedEvents
from timeline.sources.spellings import Spellings
from timeline.sources.trace_counters import CounterEvents

__all__ = ["scanned_counters"]


@dataclass(frozen=True)
class _ScannedCounters(CounterEvents):
    """Rows of scanned events."""

    pid: object
    name: str
    keys: list[str]
    time_ns: Int64
    values: ArgValues
    """Of all args, event after event."""
    spellings: Spellings

    def _values(self, key: str) -> ArgValues:
        count = len(self.keys)
        return self.values[np.arange(self.keys.index(key), count * len(self.time_ns), count)]

    def objects(self, key: str) -> list[Any]:
        return self._values(key).objects(self.spellings)

    def numbers(self, key: str) -> tuple[Rows | slice, Float64]:
        return self._values(key).reals(self.spellings)


def scanned_counters(
    events: ScannedEvents, rows: Rows, spellings: Spellings
) -> Iterator[_ScannedCounters]:
    """The counter events among some, which are at these rows, but for those without args."""
    order = rows[np.argsort(events.group[rows], kind="stable")]
    groups, first = np.unique(events.group[order], return_index=True)
    bounds = [*first.tolist(), len(order)]
    first_arg = np.searchsorted(events.arg_row, order)
    for place, group in enumerate(groups.tolist()):
        process, name, keys = spellings.counters(group)
        own = slice(*bounds[place : place + 2])
        args = first_arg[own, np.newaxis] + np.arange(len(keys))
        if keys:
            yield _ScannedCounters(
                process,
                name,
                keys,
                events.start_ns[order[own]],
                events.args[args.reshape(-1)],
                spellings,
            )
