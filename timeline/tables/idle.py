"""Why devices idle, in tables: by cause, and by cause and host call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.idle.idle_sums import CAUSES, MOST_CALLS, IdleCause, IdleTimes
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.steps import NO_STEP
from timeline.columns.columns import Int64
from timeline.records.not_given import NO_GRAPH
from timeline.tables.table import Table, join_parts
from timeline.units import spell_duration

_Columns = dict[str, npt.NDArray[Any]]


def idle_by_cause(facts: Sequence[RankFacts]) -> Table:
    """Return a row per rank, step (masked: the whole selection) and cause that occurs there.

    rank, graph, step, cause, gaps (between tasks, in which it occurs), total_ns, calls (up to five
    host calls and the time in each, longest first, as text); least_ns of the device's own gap, of
    what lies between tasks.
    """
    return _joined(facts, _by_cause, ("cause", "gaps", "total_ns", "calls", "least_ns"))


def idle_by_call(facts: Sequence[RankFacts]) -> Table:
    """Return a row per rank, step (masked: the whole selection), cause and call, longest first.

    rank, graph, step, cause, call, total_ns; of a step the five longest calls of each cause.
    """
    return _joined(facts, _by_call, ("cause", "call", "total_ns"))


def idle_dicts(by_cause: Table, by_call: Table) -> list[dict[str, Any]]:
    """Return the rows of `idle_by_cause`, each with its calls from `idle_by_call`."""
    keys = ("rank", "graph", "step", "cause")
    calls = {
        key: [{"name": row["call"], "total_ns": row["total_ns"]} for row in rows]
        for key, rows in groupby(by_call.to_dicts(), lambda row: tuple(row[name] for name in keys))
    }
    return [
        {
            **{name: row[name] for name in (*keys, "gaps", "total_ns")},
            "calls": calls.get(tuple(row[name] for name in keys), [])[:MOST_CALLS],
        }
        for row in by_cause.to_dicts()
    ]


def sum_of_selection(idle: Table, *keys: str) -> Table:
    """Sum the rows of `idle_by_cause` or `idle_by_call` that are of the whole selection.

    A row for each distinct value of the keys, longest first: those, total_ns and its share, over
    all ranks; and gaps, where there are any.
    """
    if not len(idle):
        return Table({name: np.empty(0, object) for name in (*keys, "total_ns", "share")})
    whole = idle.take(np.ma.getmaskarray(idle["step"]))
    found = list(zip(*(whole[name].tolist() for name in keys), strict=True))
    number = {key: at for at, key in enumerate(dict.fromkeys(found))}
    row = np.array([number[key] for key in found], np.intp)
    sums = {}
    for name in ("total_ns", "gaps"):
        if name in whole.columns:
            sums[name] = np.zeros(len(number), np.int64)
            np.add.at(sums[name], row, whole[name])
    order = np.argsort(-sums["total_ns"], kind="stable")
    columns: _Columns = {
        name: np.array([key[at] for key in number], object) for at, name in enumerate(keys)
    }
    columns |= sums
    columns["share"] = sums["total_ns"] / max(int(sums["total_ns"].sum()), 1)
    return Table({name: column[order] for name, column in columns.items()})


def least_gap_ns(idle: Table) -> int:
    """Return the devices' own least gap between two tasks, 0 if it is not known."""
    if not len(idle):
        return 0
    return min((one for one in np.ma.compressed(idle["least_ns"]).tolist() if one), default=0)


def _joined(
    facts: Sequence[RankFacts],
    of_rank: Callable[[IdleTimes], tuple[Int64, _Columns]],
    names: tuple[str, ...],
) -> Table:
    parts = (_of_steps(rank, *of_rank(rank.idle)) for rank in facts if rank.idle is not None)
    every = ("rank", "graph", "step", *names)
    return Table(join_parts(parts, every) or {name: np.empty(0, object) for name in every})


def _of_steps(facts: RankFacts, step: Int64, columns: _Columns) -> _Columns:
    """Return the columns of one rank, beginning with graph and number of the step."""
    whole = step == NO_STEP
    # NO_STEP, which is -1, picks what stands at the end.
    graph = np.append(facts.steps.graph, NO_GRAPH)[step]
    return {
        "rank": np.full(len(step), facts.rank, np.int64),
        "graph": np.ma.masked_equal(graph, NO_GRAPH),
        "step": np.ma.masked_array(np.append(facts.steps.iteration, 0)[step], whole),
        **columns,
    }


def _by_cause(idle: IdleTimes) -> tuple[Int64, _Columns]:
    causes, calls = idle.causes, idle.calls
    key = causes.step * len(CAUSES) + causes.cause
    of_calls = calls.step * len(CAUSES) + calls.cause
    first = np.searchsorted(of_calls, key, side="left")
    stop = np.minimum(np.searchsorted(of_calls, key, side="right"), first + MOST_CALLS)
    spelled = [
        ", ".join(
            f"{idle.names[call]} {spell_duration(total_ns)}"
            for call, total_ns in zip(
                calls.call[begin:end].tolist(), calls.total_ns[begin:end].tolist(), strict=True
            )
        )
        for begin, end in zip(first.tolist(), stop.tolist(), strict=True)
    ]
    between = causes.cause == CAUSES.index(IdleCause.BETWEEN_TASKS)
    return causes.step, {
        "cause": _names(causes.cause),
        "gaps": causes.gaps,
        "total_ns": causes.total_ns,
        "calls": np.array(spelled, object),
        "least_ns": np.ma.masked_array(np.full(len(causes), idle.least_ns), ~between),
    }


def _by_call(idle: IdleTimes) -> tuple[Int64, _Columns]:
    calls = idle.calls
    return calls.step, {
        "cause": _names(calls.cause),
        "call": np.array([*idle.names, ""], object)[calls.call],
        "total_ns": calls.total_ns,
    }


def _names(causes: Int64) -> npt.NDArray[Any]:
    return np.array([cause.value for cause in CAUSES], object)[causes]
