"""Steps of every graph: as they are marked, else derived from its tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from timeline.columns.columns import Bool, Int64
from timeline.columns.distinct import distinct, distinct_pairs
from timeline.columns.strings import StringPool
from timeline.options import StepOperators
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, Records, Steps, Tasks

__all__ = ["with_steps"]

_GET_NEXT = ("getnext", "initdataset", "get_next", "dequeue")
_ALL_REDUCE = ("allreduce", "all_reduce")
_GRADIENTS = "Gradients/"
"""Scope of the operators of the backward pass."""


def with_steps(records: Records, operators: StepOperators) -> Records:
    """The records with steps for every graph, ordered by start.

    A graph without markers gets steps derived from its tasks as MindSpore documents it: an
    iteration begins at each get_next (or at each run of the named FP operator), forward starts at
    the first task after get_next, and backward ends with the task before the last AllReduce.
    Records with host steps keep those: they cover all graphs.
    """
    steps = [records.steps, _named_by_source(records)]
    if not records.steps.host.any():
        marked = set(records.steps.graph.tolist()) | set(steps[1].graph.tolist())
        graphs = [graph for graph in distinct(records.tasks.graph).tolist() if graph not in marked]
        steps += [_derive(records, graph, operators) for graph in graphs]
    found = Steps.concat(steps)
    found = found.take(np.lexsort((found.iteration, found.graph, found.start_ns)))
    parts = records.parts
    return replace(
        records, steps=found, parts=parts.take(np.argsort(parts.start_ns, kind="stable"))
    )


def _named_by_source(records: Records) -> Steps:
    """Steps that only the tasks' own iteration ids tell of (no step trace beside them)."""
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


def _derive(records: Records, graph: int, operators: StepOperators) -> Steps:
    tasks = records.tasks.take(records.tasks.graph == graph)
    tasks = tasks.take(np.argsort(tasks.start_ns, kind="stable"))
    ops = records.ops.take(records.ops.graph == graph)
    strings = records.strings
    if operators.fp_start:
        heads = np.flatnonzero(_is_operator(tasks, strings, operators.fp_start))
    else:
        heads = _runs(
            np.isin(tasks.name, _codes_with(strings, _GET_NEXT))
            | np.isin(tasks.op_type, _codes_with(strings, _GET_NEXT))
        )
    if not len(heads):
        return Steps.empty()
    bounds = np.append(heads, len(tasks))
    all_reduce = _codes_with(strings, _ALL_REDUCE)
    reduces = ops.take(np.isin(ops.name, all_reduce))
    rows = [
        _derived_step(tasks, reduces, first, stop, strings, operators)
        for first, stop in pairwise(bounds.tolist())
    ]
    start_ns, end_ns, fp_start_ns, bp_end_ns = zip(*rows, strict=True)
    return Steps.of(
        len(rows),
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "fp_start_ns": fp_start_ns,
            "bp_end_ns": bp_end_ns,
            "graph": np.full(len(rows), graph),
            "iteration": np.arange(1, len(rows) + 1),
        },
    )


def _derived_step(
    tasks: Tasks,
    reduces: CommunicationOps,
    first: int,
    stop: int,
    strings: StringPool,
    operators: StepOperators,
) -> tuple[int, int, int, int]:
    """Start, end, FP start and BP end of the tasks [first, stop)."""
    stretch = tasks.take(np.arange(first, stop))
    computes = np.flatnonzero(stretch.compute)
    if operators.fp_start:
        fp_start_ns = int(stretch.start_ns[0])
    else:
        after = computes[computes > 0]
        fp_start_ns = int(stretch.start_ns[after[0]]) if len(after) else int(NO_TIME)
    next_ns = int(tasks.start_ns[stop]) if stop < len(tasks) else np.iinfo(np.int64).max
    inside = (reduces.start_ns >= stretch.start_ns[0]) & (reduces.start_ns < next_ns)
    end_ns = int(max(stretch.end_ns.max(), reduces.end_ns[inside].max(initial=NO_TIME)))
    bp_end_ns = _bp_end_ns(stretch, reduces.start_ns[inside], strings, operators)
    return int(stretch.start_ns[0]), end_ns, fp_start_ns, bp_end_ns


def _bp_end_ns(
    stretch: Tasks, reduce_starts_ns: Int64, strings: StringPool, operators: StepOperators
) -> int:
    if operators.bp_end:
        ends = stretch.end_ns[_is_operator(stretch, strings, operators.bp_end)]
    elif len(reduce_starts_ns):
        before = stretch.compute & (stretch.start_ns < reduce_starts_ns.max())
        ends = stretch.end_ns[before][-1:]
    else:
        backward = np.isin(stretch.name, _codes_with(strings, (_GRADIENTS.lower(),)))
        ends = stretch.end_ns[backward][-1:]
    return int(ends[-1]) if len(ends) else int(NO_TIME)


def _is_operator(tasks: Tasks, strings: StringPool, name: str) -> Bool:
    """Tasks of the operator, by its full name or by the last part of it."""
    codes = strings.codes_where(
        string == name or string.rpartition("/")[2] == name for string in strings
    )
    return np.isin(tasks.name, codes)


def _codes_with(strings: StringPool, parts: Iterable[str]) -> np.ndarray:
    wanted = tuple(parts)
    return strings.codes_where(any(part in string.lower() for part in wanted) for string in strings)


def _runs(marked: Bool) -> Int64:
    """The first of each run of marked rows: one get_next may be several tasks."""
    before = np.concatenate([[False], marked[:-1]])
    return np.flatnonzero(marked & ~before)
