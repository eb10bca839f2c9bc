"""Proves that parts of a timeline are whole timelines that together are exactly the whole one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.coarse_reference import parents
from tests.support.examples import at_most
from tests.support.limited_exports import Loaded
from tests.support.profile_shelf import ProfileShelf
from tests.support.random_intervals import EPOCH_NS, is_laminar
from tests.support.random_tracks import flat_slices, nested_slices, samples
from tests.support.row_totals import CONTINUED, CounterTotals, Row, RowTotals, is_text, rows_of
from tests.support.trace_packets import attributes_of, packets_of
from timeline.columns.nesting import order_edges
from timeline.columns.strings import StringPool
from timeline.commands.export import export
from timeline.errors import LimitError, OutputError
from timeline.fitting.fit_without_merging import cut_times, cut_tracks
from timeline.layers import SliceKind
from timeline.options import Fit
from timeline.reports.export_report import ExportReport
from timeline.selection import Kind
from timeline.tracks.model import Arg, ArgKind, Samples, Slices, Track

pytestmark = pytest.mark.sweep

# -- cutting tracks ----------------------------------------------------------------------------


@st.composite
def tracks(draw: st.DrawFn) -> list[Track]:
    """A group with a flat row, a nested row and a counter below it."""
    return [
        Track(0, None, "Ranks 0", 0),
        Track(1, 0, "Stream 2", 0, "Tasks.", numbered(draw(flat_slices())), rank=0),
        Track(2, 0, "Thread 7", 1, "", numbered(draw(nested_slices())), rank=0),
        Track(3, 0, "Read", 2, "", draw(samples()), rank=0),
    ]


def numbered(slices: Slices) -> Slices:
    """The same slices, each with its row as an arg."""
    count = len(slices)
    row = Arg("row", ArgKind.INTEGER, np.arange(count), np.ones(count, np.bool_))
    return replace(slices, args=(row,))


@st.composite
def tracks_and_cuts(draw: st.DrawFn) -> tuple[list[Track], list[int]]:
    """Tracks, and ascending moments from before their first to after their last one."""
    made = draw(tracks())
    times = sorted(moments_of(made))
    if not times:
        return made, [0, 1]
    inner = draw(
        st.sets(st.integers(times[0] + 1, times[-1]) | st.sampled_from(times), max_size=6)
        if times[0] < times[-1]
        else st.just(set[int]())
    )
    return made, [times[0], *sorted(inner - {times[0]}), times[-1] + 1]


def moments_of(made: Sequence[Track]) -> set[int]:
    """All edges of slices and all moments of samples."""
    found: set[int] = set()
    for track in made:
        if isinstance(track.content, Slices):
            found |= {*track.content.start_ns.tolist(), *track.content.end_ns.tolist()}
        elif isinstance(track.content, Samples):
            found |= set(track.content.time_ns.tolist())
    return found


def parts_of(made: Sequence[Track], moments: Sequence[int]) -> list[list[Track]]:
    return [cut_tracks(made, start, end) for start, end in pairwise(moments)]


def slices_of(part: Sequence[Track], number: int) -> Slices:
    content = part[number].content
    assert isinstance(content, Slices)
    return content


def row_of(slices: Slices) -> list[int]:
    """The row of the whole track that each piece is of."""
    (found,) = (arg for arg in slices.args if arg.name == "row")
    assert found.present.all()
    return [int(value) for value in found.values]


def is_continued(slices: Slices) -> list[bool]:
    for arg in slices.args:
        if arg.name == "continued":
            assert arg.values[arg.present].tolist() == [1] * int(arg.present.sum())
            return [bool(present) for present in arg.present]
    return [False] * len(slices)


@given(tracks_and_cuts())
def test_the_pieces_of_a_slice_follow_each_other_and_are_as_long_as_it(
    cut: tuple[list[Track], list[int]],
) -> None:
    """A slice without length is in one part, once; only pieces after the first are continued."""
    made, moments = cut
    for number in (1, 2):
        whole = slices_of(made, number)
        pieces: dict[int, list[tuple[int, int]]] = {row: [] for row in range(len(whole))}
        for part in parts_of(made, moments):
            slices = slices_of(part, number)
            for at, (row, continued) in enumerate(
                zip(row_of(slices), is_continued(slices), strict=True)
            ):
                assert continued == bool(pieces[row])
                assert slices.name[at] == whole.name[row]
                pieces[row].append((int(slices.start_ns[at]), int(slices.end_ns[at])))
        for row, found in pieces.items():
            start_ns, end_ns = int(whole.start_ns[row]), int(whole.end_ns[row])
            assert found[0][0] == start_ns
            assert found[-1][1] == end_ns
            assert all(one[1] == other[0] for one, other in pairwise(found))
            if start_ns == end_ns:
                assert len(found) == 1
            else:
                assert all(start < end for start, end in found), "no empty piece"


@given(tracks_and_cuts())
def test_samples_lie_in_one_part_each(cut: tuple[list[Track], list[int]]) -> None:
    made, moments = cut
    whole = made[3].content
    assert isinstance(whole, Samples)
    found = []
    for part, (start, end) in zip(parts_of(made, moments), pairwise(moments), strict=True):
        kept = part[3].content
        assert isinstance(kept, Samples)
        assert kept.unit == whole.unit
        assert all(start <= time < end for time in kept.time_ns.tolist())
        found += list(zip(kept.time_ns.tolist(), kept.value.tolist(), strict=True))
    assert found == list(zip(whole.time_ns.tolist(), whole.value.tolist(), strict=True))


@given(tracks_and_cuts())
@settings(max_examples=at_most(50))
def test_every_part_has_all_rows(cut: tuple[list[Track], list[int]]) -> None:
    """Names, order, descriptions and ranks, whether or not a row holds anything there."""
    made, moments = cut
    for part in parts_of(made, moments):
        assert [replace(track, content=None) for track in part] == [
            replace(track, content=None) for track in made
        ]


@given(tracks_and_cuts())
def test_parts_can_be_drawn(cut: tuple[list[Track], list[int]]) -> None:
    """Flat rows stay in order without overlap, nested ones do not cross."""
    made, moments = cut
    for part in parts_of(made, moments):
        flat, nested = slices_of(part, 1), slices_of(part, 2)
        assert (flat.start_ns[1:] >= flat.end_ns[:-1]).all()
        assert is_laminar(list(zip(nested.start_ns.tolist(), nested.end_ns.tolist(), strict=True)))


@given(tracks_and_cuts())
def test_what_was_inside_stays_inside(cut: tuple[list[Track], list[int]]) -> None:
    """Two slices that a cut makes equally long keep which of them is around the other."""
    made, moments = cut
    whole = slices_of(made, 2)
    around = parents(whole.start_ns.tolist(), whole.end_ns.tolist())
    for part in parts_of(made, moments):
        slices = slices_of(part, 2)
        rows = row_of(slices)
        above = parents(slices.start_ns.tolist(), slices.end_ns.tolist())
        for row, parent in zip(rows, above, strict=True):
            assert (rows[parent] if parent >= 0 else -1) == around[row]


def test_a_caller_recorded_after_its_callee_stays_around_it() -> None:
    """Calls are often recorded when they return, the inner one first."""
    strings = StringPool()
    inner, outer = strings.codes(["inner", "outer"]).tolist()
    calls = Slices(
        EPOCH_NS + np.array([5, 0]),
        EPOCH_NS + np.array([20, 20]),
        np.array([inner, outer], np.int32),
        strings,
        SliceKind.HOST_CALL,
        nested=True,
    )
    track = Track(0, None, "Thread 7", 0, "", calls)
    (after,) = cut_tracks([track], EPOCH_NS + 10, EPOCH_NS + 30)
    content = after.content
    assert isinstance(content, Slices)
    edges = order_edges(content.start_ns, content.end_ns)
    drawn = [strings[int(content.name[row])] for row in edges.row[~edges.is_end].tolist()]
    assert drawn == ["outer", "inner"]


@given(tracks_and_cuts())
def test_an_arrow_touches_the_piece_that_its_slice_begins_in(
    cut: tuple[list[Track], list[int]],
) -> None:
    """Each end is in exactly one part, so the parts draw no arrow twice."""
    made, moments = cut
    for number in (1, 2):
        whole = slices_of(made, number)
        wanted = Counter(zip(whole.arrows.slice.tolist(), whole.arrows.arrow.tolist(), strict=True))
        found: Counter[tuple[int, int]] = Counter()
        for part in parts_of(made, moments):
            slices = slices_of(part, number)
            rows = row_of(slices)
            for at, arrow in zip(
                slices.arrows.slice.tolist(), slices.arrows.arrow.tolist(), strict=True
            ):
                assert slices.start_ns[at] == whole.start_ns[rows[at]]
                found[rows[at], arrow] += 1
            assert (np.diff(slices.arrows.slice) >= 0).all()
        assert found == wanted


# -- where to cut ------------------------------------------------------------------------------


@given(tracks(), st.integers(1, 9))
def test_cuts_ascend_between_the_two_ends(made: list[Track], count: int) -> None:
    """They are starts of slices or moments of samples, exact to the nanosecond."""
    times = sorted(moments_of(made)) or [EPOCH_NS]
    first, last = times[0], times[-1] + 1
    moments = cut_times(made, count, first, last)
    assert moments[0] == first
    assert moments[-1] == last
    assert all(one < other for one, other in pairwise(moments))
    assert len(moments) <= count + 1
    starts = {
        time
        for track in made
        if track.content is not None
        for time in (
            track.content.start_ns if isinstance(track.content, Slices) else track.content.time_ns
        ).tolist()
    }
    assert set(moments[1:-1]) <= starts


@given(
    st.sets(st.integers(0, 10_000), min_size=1, max_size=60),
    st.integers(1, 9),
)
def test_parts_hold_about_as_many_slices_each(offsets: set[int], count: int) -> None:
    starts = EPOCH_NS + np.array(sorted(offsets), np.int64)
    strings = StringPool()
    names = np.zeros(len(starts), np.int32)
    track = Track(0, None, "", 0, "", Slices(starts, starts + 1, names, strings, SliceKind.TASK))
    first, last = int(starts[0]) - 1, int(starts[-1]) + 1
    moments = cut_times([track], count, first, last)
    assert len(moments) - 1 == min(count, len(moments) - 1)
    held = np.histogram(starts, moments)[0]
    if len(starts) >= 2 * count:
        assert len(held) == count
        assert held.max() - held.min() <= 2


def test_what_begins_at_one_moment_cannot_be_parted() -> None:
    strings = StringPool()
    starts = np.full(5, EPOCH_NS)
    slices = Slices(starts, starts, np.zeros(5, np.int32), strings, SliceKind.TASK)
    track = Track(0, None, "", 0, "", slices)
    assert cut_times([track], 3, EPOCH_NS, EPOCH_NS + 1) == [EPOCH_NS, EPOCH_NS + 1]


# -- through an export -------------------------------------------------------------------------

RUN: dict[str, Any] = {"ranks": 2, "steps": 8, "ops_per_step": 24, "planes": 4}
LIMITS = {".pftrace": 16_000, ".pftrace.gz": 16_000, ".json": 300_000, ".json.gz": 24_000}


@dataclass(frozen=True)
class Parted:
    """An export in parts, beside the exact file of the same profile."""

    limit: int
    suffix: str
    directory: Path
    report: ExportReport
    parts: list[Loaded]
    exact: Loaded

    @property
    def is_json(self) -> bool:
        return self.exact.is_json


def export_detail(path: Path, target: Path, limit: int, *, force: bool = False) -> ExportReport:
    return export(path, target, kind=Kind.DETAIL, limit=limit, fit=Fit.SPLIT, force=force)


@pytest.fixture(
    scope="module",
    params=[("torch-db", suffix) for suffix in LIMITS] + [("mindstudio", ".pftrace")],
    ids="".join,
)
def parted(
    request: pytest.FixtureRequest, shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory
) -> Parted:
    layout, suffix = request.param
    profile = shelf.get(layout, **RUN)
    whole = tmp_path_factory.mktemp("whole") / f"timeline{suffix}"
    export_detail(profile.path, whole, 0)
    directory = tmp_path_factory.mktemp("parts")
    limit = LIMITS[suffix]
    report = export_detail(profile.path, directory / f"timeline{suffix}", limit)
    return Parted(
        limit,
        suffix,
        directory,
        report,
        [Loaded.of(output.path) for output in report.outputs],
        Loaded.of(whole),
    )


def test_parts_are_numbered_and_keep_the_limit(parted: Parted) -> None:
    """Nothing else is left in the directory, and the report names them in order of time."""
    count = len(parted.parts)
    assert count > 2, "what the run is made for"
    names = [f"timeline.part{n:02}of{count:02}{parted.suffix}" for n in range(1, count + 1)]
    assert [part.path.name for part in parted.parts] == names
    assert sorted(path.name for path in parted.directory.iterdir()) == names
    sizes = [path.stat().st_size for path in (part.path for part in parted.parts)]
    assert max(sizes) <= parted.limit
    assert [output.size_bytes for output in parted.report.outputs] == sizes
    begins = [
        part.processor.rows("SELECT min(ts) FROM slice WHERE dur >= 0")[0][0]
        for part in parted.parts
    ]
    assert begins == sorted(begins)


def test_every_part_loads_without_errors(parted: Parted) -> None:
    for part in parted.parts:
        assert part.processor.import_errors() == []
        assert part.processor.rows("SELECT count(*) FROM slice WHERE dur < 0") == [(0,)]


def test_every_part_has_all_names_and_facts(parted: Parted) -> None:
    """Rows, their order and meaning are in each file, so each can be opened alone."""
    wanted = descriptors(parted.exact)
    assert wanted
    for part in parted.parts:
        assert descriptors(part) == wanted


OF_PART = {f"io.tlexport.{name}" for name in ("limited_by", "zero_ns", "drawn_ns")}
"""Attributes that differ between parts."""


def descriptors(loaded: Loaded) -> list[Any]:
    """What a file says of its rows and of itself, but for its limit and the part that it shows."""
    if loaded.is_json:
        document = json.loads(loaded.content)
        head = {key: value for key, value in document.items() if key != "traceEvents"}
        for fact in OF_PART:
            head["otherData"].pop(fact, None)
        return [head, *(event for event in document["traceEvents"] if event["ph"] == "M")]
    attributes = attributes_of(loaded.content)
    facts = {key: value for key, value in attributes.items() if key not in OF_PART}
    return [
        facts,
        *(
            packet.SerializeToString(deterministic=True)
            for packet in packets_of(loaded.content)
            if packet.HasField("track_descriptor")
        ),
    ]


def test_the_sums_over_all_parts_are_those_of_the_whole(parted: Parted) -> None:
    """Per row: records, durations, first start and last end; a continued slice is no record."""
    found = summed(part.totals.rows for part in parted.parts)
    wanted = parted.exact.totals.rows
    assert found.keys() == wanted.keys()
    for row, one in found.items():
        assert one.merged == 0
        assert replace(one, drawn=one.drawn - one.continued, continued=0) == wanted[row]
    assert sum(one.continued for one in found.values()) > 0, "what the limit is chosen for"


def summed(parts: Iterator[dict[Row, RowTotals]]) -> dict[Row, RowTotals]:
    """Row by row."""
    by_row: dict[Row, list[RowTotals]] = {}
    for part in parts:
        for row, one in part.items():
            by_row.setdefault(row, []).append(one)
    return {row: reduce(add, one) for row, one in by_row.items()}


def test_samples_of_all_parts_are_those_of_the_whole(parted: Parted) -> None:
    by_row: dict[Row, list[CounterTotals]] = {}
    for part in parted.parts:
        for row, counter_total in part.totals.counters.items():
            by_row.setdefault(row, []).append(counter_total)
    wanted = parted.exact.totals.counters
    assert wanted
    assert {row: reduce(add, one) for row, one in by_row.items()} == wanted


def test_slices_keep_their_place_name_and_depth(parted: Parted) -> None:
    """Every slice that begins in a part is where the whole file has it, args included."""
    found = Counter(
        beginning for part in parted.parts for beginning in beginnings(part, is_json=parted.is_json)
    )
    assert found == Counter(beginnings(parted.exact, is_json=parted.is_json))


def beginnings(loaded: Loaded, *, is_json: bool) -> Iterator[tuple[object, ...]]:
    """Row, start, name, depth and number of args of the slices that are not continued."""
    rows = rows_of(loaded.processor, is_json=is_json)
    for track, *one in loaded.processor.rows(
        "SELECT track_id, ts, name, depth,"
        " (SELECT count(*) FROM args WHERE args.arg_set_id = slice.arg_set_id) FROM slice"
        f" WHERE {CONTINUED} IS NULL"
    ):
        if not is_text(rows[track]):  # each part has them, as long as it is
            yield rows[track], *one


def test_a_continued_slice_goes_on_where_it_was_cut(parted: Parted) -> None:
    """The part before ends it at that moment, on the same row with the same name and depth."""
    seen = 0
    for before, after in pairwise(parted.parts):
        continued = named_rows(after, f"{CONTINUED} = 1", "ts")
        for moment in {start for _, start, *_ in continued}:
            assert continued <= named_rows(before, f"ts + dur = {moment}", "ts + dur")
            seen += len(continued)
    assert seen > 0


def named_rows(loaded: Loaded, where: str, moment: str) -> set[tuple[object, ...]]:
    """Row, moment, name and depth of some slices."""
    rows = rows_of(loaded.processor, is_json=loaded.is_json)
    found = loaded.processor.rows(
        f"SELECT track_id, {moment}, name, depth FROM slice WHERE {where}"
    )
    return {(rows[track], *one) for track, *one in found}


def test_arrows_from_part_to_part_are_counted(parted: Parted) -> None:
    """Those within a part are drawn there; the report tells the number of the others."""
    arrows = "SELECT count(*) FROM flow"
    drawn = sum(part.processor.rows(arrows)[0][0] for part in parted.parts)
    between_parts = sum(
        omission.rows
        for omission in parted.report.omissions
        if "from one part to another" in omission.reason
    )
    assert between_parts > 0
    assert [(drawn + between_parts,)] == parted.exact.processor.rows(arrows)


def test_what_fits_is_one_file(shelf: ProfileShelf, tmp_path: Path) -> None:
    target = tmp_path / "timeline.pftrace"
    report = export_detail(shelf.get("torch-db", **RUN).path, target, 1 << 20)
    assert [output.path for output in report.outputs] == [target] == list(tmp_path.iterdir())


def test_an_existing_part_is_not_replaced(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Nor is any other part written then; --force replaces it."""
    profile, target = shelf.get("torch-db", **RUN), tmp_path / "timeline.pftrace"
    first, *_ = export_detail(profile.path, target, LIMITS[".pftrace"]).outputs
    for path in tmp_path.iterdir():
        path.unlink()
    first.path.write_bytes(b"mine")
    with pytest.raises(OutputError, match="force=True"):
        export_detail(profile.path, target, LIMITS[".pftrace"])
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"mine"]
    export_detail(profile.path, target, LIMITS[".pftrace"], force=True)
    assert first.path.stat().st_size == first.size_bytes


def test_a_limit_that_no_part_can_keep_is_an_error_that_says_which_would_do(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    profile, target = shelf.get("torch-db", ranks=2, steps=3), tmp_path / "timeline.pftrace"
    with pytest.raises(LimitError) as caught:
        export_detail(profile.path, target, 1_000)
    assert list(tmp_path.iterdir()) == [], "parts that were written before are left"
    (named,) = (
        int(word) for word in str(caught.value).split() if word.isdigit() and word != "1000"
    )
    report = export_detail(profile.path, target, named)
    assert len(report.outputs) > 2
    assert all(output.size_bytes <= named for output in report.outputs)


def test_both_limits_that_no_part_can_keep_are_named(shelf: ProfileShelf, tmp_path: Path) -> None:
    """A moment that exceeds both needs both to be raised, and then every part keeps both."""
    profile = shelf.get("torch-db", ranks=1, steps=1, ops_per_step=3, planes=1)
    target = tmp_path / "timeline.pftrace"

    def split(limit: int, most: int) -> ExportReport:
        return export(
            profile.path, target, kind=Kind.DETAIL, fit=Fit.SPLIT, limit=limit, max_events=most
        )

    with pytest.raises(LimitError, match="Raise limit and max_events") as caught:
        split(2_000, 20)
    assert list(tmp_path.iterdir()) == [], "parts that were written before are left"
    said = str(caught.value)
    (limit,), (most,) = (re.findall(rf"(\d+) {unit}", said)[-1:] for unit in ("bytes", "events"))
    for output in split(int(limit), int(most)).outputs:
        assert output.size_bytes <= int(limit)
        assert output.elements <= int(most)
