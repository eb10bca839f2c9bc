"""Proves that the page and the JSON say what the host did, and where the longest gaps are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.html_page import read
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from timeline import export
from timeline.reports.export_report import ExportReport
from timeline.reports.html import render_export_page
from timeline.reports.html.host_sections import viewer_time


@pytest.fixture(scope="module")
def report(shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    """A summary of a run whose host calls are recorded."""
    target = tmp_path_factory.mktemp("host") / "out.pftrace"
    return export(shelf.get("torch-db").path, target)


def test_the_page_has_the_sums_of_the_table(report: ExportReport) -> None:
    """Rows of all ranks together have the own times of the ranks, and all of the gaps are there."""
    table, page = report.figures.host_calls_by_name, read(render_export_page(report))
    assert sum(map(int, page.column("host-calls", "Own time"))) == int(table["self_ns"].sum())
    assert sum(map(int, page.column("host-calls", "Count"))) == int(table["count"].sum())
    gaps = report.figures.idle_gaps
    assert len(gaps)
    shown = [int(idle_ns) for idle_ns in page.column("idle-gaps", "Idle")]
    assert shown == sorted(gaps["idle_ns"].tolist(), reverse=True)
    assert page.column("idle-gaps", "In the timeline at")[0].startswith("00:00:00.")


def test_the_json_has_both_tables(report: ExportReport) -> None:
    """Own times add up to those of the table, and gaps are those of the table."""
    said = json.loads(report.to_json())
    table = report.figures.host_calls_by_name
    assert sum(row["self_ns"] for row in said["host_calls"]) == int(table["self_ns"].sum())
    assert said["idle_gaps"] == report.figures.idle_gaps.to_dicts()


def test_gaps_are_found_in_the_viewer_at_their_time(report: ExportReport) -> None:
    """Times count from the first moment of the file, as those of the viewer do."""
    (output,) = report.outputs
    loaded = TraceProcessor.load(output.path.read_bytes())
    ((begin_ns,),) = loaded.rows("SELECT start_ts FROM trace_bounds")
    assert output.drawn_ns[0] + output.offset_ns == begin_ns
    later_ns = output.drawn_ns[0] + 1_002_003
    if later_ns <= output.drawn_ns[1]:
        assert viewer_time(later_ns, [output]) == "00:00:00.001 002 003"
    assert viewer_time(output.drawn_ns[1] + 1, [output]) == ""


def test_nothing_is_listed_where_causes_were_not_looked_for(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """Without causes there is no table of calls, nor of gaps."""
    report = export(shelf.get("torch-db").path, tmp_path / "out.pftrace", causes=False)
    assert not len(report.figures.host_calls_by_name)
    assert not len(report.figures.idle_gaps)
    page = read(render_export_page(report))
    assert not {"host-calls", "idle-gaps"} & page.tables.keys()
