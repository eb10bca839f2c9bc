"""The section of a page on how data is prepared: queues over time, and the pipeline as boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.waits.culprit import Culprit
from timeline.figures.advice import ABOUT_DATA, worst_first
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.printable import printable
from timeline.reports.html.page_table import (
    Cell,
    Column,
    PageTable,
    integer_column,
    page_table,
    share_column,
    text_column,
    time_column,
)
from timeline.reports.html.palette import QUEUES, Phase
from timeline.reports.html.pictures import Picture, draw_queues
from timeline.reports.html.svg import StyleSheet
from timeline.units import spell_count

MOST_ROWS = 50
MOST_ADVICE = 8
MOST_BOXES = 200
"""Operations that are drawn: those that limit the pipeline, then those nearest to the root."""
MOST_NAMED = 20
"""Numbers of operations in a cell."""


@dataclass(frozen=True)
class PipelineBox:
    """An operation of the pipeline.

    usage: how full its queue is on the mean, None where it has none. limit: why it limits the
    pipeline, empty where it does not.
    """

    name: str
    workers: str
    usage: float | None
    limit: str
    advice: str


@dataclass(frozen=True)
class DataSection:
    """What a page shows of the preparation of data.

    rank: the one that is drawn, of so many ranks. queues: None where no sizes are known, of the
    phases. levels: boxes from the sources to the root, those that are equally far from it together.
    left_out: how many operations have no box, empty where all have one.
    """

    rank: int
    ranks: int
    queues: Picture | None
    phases: Sequence[Phase]
    levels: Sequence[Sequence[PipelineBox]]
    left_out: str
    advice: Sequence[str]
    tables: Sequence[PageTable]


def data_section(
    figures: Figures, culprit: Culprit | None, sheet: StyleSheet
) -> DataSection | None:
    """The section; None where nothing of it was sampled.

    The rank that is drawn is the culprit, or else the one whose host queue is most often empty.
    """
    ranks = figures.data_preparation.to_dicts()
    if not ranks:
        return None
    late = None if culprit is None else culprit.rank
    shown = max(ranks, key=lambda row: (row["rank"] == late, row["empty_share"] or 0.0))["rank"]
    curves = figures.data_curves
    curves = curves.take(curves["rank"] == shown)
    drawn = set(curves["queue"].tolist())
    levels, left = _levels(figures.data_pipeline, shown)
    advice = [one.text for one in worst_first(figures.all_advice()) if one.about in ABOUT_DATA]
    return DataSection(
        shown,
        len(ranks),
        draw_queues(curves, _room(figures.data_queues, shown), sheet) if len(curves) else None,
        [queue for queue in QUEUES if queue.column in drawn],
        levels,
        f"{spell_count(left, 'more operation')} in the JSON report (--json)." if left else "",
        [printable(text) for text in advice[:MOST_ADVICE]],
        list(_tables(figures)),
    )


def _room(queues: Table, rank: int) -> int:
    """For how many batches the queues of a rank have room, as far as that is known."""
    its = queues.take(queues["rank"] == rank)
    return int(np.ma.filled(its["capacity"], 0).max(initial=0))


def _levels(pipeline: Table, rank: int) -> tuple[list[list[PipelineBox]], int]:
    """The boxes of a rank, whose operations come from the root on; how many have none."""
    its = pipeline.take(pipeline["rank"] == rank)
    depth: dict[int | None, int] = {}
    for op, parent in zip(its["op"].tolist(), its["parent"].tolist(), strict=True):
        depth[op] = depth.get(parent, -1) + 1
    limits = np.array([bool(limit) for limit in its["bottleneck"]], np.bool_)
    drawn = np.sort(np.argsort(~limits, kind="stable")[:MOST_BOXES])
    levels: dict[int, list[PipelineBox]] = {}
    for row in its.take(drawn).to_dicts():
        workers = "" if row["workers"] is None else spell_count(row["workers"], "worker")
        levels.setdefault(depth[row["op"]], []).append(
            PipelineBox(
                printable(f"{row['type']} {row['op']}"),
                workers,
                row["usage"],
                row["bottleneck"] or "",
                row["advice"] or "",
            )
        )
    return [levels[at] for at in sorted(levels, reverse=True)], len(its) - len(drawn)


def _named(ops: Sequence[int]) -> str:
    """The numbers of operations, the first of many."""
    left = len(ops) - MOST_NAMED
    return ", ".join(map(str, ops[:MOST_NAMED])) + (f" and {left} more" if left > 0 else "")


def _tables(figures: Figures) -> Iterator[PageTable]:
    ranks, queues, pipeline = (
        figures.data_preparation,
        figures.data_queues,
        figures.data_pipeline,
    )
    shown, note = _first(ranks)
    columns = [
        _words("Bottleneck", shown["bottleneck"]),
        _shares("Host queue empty", shown["empty_share"]),
        _words("Operations", [*map(_named, shown["operations"])]),
        _shares("Processors busy", shown["cpu_busy"]),
    ]
    if any(columns):
        yield page_table(
            "data-ranks",
            "What limits the preparation of data",
            [integer_column("Rank", shown["rank"]), *columns],
            note,
        )
    if len(queues):
        shown, note = _first(queues)
        yield page_table(
            "data-queues",
            "Queues",
            [
                integer_column("Rank", shown["rank"]),
                text_column("Queue", shown["queue"]),
                integer_column("Batches", shown["records"]),
                integer_column("Empty", shown["empty"]),
                integer_column("Full", shown["full"]),
                integer_column("Capacity", shown["capacity"]),
                time_column("Waited for", shown["get_ns"]),
                time_column("Put in", shown["push_ns"]),
                time_column("Together", shown["total_ns"]),
            ],
            f"Times are means of a batch. {note}".strip(),
        )
    if len(pipeline):
        shown, note = _first(pipeline)
        yield page_table(
            "data-pipeline",
            "Operations of the pipeline",
            [
                integer_column("Rank", shown["rank"]),
                integer_column("Number", shown["op"]),
                text_column("Type", shown["type"]),
                integer_column("Workers", shown["workers"]),
                integer_column("Capacity", shown["capacity"]),
                _shares("Queue filled", shown["usage"]),
                _shares("Queue empty", shown["empty_share"]),
                _shares("User", shown["cpu_user"]),
                _shares("System", shown["cpu_system"]),
                _words("Bottleneck", shown["bottleneck"]),
                _words("What to try", shown["advice"]),
            ],
            note,
        )


def _first(rows: Table) -> tuple[Table, str]:
    shown = rows.take(slice(MOST_ROWS))
    left = len(rows) - len(shown)
    return shown, f"{spell_count(left, 'more row')} in the JSON report (--json)." if left else ""


def _words(title: str, values: Sequence[str | None] | npt.NDArray[Any]) -> Column | None:
    words = np.empty(len(values), object)
    words[:] = [value or "" for value in values]
    return text_column(title, words)


def _shares(title: str, values: npt.NDArray[Any]) -> Column | None:
    """Shares where they are given; None where none is."""
    absent = np.ma.getmaskarray(values)
    if absent.all():
        return None
    column = share_column(title, values, 1)
    cells = (
        Cell("–", -1) if missing else cell
        for cell, missing in zip(column.cells, absent.tolist(), strict=True)
    )
    return Column(title, True, tuple(cells))
