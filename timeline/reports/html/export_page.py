"""The page of an export: one file of HTML that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator

from timeline.figures.operator_curves import operator_curves
from timeline.figures.verdict import total_by_type
from timeline.printable import printable
from timeline.reports.export_report import ExportReport
from timeline.reports.html import export_tables
from timeline.reports.html.cluster_section import cluster_section
from timeline.reports.html.data_section import data_section
from timeline.reports.html.drawing import MOST_DRAWN
from timeline.reports.html.flop_tables import flop_section
from timeline.reports.html.idle_tables import idle_tables
from timeline.reports.html.memory_section import memory_section
from timeline.reports.html.palette import PARTS
from timeline.reports.html.path_tables import path_tables
from timeline.reports.html.pictures import draw_operator_steps, draw_rank_bars, draw_steps
from timeline.reports.html.rendering import (
    Tile,
    page_title,
    render_page,
    spell_four_digits,
    warnings_and_losses,
)
from timeline.reports.html.step_grid import StepGrid, run_length, with_parts
from timeline.reports.html.svg import StyleSheet
from timeline.reports.html.wait_tables import wait_tables

__all__ = ["render_export_page"]


def render_export_page(report: ExportReport) -> bytes:
    """The report as HTML: a few hundred kB, whatever the number of ranks and steps."""
    sheet = StyleSheet()
    content = {
        "title": page_title(report),
        "culprit": _culprit(report),
        "sentences": [printable(sentence) for sentence in report.verdict.sentences()],
        "tiles": list(_tiles(report)),
        "report": report,
        "parts": PARTS,
        "cluster": cluster_section(report.figures, sheet),
        "data": data_section(report.figures, report.verdict.culprit, sheet),
        "memory": memory_section(report.figures, sheet),
        **warnings_and_losses(report.warnings, report.omissions),
        **_pictured(report, sheet),
        **_listed(report),
    }
    return render_page("page.html", content, sheet)


def _culprit(report: ExportReport) -> str:
    """How the first sentence begins where it blames a rank; empty where it does not."""
    culprit = report.verdict.notable_culprit
    return "" if culprit is None else f"Rank {culprit.rank}"


def _tiles(report: ExportReport) -> Iterator[Tile]:
    """The numbers of the sentence that says where a step goes, with what they are of."""
    yield Tile(str(len(report.ranks)), "rank" if len(report.ranks) == 1 else "ranks")
    if report.steps:
        yield Tile(str(len(report.steps)), "step" if len(report.steps) == 1 else "steps")
    mean = report.verdict.mean
    if mean is None:
        return
    label = "mean step" if mean.steps > 1 else "step" if mean.steps else "device time"
    yield Tile(spell_four_digits(mean.span_ns), label)
    for part_ns, label in (
        (mean.computing_ns, "compute"),
        (mean.exposed_ns, "exposed communication"),
        (mean.copies_ns, "copies"),
        (mean.idle_ns, "idle"),
    ):
        if label != "copies" or round(100 * part_ns / mean.span_ns):
            yield Tile(f"{part_ns / mean.span_ns:.0%}", label)


def _pictured(report: ExportReport, sheet: StyleSheet) -> dict[str, object]:
    """All pictures; None where there is nothing to draw."""
    ranks, shown = report.verdict.ranks, report.verdict.telling_ranks
    used = ranks.take(ranks["span_ns"] > 0) if len(ranks) else ranks
    first = shown[0] if shown else None
    curves = operator_curves(report.figures.operator_steps, report.figures.operators)
    return {
        "bars": draw_rank_bars(with_parts(used), sheet) if len(used) else None,
        "bars_run": run_length(len(used), MOST_DRAWN),
        "heat_run": run_length(len(ranks), MOST_DRAWN),
        "rank_note": _rank_note(report, first),
        "steps": draw_steps(StepGrid.of(report.figures), first, sheet),
        "curves": None if curves is None else draw_operator_steps(curves, sheet),
        "curves_note": "" if curves is None else export_tables.curves_note(curves, len(ranks)),
    }


def _rank_note(report: ExportReport, rank: int | None) -> str:
    """Why the steps of a rank are drawn first."""
    culprit, extreme = report.verdict.culprit, report.verdict.rank_extreme
    if culprit is not None and culprit.rank == rank:
        return "which holds up the others" if culprit.waiters else "which waits for data"
    if culprit is not None and rank in [waiter.rank for waiter in culprit.waiters[:1]]:
        return "which waits longest"
    return "the slowest" if extreme is not None and extreme.slowest == rank else ""


def _listed(report: ExportReport) -> dict[str, object]:
    totals = [total_by_type(report.figures.operators, by_name=by_name) for by_name in (False, True)]
    return {
        "ranks_table": export_tables.rank_table(report),
        "steps_table": export_tables.step_table(
            report, graphs=StepGrid.of(report.figures).several_graphs
        ),
        "operator_tables": [
            *export_tables.operator_tables(totals, communication=False),
            *export_tables.launch_tables(report.figures),
        ],
        "operator_sums": list(export_tables.file_sum_tables(report.figures)),
        "collective_tables": list(export_tables.operator_tables(totals, communication=True)),
        "longest_table": export_tables.longest_op_table(report),
        "idle_tables": list(idle_tables(report.figures)),
        "wait_tables": list(wait_tables(report.figures)),
        "path_tables": list(path_tables(report.figures)),
        "flops": flop_section(report.figures.flops),
        "sources_table": export_tables.source_table(report),
    }
