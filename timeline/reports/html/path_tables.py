"""The tables of a page on what determined how long steps took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.group_by import group_by
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.figures.waiting_tables import path_parts
from timeline.records.not_given import NO_ID
from timeline.reports.html.page_table import (
    PageTable,
    page_table,
    share_column,
    spell_rank,
    text_column,
    time_column,
)
from timeline.units import spell_count

MOST_ROWS = 24


def path_tables(figures: Figures) -> Iterator[PageTable]:
    """What is on the critical path of all steps."""
    if not len(figures.critical_path):
        return
    parts = path_parts(figures.critical_path)
    yield _kinds(parts)
    yield _parts(parts)


def _kinds(parts: Table) -> PageTable:
    """A row per kind of segment, of all ranks and steps, the longest first."""
    kinds, kind = np.unique(parts["kind"].astype(str), return_inverse=True)
    groups = group_by(len(parts), [kind.astype(np.int64)])
    total_ns = groups.sum(parts["total_ns"])
    order = np.argsort(-total_ns, kind="stable")
    return page_table(
        "path-kinds",
        "What is on the path",
        [
            text_column("Segments", _labels(kinds[kind[groups.first[order]]])),
            time_column("Time", total_ns[order], bars=True),
            share_column("Share of path", total_ns[order], int(total_ns.sum())),
        ],
    )


def _labels(kinds: npt.NDArray[Any]) -> npt.NDArray[Any]:
    spelled = [str(kind).replace("_", " ").capitalize() for kind in kinds.tolist()]
    return np.array(spelled, object)


def _parts(parts: Table) -> PageTable:
    """A row per rank and kind of segment, over all steps, the longest first."""
    rank, profiled = np.ma.filled(parts["rank"], NO_ID), parts["profiled"].astype(np.int64)
    _, kind = np.unique(parts["kind"].astype(str), return_inverse=True)
    groups = group_by(len(parts), [rank, profiled, kind.astype(np.int64)])
    total_ns = groups.sum(parts["total_ns"])
    order = np.argsort(-total_ns, kind="stable")
    shown = parts.take(groups.first[order[:MOST_ROWS]])
    left = len(order) - len(shown)
    ranks = map(spell_rank, shown["rank"].tolist(), shown["profiled"].tolist())
    return page_table(
        "path",
        "On which rank",
        [
            text_column("Rank", np.array(list(ranks), object)),
            text_column("Segments", _labels(shown["kind"])),
            time_column("Time", total_ns[order[:MOST_ROWS]]),
            share_column("Share of path", total_ns[order[:MOST_ROWS]], int(total_ns.sum())),
        ],
        f"{spell_count(left, 'more row')}, all shorter, in the JSON report (--json)."
        if left
        else "",
    )
