"""Slices and samples of one track at a time resolution: short slices are merged into fewer.

A merged slice is named after the name with most of its time, and has exact sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from timeline.columns.columns import Bool, Codes, Int64, Rows, concat_columns, take
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct_pairs
from timeline.columns.group_by import GroupRuns
from timeline.columns.nesting import open_around, split_at_gaps
from timeline.columns.strings import ExtendedPool, StringPool
from timeline.layers import NOUNS
from timeline.tracks.model import MERGED, Arg, ArgKind, Arrows, Coarse, Samples, Slices, Track

try:
    from timeline.columns._nesting import groups as groups_by_stack
except ImportError:
    groups_by_stack = None  # type: ignore[assignment]

STRETCH_ELEMENTS = 1 << 18
"""Number of elements whose names are merged at a time."""
TOP_NAMES = 3
"""Number of names in the args of a merged slice."""
PERCENT = 100
EXACT = 0
"""The level at which every slice is exact, since none of any length is shorter than 1 ns."""


@dataclass(frozen=True)
class Resolution:
    """A time resolution of 2**level nanoseconds, with windows in which everything is exact.

    Level 0 is exact. exact_ns: windows [start, end) in order of time, which do not overlap. In them
    nothing is merged: a slice that overlaps one is exact, and so is each slice around it. finer: a
    finer level, and the time before which it applies instead.
    """

    level: int
    exact_ns: tuple[tuple[int, int], ...] = ()
    finer: tuple[int, int] | None = None

    @property
    def exact(self) -> bool:
        """Return True if nothing is merged at any time."""
        return self.level == EXACT

    @property
    def width_ns(self) -> int:
        """Return the width of a bin; slices of at least that length are always exact."""
        return 0 if self.exact else 1 << self.level

    def is_short(self, start_ns: Int64, end_ns: Int64) -> Bool:
        """Return a mask of the elements that are shorter than a bin."""
        level = self.level if self.finer is None else self._levels(start_ns)
        short: Bool = (end_ns - start_ns) >> level == 0
        return short

    def places(self, start_ns: Int64, end_ns: Int64) -> tuple[Int64, Bool]:
        """Return the place of each element's start, and a mask of elements that stay exact.

        A place is a part of a bin between two exact windows. Two consecutive elements have equal
        places only if they are in the same bin with no exact window between them.
        """
        place = start_ns >> (self.level if self.finer is None else self._levels(start_ns))
        exact = constant(0, len(start_ns), np.bool_)
        if self.exact_ns:
            opens_ns, closes_ns = np.array(self.exact_ns, np.int64).T
            after = np.searchsorted(closes_ns, start_ns, side="right")
            # An element without length is in the window that is open at that time.
            opens_ns = np.append(opens_ns, np.iinfo(np.int64).max)
            place = place + after
            exact = opens_ns[after] < np.maximum(end_ns, start_ns + 1)
        if self.finer is not None:
            level, until_ns = self.finer
            first = start_ns < until_ns
            place = np.where(first, ~place, place)
            exact = exact | first if level == EXACT else exact
        return place, exact

    def _levels(self, start_ns: Int64) -> Int64:
        assert self.finer is not None
        level, until_ns = self.finer
        return np.where(start_ns < until_ns, level, self.level)


def as_coarse(slices: Slices) -> Coarse:
    """Return slices unmerged: every element is one slice, unless they were merged before."""
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
    """Merge slices that are shorter than the resolution.

    Slices of 2**level ns and longer stay. Shorter ones that follow each other inside the same
    slice, start in the same bin of the time axis, and have no longer one between them become one
    element, from the first start to the last end; a single one stays as it is. Slices inside a
    short slice are merged with it. Slices that overlap an exact window stay as they are, even if
    they were merged before, and nothing is merged across a window.

    An element that was merged at a finer resolution is shorter than two of its bins, so it is short
    at every coarser one: merging twice is the same as merging once at the coarser resolution.
    """
    if resolution.level == EXACT or not len(coarse):
        return coarse
    merged = coarse.row == MERGED
    group = _groups(coarse.start_ns, coarse.end_ns, merged, resolution, nested=slices.nested)
    return _merge(coarse, slices, group)


def _groups(
    start_ns: Int64, end_ns: Int64, merged: Bool, resolution: Resolution, *, nested: bool
) -> Int64:
    """Return the group of each element, numbered in drawing order; a group becomes one element."""
    place, exact = resolution.places(start_ns, end_ns)
    short = (resolution.is_short(start_ns, end_ns) | merged) & ~exact
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
    """Group short elements below a long one, together with all elements inside them."""
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
    """Return True where two elements that follow each other inside the same one are merged."""
    return short[one] & short[other] & (place[one] == place[other])


def _groups_of_piece(
    start_ns: Int64, end_ns: Int64, short: Bool, place: Int64
) -> tuple[Int64, int]:
    """Return the groups of elements with nothing around them, and the last outermost element.

    Elements are in order of start, the outer one first.
    """
    if groups_by_stack is not None:
        columns = start_ns, end_ns, short, place
        group, last = groups_by_stack(*(column.tobytes() for column in columns))
        return np.frombuffer(group, np.int64), last
    parent = open_around(start_ns, end_ns)
    inside_short = (parent >= 0) & short[parent]
    head = _outermost_short(parent, inside_short)
    heads = np.flatnonzero(~inside_short)
    one, other = heads[:-1], heads[1:]
    joins = np.zeros(len(heads), np.bool_)
    joins[1:] = _joins(short, place, one, other) & (parent[one] == parent[other])
    group = np.empty(len(short), np.int64)
    group[heads] = np.cumsum(~joins) - 1
    return group[head], int(np.flatnonzero(parent < 0)[-1])


def _outermost_short(parent: Rows, inside_short: Bool) -> Rows:
    """Return the outermost short element around each element, or itself outside of short ones."""
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
    """Return the names in merged elements of a run: owner, name, number of slices, and time.

    before: the new element of each name that was merged before.
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
    """Keep the least and the greatest sample of each bin unchanged, the first of equal ones.

    All samples in exact windows are kept, and no bin crosses a window.
    """
    if resolution.level == EXACT or not len(samples):
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


def at_resolution(track: Track, resolution: Resolution) -> Track:
    """Merge short slices of a track, or thin its samples; return the same track if none change."""
    content = track.content
    drawn: Slices | Samples | None = content
    if resolution.level != EXACT and len(content or ()) > 1:
        if isinstance(content, Slices):
            drawn = draw_coarse(coarsen(as_coarse(content), content, resolution), content)
        elif isinstance(content, Samples):
            drawn = thin(content, resolution)
    return track if drawn is content else replace(track, content=drawn)


def draw_coarse(coarse: Coarse, slices: Slices) -> Slices:
    """Draw the slices of a track at the resolution of `coarse`.

    An exact slice keeps its name, args and arrows. A merged one is called "37 tasks: MatMul"
    after the name that took most of its time, and has the args count, busy_ns (the summed length
    of all its slices) and its top names with their share of that in percent. The labels are in a
    separate pool, since tracks that share a pool may be drawn concurrently.
    """
    if len(coarse) == len(slices):
        return slices
    merged = coarse.row == MERGED
    exact = np.flatnonzero(~merged)
    rows = coarse.row[exact]
    top = _TopNames.of(coarse)
    name = np.empty(len(coarse), np.int32)
    name[exact] = slices.name[rows]
    read, *_ = slices.strings.extended()  # merged labels of earlier drawings are not drawn again
    labels, which = _labels(coarse, top, merged, NOUNS[slices.kind], slices.strings)
    name[merged] = which + len(read)
    args = tuple(
        _spread_arg(arg, exact, rows, len(coarse)) for arg in slices.args if not arg.of_several
    )
    return replace(
        slices,
        start_ns=coarse.start_ns,
        end_ns=coarse.end_ns,
        name=name,
        strings=ExtendedPool(read, labels),
        args=(*args, *_sum_args(coarse, merged), *_top_args(coarse, top)),
        arrows=_arrows(slices.arrows, exact, rows, len(slices)),
        coarse=replace(coarse, row=np.where(merged, MERGED, np.arange(len(coarse)))),
    )


def _spread_arg(arg: Arg, exact: Rows, rows: Int64, count: int) -> Arg:
    """Return an arg of the exact slices, absent on merged ones."""
    values = np.zeros(count, arg.values.dtype)
    present = np.zeros(count, np.bool_)
    values[exact], present[exact] = arg.values[rows], arg.present[rows]
    return replace(arg, values=values, present=present)


def _arrows(arrows: Arrows, exact: Rows, rows: Int64, before: int) -> Arrows:
    """Return the arrows whose slice is still drawn."""
    position = np.full(before, -1, np.int64)
    position[rows] = exact
    moved = position[arrows.slice]
    order = np.argsort(moved, kind="stable")
    order = order[moved[order] >= 0]
    return Arrows(moved[order], arrows.arrow[order])


@dataclass(frozen=True)
class _TopNames:
    """The names with most of the time of merged elements.

    owner: the element; percent: of its time; position: 0 for the name with most time.
    """

    owner: Int64
    name: Codes
    percent: Int64
    position: Int64

    @classmethod
    def of(cls, coarse: Coarse) -> _TopNames:
        row, position = _top_rows(coarse)
        owner = coarse.owner[row]
        whole = np.maximum(coarse.busy_ns[owner], 1)
        percent = coarse.name_busy_ns[row] * PERCENT // whole
        return cls(owner, coarse.name[row], percent, position)


def _top_rows(coarse: Coarse) -> tuple[Rows, Int64]:
    """Return the rows of the leading names of each owner, and the position of each."""
    rows, positions = [], []
    # All names are sorted by owner: finding the leading ones is faster than sorting them too.
    left = np.arange(len(coarse.owner))
    for number in range(TOP_NAMES):
        leading = _leading(coarse, left)
        rows.append(left[leading])
        positions.append(np.full(len(leading), number))
        left = np.delete(left, leading)
    return np.concatenate(rows), np.concatenate(positions)


def _leading(coarse: Coarse, rows: Rows) -> Rows:
    """Return the place among `rows` of the name of each owner with most time, then most counts."""
    owner = coarse.owner[rows]
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    count = np.diff(np.append(first, len(rows)))
    most = np.ones(len(rows), np.bool_)
    for values in (coarse.name_busy_ns[rows], coarse.name_count[rows]):
        reached = np.where(most, values, -1)
        most &= reached == np.repeat(np.maximum.reduceat(reached, first), count)
    leading = np.flatnonzero(most)
    return leading[np.diff(owner[leading], prepend=-1) > 0]


def _labels(
    coarse: Coarse, top: _TopNames, merged: Bool, noun: str, strings: StringPool
) -> tuple[list[str], Rows]:
    """Return the distinct labels of merged slices, and the place of each slice's label in them."""
    leading = np.zeros(len(coarse), np.int32)
    is_first = top.position == 0
    leading[top.owner[is_first]] = top.name[is_first]
    distinct, which = distinct_pairs(coarse.count[merged], leading[merged].astype(np.int64))
    counts, names = distinct[:, 0].tolist(), strings.texts(distinct[:, 1])
    return [f"{count} {noun}: {name}" for count, name in zip(counts, names, strict=True)], which


def _sum_args(coarse: Coarse, merged: Bool) -> tuple[Arg, Arg]:
    return (
        Arg("count", ArgKind.INTEGER, coarse.count, merged, of_several=True),
        Arg("busy_ns", ArgKind.INTEGER, coarse.busy_ns, merged, of_several=True),
    )


def _top_args(coarse: Coarse, top: _TopNames) -> list[Arg]:
    args = []
    for position in range(TOP_NAMES):
        here = top.position == position
        owner = top.owner[here]
        name, percent = np.zeros(len(coarse), np.int32), np.zeros(len(coarse), np.int32)
        present = np.zeros(len(coarse), np.bool_)
        name[owner], percent[owner], present[owner] = top.name[here], top.percent[here], True
        number = position + 1
        args.append(Arg(f"top_{number}", ArgKind.NAME, name, present, of_several=True))
        args.append(
            Arg(f"top_{number}_percent", ArgKind.INTEGER, percent, present, of_several=True)
        )
    return args
