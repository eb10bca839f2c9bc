"""Proves that the row of a rank parts its time exactly, and calls each moment what it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_intervals import EPOCH_NS, Interval, columns_of, intervals
from timeline.analysis.idle.idle_sums import CAUSES, IdleCause, IdleParts
from timeline.analysis.overlap import Overlap, measure_overlap
from timeline.analysis.waits.collectives import Collectives, RankCollectives
from timeline.analysis.waits.waiting import Waits
from timeline.columns.columns import Int64
from timeline.columns.intervals import IntervalSet
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, Tasks
from timeline.tracks.model import Slices, Track
from timeline.tracks.painter import Painter
from timeline.tracks.partition import (
    COMPUTING,
    COPIES,
    EXPOSED,
    IDLE,
    TRANSFER,
    WAITING_FOR,
    is_partition,
    paint_partition,
    with_sums,
    with_waits,
)

ON_DISK = frozenset[int]()


@dataclass(frozen=True)
class Op:
    """A communication op: for whom it waits how long, if that is known, and whether it is over."""

    start: int
    end: int
    waited: int | None
    last_rank: int
    read: bool
    transfers: bool

    @property
    def came(self) -> int:
        return self.start + (self.waited or 0)

    @property
    def waiting(self) -> str:
        """What the picture calls its wait."""
        return f"{WAITING_FOR} {self._last}"

    @property
    def _last(self) -> str:
        if self.last_rank == NO_ID:
            return "another rank"
        return f"rank {self.last_rank}{'' if self.read else ' (not profiled)'}"


OPS = st.lists(
    st.builds(
        lambda start, length, share, last, read, transfers: Op(
            EPOCH_NS + start,
            EPOCH_NS + start + length,
            None if share is None else length * share // 4,
            last,
            # Of a rank that is not known it is not known either whether it is read.
            read or last == NO_ID,
            transfers,
        ),
        st.integers(0, 24),
        st.integers(1, 8),
        st.none() | st.integers(0, 4),
        st.sampled_from([NO_ID, 0, 5, 12]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=6,
).map(lambda ops: sorted(ops, key=lambda op: op.start))


def overlap_of(computing: list[Interval], copying: list[Interval], ops: list[Op]) -> Overlap:
    start_ns, end_ns = columns_of([*computing, *copying])
    compute = np.arange(len(start_ns)) < len(computing)
    columns = {"start_ns": start_ns, "end_ns": end_ns, "compute": compute, "copy": ~compute}
    tasks = Tasks.of(len(start_ns), {**columns, "name": np.zeros(len(start_ns), np.int32)})
    starts, ends = columns_of([(op.start, op.end) for op in ops])
    zeros = np.zeros(len(ops), np.int64)
    spans = {"start_ns": starts, "end_ns": ends, "group": zeros, "name": zeros}
    return measure_overlap(tasks, CommunicationOps.of(len(ops), spans))


def idle_parts(idle: IntervalSet, strings: StringPool, seed: int) -> IdleParts:
    """Idle time, each nanosecond of which has a cause of its own."""
    moments = np.array(sorted(moments_of(idle)), np.int64)
    cause = (moments - EPOCH_NS + seed) % len(CAUSES)
    call = np.full(len(moments), strings.code("aclnnMatmul"), np.int32)
    return IdleParts(moments, moments + 1, cause, call, np.zeros(len(moments), np.int64))


def moments_of(spans: IntervalSet) -> set[int]:
    """Every nanosecond of some spans."""
    pairs = zip(spans.start_ns.tolist(), spans.end_ns.tolist(), strict=True)
    return {moment for start, end in pairs for moment in range(start, end)}


def waits_of(ops: list[Op]) -> tuple[RankCollectives, Waits]:
    """The collectives of a rank, and who came last where that is known."""
    starts, ends = columns_of([(op.start, op.end) for op in ops])
    columns = dict.fromkeys(("key", "communicator", "sign", "kind", "name", "group"), 0)
    collectives = Collectives.of(
        len(ops),
        {name: np.full(len(ops), value) for name, value in columns.items()}
        | {"start_ns": starts, "end_ns": ends},
    )
    known = [(row, op) for row, op in enumerate(ops) if op.waited is not None]

    def values(numbers: list[int]) -> Int64:
        return np.array(numbers, np.int64)

    unused = ("rank", "last", "last_row", "last_ns", "after_first_ns")
    transfers = [op.end - op.came if op.transfers else NO_TIME for _, op in known]
    waits = Waits.of(
        len(known),
        {name: np.zeros(len(known), np.int64) for name in unused}
        | {
            "row": values([row for row, _ in known]),
            "waited_ns": values([op.waited or 0 for _, op in known]),
            "last_rank": values([op.last_rank for _, op in known]),
            "last_profiled": np.array([op.read for _, op in known], np.bool_),
            "transfer_ns": values(transfers),
        },
    )
    return RankCollectives(ops=collectives), waits


def painted(overlap: Overlap, idle: IdleParts | None, strings: StringPool) -> list[Track]:
    painter = Painter(strings=strings, rank=0)
    paint_partition(painter, overlap, idle)
    return painter.tracks


def pieces_of(tracks: list[Track]) -> list[tuple[int, int, str]]:
    """Start, end and name of each piece, in the order in which they are drawn."""
    assert len(tracks) <= 1, "no piece needs a lane of its own"
    found = []
    for track in tracks:
        assert is_partition(track)
        slices = track.content
        assert isinstance(slices, Slices)
        names = [slices.strings[code] for code in slices.name.tolist()]
        found += list(zip(slices.start_ns.tolist(), slices.end_ns.tolist(), names, strict=True))
    return found


def lengths_of(pieces: list[tuple[int, int, str]]) -> Counter[str]:
    """How long the pieces of each name are together."""
    sums = Counter[str]()
    for start, end, name in pieces:
        sums[name] += end - start
    return sums


@given(intervals(), intervals(), OPS, st.none() | st.integers(0, 9))
def test_pieces_are_disjoint_and_add_up_to_the_overlap_and_the_idle_causes(
    computing: list[Interval], copying: list[Interval], ops: list[Op], seed: int | None
) -> None:
    """Nothing is counted twice and nothing is missing between the first and the last."""
    overlap, strings = overlap_of(computing, copying, ops), StringPool()
    idle = None if seed is None else idle_parts(overlap.idle, strings, seed)
    tracks = with_waits(painted(overlap, idle, strings), *waits_of(ops), ON_DISK)
    pieces = pieces_of(tracks)
    assert all(start < end for start, end, _ in pieces)
    ends = [end for _, end, _ in pieces]
    assert all(end <= start for end, (start, _, _) in zip(ends, pieces[1:], strict=False))
    sums = lengths_of(pieces)
    exposed_ns = sum(
        took
        for name, took in sums.items()
        if name in (EXPOSED, TRANSFER) or name.startswith(WAITING_FOR)
    )
    assert sums[COMPUTING] == overlap.computing.total_ns
    assert exposed_ns == overlap.not_overlapped.total_ns
    assert sums[COPIES] == overlap.copies.total_ns
    assert sum(took for name, took in sums.items() if name.startswith(IDLE)) == (
        overlap.idle.total_ns
    )
    assert sum(sums.values()) == overlap.span_ns
    if idle is not None and idle.has_causes:
        for at, cause in enumerate(CAUSES):
            assert sums[f"{IDLE}: {cause.words}"] == int((idle.cause == at).sum())


@given(intervals(), OPS)
def test_exposed_communication_is_what_its_ops_do_at_the_moment(
    computing: list[Interval], ops: list[Op]
) -> None:
    """Waiting where any op waits, for the one that began first; else transfer, if it is known.

    The first part of a transfer is delayed, as long as its op waited while the device computed.
    """
    overlap, strings = overlap_of(computing, [], ops), StringPool()
    pieces = pieces_of(with_waits(painted(overlap, None, strings), *waits_of(ops), ON_DISK))
    drawn = {moment: name for start, end, name in pieces for moment in range(start, end)}
    exposed = moments_of(overlap.not_overlapped)
    delays = [(op.came, op.waiting, delayed_moments(op, exposed)) for op in ops if op.transfers]
    for moment in exposed:
        delayed = [said for _, said, late in sorted(delays, key=first_of) if moment in late]
        waiting = [op.waiting for op in ops if op.start <= moment < op.came]
        transfer = any(
            op.waited is not None and op.transfers and op.came <= moment < op.end for op in ops
        )
        wanted = set(waiting[:1]) or set(delayed[:1]) or {TRANSFER if transfer else EXPOSED}
        assert drawn[moment] in wanted


def first_of(delay: tuple[int, str, set[int]]) -> int:
    """When the last rank came."""
    return delay[0]


def delayed_moments(op: Op, exposed: set[int]) -> set[int]:
    """When the op would not have been exposed if it had not waited."""
    hidden = set(range(op.start, op.came)) - exposed
    late = sorted(set(range(op.came, op.end)) & exposed)
    return set(late[: len(hidden)])


def test_pieces_that_touch_and_mean_the_same_are_one() -> None:
    ops = [
        Op(EPOCH_NS, EPOCH_NS + 10, 4, 5, read=True, transfers=True),
        Op(EPOCH_NS + 4, EPOCH_NS + 12, 3, 5, read=True, transfers=True),
    ]
    overlap, strings = overlap_of([], [], ops), StringPool()
    pieces = pieces_of(with_waits(painted(overlap, None, strings), *waits_of(ops), ON_DISK))
    assert pieces == [
        (EPOCH_NS, EPOCH_NS + 7, "Waiting for rank 5"),
        (EPOCH_NS + 7, EPOCH_NS + 12, TRANSFER),
    ]


def test_idle_time_is_not_parted_where_no_cause_is_known() -> None:
    """Where nothing is recorded of launches, "Idle" says as much."""
    around = [(EPOCH_NS, EPOCH_NS + 2), (EPOCH_NS + 6, EPOCH_NS + 8)]
    overlap, strings = overlap_of(around, [], []), StringPool()
    unknown = CAUSES.index(IdleCause.NOT_RECORDED)
    idle = IdleParts(
        overlap.idle.start_ns,
        overlap.idle.end_ns,
        np.array([unknown]),
        np.array([NO_NAME], np.int32),
        np.array([0]),
    )
    (_, told, _) = pieces_of(painted(overlap, idle, strings))
    assert told == (EPOCH_NS + 2, EPOCH_NS + 6, IDLE)


def test_a_rank_of_which_nothing_else_is_drawn_has_its_sums_below() -> None:
    """The viewer hides rows without a parent that have none below them."""
    overlap, strings = overlap_of([(EPOCH_NS, EPOCH_NS + 3_000)], [], []), StringPool()
    row, sums = with_sums(*painted(overlap, None, strings))
    assert sums.parent == row.id
    assert isinstance(sums.content, Slices)
    assert [strings[code] for code in sums.content.name.tolist()] == ["Computing 3.00 us"]
