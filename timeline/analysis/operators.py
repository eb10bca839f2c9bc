"""Turns compute tasks and communication ops into how long each kind of operator took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from timeline.analysis.operator_names import collective_kind, operator_type
from timeline.records.clock import ClockMove
from timeline.records.columns import Bool, Codes, Columns, Int64, column
from timeline.records.strings import NO_NAME, StringPool
from timeline.records.tables import NO_GRAPH, NO_ID, CommunicationOps, Records, Spans

__all__ = ["LongestOps", "OperatorFigures", "OperatorTimes", "operator_figures"]

LONGEST_OPS = 20


@dataclass(frozen=True)
class OperatorTimes(Columns):
    """One row per operator: what it is, and how often and how long it ran.

    type: the operator's type, or the kind of collective. core: what ran it (the task type), not
    given for communication. name, shapes (of the inputs): not given where all operators of a type
    are one row.
    """

    communication: Bool = column(np.bool_)
    type: Codes = column(np.int32)
    core: Codes = column(np.int32, NO_NAME)
    name: Codes = column(np.int32, NO_NAME)
    shapes: Codes = column(np.int32, NO_NAME)
    count: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    shortest_ns: Int64 = column(np.int64)
    longest_ns: Int64 = column(np.int64)


@dataclass(frozen=True)
class LongestOps(Spans):
    """The communication ops that took longest, longest first."""

    name: Codes = column(np.int32)
    group: Codes = column(np.int32)
    graph: Int64 = column(np.int64, NO_GRAPH)
    iteration: Int64 = column(np.int64, NO_ID)


@dataclass(frozen=True)
class OperatorFigures:
    """The operators of one rank; codes are positions in `strings`."""

    strings: tuple[str, ...] = ("",)
    times: OperatorTimes = field(default_factory=OperatorTimes.empty)
    longest: LongestOps = field(default_factory=LongestOps.empty)

    def moved(self, move: ClockMove) -> OperatorFigures:
        """The same on another clock."""
        return replace(self, longest=self.longest.moved(move))


def operator_figures(
    records: Records, iterations: Int64, *, most_names: int = 0
) -> OperatorFigures:
    """How long each type of operator took, or each operator by its name.

    iterations: (ops,) step of each communication op, NO_ID for none. most_names: how many
    operators, and how many communication ops, have rows of their own: those that take longest.
    The others of a type are one row without a name.
    """
    strings = StringPool()
    tasks, ops = records.tasks, records.ops
    compute = np.flatnonzero(tasks.compute)
    names = tasks.name[compute]
    given = strings.translated(tasks.op_type[compute], records.strings)
    derived = strings.translated(names, records.strings, operator_type)
    computing = {
        "type": np.where(given == NO_NAME, derived, given),
        "core": strings.translated(tasks.task_type[compute], records.strings),
    }
    communicating = {"type": strings.translated(ops.name, records.strings, collective_kind)}
    compute_ns = tasks.end_ns[compute] - tasks.start_ns[compute]
    op_ns = ops.end_ns - ops.start_ns
    if most_names:
        bound = len(records.strings)
        told = _longest_names(names, compute_ns, bound, most_names)
        shapes = np.where(told == NO_NAME, NO_NAME, tasks.input_shapes[compute])
        told_ops = _longest_names(ops.name, op_ns, bound, most_names)
        computing["name"] = strings.translated(told, records.strings)
        computing["shapes"] = strings.translated(shapes, records.strings)
        communicating["name"] = strings.translated(told_ops, records.strings)
    times = OperatorTimes.concat(
        [
            _times(compute_ns, computing, communication=False),
            _times(op_ns, communicating, communication=True),
        ]
    )
    longest = _longest(ops, iterations, records.strings, strings)
    return OperatorFigures(tuple(strings), times, longest)


def _longest_names(names: Codes, lengths_ns: Int64, bound: int, most: int) -> Codes:
    """The names, as codes below a bound, of which the most take longest; NO_NAME for the others."""
    total_ns = np.zeros(bound, np.int64)
    np.add.at(total_ns, names, lengths_ns)
    kept = np.zeros(bound, np.bool_)
    kept[np.argsort(-total_ns, kind="stable")[:most]] = True
    return np.where(kept[names], names, np.int32(NO_NAME))


def _times(lengths_ns: Int64, keys: Mapping[str, Codes], *, communication: bool) -> OperatorTimes:
    """One row for each distinct combination of keys; sums are exact."""
    if not len(lengths_ns):
        return OperatorTimes.empty()
    group = np.zeros(len(lengths_ns), np.int64)
    for own in keys.values():
        group = _dense(group * (int(own.max()) + 1) + own)
    count = int(group.max()) + 1
    first = np.zeros(count, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    total_ns = np.zeros(count, np.int64)
    shortest_ns = np.full(count, np.iinfo(np.int64).max)
    longest_ns = np.full(count, np.iinfo(np.int64).min)
    np.add.at(total_ns, group, lengths_ns)
    np.minimum.at(shortest_ns, group, lengths_ns)
    np.maximum.at(longest_ns, group, lengths_ns)
    return OperatorTimes.of(
        count,
        {
            **{name: own[first] for name, own in keys.items()},
            "communication": np.full(count, communication),
            "count": np.bincount(group, minlength=count),
            "total_ns": total_ns,
            "shortest_ns": shortest_ns,
            "longest_ns": longest_ns,
        },
    )


def _dense(keys: Int64) -> Int64:
    """Keys numbered from 0 without gaps; small keys need no sorting."""
    bound = int(keys.max()) + 1
    if bound > 4 * len(keys) + (1 << 16):
        numbered: Int64 = np.unique(keys, return_inverse=True)[1].reshape(-1)
        return numbered
    number = np.zeros(bound, np.int64)
    number[keys] = 1
    dense: Int64 = (np.cumsum(number) - 1)[keys]
    return dense


def _longest(
    ops: CommunicationOps, iterations: Int64, pool: StringPool, strings: StringPool
) -> LongestOps:
    at = np.argsort(ops.start_ns - ops.end_ns, kind="stable")[:LONGEST_OPS]
    return LongestOps(
        ops.start_ns[at],
        ops.end_ns[at],
        strings.translated(ops.name[at], pool),
        strings.translated(ops.group[at], pool),
        ops.graph[at],
        iterations[at],
    )
