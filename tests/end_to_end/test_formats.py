"""Proves with the real trace processor that every format shows exactly what a profile holds."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections import Counter as Multiset
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.expected_picture import (
    ALL_RANKS,
    GRAPH_LAYOUTS,
    STEPS,
    Counter,
    ExpectedPicture,
    Shown,
)
from tests.support.loaded_picture import (
    LATE,
    NOTES,
    LoadedPicture,
    LoadedTrack,
    Place,
    joined_idle,
    json_place,
)
from tests.support.made_tracks import encode_timeline
from tests.support.perfetto_sql import Row, TraceProcessor
from tests.support.profile_shelf import MAIN_LAYOUTS, Event, Profile, ProfileShelf, change_events
from tests.support.read_profiles import records_by_rank
from tests.support.trace_packets import attributes_of
from timeline.columns.strings import StringPool
from timeline.commands.export import export
from timeline.encoders.formats import format_of
from timeline.errors import OutputError
from timeline.layers import SliceKind
from timeline.options import Args
from timeline.selection import Kind
from timeline.tracks.model import Arrows, Slices, Timeline, Track
from timeline.version import __version__

pytestmark = pytest.mark.sweep

FORMATS = (".pftrace", ".pftrace.gz", ".json", ".json.gz")
RUN: dict[str, Any] = {"steps": 2, "planes": 12, "ops_per_step": 24}
"""Twelve planes, so that an order by text would differ from one by number."""


@dataclass(frozen=True)
class Drawing:
    """An export, loaded, beside what it should show."""

    file: Path
    loaded: LoadedPicture
    expected: ExpectedPicture
    culprit: int | None

    @property
    def is_json(self) -> bool:
        return self.loaded.is_json

    @property
    def content(self) -> bytes:
        """The bytes of the file, unpacked."""
        data = self.file.read_bytes()
        return gzip.decompress(data) if self.file.suffix == ".gz" else data

    def rows(self, sql: str) -> list[Row]:
        return self.loaded.processor.rows(sql)


def draw(profile: Profile, layout: str, kind: Kind, target: Path, **options: Any) -> Drawing:
    """Export a profile and load the result."""
    culprit = export(profile.path, target, kind=kind, force=True, **options).verdict.culprit
    expected = ExpectedPicture(layout, profile.run, records_by_rank(profile.path), kind)
    is_json = ".json" in target.suffixes
    processor = TraceProcessor.load(target.read_bytes())
    loaded = LoadedPicture(processor, is_json, expected.first_ns)
    return Drawing(target, loaded, expected, None if culprit is None else culprit.rank)


@pytest.fixture(
    scope="module",
    params=[
        (layout, kind, suffix) for layout in MAIN_LAYOUTS for kind in Kind for suffix in FORMATS
    ],
    ids=lambda param: f"{param[0]}-{param[1].value}{param[2]}",
)
def drawing(
    request: pytest.FixtureRequest, shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory
) -> Drawing:
    """An export with all args of one layout, in one kind and format."""
    layout, kind, suffix = request.param
    target = tmp_path_factory.mktemp("drawing") / f"timeline{suffix}"
    return draw(shelf.get(layout, **RUN), layout, kind, target, args=Args.ALL)


def same(found: Iterable[Any], wanted: Iterable[Any]) -> None:
    """Both hold the same things equally often; a failure names some that only one of them holds."""
    have, want = Multiset(found), Multiset(wanted)
    assert list((have - want).items())[:5] == list((want - have).items())[:5]
    assert have == want


def test_nothing_is_lost_or_skipped_on_import(drawing: Drawing) -> None:
    assert drawing.loaded.processor.import_errors() == []
    counted = drawing.rows(
        "SELECT name, value FROM stats WHERE name IN ('track_event_tokenizer_errors',"
        " 'tokenizer_skipped_packets') ORDER BY name"
    )
    assert counted == [("tokenizer_skipped_packets", 0), ("track_event_tokenizer_errors", 0)]


def test_every_slice_has_an_end(drawing: Drawing) -> None:
    assert drawing.rows("SELECT count(*) FROM slice WHERE dur < 0") == [(0,)]


def test_slices_and_their_args_equal_the_records(drawing: Drawing) -> None:
    """Rank, layer, row, start, length, name and every arg by key, to the nanosecond."""
    found = joined_idle(drawing.loaded.by_id.values())
    same(found, drawn(drawing, drawing.expected.slices))


def drawn(drawing: Drawing, slices: Iterable[Shown]) -> Iterator[Shown]:
    for one in slices:
        args = (arg.as_drawn(is_json=drawing.is_json) for arg in one.args)
        yield one._replace(args=tuple(sorted(args)))


def test_arrows_join_what_the_records_join(drawing: Drawing) -> None:
    wanted = drawing.expected.arrows
    assert len(drawing.loaded.arrows()) == len(wanted)
    same(
        (tuple(sorted(pair)) for pair in drawing.loaded.arrows()),
        (tuple(sorted(pair)) for pair in wanted),
    )


def test_counters_have_all_their_samples_and_units(drawing: Drawing) -> None:
    assert_counters(drawing)


def assert_counters(drawing: Drawing) -> None:
    """Every counter is there once; JSON has no units, so there the unit ends the name."""
    wanted, found = sorted(drawing.expected.counters), sorted(drawing.loaded.counters())
    assert len(found) == len(wanted)
    if not drawing.is_json:
        assert [one[:4] for one in found] == [one[:4] for one in wanted]
    for one in wanted:
        label = f"{one.name} {one.unit or 'value'}" if drawing.is_json else one.name
        mine = next(counter for counter in found if shows(counter, one, label))
        found.remove(mine)
        total = sum(value for _, value in one.samples)
        assert sum(value for _, value in mine.samples) == pytest.approx(total)


def shows(counter: Counter, wanted: Counter, label: str) -> bool:
    """Whether a counter has the name and all samples that are wanted."""
    return (
        counter.rank == wanted.rank
        and counter.name.endswith(label)
        and [time for time, _ in counter.samples] == [time for time, _ in wanted.samples]
        and [value for _, value in counter.samples]
        == pytest.approx([value for _, value in wanted.samples], rel=1e-12)
    )


def test_rows_are_named_and_in_order(drawing: Drawing) -> None:
    """By rank, the culprit first, and numbers by value: Plane 2 before Plane 10."""
    wanted = list(places_of(drawing.expected, by_layer=False, first=drawing.culprit))
    if drawing.is_json:  # the UI sorts counters of a process by name; nothing else can be said
        assert json_places(drawing) == [place for place in wanted if place[1] != "Counters"]
    else:
        assert tracks_in_order(drawing) == wanted


def places_of(
    expected: ExpectedPicture, *, by_layer: bool, first: int | None = None
) -> Iterator[Place]:
    """Rank, layer and row from top to bottom; first: the rank that comes before the others."""
    rows = expected.rows
    layers = list(dict.fromkeys(layer for _, layer in rows))
    order = sorted(rows, key=lambda place: (layers.index(place[1]), place[0] != first, place[0]))
    if not by_layer:
        order.sort(key=lambda place: (place[0] != first, place[0]))
    yield ALL_RANKS, "", STEPS
    for place in order:
        for row in rows[place]:
            yield *place, row


def tracks_in_order(drawing: Drawing) -> list[Place]:
    """Rows from top to bottom as the UI sorts them: by explicit rank among siblings."""
    children: dict[int | None, list[LoadedTrack]] = {}
    for track in drawing.loaded.tracks.values():
        children.setdefault(track.parent, []).append(track)
    holds = {track for (track,) in drawing.rows("SELECT track_id FROM slice")}
    counts = {track for (track,) in drawing.rows("SELECT track_id FROM counter")}
    found: list[Place] = []

    def visit(parent: int | None) -> None:
        siblings = sorted(children.get(parent, []), key=lambda one: one.order)
        for track, after in pairwise(siblings):
            assert track.order < after.order or track.path == after.path, "a place of its own"
        if parent is None:
            found_names = drawing.rows("SELECT id, name FROM track")
            named = {track: str(name) for track, name in found_names}
            names = [named[track.id] for track in siblings]
            assert names == sorted(names), "the UI sorts rows without a parent by name"
        for track in siblings:
            if track.path[-1] == LATE:
                continue
            if track.id in counts:
                found.append((track.rank, "Counters", " / ".join(track.path[-2:])))
            elif track.id in holds and track.place not in found and track.place[1] != NOTES:
                found.append(track.place)
            visit(track.id)

    visit(None)
    return found


def json_places(drawing: Drawing) -> list[Place]:
    """Rows from top to bottom by the sort indexes in the file; this engine does not read them."""
    meta: dict[str, dict[tuple[int, int], Any]] = {}
    for event in json.loads(drawing.content)["traceEvents"]:
        if event["ph"] == "M":
            (value,) = event["args"].values()
            meta.setdefault(event["name"], {})[event["pid"], event["tid"]] = value
    processes = meta["process_name"]
    assert len(set(processes.values())) == len(processes), "one process per layer of a rank"
    found = []
    for pid, tid in sorted(processes, key=meta["process_sort_index"].__getitem__):
        threads = [key for key in meta["thread_name"] if key[0] == pid]
        threads.sort(key=meta["thread_sort_index"].__getitem__)
        names = (meta["thread_name"][thread] for thread in threads)
        found += [json_place(processes[pid, tid], name) for name in names]
    return list(dict.fromkeys(place for place in found if place[1] != NOTES))


def test_lanes_are_one_row_and_hold_no_false_nesting(drawing: Drawing) -> None:
    """Slices that overlap lie on tracks of the same name, parent and place: the UI merges them."""
    lanes: dict[Place, set[int]] = {}
    for track, depth in drawing.rows("SELECT track_id, max(depth) FROM slice GROUP BY 1"):
        place = drawing.loaded.places[track]
        lanes.setdefault(place, set()).add(track)
        if place[1] in ("Ascend Hardware", "Communication", "Overlap Analysis"):
            assert depth == 0, f"{place} draws slices inside each other"
    several = {place: lane for place, lane in lanes.items() if len(lane) > 1}
    overlaps = drawing.expected.kind is Kind.DETAIL and drawing.expected.layout != "mindspore-2.1"
    assert bool(several) == overlaps, "planes share a stream in all layouts but one"
    if drawing.is_json:
        return
    for one in several.values():
        tracks = [drawing.loaded.tracks[track] for track in one]
        assert len({(track.path, track.parent, track.order) for track in tracks}) == 1
        assert len({track.row for track in tracks}) == 1, "the UI does not merge them"
        assert len({track.description for track in tracks}) == 1


def test_every_row_says_what_it_shows(drawing: Drawing) -> None:
    """Groups, rows and counters too; JSON has one place for all, where numbers are N."""
    if drawing.is_json:
        said = json.loads(drawing.content)["otherData"]["io.tlexport.rows"]
        assert {"Steps", "Rank N / Step Trace", "Rank N / Overlap Analysis"} <= said.keys()
        ways = [way.replace(" / ", " ") for way in said]
        for _, layer, row in drawing.loaded.places.values():
            numberless = re.sub(r"\b\d+\b", "N", row)
            of_layer = [way for way in ways if layer in way and way.endswith(numberless)]
            assert of_layer or layer in ("", NOTES), "a row that nothing is said of"
        assert all(text.endswith(".") for text in said.values())
        return
    tracks = drawing.loaded.tracks.values()
    assert not {track.path for track in tracks if not track.description.endswith(".")}
    assert not {track.path for track in tracks if len(track.description) > 200}
    overlap = {track.description for track in tracks if track.place[1] == "Overlap Analysis"}
    rows = {row for _, layer, row in drawing.loaded.places.values() if layer == "Overlap Analysis"}
    assert len(overlap) == len(rows), "the layer and each of its rows have a meaning of their own"


@pytest.mark.parametrize("layout", ["torch-text", "kernel-details", "kineto", "mindspore-text"])
def test_rows_speak_only_of_rows_that_are_there(
    shelf: ProfileShelf, tmp_path: Path, layout: str
) -> None:
    """Ops lie above planes only where there are any; a row of steps that go on says so."""
    target = tmp_path / "timeline.pftrace"
    export(shelf.get(layout).path, target, kind=Kind.DETAIL)
    loaded = LoadedPicture(TraceProcessor.load(target.read_bytes()), is_json=False, zero_ns=0)
    names = {track.path[-1] for track in loaded.tracks.values()}
    said = {track.path[-1]: track.description for track in loaded.tracks.values()}
    (ops,) = {text for name, text in said.items() if re.fullmatch("Group .* Communication", name)}
    assert ("planes below" in ops) == ("Plane 0" in names)


def test_every_moment_has_its_wall_time(drawing: Drawing) -> None:
    """To the nanosecond, in whichever clock the source counts."""
    rank = drawing.expected.run.ranks[0]
    first, begin = next(
        (slice_id, shown)
        for slice_id, shown in drawing.loaded.by_id.items()
        if shown.rank == rank.rank and shown.row == "Computing"
    )
    kernels = (task.start_ns for one in rank.iterations for task, _ in one.kernels)
    wall_ns = drawing.expected.run.wall_ns(min(kernels))
    if drawing.is_json:
        head = json.loads(drawing.content)
        assert head["baseTimeNanoseconds"] + begin.start_ns - drawing.loaded.zero_ns == wall_ns
        return
    assert drawing.rows(f"SELECT to_realtime(ts) FROM slice WHERE id = {first}") == [(wall_ns,)]
    assert int(facts_of(drawing)["io.tlexport.zero_ns"]) == drawing.expected.first_ns
    snapshots = drawing.rows(
        "SELECT clock_name, clock_value FROM clock_snapshot WHERE snapshot_id = 0 ORDER BY 1"
    )
    wall_first_ns = drawing.expected.first_ns + wall_ns - begin.start_ns
    assert snapshots == [
        ("BOOTTIME", 0),
        ("REALTIME", wall_first_ns),
    ]


def test_facts_about_the_export_travel_in_the_file(drawing: Drawing) -> None:
    facts = facts_of(drawing)
    assert facts["io.tlexport.version"] == __version__
    assert facts["io.tlexport.kind"] == drawing.expected.kind.value
    assert facts["io.tlexport.ranks"] == "0,1"
    assert facts["io.tlexport.graphs"] == facts["io.tlexport.steps"] == "all"
    assert all(f"rank {rank}" in facts["io.tlexport.sources"] for rank in (0, 1))
    in_metadata = drawing.rows(
        "SELECT name, str_value FROM metadata WHERE name LIKE 'trace_attribute.io.tlexport.%'"
    )
    if in_metadata:  # engines since v58 show them
        same(in_metadata, ((f"trace_attribute.{key}", value) for key, value in facts.items()))


def facts_of(drawing: Drawing) -> dict[str, str]:
    if drawing.is_json:
        facts: dict[str, str] = json.loads(drawing.content)["otherData"]
        return facts
    return attributes_of(drawing.content)


DAY_NS = 86_400 * 10**9


@pytest.fixture
def ends_late(shelf: ProfileShelf, tmp_path: Path) -> Callable[[int], Path]:
    """A profile whose last task begins so long after its first, at an odd nanosecond."""

    def made(late_ns: int) -> Path:
        profile = shelf.copy("torch-text", tmp_path / f"late-{late_ns}", ranks=1, steps=1)
        seen = list[Event]()

        def late(event: Event) -> Event:
            if event["ph"] == "X" and "Task Type" in event.get("args", {}) and not seen:
                seen.append(event)
                start_ns = round(Fraction(event["ts"]) * 1000) + late_ns
                return event | {"ts": f"{start_ns // 1000}.{start_ns % 1000:03d}", "dur": 1.001}
            return event

        change_events(profile.captures[0] / "ASCEND_PROFILER_OUTPUT" / "trace_view.json", late)
        return profile.path

    return made


def test_json_is_exact_as_long_as_it_is_written(
    ends_late: Callable[[int], Path], tmp_path: Path
) -> None:
    """Times of a capture of weeks are those of the records, to the nanosecond."""
    path = ends_late(50 * DAY_NS + 777)
    (records,) = records_by_rank(path).values()
    export(path, tmp_path / "a.json", kind="detail", limit=0)
    content = (tmp_path / "a.json").read_bytes()
    first_ns = json.loads(content)["baseTimeNanoseconds"]
    processor = TraceProcessor.load(content)
    ((last_ns, length_ns),) = processor.rows("SELECT ts, dur FROM slice ORDER BY ts DESC LIMIT 1")
    assert length_ns == 1001
    assert last_ns + first_ns == int(records.tasks.start_ns.max())


def test_json_that_would_be_rounded_is_refused(
    ends_late: Callable[[int], Path], tmp_path: Path
) -> None:
    """Viewers would move its slices onto each other, and drop some: nothing is written."""
    path = ends_late(60 * DAY_NS)
    for suffix in (".json", ".json.gz"):
        with pytest.raises(OutputError, match=r"60.0 days.* 50 days.*\.pftrace"):
            export(path, tmp_path / f"a{suffix}", kind="detail")
    assert not [one for one in tmp_path.iterdir() if one.is_file()]
    export(path, tmp_path / "a.pftrace", kind="detail")


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
@pytest.mark.parametrize("layout", MAIN_LAYOUTS)
@pytest.mark.parametrize("args", [Args.DEFAULT, Args.NONE])
def test_slices_carry_the_args_that_were_asked_for(
    shelf: ProfileShelf, tmp_path: Path, layout: str, suffix: str, args: Args
) -> None:
    """--args all is what every other test here exports."""
    target = tmp_path / f"timeline{suffix}"
    drawing = draw(shelf.get(layout, **RUN), layout, Kind.DETAIL, target, args=args)
    wanted = [
        one._replace(args=tuple(arg for arg in one.args if arg.default and args is Args.DEFAULT))
        for one in drawing.expected.slices
    ]
    same(joined_idle(drawing.loaded.by_id.values()), drawn(drawing, wanted))


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_counters_of_the_same_name_stay_apart(
    shelf: ProfileShelf, tmp_path: Path, suffix: str
) -> None:
    """Memory and disk are both read and written, disk and network both have a usage."""
    profile = shelf.copy("torch-db", tmp_path / "profile")
    at_ns = profile.run.wall_ns(profile.run.ranks[0].start_ns)
    (database,) = profile.captures[0].rglob("ascend_pytorch_profiler_0.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        for table, columns in (
            ("DDR", "deviceId, timestampNs, read, write"),
            ("HOST_DISK_USAGE", "usage, timestampNs, readRate, writeRate"),
            ("HOST_NETWORK_USAGE", "usage, timestampNs, speed"),
        ):
            places = ",".join("?" * len(columns.split()))
            connection.execute(f"CREATE TABLE {table} ({columns})")
            rows = [
                (0, at_ns + 10 * row, row + len(table), 2 * row)[: len(columns.split())]
                for row in range(4)
            ]
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)
    drawing = draw(profile, "torch-db", Kind.DETAIL, tmp_path / f"timeline{suffix}")
    names = [one.name for one in drawing.expected.counters]
    assert names.count("Read") == names.count("Usage") == 2
    assert_counters(drawing)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("by_layer", [False, True])
def test_grouping_changes_the_order_of_rows_and_nothing_else(
    shelf: ProfileShelf, tmp_path: Path, kind: Kind, by_layer: bool
) -> None:
    profile, target = shelf.get("mindstudio", **RUN), tmp_path / "timeline.pftrace"
    grouping = "layer" if by_layer else "rank"
    drawing = draw(profile, "mindstudio", kind, target, group_by=grouping, args=Args.ALL)
    wanted = places_of(drawing.expected, by_layer=by_layer, first=drawing.culprit)
    assert tracks_in_order(drawing) == list(wanted)
    same(joined_idle(drawing.loaded.by_id.values()), drawn(drawing, drawing.expected.slices))


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_ranks_are_in_order_of_their_numbers(
    shelf: ProfileShelf, tmp_path: Path, suffix: str
) -> None:
    """Perfetto itself would put Rank 10 before Rank 2; who slows the others comes first."""
    profile = shelf.get("torch-db", ranks=11, steps=1)
    for by_layer in (False, True):
        target = tmp_path / f"timeline{suffix}"
        grouping = "layer" if by_layer else "rank"
        drawing = draw(profile, "torch-db", Kind.SUMMARY, target, group_by=grouping)
        found = json_places(drawing) if drawing.is_json else tracks_in_order(drawing)
        slow = next(rank for rank, *_ in found if rank != ALL_RANKS)
        assert slow != 0
        names = drawing.rows("SELECT name FROM track UNION SELECT name FROM thread")
        assert any(f"Rank {slow:02}: slows the others" in str(name) for (name,) in names)
        assert found == list(places_of(drawing.expected, by_layer=by_layer, first=slow))


def test_groups_and_counters_are_in_order_of_their_numbers(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """Group 2 before Group 10, and memory 2 before memory 10."""
    profile = shelf.copy("torch-db", tmp_path / "profile")
    (database,) = profile.captures[0].rglob("ascend_pytorch_profiler_0.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        ((at_ns, name, last_id),) = connection.execute(
            "SELECT min(startNs), opName, max(opId) FROM COMMUNICATION_OP"
        ).fetchall()
        for number in range(1, 12):
            connection.execute(
                "INSERT INTO COMMUNICATION_OP (opName, startNs, endNs, groupName, opId)"
                " VALUES (?, ?, ?, ?, ?)",
                (name, at_ns + number, at_ns + number + 1, 900_000 + number, last_id + number),
            )
        for memory in (2, 10):
            connection.execute(
                "INSERT INTO HBM (deviceId, timestampNs, bandwidth, hbmId, type)"
                " SELECT deviceId, timestampNs, bandwidth, ?, type FROM HBM WHERE hbmId = 0",
                (memory,),
            )
    drawing = draw(profile, "torch-db", Kind.DETAIL, tmp_path / "timeline.pftrace")
    found = tracks_in_order(drawing)
    assert found == list(places_of(drawing.expected, by_layer=False, first=1))
    rows = [row for rank, _, row in found if rank == 0]
    for first, second in (
        ("Group 2 Communication", "Group 10 Communication"),
        ("HBM / HBM 2 Read", "HBM / HBM 10 Read"),
    ):
        assert rows.index(first) < rows.index(second)


def test_one_rank_is_a_row_beside_the_overview(shelf: ProfileShelf, tmp_path: Path) -> None:
    profile = shelf.get("mindspore-2.1", ranks=1)
    drawing = draw(profile, "mindspore-2.1", Kind.DETAIL, tmp_path / "timeline.pftrace")
    roots = [track for track in drawing.loaded.tracks.values() if track.parent is None]
    names = ["What is slow", "Steps", "Critical path", "Notes", "Rank 0"]
    assert [track.path for track in sorted(roots, key=lambda one: one.order)] == [
        (name,) for name in names
    ]
    assert ("Rank 0", "Ascend Hardware", "Stream 2") in {
        track.path for track in drawing.loaded.tracks.values()
    }


@pytest.mark.parametrize("layout", ["mindspore-2.1", "mindstudio"])
def test_graphs_share_a_row_or_have_one_each(
    shelf: ProfileShelf, tmp_path: Path, layout: str
) -> None:
    profile = shelf.get(layout, graphs=(1, 3), **RUN)
    merged, apart = (
        draw(
            profile,
            layout,
            Kind.SUMMARY,
            tmp_path / f"{name}.pftrace",
            args=Args.ALL,
            merge_graphs=name == "merged",
        )
        for name in ("merged", "apart")
    )
    steps = [one for one in merged.expected.slices if one.layer == "Step Trace"]
    found = [one for one in merged.loaded.by_id.values() if one.layer == "Step Trace"]
    same(found, drawn(merged, steps))
    found = [one for one in apart.loaded.by_id.values() if one.layer == "Step Trace"]
    same(found, drawn(apart, map(on_its_own_row, steps)))


def on_its_own_row(one: Shown) -> Shown:
    """The same step where graphs have a row each: then the row names the graph, not the slice."""
    (graph,) = (arg.value for arg in one.args if arg.name == "graph")
    if one.row == "Iterations":
        return one._replace(row=f"Graph {graph}", name=one.name.removeprefix(f"Graph {graph} "))
    if one.row == "Data Aug Bound":
        return one._replace(row=f"Graph {graph} Data Aug Bound")
    return one


def test_arrows_leave_the_call_they_belong_to() -> None:
    """Also where another call begins inside it at the same moment, which JSON cannot say."""
    strings = StringPool()
    calls = Slices(
        np.array([1_000, 1_000]),
        np.array([1_900, 1_400]),
        strings.codes(["outer", "inner"]),
        strings,
        SliceKind.HOST_CALL,
        arrows=Arrows(np.array([0]), np.array([1])),
        nested=True,
    )
    task = Slices(
        np.array([2_000]),
        np.array([2_500]),
        strings.codes(["task"]),
        strings,
        SliceKind.TASK,
        arrows=Arrows(np.array([0]), np.array([1])),
    )
    tracks = (
        Track(0, None, "Rank 0", 0),
        Track(1, 0, "CANN", 0, content=calls, rank=0),
        Track(2, 0, "Ascend Hardware", 1, content=task, rank=0),
    )
    picture = encode_timeline(format_of(Path("any.pftrace")), Timeline(tracks, 1_000, None))
    processor = TraceProcessor.load(b"".join(picture))
    assert processor.import_errors() == []
    assert processor.rows(
        "SELECT call.name, task.name FROM flow JOIN slice call ON call.id = slice_out"
        " JOIN slice task ON task.id = slice_in"
    ) == [("outer", "task")]


# -- against the run itself --------------------------------------------------------------------


@pytest.mark.parametrize("layout", MAIN_LAYOUTS)
def test_the_picture_shows_the_run_that_was_simulated(
    shelf: ProfileShelf, tmp_path: Path, layout: str
) -> None:
    """Past the readers: tasks, planes, ops and calls equal what the simulation did."""
    profile = shelf.get(layout, **RUN)
    drawing = draw(profile, layout, Kind.DETAIL, tmp_path / "timeline.pftrace")
    found = [one._replace(name=one.whole_name).bare for one in drawing.loaded.by_id.values()]
    clock = profile.run.monotonic_ns if layout == "mindspore-2.1" else profile.run.wall_ns
    graph_mode = layout in GRAPH_LAYOUTS
    tasks: list[Any] = []
    planes: list[Any] = []
    ops: list[Any] = []
    calls: list[Any] = []
    for rank in profile.run.ranks:
        switches = () if layout == "mindspore-2.1" else rank.switches
        for task in (*switches, *(task for one in rank.iterations for task in one.tasks)):
            name = task.kernel and (task.kernel.scope if graph_mode else task.kernel.name)
            tasks.append((rank.rank, clock(task.start_ns), task.duration_ns, name))
            if task.transfer:
                row = f"Group 0 Plane {task.transfer.plane}"
                place = (rank.rank, row, clock(task.start_ns), task.duration_ns)
                planes.append((*place, task.transfer.kind))
        reduces = [one for iteration in rank.iterations for one in iteration.collectives]
        ops += [(rank.rank, clock(one.start_ns), one.duration_ns) for one in reduces]
        calls += [
            (rank.rank, layer, one.thread, clock(one.start_ns))
            for layer, host_calls in (("CANN", rank.cann_calls), ("Python", rank.framework_calls))
            for one in host_calls
        ]
    kernels = {name for *_, name in tasks}
    same(
        (
            (one.rank, one.start_ns, one.length_ns, one.name if one.name in kernels else None)
            for one in found
            if one.layer == "Ascend Hardware"
        ),
        tasks,
    )
    communication = [one for one in found if one.layer == "Communication"]
    is_op = "Group 0 Communication"
    same((one[:1] + one[2:6] for one in communication if one.row != is_op), planes)
    same((one[:1] + one[3:5] for one in communication if one.row == is_op), ops)
    if not graph_mode:
        same(
            (
                (one.rank, one.layer, int(one.row.removeprefix("Thread ")), one.start_ns)
                for one in found
                if one.layer in ("CANN", "Python")
            ),
            calls,
        )
