"""Turns the grid of steps into pictures of one rank, and data to draw the other ranks by."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Rows
from timeline.report_page.drawing import MOST_PLACES
from timeline.report_page.grid import NOT_GIVEN, StepGrid
from timeline.report_page.palette import PARTS, PHASES, Phase
from timeline.report_page.pictures import Heat, Picture, by_step, curves, heats
from timeline.report_page.svg import StyleSheet

__all__ = ["StepData", "StepPictures", "step_pictures"]

MOST_CELLS = 5_000
"""So many ranks times steps travel in the page, for the choice of a rank."""
LARGEST = 0xFFFE
ABSENT = 0xFFFF
"""Times travel as 16 bits, in parts of the largest."""


@dataclass(frozen=True)
class StepData:
    """Times of each step for a script that draws another rank.

    ranks: those that can be chosen. series: names of the times. quantum_ns: what the numbers
    count. values: base64 of little-endian uint16, by rank, then series, then step; `absent` is
    none.
    """

    ranks: list[int]
    labels: list[str]
    series: list[str]
    quantum_ns: float
    values: str
    absent: int = ABSENT


@dataclass(frozen=True)
class StepPictures:
    """What a page shows of steps.

    rank: the one that is drawn. run: how many steps share a place, of which the longest is drawn.
    ranks: how many there are. parts: None where no step has device records. phases: the curves
    that there are.
    """

    rank: int
    run: int
    ranks: int
    parts: Picture | None
    curves: Picture
    phases: list[Phase]
    heats: list[Heat]
    data: StepData


def step_pictures(whole: StepGrid, slowest: int | None, sheet: StyleSheet) -> StepPictures | None:
    """The pictures of all steps; None where there are not two.

    slowest: the rank that is drawn first, where one is known.
    """
    if len(whole.steps) < 2:
        return None
    grid = whole.within(MOST_PLACES)
    row = int(np.argmax(grid.ranks == slowest))
    data = _data(grid.of_ranks(_offered(grid, row)))
    measured = grid.has("span_ns")
    return StepPictures(
        int(grid.ranks[row]),
        grid.run,
        len(grid.ranks),
        by_step(grid, row, sheet, data.quantum_ns) if measured else None,
        curves(grid, row, sheet, data.quantum_ns),
        [phase for phase in PHASES if grid.has(phase.column)],
        _heats(grid, sheet),
        data,
    )


def _heats(grid: StepGrid, sheet: StyleSheet) -> list[Heat]:
    measured = grid.measured()
    return list(heats(measured, sheet)) if min(measured.shape) > 1 else []


def _offered(grid: StepGrid, shown: int) -> Rows:
    """The rows that a script can draw: all, or as many of the slowest as have room."""
    most = max(1, MOST_CELLS // len(grid.steps))
    lengths_ns = np.maximum(grid.times["span_ns"], 0).sum(axis=1)
    lengths_ns[shown] = np.iinfo(np.int64).max
    return np.sort(np.argsort(-lengths_ns, kind="stable")[:most])


def _data(grid: StepGrid) -> StepData:
    names = [own.column for own in (*PARTS, *PHASES)]
    series = [name for name in names if grid.has(name)]
    stacked = np.stack([grid.times[name] for name in series], axis=1)
    quantum_ns = max(int(stacked.max()), 1) / LARGEST
    numbers = np.where(stacked == NOT_GIVEN, ABSENT, np.rint(stacked / quantum_ns))
    packed = base64.b64encode(numbers.astype("<u2").tobytes()).decode()
    return StepData(grid.ranks.tolist(), grid.labels(), series, quantum_ns, packed)
