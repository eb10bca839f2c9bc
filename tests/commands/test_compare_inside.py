"""Proves that two steps or ranks of one run are compared, and that the verdict says how."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timeline
from simulator.model import Run
from simulator.scenario import Scenario, slow_step
from simulator.simulation import make_run
from tests.support.html_page import read
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import WRITERS
from timeline.cli.main import main
from timeline.units import ColumnUnit

SLOW, RANK = 6, 2
"""The slow step of the first run, and the rank that computes slowly, in all steps of the second."""


def written(run: Run, path: Path, layout: str = "torch-text") -> Path:
    path.mkdir()
    WRITERS[layout](run, path)
    return path


@pytest.fixture(scope="module")
def slow_in_a_step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = make_run(ranks=4, steps=8, scenario=slow_step(RANK, 2.0, SLOW - 1))
    return written(run, tmp_path_factory.mktemp("step") / "run")


@pytest.fixture(scope="module")
def slow_rank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scenario = Scenario(slow_computing={RANK: 1.5})
    run = make_run(ranks=4, steps=5, scenario=scenario, ops_per_step=12)
    return written(run, tmp_path_factory.mktemp("rank") / "run")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def periods_ns(profile: Path, step: int) -> dict[int, int]:
    """The period of a step on each rank."""
    with timeline.open_profile(profile) as opened:
        rows = opened.steps().to_dicts()
    return {row["rank"]: row["period_ns"] for row in rows if row["step"] == step}


def compared(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    """The comparison that the command prints for programs."""
    assert main(["compare", *map(str, words), "--json", "--force"]) == 0
    comparison: dict[str, Any] = json.loads(capsys.readouterr().out)["comparison"]
    return comparison


def test_two_steps_of_a_run(
    slow_in_a_step: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the lengths that `steps` has, the slow rank as the cause, and both steps by name."""
    found = compared(capsys, slow_in_a_step, "--steps", f"3:{SLOW}")
    assert found["sides"] == {"base": "step 3", "new": f"step {SLOW}"}
    (row,) = found["steps"]
    base, new = periods_ns(slow_in_a_step, 3), periods_ns(slow_in_a_step, SLOW)
    assert (row["base_step"], row["new_step"]) == (3, SLOW)
    assert (row["base_ns"], row["new_ns"]) == (max(base.values()), max(new.values()))
    ranks = {one["rank"]: (one["base_ns"], one["new_ns"]) for one in found["ranks"]}
    assert ranks == {rank: (base[rank], new[rank]) for rank in base}
    first, *others = found["sentences"]
    assert first.startswith(f"Step {SLOW} +")
    assert f"against step 3: exposed waiting for rank {RANK} +" in first
    assert others[0].startswith(f"On rank {RANK}: ")
    assert not any(word in " ".join(others) for word in (" before", " now"))


def test_the_first_step_counts_where_it_is_the_only_one(
    slow_in_a_step: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On either side; and what is swapped changes sign."""
    there = compared(capsys, slow_in_a_step, "--steps", "1:2")
    back = compared(capsys, slow_in_a_step, "--steps", "2:1")
    (row,), (swapped,) = there["steps"], back["steps"]
    assert (row["base_step"], row["new_step"]) == (1, 2)
    assert row["base_ns"] == max(periods_ns(slow_in_a_step, 1).values())
    assert row["delta_ns"] == -swapped["delta_ns"] != 0


def test_a_range_of_steps_is_a_mean(
    slow_in_a_step: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(capsys, slow_in_a_step, "--steps", f"3-5:{SLOW}")
    whole = next(row for row in found["overall"] if row["metric"] == "end to end")
    times = [ns for step in (3, 4, 5) for ns in periods_ns(slow_in_a_step, step).values()]
    assert whole["base_ns"] == pytest.approx(sum(times) / len(times), abs=2)
    assert "steps 3-5" in found["sentences"][0]


def test_two_ranks_of_a_run(
    slow_rank: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps are paired by number, ranks in order, and the slow one computes longer."""
    found = compared(capsys, slow_rank, "--ranks", f"1:{RANK}", "--csv", "t.csv")
    assert found["sides"] == {"base": "rank 1", "new": f"rank {RANK}"}
    assert [(one["rank"], one["new_rank"]) for one in found["ranks"]] == [(1, RANK)]
    pairs = [(row["base_step"], row["new_step"]) for row in found["steps"]]
    assert pairs == [(step, step) for step in (2, 3, 4, 5)]
    assert {row["new_rank"] for row in found["steps"]} == {RANK}
    parts = {row["metric"]: row for row in found["overall"]}
    assert parts["convolution"]["new_ns"] == pytest.approx(
        1.5 * parts["convolution"]["base_ns"], rel=0.05
    )
    assert found["sentences"][0].startswith(f"Rank {RANK} ")
    assert "against rank 1" in found["sentences"][0]
    assert " on rank 1, " in found["sentences"][1]
    assert (here / "t.csv").is_file()


def test_several_ranks_are_paired_in_order(
    slow_rank: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one step of both too; names of rows keep the numbers of each."""
    found = compared(capsys, slow_rank, "--ranks", "0,1:2,3", "--steps", "3", "-o", "t.pftrace")
    assert [(one["rank"], one["new_rank"]) for one in found["ranks"]] == [(0, 2), (1, 3)]
    assert [row["base_step"] for row in found["steps"]] == [3]
    trace = TraceProcessor.load((here / "t.pftrace").read_bytes())
    names = {
        str(name).strip().partition(":")[0] for (name,) in trace.rows("SELECT name FROM track")
    }
    assert {"Rank 0 base", "Rank 1 base", "Rank 2 new", "Rank 3 new"} <= names


def test_a_rank_that_both_sides_wait_for_is_listed_once(
    slow_rank: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a rank that is read, though only one side reads it."""
    rows = compared(capsys, slow_rank, "--ranks", f"0,1:{RANK},3")["waiting"]
    awaited = [row["waited_for_rank"] for row in rows]
    assert len(awaited) == len(set(awaited))
    (row,) = (row for row in rows if row["waited_for_rank"] == RANK)
    assert row["profiled"]
    assert row["base_ns"] > 0
    assert row["new_ns"] > 0


def test_pairs_in_order_are_named_by_both_ranks(
    slow_rank: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All others wait for the base, which is also one of them; waits keep the rank's own number."""
    found = compared(capsys, slow_rank, "--ranks", f"{RANK}:0-3", "-o", "t.pftrace")
    longest = max(found["waiting"], key=lambda row: row["new_ns"])
    assert (longest["waited_for_rank"], longest["profiled"]) == (RANK, 1)
    assert {row["rank"] for row in found["rank_causes"]} == {RANK}
    first, second, *_ = found["sentences"]
    assert f"exposed waiting for rank {RANK} " in first
    assert second.startswith(f"Rank 0 against rank {RANK}: ")
    trace = TraceProcessor.load((here / "t.pftrace").read_bytes())
    (remarked,) = {
        str(name).strip()
        for (name,) in trace.rows("SELECT name FROM track WHERE name GLOB '*slows the others*'")
    }
    assert remarked.startswith(f"Rank {RANK} new")


def test_each_side_has_the_offsets_of_its_ranks(
    slow_rank: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They change no comparison of times; one of a rank on neither side is refused."""
    words = (slow_rank, "--ranks", f"1:{RANK}")
    own = compared(capsys, *words)
    for offsets in (["1=+10us"], [f"{RANK}=-3s"], ["1=+10us", f"{RANK}=-3s"]):
        given = [word for offset in offsets for word in ("--offset", offset)]
        assert compared(capsys, *words, *given) == own
    assert main(["compare", *map(str, words), "--offset", "3=+1us", "--verdict"]) == 3
    assert "--offset: rank 3 is not selected" in capsys.readouterr().err


def test_both_begin_together_in_the_timeline(slow_in_a_step: Path, here: Path) -> None:
    """And text, page and Markdown name both steps."""
    report = timeline.compare(
        slow_in_a_step, None, steps=f"3:{SLOW}", report="t.html", markdown="t.md"
    )
    (output,) = report.outputs
    assert output.path.name == f"compare-run-summary-s3-vs-{SLOW}.pftrace"
    assert report.base == report.new
    trace = TraceProcessor.load(output.path.read_bytes())
    starts: dict[object, object] = dict(
        trace.rows("SELECT name, min(ts) FROM slice WHERE name GLOB 'Step [36]' GROUP BY 1")
    )
    assert starts["Step 3"] == starts[f"Step {SLOW}"]
    said = timeline.read_verdict(output.path)
    assert said.sentences == tuple(report.comparison.sentences())
    assert any(re.search(rf"step 3 \(\w+\)  step {SLOW} \(", line) for line in said.lines)
    titles = f"| step 3 (ms) | step {SLOW} (ms) | change (ms) |"
    assert titles in Path("t.md").read_text(encoding="utf-8")
    page = read(Path("t.html").read_bytes())
    for column, name in ((f"Step {SLOW}", "new_ns"), ("Step 3", "base_ns")):
        told = list(map(int, page.column("overall", column)))
        assert told == report.comparison.parts[name].tolist()


OVERALL = ("overall", "classes-launch", "classes-kernel")
"""Tables of the page with rows of `overall`."""


@pytest.mark.parametrize("pair", [{"steps": "3:4"}, {"ranks": f"{RANK}:0-3"}, {"ranks": "0,1:2,3"}])
def test_page_and_markdown_hold_the_numbers_of_the_json(
    pair: dict[str, str], slow_rank: Path, here: Path
) -> None:
    """Each cell of each table with times is that of a row of the same table, by its name."""
    words = [word for name, text in pair.items() for word in (f"--{name}", text)]
    words += ["--json", "--force", "--report", "t.html", "--markdown", "t.md"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["compare", str(slow_rank), *words]) == 0
    found: dict[str, Any] = json.loads(out.getvalue())["comparison"]
    page, heads = read(Path("t.html").read_bytes()), [*found["sides"].values()]
    titles = [head[:1].upper() + head[1:] for head in heads]
    assert set(OVERALL) < page.tables.keys()
    for name, table in page.tables.items():
        rows = found["overall" if name in OVERALL else name.replace("-", "_")]
        own = "_self" if name == "modules" else ""
        keys = [f"{side}{own}_ns" for side in ("base", "new", "delta")]
        at = [page.titles(name).index(title) for title in (*titles, "Change")]
        times = list(zip(*(table["columns"][column]["values"] for column in at), strict=True))
        assert times
        assert set(times) <= {tuple(row[key] for key in keys) for row in rows}
    parts = [row for row in found["overall"] if row["by"] is None]
    assert page.column("overall", titles[0]) == [str(row["base_ns"]) for row in parts]
    lines = Path("t.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip(" *\u00a0") for cell in line.split("|")[1:-1]] for line in lines]
    (begin,) = (at for at, row in enumerate(cells) if row and row[0].startswith("per step"))
    unit = ColumnUnit.of_times(row[f"{side}_ns"] for row in parts for side in ("base", "new"))
    assert cells[begin][1:4] == [f"{head} ({unit.name})" for head in (*heads, "change")]
    said = cells[begin + 2 : begin + 2 + len(parts)]
    assert [row[0] for row in said] == [name.strip() for name in page.column("overall", "Part")]
    for (_, base, new, change, _), row in zip(said, parts, strict=True):
        assert (base, new) == (unit.format(row["base_ns"]), unit.format(row["new_ns"]))
        assert change == unit.format(row["delta_ns"], signed=True)


def test_the_library_finds_the_same(slow_rank: Path) -> None:
    """With an open profile, of which nothing is said twice; a gate names the sides."""
    with timeline.open_profile(slow_rank) as opened:
        report = timeline.find_changes(opened, ranks=f"1:{RANK}", steps="3:4", fail_above="5%")
    assert report.comparison.sides.titles == ("rank 1, step 3", f"rank {RANK}, step 4")
    assert report.gate is not None
    assert "on rank 1 in step 3" in report.sentences()[-1]
    assert len(set(report.warnings)) == len(report.warnings)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("RUN",), 2, "NEW is missing"),
        (("RUN", "--steps", "3"), 2, "as in --steps 7:3 or --ranks 5:4"),
        (("RUN", "RUN", "--steps", "3:4"), 2, "--steps 3:4: a colon separates two parts of one"),
        (("RUN", "--steps", "3:4", "RUN"), 2, "there is a second profile"),
        (("RUN", "--steps", "3:"), 2, "one side of the colon is empty"),
        (("RUN", "--steps", "3:4:5"), 2, "'4:5' is not an id"),
        (("RUN", "--steps", "3:44"), 3, "step 44 is not in"),
        (("RUN", "--ranks", "7:1"), 3, "rank 7 is not in"),
        (("RUN", "--ranks", "1:2", "--verdict", "--layers", "none"), 2, "no layer 'none'"),
    ],
)
def test_what_cannot_be_compared_is_said(
    slow_rank: Path,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    """With what to do; nothing is written."""
    assert main(["compare", *(word.replace("RUN", str(slow_rank)) for word in words)]) == code
    assert said in capsys.readouterr().err
    assert not any(here.iterdir())


def test_the_library_says_it_in_keywords(slow_rank: Path) -> None:
    with pytest.raises(timeline.UsageError, match=r"as in steps 7:3 or ranks 5:4|steps=7:3"):
        timeline.find_changes(slow_rank)
    with pytest.raises(timeline.UsageError, match="is missing"):
        timeline.find_changes(slow_rank, selection=timeline.Selection(steps=[7, 3]))


# -- the verdict -----------------------------------------------------------------------------------


def lines_of_verdict(capsys: pytest.CaptureFixture[str], profile: Path, *words: str) -> list[str]:
    assert main([str(profile), "--verdict", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_verdict_says_what_of_the_slowest_step_is_longer(
    slow_in_a_step: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Waiting of those that wait, computing of the slow rank, and idle time with its cause."""
    (said,) = (
        line
        for line in lines_of_verdict(capsys, slow_in_a_step)
        if line.startswith(f"Slowest step: {SLOW} (")
    )
    assert said.endswith(" more waiting.")
    (said,) = (
        line
        for line in lines_of_verdict(capsys, slow_in_a_step, "--ranks", str(RANK))
        if line.startswith(f"Slowest step: {SLOW} (")
    )
    assert said.endswith(" more compute.")
    late = Scenario(starved_ns={0: 8_000_000}, faulty_step=3)
    starved = written(make_run(ranks=1, steps=6, scenario=late), tmp_path / "starved")
    (said,) = (
        line for line in lines_of_verdict(capsys, starved) if line.startswith("Slowest step: 4 (")
    )
    assert " more idle (waiting for data)" in said
    without = lines_of_verdict(capsys, starved, "--no-causes")
    assert any(" more before its first kernel." in line for line in without)


def test_commands_of_odd_steps_compare_them_with_a_usual_one(
    slow_in_a_step: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They run as printed, and find the slow rank."""
    said = lines_of_verdict(capsys, slow_in_a_step)
    (command,) = (line.partition(": ")[2] for line in said if "tlexport compare " in line)
    words = shlex.split(command)
    usual, colon, slow = words[words.index("--steps") + 1].partition(":")
    assert (colon, slow) == (":", str(SLOW))
    assert usual != slow
    assert main(words[1:]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert f"against step {usual}: exposed waiting for rank {RANK} +" in first


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "scenario",
    [
        slow_step(1, 1.4, 3),
        Scenario(starved_ns={2: 3_000_000}, faulty_step=2),
        Scenario(late_host_ns={0: 400_000}, faulty_step=5),
    ],
)
def test_the_slow_step_takes_longer_than_the_usual_one(
    scenario: Scenario, seed: int, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the number that the comparison of both begins with, which is near that of all steps."""
    run = written(make_run(ranks=4, steps=6, seed=seed, scenario=scenario), here / "run")
    said = lines_of_verdict(capsys, run)
    (command,) = (line.partition(": ")[2] for line in said if "tlexport compare " in line)
    pair = re.search("--steps [0-9]+:[0-9]+", command)
    assert pair is not None
    found = compared(capsys, run, *pair[0].split())
    whole = next(row for row in found["overall"] if row["metric"] == "end to end")
    assert whole["delta_ns"] > 0
    with timeline.open_profile(run) as opened:
        median_ns = float(np.median(opened.steps()["period_ns"]))
    assert whole["base_ns"] == pytest.approx(median_ns, rel=0.25)


def test_steps_that_are_alike_are_not_compared(
    slow_rank: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = lines_of_verdict(capsys, slow_rank)
    assert any(line.startswith("Steps take ") for line in said)
    assert not any("tlexport compare" in line for line in said)
