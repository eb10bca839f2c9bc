"""Proves with tiny hand-built traces that the Perfetto test support tells the truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from tests.support.perfetto_sql import TraceProcessor, TraceProcessorError

if TYPE_CHECKING:
    from tests.support.perfetto_ui import PerfettoUi

Load = Callable[[bytes], TraceProcessor]

BEGIN = proto.TrackEvent.TYPE_SLICE_BEGIN
END = proto.TrackEvent.TYPE_SLICE_END
TRACK = 7
LATE_NS = 1_700_000_000_000_000_001  # not representable as a float
SLICES = "SELECT ts, dur, name FROM slice ORDER BY ts"


def trace_of(*events: tuple[int, int, str | None]) -> bytes:
    """Build a trace of one track from (timestamp in ns, event type, name) triples."""
    trace = proto.Trace()
    track = trace.packet.add(trusted_packet_sequence_id=1).track_descriptor
    track.uuid = TRACK
    track.name = "Harness"
    for timestamp, kind, name in events:
        packet = trace.packet.add(timestamp=timestamp, trusted_packet_sequence_id=1)
        packet.track_event.track_uuid = TRACK
        packet.track_event.type = kind
        if name is not None:
            packet.track_event.name = name
    data: bytes = trace.SerializeToString()
    return data


NESTED = trace_of(
    (LATE_NS, BEGIN, "outer"),
    (LATE_NS + 100, BEGIN, "inner"),
    (LATE_NS + 300, END, None),
    (LATE_NS + 1000, END, None),
)
NESTED_SLICES = [(LATE_NS, 1000, "outer"), (LATE_NS + 100, 200, "inner")]


def test_slices_are_counted(trace_processor: Load) -> None:
    processor = trace_processor(NESTED)
    assert processor.rows("SELECT count(*) FROM slice") == [(2,)]
    assert processor.rows(SLICES) == NESTED_SLICES
    assert processor.import_errors() == []


def test_nothing_is_left_of_the_trace_before(trace_processor: Load) -> None:
    tables = "SELECT name FROM sqlite_master ORDER BY name"
    first = trace_processor(trace_of())
    held = first.rows(tables), first.memory_bytes
    del first
    other = trace_processor(NESTED)
    assert other.rows("CREATE PERFETTO TABLE made AS SELECT 1 AS one; SELECT one FROM made")
    with pytest.raises(TraceProcessorError):
        other.rows("SELECT * FROM nowhere")
    del other
    again = trace_processor(trace_of())
    assert (again.rows(tables), again.memory_bytes) == held
    assert again.rows("SELECT count(*) FROM slice") == [(0,)]


def test_cells_keep_their_type_and_precision(trace_processor: Load) -> None:
    query = "SELECT 9223372036854775807, -5, 2.5, 'é', '', NULL, x'00ff'"
    assert trace_processor(b"").rows(query) == [(2**63 - 1, -5, 2.5, "é", "", None, b"\x00\xff")]


def test_overlapping_named_ends_are_an_import_error(trace_processor: Load) -> None:
    overlapping = trace_of((0, BEGIN, "a"), (10, BEGIN, "b"), (20, END, "a"), (30, END, "b"))
    assert trace_processor(overlapping).import_errors() == [("misplaced_end_event", 1)]


def test_unknown_clock_is_an_import_error(trace_processor: Load) -> None:
    trace = proto.Trace.FromString(NESTED)
    trace.packet[-1].timestamp_clock_id = 99
    errors = trace_processor(trace.SerializeToString()).import_errors()
    assert errors == [("clock_sync_failure", 1)]


def test_end_without_begin_can_only_be_seen_by_counting(trace_processor: Load) -> None:
    """The engine drops it without a word, so `import_errors` cannot replace counting slices."""
    processor = trace_processor(trace_of((0, BEGIN, "a"), (10, END, None), (20, END, None)))
    assert processor.rows(SLICES) == [(0, 10, "a")]
    assert processor.import_errors() == []


def test_bytes_that_are_no_trace_are_refused(trace_processor: Load) -> None:
    with pytest.raises(TraceProcessorError, match="Unknown trace type"):
        trace_processor(b"this is not a trace")


def test_wrong_sql_is_refused(trace_processor: Load) -> None:
    processor = trace_processor(NESTED)
    with pytest.raises(TraceProcessorError, match="no such table: nowhere"):
        processor.rows("SELECT * FROM nowhere")
    assert processor.rows("SELECT 1") == [(1,)]


@pytest.mark.browser
def test_dropped_file_opens_and_sql_agrees(
    ui: PerfettoUi, trace_processor: Load, tmp_path: Path
) -> None:
    dropped = tmp_path / "nested.pftrace"
    dropped.write_bytes(NESTED)
    ui.drop(dropped)
    assert [tuple(row) for row in ui.sql(SLICES)] == trace_processor(NESTED).rows(SLICES)
    assert ui.modal() is None
    assert ui.errors == []


@pytest.mark.browser
def test_refused_file_shows_a_dialog(ui: PerfettoUi, tmp_path: Path) -> None:
    from tests.support.perfetto_ui import TraceRefusedError

    dropped = tmp_path / "no.pftrace"
    dropped.write_bytes(b"this is not a trace")
    with pytest.raises(TraceRefusedError, match="Cannot open this file"):
        ui.drop(dropped)
    assert "Cannot open this file" in str(ui.modal())
    ui.screenshot(tmp_path / "dialog.png")
