"""Proves that a trace that is packed small and unpacks to much takes little memory."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.sources.ascend_trace.tables import ascend_format
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders import json_events
from timeline.sources.decoders.json_events import EventBatch, Scanner, read_events

MEGABYTE = 1 << 20
BLOCK_BYTES = 1 << 16
UNPACKED_BYTES = 8 * MEGABYTE
MOST_BYTES = 6 * MEGABYTE
EVENT = b'{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1}'
SWOLLEN = {
    "blanks between events": (b"[" + EVENT, b" ", b"," + EVENT + b"]"),
    "a name": (b"[" + EVENT + b',{"ph":"X","name":"', b"x", b'"},' + EVENT + b"]"),
    "a number": (b"[" + EVENT + b',{"ph":"X","ts":', b"1", b"}," + EVENT + b"]"),
    "nested lists": (b"[" + EVENT + b',{"ph":"X","args":', b"[", b""),
    "quotes": (b"[" + EVENT + b',{"ph":"X","name":', b'"', b"}," + EVENT + b"]"),
    "what stands before the events": (b'{"a":[', b" ", b'],"traceEvents":[' + EVENT + b"]}"),
}


@pytest.fixture(params=[False, True], ids=["decoder", "scanner"])
def events_in(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path], int]:
    """Read a file with smaller bounds, and count its events."""
    monkeypatch.setattr(json_events, "MOST_EVENT_BYTES", MEGABYTE // 4)
    if request.param and Scanner is None:
        pytest.skip("the package was built without a compiler")
    if not request.param:
        monkeypatch.setattr(json_events, "Scanner", None)
    scan = EventBatch(ascend_format(), StringPool(), counters=True).scan

    def read(path: Path) -> int:
        found = read_events(ascend_format().decoder, path, BLOCK_BYTES, LossLog(path), scan=scan)
        return sum(map(len, found))

    return read


@pytest.mark.parametrize("what", SWOLLEN)
def test_no_more_is_held_than_an_event_may_take(
    tmp_path: Path, events_in: Callable[[Path], int], what: str
) -> None:
    """Whole events around it are read, or the file is refused."""
    before, filling, behind = SWOLLEN[what]
    path = tmp_path / "trace_view.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as packed:
        packed.write(before)
        for _ in range(UNPACKED_BYTES // MEGABYTE):
            packed.write(filling * MEGABYTE)
        packed.write(behind)
    assert path.stat().st_size < UNPACKED_BYTES // 100
    tracemalloc.start()
    try:
        if b"traceEvents" in behind:
            with pytest.raises(SourceError, match="too much before its events"):
                events_in(path)
        else:
            assert events_in(path) in (1, 2)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MOST_BYTES
