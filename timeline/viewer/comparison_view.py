"""What the Perfetto UI shows first of a comparison."""

from __future__ import annotations

from timeline.layers import Layer, spec_of
from timeline.reports.comparison_report import ComparisonReport
from timeline.tracks.root_rows import STEPS
from timeline.tracks.summary import OVERLAP_ROWS
from timeline.viewer.links import View, visible_ns

__all__ = ["view_of_comparison"]


def view_of_comparison(report: ComparisonReport) -> View:
    """The step that became longest, how steps differ, and the overlap of its rank in both runs."""
    (output,) = report.outputs
    pinned = _pinned(report) if output.format == "pftrace" else ""
    changed = report.changed
    if changed is None:
        return View(output, None, pinned, "all of both runs")
    description = f"step {changed.step} of rank {changed.rank}, which changed most,"
    shown_ns = visible_ns(output, (changed.start_ns, changed.end_ns))
    return View(output, shown_ns, pinned, description)


def _pinned(report: ComparisonReport) -> str:
    """By path: names alone tell neither the run nor the rank."""
    rank = _rank(report)
    overlap = spec_of(Layer.OVERLAP).name
    names = "|".join(name.replace("(", r"\(").replace(")", r"\)") for name in OVERLAP_ROWS)
    own = rf"Rank 0*{rank} [^>]*"
    folder = f"({own} > {overlap}|{overlap} > {own})"
    return f"^ *{STEPS.strip()}$|{folder} > ({names})$"


def _rank(report: ComparisonReport) -> int:
    """The one on which the step is slowest that changed most, else the first of both runs."""
    if report.changed is not None:
        return report.changed.rank
    ranks = report.comparison.ranks["rank"].tolist()
    return int(ranks[0]) if ranks else 0
