"""Makes recordings of ranks whose items, hosts and ops are random, with times that often tie."""

from __future__ import annotations

import numpy as np

from timeline.analysis.gains.recording import DeviceWork, HostPoints, Recording
from timeline.analysis.gains.replay import RankOps, RecordedRank
from timeline.analysis.path.rank_path import PathKind
from timeline.columns.columns import Int64
from timeline.records.not_given import NO_ID

START_NS = 1000
"""No time is earlier."""
NAMES = ("", "MatMul", "Add", "Cast", "aten::copy_")
MOST_NS = 60
"""What anything takes at most: so little that much happens at one moment."""


def random_ranks(
    seed: int, ranks: int = 3, steps: int = 4, items: int = 8, shared: int = 3
) -> list[RecordedRank]:
    """Return ranks that do about as much in each step.

    items: about so many tasks and points of the host in each step. shared: so many ops of all
    ranks; each rank has some ops of its own, of which a member may not be recorded, too.
    """
    chance = np.random.default_rng(seed)
    end_ns = START_NS + steps * items * MOST_NS
    came_ns = np.sort(chance.integers(START_NS, end_ns, shared))
    return [_rank(chance, at, ranks, steps, items, came_ns, end_ns) for at in range(ranks)]


def _rank(
    chance: np.random.Generator,
    at: int,
    ranks: int,
    steps: int,
    items: int,
    came_ns: Int64,
    end_ns: int,
) -> RecordedRank:
    tasks, own, shared = steps * items, int(chance.integers(0, 3)), len(came_ns)
    ops = own + shared
    count = tasks + ops
    start_ns = np.concatenate(
        [
            chance.integers(START_NS, end_ns, tasks + own),
            came_ns + chance.integers(0, MOST_NS, shared),
        ]
    )
    is_op = np.arange(count) >= tasks
    order = np.argsort(start_ns, kind="stable")
    start_ns, is_op = start_ns[order], is_op[order]
    op_row = np.full(count, NO_ID)
    op_row[is_op] = order[is_op] - tasks
    length_ns = chance.integers(0, MOST_NS, count)
    before = np.array([chance.integers(-1, max(row, 1)) for row in range(count)])
    before[:1] = NO_ID
    step = np.minimum((start_ns - START_NS) // (items * MOST_NS), steps - 1)
    point_ns = np.sort(chance.integers(START_NS, end_ns, steps * items))
    point_step = np.minimum((point_ns - START_NS) // (items * MOST_NS), steps - 1)
    launch = np.where(
        chance.random(count) < 0.8, np.searchsorted(point_ns, start_ns, side="right") - 1, NO_ID
    )
    ended = np.argsort(start_ns + length_ns)
    latest = np.searchsorted((start_ns + length_ns)[ended], point_ns, side="right") - 1
    waits = (chance.random(len(point_ns)) < 0.3) & (latest >= 0)
    gap_ns = np.diff(point_ns, prepend=START_NS)
    work = DeviceWork.of(
        count,
        {
            "start_ns": start_ns,
            "end_ns": start_ns + length_ns,
            "kind": np.where(is_op, PathKind.TRANSFER, chance.choice(_TASK_KINDS, count)),
            "name": chance.integers(1, len(NAMES), count),
            "collective": op_row,
            "before": before,
            "stream_before": before,
            "launch": launch,
            "step": np.where(chance.random(count) < 0.9, step, NO_ID),
        },
    )
    points = HostPoints.of(
        len(point_ns),
        {
            "time_ns": point_ns,
            "name": chance.integers(0, len(NAMES), len(point_ns)),
            "waits_for": np.where(waits, ended[latest], NO_ID),
            "data_ns": np.where(chance.random(len(point_ns)) < 0.2, gap_ns // 2, 0),
            "step": np.where(chance.random(len(point_ns)) < 0.9, point_step, NO_ID),
        },
    )
    known = np.arange(ops) >= own
    op_start_ns = np.empty(ops, np.int64)
    op_start_ns[op_row[is_op]] = start_ns[is_op]
    made = RankOps.of(
        ops,
        {
            "op": np.concatenate([1000 * (at + 1) + np.arange(own), np.arange(shared)]),
            "known": known,
            "arrived_ns": np.where(known, 0, op_start_ns + chance.integers(0, MOST_NS, ops)),
            "absent": np.where(known, NO_ID, ranks),
            "like": np.where(known, 0, NO_ID),
            "group": np.where(known, 0, at + 1),
            "exposed_ns": np.zeros(ops, np.int64),
        },
    )
    return RecordedRank(Recording(NAMES, work, points), made)


_TASK_KINDS = (PathKind.COMPUTING, PathKind.COPY)
