"""Device time and memory of the framework's operators and modules, summed over trees of calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from timeline.analysis.idle.launches import TASK_QUEUE
from timeline.analysis.work.framework_calls import MODULE, NO_CALL, CallTree, launch_name
from timeline.analysis.work.launching_operators import NO_PATH, ModulePaths
from timeline.analysis.work.operators import OperatorLines
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
from timeline.columns.group_by import sum_by, sum_rows
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
"""Maximum rows of a table of one rank: operators beyond it lose their shapes, modules are left out.
"""
_OPERATOR_LEVELS = frozenset({"cpu_op", "operator", "user_annotation", "op"})
"""Levels of operators in traces and databases, and of `record_function` ranges, which look the
same.
"""
_COPIES = frozenset({"gpu_memcpy", "memcpy"})
"""Tasks of GPUs that count like kernels; fills and waits do not."""
_QUEUED = "cann::"
"""Part of the names of allocations that CANN makes while its queue is emptied."""
_STEP = re.compile(r"ProfilerStep#([0-9]{1,9})")
_BEFORE_ALL = np.iinfo(np.int64).min
_NO_STEP = -1
_NO_LABEL = -1


@dataclass(frozen=True)
class OperatorRules:
    """Rules for splitting operators into rows.

    max_kernels: an operator that launched more kernels, and contains others, is replaced by those;
    0 for no limit. with_shapes: whether operators with different shapes get different rows.
    """

    max_kernels: int = 0
    with_shapes: bool = False


class FrameworkTimes(ColumnTable):
    """Sums of the displayed operators, one row per name, and per shapes if these are separate.

    count: number of runs. total_ns: device time of what they and inner operators launched, without
    collectives. size_bytes: allocated memory. held_ns: total time that allocations were held, as
    far as their release is known.
    """

    name: Codes = column(np.int32)
    shapes: Codes = column(np.int32, NO_NAME)
    count: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    size_bytes: Int64 = column(np.int64)
    held_ns: Int64 = column(np.int64)


class ModuleTimes(ColumnTable):
    """Device time of what modules launched, one row per path of modules and direction.

    self_ns: in no inner module; total_ns: with inner modules. line: of the program's code that
    launched most of self_ns, or else of what the longest inner module launched.
    """

    path: Codes = column(np.int32)
    backward: Bool = column(np.bool_)
    line: Codes = column(np.int32, NO_NAME)
    self_ns: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)


@dataclass(frozen=True)
class FrameworkSums:
    """Operators and modules of one rank; codes are positions in `strings`.

    has_operators: whether operators of the host were recorded; has_allocations: whether their
    memory was. modules_left_out: number of rows beyond MOST_ROWS, those with the least time.
    """

    strings: tuple[str, ...] = ("",)
    operators: FrameworkTimes = field(default_factory=FrameworkTimes.empty)
    modules: ModuleTimes = field(default_factory=ModuleTimes.empty)
    has_operators: bool = False
    has_allocations: bool = False
    modules_left_out: int = 0
    on_gpu: bool = False


def sum_framework(records: Records, rules: OperatorRules) -> FrameworkSums:
    """Sum the device time and memory of the operators and modules of a rank.

    Operators form one tree by time alone; kernels belong to the operator from which the framework's
    arrow comes. Displayed are the children of each selected `ProfilerStep#N`, and calls outside of
    any other.
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
    levels, strings = distinct(records.host.level).tolist(), records.strings
    operator_codes = [code for code in levels if strings[code].lower() in _OPERATOR_LEVELS]
    return np.flatnonzero(np.isin(records.host.level, operator_codes))


@dataclass(frozen=True)
class _Kernels:
    """Kernels launched by operators, (k,).

    place: place of the operator, NO_CALL if there is none. asked_ns: timestamp of the launch, or of
    the framework's request for it. length_ns: duration. line: of code that launched it.
    """

    place: Rows
    asked_ns: Int64
    length_ns: Int64
    line: Codes


def _launched(records: Records, operators: CallTree) -> _Kernels:
    """Return the tasks at the ends of torch_npu's arrows or launched by a GPU's runtime.

    Collectives are left out. If several arrows end at a task, the operator that began last counts.
    """
    host, tasks, on_gpu = records.host, records.tasks, records.hardware == GPU
    source, target = (
        _runtime_arrows(records) if on_gpu else records.arrows(FRAMEWORK_LAUNCH, FlowEnd.TASK)
    )
    kernels = _are_kernels(records, target)
    source, target = source[kernels], target[kernels]
    asked_ns = host.start_ns[source]
    if on_gpu:  # clocks of runtime and operators may differ by microseconds
        asked_ns = asked_ns + (host.end_ns[source] - asked_ns) // 2
    place = operators.places(source)
    place = np.where(place == NO_CALL, operators.open_at(asked_ns), place)
    order = np.lexsort((place, target))
    ordered = target[order]
    last = order[np.append(ordered[1:] != ordered[:-1], [True])[: len(order)]]
    kernel_rows = target[last]
    return _Kernels(
        place[last],
        asked_ns[last],
        tasks.end_ns[kernel_rows] - tasks.start_ns[kernel_rows],
        tasks.line[kernel_rows],
    )


def _runtime_arrows(records: Records) -> tuple[Int64, Int64]:
    """Return the rows of runtime calls of a GPU, and of the tasks that they launched."""
    flows, layers = records.flows, _codes(records.strings, RUNTIME_LAYERS)
    rows = np.flatnonzero((flows.source_kind == FlowEnd.HOST) & (flows.target_kind == FlowEnd.TASK))
    rows = rows[np.isin(records.host.layer[flows.source_row[rows]], layers)]
    return flows.source_row[rows], flows.target_row[rows]


def _codes(strings: StringPool, names: frozenset[str]) -> Codes:
    codes = [code for name in names if (code := strings.find(name)) is not None]
    return np.array(codes, np.int32)


def _are_kernels(records: Records, rows: Rows) -> Bool:
    """Return a mask of the tasks that count: kernels and copies on GPUs, all on NPUs.

    Collectives never count.
    """
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
) -> FrameworkTimes:
    host = records.host
    launched = kernels.place != NO_CALL
    place = kernels.place[launched]
    count = operators.totals(np.bincount(place, minlength=len(operators)))
    total_ns = operators.totals(sum_by(place, kernels.length_ns[launched], len(operators)))
    sizes, held_ns = _allocated(records, operators)
    shown = _shown(records, operators, count, rules.max_kernels)
    rows = operators.row[shown]
    nothing = np.full(len(rows), NO_NAME, np.int32)
    every = FrameworkTimes(
        strings.translate(host.name[rows], records.strings),
        strings.translate(host.shapes[rows], records.strings) if rules.with_shapes else nothing,
        np.ones(len(rows), np.int64),
        total_ns[shown],
        operators.totals(sizes)[shown],
        operators.totals(held_ns)[shown],
    )
    return _grouped(every)


def _shown(records: Records, operators: CallTree, kernels: Int64, most: int) -> Rows:
    """Return the places of the displayed operators, in order.

    kernels: (n,) number launched by each operator including inner ones.
    """
    step = _steps(records, operators)
    outermost = operators.parent == NO_CALL
    steps = outermost & (step != _NO_STEP)
    selected = np.isin(step, records.steps.iteration) | (not records.steps.host.any())
    inside = np.append(steps & selected, [False])[operators.parent]
    shown = np.flatnonzero((outermost & ~steps) | inside)
    has_children = np.zeros(len(operators), np.bool_)
    has_children[operators.parent[operators.parent != NO_CALL]] = True
    is_split = has_children & (kernels > most) & (most > 0)
    if not is_split.any():
        return shown
    child = np.flatnonzero(operators.parent != NO_CALL)
    child = child[is_split[operators.parent[child]]]
    kept = [shown[~is_split[shown]]]
    to_split = shown[is_split[shown]]
    # All children of a level are looked up at once, so rounds equal the nesting depth.
    by_parent = child[np.argsort(operators.parent[child], kind="stable")]
    parents = operators.parent[by_parent]
    while len(to_split):
        first, stop = (np.searchsorted(parents, to_split, side=side) for side in ("left", "right"))
        inner = by_parent[rows_of_runs(first, stop - first)]
        kept.append(inner[~is_split[inner]])
        to_split = ascending(inner[is_split[inner]])
    return ascending(np.concatenate(kept))


def _steps(records: Records, operators: CallTree) -> Int64:
    """Return the step number of each operator that is a step, _NO_STEP for others."""
    names = records.host.name[operators.row]
    number = np.full(len(records.strings), _NO_STEP, np.int64)
    for code in distinct(names).tolist():
        match = _STEP.fullmatch(records.strings[code])
        if match:
            number[code] = int(match[1])
    return number[names]


def _allocated(records: Records, operators: CallTree) -> tuple[Int64, Int64]:
    """Return how much memory each operator allocated itself, and for how long in total.

    Allocations that CANN makes while its queue is emptied belong to the operator that filled it.
    """
    allocations, pool = records.allocations, records.strings
    times_ns = allocations.start_ns.copy()
    queued = [code for code in distinct(allocations.name).tolist() if _QUEUED in pool[code]]
    late = np.flatnonzero(np.isin(allocations.name, queued))
    times_ns[late] = _enqueued_ns(records, times_ns[late])
    place = operators.open_at(times_ns)
    known = place != NO_CALL
    released = allocations.end_ns != NO_TIME
    held_ns = np.where(released, allocations.end_ns - allocations.start_ns, 0)
    return (
        sum_by(place[known], allocations.size_bytes[known], len(operators)),
        sum_by(place[known], held_ns[known], len(operators)),
    )


def _enqueued_ns(records: Records, times_ns: Int64) -> Int64:
    """Return when the work dequeued at each timestamp was enqueued, _BEFORE_ALL for none."""
    host = records.host
    put, taken = records.arrows(TASK_QUEUE, FlowEnd.HOST)
    leaving = _tree(host, taken)
    place = leaving.open_at(times_ns)
    # Each dequeuing call is the end of a single arrow.
    order = np.argsort(taken)
    ends, starts = taken[order], put[order]
    enqueued_ns = np.full(len(times_ns), _BEFORE_ALL)
    known = np.flatnonzero(place != NO_CALL)
    enqueued_ns[known] = host.start_ns[starts[np.searchsorted(ends, leaving.row[place[known]])]]
    return enqueued_ns


def _grouped(every: FrameworkTimes) -> FrameworkTimes:
    """Return one row per name and shapes, longest first.

    Rows beyond MOST_ROWS lose their shapes.
    """
    sums = ("count", "total_ns", "size_bytes", "held_ns")
    summed, _ = sum_rows(every, ("name", "shapes"), sums)
    summed = summed.take(np.argsort(-summed.total_ns, kind="stable"))
    if len(summed) <= MOST_ROWS or not summed.shapes[MOST_ROWS:].any():
        return summed
    rest = summed[MOST_ROWS:]
    plain = FrameworkTimes.of(
        len(rest), {name: values for name, values in rest.columns().items() if name != "shapes"}
    )
    return FrameworkTimes.concat([summed[:MOST_ROWS], _grouped(plain)])


def _module_times(
    records: Records, operators: CallTree, kernels: _Kernels, strings: StringPool
) -> tuple[ModuleTimes, int]:
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
    ahead = np.append(path, NO_PATH)[inside]
    forward_ns = _by_path(ahead, kernels.length_ns, count)
    label = _backward_paths(records, operators, modules, path)
    behind = np.append(label, _NO_LABEL)[kernels.place]
    backward_ns = _by_path(behind, kernels.length_ns, count)
    has_backward = np.zeros(count, np.bool_)
    has_backward[label[label != _NO_LABEL]] = True
    every = list[ModuleTimes]()
    for backward, self_ns, asked, of_kernel in (
        (False, forward_ns, np.ones(count, np.bool_), ahead),
        (True, backward_ns, has_backward, behind),
    ):
        total_ns, longest_ns = self_ns.copy(), np.zeros(count, np.int64)
        line = _lines_by_path(of_kernel, kernels, count)
        has_own = line != NO_NAME
        for one in range(count - 1, NO_PATH, -1):
            outer = paths.around[one]
            total_ns[outer] += total_ns[one]
            asked[outer] |= asked[one]
            if line[one] and not has_own[outer] and total_ns[one] > longest_ns[outer]:
                line[outer], longest_ns[outer] = line[one], total_ns[one]
        some = np.flatnonzero(asked[1:]) + 1
        texts = strings.codes(map(paths.text, some.tolist()))
        flag = np.full(len(some), backward)
        lines = strings.translate(line[some], pool)
        every.append(ModuleTimes(texts, flag, lines, self_ns[some], total_ns[some]))
    times = ModuleTimes.concat(every)
    longest = np.sort(np.argsort(-times.total_ns, kind="stable")[:MOST_ROWS])
    return times.take(longest), len(times) - len(longest)


def _by_path(path: Int64, lengths_ns: Int64, count: int) -> Int64:
    """Return the exact sum of lengths by path, (count,), ignoring lengths without a path."""
    known = path > NO_PATH
    return sum_by(path[known], lengths_ns[known], count)


def _lines_by_path(path: Int64, kernels: _Kernels, count: int) -> Codes:
    """Return the line of code that launched most of the time of each path, (count,)."""
    rows = np.flatnonzero((path > NO_PATH) & (kernels.line != NO_NAME))
    of_path = OperatorLines(path[rows], kernels.line[rows], kernels.length_ns[rows])
    return of_path.longest(np.arange(count), count)


def _backward_paths(records: Records, operators: CallTree, modules: CallTree, path: Int64) -> Int64:
    """Return the path of the module whose gradient each operator computes, _NO_LABEL for none.

    An arrow from forward to backward begins in the module, and ends in the operator of the gradient
    or in the engine's call around it.
    """
    forward, backward = records.arrows(FORWARD_BACKWARD, FlowEnd.HOST)
    label = np.full(len(operators), _NO_LABEL, np.int64)
    module = modules.open_at(records.host.start_ns[forward])
    place = operators.open_at(records.host.start_ns[backward])
    known = (module != NO_CALL) & (place != NO_CALL)
    label[_called_by_engine(records, operators, place[known])] = path[module[known]]
    return operators.inherited(label, _NO_LABEL)


def _called_by_engine(records: Records, operators: CallTree, place: Rows) -> Rows:
    """Return the operator that each call of autograd's engine calls; other operators stay."""
    pool = records.strings
    names = np.append(records.host.name[operators.row], np.int32(NO_NAME))
    called = pool.translate(names[place], pool, launch_name)
    first = place + 1
    inside = np.append(operators.parent, NO_CALL)[first] == place
    engine = (called != names[place]) & inside & (names[first] == called)
    return np.where(engine, first, place)
