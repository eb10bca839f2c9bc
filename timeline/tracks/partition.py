"""The partition of a rank's time: a row of computing, exposed communication, copies and idle.

It is drawn with the rank, before waits between ranks are known. `with_waits` then splits exposed
communication into waiting and transfer, and `with_piece_args` adds args to the pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from timeline.analysis.idle.idle_sums import CAUSES, IdleParts
from timeline.analysis.overlap import Overlap
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.collectives import RankCollectives
from timeline.analysis.waits.exposed_waiting import delayed_until
from timeline.analysis.waits.waiting import Waits
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct, distinct_pairs, distinct_values, map_values
from timeline.columns.group_by import sum_by
from timeline.columns.intervals import IntervalSet, cut_at, first_open_at, open_at
from timeline.columns.strings import NO_NAME, StringPool
from timeline.layers import SliceKind
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.selection import why_unread
from timeline.tracks import descriptions
from timeline.tracks.model import MERGED, Arg, ArgKind, Coarse, Slices, Track, no_arrows
from timeline.tracks.painter import Painter, SliceTable, names
from timeline.units import format_short, format_tenths

PARTITION = "Where time goes"
"""Name of the row if rows are grouped by layer; otherwise it is the rank's own row."""
COMPUTING, EXPOSED, COPIES, IDLE = "Computing", "Exposed communication", "Copies", "Idle"
COMMUNICATION, TRANSFER = "Communication", "Transfer"
WAITING_FOR = "Waiting for"
_FIRST = -1
"""Order of the row, which places it before all layers."""


def is_partition(track: Track) -> bool:
    """Return whether the row is the partition of a rank's time."""
    content = track.content
    return isinstance(content, Slices) and content.kind is SliceKind.PARTITION


def paint_partition(
    painter: Painter, overlap: Overlap, idle: IdleParts | None, *, computes: bool = True
) -> None:
    """Draw how the time of a rank was spent, from its first to its last activity.

    The slices are disjoint. Slices of one name add up to the time of that name in the overlap
    analysis, or of that cause of idle time.

    idle: idle time by cause, None if causes were not requested. computes: False if computing is not
    recorded; then only communication is drawn.
    """
    has_causes, strings = idle is not None and idle.has_causes, painter.strings
    whole = (
        (COMPUTING, overlap.computing),
        (EXPOSED, overlap.not_overlapped),
        (COPIES, overlap.copies),
        *(() if has_causes else ((IDLE, overlap.idle),)),
    )
    if not computes:
        has_causes, whole = False, ((COMMUNICATION, overlap.communication),)
    parts = [
        _Parts(
            spans.start_ns,
            spans.end_ns,
            constant(strings.code(name), len(spans), np.int32),
            constant(NO_NAME, len(spans), np.int32),
        )
        for name, spans in whole
    ]
    if idle is not None and has_causes:
        labels = strings.codes(f"{IDLE}: {cause.words}" for cause in CAUSES)
        parts.append(_Parts(idle.start_ns, idle.end_ns, labels[idle.cause], idle.call))
    every = _Parts.concat(parts)
    every = every.take(np.argsort(every.start_ns, kind="stable"))
    painter.add_flat_row(
        PARTITION,
        None,
        _FIRST,
        SliceTable(
            every.start_ns,
            every.end_ns,
            every.name,
            SliceKind.PARTITION,
            [names("call", every.call)],
        ),
        descriptions.PARTITION,
    )


def with_sums(row: Track) -> tuple[Track, ...]:
    """Add a row below a rank that has none, since the UI hides such ranks: one slice with sums."""
    slices = row.content
    assert isinstance(slices, Slices)
    length_ns = sum_by(slices.name, slices.end_ns - slices.start_ns, len(slices.strings))
    longest = np.argsort(-length_ns, kind="stable")[: np.count_nonzero(length_ns)]
    label = ", ".join(
        f"{slices.strings[code]} {format_short(int(length_ns[code]))}" for code in longest.tolist()
    )
    drawn = SliceTable(
        slices.start_ns[:1], slices.end_ns[-1:], slices.strings.codes([label]), SliceKind.NOTE
    )
    painter = Painter([row], slices.strings, row.rank)
    painter.add_flat_row("In total", row.id, 0, drawn, descriptions.SUMS_OF_RANK)
    return tuple(painter.tracks)


class _Parts(ColumnTable):
    """Parts of a rank's time; call: the host call that takes most of an idle part, or NO_NAME."""

    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    call: Codes = column(np.int32)


def with_waits(
    tracks: Sequence[Track], collectives: RankCollectives, waits: Waits, on_disk: frozenset[int]
) -> list[Track]:
    """Split exposed communication in the rows of a rank into waiting and transfer.

    If one op waits while another transfers, the time counts as waiting, as in the figures; if two
    wait, it belongs to the one that began first. The part of a transfer that is exposed only
    because the op waited while the device computed counts as waiting too. Merged slices are not
    split.

    Args:
        waits: the waits of the rank.
        on_disk: all ranks of the profile, selected or not.
    """
    replaced = list(tracks)
    for at, track in enumerate(tracks):
        content = track.content
        if isinstance(content, Slices) and is_partition(track):
            split = _split_exposed(content, collectives, waits, on_disk)
            replaced[at] = replace(track, content=split)
    return replaced


def wait_labels(waits: Waits, on_disk: frozenset[int], strings: StringPool) -> Codes:
    """Return the labels of waits, which name the rank that came last.

    on_disk: all ranks of the profile, selected or not.
    """
    pairs, which = distinct_pairs(waits.last_rank, waits.last_profiled.astype(np.int64))
    return strings.codes(
        wait_label(last, "" if is_read else f" ({why_unread(last, on_disk)})")
        for last, is_read in pairs.tolist()
    )[which]


def wait_label(last_rank: int, remark: str = "") -> str:
    """Return the label of a wait for a rank; remark: why that was not read, if so."""
    last = "another rank" if last_rank == NO_ID else f"rank {last_rank}{remark}"
    return f"{WAITING_FOR} {last}"


def _split_exposed(
    slices: Slices, collectives: RankCollectives, waits: Waits, on_disk: frozenset[int]
) -> Slices:
    ops, strings = collectives.ops, slices.strings
    is_exposed = slices.name == strings.code(EXPOSED)
    if not is_exposed.any() or not len(waits):
        return slices
    start_ns, end_ns = ops.start_ns[waits.row], ops.end_ns[waits.row]
    exposed = np.flatnonzero(is_exposed)
    spans = IntervalSet(slices.start_ns[exposed], slices.end_ns[exposed])
    came_ns, until_ns = delayed_until(spans, start_ns, end_ns, waits)
    measured = waits.transfer_ns != NO_TIME
    edges_ns = distinct(np.concatenate([start_ns, came_ns, until_ns, end_ns[measured]]))
    owner, begin_ns, stop_ns = cut_at(spans.start_ns, spans.end_ns, edges_ns)
    transfers = first_open_at(begin_ns, came_ns[measured], end_ns[measured]) >= 0
    name = np.where(transfers, strings.code(TRANSFER), strings.code(EXPOSED))
    labels = wait_labels(waits, on_disk, strings)
    for from_ns, to_ns in ((came_ns, until_ns), (start_ns, came_ns)):
        wait = first_open_at(begin_ns, from_ns, to_ns)
        name = np.where(wait >= 0, labels[wait], name)
    goes_on = (owner[1:] == owner[:-1]) & (name[1:] == name[:-1])
    first = np.flatnonzero(np.append(True, ~goes_on))
    last = np.append(first[1:], len(owner)) - 1
    rest = np.flatnonzero(~is_exposed)
    rows = np.concatenate([rest, exposed[owner[first]]])
    start_ns = np.concatenate([slices.start_ns[rest], begin_ns[first]])
    order = np.argsort(start_ns, kind="stable")
    split = replace(
        slices.take(rows[order], no_arrows()),
        start_ns=start_ns[order],
        end_ns=np.concatenate([slices.end_ns[rest], stop_ns[last]])[order],
        name=np.concatenate([slices.name[rest], name[first].astype(np.int32)])[order],
    )
    if slices.coarse is None:
        return split
    return replace(split, coarse=_coarse_of(split, slices.coarse, rows[order]))


def _coarse_of(split: Slices, coarse: Coarse, row: Rows) -> Coarse:
    """Return the `coarse` of split slices: merged slices are unchanged, pieces are single ones.

    row: (n,) the original slice of each piece.
    """
    merged = coarse.row[row] == MERGED
    count = len(row)
    now_at = np.zeros(len(coarse), np.int64)
    now_at[row] = np.arange(count)
    return replace(
        coarse,
        start_ns=split.start_ns,
        end_ns=split.end_ns,
        row=np.where(merged, MERGED, np.arange(count)),
        count=coarse.count[row],
        busy_ns=np.where(merged, coarse.busy_ns[row], split.end_ns - split.start_ns),
        owner=now_at[coarse.owner],
    )


_KINDS = frozenset({SliceKind.OVERLAP, SliceKind.PARTITION})
_LEAST_TENTHS = 10
"""Share, in tenths of a percent, below which pieces get no args."""
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

    def rows_at(self, times_ns: Int64) -> Rows:
        """Return the step that began last before each time if it still runs then, else -1."""
        return open_at(times_ns, self.start_ns, self.end_ns)


def step_periods(facts: RankFacts) -> StepPeriods:
    """Return the periods of the steps of a rank."""
    start_ns, end_ns = facts.recorded.begin_ns, facts.recorded.end_ns
    order = np.lexsort((end_ns, start_ns))
    return StepPeriods(facts.steps.iteration[order], start_ns[order], end_ns[order])


def with_piece_args(tracks: Sequence[Track], facts: RankFacts) -> tuple[Track, ...]:
    """Add the args rank, step and share of the step to the long pieces of a rank's time.

    Pieces of the partition also get the collective in which the rank waits or transfers. The share
    is that of the step in which a piece begins, up to the end of the step; pieces between steps get
    only the rank. Pieces of less than one percent of their step (between steps: of the whole time)
    get no args: nearly all pieces are that short, and args would take more bytes than they do.
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
    pieces = _Pieces.long_enough(slices, steps)
    step = steps.rows_at(pieces.start_ns)
    tenths = _tenths(pieces, steps, step)
    is_long = tenths >= _LEAST_TENTHS
    pieces, step, tenths = pieces.where(is_long), step[is_long], tenths[is_long]
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
        shares, which = distinct_values(tenths)
        share = slices.strings.codes(map(format_tenths, shares.tolist()))[which]
        args += [
            pieces.arg("iteration", ArgKind.INTEGER, steps.iteration[step], in_step),
            pieces.arg("share_of_step", ArgKind.NAME, share, in_step),
        ]
    return [arg for arg in args if arg.present.any()]


@dataclass(frozen=True)
class _Pieces:
    """Some slices of a track: their rows, start and end, (k,).

    rows: number of all slices of the track. span_ns: start and end of all of them.
    """

    row: Rows
    rows: int
    start_ns: Int64
    end_ns: Int64
    span_ns: tuple[int, int]

    @classmethod
    def long_enough(cls, slices: Slices, steps: StepPeriods) -> _Pieces:
        """Select unmerged slices that have _LEAST_TENTHS of the shortest step at least."""
        first_ns, last_ns = int(slices.start_ns.min()), int(slices.end_ns.max())
        shortest_ns = int((steps.end_ns - steps.start_ns).min(initial=last_ns - first_ns))
        length_ns = slices.end_ns - slices.start_ns
        is_long = length_ns >= max(shortest_ns, 1) * (2 * _LEAST_TENTHS - 1) // _TENTHS_TWICE
        if slices.coarse is not None:
            is_long &= slices.coarse.row != MERGED
        row = np.flatnonzero(is_long)
        start_ns, end_ns = slices.start_ns[row], slices.end_ns[row]
        return cls(row, len(slices), start_ns, end_ns, (first_ns, last_ns))

    def __len__(self) -> int:
        return len(self.row)

    def where(self, holds: Bool) -> _Pieces:
        """Select pieces by a mask."""
        return replace(
            self, row=self.row[holds], start_ns=self.start_ns[holds], end_ns=self.end_ns[holds]
        )

    def arg(self, name: str, kind: ArgKind, values: Int64 | Codes, has: Bool | None = None) -> Arg:
        """Return an arg of all slices, with values (k,) on these pieces, or on those in `has`."""
        column = np.zeros(self.rows, values.dtype)
        column[self.row] = values
        present = np.zeros(self.rows, np.bool_)
        present[self.row] = True if has is None else has
        return Arg(name, kind, column, present)


def _tenths(pieces: _Pieces, steps: StepPeriods, step: Rows) -> Int64:
    """Return the share of its step that each piece takes, in tenths of a percent.

    Between steps, it is the share of the time of all slices. Shares from ten percent on are whole
    percents.
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

    If several run at once, it is the one that began first, to which waiting is attributed too.
    """
    ops, strings = collectives.ops, slices.strings
    communicates = map_values(slices.name[pieces.row], partial(_are_communication, strings))
    op_names = np.full(len(pieces), NO_NAME, np.int32)
    if not len(ops) or not communicates.any():
        return op_names
    row = first_open_at(pieces.start_ns[communicates], ops.start_ns, ops.end_ns)
    named = strings.codes(collectives.strings)[ops.name[row]]
    op_names[communicates] = np.where(row >= 0, named, NO_NAME)
    return op_names


def _are_communication(strings: StringPool, codes: Codes) -> Bool:
    labels = (strings[code] for code in codes.tolist())
    names = (EXPOSED, TRANSFER)
    matches = (label in names or label.startswith(WAITING_FOR) for label in labels)
    return np.fromiter(matches, np.bool_, len(codes))
