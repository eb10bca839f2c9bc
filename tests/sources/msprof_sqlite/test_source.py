"""Proves that what msprof parsed and never exported is read as well as what it exported."""

from __future__ import annotations

import functools
import shutil
import sqlite3
from collections import Counter as Multiset
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.writers.msprof_sqlite import DEVICE_MONOTONIC_NS, TICK_NS, DeviceCounter
from tests.support.examples import at_most
from tests.support.found_profiles import same
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import Profile, ProfileShelf, change_fields
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.cli.main import main
from timeline.columns.strings import StringPool
from timeline.errors import NoProfileError, SourceError
from timeline.layers import Layer
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Records, StepPart
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS
from timeline.sources.decoders.sqlite import open_database
from timeline.sources.finding.discovery import discover
from timeline.sources.msprof_sqlite.databases import LooseTable
from timeline.sources.source import ReadRequest, Source

VERSIONS = ("msprof-sqlite", "msprof-sqlite-numbered", "msprof-sqlite-launched")
RUN: dict[str, Any] = {"graphs": (1, 3), "planes": 3}
Rows = Multiset[tuple[Any, ...]]

TASKS = (
    "start_ns end_ns name device stream task batch context graph connection launch_ns op_type "
    "input_shapes output_shapes input_types blocks compute"
)
OPS = "start_ns end_ns group name graph connection launch_ns count data_type algorithm"
PLANES = (
    "start_ns end_ns group plane name graph stream task context source_rank target_rank "
    "size_bytes notify transport link data_type"
)
STEPS = "start_ns end_ns graph iteration fp_start_ns bp_end_ns host"
PARTS = "start_ns end_ns graph iteration kind"


@functools.cache
def read(path: Path) -> dict[int, tuple[Source, Records]]:
    """Every rank below a path, whole."""
    wanted = ReadRequest(DETAIL_LAYERS)
    return {
        source.identity.rank: (source, drop_invalid_rows(source.read(wanted)))
        for source in discover(path).sources
    }


def read_now(path: Path, layers: frozenset[Layer] = DETAIL_LAYERS) -> Records:
    """The first rank below a path, read anew."""
    return drop_invalid_rows(discover(path).sources[0].read(ReadRequest(layers)))


def rows(records: Records, table: str, columns: str, offset_ns: int = 0) -> Rows:
    """The rows of a table as plain values, moved by a constant."""
    held = getattr(records, table)
    if offset_ns:
        held = held.shifted(offset_ns)
    cells = []
    for name in columns.split():
        values = getattr(held, name)
        is_name = values.dtype == np.int32
        cells.append([records.strings[code] for code in values] if is_name else values.tolist())
    return Multiset(zip(*cells, strict=True))


def alter(database: Path, *statements: str) -> None:
    """Change a database of a copied profile."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def device_file(profile: Profile, name: str, rank: int = 0) -> Path:
    return profile.captures[rank] / f"device_{rank}" / "sqlite" / name


def host_file(profile: Profile, name: str, rank: int = 0) -> Path:
    return profile.captures[rank] / "host" / "sqlite" / name


@pytest.fixture
def copied(shelf: ProfileShelf, tmp_path: Path) -> Profile:
    """A profile that the test may change, of one rank and one graph."""
    return shelf.copy("msprof-sqlite", tmp_path / "profile", ranks=1)


# -- against exports of the same run -----------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("table", "columns"),
    [("tasks", TASKS), ("ops", OPS), ("planes", PLANES), ("steps", STEPS), ("parts", PARTS)],
)
def test_a_run_is_the_same_parsed_and_exported(
    shelf: ProfileShelf, version: str, table: str, columns: str
) -> None:
    """On wall time, to the nanosecond, in every version of the tables of HCCL."""
    exported = read(shelf.get("mindstudio", **RUN).path)
    parsed = read(shelf.get(version, **RUN).path)
    assert sorted(parsed) == sorted(exported) == [0, 1]
    for rank, (source, records) in parsed.items():
        assert source.layout == "msprof sqlite"
        offset_ns = source.clock.wall_offset_ns
        assert offset_ns is not None
        same(rows(records, table, columns, offset_ns), rows(exported[rank][1], table, columns))


def test_names_and_types_are_those_of_the_database(shelf: ProfileShelf) -> None:
    """Types come from the host, as in databases; exports to text have those of the device."""
    columns = "start_ns end_ns task_type op_type connection compute"
    exported = read(shelf.get("torch-db", planes=3).path)
    parsed = read(shelf.get("msprof-sqlite", planes=3).path)
    for rank, (source, records) in parsed.items():
        offset_ns = source.clock.wall_offset_ns or 0
        same(rows(records, "tasks", columns, offset_ns), rows(exported[rank][1], "tasks", columns))
        ops = "start_ns end_ns group group_name name count data_type algorithm"
        same(rows(records, "ops", ops, offset_ns), rows(exported[rank][1], "ops", ops))
        host = "start_ns end_ns process thread name connection"
        calls = replace(records, host=records.host.take(layer(records, "CANN")))
        wanted = exported[rank][1]
        wanted = replace(wanted, host=wanted.host.take(layer(wanted, "CANN")))
        same(rows(calls, "host", host, offset_ns), rows(wanted, "host", host))


def layer(records: Records, name: str) -> Any:
    return records.host.layer == records.strings.find(name)


def test_arrows_join_the_same_as_in_the_database(shelf: ProfileShelf) -> None:
    """Each call of CANN with what it launched."""
    found = launches(read(shelf.get("msprof-sqlite", planes=3).path)[1])
    wanted = launches(read(shelf.get("torch-db", planes=3).path)[1])
    same(found, wanted)


def launches(read_rank: tuple[Source, Records]) -> Rows:
    source, records = read_rank
    offset_ns = source.clock.wall_offset_ns or 0
    flows = records.flows
    cann = np.flatnonzero(layer(records, "CANN"))
    kept = flows.take(np.isin(flows.source_row, cann))
    tables = {1: records.tasks, 2: records.ops}
    return Multiset(
        (
            int(records.host.start_ns[source_row]) + offset_ns,
            kind,
            int(tables[kind].start_ns[row]) + offset_ns,
        )
        for source_row, kind, row in zip(
            kept.source_row.tolist(),
            kept.target_kind.tolist(),
            kept.target_row.tolist(),
            strict=True,
        )
    )


# -- against the run itself --------------------------------------------------------------------


def test_counters_are_on_the_clock_of_the_tasks(shelf: ProfileShelf) -> None:
    """Counted, sampled and since the start: three clocks of one device."""
    profile = shelf.get("msprof-sqlite", **RUN)
    for rank in profile.run.ranks:
        records = read(profile.path)[rank.rank][1]
        counter = DeviceCounter(profile.run, rank)
        wanted: dict[tuple[str, str], list[tuple[int, float]]] = {}
        for one in rank.counters:
            name, unit, factor = {
                "HBM": (f"HBM {one.unit} {one.series}", "MB/s", 1 / (1 << 20)),
                "LLC": (f"LLC {one.unit} {one.series}", "MB/s", 1 / (1 << 20)),
                "NPU MEM": (f"{one.series} HBM", "B", 1),
                "AI Core Freq": ("AI Core Freq", "MHz", 1),
            }[one.family]
            if one.series == "Hit Rate":
                unit, factor = "%", 1e-3
            for at_ns, value in one.samples:
                time_ns = profile.run.monotonic_ns(at_ns)
                if one.family == "AI Core Freq":  # whole ticks
                    time_ns -= (time_ns - counter.host_ns) % TICK_NS
                wanted.setdefault((name, unit), []).append((time_ns, value * factor))
        for (name, unit), samples in wanted.items():
            found = series_of(records, name, unit)
            assert [time_ns for time_ns, _ in found] == [time_ns for time_ns, _ in samples]
            assert [value for _, value in found] == pytest.approx([value for _, value in samples])


def series_of(records: Records, name: str, unit: str) -> list[tuple[int, float]]:
    text = records.strings
    (row,) = (
        row
        for row in range(len(records.series))
        if (text[records.series.name[row]], text[records.series.unit[row]]) == (name, unit)
    )
    here = records.samples.take(records.samples.series == row)
    return sorted(zip(here.time_ns.tolist(), here.value.tolist(), strict=True))


# -- finding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("richer", ["mindstudio", "mindspore-2.1"])
def test_an_export_wins_over_what_was_parsed(
    shelf: ProfileShelf, tmp_path: Path, richer: str
) -> None:
    exported = shelf.copy(richer, tmp_path / "profile", ranks=1)
    parsed = shelf.get("msprof-sqlite", ranks=1)
    for name in ("device_0", "host"):
        target = exported.captures[0] / name / "sqlite"
        shutil.copytree(parsed.captures[0] / name / "sqlite", target)
    (source,) = discover(exported.path).sources
    assert source.layout != "msprof sqlite"


def test_a_database_that_was_exported_wins(copied: Profile) -> None:
    database = copied.captures[0] / "msprof_20250109120100.db"
    alter(
        database,
        "CREATE TABLE RANK_DEVICE_MAP (rankId INTEGER, deviceId INTEGER)",
        "INSERT INTO RANK_DEVICE_MAP VALUES (0, 0)",
    )
    (source,) = discover(copied.path).sources
    assert source.layout == "database"


def test_what_was_parsed_wins_over_raw_data(copied: Profile) -> None:
    """Raw data lies beside every parsed capture."""
    data = copied.captures[0] / "device_0" / "data"
    data.mkdir()
    (data / "stars_soc.data.0.slice_0").write_bytes(bytes(64))
    (source,) = discover(copied.path).sources
    assert source.layout == "msprof sqlite"
    device_file(copied, "ascend_task.db").unlink()
    with pytest.raises(SourceError, match="msprof --export=on"):
        discover(copied.path).sources[0].read(ReadRequest(DETAIL_LAYERS))


@pytest.mark.parametrize(
    "inside", ["", "device_0", "device_0/sqlite", "device_0/sqlite/ascend_task.db"]
)
def test_a_capture_is_found_from_inside(copied: Profile, inside: str) -> None:
    (source,) = discover(copied.captures[0] / inside).sources
    assert (source.layout, source.identity.rank) == ("msprof sqlite", 0)
    assert device_file(copied, "ascend_task.db") in source.files


def test_another_database_is_no_profile(copied: Profile) -> None:
    with pytest.raises(NoProfileError):
        discover(device_file(copied, "hbm.db"))


def test_ranks_of_two_hosts_meet_on_wall_time(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clocks of the hosts count from their starts; start_info relates them."""
    profile = shelf.copy("msprof-sqlite", tmp_path / "profile")
    change_fields(profile.captures[1] / "device_1" / "info.json.1", {"hostname": "other"})
    target = tmp_path / "timeline.pftrace"
    assert main([str(profile.path), "-o", str(target)]) == 0
    processor = TraceProcessor.load(target.read_bytes())
    ((first_ns,),) = processor.rows("SELECT min(ts) FROM slice")
    run = profile.run
    assert first_ns + processor.zero_ns == min(
        run.wall_ns(one.start_ns) for rank in run.ranks for one in rank.iterations
    )


def test_several_devices_of_a_host_stay_apart(shelf: ProfileShelf, tmp_path: Path) -> None:
    """They share the databases of the host, where rows name their device."""
    profile = shelf.copy("msprof-sqlite", tmp_path / "profile", **RUN)
    first, second = profile.captures
    shutil.move(second / "device_1", first / "device_1")
    for name, table in (("ge_info.db", "TaskInfo"), ("api_event.db", "ApiData")):
        other = second / "host" / "sqlite" / name
        alter_joined(first / "host" / "sqlite" / name, other, table)
    shutil.rmtree(second)
    apart = read(shelf.get("msprof-sqlite", **RUN).path)
    for source in discover(profile.path).sources:
        records = drop_invalid_rows(source.read(ReadRequest(DETAIL_LAYERS)))
        wanted = apart[source.identity.rank][1]
        columns = TASKS.replace("launch_ns ", "")  # connections repeat in this made-up host
        same(rows(records, "tasks", columns), rows(wanted, "tasks", columns))


def alter_joined(database: Path, other: Path, table: str) -> None:
    """Add the rows of a table of another database."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("ATTACH ? AS other", (str(other),))
        connection.execute(f"INSERT INTO {table} SELECT * FROM other.{table}")
        connection.commit()


# -- versions ----------------------------------------------------------------------------------


def test_steps_without_marks_come_from_the_step_trace(copied: Profile) -> None:
    """Where trace.db was never made there are spans, but no forward and backward."""
    whole = read_now(copied.path)
    device_file(copied, "trace.db").unlink()
    records = read_now(copied.path)
    columns = "start_ns end_ns graph iteration"
    same(rows(records, "steps", columns), rows(whole, "steps", columns))
    assert set(records.steps.fp_start_ns.tolist()) == {NO_TIME}
    assert not len(records.parts)


def test_reduces_of_older_tables_find_their_step_by_its_end(copied: Profile) -> None:
    whole = read_now(copied.path)
    alter(device_file(copied, "trace.db"), "ALTER TABLE all_reduce DROP COLUMN index_id")
    records = read_now(copied.path)
    columns = "start_ns end_ns graph iteration number kind"
    same(rows(records, "parts", columns), rows(whole, "parts", columns))
    assert (records.parts.kind == StepPart.REDUCE).any()


def test_without_operators_tasks_compute_by_their_type(copied: Profile) -> None:
    whole = read_now(copied.path)
    host_file(copied, "ge_info.db").unlink()
    records = read_now(copied.path)
    columns = "start_ns end_ns stream compute"
    same(rows(records, "tasks", columns), rows(whole, "tasks", columns))
    assert any("no operators" in warning for warning in records.warnings)


def test_kernels_without_operators_are_named_by_the_runtime(copied: Profile) -> None:
    """New versions know the kernel that a task launched, also at level 0."""
    host_file(copied, "ge_info.db").unlink()
    (stream, task, start_ns) = next(computing(copied))
    alter(
        host_file(copied, "runtime.db"),
        "CREATE TABLE HostTask (stream_id INTEGER, task_id INTEGER, batch_id INTEGER,"
        " device_id INTEGER, kernel_name TEXT)",
        f"INSERT INTO HostTask VALUES ({stream}, {task}, 0, 0, 'MatMul_kernel')",
        f"INSERT INTO HostTask VALUES ({stream}, {task}, 0, 7, 'of another device')",
    )
    records = read_now(copied.path)
    names = {
        records.strings[records.tasks.name[row]]
        for row in np.flatnonzero(records.tasks.start_ns == start_ns)
    }
    assert "MatMul_kernel" in names


def computing(profile: Profile) -> Iterator[tuple[int, int, int]]:
    for one in profile.run.ranks[0].iterations:
        for task, _ in one.kernels:
            yield task.stream, task.task_id, profile.run.monotonic_ns(task.start_ns)


def test_types_that_are_numbers_are_named(copied: Profile) -> None:
    """The device gives some types as the numbers of its queue entries."""
    alter(
        device_file(copied, "ascend_task.db"),
        "UPDATE AscendTask SET host_task_type = 'UNKNOWN', device_task_type = '7'"
        " WHERE device_task_type = 'Notify Wait'",
        "UPDATE AscendTask SET host_task_type = 'UNKNOWN', device_task_type = '99'"
        " WHERE device_task_type = 'SDMA'",
    )
    records = read_now(copied.path)
    names = {records.strings[code] for code in records.tasks.name}
    assert {"NOTIFY_WAIT_SQE", "Task type 99"} <= names


def test_a_graph_that_is_loaded_once_runs_its_collectives_again(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """Its tasks have the same ids in every iteration; the host launched them once."""
    profile = shelf.copy("msprof-sqlite-launched", tmp_path / "profile", ranks=1)
    once = read_now(profile.path)
    later_ns = 10**9
    columns = "model_id, index_id, stream_id, task_id, context_id, batch_id"
    alter(
        device_file(profile, "ascend_task.db"),
        f"INSERT INTO AscendTask SELECT {columns}, start_time + {later_ns}, duration,"
        " host_task_type, device_task_type, connection_id FROM AscendTask",
    )
    twice = read_now(profile.path)
    for table, names in (("ops", "start_ns end_ns name group"), ("planes", "start_ns end_ns op")):
        wanted = rows(once, table, names) + rows(once, table, names, later_ns)
        same(rows(twice, table, names), wanted)


@pytest.mark.parametrize("version", ["msprof-sqlite", "msprof-sqlite-numbered"])
def test_communication_inside_operators_is_read(
    shelf: ProfileShelf, tmp_path: Path, version: str
) -> None:
    """Kernels that communicate have tables of their own, which repeat some ops of the others."""
    profile = shelf.copy(version, tmp_path / "profile", ranks=1)
    whole = read_now(profile.path)
    start_ns = int(whole.ops.end_ns.max()) + 1000
    newer = version.endswith("numbered")
    span = "start NUMERIC, end NUMERIC" if newer else "timestamp NUMERIC, duration NUMERIC"
    end = start_ns + 500 if newer else 500
    link = "op_id" if newer else "connection_id"
    alter(
        device_file(profile, "hccl_single_device.db"),
        f"CREATE TABLE KfcOP (op_name TEXT, {span}, group_name TEXT, connection_id INTEGER,"
        " source INTEGER)",
        f"INSERT INTO KfcOP VALUES ('MatmulAllReduce', {start_ns}, {end}, '77', 5001, 1)",
        f"INSERT INTO KfcOP VALUES ('hcom again', {start_ns}, {end}, '77', 946, 0)",
        "CREATE TABLE KfcTask (hccl_name TEXT, timestamp NUMERIC, duration NUMERIC,"
        f" plane_id INTEGER, {link} INTEGER, is_master INTEGER, source INTEGER)",
        f"INSERT INTO KfcTask VALUES ('Memcpy', {start_ns + 20}, 30, 2, 5001, 0, 1)",
    )
    records = read_now(profile.path)
    columns = "start_ns end_ns name group group_name connection"
    launched = (start_ns, start_ns + 500, "MatmulAllReduce", "Group 1", "77", 5001)
    same(rows(records, "ops", columns), rows(whole, "ops", columns) + Multiset([launched]))
    columns = "start_ns end_ns name op group plane"
    own_task = (start_ns + 20, start_ns + 50, "Memcpy", "MatmulAllReduce", "Group 1", 2)
    same(rows(records, "planes", columns), rows(whole, "planes", columns) + Multiset([own_task]))


def test_newer_samples_are_on_wall_time(copied: Profile) -> None:
    """Versions differ in who converts times of samplers; their size tells."""
    whole = read_now(copied.path)
    (source,) = discover(copied.path).sources
    move = (source.clock.wall_offset_ns or 0) + whole_host_ns(copied) - DEVICE_MONOTONIC_NS
    database = device_file(copied, "hbm.db")
    alter(
        database,
        "ALTER TABLE HBMbwData RENAME TO older",
        "CREATE TABLE HBMbwData (timestamp NUMERIC, bandwidth REAL, hbmid INT, event_type TEXT)",
        "INSERT INTO HBMbwData SELECT CAST(timestamp AS INTEGER) + "
        f"{move}, bandwidth, hbmid, event_type FROM older",
    )
    records = read_now(copied.path)
    for name in ("HBM 0 Read", "HBM 1 Write"):
        assert series_of(records, name, "MB/s") == series_of(whole, name, "MB/s")


def whole_host_ns(profile: Profile) -> int:
    return DeviceCounter(profile.run, profile.run.ranks[0]).host_ns


def test_a_host_that_counts_is_converted(copied: Profile) -> None:
    """Hosts whose processor counts at another rate than 1000 MHz write counts, not ns."""
    whole = read_now(copied.path)
    zero_ns = whole_host_ns(copied)
    change_fields(copied.captures[0] / "host" / "info.json", {"CPU": [{"Frequency": "100.0"}]})
    log = "[Host]\r\nclock_monotonic_raw = {}\r\ncntvct = 5000\r\ncntvct_diff = 0\r\n"
    (copied.captures[0] / "host" / "host_start.log").write_text(log.format(zero_ns), newline="")
    alter(
        host_file(copied, "api_event.db"),
        f"UPDATE ApiData SET start = 5000 + (start - {zero_ns}) / 10,"
        f" end = 5000 + (end - {zero_ns}) / 10",
    )
    records = read_now(copied.path)
    found, wanted = (np.sort(one.host.start_ns[layer(one, "CANN")]) for one in (records, whole))
    assert len(found) == len(wanted)
    assert (wanted - found == (wanted - zero_ns) % 10).all()


@pytest.mark.parametrize("layers", [SUMMARY_LAYERS, frozenset({Layer.COMMUNICATION})])
def test_a_summary_reads_what_it_needs(copied: Profile, layers: frozenset[Layer]) -> None:
    """Steps, tasks and ops are the same; host events and counters are not read."""
    whole, part = read_now(copied.path), read_now(copied.path, layers)
    tasks = TASKS.replace("op_type input_shapes output_shapes input_types ", "")
    for table, columns in (("tasks", tasks), ("ops", OPS), ("steps", STEPS)):
        same(rows(part, table, columns), rows(whole, table, columns))
    assert not len(part.host)
    assert not len(part.samples)
    assert bool(len(part.planes)) == (Layer.COMMUNICATION in layers)


# -- broken ------------------------------------------------------------------------------------


def test_tasks_that_never_ran_are_counted(copied: Profile) -> None:
    whole = read_now(copied.path)
    alter(
        device_file(copied, "ascend_task.db"),
        "INSERT INTO AscendTask VALUES (1, -1, 2, 60000, 4294967295, 0, -1, -1,"
        " 'KERNEL_AICORE', 'UNKNOWN', 5)",
    )
    records = read_now(copied.path)
    same(rows(records, "tasks", TASKS), rows(whole, "tasks", TASKS))
    reasons = {one.reason: (one.rows, one.loss) for one in records.omissions}
    assert reasons["tasks that were launched and of which the device recorded nothing"] == (1, True)


def test_ops_and_transfers_that_never_ran_are_counted(shelf: ProfileShelf, tmp_path: Path) -> None:
    """The host launched them; the device recorded no task of theirs."""
    profile = shelf.copy("msprof-sqlite-launched", tmp_path / "profile", ranks=1)
    whole = read_now(profile.path)
    stream = "SELECT max(stream_id) FROM HCCLTask"
    alter(
        host_file(profile, "hccl.db"),
        f"UPDATE HCCLTask SET stream_id = ({stream}) + 1 WHERE timestamp >"
        " (SELECT max(begin) FROM HCCLOP)",
    )
    records = read_now(profile.path)
    assert len(records.ops) == len(whole.ops) - 1
    lost = {one.reason: (one.rows, one.loss) for one in records.omissions}
    gone = len(whole.planes) - len(records.planes)
    assert lost["HCCL tasks whose device task is not in the profile"] == (gone, True)
    assert lost["communication ops of which nothing tells when they ran"] == (1, True)


@pytest.mark.parametrize("column", ["batch_id", "context_id", "model_id", "connection_id"])
def test_a_column_may_be_missing(copied: Profile, column: str) -> None:
    """Tasks keep their times and names; ids that are not there are not known."""
    whole = read_now(copied.path)
    alter(device_file(copied, "ascend_task.db"), f"ALTER TABLE AscendTask DROP COLUMN {column}")
    records = read_now(copied.path)
    parents = 0 if column != "context_id" else 1
    extra = len(records.tasks) - len(whole.tasks)
    assert bool(extra) == bool(parents)  # without contexts nothing tells parents from sub-tasks
    found = rows(records, "tasks", "start_ns end_ns stream task")
    assert not rows(whole, "tasks", "start_ns end_ns stream task") - found


def test_tables_without_their_times_are_an_error(copied: Profile) -> None:
    alter(
        device_file(copied, "ascend_task.db"), "ALTER TABLE AscendTask RENAME COLUMN duration TO d"
    )
    with pytest.raises(SourceError, match="start_time and duration"):
        read_now(copied.path)


@pytest.mark.parametrize("content", [b"", b"no database at all, but long enough to be asked" * 9])
def test_a_broken_database_of_tasks_is_an_error(copied: Profile, content: bytes) -> None:
    database = device_file(copied, "ascend_task.db")
    database.write_bytes(content)
    with pytest.raises(SourceError, match=r"ascend_task\.db"):
        read_now(copied.path)


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("host/sqlite/api_event.db", "host"),
        ("device_0/sqlite/hccl_single_device.db", "ops"),
        ("device_0/sqlite/trace.db", "steps"),
        ("device_0/sqlite/llc.db", "samples"),
    ],
)
def test_a_broken_database_costs_its_part_alone(copied: Profile, name: str, lost: str) -> None:
    """The rest is read, and the report says what is missing."""
    (copied.captures[0] / name).write_bytes(b"\xff" * 5000)
    records = read_now(copied.path)
    tables = {"tasks", "ops", "steps", "samples"} - {lost}
    assert all(len(getattr(records, table)) for table in tables)
    assert len(getattr(records, lost)) in (0, 3)  # marks are host events too
    file = Path(name).name
    assert any(file in one.reason and one.loss for one in records.omissions)
    assert any(file in warning for warning in records.warnings)


def test_cells_of_another_kind_are_counted_and_the_rest_is_read(copied: Profile) -> None:
    """Ids beyond 64 bits, text in place of numbers, bytes that are not UTF-8."""
    whole = read_now(copied.path)
    tasks = device_file(copied, "ascend_task.db")
    alter(
        tasks,
        "UPDATE AscendTask SET connection_id = '18446744073709551615' WHERE rowid = 5",
        "UPDATE AscendTask SET model_id = 'N/A' WHERE rowid = 6",
        "UPDATE AscendTask SET start_time = 'soon' WHERE rowid ="
        " (SELECT max(rowid) FROM AscendTask WHERE host_task_type = 'EVENT_RECORD')",
        "UPDATE AscendTask SET host_task_type = CAST(x'ff41' AS TEXT), device_task_type = NULL"
        " WHERE rowid = 1",
    )
    records = read_now(copied.path)
    assert len(records.tasks) == len(whole.tasks) - 1
    lost = {one.reason: one.rows for one in records.omissions if one.loss}
    assert lost["ascend_task.db: cells of AscendTask.connection_id that hold no number"] == 1
    assert lost["ascend_task.db: cells of AscendTask.start_time that hold no number"] == 1
    assert not any("model_id" in one for one in lost)
    assert any(one.reason == "device tasks without a valid time" for one in records.omissions)
    assert "\ufffdA" in {records.strings[code] for code in records.tasks.name}


def test_an_overwritten_page_gives_no_task_that_never_was(copied: Profile) -> None:
    """Wherever in a page zeros begin, its tasks are those that ran, and the others are counted."""
    whole = rows(read_now(copied.path), "tasks", "start_ns end_ns stream task")
    path = device_file(copied, "ascend_task.db")
    data = path.read_bytes()
    page_bytes = int.from_bytes(data[16:18], "big")
    page = data[2 * page_bytes : 3 * page_bytes]
    for kept in range(50, page_bytes, 307):
        overwritten = page[:kept] + bytes(page_bytes - kept)
        path.write_bytes(data.replace(page, overwritten))
        records = read_now(copied.path)
        found = rows(records, "tasks", "start_ns end_ns stream task")
        assert not found - whole
        assert (
            found.total() + sum(one.rows for one in records.omissions if one.loss) >= whole.total()
        )


@pytest.mark.parametrize("name", ["dev_start.log.0", "host_start.log.0", "info.json.0"])
def test_without_its_counter_the_device_has_no_steps(copied: Profile, name: str) -> None:
    """Tasks are in ns; what the device counted is not, and says so."""
    path = copied.captures[0] / "device_0" / name
    if name == "info.json.0":
        change_fields(path, {"DeviceInfo": []})
    else:
        path.write_bytes(b"\xef\xbb\xbfnot: what it was\r\n\xff\xfe")
    records = read_now(copied.path)
    assert len(records.tasks)
    assert not len(records.parts)
    lost = [one for one in records.omissions if one.reason.startswith("steps and their parts")]
    assert [(one.rows > 0, one.loss) for one in lost] == [(True, True)]


def test_empty_tables_are_an_empty_profile(copied: Profile) -> None:
    for directory in ("device_0", "host"):
        for database in (copied.captures[0] / directory / "sqlite").glob("*.db"):
            with closing(sqlite3.connect(database)) as connection:
                names = connection.execute("SELECT name FROM sqlite_master").fetchall()
            alter(database, *(f"DELETE FROM {name}" for (name,) in names))
    records = read_now(copied.path)
    for table in ("tasks", "ops", "planes", "steps", "parts", "host", "samples"):
        assert not len(getattr(records, table))


# -- invariants --------------------------------------------------------------------------------


CELLS = st.one_of(
    st.none(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.text(max_size=24),
    st.binary(max_size=8),
    st.integers().map(str),
)


@settings(max_examples=at_most(40))
@given(st.lists(CELLS, max_size=20), st.sampled_from(["INTEGER", "REAL", "TEXT", "NUMERIC", ""]))
def test_cells_may_hold_anything(
    tmp_path_factory: pytest.TempPathFactory, cells: list[Any], kind: str
) -> None:
    """Every cell is read, by default, or counted; none ends the reading."""
    path = tmp_path_factory.mktemp("cells") / "cells.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE cells (own {kind})")
        connection.executemany("INSERT INTO cells VALUES (?)", [(cell,) for cell in cells])
        held = [value for (value,) in connection.execute("SELECT own FROM cells")]
    with open_database(path) as database:
        table = LooseTable(database, "cells")
        integers = table.integers({"own": NO_ID, "absent": 7})
        reals, texts = table.reals(("own", "absent")), table.codes(("own",), StringPool())
    assert integers["absent"].tolist() == [7] * len(cells)
    assert set(reals) == {"own"}
    assert len(texts["own"]) == len(cells)
    for value, found in zip(held, integers["own"].tolist(), strict=True):
        if isinstance(value, int):
            assert found == value
    numbers = [value for value in held if isinstance(value, int)]
    assert table.unreadable.get("own", 0) <= len(cells) - len(numbers)
