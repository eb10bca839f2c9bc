"""The tables of a page on who waited for whom."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.reports.html.page_table import (
    PageTable,
    integer_column,
    page_table,
    spell_rank,
    text_column,
    time_column,
)
from timeline.units import spell_count, spell_duration

MOST_ROWS = 20
LEAST_ROWS, LEAST_SHARE = 3, 0.01
"""Ranks behind the first that cause a smaller share of all waiting are told together."""


def wait_tables(figures: Figures) -> Iterator[PageTable]:
    """Which ranks kept others waiting, and which rank waited for which, as far as it is known."""
    if np.ma.filled(figures.waiting["caused_ns"], 0).any():
        yield _stragglers(figures.waiting)
    if len(figures.waited_for):
        yield _waited_for(figures.waited_for)


def _stragglers(waiting: Table) -> PageTable:
    """A row per rank that any other waited for."""
    caused_ns, waited_ns = (np.ma.filled(waiting[name], 0) for name in ("caused_ns", "waited_ns"))
    order = np.lexsort((-waited_ns, -caused_ns))
    order = order[caused_ns[order] > 0]
    told = order[
        (caused_ns[order] >= LEAST_SHARE * caused_ns.sum()) | (np.arange(len(order)) < LEAST_ROWS)
    ]
    shown = waiting.take(told[:MOST_ROWS])
    longest_ns = int(max(shown["caused_ns"].max(), shown["waited_ns"].max()))
    left, nobody = len(order) - len(shown), len(waiting) - len(order)
    left_ns = int(caused_ns[order].sum() - caused_ns[told[:MOST_ROWS]].sum())
    notes = [
        f"{spell_count(left, 'more rank')} together caused {spell_duration(left_ns)}: --json."
        if left
        else "",
        f"Nobody waited for {spell_count(nobody, 'other rank')}." if nobody else "",
    ]
    return page_table(
        "stragglers",
        "Who arrives last",
        [
            integer_column("Rank", shown["rank"]),
            integer_column("Times last", shown["times_last"]),
            time_column("Wait caused", shown["caused_ns"], like_ns=longest_ns, bars=True),
            time_column("Longest", shown["slowest_ns"], like_ns=longest_ns),
            time_column("Time it waited", shown["waited_ns"], like_ns=longest_ns, bars=True),
        ],
        " ".join(filter(None, notes)),
    )


def _waited_for(waited_for: Table) -> PageTable:
    """A row per rank and whom it waited for, the longest waits of all ranks first."""
    order = np.argsort(-waited_for["waited_ns"], kind="stable")
    order = order[waited_for["waited_ns"][order] > 0]
    shown = waited_for.take(order[:MOST_ROWS])
    left = len(order) - len(shown)
    names = map(spell_rank, shown["waited_for_rank"].tolist(), shown["profiled"].tolist())
    return page_table(
        "waits",
        "Longest waits, rank for rank",
        [
            integer_column("Rank", shown["rank"]),
            text_column("Waited for", np.array(list(names), object)),
            integer_column("Times", shown["times"]),
            time_column("Time it waited", shown["waited_ns"], bars=True),
        ],
        f"{spell_count(left, 'more pair')}, all shorter, in the JSON report (--json)."
        if left
        else "",
    )
