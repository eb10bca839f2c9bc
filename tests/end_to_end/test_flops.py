"""Proves that floating-point operations and the step trace of a profile come out everywhere.

Made profiles hold the truth of a simulated run; real ones lie beside the project, and without them
their tests are skipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import timeline
from simulator.model import Run
from simulator.recording import TICK_NS
from simulator.writers.mindspore.tables.flops import Work, operators_of, write_flops
from simulator.writers.mindspore.text import TextFiles, tick
from tests.support.html_page import HOSTILE, read
from tests.support.perfetto_sql import TraceProcessor
from tests.support.places import real_capture
from tests.support.profile_shelf import Copier, ProfileShelf
from tests.support.run_command import Command

Report = dict[str, Any]
ARGS = """
select coalesce(extract_arg(arg_set_id, 'task.name'), slice.name), args.key, args.int_value,
args.real_value from slice
join args using (arg_set_id) where args.key in ('task.flop', 'task.flop_per_s', 'task.utilization')
"""


@pytest.fixture
def profile(copied: Copier) -> tuple[Path, Run]:
    """The text outputs of two ranks with their floating-point operations."""
    found = copied("mindspore-text")
    for rank in found.run.ranks:
        write_flops(found.run, rank, found.path / "profiler")
    return found.path, found.run


def works_of(run: Run, rank: int, path: Path) -> dict[str, Work]:
    kernels = TextFiles(run, run.rank(rank), path).kernels(on_cpu=False)
    return {work.name: work for work in operators_of(kernels)}


def picked(rows: list[Report], **wanted: object) -> list[Report]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


# -- floating-point operations ---------------------------------------------------------------------


def test_each_rank_tells_what_it_does(profile: tuple[Path, Run], command: Command) -> None:
    """Its operators, its scopes, its steps, and all of it."""
    path, run = profile
    report = command.report(path)
    for rank in (0, 1):
        works = works_of(run, rank, path)
        rows = picked(report["flops"], rank=rank)
        told = {row["name"]: row["flop"] for row in picked(rows, level="operator")}
        assert told == {name: round(work.mflop * 10**6) for name, work in works.items()}
        (whole,) = picked(rows, level="rank")
        assert whole["flop"] == pytest.approx(sum(told.values()), abs=1_000)
        assert 0 < whole["utilization"] < 1
        assert [row["step"] for row in picked(rows, level="step")] == [1, 2, 3]
        top = picked(rows, level="scope", parent="Total")
        assert sum(row["flop"] for row in top) == pytest.approx(whole["flop"], abs=2_000)
    assert not report["omitted"]


def test_steps_that_are_selected_are_told_alone(
    profile: tuple[Path, Run], command: Command
) -> None:
    """What is of no step stays; ranks that are not selected go."""
    path, _ = profile
    every = command.report(path)["flops"]
    some = command.report(path, "--steps", "2", "--ranks", "1")["flops"]
    assert some == [row for row in every if row["rank"] == 1 and row["step"] in (None, 2)]


def test_tasks_have_the_operations_of_their_operator(
    profile: tuple[Path, Run], tmp_path: Path, command: Command
) -> None:
    """All that an operator is named after, whatever they take; none with --args none."""
    path, run = profile
    target = tmp_path / "t.pftrace"
    command.report(path, "-o", target, "--kind", "detail", "--ranks", "0")
    works = works_of(run, 0, path)
    found: dict[str, dict[str, float]] = {}
    for name, key, whole, real in TraceProcessor.load(target.read_bytes()).rows(ARGS):
        found.setdefault(str(name), {})[str(key)] = float(real if whole is None else whole)
    assert found.keys() == works.keys()
    for name, args in found.items():
        assert args["task.flop"] == round(works[name].mflop * 10**6)
        assert args["task.flop_per_s"] == pytest.approx(works[name].gflop_per_s * 1e9, rel=1e-3)
        assert args["task.utilization"] == pytest.approx(works[name].percent / 100, rel=1e-3)
    command.report(path, "-o", target, "--kind", "detail", "--ranks", "0", "--args", "none")
    assert not list(TraceProcessor.load(target.read_bytes()).rows(ARGS))


def test_the_page_shows_scopes_ranks_and_operators(
    profile: tuple[Path, Run], tmp_path: Path, command: Command
) -> None:
    """A profile without such files has no such section; names are only text."""
    path, _ = profile
    scopes = path / "profiler" / "flops_scope_0.json"
    held = json.loads(scopes.read_text())
    held["data"]["links"].append({"source": "Total", "target": HOSTILE, "value": 5})
    scopes.write_text(json.dumps(held))
    page = tmp_path / "page.html"
    command.report(path, "--report", str(page))
    assert HOSTILE not in page.read_text()
    shown = read(page.read_bytes())
    (section,) = [block for block in shown.blocks if block.get("anchor") == "flops"]
    assert "Scopes of rank 0" in [block.get("text") for block in section["blocks"]]
    assert "layer1-SequentialCell" in json.dumps(section)
    assert any("Conv2D-op" in name for name in shown.column("flops-operators", "Operator"))
    for name in ("flops_*", "flops_scope_*"):
        for file in path.glob(f"profiler/{name}"):
            file.unlink()
    command.report(path, "--report", str(page), "--force")
    assert "FLOPs" not in page.read_text()


# -- the step trace --------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["mindspore-tables", "mindspore-text", "mindspore-raw"])
def test_the_step_trace_is_that_of_the_run(
    shelf: ProfileShelf, layout: str, command: Command
) -> None:
    """Its steps, and the mean of all but the first, as the file has it too."""
    found = shelf.get(layout)
    report = command.report(found.path)
    for rank in found.run.ranks:
        rows = picked(report["step_trace"], rank=rank.rank)
        steps = [row for row in rows if row["step"] is not None]
        ends = [tick(found.run, step.iterations[-1].end_ns) * TICK_NS for step in rank.steps]
        forward = [
            tick(found.run, step.iterations[0].forward_start_ns) * TICK_NS for step in rank.steps
        ]
        assert [row["step"] for row in steps] == [step.id for step in rank.steps]
        starts = [forward[0], *ends[:-1]]
        first_ns = steps[0]["start_ns"]  # raw captures are put on wall time
        assert [row["start_ns"] - first_ns for row in steps] == [at - starts[0] for at in starts]
        assert [row["interval_ns"] for row in steps] == [
            None,
            *(fp - end for fp, end in zip(forward[1:], ends[:-1], strict=True)),
        ]
        (mean,) = picked(rows, of="steps")
        parts = ("total_ns", "interval_ns", "fp_bp_ns", "tail_ns")
        for part in parts:
            values = [row[part] for row in steps[1:]]
            assert mean[part] == pytest.approx(sum(values) / len(values), abs=0.5)
        of_file = picked(rows, of="file")
        assert len(of_file) == (layout != "mindspore-raw")
        for its in of_file:
            assert all(its[part] == pytest.approx(mean[part], abs=TICK_NS / 2) for part in parts)


def test_means_are_of_the_steps_that_are_selected(
    shelf: ProfileShelf, tmp_path: Path, command: Command
) -> None:
    """The file does not tell what of its mean is of them; an interval is told without its step."""
    found = shelf.get("mindspore-text")
    every = command.report(found.path)["step_trace"]
    target = tmp_path / "some.pftrace"
    some = command.report(found.path, "-o", target, "--steps", "2-3", "--ranks", "0")["step_trace"]
    steps = [row for row in some if row["step"] is not None]
    assert steps == [row for row in every if row["rank"] == 0 and row["step"] in (2, 3)]
    (mean,) = [row for row in some if row["step"] is None]
    assert mean["of"] == "steps"
    assert mean["total_ns"] == pytest.approx(sum(row["total_ns"] for row in steps) / 2, abs=0.5)
    (one,) = command.report(found.path, "-o", target, "--steps", "3", "--ranks", "0")["step_trace"]
    assert one == steps[1]


# -- real captures ---------------------------------------------------------------------------------


def cell(rows: list[Report], column: str, **wanted: object) -> Any:
    (row,) = picked(rows, **wanted)
    return row[column]


@pytest.mark.filterwarnings("ignore::timeline.TimelineWarning")
def test_operations_of_a_real_rank() -> None:
    """As its files have them, in FLOP and FLOP/s."""
    with timeline.open_profile(real_capture("mindspore-flops")) as profile:
        rows = profile.flops().to_dicts()
    assert picked(rows, level="rank") == [
        {
            **dict.fromkeys(("name", "parent", "step")),
            "rank": 0,
            "level": "rank",
            "unit": "all",
            "flop": 8_167_743_000,
            "flop_per_s": 9_868_936_000_000,
            "utilization": 0.03765,
        }
    ]
    assert cell(rows, "flop", name="Default", parent="Total") == 4_655_465_000
    assert cell(rows, "flop", name="Gradients") == 3_512_277_000
    (cast,) = picked(rows, name="Default/Cast-op6")
    assert (cast["flop"], cast["flop_per_s"]) == (333_000_000, 333_000_000_000)
    assert cast["utilization"] == 0.33


@pytest.mark.filterwarnings("ignore::timeline.TimelineWarning")
def test_step_traces_of_real_ranks() -> None:
    """Also where the file is a part of a longer one, whose mean it holds."""
    with timeline.open_profile(real_capture("mindspore-cluster-steps")) as profile:
        rows, flops = profile.step_trace().to_dicts(), profile.flops().to_dicts()
    assert cell(flops, "flop", rank=1, level="rank") == 107_145_034_000
    for rank, of_file, of_steps in ((0, 1_572_250, 839_068), (1, 1_558_820, 841_718)):
        assert cell(rows, "interval_ns", rank=rank, step=None, of="file") == of_file
        assert cell(rows, "interval_ns", rank=rank, step=None, of="steps") == of_steps
    with timeline.open_profile(real_capture("mindspore-run2")) as profile:
        rows = profile.step_trace().to_dicts()
    (step,) = picked(rows, rank=1, step=1)
    assert (step["interval_ns"], step["fp_bp_ns"], step["tail_ns"]) == (None, 23_668_080, 40_970)
    assert (step["total_ns"], step["fp_start"]) == (23_709_050, "Default/EndOfSequence-op131")
    assert cell(rows, "interval_ns", step=None, of="file") == 12_432_110


@pytest.mark.filterwarnings("ignore::timeline.TimelineWarning")
def test_a_real_file_holds_the_mean_of_its_steps() -> None:
    """Of all but the first, rounded to a tick; raw data of the same run says the same."""
    with timeline.open_profile(real_capture("mindspore-0.7-text")) as profile:
        rows = profile.step_trace().to_dicts()
    with timeline.open_profile(real_capture("mindspore-raw-JOB3")) as profile:
        raw = profile.step_trace().to_dicts()
    (of_steps,), (of_file,) = picked(rows, of="steps"), picked(rows, of="file")
    for part in ("total_ns", "interval_ns", "fp_bp_ns", "tail_ns"):
        assert of_steps[part] == pytest.approx(of_file[part], abs=TICK_NS / 2)
    assert [row for row in raw if row["of"] is None] == [row for row in rows if row["of"] is None]
    with timeline.open_profile(real_capture("mindspore-raw-JOB1")) as profile:
        (mean,) = picked(profile.step_trace().to_dicts(), of="steps")
    expected = {"total_ns": 130_456_110, "interval_ns": 90_353_600, "fp_bp_ns": 17_094_490}
    assert {part: mean[part] for part in expected} == pytest.approx(expected, abs=10)
    assert mean["tail_ns"] == pytest.approx(23_008_020, abs=10)
