"""The pictures of a page, each for a wide and for a narrow screen."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from timeline.columns.columns import Rows
from timeline.figures.operator_tables import OperatorCurves
from timeline.figures.short_names import shortened
from timeline.figures.table import Table
from timeline.printable import printable
from timeline.reports.html.drawing import (
    MOST_BARS,
    MOST_DRAWN,
    Scale,
    column_width,
    draw_bars,
    draw_curves,
    draw_operator_curves,
    draw_parts,
    draw_queue_curves,
    draw_sides,
    draw_use,
    settings,
)
from timeline.reports.html.heat_map import draw_heat
from timeline.reports.html.memory_curves import MemoryCurve
from timeline.reports.html.palette import PARTS, PHASES, Part, Phase
from timeline.reports.html.step_grid import NOT_GIVEN, StepGrid
from timeline.reports.html.svg import StyleSheet, inline_svg
from timeline.units import spell_short

WIDTHS = {"wide": 880, "narrow": 360}
"""Pixels; narrower screens than the wide one show the narrow one."""
DOTS = 72
"""Dots an inch, so that a point is a pixel."""
TEXT = 12
"""Size of text in points."""
TOP, RIGHT, BOTTOM = 24, 12, 40
"""Pixels around the axes; on the left are TIMES."""
TIMES = 52
STEPS = 240
"""Pixels: the height of pictures of steps."""
CURVE_ROW, CURVE_LEFT = 58, 8
"""Pixels: the height of the curve of one type of operator with its name, and what is left of it."""
LONGEST_TYPE = 32
"""Characters that are shown of a type of operator: on a narrow screen its range stands beside."""
BAR = 26
"""Pixels from the bar of one rank to that of the next."""
HEAT_ROW, MOST_HEAT = 20, 420
"""Pixels: the height of a row of a heat map, and of all rows together at most."""


@dataclass(frozen=True)
class Margins:
    """Pixels beside and above the axes of a picture."""

    left: int = TIMES
    top: int = TOP


@dataclass(frozen=True)
class Picture:
    """One drawing in two sizes."""

    wide: Markup
    narrow: Markup


@dataclass(frozen=True)
class HeatMap:
    """A heat map of one quantity."""

    name: str
    label: str
    picture: Picture


def draw_rank_bars(
    ranks: Table, sheet: StyleSheet, parts: Sequence[Part] = PARTS, name: str = "bars"
) -> Picture:
    """Where the time of each rank goes.

    ranks: rank, period_ns and the columns of the parts. name: of the picture in the page.
    """
    few = len(ranks) <= MOST_BARS
    height = BAR * len(ranks) + 46 if few else 300
    left = 12 + 7 * len(f"rank {ranks['rank'].max()}") if few else TIMES
    label = f"Parts of the device time of {len(ranks)} ranks; the table below has the numbers"
    margins = Margins(left, 4 if few else TOP)

    def draw(axes: Axes) -> None:
        draw_bars(axes, ranks, parts=parts)

    return draw_picture(name, label, sheet, height, margins, draw)


def draw_step_bars(grid: StepGrid, row: int, sheet: StyleSheet, quantum_ns: float) -> Picture:
    """Where the time of each step of one rank goes."""

    def draw(axes: Axes) -> None:
        draw_parts(axes, grid, row)

    return draw_picture("parts", "Parts of each step", sheet, STEPS, Margins(), draw, quantum_ns)


def draw_step_curves(grid: StepGrid, row: int, sheet: StyleSheet, quantum_ns: float) -> Picture:
    """The step trace of one rank."""

    def draw(axes: Axes) -> None:
        draw_curves(axes, grid, row)

    return draw_picture(
        "curves", "Length of each step and phase", sheet, STEPS, Margins(), draw, quantum_ns
    )


def draw_operator_steps(curves: OperatorCurves, sheet: StyleSheet) -> Picture:
    """What types of operators take in each step."""
    names = shortened([printable(kind) or "not named" for kind in curves.types], LONGEST_TYPE)

    def draw(axes: Axes) -> None:
        draw_operator_curves(axes, curves, names)

    height = CURVE_ROW * len(curves.types) + BOTTOM
    label = f"Time of {len(curves.types)} types of operators in each step"
    return draw_picture("operators", label, sheet, height, Margins(CURVE_LEFT, 0), draw)


def draw_both_runs(steps: Table, labels: Sequence[str], sheet: StyleSheet) -> Picture:
    """The length of each step in two runs."""

    def draw(axes: Axes) -> None:
        draw_sides(axes, steps, labels)

    return draw_picture(
        "sides", "Length of each step, before and now", sheet, STEPS, Margins(), draw
    )


def draw_queues(curves: Table, most: int, sheet: StyleSheet) -> Picture:
    """How many batches each queue of a rank held; see `draw_queue_curves`."""

    def draw(axes: Axes) -> None:
        draw_queue_curves(axes, curves, most)

    return draw_picture("queues", "Batches in each queue", sheet, STEPS, Margins(), draw)


def draw_memory(curve: MemoryCurve, name: str, sheet: StyleSheet) -> Picture:
    """What a graph holds at each of its operators. name: of the picture in the page."""
    label = "Memory that the graph holds at each operator; the table below has the peak"
    return draw_picture(name, label, sheet, STEPS, Margins(), lambda axes: draw_use(axes, curve))


def draw_heat_maps(grid: StepGrid, sheet: StyleSheet) -> Iterator[HeatMap]:
    """Ranks by steps: the time of a step, and its share that is exposed communication."""
    small = grid.of_fewer_ranks(MOST_DRAWN)
    spans = np.ma.masked_equal(small.times["period_ns"], NOT_GIVEN)
    # In the unit of ordinary steps, numbers tell these apart.
    ordinary = spans[small.ordinary & ~np.ma.getmaskarray(spans)]
    scale = Scale.of(int((ordinary if len(ordinary) else spans).max()))
    yield _heat("time", f"Step time ({scale.unit})", small, spans / scale.ns, scale.unit, sheet)
    exposed = np.ma.masked_array(small.times["not_overlapped_ns"], spans.mask | (spans == 0))
    share = 100 * exposed / np.maximum(spans, 1)
    if share.count() and share.max() > 0:
        yield _heat("exposed", "Exposed communication (% of the step)", small, share, "%", sheet)


def _heat(
    name: str, label: str, grid: StepGrid, values: Any, unit: str, sheet: StyleSheet
) -> HeatMap:
    height = min(MOST_HEAT, max(3, len(grid.ranks)) * HEAT_ROW) + 92
    left = 12 + 7 * len(f"rank {grid.ranks.max()}")

    def draw(axes: Axes) -> None:
        figure = axes.get_figure()
        assert isinstance(figure, Figure)
        box = axes.get_position()
        top = 24 / height
        axes.set_position((box.x0, box.y0, box.width, 1 - (BOTTOM + 50) / height))
        colours = figure.add_axes((box.x0, 1 - top * 0.75, min(box.width, 0.35), 9 / height))
        draw_heat(axes, colours, grid, values, unit)

    return HeatMap(
        name, label, draw_picture(f"heat-{name}", label, sheet, height, Margins(left), draw)
    )


def draw_picture(
    name: str,
    label: str,
    sheet: StyleSheet,
    height: int,
    margins: Margins,
    draw: Callable[[Axes], None],
    quantum_ns: float = 0,
) -> Picture:
    """Draw in both sizes, between margins in pixels."""
    drawn = {}
    for size, width in WIDTHS.items():
        with settings(TEXT):
            figure = Figure(figsize=(width / DOTS, height / DOTS), dpi=DOTS)
            left, top = margins.left, margins.top
            axes = figure.add_axes(
                (
                    left / width,
                    BOTTOM / height,
                    1 - (left + RIGHT) / width,
                    1 - (BOTTOM + top) / height,
                )
            )
            draw(axes)
            drawn[size] = inline_svg(
                figure, f"{name}-{size}", label, sheet, _axes_data(name, axes, height, quantum_ns)
            )
    return Picture(**drawn)


def _axes_data(name: str, axes: Axes, height: int, quantum_ns: float) -> Mapping[str, object]:
    """What a script must know of the axes, in pixels: their edges, and the height of a quantum."""
    box = axes.get_window_extent()
    bottom, top = axes.get_ylim()
    return {
        "name": name,
        "left": round(box.x0, 2),
        "right": round(box.x1, 2),
        "bottom": round(height - box.y0, 2),
        "top": round(height - box.y1, 2),
        "gap": round((1 - column_width(round(axes.get_xlim()[1] + 0.5))) / 2, 3),
        "quantum": f"{quantum_ns * box.height / (top - bottom):.6g}" if quantum_ns else 0,
    }


MOST_BEYOND = 4
"""So many steps that are longer than a picture shows are named."""
MOST_CELLS = 3_000
"""So many ranks times steps travel in the page, for the choice of a rank."""
LARGEST = 0xFFFE
ABSENT = 0xFFFF
"""Times travel as 16 bits, in parts of the largest."""


@dataclass(frozen=True)
class StepData:
    """Times of each step for a script that draws another rank.

    ranks: those that can be chosen. series: names of the times. parts: names and roles of those
    that are parts, from the bottom up. quantum_ns: what the numbers count. values: base64 of
    little-endian uint16, by rank, then series, then step; `absent` is none.
    """

    ranks: list[int]
    labels: list[str]
    series: list[str]
    parts: list[tuple[str, str]]
    quantum_ns: float
    values: str
    absent: int = ABSENT


@dataclass(frozen=True)
class StepPictures:
    """What a page shows of steps.

    rank: the one that is drawn. run: how many steps share a column, of which the longest is drawn.
    ranks: how many there are. parts: None where no part of any step takes time. shown: what those
    are. phases: the curves that there are. beyond: what is said of steps that are longer than the
    pictures show.
    """

    rank: int
    run: int
    ranks: int
    parts: Picture | None
    shown: tuple[Part, ...]
    curves: Picture
    phases: list[Phase]
    beyond: str
    heats: list[HeatMap]
    data: StepData


def draw_steps(whole: StepGrid, slowest: int | None, sheet: StyleSheet) -> StepPictures | None:
    """The pictures of all steps; None where there are not two.

    slowest: the rank that is drawn first, where one is known.
    """
    if len(whole.steps) < 2:
        return None
    grid = whole.within(MOST_DRAWN)
    row = int(np.argmax(grid.ranks == slowest))
    data = _data(grid.of_ranks(_offered(grid, row)))
    measured = bool(grid.parts)
    return StepPictures(
        int(grid.ranks[row]),
        grid.run,
        len(grid.ranks),
        draw_step_bars(grid, row, sheet, data.quantum_ns) if measured else None,
        grid.parts,
        draw_step_curves(grid, row, sheet, data.quantum_ns),
        [phase for phase in PHASES if grid.has(phase.column)],
        _beyond(grid),
        _heats(grid, sheet),
        data,
    )


def _beyond(grid: StepGrid) -> str:
    """Which steps are longer than the pictures of them show, and how long."""
    name = "period_ns" if grid.has("period_ns") else "marked_ns"
    longest_ns, ceiling_ns = grid.times[name].max(axis=0), grid.ceiling_ns(name)
    beyond = np.flatnonzero(longest_ns > 1.04 * ceiling_ns)
    if not len(beyond):
        return ""
    labels = grid.labels()
    told = [f"{labels[at]} ({spell_short(int(longest_ns[at]))})" for at in beyond[:MOST_BEYOND]]
    more = f" and {len(beyond) - MOST_BEYOND} more" if len(beyond) > MOST_BEYOND else ""
    noun, verb = ("Step", "reaches") if len(beyond) == 1 else ("Steps", "reach")
    return f"Scaled by ordinary steps: {noun} {', '.join(told)}{more} {verb} beyond the picture."


def _heats(grid: StepGrid, sheet: StyleSheet) -> list[HeatMap]:
    measured = grid.measured()
    return list(draw_heat_maps(measured, sheet)) if min(measured.shape) > 1 else []


def _offered(grid: StepGrid, shown: int) -> Rows:
    """The rows that a script can draw: all, or as many of the slowest as have room."""
    most = max(1, MOST_CELLS // len(grid.steps))
    lengths_ns = np.maximum(grid.times["period_ns"], 0).sum(axis=1)
    lengths_ns[shown] = np.iinfo(np.int64).max
    return np.sort(np.argsort(-lengths_ns, kind="stable")[:most])


def _data(grid: StepGrid) -> StepData:
    phases = [phase.column for phase in PHASES if grid.has(phase.column)]
    series = [*(part.column for part in grid.parts), *phases]
    stacked = np.stack([grid.times[name] for name in series], axis=1)
    quantum_ns = max(int(stacked.max()), 1) / LARGEST
    numbers = np.where(stacked == NOT_GIVEN, ABSENT, np.rint(stacked / quantum_ns))
    packed = base64.b64encode(numbers.astype("<u2").tobytes()).decode()
    roles = [(part.column, part.role) for part in grid.parts]
    return StepData(grid.ranks.tolist(), grid.labels(), series, roles, quantum_ns, packed)
