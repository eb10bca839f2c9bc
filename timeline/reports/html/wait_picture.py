"""The picture of who waits for whom: a map of ranks, or the sums of many ranks."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from timeline.columns.columns import Int64
from timeline.figures.waiting_tables import WaitMatrix
from timeline.reports.html.drawing import MOST_DRAWN, Scale, draw_columns
from timeline.reports.html.heat_map import draw_matrix
from timeline.reports.html.pictures import Margins, Picture, draw_picture
from timeline.reports.html.step_grid import run_length
from timeline.reports.html.svg import StyleSheet

MOST_RANKS = 64
"""Up to so many ranks are rows and columns of a map; of more the sums are drawn."""
ROW, LEAST_HEIGHT, MOST_HEIGHT = 26, 60, 480
"""Pixels of the rows of a map, and of all of them together."""
SUMS = 150
"""Pixels: the height of a picture of sums."""
TOP, BOTTOM = 44, 40


@dataclass(frozen=True)
class WaitData:
    """What a script tells of the cell under the pointer.

    rows, columns: how ranks are called; sums have one row without a name. values: base64 of
    little-endian float32, by row, then column, in ns.
    """

    rows: list[str]
    columns: list[str]
    values: str


@dataclass(frozen=True)
class WaitPicture:
    """A picture, whether it is a map of pairs, and how many ranks share a column of sums."""

    picture: Picture
    is_map: bool
    run: int
    data: WaitData


def draw_waits(matrix: WaitMatrix, sheet: StyleSheet) -> WaitPicture:
    """A map where there are few ranks, else a row of sums: how long others waited for each."""
    if max(matrix.waited_ns.shape) <= MOST_RANKS + 1:
        return _map(matrix, sheet)
    return _sums(matrix, sheet)


def _map(matrix: WaitMatrix, sheet: StyleSheet) -> WaitPicture:
    ranks = [str(rank) for rank in matrix.ranks.tolist()]
    columns = matrix.labels()
    scale = Scale.of(int(matrix.waited_ns.max()))
    inner = min(MOST_HEIGHT, max(LEAST_HEIGHT, ROW * len(ranks)))
    height = inner + TOP + BOTTOM
    itself = matrix.ranks[:, None] == matrix.awaited[None, :]
    values = np.ma.masked_array(matrix.waited_ns / scale.ns, itself)

    def draw(axes: Axes) -> None:
        figure = axes.get_figure()
        assert isinstance(figure, Figure)
        box = axes.get_position()
        colours = figure.add_axes((box.x0, 1 - 20 / height, min(box.width, 0.35), 9 / height))
        draw_matrix(axes, colours, matrix, values, scale.unit)

    left = 14 + 7 * len(f"rank {max(ranks, key=len)}")
    label = f"How long each of {len(ranks)} ranks waited for each other; the table has the longest"
    picture = draw_picture("waits", label, sheet, height, Margins(left, TOP), draw)
    data = WaitData([f"rank {rank}" for rank in ranks], columns, _packed(matrix.waited_ns))
    return WaitPicture(picture, True, 1, data)


def _sums(matrix: WaitMatrix, sheet: StyleSheet) -> WaitPicture:
    caused_ns, labels = matrix.caused_ns, matrix.labels()
    run = run_length(len(caused_ns), MOST_DRAWN)
    starts = np.arange(0, len(caused_ns), run)
    most = np.array([start + np.argmax(caused_ns[start : start + run]) for start in starts])
    drawn_ns, shown = caused_ns[most], [labels[at] for at in most.tolist()]

    def draw(axes: Axes) -> None:
        draw_columns(axes, matrix.awaited[starts], drawn_ns, "waiting", "rank")

    label = f"How long others waited for each of {len(caused_ns)} ranks; the table has the longest"
    picture = draw_picture("waits", label, sheet, SUMS, Margins(), draw)
    return WaitPicture(picture, False, run, WaitData([""], shown, _packed(drawn_ns)))


def _packed(times_ns: Int64) -> str:
    return base64.b64encode(times_ns.astype("<f4").tobytes()).decode()
