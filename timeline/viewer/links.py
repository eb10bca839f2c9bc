"""The address at which the Perfetto UI shows what is slow in an export."""

from __future__ import annotations

import json
import urllib.parse
from dataclasses import dataclass

import numpy as np

from timeline.figures.verdict import Extreme
from timeline.layers import Layer, spec_of
from timeline.records.not_given import NO_GRAPH
from timeline.reports.export_report import ExportReport
from timeline.reports.report_rows import OutputFile
from timeline.tracks.summary import OVERLAP_ROWS

__all__ = ["View", "address", "view_of", "visible_ns"]

MOST_RANKS_BY_NAME = 2
"""Pinned rows do not tell their rank, so those of more ranks are not pinned by their name."""
MARGIN = 0.05
"""What is shown before and after the step, as a share of it."""


@dataclass(frozen=True)
class View:
    """A file, and what the UI shows of it first.

    visible_ns: first and last moment in view, in the time of the file; None for all of it.
    pinned: the regular expression (of JavaScript) of the paths of the rows to pin, empty for none.
    description: what is in view, in words.
    """

    output: OutputFile
    visible_ns: tuple[int, int] | None
    pinned: str
    description: str


def view_of(report: ExportReport) -> View:
    """The file with the slowest ordinary step, that step, and the overlap of the telling ranks.

    A step is in view from its mark to the end of its device work, as far as the file has it: the
    UI ignores times outside of the trace altogether. The first file, and all of it, is shown where
    there are no two steps to compare.
    """
    slowest = report.verdict.step_extreme
    if slowest is None:
        output = report.outputs[0]
        return View(output, None, _pinned(report, output), "all of it")
    step_ns = _slowest_step_ns(report, slowest)
    output = max(report.outputs, key=lambda output: _shared_ns(output.drawn_ns, step_ns))
    description = f"the slowest step, {slowest.slowest},"
    return View(output, visible_ns(output, step_ns), _pinned(report, output), description)


def _slowest_step_ns(report: ExportReport, slowest: Extreme) -> tuple[int, int]:
    steps = report.verdict.steps
    is_it = (steps["step"] == slowest.slowest) & (steps["rank"] == slowest.rank)
    if slowest.graph is not None:
        is_it &= np.ma.filled(steps["graph"], NO_GRAPH) == slowest.graph
    at = int(np.argmax(is_it))
    device_end_ns = steps["device_start_ns"][at] + steps["span_ns"][at]
    return int(steps["start_ns"][at]), int(max(steps["end_ns"][at], device_end_ns))


def _shared_ns(some_ns: tuple[int, int], other_ns: tuple[int, int]) -> int:
    return min(some_ns[1], other_ns[1]) - max(some_ns[0], other_ns[0])


def visible_ns(output: OutputFile, step_ns: tuple[int, int]) -> tuple[int, int] | None:
    """A step and a margin in the time of a file, as far as the file has it; None for nothing."""
    margin_ns = int((step_ns[1] - step_ns[0]) * MARGIN)
    first_ns = max(step_ns[0] - margin_ns, output.drawn_ns[0])
    last_ns = min(step_ns[1] + margin_ns, output.drawn_ns[1])
    if first_ns >= last_ns:
        return None
    return first_ns + output.offset_ns, last_ns + output.offset_ns


def _pinned(report: ExportReport, output: OutputFile) -> str:
    """The four rows of the overlap analysis of some ranks, by their path or else by their name.

    Old versions of the UI know names alone, which tell neither the rank nor a row from a folder:
    there, rows of few ranks are pinned, and of "Communication", which is both, none. In JSON each
    row lies in a folder of its own name.
    """
    if output.format != "pftrace":
        return ""
    which = "|".join(map(str, _telling_ranks(report)))
    rank = rf"Rank 0*({which})\b[^>]*"
    names = "|".join(name.replace("(", r"\(").replace(")", r"\)") for name in OVERLAP_ROWS)
    overlap = spec_of(Layer.OVERLAP).name
    folder = f"({rank} > {overlap}|{overlap} > {rank})"
    by_path = f"{folder} > ({names})$"
    if len(report.ranks) > MOST_RANKS_BY_NAME:
        return by_path
    return rf"{by_path}|^(Computing|Exposed communication|Free)$"


def _telling_ranks(report: ExportReport) -> tuple[int, ...]:
    """The culprit and who waits longest, the rank of the slowest step, or else the first."""
    return report.verdict.telling_ranks or (report.ranks[0].rank,)


def address(ui: str, trace_url: str, view: View) -> str:
    """Where to go: the UI at `ui` loads the trace, pins rows and zooms.

    Parameters and commands are those that Perfetto keeps stable: "Deep linking to the Perfetto UI"
    and "Commands Automation Reference" in its documentation.
    """
    parameters = {"url": trace_url}
    if view.visible_ns is not None:
        parameters["visStart"], parameters["visEnd"] = map(str, view.visible_ns)
    if view.pinned:
        # New versions of the UI ask the user where they are not told what to match.
        commands = [{"id": "dev.perfetto.PinTracksByRegex", "args": [view.pinned, "path"]}]
        parameters["startupCommands"] = json.dumps(commands, separators=(",", ":"))
    return f"{ui}/#!/?{urllib.parse.urlencode(parameters, quote_via=urllib.parse.quote)}"
