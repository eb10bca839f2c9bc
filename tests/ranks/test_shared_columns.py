"""Proves that large columns come from another process as they were, and that nothing stays open."""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from timeline.columns.constant import constant, is_constant
from timeline.columns.spill import drop_pages
from timeline.errors import OutputError
from timeline.ranks import shared_columns
from timeline.ranks.executors import Processes
from timeline.ranks.shared_columns import (
    SharedResult,
    close_shared_file,
    open_shared_file,
)

OPEN_FILES = Path("/proc/self/fd")
linux = pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="files are found through /proc")
COLUMNS = st.lists(
    arrays.arrays(st.sampled_from([np.int64, np.int32, np.float64, np.bool_]), st.integers(0, 40))
    | st.builds(constant, st.integers(-9, 9), st.integers(0, 3000), st.just(np.int64)),
    max_size=8,
)


@pytest.fixture
def everything_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No column is too small to be put aside."""
    monkeypatch.setattr(shared_columns, "WORTH_BYTES", 1)
    monkeypatch.setattr(shared_columns, "LEAST_BYTES", 0)


def large_columns(count: int) -> dict[str, npt.NDArray[Any]]:
    """Columns of several MB, one of a single value, and one that is a part of another."""
    numbers = np.arange(count)
    return {
        "numbers": numbers,
        "every other": numbers[::2],
        "part": numbers[10:],
        "one": constant(7, count, np.int64),
        "few": numbers[:3],
    }


def fail_with(error: Exception) -> None:
    raise error


def write_little(count: int) -> dict[str, npt.NDArray[Any]]:
    """Columns, in a process whose files may not be large, as on a disk that is full."""
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    return large_columns(count)


def open_files() -> set[str]:
    """The files without names that this process has open."""
    targets = [str(entry.readlink()) for entry in OPEN_FILES.iterdir() if entry.is_symlink()]
    return {target for target in targets if "(deleted)" in target}


@pytest.mark.usefixtures("everything_aside")
@given(columns=COLUMNS, more=st.dictionaries(st.text(), st.integers()))
def test_what_is_unpacked_is_what_was_packed(
    columns: list[npt.NDArray[Any]], more: dict[str, int]
) -> None:
    path = open_shared_file()
    found, others = pickle.loads(pickle.dumps(SharedResult((columns, more), path)))
    close_shared_file(path)
    drop_pages()
    assert others == more
    assert [one.dtype for one in found] == [column.dtype for column in columns]
    for one, packed in zip(found, columns, strict=True):
        np.testing.assert_array_equal(one, packed)
        assert is_constant(one) >= (is_constant(packed) and len(packed) > 0)


@linux
def test_large_columns_do_not_travel(executor: Processes) -> None:
    """They are read where the other process put them, and memory can let go of them."""
    before = open_files()
    count = shared_columns.WORTH_BYTES // 8
    made = executor.submit(large_columns, count).result()
    for name, column in large_columns(count).items():
        drop_pages()
        np.testing.assert_array_equal(made[name], column)
    assert not made["numbers"].flags.writeable
    assert is_constant(made["one"])
    assert len(open_files() - before) == 1
    del made, column
    assert not open_files() - before


@linux
def test_nothing_stays_open_of_work_that_failed(executor: Processes) -> None:
    before = open_files()
    assert executor.submit(sum, (1, 2)).result() == 3
    with pytest.raises(KeyError, match="gone"):
        executor.submit(fail_with, KeyError("gone")).result()
    with pytest.raises(BrokenProcessPool):
        executor.submit(os._exit, 1).result()
    with pytest.raises(BrokenProcessPool):
        executor.submit(sum, (1, 2))
    # A future tells its result first and closes the file then.
    until = time.monotonic() + 5
    while open_files() - before and time.monotonic() < until:
        time.sleep(0.01)
    assert not open_files() - before
    assert not shared_columns._offered


@linux
def test_a_full_disk_is_told(executor: Processes) -> None:
    with pytest.raises(OutputError, match=f"{tempfile.gettempdir()} cannot be written: File too"):
        executor.submit(write_little, shared_columns.WORTH_BYTES // 8).result()


@pytest.mark.usefixtures("everything_aside")
@pytest.mark.parametrize("lacks", ["files of other processes", "temporary directory", "reach"])
def test_where_there_is_no_file_everything_goes_through_the_pipe(
    lacks: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if lacks == "files of other processes":
        monkeypatch.setattr(shared_columns, "OPEN_FILES", tmp_path / "nowhere")
    elif lacks == "temporary directory":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    path = "/nowhere/at/all" if lacks == "reach" else open_shared_file()
    assert not shared_columns._offered
    columns = large_columns(100)
    found = pickle.loads(pickle.dumps(SharedResult(columns, path)))
    for name, column in columns.items():
        np.testing.assert_array_equal(found[name], column)
