"""Why devices idle, in tables: by cause, and by cause and host call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.idle.idle_sums import CAUSES, MOST_CALLS, IdleCause, IdleTimes
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.steps import NO_STEP
from timeline.columns.columns import Int64
from timeline.records.not_given import NO_GRAPH
from timeline.tables.table import Columns, Json, Method, Run, Spec, Table, sum_rows
from timeline.units import format_duration

_KEYS = ("rank", "graph", "step", "cause")

IDLE = Spec(
    "idle",
    "rank, step and cause of idle time, which add up to the idle time of the rank and step",
    """
    rank, graph
    step: masked: the whole selection
    text cause = Cause
    gaps: between tasks, in which it occurs
    total_ns = Time
    text calls: up to five host calls and the time in each, longest first
    least_ns: the device's own least gap
    """,
    lambda run: _of_ranks(run, _by_cause),
    Json(
        "idle",
        lambda run, table: _with_calls(table, run["idle_calls"]),
        "per `rank`, `graph`, `step` (`null` for all of the selection) and "
        "[`cause`](definitions.md#why-a-device-idles): in how many `gaps`, `total_ns`, and up to "
        "five `calls` of the host (`name`, `total_ns`); those of a rank add up to its `idle_ns` in "
        "`overlap`, and those of a step to the time of its period in which nothing computes, "
        "communicates or copies",
    ),
    Method("idle", by="cause"),
)
IDLE_CALLS = Spec(
    "idle_calls",
    "rank, step, cause and host call meanwhile, longest first; of a step the five longest of each "
    "cause",
    """
    rank, graph
    step: masked: the whole selection
    text cause, call = Host call
    total_ns = Time
    """,
    lambda run: _of_ranks(run, _by_call),
    method=Method("idle", by="call"),
)


def _with_calls(by_cause: Table, by_call: Table) -> list[dict[str, Any]]:
    """Return the rows by cause, each with its calls."""
    calls = {
        key: [{"name": row["call"], "total_ns": row["total_ns"]} for row in rows]
        for key, rows in groupby(by_call.to_dicts(), itemgetter(*_KEYS))
    }
    return [
        {
            **{name: row[name] for name in (*_KEYS, "gaps", "total_ns")},
            "calls": calls.get(itemgetter(*_KEYS)(row), [])[:MOST_CALLS],
        }
        for row in by_cause.to_dicts()
    ]


def sum_of_selection(idle: Table, *keys: str) -> Table:
    """Sum the rows of the tables IDLE or IDLE_CALLS that are of the whole selection.

    A row for each distinct value of the keys, longest first: those, total_ns and its share, over
    all ranks; and gaps, where there are any.
    """
    if not len(idle):
        return Table({name: np.empty(0, object) for name in (*keys, "total_ns", "share")})
    whole = idle.take(np.ma.getmaskarray(idle["step"]))
    names = [name for name in ("total_ns", "gaps") if name in whole.columns]
    sums = sum_rows(whole, keys, names, by="total_ns")
    return Table({**sums.columns, "share": sums["total_ns"] / max(int(sums["total_ns"].sum()), 1)})


def least_gap_ns(idle: Table) -> int:
    """Return the devices' own least gap between two tasks, 0 if it is not known."""
    if not len(idle):
        return 0
    return min((one for one in np.ma.compressed(idle["least_ns"]).tolist() if one), default=0)


def _of_ranks(run: Run, of_rank: Callable[[IdleTimes], tuple[Int64, Columns]]) -> Iterator[Columns]:
    for rank in run.facts:
        if rank.idle is not None:
            yield _of_steps(rank, *of_rank(rank.idle))


def _of_steps(facts: RankFacts, step: Int64, columns: Columns) -> Columns:
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


def _by_cause(idle: IdleTimes) -> tuple[Int64, Columns]:
    causes, calls = idle.causes, idle.calls
    key = causes.step * len(CAUSES) + causes.cause
    of_calls = calls.step * len(CAUSES) + calls.cause
    first = np.searchsorted(of_calls, key, side="left")
    stop = np.minimum(np.searchsorted(of_calls, key, side="right"), first + MOST_CALLS)
    spelled = [
        ", ".join(
            f"{idle.names[call]} {format_duration(total_ns)}"
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


def _by_call(idle: IdleTimes) -> tuple[Int64, Columns]:
    calls = idle.calls
    return calls.step, {
        "cause": _names(calls.cause),
        "call": np.array([*idle.names, ""], object)[calls.call],
        "total_ns": calls.total_ns,
    }


def _names(causes: Int64) -> npt.NDArray[Any]:
    return np.array([cause.value for cause in CAUSES], object)[causes]
