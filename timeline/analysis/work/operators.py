"""How long each kind of operator took, of compute tasks and communication ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace

import numpy as np

from timeline.analysis.work.framework_calls import CallKind, FrameworkCalls, launch_name
from timeline.analysis.work.kernel_names import kernel_type, launched_type
from timeline.analysis.work.kernel_waits import KernelWaits
from timeline.analysis.work.operator_names import operator_type
from timeline.columns.chunks import chunks
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import distinct_pairs, rows_by_value
from timeline.columns.group_by import group_by
from timeline.columns.nesting import open_around
from timeline.columns.strings import NO_NAME, StringPool
from timeline.frozen import dataclass
from timeline.records.clock import ClockMove
from timeline.records.collective_kinds import collective_kind
from timeline.records.not_given import NO_GRAPH, NO_ID
from timeline.records.tables import GPU, CommunicationOps, Records, Spans, Tasks

__all__ = [
    "HOST_CORE",
    "LongestOps",
    "OperatorFigures",
    "OperatorLengths",
    "OperatorTimes",
    "TaskTypes",
    "computing_rows",
    "host_operators",
    "operator_figures",
]

HOST_CORE = "host"
"""The core of operators of which only the host is recorded."""
LONGEST_OPS = 20
"""Communication ops that are named one by one."""


class OperatorTimes(ColumnTable):
    """One row per operator: what it is, and how often and how long it ran.

    type: the operator's type as the profile tells it, else as its name does, else what ran it; or
    the kind of collective. core: what ran it (the task type), not given for communication. name,
    shapes (of the inputs): not given where all operators of a type are one row.
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
    waited_ns: Int64 = column(np.int64, 0)
    """From the kernels before to its runs, see `kernel_waits`."""


class OperatorLengths(ColumnTable):
    """How long each operator ran each time, a row per time; operator: its row in OperatorTimes."""

    operator: Int64 = column(np.int64)
    length_ns: Int64 = column(np.int64)


class LongestOps(Spans):
    """The communication ops that took longest, longest first."""

    name: Codes = column(np.int32)
    group: Codes = column(np.int32)
    graph: Int64 = column(np.int64, NO_GRAPH)
    iteration: Int64 = column(np.int64, NO_ID)


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """The operators of one rank; codes are positions in `strings`.

    lengths: of all times that operators ran, or none where they were not asked for or are too many.
    """

    strings: tuple[str, ...] = ("",)
    times: OperatorTimes = field(default_factory=OperatorTimes.empty)
    longest: LongestOps = field(default_factory=LongestOps.empty)
    tells_waits: bool = False
    """Whether it was looked at what was before each."""
    lengths: OperatorLengths = field(default_factory=OperatorLengths.empty)

    def moved(self, move: ClockMove) -> OperatorFigures:
        """The figures, moved to another clock."""
        return replace(self, longest=self.longest.moved(move))


@dataclass(frozen=True)
class TaskTypes:
    """What type and core each task has, as codes of other strings, by the codes of its columns."""

    given: Codes
    derived: Codes
    core: Codes

    @classmethod
    def of(cls, records: Records, strings: StringPool) -> TaskTypes:
        """The types of the tasks that compute; of large tables some rows at a time."""
        tasks, pool = records.tasks, records.strings
        types, names, cores = np.zeros((3, len(pool)), np.bool_)
        for rows in computing_rows(tasks):
            types[tasks.op_type[rows]] = cores[tasks.task_type[rows]] = True
            names[tasks.name[rows]] = True
        on_gpu = records.hardware == GPU
        return cls(
            _translation(strings, pool, types, launched_type if on_gpu else str),
            _translation(strings, pool, names, kernel_type if on_gpu else operator_type),
            _translation(strings, pool, cores),
        )

    def at(self, tasks: Tasks, rows: Rows) -> tuple[Codes, Codes]:
        """The type and the core of some tasks that compute."""
        cores = self.core[tasks.task_type[rows]]
        given, derived = self.given[tasks.op_type[rows]], self.derived[tasks.name[rows]]
        return _first_given(given, derived, cores), cores


def operator_figures(
    records: Records,
    iterations: Int64,
    *,
    most_names: int = 0,
    most_lengths: int = 0,
    waits: KernelWaits | None = None,
) -> OperatorFigures:
    """How long each type of operator took, or each operator by its name.

    iterations: (ops,) step of each communication op, NO_ID for none. most_names: how many
    operators, and how many communication ops, have rows of their own: those that take longest.
    The others of a type are one row without a name. most_lengths: how many single lengths may be
    given; of more, none is. waits: what was before each kernel, where that is told.
    """
    strings = StringPool()
    with_lengths = int(records.tasks.compute.sum()) + len(records.ops) <= most_lengths
    computing, computing_lengths = _computing(
        records, strings, most_names, waits, lengths=with_lengths
    )
    communicating, op_lengths = _communicating(records, strings, most_names, waits)
    times = OperatorTimes.concat([computing, communicating])
    lengths = OperatorLengths.empty()
    if with_lengths:
        below = replace(op_lengths, operator=op_lengths.operator + len(computing))
        lengths = OperatorLengths.concat([*computing_lengths, below])
    longest = _longest(records.ops, iterations, records.strings, strings)
    return OperatorFigures(tuple(strings), times, longest, waits is not None, lengths)


def host_operators(records: Records) -> OperatorFigures:
    """How long operators of the framework took on the host, without those that they called."""
    host, strings = records.host, StringPool()
    kinds = FrameworkCalls(host, records.strings).kinds(host.layer, host.name)
    rows = np.flatnonzero((kinds == CallKind.OPERATOR) & (host.end_ns > host.start_ns))
    own_ns = host.end_ns[rows] - host.start_ns[rows]
    _, lane = distinct_pairs(host.process[rows], host.thread[rows])
    for _, of_thread in rows_by_value(lane):
        its = rows[of_thread]
        order = np.lexsort((-host.end_ns[its], host.start_ns[its]))
        start_ns, end_ns = host.start_ns[its[order]], host.end_ns[its[order]]
        around = open_around(start_ns, end_ns)
        inner = np.flatnonzero(around >= 0)
        within_ns = np.minimum(end_ns[inner], end_ns[around[inner]]) - start_ns[inner]
        np.subtract.at(own_ns, of_thread[order[around[inner]]], within_ns)
    keys = {
        "type": strings.translate(host.name[rows], records.strings, launch_name),
        "core": np.full(len(rows), strings.code(HOST_CORE), np.int32),
    }
    times, _ = _times(keys, own_ns, None)
    return OperatorFigures(tuple(strings), times)


def _computing(
    records: Records,
    strings: StringPool,
    most_names: int,
    waits: KernelWaits | None,
    *,
    lengths: bool,
) -> tuple[OperatorTimes, list[OperatorLengths]]:
    """The operators that compute; of large tables some rows at a time."""
    tasks, pool = records.tasks, records.strings
    used, shapes = np.zeros((2, len(pool)), np.bool_)
    name_ns = np.zeros(len(pool), np.int64)
    if most_names:
        for rows in computing_rows(tasks):
            used[tasks.name[rows]] = True
            np.add.at(name_ns, tasks.name[rows], tasks.end_ns[rows] - tasks.start_ns[rows])
    task_types = TaskTypes.of(records, strings)
    named = used & _longest_names(name_ns, most_names)
    if most_names:
        for rows in computing_rows(tasks):
            shapes[tasks.input_shapes[rows][named[tasks.name[rows]]]] = True
    name = _translation(strings, pool, named)
    shape = _translation(strings, pool, shapes)
    parts, kept = list[OperatorTimes](), list[OperatorLengths]()
    for rows in computing_rows(tasks):
        codes = tasks.name[rows]
        types, cores = task_types.at(tasks, rows)
        keys = {"type": types, "core": cores}
        if most_names:
            keys["name"] = name[codes]
            keys["shapes"] = np.where(named[codes], shape[tasks.input_shapes[rows]], NO_NAME)
        waited_ns = None if waits is None else waits.tasks[rows]
        part, its_lengths = _times(keys, tasks.end_ns[rows] - tasks.start_ns[rows], waited_ns)
        if lengths:
            first = sum(map(len, parts))
            kept.append(replace(its_lengths, operator=its_lengths.operator + first))
        parts.append(part)
    times, operator = _summed(OperatorTimes.concat(parts))
    return times, [replace(part, operator=operator[part.operator]) for part in kept]


def _communicating(
    records: Records, strings: StringPool, most_names: int, waits: KernelWaits | None
) -> tuple[OperatorTimes, OperatorLengths]:
    ops, pool = records.ops, records.strings
    lengths_ns = ops.end_ns - ops.start_ns
    keys = {"type": strings.translate(ops.name, pool, collective_kind)}
    if most_names:
        name_ns = np.zeros(len(pool), np.int64)
        np.add.at(name_ns, ops.name, lengths_ns)
        named = _longest_names(name_ns, most_names)[ops.name]
        keys["name"] = strings.translate(np.where(named, ops.name, np.int32(NO_NAME)), pool)
    waited_ns = None if waits is None else waits.ops
    return _times(keys, lengths_ns, waited_ns, communication=True)


def computing_rows(tasks: Tasks) -> Iterator[Rows]:
    """The tasks that compute, some thousand at a time."""
    for chunk in chunks(len(tasks)):
        yield np.flatnonzero(tasks.compute[chunk]) + chunk.start


def _first_given(*columns: Codes) -> Codes:
    """The first name that each row has in any of some columns."""
    *before, found = columns
    for earlier in reversed(before):
        found = np.where(earlier == NO_NAME, found, earlier)
    return found


def _translation(
    strings: StringPool, pool: StringPool, used: Bool, meaning: Callable[[str], str] = str
) -> Codes:
    """The codes that those used of a pool have among the strings, by their code in the pool."""
    table = np.zeros(len(pool), np.int32)
    table[used] = strings.translate(np.flatnonzero(used).astype(np.int32), pool, meaning)
    return table


def _longest_names(name_ns: Int64, most: int) -> Bool:
    """Of all names, given the time of each, the most that take longest."""
    longest = np.zeros(len(name_ns), np.bool_)
    longest[np.argsort(-name_ns, kind="stable")[:most]] = True
    longest[NO_NAME] = False
    return longest


def _times(
    keys: Mapping[str, Codes],
    lengths_ns: Int64,
    waited_ns: Int64 | None,
    *,
    communication: bool = False,
) -> tuple[OperatorTimes, OperatorLengths]:
    """One row for each distinct combination of keys, and the row of each length."""
    once = np.ones(len(lengths_ns), np.int64)
    times, operator = _summed(
        OperatorTimes.of(
            len(lengths_ns),
            {
                **keys,
                "communication": np.full(len(lengths_ns), communication),
                "count": once,
                "total_ns": lengths_ns,
                "shortest_ns": lengths_ns,
                "longest_ns": lengths_ns,
                "waited_ns": np.zeros_like(lengths_ns) if waited_ns is None else waited_ns,
            },
        )
    )
    return times, OperatorLengths(operator, lengths_ns)


def _summed(times: OperatorTimes) -> tuple[OperatorTimes, Int64]:
    """Times of operators, summed to one row for each, and the row of each; sums are exact."""
    names = ("type", "core", "name", "shapes")
    groups = group_by(len(times), [getattr(times, name) for name in names])
    summed = OperatorTimes.of(
        len(groups.first),
        {
            **{name: getattr(times, name)[groups.first] for name in (*names, "communication")},
            "count": groups.sum(times.count),
            "total_ns": groups.sum(times.total_ns),
            "shortest_ns": groups.least(times.shortest_ns),
            "longest_ns": groups.greatest(times.longest_ns),
            "waited_ns": groups.sum(times.waited_ns),
        },
    )
    return summed, groups.group


def _longest(
    ops: CommunicationOps, iterations: Int64, pool: StringPool, strings: StringPool
) -> LongestOps:
    at = np.argsort(ops.start_ns - ops.end_ns, kind="stable")[:LONGEST_OPS]
    return LongestOps(
        ops.start_ns[at],
        ops.end_ns[at],
        strings.translate(ops.name[at], pool),
        strings.translate(ops.group[at], pool),
        ops.graph[at],
        iterations[at],
    )
