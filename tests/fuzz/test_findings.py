"""Proves that what fuzzing found stays found: each input reads, or is refused with a reason."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.profile_shelf import Copier, ProfileShelf
from timeline.cli.main import main
from timeline.sources.finding.discovery import discover

NINES = b"9" * 20


def lane(process: bytes, thread: bytes, event: bytes = b"") -> bytes:
    """A trace of one event on a lane."""
    return (
        b'[{"ph":"M","name":"process_name","pid":1,"args":{"name":"%s"}},'
        b'{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"%s"}},'
        b'{"ph":"X","pid":1,"tid":2,"ts":5,"dur":1%s}]' % (process, thread, event)
    )


TRACES = {
    "text that is not UTF-8": b'[{"ph":"X","name":"\xff"}]',
    "keys that are not UTF-8": b'[{},{"name":"\x9d","ph":"X"}]',
    "nested lists": b"[" * 2000,
    "nested args": b'[{"ph":"X","args":' + b'{"a":' * 1500,
    "a negative time": b'[{"ph":"X","ts":-1,"dur":1},{"ph":"X","ts":3,"dur":1}]',
    "a large thread": b'[{"tid":9999999999999999999,"ph":"X","ts":1,"dur":1}]',
    "a large process": b'[{"pid":"9999999999999999999999","ph":"X","ts":1,"dur":1}]',
    "a large step": b'[{"ph":"X","name":"ProfilerStep#9999999999999999999","ts":1,"dur":1}]',
    "a large plane": lane(b"HCCL", b"Plane " + NINES),
    "a large stream": lane(b"Ascend Hardware", b"Stream " + NINES),
    "a large model": lane(b"Ascend Hardware", b"Model ID: " + NINES, b',"name":"Iteration 1"'),
    "a large iteration": lane(b"Step Trace", b"Model ID: 1", b',"name":"Iteration %s"' % NINES),
    "a large reduce": lane(b"Step Trace", b"Model ID: 1", b',"name":"Reduce_%s_0"' % NINES),
    "a large fetch": lane(b"Step Trace", b"Model ID: 1", b',"name":"GetNext1_%s"' % NINES),
    "a sample beyond floats": b'[{"ph":"C","ts":1,"args":{"a":1' + b"0" * 400 + b"}}]",
    "a bandwidth beyond floats": lane(
        b"HCCL", b"Plane 1", b',"args":{"bandwidth(GB/s)":1' + b"0" * 400 + b"}"
    ),
    "digits of another script": '[{"ph":"X","pid":"²","tid":"²","ts":1,"dur":1}]'.encode(),
    "digits of a head": lane(b"HCCL", b"l").replace(b'"tid":2', '"tid":"²"'.encode()),
    "thousands of digits": b'[{"ph":"X","tid":"' + b"1" * 5000 + b'","ts":1,"dur":1}]',
    "a lane of thousands of digits": lane(b"HCCL", b"Plane " + b"9" * 5000),
    "exponents beyond decimals": b'[{"ph":"X","ts":3e7767690},{"ph":"X","ts":0e99,"dur":1}]',
    "a name without its phase": lane(b"Ascend Hardware", b"Stream 1").replace(
        b'"ph":"M","name":"thread', b'"CL":"M","name":"thread'
    ),
    "a list behind other values": b'{"":{"":4},"":""},{"traceEvents":[{"a":"m","":"X"}]}',
}


@pytest.mark.parametrize("name", TRACES)
def test_traces(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Through the whole program, which ends with a timeline or with what is wrong."""
    profile = shelf.copy("torch-text", tmp_path / "run", ranks=1)
    (path,) = profile.path.rglob("trace_view.json")
    path.write_bytes(TRACES[name])
    target = tmp_path / "out.pftrace"
    code = main([str(profile.path), "--kind", "detail", "--args", "all", "-o", str(target)])
    assert code in (0, 1)
    assert target.exists() == (code == 0)
    assert (f"tlexport: {path}" in capsys.readouterr().err) == (code == 1)


def test_one_long_number_does_not_widen_all(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Ten thousand events beside a number of 20 000 digits take the memory of ten thousand."""
    profile = shelf.copy("torch-text", tmp_path / "run", ranks=1)
    (path,) = profile.path.rglob("trace_view.json")
    event, long = b'{"ph":"X","ts":1,"dur":1},', b'{"ph":"X","dur":1,"ts":"' + b"1" * 20_000
    path.write_bytes(b"[" + event * 10_000 + long + b'"}]')
    assert main([str(profile.path), "-o", str(tmp_path / "out.pftrace")]) == 0


def test_ranks_that_are_no_numbers(copied: Copier) -> None:
    profile = copied("torch-db", ranks=1)
    (path,) = profile.path.rglob("ascend_pytorch_profiler_0.db")
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO RANK_DEVICE_MAP VALUES (x'fffe', 0), ('one', 'two')")
        database.commit()
    assert [source.identity.rank for source in discover(profile.path).sources] == [0]


def test_a_first_event_beyond_the_range_of_times(copied: Copier) -> None:
    profile = copied("kineto", ranks=1)
    (path,) = profile.path.rglob("*.json")
    head, key, events = path.read_bytes().partition(b'"traceEvents": [')
    early = b'{"ph": "M", "name": "process_name", "pid": 1, "ts": %d},' % (1 << 62)
    assert key
    path.write_bytes(head + key + early + events)
    assert len(discover(profile.path).sources) == 1
