"""The grid of times of each step (column) on each rank (row)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.ordinary_steps import has_several_graphs
from timeline.columns.columns import Bool, Int64, Rows
from timeline.columns.group_by import group_by
from timeline.figures.mean_step import edges_ns
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.figures.time_tables import extent_ns
from timeline.reports.html.palette import PARTS, Part, shown_parts

NOT_GIVEN = -1
"""A time that a rank does not have for a step."""
_NO_GRAPH = -1
FAR_LONGER = 1.5
"""A step that is so many times as long as ordinary ones would leave pictures flat."""
_MEASURED = ("period_ns", "not_overlapped_ns", *(part.column for part in PARTS))
_SPLIT = ("waiting_ns", "transfer_ns", "unsplit_ns", "edges_ns")
_ORDINARY = "ordinary"
"""Beside times: 1 for an ordinary step, 0 for another."""
_MARKED = ("marked_ns", "fp_bp_ns", "tail_ns", "interval_ns")


@dataclass(frozen=True)
class StepGrid:
    """Times of each step (column) on each rank (row).

    ranks: (R,). graphs, steps: (C,), in order of time; graphs are NOT_GIVEN unless a rank has
    several. times: (R, C) ns by name, NOT_GIVEN where absent. run: how many neighbouring steps of
    the profile a column stands for.
    """

    ranks: Int64
    graphs: Int64
    steps: Int64
    times: Mapping[str, Int64]
    run: int = 1

    @classmethod
    def of(cls, figures: Figures) -> StepGrid:
        """The grid of all steps that are marked on any rank."""
        steps = figures.steps
        ranks = np.unique(steps["rank"]) if len(steps) else np.zeros(0, np.int64)
        if not len(steps):
            none = np.zeros(0, np.int64)
            empty = np.zeros((0, 0), np.int64)
            return cls(none, none, none, dict.fromkeys((*_MEASURED, *_MARKED, _ORDINARY), empty))
        graph = np.ma.filled(steps["graph"], _NO_GRAPH)
        if not has_several_graphs(steps["rank"], graph):
            graph = np.full_like(graph, _NO_GRAPH)
        step = np.asarray(steps["step"])
        groups = group_by(len(steps), (graph, step))
        order = np.argsort(groups.least(steps["start_ns"]), kind="stable")
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        row = np.searchsorted(ranks, steps["rank"])
        times = {}
        for name, values in _columns(figures).items():
            times[name] = np.full((len(ranks), len(order)), NOT_GIVEN, np.int64)
            times[name][row, position[groups.group]] = values
        first = groups.first[order]
        return cls(ranks, graph[first], step[first], times)

    @property
    def shape(self) -> tuple[int, int]:
        """How many ranks and steps."""
        return len(self.ranks), len(self.steps)

    def has(self, name: str) -> bool:
        """Whether any step of any rank has such a time."""
        return bool((self.times[name] != NOT_GIVEN).any())

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that take any time in any step."""
        return shown_parts(
            Table({name: column.ravel() for name, column in self.times.items()}), PARTS
        )

    def ceiling_ns(self, name: str) -> int:
        """How long pictures show a time: that of ordinary steps, where others are far longer."""
        times_ns = self.times[name]
        longest_ns = int(times_ns.max(initial=0))
        ordinary_ns = int(times_ns[self.ordinary].max(initial=0))
        return ordinary_ns if 0 < FAR_LONGER * ordinary_ns < longest_ns else longest_ns

    @property
    def several_graphs(self) -> bool:
        """Whether a step is told by its graph too."""
        return bool((self.graphs != _NO_GRAPH).any())

    @property
    def ordinary(self) -> Bool:
        """Which are ordinary steps, (R, C)."""
        ordinary: Bool = self.times[_ORDINARY] == 1
        return ordinary

    def labels(self) -> list[str]:
        """The steps as people call them."""
        several = self.several_graphs
        pairs = zip(self.graphs.tolist(), self.steps.tolist(), strict=True)
        return [f"{graph}:{step}" if several else str(step) for graph, step in pairs]

    def measured(self) -> StepGrid:
        """The grid of the steps that have device records on any rank."""
        kept = np.flatnonzero((self.times["period_ns"] != NOT_GIVEN).any(axis=0))
        times = {name: values[:, kept] for name, values in self.times.items()}
        return replace(self, graphs=self.graphs[kept], steps=self.steps[kept], times=times)

    def of_ranks(self, rows: Rows) -> StepGrid:
        """The grid of some of its rows."""
        times = {name: values[rows] for name, values in self.times.items()}
        return replace(self, ranks=self.ranks[rows], times=times)

    def of_fewer_ranks(self, most: int) -> StepGrid:
        """The grid with `most` rows at most: of each run of ranks the longest of each step."""
        run = run_length(len(self.ranks), most)
        if run == 1:
            return self
        starts = np.arange(0, len(self.ranks), run)
        lengths_ns = self._lengths_ns()
        longest = np.stack(
            [start + np.argmax(lengths_ns[start : start + run], axis=0) for start in starts]
        )
        times = {
            name: np.take_along_axis(values, longest, axis=0) for name, values in self.times.items()
        }
        return replace(self, ranks=self.ranks[starts], times=times)

    def within(self, columns: int) -> StepGrid:
        """The grid with so many columns at most: of each run of steps the longest is kept."""
        run = run_length(len(self.steps), columns)
        if run <= 1:
            return self
        longest = np.stack(
            [
                start + np.argmax(self._lengths_ns()[:, start : start + run], axis=1)
                for start in range(0, len(self.steps), run)
            ],
            axis=1,
        )
        times = {
            name: np.take_along_axis(values, longest, axis=1) for name, values in self.times.items()
        }
        return StepGrid(self.ranks, self.graphs[::run], self.steps[::run], times, run)

    def _lengths_ns(self) -> Int64:
        spans_ns = self.times["period_ns"]
        return np.where(spans_ns == NOT_GIVEN, self.times["marked_ns"], spans_ns)


def run_length(count: int, most: int) -> int:
    """How many neighbours share a column of a picture, so that it has at most so many columns."""
    return max(1, -(-count // most))


def with_parts(table: Table) -> Table:
    """A table of overlap, or of mean steps, with all of PARTS.

    Its period_ns is the time of which all parts are, without what lies outside. Exposed
    communication is unsplit where nothing tells what is waiting and what transfer.
    """
    overlapped_ns = table["communication_ns"] - table["not_overlapped_ns"]
    alone_ns = table["computing_ns"] - overlapped_ns
    nothing = np.zeros(len(table), np.int64)
    whole = "outside_ns" in table.columns
    period_ns = extent_ns(table) if whole else table["period_ns"]
    unsplit_ns = np.ma.filled(table["not_overlapped_ns"], 0)
    split = {}
    for name in ("waiting_ns", "transfer_ns"):
        split[name] = table.columns.get(name, nothing)
        unsplit_ns = unsplit_ns - np.ma.filled(split[name], 0)
    made = {"period_ns": period_ns, "overlapped_ns": overlapped_ns, "alone_ns": alone_ns}
    made["edges_ns"] = edges_ns(table)
    return Table({**table.columns, **made, **split, "unsplit_ns": np.maximum(unsplit_ns, 0)})


def _columns(figures: Figures) -> dict[str, Int64]:
    steps = figures.steps
    known = with_parts(Table({**steps.columns, **figures.exposed_steps.columns}))
    absent = np.ma.getmaskarray(steps["span_ns"])
    values = {
        name: np.where(absent, NOT_GIVEN, np.ma.filled(known[name], 0))
        if name in _SPLIT
        else np.ma.filled(known[name], NOT_GIVEN)
        for name in _MEASURED
    }
    values["period_ns"] = np.where(absent, NOT_GIVEN, steps["period_ns"])
    values["marked_ns"] = steps["end_ns"] - steps["start_ns"]
    values.update({name: np.ma.filled(steps[name], NOT_GIVEN) for name in _MARKED[1:]})
    values[_ORDINARY] = np.asarray(steps["ordinary"])
    return values
