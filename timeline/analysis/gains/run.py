"""The run that ranks make together: their steps, on one clock, and which of them do the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from timeline.analysis.gains.findings import Run
from timeline.analysis.gains.recording import DeviceWork, HostPoints, Recording
from timeline.analysis.gains.replay import RankOps, RecordedRank
from timeline.analysis.ordinary_steps import number_steps
from timeline.analysis.path.critical_path import PathKind
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.collectives import Collectives, RankCollectives, kind_numbers
from timeline.analysis.waits.pipeline import measure_bubbles
from timeline.analysis.waits.waiting import OpArrivals, Waiting, op_arrivals
from timeline.columns.columns import Bool, Int64, Rows
from timeline.columns.group_by import count_turns, group_by
from timeline.columns.intervals import covered_between
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.task_kinds import POINT_TO_POINT

AT_ONCE_NS = 5_000
"""What starts so soon after something was let start by it."""
SHORTEST = 0.1
"""The lags of the fastest launches, by which others are judged."""
MOST = 0.9
"""So many of the ops of a group that is recorded whole take about as long."""
SAME_WORK = 0.8
"""Ranks do the same work if so many of the tasks of either have a counterpart on the other."""


def gather_run(facts: Sequence[RankFacts], waiting: Waiting) -> Run | None:
    """Return the run that some ranks make, which are on one clock.

    None where none did anything, and where one did too much to be held.
    """
    ops, is_whole = _ops_of(facts, waiting)
    ranks = [RecordedRank(rank.replay, its) for rank, its in zip(facts, ops, strict=True)]
    works = [rank.recording.work for rank in ranks if len(rank.recording.work)]
    if not works or any(rank.replay.items > len(rank.replay.work) for rank in facts):
        return None
    start_ns = min(int(work.start_ns.min()) for work in works)
    end_ns = max(int(work.end_ns.max()) for work in works)
    numbers, steps, bounds_ns = _steps(facts)
    if len(bounds_ns):
        start_ns, end_ns = min(start_ns, int(bounds_ns[0])), max(end_ns, int(bounds_ns[-1]))
    hosts = [rank.recording.points for rank in ranks if len(rank.recording.points)]
    start_ns = min([start_ns, *(int(points.time_ns[0]) for points in hosts)])
    if not len(numbers):
        ranks, steps = _in_sections(ranks)
    ranks = _with_likely_waits(_with_known_order(ranks, steps), steps)
    return Run(
        ranks,
        steps,
        numbers,
        np.diff(bounds_ns),
        start_ns,
        end_ns - start_ns,
        _work_classes([rank.recording for rank in ranks]),
        _stages(facts, waiting),
        is_whole,
    )


def _ops_of(facts: Sequence[RankFacts], waiting: Waiting) -> tuple[list[RankOps], bool]:
    """Return the ops of each rank, and whether all members of all of them are recorded.

    Where not every member was read, a group is taken to be whole if its ops of one kind and size
    take about as long from the last arrival that is known: nine of ten within twice the shortest
    of those that are as large or larger. What takes longer is no transfer alone: a member that is
    not recorded came late.
    """
    collectives = [rank.collectives for rank in facts]
    arrivals = op_arrivals(collectives, waiting)
    sizes = [len(its) for its in arrivals]
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
    # Of one rank alone nothing tells whether all of its ops waited equally long.
    known = (known & ~is_missing | is_alike & (~is_missing | (members > 1))) & (every.last != NO_ID)
    exposed_ns = np.concatenate(
        [
            covered_between(
                rank.exposed, np.maximum(came.arrived_ns, its.ops.start_ns), its.ops.end_ns
            )
            for rank, its, came in zip(facts, collectives, arrivals, strict=True)
        ]
    )
    made = RankOps(
        op.group,
        known,
        every.arrived_ns,
        np.where(every.last == NO_ID, every.last_rank, NO_ID),
        np.where((ops.size_bytes != NO_ID) & known & ~is_missing, like.group, NO_ID),
        ops.communicator,
        exposed_ns,
    )
    by_rank = [made[begin:end] for begin, end in pairwise(first.tolist())]
    return by_rank, bool((known & ~is_missing)[ops.selected].all())


def _least_members(rank: RankCollectives) -> Int64:
    """Return how many ranks take part in each op of a rank, as far as its group says, (ops,)."""
    least = np.zeros(len(rank.strings), np.int64)
    for label, view in rank.arrivals.views.items():
        least[label] = max(view.group.size, len(view.group.members))
    found: Int64 = least[rank.ops.group]
    found[np.isin(rank.ops.kind, kind_numbers(POINT_TO_POINT))] = 2
    return found


def _least_of_larger(ops: Collectives, took_ns: Int64) -> Int64:
    """Return the shortest time of ops of the same group and kind that are no smaller, (ops,)."""
    order = np.lexsort((took_ns, -ops.size_bytes, ops.kind, ops.communicator))
    least_ns = took_ns.copy()
    kinds = group_by(len(order), [ops.communicator, ops.kind]).group[order]
    sizes = ops.size_bytes[order]
    bounds = np.flatnonzero(np.diff(kinds)) + 1
    for rows, its in zip(np.split(order, bounds), np.split(sizes, bounds), strict=True):
        upto_ns = np.minimum.accumulate(took_ns[rows])
        # Of equal sizes the shortest comes first, and counts for all.
        first = np.searchsorted(-its, -its, side="left")
        least_ns[rows] = np.minimum(upto_ns, upto_ns[first]) if len(rows) else upto_ns
    return least_ns


def _steps(facts: Sequence[RankFacts]) -> tuple[Int64, list[Int64], Int64]:
    """Return the numbers of all steps in order of time, the place of each rank's own among them,
    and their bounds: the beginning of the first, then the latest end of each over all ranks.
    """
    sizes = [len(rank.steps) for rank in facts]
    iteration = np.concatenate([rank.steps.iteration for rank in facts])
    if not len(iteration):
        return iteration, [np.zeros(0, np.int64) for _ in facts], np.zeros(0, np.int64)
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
    return iteration[groups.first[order]], steps, bounds_ns


def _in_sections(ranks: Sequence[RecordedRank]) -> tuple[list[RecordedRank], list[Int64]]:
    """Return ranks without steps with a section in their place: what lies between two ops of all.

    What lies before the first such op and after the last one is in no section, for it may have
    begun earlier on one rank.
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
    made, steps = [], []
    for at, rank in enumerate(ranks):
        its = number[ops.group[owner == at]]
        work, points = rank.recording.work, rank.recording.points
        of_op = np.append(its, NO_ID)[work.collective]
        marks = np.flatnonzero(of_op != NO_ID)
        starts_ns = work.start_ns[marks]
        opened = np.append(of_op[marks], NO_ID)
        section = opened[np.searchsorted(starts_ns, work.start_ns, side="right") - 1]
        of_points = opened[np.searchsorted(starts_ns, points.time_ns, side="right") - 1]
        launches = np.flatnonzero(work.launch != NO_ID)
        of_points[work.launch[launches]] = section[launches]
        final = len(rows) - 1
        section, of_points = (
            np.where(ids == final, NO_ID, ids).astype(np.int32) for ids in (section, of_points)
        )
        recording = replace(
            rank.recording,
            work=replace(work, step=section),
            points=replace(points, step=of_points),
        )
        made.append(RecordedRank(recording, rank.ops))
        steps.append(np.arange(len(rows), dtype=np.int64))
    return made, steps


def _work_classes(recordings: Sequence[Recording]) -> list[int]:
    """Return for each rank the number of the class of ranks that compute the same, as often."""
    names = StringPool()
    codes = [names.codes(one.strings)[one.work.name[_compared(one.work)]] for one in recordings]
    counts = [np.bincount(its, minlength=len(names)) for its in codes]
    leaders, found = list[Int64](), list[int]()
    for its in counts:
        for number, leader in enumerate(leaders):
            if np.minimum(its, leader).sum() >= SAME_WORK * np.maximum(its, leader).sum():
                found.append(number)
                break
        else:
            found.append(len(leaders))
            leaders.append(its)
    return found


def _stages(facts: Sequence[RankFacts], waiting: Waiting) -> list[int]:
    """Return the pipeline stage of each rank, NO_ID where it has none that is known."""
    bubbles = measure_bubbles(
        [rank.collectives for rank in facts], [rank.exposed for rank in facts], waiting.pairs
    )
    stage = np.full(len(facts), NO_ID)
    stage[bubbles.rank] = bubbles.stage
    return stage.tolist()


def _compared(work: DeviceWork) -> Bool:
    """Return the compute tasks that lie in steps, or all where there are none."""
    computes: Bool = work.kind == PathKind.COMPUTING
    in_step = computes & (work.step != NO_ID)
    return in_step if in_step.any() else computes


def _with_known_order(ranks: Sequence[RecordedRank], steps: Sequence[Int64]) -> list[RecordedRank]:
    """Return ranks whose tasks wait for another stream only where that is known.

    What starts late on its stream is taken to wait for what ended last on any other one. Where it
    was launched just before, its host is explanation enough, unless the same task of another rank
    or step, which was launched in time, started as soon as the other stream let it.
    """
    owner, place = _places(ranks, steps, [rank.recording.work for rank in ranks])
    tasks = group_by(len(owner), place[1:])
    waits, just_launched, follows = (
        np.concatenate(its)
        for its in zip(*(_starts(rank.recording) for rank in ranks), strict=True)
    )
    known = tasks.sum((waits & ~just_launched & follows).astype(np.int64)) > 0
    alone = waits & just_launched & ~known[tasks.group]
    return [
        replace(rank, recording=_without_waits(rank.recording, alone[owner == at]))
        for at, rank in enumerate(ranks)
    ]


def _with_likely_waits(ranks: Sequence[RecordedRank], steps: Sequence[Int64]) -> list[RecordedRank]:
    """Return ranks whose hosts wait for the device without a call that says so only where most do.

    A host that is late at a place where fewer than half of the ranks seem to wait is just late.
    """
    hosts = [rank.recording.points for rank in ranks]
    owner, place = _places(ranks, steps, hosts)
    guessed = np.concatenate([points.guessed for points in hosts])
    places = group_by(len(owner), place)
    waiting = places.sum(guessed.astype(np.int64))
    most = 2 * waiting >= places.count()
    unlikely = guessed & ~most[places.group]
    made = []
    for at, (rank, points) in enumerate(zip(ranks, hosts, strict=True)):
        waits_for = np.where(unlikely[owner == at], NO_ID, points.waits_for)
        host = replace(points, waits_for=waits_for.astype(np.int32))
        made.append(replace(rank, recording=replace(rank.recording, points=host)))
    return made


def _places(
    ranks: Sequence[RecordedRank],
    steps: Sequence[Int64],
    tables: Sequence[DeviceWork] | Sequence[HostPoints],
) -> tuple[Rows, list[Int64]]:
    """Return the rank of each row of a table of all ranks, and what tells its place in the run.

    That is its step, its name, and its turn among the rows of that name in the step of its rank.
    """
    names = StringPool()
    strings = [names.codes(rank.recording.strings) for rank in ranks]
    name = np.concatenate([its[table.name] for its, table in zip(strings, tables, strict=True)])
    owner = np.repeat(np.arange(len(ranks)), [len(table) for table in tables])
    step = np.concatenate(
        [np.append(its, NO_ID)[table.step] for its, table in zip(steps, tables, strict=True)]
    )
    return owner, [step, name, count_turns(owner, step, name)]


def _starts(recording: Recording) -> tuple[Bool, Bool, Bool]:
    """Return which items seem to wait for another stream, which were launched just before, and
    which start as soon as what they seem to wait for has ended.
    """
    work = recording.work
    launched = work.launch != NO_ID
    launch_ns = np.append(recording.points.time_ns, 0)[work.launch]
    end_ns = np.append(work.end_ns, 0)[work.before]
    lags_ns = work.start_ns - launch_ns
    # What a queue or a driver takes in any case lies between a launch and its task.
    usual_ns = int(np.quantile(lags_ns[launched], SHORTEST)) if launched.any() else 0
    return (
        (work.before != work.stream_before) & (work.before != NO_ID),
        launched & (lags_ns <= usual_ns + AT_ONCE_NS),
        work.start_ns - end_ns <= AT_ONCE_NS,
    )


def _without_waits(recording: Recording, alone: Bool) -> Recording:
    """Return a recording in which some items wait for the one before on their stream alone."""
    work = recording.work
    before = np.where(alone, work.stream_before, work.before)
    return replace(recording, work=replace(work, before=before))
