"""The page of an export: one file of HTML that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from timeline.figures.operator_tables import operator_curves
from timeline.figures.verdict import total_by_type
from timeline.figures.verdict_words import step_shares
from timeline.figures.waiting_tables import WaitMatrix
from timeline.printable import printable
from timeline.reports.export_report import ExportReport
from timeline.reports.html import export_tables
from timeline.reports.html.bandwidth_tables import bandwidth_tables
from timeline.reports.html.cluster_section import cluster_section
from timeline.reports.html.data_section import data_section
from timeline.reports.html.drawing import MOST_DRAWN, MOST_OUTLINED
from timeline.reports.html.flop_tables import flop_section
from timeline.reports.html.idle_tables import idle_tables
from timeline.reports.html.memory_section import memory_section
from timeline.reports.html.palette import PARTS, Part, shown_parts
from timeline.reports.html.path_tables import path_tables
from timeline.reports.html.pictures import draw_operator_steps, draw_rank_bars, draw_steps
from timeline.reports.html.rendering import (
    Tile,
    page_title,
    render_page,
    warnings_and_losses,
)
from timeline.reports.html.step_grid import StepGrid, run_length, with_parts
from timeline.reports.html.svg import StyleSheet
from timeline.reports.html.wait_picture import draw_waits
from timeline.reports.html.wait_tables import wait_tables
from timeline.units import spell_short


def render_export_page(report: ExportReport) -> bytes:
    """The report as HTML: a few hundred kB, whatever the number of ranks and steps."""
    sheet = StyleSheet()
    content = {
        "title": page_title(report),
        "culprit": _culprit(report),
        "sentences": [printable(sentence) for sentence in report.verdict.sentences()],
        "tiles": list(_tiles(report)),
        "report": report,
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
    culprit = report.verdict.culprit
    return "" if culprit is None else f"Rank {culprit.rank}"


def _tiles(report: ExportReport) -> Iterator[Tile]:
    """The numbers of the sentence that says where a step goes, spelled as there."""
    yield Tile(str(len(report.ranks)), "rank" if len(report.ranks) == 1 else "ranks")
    mean, steps = report.verdict.mean, len(report.steps)
    ordinary = 0 if mean is None else mean.steps
    if ordinary and ordinary < steps:
        yield Tile(str(ordinary), f"ordinary steps of {steps}")
    elif steps:
        yield Tile(str(steps), "step" if steps == 1 else "steps")
    if mean is None:
        return
    label = "mean step" if mean.steps > 1 else "step" if mean.steps else "device time"
    yield Tile(spell_short(mean.period_ns), label)
    for name, share, detail in step_shares(mean):
        yield Tile(f"{share}%", name, detail)


def _pictured(report: ExportReport, sheet: StyleSheet) -> dict[str, object]:
    """All pictures; None where there is nothing to draw."""
    ranks, shown = report.verdict.ranks, report.verdict.telling_ranks
    means = report.verdict.mean_steps
    used = with_parts(means) if len(means) else means
    bar_parts = shown_parts(used, PARTS) if len(used) else ()
    first = shown[0] if shown else None
    matrix = WaitMatrix.of(report.figures.waiting, report.figures.waited_for)
    curves = operator_curves(report.figures.operator_steps, report.figures.operators)
    return {
        "bars": draw_rank_bars(used, sheet, bar_parts) if bar_parts else None,
        "bar_parts": bar_parts,
        "bars_note": _bars_note(report, bar_parts),
        "bars_run": run_length(len(used), MOST_OUTLINED),
        "heat_run": run_length(len(ranks), MOST_DRAWN),
        "rank_note": _rank_note(report, first),
        "waits": None if matrix is None else draw_waits(matrix, sheet),
        "steps": draw_steps(StepGrid.of(report.figures), first, sheet),
        "curves": None if curves is None else draw_operator_steps(curves, sheet),
        "curves_note": "" if curves is None else export_tables.curves_note(curves, len(ranks)),
    }


def _bars_note(report: ExportReport, parts: Sequence[Part]) -> str:
    """What the bars of ranks show."""
    mean = report.verdict.mean
    if mean is None:
        return ""
    of_rank = "each rank" if mean.ranks > 1 else "the rank"
    notes = [
        f"The mean of the ordinary steps of {of_rank}."
        if mean.steps > 1
        else f"The step of {of_rank}."
        if mean.steps
        else f"All device time of {of_rank}."
    ]
    roles = {part.role for part in parts}
    if roles & {"waiting", "transfer"}:
        notes.append("Waiting and transfer are exposed communication: nothing computes meanwhile.")
    elif "exposed" in roles:
        notes.append("Exposed communication runs while nothing computes.")
    return " ".join(notes)


def _rank_note(report: ExportReport, rank: int | None) -> str:
    """Why the steps of a rank are drawn first."""
    culprit, extreme = report.verdict.culprit, report.verdict.rank_extreme
    if culprit is not None and culprit.rank == rank:
        return "which is to be mended first"
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
        "bandwidth_tables": list(bandwidth_tables(report.figures)),
        "wait_tables": list(wait_tables(report.figures)),
        "path_tables": list(path_tables(report.figures)),
        "flops": flop_section(report.figures.flops),
        "sources_table": export_tables.source_table(report),
    }
