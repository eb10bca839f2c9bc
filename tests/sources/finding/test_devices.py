"""Proves that several devices in one capture are several ranks."""

from __future__ import annotations

import functools
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import timeline
from simulator.layouts import Writer
from simulator.model import RankRun
from simulator.overlap import expected_overlap
from simulator.writers.database import write_torch_database, write_torch_database_of_one_process
from simulator.writers.trace_json.torch_text import write_torch_text_of_one_process
from tests.support.found_profiles import join_databases, only, overlap_ns, ranks_of, read
from tests.support.profile_shelf import (
    Copier,
    Event,
    Profile,
    ProfileShelf,
    change_events,
    change_fields,
    tiny_run,
)
from timeline.errors import RankIdentityError, UsageError
from timeline.records.not_given import NO_ID
from timeline.records.profiler_tables import Measure, ParallelTimes
from timeline.records.tables import OmissionCode, Records
from timeline.sources.finding.discovery import discover


def join_devices(profile: Profile, process: int) -> Path:
    """Make one PROF directory of two: one process that drives two devices.

    process: its id, from which msprof makes the ids of the rows.
    """
    first, second = profile.captures
    outputs = [capture / "mindstudio_profiler_output" for capture in profile.captures]
    for path in sorted(outputs[0].glob("*.json")):
        events = [
            moved(event, rank.rank, rank.os_pid, process)
            for rank, output in zip(profile.run.ranks, outputs, strict=True)
            for event in json.loads((output / path.name).read_text(encoding="utf-8"))
        ]
        path.write_text(json.dumps(events), encoding="utf-8")
    for path in sorted(outputs[0].glob("*.csv")):
        rows = (outputs[1] / path.name).read_text(encoding="utf-8").splitlines()[1:]
        with path.open("a", encoding="utf-8", newline="") as file:
            file.writelines(f"{row}\n" for row in rows)
    shutil.move(second / "device_1", first / "device_1")
    shutil.rmtree(second)
    return first


def moved(event: Event, number: int, old: int, new: int) -> Event:
    """The event as the process with another id would have left it, its own ids kept apart."""
    made = event | {"pid": event["pid"] + ((new - old) << 10)}
    if "id" in event:
        made["id"] = f"{event['id']}{number}"
    args = dict(event.get("args", {}))
    if "connection_id" in args:
        args["connection_id"] += 1_000_000 * number
        made["args"] = args
    return made


@pytest.mark.parametrize("process", [12340, 167], ids=["usual process id", "id in a container"])
def test_several_devices_in_one_export(copied: Copier, process: int) -> None:
    """Two devices in one export are two ranks that share nothing but the host."""
    profile = copied("mindstudio", graphs=(1, 3))
    capture = join_devices(profile, process)
    sources = discover(capture).sources
    assert [source.identity.rank for source in sources] == [0, 1]
    for source in sources:
        rank = profile.run.rank(source.identity.rank)
        records = read(source)
        assert len(records.tasks) == task_count(rank)
        assert overlap_ns(records) == expected_overlap(profile.run, rank.rank)


def test_gaps_and_metrics_are_those_of_the_device(copied: Copier, shelf: ProfileShelf) -> None:
    """Devices of one export number their streams and tasks alike, and share none of either."""
    apart = shelf.get("mindstudio", graphs=(1, 3)).path
    profile = copied("mindstudio", graphs=(1, 3))
    join_devices(profile, 12340)
    first, second = (kernels_of(records) for records in map(read, discover(profile.path).sources))
    assert [first, second] == [kernels_of(read(one)) for one in discover(apart).sources]
    ids = [{kernel[:2] for kernel in kernels} for kernels in (first, second)]
    assert ids[0] & ids[1]
    assert len({kernel[3:] for kernel in first}) > 10
    assert set(first).isdisjoint(second)
    with timeline.open_profile(profile.path) as one, timeline.open_profile(apart) as two:
        gaps = one.idle_gaps().to_dicts()
        assert gaps == two.idle_gaps().to_dicts()
    assert {gap["rank"] for gap in gaps} == {0, 1}


def kernels_of(records: Records) -> list[tuple[float, ...]]:
    """Stream, task id, start and metrics of each kernel that has some, in order of start."""
    tasks, columns = records.tasks, records.metrics.columns.values()
    return sorted(
        (stream, task, start_ns, *(float(column[row]) for column in columns))
        for stream, task, start_ns, row in zip(
            *(getattr(tasks, name).tolist() for name in ("stream", "task", "start_ns", "metrics")),
            strict=True,
        )
        if row != NO_ID
    )


def task_count(rank: RankRun) -> int:
    """The device tasks of a rank, those outside its steps included."""
    return len(rank.switches) + sum(len(one.tasks) for one in rank.iterations)


def test_unknown_ranks_of_several_devices(copied: Copier) -> None:
    """Each device of a capture can be given its rank, and the errors lead there."""
    profile = copied("mindstudio")
    capture = join_devices(profile, 12340)
    for path in [*capture.glob("device_*/info.json.?"), capture / "host/info.json"]:
        change_fields(path, {"rank_id": -1})
    assert ranks_of(profile.path) == [0, 1]
    devices = [f"{capture.name}/device_{number}" for number in (0, 1)]
    with pytest.raises(RankIdentityError, match=f"--assign-rank {devices[1]}=0"):
        discover(profile.path, {devices[0]: 4})
    with pytest.raises(UsageError) as caught:
        discover(profile.path, {capture.name: 4})
    assert all(device in str(caught.value) for device in devices)
    assert ranks_of(profile.path, {devices[0]: 4, devices[1]: 5}) == [4, 5]


@pytest.mark.parametrize("table", ["json", "csv"])
def test_step_trace_of_several_devices(copied: Copier, table: str) -> None:
    """Each rank has the iterations and reduces of its own device, from either step trace."""
    profile = copied("mindstudio", graphs=(1, 3))
    capture = join_devices(profile, 12340)
    change_events(
        only(capture, "msprof_2*.json"),
        lambda event: None if event.get("tid", 0) in (70_001, 70_003) else event,
    )
    if table == "csv":
        only(capture, "step_trace_*.json").unlink()
    for source in discover(capture).sources:
        rank = profile.run.rank(source.identity.rank)
        records = read(source)
        found = zip(
            records.steps.graph.tolist(),
            records.steps.iteration.tolist(),
            records.steps.start_ns.tolist(),
            records.steps.end_ns.tolist(),
            strict=True,
        )
        expected = [(one.graph, one.number, one.start_ns, one.end_ns) for one in rank.iterations]
        assert sorted(found) == sorted(expected)
        reduces = records.parts.start_ns[records.parts.kind == 0].tolist()
        expected_starts = [reduce.start_ns for one in rank.iterations for reduce in one.collectives]
        assert sorted(reduces) == sorted(expected_starts)


@pytest.mark.parametrize("with_directories", [True, False], ids=["PROF", "copied out"])
def test_several_devices_in_one_database(
    shelf: ProfileShelf, tmp_path: Path, with_directories: bool
) -> None:
    """Two devices in one database are two ranks, whether or not their directories are there."""
    profile = shelf.get("torch-db")
    capture = tmp_path / "PROF_000001_20250109120000123_AAAAAAAAAAAAAAAA"
    capture.mkdir()
    join_databases(profile, capture / "msprof_20250109120100.db")
    if with_directories:
        for number, session in enumerate(shelf.get("mindstudio").captures):
            device = f"device_{number}"
            shutil.copytree(session / device, capture / device)
    sources = discover(tmp_path).sources
    assert [source.identity.rank for source in sources] == [0, 1]
    for source in sources:
        rank = profile.run.rank(source.identity.rank)
        records = read(source)
        assert len(records.tasks) == task_count(rank)
        assert overlap_ns(records) == expected_overlap(profile.run, rank.rank)
        assert len(records.planes) == sum(
            len(reduce.tasks) for one in rank.iterations for reduce in one.collectives
        )


# -- several devices of one process of torch_npu ---------------------------------------------------

ONE_PROCESS = {
    "text": ("torch-text", write_torch_text_of_one_process),
    **{
        f"database, map of {mapped}": (
            "torch-db",
            functools.partial(write_torch_database_of_one_process, mapped=mapped),
        )
        for mapped in ("one", "none", "same", "each")
    },
}


@pytest.mark.parametrize(("layout", "writer"), ONE_PROCESS.values(), ids=ONE_PROCESS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_devices_of_a_process_equal_ranks_of_their_own(
    shelf: ProfileShelf, tmp_path: Path, layout: str, writer: Writer, ranks: int
) -> None:
    """Each device has the tasks, ops, planes, counters and overlap of the rank written alone."""
    apart = discover(shelf.get(layout, ranks=ranks).path).sources
    writer(tiny_run(ranks=ranks), tmp_path)
    together = discover(tmp_path).sources
    assert [source.identity.device for source in together] == list(range(ranks))
    for one, other in zip(together, apart, strict=True):
        mine, theirs = read(one), read(other)
        assert mine.rank == theirs.rank
        for table in ("tasks", "ops", "planes", "samples"):
            assert sorted(_times(getattr(mine, table))) == sorted(_times(getattr(theirs, table)))
        assert overlap_ns(mine) == overlap_ns(theirs)
        assert sorted(mine.ops.launch_ns.tolist()) == sorted(theirs.ops.launch_ns.tolist())
        lost = [one for one in mine.omissions if one.code is OmissionCode.ARROW_HALF]
        assert not lost


def _times(table: Any) -> list[tuple[int, ...]]:
    columns = (getattr(table, name, None) for name in ("time_ns", "start_ns", "end_ns"))
    return list(zip(*(one.tolist() for one in columns if one is not None), strict=True))


def test_sums_of_the_profiler_are_compared_device_by_device(tmp_path: Path) -> None:
    """Rows of tables and rows of Overlap Analysis go to the device that they name."""
    write_torch_text_of_one_process(tiny_run(ranks=3), tmp_path)
    for source in discover(tmp_path).sources:
        records = read(source)
        assert {Measure(code) for code in records.vendor.measure.tolist()} >= {Measure.COMPUTING}
        computing = records.vendor.value_ns[records.vendor.measure == Measure.COMPUTING]
        assert set(computing.tolist()) == {overlap_ns(records)["computing_ns"]}


def test_devices_are_counted_on_from_the_recorded_rank(tmp_path: Path) -> None:
    """A rank that another capture of the run tells is passed over, and a note says what is what."""
    (worker,) = write_torch_text_of_one_process(tiny_run(ranks=2), tmp_path)
    (other,) = write_torch_text_of_one_process(tiny_run(ranks=2, seed=5), tmp_path / "other")
    (other / "profiler_info_0.json").rename(other / "profiler_info_1.json")
    change_fields(other / "profiler_info_1.json", {"rank_id": 1})
    other = other.rename(tmp_path / worker.name.replace("host_", "far_"))
    found = discover(tmp_path)
    assert [(one.identity.rank, one.identity.directory.name) for one in found.sources] == [
        (0, worker.name),
        (1, other.name),
        (2, worker.name),
        (3, other.name),
    ]
    assert (
        f"{worker.name} holds 2 devices of one process: device_0 is rank 0, device_1 is rank 2."
        in (found.notes)
    )


def test_a_device_of_a_process_can_be_given_its_rank(tmp_path: Path) -> None:
    """By the name that --list shows; the others keep theirs."""
    (worker,) = write_torch_text_of_one_process(tiny_run(ranks=2), tmp_path)
    assert ranks_of(tmp_path, {f"{worker.name}/device_1": 9}) == [0, 9]
    assert [str(source.identity.place) for source in discover(tmp_path).sources] == [
        f"{worker}/device_0",
        f"{worker}/device_1",
    ]


def test_a_trace_alone_tells_its_devices(tmp_path: Path) -> None:
    """Without tables the pids of its rows tell them, whatever the file is called."""
    (worker,) = write_torch_text_of_one_process(tiny_run(ranks=2), tmp_path / "run")
    trace = tmp_path / "renamed.json"
    (worker / "ASCEND_PROFILER_OUTPUT/trace_view.json").rename(trace)
    assert ranks_of(trace) == [0, 1]


def test_a_device_that_did_nothing_is_no_rank(tmp_path: Path) -> None:
    """The table of steps may have a row for it."""
    (worker,) = write_torch_text_of_one_process(tiny_run(ranks=2), tmp_path)
    table = worker / "ASCEND_PROFILER_OUTPUT/step_trace_time.csv"
    header, first, _ = table.read_text(encoding="utf-8").splitlines()
    table.write_text(f"{header}\n{first}\n1,,0,0,0,0,0,0,0,0,0\n", encoding="utf-8")
    assert ranks_of(tmp_path) == [0]


def test_sums_of_all_devices_are_not_compared_with_one(tmp_path: Path) -> None:
    """A table that names no device is of all of them; ops of other devices have other starts."""
    (worker,) = write_torch_database_of_one_process(tiny_run(ranks=2), tmp_path)
    output = worker / "ASCEND_PROFILER_OUTPUT"
    (alone,) = (path for path in write_torch_database(tiny_run(ranks=2), tmp_path / "alone")[:1])
    shutil.copy(alone / "ASCEND_PROFILER_OUTPUT/analysis.db", output)
    op = next(tiny_run(ranks=2).ranks[1].iterations).collectives[0]
    times = {"Elapse Time(ms)": 1.5, "Start Timestamp(us)": tiny_run().wall_ns(op.start_ns) / 1000}
    ops = {"step": {"collective": {f"{op.name}@1": {"Communication Time Info": times}}}}
    (output / "communication.json").write_text(json.dumps(ops), encoding="utf-8")
    measured = [
        [Measure(code) for code in read(source).vendor.measure.tolist()]
        for source in discover(worker).sources
    ]
    assert measured == [[], [Measure.COLLECTIVE]]


@pytest.mark.parametrize("name", ["step_trace_time.csv", "analysis.db"])
def test_step_tables_alone_are_split_by_device(tmp_path: Path, name: str) -> None:
    """Sums of steps that name devices are of a rank each; ops that name none are counted."""
    output = tmp_path / "host_1_20250109120000_ascend_pt/ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    sums = [(device, step, 1000.5 + device, 20.25) for device in (0, 1) for step in (1, 2)]
    rows = [(*one, 10.25, 30.0) for one in sums]
    if name == "analysis.db":
        with closing(sqlite3.connect(output / name)) as connection, connection:
            connection.execute(
                "CREATE TABLE StepTraceTime (deviceId, step, computing, communication, "
                "communication_not_overlapped, free)"
            )
            connection.executemany("INSERT INTO StepTraceTime VALUES (?, ?, ?, ?, ?, ?)", rows)
    else:
        header = "Device_id,Step,Computing,Communication,Communication(Not Overlapped),Free"
        lines = [header, *(",".join(map(str, row)) for row in rows)]
        (output / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    times = {"Elapse Time(ms)": 1.5, "Start Timestamp(us)": 1736424000129323.25}
    ops = {
        "step1": {"collective": {"hcom_allReduce__123_0_1@1": {"Communication Time Info": times}}}
    }
    (output / "communication.json").write_text(json.dumps(ops), encoding="utf-8")
    sources = discover(tmp_path).sources
    assert [source.identity.rank for source in sources] == [0, 1]
    for source in sources:
        records = read(source)
        (table,) = (one for one in records.profiler_tables.tables.values() if len(one) == 2)
        assert isinstance(table, ParallelTimes)
        assert table.computing_ns.tolist() == [1_000_500 + 1000 * source.identity.rank] * 2
        assert records.steps.iteration.tolist() == [1, 2]
        (lost,) = records.omissions
        assert "ops of several devices" in lost.reason and not len(records.ops)


def test_tables_alone_are_split_by_device(tmp_path: Path) -> None:
    """The table of kernels without its trace, as people copy it."""
    (worker,) = write_torch_text_of_one_process(tiny_run(ranks=2), tmp_path)
    (worker / "ASCEND_PROFILER_OUTPUT/trace_view.json").unlink()
    sources = discover(tmp_path).sources
    assert [source.identity.rank for source in sources] == [0, 1]
    for source in sources:
        wanted = expected_overlap(tiny_run(ranks=2), source.identity.rank)
        assert overlap_ns(read(source))["computing_ns"] == wanted["computing_ns"]


@pytest.mark.parametrize(("last", "ranks"), [(0, [0]), (1, [0, 1])])
def test_devices_of_a_large_database(copied: Copier, last: int, ranks: list[int]) -> None:
    """Some of its rows tell that it is of one device, or that all are to be looked at."""
    profile = copied("torch-db")
    shutil.rmtree(profile.captures[1])
    path = only(profile.captures[0], "ascend_pytorch_profiler_0.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO TASK (startNs, endNs, deviceId, globalTaskId) VALUES (?, ?, ?, ?)",
            ((row, row + 1, last if row > 99_990 else 0, row) for row in range(10_000, 120_000)),
        )
    assert ranks_of(profile.path) == ranks


def test_the_device_that_a_map_names_has_its_rank(tmp_path: Path) -> None:
    """Further devices of the process are counted on from there."""
    (worker,) = write_torch_database_of_one_process(tiny_run(ranks=3), tmp_path)
    with closing(sqlite3.connect(only(worker, "ascend_pytorch_*.db"))) as connection, connection:
        connection.execute("UPDATE RANK_DEVICE_MAP SET deviceId = 1")
    found = {one.identity.rank: one.identity.device for one in discover(tmp_path).sources}
    assert found == {0: 1, 1: 0, 2: 2}
