"""Framework calls: their kinds by name, the tree they form, and the modules around them."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Codes, Columnar, Int64, Rows, sort_rows
from timeline.columns.distinct import distinct
from timeline.columns.nesting import latest_open, open_around
from timeline.columns.strings import StringPool
from timeline.records.tables import RUNTIME_LAYERS, HostEvents

STEP = "ProfilerStep"
_STEPS = f"{STEP}#"
MODULE = "nn.Module: "
"""Prefix of PyTorch before the class and number of a module."""
MARKS = "MSTX"
"""Host layer of ranges and marks made by the program itself."""
EVALUATE = "autograd::engine::evaluate_function: "
"""Prefix of the autograd engine before the name of the node that it runs."""
_FRAME = re.compile(r"<built-in |.+\(\d+\): ")
"""A Python function with its file and line, or a built-in."""
_QUEUE = re.compile(r"(?:En|De)queue\b")
_OPERATOR = re.compile(r"[\w.]+::|acl[a-z]+[A-Z]|\w*Backward\d*$|<(?:forward|backward) op>")
"""Operators have a namespace, or are calls of CANN's library or nodes of autograd."""
_LAYER = "AscendCL@"
_LIBRARY = re.compile(rf"(?:{_LAYER})?acl(?:nn|op)[A-Z]")
"""Operators of CANN's library, some with the name of their layer in front."""
_BACKWARD = re.compile(r"autograd::engine::|\w*Backward\d*$|<backward op>")
_FORWARD = re.compile(r"\bforward\b", re.IGNORECASE)


class CallKind(enum.IntEnum):
    """Kind of a framework call."""

    NONE = 0
    """A Python function, a queue, or not a framework call; it does not describe work."""
    OPERATOR = 1
    MODULE = 2
    ANNOTATION = 3
    STEP = 4
    OPERATOR_OR_ANNOTATION = 5
    """A name that either may have; an annotation contains operators and is in no operator."""


class FrameworkCalls:
    """Kinds of host events by the codes of their names."""

    def __init__(self, host: HostEvents, strings: StringPool) -> None:
        runtime = [code for name in RUNTIME_LAYERS if (code := strings.find(name)) is not None]
        self._runtime = np.array(runtime, np.int32)
        marks = strings.find(MARKS)
        self._marks = -1 if marks is None else marks
        kinds = np.zeros(len(strings), np.int8)
        backward, forward, library = np.zeros((3, len(strings)), np.bool_)
        for code in distinct(host.name).tolist():
            name = strings[code]
            kinds[code] = _kind(name)
            backward[code] = _BACKWARD.match(name) is not None
            forward[code] = _FORWARD.search(name) is not None
            library[code] = _LIBRARY.match(name) is not None
        self._kinds, self._library = kinds, library
        self.backward: Bool = backward
        """By code: whether it is a name of backward work of autograd."""
        self.forward: Bool = forward
        """By code: whether the name of a module or annotation indicates that it runs forward."""

    def kinds(self, layer: Codes, name: Codes) -> npt.NDArray[np.int8]:
        """Return the CallKind of calls."""
        kinds = self._kinds[name]
        kinds[np.isin(layer, self._runtime)] = CallKind.NONE
        kinds[layer == self._marks] = CallKind.ANNOTATION
        return kinds

    def library_kinds(self, layer: Codes, name: Codes) -> npt.NDArray[np.int8]:
        """Return the CallKind of calls if no framework is recorded.

        Only operators of CANN's library count.
        """
        is_operator = self._library[name] & np.isin(layer, self._runtime)
        return np.where(is_operator, CallKind.OPERATOR, CallKind.NONE).astype(np.int8)


def _kind(name: str) -> CallKind:
    if name.startswith(MODULE):
        return CallKind.MODULE
    if name.startswith(_STEPS):
        return CallKind.STEP
    if not name or _FRAME.match(name) or _QUEUE.match(name):
        return CallKind.NONE
    return CallKind.OPERATOR if _OPERATOR.match(name) else CallKind.OPERATOR_OR_ANNOTATION


def launch_name(name: str) -> str:
    """Return the name of a launching operator without the prefixes of profilers.

    >>> launch_name("autograd::engine::evaluate_function: AddmmBackward0")
    'AddmmBackward0'
    """
    return name.removeprefix(EVALUATE).removeprefix(_LAYER)


def module_name(name: str) -> str:
    """Return the name of a module, annotation or step in a module path.

    >>> module_name("nn.Module: Linear_3"), module_name("ProfilerStep#12")
    ('Linear_3', 'ProfilerStep')
    """
    return STEP if name.startswith(_STEPS) else name.removeprefix(MODULE)


NO_CALL = -1
"""Place of a missing call."""
_Value = TypeVar("_Value", bound=np.generic)


@dataclass(frozen=True)
class CallTree(Columnar):
    """Calls (n,) in order of start; of those that start together, the longest first.

    The parent of a call is the call that began last among those still open when it begins. All
    threads count: the autograd engine's calls lie below the one that waits for them.

    row: row of each call in its table; parent: (n,) places in this order, NO_CALL for none.
    """

    row: Rows
    start_ns: Int64
    end_ns: Int64
    parent: Rows

    @classmethod
    def of(cls, row: Rows, start_ns: Int64, end_ns: Int64) -> CallTree:
        """Return the tree of calls given in any order, (n,) each."""
        order = sort_rows(start_ns, -end_ns)
        start_ns, end_ns = start_ns[order], end_ns[order]
        return cls(row[order], start_ns, end_ns, open_around(start_ns, end_ns))

    def __len__(self) -> int:
        return len(self.row)

    def open_at(self, times_ns: Int64) -> Rows:
        """Return the call that began last among those open at each timestamp, NO_CALL for none."""
        return latest_open(self.start_ns, self.end_ns, times_ns)

    @cached_property
    def place_of_row(self) -> tuple[Rows, Rows]:
        """Return the rows in ascending order, and the place of each."""
        order = np.argsort(self.row)
        return self.row[order], order

    def places(self, rows: Rows | Int64) -> Rows:
        """Return the place of the call at each row, NO_CALL if there is none."""
        ordered, place = self.place_of_row
        if not len(ordered):
            return np.full(len(rows), NO_CALL, np.intp)
        at = np.minimum(np.searchsorted(ordered, rows), len(ordered) - 1)
        return np.where(ordered[at] == rows, place[at], NO_CALL)

    @cached_property
    def levels(self) -> list[Rows]:
        """Return the places of each depth, the outermost first."""
        depth, above = np.zeros(len(self), np.int64), self.parent.copy()
        depth[above != NO_CALL] = 1
        # Each round doubles the distance to the ancestor, so that deep trees take few rounds.
        open_rows = np.flatnonzero(above != NO_CALL)
        while len(open_rows):
            around = above[open_rows]
            depth[open_rows] += depth[around]
            above[open_rows] = above[around]
            open_rows = open_rows[above[open_rows] != NO_CALL]
        order = np.argsort(depth, kind="stable")
        ends = np.cumsum(np.bincount(depth)) if len(depth) else np.empty(0, np.int64)
        return np.split(order, ends[:-1]) if len(depth) else []

    def totals(self, values: Int64) -> Int64:
        """Return the sum of the values (n,) of each call and all calls below it."""
        sums = values.copy()
        for level in reversed(self.levels[1:]):
            np.add.at(sums, self.parent[level], sums[level])
        return sums

    def inherited(self, values: npt.NDArray[_Value], none: int) -> npt.NDArray[_Value]:
        """Return the value (n,) of each call, or of the nearest call around it that has one."""
        nearest = values.copy()
        for level in self.levels[1:]:
            lacking = level[nearest[level] == none]
            nearest[lacking] = nearest[self.parent[lacking]]
        return nearest
