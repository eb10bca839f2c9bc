"""Proves that what MindSpore recorded on the host is drawn on the clock of the device's records."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.model import RankRun, Run
from simulator.writers.companions.mindspore_host import (
    HOST_INFO,
    THREAD,
    HostSpan,
    cpu_operators,
    host_stages,
    resident_bytes,
    sample_times_ms,
    write_host_timeline,
    write_mindspore_host,
)
from tests.support.examples import at_most
from tests.support.profile_shelf import Copier, Profile, ProfileShelf, change_fields, change_json
from tests.support.read_profiles import lost_rows
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.columns.strings import StringPool
from timeline.layers import Layer
from timeline.records.tables import HostEvents, Omission, OmissionCode, Records
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.delimited import TablesBuilder
from timeline.sources.companions.file_kinds import find_numbered_files
from timeline.sources.companions.host import (
    HostClock,
    read_cpu_operators,
    read_host_stages,
    read_host_timeline,
)
from timeline.sources.companions.minddata import read_data_preparation
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest

CPU, HOST = "CPU OP", "Host Info"
LAYOUTS = ("mindformers", "mindformers-2.1")
"""Records on wall time, and on the monotonic clock of the host."""

Span = tuple[str, int, int, int]
"""Name, thread, start and end in ns."""
Samples = list[tuple[int, float]]


def beside(capture: Path) -> Path:
    """The directory of MindSpore's profiler around msprof's."""
    return capture.parent


@pytest.fixture(params=LAYOUTS)
def profile(request: pytest.FixtureRequest, copied: Copier) -> Profile:
    """A profile whose host files lie beside msprof's directory."""
    made = copied(request.param)
    for rank, capture in zip(made.run.ranks, made.captures, strict=True):
        write_mindspore_host(made.run, rank, beside(capture))
    return made


def read_all(path: Path, layers: Iterable[Layer] = DETAIL_LAYERS) -> list[Records]:
    sources = discover(path).sources
    return [drop_invalid_rows(source.read(ReadRequest(frozenset(layers)))) for source in sources]


def spans_of(records: Records, layer: str) -> list[Span]:
    code, host = records.strings.find(layer), records.host
    return sorted(
        (records.strings[name], thread, start, end)
        for one, name, thread, start, end in zip(
            *(column.tolist() for column in (host.layer, host.name, host.thread)),
            *(column.tolist() for column in (host.start_ns, host.end_ns)),
            strict=True,
        )
        if one == code
    )


def samples_of(records: Records, group: str, name: str) -> Samples:
    strings, series, samples = records.strings, records.series, records.samples
    (row,) = (
        row
        for row in range(len(series))
        if (strings[series.group[row]], strings[series.name[row]]) == (group, name)
    )
    of_series = samples.series == row
    return list(
        zip(samples.time_ns[of_series].tolist(), samples.value[of_series].tolist(), strict=True)
    )


class Clocks:
    """What moves times of a run to the clock of a capture's records."""

    def __init__(self, run: Run, rank: RankRun, is_wall: bool) -> None:
        self._run, self._is_wall = run, is_wall
        sampled_ns = run.wall_ns(rank.start_ns) // 1000 * 1000
        self.offset_ns = sampled_ns - run.monotonic_ns(rank.start_ns)
        """What msprof's sample of both clocks says; the wall clock is cut to whole us."""

    def steady(self, time_ns: int) -> int:
        """A time that was written by the steady clock."""
        return self._run.monotonic_ns(time_ns) + (self.offset_ns if self._is_wall else 0)

    def wall(self, time_ns: int) -> int:
        """A time that was written by the wall clock."""
        return self._run.wall_ns(time_ns) - (0 if self._is_wall else self.offset_ns)


def clocks(profile: Profile, rank: RankRun) -> Clocks:
    is_wall = (profile.captures[0] / "mindstudio_profiler_output").is_dir()
    return Clocks(profile.run, rank, is_wall)


def operators(rank: RankRun, clock: Clocks) -> list[Span]:
    return sorted(
        (one.name, one.thread, clock.steady(one.start_ns), clock.steady(one.end_ns))
        for one in cpu_operators(rank)
    )


def stages(run: Run, rank: RankRun, clock: Clocks) -> list[Span]:
    return sorted(
        (one.name, one.thread, clock.wall(one.start_ns), clock.wall(one.end_ns))
        for one in host_stages(run, rank)
    )


# -- what is drawn -----------------------------------------------------------------------------


def test_host_events_are_on_the_clock_of_the_device(profile: Profile) -> None:
    """Operators and stages are at their nanosecond, by thread, and so is memory."""
    for rank, records in zip(profile.run.ranks, read_all(profile.path), strict=True):
        clock = clocks(profile, rank)
        assert spans_of(records, CPU) == operators(rank, clock) != []
        assert spans_of(records, HOST) == stages(profile.run, rank, clock) != []
        sizes = [value for _, value in samples_of(records, "Host Memory", "Resident")]
        assert sizes == [resident_bytes(step) for step in range(len(rank.steps))]


def test_counters_of_minddata_have_the_times_of_their_samples(profile: Profile) -> None:
    """A process has no first sample; queues are sampled in the rounds of the processors."""
    for rank, records in zip(profile.run.ranks, read_all(profile.path), strict=True):
        offset_ns = clocks(profile, rank).steady(0) - profile.run.monotonic_ns(0)
        times = [time * 1_000_000 + offset_ns for time in sample_times_ms(profile.run, rank)]
        for group, name, values in (
            ("MindData CPU", "Host User", [10, 11, 12, 13, 14]),
            ("MindData CPU", "Runnable Processes", [3] * 5),
            ("MindData CPU", "Op 1 System", [7] * 5),
            ("MindData Queue", "Batch 1", [0, 1, 2, 3, 4]),
            ("MindData Queue", "Device Queue", [21, 22, 23, 24, 25]),
            ("MindData Queue", "Device Queue Batch Time", [9] * 5),
            ("MindData Queue", "Device Queue Push Time", [2] * 5),
            ("MindData Queue", "Device Queue Pipeline Time", [7] * 5),
        ):
            wanted = list(zip(times, map(float, values), strict=True))
            assert samples_of(records, group, name) == wanted, name
        assert samples_of(records, "MindData CPU", "Process User") == list(
            zip(times[1:], (151.0, 152.0, 153.0, 154.0), strict=True)
        )


def test_nothing_is_lost_and_sums_are_told(profile: Profile) -> None:
    for rank, records in zip(profile.run.ranks, read_all(profile.path), strict=True):
        assert lost_rows(records) == {}
        reason = f"rows of dataset_{rank.rank}.csv, which are sums without a time"
        assert Omission(reason, 1, rank.rank, code=OmissionCode.REPEATED) in records.omissions
        (warning,) = (text for text in records.warnings if "steady clock" in text)
        assert warning.startswith(f"rank {rank.rank}:")


def test_only_wanted_layers_are_read(profile: Profile) -> None:
    for layers in (SUMMARY_LAYERS, {Layer.HARDWARE}):
        for records in read_all(profile.path, layers):
            assert not len(records.samples)
            assert not spans_of(records, CPU)
            assert not spans_of(records, HOST)
            assert not [one for one in records.omissions if "dataset" in one.reason]
    for records in read_all(profile.path, {Layer.FRAMEWORK}):
        assert spans_of(records, CPU)
        assert not len(records.samples)
    names = [path.name for path in discover(profile.path).sources[1].files]
    assert "cpu_op_execute_timestamp_1.txt" in names
    assert "host_info_1.csv" in names
    assert not [name for name in names if name.endswith("_0.csv")]


def test_the_timeline_and_its_memory_stand_in_for_the_table(profile: Profile) -> None:
    """Where only what MindSpore made of host_info is left, the same is drawn."""
    before = read_all(profile.path)
    for rank, capture in zip(profile.run.ranks, profile.captures, strict=True):
        directory = beside(capture) / "host_info"
        write_host_timeline(profile.run, rank, directory)
        (directory / f"host_info_{rank.rank}.csv").unlink()
    for old, new in zip(before, read_all(profile.path), strict=True):
        assert spans_of(new, HOST) == spans_of(old, HOST) != []
        same = samples_of(old, "Host Memory", "Resident")
        assert samples_of(new, "Host Memory", "Resident") == same
        assert lost_rows(new) == {}


def test_the_timeline_stands_in_for_an_unreadable_table(copied: Copier) -> None:
    """The table is counted as unreadable."""
    made = copied("mindformers")
    run, rank = made.run, made.run.ranks[0]
    write_mindspore_host(run, rank, beside(made.captures[0]))
    before = spans_of(read_all(made.path)[0], HOST)
    directory = beside(made.captures[0]) / "host_info"
    write_host_timeline(run, rank, directory)
    (directory / "host_info_0.csv").write_bytes(b"")
    records = read_all(made.path)[0]
    assert spans_of(records, HOST) == before != []
    assert [reason for reason in lost_rows(records) if "host_info_0.csv" in reason]


# -- clocks ------------------------------------------------------------------------------------


def test_rows_that_nothing_places_are_left_out_and_counted(copied: Copier) -> None:
    """Without msprof's sample of clocks, steady times have no place among wall times."""
    made = copied("mindformers")
    run, rank, capture = made.run, made.run.ranks[0], made.captures[0]
    write_mindspore_host(run, rank, beside(capture))
    for path in capture.rglob("start_info*"):
        path.unlink()
    records = read_all(made.path)[0]
    assert spans_of(records, CPU) == []
    assert spans_of(records, HOST) == stages(run, rank, clocks(made, rank))
    tail = "on a clock that cannot be related to the records"
    assert lost_rows(records)[f"rows of cpu_op_execute_timestamp_0.txt {tail}"] == 6
    assert lost_rows(records)[f"rows of device_queue_profiling_0.txt {tail}"] == 20


def test_mindspores_own_sample_of_clocks_comes_first(copied: Copier) -> None:
    """diff_time relates the steady clock itself to wall time, so nothing is approximate."""
    made = copied("mindformers")
    run, rank, capture = made.run, made.run.ranks[0], made.captures[0]
    write_mindspore_host(run, rank, beside(capture))
    offset_us = clocks(made, rank).offset_ns // 1000 + 250_000
    document = json.dumps({"rank_id": 0, "diff_time": offset_us})
    (beside(capture) / "profiler_info_0.json").write_text(document, encoding="utf-8")
    records = read_all(made.path)[0]
    assert spans_of(records, CPU) == sorted(
        (
            one.name,
            one.thread,
            run.monotonic_ns(one.start_ns) + offset_us * 1000,
            run.monotonic_ns(one.end_ns) + offset_us * 1000,
        )
        for one in cpu_operators(rank)
    )
    assert not [text for text in records.warnings if "steady clock" in text]


WALL_NS, STEADY_NS = 1_736_424_000_123_456_789, 56_635_864_652_493
RAW_NS, MIXED_NS = 1_736_367_364_258_804_296, 1_736_367_364_258_904_296


@pytest.mark.parametrize(
    ("clock", "wall_ns", "steady_ns", "drifted"),
    [
        (HostClock(True, None, None), WALL_NS, None, False),
        (HostClock(True, None, RAW_NS), WALL_NS, STEADY_NS + RAW_NS, True),
        (HostClock(True, MIXED_NS, RAW_NS), WALL_NS, STEADY_NS + MIXED_NS, False),
        (HostClock(False, None, None), None, STEADY_NS, True),
        (HostClock(False, None, RAW_NS), WALL_NS - RAW_NS, STEADY_NS, True),
        (HostClock(False, MIXED_NS, RAW_NS), WALL_NS - RAW_NS, STEADY_NS + 100_000, False),
    ],
)
def test_each_clock_is_placed_by_what_is_known(
    clock: HostClock, wall_ns: int | None, steady_ns: int | None, drifted: bool
) -> None:
    times = np.array([WALL_NS, STEADY_NS], np.int64)
    shift, known = clock.shift(times)
    assert known.tolist() == [wall_ns is not None, steady_ns is not None]
    for place, wanted in enumerate((wall_ns, steady_ns)):
        if wanted is not None:
            assert times[place] + shift[place] == wanted
    assert clock.drifted == drifted


def test_operators_of_the_trace_are_moved_and_not_drawn_twice(copied: Copier) -> None:
    """MindSpore exports them by the steady clock, decades before everything else."""
    made = copied("torch-text")
    run, rank = made.run, made.run.ranks[0]
    capture = made.captures[0].rename(made.path / "host_1_20250109120000123_ascend_ms")
    write_mindspore_host(run, rank, capture / "FRAMEWORK")
    clock = Clocks(run, rank, True)
    host = capture / "PROF_000001_20250109120000123_AAAA" / "host"
    host.mkdir(parents=True)
    sample = {
        "collectionTimeBegin": str(run.wall_ns(rank.start_ns) // 1000),
        "clockMonotonicRaw": str(run.monotonic_ns(rank.start_ns)),
    }
    (host / "start_info").write_text(json.dumps(sample), encoding="utf-8")
    assert spans_of(read_all(capture)[0], CPU) == operators(rank, clock)
    events_of_cpu = [cpu_event(run, one) for one in cpu_operators(rank)]
    name = {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": CPU}}
    trace = capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    change_json(trace, lambda events: [*events, name, *events_of_cpu])
    records = read_all(capture)[0]
    assert spans_of(records, CPU) == operators(rank, clock)
    assert lost_rows(records) == {}


def cpu_event(run: Run, one: HostSpan) -> dict[str, Any]:
    ns = run.monotonic_ns(one.start_ns)
    return {
        "ph": "X",
        "name": one.name,
        "pid": 2,
        "tid": one.thread,
        "ts": f"{ns // 1000}.{ns % 1000:03d}",
        "dur": (one.end_ns - one.start_ns) / 1000,
        "args": {"type": "HostCpuOps"},
    }


def test_a_database_has_the_host_files_of_its_capture(copied: Copier) -> None:
    """They lie in FRAMEWORK beside its output, and are of its own rank only."""
    made = copied("torch-db")
    run, rank = made.run, made.run.ranks[0]
    capture = made.captures[0].rename(made.path / "host_1_20250109120000123_ascend_ms")
    for one in run.ranks:
        write_mindspore_host(run, one, capture / "FRAMEWORK")
    clock = Clocks(run, rank, True)
    offset_us = clock.offset_ns // 1000
    change_fields(capture / "profiler_info_0.json", {"diff_time": offset_us})
    (records,) = read_all(capture)
    cut_ns = clock.offset_ns - offset_us * 1000
    assert spans_of(records, CPU) == [
        (name, thread, start_ns - cut_ns, end_ns - cut_ns)
        for name, thread, start_ns, end_ns in operators(rank, clock)
    ]
    assert spans_of(records, HOST) == stages(run, rank, clock)
    assert lost_rows(records) == {}


# -- broken files ------------------------------------------------------------------------------

RUNS = st.lists(
    st.tuples(st.integers(0, 10**15), st.integers(0, 10**7), st.integers(0, 99)), max_size=5
)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\ufeff"), min_size=1).map(
    str.strip
)


@settings(max_examples=at_most(15))
@given(st.lists(st.tuples(NAMES.filter(bool), RUNS), max_size=5))
def test_operators_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, list[tuple[int, int, int]]]]
) -> None:
    """Any name, even one that holds the divider, with any number of runs."""
    path = tmp_path_factory.mktemp("operators") / "cpu_op_execute_timestamp_0.txt"
    rows = [
        f"{name};HostCpuOps;" + "".join(f"{s},{d / 1_000_000!r},{t} " for s, d, t in runs)
        for name, runs in lines
    ]
    path.write_bytes("\n".join(rows).encode())
    damage = LossLog(path)
    events = read_cpu_operators(path, strings := StringPool(), damage)
    wanted = [
        (name, thread, start, start + length)
        for name, runs in lines
        for start, length, thread in runs
    ]
    assert found_spans(events, strings) == wanted
    assert damage.rows == sum(not runs for _, runs in lines)


def found_spans(events: HostEvents, strings: StringPool) -> list[Span]:
    columns = events.name, events.thread, events.start_ns, events.end_ns
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(strings[name], thread, start, end) for name, thread, start, end in rows]


@pytest.mark.parametrize(
    ("text", "good", "lost"),
    [
        (b"a;HostCpuOps;10,0.5,0 20,0.5", 1, 1),
        (b"a;HostCpuOps;10,0.5,0 \r\n\n", 1, 0),
        (b"\xef\xbb\xbfa;HostCpuOps;10,0.5,0", 1, 0),
        (b"\xff\xfe;HostCpuOps;10,0.5,0", 1, 0),
        (b"a;HostCpuOps;10,nan,0 10,-1,0 10,x,0 x,1,0", 0, 4),
        (b"a;HostCpuOps;99999999999999999999,1,0", 0, 1),
        (b"a;HostCpuOps;10,0.5,99999999999999999999", 1, 0),
        (b"a;HostCpuOps;", 0, 1),
        (b"a cut li", 0, 1),
        (b"", 0, 0),
    ],
)
def test_broken_runs_are_counted(tmp_path: Path, text: bytes, good: int, lost: int) -> None:
    path = tmp_path / "cpu_op_execute_timestamp_0.txt"
    path.write_bytes(text)
    damage = LossLog(path)
    events = read_cpu_operators(path, StringPool(), damage)
    assert len(events) == good
    assert damage.rows == lost


def stage_row(**cells: object) -> str:
    usual: dict[str, object] = dict.fromkeys(HOST_INFO, "") | {
        "tid": THREAD,
        "pid": 7,
        "event": "Run",
        "stage": "launch",
        "start_end": 0,
        "memory_usage(kB)": 0,
        "time_stamp(us)": 100,
    }
    return ",".join(str((usual | cells)[name]) for name in HOST_INFO)


def at(kind: int, time: object, **cells: object) -> str:
    return stage_row(**{"start_end": kind, "time_stamp(us)": time} | cells)


@pytest.mark.parametrize(
    ("rows", "spans", "lost"),
    [
        ([at(0, 1), at(0, 2), at(1, 3), at(1, 9)], [(1, 9), (2, 3)], 0),
        ([at(0, 1), at(0, 2, tid=5), at(1, 3), at(1, 9, tid=5)], [(1, 3), (2, 9)], 0),
        ([at(0, 1), at(1, 2, stage="other")], [], 2),
        ([at(1, 1), at(0, 2)], [], 2),
        ([at(2, 4)], [(4, 4)], 0),
        ([at(0, "N/A"), at(0, 1), at(1, 2), "5,7"], [(1, 2)], 2),
        ([at(3, 1)], [], 1),
        ([at(0, 0, **{"memory_usage(kB)": 5})], [], 1),
        ([at(2, 4, tid="9" * 30)], [(4, 4)], 0),
        ([at(2, 4, custom_info='"{{a:1},{b:2}}"')], [(4, 4)], 0),
        ([at(2, 4, custom_info="{{a:1},{b:2}}")], [], 1),
    ],
)
def test_stages_are_paired_and_the_rest_counted(
    tmp_path: Path, rows: list[str], spans: list[tuple[int, int]], lost: int
) -> None:
    """An end closes the last open begin of its stage on its thread."""
    path = tmp_path / "host_info_0.csv"
    path.write_text("\n".join([",".join(HOST_INFO), *rows]), encoding="utf-8")
    found = read_host_stages(path, damage := LossLog(path))
    wanted = [(start * 1000, end * 1000) for start, end in spans]
    assert sorted((start, end) for _, start, end in found.rows) == wanted
    assert len(found.events(StringPool())) == len(spans)
    assert damage.rows == lost


def test_begins_in_the_timeline_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "timeline_0.json"
    events: list[object] = [
        {"ph": "B", "name": "a", "ts": 1},
        {"ph": "X", "name": "a", "ts": 1, "dur": 2, "tid": "3", "pid": "4"},
        {"ph": "X", "name": "a", "ts": None, "dur": 2},
        7,
    ]
    path.write_text(json.dumps(events), encoding="utf-8")
    found = read_host_timeline(path, damage := LossLog(path))
    assert [times_ns for _, *times_ns in found.rows] == [[1000, 3000]]
    assert [one.rows for one in damage.omissions(0)] == [1, 1, 1]


def samples_in(directory: Path) -> tuple[list[tuple[str, list[float]]], int]:
    """Name and values of the series of data preparation, and the rows that were lost."""
    into = TablesBuilder(0)
    samples = read_data_preparation(find_numbered_files([directory], 0), into, drawn=True)
    kept = [(one.name, one.values.tolist()) for one in samples if len(one.values)]
    return kept, sum(one.rows for one in into.omissions)


@pytest.mark.parametrize(
    ("fields", "names", "lost"),
    [
        ({"time_stamp": None}, [], 19),
        ({"time_stamp": [1, 2, "x", None, True]}, ["Host User", "Runnable Processes"], 12),
        ({"device_info": 7, "op_info": [3, {"metrics": []}]}, ["Process User"], 2),
        ({"process_info": {"user_utilization": [1]}}, ["Host User", "Runnable Processes"], 1),
        ({"device_info": {"user_utilization": [1, 2, "x", 4, 5]}}, ["Host User"], 1),
    ],
)
def test_broken_samples_of_processors_are_counted(
    shelf: ProfileShelf, tmp_path: Path, fields: dict[str, Any], names: list[str], lost: int
) -> None:
    run = shelf.get("mindformers").run
    write_mindspore_host(run, run.ranks[0], tmp_path)
    name = "minddata_cpu_utilization_0.json"
    alone = tmp_path / "alone"
    alone.mkdir()
    change_fields((tmp_path / name).rename(alone / name), fields)
    kept, lost_rows = samples_in(alone)
    assert {name for name, _ in kept} >= set(names)
    assert lost_rows == lost


def test_queues_without_times_are_counted(shelf: ProfileShelf, tmp_path: Path) -> None:
    """The queue's file may have one sample more than there are times, but not two."""
    run = shelf.get("mindformers").run
    write_mindspore_host(run, run.ranks[0], tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    names = ("pipeline_profiling_0.json", "minddata_cpu_utilization_0.json")
    path, times = ((tmp_path / name).rename(alone / name) for name in names)
    change_fields(times, {"device_info": {}, "process_info": {}, "op_info": []})
    for sizes, drawn_count in (([1, 2, 3, 4, 5, 6], 5), ([1, 2, 3, 4], 4), ([1] * 7, 0)):
        queue = {"metrics": {"output_queue": {"size": sizes}}, "op_id": 0, "op_type": "Map"}
        path.write_text(json.dumps({"op_info": [queue]}), encoding="utf-8")
        kept, lost = samples_in(alone)
        assert [len(values) for _, values in kept] == [drawn_count][: bool(drawn_count)]
        assert lost == len(sizes) - drawn_count
    times.unlink()
    assert samples_in(alone) == ([], 7)


@pytest.mark.parametrize(
    "name", ["minddata_cpu_utilization_0.json", "host_info/host_info_0.csv", "profiler_info_0.json"]
)
def test_an_unusable_file_is_named_and_the_rest_is_drawn(copied: Copier, name: str) -> None:
    made = copied("mindformers")
    write_mindspore_host(made.run, made.run.ranks[0], beside(made.captures[0]))
    (beside(made.captures[0]) / name).write_bytes(b"")
    records = read_all(made.path)[0]
    assert len(records.tasks)
    assert spans_of(records, CPU)
    assert [reason for reason in lost_rows(records) if Path(name).name in reason]


def test_a_steady_time_far_from_the_records_is_not_taken_for_one_of_their_clock() -> None:
    """No correction of a host's time moves it by more than an hour: the counter is of another."""
    hour_ns = 3600 * 10**9
    clock = HostClock(False, None, None, (10 * hour_ns, 11 * hour_ns))
    hours = np.array([9, 10, 12, 13], np.int64)
    times_ns = hours * hour_ns + np.array([-1, 0, 0, 1], np.int64)
    _, known = clock.shift(times_ns)
    assert known.tolist() == [False, True, True, False]
    assert clock.drifted
