"""Proves that rows encoded from columns are what the protobuf library would have written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from google.protobuf.internal.encoder import _VarintBytes
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from tests.support.made_tracks import track_of
from timeline.encoders import perfetto, protobuf_rows
from timeline.encoders.perfetto import encode_tracks
from timeline.encoders.protobuf_rows import (
    Bytes,
    Fixed64,
    Message,
    Piece,
    Text,
    Varint,
    encode_rows,
    is_compiled,
    join_rows,
    varint,
)

compiled = pytest.mark.skipif(not is_compiled(), reason="the package was built without a compiler")
INT64 = (
    st.integers(-(2**63), 2**63 - 1)
    | st.integers(-2, 300)
    | st.sampled_from(
        [
            sign * (1 << power) + off
            for power in range(7, 63, 7)
            for sign in (1, -1)
            for off in (-1, 0)
        ]
    )
)
UINT63 = st.integers(0, 2**63 - 1) | st.integers(0, 300)
DOUBLES = st.floats(allow_nan=False)
TEXTS = st.text() | st.just("caf\u00e9" * 40)


@dataclass(frozen=True)
class PacketRow:
    """One packet as it is meant; None stands for what a row does not have."""

    timestamp: int
    sequence: int
    name_iid: int | None
    flow_ids: tuple[int, ...]
    number: tuple[int | None, float | None, str | None] | None
    """An annotation: an integer, a double and a string value, each of which may be absent."""
    counter: float | None


rows = st.builds(
    PacketRow,
    timestamp=UINT63,
    sequence=st.integers(1, 2**32 - 1) | st.integers(1, 300),
    name_iid=st.none() | UINT63,
    flow_ids=st.lists(UINT63, max_size=3).map(tuple),
    number=st.none() | st.tuples(st.none() | INT64, st.none() | DOUBLES, st.none() | TEXTS),
    counter=st.none() | DOUBLES,
)


def packet_of(row: PacketRow) -> protos.TracePacket:
    """The row as the protobuf library makes it."""
    packet = protos.TracePacket(timestamp=row.timestamp, trusted_packet_sequence_id=row.sequence)
    event = packet.track_event
    event.SetInParent()
    if row.number is not None:
        integer, real, string = row.number
        annotation = event.debug_annotations.add(name_iid=7)
        if integer is not None:
            annotation.int_value = integer
        if real is not None:
            annotation.double_value = real
        if string is not None:
            annotation.string_value = string
    if row.name_iid is not None:
        event.name_iid = row.name_iid
    if row.counter is not None:
        event.double_counter_value = row.counter
    event.flow_ids.extend(row.flow_ids)
    return packet


def mask(present: Sequence[bool]) -> np.ndarray:
    return np.array(present, np.bool_)


def columns_of(found: Sequence[PacketRow]) -> list[Piece]:
    """The same rows as columns; what a row does not have holds a value that must not show."""
    numbers = [row.number or (None, None, None) for row in found]
    held = mask([row.number is not None for row in found])
    integers = [integer for integer, _, _ in numbers]
    reals = [real for _, real, _ in numbers]
    strings = mask([string is not None for _, _, string in numbers])
    # A oneof holds the last value written: earlier ones are left out, as the library does.
    has_string = strings
    has_real = mask([real is not None for real in reals]) & ~has_string
    has_integer = mask([integer is not None for integer in integers]) & ~has_string & ~has_real
    annotation = Message(
        tag(4, 2),
        [
            Bytes(tag(1, 0) + varint(7)),
            Bytes(tag(4, 0), has_integer),
            Varint(int64([-1 if value is None else value for value in integers]), has_integer),
            Bytes(tag(5, 1), has_real),
            Fixed64(np.array([0.5 if v is None else v for v in reals], np.float64), has_real),
            Bytes(tag(6, 2), has_string),
            text_piece([string for _, _, string in numbers], has_string),
        ],
        held,
    )
    named = mask([row.name_iid is not None for row in found])
    counted = mask([row.counter is not None for row in found])
    counters = np.array([9.75 if row.counter is None else row.counter for row in found])
    event = [
        annotation,
        Bytes(tag(10, 0), named),
        Varint(int64([row.name_iid or 0 for row in found]), named),
        Bytes(tag(44, 1), counted),
        Fixed64(counters.astype(np.float64), counted),
        *flow_pieces(found),
    ]
    return [
        Message(
            tag(1, 2),
            [
                Bytes(tag(8, 0)),
                Varint(int64([row.timestamp for row in found])),
                Bytes(tag(10, 0)),
                Varint(int64([row.sequence for row in found])),
                Message(tag(11, 2), event),
            ],
        )
    ]


def text_piece(texts: Sequence[str | None], present: np.ndarray) -> Text:
    """Strings with their lengths, in bytes that hold others too; absent rows have any run."""
    parts = [b"---" if text is None else framed(text) for text in texts]
    length = int64([len(part) for part in parts])
    return Text(b"before" + b"".join(parts), 6 + np.cumsum(length) - length, length, present)


def framed(text: str) -> bytes:
    encoded = text.encode()
    return varint(len(encoded)) + encoded


def flow_pieces(found: Sequence[PacketRow]) -> list[Piece]:
    made: list[Piece] = []
    for place in range(3):
        present = mask([len(row.flow_ids) > place for row in found])
        ids = [row.flow_ids[place] if len(row.flow_ids) > place else 0 for row in found]
        made += [Bytes(tag(47, 1), present), Fixed64(int64(ids), present)]
    return made


def int64(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int64)


def tag(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)


def encoded(pieces: Sequence[Piece], count: int) -> bytes:
    """The rows, which are the same whether the package was compiled or not."""
    made = encode_rows(pieces, count)
    assert made == join_rows(pieces, count)
    return made


@given(st.lists(rows, max_size=8))
def test_rows_equal_the_messages_of_the_protobuf_library(found: list[PacketRow]) -> None:
    wanted = protos.Trace(packet=[packet_of(row) for row in found])
    made = encoded(columns_of(found), len(found))
    assert protos.Trace.FromString(made) == wanted
    # Fields are written in order of their numbers, so canonical varints give the same bytes.
    assert made == canonical(wanted)


def canonical(trace: protos.Trace) -> bytes:
    written: bytes = trace.SerializeToString(deterministic=True)
    return written


@given(st.lists(st.tuples(st.booleans(), st.booleans(), INT64), max_size=8))
def test_what_lies_in_an_absent_message_is_absent(found: list[tuple[bool, bool, int]]) -> None:
    """The outer mask wins; a message that is there but holds nothing has length 0."""
    outer, inner = mask([row[0] for row in found]), mask([row[1] for row in found])
    values = int64([row[2] for row in found])
    made = encoded(
        [Message(tag(4, 2), [Bytes(tag(4, 0), inner), Varint(values, inner)], outer)], len(found)
    )
    event = protos.TrackEvent()
    for has_message, has_value, value in found:
        if has_message:
            annotation = event.debug_annotations.add()
            if has_value:
                annotation.int_value = value
    assert made == event.SerializeToString()


@given(UINT63)
def test_a_varint_is_what_the_protobuf_library_writes(value: int) -> None:
    assert varint(value) == _VarintBytes(value)


@given(st.lists(INT64, min_size=1, max_size=20))
def test_varints_of_a_column_are_canonical_and_negative_ones_take_ten_bytes(
    values: list[int],
) -> None:
    made = encoded([Varint(int64(values))], len(values))
    assert made == b"".join(_VarintBytes(value & 0xFFFF_FFFF_FFFF_FFFF) for value in values)


def test_numbers_at_the_ends_of_each_length_are_varints() -> None:
    """Up to four bytes are put at once, longer ones byte by byte."""
    ends = [(1 << power) + off for power in range(0, 63, 7) for off in (-1, 0, 1)]
    made = encoded([Varint(int64(ends))], len(ends))
    assert made == b"".join(_VarintBytes(end) for end in ends)


@st.composite
def pieces_of(draw: st.DrawFn, count: int, depth: int = 0) -> Piece:
    """Any piece of so many rows, some of which lack it."""
    present = draw(
        st.none() | st.lists(st.booleans(), min_size=count, max_size=count).map(mask), "present"
    )
    numbers = st.lists(INT64, min_size=count, max_size=count).map(int64)
    kind = draw(
        st.sampled_from([Bytes, Varint, Fixed64, Text, *[Message] * (3 if depth < 5 else 0)])
    )
    if kind is Message:
        inner = draw(st.lists(pieces_of(count, depth + 1), max_size=3))
        return Message(draw(CONSTANTS), inner, present)
    if kind is Bytes:
        return Bytes(draw(CONSTANTS), present)
    if kind is Text:
        texts = st.lists(st.text(max_size=3) | st.just("long" * 40), min_size=count, max_size=count)
        return replace(text_piece(draw(texts), mask([True] * count)), present=present)
    return (Varint if kind is Varint else Fixed64)(draw(numbers), present)


CONSTANTS = st.binary(max_size=3) | st.binary(min_size=28, max_size=36)
"""Few bytes, which are joined with others, and about as many as are no longer few."""


@given(st.data(), st.integers(1, 4))
def test_pieces_of_any_kind_and_nesting_are_the_same_bytes_with_a_compiler(
    data: st.DataObject, count: int
) -> None:
    encoded(data.draw(st.lists(pieces_of(count), min_size=1, max_size=6)), count)


@pytest.mark.parametrize("size", [1, 40])
def test_what_is_behind_a_message_without_a_piece_is_in_all_rows(size: int) -> None:
    has = mask([True, False])
    empty = Message(b"t" * size, [], has)
    assert encoded([empty, Bytes(b"x")], 2) == b"t" * size + b"\0xx"
    assert encoded([empty, Bytes(b"x", has), Bytes(b"y")], 2) == b"t" * size + b"\0xyy"


@compiled
@given(st.integers(0, 40), st.integers(1, 8), st.lists(st.booleans(), min_size=2, max_size=2))
def test_constants_beside_messages_in_messages_are_put_together(
    size: int, depth: int, has: list[bool]
) -> None:
    """More messages than one step begins, and more bytes than it holds."""
    pieces: list[Piece] = [Bytes(b"x" * size, mask(has)), Bytes(b"y")]
    for number in range(depth):
        pieces = [Bytes(b"<" * number), Message(b"t", [*pieces, Bytes(b"|")]), Bytes(b">")]
    encoded(pieces, 2)


def runs_of(*runs: tuple[int, int]) -> bytes:
    return int64([number for run in runs for number in run]).tobytes()


def test_no_rows_are_no_bytes() -> None:
    assert encoded(columns_of([]), 0) == b""


@given(st.integers(0, 40_000), st.integers(0, 3))
def test_long_messages_have_long_lengths(size: int, depth: int) -> None:
    """Lengths of one, two and three bytes, of messages around messages."""
    pieces: list[Piece] = [Bytes(bytes(size))]
    for number in range(1, depth + 1):
        pieces = [Message(tag(number, 2), pieces, mask([True, number % 2 == 0]))]
    made = encoded(pieces, 2)
    if not depth:
        assert made == bytes(2 * size)
    else:
        inner = bytes(size)
        for number in range(1, depth):
            inner = tag(number, 2) + varint(len(inner)) + inner
        assert made.startswith(tag(depth, 2) + varint(len(inner)) + inner)


COLUMN = (1, None, bytes(16), 0, None)
BAD_PIECES = {
    "no such kind": [(5, None, b"", 0, None)],
    "too few numbers": [(1, None, bytes(8), 0, None)],
    "numbers cut short": [(2, None, bytes(17), 0, None)],
    "too many numbers": [(2, None, bytes(24), 0, None)],
    "too few present": [(0, b"\1", b"x", 0, None)],
    "more inside than there is": [(4, None, b"\x0a", 2, None), COLUMN],
    "less than nothing inside": [(4, None, b"\x0a", -1, None)],
    "something inside a number": [(1, None, bytes(16), 1, None), COLUMN],
    "a message that outlives its own": [
        (4, None, b"\x0a", 1, None),
        (4, None, b"\x0a", 1, None),
        COLUMN,
    ],
    "no runs": [(3, None, b"", 0, None)],
    "too few runs": [(3, None, b"text", 0, runs_of((0, 1)))],
    "runs cut short": [(3, None, b"text", 0, runs_of((0, 1), (1, 1)) + b"\0")],
    "a run before all bytes": [(3, None, b"text", 0, runs_of((-1, 1), (1, 1)))],
    "a run behind all bytes": [(3, None, b"text", 0, runs_of((0, 1), (5, 0)))],
    "a run that is too long": [(3, None, b"text", 0, runs_of((0, 1), (3, 2)))],
    "a run whose end is no number": [(3, None, b"text", 0, runs_of((0, 1), (3, 2**63 - 1)))],
    "a run of less than nothing": [(3, None, b"text", 0, runs_of((0, 1), (3, -1)))],
}


@compiled
@pytest.mark.parametrize("pieces", BAD_PIECES.values(), ids=list(BAD_PIECES))
def test_pieces_that_are_not_of_the_rows_are_refused(
    pieces: list[tuple[int, bytes | None, bytes, int, bytes | None]],
) -> None:
    from timeline.encoders._wire import encode

    assert encode((COLUMN,), 2) == bytes(2)
    with pytest.raises(ValueError, match=r"a piece is of no kind|a message ends inside"):
        encode(tuple(pieces), 2)


@compiled
def test_pieces_of_other_types_are_refused() -> None:
    from timeline.encoders._wire import encode

    with pytest.raises(ValueError, match="not less than none"):
        encode((), -1)
    for pieces in ([COLUMN], ((1, None, "text", 0, None),), ((0, True, b"x", 0, None),), (1,)):
        with pytest.raises((TypeError, SystemError)):
            encode(pieces, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("nested", [False, True])
def test_tracks_encoded_in_many_blocks_are_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch, nested: bool
) -> None:
    track = track_of(3000, nested=nested)
    whole = b"".join(encode_tracks([(2, track)], 1_000))
    monkeypatch.setattr(perfetto, "BLOCK_BYTES", 1)
    pieces = list(encode_tracks([(2, track)], 1_000))
    assert len(pieces) > 10
    assert b"".join(pieces) == whole
    begins = [
        packet
        for packet in protos.Trace.FromString(whole).packet
        if packet.track_event.type == protos.TrackEvent.TYPE_SLICE_BEGIN
    ]
    assert len(begins) == 3000
    monkeypatch.setattr(protobuf_rows, "encode", None)
    assert b"".join(encode_tracks([(2, track)], 1_000)) == whole
