"""Turns scanned flow events into the ends of arrows."""

from __future__ import annotations

from timeline.columns.columns import Rows
from timeline.columns.distinct import distinct_values
from timeline.sources.scanned_events import ARROW_START, ScannedEvents
from timeline.sources.spellings import Spellings
from timeline.sources.trace_events import text
from timeline.sources.trace_flows import FlowReader

__all__ = ["add_arrows"]


def add_arrows(
    reader: FlowReader, events: ScannedEvents, rows: Rows, spellings: Spellings, without: str
) -> None:
    """Add the ends that are at these rows of the events, but for those of one category."""
    category = spellings.names(events.category[rows])
    held = category != reader.strings.code(without)
    rows, category = rows[held], category[held]
    ids = events.end_ns[rows]
    codes, which = distinct_values(~ids[ids < 0])
    ids[ids < 0] = reader.ids([text(spellings[code]).encode() for code in codes.tolist()])[which]
    groups, lane = distinct_values(events.group[rows])
    reader.add_columns(
        [spellings.lane(group) for group in groups.tolist()],
        lane,
        category=category,
        id=ids,
        time_ns=events.start_ns[rows],
        is_start=events.phase[rows] == ARROW_START,
    )
