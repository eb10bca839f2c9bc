"""Draws the waiting between ranks: in partitions, rows of waits, args of collectives, arrows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.waits.collectives import RankCollectives
from timeline.analysis.waits.exposed_waiting import Lateness
from timeline.analysis.waits.pipeline import Pairs
from timeline.analysis.waits.waiting import Waiting, Waits
from timeline.columns.columns import Bool, ColumnTable, Int64, column
from timeline.columns.distinct import distinct, distinct_values
from timeline.layers import Category, Layer, SliceKind, spec_of
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks import descriptions
from timeline.tracks.model import Arg, ArgKind, Samples, Slices, Track
from timeline.tracks.painter import Painter, SliceTable, integers, names
from timeline.tracks.partition import IDLE, wait_label, wait_labels, with_waits
from timeline.tracks.rank_tracks import RankTracks

WAITING, LATE = "Waiting", "Late by"
MOST_ARROWS = 2000
"""Maximum number of arrows between ranks, at the longest waits: more would be unreadable."""
_LOST_OP_REASON = "arrows between ranks with an end that is merged or left out"
_ORDER, _ORDER_OF_LATE = 6, 7
"""Orders after those of the overlap analysis and of the parts of free time."""


@dataclass(frozen=True)
class _DrawnOps:
    """The slices of one rank's collectives: (n,) track and index in it, -1 if not drawn."""

    track: Int64
    slice: Int64


def with_waiting(
    ranks: list[RankTracks],
    collectives: Sequence[RankCollectives],
    waiting: Waiting,
    *,
    late: Sequence[Lateness] = (),
    arrows: bool,
    on_disk: frozenset[int] = frozenset(),
    finish: Callable[[int, RankTracks], RankTracks] = lambda _, rank: rank,
) -> None:
    """Draw the waiting of collectives into the rows of all ranks.

    Arrows connect each wait with what the last rank did most of that time. Others lead from the op
    that waits to the op of the last rank, since Perfetto draws arrows only forward in time, and
    from sends to receives.

    Args:
        ranks: replaced one by one, so that no rank is in memory twice.
        late: lateness of each rank, or empty.
        arrows: whether to draw those between ops.
        on_disk: all ranks of the profile, selected or not.
        finish: called with the index of a rank and its rows; returns the rows to keep.
    """
    drawn_ops = list[_DrawnOps]()
    of_ranks = waiting.waits.by_rank(len(ranks))
    for place, (ops, waits) in enumerate(zip(collectives, of_ranks, strict=True)):
        rank = ranks[place]
        where = _drawn_ops(rank.tracks, ops)
        tracks = _with_args(with_waits(rank.tracks, ops, waits, on_disk), where, waits)
        rows = _with_row(tracks, rank.rank, ops, waits, on_disk)
        if late:
            rows = _with_late(rows, rank.rank, late[place])
        ranks[place] = finish(place, replace(rank, tracks=rows))
        if arrows:
            drawn_ops.append(where)
    ends = _late_ends(ranks)
    if arrows:
        ends += _op_ends(ranks, drawn_ops, waiting)
    _add_arrows(ranks, ends)


def _drawn_ops(tracks: Sequence[Track], collectives: RankCollectives) -> _DrawnOps:
    """Find each collective among the slices of the rank, by its times and name."""
    ops, strings = collectives.ops, collectives.strings
    track = np.full(len(ops), -1, np.int64)
    slice_ = np.full(len(ops), -1, np.int64)
    keys = zip(ops.start_ns.tolist(), ops.end_ns.tolist(), ops.name.tolist(), strict=True)
    row_of = {(start, end, strings[name]): row for row, (start, end, name) in enumerate(keys)}
    for candidate in tracks:
        content = candidate.content
        if not isinstance(content, Slices) or content.kind is not SliceKind.COMMUNICATION_OP:
            continue
        drawn = zip(
            content.start_ns.tolist(), content.end_ns.tolist(), content.name.tolist(), strict=True
        )
        for position, (start, end, name) in enumerate(drawn):
            row = row_of.get((start, end, content.strings[name]))
            if row is not None:
                track[row], slice_[row] = candidate.id, position
    return _DrawnOps(track, slice_)


def _with_args(tracks: Sequence[Track], where: _DrawnOps, waits: Waits) -> list[Track]:
    """Add args to the slices of collectives whose last rank is known."""
    with_args = list(tracks)
    drawn = waits.take(where.track[waits.row] >= 0)
    on = where.track[drawn.row]
    for number in distinct(on).tolist():
        waits_here = drawn.take(on == number)
        content = with_args[number].content
        assert isinstance(content, Slices)
        at = where.slice[waits_here.row]
        args = (*content.args, *_args(waits_here, at, len(content)))
        with_args[number] = replace(with_args[number], content=replace(content, args=args))
    return with_args


def _args(waits: Waits, at: Int64, count: int) -> list[Arg]:
    def spread(name: str, values: Int64, absent: int, *, default: bool = True) -> Arg:
        whole, present = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        whole[at], present[at] = values, values != absent
        return Arg(name, ArgKind.INTEGER, whole, present, default)

    bandwidth = np.full(count, np.nan)
    bandwidth[at] = waits.bandwidth
    return [
        spread("waited_ns", waits.waited_ns, NO_TIME),
        spread("last_rank", waits.last_rank, NO_ID),
        spread("transfer_ns", waits.transfer_ns, NO_TIME),
        spread("arrived_after_first_ns", waits.after_first_ns, NO_TIME, default=False),
        Arg("bus_bandwidth_gb_s", ArgKind.NUMBER, bandwidth, np.isfinite(bandwidth)),
    ]


def _with_row(
    tracks: list[Track],
    rank: int,
    collectives: RankCollectives,
    waits: Waits,
    on_disk: frozenset[int],
) -> tuple[Track, ...]:
    """Add a row of waits below the overlap analysis, if that is drawn."""
    folder = _overlap_folder(tracks)
    waited = waits.take(waits.waited_ns > 0)
    if folder is None or not len(waited):
        return tuple(tracks)
    painter, ops = Painter(tracks, rank=rank), collectives.ops
    strings = painter.strings
    start_ns = ops.start_ns[waited.row]
    named = strings.codes(collectives.strings)[ops.name[waited.row]]
    painter.add_flat_row(
        WAITING,
        folder,
        _ORDER,
        SliceTable(
            start_ns,
            start_ns + waited.waited_ns,
            wait_labels(waited, on_disk, strings),
            SliceKind.OVERLAP,
            [names("op", named), integers("last_rank", waited.last_rank, NO_ID)],
            category=Category.WAIT,
        ),
        descriptions.WAITING,
    )
    return tuple(painter.tracks)


def _overlap_folder(tracks: Sequence[Track]) -> int | None:
    overlap = spec_of(Layer.OVERLAP).name
    return next((row.id for row in tracks if row.parent is None and row.name == overlap), None)


def _with_late(tracks: tuple[Track, ...], rank: int, late: Lateness) -> tuple[Track, ...]:
    """Add a counter of how late the rank came in each step, if the overlap analysis is drawn."""
    folder = _overlap_folder(tracks)
    if folder is None or not len(late):
        return tracks
    painter = Painter(list(tracks), rank=rank)
    samples = Samples(late.start_ns, late.late_ns / 1000, "us")
    painter.add_counter(LATE, folder, _ORDER_OF_LATE, samples, descriptions.LATE)
    return tuple(painter.tracks)


_End = tuple[int, int, int]
"""Index of a rank, id of a track, and index of a slice on it."""
_Op = tuple[int, int]
"""Index of a rank, and row of its collectives."""


def _add_arrows(ranks: list[RankTracks], ends: Sequence[tuple[_End, _End]]) -> None:
    """Connect slices by arrows, which count from -1 down over all ranks."""
    by_rank: dict[int, list[tuple[int, int, int]]] = {}
    for number, pair in enumerate(ends, 1):
        for rank, track, row in pair:
            by_rank.setdefault(rank, []).append((track, row, -number))
    for rank, rank_ends in by_rank.items():
        ranks[rank] = replace(ranks[rank], tracks=_connected(ranks[rank].tracks, rank_ends))


class _WaitSlices(ColumnTable):
    """Slices of waits: index of the rank that waits and of the last one, track, row and times.

    start_ns, end_ns: when the rank waited for the last one.
    """

    rank: Int64 = column(np.int64)
    last: Int64 = column(np.int64)
    track: Int64 = column(np.int64)
    row: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)

    @classmethod
    def of_rank(
        cls, place: int, tracks: Sequence[Track], last_of: Mapping[str, int]
    ) -> _WaitSlices:
        """Return the waits on the rows of a rank; last_of: index of the last rank by label.

        The partition of its time also counts as waiting what a hidden wait delayed, when the last
        rank had come, see `delayed_until`. The rank waited for it during the hidden wait.
        """
        rows = [(track.id, track.content) for track in tracks if isinstance(track.content, Slices)]
        parts = [row for row in rows if row[1].kind is SliceKind.PARTITION]
        others = [row for row in rows if row[1].category is Category.WAIT]
        pieces, waits = (
            cls.concat(cls._on(place, *row, last_of) for row in some) for some in (parts, others)
        )
        if not len(waits):
            return pieces
        before = np.maximum(np.searchsorted(waits.start_ns, pieces.start_ns, side="right") - 1, 0)
        wait = waits.take(before)
        start_ns = np.maximum(pieces.start_ns, wait.start_ns)
        end_ns = np.minimum(pieces.end_ns, wait.end_ns)
        is_delayed = (wait.last == pieces.last) & (wait.end_ns <= pieces.start_ns)
        is_part = (wait.last == pieces.last) & (start_ns < end_ns)
        pieces = replace(
            pieces,
            start_ns=np.select([is_delayed, is_part], [wait.start_ns, start_ns], pieces.start_ns),
            end_ns=np.select([is_delayed, is_part], [wait.end_ns, end_ns], pieces.end_ns),
        )
        return cls.concat([pieces, waits])

    @classmethod
    def _on(
        cls, place: int, track: int, content: Slices, last_of: Mapping[str, int]
    ) -> _WaitSlices:
        labels, which = distinct_values(content.name)
        last = np.array([last_of.get(content.strings[code], NO_ID) for code in labels], np.int64)
        row = np.flatnonzero(last[which] != NO_ID)
        rank, on = (np.full(len(row), number, np.int64) for number in (place, track))
        return cls(rank, last[which][row], on, row, content.start_ns[row], content.end_ns[row])


def _late_ends(ranks: Sequence[RankTracks]) -> list[tuple[_End, _End]]:
    """Return the longest waits, each with what the last rank did most of that time."""
    work_of = {place: _work(rank.tracks) for place, rank in enumerate(ranks)}
    last_of = {wait_label(rank.rank): place for place, rank in enumerate(ranks) if work_of[place]}
    waits = _WaitSlices.concat(
        [_WaitSlices.of_rank(place, rank.tracks, last_of) for place, rank in enumerate(ranks)]
    )
    longest = waits.take(np.argsort(waits.start_ns - waits.end_ns, kind="stable")[:MOST_ARROWS])
    ends = list[tuple[_End, _End]]()
    for rank, last, on, row, start_ns, end_ns in zip(
        *(values.tolist() for values in longest.columns().values()), strict=True
    ):
        if most := _most_of(work_of[last], start_ns, end_ns):
            ends.append(((rank, on, row), (last, *most)))
    return ends


def _work(tracks: Sequence[Track]) -> list[tuple[int, Slices]]:
    """Return the partition of a rank's time, then the lanes of its tasks, by the ids of tracks."""
    rows = [(track.id, track.content) for track in tracks if isinstance(track.content, Slices)]
    kinds = (SliceKind.PARTITION, SliceKind.TASK)
    return [row for kind in kinds for row in rows if row[1].kind is kind]


def _most_of(
    rows: Sequence[tuple[int, Slices]], start_ns: int, end_ns: int
) -> tuple[int, int] | None:
    """Return what a rank did most of a time: a task, or a part of its time.

    rows: the partition of its time, then lanes of tasks, each with the id of its track. Tasks that
    outlast the part of its time, such as waits on other streams, are not what it consists of.

    Returns:
        Id of the track and index of the slice; None if the rank had not begun or had ended.
    """
    track, spent = rows[0]
    part, _ = _longest(spent, start_ns, end_ns)
    if part < 0:
        return None
    found, most_ns = (track, part), 0
    if spent.strings[spent.name[part]].startswith(IDLE):
        return found
    first_ns, last_ns = int(spent.start_ns[part]), int(spent.end_ns[part])
    for track, tasks in rows[1:]:
        row, lasted_ns = _longest(tasks, max(first_ns, start_ns), min(last_ns, end_ns))
        is_in = lasted_ns and first_ns <= tasks.start_ns[row] and tasks.end_ns[row] <= last_ns
        if is_in and lasted_ns > most_ns:
            found, most_ns = (track, row), lasted_ns
    return found


def _longest(slices: Slices, start_ns: int, end_ns: int) -> tuple[int, int]:
    """Return the slice of a flat row that has most of a time, and its length there; -1 for none."""
    first = int(np.searchsorted(slices.end_ns, start_ns, side="right"))
    stop = int(np.searchsorted(slices.start_ns, end_ns))
    if first >= stop:
        return -1, 0
    since_ns = np.maximum(slices.start_ns[first:stop], start_ns)
    lasted_ns = np.minimum(slices.end_ns[first:stop], end_ns) - since_ns
    longest = int(lasted_ns.argmax())
    return first + longest, int(lasted_ns[longest])


def _op_ends(
    ranks: list[RankTracks], drawn_ops: Sequence[_DrawnOps], waiting: Waiting
) -> list[tuple[_End, _End]]:
    """Return the ops of different ranks that arrows connect.

    Arrows of ops that are merged or left out are not drawn, and are counted as omissions.
    """
    has_ops = np.array([rank.lacks_ops or _draws_ops(rank.tracks) for rank in ranks], np.bool_)
    wanted = [*_wait_ends(has_ops, waiting.waits), *_pair_ends(has_ops, waiting.pairs)]
    drawn = [pair for pair in wanted if all(drawn_ops[rank].track[row] >= 0 for rank, row in pair)]
    if len(drawn) < len(wanted):
        lost = Omission(_LOST_OP_REASON, len(wanted) - len(drawn), code=OmissionCode.ARROW_CUT)
        ranks[0] = replace(ranks[0], omissions=(*ranks[0].omissions, lost))

    def end_of(rank: int, row: int) -> _End:
        where = drawn_ops[rank]
        return rank, int(where.track[row]), int(where.slice[row])

    return [(end_of(*one), end_of(*other)) for one, other in drawn]


def _draws_ops(tracks: Sequence[Track]) -> bool:
    return any(
        isinstance(track.content, Slices) and track.content.kind is SliceKind.COMMUNICATION_OP
        for track in tracks
    )


def _wait_ends(has_ops: Bool, waits: Waits) -> list[tuple[_Op, _Op]]:
    """Return, for the longest waits, the op that waits and the op of the last rank."""
    is_named = (waits.last != NO_ID) & (waits.last_rank != NO_ID)
    drawn = is_named & has_ops[waits.rank] & has_ops[waits.last]
    rows = np.flatnonzero(drawn & (waits.waited_ns > 0))
    longest = waits.take(rows[np.argsort(-waits.waited_ns[rows], kind="stable")[:MOST_ARROWS]])
    return _ends(longest.rank, longest.row, longest.last, longest.last_row)


def _pair_ends(has_ops: Bool, pairs: Pairs) -> list[tuple[_Op, _Op]]:
    """Return the first sends with their receives."""
    rows = np.flatnonzero(has_ops[pairs.sender] & has_ops[pairs.receiver])
    first = pairs.take(rows[:MOST_ARROWS])
    return _ends(first.sender, first.send_row, first.receiver, first.receive_row)


def _ends(rank: Int64, row: Int64, other: Int64, other_row: Int64) -> list[tuple[_Op, _Op]]:
    ones = zip(rank.tolist(), row.tolist(), strict=True)
    others = zip(other.tolist(), other_row.tolist(), strict=True)
    return list(zip(ones, others, strict=True))


def _connected(tracks: Sequence[Track], ends: list[tuple[int, int, int]]) -> tuple[Track, ...]:
    connected = list(tracks)
    for number in {track for track, _, _ in ends}:
        content = connected[number].content
        assert isinstance(content, Slices)
        more = np.array([end[1:] for end in ends if end[0] == number], np.int64)
        content = content.connected(more[:, 0], more[:, 1])
        connected[number] = replace(connected[number], content=content)
    return tuple(connected)
