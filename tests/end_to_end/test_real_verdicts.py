"""Holds what is said of real captures against what they record, where some of it is missing."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from tests.support.places import DATA
from timeline import TimelineWarning, export
from timeline.reports.export_report import ExportReport
from timeline.reports.terminal import Display
from timeline.reports.terminal_verdict import verdict_text


def export_of(name: str, tmp_path: Path) -> ExportReport:
    """The report on a capture, which holds what was warned of."""
    if not (DATA / name).exists():
        pytest.skip(f"{name} does not lie beside the checkout")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TimelineWarning)
        return export(DATA / name, tmp_path / "out.pftrace")


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("mindspore-raw-JOB1", "Waiting for data: 90.35 ms per step"),
        ("mindspore-cluster-steps", ""),
    ],
)
def test_no_device_is_called_idle_where_compute_tasks_are_missing(
    name: str, waits: str, tmp_path: Path
) -> None:
    """What computes is not recorded: of idle time no more is said than that data was awaited."""
    report = export_of(name, tmp_path)
    said = " ".join(report.verdict.sentences())
    assert "no compute tasks in this profile" in said
    assert not re.search("idle", said, re.IGNORECASE)
    assert waits in said
    assert ("Waiting for data" in said) == bool(waits)


def test_ranks_that_wait_in_receives_are_not_said_to_hardly_wait(tmp_path: Path) -> None:
    """Half of a step is spent in receives: that ranks hardly wait is said of collectives alone."""
    report = export_of("mindspore-cluster-steps", tmp_path)
    said = list(report.verdict.sentences())
    assert said[0].startswith("Ranks hardly wait in collectives: ")
    assert any(line.startswith("Ranks wait 50% of a step in receives") for line in said)


def test_steps_without_device_tasks_are_counted_and_not_told_one_by_one(tmp_path: Path) -> None:
    """Of 322 steps 15 have device tasks; of the others it is not known what was computed."""
    report = export_of("mindspore-0.7-text", tmp_path)
    verdict, display = report.verdict, Display(120, "utf-8", terminal=False)
    assert verdict.steps["step"].tolist() == list(range(1, 16))
    text = verdict_text(verdict, report.figures, display, verbose=True)
    assert "307 steps without device tasks." in text


def test_a_step_trace_without_device_records_tells_nothing(tmp_path: Path) -> None:
    """One step is marked, and nothing else recorded: the sentences say so in the singular."""
    report = export_of("mindspore-run3", tmp_path)
    display = Display(120, "utf-8", terminal=False)
    text = verdict_text(report.verdict, report.figures, display, verbose=False)
    assert "holds no device records: what is slow is not known." in text
    assert [line for line in report.warnings if "step" in line] == [
        "rank 1: only its step trace is here, and nothing of its tasks."
    ]
