"""Turns the events of lanes into columns that hold one value per lane or one per event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from timeline.records.columns import Codes, Int64, constant
from timeline.records.strings import StringPool
from timeline.sources.trace_events import NO_ARGS, Args, Complete
from timeline.sources.trace_lanes import LaneKey

__all__ = ["LaneEvents"]


@dataclass(frozen=True)
class LaneEvents:
    """The events of some lanes, lane after lane."""

    keys: list[LaneKey]
    counts: list[int]
    """Events of each lane."""
    events: list[Complete]

    @classmethod
    def of(cls, lanes: Mapping[LaneKey, Sequence[Complete]]) -> LaneEvents:
        """Join the events of lanes."""
        counts = [len(events) for events in lanes.values()]
        return cls(list(lanes), counts, list(chain.from_iterable(lanes.values())))

    def args(self) -> list[Args]:
        """The args of each event."""
        return [event.args or NO_ARGS for event in self.events]

    def names(self, strings: StringPool) -> Codes:
        """The name of each event."""
        return strings.codes([event.name for event in self.events])

    def ids(self, values: Sequence[int]) -> Int64:
        """One id per lane as a column of the events."""
        if len(set(values)) == 1:
            return constant(values[0], len(self.events), np.int64)
        return np.repeat(np.array(values, np.int64), self.counts)

    def codes(self, values: Sequence[str], strings: StringPool) -> Codes:
        """One string per lane as a column of the events."""
        return self.ids([strings.code(value) for value in values]).astype(np.int32)
