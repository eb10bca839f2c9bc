"""Proves that every reader takes the same texts for numbers, and none that no column holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timeline.columns.strings import StringPool
from timeline.records.clock import Clock
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Records
from timeline.sources.beside.framework import spell_tensors, tensors_of_text
from timeline.sources.beside.host import read_host_clock
from timeline.sources.common.decimals import whole_number, whole_numbers
from timeline.sources.common.device_clock import read_device_clocks
from timeline.sources.common.losses import LostRows
from timeline.sources.decoders.exported_values import number
from timeline.sources.mindspore.records_builder import read_hccl_files

NO_NUMBERS = (
    "",
    " ",
    "-",
    "+7",
    "1_0",
    "7.0",
    "0x7",
    "²",  # a digit for str.isdigit()
    "٣",  # a digit for int()
    "\xa07",
    str(1 << 63),
    str(-(1 << 63) - 1),
    "9" * 5000,  # more than int() takes
)
NUMBERS = {"0": 0, "007": 7, " 7\t": 7, "-7": -7, str((1 << 63) - 1): (1 << 63) - 1}
"""Texts that are numbers, and which."""


def test_what_is_a_number() -> None:
    """Blanks, zeros before it and a minus are fine; a number fits 64 bits."""
    assert {text: whole_number(text) for text in NUMBERS} == NUMBERS
    assert {text: whole_number(text) for text in NO_NUMBERS} == dict.fromkeys(NO_NUMBERS)
    assert [whole_number(value) for value in (7, True, 7.0, None)] == [7, None, None, None]


@given(st.text(alphabet="0123456789-+ .٣²x", max_size=24))
@example(str(1 << 63))
def test_ids_of_traces_are_the_same_numbers(text: str) -> None:
    """The args of trace events take the same texts for numbers."""
    found = whole_number(text)
    assert number(text, -7) == (-7 if found is None else found)


@given(st.lists(st.integers(-(1 << 70), 1 << 70).map(str) | st.sampled_from(["7", *NO_NUMBERS])))
def test_columns_hold_the_same_numbers(texts: list[str]) -> None:
    """A column takes each text for what it is alone."""
    values, good = whole_numbers([text.encode() for text in texts], int(NO_TIME))
    wanted = [whole_number(text) for text in texts]
    assert good.tolist() == [value is not None for value in wanted]
    assert values.tolist() == [int(NO_TIME) if value is None else value for value in wanted]


def test_keys_of_shapes_that_end_in_no_number() -> None:
    """Only numbered inputs have shapes, however the key of another one ends."""
    info = {f"input_{end}": {"shape": [2], "data_type": "F"} for end in ("0", "²", "9" * 5000)}
    assert spell_tensors(tensors_of_text(json.dumps(info)) or {})[0] == "2"


@pytest.mark.parametrize("process", ["9" * 30, "9" * 5000, "²", 1 << 63, True])
def test_a_process_that_is_no_number(tmp_path: Path, process: object) -> None:
    """A capture whose process is no id has none."""
    device = tmp_path / "device_0"
    device.mkdir()
    (device / "info.json").write_text(json.dumps({"pid": str(process)}), encoding="utf-8")
    assert read_device_clocks(device, tmp_path / "host", None).process == NO_ID


def test_clocks_that_no_column_holds(tmp_path: Path) -> None:
    """A difference of clocks beyond 64 bits tells nothing."""
    (tmp_path / "profiler_info_0.json").write_text('{"diff_time": 99999999999999999}')
    host = tmp_path / "PROF_1" / "host"
    host.mkdir(parents=True)
    info = {"collectionTimeBegin": 9 * 10**17, "clockMonotonicRaw": "²"}
    (host / "start_info").write_text(json.dumps(info), encoding="utf-8")
    lost = LostRows(0)
    clock = read_host_clock(Records(0, StringPool()), Clock(), (tmp_path,), lost)
    moved, known = clock.shift(np.array([1, 2], np.int64))
    assert (clock.steady_ns, clock.raw_ns, lost.omissions) == (None, None, [])
    assert not known.any()
    assert moved.tolist() == [0, 0]


def test_sizes_in_hexadecimal(tmp_path: Path) -> None:
    """HCCL writes sizes and ids with or without 0x; what is neither is none."""
    sizes = ["0x10", "0X1f", "16", "0x٣", "0x1_0", "0x" + "f" * 16, "0x"]
    event = {"name": "Memcpy", "tid": 0, "ts": 1, "dur": 1}
    events = [event | {"args": {"size(Byte)": size}} for size in sizes]
    path = tmp_path / "hccl_info_0" / "allreduce" / "1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    _, planes, _ = read_hccl_files([path], StringPool(), 0, with_planes=True)
    assert planes.size_bytes.tolist() == [16, 31, 16, NO_ID, NO_ID, NO_ID, NO_ID]
