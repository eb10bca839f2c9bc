"""Mends: how much less time the parts of a run would take if each were as fast as its peers.

The reference of a part is the median of the same work, identified by its name and its turn within
the step, over other ranks that do the same or over other steps of the same rank. Work that neither
another rank nor another step does, such as the copies of a checkpoint, is taken to be avoidable.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from timeline.analysis.gains.recording import DeviceWork
from timeline.analysis.gains.replay import RecordedRank, Replay
from timeline.analysis.path.rank_path import PathKind
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.group_by import count_turns, group_by
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_ID

NO_LIKE = -1
"""Reference of a part that is compared with nothing."""
STALL_NS = 4_000_000
"""Minimum time between two points of a host for the host to count as stalled."""
HANDOVER_NS = 2_000_000
HANDOVER = 1 / 3
"""Maximum wait for data that are present, in ns and as a share of a step: the time to hand over."""
LEAST_GAP = 0.1
"""Minimum gap between two groups of steps or ranks, as a share of the shorter group."""
SPREADS = 5
"""Minimum gap between two groups, in multiples of the spread inside them."""
LEAST_BEFORE = 3
"""Minimum number of steps before a permanent slowdown that affects more steps than came before it.
"""


class Part(enum.IntEnum):
    """Kind of a part of a run."""

    COMPUTING = 0
    COPYING = 1
    HOST = 2
    """From one point of the host to the next, or between two tasks with unknown launches."""
    INPUT = 3
    """Time in which the host waits for data."""
    TRANSFER = 4
    """Time of a communication op from its last arrival on."""
    ABSENCE = 5
    """Time of a communication op from its last recorded arrival to the arrival of an absent rank.
    """


class Parts(ColumnTable):
    """Parts of the nodes of a replay that can take less time, one row each.

    node: node that comes sooner if the part takes less. part: a Part. rank: position of the rank.
    step: place of the step, the same on all ranks, NO_ID for none. name: code in the strings shared
    by all ranks. turn: number of equal parts before it in the step. time_ns: duration. like,
    group, exposed_ns: for a transfer, code of what the op does, its communicator, and the time in
    which nothing computed; for an absence, group is the absent rank. type: code of the operator
    type of a compute task, NO_NAME for others. on_host: whether the part lies
    between points of the host.
    """

    node: Rows = column(np.intp)
    part: Codes = column(np.int32)
    rank: Codes = column(np.int32)
    step: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    time_ns: Int64 = column(np.int64)
    turn: Int64 = column(np.int64, 0)
    like: Int64 = column(np.int64, NO_ID)
    group: Int64 = column(np.int64, NO_ID)
    exposed_ns: Int64 = column(np.int64, 0)
    type: Codes = column(np.int32, NO_NAME)
    on_host: Bool = column(np.bool_, 0)


@dataclass(frozen=True)
class Mends:
    """The parts of a run and the excess of each over its peers.

    peers_ns: (parts,) excess of each over the median of the other ranks. names: all strings. nodes:
    number of nodes of the replay. first: first host node of each rank.
    """

    parts: Parts
    peers_ns: Int64
    names: StringPool
    nodes: int
    first: Rows = field(default_factory=lambda: np.zeros(0, np.intp))

    @classmethod
    def of(
        cls,
        run: Replay,
        ranks: Sequence[RecordedRank],
        steps: Sequence[Int64],
        classes: Sequence[int],
        *,
        in_sections: bool = False,
    ) -> Mends:
        """Return the parts of a run.

        Args:
            run: the run.
            ranks: its ranks.
            steps: for each rank, the number of each of its steps, the same on all ranks.
            classes: for each rank, a number shared by ranks that do the same work.
            in_sections: whether steps are sections between ops, which hold other tasks on each
                rank.
        """
        names = StringPool()
        parts = _parts(run, ranks, steps, names)
        work_class = np.asarray(classes, np.int64)[parts.rank]
        like_ns = _completed(parts, _like_of_others(parts, work_class))
        excess_ns = _excess(parts, like_ns)
        if not in_sections:
            excess_ns = _cap_computing(parts, excess_ns, work_class)
        has_points = np.diff(run.first_point) > 0
        first = run.point[run.first_point[:-1][has_points]]
        return cls(parts, excess_ns, names, len(run.recorded_ns), first)

    def beyond_steps(self, odd: Bool) -> Int64:
        """Return how much the parts in odd steps exceed the median of the other steps, (parts,).

        odd: (parts,) whether a part lies in an odd step.
        """
        parts = self.parts
        like_ns = _medians(parts, [parts.part, parts.rank, parts.name, parts.turn], ~odd)
        like_ns[like_ns == NO_LIKE] = 0
        return np.where(odd, _excess(parts, like_ns), 0)

    def beyond_ranks(self, slow: Bool) -> Int64:
        """Return how much the parts of slow ranks exceed the median of the others, (parts,).

        slow: (parts,) whether a part belongs to a slow rank.
        """
        parts = self.parts
        like_ns = _medians(parts, [parts.part, parts.step, parts.name, parts.turn], ~slow)
        return np.where(slow, _excess(parts, _completed(parts, like_ns)), 0)

    def late_data(self, step_ns: int) -> Int64:
        """Return how much the waits for data exceed those for data that are present, (parts,).

        step_ns: usual duration of a step.
        """
        parts = self.parts
        late_ns = np.zeros(len(parts), np.int64)
        rows = np.flatnonzero(parts.part == Part.INPUT)
        if len(rows):
            time_ns, step = parts.time_ns[rows], parts.step[rows]
            alone = np.where(step == NO_ID, np.arange(len(rows)), NO_ID)
            of_step = group_by(len(rows), [parts.rank[rows], step, alone])
            waited_ns = of_step.sum(time_ns)
            like_ns = int(np.quantile(waited_ns, 0.1))
            if like_ns > min(HANDOVER_NS, HANDOVER * step_ns):
                like_ns = 0
            share = np.maximum(waited_ns - like_ns, 0) / np.maximum(waited_ns, 1)
            late_ns[rows] = np.rint(time_ns * share[of_step.group])
        return late_ns

    def stalls(self) -> Int64:
        """Return how much stalls of hosts exceed the usual time at the same place, (parts,)."""
        parts = self.parts
        stall_ns = np.zeros(len(parts), np.int64)
        is_stall = (parts.part == Part.HOST) & (parts.time_ns > STALL_NS)
        is_stall &= ~np.isin(parts.node, self.first)  # what the host did before it is unknown
        rows = np.flatnonzero(is_stall & (parts.step != NO_ID))
        if len(rows):
            like_ns = _medians(parts, [parts.part, parts.name, parts.turn], parts.part == Part.HOST)
            stall_ns[rows] = np.maximum(parts.time_ns[rows] - like_ns[rows], 0)
        return stall_ns

    def slow_transfers(self) -> Int64:
        """Return how much transfers exceed those of other groups that do the same, (parts,)."""
        parts = self.parts
        excess_ns = np.zeros(len(parts), np.int64)
        rows = np.flatnonzero((parts.part == Part.TRANSFER) & (parts.like != NO_ID))
        time_ns = parts.time_ns[rows]
        groups = group_by(len(rows), [parts.like[rows], parts.group[rows]])
        like = parts.like[rows[groups.first]]
        order = np.lexsort((time_ns, groups.group))
        size = np.bincount(groups.group, minlength=len(like))
        middle_ns = time_ns[order][np.cumsum(size) - size + size // 2] if len(rows) else time_ns
        like_ns = np.full(len(like), NO_LIKE)
        for code in np.unique(like).tolist():
            alike = np.flatnonzero(like == code)
            for place, one in enumerate(alike.tolist()):
                others = np.delete(middle_ns[alike], place)
                if len(others):
                    like_ns[one] = int(np.median(others))
        of_rows = like_ns[groups.group]
        excess_ns[rows] = np.where(of_rows == NO_LIKE, 0, np.maximum(time_ns - of_rows, 0))
        return excess_ns

    def sooner_ns(self, less_ns: Int64) -> tuple[Int64, Int64]:
        """Return how much sooner each node comes after either need, (nodes,) each.

        less_ns: (parts,) how much less time the parts take. An absence shortens only the second
        need: the members that are recorded arrive no sooner.
        """
        is_absence = self.parts.part == Part.ABSENCE
        first_ns, second_ns = np.zeros((2, self.nodes), np.int64)
        np.add.at(first_ns, self.parts.node[~is_absence], less_ns[~is_absence])
        np.add.at(second_ns, self.parts.node, less_ns)
        return first_ns, second_ns


def split_odd(values: Int64, *, in_order: bool = False, fewer: bool = False) -> Bool:
    """Return a mask of the values far above the others, (n,): none, or the upper of two groups.

    The groups are split at the largest gap between the sorted values, which must exceed LEAST_GAP
    of the median of the lower group and SPREADS times the spread inside the groups. The upper group
    must not be larger than the lower one, unless it is everything after LEAST_BEFORE values or
    more.

    in_order: whether the values belong to consecutive steps. fewer: whether the upper group must
    be smaller than the lower one.
    """
    order = np.sort(values)
    none = np.zeros(len(values), np.bool_)
    if len(values) < 3:
        return none
    gaps = np.diff(order)
    at = int(np.argmax(gaps))
    lower, upper = order[: at + 1], order[at + 1 :]
    spread = max(float(lower.std()), float(upper.std()))
    usual = max(float(np.median(lower)), 1.0)
    if gaps[at] <= LEAST_GAP * usual or gaps[at] <= SPREADS * spread:
        return none
    odd: Bool = values > lower[-1]
    goes_on = in_order and len(lower) >= LEAST_BEFORE and not odd[: len(lower)].any()
    return odd if goes_on or len(upper) + fewer <= len(lower) else none


def _parts(
    run: Replay, ranks: Sequence[RecordedRank], steps: Sequence[Int64], names: StringPool
) -> Parts:
    """Return the parts of all ranks, ordered by rank, then node."""
    tables = []
    for at, rank in enumerate(ranks):
        codes, number = names.codes(rank.recording.strings), np.append(steps[at], NO_ID)
        of_device = _device_parts(run, at, rank, codes, number)
        table = Parts.concat([*of_device, *_host_parts(run, at, rank, codes, number)])
        table = table.take(np.argsort(table.node, kind="stable"))
        tables.append(replace(table, turn=count_turns(table.part, table.step, table.name)))
    return Parts.concat(tables)


def _device_parts(
    run: Replay, at: int, rank: RecordedRank, codes: Codes, number: Int64
) -> Iterator[Parts]:
    """Yield the parts of the tasks and ops of one rank.

    at: position of the rank. codes: shared codes of the names of the rank. number: shared step
    numbers of the steps of the rank.
    """
    work = rank.recording.work
    items = slice(int(run.first_item[at]), int(run.first_item[at + 1]))
    begins, ends = run.item_start[items], run.item_end[items]

    def parts(part: Part, nodes: Rows, rows: Rows, time_ns: Int64, **more: Int64 | Codes) -> Parts:
        step, name = number[work.step[rows]], codes[work.name[rows]]
        return _parts_of_kind(part, at, nodes[rows], step, name, time_ns, **more)

    is_op = work.collective != NO_ID
    computes = work.kind == PathKind.COMPUTING
    for part, is_it in ((Part.COMPUTING, computes), (Part.COPYING, ~computes)):
        rows = np.flatnonzero(is_it & ~is_op)
        time_ns = work.end_ns[rows] - work.start_ns[rows]
        yield parts(part, ends, rows, time_ns, type=codes[work.type[rows]])
    lags, lag_ns = _lags(work)
    yield parts(Part.HOST, begins, lags, lag_ns)
    rows = np.flatnonzero(is_op)
    ops = rank.ops.take(work.collective[rows].astype(np.intp))
    start_ns = np.maximum(ops.arrived_ns, work.start_ns[rows])
    yield parts(
        Part.TRANSFER,
        ends,
        rows,
        np.maximum(work.end_ns[rows] - start_ns, 0),
        like=ops.like,
        group=ops.group,
        exposed_ns=ops.exposed_ns,
    )
    late = np.flatnonzero((ops.absent != NO_ID) & (ops.arrived_ns > work.start_ns[rows]))
    rows, ops = rows[late], ops.take(late)
    wait_ns = ops.arrived_ns - work.start_ns[rows]
    yield parts(Part.ABSENCE, ends, rows, wait_ns, group=ops.absent)


def _host_parts(
    run: Replay, at: int, rank: RecordedRank, codes: Codes, number: Int64
) -> Iterator[Parts]:
    """Yield the parts between the host points of one rank.

    Arguments are those of `_device_parts`.
    """
    host = rank.recording.points
    nodes = run.point[int(run.first_point[at]) : int(run.first_point[at + 1])]
    # What the host did before its first point, but for waiting for data, is not known.
    way_ns = np.diff(host.time_ns, prepend=host.time_ns[:1] - host.data_ns[:1])
    # Of a call that waits, its own time is what it takes after the end of the wait.
    end_ns = np.append(rank.recording.work.end_ns, host.time_ns[:1])[host.waits_for]
    own_ns = np.where(
        host.waits_for != NO_ID, np.minimum(way_ns, host.time_ns - end_ns), way_ns - host.data_ns
    )
    for part, is_it, time_ns in (
        (Part.HOST, own_ns > 0, own_ns),
        (Part.INPUT, host.data_ns > 0, host.data_ns),
    ):
        rows = np.flatnonzero(is_it)
        step, name = number[host.step[rows]], codes[host.name[rows]]
        on_host = np.ones(len(rows), np.bool_)
        yield _parts_of_kind(part, at, nodes[rows], step, name, time_ns[rows], on_host=on_host)


def _parts_of_kind(
    part: Part,
    at: int,
    node: Rows,
    step: Int64,
    name: Codes,
    time_ns: Int64,
    **more: Int64 | Codes | Bool,
) -> Parts:
    """Return parts of one kind of the rank at a position, with more columns in `more`."""
    columns = {"node": node, "step": step, "name": name, "time_ns": time_ns, **more}
    alike = {"part": np.full(len(node), part), "rank": np.full(len(node), at)}
    return Parts.of(len(node), columns | alike)


def _lags(work: DeviceWork) -> tuple[Rows, Int64]:
    """Return the items with unknown launch, and the lag of each after the item before it."""
    rows = np.flatnonzero((work.launch == NO_ID) & (work.before != NO_ID))
    return rows, np.maximum(work.start_ns[rows] - work.end_ns[work.before[rows]], 0)


def _like_of_others(parts: Parts, work_class: Int64) -> Int64:
    """Return the median time of the same part on the other ranks, NO_LIKE if no other rank has it.

    Each rank has a part once, so the median is that of the sorted times without the own one.
    """
    count = len(parts)
    if not count:
        return np.zeros(0, np.int64)
    keys: list[Int64 | Codes] = [parts.part, work_class, parts.step, parts.name, parts.turn]
    groups = group_by(count, keys)
    order = np.lexsort((parts.time_ns, groups.group))
    size = np.bincount(groups.group)
    first = np.cumsum(size) - size
    group = groups.group[order]
    own = np.arange(count) - first[group]
    others = size[group] - 1
    sorted_ns = parts.time_ns[order]

    def other(place: Int64) -> Int64:
        """Return the time at each place in the sorted times without the own one."""
        at = first[group] + place + (place >= own)
        other_ns: Int64 = sorted_ns[np.minimum(at, count - 1)]
        return other_ns

    lower, upper = other(np.maximum(others - 1, 0) // 2), other(others // 2)
    like_ns = np.empty(count, np.int64)
    like_ns[order] = np.where(others > 0, (lower + upper) // 2, NO_LIKE)
    return like_ns


def _medians(parts: Parts, keys: Sequence[Int64 | Codes], reference: Bool) -> Int64:
    """Return the median time of the reference parts with the same keys, NO_LIKE for none.

    reference: (parts,) mask of the parts whose times are used.
    """
    count = len(parts)
    group = group_by(count, keys).group
    rows = np.flatnonzero(reference)
    rows = rows[np.lexsort((parts.time_ns[rows], group[rows]))]
    size = np.bincount(group[rows], minlength=int(group.max(initial=0)) + 1)
    first = np.cumsum(size) - size
    time_ns = np.append(parts.time_ns[rows], 0)
    lower = time_ns[np.minimum(first + np.maximum(size - 1, 0) // 2, len(rows))]
    upper = time_ns[np.minimum(first + size // 2, len(rows))]
    medians = np.where(size > 0, (lower + upper) // 2, NO_LIKE)
    median_ns: Int64 = medians[group]
    return median_ns


def _completed(parts: Parts, like_ns: Int64) -> Int64:
    """Fill in missing references with the median of the other steps of the same rank.

    A part that occurs in no other step either gets 0, as if it were avoidable; without enough
    steps, or where that would be most of what its rank does, it gets its own time.
    """
    lacks = like_ns == NO_LIKE
    if not lacks.any():
        return like_ns
    in_step = parts.step != NO_ID
    keys: list[Int64 | Codes] = [parts.part, parts.rank, parts.name, parts.turn]
    own_ns = _medians(parts, keys, in_step)
    groups = group_by(len(parts), keys)
    several = groups.sum(in_step.astype(np.int64))[groups.group] > 1
    enough = len(np.unique(parts.step[in_step])) >= 3 if in_step.any() else False
    recurs = several & (own_ns != NO_LIKE)
    of_rank = group_by(len(parts), [parts.part, parts.rank])
    once_ns = of_rank.sum(np.where(lacks & in_step & ~recurs, parts.time_ns, 0))
    is_usual = (2 * once_ns > of_rank.sum(parts.time_ns))[of_rank.group]
    alone_ns = np.where(in_step & enough & ~is_usual, 0, parts.time_ns)
    return np.where(lacks, np.where(recurs, own_ns, alone_ns), like_ns)


def _excess(parts: Parts, like_ns: Int64) -> Int64:
    """Return how much parts in steps exceed their references, at most the net excess of a kind.

    If, within a step of a rank, some parts of a kind take longer and others less, as by chance,
    only the net difference counts; it is shared in proportion to the excess.
    """
    compared = (like_ns != NO_LIKE) & (parts.step != NO_ID)
    beyond_ns = np.where(compared, parts.time_ns - like_ns, 0)
    groups = group_by(len(parts), [parts.part, parts.rank, parts.step])
    longer_ns = np.maximum(beyond_ns, 0)
    net_ns = np.maximum(groups.sum(beyond_ns), 0)[groups.group]
    all_ns = np.maximum(groups.sum(longer_ns), 1)[groups.group]
    return (longer_ns * (net_ns / all_ns)).astype(np.int64)


def _cap_computing(parts: Parts, excess_ns: Int64, work_class: Int64) -> Int64:
    """Return excesses, with the sum of computing in each step capped by that of the whole step.

    Ranks that use other kernels for the same work have kernels without counterpart on other ranks.
    Their excesses are reduced so that they add up to at most the excess of the computing time of
    the step over the median of the other ranks.
    """
    rows = np.flatnonzero((parts.part == Part.COMPUTING) & (parts.step != NO_ID))
    of_step = group_by(len(rows), [parts.rank[rows], parts.step[rows]])
    first = rows[of_step.first]
    sums = replace(
        parts.take(first),
        time_ns=of_step.sum(parts.time_ns[rows]),
        name=np.full(len(first), NO_NAME, np.int32),
        turn=np.zeros(len(first), np.int64),
    )
    others_ns = _like_of_others(sums, work_class[first])
    longer_ns = of_step.sum(excess_ns[rows])
    beyond_ns = np.where(others_ns == NO_LIKE, longer_ns, sums.time_ns - others_ns)
    share = np.clip(beyond_ns / np.maximum(longer_ns, 1), 0, 1)
    capped_ns = excess_ns.copy()
    capped_ns[rows] = np.rint(excess_ns[rows] * share[of_step.group])
    return capped_ns
