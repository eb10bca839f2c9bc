"""What the framework's operators and modules launched and allocated, as trees of calls tell it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from timeline.analysis.idle.device_items import TASK_QUEUE
from timeline.analysis.work.framework_calls import MODULE, NO_CALL, CallTree, launch_name
from timeline.analysis.work.launching_operators import NO_PATH, ModulePaths
from timeline.analysis.work.task_sums import are_hccl_tasks
from timeline.columns.columns import (
    Bool,
    Codes,
    ColumnTable,
    Int64,
    Rows,
    ascending,
    column,
    rows_of_runs,
)
from timeline.columns.distinct import distinct
from timeline.columns.group_by import sum_rows
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_TIME
from timeline.records.tables import (
    FORWARD_BACKWARD,
    FRAMEWORK_LAUNCH,
    GPU,
    RUNTIME_LAYERS,
    FlowEnd,
    HostEvents,
    Records,
    Tasks,
)

MOST_ROWS = 1 << 14
"""Rows of a table of one rank: operators beyond them lose their shapes, modules are left out."""
_OPERATOR_LEVELS = frozenset({"cpu_op", "operator", "user_annotation", "op"})
"""What traces and databases call operators, and ranges of `record_function`, which are told alike.
"""
_COPIES = frozenset({"gpu_memcpy", "memcpy"})
"""The tasks of GPUs that count like kernels; fills and waits do not."""
_QUEUED = "cann::"
"""In the names of allocations that CANN makes while its queue is emptied."""
_STEP = re.compile(r"ProfilerStep#([0-9]{1,9})")
_BEFORE_ALL = np.iinfo(np.int64).min
_NO_STEP = -1
_NO_LABEL = -1


@dataclass(frozen=True)
class OperatorRules:
    """How operators are told apart.

    max_kernels: an operator that launched more kernels, and has others inside, gives way to those;
    0 for any number. with_shapes: whether those of other shapes are others.
    """

    max_kernels: int = 0
    with_shapes: bool = False


class OperatorTimes(ColumnTable):
    """A row per name of operators that are shown, and shapes where these are told apart.

    count: how many ran; total_ns: how long what they and those inside launched ran on the device,
    collectives left out; size_bytes: what they allocated; held_ns: the sum of how long each
    allocation was held, as far as its release is known.
    """

    name: Codes = column(np.int32)
    shapes: Codes = column(np.int32, NO_NAME)
    count: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    size_bytes: Int64 = column(np.int64)
    held_ns: Int64 = column(np.int64)


class ModuleTimes(ColumnTable):
    """A row per path of modules and direction: how long what it launched ran on the device.

    self_ns: in no inner module; total_ns: with the inner ones.
    """

    path: Codes = column(np.int32)
    backward: Bool = column(np.bool_)
    self_ns: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)


@dataclass(frozen=True)
class FrameworkSums:
    """The operators and modules of one rank; codes are positions in `strings`.

    has_operators: whether operators of the host were recorded at all; has_allocations: whether
    their memory was. modules_left_out: rows beyond MOST_ROWS, those of the shortest.
    """

    strings: tuple[str, ...] = ("",)
    operators: OperatorTimes = field(default_factory=OperatorTimes.empty)
    modules: ModuleTimes = field(default_factory=ModuleTimes.empty)
    has_operators: bool = False
    has_allocations: bool = False
    modules_left_out: int = 0
    on_gpu: bool = False


def sum_framework(records: Records, rules: OperatorRules) -> FrameworkSums:
    """Sum up what operators and modules of a rank launched and allocated.

    Operators are one tree by time alone; kernels hang below the operator from which the framework's
    arrow comes. Shown are the children of each selected `ProfilerStep#N`, and what is in no call.
    """
    operators = _tree(records.host, _operators(records))
    if not len(operators):
        return FrameworkSums()
    strings = StringPool()
    kernels = _launched(records, operators)
    modules, left_out = _module_times(records, operators, kernels, strings)
    return FrameworkSums(
        operators=_operator_times(records, operators, kernels, rules, strings),
        modules=modules,
        has_operators=True,
        has_allocations=len(records.allocations) > 0,
        modules_left_out=left_out,
        on_gpu=records.hardware == GPU,
        strings=tuple(strings),
    )


def _tree(host: HostEvents, rows: Rows) -> CallTree:
    return CallTree.of(rows, host.start_ns[rows], host.end_ns[rows])


def _operators(records: Records) -> Rows:
    """The host events that are operators, by their category."""
    levels, strings = distinct(records.host.level).tolist(), records.strings
    telling = [code for code in levels if strings[code].lower() in _OPERATOR_LEVELS]
    return np.flatnonzero(np.isin(records.host.level, telling))


@dataclass(frozen=True)
class _Kernels:
    """What operators launched, (k,): the operator's place, when it was asked for, how long it ran.

    place: NO_CALL where no operator asked.
    """

    place: Rows
    asked_ns: Int64
    length_ns: Int64


def _launched(records: Records, operators: CallTree) -> _Kernels:
    """The tasks at which torch_npu's arrows end, or those of a GPU's runtime; no collectives.

    Of several arrows to one task, that of the operator that began last counts.
    """
    host, tasks, on_gpu = records.host, records.tasks, records.hardware == GPU
    source, target = (
        _runtime_arrows(records) if on_gpu else records.arrows(FRAMEWORK_LAUNCH, FlowEnd.TASK)
    )
    kernels = _are_kernels(records, target)
    source, target = source[kernels], target[kernels]
    asked_ns = host.start_ns[source]
    if on_gpu:  # the clocks of runtime and operators may differ by microseconds
        asked_ns = asked_ns + (host.end_ns[source] - asked_ns) // 2
    place = operators.places(source)
    place = np.where(place == NO_CALL, operators.open_at(asked_ns), place)
    order = np.lexsort((place, target))
    ordered = target[order]
    last = order[np.append(ordered[1:] != ordered[:-1], [True])[: len(order)]]
    its = target[last]
    return _Kernels(place[last], asked_ns[last], tasks.end_ns[its] - tasks.start_ns[its])


def _runtime_arrows(records: Records) -> tuple[Int64, Int64]:
    """The rows of calls of a GPU's runtime, and of the tasks that they launched."""
    flows, layers = records.flows, _codes(records.strings, RUNTIME_LAYERS)
    rows = np.flatnonzero((flows.source_kind == FlowEnd.HOST) & (flows.target_kind == FlowEnd.TASK))
    rows = rows[np.isin(records.host.layer[flows.source_row[rows]], layers)]
    return flows.source_row[rows], flows.target_row[rows]


def _codes(strings: StringPool, names: frozenset[str]) -> Codes:
    found = [code for name in names if (code := strings.find(name)) is not None]
    return np.array(found, np.int32)


def _are_kernels(records: Records, rows: Rows) -> Bool:
    """Which of these tasks count: of GPUs kernels and copies, of NPUs all; but no collectives."""
    tasks: Tasks = records.tasks.take(rows)
    if records.hardware == GPU:
        return tasks.compute | np.isin(tasks.task_type, _codes(records.strings, _COPIES))
    return ~are_hccl_tasks(tasks, records.planes)


def _operator_times(
    records: Records,
    operators: CallTree,
    kernels: _Kernels,
    rules: OperatorRules,
    strings: StringPool,
) -> OperatorTimes:
    host = records.host
    launched = kernels.place != NO_CALL
    place = kernels.place[launched]
    count = operators.totals(np.bincount(place, minlength=len(operators)))
    total_ns = operators.totals(_summed(operators, place, kernels.length_ns[launched]))
    sizes, held_ns = _allocated(records, operators)
    shown = _shown(records, operators, count, rules.max_kernels)
    rows = operators.row[shown]
    nothing = np.full(len(rows), NO_NAME, np.int32)
    every = OperatorTimes(
        strings.translate(host.name[rows], records.strings),
        strings.translate(host.shapes[rows], records.strings) if rules.with_shapes else nothing,
        np.ones(len(rows), np.int64),
        total_ns[shown],
        operators.totals(sizes)[shown],
        operators.totals(held_ns)[shown],
    )
    return _grouped(every)


def _summed(operators: CallTree, place: Rows, values: Int64) -> Int64:
    """The exact sum of the values at each place."""
    found = np.zeros(len(operators), np.int64)
    np.add.at(found, place, values)
    return found


def _shown(records: Records, operators: CallTree, kernels: Int64, most: int) -> Rows:
    """The places of the operators that are shown, in order.

    kernels: (n,) how many each operator and those inside launched.
    """
    step = _steps(records, operators)
    outermost = operators.parent == NO_CALL
    steps = outermost & (step != _NO_STEP)
    selected = np.isin(step, records.steps.iteration) | (not records.steps.host.any())
    inside = np.append(steps & selected, [False])[operators.parent]
    found = np.flatnonzero((outermost & ~steps) | inside)
    has_children = np.zeros(len(operators), np.bool_)
    has_children[operators.parent[operators.parent != NO_CALL]] = True
    gives_way = has_children & (kernels > most) & (most > 0)
    if not gives_way.any():
        return found
    child = np.flatnonzero(operators.parent != NO_CALL)
    child = child[gives_way[operators.parent[child]]]
    stays = [found[~gives_way[found]]]
    asked = found[gives_way[found]]
    # Children of one parent are asked for together, in as many rounds as calls lie in each other.
    by_parent = child[np.argsort(operators.parent[child], kind="stable")]
    parents = operators.parent[by_parent]
    while len(asked):
        first, stop = (np.searchsorted(parents, asked, side=side) for side in ("left", "right"))
        inner = by_parent[rows_of_runs(first, stop - first)]
        stays.append(inner[~gives_way[inner]])
        asked = ascending(inner[gives_way[inner]])
    return ascending(np.concatenate(stays))


def _steps(records: Records, operators: CallTree) -> Int64:
    """The number of the step that each operator is, _NO_STEP for others."""
    names = records.host.name[operators.row]
    number = np.full(len(records.strings), _NO_STEP, np.int64)
    for code in distinct(names).tolist():
        match = _STEP.fullmatch(records.strings[code])
        if match:
            number[code] = int(match[1])
    return number[names]


def _allocated(records: Records, operators: CallTree) -> tuple[Int64, Int64]:
    """How much memory each operator allocated itself, and how long that was held in all.

    What CANN allocates while its queue is emptied belongs to the operator that filled it.
    """
    allocations, pool = records.allocations, records.strings
    moments_ns = allocations.start_ns.copy()
    queued = [code for code in distinct(allocations.name).tolist() if _QUEUED in pool[code]]
    late = np.flatnonzero(np.isin(allocations.name, queued))
    moments_ns[late] = _enqueued_ns(records, moments_ns[late])
    place = operators.open_at(moments_ns)
    known = place != NO_CALL
    released = allocations.end_ns != NO_TIME
    held_ns = np.where(released, allocations.end_ns - allocations.start_ns, 0)
    return (
        _summed(operators, place[known], allocations.size_bytes[known]),
        _summed(operators, place[known], held_ns[known]),
    )


def _enqueued_ns(records: Records, moments_ns: Int64) -> Int64:
    """When what leaves the queue at each moment was put there, before all times for nothing."""
    host = records.host
    put, taken = records.arrows(TASK_QUEUE, FlowEnd.HOST)
    leaving = _tree(host, taken)
    place = leaving.open_at(moments_ns)
    # A row of the queue is the end of one arrow.
    order = np.argsort(taken)
    ends, starts = taken[order], put[order]
    found = np.full(len(moments_ns), _BEFORE_ALL)
    known = np.flatnonzero(place != NO_CALL)
    found[known] = host.start_ns[starts[np.searchsorted(ends, leaving.row[place[known]])]]
    return found


def _grouped(every: OperatorTimes) -> OperatorTimes:
    """One row per name and shapes, the longest first; of too many, the rest without shapes."""
    sums = ("count", "total_ns", "size_bytes", "held_ns")
    summed, _ = sum_rows(every, ("name", "shapes"), sums)
    summed = summed.take(np.argsort(-summed.total_ns, kind="stable"))
    if len(summed) <= MOST_ROWS or not summed.shapes[MOST_ROWS:].any():
        return summed
    rest = summed[MOST_ROWS:]
    plain = OperatorTimes.of(
        len(rest), {name: values for name, values in rest.columns().items() if name != "shapes"}
    )
    return OperatorTimes.concat([summed[:MOST_ROWS], _grouped(plain)])


def _module_times(
    records: Records, operators: CallTree, kernels: _Kernels, strings: StringPool
) -> tuple[ModuleTimes, int]:
    """The times of modules, forward and backward, and how many rows are left out."""
    host, pool = records.host, records.strings
    named = [code for code in distinct(host.name).tolist() if pool[code].startswith(MODULE)]
    modules = _tree(host, np.flatnonzero(np.isin(host.name, named)))
    if not len(modules):
        return ModuleTimes.empty(), 0
    paths, path = ModulePaths(pool), np.full(len(modules), NO_PATH, np.int64)
    for level in modules.levels:
        around = np.append(path, NO_PATH)[modules.parent[level]]
        names = host.name[modules.row[level]]
        path[level] = paths.within(around, names, np.zeros(len(level), np.bool_))
    count, inside = len(paths), modules.open_at(kernels.asked_ns)
    forward_ns = _by_path(np.append(path, NO_PATH)[inside], kernels.length_ns, count)
    label = _backward_paths(records, operators, modules, path)
    behind = np.append(label, _NO_LABEL)[kernels.place]
    backward_ns = _by_path(behind, kernels.length_ns, count)
    has_backward = np.zeros(count, np.bool_)
    has_backward[label[label != _NO_LABEL]] = True
    every = list[ModuleTimes]()
    for backward, self_ns, asked in (
        (False, forward_ns, np.ones(count, np.bool_)),
        (True, backward_ns, has_backward),
    ):
        total_ns = self_ns.copy()
        for one in range(count - 1, NO_PATH, -1):
            total_ns[paths.around[one]] += total_ns[one]
            asked[paths.around[one]] |= asked[one]
        some = np.flatnonzero(asked[1:]) + 1
        texts = strings.codes(map(paths.text, some.tolist()))
        flag = np.full(len(some), backward)
        every.append(ModuleTimes(texts, flag, self_ns[some], total_ns[some]))
    found = ModuleTimes.concat(every)
    longest = np.sort(np.argsort(-found.total_ns, kind="stable")[:MOST_ROWS])
    return found.take(longest), len(found) - len(longest)


def _by_path(path: Int64, lengths_ns: Int64, count: int) -> Int64:
    """The exact sum of lengths by path, (count,); those of none are at NO_PATH."""
    found = np.zeros(count, np.int64)
    known = path > NO_PATH
    np.add.at(found, path[known], lengths_ns[known])
    return found


def _backward_paths(records: Records, operators: CallTree, modules: CallTree, path: Int64) -> Int64:
    """The path of the module whose gradient each operator works out, _NO_LABEL for none.

    An arrow from forward to backward begins in the module, and ends in the operator of the
    gradient, or in the engine's call around that.
    """
    forward, backward = records.arrows(FORWARD_BACKWARD, FlowEnd.HOST)
    label = np.full(len(operators), _NO_LABEL, np.int64)
    module = modules.open_at(records.host.start_ns[forward])
    place = operators.open_at(records.host.start_ns[backward])
    known = (module != NO_CALL) & (place != NO_CALL)
    label[_worked_out(records, operators, place[known])] = path[module[known]]
    return operators.inherited(label, _NO_LABEL)


def _worked_out(records: Records, operators: CallTree, place: Rows) -> Rows:
    """Each operator, or the one in it that the engine calls there: what is inside begins next."""
    pool = records.strings
    names = np.append(records.host.name[operators.row], np.int32(NO_NAME))
    called = pool.translate(names[place], pool, launch_name)
    first = place + 1
    inside = np.append(operators.parent, NO_CALL)[first] == place
    engine = (called != names[place]) & inside & (names[first] == called)
    return np.where(engine, first, place)
