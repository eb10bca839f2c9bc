"""Proves that our few messages of Perfetto are those that the package perfetto declares."""

from __future__ import annotations

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from timeline.encoders.perfetto_messages import (
    BOOT_TIME,
    EXPLICIT,
    MESSAGES,
    PACKAGE,
    STATE_CLEARED,
    WALL_TIME,
    messages,
)

ENCODED_ELSEWHERE = {"interned_data", "extension_set"}
"""Messages that are put in as bytes: on the wire both are the same."""


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_are_those_of_perfetto(name: str) -> None:
    theirs = protos.DESCRIPTOR.pool.FindMessageTypeByName(f"{PACKAGE}.{name}")
    ours = messages().Trace.DESCRIPTOR.file.pool.FindMessageTypeByName(f"{PACKAGE}.{name}")
    assert ours.fields
    for field in ours.fields:
        known = theirs.fields_by_name[field.name]
        assert (field.number, field.is_repeated) == (known.number, known.is_repeated)
        if field.name in ENCODED_ELSEWHERE:
            assert (field.type, known.type) == (field.TYPE_BYTES, field.TYPE_MESSAGE)
        elif known.type == field.TYPE_ENUM:
            assert field.type in (field.TYPE_INT32, field.TYPE_UINT32)
        else:
            assert field.type == known.type
        if field.message_type is not None:
            assert field.message_type.full_name == known.message_type.full_name


def test_numbers_of_enumerations_are_those_of_perfetto() -> None:
    clocks = protos.BuiltinClock
    assert clocks.BUILTIN_CLOCK_BOOTTIME == BOOT_TIME
    assert clocks.BUILTIN_CLOCK_REALTIME == WALL_TIME
    assert protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED == STATE_CLEARED
    assert protos.TrackDescriptor.EXPLICIT == EXPLICIT
