"""Common clock of all ranks: as recorded, from shared collectives, or from their starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from timeline.analysis.waits.collectives import RankCollectives
from timeline.errors import SelectionError, format_ids
from timeline.options import ClockOptions
from timeline.records.clock import Clock, ClockMove
from timeline.selection import Align
from timeline.units import format_duration

if TYPE_CHECKING:
    from timeline.analysis.alignment import Alignment

RECORDED = "recorded"
WALL = "wall clock"
MOST_NAMED = 4
"""Maximum number of islands named in a warning."""


@dataclass(frozen=True)
class RankClock:
    """Facts of one rank for joining clocks.

    monotonic: whether its times count from the start of its host. span_ns: first start and last end
    on its device. untimed: whether its times only follow each other from 0 on.
    """

    rank: int
    clock: Clock
    monotonic: bool
    span_ns: tuple[int, int] | None = None
    collectives: RankCollectives = field(default_factory=RankCollectives)
    untimed: bool = False


@dataclass(frozen=True, slots=True)
class RankMove:
    """Clock move of one rank, and its method.

    spread_ns: remaining distance between the ends of its collectives and those of others, None if
    the clocks were not compared by them; `ops`: number of ops compared. island: ranks with the same
    number have clocks that agree; doubt_ns: how far these may be off from those of others, 0 if
    unknown or if all agree.
    """

    move: ClockMove = field(default_factory=ClockMove)
    method: str = RECORDED
    spread_ns: int | None = None
    ops: int = 0
    island: int = 0
    doubt_ns: int = 0

    @property
    def offset_ns(self) -> int:
        """Return the constant part of the move, without the drift."""
        return self.move.offset_ns


@dataclass(frozen=True)
class JoinedClock:
    """Clock moves of all ranks onto one clock, and wall time minus that clock."""

    moves: tuple[RankMove, ...]
    wall_offset_ns: int | None
    warnings: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """Return how the clocks were joined; several methods if ranks differ."""
        return ", ".join(dict.fromkeys(move.method for move in self.moves)) or RECORDED


def join_clocks(ranks: Sequence[RankClock], options: ClockOptions | None = None) -> JoinedClock:
    """Find the moves that put ranks on one clock.

    Recorded: exports that hold wall time stay as they are. Monotonic clocks stay as they are too if
    all ranks ran on one host: that is one clock. Otherwise every rank moves to wall time, by the
    offset of its host's lowest rank, so that ranks of one host keep their distance. The rest is
    corrected by collectives (`align`).

    Raises:
        SelectionError: an offset is given for a rank that is not there.
    """
    options = options or ClockOptions()
    check_offsets(options, (rank.rank for rank in ranks))
    if options.align is Align.NONE:
        joined = JoinedClock(tuple(RankMove(method="none") for _ in ranks), None)
    else:
        joined = _recorded(ranks)
    if options.align is Align.START:
        joined = _by_start(ranks, joined)
    elif options.align in (None, Align.COLLECTIVES) and len(ranks) > 1:
        joined = _by_collectives(ranks, joined, asked=options.align is not None)
    return _with_given(ranks, joined, options.offset_ns)


def check_offsets(options: ClockOptions, ranks: Iterable[int]) -> None:
    """Make sure that offsets are given for selected ranks only.

    Raises:
        SelectionError: an offset is given for a rank that is not there.
    """
    absent = set(options.offset_ns).difference(ranks)
    if absent:
        raise SelectionError(
            f"--offset: rank {format_ids(absent)} is not selected.",
            do="Use --list to see the ranks.",
            python_do="Profile.ranks lists them.",
        )


def _recorded(ranks: Sequence[RankClock]) -> JoinedClock:
    """Return the clocks as recorded; ranks without times begin where the first other does."""
    still = tuple(RankMove() for _ in ranks)
    timed = [rank for rank in ranks if not rank.untimed]
    if not timed:
        return JoinedClock(still, None)
    if len(timed) < len(ranks):
        joined = _recorded(timed)
        starts_ns = [
            rank.span_ns[0] + move.offset_ns
            for rank, move in zip(timed, joined.moves, strict=True)
            if rank.span_ns is not None
        ]
        begin, moves = RankMove(ClockMove(min(starts_ns, default=0))), iter(joined.moves)
        return replace(
            joined, moves=tuple(begin if rank.untimed else next(moves) for rank in ranks)
        )
    monotonic = [rank.monotonic for rank in ranks]
    if not any(monotonic):
        return JoinedClock(still, 0)
    hosts = {rank.clock.host for rank in ranks}
    if all(monotonic) and len(hosts) == 1 and (len(ranks) == 1 or "" not in hosts):
        return JoinedClock(still, ranks[0].clock.wall_offset_ns)
    return _on_wall_time(ranks)


def _on_wall_time(ranks: Sequence[RankClock]) -> JoinedClock:
    by_host: dict[str, int] = {}
    for rank in ranks:
        if rank.clock.host and rank.clock.wall_offset_ns is not None:
            by_host.setdefault(rank.clock.host, rank.clock.wall_offset_ns)
    moves, unrelated = [], []
    for rank in ranks:
        offset = by_host.get(rank.clock.host, rank.clock.wall_offset_ns) if rank.monotonic else 0
        if offset is None:
            unrelated.append(rank.rank)
            offset = 0
        moves.append(RankMove(ClockMove(offset), WALL))
    warnings = () if not unrelated else (_unrelated(unrelated),)
    return JoinedClock(tuple(moves), 0, warnings)


def _unrelated(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return (
            f"rank {ranks[0]}: its clock counts from the start of its host and nothing relates it "
            "to the other ranks; it is drawn at its own times."
        )
    return (
        f"ranks {format_ids(ranks)}: their clocks count from the start of their hosts, and nothing "
        "shows whether they ran on one host; they are drawn and compared as if they did."
    )


def _by_start(ranks: Sequence[RankClock], joined: JoinedClock) -> JoinedClock:
    """Move all ranks to the start of the first one that has work on its device."""
    starts_ns = [
        None if rank.span_ns is None else rank.span_ns[0] + move.offset_ns
        for rank, move in zip(ranks, joined.moves, strict=True)
    ]
    first_ns = next((start_ns for start_ns in starts_ns if start_ns is not None), 0)
    moves = tuple(
        move
        if start_ns is None
        else RankMove(move.move.then(first_ns - start_ns), Align.START.value)
        for start_ns, move in zip(starts_ns, joined.moves, strict=True)
    )
    return replace(joined, moves=moves, warnings=())


def _by_collectives(ranks: Sequence[RankClock], joined: JoinedClock, *, asked: bool) -> JoinedClock:
    """Return the recorded clocks, corrected as far as the ends of collectives allow."""
    from timeline.analysis.alignment import align  # a single rank needs no alignment

    alignment = align(
        [rank.collectives.moved(move.move) for rank, move in zip(ranks, joined.moves, strict=True)],
        [rank.clock.host for rank in ranks],
    )
    moves = tuple(_corrected(alignment, at, move) for at, move in enumerate(joined.moves))
    warnings = joined.warnings
    if alignment.used.all():
        # Clocks unrelated before are related now.
        warnings = ()
    elif asked:
        left = [rank.rank for rank, used in zip(ranks, alignment.used, strict=True) if not used]
        why = "; ".join(alignment.reasons) or "they share too few of them"
        warnings += (f"--align collectives: ranks {format_ids(left)} stay as recorded: {why}.",)
    warnings += tuple(_doubts(ranks, moves))
    return replace(joined, moves=moves, warnings=warnings)


def _doubts(ranks: Sequence[RankClock], moves: Sequence[RankMove]) -> Iterator[str]:
    """Yield a warning on how far the clocks of islands may differ.

    There is none if all islands are single ranks that share no collectives: they do not wait for
    each other.
    """
    islands: dict[int, list[int]] = {}
    for rank, move in zip(ranks, moves, strict=True):
        if len(rank.collectives.ops):
            islands.setdefault(move.island, []).append(rank.rank)
    doubt_ns = max((move.doubt_ns for move in moves), default=0)
    if len(islands) < 2 or not (doubt_ns or max(map(len, islands.values())) > 1):
        return
    named = [f"{'ranks' if len(ids) > 1 else 'rank'} {format_ids(ids)}" for ids in islands.values()]
    more = [f"{len(named) - MOST_NAMED} others"] if len(named) > MOST_NAMED else []
    *first, last = named[:MOST_NAMED] + more
    yield f"{', '.join(first)} and {last} share no collectives that end together: " + (
        f"their clocks may differ by up to {format_duration(doubt_ns)}, and no rank is blamed for "
        "shorter waits between them."
        if doubt_ns
        else "nothing tells how far their clocks differ."
    )


def _corrected(alignment: Alignment, at: int, move: RankMove) -> RankMove:
    move = replace(move, island=int(alignment.joint[at]), doubt_ns=int(alignment.doubt_ns[at]))
    if alignment.ops[at]:
        move = replace(move, spread_ns=int(alignment.spreads_ns[at]), ops=int(alignment.ops[at]))
    if not alignment.used[at]:
        return move
    corrected = ClockMove(
        move.offset_ns - int(alignment.offsets_ns[at]),
        -int(alignment.drifts_ppb[at]),
        alignment.origin_ns - move.offset_ns,
    )
    return replace(move, move=corrected, method=Align.COLLECTIVES.value)


def _with_given(
    ranks: Sequence[RankClock], joined: JoinedClock, offsets_ns: Mapping[int, int]
) -> JoinedClock:
    """Apply offsets of the user, which count from the recorded clock and replace other moves."""
    moves = list(joined.moves)
    for at, (rank, recorded) in enumerate(zip(ranks, _recorded(ranks).moves, strict=True)):
        if rank.rank in offsets_ns:
            moves[at] = RankMove(recorded.move.then(offsets_ns[rank.rank]), "given")
    return replace(joined, moves=tuple(moves))
