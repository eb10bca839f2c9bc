"""The tables of a page on why devices idle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from timeline.analysis.idle.idle_sums import IdleCause
from timeline.figures.idle_table import least_gap_ns, sum_of_selection
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.reports.html.page_table import (
    Column,
    PageTable,
    integer_column,
    page_table,
    share_column,
    text_column,
    time_column,
)
from timeline.units import spell_count, spell_duration

MOST_ROWS = 50


def idle_tables(figures: Figures) -> Iterator[PageTable]:
    """Idle time by cause, by host call, and by rank and cause, as far as it is known."""
    causes = sum_of_selection(figures.idle, "cause")
    if not len(causes):
        return
    least_ns = least_gap_ns(figures.idle)
    yield page_table(
        "idle",
        "Why devices idle",
        _columns(causes),
        f"The device leaves at least {spell_duration(least_ns)} between tasks." if least_ns else "",
    )
    calls = sum_of_selection(figures.idle_calls, "cause", "call")
    if len(calls):
        shown, note = _first(calls, "more call")
        yield page_table("idle-calls", "What the host did meanwhile", _columns(shown), note)
    ranks = sum_of_selection(figures.idle, "rank", "cause")
    if len(ranks) > len(causes):
        shown, note = _first(ranks, "more row")
        yield page_table("idle-ranks", "By rank", _columns(shown), note)


def _first(rows: Table, noun: str) -> tuple[Table, str]:
    shown = rows.take(slice(MOST_ROWS))
    left = len(rows) - len(shown)
    return shown, f"{spell_count(left, noun)} in the JSON report (--json)." if left else ""


def _columns(rows: Table) -> list[Column | None]:
    labels = [IdleCause(cause).label for cause in rows["cause"].tolist()]
    return [
        integer_column("Rank", rows["rank"]) if "rank" in rows.columns else None,
        text_column("Cause", np.array(labels, object)),
        text_column("Host call", rows["call"]) if "call" in rows.columns else None,
        integer_column("Gaps", rows["gaps"]) if "gaps" in rows.columns else None,
        time_column("Time", rows["total_ns"], bars=True),
        share_column("Share of idle", rows["share"], 1),
    ]
