"""The section of a page on a cluster: how it is split, what ranks do in a step, and links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from timeline.errors import spell_ids
from timeline.figures.advice import mean_rows
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.printable import printable
from timeline.reports.html.bandwidth_tables import links_of_known_ends
from timeline.reports.html.page_table import (
    PageTable,
    integer_column,
    page_table,
    rate_column,
    size_column,
    text_column,
    time_column,
)
from timeline.reports.html.palette import ALONE, Part
from timeline.reports.html.pictures import Picture, draw_rank_bars
from timeline.reports.html.svg import StyleSheet
from timeline.units import spell_count

MOST_LINKS = 50
_TIMES = {
    "computing_ns": "Computing",
    "communication_alone_ns": "Communication alone",
    "stage_ns": "Stage time",
    "receive_alone_ns": "Receives alone",
    "collective_alone_ns": "Collectives alone",
}
_ABOUT = frozenset(
    {
        "step interval of ranks",
        "flop/s of ranks",
        "link",
        "communication",
        "communication between stages",
        "communication within a stage",
        "work of stages",
    }
)


@dataclass(frozen=True)
class ClusterSection:
    """What a page shows of a cluster; bars: None where no rank tells its times."""

    split: str
    bars: Picture | None
    parts: Sequence[Part]
    advice: Sequence[str]
    tables: Sequence[PageTable]


def cluster_section(figures: Figures, sheet: StyleSheet) -> ClusterSection | None:
    """The section; None where neither the run is split nor a file tells of its ranks and links."""
    times, links = (
        mean_rows(figures.parallel_times),
        links_of_known_ends(figures.links, known=False),
    )
    split = _split_words(figures.parallel)
    if not (split or times or len(links)):
        return None
    parts = [part for part in ALONE if any(_alone(row)[part.column] for row in times)]
    if any(part.column == "receive_alone_ns" for part in parts):
        parts = [replace(part, label=_TIMES[part.column]) for part in parts]
    shown = [_alone(row) for row in times if _alone(row)["period_ns"]]
    return ClusterSection(
        split,
        draw_rank_bars(_table(shown), sheet, parts, "cluster") if shown else None,
        parts,
        [printable(row["text"]) for row in figures.advice.to_dicts() if row["about"] in _ABOUT],
        list(_tables(figures, times, links)),
    )


def _split_words(parallel: Table) -> str:
    """How several ranks share the model, for people."""
    split = next(iter(parallel.to_dicts()), None)
    if split is None or (split["ranks"] or 0) < 2:
        return ""
    mode = printable((split["mode"] or "").replace("_", " ").replace("-", " "))
    stages = split["stage_ranks"] or []
    ranks = spell_count(split["ranks"], "rank")
    if len(stages) < 2:
        return f"{ranks}, {mode}." if mode else f"{ranks}."
    of = "; ".join(f"stage {at} is ranks {spell_ids(held)}" for at, held in enumerate(stages[:8]))
    more = "; and so on" if len(stages) > 8 else ""
    return f"{ranks} in {len(stages)} stages{f', {mode}' if mode else ''}: {of}{more}."


def _alone(row: dict[str, Any]) -> dict[str, Any]:
    """The parts of a mean step that make up its bar: all communication is of collectives where
    receives are not told apart."""
    alone_ns, receive_ns = row["communication_alone_ns"] or 0, row["receive_alone_ns"] or 0
    computing_ns = row["computing_ns"] or 0
    return {
        "rank": row["rank"],
        "computing_ns": computing_ns,
        "receive_alone_ns": receive_ns,
        "collective_alone_ns": max(0, alone_ns - receive_ns),
        "period_ns": computing_ns + max(alone_ns, receive_ns),
    }


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    return Table({name: np.array([row[name] for row in rows], np.int64) for name in rows[0]})


def _tables(figures: Figures, times: Sequence[dict[str, Any]], links: Table) -> Iterator[PageTable]:
    if times:
        yield _rank_times(figures, times)
    if len(links):
        yield _links(links)


def _rank_times(figures: Figures, times: Sequence[dict[str, Any]]) -> PageTable:
    """A row per rank: the interval before its mean step, and the times of that."""
    interval_ns = {row["rank"]: row["interval_ns"] for row in mean_rows(figures.step_trace)}
    rows = [row | {"interval_ns": interval_ns.get(row["rank"])} for row in times]

    def column(name: str) -> np.ma.MaskedArray[Any, Any]:
        values = [row[name] for row in rows]
        absent = [value is None for value in values]
        return np.ma.masked_array(np.array([value or 0 for value in values], np.int64), absent)

    named = {"interval_ns": "Interval", **_TIMES}
    known = {
        name: title for name, title in named.items() if not np.ma.getmaskarray(column(name)).all()
    }
    longest_ns = max(int(column(name).max()) for name in known)
    stages = column("stage")
    return page_table(
        "cluster-ranks",
        "Ranks",
        [
            integer_column("Rank", column("rank")),
            *([] if np.ma.getmaskarray(stages).all() else [integer_column("Stage", stages)]),
            *(
                time_column(title, column(name), like_ns=longest_ns, bars=name != "interval_ns")
                for name, title in known.items()
            ),
        ],
        "Interval is the wait for data before a step, stage time what a stage of the pipeline "
        "computes and communicates without what it receives."
        if "stage_ns" in known
        else "",
    )


def _links(links: Table) -> PageTable:
    """A row per rank and link, the slowest first."""
    order = np.argsort(links["bandwidth_gb_s"], kind="stable")
    shown = links.take(order[:MOST_LINKS])
    left = len(links) - len(shown)
    note = "From and to are numbers inside groups that the file does not name."
    more = f" {spell_count(left, 'more link')}, all faster, in the JSON report (--json)."
    return page_table(
        "cluster-links",
        "Links of each rank",
        [
            integer_column("Rank", shown["rank"]),
            integer_column("From", shown["source_rank"]),
            integer_column("To", shown["target_rank"]),
            text_column("Link", shown["link"]),
            size_column("Size", shown["size_bytes"]),
            time_column("Time", shown["total_ns"]),
            rate_column("Bandwidth", shown["bandwidth_gb_s"]),
        ],
        note + more * bool(left),
    )
