"""Floating-point operations of ranks, steps, scopes and operators, and the tree of scopes."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.records.profiler_tables import FlopLevel, FlopRows, FlopUnit
from timeline.tables.table import Columns, Json, Method, Spec, Table, View

_COUNTED = ("unit", "flop", "flop_per_s", "utilization")

FLOPS = Spec(
    "flops",
    "rank, step, scope and operator whose floating-point operations MindSpore counted",
    """
    rank
    text level: rank, step, scope or operator: the subject of the row
    text name = Operator: of a scope as in the file, such as fc3-Dense(Gradients)
    text parent: the outer scope of a scope, which name and parent together identify
    step
    text unit = Unit: all, cube or vector
    flop = Work in FLOP: of one step, or of one run of an operator
    flop_per_s = Rate in FLOP/s: for a rank the mean over its operators, not work / time
    share utilization: of the peak
    """,
    lambda run: map(_flops, run.facts),
    Json("flops"),
    Method("flops"),
    (
        View(
            *("flops-ranks", "Each rank", ("rank", *_COUNTED)),
            where=("level", "rank"),
            titles={"flop": "Work of a step"},
            section="FLOPs",
        ),
        View(
            *("flops-steps", "Each step", ("rank", "step", "utilization"), ("level", "step")),
            section="FLOPs",
        ),
        View(
            *(
                "flops-operators",
                "Operators",
                ("name", *_COUNTED),
            ),
            where=("level", "operator"),
            order="flop",
            section="FLOPs",
        ),
    ),
    note="Operations are never estimated from shapes",
)


def _flops(facts: RankFacts) -> Columns:
    rows, strings = facts.profiler_tables.of(FlopRows), facts.profiler_tables.strings
    level, unit = _LEVELS[rows.level], _UNITS[rows.unit]
    return FLOPS.part(facts.rank, rows, strings, level=level, unit=unit)


_LEVELS = np.array([level.name.lower() for level in FlopLevel], object)
_UNITS = np.array([unit.name.lower() for unit in FlopUnit], object)


ROOT = "Total"
"""Name of the outermost scope in files."""
ROUNDED = 500
"""Maximum rounding error of a value in FLOP: files give MFLOP with three decimals."""
MOST_DEPTH = 40
"""Maximum nesting depth of scopes."""
_SUFFIX = re.compile(r"\((?:\d+_)?(?:recompute_)?(?:Default|Gradients)\)$")
"""Suffix by which files distinguish scopes of one name."""


@dataclass(frozen=True)
class ScopeNode:
    """A scope at one place of the tree, and its operations.

    flop: operations inside it. own_flop: operations of its own operators, which are in no inner
    scope; None if unknown, as the scope lies in several places. elsewhere: the parent below which
    its inner scopes are listed instead, empty if they are listed here. places: number of scopes it
    lies in. left_out: number of inner scopes that are not listed.
    """

    name: str
    flop: int
    own_flop: int | None
    children: tuple[ScopeNode, ...] = ()
    elsewhere: str = ""
    places: int = 1
    left_out: int = 0

    def walk(self) -> Iterator[ScopeNode]:
        """Yield the node and all nodes below it, outer ones first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass
class _Links:
    """Operations on the links between scopes.

    inside: by scope, then by each scope directly inside it. around: by scope, then by each scope
    directly around it.
    """

    inside: dict[str, dict[str, int]] = field(default_factory=dict)
    around: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, parent: str, name: str, flop: int) -> None:
        """Add a link; sum the operations of links between the same two scopes."""
        for links, scope, other in ((self.inside, parent, name), (self.around, name, parent)):
            ends = links.setdefault(scope, {})
            ends[other] = ends.get(other, 0) + flop

    def own_flop(self, name: str) -> int:
        """Return the operations of a scope that are not in its inner scopes.

        A difference that rounding in the file can explain counts as 0.
        """
        around, inside = self.around.get(name, {}), self.inside.get(name, {})
        flop = sum(around.values()) - sum(inside.values())
        return flop if flop > ROUNDED * (len(around) + len(inside)) else 0


def scope_tree(scopes: Table, most: int) -> ScopeNode | None:
    """Return the tree of scopes of one rank, None if there are none.

    Files do not split the inner scopes of a scope that lies in several places. They are listed only
    where the scope has the most operations.

    Args:
        scopes: the rows of level scope: name, parent, flop.
        most: maximum number of scopes, of which those with the most operations are kept.
    """
    links = _Links()
    for name, parent, flop in zip(
        scopes["name"].tolist(), scopes["parent"].tolist(), scopes["flop"].tolist(), strict=True
    ):
        links.add(parent, name, flop or 0)
    roots = [name for name in links.inside if name not in links.around]
    root = ROOT if ROOT in links.inside else next(iter(roots), None)
    if root is None:
        return None
    opened = _opened(links, root)
    return _node(links, opened, _largest(links, opened, root, most), root)


def operator_scopes(operators: Table) -> Table:
    """Return the scopes in the names of operators, with the columns of the level scope.

    MindSpore 2.1 writes no file of scopes. Each scope has its whole path as name, so that it lies
    in a single place.

    Args:
        operators: the rows of level operator: name, flop.
    """
    links = _Links()
    for name, flop in zip(operators["name"].tolist(), operators["flop"].tolist(), strict=True):
        outer = ROOT
        ends = (at for at, letter in enumerate(name) if letter == "/")
        for end in islice(ends, MOST_DEPTH + 1):  # one more, to count scopes that are left out
            links.add(outer, name[:end], flop or 0)
            outer = name[:end]
    rows = [
        (parent, name, flop)
        for parent, inside in links.inside.items()
        for name, flop in inside.items()
    ]
    return Table.of_rows({"parent": object, "name": object, "flop": int}, rows)


def _label(name: str) -> str:
    return _SUFFIX.sub("", name.rpartition("/")[2])


def _opened(links: _Links, root: str) -> dict[str, str]:
    """Return the parent below which the inner scopes of each scope are listed.

    Only scopes that can be reached from the root are included, each at most once, so that links of
    a damaged file that form a cycle end.
    """
    best = {
        child: max(around, key=lambda parent: (around[parent], parent))
        for child, around in links.around.items()
    }
    opened, ready = {root: ""}, [root]
    while ready:
        name = ready.pop()
        for child in links.inside.get(name, {}):
            if child not in opened and best[child] == name:
                opened[child] = name
                ready.append(child)
    return opened


def _largest(links: _Links, opened: dict[str, str], root: str, most: int) -> set[tuple[str, str]]:
    """Return the links to at most `most` scopes with the most operations, as (parent, name).

    The parent of each is itself among them, or the root.
    """
    ready: list[tuple[int, str, str]] = []

    def open_scope(name: str) -> None:
        for child, flop in links.inside.get(name, {}).items():
            heapq.heappush(ready, (-flop, child, name))

    kept: set[tuple[str, str]] = set()
    open_scope(root)
    while ready and len(kept) < most:
        _, name, parent = heapq.heappop(ready)
        kept.add((parent, name))
        if opened.get(name) == parent:
            open_scope(name)
    return kept


def _node(
    links: _Links,
    opened: dict[str, str],
    kept: set[tuple[str, str]],
    name: str,
    parent: str = "",
    depth: int = 0,
) -> ScopeNode:
    around, inside = links.around.get(name, {}), links.inside.get(name, {})
    label = _label(name)
    if not parent:
        flop = sum(inside.values())
    elif opened.get(name) == parent:
        flop = around[parent]
    else:
        elsewhere = _label(opened.get(name, "")) if inside else ""
        own_flop = None if inside else around[parent]
        return ScopeNode(label, around[parent], own_flop, (), elsewhere, len(around))
    shown = [child for child in inside if (name, child) in kept and depth < MOST_DEPTH]
    shown.sort(key=lambda child: (-inside[child], child))
    own_flop = None if inside and len(around) > 1 else links.own_flop(name)
    return ScopeNode(
        label,
        flop,
        own_flop if inside else flop,
        tuple(_node(links, opened, kept, child, name, depth + 1) for child in shown),
        places=max(1, len(around)),
        left_out=len(inside) - len(shown),
    )
