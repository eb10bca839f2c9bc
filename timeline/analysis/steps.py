"""Steps of every graph: as marked, else derived from its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from timeline.columns.columns import Bool, Int64, Rows
from timeline.columns.distinct import NO_ROWS, distinct, distinct_pairs, rows_by_value
from timeline.columns.strings import StringPool
from timeline.options import StepOperators
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, Records, Steps, Tasks

_GET_NEXT = ("getnext", "initdataset", "get_next", "dequeue")
_ALL_REDUCE = ("allreduce", "all_reduce")
_GRADIENTS = "Gradients/"
"""Scope of the operators of the backward pass."""


def with_steps(records: Records, operators: StepOperators) -> Records:
    """Return the records with steps for every graph, ordered by start.

    A graph without markers gets steps derived from its tasks as documented by MindSpore: an
    iteration begins at each get_next (or at each run of the named FP operator), forward starts at
    the first task after get_next, and backward ends with the task before the last AllReduce.
    Records with host steps keep those: they cover all graphs.
    """
    steps = [records.steps, _named_by_source(records)]
    if not records.steps.host.any():
        marked = set(records.steps.graph.tolist()) | set(steps[1].graph.tolist())
        steps += _derive_all(records, marked, operators)
    every = Steps.concat(steps)
    every = every.take(np.lexsort((every.iteration, every.graph, every.start_ns)))
    parts = records.parts
    return replace(
        records, steps=every, parts=parts.take(np.argsort(parts.start_ns, kind="stable"))
    )


def _named_by_source(records: Records) -> Steps:
    """Return steps known only from the iteration ids of tasks (without a step trace)."""
    tasks = records.tasks
    numbered = tasks.iteration != NO_ID
    known = set(zip(records.steps.graph.tolist(), records.steps.iteration.tolist(), strict=True))
    if not numbered.any():
        return Steps.empty()
    pairs, which = distinct_pairs(tasks.graph[numbered], tasks.iteration[numbered])
    start_ns = np.full(len(pairs), np.iinfo(np.int64).max)
    end_ns = np.full(len(pairs), np.iinfo(np.int64).min)
    np.minimum.at(start_ns, which, tasks.start_ns[numbered])
    np.maximum.at(end_ns, which, tasks.end_ns[numbered])
    new = np.array([pair not in known for pair in map(tuple, pairs.tolist())], np.bool_)
    return Steps.of(
        int(new.sum()),
        {
            "start_ns": start_ns[new],
            "end_ns": end_ns[new],
            "graph": pairs[new, 0],
            "iteration": pairs[new, 1],
        },
    )


@dataclass(frozen=True)
class _Marked:
    """Marks of steps in the names of tasks (n,) and ops (m,).

    heads: whether a step may begin with the task; of several get_next in a row the first counts.
    backward: whether it may be the last of the backward; reduces: whether the op is an AllReduce.
    """

    heads: Bool
    backward: Bool
    reduces: Bool

    @classmethod
    def of(cls, records: Records, operators: StepOperators) -> _Marked:
        tasks, strings = records.tasks, records.strings
        if operators.fp_start:
            heads = _is_operator(tasks, strings, operators.fp_start)
        else:
            fetching = strings.codes_with(_GET_NEXT)
            heads = np.isin(tasks.name, fetching) | np.isin(tasks.op_type, fetching)
        if operators.bp_end:
            backward = _is_operator(tasks, strings, operators.bp_end)
        else:
            backward = np.isin(tasks.name, strings.codes_with((_GRADIENTS.lower(),)))
        reduces = np.isin(records.ops.name, strings.codes_with(_ALL_REDUCE))
        return cls(heads, backward, reduces)


def _derive_all(records: Records, marked: set[int], operators: StepOperators) -> Iterator[Steps]:
    """Yield the steps of each graph without marked steps."""
    graphs = [graph for graph in distinct(records.tasks.graph).tolist() if graph not in marked]
    if not graphs:
        return
    wanted, marks = np.array(graphs, np.int64), _Marked.of(records, operators)
    reduces_of = dict(rows_by_value(records.ops.graph, wanted))
    for graph, rows in rows_by_value(records.tasks.graph, wanted):
        ordered = rows[np.argsort(records.tasks.start_ns[rows], kind="stable")]
        graph_ops = reduces_of.get(graph, NO_ROWS)
        reduces = records.ops.take(graph_ops[marks.reduces[graph_ops]])
        yield _derive(records.tasks.take(ordered), reduces, marks, ordered, operators)


def _derive(
    tasks: Tasks,
    reduces: CommunicationOps,
    marks: _Marked,
    rows: Rows,
    operators: StepOperators,
) -> Steps:
    """Return the steps of one graph.

    Tasks are in order of start; `rows` are their rows in the marks.
    """
    named = marks.heads[rows]
    first = np.flatnonzero(named) if operators.fp_start else _runs(named)
    if not len(first):
        return Steps.empty()
    stop = np.append(first[1:], len(tasks))
    start_ns = tasks.start_ns[first]
    end_ns = np.maximum.reduceat(tasks.end_ns, first)
    computes = np.flatnonzero(tasks.compute)
    fp_start_ns = start_ns
    if not operators.fp_start:
        at = np.append(computes, len(tasks))[np.searchsorted(computes, first, side="right")]
        fp_start_ns = np.where(at < stop, np.append(tasks.start_ns, NO_TIME)[at], NO_TIME)
    step = np.searchsorted(start_ns, reduces.start_ns, side="right") - 1
    inside = step >= 0
    np.maximum.at(end_ns, step[inside], reduces.end_ns[inside])
    last_reduce_ns = np.full(len(first), NO_TIME)
    np.maximum.at(last_reduce_ns, step[inside], reduces.start_ns[inside])
    bp_end_ns = _last_end_ns(tasks, np.flatnonzero(marks.backward[rows]), first, stop)
    if not operators.bp_end:
        until = np.minimum(np.searchsorted(tasks.start_ns, last_reduce_ns), stop)
        before_ns = _last_end_ns(tasks, computes, first, until)
        bp_end_ns = np.where(last_reduce_ns == NO_TIME, bp_end_ns, before_ns)
    return Steps.of(
        len(first),
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "fp_start_ns": fp_start_ns,
            "bp_end_ns": bp_end_ns,
            "graph": np.full(len(first), tasks.graph[0]),
            "iteration": np.arange(1, len(first) + 1),
        },
    )


def _last_end_ns(tasks: Tasks, rows: Rows, first: Rows, stop: Rows) -> Int64:
    """Return the end of the last of some ascending rows in each range [first, stop), or NO_TIME."""
    at = np.searchsorted(rows, stop) - 1
    last = np.append(rows, -1)[at]
    return np.where(last >= first, np.append(tasks.end_ns, NO_TIME)[last], NO_TIME)


def _is_operator(tasks: Tasks, strings: StringPool, name: str) -> Bool:
    """Return a mask of tasks of the operator, by its full name or by its last part."""
    codes = strings.codes_where(
        string == name or string.rpartition("/")[2] == name for string in strings
    )
    return np.isin(tasks.name, codes)


def _runs(marked: Bool) -> Int64:
    """Return the first of each run of marked rows: one get_next may be several tasks."""
    before = np.concatenate([[False], marked[:-1]])
    return np.flatnonzero(marked & ~before)
