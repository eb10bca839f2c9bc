"""Drawing of a heat map of ranks by steps, with its scale beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import FuncFormatter, MaxNLocator

from timeline.columns.columns import Int64
from timeline.figures.waiting_tables import WaitMatrix
from timeline.reports.html.drawing import label_columns, round_positions
from timeline.reports.html.step_grid import StepGrid

HEAT = "cividis"
EQUAL_CONTRAST = 0.179
"""On this luminance black and white text have the same contrast: 4.6."""


def draw_heat(
    axes: Axes, scale_axes: Axes, grid: StepGrid, values: npt.NDArray[Any], unit: str
) -> None:
    """A grid in colours, with its scale, and with numbers in it where they have room.

    The scale is that of ordinary steps; others may lie beyond its ends.

    values: (R, C) masked floats. unit: behind the numbers; they are shares where it is "%".
    """
    # A warm-up step that takes many times as long would leave one colour to all others.
    scaled = values[grid.ordinary & ~np.ma.getmaskarray(values)]
    scaled = scaled if len(scaled) else values
    norm = Normalize(float(scaled.min()), float(scaled.max()), clip=True)
    _draw_cells(axes, scale_axes, grid.ranks, values, norm, unit)
    label_columns(axes, grid.steps, grid.labels(), "step")


def draw_matrix(
    axes: Axes, scale_axes: Axes, matrix: WaitMatrix, values: npt.NDArray[Any], unit: str
) -> None:
    """How long ranks waited for ranks, in colours, from 0 on; see `draw_heat`."""
    norm = Normalize(0.0, float(values.max()), clip=True)
    _draw_cells(axes, scale_axes, matrix.ranks, values, norm, unit)
    label_columns(axes, matrix.awaited, matrix.labels(), "waited for rank")


def _draw_cells(
    axes: Axes,
    scale_axes: Axes,
    ranks: Int64,
    values: npt.NDArray[Any],
    norm: Normalize,
    unit: str,
) -> None:
    """Cells, one row for each rank, with the scale of their colours."""
    rows, columns = values.shape
    axes.imshow(values, aspect="auto", interpolation="none", cmap=HEAT, norm=norm, gid="heat")
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    box = axes.get_window_extent()
    positions = round_positions(ranks, int(box.height / 20))
    axes.set_yticks(positions, [f"rank {ranks[position]}" for position in positions.tolist()])
    axes.spines["bottom"].set_visible(False)
    bar = axes.figure.colorbar(ScalarMappable(norm, HEAT), cax=scale_axes, orientation="horizontal")
    bar.outline.set_visible(False)
    scale_axes.xaxis.set_major_locator(MaxNLocator(4))
    scale_axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _at: f"{value:g}"))
    scale_axes.text(1.03, 0.5, unit, transform=scale_axes.transAxes, va="center_baseline")
    if box.width / columns >= 40 and box.height / rows >= 16:
        _write_cells(axes, values, norm, _digits(norm))


def _digits(norm: Normalize) -> int:
    """Behind the point: enough to tell ten steps of the scale apart, in five characters at most."""
    low, high = norm.vmin or 0.0, norm.vmax or 0.0
    room = 4 - len(f"{high:.0f}")
    return max(0, min(room, next((at for at in range(4) if (high - low) * 10**at >= 10), 3)))


def _write_cells(axes: Axes, values: npt.NDArray[Any], norm: Normalize, digits: int) -> None:
    colours = mpl.colormaps[HEAT]
    for row, column in zip(*np.nonzero(~np.ma.getmaskarray(values)), strict=True):
        value = float(values[row, column])
        bright = _luminance(colours(norm(value))[:3]) > EQUAL_CONTRAST
        axes.text(
            column,
            row,
            f"{value:.{digits}f}",
            ha="center",
            va="center_baseline",
            color="#0a0a0a" if bright else "#fcfcfc",
        )


def _luminance(colour: Sequence[float]) -> float:
    """The relative luminance of a colour of sRGB, by WCAG."""
    linear = [
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in colour
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
