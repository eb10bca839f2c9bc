"""Time of operators, in total and by step, and the gap before each kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from timeline.analysis.steps import NO_STEP, Membership
from timeline.analysis.work.framework_calls import CallKind, FrameworkCalls, launch_name
from timeline.analysis.work.kernel_bounds import KernelRuns, KernelTotals, cores_seen, warm_rows
from timeline.analysis.work.operator_names import kernel_type, launched_type, operator_type
from timeline.analysis.work.shape_work import ShapeTotals, WorkSums, call_shares, work_of_tasks
from timeline.columns.chunks import chunks, compute_in_chunks
from timeline.columns.columns import (
    Bool,
    Codes,
    Columnar,
    ColumnTable,
    Float64,
    Int64,
    Rows,
    column,
)
from timeline.columns.distinct import distinct, distinct_pairs, rows_by_value
from timeline.columns.group_by import group_by, sum_by, sum_rows
from timeline.columns.nesting import open_around
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.clock import ClockMove
from timeline.records.not_given import FLOAT_NOT_GIVEN, NO_GRAPH, NO_ID
from timeline.records.profiler_tables import (
    FlopLevel,
    FlopRows,
    FlopUnit,
    OperatorRuns,
    ProfilerTables,
    RunLevel,
)
from timeline.records.tables import GPU, CommunicationOps, Records, Spans, Tasks
from timeline.records.task_kinds import collective_kind

HOST_CORE = "host"
"""Core of operators recorded only on the host."""
LONGEST_OPS = 20
"""Number of communication ops listed one by one."""


MOST_UNASKED_WORK = 50_000
"""Tasks up to which work is found from shapes where neither metrics nor a peak ask for it."""
MOST_SINGLE = 64
"""Operators beyond which a capture without steps is not of single operators."""


class OperatorTimes(ColumnTable):
    """Number and duration of runs, one row per operator.

    type: the operator's type from the profile, else from its name, else the core that ran it; or
    the kind of collective. core: the task type, NO_NAME for communication. name, shapes (of the
    inputs): NO_NAME if all operators of a type share a row.
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
    """Total gap before its runs, see `kernel_waits`."""


class OperatorLengths(ColumnTable):
    """Durations of single runs of operators, one row each; operator: row in OperatorTimes."""

    operator: Int64 = column(np.int64)
    length_ns: Int64 = column(np.int64)


class OperatorLines(ColumnTable):
    """Time of operators by the line of code that launched them; operator: row in OperatorTimes."""

    operator: Int64 = column(np.int64)
    line: Codes = column(np.int32)
    total_ns: Int64 = column(np.int64)

    def summed(self) -> OperatorLines:
        """Return one row per operator and line, without unknown lines."""
        named = self.take(self.line != NO_NAME)
        return sum_rows(named, ("operator", "line"), ("total_ns",))[0]

    def longest(self, group: Int64, groups: int) -> Codes:
        """Return the line with most time of each group of operators, (groups,), else NO_NAME.

        group: (operators,) the group of each row of OperatorTimes.
        """
        lines = np.full(groups, NO_NAME, np.int32)
        every = replace(self, operator=group[self.operator]).summed()
        # Of several values for one group, NumPy keeps the last.
        every = every.take(np.argsort(every.total_ns, kind="stable"))
        lines[every.operator] = every.line
        return lines


class LongestOps(Spans):
    """The longest communication ops, longest first."""

    name: Codes = column(np.int32)
    group: Codes = column(np.int32)
    graph: Int64 = column(np.int64, NO_GRAPH)
    iteration: Int64 = column(np.int64, NO_ID)


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """Operators of one rank; codes are positions in `strings`.

    lengths: durations of all runs, empty if not requested or too many.
    """

    strings: tuple[str, ...] = ("",)
    times: OperatorTimes = field(default_factory=OperatorTimes.empty)
    longest: LongestOps = field(default_factory=LongestOps.empty)
    has_waits: bool = False
    """True if gaps before kernels were measured."""
    lengths: OperatorLengths = field(default_factory=OperatorLengths.empty)
    kernels: KernelTotals = field(default_factory=KernelTotals)
    shapes: ShapeTotals = field(default_factory=ShapeTotals)
    runs: KernelRuns = field(default_factory=KernelRuns.empty)
    """How runs of computing operators follow each other, without steps and communication only."""
    lines: OperatorLines = field(default_factory=OperatorLines.empty)
    warm: KernelTotals = field(default_factory=KernelTotals)
    """As kernels, without the first of several runs of an operator; only with runs."""

    def moved(self, move: ClockMove) -> OperatorFigures:
        """Return the figures on another clock."""
        return replace(self, longest=self.longest.moved(move))


@dataclass(frozen=True)
class TaskTypes:
    """Types and cores of tasks, translated to codes of another string pool.

    given, derived, core: the new code for each code of the columns op_type, name and task_type;
    derived is the type that a task's name implies.
    """

    given: Codes
    derived: Codes
    core: Codes

    @classmethod
    def of(cls, records: Records, strings: StringPool) -> TaskTypes:
        """Return the types of computing tasks, which are read in chunks."""
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
        """Return the type and the core of the computing tasks in some rows."""
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
    peak_flop_per_s: int = 0,
) -> OperatorFigures:
    """Return the time of each type of operator, or of each operator by name.

    iterations: (ops,) step of each communication op, NO_ID for none. most_names: maximum number of
    operators, and of communication ops, with rows of their own, longest first; the others share a
    row without a name per type. most_lengths: maximum number of single durations; if there are
    more, none are returned. waits: gaps before kernels, if measured.
    peak_flop_per_s: of the device, 0 if the user does not give it.
    """
    strings = StringPool()
    with_lengths = int(records.tasks.compute.sum()) + len(records.ops) <= most_lengths
    computing, computing_lengths, measured = _computing(
        records, strings, most_names, waits, lengths=with_lengths, peak_flop_per_s=peak_flop_per_s
    )
    communicating, op_lengths = _communicating(records, strings, most_names, waits)
    times = OperatorTimes.concat([computing, communicating])
    lengths = OperatorLengths.empty()
    if with_lengths:
        below = replace(op_lengths, operator=op_lengths.operator + len(computing))
        lengths = OperatorLengths.concat([*computing_lengths, below])
    longest = _longest(records.ops, iterations, records.strings, strings)
    if records.ops.line.any():
        codes = strings.translate(records.ops.line, records.strings)
        of_ops = OperatorLines(op_lengths.operator + len(computing), codes, op_lengths.length_ns)
        measured.lines = OperatorLines.concat([measured.lines, of_ops.summed()])
    return OperatorFigures(
        tuple(strings), times, longest, waits is not None, lengths, **vars(measured)
    )


def host_operators(records: Records) -> OperatorFigures:
    """Return the host time of the framework's operators, excluding the operators they call."""
    host, strings = records.host, StringPool()
    kinds = FrameworkCalls(host, records.strings).kinds(host.layer, host.name)
    rows = np.flatnonzero((kinds == CallKind.OPERATOR) & (host.end_ns > host.start_ns))
    own_ns = host.end_ns[rows] - host.start_ns[rows]
    _, lane = distinct_pairs(host.process[rows], host.thread[rows])
    for _, of_thread in rows_by_value(lane):
        thread_rows = rows[of_thread]
        order = np.lexsort((-host.end_ns[thread_rows], host.start_ns[thread_rows]))
        start_ns, end_ns = host.start_ns[thread_rows[order]], host.end_ns[thread_rows[order]]
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
    peak_flop_per_s: int,
) -> tuple[OperatorTimes, list[OperatorLengths], _Measured]:
    """Return the times of computing operators, and the durations of their runs if requested.

    The third item holds what was measured of them beyond that.

    The tasks are read in chunks.
    """
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
    parts, kept, totals = list[OperatorTimes](), list[OperatorLengths](), list[KernelTotals]()
    works, lines = list[WorkSums](), list[OperatorLines]()
    with_work = len(records.metrics) > 0 or peak_flop_per_s > 0 or len(tasks) <= MOST_UNASKED_WORK
    shares = call_shares(tasks) if with_work else None
    seen = cores_seen(tasks, records.metrics)
    with_lines = bool(tasks.line.any())
    is_single = not len(records.steps) and not len(records.ops)
    places, operators = list[Rows](), list[Int64]()
    for rows in computing_rows(tasks):
        codes = tasks.name[rows]
        types, cores = task_types.at(tasks, rows)
        keys = {"type": types, "core": cores}
        if most_names:
            keys["name"] = name[codes]
            keys["shapes"] = np.where(named[codes], shape[tasks.input_shapes[rows]], NO_NAME)
        waited_ns = None if waits is None else waits.tasks[rows]
        part, part_lengths = _times(keys, tasks.end_ns[rows] - tasks.start_ns[rows], waited_ns)
        operator = part_lengths.operator + sum(map(len, parts))
        if lengths:
            kept.append(replace(part_lengths, operator=operator))
        if len(records.metrics):
            totals.append(
                KernelTotals.of(tasks, rows, operator, records.metrics, records.cores, seen)
            )
        if with_work:
            kinds = keys["type"]
            works.append(work_of_tasks(tasks, rows, kinds, operator, strings, pool, shares))
        if with_lines:
            asked = OperatorLines(operator, tasks.line[rows], part_lengths.length_ns).summed()
            lines.append(replace(asked, line=strings.translate(asked.line, pool)))
        if is_single:
            places.append(rows)
            operators.append(operator)
        parts.append(part)
    times, operator = _summed(OperatorTimes.concat(parts))
    kept = [replace(part, operator=operator[part.operator]) for part in kept]
    measured = _Measured()
    if totals:
        measured.kernels = KernelTotals.join(totals, operator, records.cores)
    if works:
        cycles_per_s = max(records.cores.cube, 0) * measured.kernels.clock_hz
        measured.shapes = ShapeTotals.join(works, operator, peak_flop_per_s, cycles_per_s)
    if lines:
        every = OperatorLines.concat(lines)
        measured.lines = replace(every, operator=operator[every.operator]).summed()
    # Names, if asked for, do not tell kernels of one type and core apart.
    _, kind = distinct_pairs(times.type.astype(np.int64), times.core.astype(np.int64))
    _, first = np.unique(kind, return_index=True)
    if places and len(first) <= MOST_SINGLE:
        rows = np.concatenate(places)
        operator = first[kind][operator[np.concatenate(operators)]]
        measured.runs = KernelRuns.of_tasks(tasks, rows, operator)
        if totals:
            warm = warm_rows(tasks.start_ns[rows], operator)
            measured.warm = KernelTotals.of(
                tasks, rows[warm], operator[warm], records.metrics, records.cores, seen
            )
    return times, kept, measured


@dataclass
class _Measured:
    """Measurements of the operators that compute, beyond their times: see `OperatorFigures`."""

    kernels: KernelTotals = field(default_factory=KernelTotals)
    shapes: ShapeTotals = field(default_factory=ShapeTotals)
    runs: KernelRuns = field(default_factory=KernelRuns.empty)
    lines: OperatorLines = field(default_factory=OperatorLines.empty)
    warm: KernelTotals = field(default_factory=KernelTotals)


def _communicating(
    records: Records, strings: StringPool, most_names: int, waits: KernelWaits | None
) -> tuple[OperatorTimes, OperatorLengths]:
    ops, pool = records.ops, records.strings
    lengths_ns = ops.end_ns - ops.start_ns
    keys = {"type": strings.translate(ops.name, pool, collective_kind)}
    if most_names:
        named = _longest_names(sum_by(ops.name, lengths_ns, len(pool)), most_names)[ops.name]
        keys["name"] = strings.translate(np.where(named, ops.name, np.int32(NO_NAME)), pool)
    waited_ns = None if waits is None else waits.ops
    return _times(keys, lengths_ns, waited_ns, communication=True)


def task_labels(records: Records) -> Codes:
    """Return what to call each task, (tasks,): its type if it computes and has one, else its name.

    Codes are those of the strings of the records.
    """
    strings = StringPool()
    types = TaskTypes.of(records, strings)
    codes = records.strings.codes(strings)

    def labels_of(tasks: Tasks) -> Codes:
        kinds = codes[_first_given(types.given[tasks.op_type], types.derived[tasks.name])]
        return np.where(tasks.compute & (kinds != NO_NAME), kinds, tasks.name)

    return compute_in_chunks(np.int32, labels_of, records.tasks)


def computing_rows(tasks: Tasks) -> Iterator[Rows]:
    """Yield the rows of tasks that compute, in chunks."""
    for chunk in chunks(len(tasks)):
        yield np.flatnonzero(tasks.compute[chunk]) + chunk.start


def _first_given(*columns: Codes) -> Codes:
    *before, names = columns
    for earlier in reversed(before):
        names = np.where(earlier == NO_NAME, names, earlier)
    return names


def _translation(
    strings: StringPool, pool: StringPool, used: Bool, meaning: Callable[[str], str] = str
) -> Codes:
    """Return the code in `strings` for each code of a pool; 0 for strings that are not used.

    meaning: maps each string to the one that is stored.
    """
    table = np.zeros(len(pool), np.int32)
    table[used] = strings.translate(np.flatnonzero(used).astype(np.int32), pool, meaning)
    return table


def _longest_names(name_ns: Int64, most: int) -> Bool:
    """Return a mask of the names with the most time, at most `most`."""
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
    """Return one row for each distinct combination of keys, and the row of each length."""
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
    """Return one row for each operator, and the row of each input row."""
    keys, sums = ("type", "core", "name", "shapes"), ("count", "total_ns", "waited_ns")
    return sum_rows(times, keys, sums, least=["shortest_ns"], greatest=["longest_ns"])


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


@dataclass(frozen=True)
class KernelWaits:
    """Gaps in ns between each kernel and the one before it.

    tasks: (tasks,), 0 for tasks that do not compute. ops: (ops,), of communication ops.
    """

    tasks: Int64
    ops: Int64


def kernel_waits(records: Records, membership: Membership | None = None) -> KernelWaits:
    """Return the gap from the end of the previous kernel to the start of each, at least 0.

    Kernels are computing tasks and communication ops, in order of start. This is Wait Time in
    CANN's kernel_details.csv and op_summary.csv: it is 0 for the first kernel, and the previous
    kernel is the last to start before, even if an earlier one still runs.

    membership: given if only some steps are selected. The first kernel of a step then has no
    predecessor, since the work between the selected steps is unknown.
    """
    computing = np.flatnonzero(records.tasks.compute)
    start_ns = np.concatenate([records.tasks.start_ns[computing], records.ops.start_ns])
    order = np.argsort(start_ns, kind="stable")
    end_ns = np.concatenate([records.tasks.end_ns[computing], records.ops.end_ns])
    waits_ns = np.zeros(len(order), np.int64)
    gaps_ns = np.maximum(start_ns[order[1:]] - end_ns[order[:-1]], 0)
    if membership is not None:
        step = np.concatenate([membership.tasks[computing], membership.ops])[order]
        gaps_ns = np.where(step[1:] == step[:-1], gaps_ns, 0)
    waits_ns[order[1:]] = gaps_ns
    tasks_ns = np.zeros(len(records.tasks), np.int64)
    tasks_ns[computing] = waits_ns[: len(computing)]
    return KernelWaits(tasks_ns, waits_ns[len(computing) :])


_KEYS = ("level", "step", "side", "kind", "name", "shapes")


@dataclass(frozen=True, slots=True)
class OperatorSteps:
    """Runs of operators by step; codes are positions in `strings`."""

    strings: tuple[str, ...] = ("",)
    runs: OperatorRuns = field(default_factory=OperatorRuns.empty)

    def limited(self, most: int) -> OperatorSteps:
        """Limit the number of rows.

        The types with the least time share a row per step. Single operators and kernels are
        dropped unless there is room for all of them.
        """
        return replace(self, runs=_limited(self.runs, most))


def operator_steps(
    records: Records,
    membership: Membership,
    selected: ProfilerTables,
    *,
    most: int,
    names: bool = False,
) -> OperatorSteps:
    """Return the runs of operators by step and type.

    They are those of the profiler's tables if it wrote any, else sums of all tasks.

    membership: the steps of the tasks and communication ops; work outside steps is left out.
    selected: the profiler's tables, limited to the selection. most: maximum number of rows; the
    types with the least time share one beyond. names: whether to add rows per operator and shapes
    to the rows per type of task.
    """
    if len(records.profiler_tables.of(OperatorRuns)):
        return OperatorSteps(tuple(selected.strings), selected.of(OperatorRuns)).limited(most)
    strings = StringPool()
    levels = (RunLevel.TYPE, RunLevel.NAME) if names else (RunLevel.TYPE,)
    runs = OperatorRuns.concat(_runs_of(records, membership, strings, level) for level in levels)
    return OperatorSteps(tuple(strings), runs).limited(most)


def _runs_of(
    records: Records, membership: Membership, strings: StringPool, level: RunLevel
) -> OperatorRuns:
    """Return the runs within steps by type, or by type and name.

    Steps of several graphs with the same number are merged.
    """
    tasks, ops, pool = records.tasks, records.ops, records.strings
    types, parts = TaskTypes.of(records, strings), list[OperatorRuns]()

    def add(steps: Int64, lengths_ns: Int64, names: Codes, keys: dict[str, Codes]) -> None:
        if level is RunLevel.NAME:
            keys["name"] = strings.translate(names, pool)
        count = len(steps)
        columns = {"level": np.full(count, level), "count": np.ones(count, np.int64)}
        columns |= {"step": steps, "total_ns": lengths_ns, **keys}
        parts.append(_joined(OperatorRuns.of(count, columns)))

    for rows in computing_rows(tasks):
        keys = {"kind": types.at(tasks, rows)[0]}
        if level is RunLevel.NAME:
            keys["shapes"] = strings.translate(tasks.input_shapes[rows], pool)
        lengths_ns = tasks.end_ns[rows] - tasks.start_ns[rows]
        add(membership.tasks[rows], lengths_ns, tasks.name[rows], keys)
    keys = {"kind": strings.translate(ops.name, pool, collective_kind)}
    add(membership.ops, ops.end_ns - ops.start_ns, ops.name, keys)
    runs = OperatorRuns.concat(parts)
    runs = runs.take(runs.step != NO_STEP)
    numbers = records.steps.iteration[runs.step] if len(runs) else runs.step
    return _joined(replace(runs, step=numbers))


def _joined(runs: OperatorRuns) -> OperatorRuns:
    return sum_rows(runs, (*_KEYS, "rest"), ("count", "total_ns"))[0]


def _limited(runs: OperatorRuns, most: int) -> OperatorRuns:
    is_type = runs.level == RunLevel.TYPE
    types, others = runs.take(is_type), runs.take(~is_type)
    if len(types) > most:
        types = _with_rest(types, most)
    if len(types) + len(others) > most:
        others = others.take(np.zeros(len(others), np.bool_))
    return OperatorRuns.concat([types, others])


def _with_rest(types: OperatorRuns, most: int) -> OperatorRuns:
    steps = distinct(types.step)
    groups = group_by(len(types), [types.rest.astype(np.int64), types.kind])
    total_ns = np.where(types.rest[groups.first], -1, groups.sum(types.total_ns))
    kept = np.argsort(-total_ns, kind="stable")[: max(0, most // len(steps) - 1)]
    rest = types.rest | ~np.isin(groups.group, kept)
    # If there are more steps than rows allowed, the last steps share one row without a number.
    named = ~rest | np.isin(types.step, steps[: most - 1] if len(steps) > most else steps)
    nothing = np.int32(NO_NAME)
    return _joined(
        replace(
            types,
            step=np.where(named, types.step, NO_ID),
            kind=np.where(rest, nothing, types.kind),
            side=np.where(rest, nothing, types.side),
            rest=rest,
        )
    )


@dataclass(frozen=True)
class TaskFlops(Columnar):
    """Floating-point operations of tasks, with one value per code of a name in a StringPool.

    flop and flop_per_s are sums over all units, NO_ID if the profiler has none. The utilizations
    are shares of the peak, 0 to 1: of the operator, and of each unit if units are separate.
    """

    flop: Int64
    flop_per_s: Int64
    utilization: Float64
    cube_utilization: Float64
    vector_utilization: Float64


def task_flops(records: Records) -> TaskFlops | None:
    """Return the operations of a rank's tasks by name, None if its profiler's files have none."""
    table, names = records.profiler_tables.of(FlopRows), records.profiler_tables.strings
    table = table.take(table.level == FlopLevel.OPERATOR)
    if not len(table):
        return None
    codes = [records.strings.find(names[code]) for code in table.name.tolist()]
    code = np.array([NO_NAME if one is None else one for one in codes], np.int64)
    table, code = table.take(code != NO_NAME), code[code != NO_NAME]
    if not len(table):
        return None
    count = len(records.strings)
    shares = {unit: np.full(count, FLOAT_NOT_GIVEN) for unit in FlopUnit}
    for unit, by_code in shares.items():
        of_unit = table.unit == unit
        by_code[code[of_unit]] = table.utilization[of_unit]
    return TaskFlops(
        _sum_by_code(code, table.flop, count),
        _sum_by_code(code, table.flop_per_s, count),
        shares[FlopUnit.ALL],
        shares[FlopUnit.CUBE],
        shares[FlopUnit.VECTOR],
    )


def _sum_by_code(code: Int64, values: Int64, count: int) -> Int64:
    """Return the sum of the given values of each code, NO_ID for a code without values."""
    given = values != NO_ID
    has_value = np.zeros(count, np.bool_)
    has_value[code[given]] = True
    return np.where(has_value, sum_by(code[given], values[given], count), NO_ID)
