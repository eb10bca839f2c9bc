"""Holds what is said of real captures against what they record, where some of it is missing."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from tests.support.places import real_capture
from timeline import TimelineWarning, export
from timeline.reports.export_report import ExportReport
from timeline.reports.terminal import Display
from timeline.reports.terminal_verdict import verdict_text


def export_of(name: str, tmp_path: Path) -> ExportReport:
    """The report on a capture, which holds what was warned of."""
    path = real_capture(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TimelineWarning)
        return export(path, tmp_path / "out.pftrace")


def test_no_device_is_called_idle_where_compute_tasks_are_missing(tmp_path: Path) -> None:
    """What computes is not recorded: of idle time no more is said than that data was awaited."""
    report = export_of("mindspore-raw-JOB1", tmp_path)
    said = " ".join(report.verdict.sentences())
    assert "no compute tasks in this profile" in said
    assert not re.search("idle", said, re.IGNORECASE)
    assert "Waiting for data: 85.84 ms per step" in said


def test_tables_alone_say_which_stage_limits_a_pipeline(tmp_path: Path) -> None:
    """Half of a step is spent in receives; without tasks that is all that is found."""
    report = export_of("mindspore-cluster-steps", tmp_path)
    said = list(report.verdict.sentences())
    assert any(line.startswith("Pipeline stages wait for each other") for line in said)
    assert any(line.startswith("Ranks wait 50% of a step in receives") for line in said)
    verdict = report.to_dict()["verdict"]
    assert [one["kind"] for one in verdict["findings"]] == ["pipeline"]
    assert said[0] == verdict["findings"][0]["sentence"]
    assert verdict["replay"]["reason"] == "what ran is not recorded task by task"


def test_steps_without_device_tasks_are_counted_and_not_told_one_by_one(tmp_path: Path) -> None:
    """Of 322 steps 15 have device tasks; of the others it is not known what was computed."""
    report = export_of("mindspore-0.7-text", tmp_path)
    verdict, display = report.verdict, Display(120, "utf-8", terminal=False)
    assert verdict.steps["step"].tolist() == list(range(1, 16))
    text = verdict_text(verdict, report.figures, display, verbose=True)
    assert "307 steps without device tasks." in text


def test_a_step_trace_alone_tells_what_its_step_consists_of(tmp_path: Path) -> None:
    """One step is marked, and nothing else recorded: nothing is said to lack its tasks."""
    report = export_of("mindspore-run3", tmp_path)
    assert list(report.verdict.sentences()) == [
        "Rank 1 communicates without computing for 66% of the time that both take.",
        "Step 1 (23.7 ms): forward and backward 100%, tail <1%.",
    ]
    assert report.warnings == ("rank 1: only tables are here, without device tasks.",)
