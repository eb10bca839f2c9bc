"""Parts of a page on what the host did: its calls by name, and the longest gaps it left."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.idle.idle_sums import IdleCause
from timeline.language import said
from timeline.reports.html.page import (
    Block,
    columns_of,
    folded,
    note,
    open_column,
    page_table,
    section,
    share_column,
    text_column,
)
from timeline.reports.report_rows import OutputFile
from timeline.tables.calls import HOST_CALLS_BY_NAME, IDLE_GAPS
from timeline.tables.idle import sum_of_selection
from timeline.tables.table import Table, sum_rows
from timeline.units import format_count, format_duration
from timeline.verdict.figures import Figures

MOST_CALL_ROWS = 64
MOST_GAP_ROWS = 120
_CALLED = ("layer", "name")
_SECOND_NS = 10**9


def host_call_section(figures: Figures) -> Block | None:
    """Return the host calls of all ranks together, longest own time first; None without any."""
    table = figures.host_calls_by_name
    if not len(table):
        return None
    sums = ("count", "total_ns", "self_ns", "idle_ns")
    several = len(np.unique(table["rank"])) > 1
    calls = table
    if several:
        calls = sum_rows(table, _CALLED, sums, largest=("longest_ns",), by="self_ns")
    named = np.array([name is not None for name in calls["name"].tolist()], np.bool_)
    first = np.flatnonzero(named)[:MOST_CALL_ROWS]
    shown, rest = calls.take(first), calls.take(np.setdiff1d(np.arange(len(calls)), first))
    idle = sum_of_selection(figures.idle, "cause")
    like_ns = int(shown["total_ns"].max(initial=0))
    columns = [
        *columns_of(shown, *_CALLED, "count", "total_ns", of=HOST_CALLS_BY_NAME),
        *columns_of(shown, "self_ns", of=HOST_CALLS_BY_NAME, like_ns=like_ns, bars=("self_ns",)),
        *([] if several else columns_of(shown, "median_ns")),
        *columns_of(shown, "longest_ns", of=HOST_CALLS_BY_NAME, like_ns=like_ns),
        *columns_of(shown, "idle_ns", of=HOST_CALLS_BY_NAME, like_ns=like_ns),
    ]
    if len(idle):
        shares = share_column("Share of idle", shown["idle_ns"], int(idle["total_ns"].sum()))
        columns.append(shares)
    left = ""
    if len(rest):
        count, own_ns = int(rest["count"].sum()), int(rest["self_ns"].sum())
        left = f"All others together: {format_count(count, 'call')}, own {format_duration(own_ns)}."
    said = (
        "Calls lie inside others: own time is that in which no other call of the thread runs "
        "inside. Idle is the device's idle time that is charged to calls of the name."
    )
    return section(
        "Host calls",
        note(said),
        folded(page_table("host-calls", "Host calls by name", columns, left)),
    )


def gap_table(figures: Figures, outputs: Sequence[OutputFile]) -> Block | None:
    """Return the longest gaps of the ranks, with their place in the timeline; None without any."""
    table = figures.idle_gaps
    if not len(table):
        return None
    order = np.argsort(-table["idle_ns"], kind="stable")[:MOST_GAP_ROWS]
    shown = table.take(order)
    starts_ns = shown["start_ns"].tolist()
    causes = [said(IdleCause(cause).label) for cause in shown["cause"].tolist()]
    named = Table({**shown.columns, "cause": np.array(causes, object)})
    several = len(np.unique(table["rank"])) > 1
    names = ("rank", "graph", "step") if several else ("graph", "step")
    like_ns = int(shown["duration_ns"].max())
    return page_table(
        "idle-gaps",
        "Longest gaps between tasks",
        [
            *columns_of(named, *names, of=IDLE_GAPS),
            open_column(
                *(outputs, shown["rank"]),
                *(shown["start_ns"], shown["start_ns"] + shown["duration_ns"]),
            ),
            text_column("In the timeline at", [viewer_time(ns, outputs) for ns in starts_ns])
            if outputs
            else None,
            *columns_of(named, "duration_ns", of=IDLE_GAPS, bars=("duration_ns",)),
            *columns_of(named, "idle_ns", "cause", "cause_ns", of=IDLE_GAPS, like_ns=like_ns),
            *columns_of(named, "call", "previous", "next", of=IDLE_GAPS),
        ],
        "The ten of each rank with most idle time.",
    )


def viewer_time(time_ns: int, outputs: Sequence[OutputFile]) -> str:
    """Return the time of the viewer's time line at a moment, empty if no file shows it.

    The viewer counts hours, minutes, seconds and ns from the start of the file; with several files
    the name of the file comes first.
    """
    for output in outputs:
        first_ns, last_ns = output.drawn_ns
        if first_ns <= time_ns <= last_ns:
            seconds, rest_ns = divmod(time_ns - first_ns, _SECOND_NS)
            clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            digits = f"{rest_ns:09}"
            spelled = f"{clock}.{digits[:3]} {digits[3:6]} {digits[6:]}"
            return f"{output.path.name} {spelled}" if len(outputs) > 1 else spelled
    return ""
