"""Proves that ranks with sums of steps and of communication alone count as others do."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.parallelism import Parallelism
from simulator.simulation import make_run
from simulator.writers.companions.measures import write_communication_measures
from simulator.writers.database import write_torch_database
from tests.support.drawn_slices import drawn_slices
from tests.support.profile_shelf import Copier, Profile
from tests.support.run_command import Command

OUTPUT = "ASCEND_PROFILER_OUTPUT"
KEPT = ("step_trace_time.csv", "communication.json", "communication_matrix.json")
PARTS_OF_FILE = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
PARTS = ("computing_ns", "communication_ns", "exposed_communication_ns", "free_ns")


@pytest.fixture
def profile(copied: Copier) -> Profile:
    """A run of two ranks with all that torch_npu writes."""
    made = copied("torch-text", ranks=2)
    for rank, capture in zip(made.run.ranks, made.captures, strict=True):
        write_communication_measures(made.run, rank, capture / OUTPUT)
    return made


def strip(capture: Path, *kept: str) -> Path:
    """Leave nothing of a capture but some tables; its directory of tables."""
    for path in (capture / OUTPUT).iterdir():
        if path.name not in (kept or KEPT):
            path.unlink()
    return capture / OUTPUT


def overlap(report: dict[str, Any]) -> dict[tuple[int, int | None], tuple[int, ...]]:
    """The parts of device time of each rank and step."""
    return {
        (row["rank"], row["step"]): tuple(row[name] for name in PARTS) for row in report["overlap"]
    }


def step_rows(capture: Path) -> list[dict[str, str]]:
    """The rows of step_trace_time.csv."""
    with (capture / OUTPUT / "step_trace_time.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def change_steps(capture: Path, change: Any) -> None:
    """Change the rows of step_trace_time.csv."""
    rows = step_rows(capture)
    path = capture / OUTPUT / "step_trace_time.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(map(change, rows))


def of_file(capture: Path) -> Iterator[tuple[int, ...]]:
    """Each step of step_trace_time.csv, with the times of a row of parallel_times in ns."""
    names = (*PARTS_OF_FILE, "Stage", "Bubble", "Preparing")
    for row in step_rows(capture):
        yield int(row["Step"]), *(round(float(row[name]) * 1000) for name in names)


# -- tables alone ----------------------------------------------------------------------------------


def test_their_times_are_those_of_the_file(profile: Profile, command: Command) -> None:
    """Every column of each rank and step equals step_trace_time.csv, and nothing is checked."""
    for capture in profile.captures:
        strip(capture)
    report = command.report(profile.path)
    assert [(one["rank"], one["layout"]) for one in report["ranks"]] == [
        (0, "step tables"),
        (1, "step tables"),
    ]
    parts = ("computing_ns", "communication_ns", "communication_alone_ns", "free_ns")
    names = ("step", *parts, "stage_ns", "receive_alone_ns", "preparing_ns")
    for rank, capture in enumerate(profile.captures):
        rows = [row for row in report["parallel_times"] if (row["rank"], row["of"]) == (rank, None)]
        assert [tuple(row[name] for name in names) for row in rows] == list(of_file(capture))
    assert report["checks"] == [] and report["omitted"] == []


def test_what_they_lack_is_neither_zero_nor_idle(profile: Profile, command: Command) -> None:
    """Idle time and copies are not given, no cause of idle time is, and the verdict says so."""
    for capture in profile.captures:
        strip(capture)
    report = command.report(profile.path)
    assert {row["idle_ns"] for row in report["overlap"]} == {None}
    assert {row["copies_ns"] for row in report["overlap"]} == {None}
    assert report["idle"] == []
    text = " ".join(report["verdict"]["sentences"])
    assert "(why is not recorded)" in text and "idle" not in text
    assert any("ranks 0,1: only tables are here" in said for said in report["warnings"])
    drawn = drawn_slices(command.picture(profile.path, "--kind", "summary"))
    assert {one.name for one in drawn if one.name in ("Computing", "Idle", "Free")} == set()
    assert any(one.name.startswith("Iteration ") for one in drawn)


@pytest.mark.parametrize("layout", ["_ascend_ms", "flat", "file"])
def test_they_lie_in_directories_of_other_names(
    profile: Profile, tmp_path: Path, command: Command, layout: str
) -> None:
    """MindSpore's directories, those that people make, and a single table are read alike."""
    before = {}
    for rank, capture in enumerate(profile.captures):
        output = strip(capture)
        before[rank] = list(of_file(capture))
        target = tmp_path / "other" / f"rank_{rank}"
        if layout == "_ascend_ms":
            shutil.copytree(capture, target.with_name(f"host_{rank}_20240101120000000_ascend_ms"))
        else:
            shutil.copytree(output, target)
    path = tmp_path / "other"
    if layout == "file":
        path = path / "rank_1" / "step_trace_time.csv"
        del before[0]
    report = command.report(path)
    found = {
        rank: [row["computing_ns"] for row in report["parallel_times"] if row["rank"] == rank]
        for rank in before
    }
    for rank, rows in before.items():
        assert found[rank][: len(rows)] == [row[1] for row in rows]


def test_a_capture_without_steps_is_one_row(profile: Profile, command: Command) -> None:
    """torch_npu leaves the cell empty then; the row is the whole rank."""
    for capture in profile.captures:
        strip(capture)
        kept = step_rows(capture)[0]
        change_steps(capture, lambda _, kept=kept: kept | {"Step": ""})
        lines = (capture / OUTPUT / KEPT[0]).read_text(encoding="utf-8").splitlines()
        (capture / OUTPUT / KEPT[0]).write_text("\n".join(lines[:2]), encoding="utf-8")
    report = command.report(profile.path)
    assert {row["step"] for row in report["overlap"]} == {None}
    for row in report["overlap"]:
        kept = step_rows(profile.captures[row["rank"]])[0]
        assert row["computing_ns"] == round(float(kept["Computing"]) * 1000)
    assert {row["step"] for row in report["parallel_times"]} == {None}


def test_waits_of_the_file_stand_in_where_other_ranks_do_not_tell(
    profile: Profile, command: Command
) -> None:
    """A rank alone has the waiting and the transfers of communication.json, by kind and group."""
    (capture, other) = profile.captures
    shutil.rmtree(other)
    path = strip(capture) / "communication.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    ops = [one for step in document.values() for one in step["collective"].values()]
    for at, one in enumerate(ops):
        one["Communication Time Info"] |= {"Wait Time(ms)": at + 1, "Transit Time(ms)": 0.5}
    path.write_text(json.dumps(document), encoding="utf-8")
    rows = command.report(profile.path)["collectives"]
    named = [
        at
        for at, key in enumerate(key for step in document.values() for key in step["collective"])
        if key != "Total Op Info"
    ]
    assert sum(row["waited_ns"] for row in rows) == sum(at + 1 for at in named) * 10**6
    assert sum(row["transfer_ns"] for row in rows) == len(named) * 500_000


def test_rows_of_several_devices_are_counted(profile: Profile, command: Command) -> None:
    """Which of them the rank is cannot be told, so its times are not known; ops still are."""
    output = strip(profile.captures[1])
    path = output / KEPT[0]
    text = path.read_text(encoding="utf-8")
    path.write_text(text + text.partition("\n")[2], encoding="utf-8")
    report = command.report(profile.path)
    (lost,) = report["omitted"]
    assert "several devices" in lost["reason"] and lost["loss"]
    (row,) = [row for row in report["overlap"] if row["rank"] == 1]
    assert row["computing_ns"] is None and row["communication_ns"] > 0


@pytest.mark.parametrize(("step", "reason"), [("9" * 20, "not a number"), ("x", "not a number")])
def test_a_step_without_a_number_costs_its_row_alone(
    profile: Profile, command: Command, step: str, reason: str
) -> None:
    """All other steps are read, and the row is counted with what is wrong with it."""
    capture = profile.captures[0]
    strip(capture)
    first = step_rows(capture)[0]["Step"]
    change_steps(capture, lambda row: row | {"Step": step} if row["Step"] == first else row)
    report = command.report(profile.path)
    (lost,) = report["omitted"]
    assert reason in lost["reason"] and lost["rows"] == 1
    found = {row["step"] for row in report["parallel_times"] if row["rank"] == 0}
    assert found - {None} == {row[0] for row in of_file(profile.captures[1])} - {int(first)}


def test_ops_that_cannot_be_read_cost_no_others(profile: Profile, command: Command) -> None:
    """Python writes NaN for a number that is none; an op without a length is counted."""
    path = strip(profile.captures[0]) / "communication.json"
    before = {one["rank"]: one["comm_ops"] for one in command.report(profile.path)["ranks"]}
    document = json.loads(path.read_text(encoding="utf-8"))
    ops = [
        one
        for step in document.values()
        for key, one in step["collective"].items()
        if not key.startswith("Total")
    ]
    del ops[0]["Communication Time Info"]["Elapse Time(ms)"]
    ops[1]["Communication Time Info"]["Elapse Time(ms)"] = float("nan")
    ops[2]["Communication Time Info"]["Elapse Time(ms)"] = -1
    path.write_text(json.dumps(document), encoding="utf-8")
    report = command.report(profile.path)
    assert report["ranks"][0]["comm_ops"] == before[0] - 3
    (lost,) = [one for one in report["omitted"] if "communication.json" in one["reason"]]
    assert lost["rows"] == 3 and "without a length" in lost["reason"]


# -- without times, and beside timelines -----------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
def test_ranks_without_ops_count_too(profile: Profile, command: Command, whole: bool) -> None:
    """Nothing tells when their steps ran: they begin where those of others do, and that is said."""
    strip(profile.captures[1], KEPT[0])
    if not whole:
        strip(profile.captures[0])
    report = command.report(profile.path)
    found = overlap(report)
    assert [found[1, step[0]] for step in of_file(profile.captures[1])] == [
        step[1:5] for step in of_file(profile.captures[1])
    ]
    assert {row["rank"] for row in report["verdict"]["ranks"]} == {0, 1}
    assert any("rank 1: when its steps ran is not recorded" in said for said in report["warnings"])
    drawn = drawn_slices(command.picture(profile.path, "--kind", "summary"))
    starts = [one.start_ns for one in drawn]
    assert max(starts) - min(starts) < 10**10


def test_a_mixed_run_counts_every_rank(profile: Profile, command: Command) -> None:
    """The slowest rank is found among ranks with tables alone, which a warning names."""
    whole = overlap(command.report(profile.path))
    strip(profile.captures[1])
    change_steps(profile.captures[1], lambda row: row | {"Computing": 10**6})
    report = command.report(profile.path)
    found = overlap(report)
    assert {key: found[key] for key in found if key[0] == 0} == {
        key: whole[key] for key in whole if key[0] == 0
    }
    assert found[1, min(step[0] for step in of_file(profile.captures[1]))][0] == 10**9
    assert report["verdict"]["slowest_rank"]["slowest"] == 1
    assert "rank 1: only tables are here, without device tasks." in (report["warnings"])


# -- how the run is split --------------------------------------------------------------------------


def test_groups_say_where_each_rank_is(tmp_path: Path, command: Command) -> None:
    """By the names of those in a database, where no file of metadata does."""
    run = make_run(ranks=8, parallelism=Parallelism(tensor=2, stages=2))
    write_torch_database(run, tmp_path / "run")
    for metadata in (tmp_path / "run").rglob("profiler_metadata.json"):
        metadata.unlink()
    ranks = command.report(tmp_path / "run")["ranks"]
    found = [(one["pp_index"], one["dp_index"], one["tp_index"]) for one in ranks]
    assert found == [*itertools.product((0, 1), repeat=3)]


def test_all_stages_of_a_pipeline_are_told(tmp_path: Path, command: Command) -> None:
    """By the group of a whole pipeline, beside the pairs in which its stages send."""
    run = make_run(ranks=8, parallelism=Parallelism(tensor=2, stages=4))
    write_torch_database(run, tmp_path / "run")
    report = command.report(tmp_path / "run")
    stages = [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert (report["parallel"]["stages"], report["parallel"]["stage_ranks"]) == (4, stages)
    sent = {one["rank"]: one["stage"] for one in report["pipeline"]}
    assert sent == {rank: rank // 2 for rank in range(8)}


@pytest.mark.parametrize(
    ("sizes", "indices", "stages"),
    [
        ((1, 1, 2), [(0, 0, 0), (0, 1, 0)], [[0], [1]]),
        ((2, 1, 1), [(0, 0, 0), (0, 0, 1)], [[0, 1]]),
        ((1, 1, 1), [(0, 0, 0), (1, 0, 0)], [[0, 1]]),
        ((1, 2, 1), [(0, 0, 0), (0, 0, 0)], [[0, 1]]),
        ((3, 1, 1), [(None, None, None)] * 2, [[0, 1]]),
    ],
)
def test_metadata_says_where_each_rank_is(
    profile: Profile,
    command: Command,
    sizes: tuple[int, int, int],
    indices: list[tuple[int | None, ...]],
    stages: list[list[int]],
) -> None:
    """Megatron numbers ranks by tensor, sequence, copy and stage, whatever layout is read."""
    tensors, contexts, pipeline = sizes
    for rank, capture in enumerate(profile.captures):
        args = {
            "tensor_model_parallel_size": tensors,
            "context_parallel_size": contexts,
            "pipeline_model_parallel_size": pipeline,
            "world_size": 2,
            "rank": rank,
        }
        path = capture / "profiler_metadata.json"
        path.write_text(json.dumps({"distributed_args": args}), encoding="utf-8")
    strip(profile.captures[1])
    report = command.report(profile.path)
    names = ("dp_index", "pp_index", "tp_index")
    assert [tuple(one[name] for name in names) for one in report["ranks"]] == indices
    assert report["parallel"]["stage_ranks"] == stages
    table = profile.path.parent / "steps.csv"
    command(profile.path, "--csv", table, "-o", profile.path.parent / "o.pftrace")
    with table.open(encoding="utf-8", newline="") as file:
        row = next(csv.DictReader(file))
    assert ("PP Index" in row) == (indices[0][0] is not None)


def test_groups_tell_stages_of_any_order(profile: Profile, command: Command) -> None:
    """The place of a rank in its group `pp` goes before what numbers of ranks suggest."""
    for rank, capture in enumerate(profile.captures):
        strip(capture)
        groups = {"g": {"group_name": "pp", "global_ranks": [0, 1] if rank else [0, 5]}}
        args = {"tensor_model_parallel_size": 1, "world_size": 8, "pipeline_model_parallel_size": 2}
        path = capture / "profiler_metadata.json"
        document = {"distributed_args": args, "parallel_group_info": groups}
        path.write_text(json.dumps(document), encoding="utf-8")
    report = command.report(profile.path)
    assert report["parallel"]["stage_ranks"] == [[0], [1]]
    assert [one["pp_index"] for one in report["ranks"]] == [0, 1]
