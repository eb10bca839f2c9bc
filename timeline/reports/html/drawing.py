"""Drawing of bars, curves and labels on matplotlib axes, in colours of the palette."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import FuncFormatter, MaxNLocator

from timeline.columns.columns import Int64, Rows
from timeline.figures.operator_tables import OperatorCurves
from timeline.figures.table import Table
from timeline.reports.html.memory_curves import MemoryCurve
from timeline.reports.html.palette import LIGHT, PARTS, PHASES, QUEUES, SIDES, Part
from timeline.reports.html.step_grid import NOT_GIVEN, StepGrid, run_length

MOST_BARS = 40
"""Up to so many ranks have a bar of their own with numbers in it."""
MOST_DOTS = 40
"""Up to so many steps have a dot of their own on a curve of two runs."""
CURVE = 0.6
"""The height of a curve of a type, as a share of its row."""
LEAST_ROWS = 5
"""A list of operators has room for so many, even if there are fewer."""
MOST_DRAWN = 400
"""Up to so many ranks or steps are drawn in one picture; more share a column, see `run_length`."""
MOST_OUTLINED = 256
"""Up to so many ranks are drawn in an outline; more share a column."""
MOST_APART = 60
"""Up to so many columns stand apart."""
ROOM_FOR_SHARE = 0.075
"""A part of a bar that is at least so wide, as a share of the axes, has its number inside."""
_HATCHES = {
    "waiting": ("////", "exposed-hatch"),
    "exposed": ("////", "exposed-hatch"),
    "unsplit": ("----", "unsplit-hatch"),
    "between": ("\\\\\\\\", "between-hatch"),
}
_SIZES = (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10), ("B", 1))
_UNITS = (("s", 10**9), ("ms", 10**6), ("µs", 10**3), ("ns", 1))


@dataclass(frozen=True)
class Scale:
    """A unit of time that suits the largest of some times."""

    unit: str
    ns: int

    @classmethod
    def of(cls, largest_ns: int) -> Scale:
        """The largest unit of which there is at least one."""
        return next(cls(unit, ns) for unit, ns in _UNITS if largest_ns >= ns or ns == 1)

    def spelled(self, value_ns: float, _position: object = None) -> str:
        """A tick without needless zeros."""
        return f"{value_ns / self.ns:g}"


@contextlib.contextmanager
def settings(size: float = 12) -> Iterator[None]:
    """What every picture has in common; size: of the text, in points."""
    with mpl.rc_context(
        {
            "font.size": size,
            "axes.labelsize": size,
            "xtick.labelsize": size,
            "ytick.labelsize": size,
            "text.parse_math": False,
            "text.color": LIGHT["ink"],
            "axes.labelcolor": LIGHT["muted"],
            "axes.edgecolor": LIGHT["rule"],
            "axes.facecolor": "none",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.spines.left": False,
            "xtick.color": LIGHT["rule"],
            "ytick.color": LIGHT["rule"],
            "xtick.labelcolor": LIGHT["muted"],
            "ytick.labelcolor": LIGHT["muted"],
            "xtick.major.size": 0,
            "ytick.major.size": 0,
            "axes.axisbelow": True,
            "grid.color": LIGHT["rule"],
            "grid.linewidth": 0.8,
            "axes.linewidth": 0.8,
            "hatch.linewidth": 1.0,
            "svg.fonttype": "none",
            "path.simplify": True,
        }
    ):
        yield


def draw_bars(
    axes: Axes,
    ranks: Table,
    most: int = MOST_BARS,
    least: int = 0,
    parts: Sequence[Part] = PARTS,
) -> None:
    """The parts of each rank's time: a bar for each, or an outline of many.

    ranks: rank, period_ns and the columns of the parts. most: up to so many have bars.
    least: so many bars have room, even if there are fewer.
    """
    if len(ranks) > most:
        _draw_outline(axes, ranks, parts)
        return
    longest_ns = max(1, _longest_ns({part: np.ma.filled(ranks[part.column], 0) for part in parts}))
    scale = Scale.of(longest_ns)
    at = np.arange(len(ranks))
    left_ns = np.zeros(len(ranks), np.int64)
    axes.set_xlim(0, longest_ns)
    for part in parts:
        values_ns = np.ma.filled(ranks[part.column], 0)
        axes.barh(at, values_ns, left=left_ns, height=0.72, **fill_style(part.role))
        _write_shares(axes, part.role, left_ns, values_ns, ranks["period_ns"])
        left_ns = left_ns + values_ns
    axes.set_ylim(max(len(ranks), least) - 0.5, -0.5)
    axes.set_yticks(at, [f"rank {rank}" for rank in ranks["rank"].tolist()])
    axes.xaxis.set_major_formatter(FuncFormatter(scale.spelled))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.set_xlabel(scale.unit, loc="right")
    axes.grid(axis="x")


def _write_shares(axes: Axes, role: str, left_ns: Int64, values_ns: Int64, spans_ns: Int64) -> None:
    least_ns = ROOM_FOR_SHARE * axes.get_xlim()[1] * min(1.0, 640 / _width(axes))
    for row, (start_ns, value_ns, span_ns) in enumerate(
        zip(left_ns.tolist(), values_ns.tolist(), spans_ns.tolist(), strict=True)
    ):
        if value_ns >= least_ns:
            axes.text(
                start_ns + value_ns / 2,
                row,
                f"{value_ns / span_ns:.0%}",
                ha="center",
                va="center_baseline",
                color=LIGHT[f"on-{role}"],
            )


def _draw_outline(axes: Axes, ranks: Table, parts: Sequence[Part]) -> None:
    run = run_length(len(ranks), MOST_OUTLINED)
    starts = np.arange(0, len(ranks), run)
    longest = np.array(
        [start + int(np.argmax(ranks["period_ns"][start : start + run])) for start in starts]
    )
    chosen = ranks.take(longest)
    stack = {part: np.ma.filled(chosen[part.column], 0) for part in parts}
    _draw_stack(axes, stack)
    ids = ranks["rank"][starts]
    label_columns(axes, ids, [str(rank) for rank in ids.tolist()], "rank")
    _label_times(axes, _longest_ns(stack))


def draw_columns(axes: Axes, ids: Int64, times_ns: Int64, role: str, noun: str) -> None:
    """A column for each time, which its id is written below."""
    _draw_stack(axes, {Part("", role, ""): times_ns})
    label_columns(axes, ids, [str(number) for number in ids.tolist()], noun)
    _label_times(axes, int(times_ns.max()))


def _longest_ns(stack: Mapping[Part, Int64]) -> int:
    """How much the parts of any row come to at most."""
    return int(np.sum(list(stack.values()), axis=0).max())


def draw_parts(axes: Axes, grid: StepGrid, row: int) -> None:
    """The parts of each step of one rank; the axes have room for those of all ranks."""
    parts = {part: np.maximum(grid.times[part.column][row], 0) for part in grid.parts}
    _draw_stack(axes, parts)
    label_columns(axes, grid.steps, grid.labels(), "step")
    _label_times(axes, grid.ceiling_ns("period_ns"))


def _draw_stack(axes: Axes, parts: dict[Part, Int64]) -> None:
    """Later parts lie under earlier ones, each from the bottom up to its own top."""
    count = len(next(iter(parts.values())))
    tops_ns = np.cumsum(np.stack(list(parts.values())), axis=0)
    half = column_width(count) / 2
    at = np.arange(count)
    apart = half < 0.5
    x = np.repeat(np.stack([at - half, at + half], axis=1), 2, axis=1).reshape(-1)
    for part, top_ns in reversed(list(zip(parts, tops_ns, strict=True))):
        y = np.stack([0 * top_ns, top_ns, top_ns, 0 * top_ns], axis=1).reshape(-1)
        bends = apart | (y > 0)
        bends[[0, -1]] = True
        outline = Outline(np.stack([x[bends], y[bends]], axis=1))
        axes.add_patch(PathPatch(outline, gid=f"part-{part.role}", **fill_style(part.role)))


def column_width(count: int) -> float:
    """The width of a column of a stack, in columns: few stand apart."""
    return 0.8 if count <= MOST_APART else 1.0


def draw_curves(axes: Axes, grid: StepGrid, row: int) -> None:
    """The step trace of one rank, before the band between the fastest and the slowest."""
    at = np.arange(len(grid.steps))
    marked = np.ma.masked_equal(grid.times["marked_ns"], NOT_GIVEN)
    if len(grid.ranks) > 1:
        low, high = marked.min(axis=0), marked.max(axis=0)
        axes.fill_between(at, low, high, color=LIGHT["band"], linewidth=0)
    for phase in PHASES:
        if grid.has(phase.column):
            values = np.ma.masked_equal(grid.times[phase.column][row], NOT_GIVEN)
            axes.plot(
                at,
                values,
                color=LIGHT[phase.role],
                linestyle=phase.dashes,
                linewidth=1.8,
                solid_joinstyle="round",
                marker="o" if len(at) == 1 else "",
                gid=f"phase-{phase.role}",
            )
    label_columns(axes, grid.steps, grid.labels(), "step")
    _label_times(axes, max(grid.ceiling_ns(phase.column) for phase in PHASES))


def draw_sides(axes: Axes, steps: Table, labels: Sequence[str]) -> None:
    """The length of each step in two runs, which are columns of SIDES."""
    at = np.arange(len(steps))
    for side in SIDES:
        axes.plot(
            at,
            steps[side.column],
            color=LIGHT[side.role],
            linestyle=side.dashes,
            linewidth=1.8,
            solid_joinstyle="round",
            marker="o" if len(at) <= MOST_DOTS else "",
            markersize=4,
            gid=f"phase-{side.role}",
        )
    label_columns(axes, steps["base_step"], labels, "step")
    _label_times(axes, max(int(steps[side.column].max()) for side in SIDES))


def draw_queue_curves(axes: Axes, curves: Table, most: int) -> None:
    """How many batches queues of QUEUES held; where batches share a point, the band of them.

    curves: queue, first (batch), least, greatest. most: batches that they have room for.
    """
    for queue in QUEUES:
        its = curves.take(curves["queue"] == queue.column)
        if not len(its):
            continue
        if (its["least"] < its["greatest"]).any():
            band = (its["first"], its["least"], its["greatest"])
            axes.fill_between(*band, color=LIGHT["band"], linewidth=0, step="post")
        axes.plot(
            its["first"],
            its["least"],
            color=LIGHT[queue.role],
            linestyle=queue.dashes,
            linewidth=1.8,
            drawstyle="steps-post",
            marker="o" if len(its) == 1 else "",
            gid=f"phase-{queue.role}",
        )
    top = max(int(curves["greatest"].max()), most, 1)
    axes.set_ylim(-0.02 * top, 1.04 * top)  # an empty queue is a line above the axis
    axes.set_title("batches", loc="left", fontsize="medium", color=LIGHT["muted"], x=-0.005)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("batch", loc="right")
    axes.grid(axis="y")


def draw_operators(axes: Axes, names: Sequence[str], totals_ns: Int64, role: str) -> None:
    """A bar for each operator, its name above it; a few leave room below them."""
    at = np.arange(len(names))
    axes.barh(at + 0.24, totals_ns, height=0.2, **fill_style(role))
    for row, (name, total_ns) in enumerate(zip(names, totals_ns.tolist(), strict=True)):
        scale = Scale.of(total_ns)
        axes.text(0, row + 0.1, name, va="bottom", ha="left")
        axes.text(
            totals_ns.max(),
            row + 0.1,
            f"{total_ns / scale.ns:.3g} {scale.unit}",
            va="bottom",
            ha="right",
            color=LIGHT["muted"],
        )
    axes.set_ylim(max(len(names), LEAST_ROWS) - 0.5, -0.5)
    axes.set_xlim(0, max(1, int(totals_ns.max())))
    axes.set_axis_off()


def draw_operator_curves(axes: Axes, curves: OperatorCurves, names: Sequence[str]) -> None:
    """A curve for each type over steps, from 0 to its own largest; its name and range above it."""
    starts = np.arange(0, len(curves.steps), run_length(len(curves.steps), MOST_DRAWN))
    at, numbers = np.arange(len(starts)), curves.steps[starts]
    edges = axes.get_yaxis_transform()
    for row, (name, values_ns) in enumerate(zip(names, curves.mean_ns, strict=True)):
        drawn_ns = np.maximum.reduceat(values_ns, starts)
        bottom = row + 0.92
        tops = bottom - CURVE * drawn_ns / max(1.0, float(drawn_ns.max()))
        axes.fill_between(at, bottom, tops, color=LIGHT["under-operator"], linewidth=0)
        axes.plot(at, tops, color=LIGHT["operator"], linewidth=1.4)
        extent = _spell_range(int(values_ns.min()), int(values_ns.max()))
        over: dict[str, Any] = {"y": row + 0.28, "va": "bottom", "transform": edges}
        axes.text(0, s=name, ha="left", **over)
        axes.text(1, s=extent, ha="right", color=LIGHT["muted"], **over)
    label_columns(axes, numbers, [str(number) for number in numbers.tolist()], "step")
    axes.set_xlim(0, len(at) - 1)
    axes.set_ylim(len(curves.types), 0)
    axes.set_yticks([])


def _spell_range(least_ns: int, largest_ns: int) -> str:
    scale = Scale.of(largest_ns)
    least, largest = (f"{value_ns / scale.ns:.3g}" for value_ns in (least_ns, largest_ns))
    return f"{largest} {scale.unit}" if least == largest else f"{least} to {largest} {scale.unit}"


def draw_changes(axes: Axes, names: Sequence[str], deltas_ns: Int64) -> None:
    """A bar for each change, to the right where more time is taken; its name above it."""
    at = np.arange(len(names))
    furthest_ns = max(1, int(np.abs(deltas_ns).max()))
    axes.barh(
        at + 0.24,
        deltas_ns,
        height=0.2,
        color=[LIGHT["worse" if delta_ns > 0 else "better"] for delta_ns in deltas_ns.tolist()],
    )
    axes.axvline(0, color=LIGHT["rule"], linewidth=0.8)
    for row, (name, delta_ns) in enumerate(zip(names, deltas_ns.tolist(), strict=True)):
        scale = Scale.of(abs(delta_ns))
        axes.text(-furthest_ns, row + 0.1, name, va="bottom", ha="left")
        axes.text(
            furthest_ns,
            row + 0.1,
            f"{delta_ns / scale.ns:+.3g} {scale.unit}",
            va="bottom",
            ha="right",
            color=LIGHT["muted"],
        )
    axes.set_ylim(max(len(names), LEAST_ROWS) - 0.5, -0.5)
    axes.set_xlim(-furthest_ns, furthest_ns)
    axes.set_axis_off()


def draw_use(axes: Axes, curve: MemoryCurve) -> None:
    """The memory of a graph above what is static, with its marks and its peak."""
    largest = max(int(curve.use_bytes.max()), 1)
    unit, size = next(one for one in _SIZES if largest >= one[1])
    use, at = curve.use_bytes / size, np.arange(len(curve.use_bytes))
    edges = np.arange(len(at) + 1) - 0.5
    axes.stairs(use, edges, fill=True, color=LIGHT["band"])
    axes.stairs(use, edges, color=LIGHT["computing"], linewidth=1.8, baseline=None)
    if curve.static_bytes:
        axes.axhline(
            curve.static_bytes / size, color=LIGHT["muted"], linewidth=1, linestyle=(0, (2, 2))
        )
    for column, label in curve.marks:
        is_right = column * 2 > len(at)
        axes.axvline(column, color=LIGHT["ink"], linewidth=1, linestyle=(0, (6, 2)))
        axes.annotate(
            label,
            (column, 0),
            (-4 if is_right else 4, 6),
            textcoords="offset points",
            ha="right" if is_right else "left",
        )
    axes.plot([curve.peak], [use[curve.peak]], "o", color=LIGHT["exposed"])
    label_columns(axes, curve.nodes, [str(node) for node in curve.nodes.tolist()], "operator")
    axes.set_ylim(0, use.max() * 1.08 or 1)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_title(unit, loc="left", fontsize="medium", color=LIGHT["muted"], x=-0.005)
    axes.grid(axis="y")


def fill_style(role: str) -> dict[str, Any]:
    """How a part is filled; what is hatched is told apart without its colour."""
    hatch, colour = _HATCHES.get(role, (None, ""))
    return {
        "facecolor": LIGHT[role],
        "edgecolor": LIGHT[colour] if hatch else "none",
        "linewidth": 0,
        "hatch": hatch,
    }


def label_columns(axes: Axes, ids: Int64, labels: Sequence[str], noun: str) -> None:
    """Labels at round ids, as many as have room."""
    positions = round_positions(ids, int(_width(axes) / (24 + 7 * max(map(len, labels)))))
    axes.set_xlim(-0.5, len(labels) - 0.5)
    axes.set_xticks(positions, [labels[position] for position in positions.tolist()])
    axes.set_xlabel(noun, loc="right")


def round_positions(ids: Int64, most: int) -> Rows:
    """The positions of round ids, so many at most."""
    strides = (digit * 10**power for power in range(18) for digit in (1, 2, 5))
    choices = (np.flatnonzero(ids % stride == 0) for stride in strides)
    positions = next(choice for choice in choices if len(choice) <= max(2, most))
    return positions if len(positions) else np.zeros(1, np.int64)


def _label_times(axes: Axes, largest_ns: int) -> None:
    scale = Scale.of(largest_ns)
    axes.set_ylim(0, largest_ns * 1.04 or 1)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(scale.spelled))
    axes.set_title(scale.unit, loc="left", fontsize="medium", color=LIGHT["muted"], x=-0.005)
    axes.grid(axis="y")


def _width(axes: Axes) -> float:
    """The width of axes in pixels of the picture."""
    return axes.get_window_extent().width
