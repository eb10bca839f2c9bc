"""Data of charts: grids of times of ranks and steps, and the blocks that `page.js` draws."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.ordinary_steps import has_several_graphs
from timeline.columns.columns import Bool, Int64, Rows
from timeline.columns.group_by import group_by
from timeline.comparison.sides import Sides
from timeline.language import said
from timeline.printable import printable
from timeline.reports.html.page import Block, unit_of
from timeline.tables.operators import OperatorCurves
from timeline.tables.parallel import ParallelIndices
from timeline.tables.short_names import shortened
from timeline.tables.table import Table
from timeline.tables.times import extent_ns
from timeline.tables.waits import WaitMatrix
from timeline.units import format_short
from timeline.verdict.figures import Figures
from timeline.verdict.mean_step import edges_ns, own_times_ns

MOST_DRAWN = 400
"""Maximum number of columns of a chart; if there are more ranks or steps, neighbours share one."""
MOST_BARS, FEW_BARS = 40, 16
"""Maximum number of ranks that all have a bar; of more, only FEW_BARS have."""
MOST_PER_ROW, NODE = 64, 8
"""Ranks of a row and of a box of the map of ranks, if no parallel layout is known."""
LEAST_CONTRAST = 0.2
"""Minimum part of a scale of the map of ranks that its values span, as a share of the largest."""
MOST_HEAT_CELLS = 24_000
"""Maximum number of ranks times steps of a heat map; if there are more, ranks share a row."""
MOST_CELLS = 3_000
"""Maximum number of ranks times steps whose times a page holds, for the reader to choose a rank."""
MOST_MAPPED = 64
"""Maximum number of ranks in a map of waits; for more, only the sum per rank is drawn."""
MOST_BEYOND = 4
"""Maximum number of steps named that are longer than a chart shows."""
LONGEST_TYPE = 32
"""Maximum length of an operator type, so that its range fits beside it on a narrow screen."""
NOT_GIVEN = -1
"""Time of a step that a rank does not have."""
FAR_LONGER = 1.5
"""Minimum ratio of the longest step to ordinary ones for it to be cut off, as it would flatten a
chart.
"""
LEAST_SEEN = 1e-3
"""Minimum share of a chart that is visible; less would be below a pixel."""
_NO_GRAPH = -1
_MEASURES = {
    "Late": "How much later than its peers a rank comes to collectives, per step; whoever waited "
    "for a slow rank comes late too.",
    "Own time": "A step without exposed communication: computing, copies, and idle time.",
    "Waiting": "Exposed communication until the last rank has come.",
    "Transfer": "Exposed communication once all ranks have come.",
    "Exposed communication": "Communication while nothing computes.",
}
"""Measures of the map of ranks, and what they are."""


@dataclass(frozen=True)
class Part:
    """A part of the time of a rank or step, or a curve.

    role: key of its colour, hatch and dashes in the style sheet and the script.
    """

    column: str
    role: str
    label: str


PARTS = (
    Part("alone_ns", "computing", "Computing alone"),
    Part("overlapped_ns", "overlapped", "Overlapped communication"),
    Part("waiting_ns", "waiting", "Waiting for other ranks"),
    Part("transfer_ns", "transfer", "Transfer"),
    Part("unsplit_ns", "unsplit", "Waiting or transfer, not known which"),
    Part("copies_ns", "copies", "Copies"),
    Part("idle_ns", "idle", "Idle"),
    Part("edges_ns", "between", "Before the first kernel, and between steps"),
)
"""Parts of a step, from the bottom up or from the left. Waiting, transfer and unsplit together are
exposed communication.
"""
EXPOSED = Part("unsplit_ns", "exposed", "Exposed communication")
"""Replaces the unsplit part if neither waiting nor transfer is known."""
PHASES = (
    Part("marked_ns", "step", "Step"),
    Part("fp_bp_ns", "fp-bp", "FP/BP"),
    Part("tail_ns", "tail", "Tail"),
    Part("interval_ns", "interval", "Interval"),
)
QUEUES = (
    Part("host", "fp-bp", "Host queue"),
    Part("device", "tail", "Device queue"),
    Part("to device", "interval", "Queue to the device"),
)
"""Queues of batches on their way to the device."""
_MEASURED = ("period_ns", "not_overlapped_ns", *(part.column for part in PARTS))
_SPLIT = ("waiting_ns", "transfer_ns", "unsplit_ns", "edges_ns")
_ORDINARY = "ordinary"
"""Name of a grid among the times: 1 for an ordinary step, 0 for another."""
_LATE = "late_ns"
"""Name of the grid of how late ranks come, 0 for those that are early."""


def shown_parts(table: Table, parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts that are large enough to be visible.

    Without waiting and transfer, the unsplit part is called exposed communication.
    """
    most = {part: int(np.ma.filled(table[part.column], 0).max(initial=0)) for part in parts}
    least_ns = max(1, sum(most.values()) * LEAST_SEEN)
    shown = [part for part in parts if most[part] >= least_ns]
    split = any(part.role in ("waiting", "transfer") for part in shown)
    return tuple(EXPOSED if part.role == "unsplit" and not split else part for part in shown)


def run_length(count: int, most: int) -> int:
    """Return how many neighbours share a column, so that a chart has at most `most` columns."""
    return max(1, -(-count // most))


def packed(values: npt.NDArray[Any]) -> str:
    """Return numbers as base64 of little-endian float32; masked ones are NaN."""
    return base64.b64encode(np.ma.filled(values.astype("<f4"), np.nan).tobytes()).decode()


# -- times of steps --------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepGrid:
    """Times of each step (column) on each rank (row).

    ranks: (R,). graphs, steps: (C,), in order of time; graphs are _NO_GRAPH unless a rank has
    several. times: (R, C) ns by name, NOT_GIVEN if absent. run: number of neighbouring steps that
    share a column.
    """

    ranks: Int64
    graphs: Int64
    steps: Int64
    times: Mapping[str, Int64]
    run: int = 1

    @classmethod
    def of(cls, figures: Figures) -> StepGrid:
        """Return the grid of all steps that are marked on any rank."""
        steps = figures.steps
        if not len(steps):
            none, empty = np.zeros(0, np.int64), np.zeros((0, 0), np.int64)
            phases = (phase.column for phase in PHASES)
            return cls(
                none, none, none, dict.fromkeys((*_MEASURED, *phases, _ORDINARY, _LATE), empty)
            )
        ranks = np.unique(steps["rank"])
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
        """Return the numbers of ranks and steps."""
        return len(self.ranks), len(self.steps)

    def has(self, name: str) -> bool:
        """Return True if any step of any rank has such a time."""
        return bool((self.times[name] != NOT_GIVEN).any())

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return the parts that are large enough to be visible in any step."""
        times = {name: column.ravel() for name, column in self.times.items()}
        return shown_parts(Table(times), PARTS)

    def ceiling_ns(self, name: str) -> int:
        """Return the top of the axis for a time.

        It is the longest time, but that of ordinary steps if others are far longer.
        """
        times_ns = self.times[name]
        longest_ns = int(times_ns.max(initial=0))
        ordinary_ns = int(times_ns[self.ordinary].max(initial=0))
        return ordinary_ns if 0 < FAR_LONGER * ordinary_ns < longest_ns else longest_ns

    @property
    def several_graphs(self) -> bool:
        """Return whether labels of steps include the graph, as a rank has several."""
        return bool((self.graphs != _NO_GRAPH).any())

    @property
    def ordinary(self) -> Bool:
        """Return a mask (R, C) of ordinary steps."""
        ordinary: Bool = self.times[_ORDINARY] == 1
        return ordinary

    def labels(self) -> list[str]:
        """Return the labels of steps: the number, after the graph if there are several."""
        several = self.several_graphs
        pairs = zip(self.graphs.tolist(), self.steps.tolist(), strict=True)
        return [f"{graph}:{step}" if several else str(step) for graph, step in pairs]

    def measured(self) -> StepGrid:
        """Return the grid of the steps that have device records on any rank."""
        kept = np.flatnonzero((self.times["period_ns"] != NOT_GIVEN).any(axis=0))
        times = {name: values[:, kept] for name, values in self.times.items()}
        return replace(self, graphs=self.graphs[kept], steps=self.steps[kept], times=times)

    def of_ranks(self, rows: Rows) -> StepGrid:
        """Return the grid of the ranks in some rows."""
        times = {name: values[rows] for name, values in self.times.items()}
        return replace(self, ranks=self.ranks[rows], times=times)

    def of_fewer_ranks(self, most: int) -> StepGrid:
        """Return a grid of at most `most` rows, with the longest of neighbouring ranks per step."""
        run = run_length(len(self.ranks), most)
        if run == 1:
            return self
        return replace(self, ranks=self.ranks[::run], times=self._longest(run, axis=0))

    def within(self, columns: int) -> StepGrid:
        """Return a grid of at most `columns` columns, with the longest of neighbouring steps."""
        run = run_length(len(self.steps), columns)
        if run == 1:
            return self
        times = self._longest(run, axis=1)
        return StepGrid(self.ranks, self.graphs[::run], self.steps[::run], times, run)

    def _longest(self, run: int, axis: int) -> dict[str, Int64]:
        """Return the times by name, reduced to the longest of each run of neighbours."""
        spans_ns = self.times["period_ns"]
        lengths_ns = np.where(spans_ns == NOT_GIVEN, self.times["marked_ns"], spans_ns)
        runs = [
            start + np.argmax(lengths_ns.take(range(start, min(start + run, count)), axis), axis)
            for count in [lengths_ns.shape[axis]]
            for start in range(0, count, run)
        ]
        longest = np.stack(runs, axis=axis)
        return {
            name: np.take_along_axis(values, longest, axis) for name, values in self.times.items()
        }


def with_parts(table: Table) -> Table:
    """Return a table of overlap, or of mean steps, with the columns of all PARTS.

    The parts add up to its period_ns, which excludes time outside. Exposed communication that is
    neither known to be waiting nor transfer is unsplit.
    """
    overlapped_ns = table["communication_ns"] - table["not_overlapped_ns"]
    alone_ns = table["computing_ns"] - overlapped_ns
    zeros = np.zeros(len(table), np.int64)
    unsplit_ns = np.ma.filled(table["not_overlapped_ns"], 0)
    split = {}
    for name in ("waiting_ns", "transfer_ns"):
        split[name] = table.columns.get(name, zeros)
        unsplit_ns = unsplit_ns - np.ma.filled(split[name], 0)
    return Table(
        {
            **table.columns,
            **split,
            "period_ns": extent_ns(table) if "outside_ns" in table.columns else table["period_ns"],
            "overlapped_ns": overlapped_ns,
            "alone_ns": alone_ns,
            "edges_ns": edges_ns(table),
            "unsplit_ns": np.maximum(unsplit_ns, 0),
        }
    )


def _columns(figures: Figures) -> dict[str, Int64]:
    steps = figures.steps
    times = with_parts(Table({**steps.columns, **figures.exposed_steps.columns}))
    absent = np.ma.getmaskarray(steps["span_ns"])
    values = {
        name: np.where(absent, NOT_GIVEN, np.ma.filled(times[name], 0))
        if name in _SPLIT
        else np.ma.filled(times[name], NOT_GIVEN)
        for name in _MEASURED
    }
    values["period_ns"] = np.where(absent, NOT_GIVEN, steps["period_ns"])
    values["marked_ns"] = steps["end_ns"] - steps["start_ns"]
    for phase in PHASES[1:]:
        values[phase.column] = np.ma.filled(steps[phase.column], NOT_GIVEN)
    values[_ORDINARY] = np.asarray(steps["ordinary"])
    values[_LATE] = np.ma.filled(np.maximum(steps["late_ns"], 0), NOT_GIVEN)
    return values


# -- charts ----------------------------------------------------------------------------------------


def draw_rank_bars(
    ranks: Table, parts: Sequence[Part], name: str = "bars", first: Collection[int] = ()
) -> Block:
    """Return bars of the parts of each rank's time, of many ranks those that matter most.

    ranks: table with rank, period_ns and the columns of the parts. name: of the chart in the page.
    first: ranks that matter more than those that take longest.
    """
    shown = ranks
    if len(ranks) > MOST_BARS:
        matters = np.lexsort((-ranks["period_ns"], ~np.isin(ranks["rank"], list(first))))
        shown = ranks.take(np.sort(matters[:FEW_BARS]))
    return {
        "is": "bars",
        "name": name,
        "label": f"Parts of the device time of {len(shown)} ranks; the table below has the numbers",
        "rows": [f"rank {rank}" for rank in shown["rank"].tolist()],
        "of": shown["period_ns"].tolist(),
        "parts": [_filled(part, shown) for part in parts],
    }


def draw_rank_map(
    means: Table,
    grid: StepGrid,
    places: Mapping[int, ParallelIndices],
    found: Mapping[int, str],
) -> Block | None:
    """Return a map of all ranks, coloured by one of several measures; None for a single rank.

    means: a row per rank, see `mean_steps`. places: parallel indices by rank, as far as known.
    found: the findings that name a rank, in words.
    """
    ranks = means["rank"].tolist()
    late = np.ma.masked_array(grid.times[_LATE], ~grid.ordinary | (grid.times[_LATE] == NOT_GIVEN))
    late_ns = dict(zip(grid.ranks.tolist(), late.mean(axis=1).tolist(), strict=True))
    of_ranks = [late_ns.get(rank) for rank in ranks]
    unknown_ns = np.ma.masked_array(np.zeros(len(ranks)), np.True_)
    split = not np.ma.getmaskarray(means["waiting_ns"]).all()
    measures = {
        "Late": np.ma.masked_invalid(np.array(of_ranks, np.float64)),
        "Own time": own_times_ns(means),
        "Waiting": means["waiting_ns"],
        "Transfer": means["transfer_ns"],
        "Exposed communication": unknown_ns if split else means["not_overlapped_ns"],
    }
    shown = {name: values for name, values in measures.items() if np.ma.filled(values, 0).any()}
    if len(ranks) < 2 or not shown:
        return None
    is_found = np.isin(ranks, list(found))
    clear = [at for at, values in enumerate(shown.values()) if _stand_out(values, is_found)]
    return {
        "is": "ranks",
        "ranks": ranks,
        "rows": _rows_of_ranks(ranks, places),
        "found": {str(rank): said(words) for rank, words in found.items()},
        "shown": clear[0] if clear else 0,
        "measures": [
            {
                "label": name,
                "note": _MEASURES[name],
                "values": packed(np.ma.asanyarray(values)),
                "low": float(min(values.min(), (1 - LEAST_CONTRAST) * values.max())),
                "high": float(values.max()),
            }
            for name, values in shown.items()
        ],
    }


def _stand_out(values: npt.NDArray[Any], is_found: Bool) -> bool:
    """Return whether some ranks are above all others by more than half of the range of values."""
    found, others = (np.ma.compressed(values[mask]) for mask in (is_found, ~is_found))
    if not len(found) or not len(others):
        return False
    return bool(2 * (found.mean() - others.max()) > values.max() - values.min())


def _rows_of_ranks(ranks: Sequence[int], places: Mapping[int, ParallelIndices]) -> list[Block]:
    """Return rows of boxes of ranks: a row per pipeline stage, and in it a box per copy of data.

    A box holds the ranks that share each layer. Where the layout is not known, or does not divide
    the ranks evenly, boxes hold NODE ranks in their order, and rows MOST_PER_ROW.
    """
    boxes: dict[tuple[int | None, int | None], list[int]] = {}
    for at in sorted(range(len(ranks)), key=lambda at: _order(places.get(ranks[at]))):
        place = places.get(ranks[at], ParallelIndices())
        boxes.setdefault((place.pp, place.dp), []).append(at)
    rows: dict[str, list[Block]] = {}
    if (None, None) in boxes or len({len(box) for box in boxes.values()}) > 1:
        boxes.clear()
        for first in range(0, len(ranks), NODE):
            label = str(ranks[first // MOST_PER_ROW * MOST_PER_ROW])
            box = {"label": "", "cells": [*range(first, min(first + NODE, len(ranks)))]}
            rows.setdefault(label if len(ranks) > MOST_PER_ROW else "", []).append(box)
    for (stage, copy), cells in boxes.items():
        label = "" if stage is None else f"PP {stage}"
        named = "" if copy is None else f"DP {copy}"
        rows.setdefault(label, []).append({"label": named, "cells": cells})
    return [{"label": label, "boxes": boxes} for label, boxes in rows.items()]


def _order(place: ParallelIndices | None) -> tuple[int, int, int]:
    """Return the key by which ranks are ordered: stage, copy of data, then part of a layer."""
    return (0, 0, 0) if place is None else (place.pp or 0, place.dp or 0, place.tp or 0)


def _filled(part: Part, table: Table) -> Block:
    values = np.ma.filled(table[part.column], 0).tolist()
    return {"role": part.role, "label": part.label, "values": values}


def _plot(
    name: str,
    label: str,
    ids: Int64,
    noun: str,
    layers: Sequence[Block],
    most: int,
    *,
    labels: Sequence[str] = (),
    height: int = 240,
    **more: Any,
) -> Block:
    """Return a chart of layers over columns.

    ids, labels: of the columns; labels are the ids by default. noun: title of their axis. most: top
    of the value axis. more: `unit` of the value axis, of time by default; `says`, format of the
    tooltip.
    """
    return {
        "is": "plot",
        "name": name,
        "label": label,
        "ids": ids.tolist(),
        "labels": list(labels) or [str(number) for number in ids.tolist()],
        "noun": noun,
        "layers": list(layers),
        "most": most,
        "height": height,
        **more,
    }


def draw_steps(whole: StepGrid, first: int | None) -> Block | None:
    """Return charts of the parts and phases of each step, for a rank that the reader can choose.

    None if there are fewer than two steps. The `series` of a layer is its row in `values`, which
    are ordered by rank, then series, then step.

    first: the rank to draw at first, if one is slow.
    """
    if len(whole.steps) < 2:
        return None
    grid = whole.within(MOST_DRAWN)
    row = int(np.argmax(grid.ranks == first))
    offered = grid.of_ranks(_offered(grid, row))
    parts, phases = grid.parts, [phase for phase in PHASES if grid.has(phase.column)]
    series = [part.column for part in (*parts, *phases)]
    stacked = np.stack([offered.times[name] for name in series], axis=1)
    curves: list[Block] = [
        {"is": "line", "role": phase.role, "label": phase.label, "series": len(parts) + at}
        for at, phase in enumerate(phases)
    ]
    if len(grid.ranks) > 1:
        marked = np.ma.masked_equal(grid.times["marked_ns"], NOT_GIVEN)
        low, high = (edge.tolist() for edge in (marked.min(axis=0), marked.max(axis=0)))
        band = {"is": "band", "role": "band", "label": "Step, fastest to slowest rank"}
        curves.insert(0, {**band, "low": low, "high": high})
    stack = [
        {"role": part.role, "label": part.label, "series": at} for at, part in enumerate(parts)
    ]
    labels = grid.labels()
    return {
        "is": "steps",
        "rank": int(grid.ranks[row]),
        "ranks": offered.ranks.tolist(),
        "of": len(grid.ranks),
        "run": grid.run,
        "phases": len(phases),
        "series": series,
        "labels": labels,
        "values": packed(np.ma.masked_equal(stacked, NOT_GIVEN)),
        "parts": _plot(
            "parts",
            "Parts of each step",
            grid.steps,
            "step",
            [{"is": "stack", "parts": stack}],
            grid.ceiling_ns("period_ns"),
            labels=labels,
            says="step {column}: ",
        )
        if parts
        else None,
        "curves": _plot(
            "curves",
            "Length of each step and phase",
            grid.steps,
            "step",
            curves,
            max(grid.ceiling_ns(phase.column) for phase in PHASES),
            labels=labels,
            says="step {column}: ",
        ),
        "beyond": _beyond(grid),
    }


def _beyond(grid: StepGrid) -> str:
    """Return a sentence on steps that are longer than charts show, empty for none."""
    name = "period_ns" if grid.has("period_ns") else "marked_ns"
    longest_ns, ceiling_ns = grid.times[name].max(axis=0), grid.ceiling_ns(name)
    beyond = np.flatnonzero(longest_ns > 1.04 * ceiling_ns)
    if not len(beyond):
        return ""
    labels = grid.labels()
    named = [f"{labels[at]} ({format_short(int(longest_ns[at]))})" for at in beyond[:MOST_BEYOND]]
    more = f" and {len(beyond) - MOST_BEYOND} more" if len(beyond) > MOST_BEYOND else ""
    noun, verb = ("Step", "reaches") if len(beyond) == 1 else ("Steps", "reach")
    return said(
        f"Scaled by ordinary steps: {noun} {', '.join(named)}{more} {verb} beyond the picture."
    )


def _offered(grid: StepGrid, shown: int) -> Rows:
    """Return the rows of ranks that can be chosen: as many of the slowest as MOST_CELLS allows.

    shown: row of the rank that is drawn at first, which is always among them.
    """
    most = max(1, MOST_CELLS // len(grid.steps))
    lengths_ns = np.maximum(grid.times["period_ns"], 0).sum(axis=1)
    lengths_ns[shown] = np.iinfo(np.int64).max
    return np.sort(np.argsort(-lengths_ns, kind="stable")[:most])


def draw_heat_maps(whole: StepGrid) -> tuple[list[Block], int]:
    """Return heat maps of ranks by steps, and the number of ranks that share a row.

    They show how late a rank is, where that is known, the time of a step, and the share of exposed
    communication. Colours are scaled by ordinary steps; other steps may exceed the scale. There are
    no maps if there are fewer than two ranks or steps.
    """
    grid = whole.within(MOST_DRAWN).measured()
    if min(grid.shape) < 2:
        return [], 1
    most = min(MOST_DRAWN, MOST_HEAT_CELLS // len(grid.steps))
    small, run = grid.of_fewer_ranks(most), run_length(len(grid.ranks), most)
    spans = np.ma.masked_equal(small.times["period_ns"], NOT_GIVEN)
    late = np.ma.masked_equal(small.times[_LATE], NOT_GIVEN)
    maps = []
    if late.count() and late.max() > 0:
        label = f"How late a rank comes ({_unit_of_steps(small, late)})"
        maps.append(_heat_of_steps("late", label, small, late, ""))
    label = f"Step time ({_unit_of_steps(small, spans)})"
    maps.append(_heat_of_steps("time", label, small, spans, ""))
    exposed = np.ma.masked_array(small.times["not_overlapped_ns"], spans.mask | (spans == 0))
    share = 100 * exposed / np.maximum(spans, 1)
    if share.count() and share.max() > 0:
        label = "Exposed communication (% of the step)"
        maps.append(_heat_of_steps("exposed", label, small, share, "%"))
    return maps, run


def _unit_of_steps(grid: StepGrid, times_ns: Any) -> str:
    """Return the unit for times of steps, that of the longest ordinary one."""
    ordinary = times_ns[grid.ordinary & ~np.ma.getmaskarray(times_ns)]
    return unit_of(int((ordinary if len(ordinary) else times_ns).max()))[0]


def _heat_of_steps(name: str, label: str, grid: StepGrid, values: Any, unit: str) -> Block:
    scaled = values[grid.ordinary & ~np.ma.getmaskarray(values)]
    scaled = scaled if scaled.count() else values
    return {
        "is": "heat",
        "name": name,
        "label": label,
        "row_ids": grid.ranks.tolist(),
        "ids": grid.steps.tolist(),
        "labels": grid.labels(),
        "noun": "step",
        "values": packed(values),
        "low": float(scaled.min()),
        "high": float(scaled.max()),
        "unit": unit,
        "row_px": 20,
        "most_px": 420,
        "says": "rank {row}, step {column}: {value}",
    }


def draw_waits(matrix: WaitMatrix) -> Block:
    """Return a heat map of how long each rank waited for each other.

    If there are more than MOST_MAPPED ranks, return a chart of how long others waited for each.
    """
    labels = matrix.labels()
    if max(matrix.waited_ns.shape) > MOST_MAPPED + 1:
        caused_ns = matrix.caused_ns
        run = run_length(len(caused_ns), MOST_DRAWN)
        starts = np.arange(0, len(caused_ns), run)
        most = np.array([start + np.argmax(caused_ns[start : start + run]) for start in starts])
        values = caused_ns[most].tolist()
        label = f"How long others waited for each of {len(caused_ns)} ranks"
        part = {"role": "waiting", "label": "", "values": values}
        return _plot(
            "waits",
            f"{label}; the table has the longest",
            matrix.awaited[starts],
            "rank",
            [{"is": "stack", "parts": [part]}],
            max(values),
            labels=[labels[at] for at in most.tolist()],
            height=150,
            says="others waited {value} for rank {column}",
            run=run,
        )
    itself = matrix.ranks[:, None] == matrix.awaited[None, :]
    label = f"How long each of {len(matrix.ranks)} ranks waited for each other"
    return {
        "is": "heat",
        "name": "waits",
        "label": f"{label}; the table has the longest",
        "row_ids": matrix.ranks.tolist(),
        "ids": matrix.awaited.tolist(),
        "labels": labels,
        "noun": "waited for rank",
        "values": packed(np.ma.masked_array(matrix.waited_ns, itself)),
        "low": 0.0,
        "high": float(matrix.waited_ns.max()),
        "unit": "",
        "row_px": 26,
        "most_px": 480,
        "says": "rank {row} waited {value} for rank {column}",
    }


def draw_operator_curves(curves: OperatorCurves) -> Block:
    """Return a curve over steps for each type of operator, scaled from 0 to its own maximum."""
    starts = np.arange(0, len(curves.steps), run_length(len(curves.steps), MOST_DRAWN))
    names = shortened([printable(kind) or "not named" for kind in curves.types], LONGEST_TYPE)
    return {
        "is": "ribbons",
        "name": "operators",
        "label": f"Time of {len(curves.types)} types of operators in each step",
        "ids": curves.steps[starts].tolist(),
        "noun": "step",
        "rows": [
            {
                "name": name,
                "least": int(values_ns.min()),
                "most": int(values_ns.max()),
                "values": np.maximum.reduceat(values_ns, starts).round().tolist(),
            }
            for name, values_ns in zip(names, curves.mean_ns, strict=True)
        ],
    }


def draw_both_runs(steps: Table, run: int, sides: Sides) -> Block:
    """Return a chart of the length of each step in two runs; of `run` neighbours the longest."""
    starts = np.arange(0, len(steps), run)
    base, new = sides.heads
    parts = (Part("base_ns", "before", base), Part("new_ns", "now", new))
    longest = {part: np.maximum.reduceat(steps[part.column], starts) for part in parts}
    layers = [
        {"is": "line", "role": side.role, "label": side.label, "values": values.tolist()}
        for side, values in longest.items()
    ]
    most = max(int(values.max()) for values in longest.values())
    ids = steps["base_step"][starts]
    says = "step {column}: "
    label = f"Length of each step, {' and '.join(sides.titles)}"
    return _plot("sides", label, ids, "step", layers, most, says=says)


def draw_queues(curves: Table, most: int) -> Block:
    """Return a chart of the number of batches in each queue, with a band if batches share a point.

    curves: table with queue, first (batch), least and greatest. most: capacity of the queues.
    """
    layers = list(_queue_layers(curves))
    top = max(int(curves["greatest"].max()), most, 1)
    none = np.zeros(0, np.int64)
    return _plot("queues", "Batches in each queue", none, "batch", layers, top, unit="batches")


def _queue_layers(curves: Table) -> Iterator[Block]:
    for queue in QUEUES:
        rows = curves.take(curves["queue"] == queue.column)
        if not len(rows):
            continue
        at, least, greatest = (rows[name].tolist() for name in ("first", "least", "greatest"))
        if least != greatest:
            yield {"is": "band", "at": at, "low": least, "high": greatest, "stepped": True}
        line = {"is": "line", "role": queue.role, "label": queue.label, "stepped": True}
        yield {**line, "at": at, "values": least}


def draw_memory(graph: dict[str, Any], operators: Table, name: str) -> tuple[Block, int]:
    """Return a chart of the memory of a graph at each operator, and how many share a column.

    A column shows the largest of its operators.

    graph: a row of memory_graphs. operators: at least one. name: of the chart in the page.
    """
    use_bytes = np.ma.filled(operators["use_bytes"], 0)
    run = run_length(len(use_bytes), MOST_DRAWN)
    starts = np.arange(0, len(use_bytes), run)
    marks = []
    for key, label, last in (("fp_start", "FP start", False), ("bp_end", "BP end", True)):
        rows = np.flatnonzero(operators["name"] == graph[key])
        if graph[key] and len(rows):
            marks.append({"at": int(rows[-1 if last else 0]) // run, "label": label})
    use, peak = np.maximum.reduceat(use_bytes, starts), int(graph["peak_node"]) // run
    layers = [
        {"is": "stairs", "values": use.tolist()},
        {"is": "level", "at": int(graph["static_bytes"])},
        {"is": "marks", "marks": marks},
        {"is": "dot", "at": peak, "value": int(use[peak])},
    ]
    label = "Memory that the graph holds at each operator; the table below has the peak"
    nodes = np.asarray(np.ma.getdata(operators["node"])[starts], np.int64)
    most = int(use.max())
    return _plot(name, label, nodes, "operator", layers, most, unit="bytes"), run
