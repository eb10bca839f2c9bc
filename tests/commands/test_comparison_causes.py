"""Proves that a comparison names what was changed in a run, first and by size, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import timeline
from simulator.layouts import LAYOUTS
from simulator.scenario import Scenario
from simulator.simulation import make_run
from tests.support.places import real_capture
from timeline.cli.main import main
from timeline.comparison.parts import EXPOSED
from timeline.reports.comparison_report import ComparisonReport

pytestmark = pytest.mark.sweep

RANKS, STEPS = 4, 8
GOOD = Scenario()
Simulated = Callable[..., Path]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """A profile of a cluster with some faults, made once."""
    made: dict[str, Path] = {}

    def get(scenario: Scenario = GOOD, layout: str = "torch-db", **run: Any) -> Path:
        name = repr((scenario, layout, sorted(run.items())))
        if name not in made:
            made[name] = tmp_path_factory.mktemp("run") / "profile"
            its = {"ranks": RANKS, "steps": STEPS, "ops_per_step": 12, "planes": 2, **run}
            LAYOUTS[layout](make_run(scenario=scenario, **its), made[name])
        return made[name]

    return get


def causes(report: ComparisonReport) -> list[dict[str, Any]]:
    return report.comparison.causes.to_dicts()


def first_cause(report: ComparisonReport) -> dict[str, Any]:
    return causes(report)[0]


# -- known changes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "rank", "own"),
    [
        (Scenario(slow_computing={1: 1.6}), 1, {"convolution", "vector", "matmul", "AI CPU"}),
        (Scenario(megahertz={2: 1200}), 2, {"convolution", "vector", "matmul"}),
        (Scenario(starved_ns={0: 800_000}), 0, {"waiting for data"}),
        (Scenario(late_host_ns={3: 200_000}), 3, {"host busy elsewhere"}),
    ],
)
def test_a_rank_that_others_wait_for_is_named_with_what_changed_there(
    simulated: Simulated, here: Path, scenario: Scenario, rank: int, own: set[str]
) -> None:
    """Waiting is what changed most of all ranks; its cause is what changed most on that rank."""
    report = timeline.compare(simulated(), simulated(scenario), "t.pftrace")
    first = first_cause(report)
    assert (first["cause"], first["part_of"]) == ("waiting", EXPOSED)
    headline, of_rank, *_ = report.comparison.sentences()
    assert f": exposed waiting for rank {rank} +" in headline
    assert of_rank.startswith(f"On rank {rank}: ")
    there = report.comparison.rank_causes.to_dicts()
    assert {row["rank"] for row in there} == {rank}
    longer = [row["cause"] for row in there if row["delta_ns"] > 0]
    assert own & set(longer[:2])
    waited = report.comparison.waiting.to_dicts()[0]
    assert waited["waited_for_rank"] == rank


def test_slower_links_are_transfer(simulated: Simulated, here: Path) -> None:
    """And nobody waits longer for anybody."""
    slow = Scenario(slow_links={3: 3.0})
    report = timeline.compare(simulated(), simulated(slow), "t.pftrace")
    first, *others = causes(report)
    assert (first["cause"], first["part_of"]) == ("transfer", EXPOSED)
    whole_ns = report.comparison.whole["delta_ns"]
    assert first["delta_ns"] == pytest.approx(whole_ns, rel=0.02)
    assert all(abs(row["delta_ns"]) < 0.02 * whole_ns for row in others)
    assert not len(report.comparison.rank_causes)


def test_another_frequency_is_told(simulated: Simulated, here: Path) -> None:
    """Of the ranks that run at it, on both sides."""
    slow = Scenario(megahertz=dict.fromkeys(range(RANKS), 1200))
    report = timeline.compare(simulated(), simulated(slow), "t.pftrace")
    assert report.comparison.frequencies["base_mhz"].tolist() == [1800.0] * RANKS
    assert report.comparison.frequencies["new_mhz"].tolist() == [1200.0] * RANKS
    said = " ".join(report.comparison.sentences())
    assert "AI cores of all ranks run at another frequency: up to 1.20 GHz, 1.80 before." in said


@pytest.mark.parametrize("layout", ["torch-db", "torch-text", "kineto"])
def test_equal_runs_name_nothing(simulated: Simulated, here: Path, layout: str) -> None:
    """Every table is there, and nothing in it changed."""
    path = simulated(layout=layout)
    report = timeline.compare(path, path, "t.pftrace", kind="detail", fail_above="0%")
    found = report.to_dict()["comparison"]
    for name, rows in found.items():
        for row in rows if isinstance(rows, list) and name != "sentences" else ():
            assert not {key: value for key, value in row.items() if "delta" in key and value}
    (said,) = report.comparison.sentences()
    assert said.startswith("Step exactly as long as before")
    assert report.gate is not None
    assert (report.gate.ratio, report.gate.failed) == (1.0, False)
    assert len(report.comparison.idle_causes)
    assert len(report.comparison.launchers)


@pytest.mark.parametrize("layout", ["torch-db", "kineto"])
def test_causes_add_up_to_the_whole(simulated: Simulated, here: Path, layout: str) -> None:
    """In both runs, but for rounding; no cause contains another one."""
    scenario = Scenario(late_host_ns={1: 100_000})
    report = timeline.compare(
        simulated(layout=layout), simulated(scenario, layout=layout), "t.pftrace"
    )
    rows = causes(report)
    for side in ("base_ns", "new_ns", "delta_ns"):
        told = sum(row[side] for row in rows)
        assert told == pytest.approx(report.comparison.whole[side], abs=len(rows))
    assert not {row["cause"] for row in rows} & {row["part_of"] for row in rows}
    assert "computing" not in {row["cause"] for row in rows}
    sizes = [abs(row["delta_ns"]) for row in rows]
    assert sizes == sorted(sizes, reverse=True)


def test_causes_of_idle_time_need_the_same_host_calls(simulated: Simulated, here: Path) -> None:
    """Where one run records others, idle time is compared as a whole, and that is said."""
    report = timeline.compare(simulated(), simulated(layout="kineto"), "t.pftrace")
    assert "idle" in {row["cause"] for row in causes(report)}
    assert any("causes of idle time are not compared" in line for line in report.warnings)


# -- ordinary steps --------------------------------------------------------------------------------


def test_warm_up_is_not_compared(simulated: Simulated, here: Path) -> None:
    """A first step with slow links changes nothing, however few other steps a run has."""
    warm_up = Scenario(slow_links={3: 40.0}, faulty_step=0)
    report = timeline.compare(simulated(), simulated(warm_up), "t.pftrace", fail_above="5%")
    assert report.comparison.steps["base_step"].tolist() == list(range(2, STEPS + 1))
    assert abs(report.comparison.whole["delta_ns"]) < 0.05 * report.comparison.whole["base_ns"]
    assert report.gate is not None
    assert not report.gate.failed
    assert report.gate.base_steps == STEPS - 1


def test_few_steps_are_compared_with_their_warm_up(simulated: Simulated, here: Path) -> None:
    """With fewer than three others, a first step is as good as they are."""
    report = timeline.compare(simulated(steps=3), simulated(), "t.pftrace")
    assert report.comparison.steps["base_step"].tolist() == [1, 2, 3]
    assert len(report.comparison.new_steps_ns) == STEPS - 1


# -- the gate --------------------------------------------------------------------------------------


def test_a_slower_run_fails_after_all_is_written(
    simulated: Simulated, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 5 and the sentence of the gate."""
    slow = simulated(Scenario(slow_links={3: 3.0}))
    sides = [str(simulated()), str(slow)]
    files = ["--csv", "t.csv", "--report", "t.html", "--markdown", "t.md"]
    assert main(["compare", *sides, "--fail-above", "5%", "--json", *files]) == 5
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["gate"]["failed"] is True
    assert found["gate"]["separated"] is True
    assert found["gate"]["limit"] == 0.05
    assert found["gate"]["ratio"] > 1.4
    assert found["markdown"] == "t.md"
    assert "Gate of 5% fails: median step +" in printed.err
    written = {one.name: one.read_bytes() for one in here.iterdir()}
    base, new = (Path(side).name for side in sides)
    timeline_name = f"compare-{base}-{new}-summary.pftrace"
    assert set(written) == {"t.csv", "t.html", "t.md", timeline_name}
    assert b"Gate of 5% fails" in written["t.md"]
    assert b"Gate of 5% fails" in written["t.html"]
    # The other way round it is faster, and passes.
    assert main(["compare", *sides[::-1], "--fail-above", "5%", "-q", "--force"]) == 0
    assert capsys.readouterr().err == ""


def test_too_few_steps_are_compared_and_warn(
    simulated: Simulated, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However much slower they are: the exit code stays 0, and all is written."""
    slow = simulated(Scenario(slow_links={3: 3.0}), steps=3)
    sides = [str(simulated(steps=3)), str(slow)]
    assert main(["compare", *sides, "--fail-above", "5%", "--json", "--markdown", "t.md"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["gate"]["ratio"] > 1.4
    assert (found["gate"]["separated"], found["gate"]["failed"]) == (None, False)
    assert any("does not fail on 3 and 3 steps" in warning for warning in found["warnings"])
    assert "does not fail on 3 and 3 steps" in printed.err
    assert "Gate of 5% passes" in Path("t.md").read_text(encoding="utf-8")


def test_the_library_raises_nothing(simulated: Simulated, here: Path) -> None:
    """It tells; without a limit there is no gate."""
    slow = simulated(Scenario(slow_links={3: 3.0}))
    report = timeline.compare(simulated(), slow, "t.pftrace", fail_above=0.05)
    assert report.gate is not None
    assert report.gate.failed
    assert timeline.compare(slow, slow, "u.pftrace").gate is None


@pytest.mark.parametrize("limit", ["5", "x%", "-1%", "nan%", ""])
def test_a_limit_is_a_percentage(
    here: Path, capsys: pytest.CaptureFixture[str], limit: str
) -> None:
    assert main(["compare", "a", "b", f"--fail-above={limit}"]) == 2
    assert "Write a percentage, as in 5%." in capsys.readouterr().err


def test_markdown_is_printed(
    simulated: Simulated, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it goes to standard output, words give way; it excludes what else goes there."""
    path = str(simulated())
    assert main(["compare", path, path, "--markdown", "t.md", "-q"]) == 0
    assert main(["compare", path, path, "--markdown", "-", "--force"]) == 0
    printed = capsys.readouterr()
    assert printed.out == (here / "t.md").read_text(encoding="utf-8")
    assert "Step exactly as long as before" in printed.err
    for other in (["--json"], ["--csv", "-"]):
        assert main(["compare", path, path, "--markdown", "-", *other]) == 2
        assert "exclude each other" in capsys.readouterr().err


# -- what few people ask for -----------------------------------------------------------------------


def test_verbose_tells_more(
    simulated: Simulated, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Quartiles, HCCL tasks and memory; the last of counters, which a detail reads."""
    slow = simulated(Scenario(slow_links={3: 3.0}))
    words = ["compare", str(simulated()), str(slow), "--force"]
    assert main(words) == 0
    short = capsys.readouterr().out
    assert main([*words, "-v", "--kind", "detail"]) == 0
    long = capsys.readouterr().out
    for told in ("median before", "HCCL tasks", "memory, peak"):
        assert told in long
        assert told not in short


# -- real captures ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["torch-npu-text", "torch-npu-db", "torch-npu-db-2024-10", "mindspore-2.1", "trace-view-2024"],
)
def test_real_captures_do_not_differ_from_themselves(tmp_path: Path, name: str) -> None:
    path = real_capture(name)
    report = timeline.compare(path, path, tmp_path / "t.pftrace")
    found = report.to_dict()["comparison"]
    for rows in found.values():
        for row in rows if isinstance(rows, list) else ():
            assert not isinstance(row, dict) or not row.get("delta_ns")
    assert len(list(report.comparison.sentences())) == 1
