"""Proves that JSON which writers get wrong is mended, and that valid JSON stays as it is."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kineto_traces import CALL, KERNEL, read, spelled
from tests.support.other_readings import in_small_parts
from timeline.sources.decoders import json_events
from timeline.sources.decoders.json_values import mend_json

TEXTS = st.text(st.sampled_from('"\\{}[]:, infnau\n\x01é'), max_size=12)
VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), max_size=5), st.data())
def test_valid_json_stays(objects: list[Any], data: st.DataObject) -> None:
    """However it is laid out, and wherever it is cut off."""
    text = json.dumps(objects, indent=data.draw(st.sampled_from([None, 1])), ensure_ascii=False)
    cut = text.encode()[: data.draw(st.integers(0, len(text)))]
    assert mend_json(cut, len(cut)) == cut


@pytest.mark.parametrize(
    "written", ["inf", "-inf", "nan", "-nan(ind)", "Infinity", "NaN", "1.#INF"]
)
@pytest.mark.parametrize(
    "around", ['{"a":%s}', '{"a": %s }', '{"a": [1,%s, 2]}', '{"b":2, "a":%s}']
)
def test_numbers_that_are_none_are_null(written: str, around: str) -> None:
    """As C++, Python and other compilers write them, but not in strings."""
    wanted = json.loads(around % "null")
    assert json.loads(mend_json((around % written).encode())) == wanted
    name = f'{{"name": "x: {written}, y"}}'.encode()
    assert mend_json(name) == name


def test_missing_values_are_null() -> None:
    assert json.loads(mend_json(b'{"a": , "b":}')) == {"a": None, "b": None}


@given(st.text(st.sampled_from("axU/\\\x00\x1f\t\n:{},[] 01'"), max_size=20))
def test_strings_are_what_was_written(text: str) -> None:
    """Each backslash that begins no escape, and lines and control characters as they are."""
    written = text.replace("\\", "\\q")
    mended = mend_json(f'{{"name": "{written}", "n": 1}}'.encode())
    assert json.loads(mended) == {"name": written, "n": 1}


def test_objects_with_odd_quotes_stay_as_they_are() -> None:
    """What is a string in them is not known; those around are mended."""
    broken, odd = b'{"a": inf}', b'{"a": "b"c", "d": inf}'
    text = b", ".join([broken, odd, broken])
    mended = b'{"a":null}'
    assert mend_json(text) == b", ".join([mended, odd, mended])


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("small", [True, False])
def test_no_event_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool, small: bool
) -> None:
    """Whether the scanner or the decoder reads, in blocks of any size, and at the very end."""
    if not compiled:
        monkeypatch.setattr(json_events, "Scanner", None)
    calls = [CALL | {"name": f"NAME{at}", "ts": at} for at in range(40)]
    kernels = [KERNEL | {"args": KERNEL["args"] | {"bytes": "NUMBER"}} for _ in range(40)]
    events = [event for pair in zip(calls, kernels, strict=True) for event in pair]
    text = json.dumps({"schemaVersion": 1, "traceEvents": events}, indent=1)
    text = text.replace("NAME", "C:\\Users\\x\n\x02").replace('"NUMBER"', "inf")
    path = tmp_path / "rank0.pt.trace.json"
    path.write_bytes(text.encode())
    with in_small_parts() if small else contextlib.nullcontext():
        records = read(path)
    assert spelled(records, records.host.name) == [f"C:\\Users\\x\n\x02{at}" for at in range(40)]
    assert len(records.tasks) == 40
    assert not any(one.loss for one in records.omissions)


def test_what_cannot_be_mended_is_counted(tmp_path: Path) -> None:
    """At its place in the file, whatever was mended before."""
    names = ["C:\\q", 'a" b', "C:\\q"]
    texts = [json.dumps(CALL | {"name": "NAME"}).replace("NAME", name) for name in names]
    path = tmp_path / "rank0.pt.trace.json"
    path.write_text("[" + ", ".join(texts) + "]", encoding="utf-8")
    records = read(path)
    assert spelled(records, records.host.name) == ["C:\\q", "C:\\q"]
    at = path.read_text(encoding="utf-8").index('" b')
    (loss,) = [one for one in records.omissions if one.loss]
    assert loss.rows == 1
    assert abs(int(loss.reason.rpartition(" ")[2]) - at) < 20
