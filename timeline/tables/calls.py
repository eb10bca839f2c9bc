"""Tables of what a host did: its calls by name, and the longest gaps that a device waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from timeline.analysis.idle.idle_sums import CAUSES
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.steps import NO_STEP
from timeline.records.not_given import NO_GRAPH
from timeline.tables.table import Columns, Json, Method, Spec, Table

MOST_TOLD, MOST_TOLD_IN_ALL = 200, 20_000
"""Names of host calls that a report has of each rank at most, and of all ranks together."""

HOST_CALLS_BY_NAME: Spec = Spec(
    "host_calls_by_name",
    "rank, layer and name of host calls, longest own time first",
    """
    rank
    text layer = Layer: the caller: CANN, Python, PyTorch, Runtime, ...
    text name = Call: None: all names of the layer that have no rows of their own
    count, total_ns = Total
    self_ns = Own time: in which no other call of the thread runs inside
    median_ns, longest_ns = Max
    idle_ns = Idle: idle time of the device charged to them
    share idle_share = Share of idle: of all idle time of the rank
    """,
    lambda run: map(_sums, run.facts),
    Json("host_calls", lambda run, table: _told(table)),
    Method("host_calls", by="name"),
    note="Calls that touch the time of the selection count whole; they lie inside others, so "
    "totals do not add up, while own times add up to the time in which a thread is in any call. A "
    "report has the 200 names of each rank that take longest themselves (20 000 of all ranks); the "
    "others of a rank are summed in a row whose layer, name and median are None",
)
IDLE_GAPS: Spec = Spec(
    "idle_gaps",
    "gap between two device tasks: the ten of each rank with most idle time, longest first",
    """
    rank, graph
    step: in which it begins, or else ends
    start_ns: on the clock that all ranks share
    duration_ns: until the next task, on the clock of the rank
    idle_ns = Idle: of it, without copies
    text cause = Cause: of most of it, as in `idle`
    cause_ns: idle time by that cause
    text call = Host call: in which most of that passed
    text previous = Previous task
    text next = Next task
    """,
    lambda run: map(_gaps, run.facts),
    Json("idle_gaps"),
    Method("idle_gaps"),
)


def _sums(facts: RankFacts) -> Columns:
    sums = facts.host_calls
    share = sums.times.idle_ns / max(sums.idle_ns, 1)
    return HOST_CALLS_BY_NAME.part(facts.rank, sums.times, sums.strings, idle_share=share)


def _gaps(facts: RankFacts) -> Columns:
    gaps = facts.idle_gaps.gaps
    # NO_STEP, which is -1, picks what stands at the end.
    graph = np.append(facts.steps.graph, NO_GRAPH)[gaps.step]
    step = np.append(facts.steps.iteration, 0)[gaps.step]
    return IDLE_GAPS.part(
        facts.rank,
        gaps,
        facts.idle_gaps.strings,
        graph=np.ma.masked_equal(graph, NO_GRAPH),
        step=np.ma.masked_array(step, gaps.step == NO_STEP),
        duration_ns=gaps.length_ns,
        cause=np.array([cause.value for cause in CAUSES], object)[gaps.cause],
    )


def _told(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a report."""
    if not len(table):
        return []
    ranks = np.unique(table["rank"]).tolist()
    most = max(1, min(MOST_TOLD, MOST_TOLD_IN_ALL // len(ranks)))
    return [row for rank in ranks for row in _of_rank(table.take(table["rank"] == rank), most)]


def _of_rank(rows: Table, most: int) -> Iterator[dict[str, Any]]:
    named = np.array([name is not None for name in rows["name"].tolist()], np.bool_)
    told = np.zeros(len(rows), np.bool_)
    told[np.flatnonzero(named)[:most]] = True
    yield from rows.take(told).to_dicts()
    rest = rows.take(~told)
    if len(rest):
        sums = ("count", "total_ns", "self_ns", "idle_ns")
        yield {
            **dict.fromkeys(rows.columns),
            "rank": int(rest["rank"][0]),
            **{name: int(rest[name].sum()) for name in sums},
            "longest_ns": int(rest["longest_ns"].max()),
            "idle_share": float(rest["idle_share"].sum()),
        }
