"""The views that the Perfetto UI shows of a file, and the addresses that lead to them."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from timeline.encoders.chrome import OVERVIEW
from timeline.language import said
from timeline.layers import Layer, spec_of
from timeline.records.tables import GPU, NPU
from timeline.reports.comparison_report import ComparisonReport
from timeline.reports.export_report import ExportReport
from timeline.reports.first_look import (
    CHANGES,
    SLOW_STEPS,
    TIMES,
    WHO_HOLDS_UP,
    WHY_IDLE,
    FirstLook,
)
from timeline.reports.report_rows import OutputFile
from timeline.tracks.partition import PARTITION
from timeline.viewer.queries import definitions, said_in_sql

MARGIN = 0.05
"""Margin shown before and after the step, as a share of its length."""
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
HARDWARE = (NPU, GPU)
"""The names of Layer.HARDWARE, which profiles give."""


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


def look_at(report: ExportReport | ComparisonReport) -> FirstLook:
    """Return what to show first of an export or comparison."""
    if isinstance(report, ExportReport):
        first_rank = report.ranks[0].rank
        return FirstLook.of_export(
            report.verdict, report.figures, first_rank, by_layer=report.by_layer
        )
    return FirstLook.of_comparison(report.comparison, report.changed, by_layer=report.by_layer)


def view_of(report: ExportReport | ComparisonReport) -> View:
    """Return the first look at the file with most of the step, or at the first file."""
    look = look_at(report)
    output = report.outputs[0]
    if look.step_ns is not None:
        step_ns = look.step_ns
        output = max(report.outputs, key=lambda output: _shared_ns(output.drawn_ns, step_ns))
    return view_of_file(output, look)


def view_of_file(output: OutputFile, look: FirstLook) -> View:
    """Return the first look at a file: the step in view, ranks unfolded and pinned, and a table.

    The step is clipped to the file: the UI ignores times outside of the trace altogether.
    """
    shown_ns = None if look.step_ns is None else visible_ns(output, look.step_ns)
    description = look.description if shown_ns or look.step_ns is None else "all of it"
    if not look.ranks:
        return View(output, shown_ns, "", (), description)
    is_json = output.format != "pftrace"
    rows = rows_of_ranks(look.ranks, by_layer=look.by_layer, is_json=is_json)
    commands = (
        unfold_layers(),
        *unfold_and_pin(rows),
        *(answer(look.question) if look.question in TITLES else ()),
        *_note(look, shown_ns),
    )
    return View(output, shown_ns, rows, commands, description)


def _note(look: FirstLook, shown_ns: tuple[int, int] | None) -> Iterator[Command]:
    """Yield a command that marks a wait, the longest in the visible part, else of all."""
    if look.waiting is None:
        return
    rank, culprit = look.waiting
    first_ns, last_ns = shown_ns or (0, 0)
    query = (
        "SELECT ts, dur, format('Rank %d waits %.3f ms for rank %d', rank, dur / 1e6, "
        f"{culprit}) AS name FROM drawn WHERE layer = 'Overlap Analysis' AND "
        f"(name = 'Waiting for rank {culprit}' OR name GLOB 'Waiting for rank "
        f"{culprit} *') ORDER BY rank = {rank} DESC, "
        f"ts BETWEEN {first_ns} AND {last_ns} DESC, dur DESC LIMIT 1"
    )
    # Commands cannot add notes, so a row with this one slice is pinned.
    yield Command("dev.perfetto.AddDebugSliceTrack", (said_in_sql(query), said(NOTE)))


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


# -- commands of the UI ----------------------------------------------------------------------------


def rows_of_ranks(ranks: Iterable[int], *, by_layer: bool, is_json: bool) -> str:
    """Return a JavaScript regular expression that matches the rows with the partitions of ranks.

    It matches paths of rows, or names in UI versions that match names only. Rows of the same name
    in other layers, or in other processes of .json, do not match.
    """
    which = "|".join(map(str, ranks))
    if is_json:
        above = rf"{OVERVIEW} \d+ > "
    elif by_layer:
        above = rf"\d+ {said(PARTITION, 'row')} > "
    else:
        above = r"(Ranks \d+-\d+[^>]* > )? *"
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
    layers = [said(spec_of(layer).name, "row") for layer in UNFOLDED]
    names = "|".join((*filter(None, layers), *HARDWARE, rf"{OVERVIEW} \d+"))
    return Command("dev.perfetto.ExpandTracksByRegex", (f"(^|> )({names})$", "path"))


def answer(view: str) -> tuple[Command, Command]:
    """Return commands that open the table of a view, with its question as title."""
    query = f"/* {said(TITLES[view])} */ SELECT * FROM {view}"
    return (
        Command("dev.perfetto.RunQuery", (definitions([view]),)),
        Command("dev.perfetto.RunQueryAndShowTab", (query,)),
    )
