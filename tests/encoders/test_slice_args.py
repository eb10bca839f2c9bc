"""Proves what slices say of themselves, and that strings and numbers of it take few bytes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from tests.support.made_tracks import encode_timeline
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from timeline.columns.strings import NO_TEXT, StringPool
from timeline.commands.export import export
from timeline.encoders import drawn_values
from timeline.encoders.drawn_values import (
    DIGITS,
    FORMATTERS,
    DrawnStrings,
    NumberOfCode,
    count_codes,
    number_strings,
    round_reals,
)
from timeline.encoders.formats import format_of
from timeline.encoders.perfetto import encode_tracks
from timeline.encoders.protobuf_rows import encode_rows, join_rows, varint
from timeline.layers import Category, SliceKind
from timeline.options import Args
from timeline.selection import Kind
from timeline.tracks.model import Arg, ArgKind, Slices, Timeline, Track

ARGS = """
SELECT slice.id, category, key, int_value, real_value, string_value
FROM slice JOIN args USING (arg_set_id)
WHERE key != 'correlation_id'
"""
"""All args but that by which the viewer colours slices."""
PIECES = """
SELECT category, track_id, ts, dur,
  extract_arg(arg_set_id, '{family}.rank'), extract_arg(arg_set_id, '{family}.iteration'),
  extract_arg(arg_set_id, '{family}.share_of_step')
FROM slice WHERE category IN ('partition', 'overlap', 'wait', 'idle')
"""

TRACKS = "SELECT id, parent_id, name FROM track"


@pytest.fixture(scope="module", params=[".pftrace", ".json"])
def trace(
    request: pytest.FixtureRequest, shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory
) -> TraceProcessor:
    """A detail with all args and the critical path, partly merged."""
    target: Path = tmp_path_factory.mktemp("args") / f"detail{request.param}"
    export(shelf.get("torch-db").path, target, kind=Kind.DETAIL, args=Args.ALL)
    return TraceProcessor.load(target.read_bytes())


def is_json(trace: TraceProcessor) -> bool:
    return trace.rows("SELECT count(*) FROM process WHERE name IS NOT NULL") != [(0,)]


def test_every_slice_has_a_category(trace: TraceProcessor) -> None:
    found = {category for (category,) in trace.rows("SELECT DISTINCT category FROM slice")}
    assert found <= {category.value for category in Category}
    assert {"task", "hccl", "communication", "api", "step", "partition", "overlap"} <= found
    assert {"wait", "idle", "path"} <= found


def test_args_of_a_slice_are_of_one_family_and_say_something(trace: TraceProcessor) -> None:
    families: dict[int, set[str]] = {}
    for number, _, key, *_, text in trace.rows(ARGS):
        families.setdefault(number, set()).add(key.partition(".")[0])
        assert text not in NO_TEXT
    assert families
    assert all(len(found) == 1 for found in families.values())
    if not is_json(trace):
        every = set().union(*families.values())
        assert every <= {
            "task", "hccl", "communication", "step", "host", "note", "overlap", "path", "partition",
        }  # fmt: skip


def test_what_is_spelled_is_the_exact_number_rounded(trace: TraceProcessor) -> None:
    """An independent reading of the text gives the number, to half of the last digit."""
    sizes = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
    sizes |= {"B/s": 1e-9, "KB/s": 1e-6, "MB/s": 1e-3, "GB/s": 1.0}
    of: dict[int, dict[str, float | str]] = {}
    for number, _, key, integer, real, text in trace.rows(ARGS):
        value = text if integer is None and real is None else real if integer is None else integer
        of.setdefault(number, {})[key.partition(".")[2]] = value
    seen = set()
    for args in of.values():
        for name, exact in args.items():
            for unit, _ in FORMATTERS:
                text = args.get(name.removesuffix(unit)) if name.endswith(unit) else None
                if text is None:
                    continue
                amount, word = str(text).split()
                digits = len(amount.partition(".")[2])
                # The exact rate beside it is drawn with few digits too.
                assert not isinstance(exact, str)
                slack = 0.5 * 10**-digits * sizes[word] * 1.001 + 1e-3 * abs(exact) * ("/" in word)
                assert abs(float(amount) * sizes[word] - exact) <= slack, (name, text, exact)
                seen.add(name)
    assert {"waited_ns", "transfer_ns", "bus_bandwidth_gb_s", "span_ns", "idle_ns"} <= seen


def test_reals_are_drawn_with_few_digits(trace: TraceProcessor) -> None:
    reals = [real for *_, real, _ in trace.rows(ARGS) if real is not None]
    assert reals
    assert all(float(f"{real:.{DIGITS}g}") == pytest.approx(real, rel=1e-12) for real in reals)
    assert all(len(re.sub(r"^0\.0*|\.|e.*$", "", repr(real))) <= 2 * DIGITS for real in reals)


def test_plain_tasks_and_calls_are_not_spelled(trace: TraceProcessor) -> None:
    """There are too many of them, and the UI shows how long they are."""
    keys = {key.partition(".")[2] for _, kind, key, *_ in trace.rows(ARGS) if kind == "hccl"}
    assert "size_bytes" in keys
    assert "size" not in keys


def test_long_pieces_tell_their_rank_step_and_share(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Of the period of each step; a piece counts to the end of the step that it begins in."""
    target = tmp_path / "detail.pftrace"
    export(shelf.get("torch-db").path, target, kind=Kind.DETAIL)
    trace = TraceProcessor.load(target.read_bytes())
    rank_of = ranks_of_tracks(trace)
    begin: dict[int | None, int] = {}
    windows = {}
    for track, step, start, period in trace.rows(
        "SELECT track_id, extract_arg(arg_set_id, 'step.iteration'), ts,"
        " extract_arg(arg_set_id, 'step.period_ns') FROM slice"
        " JOIN track ON track.id = track_id WHERE track.name = 'ProfilerStep' ORDER BY ts"
    ):
        rank = rank_of[track]
        first = begin.setdefault(rank, start)
        windows[rank, step] = first, first + period
        begin[rank] = first + period
    told, short = set(), 0
    for family in ("partition", "overlap"):
        for category, track, start, length, *args in trace.rows(PIECES.format(family=family)):
            if (category == "partition") != (family == "partition"):
                continue
            rank, step, share = args
            if step is None:
                begun = [
                    at for at in windows if at[0] == rank_of[track] and within(start, windows[at])
                ]
                assert all(part(start, length, windows[at]) < 0.0096 for at in begun)
                short += 1
                continue
            assert rank == rank_of[track]
            assert within(start, windows[rank, step])
            percent = 100 * part(start, length, windows[rank, step])
            assert float(share.rstrip("%")) == pytest.approx(
                percent, abs=0.51 if percent > 9.9 else 0.051
            )
            told.add(category)
    assert {"partition", "overlap", "wait"} <= told
    assert short > 0


def ranks_of_tracks(trace: TraceProcessor) -> dict[int, int | None]:
    """The rank of each track, by the name of its root."""
    found = {track: (above, name) for track, above, name in trace.rows(TRACKS)}

    def root(track: int) -> str:
        above, name = found[track]
        return name if above is None else root(above)

    named = {track: re.match(r" *Rank (\d+)", root(track)) for track in found}
    return {track: int(rank[1]) if rank else None for track, rank in named.items()}


def within(start: int, window: tuple[int, int]) -> bool:
    return window[0] <= start < window[1]


def part(start: int, length: int, window: tuple[int, int]) -> float:
    """The share of a window that a piece takes."""
    return (min(start + length, window[1]) - start) / (window[1] - window[0])


# -- strings that are numbered, and numbers of few digits ------------------------------------------


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
