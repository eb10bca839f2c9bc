"""Merged slices as they are drawn: names, sums, and what took most of their time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from timeline.columns.columns import Bool, Codes, Int64, Rows
from timeline.columns.distinct import distinct_pairs
from timeline.columns.strings import ExtendedPool, StringPool
from timeline.frozen import dataclass
from timeline.layers import NOUNS
from timeline.tracks.model import MERGED, Arg, ArgKind, Arrows, Coarse, Slices, Track

try:
    from timeline.fitting._merging import leading
except ImportError:
    leading = None  # type: ignore[assignment]

__all__ = ["count_labels", "draw_coarse"]

TOP_NAMES = 3
"""How many names a merged slice tells."""
PERCENT = 100


def draw_coarse(coarse: Coarse, slices: Slices) -> Slices:
    """The slices of a track at the resolution of `coarse`.

    An exact slice keeps its name, args and arrows. A merged one is called "37 tasks: MatMul"
    after the name that took most of its time, and has the args count, busy_ns (the summed length
    of all its slices) and its top names with their share of that in percent. Those labels are in
    a pool of its own: tracks that share one may be drawn at once.
    """
    if len(coarse) == len(slices):
        return slices
    merged = coarse.row == MERGED
    exact = np.flatnonzero(~merged)
    rows = coarse.row[exact]
    top = _TopNames.of(coarse)
    name = np.empty(len(coarse), np.int32)
    name[exact] = slices.name[rows]
    read, *_ = slices.strings.extended()  # labels of before are drawn no more
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


def count_labels(tracks: Iterable[Track]) -> int:
    """How many distinct labels the merged slices of each track have."""
    pools = [track.content.strings for track in tracks if isinstance(track.content, Slices)]
    return sum(len(further) for _, _, further in (pool.extended() for pool in pools))


def _spread_arg(arg: Arg, exact: Rows, rows: Int64, count: int) -> Arg:
    """An arg of the exact slices, absent on merged ones."""
    values = np.zeros(count, arg.values.dtype)
    present = np.zeros(count, np.bool_)
    values[exact], present[exact] = arg.values[rows], arg.present[rows]
    return replace(arg, values=values, present=present)


def _arrows(arrows: Arrows, exact: Rows, rows: Int64, before: int) -> Arrows:
    """The arrows whose slice is still drawn."""
    position = np.full(before, -1, np.int64)
    position[rows] = exact
    moved = position[arrows.slice]
    order = np.argsort(moved, kind="stable")
    order = order[moved[order] >= 0]
    return Arrows(moved[order], arrows.arrow[order])


@dataclass(frozen=True)
class _TopNames:
    """The leading names of merged elements by time: of which element, and the how manyth of it.

    percent: of the time of the element; position: 0 for the name that took most.
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
    """Which names lead those of each owner, and at which position."""
    if leading is not None:
        owner, count, busy_ns = coarse.owner, coarse.name_count, coarse.name_busy_ns
        number, *made = leading(owner.tobytes(), count.tobytes(), busy_ns.tobytes(), TOP_NAMES)
        row, position = (np.frombuffer(one, np.int64, number) for one in made)
        return row, position
    rows, positions = [], []
    # All names are sorted by owner: to find the leading ones is faster than to sort on.
    left = np.arange(len(coarse.owner))
    for number in range(TOP_NAMES):
        found = _leading(coarse, left)
        rows.append(left[found])
        positions.append(np.full(len(found), number))
        left = np.delete(left, found)
    return np.concatenate(rows), np.concatenate(positions)


def _leading(coarse: Coarse, rows: Rows) -> Rows:
    """Which of some names took most time of each owner's, or of those the most often."""
    owner = coarse.owner[rows]
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    count = np.diff(np.append(first, len(rows)))
    most = np.ones(len(rows), np.bool_)
    for values in (coarse.name_busy_ns[rows], coarse.name_count[rows]):
        reached = np.where(most, values, -1)
        most &= reached == np.repeat(np.maximum.reduceat(reached, first), count)
    found = np.flatnonzero(most)
    return found[np.diff(owner[found], prepend=-1) > 0]


def _labels(
    coarse: Coarse, top: _TopNames, merged: Bool, noun: str, strings: StringPool
) -> tuple[list[str], Rows]:
    """The distinct labels of merged slices, and which of them each has."""
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
    made = []
    for position in range(TOP_NAMES):
        here = top.position == position
        owner = top.owner[here]
        name, percent = np.zeros(len(coarse), np.int32), np.zeros(len(coarse), np.int32)
        present = np.zeros(len(coarse), np.bool_)
        name[owner], percent[owner], present[owner] = top.name[here], top.percent[here], True
        number = position + 1
        made.append(Arg(f"top_{number}", ArgKind.NAME, name, present, of_several=True))
        made.append(
            Arg(f"top_{number}_percent", ArgKind.INTEGER, percent, present, of_several=True)
        )
    return made
