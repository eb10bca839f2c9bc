"""Proves that the decoder of the short runs sees what the trace processor sees, and any damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from tests.support.decoded_trace import DamagedTraceError, decode_totals
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from tests.support.row_totals import trace_totals
from tests.support.trace_packets import packets_of
from timeline.commands.export import export

Packets = list[Any]


def _written(shelf: ProfileShelf, target: Path, limit: int = 0) -> bytes:
    profile = shelf.get("torch-db", ranks=1, steps=2, ops_per_step=3, planes=1)
    report = export(profile.path, target, kind="detail", args="all", max_events=limit, limit=0)
    assert bool(limit) == bool(report.resolutions)
    return target.read_bytes()


@pytest.mark.parametrize("limit", [0, 200])
def test_it_counts_what_the_trace_processor_counts(
    shelf: ProfileShelf, tmp_path: Path, limit: int
) -> None:
    """Slices, samples and arrows of each row and layer, exact and merged."""
    data = _written(shelf, tmp_path / "made.pftrace", limit)
    found, wanted = decode_totals(data), trace_totals(TraceProcessor.load(data), is_json=False)
    assert (found.rows, found.layers, found.counters) == (
        wanted.rows,
        wanted.layers,
        wanted.counters,
    )
    assert (found.slices, found.samples, found.flows) == (
        wanted.slices,
        wanted.samples,
        wanted.flows,
    )
    assert min(found.slices, found.samples) > 0
    assert limit or found.flows


def _index(packets: Packets, event: int) -> int:
    return next(
        at
        for at, packet in enumerate(packets)
        if packet.HasField("track_event") and packet.track_event.type == event
    )


def _without_end(packets: Packets) -> None:
    del packets[_index(packets, protos.TrackEvent.TYPE_SLICE_END)]


def _ends_twice(packets: Packets) -> None:
    at = _index(packets, protos.TrackEvent.TYPE_SLICE_END)
    packets.insert(at, packets[at])


def _unknown_name(packets: Packets) -> None:
    packets[_index(packets, protos.TrackEvent.TYPE_SLICE_BEGIN)].track_event.name_iid = 1 << 20


def _beyond_time(packets: Packets) -> None:
    packets[_index(packets, protos.TrackEvent.TYPE_SLICE_BEGIN)].timestamp = (1 << 63) - 1


def _without_clocks(packets: Packets) -> None:
    packets[:] = [packet for packet in packets if not packet.HasField("clock_snapshot")]


def _one_row_less(packets: Packets) -> None:
    del packets[next(at for at, one in enumerate(packets) if one.HasField("track_descriptor"))]


@pytest.mark.parametrize(
    "damage",
    [_without_end, _ends_twice, _unknown_name, _beyond_time, _without_clocks, _one_row_less],
)
def test_it_refuses_what_does_not_hold_together(
    shelf: ProfileShelf, tmp_path: Path, damage: Callable[[Packets], None]
) -> None:
    """A slice without an end, an end without a slice, and what is used and not there."""
    packets = list(packets_of(_written(shelf, tmp_path / "made.pftrace")))
    decode_totals(protos.Trace(packet=packets).SerializeToString())
    damage(packets)
    with pytest.raises(DamagedTraceError):
        decode_totals(protos.Trace(packet=packets).SerializeToString())
