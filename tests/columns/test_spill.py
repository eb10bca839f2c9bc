"""Proves that columns may lie in memory or in files, and that an export is the same either way."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.profile_shelf import Copier, ProfileShelf
from timeline.analysis.selected_rank import DrawOptions
from timeline.columns import chunks, spill
from timeline.columns.chunks import ColumnBuilder, compute_in_chunks
from timeline.columns.columns import concat_columns
from timeline.columns.constant import is_constant
from timeline.columns.spill import SpillFiles, drop_pages, spillable
from timeline.commands.export import export
from timeline.errors import OutputError
from timeline.layers import Layer
from timeline.ranks.rank_work import RankRequest, draw_rank_from_source
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS, Selection
from timeline.sources.decoders.sqlite import Database, open_database
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest
from timeline.tracks.model import element_count

pytestmark = pytest.mark.sweep

LAYOUTS = (
    "torch-db",
    "torch-text",
    "mindspore-2.1",
    "mindstudio",
    "raw",
    "msprof-sqlite",
    "kineto",
    "mindspore-text",
    "mindspore-raw",
)
MOST_BYTES_A_SLICE = 70
"""What memory may hold of a slice while it is worked on: half of what its columns take."""


@pytest.fixture
def all_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has no room for any column, and work is done a few rows at a time."""
    monkeypatch.setattr(spill, "MEMORY_BYTES", 0)
    monkeypatch.setattr(spill, "LEAST_SPILLED_BYTES", 1)
    monkeypatch.setattr(spill, "FILE_BYTES", 1 << 16)
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 50)
    monkeypatch.setattr(chunks, "WRITE_BYTES", 400)


def in_a_file(values: npt.NDArray[Any]) -> bool:
    """Whether a column lies in a file: only such are read-only and own no memory."""
    return not values.flags.writeable and not values.flags.owndata


# -- columns -----------------------------------------------------------------------------------


def test_parts_of_a_long_column_are_not_joined_in_memory_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spill, "MEMORY_BYTES", 0)
    parts = [np.arange(1 << 19) + number for number in range(4)]
    tracemalloc.start()
    joined = concat_columns(parts)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert in_a_file(joined)
    assert (joined == np.concatenate(parts)).all()
    assert peak_bytes < joined.nbytes / 4


NUMBERS = st.integers(-(2**31), 2**31 - 1)
BLOCKS = st.lists(NUMBERS, max_size=40) | st.builds(lambda count: [7] * count, st.integers(0, 90))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    blocks=st.lists(BLOCKS, max_size=20),
    dtype=st.sampled_from([np.int64, np.int32, np.float64]),
    spare=st.integers(0, 900),
)
def test_a_column_is_what_was_added_to_its_builder(
    all_in_files: None, blocks: list[list[int]], dtype: Any, spare: int
) -> None:
    every = [value for block in blocks for value in block]
    builder = ColumnBuilder(len(every) + spare, dtype)
    for block in blocks:
        builder.add(np.array(block, dtype))
    column = builder.build()
    drop_pages()
    assert column.dtype == dtype
    assert column.tolist() == every
    assert in_a_file(column) if len(set(every)) > 1 else is_constant(column)


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_a_column_of_one_value_takes_no_room(value: float) -> None:
    builder = ColumnBuilder(1 << 20, np.float64)
    for _ in range(16):
        builder.add(np.full(1 << 16, value))
    column = builder.build()
    assert is_constant(column)
    np.testing.assert_array_equal(column, np.full(1 << 20, value))


def test_zeros_of_either_sign_are_not_one_value() -> None:
    builder = ColumnBuilder(4, np.float64)
    builder.add(np.array([0.0, 0.0]))
    builder.add(np.array([-0.0, 0.0]))
    assert np.signbit(builder.build()).tolist() == [False, False, True, False]


@pytest.mark.usefixtures("all_in_files")
def test_parts_make_the_whole_column() -> None:
    values = np.arange(1234) * 7
    made = compute_in_chunks(np.int64, lambda some: some + 1, values)
    assert (made == values + 1).all()
    assert spillable(made) is made, "what is in a file already stays where it is"


def test_only_what_memory_has_no_room_for_goes_to_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "MEMORY_BYTES", spill._in_memory._bytes + (1 << 20))
    columns = [spillable(np.arange(1 << 16) + at) for at in range(4)]
    assert [in_a_file(column) for column in columns] == [False, False, True, True]
    assert [int(column[0]) for column in columns] == [0, 1, 2, 3]
    assert spillable(columns[0]) is columns[0], "a column is counted once"
    assert not in_a_file(spillable(np.zeros(8))), "small columns stay in memory"
    columns.pop(0)
    assert not in_a_file(spillable(np.arange(1 << 16))), "there is room again"


def test_columns_stay_in_memory_where_no_file_can_be_had(
    all_in_files: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(spill, "_files", SpillFiles())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    values = spillable(np.arange(100))
    assert not in_a_file(values)
    assert values.tolist() == list(range(100))


def test_a_file_that_cannot_be_written_any_more_is_an_error_that_names_its_directory(
    all_in_files: None,
) -> None:
    extent = SpillFiles().reserve(800)
    assert extent is not None
    extent._file.file.close()
    with Path("/dev/full").open("wb", buffering=0) as full:
        extent._file.file = full
        with pytest.raises(OutputError, match="TMPDIR"):
            extent.write(0, np.arange(100))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.lists(st.integers(0, 30), max_size=4), st.booleans()),
        max_size=60,
    )
)
def test_room_is_used_again_and_never_twice(
    all_in_files: None, turns: list[tuple[int, list[int], bool]]
) -> None:
    """Columns come and go in any order, also while others are filled or only views are left."""
    files = SpillFiles()
    columns: list[tuple[int, npt.NDArray[np.int64]]] = []
    most = 0
    for number, (rows, gone, reserved) in enumerate(turns):
        extent = files.reserve(8 * (rows + 50 * reserved))
        assert extent is not None
        for at in gone:
            if at < len(columns):
                columns.pop(at)
        extent.write(0, np.arange(rows) + number)
        column = extent.column(rows, np.int64)
        columns.append((number, column[rows // 2 :] if number % 2 else column))
        most = max(most, len(columns))
        for first, one in columns:
            at = len(one) - 1
            assert (one == one[-1] - at + np.arange(len(one))).all()
            assert first <= int(one[0]) <= first + 150
    assert len(files._pool._files) <= 1, "all that is held at a time fits into one file"
    columns.clear()
    if turns:
        del one, column, extent
    assert not files._pool._files, "and there is none when nothing is held"


def test_a_gap_is_one_with_those_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "FILE_BYTES", 4096)
    files = SpillFiles()
    kept_open = files.reserve(1024)
    extents = [files.reserve(1024) for _ in range(3)]
    assert files.reserve(64) is not None, "a second file is made where the first is full"
    for at in (0, 2, 1):
        extents[at] = None
    whole = files.reserve(3072)
    assert None not in (kept_open, whole)
    assert len(files._pool._files) == 2, "no third one is needed"
    del kept_open, whole
    assert not files._pool._files


# -- exports -----------------------------------------------------------------------------------


def exported(profile: Path, target: Path, limit: int) -> bytes:
    export(profile, target, kind="detail", limit=limit, force=True)
    return target.read_bytes()


@pytest.mark.parametrize(
    ("layout", "limit"), [("torch-db", 0), *((layout, 20_000) for layout in LAYOUTS)]
)
def test_an_export_is_the_same_wherever_its_columns_lie(
    shelf: ProfileShelf, tmp_path: Path, layout: str, limit: int, request: pytest.FixtureRequest
) -> None:
    """Neither a column in a file that something would write to, nor a cut between two parts."""
    profile = shelf.get(layout).path
    in_memory = exported(profile, tmp_path / "memory.pftrace", limit)
    request.getfixturevalue("all_in_files")
    assert exported(profile, tmp_path / "files.pftrace", limit) == in_memory


def peak_of(profile: Path) -> tuple[int, int]:
    """The bytes that reading and drawing a rank takes at most, and its slices."""
    (source,) = discover(profile).sources
    request = RankRequest(Selection(layers=DETAIL_LAYERS), options=DrawOptions(DETAIL_LAYERS))
    tracemalloc.start()
    try:
        share = draw_rank_from_source(source, request)
        return tracemalloc.get_traced_memory()[1], element_count(share.tracks.tracks)
    finally:
        tracemalloc.stop()


def test_memory_grows_by_what_is_worked_on_and_not_by_all_columns(
    shelf: ProfileShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "MEMORY_BYTES", 0)
    monkeypatch.setattr(spill, "LEAST_SPILLED_BYTES", 1 << 12)
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 1 << 10)
    monkeypatch.setattr(chunks, "WRITE_BYTES", 1 << 13)
    few = shelf.get("torch-db", ranks=1, steps=10, ops_per_step=100)
    many = shelf.get("torch-db", ranks=1, steps=50, ops_per_step=100)
    peak_of(few.path)
    small_peak, fewer = peak_of(few.path)
    peak, slices = peak_of(many.path)
    assert slices > 4 * fewer > 10_000
    assert peak - small_peak < MOST_BYTES_A_SLICE * (slices - fewer)


# -- what is read of a database ----------------------------------------------------------------


def columns_read(
    path: Path, layers: frozenset[Layer], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, tuple[str, ...]]]:
    """Each query of a large table, and the columns that it names."""
    queries: list[tuple[str, tuple[str, ...]]] = []
    read_rows = Database._read_rows

    def noted(self: Database, table: str, cells: Any, where: str, dtype: Any) -> Any:
        queries.append((table, tuple(cell.split('"')[1] for cell in cells)))
        return read_rows(self, table, cells, where, dtype)

    with monkeypatch.context() as patch:
        patch.setattr(Database, "_read_rows", noted)
        (source,) = discover(path).sources
        source.read(ReadRequest(layers, every_arg=False))
    return queries


LARGE = ("TASK", "COMPUTE_TASK_INFO", "COMMUNICATION_TASK_INFO", "CANN_API")
TENSORS = ("name", "inputShapes", "outputShapes", "inputDataTypes", "blockDim")
TASK = ("startNs", "endNs", "connectionId", "globalTaskId", "contextId", "streamId", "taskId")


def test_large_tables_are_read_once_and_only_their_columns_that_are_shown(
    shelf: ProfileShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shelf.get("torch-db", ranks=1).path
    queries = columns_read(path, SUMMARY_LAYERS, monkeypatch)
    assert {table: set(columns) for table, columns in queries if table in LARGE} == {
        "TASK": {*TASK, "modelId", "taskType"},
        "COMPUTE_TASK_INFO": {"globalTaskId", "taskType", "opType", *TENSORS},
        "CANN_API": {"startNs", "connectionId"},
    }
    queries += columns_read(path, DETAIL_LAYERS, monkeypatch)
    detail = {table: set(columns) for table, columns in queries if table in LARGE}
    assert detail["TASK"] == {*TASK, "modelId", "taskType"}
    assert len(detail["CANN_API"]) == 5
    assert len(detail["COMMUNICATION_TASK_INFO"]) == 8
    assert len([table for table, _ in queries if table in LARGE]) == 3 + 4


def test_a_table_with_absent_values_is_read_with_their_defaults(copied: Copier) -> None:
    """Values are asked for as if none was absent; one that is does not cost a row."""
    profile = copied("torch-db", ranks=1)
    (file,) = profile.captures[0].rglob("ascend_pytorch_profiler_0.db")
    with contextlib.closing(sqlite3.connect(file)) as database:
        ((last,),) = database.execute("SELECT MAX(rowid) FROM TASK")
        database.execute("UPDATE TASK SET connectionId = NULL WHERE rowid = ?", (last,))
        database.commit()
    with contextlib.closing(sqlite3.connect(file)) as database:
        expected = database.execute("SELECT IFNULL(connectionId, -1) FROM TASK ORDER BY rowid")
        connections = [connection for (connection,) in expected]
    with open_database(file) as opened:
        found = opened.integers("TASK", {"startNs": 0, "connectionId": -1})["connectionId"]
        assert not opened.damage.omissions(0)
    assert found.tolist() == connections
    assert connections[-1] == -1
