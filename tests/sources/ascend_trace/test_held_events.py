"""Proves that reading a trace holds few of its events and little of its text at a time."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.trace_json_reading import (
    CALLS,
    DEVICE_LANES,
    STREAM,
    EventObject,
    Writer,
    pieces,
    read,
    run_on,
)
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders import json_events
from timeline.sources.decoders.json_events import read_events
from timeline.sources.decoders.trace_events import Other


class HeldEvents:
    """Counts how many of the events that were read somebody holds at once.

    Events cannot be referred to weakly, so they are kept here, and count as held while their
    reference count is higher than that of an object which is only kept in a list.
    """

    def __init__(self) -> None:
        self.most = 0
        self.blocks = 0
        self._seen: list[Any] = []
        self._kept_only = self._references([Other()])[0]

    def read(
        self, decoder: Any, path: Path, _: int, damage: LossLog, scan: object
    ) -> Iterator[list[Any]]:
        """Small blocks of events, counted before each next one."""
        for block in read_events(decoder, path, 4096, damage):
            assert isinstance(block, list)
            self._seen += block
            yield block
            self.blocks += 1
            held = sum(found > self._kept_only for found in self._references(self._seen))
            self.most = max(self.most, held)

    @staticmethod
    def _references(events: Sequence[Any]) -> list[int]:
        return [sys.getrefcount(event) for event in events]


def busy_trace() -> tuple[list[EventObject], list[EventObject]]:
    """Some thousand events of all phases on several lanes; and the names of the lanes."""
    lanes = [*CALLS, *DEVICE_LANES]
    events: list[EventObject] = []
    for place in range(1000):
        lane = lanes[place % len(lanes)]
        at = {"pid": lane.pid, "tid": lane.tid, "ts": place}
        events += [
            {"ph": "X", **at, "name": f"op {place % 7}", "dur": 1, "args": {"Task Id": place}},
            {"ph": "C", **at, "name": "Read", "args": {"KB": place}},
            {"ph": "sf"[place % 2], **at, "cat": "fwdbwd", "id": place // 2},
        ]
    return events, [event for lane in lanes for event in lane.names()]


@pytest.mark.parametrize("names", ["first", "in between", "last", "missing"])
@pytest.mark.parametrize("only_slices", [False, True], ids=["all phases", "slices"])
def test_events_are_objects_only_for_a_while(write: Writer, names: str, only_slices: bool) -> None:
    """At most those that are held and one block, wherever the names lie, if anywhere."""
    found, metadata = busy_trace()
    events = [event for event in found if event["ph"] == "X"] if only_slices else found
    half = len(events) // 2
    orders = {
        "first": metadata + events,
        "in between": events[:half] + metadata + events[half:],
        "last": events + metadata,
        "missing": events,
    }
    held = HeldEvents()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_events, "Scanner", None)
        patch.setattr(json_events, "HELD_EVENTS", 100)
        patch.setattr(json_events, "read_events", held.read)
        read(write(orders[names]))
    assert held.blocks > 10
    assert 0 < held.most < 200


def test_a_lane_without_a_name_does_not_keep_the_whole_file(write: Writer) -> None:
    """Level 0 of torch_npu leaves CANN without a name.

    The times of an event are a view of its block, so a few events that wait for the name of their
    lane would keep the text of all blocks.
    """
    long = {"note": "x" * 600}
    events = [
        {**event, "pid": 1 if place % 100 else 99, "args": long}
        for place, event in enumerate(run_on(1, 2, 8000))
    ]
    path = write(STREAM.names() + events)
    with pieces(400, block_bytes=1 << 16):
        assert peak_bytes(path) < path.stat().st_size // 2


def peak_bytes(path: Path) -> int:
    """The most memory that reading a trace takes."""
    tracemalloc.start()
    try:
        read(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
