"""Turns gathered slices into slices that can be drawn: named by what dominates, with their sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.distinct import distinct_pairs
from timeline.columns.spill import kept
from timeline.columns.strings import StringPool
from timeline.tracks.model import GATHERED, Arg, ArgKind, Arrows, Coarse, Schema, Slices

__all__ = ["drawn"]

TOP_NAMES = 3
"""How many names a gathered slice tells."""
PERCENT = 100
NOUNS = {
    Schema.STEP: "steps",
    Schema.OVERLAP: "pieces",
    Schema.TASK: "tasks",
    Schema.HCCL_TASK: "tasks",
    Schema.COMMUNICATION_OP: "ops",
    Schema.HOST_CALL: "calls",
    Schema.SCOPE: "scopes",
    Schema.NOTE: "notes",
}


def drawn(coarse: Coarse, slices: Slices) -> Slices:
    """The slices of a track at the resolution of `coarse`.

    An exact slice keeps its name, args and arrows. A gathered one is called "37 tasks: MatMul"
    after the name that took most of its time, and has the args count, busy_ns (the summed length
    of all its slices) and its top names with their share of that in percent.
    """
    if len(coarse) == len(slices):
        return slices
    gathered = coarse.row == GATHERED
    exact = np.flatnonzero(~gathered)
    rows = coarse.row[exact]
    top = _Top.of(coarse)
    name = np.empty(len(coarse), np.int32)
    name[exact] = slices.name[rows]
    name[gathered] = _labels(coarse, top, gathered, slices)
    spread = tuple(
        _spread(arg, exact, rows, len(coarse)) for arg in slices.args if not arg.of_several
    )
    return replace(
        slices,
        start_ns=coarse.start_ns,
        end_ns=coarse.end_ns,
        name=name,
        args=(*spread, *_sums(coarse, gathered), *_tops(coarse, top)),
        arrows=_arrows(slices.arrows, exact, rows, len(slices)),
        coarse=replace(coarse, row=kept(np.where(gathered, GATHERED, np.arange(len(coarse))))),
    )


def _spread(arg: Arg, exact: Rows, rows: Int64, count: int) -> Arg:
    """An arg of the exact slices, absent on gathered ones."""
    values = np.zeros(count, arg.values.dtype)
    present = np.zeros(count, np.bool_)
    values[exact], present[exact] = arg.values[rows], arg.present[rows]
    return replace(arg, values=values, present=present)


def _arrows(arrows: Arrows, exact: Rows, rows: Int64, before: int) -> Arrows:
    """The arrows whose slice is still drawn."""
    place = np.full(before, -1, np.int64)
    place[rows] = exact
    moved = place[arrows.slice]
    order = np.argsort(moved, kind="stable")
    order = order[moved[order] >= 0]
    return Arrows(moved[order], arrows.arrow[order])


@dataclass(frozen=True)
class _Top:
    """The names of gathered elements by time spent: name, share and place, and whose they are."""

    owner: Int64
    name: Codes
    share: Int64
    place: Int64

    @classmethod
    def of(cls, coarse: Coarse) -> _Top:
        rows, places = [], []
        # All names are sorted by owner: to find the leading ones is faster than to sort on.
        left = np.arange(len(coarse.owner))
        for place in range(TOP_NAMES):
            leading = _leading(coarse, left)
            rows.append(left[leading])
            places.append(np.full(len(leading), place))
            left = np.delete(left, leading)
        row = np.concatenate(rows)
        owner = coarse.owner[row]
        whole = np.maximum(coarse.busy_ns[owner], 1)
        share = coarse.name_busy_ns[row] * PERCENT // whole
        return cls(owner, coarse.name[row], share, np.concatenate(places))


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


def _labels(coarse: Coarse, top: _Top, gathered: np.ndarray, slices: Slices) -> Codes:
    leading = np.zeros(len(coarse), np.int32)
    is_first = top.place == 0
    leading[top.owner[is_first]] = top.name[is_first]
    noun = NOUNS[slices.schema]
    distinct, which = distinct_pairs(coarse.count[gathered], leading[gathered].astype(np.int64))
    strings: StringPool = slices.strings
    labels = strings.codes(f"{count} {noun}: {strings[code]}" for count, code in distinct.tolist())
    return labels[which]


def _sums(coarse: Coarse, gathered: np.ndarray) -> tuple[Arg, Arg]:
    return (
        Arg("count", ArgKind.INTEGER, coarse.count, gathered, of_several=True),
        Arg("busy_ns", ArgKind.INTEGER, coarse.busy_ns, gathered, of_several=True),
    )


def _tops(coarse: Coarse, top: _Top) -> list[Arg]:
    made = []
    for place in range(TOP_NAMES):
        here = top.place == place
        owner = top.owner[here]
        name, share = np.zeros(len(coarse), np.int32), np.zeros(len(coarse), np.int32)
        present = np.zeros(len(coarse), np.bool_)
        name[owner], share[owner], present[owner] = top.name[here], top.share[here], True
        number = place + 1
        made.append(Arg(f"top_{number}", ArgKind.NAME, name, present, of_several=True))
        made.append(Arg(f"top_{number}_percent", ArgKind.INTEGER, share, present, of_several=True))
    return made
