"""Proves that databases of every version and level say what they hold, and nothing besides.

Versions are made of a database as written today, by what each of them spells otherwise.
"""

from __future__ import annotations

import sqlite3
from collections import Counter as Multiset
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.expected_picture import Shown
from tests.support.loaded_picture import LoadedPicture
from tests.support.perfetto_sql import TraceProcessor
from tests.support.places import DATA, needs_captures
from tests.support.profile_shelf import Profile, ProfileShelf
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.commands.export import export
from timeline.layers import Layer
from timeline.options import Args
from timeline.records.tables import Records
from timeline.reports.export_report import ExportReport
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS, Kind
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest

pytestmark = pytest.mark.sweep

NO_UINT32 = 4_294_967_295
EDGES = ("start_ns", "end_ns")
Change = Callable[[sqlite3.Connection], object]


def string_id(database: sqlite3.Connection, text: str) -> int:
    """The id of a string, which is added where it is not there."""
    found = database.execute("SELECT id FROM STRING_IDS WHERE value = ?", (text,)).fetchone()
    if found is not None:
        return int(found[0])
    ((last,),) = database.execute("SELECT MAX(id) FROM STRING_IDS")
    database.execute("INSERT INTO STRING_IDS VALUES (?, ?)", (last + 1, text))
    return int(last) + 1


def to_lowest_level(database: sqlite3.Connection) -> None:
    """As level 0 leaves it: types, shapes, planes, peers and kinds of HCCL tasks are not known."""
    none = string_id(database, "N/A")
    database.execute(
        "UPDATE COMPUTE_TASK_INFO SET taskType = ?1, opType = ?1, inputShapes = ?1, "
        "outputShapes = ?1, inputDataTypes = ?1",
        (none,),
    )
    database.execute(
        "UPDATE COMMUNICATION_TASK_INFO SET taskType = ?1, planeId = ?2, srcRank = ?2, "
        "dstRank = ?2, size = -1, transportType = 65534, dataType = 65534, linkType = 65535, "
        "notifyId = 9223372036854775807",
        (none, NO_UINT32),
    )


def to_early_2024(database: sqlite3.Connection) -> None:
    """As it was before CANN_API: calls in API, and no communication ops."""
    database.execute("ALTER TABLE CANN_API RENAME TO API")
    database.execute("ALTER TABLE API RENAME COLUMN type TO level")
    database.execute("ALTER TABLE ENUM_API_TYPE RENAME TO ENUM_API_LEVEL")
    database.execute("DELETE FROM COMMUNICATION_OP")


def changed(shelf: ProfileShelf, path: Path, *changes: Change, ranks: int = 2) -> Profile:
    """A profile of which each database was changed."""
    profile = shelf.copy("torch-db", path, ranks=ranks)
    for file in profile.path.rglob("ascend_pytorch_profiler_*.db"):
        with closing(sqlite3.connect(file)) as database, database:
            for change in changes:
                change(database)
    return profile


def drawn(path: Path, target: Path) -> tuple[ExportReport, list[Shown]]:
    """The report of a detail with every arg, and its slices."""
    report = export(path, target, kind="detail", args=Args.ALL, align="recorded")
    processor = TraceProcessor.load(target.read_bytes())
    assert processor.import_errors() == []
    loaded = LoadedPicture(processor, is_json=".json" in target.suffixes)
    return report, list(loaded.by_id.values())


def records_of(path: Path, layers: frozenset[Layer] = DETAIL_LAYERS) -> Records:
    """What is read of rank 0."""
    first = min(discover(path).sources, key=lambda one: one.identity.rank)
    return drop_invalid_rows(first.read(ReadRequest(layers)))


def texts(records: Records, table: str, column: str) -> list[str]:
    """What a column of codes spells, row by row."""
    return [records.strings[code] for code in getattr(getattr(records, table), column).tolist()]


def spelled(slices: list[Shown]) -> set[object]:
    """Every name, row and arg of slices."""
    return {
        value
        for one in slices
        for value in (one.name, one.row, *(each for arg in one.args for each in arg))
    }


def test_hccl_tasks_of_which_little_is_known_are_drawn(shelf: ProfileShelf, tmp_path: Path) -> None:
    """They are named as their device tasks, on one row below their group, without invented ids."""
    profile = changed(shelf, tmp_path / "run", to_lowest_level)
    whole, before = drawn(shelf.get("torch-db").path, tmp_path / "before.pftrace")
    report, after = drawn(profile.path, tmp_path / "after.pftrace")
    planes = [one for one in after if "Plane" in one.row]
    assert {one.row.rpartition("Plane")[2] for one in planes} == {" not given"}
    assert len(planes) == sum("Plane" in one.row for one in before) > 0
    hardware = {(one.rank, one.start_ns): one.name for one in after if "Hardware" in one.layer}
    assert all(one.name == hardware[one.rank, one.start_ns] for one in planes)
    assert all(one.name for one in after)
    values = spelled(after)
    assert not values & {"N/A", "INVALID_TYPE", NO_UINT32, -1, str(2**63 - 1), 65_535, 65_534}
    assert not values & {"src_rank", "dst_rank", "link_type", "notify_id", "transport_type"}
    # Who was waited for is not known then.
    assert not any(one.row == "Waiting" for one in after)
    assert len(after) == sum(one.row != "Waiting" for one in before)
    rows, whole_rows = (
        [row | {"late_ns": None} for row in one.figures.in_json()["overlap"]]
        for one in (report, whole)
    )
    assert rows == whole_rows


def test_hccl_tasks_that_msprof_did_not_export_are_named_alike(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """The databases that msprof parses a capture into hold the same texts for none."""
    profile = shelf.copy("msprof-sqlite", tmp_path / "run")
    for file in profile.path.rglob("hccl_single_device.db"):
        with closing(sqlite3.connect(file)) as database, database:
            database.execute(
                "UPDATE HCCLTaskSingleDevice SET hccl_name = 'N/A', plane_id = ?1, "
                "local_rank = ?1, remote_rank = ?1, link_type = 'INVALID_TYPE', size = -1, "
                "transport_type = 'N/A', data_type = 'N/A', notify_id = '18446744073709551615'",
                (NO_UINT32,),
            )
    _, slices = drawn(profile.path, tmp_path / "timeline.pftrace")
    planes = [one for one in slices if "Plane" in one.row]
    assert planes
    assert {one.row.rpartition("Plane")[2] for one in planes} == {" not given"}
    assert all(one.name for one in slices)
    values = spelled(slices)
    assert not values & {"N/A", "INVALID_TYPE", NO_UINT32, "18446744073709551615", "src_rank"}


@pytest.mark.parametrize("kind", Kind)
def test_types_that_stand_for_none_are_told_by_names(
    shelf: ProfileShelf, tmp_path: Path, kind: Kind
) -> None:
    """Also where no name is drawn; what ran an operator is its device task's type then."""
    profile = changed(shelf, tmp_path / "run", to_lowest_level)

    def types(path: Path) -> Multiset[str]:
        report = export(path, tmp_path / "timeline.pftrace", kind=kind, force=True)
        found: Multiset[str] = Multiset()
        for operator in report.to_dict()["verdict"]["operators"]:
            assert operator["core"] not in ("", "N/A")
            found[operator["type"]] += operator["count"]
        return found

    assert types(profile.path) == types(shelf.get("torch-db").path)


def test_a_database_without_communication_ops_has_those_of_its_tasks(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """An op runs from the first to the last of its HCCL tasks then, which a warning says."""
    profile = changed(shelf, tmp_path / "run", to_early_2024)
    made, listed = (records_of(path) for path in (profile.path, shelf.get("torch-db").path))
    assert (len(made.ops), len(made.host)) == (len(listed.ops), len(listed.host))
    for column in ("ops", "name"), ("host", "level"), ("host", "name"):
        ours, theirs = (texts(one, *column) for one in (made, listed))
        assert ours == theirs
    columns = [one.ops for one in (made, listed)]
    spans = zip(*(getattr(ops, edge).tolist() for ops in columns for edge in EDGES), strict=True)
    for start_ns, end_ns, first_ns, last_ns in spans:
        inside = (made.planes.start_ns >= first_ns) & (made.planes.end_ns <= last_ns)
        assert start_ns == made.planes.start_ns[inside].min()
        assert end_ns == made.planes.end_ns[inside].max()
    assert (made.ops.connection == listed.ops.connection).all()
    assert any("lists no communication ops" in warning for warning in made.warnings)
    assert not any("lists no communication ops" in warning for warning in listed.warnings)


def test_an_enqueue_may_name_what_it_enqueues(shelf: ProfileShelf, tmp_path: Path) -> None:
    """As a dequeue does; each leads to its dequeue."""

    def rename(database: sqlite3.Connection) -> None:
        database.execute("UPDATE STRING_IDS SET value = 'Enqueue@aclnnAdd' WHERE value = 'Enqueue'")

    profile = changed(shelf, tmp_path / "run", rename, ranks=1)
    new, old = (records_of(path) for path in (profile.path, shelf.get("torch-db").path))
    queued = [
        (one.flows.category == one.strings.code("async_task_queue")).sum() for one in (new, old)
    ]
    assert queued[0] == queued[1] > 0


def to_6_0_rc1(database: sqlite3.Connection) -> None:
    """As torch_npu 6.0.rc1 left it: another name of the ops, and columns in snake_case."""
    database.execute("ALTER TABLE COMMUNICATION_OP RENAME TO COMMUNICATE_OP")
    database.execute(
        "CREATE TABLE MEMORY_RECORD (component INTEGER, timestamp INTEGER, total_allocated "
        "INTEGER, total_reserved INTEGER, total_active INTEGER, stream_ptr INTEGER, "
        "device_id INTEGER)"
    )
    component = string_id(database, "PTA")
    ((start_ns,),) = database.execute("SELECT MIN(startNs) FROM TASK")
    rows = [(component, start_ns + at, at, 2 * at, at, 0, 0) for at in (1000, 2000)]
    database.executemany("INSERT INTO MEMORY_RECORD VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    for column in ("startNs", "endNs", "opName", "groupName", "connectionId"):
        snake = "".join(f"_{one.lower()}" if one.isupper() else one for one in column)
        database.execute(f"ALTER TABLE COMMUNICATE_OP RENAME COLUMN {column} TO {snake}")


def test_older_names_of_tables_and_columns(shelf: ProfileShelf, tmp_path: Path) -> None:
    """COMMUNICATE_OP is COMMUNICATION_OP, and columns are found in snake_case as well."""
    profile = changed(shelf, tmp_path / "run", to_6_0_rc1)
    old, new = (records_of(path) for path in (profile.path, shelf.get("torch-db").path))
    assert len(old.ops) == len(new.ops) > 0
    for column in ("start_ns", "end_ns", "connection", "count"):
        assert (getattr(old.ops, column) == getattr(new.ops, column)).all()
    assert texts(old, "ops", "name") == texts(new, "ops", "name")
    names = texts(old, "series", "name")
    assert {"PTA Allocated", "PTA Reserved", "PTA Active"} <= set(names)
    assert not old.warnings
    assert [one.reason for one in old.omissions] == [one.reason for one in new.omissions]


@pytest.mark.parametrize("table", ["MEMORY_RECORD", "OP_MEMORY", "HBM", "STRING_IDS"])
def test_tables_without_their_columns_are_counted(
    shelf: ProfileShelf, tmp_path: Path, table: str
) -> None:
    """What such a table holds is a loss, which names the table and the columns that it has."""

    def renew(database: sqlite3.Connection) -> None:
        database.execute(f"DROP TABLE IF EXISTS {table}")
        database.execute(f"CREATE TABLE {table} (moment INTEGER, amount INTEGER)")
        database.executemany(f"INSERT INTO {table} VALUES (?, ?)", [(1, 2), (3, 4)])

    profile = changed(shelf, tmp_path / "run", renew, ranks=1)
    found = [one for one in records_of(profile.path).omissions if f"rows of {table}" in one.reason]
    ((loss),) = found
    assert (loss.rows, loss.loss) == (2, True)
    assert "found moment, amount" in loss.reason


@needs_captures
def test_a_real_database_of_the_lowest_level(tmp_path: Path) -> None:
    """Its 296 HCCL tasks a rank have no plane, no peer and no kind; the device tasks have types."""
    report, slices = drawn(DATA / "torch-npu-db-level0", tmp_path / "timeline.pftrace")
    planes = [one for one in slices if "Plane" in one.row]
    assert Multiset(one.name for one in planes if one.rank == 0) == Multiset(
        {"Write Value": 112, "Notify Wait": 112, "SDMA": 72}
    )
    assert {operator["type"] for operator in report.to_dict()["verdict"]["operators"]} >= {
        "ForeachAddList"
    }
    assert "N/A" not in spelled(slices)


@pytest.mark.parametrize("layers", [DETAIL_LAYERS, SUMMARY_LAYERS])
@pytest.mark.parametrize("kind", ["COMMUNICATION", "AI_VECTOR_CORE"])
def test_kernels_of_communication_do_not_compute(
    shelf: ProfileShelf, tmp_path: Path, layers: frozenset[Layer], kind: str
) -> None:
    """Collectives on vector cores have rows among the operators, and are none."""

    def expand(database: sqlite3.Connection) -> None:
        name, core = string_id(database, "hcom_allReduce_AivKernel"), string_id(database, kind)
        database.execute(
            "UPDATE COMPUTE_TASK_INFO SET name = ?, taskType = ? WHERE globalTaskId = "
            "(SELECT MIN(globalTaskId) FROM COMPUTE_TASK_INFO)",
            (name, core),
        )

    whole = records_of(shelf.get("torch-db").path, layers)
    found = records_of(changed(shelf, tmp_path / "run", expand).path, layers)
    assert len(found.tasks) == len(whole.tasks)
    assert found.tasks.compute.sum() == whole.tasks.compute.sum() - 1


@pytest.mark.parametrize("in_bytes", [True, False])
def test_bandwidths_are_gigabytes(shelf: ProfileShelf, tmp_path: Path, in_bytes: bool) -> None:
    """msprof wrote GB/s, and writes bytes a second since 2025."""

    def write(database: sqlite3.Connection) -> None:
        table = "COMMUNICATION_TASK_INFO"
        if "bandwidth" not in [row[1] for row in database.execute(f"PRAGMA table_info({table})")]:
            database.execute(f"ALTER TABLE {table} ADD COLUMN bandwidth NUMERIC")
        database.execute(f"UPDATE {table} SET bandwidth = ?", (22.5e9 if in_bytes else 22.5,))

    planes = records_of(changed(shelf, tmp_path / "run", write).path).planes
    assert set(planes.bandwidth.tolist()) == {22.5}
