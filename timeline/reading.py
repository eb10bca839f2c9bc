"""Turns sources and a selection into the pictures of ranks: read, joined in time, and cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from timeline.analysis.clocks import JoinedClock, join_clocks
from timeline.analysis.cut import Cut, cut, cut_window, device_span_ns
from timeline.analysis.membership import NO_STEP
from timeline.analysis.overlap import overlap_of, overlap_of_stretches, totals_by_step
from timeline.analysis.steps import StepOperators, with_steps
from timeline.errors import SelectionError, spell_ids
from timeline.progress import Progress
from timeline.records.tables import NO_GRAPH, Records
from timeline.records.valid import valid
from timeline.selection import Selection
from timeline.sources.base import Source
from timeline.tracks.rank_picture import RankPicture

__all__ = ["check_selection", "choose_ranks", "graphs_of", "pictures_of", "read_ranks"]


def choose_ranks(sources: Sequence[Source], selection: Selection, path: Path) -> tuple[Source, ...]:
    """The sources of the selected ranks.

    Raises:
        SelectionError: a rank is not there.
    """
    known = [source.identity.rank for source in sources]
    if selection.ranks is None:
        return tuple(sources)
    _check_known("rank", selection.ranks, known, path)
    return tuple(source for source in sources if source.identity.rank in selection.ranks)


def _check_known(noun: str, wanted: frozenset[int], known: Iterable[int], path: Path) -> None:
    held = set(known)
    absent = wanted - held
    if absent:
        are = "is" if len(absent) == 1 else "are"
        plural = noun if len(absent) == 1 else f"{noun}s"
        raise SelectionError(
            f"{plural} {spell_ids(absent)} {are} not in {path}: found {noun}s {spell_ids(held)}. "
            "Use --list to see them."
        )


def read_ranks(
    sources: Sequence[Source], selection: Selection, operators: StepOperators, progress: Progress
) -> JoinedClock:
    """Read all ranks, find their steps, and put them on one clock."""
    read = []
    for number, source in enumerate(sources):
        progress.report(f"Reading rank {source.identity.rank}", number, len(sources))
        records = valid(source.read(selection, selection.layers))
        read.append((with_steps(records, operators), source.clock))
    return join_clocks(read)


def check_selection(ranks: Sequence[Records], selection: Selection, path: Path) -> None:
    """Make sure that every graph and step that was asked for is in some rank.

    Raises:
        SelectionError: one is not.
    """
    if selection.graphs is not None:
        known = {graph for records in ranks for graph in graphs_of(records)}
        asked_none = selection.graphs & {NO_GRAPH}
        _check_known("graph", selection.graphs, (known - {NO_GRAPH}) | (known & asked_none), path)
    if selection.steps is not None:
        steps = {step for records in ranks for step in records.steps.iteration.tolist()}
        _check_known("step", selection.steps, steps, path)


def graphs_of(records: Records) -> set[int]:
    """The graphs that a rank has tasks, ops or steps of."""
    tables = (records.tasks.graph, records.ops.graph, records.steps.graph)
    return {graph for column in tables for graph in np.unique(column).tolist()}


def pictures_of(ranks: Sequence[Records], selection: Selection) -> tuple[RankPicture, ...]:
    """Cut the records of all ranks to the selection and compute their overlap.

    Raises:
        SelectionError: the window lies outside the selection.
    """
    cuts = [cut(records, selection) for records in ranks]
    if selection.window is not None:
        spans = [span for part in cuts if (span := device_span_ns(part.records))]
        if not spans:
            raise SelectionError("--window: the selection holds no device records to count from.")
        bounds = selection.window.bounds_ns(
            min(span[0] for span in spans), max(span[1] for span in spans)
        )
        cuts = [cut_window(part, *bounds) for part in cuts]
    return tuple(_picture(part, selection) for part in cuts)


def _picture(part: Cut, selection: Selection) -> RankPicture:
    records, membership = part.records, part.membership
    tasks, ops = records.tasks, records.ops
    by_step = totals_by_step(tasks, ops, membership.tasks, membership.ops, len(records.steps))
    if selection.steps is None:
        whole = overlap_of(tasks, ops)
    else:
        runs = np.append(part.run, NO_STEP)
        whole = overlap_of_stretches(
            tasks,
            ops,
            runs[membership.tasks],
            runs[membership.ops],
            int(runs.max()) + 1,
        )
    return RankPicture(part, whole, by_step, records)
