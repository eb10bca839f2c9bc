"""Whose work each device item is: the operator that launched it, its module, and the phase."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.analysis.idle.device_items import DeviceItems, device_items
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
from timeline.columns.distinct import distinct, distinct_pairs, rows_by_value
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
"""Rows of a table of one rank; what is shorter is in few more, or modules are told less finely."""
OTHERS = "all others"
"""What the rest of many launching operators is called."""
_Item = TypeVar("_Item", bound=np.generic)
_Table = TypeVar("_Table", Tasks, CommunicationOps)
_GRADIENTS = "Gradients/"
_NETWORK = "network"
"""What the scopes of MindSpore's backward and of its network begin with."""
_GRADIENT = re.compile(r"(?:/grad[A-Z][\w-]*)+$")
"""What scopes of backward have behind those of their module."""


class Phase(enum.IntEnum):
    """The part of a training step that an item is of."""

    UNKNOWN = 0
    FORWARD = 1
    BACKWARD = 2
    OTHER = 3
    """Such as the optimizer, or copies of inputs."""


class Launchers(ColumnTable):
    """Whose work each device item is: one row for each, codes of the rank's strings.

    launched_by: the outermost operator around the call that asked for it, or that call itself
    where no operator is; operator: the innermost. module: the path of modules and annotations
    around it; of backward those of the forward call whose gradient it works out. phase: a Phase.
    """

    launched_by: Codes = column(np.int32, NO_NAME)
    operator: Codes = column(np.int32, NO_NAME)
    module: Codes = column(np.int32, NO_NAME)
    phase: Int64 = column(np.int64, Phase.UNKNOWN)


class LauncherTimes(ColumnTable):
    """One row per launching operator, or per module: how often and how long it ran by phase.

    Columns that are not told apart hold NO_NAME, as do those of items of which it is not known.
    """

    communication: Bool = column(np.bool_)
    launched_by: Codes = column(np.int32, NO_NAME)
    operator: Codes = column(np.int32, NO_NAME)
    module: Codes = column(np.int32, NO_NAME)
    phase: Int64 = column(np.int64)
    count: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    shortest_ns: Int64 = column(np.int64)
    longest_ns: Int64 = column(np.int64)


@dataclass(frozen=True, slots=True)
class LauncherFigures:
    """The work of one rank by launching operator and by module; codes are positions in `strings`.

    Each compute task and communication op is in one row of either table.
    """

    strings: tuple[str, ...] = ("",)
    by_launch: LauncherTimes = field(default_factory=LauncherTimes.empty)
    by_module: LauncherTimes = field(default_factory=LauncherTimes.empty)


def launchers(records: Records, items: DeviceItems) -> Launchers:
    """Find whose work the device items of a rank are.

    Args:
        records: of the rank, to whose strings paths of modules are added.
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
    codes = strings.codes(paths.text(number) for number in range(len(paths)))
    modules = codes[_with_forward(own, forward_rows, forward.path, paths)]
    found = Launchers(
        _put(len(items), known, _names(records, outermost)),
        _put(len(items), known, _names(records, own.innermost)),
        _put(len(items), known, modules),
        _put(len(items), known, _phases(own)),
    )
    return _with_scopes(found, records, items)


def _put(count: int, rows: Rows, values: npt.NDArray[_Item]) -> npt.NDArray[_Item]:
    """A column that holds the values at some rows, and zeros elsewhere."""
    column = np.zeros(count, values.dtype)
    column[rows] = values
    return column


def _names(records: Records, rows: Int64) -> Codes:
    """What the calls at some rows are called that launch, NO_NAME for NO_ID."""
    strings = records.strings
    found = np.append(records.host.name, np.int32(NO_NAME))[rows]
    return strings.translate(found, strings, launch_name)


def _with_forward(
    chains: CallChains, forward_rows: Int64, forward_paths: Int64, paths: ModulePaths
) -> Int64:
    """The path of each, or that of its forward call where its own tells no more than a step."""
    found = chains.path.copy()
    poor = (found == NO_PATH) | np.array(paths.is_step)[found]
    asked = np.flatnonzero(poor & (chains.paired != NO_ID))
    found[asked] = forward_paths[np.searchsorted(forward_rows, chains.paired[asked])]
    return found


def _phases(chains: CallChains) -> Int64:
    """The phase of each; UNKNOWN for all where nothing tells forward from backward."""
    if not (chains.backward.any() and (chains.forward & ~chains.backward).any()):
        return np.full(len(chains), Phase.UNKNOWN, np.int64)
    forward = np.where(chains.forward, Phase.FORWARD, Phase.OTHER)
    return np.where(chains.backward, Phase.BACKWARD, forward).astype(np.int64)


def _with_scopes(found: Launchers, records: Records, items: DeviceItems) -> Launchers:
    """The same, with the scopes in the names of operators as modules where there are no others.

    Graphs name operators `Default/network/Conv2D-op1`, those of backward `Gradients/Default/...`.
    """
    names, strings = items.name, records.strings
    if records.hardware == GPU or (found.module != NO_NAME).any():
        return found
    used = distinct(names)
    scopes = [strings[code].rpartition("/")[0] for code in used.tolist()]
    if not any(scopes):
        return found
    place = np.searchsorted(used, names)
    modules = strings.codes(_module_of_scope(scope) for scope in scopes)
    phase = found.phase
    if any(scope.startswith(_GRADIENTS) for scope in scopes):
        phases = np.array([_phase_of_scope(scope) for scope in scopes], np.int64)
        phase = phases[place]
    return Launchers(found.launched_by, found.operator, modules[place], phase)


def _phase_of_scope(scope: str) -> Phase:
    if not scope:
        return Phase.UNKNOWN
    if scope.startswith(_GRADIENTS):
        return Phase.BACKWARD
    is_forward = any(part.startswith(_NETWORK) for part in scope.split("/")[:2])
    optimizes = "/optimizer-" in f"{scope}/"
    return Phase.FORWARD if is_forward and not optimizes else Phase.OTHER


def _module_of_scope(scope: str) -> str:
    """The module that a scope is of, forward or backward.

    >>> _module_of_scope("Gradients/Default/network/conv1-Conv2d/gradConv2D-expand")
    'Default/network/conv1-Conv2d'
    """
    return _GRADIENT.sub("", scope.removeprefix(_GRADIENTS))


def with_launchers(records: Records) -> Records:
    """The records of a rank, whose tasks that compute and ops tell whose work they are."""
    items = device_items(records)
    found = launchers(records, items)
    return replace(
        records,
        tasks=_filled(records.tasks, found, items, ~items.is_op),
        ops=_filled(records.ops, found, items, items.is_op),
    )


def _filled(table: _Table, found: Launchers, items: DeviceItems, here: Bool) -> _Table:
    """A table of which some items are rows, with what was found of those."""
    rows = items.row[here].astype(np.intp)
    columns: dict[str, Any] = {
        name: _put(len(table), rows, values[here]) for name, values in found.columns().items()
    }
    return replace(table, **columns)


def launcher_figures(records: Records) -> LauncherFigures:
    """The times of tasks that compute and of ops by what launched them, and by module.

    Sums are exact. There are at most MOST_ROWS rows each, of launching operators the longest, and
    of modules those of as many levels as rows allow; what is left has a row for each phase, of
    computing and of communication, where its names are OTHERS or not known.

    records: as `with_launchers` gives them, or some of those.
    """
    strings = StringPool()
    every = LauncherTimes.concat(
        [
            _each(records, strings, records.tasks, np.flatnonzero(records.tasks.compute)),
            _each(records, strings, records.ops, np.arange(len(records.ops))),
        ]
    )
    nothing = constant(NO_NAME, len(every), np.int32)
    by_launch = _summed(replace(every, module=nothing))
    by_module = _cut_to_levels(replace(every, launched_by=nothing, operator=nothing), strings)
    by_launch = _with_others(by_launch, ("launched_by", "operator"), strings)
    return LauncherFigures(tuple(strings), by_launch, by_module)


def _each(
    records: Records, strings: StringPool, table: Tasks | CommunicationOps, rows: Rows
) -> LauncherTimes:
    """A row for each of some rows of a table."""
    lengths_ns = table.end_ns[rows] - table.start_ns[rows]
    names = {name: getattr(table, name)[rows] for name in _NAMES}
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


def _summed(times: LauncherTimes) -> LauncherTimes:
    """Return one row for each combination of what is told apart, the longest first."""
    keys, sums = ("communication", *_NAMES, "phase"), ("count", "total_ns")
    summed, _ = sum_rows(times, keys, sums, least=["shortest_ns"], greatest=["longest_ns"])
    return summed.take(np.argsort(-summed.total_ns, kind="stable"))


def _with_others(times: LauncherTimes, names: Iterable[str], strings: StringPool) -> LauncherTimes:
    """The longest rows, and the rest by phase under one name; what is not known has none."""
    if len(times) <= MOST_ROWS:
        return times
    rest, others = times[MOST_ROWS:], strings.code(OTHERS)
    renamed: dict[str, Any] = {
        name: np.where(getattr(rest, name) == NO_NAME, NO_NAME, others).astype(np.int32)
        for name in names
    }
    return _summed(LauncherTimes.concat([times[:MOST_ROWS], replace(rest, **renamed)]))


def _cut_to_levels(every: LauncherTimes, strings: StringPool) -> LauncherTimes:
    """The times by module, with as many levels of their paths as rows allow."""
    times = _summed(every)
    levels = max((strings[code].count("/") for code in distinct(times.module).tolist()), default=0)
    while len(times) > MOST_ROWS and levels:
        cut = _outermost_levels(levels)
        times = _summed(
            replace(times, module=strings.translate(times.module, strings, cut)),
        )
        levels -= 1
    return _with_others(times, ("module",), strings)


def _outermost_levels(levels: int) -> Callable[[str], str]:
    return lambda path: "/".join(path.split("/")[:levels])


NO_PATH = 0
"""Path of what lies in no module, annotation or step."""


class ModulePaths:
    """Paths of modules and annotations, numbered; the outermost comes first in each."""

    def __init__(self, strings: StringPool) -> None:
        self._strings = strings
        self._numbers: dict[tuple[int, str], int] = {}
        self._texts = [""]
        self.around = [NO_PATH]
        """By number: the path that a path lies in, whose number is lower."""
        self.is_step = [False]
        """By number: whether the path is a step alone."""

    def __len__(self) -> int:
        return len(self._texts)

    def text(self, number: int) -> str:
        """The names on a path, joined by slashes."""
        return self._texts[number]

    def within(self, paths: Int64, names: Codes, steps: Bool) -> Int64:
        """The paths of modules within other paths; a step is on no path but its own."""
        keys, which = distinct_pairs(paths * 2 + steps, names.astype(np.int64))
        numbers = [self._number(key // 2, name, bool(key % 2)) for key, name in keys.tolist()]
        return np.array(numbers, np.int64)[which]

    def _number(self, around: int, code: int, step: bool) -> int:
        around = NO_PATH if self.is_step[around] else around
        name = module_name(self._strings[code])
        number = self._numbers.setdefault((around, name), len(self._texts))
        if number == len(self._texts):
            self._texts.append(f"{self._texts[around]}/{name}" if around else name)
            self.around.append(around)
            self.is_step.append(step and not around)
        return number


class CallChains(ColumnTable):
    """What is around moments, one row for each, NO_ID for nothing.

    innermost, outermost: the rows of HostEvents of the operators; path: of modules and
    annotations, NO_PATH for none; backward: whether autograd runs backward; forward: whether it
    lies in what ran forward; paired: the row of HostEvents of the forward call whose gradient it
    works out.
    """

    innermost: Int64 = column(np.int64, NO_ID)
    outermost: Int64 = column(np.int64, NO_ID)
    path: Int64 = column(np.int64, NO_PATH)
    backward: Bool = column(np.bool_, 0)
    forward: Bool = column(np.bool_, 0)
    paired: Int64 = column(np.int64, NO_ID)


def find_chains(
    records: Records,
    asked: Int64,
    pairs: tuple[Rows, Rows],
    paths: ModulePaths,
) -> CallChains:
    """What is around the middle of calls, on their threads.

    Args:
        records: whose host events are read.
        asked: (n,) rows of HostEvents; around one that is itself an operator, it comes first.
        pairs: (p,) rows of forward calls, and of those that work out their gradients.
        paths: where the paths are numbered.
    """
    host = records.host
    calls = FrameworkCalls(host, records.strings)
    telling, kinds = _telling_calls(host, calls.kinds)
    if not (kinds == CallKind.OPERATOR).any():
        telling, kinds = _telling_calls(host, calls.library_kinds)
    forward_of = np.full(len(host), NO_ID)
    forward_of[pairs[1]] = pairs[0]
    has_gradient = np.zeros(len(host), np.bool_)
    has_gradient[pairs[0]] = True
    found = CallChains.of(len(asked), {})
    columns = {name: np.array(values) for name, values in found.columns().items()}
    threads = host.thread[telling]
    asked_threads = host.thread[asked]
    some = distinct(asked_threads)
    asking = dict(rows_by_value(asked_threads, some))
    for thread, of_thread in rows_by_value(threads, some):
        here = asking[thread]
        lane = _Lane.of(host, telling[of_thread], kinds[of_thread], asked[here])
        chains = lane.chains(calls, paths, forward_of, has_gradient)
        at = lane.around(host, asked[here])
        known = at >= 0
        for name, values in columns.items():
            values[here[known]] = getattr(chains, name)[at[known]]
    return CallChains(**columns)


def _telling_calls(
    host: HostEvents, kinds_of: Callable[[Codes, Codes], npt.NDArray[np.int8]]
) -> tuple[Rows, Int64]:
    """The host rows that are operators, modules or annotations, and the kind of each."""
    rows, kinds = [np.empty(0, np.intp)], [np.empty(0, np.int8)]
    for chunk in chunks(len(host)):
        kind = kinds_of(host.layer[chunk], host.name[chunk])
        some = np.flatnonzero(kind != CallKind.NONE)
        rows.append(some + chunk.start)
        kinds.append(kind[some])
    return np.concatenate(rows), np.concatenate(kinds).astype(np.int64)


@dataclass(frozen=True)
class _Lane:
    """The telling calls of one thread in which something is asked, (n,), and what is around each.

    around_operators: whether operators lie inside, asked or not.
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
        """Return the place of the innermost call around each that is asked, NO_CALL for none."""
        place = self.tree.places(asked)
        return np.where(place == NO_CALL, self.tree.open_at(_middle_ns(host, asked)), place)

    def chains(
        self, calls: FrameworkCalls, paths: ModulePaths, forward_of: Int64, has_gradient: Bool
    ) -> CallChains:
        """What is around each call, itself included; from the outermost to the innermost."""
        count = len(self.tree)
        # The last place stands for "nothing around": -1 finds it.
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
    """The middle of calls: the clocks of framework and runtime may differ by microseconds."""
    return host.start_ns[rows] + (host.end_ns[rows] - host.start_ns[rows]) // 2


def _number_inside(moments_ns: Int64, start_ns: Int64, end_ns: Int64) -> Int64:
    """How many moments, given in order, lie in each interval."""
    found: Int64 = np.searchsorted(moments_ns, end_ns) - np.searchsorted(moments_ns, start_ns)
    return found
