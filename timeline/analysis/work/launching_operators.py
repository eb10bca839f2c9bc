"""Launching operator, module and phase of each device item."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.analysis.idle.launches import DeviceItems, device_items
from timeline.analysis.work.code_lines import CodeLines
from timeline.analysis.work.framework_calls import (
    NO_CALL,
    CallKind,
    CallTree,
    FrameworkCalls,
    launch_name,
    module_name,
)
from timeline.columns.chunks import chunks
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, ascending, column
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct, distinct_pairs, matched_rows
from timeline.columns.group_by import sum_rows
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_ID
from timeline.records.tables import (
    FORWARD_BACKWARD,
    GPU,
    CommunicationOps,
    FlowEnd,
    HostEvents,
    Records,
    Tasks,
)

MOST_ROWS = 1000
"""Maximum rows of a table of one rank; shorter items are merged, or module paths are cut."""
OTHERS = "all others"
"""Name of the remainder of many launching operators."""
_Item = TypeVar("_Item", bound=np.generic)
_Table = TypeVar("_Table", Tasks, CommunicationOps)
_GRADIENTS = "Gradients/"
_NETWORK = "network"
"""Prefixes of MindSpore's backward scopes (_GRADIENTS) and network scopes."""
_GRADIENT = re.compile(r"(?:/grad[A-Z][\w-]*)+$")
"""Suffix of backward scopes after the scope of their module."""


class Phase(enum.IntEnum):
    """Phase of a training step that an item belongs to."""

    UNKNOWN = 0
    FORWARD = 1
    BACKWARD = 2
    OTHER = 3
    """For example the optimizer, or copies of inputs."""


class Launchers(ColumnTable):
    """Origin of each device item, one row each, with codes of the rank's strings.

    launched_by: the outermost operator around the call that asked for it, or that call itself if
    there is no operator; operator: the innermost. module: the path of modules and annotations
    around it; in backward, that of the forward call whose gradient it computes. line: the line of
    the program's own code that asked for it; in backward, for that forward call. phase: a Phase.
    """

    launched_by: Codes = column(np.int32, NO_NAME)
    operator: Codes = column(np.int32, NO_NAME)
    module: Codes = column(np.int32, NO_NAME)
    line: Codes = column(np.int32, NO_NAME)
    phase: Int64 = column(np.int64, Phase.UNKNOWN)


class LauncherTimes(ColumnTable):
    """Number and duration of items by phase, one row per launching operator or per module.

    Columns that are not distinguished hold NO_NAME, as do unknown values. line: the line of code
    that takes most of the time of a launching operator.
    """

    communication: Bool = column(np.bool_)
    launched_by: Codes = column(np.int32, NO_NAME)
    operator: Codes = column(np.int32, NO_NAME)
    module: Codes = column(np.int32, NO_NAME)
    line: Codes = column(np.int32, NO_NAME)
    phase: Int64 = column(np.int64)
    count: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    shortest_ns: Int64 = column(np.int64)
    longest_ns: Int64 = column(np.int64)


@dataclass(frozen=True, slots=True)
class LauncherFigures:
    """Work of one rank by launching operator and by module; codes are positions in `strings`.

    Each compute task and communication op is in one row of either table.
    """

    strings: tuple[str, ...] = ("",)
    by_launch: LauncherTimes = field(default_factory=LauncherTimes.empty)
    by_module: LauncherTimes = field(default_factory=LauncherTimes.empty)


def launchers(records: Records, items: DeviceItems) -> Launchers:
    """Find the launching operator, module and phase of a rank's device items.

    Args:
        records: of the rank; paths of modules are added to its strings.
        items: its device items.
    """
    strings, paths = records.strings, ModulePaths(records.strings)
    known = np.flatnonzero(items.asked != NO_ID)
    pairs = records.arrows(FORWARD_BACKWARD, FlowEnd.HOST)
    forward_rows = distinct(pairs[0])
    asked = np.concatenate([items.asked[known], forward_rows])
    chains = find_chains(records, asked, pairs, paths)
    own, forward = (
        chains.take(np.arange(len(known))),
        chains.take(np.arange(len(known), len(asked))),
    )
    outermost = np.where(own.outermost != NO_ID, own.outermost, items.asked[known])
    path = _with_forward(own, forward_rows, forward.path, paths)
    used = distinct(path)
    modules = strings.codes(map(paths.text, used.tolist()))[np.searchsorted(used, path)]
    columns = Launchers(
        _put(len(items), known, _names(records, outermost)),
        _put(len(items), known, _names(records, own.innermost)),
        _put(len(items), known, modules),
        _put(len(items), known, _lines(records, items.asked[known], own.paired)),
        _put(len(items), known, _phases(own)),
    )
    return _with_scopes(columns, records, items)


def _put(count: int, rows: Rows, values: npt.NDArray[_Item]) -> npt.NDArray[_Item]:
    """Return a column with the values at some rows, and zeros elsewhere."""
    column = np.zeros(count, values.dtype)
    column[rows] = values
    return column


def _lines(records: Records, asked: Int64, forward: Int64) -> Codes:
    """Return the lines of code of calls, and of their forward calls where they have none."""
    lines = CodeLines(records.host, records.strings)
    own = lines.of(asked)
    lacking = np.flatnonzero(own == NO_NAME)
    own[lacking] = lines.of(forward[lacking])
    return own


def _names(records: Records, rows: Int64) -> Codes:
    """Return the names of launching calls at some rows, NO_NAME for NO_ID."""
    strings = records.strings
    names = np.append(records.host.name, np.int32(NO_NAME))[rows]
    return strings.translate(names, strings, launch_name)


def _with_forward(
    chains: CallChains, forward_rows: Int64, forward_paths: Int64, paths: ModulePaths
) -> Int64:
    """Return the path of each item, or that of its forward call if its own names no module."""
    path = chains.path.copy()
    without_module = (path == NO_PATH) | np.array(paths.is_step)[path]
    rows = np.flatnonzero(without_module & (chains.paired != NO_ID))
    path[rows] = forward_paths[np.searchsorted(forward_rows, chains.paired[rows])]
    return path


def _phases(chains: CallChains) -> Int64:
    """Return the phase of each item, UNKNOWN unless forward and backward can be distinguished."""
    if not (chains.backward.any() and (chains.forward & ~chains.backward).any()):
        return np.full(len(chains), Phase.UNKNOWN, np.int64)
    forward = np.where(chains.forward, Phase.FORWARD, Phase.OTHER)
    return np.where(chains.backward, Phase.BACKWARD, forward).astype(np.int64)


def _with_scopes(origins: Launchers, records: Records, items: DeviceItems) -> Launchers:
    """Use the scopes in the names of operators as modules if there are no others.

    Graphs name operators `Default/network/Conv2D-op1`, those of backward `Gradients/Default/...`.
    """
    names, strings = items.name, records.strings
    if records.hardware == GPU or (origins.module != NO_NAME).any():
        return origins
    used = distinct(names)
    scopes = [strings[code].rpartition("/")[0] for code in used.tolist()]
    if not any(scopes):
        return origins
    place = np.searchsorted(used, names)
    modules = strings.codes(_module_of_scope(scope) for scope in scopes)
    phase = origins.phase
    if any(scope.startswith(_GRADIENTS) for scope in scopes):
        phases = np.array([_phase_of_scope(scope) for scope in scopes], np.int64)
        phase = phases[place]
    return replace(origins, module=modules[place], phase=phase)


def _phase_of_scope(scope: str) -> Phase:
    if not scope:
        return Phase.UNKNOWN
    if scope.startswith(_GRADIENTS):
        return Phase.BACKWARD
    is_forward = any(part.startswith(_NETWORK) for part in scope.split("/")[:2])
    optimizes = "/optimizer-" in f"{scope}/"
    return Phase.FORWARD if is_forward and not optimizes else Phase.OTHER


def _module_of_scope(scope: str) -> str:
    """Return the module of a scope, forward or backward.

    >>> _module_of_scope("Gradients/Default/network/conv1-Conv2d/gradConv2D-expand")
    'Default/network/conv1-Conv2d'
    """
    return _GRADIENT.sub("", scope.removeprefix(_GRADIENTS))


def with_launchers(records: Records) -> Records:
    """Return the records of a rank with the launchers of its computing tasks and ops."""
    items = device_items(records)
    origins = launchers(records, items)
    return replace(
        records,
        tasks=_filled(records.tasks, origins, items, ~items.is_op),
        ops=_filled(records.ops, origins, items, items.is_op),
    )


def _filled(table: _Table, origins: Launchers, items: DeviceItems, here: Bool) -> _Table:
    rows = items.row[here].astype(np.intp)
    columns: dict[str, Any] = {
        name: _put(len(table), rows, values[here]) for name, values in origins.columns().items()
    }
    return replace(table, **columns)


def launcher_figures(records: Records) -> LauncherFigures:
    """Return the times of computing tasks and ops by launching operator, and by module.

    Sums are exact. There are at most MOST_ROWS rows each: the longest launching operators, and
    modules cut to as many levels as rows allow. The remainder has a row for each phase, of
    computing and of communication, with the name OTHERS or none if unknown.

    records: from `with_launchers`, or a part of them.
    """
    strings = StringPool()
    every = LauncherTimes.concat(
        [
            _each(records, strings, records.tasks, np.flatnonzero(records.tasks.compute)),
            _each(records, strings, records.ops, np.arange(len(records.ops))),
        ]
    )
    nothing = constant(NO_NAME, len(every), np.int32)
    # Of rows by line, the first of each group is the longest.
    by_launch = _summed(_summed(replace(every, module=nothing), also=["line"]))
    every = replace(every, launched_by=nothing, operator=nothing, line=nothing)
    by_module = _cut_to_levels(every, strings)
    by_launch = _with_others(by_launch, ("launched_by", "operator"), strings)
    return LauncherFigures(tuple(strings), by_launch, by_module)


def _each(
    records: Records, strings: StringPool, table: Tasks | CommunicationOps, rows: Rows
) -> LauncherTimes:
    lengths_ns = table.end_ns[rows] - table.start_ns[rows]
    names = {name: getattr(table, name)[rows] for name in (*_NAMES, "line")}
    return LauncherTimes.of(
        len(rows),
        {
            **{name: strings.translate(codes, records.strings) for name, codes in names.items()},
            "communication": constant(table is records.ops, len(rows), np.bool_),
            "phase": table.phase[rows],
            "count": constant(1, len(rows), np.int64),
            "total_ns": lengths_ns,
            "shortest_ns": lengths_ns,
            "longest_ns": lengths_ns,
        },
    )


_NAMES = ("launched_by", "operator", "module")


def _summed(times: LauncherTimes, also: Iterable[str] = ()) -> LauncherTimes:
    """Return one row for each combination of keys, the longest first, with its first line.

    also: columns that are keys too.
    """
    keys, sums = ("communication", *_NAMES, "phase", *also), ("count", "total_ns")
    summed, _ = sum_rows(times, keys, sums, least=["shortest_ns"], greatest=["longest_ns"])
    return summed.take(np.argsort(-summed.total_ns, kind="stable"))


def _with_others(times: LauncherTimes, names: Iterable[str], strings: StringPool) -> LauncherTimes:
    """Return the longest rows, and the remainder by phase as OTHERS; unknown names stay unknown."""
    if len(times) <= MOST_ROWS:
        return times
    rest, others = times[MOST_ROWS:], strings.code(OTHERS)
    renamed: dict[str, Any] = {
        name: np.where(getattr(rest, name) == NO_NAME, NO_NAME, others).astype(np.int32)
        for name in names
    }
    renamed["line"] = constant(NO_NAME, len(rest), np.int32)
    return _summed(LauncherTimes.concat([times[:MOST_ROWS], replace(rest, **renamed)]))


def _cut_to_levels(every: LauncherTimes, strings: StringPool) -> LauncherTimes:
    """Return the times by module, with as many levels of their paths as rows allow."""
    times = _summed(every)
    levels = max((strings[code].count("/") for code in distinct(times.module).tolist()), default=0)
    while len(times) > MOST_ROWS and levels:
        cut = _outermost_levels(levels)
        times = _summed(replace(times, module=strings.translate(times.module, strings, cut)))
        levels -= 1
    return _with_others(times, ("module",), strings)


def _outermost_levels(levels: int) -> Callable[[str], str]:
    return lambda path: "/".join(path.split("/")[:levels])


NO_PATH = 0
"""Path outside of any module, annotation or step."""


class ModulePaths:
    """Numbered paths of modules and annotations, each from the outermost inwards."""

    def __init__(self, strings: StringPool) -> None:
        self._strings = strings
        self._numbers: dict[tuple[int, str], int] = {}
        self._names = [""]
        self.around = [NO_PATH]
        """By number: the enclosing path, which has a lower number."""
        self.is_step = [False]
        """By number: whether the path is a step alone."""

    def __len__(self) -> int:
        return len(self._names)

    def text(self, number: int) -> str:
        """Return the names on a path, joined by slashes."""
        names = list[str]()
        while number != NO_PATH:
            names.append(self._names[number])
            number = self.around[number]
        return "/".join(reversed(names))

    def within(self, paths: Int64, names: Codes, steps: Bool) -> Int64:
        """Return the paths of modules within other paths; a step is only on its own path."""
        keys, which = distinct_pairs(paths * 2 + steps, names.astype(np.int64))
        numbers = [self._number(key // 2, name, bool(key % 2)) for key, name in keys.tolist()]
        return np.array(numbers, np.int64)[which]

    def _number(self, around: int, code: int, step: bool) -> int:
        around = NO_PATH if self.is_step[around] else around
        name = module_name(self._strings[code])
        number = self._numbers.setdefault((around, name), len(self._names))
        if number == len(self._names):
            self._names.append(name)
            self.around.append(around)
            self.is_step.append(step and not around)
        return number


class CallChains(ColumnTable):
    """Calls around timestamps, one row each, NO_ID for none.

    innermost, outermost: rows of the operators in HostEvents. path: of modules and annotations,
    NO_PATH for none. backward: whether autograd runs backward. forward: whether a call around it
    ran forward. paired: row in HostEvents of the forward call whose gradient it computes.
    """

    innermost: Int64 = column(np.int64, NO_ID)
    outermost: Int64 = column(np.int64, NO_ID)
    path: Int64 = column(np.int64, NO_PATH)
    backward: Bool = column(np.bool_, 0)
    forward: Bool = column(np.bool_, 0)
    paired: Int64 = column(np.int64, NO_ID)


def find_chains(
    records: Records, asked: Int64, pairs: tuple[Rows, Rows], paths: ModulePaths
) -> CallChains:
    """Find the calls around the middle of other calls, on their threads.

    Args:
        records: records with the host events to read.
        asked: (n,) rows of HostEvents; a row that is itself an operator counts as innermost.
        pairs: (p,) rows of forward calls, and of the calls that compute their gradients.
        paths: object that numbers the paths.
    """
    host = records.host
    calls = FrameworkCalls(host, records.strings)
    calls_around, kinds = _framework_rows(host, calls.kinds)
    if not (kinds == CallKind.OPERATOR).any():
        calls_around, kinds = _framework_rows(host, calls.library_kinds)
    forward_of = np.full(len(host), NO_ID)
    forward_of[pairs[1]] = pairs[0]
    has_gradient = np.zeros(len(host), np.bool_)
    has_gradient[pairs[0]] = True
    empty = CallChains.of(len(asked), {})
    columns = {name: np.array(values) for name, values in empty.columns().items()}
    for here, of_thread in matched_rows(host.thread[asked], host.thread[calls_around]):
        lane = _Lane.of(host, calls_around[of_thread], kinds[of_thread], asked[here])
        chains = lane.chains(calls, paths, forward_of, has_gradient)
        at = lane.around(host, asked[here])
        known = at >= 0
        for name, values in columns.items():
            values[here[known]] = getattr(chains, name)[at[known]]
    return CallChains(**columns)


def _framework_rows(
    host: HostEvents, kinds_of: Callable[[Codes, Codes], npt.NDArray[np.int8]]
) -> tuple[Rows, Int64]:
    """Return the host rows that are operators, modules or annotations, and the kind of each."""
    rows, kinds = [np.empty(0, np.intp)], [np.empty(0, np.int8)]
    for chunk in chunks(len(host)):
        kind = kinds_of(host.layer[chunk], host.name[chunk])
        some = np.flatnonzero(kind != CallKind.NONE)
        rows.append(some + chunk.start)
        kinds.append(kind[some])
    return np.concatenate(rows), np.concatenate(kinds).astype(np.int64)


@dataclass(frozen=True)
class _Lane:
    """Calls of one thread that contain a requested call, (n,), with their kind and name.

    around_operators: whether each contains operators, requested or not.
    """

    tree: CallTree
    kind: Int64
    name: Codes
    around_operators: Bool

    @classmethod
    def of(cls, host: HostEvents, rows: Rows, kind: Int64, asked: Int64) -> _Lane:
        start_ns, end_ns = host.start_ns[rows], host.end_ns[rows]
        holds = _number_inside(ascending(_middle_ns(host, asked)), start_ns, end_ns) > 0
        operators_ns = ascending(start_ns[kind == CallKind.OPERATOR])
        tree = CallTree.of(np.flatnonzero(holds), start_ns[holds], end_ns[holds])
        inside = _number_inside(operators_ns, tree.start_ns, tree.end_ns)
        kind, rows = kind[tree.row], rows[tree.row]
        return cls(replace(tree, row=rows), kind, host.name[rows], inside > 0)

    def around(self, host: HostEvents, asked: Int64) -> Rows:
        """Return the place of the innermost call around each requested one, NO_CALL for none."""
        place = self.tree.places(asked)
        return np.where(place == NO_CALL, self.tree.open_at(_middle_ns(host, asked)), place)

    def chains(
        self, calls: FrameworkCalls, paths: ModulePaths, forward_of: Int64, has_gradient: Bool
    ) -> CallChains:
        """Return the calls around each call, including itself, outermost first."""
        count = len(self.tree)
        # The last element holds the values without an enclosing call; index -1 selects it.
        inner, outer, paired = (np.full(count + 1, NO_ID) for _ in range(3))
        path = np.full(count + 1, NO_PATH)
        backward, forward = np.zeros((2, count + 1), np.bool_)
        for level in self.tree.levels:
            around, kind, row = self.tree.parent[level], self.kind[level], self.tree.row[level]
            name = self.name[level]
            unsure = kind == CallKind.OPERATOR_OR_ANNOTATION
            marks = unsure & (outer[around] == NO_ID) & self.around_operators[level]
            is_operator = (kind == CallKind.OPERATOR) | (unsure & ~marks)
            inner[level] = np.where(is_operator, row, inner[around])
            first = is_operator & (outer[around] == NO_ID)
            outer[level] = np.where(first, row, outer[around])
            path[level] = path[around]
            named = np.flatnonzero(~is_operator)
            if len(named):
                steps = kind[named] == CallKind.STEP
                path[level[named]] = paths.within(path[around][named], name[named], steps)
            backward[level] = backward[around] | (is_operator & calls.backward[name])
            runs_forward = (kind == CallKind.MODULE) | (~is_operator & calls.forward[name])
            forward[level] = forward[around] | runs_forward | has_gradient[row]
            own = forward_of[row]
            paired[level] = np.where(own != NO_ID, own, paired[around])
        outermost = np.flatnonzero(outer[:-1] == self.tree.row)
        if 2 * int(backward[outermost].sum()) > len(outermost):
            backward[:-1] = True
        return CallChains(
            inner[:-1], outer[:-1], path[:-1], backward[:-1], forward[:-1], paired[:-1]
        )


def _middle_ns(host: HostEvents, rows: Int64) -> Int64:
    """Return the middle of calls: clocks of framework and runtime may differ by microseconds."""
    return host.start_ns[rows] + (host.end_ns[rows] - host.start_ns[rows]) // 2


def _number_inside(times_ns: Int64, start_ns: Int64, end_ns: Int64) -> Int64:
    """Return the number of timestamps, given in order, in each interval."""
    count: Int64 = np.searchsorted(times_ns, end_ns) - np.searchsorted(times_ns, start_ns)
    return count
