"""Args of the pieces of a rank's time: their rank, step, share of the step, and collective."""

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
"""Pieces with a smaller share, in tenths of a percent, get no args."""
_WHOLE_PERCENT = 100
_TENTHS_TWICE = 2000
"""Twice the number of tenths of a percent in a whole, for rounding half up in integers."""
_NO_ROW = -1


@dataclass(frozen=True)
class StepPeriods:
    """The periods of the steps of a rank, ascending by start_ns; all columns are (n,)."""

    iteration: Int64
    start_ns: Int64
    end_ns: Int64

    def rows_at(self, moments_ns: Int64) -> Rows:
        """Return the step that began last before each moment if it still runs then, else -1."""
        row = np.searchsorted(self.start_ns, moments_ns, side="right") - 1
        return np.where(moments_ns < np.append(self.end_ns, 0)[row], row, _NO_ROW)


def step_periods(facts: RankFacts) -> StepPeriods:
    """Return the periods of the steps of a rank."""
    start_ns, end_ns = facts.recorded.begin_ns, facts.recorded.end_ns
    order = np.lexsort((end_ns, start_ns))
    return StepPeriods(facts.steps.iteration[order], start_ns[order], end_ns[order])


def with_piece_args(tracks: Sequence[Track], facts: RankFacts) -> tuple[Track, ...]:
    """Add to the pieces of a rank's time the args rank, step, and their share of the step.

    Pieces of the partition also get the collective in which the rank waits or transfers. The share
    is that of the step in which a piece begins, up to the end of the step; between steps, only the
    rank is given. Pieces of less than a percent of the step, or between steps of the whole time,
    get no args: nearly all pieces are that short, and the args would take more bytes than the
    pieces.
    """
    steps = step_periods(facts)
    with_args = []
    for track in tracks:
        content = track.content
        if isinstance(content, Slices) and content.kind in _KINDS and len(content):
            args = _args(content, facts, steps)
            with_args.append(replace(track, content=replace(content, args=(*content.args, *args))))
        else:
            with_args.append(track)
    return tuple(with_args)


def _args(slices: Slices, facts: RankFacts, steps: StepPeriods) -> list[Arg]:
    pieces = _Pieces.that_may_tell(slices, steps)
    step = steps.rows_at(pieces.start_ns)
    tenths = _tenths(pieces, steps, step)
    tells = tenths >= _LEAST_TENTHS
    pieces, step, tenths = pieces.where(tells), step[tells], tenths[tells]
    if not len(pieces):
        return []
    args = []
    if slices.kind is SliceKind.PARTITION:
        op = _ops(pieces, slices, facts.collectives)
        args.append(pieces.arg("op", ArgKind.NAME, op, op != NO_NAME))
    rank = constant(facts.rank, len(pieces), np.int64)
    args.append(pieces.arg("rank", ArgKind.INTEGER, rank))
    in_step = step != _NO_ROW
    if in_step.any():
        distinct, which = distinct_values(tenths)
        share = slices.strings.codes(map(spell_tenths, distinct.tolist()))[which]
        args += [
            pieces.arg("iteration", ArgKind.INTEGER, steps.iteration[step], in_step),
            pieces.arg("share_of_step", ArgKind.NAME, share, in_step),
        ]
    return [arg for arg in args if arg.present.any()]


@dataclass(frozen=True)
class _Pieces:
    """Some slices of a track: their rows (k,), start and end, and the row count and span of all."""

    row: Rows
    rows: int
    start_ns: Int64
    end_ns: Int64
    span_ns: tuple[int, int]

    @classmethod
    def that_may_tell(cls, slices: Slices, steps: StepPeriods) -> _Pieces:
        """Take the slices that are not merged and long enough to matter for the shortest step."""
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
        """Take the pieces for which the mask holds."""
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
        """Return an arg of all slices from values (k,) of these, absent where `given` is False."""
        column = np.zeros(self.rows, values.dtype)
        column[self.row] = values
        present = np.zeros(self.rows, np.bool_)
        present[self.row] = True if given is None else given
        return Arg(name, kind, column, present)


def _tenths(pieces: _Pieces, steps: StepPeriods, step: Rows) -> Int64:
    """Return the share of its step that each piece takes, in tenths of a percent.

    Between steps, the share is that of the time of all slices. Shares have two significant digits,
    so those from ten percent on are whole percents.
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
    """Return the collective in which each piece of exposed communication begins, else NO_NAME.

    If several run at once, it is the one that began first, for which waiting is counted too.
    """
    ops, strings = collectives.ops, slices.strings
    communicates = map_values(slices.name[pieces.row], partial(_are_communication, strings))
    op_names = np.full(len(pieces), NO_NAME, np.int32)
    if not len(ops) or not communicates.any():
        return op_names
    order = np.argsort(ops.start_ns, kind="stable")
    reach_ns = np.maximum.accumulate(ops.end_ns[order])
    at_ns = pieces.start_ns[communicates]
    position = np.searchsorted(reach_ns, at_ns, side="right")
    row = order[np.minimum(position, len(order) - 1)]
    goes_on = (position < len(order)) & (ops.start_ns[row] <= at_ns)
    op_names[communicates] = np.where(
        goes_on, strings.codes(collectives.strings)[ops.name[row]], NO_NAME
    )
    return op_names


def _are_communication(strings: StringPool, codes: Codes) -> Bool:
    names = (strings[code] for code in codes.tolist())
    meant = (EXPOSED, TRANSFER)
    matches = (name in meant or name.startswith((WAITING_FOR, DELAYED_BY)) for name in names)
    return np.fromiter(matches, np.bool_, len(codes))
