"""What of one rank is needed to play its run again, found from its records."""

from __future__ import annotations

import numpy as np

from timeline.analysis.path.device_order import (
    before_on_device,
    item_collectives,
    item_kinds,
    ordered_items,
    waits_for_device,
)
from timeline.analysis.path.replay_items import RankReplay, ReplayItems, Synchronisations
from timeline.columns.columns import Bool, Int64, Rows
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Records

__all__ = ["rank_replay"]


def rank_replay(records: Records, selected: Bool) -> RankReplay:
    """What of a rank is needed to play its run again.

    records: what is selected. selected: which of the rank's collectives those of the records are.
    """
    items = ordered_items(records)
    if not len(items):
        return RankReplay()
    calls, item = waits_for_device(records, items)
    begin_ns, end_ns = records.host.start_ns[calls], records.host.end_ns[calls]
    given = items.launch_end_ns != NO_TIME
    launched_ns = np.where(given, np.minimum(items.launch_end_ns, items.start_ns), NO_TIME)
    since = _last_ended(end_ns, launched_ns)
    strings = StringPool()
    made = ReplayItems(
        items.start_ns,
        items.end_ns,
        item_kinds(records, items),
        strings.translate(items.name, records.strings),
        item_collectives(records, selected, items),
        before_on_device(records, items).astype(np.int32),
        launched_ns,
        _not_waiting(since, item).astype(np.int32),
    )
    before = np.minimum(_last_ended(end_ns, begin_ns), np.arange(len(calls)) - 1)
    waits = Synchronisations(begin_ns, end_ns, item.astype(np.int32), before.astype(np.int32))
    return RankReplay(tuple(strings), made, waits)


def _last_ended(end_ns: Int64, moments_ns: Int64) -> Rows:
    """The last call that has ended at each moment, NO_ID for none; ends are ascending."""
    return np.searchsorted(end_ns, moments_ns, side="right") - 1


def _not_waiting(since: Rows, item: Rows) -> Rows:
    """The calls before items, without those that waited for the item itself or a later one."""
    if not len(item):
        return since
    waited = np.where(since >= 0, item[since], NO_ID)
    return np.where(waited < np.arange(len(since)), since, NO_ID)
