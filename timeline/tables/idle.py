"""Tables of idle time by cause, and by cause and host call."""

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
from timeline.records.not_given import NO_GRAPH, NO_ID
from timeline.tables.table import Columns, Json, Method, Run, Spec, Table, longest_lines, sum_rows
from timeline.units import format_duration

_KEYS = ("rank", "graph", "step", "cause")

IDLE = Spec(
    "idle",
    "rank, step and cause of idle time, which add up to the idle time of the rank and step",
    """
    rank, graph
    step: masked for the whole selection
    text cause = Cause
    gaps: number of gaps between tasks in which it occurs, other causes too
    total_ns = Time
    text calls: up to five host calls and the time in each, longest first
    least_ns: minimum gap of the device between any two tasks
    """,
    lambda run: _of_ranks(run, _by_cause),
    Json(
        "idle",
        lambda run, table: _with_calls(table, run["idle_calls"]),
        "per `rank`, `graph`, `step` (`null` for the whole selection) and "
        "[`cause`](definitions.md#why-a-device-idles): the number of `gaps`, `total_ns`, and up to "
        "five `calls` of the host (`name`, `total_ns`, and the `line` of code with most of that "
        "and its `line_ns`, or `null`); the times of a rank add up to its `idle_ns` in `overlap`, "
        "those of a step to the time of its period in which nothing computes, communicates or "
        "copies",
    ),
    Method("idle", by="cause"),
)
IDLE_CALLS = Spec(
    "idle_calls",
    "rank, step, cause and host call meanwhile, longest first; of a step only the five longest of "
    "each cause",
    """
    rank, graph
    step: masked for the whole selection
    text cause, call = Host call
    text line = Line of code: where most of that time passed, by call stacks; from a tenth of it
    line_ns: the time in that line
    total_ns = Time
    """,
    lambda run: _of_ranks(run, _by_call),
    method=Method("idle", by="call"),
)


def _with_calls(by_cause: Table, by_call: Table) -> list[dict[str, Any]]:
    """Return the rows by cause for JSON, each with its longest calls."""
    calls = {
        key: [
            {
                "name": row["call"],
                **{name: row[name] for name in ("line", "line_ns", "total_ns")},
            }
            for row in rows
        ]
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
    """Sum the rows of IDLE or IDLE_CALLS of the whole selection over all ranks.

    Returns a row for each distinct combination of keys, longest first, with the keys, total_ns, its
    share of all, and gaps and the longest line of code if the table has them.
    """
    if not len(idle):
        return Table({name: np.empty(0, object) for name in (*keys, "total_ns", "share")})
    whole = idle.take(np.ma.getmaskarray(idle["step"]))
    names = [name for name in ("total_ns", "gaps") if name in whole.columns]
    sums = sum_rows(whole, keys, names, by="total_ns")
    share = sums["total_ns"] / max(int(sums["total_ns"].sum()), 1)
    lines = {"line": longest_lines(whole, sums, keys)} if "line" in whole.columns else {}
    return Table({**sums.columns, "share": share, **lines})


def least_gap_ns(idle: Table) -> int:
    """Return the minimum gap that devices leave between any two tasks, 0 if it is unknown."""
    if not len(idle):
        return 0
    return min(filter(None, np.ma.compressed(idle["least_ns"]).tolist()), default=0)


def _of_ranks(run: Run, of_rank: Callable[[IdleTimes], tuple[Int64, Columns]]) -> Iterator[Columns]:
    for rank in run.facts:
        if rank.idle is not None:
            yield _of_steps(rank, *of_rank(rank.idle))


def _of_steps(facts: RankFacts, step: Int64, columns: Columns) -> Columns:
    """Return the columns of one rank, with those of rank, graph and step added.

    Steps without device work are left out: nothing tells why, often no more was recorded.

    step: (n,) row of the step of each row, NO_STEP for the whole selection.
    """
    # NO_STEP is -1, so it selects the appended last element.
    is_known = np.append(facts.step_totals.known, True)[step]
    step, columns = step[is_known], {name: values[is_known] for name, values in columns.items()}
    whole = step == NO_STEP
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
    call_key = calls.step * len(CAUSES) + calls.cause
    first = np.searchsorted(call_key, key, side="left")
    stop = np.minimum(np.searchsorted(call_key, key, side="right"), first + MOST_CALLS)
    listed = [
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
        "calls": np.array(listed, object),
        "least_ns": np.ma.masked_array(np.full(len(causes), idle.least_ns), ~between),
    }


def _by_call(idle: IdleTimes) -> tuple[Int64, Columns]:
    calls = idle.calls
    return calls.step, {
        "cause": _names(calls.cause),
        "call": np.array([*idle.names, ""], object)[calls.call],
        "line": np.array([*idle.names, None], object)[calls.line],
        "line_ns": np.ma.masked_array(calls.line_ns, calls.line == NO_ID),
        "total_ns": calls.total_ns,
    }


def _names(causes: Int64) -> npt.NDArray[Any]:
    return np.array([cause.value for cause in CAUSES], object)[causes]
