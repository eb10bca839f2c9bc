"""What is around moments on the host: the operators, modules and annotations that are open."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from timeline.analysis.work.framework_calls import CallKind, FrameworkCalls, module_name
from timeline.columns.chunks import chunks
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, ascending, column
from timeline.columns.distinct import distinct, distinct_pairs, rows_by_value
from timeline.columns.nesting import find_parents, innermost, order_edges
from timeline.columns.strings import StringPool
from timeline.frozen import dataclass
from timeline.records.not_given import NO_ID
from timeline.records.tables import HostEvents, Records

__all__ = ["NO_PATH", "CallChains", "ModulePaths", "find_chains"]

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

    row: of HostEvents. parent: (n,) places, -1 for none. depth: how many calls are around.
    around_operators: whether operators lie inside, asked or not.
    """

    row: Rows
    kind: Int64
    name: Codes
    start_ns: Int64
    end_ns: Int64
    around_operators: Bool
    parent: Rows
    depth: Int64

    @classmethod
    def of(cls, host: HostEvents, rows: Rows, kind: Int64, asked: Int64) -> _Lane:
        start_ns, end_ns = host.start_ns[rows], host.end_ns[rows]
        moments_ns = ascending(_middle_ns(host, asked))
        holds = _number_inside(moments_ns, start_ns, end_ns) > 0
        operators_ns = ascending(start_ns[kind == CallKind.OPERATOR])
        rows, kind, start_ns, end_ns = rows[holds], kind[holds], start_ns[holds], end_ns[holds]
        edges = order_edges(start_ns, end_ns)
        begins = ~edges.is_end
        depth = np.zeros(len(rows), np.int64)
        depth[edges.row[begins]] = edges.depth[begins]
        return cls(
            rows,
            kind,
            host.name[rows],
            start_ns,
            end_ns,
            _number_inside(operators_ns, start_ns, end_ns) > 0,
            find_parents(edges),
            depth,
        )

    def around(self, host: HostEvents, asked: Int64) -> Rows:
        """The place of the innermost call around each that is asked, -1 for none."""
        at = innermost(self.start_ns, self.end_ns, _middle_ns(host, asked))
        order = np.argsort(self.row)
        if len(order):
            place = order[np.minimum(np.searchsorted(self.row[order], asked), len(order) - 1)]
            at = np.where(self.row[place] == asked, place, at)
        return at

    def chains(
        self, calls: FrameworkCalls, paths: ModulePaths, forward_of: Int64, has_gradient: Bool
    ) -> CallChains:
        """What is around each call, itself included; from the outermost to the innermost."""
        count = len(self.row)
        # The last place stands for "nothing around": -1 finds it.
        inner, outer, paired = (np.full(count + 1, NO_ID) for _ in range(3))
        path = np.full(count + 1, NO_PATH)
        backward, forward = np.zeros((2, count + 1), np.bool_)
        for level in self._levels():
            around, kind, row = self.parent[level], self.kind[level], self.row[level]
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
        outermost = np.flatnonzero(outer[:-1] == self.row)
        if 2 * int(backward[outermost].sum()) > len(outermost):
            backward[:-1] = True
        return CallChains(
            inner[:-1], outer[:-1], path[:-1], backward[:-1], forward[:-1], paired[:-1]
        )

    def _levels(self) -> Iterator[Rows]:
        """The places of each depth, the outermost first."""
        order = np.argsort(self.depth, kind="stable")
        ordered = self.depth[order]
        yield from np.split(order, np.flatnonzero(np.diff(ordered)) + 1) if len(order) else ()


def _middle_ns(host: HostEvents, rows: Int64) -> Int64:
    """The middle of calls: the clocks of framework and runtime may differ by microseconds."""
    return host.start_ns[rows] + (host.end_ns[rows] - host.start_ns[rows]) // 2


def _number_inside(moments_ns: Int64, start_ns: Int64, end_ns: Int64) -> Int64:
    """How many moments, given in order, lie in each interval."""
    found: Int64 = np.searchsorted(moments_ns, end_ns) - np.searchsorted(moments_ns, start_ns)
    return found
