"""A run of several ranks: its steps on one clock, and the ranks that do the same work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from timeline.analysis.gains.findings import Run
from timeline.analysis.gains.recording import DeviceWork, HostPoints, Recording
from timeline.analysis.gains.replay import RankOps, RecordedRank
from timeline.analysis.ordinary_steps import number_steps
from timeline.analysis.path.rank_path import PathKind
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.collectives import Collectives, RankCollectives, kind_numbers
from timeline.analysis.waits.pipeline import measure_bubbles
from timeline.analysis.waits.waiting import OpArrivals, Waiting, op_arrivals
from timeline.columns.columns import Bool, Codes, Int64, Rows
from timeline.columns.distinct import distinct
from timeline.columns.group_by import count_turns, group_by, rows_before
from timeline.columns.intervals import covered_between
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.task_kinds import POINT_TO_POINT

AT_ONCE_NS = 5_000
"""Maximum delay after a trigger for a start to count as immediate."""
SHORTEST = 0.1
"""Quantile of the launch lags that is taken as the usual lag."""
MOST = 0.9
"""Minimum share of the ops of a group with similar times for the group to count as fully recorded.
"""
SAME_WORK = 0.8
"""Minimum share of the tasks of two ranks that must correspond for the ranks to do the same work.
"""
SAME_TYPES = 0.95
"""The same for types of operators; it is higher, since different work shares many types."""


def gather_run(facts: Sequence[RankFacts], waiting: Waiting) -> Run | None:
    """Return the run of several ranks on one clock.

    None if no rank has any work, or if a rank has too many items to be held.
    """
    ops, is_whole = _ops_of(facts, waiting)
    ranks = [RecordedRank(rank.replay, rank_ops) for rank, rank_ops in zip(facts, ops, strict=True)]
    works = [rank.recording.work for rank in ranks if len(rank.recording.work)]
    if not works or any(rank.replay.items > len(rank.replay.work) for rank in facts):
        return None
    start_ns = min(int(work.start_ns.min()) for work in works)
    end_ns = max(int(work.end_ns.max()) for work in works)
    numbers, steps, bounds_ns, is_cut, has_gaps = _steps(facts)
    if len(bounds_ns):
        start_ns, end_ns = min(start_ns, int(bounds_ns[0])), max(end_ns, int(bounds_ns[-1]))
    ranks = [_until(rank, end_ns) for rank in ranks]
    hosts = [rank.recording.points for rank in ranks if len(rank.recording.points)]
    start_ns = min([start_ns, *(int(points.time_ns[0]) for points in hosts)])
    if len(numbers):
        ranks, steps = _with_steps_of_others(ranks, steps, bounds_ns)
    else:
        ranks, steps = _in_sections(ranks)
    ranks, classes = _comparable(ranks)
    ranks = _with_likely_waits(_with_known_order(ranks, steps), steps)
    return Run(
        ranks,
        steps,
        numbers,
        np.diff(bounds_ns),
        is_cut,
        start_ns,
        end_ns - start_ns,
        classes,
        _stages(facts, waiting),
        is_whole,
        has_gaps,
    )


def _until(rank: RecordedRank, end_ns: int) -> RecordedRank:
    """Return a rank without the points of its host after the run, which no gain may shorten."""
    points = rank.recording.points
    count = int(np.searchsorted(points.time_ns, end_ns, side="right"))
    return rank if count == len(points) else rank.with_tables(points=points[:count])


def _ops_of(facts: Sequence[RankFacts], waiting: Waiting) -> tuple[list[RankOps], bool]:
    """Return the ops of each rank, and whether all members of all selected ops are recorded.

    If not every member was read, a group counts as complete if its ops of one kind and size take
    about equally long from the last known arrival: nine out of ten at most twice the shortest of
    those that are as large or larger. Ops that take longer include waiting for a member that is not
    recorded.
    """
    collectives = [rank.collectives for rank in facts]
    arrivals = op_arrivals(collectives, waiting)
    sizes = [len(one) for one in arrivals]
    first = np.cumsum([0, *sizes])
    every, ops = OpArrivals.concat(arrivals), Collectives.concat([one.ops for one in collectives])
    owner = np.repeat(np.arange(len(facts)), sizes)
    waits, pairs = waiting.waits, waiting.pairs
    known, paired = np.zeros((2, len(every)), np.bool_)
    rows = first[waits.rank] + waits.row
    known[rows], paired[rows] = waits.transfer_ns != NO_TIME, waits.last_profiled
    for rows in (first[pairs.sender] + pairs.send_row, first[pairs.receiver] + pairs.receive_row):
        known[rows] = paired[rows] = True
    by_key = ~paired & (ops.key != NO_ID)
    op = group_by(
        len(every),
        [
            by_key.astype(np.int64),
            np.where(by_key, NO_ID, np.where(paired, every.last, owner)),
            np.where(by_key, ops.key, np.where(paired, every.last_row, np.arange(len(every)))),
        ],
    )
    members = op.count()[op.group]
    is_missing = members < np.concatenate([_least_members(one) for one in collectives])
    like = group_by(len(every), [ops.kind, ops.size_bytes, members])
    alike = group_by(len(every), [ops.communicator, like.group])
    came_ns = op.greatest(ops.start_ns)[op.group] if len(every) else ops.start_ns
    took_ns = np.maximum(ops.end_ns - np.maximum(every.arrived_ns, came_ns), 0)
    least_ns = _least_of_larger(ops, took_ns)
    near = alike.sum((ops.selected & (took_ns <= 2 * least_ns)).astype(np.int64))
    is_alike = (near >= MOST * alike.sum(ops.selected.astype(np.int64)))[alike.group]
    # With one rank alone, all of its ops may have waited equally long.
    known = (known & ~is_missing | is_alike & (~is_missing | (members > 1))) & (every.last != NO_ID)
    exposed_ns = np.concatenate(
        [
            covered_between(
                rank.exposed, np.maximum(came.arrived_ns, own.ops.start_ns), own.ops.end_ns
            )
            for rank, own, came in zip(facts, collectives, arrivals, strict=True)
        ]
    )
    rank_ops = RankOps(
        op.group,
        known,
        every.arrived_ns,
        np.where(every.last == NO_ID, every.last_rank, NO_ID),
        np.where((ops.size_bytes != NO_ID) & known & ~is_missing, like.group, NO_ID),
        ops.communicator,
        exposed_ns,
    )
    by_rank = [rank_ops[begin:end] for begin, end in pairwise(first.tolist())]
    return by_rank, bool((known & ~is_missing)[ops.selected].all())


def _least_members(rank: RankCollectives) -> Int64:
    """Return the minimum number of ranks in each op of a rank according to its group, (ops,)."""
    least = np.zeros(len(rank.strings), np.int64)
    for label, view in rank.arrivals.views.items():
        least[label] = max(view.group.size, len(view.group.members))
    members: Int64 = least[rank.ops.group]
    members[np.isin(rank.ops.kind, kind_numbers(POINT_TO_POINT))] = 2
    return members


def _least_of_larger(ops: Collectives, took_ns: Int64) -> Int64:
    """Return the shortest time of ops of the same group and kind that are no smaller, (ops,)."""
    order = np.lexsort((took_ns, -ops.size_bytes, ops.kind, ops.communicator))
    least_ns = took_ns.copy()
    kinds = group_by(len(order), [ops.communicator, ops.kind]).group[order]
    sizes = ops.size_bytes[order]
    bounds = np.flatnonzero(np.diff(kinds)) + 1
    for rows, of_kind in zip(np.split(order, bounds), np.split(sizes, bounds), strict=True):
        upto_ns = np.minimum.accumulate(took_ns[rows])
        # Among equal sizes the shortest comes first, and counts for all.
        first = np.searchsorted(-of_kind, -of_kind, side="left")
        least_ns[rows] = np.minimum(upto_ns, upto_ns[first]) if len(rows) else upto_ns
    return least_ns


def _steps(facts: Sequence[RankFacts]) -> tuple[Int64, list[Int64], Int64, Bool, bool]:
    """Return the steps of all ranks in order of time.

    Returns:
        numbers: (steps,). places: for each rank, the places of its steps among all. bounds_ns:
        (steps + 1,) the start of the first step, then the latest end of each step over all ranks.
        is_cut: (steps,) whether a step is cut on any rank. has_gaps: whether any step begins after
        the end of the step before it.
    """
    sizes = [len(rank.steps) for rank in facts]
    iteration = np.concatenate([rank.steps.iteration for rank in facts])
    if not len(iteration):
        none = np.zeros(0, np.int64)
        return iteration, [none for _ in facts], none, np.zeros(0, np.bool_), False
    group = number_steps(facts)
    starts_ns = np.concatenate([rank.recorded.begin_ns for rank in facts])
    ends_ns = np.concatenate([rank.recorded.end_ns for rank in facts])
    groups = group_by(len(group), [group])
    last_ns = groups.greatest(ends_ns)
    order = np.argsort(last_ns, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    bounds_ns = np.maximum.accumulate(np.append(starts_ns.min(), last_ns[order]))
    steps = np.split(place[groups.group], np.cumsum(sizes)[:-1])
    has_gaps = bool((groups.least(starts_ns)[order][1:] > bounds_ns[1:-1]).any())
    cut = np.concatenate([rank.recorded.cut for rank in facts])
    is_cut = groups.sum(cut.astype(np.int64))[order] > 0
    return iteration[groups.first[order]], steps, bounds_ns, is_cut, has_gaps


def _with_steps_of_others(
    ranks: Sequence[RecordedRank], steps: Sequence[Int64], bounds_ns: Int64
) -> tuple[list[RecordedRank], list[Int64]]:
    """Assign the records of ranks without step marks to the steps of other ranks, by time."""
    marked, places = list[RecordedRank](), list[Int64]()
    every = np.append(np.arange(len(bounds_ns) - 1), NO_ID).astype(np.int32)

    def steps_at(times_ns: Int64) -> Codes:
        return every[np.searchsorted(bounds_ns[1:], times_ns, side="right")]

    for rank, own in zip(ranks, steps, strict=True):
        if len(own):
            marked.append(rank)
            places.append(own)
            continue
        work, points = rank.recording.work, rank.recording.points
        marked.append(_in_steps(rank, steps_at(work.start_ns), steps_at(points.time_ns)))
        places.append(np.arange(len(every) - 1, dtype=np.int64))
    return marked, places


def _in_sections(ranks: Sequence[RecordedRank]) -> tuple[list[RecordedRank], list[Int64]]:
    """Split ranks without steps into sections between consecutive ops that all ranks share.

    Work before the first such op and after the last one is in no section, since it may have begun
    earlier on one rank.
    """
    owner = np.repeat(np.arange(len(ranks)), [len(rank.ops) for rank in ranks])
    op = np.concatenate([rank.ops.op for rank in ranks])
    known = np.concatenate([rank.ops.known for rank in ranks])
    ops = group_by(len(op), [op])
    shared = (ops.count() == len(ranks)) & known[ops.first]
    came_ns = np.concatenate([rank.ops.arrived_ns for rank in ranks])[ops.first]
    number = np.full(len(shared), NO_ID, np.int64)
    rows = np.flatnonzero(shared)
    number[rows[np.argsort(came_ns[rows], kind="stable")]] = np.arange(len(rows))
    sectioned, steps = [], []
    for at, rank in enumerate(ranks):
        numbers = number[ops.group[owner == at]]
        work, points = rank.recording.work, rank.recording.points
        of_op = np.append(numbers, NO_ID)[work.collective]
        marks = np.flatnonzero(of_op != NO_ID)
        starts_ns = work.start_ns[marks]
        opened = np.append(of_op[marks], NO_ID)
        section = opened[np.searchsorted(starts_ns, work.start_ns, side="right") - 1]
        of_points = opened[np.searchsorted(starts_ns, points.time_ns, side="right") - 1]
        final = len(rows) - 1
        section, of_points = (
            np.where(ids == final, NO_ID, ids).astype(np.int32) for ids in (section, of_points)
        )
        sectioned.append(_in_steps(rank, section, of_points))
        steps.append(np.arange(len(rows), dtype=np.int64))
    return sectioned, steps


def _in_steps(rank: RecordedRank, of_work: Codes, of_points: Codes) -> RecordedRank:
    """Return a rank with its items and host points in other steps; launches follow their items."""
    work, points = rank.recording.work, rank.recording.points
    launches = np.flatnonzero(work.launch != NO_ID)
    of_points[work.launch[launches]] = of_work[launches]
    return rank.with_tables(
        work=replace(work, step=of_work), points=replace(points, step=of_points)
    )


def _comparable(ranks: Sequence[RecordedRank]) -> tuple[list[RecordedRank], list[int]]:
    """Return ranks with comparable names of tasks, and a class for each, shared by equal work.

    If kernels have different names on each rank, as on GPUs of two kinds, ranks that run the same
    operator types equally often do the same work, and their tasks are named by type.
    """
    works = [rank.recording.work for rank in ranks]
    classes = _work_classes(ranks, [work.name for work in works], SAME_WORK)
    types = [np.where(work.type != NO_NAME, work.type, work.name) for work in works]
    by_type = _work_classes(ranks, types, SAME_TYPES)
    if max(by_type) >= max(classes):
        return list(ranks), classes
    named = [
        rank.with_tables(work=replace(work, name=names))
        for rank, work, names in zip(ranks, works, types, strict=True)
    ]
    return named, by_type


def _work_classes(ranks: Sequence[RecordedRank], codes: Sequence[Codes], share: float) -> list[int]:
    """Return a number for each rank, shared by ranks that run the same tasks equally often.

    codes: (items,) for each rank, the names that tasks are compared by. share: minimum share of the
    tasks that must correspond.
    """
    names = StringPool()
    counts = []
    for rank, code in zip(ranks, codes, strict=True):
        rows = _compared(rank.recording.work)
        steps = max(len(distinct(rank.recording.work.step[rows])), 1)
        common = names.codes(rank.recording.strings)[code[rows]]
        counts.append((common, steps))
    leaders, classes = list[npt.NDArray[np.float64]](), list[int]()
    for common, steps in counts:
        count = np.bincount(common, minlength=len(names)) / steps
        for number, leader in enumerate(leaders):
            if np.minimum(count, leader).sum() >= share * np.maximum(count, leader).sum():
                classes.append(number)
                break
        else:
            classes.append(len(leaders))
            leaders.append(count)
    return classes


def _stages(facts: Sequence[RankFacts], waiting: Waiting) -> list[int]:
    """Return the pipeline stage of each rank, NO_ID if unknown."""
    bubbles = measure_bubbles(
        [rank.collectives for rank in facts], [rank.exposed for rank in facts], waiting.pairs
    )
    stage = np.full(len(facts), NO_ID)
    stage[bubbles.rank] = bubbles.stage
    return stage.tolist()


def _compared(work: DeviceWork) -> Bool:
    """Return a mask of the compute tasks in steps, or of all compute tasks if none is in a step."""
    computes: Bool = work.kind == PathKind.COMPUTING
    in_step = computes & (work.step != NO_ID)
    return in_step if in_step.any() else computes


def _with_known_order(ranks: Sequence[RecordedRank], steps: Sequence[Int64]) -> list[RecordedRank]:
    """Return ranks whose tasks wait for another stream only if there is evidence for it.

    A task that starts late on its stream is taken to wait for the latest end on any other stream.
    If it was launched just before, its launch is explanation enough, unless the same task of
    another rank or step, launched in time, started as soon as the other stream ended.
    """
    works = [rank.recording.work for rank in ranks]
    owner, place = _places(ranks, steps, works)
    tasks = group_by(len(owner), place[1:])
    just_launched, follows = (
        np.concatenate(masks)
        for masks in zip(*(_starts(rank.recording) for rank in ranks), strict=True)
    )
    before = np.concatenate([work.before for work in works]).astype(np.int64)
    stream_before = np.concatenate([_before_in_order(rank) for rank in ranks])
    is_op = np.concatenate([work.collective for work in works]) != NO_ID
    waits = (before != stream_before) & (before != NO_ID)
    is_evident = waits & ~just_launched & follows
    known = tasks.sum((is_evident & ~is_op).astype(np.int64)) > 0
    alone = waits & just_launched & ~known[tasks.group] & ~is_op
    also = np.where(waits & ~alone, stream_before, NO_ID)
    partners = _hidden_waits(works, owner, place[0], tasks.group, waits, is_evident)
    also = np.where(partners != NO_ID, partners, also)
    before = np.where(alone, stream_before, before)
    ordered = []
    for at, rank in enumerate(ranks):
        work = replace(
            rank.recording.work,
            before=before[owner == at].astype(np.int32),
            also=also[owner == at].astype(np.int32),
        )
        ordered.append(rank.with_tables(work=work))
    return ordered


def _before_in_order(rank: RecordedRank) -> Int64:
    """Return the previous row of each item, (items,): on its stream, or of its group for an op."""
    work = rank.recording.work
    before = work.stream_before.astype(np.int64)
    rows = np.flatnonzero(work.collective != NO_ID)
    earlier = rows_before(rank.ops.group[work.collective[rows]])
    before[rows] = np.where(earlier != NO_ID, rows[earlier], NO_ID)
    return before


def _hidden_waits(
    works: Sequence[DeviceWork],
    owner: Rows,
    step: Int64,
    task: Rows,
    waits: Bool,
    is_evident: Bool,
) -> Int64:
    """Return the items on other streams that items wait for although their own was busy longer.

    It is the item that the same task of another rank or step evidently waits for.

    Args:
        owner, step, task: (n,) rank, step, and number of the same task over ranks and steps.
        waits: (n,) mask of items that start after one of another stream. is_evident: (n,) mask of
            those that waited for it.

    Returns:
        Rows (n,) of the rank, NO_ID for none.
    """
    first = np.cumsum([0, *map(len, works)])[owner]
    before, start_ns, end_ns = (
        np.concatenate([getattr(work, name) for work in works]).astype(np.int64)
        for name in ("before", "start_ns", "end_ns")
    )
    waited = np.full(len(owner), NO_ID, np.int64)
    partner = np.full(int(task.max(initial=NO_ID)) + 1, NO_ID, np.int64)
    evident = np.flatnonzero(is_evident)
    partner[task[evident]] = task[(first + before)[evident]]
    rows = np.flatnonzero(~waits & (before != NO_ID) & (partner[task] != NO_ID))
    if len(rows):
        at = group_by(len(owner), [owner, step]).group
        key, wanted = at * len(partner) + task, at[rows] * len(partner) + partner[task[rows]]
        order = np.argsort(key, kind="stable")
        met = order[np.minimum(np.searchsorted(key[order], wanted), len(order) - 1)]
        holds = (key[met] == wanted) & (met < rows) & (end_ns[met] <= start_ns[rows])
        waited[rows[holds]] = (met - first[rows])[holds]
    return waited


def _with_likely_waits(ranks: Sequence[RecordedRank], steps: Sequence[Int64]) -> list[RecordedRank]:
    """Keep guessed host waits only where at least half of the ranks have them.

    A host that is late at a place where fewer than half of the ranks seem to wait is simply late.
    """
    hosts = [rank.recording.points for rank in ranks]
    owner, place = _places(ranks, steps, hosts)
    guessed = np.concatenate([points.guessed for points in hosts])
    places = group_by(len(owner), place)
    waiting = places.sum(guessed.astype(np.int64))
    most = 2 * waiting >= places.count()
    unlikely = guessed & ~most[places.group]
    likely = []
    for at, (rank, points) in enumerate(zip(ranks, hosts, strict=True)):
        waits_for = np.where(unlikely[owner == at], NO_ID, points.waits_for)
        host = replace(points, waits_for=waits_for.astype(np.int32))
        likely.append(rank.with_tables(points=host))
    return likely


def _places(
    ranks: Sequence[RecordedRank],
    steps: Sequence[Int64],
    tables: Sequence[DeviceWork] | Sequence[HostPoints],
) -> tuple[Rows, list[Int64]]:
    """Return the rank of each row of a table of all ranks, and the keys of its place in the run.

    The keys are its step, its name, and its turn among the rows of that name in the step of its
    rank.
    """
    names = StringPool()
    strings = [names.codes(rank.recording.strings) for rank in ranks]
    name = np.concatenate([codes[table.name] for codes, table in zip(strings, tables, strict=True)])
    owner = np.repeat(np.arange(len(ranks)), [len(table) for table in tables])
    step = np.concatenate(
        [np.append(places, NO_ID)[table.step] for places, table in zip(steps, tables, strict=True)]
    )
    return owner, [step, name, count_turns(owner, step, name)]


def _starts(recording: Recording) -> tuple[Bool, Bool]:
    """Return which items were launched just before, and which start as `before` ends, (items,)."""
    work = recording.work
    launched = work.launch != NO_ID
    launch_ns = np.append(recording.points.time_ns, 0)[work.launch]
    end_ns = np.append(work.end_ns, 0)[work.before]
    lags_ns = work.start_ns - launch_ns
    # The usual delay of a queue or driver lies between a launch and its task.
    usual_ns = int(np.quantile(lags_ns[launched], SHORTEST)) if launched.any() else 0
    return (
        launched & (lags_ns <= usual_ns + AT_ONCE_NS),
        work.start_ns - end_ns <= AT_ONCE_NS,
    )
