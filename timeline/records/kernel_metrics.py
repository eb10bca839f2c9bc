"""Measurements of kernels by the counters of an AI Core: how long each of its pipes was busy.

The columns of a table bear the names that the profiler's file gives them, so that whatever group of
metrics was recorded can be shown. Those that say what bounds a kernel are found by their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np

from timeline.columns.columns import Float64
from timeline.records.not_given import NO_ID

PIPES = ("cube", "vector", "scalar", "mte1", "mte2", "mte3", "fixpipe")
"""Pipes of an AI Core: matrix unit, vector unit, control and addresses, copies from L1 to L0, loads
from global memory, stores to it, and results of the matrix unit on their way out."""
CUBE_SIDE, VECTOR_SIDE = 0, 1
"""Sides of an AI Core: its matrix core and its vector cores, which count apart."""
_METRIC = re.compile(
    r"(?:ai[cv]|aicore|cube|vector|vec|mac|scalar|mte\d|fixpipe|icache|ub|l0[abc]?|l1|l2|main_mem"
    r"|gm|total|memory|control|stall)_.+"
)
_RATIO = re.compile(
    r"(?:(?P<side>ai[cv])_)?(?P<pipe>mac|vec|scalar|mte1|mte2|mte3|fixpipe)(?:_exe)?_ratio(?:_extra)?"
)
_PIPE_NAMES = {"mac": "cube", "vec": "vector"}
_CORE_NS = {
    "aicore_time(us)": (CUBE_SIDE, 1000),
    "aic_total_time": (CUBE_SIDE, 1),
    "aiv_time(us)": (VECTOR_SIDE, 1000),
    "aiv_total_time": (VECTOR_SIDE, 1),
}
"""Columns of the time in the cores by side, and the nanoseconds of their unit."""
_CYCLES = {
    "aic_total_cycles": CUBE_SIDE,
    "total_cycles": CUBE_SIDE,
    "aiv_total_cycles": VECTOR_SIDE,
}


def is_metric(name: str, *, every: bool = True) -> bool:
    """Return whether a column of a table of kernels holds a measurement of the cores.

    every: False for only those that say what bounds a kernel.
    """
    if every:
        return _METRIC.fullmatch(name) is not None
    return name in _CORE_NS or name in _CYCLES or _RATIO.fullmatch(name) is not None


_MOST_RATIO = 1.1
"""A larger ratio is no share of the time, as in a column of percentages."""
_MOST_COUNTED = 1e15
"""No kernel takes more cycles, or more time in microseconds or nanoseconds."""
_TIME = re.compile(r"(?:(?P<side>aiv)_)?(?:\w+_)?time(?:\(us\))?")
"""Columns of times, of which those without `aiv` belong to the cube side."""


@dataclass(frozen=True)
class CoreCounts:
    """Number of matrix and vector cores of a device, and their clock as its description states it.

    NO_ID if the profile does not say.
    """

    cube: int = NO_ID
    vector: int = NO_ID
    cube_mhz: int = NO_ID
    vector_mhz: int = NO_ID


@dataclass(frozen=True)
class KernelMetrics:
    """Measurements of kernels, one row per kernel; `Tasks.metrics` is the row of a task.

    columns: (kernels,) float64 by name, NaN if not measured.
    """

    columns: Mapping[str, Float64] = field(default_factory=lambda: MappingProxyType({}))

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @classmethod
    def join(cls, parts: Iterable[KernelMetrics]) -> KernelMetrics:
        """Return the rows of all parts, one after another."""
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else cls()
        names = dict.fromkeys(name for part in parts for name in part.columns)
        return cls(
            {name: np.concatenate([_column(part, name) for part in parts]) for name in names}
        )

    def measured(self) -> KernelMetrics:
        """Return the columns that hold any finite number, with NaN for others."""
        return KernelMetrics(
            {
                name: values if is_finite.all() else np.where(is_finite, values, np.nan)
                for name, values in self.columns.items()
                if (is_finite := np.isfinite(values)).any()
            }
        )

    def recorded(self) -> KernelMetrics:
        """Return the columns with times masked that were written as 0 but not recorded.

        CANN 9 counts the cycles of a side of the cores without the times that belong to them.
        """
        absent = [
            (self.cycles(side) > 0) & (self.core_ns(side) == 0) for side in (CUBE_SIDE, VECTOR_SIDE)
        ]
        columns = dict(self.columns)
        for name, values in self.columns.items():
            match = _TIME.fullmatch(name)
            if match:
                side = VECTOR_SIDE if match["side"] else CUBE_SIDE
                columns[name] = np.where(absent[side], np.nan, values)
        return KernelMetrics(columns).measured()

    @cached_property
    def ratios(self) -> Sequence[tuple[int, int, Float64]]:
        """Return the side, the pipe (position in PIPES) and the ratio of each pipe, (kernels,).

        Of several columns of one pipe, the largest value counts. All are NaN for a kernel without
        any counter above 0, or with a ratio above _MOST_RATIO.
        """
        columns = dict[tuple[int, int], Float64]()
        for name, values in self.columns.items():
            match = _RATIO.fullmatch(name)
            if match:
                pipe = _PIPE_NAMES.get(match["pipe"], match["pipe"])
                side = VECTOR_SIDE if match["side"] == "aiv" else CUBE_SIDE
                before = columns.get((side, PIPES.index(pipe)), np.array(np.nan))
                columns[side, PIPES.index(pipe)] = np.fmax(before, values)
        sides = (CUBE_SIDE, VECTOR_SIDE)
        is_measured = sum(self.cycles(side) + self.core_ns(side) for side in sides) > 0
        for ratios in columns.values():
            is_measured |= ratios > 0
        for ratios in columns.values():
            is_measured &= ~(ratios > _MOST_RATIO)
        return [
            (*pipe, np.where(is_measured & (ratios >= 0), ratios, np.nan))
            for pipe, ratios in columns.items()
        ]

    def core_ns(self, side: int) -> Float64:
        """Return the time in the cores of a side, (kernels,) ns; 0 if not measured or absurd."""
        for name, (of_side, unit_ns) in _CORE_NS.items():
            if of_side == side and name in self.columns:
                return _plausible(self.columns[name]) * unit_ns
        return np.zeros(len(self))

    def cycles(self, side: int) -> Float64:
        """Return the cycles of all cores of a side, (kernels,); 0 if not measured or absurd."""
        for name, of_side in _CYCLES.items():
            if of_side == side and name in self.columns:
                return _plausible(self.columns[name])
        return np.zeros(len(self))


def _plausible(values: Float64) -> Float64:
    """Return values with 0 for those that are not from 0 to _MOST_COUNTED."""
    return np.where((values >= 0) & (values <= _MOST_COUNTED), values, 0.0)


def _column(part: KernelMetrics, name: str) -> Float64:
    values = part.columns.get(name)
    return np.full(len(part), np.nan) if values is None else values
