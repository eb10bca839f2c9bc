"""SharedOps: the communication ops that several ranks take part in, found by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from timeline.analysis.waits.collectives import Collectives, RankCollectives, mix_hashes
from timeline.columns.columns import Bool, Float64, Int64, Rows
from timeline.columns.distinct import are_first, distinct, distinct_values
from timeline.frozen import dataclass
from timeline.records.not_given import NO_ID

__all__ = ["Islands", "Segments", "SharedOps", "find_shared_ops"]


@dataclass(frozen=True)
class SharedOps:
    """Who takes part in which op: a row per rank and op, ordered by op, then rank.

    parts: the collectives of each rank. rank: (n,) position of the rank. row: (n,) its row among
    that rank's collectives. op: (n,) number of the op from 0. group: (ops,) number of the set of
    ranks that take part. count: how many ops there are.
    """

    parts: Sequence[Collectives]
    rank: Rows
    row: Rows
    op: Rows
    group: Rows
    count: int

    @property
    def places(self) -> Rows:
        """Where each row is among the collectives of all ranks, one rank behind the other."""
        return np.cumsum([0, *map(len, self.parts)])[self.rank] + self.row

    def take(self, name: str) -> Int64:
        """Return a column of the ranks' collectives, for each row."""
        columns = (getattr(part, name) for part in self.parts)
        taken: Int64 = np.concatenate([np.empty(0, np.int64), *columns])[self.places]
        return taken

    def over(self, reduce: np.ufunc, values: Int64) -> Int64:
        """Reduce the values (n,) of each op to one, (ops,)."""
        if not self.count:
            return np.zeros(0, np.int64)
        reduced: Int64 = reduce.reduceat(values, self.first_rows())
        return reduced

    @property
    def joined(self) -> Int64:
        """How many ranks take part in each op, (ops,)."""
        return np.bincount(self.op, minlength=self.count)

    def first_rows(self) -> Rows:
        """The first row of each op."""
        return np.searchsorted(self.op, np.arange(self.count))

    def apart(self, ops: Bool) -> SharedOps:
        """The ops whose mask is true taken apart: each rank has one of its own."""
        opens = ops[self.op]
        opens[self.first_rows()] = True
        groups = self.group[self.op[opens]]
        return replace(self, op=np.cumsum(opens) - 1, group=groups, count=len(groups))

    def rows_where(self, rows: Bool) -> SharedOps:
        """The rows whose mask is true, and the ops that are left, numbered anew."""
        left, op = np.unique(self.op[rows], return_inverse=True)
        rank, row, group = self.rank[rows], self.row[rows], self.group[left]
        return SharedOps(self.parts, rank, row, op, group, len(left))

    def of_islands(self, island: Rows) -> tuple[SharedOps, Rows, Rows]:
        """The same ops with islands in the place of ranks, those of one island alone left out.

        Also the order of rows by op and island, and where in it those of each row there begin.
        """
        order = np.lexsort((island[self.rank], self.op))
        op, number = self.op[order], island[self.rank][order]
        opens = are_first(op, number)
        several = np.bincount(op[opens], minlength=self.count) > 1
        stays = several[op]
        order, first = order[stays], np.flatnonzero(opens[stays])
        rank, op = number[stays][first], (np.cumsum(several) - 1)[op[stays][first]]
        count = int(np.count_nonzero(several))
        groups = _groups(rank, op, count, len(island))
        return SharedOps((), rank, self.row[order[first]], op, groups, count), order, first


@dataclass(frozen=True)
class Islands:
    """Ranks whose clocks are known to agree: the number of the island of each, (ranks,) int64.

    doubt_ns: (ranks,) how far its clock may be off from those of other islands.
    """

    number: Int64
    doubt_ns: Int64

    def between_ns(self, rank: Int64, other: Int64) -> Int64:
        """How far clocks of some ranks may be off from those of others; 0 on one island."""
        apart = self.number[rank] != self.number[other]
        return np.where(apart, np.maximum(self.doubt_ns[rank], self.doubt_ns[other]), 0)


def find_shared_ops(
    ranks: Sequence[RankCollectives], wanted: Sequence[Bool], by: str = "key", *, least: int = 2
) -> SharedOps:
    """Find the ops that several ranks take part in.

    Args:
        wanted: for each rank, which of its collectives are looked at.
        by: the column that is the same on all ranks of an op, NO_ID where that is not known.
        least: how many ranks must take part.
    """
    parts = [rank.ops for rank in ranks]
    rows = [
        np.flatnonzero(is_wanted & (getattr(part, by) != NO_ID))
        for part, is_wanted in zip(parts, wanted, strict=True)
    ]
    rank = np.repeat(np.arange(len(parts)), [len(part_rows) for part_rows in rows])
    row = np.concatenate([np.empty(0, np.intp), *rows])
    keys = (getattr(part, by)[part_rows] for part, part_rows in zip(parts, rows, strict=True))
    key = np.concatenate([np.empty(0, np.int64), *keys])
    order = np.argsort(key, kind="stable")
    rank, row, key = rank[order], row[order], key[order]
    opens = are_first(key)
    op = np.cumsum(opens) - 1
    several = np.bincount(op)[op] >= least
    rank, row = rank[several], row[several]
    op = (np.cumsum(opens & several) - 1)[several]
    count = int(op[-1]) + 1 if len(op) else 0
    return SharedOps(parts, rank, row, op, _groups(rank, op, count, len(parts)), count)


def _groups(rank: Rows, op: Rows, count: int, ranks: int) -> Rows:
    """Number the sets of ranks: sets are told apart by the sum of a scrambled number per rank."""
    sums = np.zeros(count, np.uint64)
    scrambled = mix_hashes(np.zeros(ranks, np.uint64), np.arange(1, ranks + 1))
    np.add.at(sums, op, scrambled.astype(np.uint64)[rank])
    return distinct_values(sums)[1]


class Segments:
    """Rows by the segment they belong to, found once for several questions.

    segment: (n,) number of the segment of each row, below `count`.
    """

    def __init__(self, segment: Rows, count: int) -> None:
        self._count = count
        self._order = np.argsort(segment, kind="stable")
        size = np.bincount(segment, minlength=count)
        first = np.cumsum(size) - size
        self._by_size = [
            (np.flatnonzero(size == length), first[size == length], length)
            for length in distinct(size[size > 0]).tolist()
        ]

    def medians(self, values: Float64) -> Float64:
        """The median of the values of each segment; 0 for a segment without any."""
        medians = np.zeros(self._count)
        ordered = values[self._order]
        for segments, first, size in self._by_size:
            medians[segments] = np.median(ordered[first[:, None] + np.arange(size)], axis=1)
        return medians
