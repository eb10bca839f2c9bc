"""Proves that strings are numbered where that saves bytes, and numbers drawn with few digits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from tests.support.perfetto_sql import TraceProcessor
from timeline.columns.strings import StringPool
from timeline.encoders import drawn_values
from timeline.encoders.drawn_values import (
    DrawnStrings,
    NumberOfCode,
    count_codes,
    number_strings,
    round_reals,
)
from timeline.encoders.formats import format_of
from timeline.encoders.perfetto import encode_tracks
from timeline.encoders.piece_maker import encode_timeline
from timeline.encoders.protobuf_rows import encode_rows, join_rows, varint
from timeline.layers import SliceKind
from timeline.tracks.model import Arg, ArgKind, Slices, Timeline, Track

NUMBER_TAG, TEXT_TAG = b"\x50", b"\x32"
USES = st.dictionaries(st.text(max_size=30), st.integers(1, 50), max_size=40)


@given(USES)
def test_a_number_saves_bytes_and_common_strings_have_small_ones(uses: dict[str, int]) -> None:
    numbers = number_strings(uses, 10_000, 7)
    assert list(numbers.values()) == list(range(7, 7 + len(numbers)))
    counts = [uses[text] for text in numbers]
    assert counts == sorted(counts, reverse=True)
    for text, count in uses.items():
        where_used = count * len(text)
        numbered = len(text) + 2 * count + 8
        assert (text in numbers) == (numbered < where_used)


def test_no_more_strings_are_numbered_than_a_part_of_the_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drawn_values, "FEWEST_NUMBERS", 3)
    uses = {"often": 90, "a name of many letters": 20, "less often": 30, "seldom": 9, "once": 1}
    assert list(number_strings(uses, 10)) == ["often", "less often", "a name of many letters"]
    assert list(number_strings(uses, 4 * drawn_values.ELEMENTS_PER_NUMBER)) == [
        "often",
        "less often",
        "a name of many letters",
        "seldom",
    ]


@given(st.lists(st.text(max_size=200), unique=True, max_size=30), st.data())
def test_each_row_has_its_number_or_its_string(texts: list[str], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=50)) if texts else []
    numbered = data.draw(st.sets(st.sampled_from(texts))) if texts else set()
    numbers = {text: number for number, text in enumerate(sorted(numbered), 1)}
    drawn = DrawnStrings.of(texts, numbers)
    pieces = drawn.pieces(NUMBER_TAG, TEXT_TAG, np.array(rows, np.int64))

    def field(text: str) -> bytes:
        if text in numbers:
            return NUMBER_TAG + varint(numbers[text])
        encoded = text.encode("utf-8", "replace")
        return TEXT_TAG + varint(len(encoded)) + encoded

    wanted = b"".join(field(texts[row]) for row in rows)
    assert encode_rows(pieces, len(rows)) == wanted
    assert join_rows(pieces, len(rows)) == wanted


def test_names_and_args_are_read_whichever_way_they_stand(tmp_path: Path) -> None:
    """Names, args and spelled args, each with strings of both kinds, as they are read."""
    count = 300
    strings = StringPool()
    number = np.arange(count)
    names = [f"step of a long name {one}" if one % 3 else "usual" for one in number.tolist()]
    values = [f"only {one}" if one % 2 else "often used" for one in number.tolist()]
    waited_ns = np.where(number % 5 == 0, 7_000_000, 1_000_000 + 1_001 * number)
    every = np.ones(count, np.bool_)
    args = (
        Arg("said", ArgKind.NAME, strings.codes(values), number % 4 > 0),
        Arg("waited_ns", ArgKind.INTEGER, waited_ns, every),
    )
    slices = Slices(
        1000 * number, 1000 * number + 900, strings.codes(names), strings, SliceKind.STEP, args
    )
    track = Track(1, None, "steps", 1, content=slices)
    path = tmp_path / "texts.pftrace"
    path.write_bytes(b"".join(encode_timeline(format_of(path), Timeline((track,), 0, None))))

    trace = protos.Trace.FromString(b"".join(encode_tracks([(2, track)], 0)))
    interned = {name.name for packet in trace.packet for name in packet.interned_data.event_names}
    assert interned == {"usual"}
    processor = TraceProcessor.load(path.read_bytes())
    assert not processor.import_errors()
    rows = processor.rows(
        "SELECT name, EXTRACT_ARG(arg_set_id, 'step.said'), EXTRACT_ARG(arg_set_id, 'step.waited')"
        " FROM slice ORDER BY ts"
    )
    assert [name for name, _, _ in rows] == names
    assert [said for _, said, _ in rows] == [
        value if one % 4 else None for one, value in enumerate(values)
    ]
    assert [waited for _, _, waited in rows[:3]] == ["7.000 ms", "1.001 ms", "1.002 ms"]


CODES = st.lists(st.integers(0, 20) | st.sampled_from([5_000, 90_000]), max_size=40)


@given(CODES, CODES)
def test_codes_are_counted_where_they_are_present(first: list[int], second: list[int]) -> None:
    present = np.arange(len(second)) % 3 > 0
    columns = [(np.array(first, np.int32), None), (np.array(second, np.int32), present)]
    codes, count = count_codes(columns)
    wanted = Counter(first) + Counter(np.array(second, np.int32)[present].tolist())
    found = dict(zip(codes.tolist(), count.tolist(), strict=True))
    assert found == wanted
    assert list(found) == sorted(found)
    numbers = NumberOfCode(codes, range(1, len(found) + 1))
    asked = np.array([*found, 30, 99_999], np.int32)
    assert numbers.of(asked).tolist() == [*range(1, len(found) + 1), 0, 0]


def test_the_ends_of_floats_stay_what_they_are() -> None:
    """Rounded through a power of ten they would become infinite, or no number."""
    ends = np.array([1.79e308, -1.79e308, 1.2345e-308, 5e-324, np.inf, -np.inf, 0.0])
    assert round_reals(ends).tolist() == ends.tolist()
    assert np.isnan(round_reals(np.array([np.nan]))).all()


def test_few_digits_are_kept_on_either_side_of_one() -> None:
    """Of numbers of any usual size, to the nearest."""
    rounded = round_reals(np.array([1.23456e290, 9.99999e-290, 99_999.0, -0.000123456]))
    assert rounded.tolist() == pytest.approx([1.235e290, 1e-289, 100_000.0, -0.0001235], rel=1e-14)
