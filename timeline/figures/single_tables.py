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
from timeline.columns.columns import Codes
from timeline.figures.collective_tables import kind_names
from timeline.figures.table import Table, join_tables
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME

_ROLES = np.array([role.name.lower() for role in TaskRole], object)
_PHASES = np.array([None, *(phase.name.lower() for phase in Phase if phase)], object)


def task_table(facts: Sequence[RankFacts]) -> Table:
    """A row per device task of some ranks, see `Profile.tasks`."""
    return join_tables(map(_tasks, facts))


def _tasks(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    tasks, strings = facts.single.tasks, _texts(facts.single.strings)
    return {
        "rank": np.full(len(tasks), facts.rank, np.int64),
        "graph": _given(tasks.graph, NO_GRAPH),
        "step": _given(tasks.step, NO_ID),
        "device": _given(tasks.device, NO_ID),
        "stream": _given(tasks.stream, NO_ID),
        "task": _given(tasks.task, NO_ID),
        "role": _ROLES[tasks.role],
        "type": strings[tasks.type],
        "name": strings[tasks.name],
        "core": strings[tasks.core],
        "start_ns": tasks.start_ns,
        "duration_ns": tasks.end_ns - tasks.start_ns,
        "launch_ns": _given(tasks.launch_ns, NO_TIME),
        "call": _given(tasks.call, NO_ID),
        "launched_by": strings[tasks.launched_by],
        "operator": strings[tasks.operator],
        "module": strings[tasks.module],
        "phase": _PHASES[tasks.phase],
        "shapes": strings[tasks.shapes],
        "size_bytes": _given(tasks.size_bytes, NO_ID),
    }


def call_table(facts: Sequence[RankFacts]) -> Table:
    """A row per host call of some ranks, see `Profile.host_calls`."""
    return join_tables(map(_calls, facts))


def _calls(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    calls, strings = facts.single.calls, _texts(facts.single.strings)
    return {
        "rank": np.full(len(calls), facts.rank, np.int64),
        "call": np.arange(len(calls)),
        "graph": _given(calls.graph, NO_GRAPH),
        "step": _given(calls.step, NO_ID),
        "layer": strings[calls.layer],
        "process": _given(calls.process, NO_ID),
        "thread": _given(calls.thread, NO_ID),
        "name": strings[calls.name],
        "level": strings[calls.level],
        "start_ns": calls.start_ns,
        "duration_ns": calls.end_ns - calls.start_ns,
    }


def op_table(facts: Sequence[RankFacts], waits: Waits) -> Table:
    """A row per communication op of some ranks, see `Profile.collectives`.

    waits: those of all ranks, in their order.
    """
    of_ranks = zip(facts, waits.by_rank(len(facts)), strict=True)
    return join_tables(_ops(rank, its) for rank, its in of_ranks)


def _ops(facts: RankFacts, waits: Waits) -> dict[str, npt.NDArray[Any]]:
    every, strings = facts.collectives.ops, _texts(facts.collectives.strings)
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
        "graph": _given(ops.graph, NO_GRAPH),
        "step": _given(ops.iteration, NO_ID),
        "start_ns": ops.start_ns,
        "duration_ns": ops.end_ns - ops.start_ns,
        "size_bytes": _given(ops.size_bytes, NO_ID),
        "waited_ns": _given(waited_ns[rows], NO_TIME),
        "last_rank": _given(last_rank[rows], NO_ID),
        "transfer_ns": _given(transfer_ns[rows], NO_TIME),
    }


def _texts(strings: Sequence[str]) -> npt.NDArray[Any]:
    return np.array([text or None for text in strings], object)


def _given(values: npt.NDArray[Any] | Codes, none: int) -> npt.NDArray[Any]:
    """A column whose values that are not given are masked."""
    absent = values == none
    return np.ma.masked_array(values, absent) if absent.any() else np.asarray(values)
