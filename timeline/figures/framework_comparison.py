"""Operators and modules of a framework in two runs, by name: what they launched and allocated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.figures.operator_maps import mapped
from timeline.figures.table import Table
from timeline.frozen import dataclass
from timeline.patterns import compile_late

__all__ = [
    "MOST_MODULES",
    "OperatorNames",
    "pair_framework_operators",
    "pair_modules",
    "pair_operator_memory",
    "told_by_one_run",
]

MOST_MODULES = 2000
"""Rows of modules that a comparison keeps, those that changed most; the rest is counted."""
_NUMBER = compile_late(r"_[0-9]+$")
"""What PyTorch puts behind the class of a module."""
_RUNS = ("base", "new")
_Key = tuple[Any, ...]
_Renaming = Callable[[_Key], _Key]
_Sums = dict[_Key, list[int]]


@dataclass(frozen=True)
class OperatorNames:
    """What operators and modules are called in a comparison.

    custom: names of the user, old to new; of modules a whole path, or what is between slashes, or
    that without its number. between_vendors: whether names of GPUs become those of NPUs.
    with_shapes: whether operators of other shapes are others.
    """

    custom: Mapping[str, str] = field(default_factory=dict)
    between_vendors: bool = False
    with_shapes: bool = False

    def operator(self, name: str) -> str:
        """What an operator is called."""
        return mapped(name, self.custom, built_in=self.between_vendors)

    def path(self, path: str) -> str:
        """The path of a module.

        >>> OperatorNames({"Linear": "Dense", "Net_0": "Model"}).path("Net_0/Linear_3")
        'Model/Dense_3'
        """
        if path in self.custom:
            return self.custom[path]
        return "/".join(map(self._module, path.split("/"))) if self.custom else path

    def _module(self, name: str) -> str:
        if name in self.custom:
            return self.custom[name]
        kind = _module_class(name)
        return self.custom.get(kind, kind) + name.removeprefix(kind)


def _module_class(name: str) -> str:
    return _NUMBER.sub("", name)


def pair_framework_operators(
    sides: tuple[Table, Table], shares: tuple[float, float], names: OperatorNames
) -> Table:
    """The operators that are shown of both runs, by name; what changed most first.

    sides: see `Figures.framework_operators`. shares: what times of each run are multiplied by.

    Returns:
        name, shapes (None where they are not told apart), and of each run count and ns, with what
        they differ by: base_count, new_count, delta_count, base_ns, new_ns, delta_ns. None where
        either run tells of no operators.
    """
    told, values = all(map(len, sides)), ("count", "total_ns")
    paired = _Paired.of(sides, told, ("name", "shapes"), values, _operator_key(names))
    table = Table(
        {
            "name": paired.texts(0),
            "shapes": paired.texts(1),
            **paired.columns("count", 0),
            **paired.columns("ns", 1, shares),
        }
    )
    return _by_change(table, "delta_ns")


def pair_operator_memory(
    sides: tuple[Table, Table], shares: tuple[float, float], names: OperatorNames
) -> Table:
    """What the operators that are shown allocated, by name; what changed most first.

    Returns:
        name, and of each run, with what they differ by: count (of operators), bytes (what they and
        those inside allocated), held_ns (how long each allocation was held, summed up). Bytes and
        times are multiplied by the shares. None where either run tells of no allocations.
    """
    told = all(len(side) and side["allocates"].any() for side in sides)
    key = _operator_key(replace(names, with_shapes=False))
    values = ("count", "size_bytes", "held_ns")
    paired = _Paired.of(sides, told, ("name", "shapes"), values, key)
    table = Table(
        {
            "name": paired.texts(0),
            **paired.columns("count", 0),
            **paired.columns("bytes", 1, shares),
            **paired.columns("held_ns", 2, shares),
        }
    )
    return _by_change(table, "delta_bytes")


def pair_modules(
    sides: tuple[Table, Table], shares: tuple[float, float], names: OperatorNames
) -> Table:
    """The modules of both runs, by path and direction; what changed most first.

    sides: see `Figures.framework_modules`.

    Returns:
        path, direction, class (of the module), and of each run, with what they differ by: self_ns
        and total_ns. None where either run tells of no modules.
    """

    def key(row: _Key) -> _Key:
        path, direction = row
        return names.path(path), direction

    told, values = all(map(len, sides)), ("self_ns", "total_ns")
    paired = _Paired.of(sides, told, ("path", "direction"), values, key)
    classes = [_module_class(path.rpartition("/")[2]) for path, _ in paired.keys]
    table = Table(
        {
            "path": paired.texts(0),
            "direction": paired.texts(1),
            "class": np.array(classes, object),
            **paired.columns("self_ns", 0, shares),
            **paired.columns("total_ns", 1, shares),
        }
    )
    return _by_change(table, "delta_total_ns", "delta_self_ns")


def told_by_one_run(operators: tuple[Table, Table], modules: tuple[Table, Table]) -> Iterator[str]:
    """Why tables of operators, their memory or modules are empty, where one run alone tells them.

    operators, modules: see `Figures.framework_operators` and `Figures.framework_modules`.
    """
    told = [_topics(*side) for side in zip(operators, modules, strict=True)]
    for run, own, other in zip(_RUNS, told, reversed(told), strict=True):
        missing = [topic for topic in other if topic not in own]
        if missing:
            # Without operators there is nothing that could have had the others.
            topics = missing[:1] if not own else missing
            yield f"{run}: tells no {' and no '.join(topics)}, so these are not compared."


def _topics(operators: Table, modules: Table) -> list[str]:
    """What a run tells of its framework."""
    told = {
        "operators of a framework": len(operators) > 0,
        "memory of operators": len(operators) > 0 and bool(operators["allocates"].any()),
        "modules": len(modules) > 0,
    }
    return [topic for topic, tells in told.items() if tells]


def _operator_key(names: OperatorNames) -> _Renaming:
    def key(row: _Key) -> _Key:
        name, shapes = row
        return names.operator(name), shapes if names.with_shapes else None

    return key


def _summed(
    side: Table,
    keys: Sequence[str],
    values: Sequence[str],
    renamed: _Renaming,
) -> _Sums:
    """The sums of the values of all rows that have one key once renamed."""
    found: _Sums = {}
    rows = zip(*(side[name].tolist() for name in keys), strict=True)
    numbers = zip(*(side[name].tolist() for name in values), strict=True)
    for row, number in zip(rows, numbers, strict=True):
        sums = found.setdefault(renamed(row), [0] * len(values))
        for at, one in enumerate(number):
            sums[at] += one
    return found


@dataclass(frozen=True)
class _Paired:
    """The keys of both runs in order, and the sums of each run by key."""

    keys: list[_Key]
    sides: Sequence[_Sums]

    @classmethod
    def of(
        cls,
        sides: tuple[Table, Table],
        told: bool,
        keys: Sequence[str],
        values: Sequence[str],
        renamed: _Renaming,
    ) -> _Paired:
        """Pair the sums of values of two runs by keys once renamed; nothing where not both tell."""
        sums = [_summed(side, keys, values, renamed) if told else {} for side in sides]
        return cls(sorted({*sums[0], *sums[1]}, key=lambda key: tuple(map(str, key))), sums)

    def texts(self, at: int) -> npt.NDArray[Any]:
        """A part of the keys."""
        return np.array([key[at] for key in self.keys], object)

    def columns(
        self, name: str, at: int, shares: tuple[float, float] = (1, 1)
    ) -> dict[str, npt.NDArray[Any]]:
        """A value of both runs, multiplied by the share of each, and by how much it changed."""
        base, new = (
            np.array([round(side.get(key, _NOTHING)[at] * share) for key in self.keys], np.int64)
            for side, share in zip(self.sides, shares, strict=True)
        )
        return {f"base_{name}": base, f"new_{name}": new, f"delta_{name}": new - base}


_NOTHING = [0, 0, 0]


def _by_change(table: Table, *columns: str) -> Table:
    """The rows whose first column, and then the next, changed most first."""
    return table.take(np.lexsort([-np.abs(table[name]) for name in reversed(columns)]))
