"""The section of a page on memory: what graphs hold at each operator, and who holds the peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.figures.memory_tables import MOST_AT_PEAK
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.printable import printable
from timeline.reports.html.drawing import MOST_DRAWN
from timeline.reports.html.memory_curves import MemoryCurve
from timeline.reports.html.page_table import (
    NOTHING,
    Cell,
    Column,
    PageTable,
    integer_column,
    page_table,
    share_column,
    text_column,
)
from timeline.reports.html.pictures import Picture, draw_memory
from timeline.reports.html.svg import StyleSheet
from timeline.units import spell_bytes, spell_count

MOST_GRAPHS = 4
"""So many graphs of a rank are shown, those with the largest peaks."""
MOST_ROWS = 120


@dataclass(frozen=True)
class DrawnGraph:
    """The curve of one graph."""

    title: str
    picture: Picture
    note: str


@dataclass(frozen=True)
class MemorySection:
    """What a page shows of memory."""

    title: str
    note: str
    curves: Sequence[DrawnGraph]
    tables: Sequence[PageTable]


def memory_section(figures: Figures, sheet: StyleSheet) -> MemorySection | None:
    """The section, of the rank that holds most; None where nothing is known of memory."""
    graphs = figures.memory_graphs
    if not len(graphs):
        return None
    order = np.argsort(-np.ma.filled(graphs["peak_bytes"], 0), kind="stable")
    rank = graphs["rank"][order[0]]
    shown = graphs.take(order[graphs["rank"][order] == rank][:MOST_GRAPHS]).to_dicts()
    several = len(np.unique(graphs["rank"])) > 1
    curves = [
        _drawn(graph, operators, f"memory-{number}", sheet)
        for number, graph in enumerate(shown)
        if graph["nodes"] and len(operators := _of_graph(figures.memory_operators, graph))
    ]
    of_rank = f"Of rank {rank}: no other one holds more. " if several else ""
    planned = "What graphs hold is planned before they run. " if curves else ""
    return MemorySection(
        "Memory of graphs" if curves else "Memory",
        f"{of_rank}{planned}A MB is 1024 KB.",
        curves,
        [
            _graph_table(graphs.take(np.sort(order[:MOST_ROWS])), len(graphs)),
            *_held(figures, shown),
        ],
    )


def _of_graph(table: Table, graph: dict[str, Any]) -> Table:
    """The rows of a graph of a rank, or of those of none."""
    given, number = np.ma.getmaskarray(table["graph"]), np.ma.getdata(table["graph"])
    same = given if graph["graph"] is None else ~given & (number == graph["graph"])
    return table.take(same & (table["rank"] == graph["rank"]))


def _drawn(graph: dict[str, Any], operators: Table, name: str, sheet: StyleSheet) -> DrawnGraph:
    curve = MemoryCurve.of(graph, operators, MOST_DRAWN)
    static, capacity = graph["static_bytes"], graph["capacity_bytes"]
    note = f"Peak {spell_bytes(graph['peak_bytes'])} at {printable(_at_peak(graph))}"
    if capacity:
        note += f", {graph['peak_bytes'] / capacity:.0%} of the device's {spell_bytes(capacity)}"
    if static:
        note += f"; dotted: {spell_bytes(static)} that it always holds"
    more = f" Of each {curve.run} operators the one that holds most is drawn." * (curve.run > 1)
    return DrawnGraph(_title(graph), draw_memory(curve, name, sheet), f"{note}.{more}")


def _title(graph: dict[str, Any]) -> str:
    return "Allocated" if graph["graph"] is None else f"Graph {graph['graph']}"


def _at_peak(graph: dict[str, Any]) -> str:
    return f"{graph['peak_operator'] or 'an operator'} (operator {graph['peak_node']})"


def _graph_table(shown: Table, count: int) -> PageTable:
    capacity = np.ma.filled(shown["capacity_bytes"], 0)
    left = count - len(shown)
    return page_table(
        "memory-graphs",
        "Peak of each graph" if np.ma.count(shown["graph"]) else "Peak of each rank",
        [
            integer_column("Rank", shown["rank"]),
            integer_column("Graph", shown["graph"]),
            _size_column("Peak", shown["peak_bytes"]),
            share_column("Of the device", shown["peak_bytes"], capacity)
            if capacity.any()
            else None,
            text_column("At operator", _words(shown["peak_operator"])),
            _size_column("Static", shown["static_bytes"]),
            integer_column("Operators", shown["nodes"]),
            integer_column(
                "Tensors" if np.ma.count(shown["graph"]) else "Allocations", shown["tensors"]
            ),
        ],
        f"{spell_count(left, 'more graph')}, which hold less, in the JSON report (--json)."
        if left
        else "",
    )


def _held(figures: Figures, graphs: Sequence[dict[str, Any]]) -> Iterator[PageTable]:
    """What is held at the peak of each graph, largest first."""
    for number, graph in enumerate(graphs):
        tensors = _of_graph(figures.memory_tensors, graph)
        alive = tensors.take(tensors["at_peak"].astype(np.bool_))
        if not len(alive):
            continue
        order = np.argsort(-alive["size_bytes"], kind="stable")
        shown, rest = alive.take(order[:MOST_AT_PEAK]), alive.take(order[MOST_AT_PEAK:])
        yield page_table(
            f"memory-held-{number}",
            f"{_title(graph)}: held at the peak",
            [
                text_column("Operator", _words(shown["operator"])),
                text_column("Type", _words(shown["type"])),
                _size_column("Size", shown["size_bytes"]),
                share_column("Share of the peak", shown["size_bytes"], graph["peak_bytes"]),
                integer_column("From operator", shown["first"]),
                integer_column("To operator", shown["last"]),
            ],
            _rest_note(rest),
        )


def _rest_note(rest: Table) -> str:
    """What the tensors that are left out come to."""
    size = spell_bytes(int(rest["size_bytes"].sum()))
    return f"{spell_count(len(rest), 'smaller one')}: {size}." if len(rest) else ""


def _size_column(title: str, values_bytes: npt.NDArray[Any]) -> Column | None:
    """Sizes, nothing where they are masked; None where all are."""
    given = values_bytes.tolist()
    if all(value is None for value in given):
        return None
    cells = (
        Cell(NOTHING, -1) if value is None else Cell(spell_bytes(value), value) for value in given
    )
    return Column(title, True, tuple(cells))


def _words(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.array([value or "" for value in values.tolist()], object)
