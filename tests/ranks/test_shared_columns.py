"""Proves that columns come from another process and from memory as they were."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import tempfile
import time
import tracemalloc
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.support.grown_records import Shape, grown_records
from tests.support.profile_shelf import ProfileShelf
from timeline.analysis.questions import Questions
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.selected_rank import DrawOptions
from timeline.analysis.steps import with_steps
from timeline.columns.constant import constant, is_constant
from timeline.columns.spill import drop_pages
from timeline.errors import OutputError
from timeline.layers import Layer
from timeline.options import StepOperators
from timeline.profile import open_profile
from timeline.ranks import shared_columns
from timeline.ranks.executors import Processes
from timeline.ranks.rank_work import (
    RankRequest,
    draw_rank_from_records,
    draw_rank_from_source,
    read_rank,
)
from timeline.ranks.shared_columns import SharedResult, close_shared_file, open_shared_file, pack
from timeline.records.tables import AI_CORE_FREQUENCY
from timeline.selection import SUMMARY_LAYERS, Align, Selection
from timeline.sources.source import ReadRequest
from timeline.tables.work import COMPUTING_CAUSES
from timeline.tracks.rank_tracks import DrawnRank
from timeline.verdict.figures import Figures

# -- columns of other processes --------------------------------------------------------------------


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
    for one, column in zip(found, columns, strict=True):
        np.testing.assert_array_equal(one, column)
        assert is_constant(one) >= (is_constant(column) and len(column) > 0)


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


# -- packed ranks ----------------------------------------------------------------------------------


RANKS = 40
MOST_BYTES = 24 << 10
"""Of a rank with 20 tasks and two steps; as it was drawn it takes twice as much."""


def drawn(rank: int) -> DrawnRank:
    records = with_steps(grown_records(rank, Shape(tasks=20)), StepOperators())
    layers = frozenset({Layer.OVERLAP, *SUMMARY_LAYERS})
    request = RankRequest(
        Selection(layers=layers), options=DrawOptions(layers), questions=Questions(causes=True)
    )
    return draw_rank_from_records(records, request)


def test_each_small_rank_that_is_kept_takes_little_memory() -> None:
    pack(drawn(0))  # what is imported late, and what all share
    tracemalloc.start()
    kept = [pack(drawn(rank)) for rank in range(1, RANKS + 1)]
    gc.collect()
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < MOST_BYTES * len(kept)


def test_short_columns_are_the_same_numbers_to_the_bit() -> None:
    for column in (np.array([0.0, -0.0, np.nan]), np.array([], np.int32), np.arange(9)[::2]):
        found = pack((column, "x"))[0]
        assert found.dtype == column.dtype
        assert found.tobytes() == column.tobytes()
        assert pack((column, "y"))[0] is found
        assert not found.flags.writeable


# -- frequencies -----------------------------------------------------------------------------------


SAMPLED = ("torch-text", "torch-db", "mindstudio", "msprof-sqlite")
CAUSES = RankRequest(Selection(), draw=False, questions=Questions(causes=True))


@pytest.mark.parametrize("layout", SAMPLED)
def test_only_the_frequency_is_read_where_no_counter_is_drawn(
    shelf: ProfileShelf, layout: str
) -> None:
    """Whatever else was sampled stays unread, and without causes the frequency too."""
    with open_profile(shelf.get(layout).path) as profile:
        source = profile.sources[0]
        asked = ReadRequest(CAUSES.read_layers, every_arg=False, frequency=True)
        records = source.read(asked)
        assert [records.strings[code] for code in records.series.group] == [AI_CORE_FREQUENCY]
        assert (records.samples.value == 1800).all() and len(records.samples) == 2
        assert not len(source.read(replace(asked, frequency=False)).samples)
        assert draw_rank_from_source(source, CAUSES).facts.work.frequency_mhz == 1800


def test_a_layout_without_counters_says_that_nothing_is_recorded(shelf: ProfileShelf) -> None:
    """Traces of GPUs have no frequency."""
    with open_profile(shelf.get("kineto").path) as profile:
        work = draw_rank_from_source(profile.sources[0], CAUSES).facts.work
    assert work.frequency_mhz is None and work.digest and work.steps


def _facts(shelf: ProfileShelf, *, slower: float, megahertz: float | None) -> RankFacts:
    """A rank of another number whose tasks take longer, at some frequency."""
    with open_profile(shelf.get("torch-db").path) as profile:
        request = ReadRequest(CAUSES.read_layers, every_arg=False, frequency=True)
        records = read_rank(profile.sources[0], request, StepOperators(), Align.RECORDED)
    tasks, samples = records.tasks, records.samples
    lengths_ns = ((tasks.end_ns - tasks.start_ns) * slower).astype(np.int64)
    records = replace(
        records,
        rank=3 if slower != 1 else records.rank,
        tasks=replace(tasks, end_ns=tasks.start_ns + lengths_ns),
        samples=samples.take(np.zeros(len(samples), np.bool_))
        if megahertz is None
        else replace(samples, value=np.full(len(samples), float(megahertz))),
    )
    return draw_rank_from_records(records, CAUSES).facts


def test_a_slower_rank_is_told_by_its_frequency_or_its_operators(shelf: ProfileShelf) -> None:
    """The same operators 12% longer at 1.5 GHz, at the same frequency, and at an unknown one."""
    usual = _facts(shelf, slower=1, megahertz=1800)
    for megahertz, cause in ((1500, "frequency"), (1800, "operators"), (None, "operators")):
        slower = _facts(shelf, slower=1.12, megahertz=megahertz)
        table = COMPUTING_CAUSES.of_run(Figures(facts=[usual, slower]))
        assert table["cause"].tolist() == [None, cause]
        row = table.to_dicts()[1]
        assert (row["rank"], row["peers"], row["same_work"]) == (3, 1, 1)
        assert row["frequency_mhz"] == megahertz
        # Tasks of two streams overlap, so computing is longer by less than each task.
        assert 1 < row["computing_ns"] / row["peer_ns"] <= 1.12
