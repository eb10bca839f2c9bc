"""Tables of computing and its launchers, sums for comparisons, and single records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.single_records import TaskRole
from timeline.analysis.work.computed_work import ComputingCause, computing_causes
from timeline.analysis.work.launching_operators import LauncherTimes, Phase
from timeline.tables.table import (
    Columns,
    Method,
    Spec,
    Table,
    longest_first,
    longest_lines,
    sum_rows,
)

if TYPE_CHECKING:
    from timeline.analysis.work.work_classes import ClassTimes

COMPUTING_CAUSES = Spec(
    "computing_causes",
    "rank that computes, with the cause if it computes longer than its peers; means per step",
    """
    rank
    text cause: frequency, operators, shapes or work; None if it does not compute longer
    peers: number of ranks it is compared with
    same_work: 1 if they do the same work
    computing_ns
    peer_ns: median of the peers
    real frequency_mhz
    real peer_frequency_mhz: median of the peers
    text type: the operator type with most of the difference
    type_ns: its time
    peer_type_ns: median of the peers
    real count: number of its runs
    real peer_count: median of the peers
    """,
    lambda run: [_computing(run.facts)],
)


def _computing(facts: Sequence[RankFacts]) -> Columns:
    computing = computing_causes([rank.work for rank in facts])
    causes = computing.causes
    compared = ("peer_ns", "type_ns", "peer_type_ns", "count", "peer_count")
    names = {ComputingCause.NONE: None} | {
        cause: cause.name.lower() for cause in ComputingCause if cause
    }
    columns = COMPUTING_CAUSES.part(
        0,
        causes,
        computing.strings,
        rank=np.array([rank.rank for rank in facts], np.int64),
        cause=np.array([names[ComputingCause(one)] for one in causes.cause.tolist()], object),
        **{name: np.ma.masked_array(getattr(causes, name), causes.peers == 0) for name in compared},
    )
    return Table(columns).take(causes.computing_ns > 0).columns


_SUMMED = ("count", "total_ns", "shortest_ns", "longest_ns")
_PHASES = np.array([None, *(phase.name.lower() for phase in Phase if phase)], object)
LAUNCHERS: Spec = Spec(
    "launchers",
    "rank and operator of the framework that launched tasks, longest first; each compute task and "
    "communication op is in one row",
    """
    rank
    communication: 1 or 0
    text launched_by = Launched by: the outermost framework operator around the launch
    text operator = Operator: the innermost
    text line = Line of code: of the program, where most of the time was asked for, by call stacks
    text phase = Phase: forward, backward or other
    count, total_ns = Total, shortest_ns = Min, longest_ns = Max
    """,
    lambda run: longest_first(
        (_launched(LAUNCHERS, rank, rank.launchers.by_launch) for rank in run.facts),
        LAUNCHERS.kinds,
    ),
    method=Method("operators", by="launch"),
)
MODULES: Spec = Spec(
    "modules",
    "rank and module that launched tasks, longest first; each compute task and communication op is "
    "in one row",
    """
    rank
    communication: 1 or 0
    text module = Module: the modules and annotations around it, or the scope in its name
    text phase = Phase: forward, backward or other
    count, total_ns = Total, shortest_ns = Min, longest_ns = Max
    """,
    lambda run: longest_first(
        (_launched(MODULES, rank, rank.launchers.by_module) for rank in run.facts), MODULES.kinds
    ),
    method=Method("operators", by="module"),
)


def _launched(spec: Spec, rank: RankFacts, times: LauncherTimes) -> Columns:
    return spec.part(
        rank.rank,
        times,
        rank.launchers.strings,
        communication=times.communication.astype(np.int64),
        phase=_PHASES[times.phase],
    )


def total_over_ranks(table: Table) -> Table:
    """Sum the rows of LAUNCHERS or MODULES over ranks, longest first."""
    keys = [name for name in table.columns if name not in (*_SUMMED, "rank", "line")]
    summed = sum_rows(
        *(table, keys, ("count", "total_ns")),
        least=("shortest_ns",),
        largest=("longest_ns",),
        by="total_ns",
    )
    if "line" not in table.columns:
        return summed
    return Table({**summed.columns, "line": longest_lines(table, summed, keys)})


# -- only for comparisons --------------------------------------------------------------------------

TASK_SUMS: Spec = Spec(
    "task_sums",
    "rank and kind of task",
    """
    rank
    hccl: 1 for tasks of HCCL, 0 for copies
    label collective: kind of collective that an HCCL task belongs to
    label task
    count, total_ns = Time, size_bytes
    """,
    lambda run: (
        TASK_SUMS.part(
            rank.rank,
            rank.task_sums.times,
            rank.task_sums.strings,
            hccl=rank.task_sums.times.hccl.astype(np.int64),
        )
        for rank in run.facts
    ),
)
WORK_CLASSES = Spec(
    "work_classes",
    "rank and class of device work",
    """
    rank
    text by: kernel or launch
    text metric: the class
    count, total_ns = Time
    """,
    lambda run: (
        _classes(rank.rank, rank.class_times) for rank in run.facts if rank.class_times is not None
    ),
)
FRAMEWORK_OPERATORS: Spec = Spec(
    "framework_operators",
    "rank, name and shapes of framework operators, as in `FrameworkTimes`",
    """
    rank
    label name
    label shapes: empty if not split by them
    count, total_ns = Time, size_bytes, held_ns
    allocates: 1 if allocations were recorded
    """,
    lambda run: (
        FRAMEWORK_OPERATORS.part(
            rank.rank,
            sums.operators,
            sums.strings,
            allocates=np.full(len(sums.operators), sums.has_allocations, np.int64),
        )
        for rank in run.facts
        if (sums := rank.framework) is not None
    ),
)
FRAMEWORK_MODULES: Spec = Spec(
    "framework_modules",
    "rank, path of modules and direction, as in `ModuleTimes`",
    """
    rank
    label path
    text direction: forward or backward
    text line: of code
    self_ns, total_ns = Time
    """,
    lambda run: (
        FRAMEWORK_MODULES.part(
            rank.rank,
            sums.modules,
            sums.strings,
            direction=np.where(sums.modules.backward, "backward", "forward").astype(object),
        )
        for rank in run.facts
        if (sums := rank.framework) is not None
    ),
)
LENGTHS = Spec(
    "lengths",
    "run of an operator; none if any rank does not list all of them",
    """
    operator: its row in `operators`
    length_ns
    """,
    lambda run: _lengths(run.facts),
)


def _classes(rank: int, times: ClassTimes) -> Columns:
    from timeline.analysis.work.work_classes import WorkClass

    unknown = ~times.known.astype(np.bool_)
    return {
        "rank": np.full(len(times), rank, np.int64),
        "by": np.where(times.launch, "launch", "kernel").astype(object),
        "metric": np.array([one.metric for one in WorkClass], object)[times.work_class],
        "count": np.ma.masked_array(times.count, unknown),
        "total_ns": np.ma.masked_array(times.total_ns, unknown),
    }


def _lengths(facts: Sequence[RankFacts]) -> list[Columns]:
    parts, first = list[Columns](), 0
    for rank in facts:
        times, lengths = rank.operators.times, rank.operators.lengths
        if len(lengths) < int(times.count.sum()):
            return []
        parts.append({"operator": lengths.operator + first, "length_ns": lengths.length_ns})
        first += len(times)
    return parts


# -- single records --------------------------------------------------------------------------------

_ROLES = np.array([role.name.lower() for role in TaskRole], object)

TASKS = Spec(
    "tasks",
    "device task, by rank and start",
    """
    rank, graph, step, device, stream
    task: its id on the device
    text role: computing, communication: a task of HCCL within an op, copy or other
    text type: as in `operators`
    text name
    text core: type of core that ran it
    start_ns: on the clock that all ranks share
    duration_ns
    launch_ns: when the host launched it
    call: number of that call in `host_calls` of the same selection
    text launched_by = Launched by: the outermost framework operator around the launch
    text operator = Operator: the innermost
    text module = Module: the modules and annotations around it, or the scope in its name
    text phase = Phase: forward, backward or other
    text shapes: of inputs
    size_bytes: of copies
    """,
    lambda run: map(_tasks, run.facts),
    method=Method("tasks", questions={"every_task": True}, kept=False),
    note="Tasks that overlap in time count twice in a sum of durations; `overlap` counts them "
    "once. They are read again each time: select some steps of a large profile",
)
HOST_CALLS = Spec(
    "host_calls",
    "host call that touches the time of the selection, by rank and start",
    """
    rank
    call: its number, as in `tasks`
    graph
    step: as recorded, or the step of the host in which it began
    text layer: the caller: CANN, Python, PyTorch, Runtime, ...
    process, thread
    text name, level
    start_ns: on the clock that all ranks share
    duration_ns
    """,
    lambda run: map(_calls, run.facts),
    method=Method("host_calls", questions={"every_call": True}, kept=False),
    note="Calls are nested, so durations do not add up. They are read again each time",
)


def _tasks(facts: RankFacts) -> Columns:
    tasks = facts.single.tasks
    return TASKS.part(
        facts.rank,
        tasks,
        facts.single.strings,
        role=_ROLES[tasks.role],
        duration_ns=tasks.end_ns - tasks.start_ns,
        phase=_PHASES[tasks.phase],
    )


def _calls(facts: RankFacts) -> Columns:
    calls, number = facts.single.calls, np.arange(len(facts.single.calls))
    length_ns = calls.end_ns - calls.start_ns
    return HOST_CALLS.part(
        facts.rank, calls, facts.single.strings, call=number, duration_ns=length_ns
    )
