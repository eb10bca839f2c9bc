"""Holds real directories of MindSpore's small tables to the ranks and files that they are of."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.drawn_slices import drawn_slices
from tests.support.places import DATA
from tests.support.run_command import Command
from timeline.profile import open_profile
from timeline.sources.finding.discovery import discover

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"the real captures are not beside the project, in {DATA}"
)

TABLES = "MindSpore tables"
STEPS = "MindSpore step trace"
ALONE = {
    "mindspore-flops": {0: TABLES},
    "mindspore-pipeline": {0: TABLES, 1: TABLES},
    "mindspore-dynamic-shape": {0: TABLES},
    "mindspore-parallel-strategy": {0: TABLES, 1: TABLES},
    "mindspore-run3": {1: STEPS},
    "mindspore-cluster-steps": dict.fromkeys(range(4), STEPS),
    "mindspore-raw-JOB2": {0: TABLES},
    "mindspore-raw-JOB4": {0: TABLES},
}
"""The layout of each rank where nothing but tables is there."""
RICHER = {"mindspore-run2": 1, "mindspore-raw-JOB1": 0, "mindspore-raw-JOB3": 1}
"""The only rank of captures whose tables lie beside more."""
NOT_READ = frozenset(
    {
        "ascend_timeline_display_1.json",
        "ascend_timeline_summary_1.json",
        "output_format_data_hwts_1.txt",
        "output_op_compute_time_1.txt",
        "output_op_compute_time_detail_1.txt",
        "host_start.log.1",
        "DATA_PREPROCESS.dev.AICPUMI.1.slice_0",
        "Framework.host.vm.graph_desc_info.0.slice_0.done",
    }
)


@pytest.mark.parametrize("name", ALONE)
def test_a_directory_of_tables_opens_with_its_ranks(command: Command, name: str) -> None:
    """There is a file as soon as one rank has a step trace."""
    report = command.report(DATA / name)
    assert {one["rank"]: one["layout"] for one in report["ranks"]} == ALONE[name]
    assert all(one["tasks"] == 0 for one in report["ranks"])
    assert bool(report["outputs"]) is (STEPS in ALONE[name].values())
    assert not [one for one in report["omitted"] if one["code"] == "damaged"]
    listed = command.report(DATA / name, "--list")
    assert [one["rank"] for one in listed["ranks"]] == list(ALONE[name])


@pytest.mark.parametrize("name", [*ALONE, *RICHER])
def test_every_file_opens_the_rank_in_its_name(name: str) -> None:
    """Each table alone, wherever in the directory it lies; all files are read that are of use."""
    known = set(ALONE.get(name, {RICHER.get(name): ""}))
    directory = (DATA / name).resolve()
    found = discover(directory).sources
    assert {source.identity.rank for source in found} == known
    every = {path for path in directory.rglob("*") if path.is_file()}
    used = {path for source in found for path in source.files}
    assert {path.name for path in every - used} <= NOT_READ
    for path in used:
        if path.name.startswith(("step_trace_point", "profiler_info")):
            continue
        (source,) = discover(path).sources
        assert str(source.identity.rank) in path.name
        assert path in source.files


def test_the_log_of_ai_cpus_is_drawn_on_the_counter_of_the_steps(command: Command) -> None:
    """323 tasks of 14 threads, all but the one that began the run within its steps.

    The log of the device ends before them, and what is measured of it stays.
    """
    capture = DATA / "mindspore-raw-JOB3"
    slices = drawn_slices(command.picture(capture, "--kind", "detail"))
    drawn = [one for one in slices if "AI CPU" in one.row]
    steps = [one for one in slices if "Step Trace" in one.row]
    assert len(drawn) == 323
    assert len({one.row for one in drawn}) == 14
    assert sum(one.duration_ns for one in drawn) == 294_901_130
    begin_ns = min(one.start_ns for one in steps)
    end_ns = max(one.end_ns for one in steps)
    within = [one for one in drawn if begin_ns <= one.start_ns and one.end_ns <= end_ns]
    assert len(within) >= 321


def test_log_of_ai_cpus_changes_no_sum(tmp_path: Path, command: Command) -> None:
    """The same capture without it spends its time alike."""
    capture, without = DATA / "mindspore-raw-JOB3", tmp_path / "JOB3"
    shutil.copytree(capture, without)
    (without / "DATA_PREPROCESS.dev.AICPU.1.slice_0").unlink()
    reports = [command.report(path) for path in (capture, without)]
    for key in ("overlap", "idle", "waiting", "verdict"):
        assert reports[0][key] == reports[1][key]


def test_tables_beside_sessions_are_of_their_ranks(tmp_path: Path, command: Command) -> None:
    """Of a third rank there is no capture, which is told."""
    run = tmp_path / "run"
    shutil.copytree(DATA / "mindspore-2.1", run)
    for rank in (0, 2):
        for path in (DATA / "mindspore-flops").iterdir():
            shutil.copy(path, run / path.name.replace("_0.", f"_{rank}."))
    with open_profile(run) as profile:
        assert list(profile.ranks) == [0, 1]
    report = command.report(run)
    assert [one["rank"] for one in report["ranks"]] == [0, 1]
    assert any("small tables of rank 2, of which there is no" in one for one in report["warnings"])
