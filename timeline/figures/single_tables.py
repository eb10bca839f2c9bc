"""Device tasks, host calls and communication ops, one by one, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.single_records import TaskRole
from timeline.analysis.waits.waiting import Waits
from timeline.analysis.work.launching_operators import Phase
from timeline.figures.collective_tables import kind_names
from timeline.figures.table import Table, given, join_tables, texts_or_none
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME

_ROLES = np.array([role.name.lower() for role in TaskRole], object)
_PHASES = np.array([None, *(phase.name.lower() for phase in Phase if phase)], object)


def task_table(facts: Sequence[RankFacts]) -> Table:
    """Return a row per device task of some ranks, see `Profile.tasks`."""
    return join_tables(map(_tasks, facts))


def _tasks(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    tasks, strings = facts.single.tasks, texts_or_none(facts.single.strings)
    return {
        "rank": np.full(len(tasks), facts.rank, np.int64),
        "graph": given(tasks.graph, NO_GRAPH),
        "step": given(tasks.step, NO_ID),
        "device": given(tasks.device, NO_ID),
        "stream": given(tasks.stream, NO_ID),
        "task": given(tasks.task, NO_ID),
        "role": _ROLES[tasks.role],
        "type": strings[tasks.type],
        "name": strings[tasks.name],
        "core": strings[tasks.core],
        "start_ns": tasks.start_ns,
        "duration_ns": tasks.end_ns - tasks.start_ns,
        "launch_ns": given(tasks.launch_ns, NO_TIME),
        "call": given(tasks.call, NO_ID),
        "launched_by": strings[tasks.launched_by],
        "operator": strings[tasks.operator],
        "module": strings[tasks.module],
        "phase": _PHASES[tasks.phase],
        "shapes": strings[tasks.shapes],
        "size_bytes": given(tasks.size_bytes, NO_ID),
    }


def call_table(facts: Sequence[RankFacts]) -> Table:
    """Return a row per host call of some ranks, see `Profile.host_calls`."""
    return join_tables(map(_calls, facts))


def _calls(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    calls, strings = facts.single.calls, texts_or_none(facts.single.strings)
    return {
        "rank": np.full(len(calls), facts.rank, np.int64),
        "call": np.arange(len(calls)),
        "graph": given(calls.graph, NO_GRAPH),
        "step": given(calls.step, NO_ID),
        "layer": strings[calls.layer],
        "process": given(calls.process, NO_ID),
        "thread": given(calls.thread, NO_ID),
        "name": strings[calls.name],
        "level": strings[calls.level],
        "start_ns": calls.start_ns,
        "duration_ns": calls.end_ns - calls.start_ns,
    }


def op_table(facts: Sequence[RankFacts], waits: Waits) -> Table:
    """Return a row per communication op of some ranks, see `Profile.collectives`.

    waits: those of all ranks, in their order.
    """
    of_ranks = zip(facts, waits.by_rank(len(facts)), strict=True)
    return join_tables(_ops(rank, its) for rank, its in of_ranks)


def _ops(facts: RankFacts, waits: Waits) -> dict[str, npt.NDArray[Any]]:
    every, strings = facts.collectives.ops, texts_or_none(facts.collectives.strings)
    waited_ns, transfer_ns = np.full((2, len(every)), NO_TIME)
    last_rank = np.full(len(every), NO_ID, np.int64)
    waited_ns[waits.row], transfer_ns[waits.row] = waits.waited_ns, waits.transfer_ns
    last_rank[waits.row] = waits.last_rank
    rows = np.flatnonzero(every.selected)
    ops = every.take(rows)
    return {
        "rank": np.full(len(ops), facts.rank, np.int64),
        "kind": kind_names(facts, rows),
        "name": strings[ops.name],
        "group": strings[ops.group],
        "graph": given(ops.graph, NO_GRAPH),
        "step": given(ops.iteration, NO_ID),
        "start_ns": ops.start_ns,
        "duration_ns": ops.end_ns - ops.start_ns,
        "size_bytes": given(ops.size_bytes, NO_ID),
        "waited_ns": given(waited_ns[rows], NO_TIME),
        "last_rank": given(last_rank[rows], NO_ID),
        "transfer_ns": given(transfer_ns[rows], NO_TIME),
    }
