"""Sections of a page on FLOPs, memory, and data preparation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.waits.culprit import Culprit
from timeline.printable import printable
from timeline.reports.html.charts import draw_memory, draw_queues
from timeline.reports.html.page import (
    SHORT,
    Block,
    columns_of,
    folded,
    folded_tables,
    format_amount,
    heading,
    left_out,
    note,
    number_column,
    page_table,
    plain_list,
    section,
    share_column,
    view_of,
)
from timeline.tables.data import DATA_PIPELINE, DATA_PREPARATION, DATA_QUEUES
from timeline.tables.flops import FLOPS, ScopeNode, operator_scopes, scope_tree
from timeline.tables.memory import MEMORY_GRAPHS, MEMORY_TENSORS, MOST_AT_PEAK
from timeline.tables.table import Table
from timeline.units import ColumnUnit, format_bytes, format_count
from timeline.verdict.advice import ABOUT_DATA, worst_first
from timeline.verdict.figures import Figures

MOST_ROWS = 120
MOST_SCOPES = 300
OPEN_LEVELS = 3
"""Number of levels of scopes that are unfolded at first."""
MOST_GRAPHS = 4
"""Maximum number of graphs of a rank that are drawn, those with the largest peaks."""
MOST_ADVICE = 8
MOST_BOXES = 200
"""Maximum number of operations drawn: those that limit the pipeline, then those nearest the root.
"""
MOST_NAMED = 20
"""Maximum number of operations named in a cell."""

# -- FLOPs -----------------------------------------------------------------------------------------


def flop_section(flops: Table, *, several: bool) -> Block | None:
    """Return the section on FLOPs: scopes of the busiest rank, and tables; None without FLOPs.

    several: whether the report is of more than one rank.
    """
    if not len(flops):
        return None
    rank = _rank_shown(flops)
    rows = flops.take(np.flatnonzero(flops["rank"] == rank))
    scopes = _level(rows, "scope")
    tree = scope_tree(
        scopes if len(scopes) else operator_scopes(_level(rows, "operator")), MOST_SCOPES
    )
    of_rank = f" of rank {rank}" if several else ""
    blocks: list[Block | None] = []
    if tree is not None:
        legend = (
            "Operations inside each scope, and its own: of operators that are in no inner scope."
        )
        drawn = {"is": "tree", "root": _scope(tree, max(1, tree.flop), 0)}
        blocks = [heading(f"Scopes{of_rank}"), note(legend), drawn]
    tables_of_views = (flops, flops, rows)
    captions = ("", "", f"Operators{of_rank}")
    tables = [
        view_of(FLOPS, view, _without_all(table), caption=caption)
        for view, table, caption in zip(FLOPS.views, tables_of_views, captions, strict=True)
    ]
    remark = (
        "Floating-point operations as the profiler counted them. The rate of a rank is the mean "
        "over its operators, not all work divided by all time; its utilization is of the time "
        "between forward and backward."
    )
    return section("FLOPs", note(remark), *blocks, *folded_tables(tables), anchor="flops")


def _without_all(flops: Table) -> Table:
    """Return the rows with an empty unit instead of "all"."""
    unit = np.where(flops["unit"] == "all", "", flops["unit"])
    return Table({**flops.columns, "unit": unit})


def _rank_shown(flops: Table) -> int:
    """Return the rank with the most operations, the first of several.

    If any rank has scopes, only ranks with scopes are considered.
    """
    scopes, work = _level(flops, "scope"), _level(flops, "rank")
    ranks: list[int] = np.unique((scopes if len(scopes) else flops)["rank"]).tolist()
    flop = np.ma.filled(work["flop"], 0)
    return max(ranks, key=lambda rank: (int(flop[work["rank"] == rank].sum()), -rank))


def _level(flops: Table, level: str) -> Table:
    return flops.take(np.flatnonzero(flops["level"] == level))


def _scope(node: ScopeNode, all_flop: int, depth: int) -> Block:
    """Return a scope and its inner ones as `page.js` draws them.

    all_flop: operations of the whole tree, of which bars are shares.
    """
    own = format_amount(node.own_flop, "FLOP") if node.own_flop and node.children else ""
    return {
        "name": printable(node.name),
        "flop": format_amount(node.flop, "FLOP"),
        "own": own and f"own {own}",
        "share": min(1.0, node.flop / all_flop),
        "note": "; ".join(_scope_notes(node)),
        "opened": depth < OPEN_LEVELS,
        "children": [_scope(child, all_flop, depth + 1) for child in node.children],
    }


def _scope_notes(node: ScopeNode) -> Iterator[str]:
    if node.elsewhere:
        yield f"scopes inside: see {printable(node.elsewhere)}"
    elif node.places > 1 and (node.children or node.left_out):
        yield f"scopes inside are of all {node.places} places where it lies"
    if node.left_out:
        yield f"{format_count(node.left_out, 'smaller scope')} not shown"


# -- memory ----------------------------------------------------------------------------------------


def memory_section(figures: Figures) -> Block | None:
    """Return the section on memory at each operator, and at the peak; None if unknown.

    It is drawn for the rank with the largest peak.
    """
    graphs = figures.memory_graphs
    if not len(graphs):
        return None
    order = np.argsort(-np.ma.filled(graphs["peak_bytes"], 0), kind="stable")
    rank = graphs["rank"][order[0]]
    shown = graphs.take(order[graphs["rank"][order] == rank][:MOST_GRAPHS]).to_dicts()
    several = len(np.unique(graphs["rank"])) > 1
    drawn: list[Block | None] = []
    for number, graph in enumerate(shown):
        operators = _of_graph(figures.memory_operators, graph)
        if graph["nodes"] and len(operators):
            curve, run = draw_memory(graph, operators, f"memory-{number}")
            drawn += [heading(_title(graph)), curve, note(_curve_note(graph, run))]
    of_rank = f"Of rank {rank}, which has the largest peak. " if several else ""
    planned = "What graphs hold is planned before they run. " if drawn else ""
    tables = [
        _graph_table(graphs.take(np.sort(order[:MOST_ROWS])), len(graphs)),
        *_held(figures, shown),
    ]
    return section(
        "Memory of graphs" if drawn else "Memory",
        note(f"{of_rank}{planned}A MB is 1024 KB."),
        *drawn,
        *(
            folded(table, opened=not at or table["rows"] <= SHORT)
            for at, table in enumerate(table for table in tables if table)
        ),
        anchor="memory",
    )


def _of_graph(table: Table, graph: dict[str, Any]) -> Table:
    """Return the rows with the rank and the graph of a row, which may be without a graph."""
    absent, number = np.ma.getmaskarray(table["graph"]), np.ma.getdata(table["graph"])
    same = absent if graph["graph"] is None else ~absent & (number == graph["graph"])
    return table.take(same & (table["rank"] == graph["rank"]))


def _curve_note(graph: dict[str, Any], run: int) -> str:
    static, capacity = graph["static_bytes"], graph["capacity_bytes"]
    at = f"{graph['peak_operator'] or 'an operator'} (operator {graph['peak_node']})"
    text = f"Peak {format_bytes(graph['peak_bytes'])} at {printable(at)}"
    if capacity:
        text += f", {graph['peak_bytes'] / capacity:.0%} of the device's {format_bytes(capacity)}"
    if static:
        text += f"; dotted: {format_bytes(static)} that it always holds"
    more = f" Of each {run} operators the one that holds most is drawn." if run > 1 else ""
    return f"{text}.{more}"


def _title(graph: dict[str, Any]) -> str:
    return "Allocated" if graph["graph"] is None else f"Graph {graph['graph']}"


def _graph_table(shown: Table, count: int) -> Block | None:
    capacity = np.ma.filled(shown["capacity_bytes"], 0)
    peak = np.ma.filled(shown["peak_bytes"], 0)
    of_graphs = bool(np.ma.count(shown["graph"]))
    return page_table(
        "memory-graphs",
        "Peak of each graph" if of_graphs else "Peak of each rank",
        [
            *columns_of(shown, "rank", "graph"),
            _byte_column("Peak", shown["peak_bytes"]),
            share_column("Of the device", peak, capacity) if capacity.any() else None,
            *columns_of(shown, "peak_operator", of=MEMORY_GRAPHS),
            _byte_column("Static", shown["static_bytes"]),
            *columns_of(shown, "nodes", of=MEMORY_GRAPHS),
            number_column("Tensors" if of_graphs else "Allocations", shown["tensors"]),
        ],
        left_out(count - len(shown), "graph", ", which hold less,"),
    )


def _held(figures: Figures, graphs: Sequence[dict[str, Any]]) -> Iterator[Block | None]:
    """Yield a table per graph of the tensors held at its peak, largest first."""
    for number, graph in enumerate(graphs):
        tensors = _of_graph(figures.memory_tensors, graph)
        alive = tensors.take(tensors["at_peak"].astype(np.bool_))
        order = np.argsort(-alive["size_bytes"], kind="stable")
        shown, rest = alive.take(order[:MOST_AT_PEAK]), alive.take(order[MOST_AT_PEAK:])
        size = format_bytes(int(rest["size_bytes"].sum()))
        yield page_table(
            f"memory-held-{number}",
            f"{_title(graph)}: held at the peak",
            [
                *columns_of(shown, "operator", "type"),
                _byte_column("Size", shown["size_bytes"]),
                share_column(
                    "Share of the peak",
                    np.ma.filled(shown["size_bytes"], 0),
                    graph["peak_bytes"],
                ),
                *columns_of(shown, "first", "last", of=MEMORY_TENSORS),
            ],
            f"{format_count(len(rest), 'smaller one')}: {size}." if len(rest) else "",
        )


def _byte_column(title: str, values_bytes: npt.NDArray[Any]) -> Block | None:
    """Return a column of sizes in the unit of the largest; None if all are masked."""
    unit = ColumnUnit.of_sizes(values_bytes.tolist())
    return number_column(unit.title(title), values_bytes, scale=unit.scale, digits=unit.digits)


# -- preparation of data ---------------------------------------------------------------------------


def data_section(figures: Figures, culprit: Culprit | None) -> Block | None:
    """Return the section on data preparation: queues, pipeline and tables; None without samples.

    The rank that is drawn is the culprit, else the one whose host queue is most often empty.
    """
    ranks = figures.data_preparation.to_dicts()
    if not ranks:
        return None
    late = None if culprit is None else culprit.rank
    shown = max(ranks, key=lambda row: (row["rank"] == late, row["empty_share"] or 0.0))["rank"]
    curves, queues, pipeline = (
        table.take(table["rank"] == shown)
        for table in (figures.data_curves, figures.data_queues, figures.data_pipeline)
    )
    drawn: list[Block | None] = []
    if len(curves):
        room = int(np.ma.filled(queues["capacity"], 0).max(initial=0))
        drawn = [heading("Batches in each queue"), draw_queues(curves, room)]
    if len(pipeline):
        levels, left = _levels(pipeline)
        boxes = {"is": "pipeline", "levels": levels}
        drawn += [heading("Pipeline"), boxes, note(left_out(left, "operation"))]
    advice = [one.text for one in worst_first(figures.all_advice()) if one.about in ABOUT_DATA]
    which = f"Rank {shown} of {len(ranks)} is drawn. " if len(ranks) > 1 else ""
    remark = (
        "The consumer of an empty queue waits; an operation whose own queue is empty while its "
        "input queue is full is slow itself."
    )
    return section(
        "Data preparation",
        note(f"{which}{remark}"),
        plain_list(map(printable, advice[:MOST_ADVICE])),
        *drawn,
        *folded_tables(_data_tables(figures)),
    )


def _levels(pipeline: Table) -> tuple[list[list[Block]], int]:
    """Return boxes of operations by level, and the number of operations without a box.

    A level holds the operations at equal distance from the root; the sources come first.

    pipeline: operations of one rank, parents before children.
    """
    depth: dict[int | None, int] = {}
    for op, parent in zip(pipeline["op"].tolist(), pipeline["parent"].tolist(), strict=True):
        depth[op] = depth.get(parent, -1) + 1
    limits = np.array([bool(limit) for limit in pipeline["bottleneck"]], np.bool_)
    drawn = np.sort(np.argsort(~limits, kind="stable")[:MOST_BOXES])
    levels: dict[int, list[Block]] = {}
    for row in pipeline.take(drawn).to_dicts():
        limit = f"{row['bottleneck']}: {row['advice'] or ''}" if row["bottleneck"] else ""
        box = {
            "name": printable(f"{row['type']} {row['op']}"),
            "workers": "" if row["workers"] is None else format_count(row["workers"], "worker"),
            "usage": row["usage"],
            "limit": limit,
        }
        levels.setdefault(depth[row["op"]], []).append(box)
    return [levels[at] for at in sorted(levels, reverse=True)], len(pipeline) - len(drawn)


def _named(ops: Sequence[int]) -> str:
    """Format the numbers of operations, at most MOST_NAMED of them."""
    left = len(ops) - MOST_NAMED
    return ", ".join(map(str, ops[:MOST_NAMED])) + (f" and {left} more" if left > 0 else "")


def _data_tables(figures: Figures) -> Iterator[Block | None]:
    ranks = figures.data_preparation
    named = np.array([*map(_named, ranks["operations"]), ""], object)[:-1]
    shown = Table({**ranks.columns, "operations": named})
    if any(columns_of(shown, *DATA_PREPARATION.views[0].columns[1:])):
        yield view_of(DATA_PREPARATION, DATA_PREPARATION.views[0], shown)
    of_batch = "Times are means of a batch."
    yield view_of(DATA_QUEUES, DATA_QUEUES.views[0], figures.data_queues, note=of_batch)
    yield view_of(DATA_PIPELINE, DATA_PIPELINE.views[0], figures.data_pipeline)
