"""Proves that steps without tasks go where the profiler says, and only where that can be."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from simulator.overlap import expected_overlap
from simulator.simulation import make_run
from simulator.writers.mindspore.tables.cluster import write_cluster
from simulator.writers.mindspore.tables.profiler_directory import (
    write_mindspore_tables,
    write_step_trace,
)
from tests.support.profile_shelf import Copier
from timeline import Selection, open_profile

pytestmark = pytest.mark.filterwarnings("ignore::timeline.errors.TimelineWarning")
ROUNDING_NS = 200
"""Times are written in ms with four digits, and moments in ticks of 10 ns."""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Two ranks of which step traces and parallel times are there."""
    write_mindspore_tables(
        make_run(2, 3, ops_per_step=24), tmp_path, topics=(write_step_trace, write_cluster)
    )
    return tmp_path


def test_steps_have_the_parts_of_the_file(profile: Path) -> None:
    """Computing and exposed communication are those that ran; the rest of the step is idle."""
    run = make_run(2, 3, ops_per_step=24)
    with open_profile(profile) as opened:
        steps = opened.steps().to_dicts()
        assert len(opened.critical_path()) == 0
    assert len(steps) == 6
    for row in steps:
        truth = expected_overlap(run, row["rank"], row["step"])
        for name in ("computing_ns", "not_overlapped_ns"):
            assert abs(row[name] - truth[name]) <= ROUNDING_NS
        length_ns = row["end_ns"] - row["start_ns"]
        parts_ns = row["computing_ns"] + row["not_overlapped_ns"] + row["idle_ns"]
        assert row["span_ns"] == parts_ns >= length_ns
        assert parts_ns <= 1.02 * length_ns


def test_steps_that_are_selected_have_them_too(profile: Path) -> None:
    """By their numbers, whatever is left out before."""
    with open_profile(profile) as opened:
        every = {
            (row["rank"], row["step"]): row["computing_ns"] for row in opened.steps().to_dicts()
        }
        chosen = opened.steps(Selection(steps={3})).to_dicts()
    assert {(row["rank"], row["step"]): row["computing_ns"] for row in chosen} == {
        (rank, 3): every[rank, 3] for rank in (0, 1)
    }


@pytest.mark.parametrize("change", ["longer", "fewer"])
def test_a_file_that_contradicts_the_steps_tells_nothing_of_them(
    profile: Path, change: str
) -> None:
    """One that tells of more than a step is long, or lacks a step; its own table is shown."""
    (path,) = (profile / "profiler").glob("ascend_cluster_analyse_*_0.csv")
    header, *rows, mean = path.read_text().splitlines()
    rows = [f"9{row}" for row in rows] if change == "longer" else rows[:1]
    path.write_text("\n".join([header, *rows, mean]))
    with open_profile(profile) as opened:
        steps = [row for row in opened.steps().to_dicts() if row["rank"] == 0]
        assert len(opened.parallel_times())
    assert {row["computing_ns"] for row in steps} == {None}


def test_ranks_with_tasks_are_measured_by_them(tmp_path: Path) -> None:
    """What a file says of them is a table beside that."""
    from simulator.writers.mindspore.text import write_mindspore_text

    run = make_run(2, 3, ops_per_step=24)
    write_mindspore_text(run, tmp_path / "plain")
    shutil.copytree(tmp_path / "plain", tmp_path / "filed")
    for rank in run.ranks:
        write_cluster(run, rank, tmp_path / "filed" / "profiler")
    with open_profile(tmp_path / "plain") as plain, open_profile(tmp_path / "filed") as filed:
        assert plain.steps().to_dicts() == filed.steps().to_dicts()
        assert not len(plain.parallel_times()) and len(filed.parallel_times())


@pytest.mark.parametrize("layout", ["mindspore-raw", "mindspore-text"])
def test_steps_of_reduces_alone_last_from_forward_start_to_end(copied: Copier, layout: str) -> None:
    """Without a task of the device nothing tells what is free but the wait for data between."""
    profile = copied(layout, ranks=1, ops_per_step=24)
    for pattern in ("hwts.log.*", "output_timeline_data_*", "aicpu_intermediate_*"):
        for path in profile.path.rglob(pattern):
            path.unlink()
    with open_profile(profile.path) as opened:
        steps, trace = opened.steps().to_dicts(), opened.step_trace().to_dicts()
        (whole,) = opened.overlap().to_dicts()
        causes = {row["cause"] for row in opened.idle().to_dicts()}
        assert len(opened.critical_path()) == 0
    lasting_ns = [row["fp_bp_ns"] + row["tail_ns"] for row in trace if row["step"] is not None]
    assert [row["span_ns"] for row in steps] == lasting_ns
    assert {row["free_ns"] for row in (*steps, whole)} == {None}
    assert {row["idle_ns"] for row in (*steps, whole)} == {None}
    assert whole["communication_ns"] > 0
    assert causes <= {"waiting_for_data"}
