"""The PNG of an export: the verdict, and where the time goes."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import Patch

from timeline.figures.short_names import shortened
from timeline.figures.table import Table
from timeline.printable import printable
from timeline.reports.export_report import ExportReport
from timeline.reports.html.drawing import (
    MOST_DRAWN,
    Scale,
    draw_bars,
    draw_curves,
    draw_operators,
    draw_parts,
    fill_style,
    settings,
)
from timeline.reports.html.heat_map import draw_heat
from timeline.reports.html.palette import EXPOSED, LIGHT, PARTS, PHASES, Part, shown_parts
from timeline.reports.html.pictures import DOTS
from timeline.reports.html.rendering import page_title
from timeline.reports.html.step_grid import NOT_GIVEN, StepGrid, with_parts

WIDTH, EDGE, ROW = 1120, 40, 250
"""Pixels of 72 an inch: of the picture, of its margins, and the height of a row of panels."""
DRAWN_DOTS = 108
"""Dots an inch of the file, of which a picture of a page has fewer."""
TEXT = 12
"""Size of text in points."""
MOST_BARS, LEAST_BARS = 8, 4
"""Bars of ranks: more are an outline, fewer leave room."""
MOST_OPERATORS = 5
NAME = 46
"""Longest name of an operator, in characters."""

Panel = tuple[str, Callable[[Axes], None]]


def render_png(report: ExportReport) -> bytes:
    """The overview as PNG, 1680 pixels wide."""
    parts = (*_bar_parts(_means(report)), *StepGrid.of(report.figures).parts)
    patches = [
        Patch(**fill_style(part.role), label=part.label)
        for part in (*PARTS, EXPOSED)
        if part in parts
    ]
    sentences = report.verdict.sentences()
    return render_panels(page_title(report), sentences, lambda: _panels(report), patches)


def render_panels(
    title: str,
    sentences: Iterable[str],
    panels_of: Callable[[], Iterable[Panel]],
    legend: Sequence[Artist],
) -> bytes:
    """Sentences above panels, two in a row, as PNG of 1680 pixels.

    panels_of: makes the panels, which are drawn with the settings of all pictures. legend: what is
    explained above them, with labels.
    """
    with settings(TEXT):
        panels = list(panels_of())
        lines = [part for sentence in sentences for part in textwrap.wrap(drawable(sentence), 120)]
        top = 112 + 22 * len(lines)
        height = top + 16 + ROW * -(-len(panels) // 2)
        figure = Figure(figsize=(WIDTH / DOTS, height / DOTS), dpi=DOTS, facecolor=LIGHT["paper"])
        _write(figure, height, drawable(title), lines)
        for number, (heading, draw) in enumerate(panels):
            left = EDGE + (number % 2) * (WIDTH - EDGE) / 2
            bottom = height - top - ROW * (number // 2 + 1)
            width = WIDTH / 2 - 1.5 * EDGE
            figure.text(left / WIDTH, (bottom + ROW - 8) / height, heading, weight="bold")
            axes = figure.add_axes(
                ((left + 48) / WIDTH, (bottom + 46) / height, (width - 48) / WIDTH, 160 / height)
            )
            draw(axes)
        if panels:
            _legend(figure, 1 - (top - 4) / height, legend)
        data = io.BytesIO()
        figure.savefig(data, format="png", dpi=DRAWN_DOTS, metadata={"Software": None})
    return data.getvalue()


def drawable(text: str) -> str:
    """The text with a mark for each character that the typeface lacks."""
    known = get_font(findfont("DejaVu Sans")).get_charmap()
    return "".join(
        character if ord(character) in known else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def _panels(report: ExportReport) -> Iterator[Panel]:
    used, shown, mean = _means(report), report.verdict.telling_ranks, report.verdict.mean
    if mean is not None and (parts := _bar_parts(used)):
        yield (
            "Mean step of each rank" if mean.steps else "Device time of each rank",
            lambda axes: draw_bars(axes, used, MOST_BARS, LEAST_BARS, parts),
        )
    grid = StepGrid.of(report.figures).within(MOST_DRAWN)
    if len(grid.steps) > 1:
        row = int(np.argmax(grid.ranks == shown[0])) if shown else 0
        of_rank = f" of rank {grid.ranks[row]}" if len(grid.ranks) > 1 else ""
        if grid.parts:
            yield f"Each step{of_rank}", lambda axes: draw_parts(axes, grid, row)
        yield f"Step trace{of_rank}", lambda axes: _curves(axes, grid, row)
        measured = grid.measured().of_fewer_ranks(MOST_DRAWN)
        if min(measured.shape) > 1:
            yield "Step time by rank", lambda axes: _heat(axes, measured)
    for title, table, role in (
        ("Longest operators", report.verdict.operators, "computing"),
        ("Longest collectives", report.verdict.collectives, "overlapped"),
    ):
        if len(table):
            yield title, _operators(table, role)


def _means(report: ExportReport) -> Table:
    """Where the time of a mean step of each rank goes."""
    means = report.verdict.mean_steps
    return with_parts(means) if len(means) else means


def _bar_parts(means: Table) -> tuple[Part, ...]:
    return shown_parts(means, PARTS) if len(means) else ()


def _curves(axes: Axes, grid: StepGrid, row: int) -> None:
    draw_curves(axes, grid, row)
    labels = [phase.label for phase in PHASES if grid.has(phase.column)]
    axes.legend(
        axes.get_lines(),
        labels,
        ncols=len(labels),
        loc="lower right",
        bbox_to_anchor=(1, 1),
        frameon=False,
        borderpad=0,
    )


def _heat(axes: Axes, grid: StepGrid) -> None:
    spans_ns = np.ma.masked_equal(grid.times["period_ns"], NOT_GIVEN)
    scale = Scale.of(int(spans_ns.max()))
    box = axes.get_position()
    axes.set_position((box.x0 + 16 / WIDTH, box.y0, box.width - 16 / WIDTH, box.height * 0.84))
    figure = axes.get_figure(root=True)
    assert figure is not None
    height = 8 / 160 * box.height
    colours = figure.add_axes((box.x0 + 16 / WIDTH, box.y1 + height, box.width * 0.4, height))
    draw_heat(axes, colours, grid, spans_ns / scale.ns, scale.unit)


def _operators(table: Table, role: str) -> Callable[[Axes], None]:
    top = table.take(np.arange(min(len(table), MOST_OPERATORS)))
    names = short_names(top["type"].tolist())

    def draw(axes: Axes) -> None:
        box = axes.get_position()
        axes.set_position((box.x0 - 48 / WIDTH, box.y0, box.width + 48 / WIDTH, box.height))
        draw_operators(axes, names, top["total_ns"], role)

    return draw


def short_names(names: Iterable[str]) -> list[str]:
    """Names of the profile that have room above a bar."""
    return [name or "–" for name in shortened([drawable(printable(name)) for name in names], NAME)]


def _write(figure: Figure, height: int, title: str, lines: list[str]) -> None:
    figure.text(EDGE / WIDTH, 1 - 40 / height, title, size=20, weight="bold", va="center")
    for at, line in enumerate(lines):
        figure.text(EDGE / WIDTH, 1 - (76 + 22 * at) / height, line, size=13, va="center")


def _legend(figure: Figure, bottom: float, shown: Sequence[Artist]) -> None:
    figure.legend(
        handles=list(shown),
        ncols=len(shown),
        loc="lower left",
        bbox_to_anchor=((EDGE - 6) / WIDTH, bottom),
        frameon=False,
    )
