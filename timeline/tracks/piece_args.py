"""Args of the pieces that the time of a rank is parted into: of whom, in which step, how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.collectives import RankCollectives
from timeline.columns.columns import Bool, Codes, Int64, Rows
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct_values, map_values
from timeline.columns.strings import NO_NAME, StringPool
from timeline.layers import SliceKind
from timeline.tracks.model import MERGED, Arg, ArgKind, Slices, Track
from timeline.tracks.partition import DELAYED_BY, EXPOSED, TRANSFER, WAITING_FOR
from timeline.units import spell_tenths

_KINDS = frozenset({SliceKind.OVERLAP, SliceKind.PARTITION})
_LEAST_TENTHS = 10
"""Pieces of a smaller share, in tenths of a percent, tell nothing."""
_WHOLE_PERCENT = 100
_TENTHS_TWICE = 2000
"""Twice the tenths of a percent that there are, so that half of one is whole."""
_NO_ROW = -1


@dataclass(frozen=True)
class StepPeriods:
    """The periods of the steps of a rank, ascending by start_ns; all columns are (n,)."""

    iteration: Int64
    start_ns: Int64
    end_ns: Int64

    def rows_at(self, moments_ns: Int64) -> Rows:
        """The step that began last before each moment, if it still ran; else -1."""
        row = np.searchsorted(self.start_ns, moments_ns, side="right") - 1
        return np.where(moments_ns < np.append(self.end_ns, 0)[row], row, _NO_ROW)


def step_periods(facts: RankFacts) -> StepPeriods:
    """Return the periods of the steps of a rank."""
    start_ns, end_ns = facts.recorded.begin_ns, facts.recorded.end_ns
    order = np.lexsort((end_ns, start_ns))
    return StepPeriods(facts.steps.iteration[order], start_ns[order], end_ns[order])


def with_piece_args(tracks: Sequence[Track], facts: RankFacts) -> tuple[Track, ...]:
    """The rows of a rank, whose pieces of time tell the rank, the step and their share of it.

    Of the partition they also tell the collective in which the rank waits or transfers. A share is
    that of the step in which a piece begins, up to the end of the step; between steps, nothing is
    said but the rank. Pieces of less than a percent of the step, or of all time between steps, have
    no such args: nearly all are so short, and what they would tell takes more bytes than they do.
    """
    steps = step_periods(facts)
    made = []
    for track in tracks:
        content = track.content
        if isinstance(content, Slices) and content.kind in _KINDS and len(content):
            args = _args(content, facts, steps)
            made.append(replace(track, content=replace(content, args=(*content.args, *args))))
        else:
            made.append(track)
    return tuple(made)


def _args(slices: Slices, facts: RankFacts, steps: StepPeriods) -> list[Arg]:
    pieces = _Pieces.that_may_tell(slices, steps)
    step = steps.rows_at(pieces.start_ns)
    tenths = _tenths(pieces, steps, step)
    tells = tenths >= _LEAST_TENTHS
    pieces, step, tenths = pieces.where(tells), step[tells], tenths[tells]
    if not len(pieces):
        return []
    made = []
    if slices.kind is SliceKind.PARTITION:
        op = _ops(pieces, slices, facts.collectives)
        made.append(pieces.arg("op", ArgKind.NAME, op, op != NO_NAME))
    rank = constant(facts.rank, len(pieces), np.int64)
    made.append(pieces.arg("rank", ArgKind.INTEGER, rank))
    in_step = step != _NO_ROW
    if in_step.any():
        distinct, which = distinct_values(tenths)
        share = slices.strings.codes(map(spell_tenths, distinct.tolist()))[which]
        made += [
            pieces.arg("iteration", ArgKind.INTEGER, steps.iteration[step], in_step),
            pieces.arg("share_of_step", ArgKind.NAME, share, in_step),
        ]
    return [arg for arg in made if arg.present.any()]


@dataclass(frozen=True)
class _Pieces:
    """Some slices of a track: their rows (k,) of so many, start and end, and those of all."""

    row: Rows
    rows: int
    start_ns: Int64
    end_ns: Int64
    span_ns: tuple[int, int]

    @classmethod
    def that_may_tell(cls, slices: Slices, steps: StepPeriods) -> _Pieces:
        """Those that are not merged and long enough for the shortest step, which few are."""
        first_ns, last_ns = int(slices.start_ns.min()), int(slices.end_ns.max())
        shortest_ns = int((steps.end_ns - steps.start_ns).min(initial=last_ns - first_ns))
        length_ns = slices.end_ns - slices.start_ns
        may_tell = length_ns >= max(shortest_ns, 1) * (2 * _LEAST_TENTHS - 1) // _TENTHS_TWICE
        if slices.coarse is not None:
            may_tell &= slices.coarse.row != MERGED
        row = np.flatnonzero(may_tell)
        start_ns, end_ns = slices.start_ns[row], slices.end_ns[row]
        return cls(row, len(slices), start_ns, end_ns, (first_ns, last_ns))

    def __len__(self) -> int:
        return len(self.row)

    def where(self, holds: Bool) -> _Pieces:
        """Those for which something holds."""
        return replace(
            self,
            row=self.row[holds],
            start_ns=self.start_ns[holds],
            end_ns=self.end_ns[holds],
        )

    def arg(
        self,
        name: str,
        kind: ArgKind,
        values: Int64 | Codes,
        given: Bool | None = None,
    ) -> Arg:
        """An arg (k,) of these slices, or of those to which it is given."""
        column = np.zeros(self.rows, values.dtype)
        column[self.row] = values
        present = np.zeros(self.rows, np.bool_)
        present[self.row] = True if given is None else given
        return Arg(name, kind, column, present)


def _tenths(pieces: _Pieces, steps: StepPeriods, step: Rows) -> Int64:
    """Tenths of a percent of its step that each piece takes; between steps, of all slices.

    Two digits count, so larger ones are whole percents.
    """
    in_step = step != _NO_ROW
    first_ns, last_ns = pieces.span_ns
    from_ns = np.where(in_step, np.append(steps.start_ns, first_ns)[step], first_ns)
    until_ns = np.where(in_step, np.append(steps.end_ns, last_ns)[step], last_ns)
    length_ns = np.minimum(pieces.end_ns, until_ns) - pieces.start_ns
    whole_ns = np.maximum(until_ns - from_ns, 1)
    tenths: Int64 = (_TENTHS_TWICE * length_ns + whole_ns) // (2 * whole_ns)
    percent = (_TENTHS_TWICE // 10 * length_ns + whole_ns) // (2 * whole_ns)
    return np.where(tenths < _WHOLE_PERCENT, tenths, 10 * percent)


def _ops(pieces: _Pieces, slices: Slices, collectives: RankCollectives) -> Codes:
    """The collective in which each piece of exposed communication begins, NO_NAME for others.

    Where several go on, it is the one that began first, for which waiting is counted too.
    """
    ops, strings = collectives.ops, slices.strings
    communicates = map_values(slices.name[pieces.row], partial(_are_communication, strings))
    found = np.full(len(pieces), NO_NAME, np.int32)
    if not len(ops) or not communicates.any():
        return found
    order = np.argsort(ops.start_ns, kind="stable")
    reach_ns = np.maximum.accumulate(ops.end_ns[order])
    at_ns = pieces.start_ns[communicates]
    position = np.searchsorted(reach_ns, at_ns, side="right")
    row = order[np.minimum(position, len(order) - 1)]
    goes_on = (position < len(order)) & (ops.start_ns[row] <= at_ns)
    found[communicates] = np.where(
        goes_on, strings.codes(collectives.strings)[ops.name[row]], NO_NAME
    )
    return found


def _are_communication(strings: StringPool, codes: Codes) -> Bool:
    names = (strings[code] for code in codes.tolist())
    meant = (EXPOSED, TRANSFER)
    told = (name in meant or name.startswith((WAITING_FOR, DELAYED_BY)) for name in names)
    return np.fromiter(told, np.bool_, len(codes))
