"""Proves that facts are read from the beginning of any file, and that bad files are refused."""

from __future__ import annotations

import contextlib
import gzip
import os
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from tests.support.examples import at_most
from tests.support.made_tracks import encode_timeline
from timeline.columns.strings import StringPool
from timeline.encoders.attributes import MOST_BYTES, read_attributes
from timeline.encoders.formats import FORMATS, Format
from timeline.errors import SourceError
from timeline.layers import SliceKind
from timeline.tracks.model import Slices, Timeline, Track

FACTS = (
    ("io.tlexport.version", "1.2.3"),
    ("io.tlexport.quoted", ',"traceEvents":[ "größe" \\'),
    ("io.tlexport.long", "words " * 10_000),
)
SLICES = 50_000


def made_timeline(slices: int = 50) -> Timeline:
    """One row of slices of random lengths, with all facts."""
    strings = StringPool()
    names = strings.codes(f"slice {number}" for number in range(slices))
    ends_ns = np.cumsum(np.random.default_rng(1).integers(1, 1 << 40, slices))
    starts_ns = np.concatenate([[0], ends_ns[:-1]])
    content = Slices(starts_ns, ends_ns, names, strings, SliceKind.TASK)
    return Timeline((Track(0, None, "Row", 0, content=content),), 0, None, FACTS)


def written(form: Format, slices: int = 50) -> bytes:
    return b"".join(encode_timeline(form, made_timeline(slices)))


@pytest.fixture(scope="module", params=FORMATS, ids=lambda form: form.suffix)
def form(request: pytest.FixtureRequest) -> Format:
    """Each format."""
    made: Format = request.param
    return made


def facts_of(data: bytes, directory: Path) -> dict[str, str]:
    file = directory / "any.name"
    file.write_bytes(data)
    return dict(read_attributes(file))


def test_every_format(form: Format, tmp_path: Path) -> None:
    """All facts come back, whatever the file is called."""
    found = facts_of(written(form), tmp_path)
    assert {key: found[key] for key, _ in FACTS} == dict(FACTS)


def test_no_more_than_the_beginning_is_read(form: Format, tmp_path: Path) -> None:
    """A long file is read through a pipe whose writer is stuck in the first part of it."""
    data = written(form, SLICES)
    assert len(data) > 300_000
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    sent = 0

    def send() -> None:
        nonlocal sent
        with pipe.open("wb", buffering=0) as file:
            try:
                for first in range(0, len(data), 4096):
                    sent += file.write(data[first : first + 4096])
            except BrokenPipeError:
                pass

    writer = threading.Thread(target=send)
    writer.start()
    assert dict(FACTS).items() <= read_attributes(pipe).items()
    writer.join(60)
    assert sent < 200_000


def test_cut_files(form: Format, tmp_path: Path) -> None:
    """A file that is cut behind the facts still tells them; before, that is what the error says."""
    data = written(form, 5_000)
    told = 0
    for length in sorted({*range(60), *range(60, len(data), 997)}):
        try:
            found = facts_of(data[:length], tmp_path)
        except SourceError as error:
            assert "incomplete" in str(error) or "empty" in str(error) or length < 2
        else:
            told += 1
            assert found["io.tlexport.long"] == dict(FACTS)["io.tlexport.long"]
    assert told > 10


@settings(max_examples=at_most(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_files(form: Format, tmp_path: Path, data: st.DataObject) -> None:
    """Whatever bytes a file has, it is read or refused."""
    content = bytearray(written(form, 5)[:3_000])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content)))
        piece = data.draw(st.binary(max_size=4))
        content[at : at + data.draw(st.integers(0, 4))] = piece
    try:
        facts_of(bytes(content), tmp_path)
    except SourceError as error:
        assert str(tmp_path) in str(error)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(
    beginning=st.sampled_from(
        [
            b"",
            b"\n",
            b"{",
            b"\x1f\x8b\x08\0",
            b"\n\x05\x92\x03\x02",
            b'{"otherData":',
            b"\n\xff\xff",
        ]
    ),
    rest=st.binary(max_size=200),
)
def test_other_files(tmp_path: Path, beginning: bytes, rest: bytes) -> None:
    """Bytes of no program at all are refused, or have no facts."""
    with contextlib.suppress(SourceError):
        assert not facts_of(beginning + rest, tmp_path).get("io.tlexport.version")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"PK\3\4", "not a trace that tlexport wrote"),
        (b"[1,2]", "not a trace that tlexport wrote"),
        (b"\x1f\x8b\x08\0", "incomplete"),
        (b"\x1f\x8b\x08\0broken and no gzip", "cannot be unpacked"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b'{"traceEvents":[]}', "not a trace that tlexport wrote"),
        (b'{"displayTimeUnit":"ns","traceEvents":[]}', ""),
        (b'{"displayTimeUnit":"ns","otherData":[],"traceEvents":[]}', ""),
        (b'{"displayTimeUnit":"ns","otherData":{"a":1},"traceEvents":[]}', ""),
        (b'{"displayTimeUnit":"ns","otherData":{"a":},"traceEvents":[]}', "not a trace"),
        (b'{"displayTimeUnit":"ns","otherData":{}', "incomplete"),
    ],
)
def test_files_of_other_programs(content: bytes, said: str, tmp_path: Path) -> None:
    """What is no trace says so; a trace of another program has no facts."""
    if not said:
        assert facts_of(content, tmp_path) == {}
        return
    with pytest.raises(SourceError, match=said):
        facts_of(content, tmp_path)


@pytest.mark.parametrize("packed_twice", [False, True])
def test_bombs(packed_twice: bool, tmp_path: Path) -> None:
    """What unpacks to very much is given up at a bound."""
    packer = zlib.compressobj(9)
    zeros = packer.compress(bytes(1 << 28)) + packer.flush()
    packet = b"\n" + varint(len(zeros) + 3 + len(varint(len(zeros)))) + b"\x92\x03"
    bomb = packet + varint(len(zeros)) + zeros
    spaces = b"{" + b" " * (3 * MOST_BYTES)
    for content in (bomb, spaces):
        with pytest.raises(SourceError):
            facts_of(gzip.compress(content) if packed_twice else content, tmp_path)


def varint(value: int) -> bytes:
    """A number as protobuf has it."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def test_a_text_that_is_no_utf_8(tmp_path: Path) -> None:
    """Damaged bytes in a fact of a Perfetto file give a text, as all others do."""
    trace = protos.Trace()
    facts = trace.packet.add().trace_attributes.attribute
    facts.add(key="io.tlexport.version", string_value="1.2.3")
    damaged = trace.SerializeToString().replace(b"1.2.3", b"1\xff2.3")
    assert facts_of(damaged, tmp_path)["io.tlexport.version"] == "1\ufffd2.3"
