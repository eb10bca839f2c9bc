"""The PNG of a comparison: the causes by size, each step of both runs, and operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from timeline.columns.columns import Int64
from timeline.figures.comparison import Comparison
from timeline.figures.comparison_sentences import cause_label
from timeline.reports.comparison_report import ComparisonReport
from timeline.reports.comparison_rows import operator_names, worst_and_best
from timeline.reports.html.comparison_page import comparison_title, longest_of_runs
from timeline.reports.html.drawing import MOST_DRAWN, draw_changes, draw_sides
from timeline.reports.html.palette import LIGHT, SIDES, Phase
from timeline.reports.html.png import WIDTH, Panel, render_panels, short_names
from timeline.reports.html.step_grid import run_length

MOST_BARS = 5


def render_comparison_png(report: ComparisonReport) -> bytes:
    """What changed as PNG, 1680 pixels wide."""
    legend = list(map(_line, SIDES))
    title = comparison_title(report.base, report.new)
    return render_panels(title, report.sentences(), lambda: _panels(report.comparison), legend)


def _line(side: Phase) -> Line2D:
    style: dict[str, Any] = {"linestyle": side.dashes, "color": LIGHT[side.role]}
    return Line2D([], [], label=side.label, **style)


def _panels(comparison: Comparison) -> Iterator[Panel]:
    if not any(comparison.sentences()):
        return
    causes = comparison.causes.take(slice(MOST_BARS))
    labels = [cause_label(row["cause"], row["part_of"]) for row in causes.to_dicts()]
    yield "What changed", _changes(labels, causes["delta_ns"])
    steps = longest_of_runs(comparison.steps, run_length(len(comparison.steps), MOST_DRAWN))
    if len(steps) > 1:
        numbers = [str(step) for step in steps["base_step"].tolist()]
        yield "Each step, on its slowest rank", lambda axes: draw_sides(axes, steps, numbers)
    whole_ns = comparison.whole["base_ns"]
    for title, table in (
        ("Operators", comparison.operators),
        ("Collectives", comparison.collectives),
    ):
        shown = worst_and_best(table, whole_ns, MOST_BARS // 2)
        if len(shown):
            yield title, _changes(operator_names(shown), shown["delta_ns"])


def _changes(names: list[str], deltas_ns: Int64) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        box = axes.get_position()
        axes.set_position((box.x0 - 48 / WIDTH, box.y0, box.width + 48 / WIDTH, box.height))
        draw_changes(axes, short_names(names), deltas_ns)

    return draw
