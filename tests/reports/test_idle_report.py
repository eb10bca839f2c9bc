"""Proves that reports tell why devices idle, in a terminal and on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.html_page import read
from tests.support.profile_shelf import ProfileShelf
from timeline import export
from timeline.reports.export_report import ExportReport
from timeline.reports.html import render_export_page
from timeline.reports.terminal import Display, render_blocks
from timeline.reports.terminal_verdict import idle_grid


@pytest.fixture(scope="module")
def report(shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    """A summary of a run whose host calls are recorded."""
    target = tmp_path_factory.mktemp("idle") / "out.pftrace"
    return export(shelf.get("torch-db").path, target)


def table_of(report: ExportReport, width: int) -> list[str]:
    """The lines of the table on a display of a width."""
    display = Display(width, "utf-8", terminal=False)
    grid = idle_grid(report.figures, display)
    assert grid is not None
    return render_blocks([[grid]], display).splitlines()


def test_the_table_has_a_row_for_each_cause_longest_first(report: ExportReport) -> None:
    """Whatever the width, no number is cut and no line is longer than the display."""
    idle = report.figures.idle
    labels = {
        "host_not_asked": "Host busy elsewhere",
        "queued": "Queued on the host",
        "waiting_for_data": "Waiting for data",
    }
    found = {row["cause"] for row in idle.to_dicts() if row["step"] is None}
    for width in (60, 100, 160):
        lines = table_of(report, width)
        assert all(len(line) <= width for line in lines)
        for cause, label in labels.items():
            assert any(line.startswith(label[:8]) for line in lines) == (cause in found)
        shares = [line.split("%")[0].split()[-1] for line in lines if "%" in line]
        numbers = [0.5 if share.startswith("<") else float(share) for share in shares]
        assert numbers == sorted(numbers, reverse=True)


def test_the_page_has_the_same_sums(report: ExportReport) -> None:
    """Sums of the tables by cause and by rank are the idle time of all ranks."""
    idle_ns = sum(row["idle_ns"] or 0 for row in report.figures.overlap.to_dicts())
    page = read(render_export_page(report))
    for name in ("idle", "idle-ranks"):
        assert sum(map(int, page.column(name, "Time"))) == idle_ns


def test_nothing_is_said_where_causes_were_not_looked_for(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """Without causes there is no table."""
    report = export(shelf.get("torch-db").path, tmp_path / "out.pftrace", causes=False)
    assert idle_grid(report.figures, Display(100, "utf-8", terminal=False)) is None
    assert b"Why devices idle" not in render_export_page(report)
