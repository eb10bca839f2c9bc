"""Proves that a run that starves for data is said to, and no other, from profile to report."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import timeline
from simulator.layouts import LAYOUTS
from simulator.model import Run
from simulator.scenario import Scenario
from simulator.simulation import make_run
from simulator.writers.mindspore.tables.data_preparation import write_data_preparation
from simulator.writers.mindspore.text import write_mindspore_text
from tests.support.html_page import read
from tests.support.run_command import Command
from timeline import TimelineWarning
from timeline.reports.export_report import ExportReport
from timeline.reports.html.work_sections import MOST_BOXES
from timeline.units import format_count

MS = 1_000_000
STEPS = 6


def starved(*ranks: int) -> Scenario:
    return Scenario(starved_ns=dict.fromkeys(ranks, 8 * MS))


def written(run: Run, directory: Path, *, with_tables: bool = True) -> Path:
    """The text outputs of MindSpore, with the tables of data preparation beside them."""
    profiler = write_mindspore_text(run, directory)[0]
    for rank in run.ranks if with_tables else ():
        write_data_preparation(run, rank, profiler)
    return directory


def exported(path: Path, tmp_path: Path, **options: Any) -> ExportReport:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TimelineWarning)
        return timeline.export(path, tmp_path / "out.pftrace", jobs=1, **options)


def report_on(tmp_path: Path, ranks: int, scenario: Scenario, **options: Any) -> ExportReport:
    run = make_run(ranks=ranks, steps=STEPS, scenario=scenario)
    return exported(written(run, tmp_path / "run", **options), tmp_path)


def test_a_starved_run_says_so_first_and_why(tmp_path: Path) -> None:
    """The rank is the culprit, alone too; then come the queue, the operation and processors.

    What the device idles is no more than a bound: no call of the host is recorded.
    """
    report = report_on(tmp_path, 1, starved(0))
    verdict = report.to_dict()["verdict"]
    culprit, finding = verdict["culprit"], verdict["findings"][0]
    assert (culprit["rank"], culprit["cause"], culprit["waited_ns"]) == (0, "input", 0)
    assert culprit["profiled"] is True
    assert culprit["share"] > 0.7
    assert culprit["estimated_gain_ns"] == finding["gain_ns"] > 8 * MS
    assert (finding["kind"], finding["ranks"], finding["basis"]) == ("starved", [0], "bound")
    assert [sentence.split(":")[0] for sentence in verdict["sentences"][:4]] == [
        "Input-bound",
        "Data processing of rank 0 is too slow",
        "Likely MapOp 1, which fills 0% of its queue",
        "Processors of rank 0's host are 91% busy.",
    ]


def test_what_the_tables_tell_of_a_starved_run(tmp_path: Path) -> None:
    """All batches find the queues empty; the map has a full input, and is the bottleneck."""
    report = report_on(tmp_path, 1, starved(0)).to_dict()
    (preparation,) = report["data_preparation"]
    assert preparation == {
        "rank": 0,
        "bottleneck": "processing",
        "empty_share": 1.0,
        "operations": [1],
        "cpu_busy": 0.91,
    }
    assert {
        row["queue"]: (row["records"], row["empty"]) for row in report["data_queues"]
    } == dict.fromkeys(("host", "device", "to device"), (STEPS, STEPS))
    assert [row["op"] for row in report["data_pipeline"]] == [0, 1, 3]
    assert [row["bottleneck"] for row in report["data_pipeline"]] == [None, "fuller input", None]
    assert [row["about"] for row in report["advice"]][:3] == [
        "data processing",
        "data operation",
        "processors",
    ]


def test_data_that_is_there_is_not_blamed(tmp_path: Path) -> None:
    """Queues that always held data clear the input of the time between steps."""
    report = report_on(tmp_path, 1, Scenario()).to_dict()
    (preparation,) = report["data_preparation"]
    assert (preparation["bottleneck"], preparation["empty_share"]) == ("none", 0.0)
    assert report["verdict"]["culprit"] is None
    assert not [one for one in report["verdict"]["findings"] if one["fault"]]
    assert "data" not in report["verdict"]["sentences"][0]


def test_a_starved_rank_that_others_wait_for_is_the_culprit(tmp_path: Path) -> None:
    """Its input is late, advice follows, and how long others waited for it is told too."""
    report = report_on(tmp_path, 4, starved(1))
    first, second, *_ = report.verdict.sentences()
    assert first.startswith("Input-bound: rank 1 waits ")
    assert second.startswith("Data processing of rank 1 is too slow")
    culprit = report.to_dict()["verdict"]["culprit"]
    assert (culprit["rank"], culprit["cause"]) == (1, "input")
    assert culprit["waited_ns"] > 0


@pytest.mark.parametrize(
    ("layout", "ranks", "basis"), [("torch-text", None, "replay"), ("mindspore-2.1", (0,), "bound")]
)
def test_a_single_rank_without_tables_starves_as_well(
    layout: str, ranks: tuple[int, ...] | None, basis: str, tmp_path: Path
) -> None:
    """Calls that wait for data tell what is won; without any, the idle time what is at most."""
    LAYOUTS[layout](make_run(ranks=1, steps=STEPS, scenario=starved(0)), tmp_path / "run")
    verdict = exported(tmp_path / "run", tmp_path).verdict
    first = verdict.findings.found[0]
    assert (first.kind, first.cause, first.basis) == ("starved", "input", basis)
    assert first.ranks == ranks
    assert first.gain_share > 0.7
    assert next(verdict.sentences()).startswith("Input-bound: ")


@pytest.mark.parametrize(
    "scenario",
    [Scenario(), Scenario(slow_computing={1: 2.0}), Scenario(late_host_ns={1: 300_000})],
    ids=["healthy", "slow computing", "late host"],
)
def test_other_faults_are_not_those_of_data(scenario: Scenario, tmp_path: Path) -> None:
    """No cluster whose data is there is said to wait for it."""
    LAYOUTS["torch-text"](make_run(ranks=4, steps=STEPS, scenario=scenario), tmp_path / "run")
    verdict = exported(tmp_path / "run", tmp_path).verdict
    assert not verdict.findings.knows_input
    assert " waits " not in " ".join(one.sentence for one in verdict.findings.found if one.fault)


def test_tables_alone_advise_too(tmp_path: Path) -> None:
    """Without anything that ran on the device there is a verdict, and no file."""
    run = make_run(ranks=1, steps=STEPS, scenario=starved(0))
    (profiler := tmp_path / "profiler").mkdir()
    write_data_preparation(run, run.rank(0), profiler)
    report = exported(tmp_path / "profiler", tmp_path)
    assert not report.outputs
    assert next(report.verdict.sentences()).startswith("Data processing of rank 0 is too slow")


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({0: None, 1: 62, 2: 60}, [(0, None, 60 / 64)]),
        ({0: 6}, [(0, 6 / 64, 6 / 64)]),
        ({0: 6, 1: 4, 2: 36}, [(1, 4 / 64, 32 / 64), (2, 36 / 64, 36 / 64)]),
    ],
    ids=["full queues", "a single operation", "a fuller queue and a slow source"],
)
def test_advice_on_operations_tells_what_is_beyond_the_threshold(
    tmp_path: Path, sizes: dict[int, int | None], told: list[tuple[int, float | None, float]]
) -> None:
    """How full the least full queue before the root is, by how much an input is fuller, or its own.

    sizes: of the queue of each operation of a chain from the root on.
    """
    lines = ["op_id,op_type,num_workers,output_queue_size,output_queue_length,children_id"]
    for op, size in sizes.items():
        queue = "," if size is None else f"[{size}],64"
        lines.append(f"{op},Map,4,{queue},{f'[{op + 1}]' if op + 1 in sizes else ''}")
    (tmp_path / "minddata_pipeline_raw_0.csv").write_text("\n".join(lines), encoding="utf-8")
    advice = exported(tmp_path, tmp_path).to_dict()["advice"]
    assert [(row["op"], row["value"], row["share"]) for row in advice] == told
    assert {row["about"] for row in advice} == {"data operation"}


def test_the_page_shows_queues_and_the_operation(tmp_path: Path) -> None:
    """The section has a curve of each queue, and boxes of which that of the map is marked."""
    run = make_run(ranks=1, steps=STEPS, scenario=starved(0))
    exported(written(run, tmp_path / "run"), tmp_path, report=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Input-bound: rank 0 waits " in page
    (pipeline,) = [one for one in read(page.encode()).blocks if one["is"] == "pipeline"]
    boxes = [box for level in pipeline["levels"] for box in level]
    assert [box["name"] for box in boxes if box["limit"]] == ["MapOp 1"]
    for queue in ("Host queue", "Device queue", "Queue to the device"):
        assert queue in page


def test_a_page_draws_some_operations_of_a_huge_pipeline(command: Command) -> None:
    """Those that limit it first, though they lie at its end; what is left out is counted."""
    count = 2_000
    (command.directory / "run").mkdir()
    operations = [
        {
            "op_id": op,
            "op_type": "Map",
            "children": [op + 1] if op + 1 < count else [],
            "metrics": {"output_queue": {"size": [1 if op + 1 == count else 15], "length": 16}},
        }
        for op in range(count)
    ]
    text = json.dumps({"op_info": operations, "sampling_interval": 10})
    (command.directory / "run" / "pipeline_profiling_0.json").write_text(text)
    report = command.report("run", "--report", "page.html")
    assert len(report["data_pipeline"]) == count
    (preparation,) = report["data_preparation"]
    assert preparation["operations"] == [count - 1]
    page = (command.directory / "page.html").read_text()
    assert page.count('"usage":') == MOST_BOXES
    assert page.count('"name":"Map 1999"') == 1
    assert f"{format_count(count - MOST_BOXES, 'more operation')} in the JSON report" in page
