"""Slices and samples of one track at a time resolution: short slices are merged into fewer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from timeline.columns.columns import Bool, Codes, Int64, Rows, concat_columns, take
from timeline.columns.constant import constant
from timeline.columns.group_by import GroupRuns
from timeline.columns.nesting import find_parents, order_edges, split_at_gaps
from timeline.frozen import dataclass
from timeline.tracks.model import MERGED, Coarse, Samples, Slices

try:
    from timeline.columns._nesting import groups as groups_by_stack
except ImportError:
    groups_by_stack = None  # type: ignore[assignment]
try:
    from timeline.fitting._merging import sum_names
except ImportError:
    sum_names = None  # type: ignore[assignment]

__all__ = [
    "EXACT",
    "Resolution",
    "as_coarse",
    "coarsen",
    "is_compiled",
    "thin",
]

STRETCH_ELEMENTS = 1 << 18
"""Elements whose names are merged at a time."""
EXACT = 0
"""The power of two at which every slice is exact, since none of any length is shorter than 1 ns."""


@dataclass(frozen=True)
class Resolution:
    """A time resolution of 2**power nanoseconds, and the times in which everything is exact.

    power 0 is exact. exact_ns: windows [start, end) in order of time, which do not overlap. In
    them nothing is merged: a slice that overlaps one is exact, and so is each slice around it.
    """

    power: int
    exact_ns: tuple[tuple[int, int], ...] = ()

    @property
    def exact(self) -> bool:
        """Whether nothing is merged at any time."""
        return self.power == EXACT

    @property
    def width_ns(self) -> int:
        """The width of a bin, which is also the least length of a slice that is always exact."""
        return 0 if self.exact else 1 << self.power

    def places(self, start_ns: Int64, end_ns: Int64) -> tuple[Int64, Bool]:
        """In which place each element starts, and whether a window keeps it exact.

        A place is a part of a bin between two windows. Places are numbered in order of time: those
        of two elements that follow each other are equal only if their bins and windows are.
        """
        bins = start_ns >> self.power
        if not self.exact_ns:
            return bins, constant(0, len(start_ns), np.bool_)
        opens_ns, closes_ns = np.array(self.exact_ns, np.int64).T
        after = np.searchsorted(closes_ns, start_ns, side="right")
        # An element without length is in the window that is open at its moment.
        opens_ns = np.append(opens_ns, np.iinfo(np.int64).max)
        return bins + after, opens_ns[after] < np.maximum(end_ns, start_ns + 1)


def is_compiled() -> bool:
    """Whether this installation has the compiled module."""
    return sum_names is not None


def as_coarse(slices: Slices) -> Coarse:
    """Slices as they are: every element is one slice, unless they were merged before."""
    if slices.coarse is not None:
        return slices.coarse
    count = len(slices)
    none = np.empty(0, np.int64)
    return Coarse(
        slices.start_ns,
        slices.end_ns,
        np.arange(count),
        constant(1, count, np.int64),
        slices.end_ns - slices.start_ns,
        none,
        np.empty(0, np.int32),
        none,
        none,
    )


def coarsen(coarse: Coarse, slices: Slices, resolution: Resolution) -> Coarse:
    """Merge what is shorter than the resolution.

    Slices of 2**power ns and longer stay. Shorter ones that follow each other inside the same
    slice, start in the same bin of the time axis, and have no longer one between them become one
    element, from the first start to the last end; one that is alone stays as it is. What lies
    inside a short slice goes with it. What overlaps an exact window stays as it is, also where it
    was merged before, and nothing is merged across one.

    An element that was merged at a finer resolution is shorter than two of its bins, so it is
    short at every coarser one: merging twice is the same as merging once at the coarser
    resolution.
    """
    if resolution.power == EXACT or not len(coarse):
        return coarse
    merged = coarse.row == MERGED
    group = _groups(coarse.start_ns, coarse.end_ns, merged, resolution, nested=slices.nested)
    return _merge(coarse, slices, group)


def _groups(
    start_ns: Int64, end_ns: Int64, merged: Bool, resolution: Resolution, *, nested: bool
) -> Int64:
    """The group of each element, numbered in drawing order; those of one group go together."""
    place, exact = resolution.places(start_ns, end_ns)
    short = (((end_ns - start_ns) >> resolution.power == 0) | merged) & ~exact
    if np.count_nonzero(short) < 2:
        return np.arange(len(short))
    if not nested:
        return _flat_groups(short, place)
    return _nested_groups(start_ns, end_ns, short, place)


def _flat_groups(short: Bool, place: Int64) -> Int64:
    joins = np.zeros(len(short), np.bool_)
    joins[1:] = short[1:] & short[:-1] & (place[1:] == place[:-1])
    return np.cumsum(~joins) - 1


def _nested_groups(start_ns: Int64, end_ns: Int64, short: Bool, place: Int64) -> Int64:
    """Short elements below a long one go together, with all that lies inside them."""
    group = np.empty(len(short), np.int64)
    groups, last = 0, -1
    for rows in split_at_gaps(start_ns, end_ns):
        if last >= 0 and _joins(short, place, last, rows[0]):
            groups -= 1
        inner, head = _groups_of_piece(start_ns[rows], end_ns[rows], short[rows], place[rows])
        group[rows] = inner + groups
        groups += int(inner.max(initial=-1)) + 1
        last = rows[head]
    return group


def _joins(short: Bool, place: Int64, one: Any, other: Any) -> Any:
    """Whether two elements that follow each other inside the same one go together."""
    return short[one] & short[other] & (place[one] == place[other])


def _groups_of_piece(
    start_ns: Int64, end_ns: Int64, short: Bool, place: Int64
) -> tuple[Int64, int]:
    """The groups of elements with nothing open around them, and the last outermost element.

    Elements are in order of start, the outer one first.
    """
    if groups_by_stack is not None:
        columns = start_ns, end_ns, short, place
        group, last = groups_by_stack(*(column.tobytes() for column in columns))
        return np.frombuffer(group, np.int64), last
    edges = order_edges(start_ns, end_ns)
    parent = find_parents(edges)
    inside_short = (parent >= 0) & short[parent]
    head = _outermost_short(parent, inside_short)
    order = edges.row[~edges.is_end]
    heads = order[~inside_short[order]]
    one, other = heads[:-1], heads[1:]
    joins = np.zeros(len(heads), np.bool_)
    joins[1:] = _joins(short, place, one, other) & (parent[one] == parent[other])
    group = np.empty(len(short), np.int64)
    group[heads] = np.cumsum(~joins) - 1
    return group[head], int(edges.row[-1])


def _outermost_short(parent: Rows, inside_short: Bool) -> Rows:
    """The outermost short element around each element, itself where it is in no short one."""
    head = np.where(inside_short, parent, np.arange(len(parent)))
    while True:
        further = head[head]
        if np.array_equal(further, head):
            return head
        head = further


def _merge(coarse: Coarse, slices: Slices, group: Int64) -> Coarse:
    parts = GroupRuns.of(group)
    if parts.count == len(coarse):
        return coarse
    before = take(group, coarse.owner)
    names = [
        _names(coarse, slices, parts, before, run) for run in parts.stretches(STRETCH_ELEMENTS)
    ]
    owner, name, name_count, name_busy_ns = map(concat_columns, zip(*names, strict=True))
    return Coarse(
        parts.least(coarse.start_ns),
        parts.greatest(coarse.end_ns),
        parts.single(coarse.row, otherwise=MERGED),
        parts.sum(coarse.count),
        parts.sum(coarse.busy_ns),
        owner,
        name,
        name_count,
        name_busy_ns,
    )


def _names(
    coarse: Coarse, slices: Slices, parts: GroupRuns, before: Int64, run: slice
) -> tuple[Int64, Codes, Int64, Int64]:
    """Which names each merged element of a run stands for, how often and how long.

    before: the group of each name that was merged before.
    """
    members = parts.members[run]
    element = parts.rows(run)
    chosen = np.repeat(members > 1, members) & (coarse.row[element] != MERGED)
    element = element[chosen]
    again = np.flatnonzero((before >= run.start) & (before < run.stop))
    group = np.repeat(np.arange(run.start, run.stop), members)[chosen]
    owner = np.concatenate([before[again], group])
    name = np.concatenate([coarse.name[again], slices.name[coarse.row[element]]])
    count = np.concatenate([coarse.name_count[again], coarse.count[element]])
    busy_ns = np.concatenate([coarse.name_busy_ns[again], coarse.busy_ns[element]])
    if not len(owner):
        return owner, name, count, busy_ns
    if sum_names is None:
        return _sum_names_by_sorting(owner, name, count, busy_ns)
    columns = [owner, name, count, busy_ns]
    if len(again):
        by_owner = np.argsort(owner, kind="stable")
        columns = [column[by_owner] for column in columns]
    made, *sums = sum_names(*(column.tobytes() for column in columns))
    owner, name, count, busy_ns = (
        np.frombuffer(one, column.dtype, made) for one, column in zip(sums, columns, strict=True)
    )
    return owner, name, count, busy_ns


def _sum_names_by_sorting(
    owner: Int64, name: Codes, count: Int64, busy_ns: Int64
) -> tuple[Int64, Codes, Int64, Int64]:
    key = owner * (int(name.max()) + 1) + name
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    return (
        owner[order][first],
        name[order][first],
        np.add.reduceat(count[order], first),
        np.add.reduceat(busy_ns[order], first),
    )


def thin(samples: Samples, resolution: Resolution) -> Samples:
    """Keep the least and the greatest sample of each bin, the first of equals; both are exact.

    In windows all stay, and no bin reaches across one.
    """
    if resolution.power == EXACT or not len(samples):
        return samples
    place, stays = resolution.places(samples.time_ns, samples.time_ns)
    changes = (place[1:] != place[:-1]) | (stays[1:] != stays[:-1])
    if changes.all():
        return samples
    stays = stays.copy()
    first = np.flatnonzero(np.concatenate([[True], changes]))
    number = np.concatenate([[0], np.cumsum(changes)])
    for extreme in (np.minimum, np.maximum):
        at = np.flatnonzero(samples.value == extreme.reduceat(samples.value, first)[number])
        stays[at[np.concatenate([[True], number[at[1:]] != number[at[:-1]]])]] = True
    return replace(
        samples,
        time_ns=samples.time_ns[stays],
        value=samples.value[stays],
        left_out=samples.left_out + int(np.count_nonzero(~stays)),
    )
