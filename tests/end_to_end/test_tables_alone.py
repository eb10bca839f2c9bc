"""Proves what a directory of MindSpore's small tables comes to: ranks, notes, and what is drawn."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from simulator.model import RankRun, Run
from simulator.writers.mindspore.tables.aicpu_log import write_aicpu_log
from simulator.writers.mindspore.tables.profiler_directory import (
    TopicWriter,
    write_mindspore_tables,
    write_step_trace,
)
from simulator.writers.mindspore.text import TextFiles, device_ns
from tests.support.drawn_slices import drawn_slices
from tests.support.profile_shelf import Copier, tiny_run
from tests.support.run_command import Command
from timeline.sources.finding.discovery import discover

FLOPS = "op_full_name, MFLOPs(10^6), GFLOPS(10^9), MFLOPs utilization (%)\n{}, 333.0, 333.0, 33.0\n"


def write_flops(_run: Run, rank: RankRun, profiler: Path) -> None:
    """A table without times or steps."""
    text = FLOPS.format(f"Default/Cast-op{rank.rank}")
    (profiler / f"flops_{rank.rank}.txt").write_text(text, encoding="utf-8")


def tables_of(
    directory: Path, *topics: TopicWriter, ranks: int = 2, ops_per_step: int = 6
) -> tuple[Run, Path]:
    """A run, and the directory with its tables."""
    run = tiny_run(ranks=ranks, ops_per_step=ops_per_step)
    return run, write_mindspore_tables(run, directory, topics=topics)[0]


# -- without times ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["summary", "detail"])
def test_tables_without_times_are_a_profile_without_a_timeline(
    tmp_path: Path, command: Command, kind: str
) -> None:
    """It succeeds, tells why there is no file, and writes none."""
    _, profiler = tables_of(tmp_path / "run", write_flops)
    target = tmp_path / "out.pftrace"
    report = command.report(profiler, "--kind", kind, "-o", target)
    assert report["outputs"] == []
    assert [(one["rank"], one["layout"], one["tasks"]) for one in report["ranks"]] == [
        (0, "MindSpore tables", 0),
        (1, "MindSpore tables", 0),
    ]
    (said,) = report["warnings"]
    assert said.startswith("ranks 0,1: ") and "without times" in said
    assert report["omitted"] == []
    assert not target.exists()
    outcome = command(profiler, "--kind", kind, "-o", target, "--strict", "-v")
    assert outcome.code == 0
    assert "Wrote" not in outcome.out + outcome.err
    assert "perfetto" not in outcome.out + outcome.err


def test_graphs_of_tables_are_selected(tmp_path: Path, command: Command) -> None:
    """As steps are; a graph that no table is of is an error."""
    header = "task_id,stream_id,full_kernel_name,kernel_type,op_info,graph_id"
    rows = [f"{task},1,Default/Cast-op{task},Cast,{{}},{graph}" for task, graph in ((1, 7), (2, 8))]
    (tmp_path / "framework_raw_0.csv").write_text("\n".join((header, *rows)), encoding="utf-8")
    report = command.report(tmp_path, "--graphs", "8")
    assert [(row["graph"], row["task"]) for row in report["framework"]] == [(8, 2)]
    assert report["ranks"][0]["graphs"] == [7, 8]
    outcome = command(tmp_path, "--graphs", "9")
    assert outcome.code == 3
    assert "found graphs 7,8" in outcome.err


def test_what_is_not_read_is_named(tmp_path: Path, command: Command) -> None:
    """Other sums of MindSpore in the directory, each with its rank."""
    _, profiler = tables_of(tmp_path / "run", write_flops)
    names = ["memory_usage_summary_1.json", "minddata_pipeline_summary_1.json"]
    for name in names:
        (profiler / name).write_text("{}", encoding="utf-8")
    report = command.report(profiler)
    assert [(one["rank"], one["file"]) for one in report["unused"]] == [(1, name) for name in names]


def test_a_single_table_opens_its_rank(tmp_path: Path) -> None:
    """Whatever else of the directory: the rank of its name, with all its tables."""
    _, profiler = tables_of(tmp_path / "run", write_flops, write_step_trace)
    (source,) = discover(profiler / "flops_1.txt").sources
    assert source.identity.rank == 1
    assert {path.name for path in source.files} == {
        "flops_1.txt",
        "step_trace_raw_1_detail_time.csv",
        "step_trace_point_info_1.json",
    }


def test_what_goes_beside_a_timeline_is_written_without_one(
    tmp_path: Path, command: Command
) -> None:
    """A page and a table of no steps; opening a timeline is told to be impossible."""
    _, profiler = tables_of(tmp_path / "run", write_flops)
    page, table = tmp_path / "a.html", tmp_path / "a.csv"
    outcome = command(profiler, "--report", page, "--csv", table, "--open")
    assert outcome.code == 0
    assert all(path.stat().st_size for path in (page, table))
    assert "There is no timeline to open." in outcome.err


# -- with a step trace -----------------------------------------------------------------------------


def test_a_step_trace_beside_tables_is_drawn(tmp_path: Path, command: Command) -> None:
    """Steps of the rank that has one; another of tables alone is a rank too."""
    _, profiler = tables_of(tmp_path / "run", write_flops, write_step_trace)
    (profiler / "step_trace_raw_1_detail_time.csv").unlink()
    report = command.report(profiler, "-o", tmp_path / "out.pftrace")
    assert [(one["layout"], one["steps"]) for one in report["ranks"]] == [
        ("MindSpore step trace", 3),
        ("MindSpore tables", 0),
    ]
    (output,) = report["outputs"]
    assert output["steps"] == [1, 2, 3]


def test_what_hccl_recorded_beside_a_step_trace_is_drawn(copied: Copier, command: Command) -> None:
    """Its ops and tasks are those of the whole profile, whether or not names have the id."""
    made = copied("mindspore-text-hccl", ranks=1)
    whole = command.report(made.path, "--kind", "detail")
    (profiler,) = made.captures
    for path in profiler.iterdir():
        if path.is_file() and not path.name.startswith("step_trace_raw"):
            path.unlink()
    for renamed in (False, True):
        if renamed:
            (held,) = profiler.glob("hccl_info*")
            held.rename(profiler / "hccl_info")
        report = command.report(made.path, "--kind", "detail")
        for name in ("comm", "comm_ops", "steps"):
            assert report["ranks"][0][name] == whole["ranks"][0][name]
        assert report["ranks"][0]["comm"] > 0
        assert drawn_slices(command.picture(made.path, "--kind", "detail"), "Communication")


def test_what_a_step_trace_does_not_tell_is_not_known(tmp_path: Path, command: Command) -> None:
    """Neither computing nor free time; idle time is where it waits for data, and no more."""
    _, profiler = tables_of(tmp_path / "run", write_step_trace, ranks=1)
    report = command.report(profiler)
    parts = ("computing_ns", "exposed_communication_ns", "free_ns", "copies_ns", "idle_ns")
    assert {row[name] for row in report["overlap"] for name in parts} == {None}
    assert all(row["communication_ns"] >= 0 for row in report["overlap"])
    assert {row["cause"] for row in report["idle"]} <= {"waiting_for_data"}
    names = {one.name for one in drawn_slices(command.picture(profiler))}
    assert not names & {"Free", "Idle", "Computing", "Exposed communication"}


# -- beside other captures -------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["mindspore-2.1", "mindspore-text"])
def test_tables_beside_a_capture_are_of_its_rank_and_others_are_told(
    copied: Copier, layout: str
) -> None:
    """They are among the files of the rank in their name; ranks without a capture are a note."""
    profile = copied(layout)
    beside = profile.captures[0]
    if layout != "mindspore-text":
        beside = beside.parent
    for rank in (0, 1, 2, 5):
        (beside / f"flops_{rank}.txt").write_text(FLOPS.format("Cast"), encoding="utf-8")
    found = discover(profile.path)
    assert [source.identity.rank for source in found.sources] == [0, 1]
    for rank, source in enumerate(found.sources):
        names = {path.name for path in source.files}
        assert {name for name in names if "flops" in name} == {f"flops_{rank}.txt"}
    told = [note for note in found.notes if "small tables" in note]
    assert len(told) == 1
    assert "ranks 2,5, of which there is no capture" in told[0]


def test_a_session_without_a_rank_takes_the_number_of_the_tables_beside_it(copied: Copier) -> None:
    """Where there is one of each; several numbers tell nothing."""
    profile = copied("mindspore-2.1", ranks=1)
    (capture,) = profile.captures
    for path in capture.rglob("info.json*"):
        path.unlink()
    (capture.parent / "flops_6.txt").write_text(FLOPS.format("Cast"), encoding="utf-8")
    (source,) = discover(profile.path).sources
    assert source.identity.rank == 6
    assert "flops_6.txt" in {path.name for path in source.files}
    (capture.parent / "flops_7.txt").write_text(FLOPS.format("Cast"), encoding="utf-8")
    (source,) = discover(profile.path).sources
    assert source.identity.rank == 0


# -- raw files -------------------------------------------------------------------------------------


def test_a_decoded_log_beside_the_log_is_no_other_capture(tmp_path: Path) -> None:
    """It is told, and read where it lies alone."""
    _, profiler = tables_of(tmp_path / "made", write_aicpu_log, ranks=1, ops_per_step=24)
    job = tmp_path / "JOB1"
    for name in ("data", "decoded"):
        (job / name).mkdir(parents=True)
    shutil.copy(profiler / "DATA_PREPROCESS.dev.AICPU.0.slice_0", job / "data")
    decoded = job / "decoded" / "output_data_preprocess_aicpu_0.txt"
    decoded.write_text("1  InitData  1567  100  2298200409  2298200538\n", encoding="utf-8")
    found = discover(job)
    assert [source.identity.directory for source in found.sources] == [job]
    assert [note.partition(" holds")[0] for note in found.notes] == ["decoded"]
    (alone,) = discover(job / "decoded").sources
    assert set(alone.files) == {decoded}


def test_tasks_of_ai_cpus_are_slices_of_their_threads(tmp_path: Path, command: Command) -> None:
    """On the counter of the device, as the steps are; they count as nothing else."""
    run, profiler = tables_of(
        tmp_path / "run", write_step_trace, write_aicpu_log, ranks=1, ops_per_step=24
    )
    drawn = drawn_slices(command.picture(profiler, "--kind", "detail"), "AI CPU")
    ran = TextFiles(run, run.rank(0), profiler).kernels(on_cpu=True)
    assert ran
    assert sorted((one.name, one.duration_ns) for one in drawn) == sorted(
        (kernel.scope, device_ns(run, task.end_ns) - device_ns(run, task.start_ns))
        for task, kernel in ran
    )
    report = command.report(profiler, "--kind", "detail")
    assert [one["tasks"] for one in report["ranks"]] == [0]
    without = tmp_path / "without"
    shutil.copytree(profiler, without)
    (without / "DATA_PREPROCESS.dev.AICPU.0.slice_0").unlink()
    assert command.report(without, "--kind", "detail")["overlap"] == report["overlap"]
