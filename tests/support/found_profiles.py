"""What is found below a path, and profiles as others leave them: joined, or without a rank."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter as Multiset
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from tests.support.profile_shelf import Profile, change_fields
from timeline.analysis.overlap import measure_overlap
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest, Source

_STRING_COLUMNS = {
    "TASK": ("taskType",),
    "COMPUTE_TASK_INFO": ("name", "taskType", "opType", "inputShapes", "outputShapes"),
    "COMMUNICATION_OP": ("opName", "groupName", "algType", "opType"),
    "COMMUNICATION_TASK_INFO": ("name", "taskType", "groupName"),
    "CANN_API": ("name",),
    "HBM": ("type",),
    "STRING_IDS": ("id",),
}
_KEY_COLUMNS = {
    "TASK": ("globalTaskId", "connectionId"),
    "COMPUTE_TASK_INFO": ("globalTaskId",),
    "COMMUNICATION_OP": ("opId", "connectionId"),
    "COMMUNICATION_TASK_INFO": ("globalTaskId", "opId"),
    "CANN_API": ("connectionId",),
    "RANK_DEVICE_MAP": (),
}


def ranks_of(path: Path, assigned: dict[str, int] | None = None) -> list[int]:
    return [source.identity.rank for source in discover(path, assigned).sources]


def captures_of(path: Path) -> list[Path]:
    return [source.identity.directory.resolve() for source in discover(path).sources]


def read(source: Source) -> Records:
    return source.read(ReadRequest(DETAIL_LAYERS))


def overlap_ns(records: Records) -> dict[str, int]:
    return measure_overlap(records.tasks, records.ops).totals_ns()


def same(found: Iterable[object], wanted: Iterable[object]) -> None:
    """Both hold the same things equally often, and something at all."""
    have, want = Multiset(found), Multiset(wanted)
    assert want
    assert list((have - want).items())[:5] == list((want - have).items())[:5]
    assert have == want


def only(directory: Path, pattern: str) -> Path:
    """The one file below a directory that a pattern fits."""
    (found,) = sorted(directory.rglob(pattern))
    return found


def without_rank(profile: Profile, number: int) -> Path:
    """The capture of a rank with -1, "unknown", in every place that tells the rank."""
    capture = profile.captures[number]
    for path in [*capture.glob("device_*/info.json.?"), *capture.glob("host/info.json")]:
        change_fields(path, {"rank_id": -1})
    for path in capture.glob("profiler_info_*.json"):
        change_fields(path, {"rank_id": -1})
        path.rename(capture / "profiler_info.json")
    for path in capture.rglob("ascend_pytorch_profiler_*.db"):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE RANK_DEVICE_MAP SET rankId = -1")
        path.rename(path.with_name("ascend_pytorch_profiler.db"))
    return capture


def join_databases(profile: Profile, target: Path) -> None:
    """Write one database of both ranks, as msprof does for a process that drives two devices."""
    paths = [only(capture, "ascend_pytorch_profiler_*.db") for capture in profile.captures]
    shutil.copyfile(paths[0], target)
    with closing(sqlite3.connect(target)) as connection, connection:
        connection.execute("ATTACH ? AS other", (str(paths[1]),))
        for table in ("STEP_TIME", "PYTORCH_API", "CONNECTION_IDS"):
            connection.execute(f"DROP TABLE {table}")
        for table in _STRING_COLUMNS.keys() | _KEY_COLUMNS.keys():
            info = connection.execute(f"PRAGMA other.table_info({table})").fetchall()
            shift = dict.fromkeys(_STRING_COLUMNS.get(table, ()), 1_000_000)
            shift |= dict.fromkeys(_KEY_COLUMNS.get(table, ()), 10_000)
            columns = ", ".join(f'"{row[1]}" + {shift.get(row[1], 0)}' for row in info)
            if table == "STRING_IDS":
                columns = "id + 1000000, value"
            connection.execute(f"INSERT INTO {table} SELECT {columns} FROM other.{table}")
    connection.close()
