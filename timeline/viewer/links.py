"""The views that the Perfetto UI shows of a file, and the addresses that lead to them."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from timeline.analysis.gains.findings import Cause
from timeline.encoders.chrome import OVERVIEW
from timeline.layers import Layer, spec_of
from timeline.records.not_given import NO_GRAPH
from timeline.reports.comparison_report import ComparisonReport
from timeline.reports.export_report import ExportReport
from timeline.reports.report_rows import OutputFile
from timeline.tracks.partition import PARTITION
from timeline.verdict.verdict import Verdict
from timeline.viewer.queries import definitions

MARGIN = 0.05
"""Margin shown before and after the step, as a share of its length."""
WHY_IDLE, SLOW_STEPS = "why_devices_idle", "which_steps_are_slow"
WHO_HOLDS_UP, TIMES, CHANGES = "who_holds_others_up", "where_time_goes", "which_steps_changed"
TITLES = {
    WHY_IDLE: "Why do devices idle?",
    SLOW_STEPS: "Which steps are slow?",
    WHO_HOLDS_UP: "Who holds the others up?",
    TIMES: "Where does the time of each rank go?",
    CHANGES: "Which steps changed?",
}
"""Titles of the tables that are opened, by the view in `queries.sql` that fills each."""
NOTE = "Look here"
"""Name of the row that marks a wait."""


UNFOLDED = (Layer.STEPS, Layer.OVERLAP, Layer.HARDWARE, Layer.COMMUNICATION)
"""The layers that are unfolded, as they best explain why a rank is slow."""


@dataclass(frozen=True)
class Command:
    """A command of the UI and its arguments.

    At startup the UI runs only the commands listed in its "Commands Automation Reference": pinning,
    unfolding, queries, and tracks made from queries. Newer versions report other commands to the
    user. Unknown parameters are ignored.
    """

    id: str
    args: tuple[str, ...]


@dataclass(frozen=True)
class View:
    """A file, and the part of it that the UI shows first.

    visible_ns: first and last time in view, on the clock of the file; None for all of it.
    rows: JavaScript regular expression of the rows that are unfolded and pinned. commands: commands
    that the UI runs after loading. description: the part in view, in words.
    """

    output: OutputFile
    visible_ns: tuple[int, int] | None
    rows: str
    commands: tuple[Command, ...]
    description: str


def view_of(report: ExportReport) -> View:
    """Return a view of the slowest ordinary step, with the ranks to look at and a table of answers.

    A step is in view from its mark to the end of its device work, clipped to the file: the UI
    ignores times outside of the trace altogether. Without two steps to compare, the first step is
    shown, and without any, all of the first file.
    """
    output, shown_ns, description = report.outputs[0], None, "all of it"
    if len(report.verdict.steps):
        step_ns, description = _step_to_see(report.verdict)
        output = max(report.outputs, key=lambda output: _shared_ns(output.drawn_ns, step_ns))
        shown_ns = visible_ns(output, step_ns)
    is_json = output.format != "pftrace"
    rows = rows_of_ranks(_ranks_to_see(report), by_layer=report.by_layer, is_json=is_json)
    return View(
        output,
        shown_ns,
        rows,
        (
            unfold_layers(),
            *unfold_and_pin(rows),
            *answers(_question(report)),
            *_note(report, shown_ns),
        ),
        description,
    )


def _note(report: ExportReport, shown_ns: tuple[int, int] | None) -> Iterator[Command]:
    """Yield a command that marks a wait for the culprit, by the rank that waits longest in all.

    It is the longest one in the visible part, else the longest of all.
    """
    culprit = report.verdict.culprit
    if culprit is None or not culprit.waiters:
        return
    first_ns, last_ns = shown_ns or (0, 0)
    yield mark(
        NOTE,
        "SELECT ts, dur, format('Rank %d waits %.3f ms for rank %d', rank, dur / 1e6, "
        f"{culprit.rank}) AS name FROM drawn WHERE layer = 'Overlap Analysis' AND "
        f"(name = 'Waiting for rank {culprit.rank}' OR name GLOB 'Waiting for rank "
        f"{culprit.rank} *') ORDER BY rank = {culprit.waiters[0].rank} DESC, "
        f"ts BETWEEN {first_ns} AND {last_ns} DESC, dur DESC LIMIT 1",
    )


def _question(report: ExportReport) -> tuple[str, ...]:
    """Return the view whose table fits the first finding, none if it would be empty."""
    verdict = report.verdict
    if verdict.culprit is not None and verdict.culprit.waiters:
        return (WHO_HOLDS_UP,)
    has_idle = len(report.figures.idle) > 0
    causes = {finding.cause for finding in verdict.findings.found[:1]}
    if has_idle and (causes & {Cause.INPUT, Cause.HOST} or verdict.step_extreme is None):
        return (WHY_IDLE,)
    return (SLOW_STEPS,) if len(verdict.steps) else ()


def _step_to_see(verdict: Verdict) -> tuple[tuple[int, int], str]:
    """Return the start and end of the slowest step, or the first, and its name in words."""
    steps, slowest = verdict.steps, verdict.step_extreme
    at = 0
    if slowest is not None:
        is_slowest = (steps["step"] == slowest.slowest) & (steps["rank"] == slowest.rank)
        if slowest.graph is not None:
            is_slowest &= np.ma.filled(steps["graph"], NO_GRAPH) == slowest.graph
        at = int(np.argmax(is_slowest))
    start_ns, end_ns = int(steps["start_ns"][at]), int(steps["end_ns"][at])
    device_ns = steps["device_start_ns"][at] + steps["span_ns"][at]
    if device_ns is not np.ma.masked:
        end_ns = max(end_ns, int(device_ns))
    name = (
        f"step {steps['step'][at]}," if slowest is None else f"the slowest step, {slowest.slowest},"
    )
    return (start_ns, end_ns), name


def _shared_ns(some_ns: tuple[int, int], other_ns: tuple[int, int]) -> int:
    return min(some_ns[1], other_ns[1]) - max(some_ns[0], other_ns[0])


def visible_ns(output: OutputFile, step_ns: tuple[int, int]) -> tuple[int, int] | None:
    """Return the times of a step and its margin, clipped to a file, on its clock; None outside."""
    margin_ns = int((step_ns[1] - step_ns[0]) * MARGIN)
    first_ns = max(step_ns[0] - margin_ns, output.drawn_ns[0])
    last_ns = min(step_ns[1] + margin_ns, output.drawn_ns[1])
    if first_ns >= last_ns:
        return None
    return first_ns + output.offset_ns, last_ns + output.offset_ns


def _ranks_to_see(report: ExportReport) -> tuple[int, ...]:
    """Return the culprit and who waits longest, the rank of the slowest step, or the first."""
    return report.verdict.ranks_to_see or (report.ranks[0].rank,)


def address(ui: str, trace_url: str, view: View) -> str:
    """Return the address at which the UI loads the trace, zooms and runs commands.

    Perfetto keeps these parameters and commands stable: see "Deep linking to the Perfetto UI" and
    "Commands Automation Reference" in its documentation.
    """
    parameters = {"url": trace_url}
    if view.visible_ns is not None:
        parameters["visStart"], parameters["visEnd"] = map(str, view.visible_ns)
    if view.commands:
        commands = [{"id": one.id, "args": one.args} for one in view.commands]
        parameters["startupCommands"] = json.dumps(commands, separators=(",", ":"))
    return f"{ui}/#!/?{urllib.parse.urlencode(parameters, quote_via=urllib.parse.quote)}"


def view_of_comparison(report: ComparisonReport) -> View:
    """Return a view of the step that became longest, with its rank and a table of answers."""
    (output,) = report.outputs
    is_json = output.format != "pftrace"
    rows = rows_of_ranks(_ranks(report), by_layer=report.by_layer, is_json=is_json)
    changed = report.changed
    commands = (unfold_layers(), *unfold_and_pin(rows))
    if changed is None:
        return View(output, None, rows, (*commands, *answers([TIMES])), "all of both runs")
    return View(
        output,
        visible_ns(output, (changed.start_ns, changed.end_ns)),
        rows,
        (*commands, *answers([CHANGES])),
        f"step {changed.step} of rank {changed.rank}, which changed most,",
    )


def _ranks(report: ComparisonReport) -> tuple[int, ...]:
    """Return the slowest rank of the step that changed most, else the first common rank."""
    ranks = report.comparison.ranks
    if report.changed is not None:
        base = ranks["rank"][ranks["new_rank"] == report.changed.rank].tolist()
        return tuple(dict.fromkeys((report.changed.rank, *base)))
    return tuple(dict.fromkeys(rank for row in ranks.take(slice(1)) for rank in (row[0], row[-1])))


# -- commands of the UI ----------------------------------------------------------------------------


def rows_of_ranks(ranks: Iterable[int], *, by_layer: bool, is_json: bool) -> str:
    """Return a JavaScript regular expression that matches the rows with the partitions of ranks.

    It matches paths of rows, or names in UI versions that match names only. Rows of the same name
    in other layers, or in other processes of .json, do not match.
    """
    which = "|".join(map(str, ranks))
    folder = r"(Ranks \d+-\d+ > )? *"
    above = rf"{OVERVIEW} \d+ > " if is_json else rf"\d+ {PARTITION} > " if by_layer else folder
    return rf"^{above}Rank 0*({which})\b[^>]*$"


def unfold_and_pin(rows: str) -> tuple[Command, ...]:
    """Return commands that unfold rows and pin them, so that they stay visible when scrolling."""
    return (
        # Without "path", newer versions ask the user what to match.
        Command("dev.perfetto.ExpandTracksByRegex", (rows, "path")),
        Command("dev.perfetto.PinTracksByRegex", (rows, "path")),
    )


def unfold_layers() -> Command:
    """Return a command that unfolds the main layers of ranks, and in .json the overview."""
    names = "|".join((*(spec_of(layer).name for layer in UNFOLDED), rf"{OVERVIEW} \d+"))
    return Command("dev.perfetto.ExpandTracksByRegex", (f"(^|> )({names})$", "path"))


def answers(views: Sequence[str]) -> tuple[Command, ...]:
    """Return commands that open a table per view, with its question as title, the last in front."""
    if not views:
        return ()
    script = definitions(views)
    tables = (f"/* {TITLES[view]} */ SELECT * FROM {view}" for view in views)
    return (
        Command("dev.perfetto.RunQuery", (script,)),
        *(Command("dev.perfetto.RunQueryAndShowTab", (table,)) for table in tables),
    )


def mark(title: str, query: str) -> Command:
    """Return a command that pins a row with the slices of a query; notes cannot be added."""
    return Command("dev.perfetto.AddDebugSliceTrack", (query, title))
