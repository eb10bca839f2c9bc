"""Turns intervals into the order and depth of their edges, and finds what encloses a moment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.records.columns import Bool, Int64, Rows

__all__ = ["Edges", "edges_of", "innermost", "parents_of"]


@dataclass(frozen=True)
class Edges:
    """The 2n edges of n intervals in drawing order.

    row: (2n,) the interval an edge belongs to; is_end: (2n,); time_ns: (2n,);
    depth: (2n,) open intervals outside the edge's own, as a stack would count them.

    At one moment: ends come first (inner before outer), then beginnings (outer before inner),
    and an interval without length has its two edges next to each other.
    """

    row: Rows
    is_end: Bool
    time_ns: Int64
    depth: Int64

    def nested(self) -> bool:
        """Whether every two intervals are disjoint or one lies inside the other."""
        order = np.argsort(self.depth, kind="stable")
        row = self.row[order]
        return bool((row[0::2] == row[1::2]).all())


def edges_of(start_ns: Int64, end_ns: Int64) -> Edges:
    """Order the edges of intervals, given in any order.

    Intervals that cross are ordered too, but then `Edges.nested` is false and a stack machine
    such as Perfetto's would close the wrong one.
    """
    count = len(start_ns)
    row = np.arange(count)
    both = np.concatenate([row, row])
    is_end = np.repeat(np.array([False, True]), count)
    time_ns = np.concatenate([start_ns, end_ns])
    length_ns = np.concatenate([end_ns - start_ns, end_ns - start_ns])
    empty = length_ns == 0
    place = np.where(empty, 2, np.where(is_end, 0, 1))
    # Among ends the later start is inner; among beginnings the longer one is outer. Equal
    # intervals open in row order and close in the reverse one.
    inner_first = np.where(place == 0, -np.concatenate([start_ns, start_ns]), 0)
    outer_first = np.where(place == 1, -length_ns, inner_first)
    tie = np.where(place == 0, -both, both)
    order = np.lexsort((is_end, tie, outer_first, place, time_ns))
    sorted_end = is_end[order]
    level = np.cumsum(np.where(sorted_end, -1, 1))
    depth = np.where(sorted_end, level, level - 1)
    return Edges(both[order], sorted_end, time_ns[order], depth)


def parents_of(edges: Edges) -> Rows:
    """The innermost interval around each of nested intervals, (n,) rows, -1 for none."""
    begins = np.flatnonzero(~edges.is_end)
    parent = np.full(len(begins), -1, np.intp)
    if not len(begins):
        return parent
    depth, count = edges.depth[begins], len(edges.row)
    key = depth * count + begins
    by_key = np.argsort(key)
    inner = np.flatnonzero(depth > 0)
    wanted = (depth[inner] - 1) * count + begins[inner]
    around = by_key[np.searchsorted(key[by_key], wanted) - 1]
    parent[edges.row[begins[inner]]] = edges.row[begins[around]]
    return parent


def innermost(start_ns: Int64, end_ns: Int64, moments_ns: Int64) -> Rows:
    """The innermost of nested intervals that is open at each moment, (m,) rows, -1 for none.

    An interval that starts at the moment is open, one that ends at it is not; an interval without
    length counts as open at its own moment when nothing longer starts there.
    """
    found = np.full(len(moments_ns), -1, np.intp)
    if not len(start_ns) or not len(moments_ns):
        return found
    edges = edges_of(start_ns, end_ns)
    level = edges.depth + np.where(edges.is_end, 0, 1)
    at = np.searchsorted(edges.time_ns, moments_ns, side="right") - 1
    last = np.maximum(at, 0)
    depth = np.where(at >= 0, level[last] - 1, -1)
    begins = np.flatnonzero(~edges.is_end)
    key = edges.depth[begins] * len(level) + begins
    by_key = np.argsort(key)
    hit = np.searchsorted(key[by_key], depth * len(level) + at, side="right") - 1
    inside = (at >= 0) & (depth >= 0)
    found[inside] = edges.row[begins[by_key[hit[inside]]]]
    # A call without length has closed again; take it unless something longer starts there.
    here = np.flatnonzero((at >= 0) & (edges.time_ns[last] == moments_ns))
    closed, outer = edges.row[last[here]], found[here]
    alone = (outer < 0) | (start_ns[outer] < moments_ns[here])
    found[here] = np.where((start_ns[closed] == end_ns[closed]) & alone, closed, outer)
    return found
