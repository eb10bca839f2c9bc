"""Tables on computing and on who launched it, some of them for comparisons alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.work.computed_work import ComputingCause, computing_causes
from timeline.analysis.work.launching_operators import LauncherFigures, LauncherTimes, Phase
from timeline.tables.table import Table, join_tables
from timeline.units import spell_count, spell_short

if TYPE_CHECKING:
    from timeline.analysis.work.framework_sums import FrameworkSums
    from timeline.analysis.work.work_classes import ClassTimes


from timeline.analysis.single_records import TaskRole
from timeline.analysis.waits.waiting import Waits
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.tables.table import given, texts_or_none
from timeline.tables.waits import kind_names

_NEARLY_EQUAL = 0.01
"""Frequencies that differ by less are told as one."""


def computing_table(facts: Sequence[RankFacts]) -> Table:
    """Return a row per rank that computes: how long per step, and why longer than its peers.

    rank; cause: frequency, operators, shapes or work, masked where it does not compute longer;
    peers: how many ranks it is compared with, and same_work: 1 where they do the same work.
    computing_ns, frequency_mhz, and those of the peers (their median); type: the operator that
    makes most of the difference, type_ns and count, and those of the peers. All are means per
    step; what is not known is masked.
    """
    found = computing_causes([rank.work for rank in facts])
    causes, strings = found.causes, np.array(found.strings, object)
    alone = causes.peers == 0
    names = [ComputingCause(cause).name.lower() for cause in causes.cause.tolist()]
    return Table(
        {
            "rank": np.array([rank.rank for rank in facts], np.int64),
            "cause": np.ma.masked_array(
                np.array(names, object), causes.cause == ComputingCause.NONE
            ),
            "peers": causes.peers,
            "same_work": causes.same_work,
            "computing_ns": causes.computing_ns,
            "peer_ns": np.ma.masked_array(causes.peer_ns, alone),
            "frequency_mhz": np.ma.masked_invalid(causes.frequency_mhz),
            "peer_frequency_mhz": np.ma.masked_invalid(causes.peer_frequency_mhz),
            "type": np.ma.masked_array(strings[causes.type], alone),
            "type_ns": np.ma.masked_array(causes.type_ns, alone),
            "peer_type_ns": np.ma.masked_array(causes.peer_type_ns, alone),
            "count": np.ma.masked_array(causes.count, alone),
            "peer_count": np.ma.masked_array(causes.peer_count, alone),
        }
    ).take(causes.computing_ns > 0)


def computing_sentences(table: Table) -> Iterator[str]:
    """Return a sentence for each rank that computes longer than its peers, largest share first."""
    rows = [row for row in table.to_dicts() if row["cause"] is not None]
    rows.sort(key=lambda row: -row["computing_ns"] / row["peer_ns"])
    for row in rows:
        yield f"Rank {row['rank']} {tell_computing(row)}."


def tell_computing(row: Mapping[str, Any]) -> str:
    """Return why a rank computes longer, without its name and a full stop.

    row: of `computing_table`, with a cause.
    """
    longer = f"computes {row['computing_ns'] / row['peer_ns'] - 1:.0%} longer"
    if row["same_work"]:
        ranks = (
            f"the {spell_count(row['peers'], 'rank')} that" if row["peers"] > 1 else "the rank that"
        )
        longer += f" than {ranks} {'do' if row['peers'] > 1 else 'does'} the same work"
    return f"{longer}: {_WORDS[row['cause']](row)}"


def _tell_frequency(row: Mapping[str, Any]) -> str:
    own, peers = row["frequency_mhz"] / 1000, row["peer_frequency_mhz"] / 1000
    return f"same operators, AI Core at {own:.2f} against {peers:.2f} GHz"


def _tell_operators(row: Mapping[str, Any]) -> str:
    return f"{_tell_difference(row)}; {_tell_known_frequency(row)}"


def _tell_shapes(row: Mapping[str, Any]) -> str:
    return f"same operators on other shapes, {_tell_difference(row)}"


def _tell_work(row: Mapping[str, Any]) -> str:
    count, peers = row["count"], row["peer_count"]
    if round(count, 1) == round(peers, 1):
        return f"other work, {_tell_difference(row)}"
    what = "more" if count > peers else "other"
    return f"{what} work, {count:.4g} against {peers:.4g} {row['type']} per step"


def _tell_difference(row: Mapping[str, Any]) -> str:
    more_ns = row["type_ns"] - row["peer_type_ns"]
    all_ns = row["computing_ns"] - row["peer_ns"]
    return f"{row['type']} {spell_short(more_ns)} more of {spell_short(all_ns)} per step"


def _tell_known_frequency(row: Mapping[str, Any]) -> str:
    own, peers = row["frequency_mhz"], row["peer_frequency_mhz"]
    if own is None or peers is None:
        return "the frequency is not recorded"
    if abs(own / peers - 1) < _NEARLY_EQUAL:
        return f"AI Core at {own / 1000:.2f} GHz as there"
    return f"AI Core at {own / 1000:.2f} against {peers / 1000:.2f} GHz"


_WORDS = {
    "frequency": _tell_frequency,
    "operators": _tell_operators,
    "shapes": _tell_shapes,
    "work": _tell_work,
}
"""What is said of each cause."""


_SUMMED = ("count", "total_ns", "shortest_ns", "longest_ns")
_PHASES = np.array([phase.name.lower() for phase in Phase], object)


def launch_table(facts: Sequence[RankFacts]) -> Table:
    """Return a row per rank and launching operator, longest first.

    rank, communication (1 or 0), launched_by (the outermost operator of the framework), operator
    (the innermost), phase (forward, backward or other), count, total_ns, shortest_ns, longest_ns.
    What is not known is masked; each compute task and communication op is in one row.
    """
    return _table(facts, lambda one: one.by_launch, ("launched_by", "operator"))


def module_table(facts: Sequence[RankFacts]) -> Table:
    """Return a row per rank and module, longest first; as `launch_table`, with `module`."""
    return _table(facts, lambda one: one.by_module, ("module",))


def total_over_ranks(table: Table) -> Table:
    """Sum the rows of `launch_table` or `module_table` over ranks, longest first.

    Names that are not known are empty.
    """
    keys = [name for name in table.columns if name not in (*_SUMMED, "rank")]
    found: dict[tuple[Any, ...], list[int]] = {}
    rows = zip(*(table[name].tolist() for name in _SUMMED), strict=True)
    named = zip(*(table[name].tolist() for name in keys), strict=True)
    for key, (count, total_ns, shortest_ns, longest_ns) in zip(named, rows, strict=True):
        sums = found.setdefault(key, [0, 0, shortest_ns, 0])
        sums[0] += count
        sums[1] += total_ns
        sums[2] = min(sums[2], shortest_ns)
        sums[3] = max(sums[3], longest_ns)
    order = sorted(found, key=lambda key: -found[key][1])
    values = np.array([found[key] for key in order], np.int64).reshape(-1, len(_SUMMED))
    return Table(
        {
            name: np.array([key[at] or "" for key in order], object)
            if at
            else np.array([key[at] for key in order], np.int64)
            for at, name in enumerate(keys)
        }
        | dict(zip(_SUMMED, values.T, strict=True))
    )


def _table(
    facts: Sequence[RankFacts],
    table_of: Callable[[LauncherFigures], LauncherTimes],
    names: tuple[str, ...],
) -> Table:
    def columns(rank: RankFacts) -> dict[str, npt.NDArray[Any]]:
        times, strings = table_of(rank.launchers), np.array(rank.launchers.strings, object)
        named = {name: strings[getattr(times, name)] for name in names}
        return {
            "rank": np.full(len(times), rank.rank),
            "communication": times.communication.astype(np.int64),
            **{name: np.ma.masked_array(texts, texts == "") for name, texts in named.items()},
            "phase": np.ma.masked_array(_PHASES[times.phase], times.phase == Phase.UNKNOWN),
            **{name: getattr(times, name) for name in _SUMMED},
        }

    return join_tables(map(columns, facts))


def task_sum_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.task_sums`."""
    return join_tables(map(_task_sums, facts))


def _task_sums(rank: RankFacts) -> dict[str, npt.NDArray[Any]]:
    times, strings = rank.task_sums.times, np.array(rank.task_sums.strings, object)
    return {
        "rank": np.full(len(times), rank.rank, np.int64),
        "hccl": times.hccl.astype(np.int64),
        "collective": strings[times.collective],
        "task": strings[times.task],
        "count": times.count,
        "total_ns": times.total_ns,
        "size_bytes": times.size_bytes,
    }


def class_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.work_classes`."""
    return join_tables(
        _classes(rank.rank, rank.class_times) for rank in facts if rank.class_times is not None
    )


def _classes(rank: int, times: ClassTimes) -> dict[str, npt.NDArray[Any]]:
    from timeline.analysis.work.work_classes import WorkClass

    metrics = np.array([one.metric for one in WorkClass], object)
    unknown = ~times.known.astype(np.bool_)
    return {
        "rank": np.full(len(times), rank, np.int64),
        "by": np.where(times.launch, "launch", "kernel").astype(object),
        "metric": metrics[times.work_class],
        "count": np.ma.masked_array(times.count, unknown),
        "total_ns": np.ma.masked_array(times.total_ns, unknown),
    }


def framework_operator_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.framework_operators`."""
    return join_tables(
        _framework_operators(rank.rank, rank.framework)
        for rank in facts
        if rank.framework is not None
    )


def _framework_operators(rank: int, sums: FrameworkSums) -> dict[str, npt.NDArray[Any]]:
    times, strings = sums.operators, np.array(sums.strings, object)
    return {
        "rank": np.full(len(times), rank, np.int64),
        "name": strings[times.name],
        "shapes": strings[times.shapes],
        "count": times.count,
        "total_ns": times.total_ns,
        "size_bytes": times.size_bytes,
        "held_ns": times.held_ns,
        "allocates": np.full(len(times), sums.has_allocations, np.int64),
    }


def framework_module_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.framework_modules`."""
    return join_tables(
        _framework_modules(rank.rank, rank.framework)
        for rank in facts
        if rank.framework is not None
    )


def _framework_modules(rank: int, sums: FrameworkSums) -> dict[str, npt.NDArray[Any]]:
    times, strings = sums.modules, np.array(sums.strings, object)
    return {
        "rank": np.full(len(times), rank, np.int64),
        "path": strings[times.path],
        "direction": np.where(times.backward, "backward", "forward").astype(object),
        "self_ns": times.self_ns,
        "total_ns": times.total_ns,
    }


def length_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.lengths`; without rows where any rank tells none of its lengths."""
    parts, first = [], 0
    for rank in facts:
        times, lengths = rank.operators.times, rank.operators.lengths
        if len(lengths) < int(times.count.sum()):
            return Table({})
        parts.append({"operator": lengths.operator + first, "length_ns": lengths.length_ns})
        first += len(times)
    return join_tables(parts)


_ROLES = np.array([role.name.lower() for role in TaskRole], object)
_COMPILE_PHASES = np.array([None, *(phase.name.lower() for phase in Phase if phase)], object)


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
        "phase": _COMPILE_PHASES[tasks.phase],
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
