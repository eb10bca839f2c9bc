"""The view of a comparison with which the Perfetto UI starts."""

from __future__ import annotations

from timeline.reports.comparison_report import ComparisonReport
from timeline.viewer.links import WHO_HOLDS_UP, View, visible_ns
from timeline.viewer.startup import answers, rows_of_ranks, unfold_and_pin, unfold_layers

TIMES = ("Where does the time of each rank go?", "where_time_goes")
CHANGES = ("Which steps changed?", "which_steps_changed")


def view_of_comparison(report: ComparisonReport) -> View:
    """Choose the step that became longest, its rank in both runs, and tables of answers."""
    (output,) = report.outputs
    is_json = output.format != "pftrace"
    rows = rows_of_ranks(_ranks(report), by_layer=report.by_layer, is_json=is_json)
    changed = report.changed
    asked = [TIMES, *([WHO_HOLDS_UP] if len(report.comparison.waiting) else [])]
    commands = (unfold_layers(), *unfold_and_pin(rows))
    if changed is None:
        return View(output, None, None, rows, (*commands, *answers(asked)), "all of both runs")
    return View(
        output,
        visible_ns(output, (changed.start_ns, changed.end_ns)),
        changed.start_ns + output.offset_ns,
        rows,
        (*commands, *answers([*asked, CHANGES])),
        f"step {changed.step} of rank {changed.rank}, which changed most,",
    )


def _ranks(report: ComparisonReport) -> tuple[int, ...]:
    """Return the slowest rank of the step that changed most, else the first rank of both runs."""
    if report.changed is not None:
        return (report.changed.rank,)
    return tuple(report.comparison.ranks["rank"].tolist()[:1])
