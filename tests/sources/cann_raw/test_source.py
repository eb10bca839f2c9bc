"""Proves that raw data written from a known run is read exactly, without CANN."""

from __future__ import annotations

import json
import math
import shutil
import struct
from collections import Counter as Multiset
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.model import RankRun, Run
from simulator.overlap import expected_overlap
from simulator.writers.cann_raw import (
    MAGIC,
    RawTask,
    change_device_info,
    counter_of,
    hwts_record,
    raw_tasks,
    stars_record,
    track_record,
    v6_tasks,
)
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import Profile, ProfileShelf, change_fields
from timeline.analysis.invalid_rows import drop_invalid_rows
from timeline.analysis.overlap import measure_overlap
from timeline.cli.main import main
from timeline.errors import SourceError
from timeline.ranks.rank_work import RankRequest, draw_rank_from_source
from timeline.records.tables import (
    NO_CONTEXT,
    NO_GRAPH,
    NO_ID,
    NO_TIME,
    OmissionCode,
    Records,
    StepPart,
)
from timeline.selection import DETAIL_LAYERS, Selection
from timeline.sources.cann_raw.source import read_device_clock, read_device_info
from timeline.sources.cann_raw.tasks import TaskMarks, match_marks
from timeline.sources.common.device_clock import Anchor, CounterClock, read_device_clocks
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest, Source

LAYOUTS = ("raw", "raw-hwts", "raw-v6")
TYPES = {
    "AI_VECTOR_CORE": "AI_VECTOR_CORE",
    "MEMCPY_ASYNC": "SDMA",
    "Memcpy": "SDMA",
    "Reduce_Inline": "SDMA",
    "Notify_Record": "NOTIFY_RECORD",
    "Notify_Wait": "NOTIFY_WAIT",
    "PROFILING_ENABLE": "PLACE_HOLDER",
    "PROFILING_DISABLE": "PLACE_HOLDER",
}
"""The task type that a record gives, where it is not the kind of the task."""
NEWER = "20250109130000123"
"""An hour after every tiny run."""


def read(source: Source) -> Records:
    return source.read(ReadRequest(DETAIL_LAYERS))


def only_source(path: Path) -> Source:
    (source,) = discover(path).sources
    return source


def tasks_of(layout: str, rank: RankRun) -> list[RawTask]:
    """The tasks that the raw data of a layout tells of."""
    if layout == "raw-v6":
        return v6_tasks(rank)
    return raw_tasks(rank, sub_tasks=layout != "raw-hwts")


def type_of(layout: str, task: RawTask) -> str:
    if task.kind == "MIX_AIV" and layout == "raw-hwts":
        return "AI_CORE"  # without sub-tasks it is a kernel like others
    return TYPES.get(task.kind, task.kind)


def lost(records: Records) -> dict[str, int]:
    """What was asked for and is missing, by reason."""
    return {one.reason: one.rows for one in records.omissions if one.loss}


# -- what is read --------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("graphs", [(1,), (3, 8)])
def test_tasks_are_those_of_the_run(
    shelf: ProfileShelf, layout: str, graphs: tuple[int, ...]
) -> None:
    """Every task lies where the run had it, to the nanosecond, with its ids, type and name."""
    profile = shelf.get(layout, graphs=graphs)
    for source in discover(profile.path).sources:
        rank = profile.run.rank(source.identity.rank)
        records = read(source)
        tasks, strings = records.tasks, records.strings
        found = Multiset(
            zip(
                tasks.start_ns.tolist(),
                tasks.end_ns.tolist(),
                tasks.stream.tolist(),
                tasks.task.tolist(),
                tasks.context.tolist(),
                (strings[code] for code in tasks.task_type.tolist()),
                strict=True,
            )
        )
        assert found == Multiset(
            (
                profile.run.monotonic_ns(task.start_ns),
                profile.run.monotonic_ns(task.end_ns),
                task.stream,
                task.task,
                task.context,
                type_of(layout, task),
            )
            for task in tasks_of(layout, rank)
        )
        assert set(tasks.device.tolist()) == {rank.device}
        for code, stream, task, context, kind in zip(
            tasks.name.tolist(),
            tasks.stream.tolist(),
            tasks.task.tolist(),
            tasks.context.tolist(),
            tasks.task_type.tolist(),
            strict=True,
        ):
            place = f"task {task}" if stream == NO_ID else f"stream {stream} task {task}"
            inside = "" if context == NO_CONTEXT else f" context {context}"
            assert strings[code] == f"{place}{inside} ({strings[kind]})"
        assert lost(records) == {}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("graphs", [(1,), (3, 8)])
def test_steps_are_those_of_the_run(
    shelf: ProfileShelf, layout: str, graphs: tuple[int, ...]
) -> None:
    """Every iteration has its interval, marks, reduces and data fetch, exactly."""
    profile = shelf.get(layout, graphs=graphs)
    run = profile.run
    for source in discover(profile.path).sources:
        records, rank = read(source), run.rank(source.identity.rank)
        steps, parts = records.steps, records.parts
        found = zip(
            steps.graph.tolist(),
            steps.iteration.tolist(),
            steps.start_ns.tolist(),
            steps.end_ns.tolist(),
            steps.fp_start_ns.tolist(),
            steps.bp_end_ns.tolist(),
            strict=True,
        )
        assert sorted(found) == sorted(
            (
                one.graph,
                one.number,
                *map(
                    run.monotonic_ns,
                    (one.start_ns, one.end_ns, one.forward_start_ns, one.backward_end_ns),
                ),
            )
            for one in rank.iterations
        )
        held = zip(
            parts.graph.tolist(),
            parts.iteration.tolist(),
            parts.kind.tolist(),
            parts.number.tolist(),
            parts.start_ns.tolist(),
            parts.end_ns.tolist(),
            strict=True,
        )
        assert sorted(held) == sorted(parts_of(run, rank))


def parts_of(run: Run, rank: RankRun) -> Iterator[tuple[int, ...]]:
    for one in rank.iterations:
        start_ns, end_ns = map(run.monotonic_ns, one.next_data_ns)
        yield one.graph, one.number, StepPart.GET_NEXT, 0, start_ns, end_ns
        for index, reduce in enumerate(one.collectives):
            start_ns, end_ns = map(run.monotonic_ns, (reduce.start_ns, reduce.end_ns))
            yield one.graph, one.number, StepPart.REDUCE, index, start_ns, end_ns


@pytest.mark.parametrize("graphs", [(1,), (3, 8)])
def test_computing_equals_that_of_an_export(shelf: ProfileShelf, graphs: tuple[int, ...]) -> None:
    """Task types alone tell what computes, and FFTS+ tasks as a whole do not count."""
    profile = shelf.get("raw", graphs=graphs)
    for source in discover(profile.path).sources:
        records = read(source)
        rank = profile.run.rank(source.identity.rank)
        expected = expected_overlap(profile.run, rank.rank)["computing_ns"]
        assert measure_overlap(records.tasks, records.ops).totals_ns()["computing_ns"] == expected
        parents = sum(len(one.parents) for one in rank.iterations)
        wholes = [own for own in records.omissions if own.code is OmissionCode.FFTS_WHOLE]
        assert [own.rows for own in wholes] == [parents]


def test_tasks_belong_to_the_graph_that_runs(shelf: ProfileShelf) -> None:
    """A task is of the graph in whose step it starts, and of none outside all steps."""
    profile = shelf.get("raw", graphs=(3, 8))
    records = read(discover(profile.path).sources[0])
    rank = profile.run.rank(0)
    for start_ns, graph in zip(
        records.tasks.start_ns.tolist(), records.tasks.graph.tolist(), strict=True
    ):
        around = [
            one.graph
            for one in rank.iterations
            if profile.run.monotonic_ns(one.start_ns)
            <= start_ns
            < profile.run.monotonic_ns(one.end_ns)
        ]
        assert graph == (around[0] if around else NO_GRAPH)
    assert {3, 8} <= set(records.tasks.graph.tolist())


def test_times_that_are_no_whole_nanoseconds(shelf: ProfileShelf) -> None:
    """At 49 MHz every moment is that of its tick as float64, cut down."""
    profile = shelf.get("raw-49-MHz")
    rank = profile.run.rank(0)
    tasks = read(discover(profile.path).sources[0]).tasks
    counter = counter_of(profile.run, rank, "49.000000")

    def recorded_ns(time_ns: int) -> int:
        ticks = counter.ticks(profile.run.monotonic_ns(time_ns)) - counter.value
        return math.floor(float(Fraction(ticks * 1000, 49) + counter.host_ns))

    wanted = [
        (recorded_ns(task.start_ns), recorded_ns(task.end_ns))
        for task in raw_tasks(rank, sub_tasks=True)
    ]
    assert sorted(zip(tasks.start_ns.tolist(), tasks.end_ns.tolist(), strict=True)) == sorted(
        wanted
    )
    assert any(
        recorded_ns(one.start_ns) != profile.run.monotonic_ns(one.start_ns) for one in rank.switches
    )


@settings(max_examples=100)
@given(
    ticks=st.lists(st.integers(0, 2**64 - 1) | st.integers(10**12, 10**13), min_size=1),
    megahertz=st.sampled_from(
        ["19.2", "25.000000", "38.4", "48", "49.000000", "99.999001", "1000"]
    ),
    counter=st.integers(0, 2**61),
    host_ns=st.integers(0, 10**16),
)
def test_ticks_become_the_nanoseconds_that_msprof_writes(
    ticks: list[int], megahertz: str, counter: int, host_ns: int
) -> None:
    """The exact moment as float64, cut down; or none where no clock can be.

    Where float64 holds whole nanoseconds no more, the exact moment itself is cut down.
    """
    tick_ns = 1000 / Fraction(megahertz)
    clock = CounterClock(tick_ns, Anchor(counter, host_ns))
    found = clock.moments_ns(np.array(ticks, np.uint64)).tolist()
    for value, moment_ns in zip(ticks, found, strict=True):
        exact = (value - counter) * tick_ns + host_ns
        exact_ns = math.floor(float(exact) if 0 <= exact < 2**53 else exact)
        far = value >= 2**62 or abs(exact_ns - host_ns) > 10**17
        assert moment_ns in ((NO_TIME, exact_ns) if far else (exact_ns,)) or (
            moment_ns == NO_TIME and not 0 <= exact_ns < 10**17
        )
        assert moment_ns == NO_TIME or 0 <= moment_ns < 10**17


# -- through the command line --------------------------------------------------------------------


def test_a_detail_shows_streams_and_steps(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trace holds every task on the row of its stream, and every iteration, exactly."""
    profile = shelf.get("raw", ranks=1)
    target = tmp_path / "raw.pftrace"
    assert main([str(profile.path), "--kind", "detail", "-o", str(target)]) == 0
    said = capsys.readouterr().err
    for part in ("not known", "operators", "planes", f"--output={profile.captures[0]}"):
        assert part in said
    processor = TraceProcessor.load(target.read_bytes())
    run, rank = profile.run, profile.run.rank(0)
    shown = processor.rows(
        "SELECT slice.ts, slice.dur, slice.name, track.name FROM slice"
        " JOIN track ON slice.track_id = track.id WHERE track.name GLOB 'Stream *'"
    )
    ((first_ns,),) = processor.rows("SELECT min(ts) FROM slice")
    wanted = Multiset(
        (
            run.wall_ns(task.start_ns),
            task.end_ns - task.start_ns,
            f"stream {task.stream} task {task.task}"
            + ("" if task.context == NO_CONTEXT else f" context {task.context}")
            + f" ({type_of('raw', task)})",
            f"Stream {task.stream}",
        )
        for task in raw_tasks(rank, sub_tasks=True)
    )
    shift_ns = min(row[0] for row in wanted) - min(row[0] for row in shown)
    assert Multiset((ts + shift_ns, *rest) for ts, *rest in shown) == wanted
    assert first_ns + shift_ns <= min(run.wall_ns(one.start_ns) for one in rank.iterations)
    steps = processor.rows(
        "SELECT DISTINCT ts, dur FROM slice WHERE name GLOB '*Iteration [0-9]*' ORDER BY ts"
    )
    assert [(ts + shift_ns, dur) for ts, dur in steps] == [
        (run.wall_ns(one.start_ns), one.end_ns - one.start_ns) for one in rank.iterations
    ]


def test_steps_can_be_selected(shelf: ProfileShelf, tmp_path: Path) -> None:
    """One step of raw data is the tasks that start in it."""
    profile = shelf.get("raw", ranks=1)
    target = tmp_path / "raw.pftrace"
    arguments = ["--kind", "detail", "--steps", "2", "-o", str(target)]
    assert main([str(profile.path), *arguments]) == 0
    rows = TraceProcessor.load(target.read_bytes()).rows(
        "SELECT count(*) FROM slice JOIN track ON slice.track_id = track.id"
        " WHERE track.name GLOB 'Stream *'"
    )
    step = next(one for one in profile.run.rank(0).iterations if one.number == 2)
    inside = [
        task
        for task in raw_tasks(profile.run.rank(0), sub_tasks=True)
        if step.start_ns <= task.start_ns < step.end_ns
    ]
    assert rows == [(len(inside),)]


def test_the_list_says_raw(shelf: ProfileShelf, capsys: pytest.CaptureFixture[str]) -> None:
    """--list names the layout, the steps and the number of tasks."""
    profile = shelf.get("raw", ranks=1)
    assert main([str(profile.path), "--list", "--json"]) == 0
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    assert rank["layout"] == "raw"
    assert rank["graphs"] == [{"graph": 1, "steps": [1, 2, 3]}]
    assert rank["tasks"] == len(raw_tasks(profile.run.rank(0), sub_tasks=True))


# -- which captures are read ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "inside", [".", "device_1", "device_1/data", "device_1/data/stars_soc.data.1.slice_0"]
)
def test_found_from_inside(shelf: ProfileShelf, inside: str) -> None:
    """A raw capture is found from each of its directories and from one of its slices."""
    capture = shelf.get("raw").captures[1]
    source = only_source(capture / inside)
    assert source.identity.rank == 1
    assert source.identity.directory.resolve() == capture.resolve()


@pytest.mark.parametrize("layout", ["mindstudio", "mindspore-2.1"])
def test_an_export_wins(shelf: ProfileShelf, tmp_path: Path, layout: str) -> None:
    """Where raw data lies beside what was made of it, it is not even opened."""
    profile = shelf.copy(layout, tmp_path / "run", ranks=1)
    (data,) = shelf.get("raw", ranks=1).captures[0].glob("device_*/data")
    shutil.copytree(data, profile.captures[0] / data.parent.name / "data")
    source = only_source(profile.path)
    assert source.layout != "raw"
    assert not [path for path in source.files if "slice_" in path.name]


def test_an_older_export_wins_and_that_is_said(shelf: ProfileShelf, tmp_path: Path) -> None:
    """A newer capture that was not exported does not hide an export, but it is named."""
    profile = shelf.copy("mindstudio", tmp_path / "run", ranks=1)
    raw = shelf.get("raw", ranks=1).captures[0]
    later = profile.path / raw.name.replace("20250109120000123", NEWER)
    shutil.copytree(raw, later)
    found = discover(profile.path)
    assert [source.layout for source in found.sources] == ["mindstudio_profiler_output"]
    (note,) = found.notes
    assert later.name in note
    assert "msprof --export=on" in note


def test_raw_beats_raw_that_cannot_be_read(shelf: ProfileShelf, tmp_path: Path) -> None:
    """A later capture without slices does not hide one that has some."""
    profile = shelf.copy("raw", tmp_path / "run", ranks=1)
    raw = profile.captures[0]
    later = raw.with_name(raw.name.replace("20250109120000123", NEWER))
    shutil.copytree(raw, later)
    shutil.rmtree(later / "device_0" / "data")
    assert only_source(profile.path).identity.directory.resolve() == raw.resolve()


def without_rank(capture: Path) -> None:
    for path in [*capture.glob("device_*/info.json.?"), capture / "host/info.json"]:
        change_fields(path, {"rank_id": -1})


def test_raw_without_a_rank_can_be_given_one(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Raw data that was not distributed is rank 0, unless another rank is given."""
    profile = shelf.copy("raw", tmp_path / "run", ranks=1)
    capture = profile.captures[0]
    without_rank(capture)
    (source,) = discover(profile.path).sources
    assert source.identity.rank == 0
    (source,) = discover(profile.path, {capture.name: 7}).sources
    assert source.identity.rank == 7


@pytest.mark.parametrize("suffix", ["_ascend_pt", "_ascend_ms"])
def test_the_rank_that_a_framework_tells(shelf: ProfileShelf, tmp_path: Path, suffix: str) -> None:
    """Raw data inside a framework's capture has the rank of the profiler_info beside it."""
    worker = tmp_path / f"host_7_20250109120000123{suffix}"
    capture = shelf.copy("raw", worker, ranks=1).captures[0]
    without_rank(capture)
    (worker / "profiler_info_5.json").write_text("{}")
    for path in (tmp_path, worker, capture, capture / "device_0" / "data"):
        source = only_source(path)
        assert (source.layout, source.identity.rank) == ("raw", 5)


def test_raw_without_a_rank_beside_an_export(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Raw data of an unknown rank is passed over where exports are, unless it is given one."""
    profile = shelf.copy("mindstudio", tmp_path / "run", ranks=1)
    raw = shelf.get("raw").captures[1]
    shutil.copytree(raw, profile.path / raw.name)
    without_rank(profile.path / raw.name)
    found = discover(profile.path)
    assert [source.identity.rank for source in found.sources] == [0]
    assert raw.name in found.notes[0]
    found = discover(profile.path, {raw.name: 4})
    assert [source.identity.rank for source in found.sources] == [0, 4]


def test_a_raw_rank_beside_an_exported_one_is_read(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Two ranks of one run may come in two layouts, on one clock as far as both tell it."""
    profile = shelf.copy("mindspore-2.1", tmp_path / "run")
    shutil.rmtree(profile.captures[1])
    raw = shelf.get("raw").captures[1]
    shutil.copytree(raw, profile.path / raw.name)
    sources = discover(profile.path).sources
    assert [source.layout for source in sources] == ["device_N/timeline", "raw"]
    assert sources[0].clock == sources[1].clock


# -- what is broken ------------------------------------------------------------------------------


class Device:
    """A capture of one rank whose slices a test writes."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.directory = profile.captures[0] / "device_0"
        self.data = self.directory / "data"
        counter = counter_of(profile.run, profile.run.rank(0), "100")
        self.zero_ns, self.zero = counter.host_ns, counter.value

    def source(self) -> Source:
        return only_source(self.profile.path)

    def read(self) -> Records:
        return drop_invalid_rows(read(self.source()))

    def write(self, log: str, *slices: bytes, first: int = 0) -> None:
        """Replace all slices of a log."""
        for path in self.data.glob(f"{log}.data.*"):
            path.unlink()
        for number, data in enumerate(slices, first):
            (self.data / f"{log}.data.0.slice_{number}").write_bytes(data)

    def task(self, number: int, at: int = 1000, length: int = 10, **changes: object) -> bytes:
        """Start and end of a task in `stars_soc.data`; times in ticks of 10 ns."""
        fields = {"stream": 2, "task": number, "context": NO_CONTEXT, "kind": "AI_CORE"} | changes
        task = RawTask(**fields, start_ns=0, end_ns=0)  # type: ignore[arg-type]
        ends = ((False, at), (True, at + length))
        return b"".join(stars_record(self.zero + ticks, is_end, task) for is_end, ticks in ends)

    def tag(self, tag: int, at: int, graph: int = 1, index: int = 1, stream: int = 2) -> bytes:
        return track_record(self.zero + at, index, graph, stream, tag)

    def ns(self, ticks: int) -> int:
        return self.zero_ns + 10 * ticks


@pytest.fixture
def device(shelf: ProfileShelf, tmp_path: Path) -> Device:
    """A capture of one rank without any slice."""
    made = Device(shelf.copy("raw", tmp_path / "run", ranks=1))
    for log in ("stars_soc", "ts_track"):
        made.write(log)
    return made


def test_a_truncated_record_is_counted_with_its_place(device: Device) -> None:
    """A capture that broke off keeps all whole records; the rest is named by file and byte."""
    log = device.task(1) + device.task(2, at=2000)
    device.write("stars_soc", log[:100], log[100:-7])
    records = device.read()
    assert records.tasks.task.tolist() == [1]
    assert lost(records) == {
        "stars_soc.data.0.slice_1: parts of records, the first at byte 92": 1,
        "device tasks that started but never ended": 1,
    }


def test_a_log_whose_first_slices_are_gone(device: Device) -> None:
    """The rest of a record that began in a slice that was dropped is skipped and counted."""
    log = b"".join(device.task(number, at=1000 * number) for number in range(1, 6))
    device.write("stars_soc", log[100:300], log[300:], first=7)
    records = device.read()
    assert records.tasks.task.tolist() == [2, 3, 4, 5]
    assert lost(records) == {"stars_soc.data.0.slice_7: parts of records, the first at byte 0": 1}


@pytest.mark.parametrize("cut", [300, 320])
def test_a_missing_slice_costs_only_its_records(device: Device, cut: int) -> None:
    """Behind a gap the next whole record is found; the gap is named."""
    log = b"".join(device.task(number, at=1000 * number) for number in range(1, 11))
    device.write("stars_soc", log[:cut], log[cut : 2 * cut], log[2 * cut :])
    (device.data / "stars_soc.data.0.slice_1").unlink()
    records = device.read()
    assert records.tasks.task.tolist() == [1, 2, *range(-(-2 * cut // 128) + 1, 11)]
    assert any("stars_soc.data.0.slice_1." in text for text in records.warnings)
    assert lost(records)


def test_a_gap_of_whole_records(device: Device) -> None:
    """A record that begins before a gap does not go on behind it, however well both parts fit."""
    log = b"".join(device.task(number, at=1000 * number) for number in range(1, 11))
    device.write("stars_soc", log[:300], log[300:940], log[940:])
    (device.data / "stars_soc.data.0.slice_1").unlink()
    records = device.read()
    assert records.tasks.task.tolist() == [1, 2, 9, 10]
    assert lost(records) == {
        "stars_soc.data.0.slice_0: parts of records, the first at byte 256": 1,
        "stars_soc.data.0.slice_2: parts of records, the first at byte 0": 1,
        "ends of device tasks without a start": 1,
    }


def test_a_slice_that_lost_its_end(device: Device) -> None:
    """Where a slice in the middle is short, the next one is read from its own first record."""
    first = b"".join(device.task(number, at=1000 * number) for number in range(1, 4))
    second = b"".join(device.task(number, at=1000 * number) for number in range(4, 8))
    device.write("stars_soc", first[:-30], second)
    records = device.read()
    assert records.tasks.task.tolist() == [1, 2, 4, 5, 6, 7]
    assert lost(records) == {
        "stars_soc.data.0.slice_0: parts of records, the first at byte 320": 1,
        "device tasks that started but never ended": 1,
    }


def test_slices_are_read_in_order_of_their_numbers(device: Device) -> None:
    """Slice 2 comes before slice 10, and markers beside slices are none."""
    log = b"".join(device.task(number, at=1000 * number) for number in range(1, 13))
    device.write("stars_soc", *(log[at : at + 100] for at in range(0, len(log), 100)))
    (device.data / "stars_soc.data.0.slice_3.done").write_text("filesize:100\n")
    records = device.read()
    assert records.tasks.task.tolist() == list(range(1, 13))
    assert lost(records) == {}


def test_other_logs_are_named(device: Device) -> None:
    """What lies beside and is not read is said, by log."""
    device.write("stars_soc", device.task(1))
    device.write("hwts", b"")
    for name in ("hbm.data.0.slice_0", "hbm.data.0.slice_1", "hwts.aiv_data.0.slice_0", "x.done"):
        (device.data / name).write_bytes(b"x")
    assert device.read().warnings[-1].endswith("not read: hbm.data, hwts.aiv_data.")


def test_starts_and_ends_alone_are_counted(device: Device) -> None:
    """An end belongs to the start right before it; everything else has lost its other half."""
    runs = [device.task(1, at=1000 * number) for number in range(1, 4)]
    # The first lost its end, the last one its start; records of other tasks lie between.
    log = runs[0][:64] + device.task(9, at=1500) + runs[1] + runs[2][64:]
    device.write("stars_soc", log)
    records = device.read()
    assert records.tasks.start_ns.tolist() == [device.ns(2000), device.ns(1500)]
    assert lost(records) == {
        "device tasks that started but never ended": 1,
        "ends of device tasks without a start": 1,
    }


def test_back_to_back_runs_of_one_task(device: Device) -> None:
    """An end and the next start of the same ids in one tick are two runs, not one of no length."""
    device.write("stars_soc", device.task(1, at=1000) + device.task(1, at=1010))
    tasks = device.read().tasks
    assert tasks.start_ns.tolist() == [device.ns(1000), device.ns(1010)]
    assert tasks.end_ns.tolist() == [device.ns(1010), device.ns(1020)]


def test_records_that_are_none_are_counted(device: Device) -> None:
    """What lacks the mark of the log is left out, with the place of the first."""
    device.write("stars_soc", device.task(1) + b"\xff" * 64 + device.task(2, at=2000))
    device.write("ts_track", device.tag(0, 0) + bytes(40) + device.tag(4, 5000))
    records = device.read()
    assert records.tasks.task.tolist() == [1, 2]
    assert lost(records) == {
        "stars_soc.data.0.slice_0: records of no known kind, the first at byte 128": 1,
        "ts_track.data.0.slice_0: records of no known kind, the first at byte 40": 1,
    }


@pytest.mark.parametrize(
    ("stream", "task", "expanded", "found"),
    [
        (5, 70, False, (5, 70)),
        (5 + 2048, 70, False, (5, 70)),
        (0x1000 | 0x4000 | 5, 0xF007, False, (5, 0x5007)),
        (0x2000 | 0x0123, 0xA000 | 0x0807, False, (7, 0xA123)),
        (0x3000 | 5, 0xF007, False, (5, 0x3007)),
        (4097, 70, True, (4097, 70)),
        (0x8000 | 0x0123, 0x8000 | 4097, True, (4097, 0x8123)),
    ],
)
def test_ids_that_share_their_bits(
    device: Device, stream: int, task: int, expanded: bool, found: tuple[int, int]
) -> None:
    """Stream and task are taken apart as the chip put them, also where streams have 15 bits."""
    if expanded:
        host = device.profile.captures[0] / "host" / "data"
        host.mkdir()
        spec = struct.pack("<2H3IQ4B9I", 0x5A5A, 1, 2, 3, 4, 5, 1, 0, 0, 0, *[0] * 9)
        (host / "unaging.compact.expand_stream_spec.slice_0").write_bytes(spec)
    device.write("stars_soc", device.task(task, stream=stream))
    tasks = device.read().tasks
    assert (tasks.stream.tolist(), tasks.task.tolist()) == ([found[0]], [found[1]])


def test_types_that_nobody_knows(device: Device) -> None:
    """A task of a type that is not in the tables is drawn, by its number, and computes nothing."""
    start, end = (bytearray(half) for half in (device.task(1)[:64], device.task(1)[64:]))
    for half in (start, end):
        (head,) = struct.unpack_from("<H", half)
        struct.pack_into("<H", half, 0, head | 63 << 10)
    device.write("stars_soc", bytes(start + end))
    records = device.read()
    assert records.strings[int(records.tasks.name[0])] == "stream 2 task 1 (type 63)"
    assert not records.tasks.compute.any()


def test_without_a_frequency(device: Device) -> None:
    """Ticks without a frequency have no time: an error that names the file and the way out."""
    device.write("stars_soc", device.task(1))
    info = device.directory / "info.json.0"
    for text in ("", "0", "0.000", "nan", "-1", "1e3", "1_0", "100 MHz", "9" * 30):
        change_device_info(info, text, "5")
        with pytest.raises(SourceError, match=r"frequency.*msprof --export=on") as caught:
            device.read()
        assert caught.value.path == info
    change_fields(info, {"DeviceInfo": None})
    with pytest.raises(SourceError, match="frequency"):
        device.read()


@pytest.mark.parametrize("name", ["dev_start.log.0", "host_start.log.0"])
@pytest.mark.parametrize(
    "broken", [b"", b"cntvct: many\nclock_monotonic_raw: soon\n", b"\xff\x00:"]
)
def test_without_a_moment_on_both_clocks(device: Device, name: str, broken: bytes) -> None:
    """Then times count from the start of the device, and that clock is nobody else's."""
    device.write("stars_soc", device.task(1))
    assert device.source().clock.host
    (device.directory / name).write_bytes(broken)
    source = device.source()
    records = read(source)
    assert records.tasks.start_ns.tolist() == [(device.zero + 1000) * 10]
    assert any("start of the device" in text for text in records.warnings)
    assert source.clock.host == "" and source.clock.wall_offset_ns is None


def test_the_host_clock_read_late(device: Device) -> None:
    """cntvct_diff, in ticks of the host's counter, moves the moment on the host's clock."""
    device.write("stars_soc", device.task(1))
    path = device.directory / "host_start.log.0"
    path.write_text(path.read_text().replace("cntvct_diff: 0", "cntvct_diff: 250"))
    change_fields(device.directory / "info.json.0", {"CPU": [{"Frequency": "100.000000"}]})
    assert device.read().tasks.start_ns.tolist() == [device.ns(1000) + 2500]


@pytest.mark.parametrize(
    ("processors", "late_ns"),
    [([{"Frequency": "100.000000"}], 2500), ([{"Frequency": ""}], 250), ([], 250), (None, 250)],
)
def test_raw_and_parsed_data_are_on_one_clock(
    device: Device, processors: list[dict[str, str]] | None, late_ns: int
) -> None:
    """Both readers relate the counter to the host alike; a host of no frequency has 1000 MHz."""
    path = device.directory / "host_start.log.0"
    path.write_text(path.read_text().replace("cntvct_diff: 0", "cntvct_diff: 250"))
    change_fields(device.directory / "info.json.0", {"CPU": processors})
    ticks = device.zero + np.arange(0, 5000, 7)
    raw = read_device_clock(device.directory, *read_device_info(device.directory))
    parsed = read_device_clocks(device.directory, device.directory.parent / "host", None)
    assert raw == parsed.counter
    assert raw.moments_ns(ticks).tolist() == parsed.counted_ns(ticks).tolist()
    assert raw.moments_ns(ticks)[0] == device.zero_ns + late_ns
    assert parsed.host_ns == device.zero_ns + late_ns


@pytest.mark.parametrize("name", ["dev_start.log.0", "host_start.log.0"])
def test_a_log_of_a_clock_that_cannot_be_read(device: Device, name: str) -> None:
    """It is an error that names the file: without it all times would be wrong in silence."""
    device.write("stars_soc", device.task(1))
    (device.directory / name).unlink()
    (device.directory / name).mkdir()
    with pytest.raises(SourceError, match=name):
        read_device_clock(device.directory, *read_device_info(device.directory))


def test_no_whole_task(device: Device) -> None:
    """Slices in which nothing is whole give the command that exports them."""
    device.write("stars_soc", device.task(1)[:64])
    with pytest.raises(SourceError, match=r"no whole task.*msprof --export=on"):
        device.read()


def test_empty_slices_are_none(device: Device) -> None:
    """A capture whose slices are all empty is raw data that cannot be read."""
    device.write("stars_soc", b"")
    with pytest.raises(SourceError, match="holds raw profiling data only"):
        device.read()


def test_counters_that_no_clock_shows(device: Device) -> None:
    """A tick years away is no time; its task is counted and does not stretch the picture."""
    device.write("stars_soc", device.task(1) + device.task(2, at=2**61))
    records = device.read()
    assert records.tasks.task.tolist() == [1]
    assert lost(records) == {"device tasks without a valid time": 1}


# -- steps ---------------------------------------------------------------------------------------


def steps_of(records: Records) -> list[tuple[int, int, int, int]]:
    steps = records.steps
    columns = (steps.graph, steps.iteration, steps.start_ns, steps.end_ns)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_a_run_of_several_iterations(device: Device) -> None:
    """A graph that is started once and iterates: each next iteration begins at the last end."""
    tags = [(0, 0), (2, 10), (3, 20), (4, 30), (20_000, 32), (20_001, 33), (2, 40), (3, 50)]
    tags += [(10_000, 45), (10_001, 55), (4, 60), (1, 61)]
    device.write("ts_track", b"".join(device.tag(tag, at) for tag, at in tags))
    records = device.read()
    assert steps_of(records) == [
        (1, 1, device.ns(0), device.ns(30)),
        (1, 2, device.ns(30), device.ns(60)),
    ]
    assert records.parts.iteration.tolist() == [2, 2]
    assert records.steps.fp_start_ns.tolist() == [device.ns(10), device.ns(40)]
    assert lost(records) == {}


def test_runs_of_one_graph_that_overlap(device: Device) -> None:
    """A tag belongs to the oldest iteration that it can follow, as in a pipeline."""
    tags = [(0, 0), (2, 10), (0, 15), (2, 20), (3, 30), (3, 35), (4, 40), (1, 41), (4, 50), (1, 51)]
    device.write("ts_track", b"".join(device.tag(tag, at) for tag, at in tags))
    assert steps_of(device.read()) == [
        (1, 1, device.ns(0), device.ns(40)),
        (1, 2, device.ns(15), device.ns(50)),
    ]


def test_a_graph_that_is_only_run(device: Device) -> None:
    """Inference has a start and an end, and neither forward nor backward."""
    device.write("ts_track", device.tag(0, 0) + device.tag(1, 70))
    records = device.read()
    assert steps_of(records) == [(1, 1, device.ns(0), device.ns(70))]
    assert records.steps.fp_start_ns.tolist() == [NO_TIME]


def test_steps_without_a_graph(device: Device) -> None:
    """Marks of steps (60000, 60001) are steps of no graph, by their own number."""
    tags = [(60_000, 0, 7), (60_001, 90, 7), (60_000, 100, 8), (60_001, 190, 8), (60_000, 200, 9)]
    log = b"".join(device.tag(tag, at, graph=NO_GRAPH, index=index) for tag, at, index in tags)
    device.write("ts_track", log)
    device.write("stars_soc", device.task(1, at=110))
    records = device.read()
    assert steps_of(records) == [
        (NO_GRAPH, 7, device.ns(0), device.ns(90)),
        (NO_GRAPH, 8, device.ns(100), device.ns(190)),
    ]
    assert lost(records) == {"steps that started but never ended": 1}


def test_tags_that_are_there_twice(device: Device) -> None:
    """A tag that repeats the one before it is read once, and nothing is lost."""
    tags = [(0, 0), (2, 10), (3, 20), (4, 30), (1, 31)]
    device.write("ts_track", b"".join(2 * device.tag(tag, at) for tag, at in tags))
    records = device.read()
    assert steps_of(records) == [(1, 1, device.ns(0), device.ns(30))]
    assert lost(records) == {}
    assert [one.rows for one in records.omissions] == [len(tags)]


def test_a_run_without_a_start(device: Device) -> None:
    """Tags of a run that began before the capture are no step, whatever of it is there."""
    tags = [(2, 1), (3, 2), (1, 3), (0, 20), (4, 30), (1, 31), (2, 40), (3, 41)]
    device.write("ts_track", b"".join(device.tag(tag, at) for tag, at in tags))
    records = device.read()
    assert steps_of(records) == [(1, 1, device.ns(20), device.ns(30))]
    assert lost(records) == {"steps without a start": 2}


def test_a_step_trace_cut_at_both_ends(device: Device) -> None:
    """What began before the capture or ended after it is no step, and is counted."""
    tags = [(3, 5), (4, 10), (1, 11), (0, 20), (2, 21), (4, 30), (1, 31), (0, 40), (10_000, 41)]
    device.write("ts_track", b"".join(device.tag(tag, at) for tag, at in tags))
    records = device.read()
    assert steps_of(records) == [(1, 1, device.ns(20), device.ns(30))]
    assert lost(records) == {
        "steps without a start": 1,
        "steps that started but never ended": 1,
        "step trace records of no step": 1,
    }


# -- any input -----------------------------------------------------------------------------------

LOGS = {"stars_soc": 64, "hwts": 64, "ts_track": 40}


def anything(log: str) -> st.SearchStrategy[bytes]:
    """Bytes of a log: random ones, and records with the right marks but random fields."""
    ticks = st.integers(1_833_256_145_000, 1_833_256_155_000) | st.integers(0, 2**64 - 1)
    few = st.integers(0, 3)
    word = few | st.integers(0, 0xFFFF)
    if log == "ts_track":
        tags = st.sampled_from([0, 1, 2, 3, 4, 5, 10_000, 10_001, 20_000, 20_001, 60_000, 60_001])
        record = st.builds(track_record, ticks, word, word, few, tags | word)
    else:
        head = st.sampled_from([0, 1, 2, 0b100010, 0b100011]) | word

        def packed(head: int, stream: int, task: int, ticks: int, rest: bytes) -> bytes:
            fields = (head, MAGIC, stream, task, ticks)
            if log == "hwts":
                fields = (head, MAGIC, 0, task, ticks)
            return struct.pack("<4HQ", *fields) + rest.ljust(48, b"\0")[:48]

        record = st.builds(packed, head, word, word, ticks, st.binary(max_size=48))
    parts = record | st.binary(max_size=100)
    return st.lists(parts, max_size=40).map(b"".join)


@pytest.mark.parametrize("layout", ["raw", "raw-v6"])
def test_any_bytes_are_read_or_refused(shelf: ProfileShelf, tmp_path: Path, layout: str) -> None:
    """Whatever the slices hold: records, or a SourceError; and never more than bytes allow."""
    device = Device(shelf.copy(layout, tmp_path / "run", ranks=1))
    source = device.source()

    @settings(max_examples=50)
    @given(
        logs=st.fixed_dictionaries({log: anything(log) for log in LOGS}),
        cut=st.integers(0, 200),
    )
    def holds(logs: dict[str, bytes], cut: int) -> None:
        for log, data in logs.items():
            device.write(log, data[:cut], data[cut:])
        try:
            records = drop_invalid_rows(read(source))
        except SourceError as error:
            assert "no whole task" in str(error)
            return
        record = 32 if layout == "raw-v6" else 64
        most = len(logs["hwts"]) // 64 // 2 + len(logs["stars_soc"]) // record // 2
        assert len(records.tasks) <= most
        assert len(records.steps) + len(records.parts) <= len(logs["ts_track"]) // 40 - 1
        assert (records.tasks.end_ns >= records.tasks.start_ns).all()
        draw_rank_from_source(source, RankRequest(Selection(layers=DETAIL_LAYERS)))

    holds()


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 30), st.booleans()), unique_by=lambda m: m[:2]
    )
)
def test_starts_and_ends_match_as_in_msprof(marks: list[tuple[int, int, bool]]) -> None:
    """The rule equals that of msprof: an end is of the last start before it, if that is open."""
    key, ticks, is_end = zip(*marks, strict=True) if marks else ((), (), ())
    found = match_marks(
        TaskMarks(
            np.array(key, np.uint64),
            np.array(ticks, np.uint64),
            np.zeros(len(marks), np.uint8),
            np.array(is_end, np.bool_),
        )
    )
    pairs = zip(
        found.key.tolist(), found.start_ticks.tolist(), found.end_ticks.tolist(), strict=True
    )
    wanted = []
    for own in set(key):
        starts = sorted(m[1] for m in marks if m[0] == own and not m[2])
        ends = sorted(m[1] for m in marks if m[0] == own and m[2])
        while starts and ends:
            if ends[0] < starts[0]:
                ends.pop(0)
            elif len(starts) == 1 or ends[0] < starts[1]:
                wanted.append((own, starts.pop(0), ends.pop(0)))
            else:
                starts.pop(0)
    assert sorted(pairs) == sorted(wanted)
    assert found.unfinished + len(wanted) == sum(not end for end in is_end)
    assert found.unstarted + len(wanted) == sum(is_end)


def test_logs_longer_than_a_block(device: Device) -> None:
    """A hundred thousand tasks, read in many blocks and cut anywhere, are all there."""
    count = 100_000
    pattern = np.frombuffer(device.task(1), np.uint8)
    log = np.tile(pattern, count).reshape(2 * count, 64)
    number = np.repeat(np.arange(count), 2)
    log[:, 6:8] = (number % 65_536).astype("<u2").view(np.uint8).reshape(-1, 2)
    ticks = device.zero + np.arange(2 * count)
    log[:, 8:16] = ticks.astype("<u8").view(np.uint8).reshape(-1, 8)
    data = log.tobytes()
    device.write("stars_soc", data[:9_000_001], data[9_000_001:])
    records = device.read()
    order = np.argsort(records.tasks.start_ns)
    assert records.tasks.task[order].tolist() == (np.arange(count) % 65_536).tolist()
    assert (records.tasks.end_ns - records.tasks.start_ns == 10).all()
    assert lost(records) == {}


def test_hwts_records_stand_for_themselves(device: Device) -> None:
    """A record of HWTS, byte by byte as documented: start and end of task 5 on stream 3."""
    head = bytes.fromhex("6000d36b00000500") + struct.pack("<Q", device.zero + 7)
    start = head + bytes.fromhex("03000000") + bytes(44)
    end = bytes.fromhex("71") + start[1:8] + struct.pack("<Q", device.zero + 9) + start[16:]
    task = RawTask(3, 5, NO_CONTEXT, "AI_CORE", 0, 0)
    assert hwts_record(device.zero + 7, 0, task, 6)[:16] == start[:16]
    device.write("hwts", start + end)
    records = device.read()
    assert records.tasks.stream.tolist() == [3]
    assert records.tasks.task.tolist() == [5]
    assert records.tasks.start_ns.tolist() == [device.ns(7)]
    assert records.tasks.end_ns.tolist() == [device.ns(9)]
