"""Proves that times and whole numbers are read exactly, however they are written."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timeline.columns.strings import StringPool
from timeline.records.clock import Clock
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Records
from timeline.sources.common.decimals import (
    interval_ns,
    interval_ns_of_milliseconds,
    parse_times_ns,
    whole_number,
    whole_numbers,
)
from timeline.sources.common.device_clock import read_device_clocks
from timeline.sources.common.losses import LostRows
from timeline.sources.companions.framework import format_tensors, tensors_of_text
from timeline.sources.companions.host import read_host_clock
from timeline.sources.decoders.exported_values import number
from timeline.sources.mindspore.records_builder import read_hccl_files

NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
AROUND_NUMBERS = b'" \t\r\n'
MOST_US = 4 * 10**15
"""The year 2096; beyond it the sum of two times might not fit 64 bits."""

HALF = Fraction(1, 2)


def nearest_ns(microseconds: Fraction) -> int:
    """Whole nanoseconds, half up."""
    return (microseconds * 1000 + HALF).__floor__()


@st.composite
def decimals(draw: st.DrawFn, least: int = 0) -> str:
    """A number of microseconds as exports write it, with 0 to 12 digits behind the point."""
    whole = draw(st.integers(least, MOST_US) | st.integers(max(least, -3), 3))
    places = draw(st.integers(0, 12))
    if not places:
        return str(whole)
    # Digits that repeat 4, 5 and 9 make sums that lie at, or just below, half a nanosecond.
    digits = (
        draw(st.text("0123456789", min_size=places, max_size=places))
        if draw(st.booleans())
        else draw(st.text("0459", min_size=places, max_size=places))
    )
    sign = "-" if least < 0 and draw(st.booleans()) else ""
    return f"{sign}{abs(whole)}.{digits}"


@st.composite
def with_exponents(draw: st.DrawFn) -> str:
    """The same with an exponent, as JSON writers spell very small and very large numbers."""
    mantissa = draw(st.integers(-(10**9), 10**9))
    places = draw(st.integers(0, 12))
    digits = draw(st.text("0123456789", min_size=places, max_size=places))
    point = f".{digits}" if places else ""
    return f"{mantissa}{point}{draw(st.sampled_from('eE'))}{draw(st.integers(-9, 5)):+d}"


def quoted(draw: st.DrawFn, text: str) -> bytes:
    around = draw(st.sampled_from(["{}", '"{}"', ' "{}"\t', "{}\t\r\n"]))
    return around.format(text).encode()


@st.composite
def texts(draw: st.DrawFn) -> tuple[bytes, Fraction]:
    """A number as text, quoted or not, and its value."""
    text = draw(decimals(least=-MOST_US) | with_exponents())
    return quoted(draw, text), Fraction(text)


@st.composite
def spans(draw: st.DrawFn) -> tuple[bytes, bytes, Fraction, Fraction]:
    """Start and duration as text, and start and end as values; durations may be left out."""
    start = draw(decimals())
    length = draw(decimals() | with_exponents().filter(lambda text: text[0] != "-") | st.just(""))
    if draw(st.booleans()):
        # What is missing to half a nanosecond: the hardest sums to round.
        length = f"{(Decimal('0.0005') - Decimal(start) % 1) % 1:f}"
    end = Fraction(start) + Fraction(length or 0)
    return quoted(draw, start), quoted(draw, length) if length else b"", Fraction(start), end


@given(st.lists(texts(), max_size=8))
@example([(b"1736408883688177.930", Fraction("1736408883688177.930"))])
@example([(b"0.0005", Fraction("0.0005")), (b"0.000499999999", Fraction("0.000499999999"))])
@example([(b"-0.0005", Fraction("-0.0005")), (b"-0.0015", Fraction("-0.0015"))])
@example([(b"4.9999999996e-4", Fraction("4.9999999996e-4"))])
def test_moments_are_the_nearest_nanosecond(moments: list[tuple[bytes, Fraction]]) -> None:
    found = parse_times_ns([text for text, _ in moments])
    assert found.dtype == np.int64
    assert found.tolist() == [nearest_ns(value) for _, value in moments]


@given(st.lists(spans(), max_size=8))
@example(
    [
        (
            b"56635864652.490005",
            b"47587.81",
            Fraction("56635864652.490005"),
            Fraction("56635912240.300005"),
        )
    ]
)
@example([(b"0.000249999999", b"0.000250000001", Fraction("0.000249999999"), Fraction("0.0005"))])
def test_ends_are_rounded_from_the_exact_sum(
    rows: list[tuple[bytes, bytes, Fraction, Fraction]],
) -> None:
    """The duration itself is never rounded, so what touches in the source touches here."""
    start_ns, end_ns = interval_ns([row[0] for row in rows], [row[1] for row in rows])
    assert start_ns.tolist() == [nearest_ns(start) for _, _, start, _ in rows]
    assert end_ns.tolist() == [nearest_ns(end) for _, _, _, end in rows]


@given(st.text('0123456789.eE+-" \tNaInf/_x,', max_size=12).map(str.encode))
@example(b'"01')
@example(b'01"')
@example(b'"')
def test_what_is_no_number_has_no_time(text: bytes) -> None:
    bare = text.strip(AROUND_NUMBERS)
    number = NUMBER.fullmatch(bare)
    value = Fraction(bare.decode()) if number and fits(bare) else None
    assert int(parse_times_ns([text])[0]) == (NO_TIME if value is None else nearest_ns(value))


def fits(number: bytes) -> bool:
    """Whether a time in microseconds fits 64 bits of nanoseconds, with room to spare."""
    return abs(Decimal(number.decode())) < 9 * 10**15


OTHER_TEXTS = b'N/A "N/A" null true "" - . 1.2.3 1e --1 0x10 nan NaN inf -Infinity 1,5 1_000 [1]'


@pytest.mark.parametrize("text", [*OTHER_TEXTS.split(), b"", b"1 2", b"\xff", "１".encode()])
def test_other_texts_have_no_time(text: bytes) -> None:
    assert int(parse_times_ns([text])[0]) == NO_TIME
    start_ns, end_ns = interval_ns([text, b"5"], [b"1", text or b"N/A"])
    assert start_ns.tolist() == [NO_TIME, NO_TIME]
    assert end_ns.tolist() == [NO_TIME, NO_TIME]


def test_a_bad_text_leaves_its_neighbours_alone() -> None:
    assert parse_times_ns([b"1.5", b"N/A", b'"2"']).tolist() == [1500, NO_TIME, 2000]


def test_times_too_large_for_64_bits_have_no_time() -> None:
    assert parse_times_ns([b"9e18", b"99999999999999999999", b"-1e40"]).tolist() == [NO_TIME] * 3


@st.composite
def millisecond_spans(draw: st.DrawFn) -> tuple[bytes, bytes, Fraction, Fraction]:
    """Start and duration in milliseconds, as text and as values in microseconds."""
    start, length = draw(decimals(least=-MOST_US)), draw(decimals() | with_exponents())
    scale = f"e-{draw(st.integers(3, 6))}"
    start, length = start + scale, length + ("" if "e" in length.lower() else scale)
    value = Fraction(start) * 1000
    return quoted(draw, start), quoted(draw, length), value, value + Fraction(length) * 1000


@given(st.lists(millisecond_spans(), max_size=8))
@example([(b"438068.41592", b"0.00266", Fraction("438068415.92"), Fraction("438068418.58"))])
@example([(b"0.0000004", b"0.0000001", Fraction("0.0004"), Fraction("0.0005"))])
def test_milliseconds_are_rounded_like_microseconds(
    rows: list[tuple[bytes, bytes, Fraction, Fraction]],
) -> None:
    start_ns, end_ns = interval_ns_of_milliseconds(
        [row[0] for row in rows], [row[1] for row in rows]
    )
    assert start_ns.tolist() == [nearest_ns(start) for _, _, start, _ in rows]
    assert end_ns.tolist() == [nearest_ns(end) for _, _, _, end in rows]


def test_milliseconds_too_large_for_64_bits_have_no_time() -> None:
    start_ns, end_ns = interval_ns_of_milliseconds(
        [b"9e12", b"1", b"x", b"4e12"], [b"", b"9e12", b"1", b"4e12"]
    )
    assert start_ns.tolist() == [NO_TIME, NO_TIME, NO_TIME, 4 * 10**18]
    assert end_ns.tolist() == [NO_TIME, NO_TIME, NO_TIME, 8 * 10**18]


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
    assert format_tensors(tensors_of_text(json.dumps(info)) or {})[0] == "2"


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
