"""Holds what is told of real clusters of MindSpore against MindInsight's own answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import DATA, needs_captures
from timeline.cli.main import main

PIPELINE = DATA / "mindspore-cluster-steps"
MODEL_PARALLEL, DATA_PARALLEL = DATA / "mindspore-run3", DATA / "mindspore-run2"
STRATEGIES = DATA / "mindspore-parallel-strategy"
ROUNDING_NS = 100


pytestmark = needs_captures


@pytest.fixture
def told(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Any:
    """The JSON report of a capture."""

    def run(path: Path, *options: str) -> Any:
        target = str(tmp_path / "t.pftrace")
        assert main([str(path), "-o", target, "--force", "--json", *options]) == 0
        return json.loads(capsysbinary.readouterr().out)

    return run


def only(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    (row,) = (row for row in rows if all(row[name] == wanted[name] for name in wanted))
    return row


def test_how_runs_are_split(told: Any) -> None:
    """By names of files, by strategies, and by what the profiler notes."""
    assert told(PIPELINE)["parallel"] == {
        "mode": "pipeline-parallel",
        "stages": 2,
        "ranks": 4,
        "stage_ranks": [[0, 1], [2, 3]],
    }
    assert told(MODEL_PARALLEL)["parallel"]["mode"] == "model-parallel"
    assert told(DATA_PARALLEL)["parallel"]["mode"] == "data-parallel"
    assert told(STRATEGIES)["parallel"] == {
        "mode": "auto_parallel",
        "stages": 1,
        "ranks": 2,
        "stage_ranks": [[0, 1]],
    }


def test_times_of_ranks(told: Any) -> None:
    """In each step and in the mean of the file; a data-parallel run has them in its step trace."""
    times = told(PIPELINE)["parallel_times"]
    first = only(times, rank=0, step=1)
    assert (first["receive_alone_ns"], first["collective_alone_ns"]) == (56_397_300, 108_078_700)
    assert only(times, rank=0, of="file")["computing_ns"] == 14_698_600
    assert {row["stage"] for row in times if row["rank"] == 2} == {1}
    row = only(told(MODEL_PARALLEL)["parallel_times"], rank=1, step=1)
    assert (row["computing_ns"], row["communication_alone_ns"]) == (651_905_100, 1_293_123_100)
    assert row["stage"] == 0 and row["stage_ns"] is None
    assert told(DATA_PARALLEL)["parallel_times"] == []


def test_times_of_steps_add_up(told: Any) -> None:
    """A stage is computing and collectives; communication is receives and collectives: 20 of 20."""
    rows = [row for row in told(PIPELINE)["parallel_times"] if row["of"] is None]
    assert len(rows) == 20
    for row in rows:
        stage_ns = row["computing_ns"] + row["collective_alone_ns"]
        assert abs(row["stage_ns"] - stage_ns) <= ROUNDING_NS
        alone_ns = row["receive_alone_ns"] + row["collective_alone_ns"]
        assert abs(row["communication_alone_ns"] - alone_ns) <= ROUNDING_NS


def test_links_are_as_fast_as_what_they_moved(told: Any) -> None:
    """Of a summary too, each rank's apart, and of the steps that are selected."""
    links = told(PIPELINE)["links"]
    row = only(links, rank=0, source_rank=1, target_rank=0)
    assert (row["size_bytes"], row["total_ns"]) == (276_416_512, 13_204_160)
    assert row["bandwidth_gb_s"] == pytest.approx(20.934, abs=5e-4)
    assert (row["link"], row["count"], row["group"]) == ("SDMA", None, None)
    assert len(links) == 8  # a-a are rows too
    some = told(PIPELINE, "--steps", "2")["links"]
    assert only(some, rank=0, source_rank=1, target_rank=0)["size_bytes"] == 52_706_816


def test_advice_is_that_of_mindinsight(told: Any) -> None:
    """Its proposals, but for the link, which it finds by sums of bandwidths."""
    found: dict[str, dict[str, Any]] = {}
    advice = told(PIPELINE)["advice"]
    for row in advice:
        found.setdefault(row["about"], row)
    # Ranks 2 and 3 are both far above the mean: the longest alone is told.
    assert [row["about"] for row in advice].count("step interval of ranks") == 1
    between = found["communication between stages"]
    assert between["share"] == pytest.approx(0.2582, abs=5e-5)
    within = found["communication within a stage"]
    assert (within["stage"], within["share"]) == (0, pytest.approx(0.6029851045963494))
    interval = found["step interval of ranks"]
    assert (interval["rank"], interval["value"]) == (2, 2_431_800)
    assert interval["share"] == pytest.approx(0.2223, abs=5e-5)
    work = found["work of stages"]
    assert (work["stage"], work["value"]) == (1, 329_610_384_500)
    assert work["share"] == pytest.approx(0.5094, abs=5e-5)
    slow = found["link"]
    assert (slow["rank"], slow["source_rank"], slow["target_rank"]) == (1, 0, 1)
    assert slow["share"] == pytest.approx(0.6777, abs=5e-5)
    assert "flop/s of ranks" not in found
    (model,) = told(MODEL_PARALLEL)["advice"]
    assert (model["about"], model["share"]) == ("communication", pytest.approx(0.66484, abs=5e-6))


def test_the_stage_that_computes_longest_limits_the_pipeline(told: Any) -> None:
    """By the mean steps of its ranks, 123.1 and 14.8 ms, where no task is recorded."""
    (finding,) = told(PIPELINE)["verdict"]["findings"]
    assert (finding["kind"], finding["ranks"], finding["basis"]) == ("pipeline", [2, 3], "bound")
    assert finding["gain_share"] == pytest.approx((123.1 - 14.8) / 2 / 179, abs=0.005)


def test_ranks_of_a_stage_know_each_other_whatever_their_streams(told: Any) -> None:
    """Step traces name a collective by its stream first, which ranks number differently."""
    waiting = told(PIPELINE)["waiting"]
    assert [row["shared"] for row in waiting] == [445, 445, 1705, 1705]
    assert [row["unmatched"] for row in waiting] == [0, 0, 0, 0]


def test_steps_without_tasks_go_where_the_profiler_says(told: Any) -> None:
    """Computing and exposed communication are its sums; the rest of a step is free."""
    report = told(PIPELINE)
    row = only(report["overlap"], rank=2, step=2)
    assert row["computing_ns"] == 123_271_400
    assert row["exposed_communication_ns"] == 56_018_900
    assert row["free_ns"] == 180_938_720 - 123_271_400 - 56_018_900
    assert report["critical_path"] == [] and report["idle"] is not None
    causes = {cause["cause"] for one in report["idle"] for cause in one.get("causes", [])}
    assert causes <= {"waiting_for_data"}


def test_contradictions_are_told(told: Any, tmp_path: Path) -> None:
    """The name of the parallel times is believed."""
    for path in PIPELINE.iterdir():
        shutil.copy(path, tmp_path / path.name)
    (tmp_path / "profiler_info_2.json").write_text('{"stage_num": 4, "rank_size": 4}')
    report = told(tmp_path)
    assert report["parallel"]["stages"] == 2
    assert any(
        warning == "rank 2: profiler_info_2.json says 4 stages, but "
        "ascend_cluster_analyse_pipeline-parallel_2_4_0.csv 2 stages, which is taken."
        for warning in report["warnings"]
    )
