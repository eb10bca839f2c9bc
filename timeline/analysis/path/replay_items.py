"""ReplayItems: what of one rank is needed to play its run again with other lengths of tasks."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np

from timeline.columns.columns import Codes, Int64, column
from timeline.frozen import dataclass
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Spans

__all__ = ["RankReplay", "ReplayItems", "Synchronisations"]


class ReplayItems(Spans):
    """All compute tasks, copies and communication ops of one rank, in order of start.

    kind: a PathKind, as in PathItems. name: code of the strings of the rank. collective: its row
    among the rank's collectives, NO_ID for what is no op. before: the row whose end it needs on the
    device, always an earlier one, NO_ID for none. launched_ns: when its launch call had returned,
    no later than its start, NO_TIME where that is not recorded. host_since: the last
    synchronisation before that, NO_ID for none.
    """

    kind: Codes = column(np.int32)
    name: Codes = column(np.int32)
    collective: Codes = column(np.int32, NO_ID)
    before: Codes = column(np.int32, NO_ID)
    launched_ns: Int64 = column(np.int64, NO_TIME)
    host_since: Codes = column(np.int32, NO_ID)


class Synchronisations(Spans):
    """Calls in which the host of a rank waited until an item had ended, in order of end.

    item: the row of that item. before: the last synchronisation that had ended when the call began,
    NO_ID for none.
    """

    item: Codes = column(np.int32)
    before: Codes = column(np.int32, NO_ID)


@dataclass(frozen=True, slots=True)
class RankReplay:
    """What of one rank is needed to play its run again; codes are positions in `strings`."""

    strings: tuple[str, ...] = ("",)
    items: ReplayItems = field(default_factory=ReplayItems.empty)
    waits: Synchronisations = field(default_factory=Synchronisations.empty)

    def moved(self, move: ClockMove) -> RankReplay:
        """The run on another clock."""
        return replace(self, items=self.items.moved(move), waits=self.waits.moved(move))
