"""The section of a page on floating-point operations: scopes as a tree, ranks, steps, operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Rows
from timeline.figures.flops import ScopeNode, operator_scopes, scope_tree
from timeline.figures.table import Table
from timeline.printable import printable
from timeline.reports.html.page_table import (
    Column,
    PageTable,
    integer_column,
    page_table,
    percent_column,
    scaled_column,
    spell_amount,
    text_column,
)
from timeline.units import spell_count

MOST_ROWS = 120
MOST_SCOPES = 300
OPEN_LEVELS = 3
"""Scopes whose inner ones are shown before anybody asks."""


@dataclass(frozen=True)
class ScopeLine:
    """A scope of the tree as it is shown; share: of all operations, for its bar."""

    name: str
    flop: str
    own: str
    share: float
    note: str
    opened: bool
    children: tuple[ScopeLine, ...]


@dataclass(frozen=True)
class FlopSection:
    """The tree of the rank that does most, None without scopes, and tables.

    rank: whose the tree and the operators are.
    """

    rank: int
    tree: ScopeLine | None
    tables: tuple[PageTable, ...]


def flop_section(flops: Table) -> FlopSection | None:
    """What is counted of the ranks; None where nothing is."""
    if not len(flops):
        return None
    rank = _rank_shown(flops)
    its = flops.take(np.flatnonzero(flops["rank"] == rank))
    scopes = _level(its, "scope")
    if not len(scopes):
        scopes = operator_scopes(_level(its, "operator"))
    tree = scope_tree(scopes, MOST_SCOPES)
    tables = (_ranks(_level(flops, "rank")), _steps(_level(flops, "step")), _operators(its))
    return FlopSection(
        rank,
        None if tree is None else _line(tree, max(1, tree.flop), 0),
        tuple(table for table in tables if table is not None),
    )


def _rank_shown(flops: Table) -> int:
    """The rank that does most, the first of several, among those with scopes where any has."""
    scopes = _level(flops, "scope")
    among = scopes if len(scopes) else flops
    ranks: list[int] = np.unique(among["rank"]).tolist()
    work = _level(flops, "rank")

    def done(rank: int) -> int:
        return int(np.ma.filled(work["flop"], 0)[work["rank"] == rank].sum())

    return max(ranks, key=lambda rank: (done(rank), -rank))


def _level(flops: Table, level: str) -> Table:
    return flops.take(np.flatnonzero(flops["level"] == level))


def _line(node: ScopeNode, all_flop: int, depth: int) -> ScopeLine:
    own = _spell(node.own_flop) if node.own_flop and node.children else ""
    return ScopeLine(
        printable(node.name),
        _spell(node.flop),
        own,
        min(1.0, node.flop / all_flop),
        _note(node),
        depth < OPEN_LEVELS,
        tuple(_line(child, all_flop, depth + 1) for child in node.children),
    )


def _note(node: ScopeNode) -> str:
    notes = []
    if node.elsewhere:
        notes.append(f"scopes inside: see {printable(node.elsewhere)}")
    elif node.places > 1 and (node.children or node.left_out):
        notes.append(f"scopes inside are of all {node.places} places where it lies")
    if node.left_out:
        notes.append(f"{spell_count(node.left_out, 'smaller scope')} not shown")
    return "; ".join(notes)


def _spell(flop: int) -> str:
    return spell_amount(flop, "FLOP")


def _ranks(rows: Table) -> PageTable | None:
    if not len(rows):
        return None
    shown = rows.take(slice(MOST_ROWS))
    return page_table(
        "flops-ranks",
        "Each rank",
        [
            integer_column("Rank", shown["rank"]),
            _units(shown),
            scaled_column("Work of a step", shown["flop"], "FLOP"),
            scaled_column("Rate", shown["flop_per_s"], "FLOP/s"),
            percent_column("Utilization", shown["utilization"]),
        ],
        _left_out(len(rows) - len(shown), "row"),
    )


def _steps(rows: Table) -> PageTable | None:
    if not len(rows):
        return None
    shown = rows.take(slice(MOST_ROWS))
    return page_table(
        "flops-steps",
        "Each step",
        [
            integer_column("Rank", shown["rank"]),
            integer_column("Step", shown["step"]),
            percent_column("Utilization", shown["utilization"]),
        ],
        _left_out(len(rows) - len(shown), "row"),
    )


def _operators(its: Table) -> PageTable | None:
    """Those operators that do most."""
    rows = _level(its, "operator")
    if not len(rows):
        return None
    shown = rows.take(_most(rows))
    return page_table(
        "flops-operators",
        "Operators",
        [
            text_column("Operator", shown["name"]),
            _units(shown),
            scaled_column("Work", shown["flop"], "FLOP"),
            scaled_column("Rate", shown["flop_per_s"], "FLOP/s"),
            percent_column("Utilization", shown["utilization"]),
        ],
        _left_out(len(rows) - len(shown), "row"),
    )


def _most(rows: Table) -> Rows:
    flop = np.ma.filled(rows["flop"], 0)
    return np.argsort(-flop, kind="stable")[:MOST_ROWS]


def _units(rows: Table) -> Column | None:
    """What units rows are of, where they are told apart."""
    return text_column("Unit", np.where(rows["unit"] == "all", "", rows["unit"]))


def _left_out(count: int, noun: str) -> str:
    return f"{spell_count(count, f'more {noun}')} in the JSON report (--json)." if count else ""
