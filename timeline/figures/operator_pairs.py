"""Operators of two runs, each with its like in the other run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Int64
from timeline.columns.quartiles import quartiles_by_group
from timeline.figures.table import Table
from timeline.frozen import dataclass

__all__ = ["ONE_RUN_ONLY", "SPREAD", "RunOperators", "pair_operators"]

ONE_RUN_ONLY = "one run only"
"""How an operator is matched of which the other run has none, not even of its type."""

SPREAD = ("q1_ns", "median_ns", "q3_ns", "deviation_ns")
"""Quartiles and standard deviation of the single times that an operator ran."""
_Key = tuple[str, str, str]
"""Type, name and shapes."""


class _Sums(NamedTuple):
    """How often, how long, and the rows of the run's operators that were summed."""

    times: int
    total_ns: int
    rows: tuple[int, ...]


_Pair = tuple[str, _Key, _Sums, _Sums]
"""How it was recognised, what it is, and its sums in both runs."""
_NEVER = _Sums(0, 0, ())


@dataclass(frozen=True)
class RunOperators:
    """Operators of one run.

    table: type, name, shapes, count and total_ns. share: what its times are multiplied by. classes:
    (n,) texts, see `computing_class`. operator, length_ns: (k,) how long each row of the table took
    each time, in any order; without rows where that is not told.
    """

    table: Table
    share: float
    classes: npt.NDArray[Any] | None = None
    operator: Int64 | None = None
    length_ns: Int64 | None = None


def pair_operators(base: RunOperators, new: RunOperators) -> Table:
    """Match by name and shapes, else by name, by type and shapes, or by type.

    Rows come with the largest regression first.

    Every operator of both runs is in exactly one row, so that totals stay what they are. Names
    match of one type first, and then of any, because one run may tell other types: its own.

    Returns:
        matched, type, name, shapes, base_count, new_count, base_ns, new_ns, delta_ns; the columns
        of SPREAD for each run, of single times, masked where it has none; and its class.
    """
    found = _pairs(_by_key(base.table), _by_key(new.table))
    sides = [[pair[2] for pair in found], [pair[3] for pair in found]]
    base_ns, new_ns = (
        np.array([round(sums.total_ns * run.share) for sums in side], np.int64)
        for run, side in zip((base, new), sides, strict=True)
    )
    table = Table(
        {
            "matched": np.array([how for how, _, _, _ in found], object),
            "type": np.array([key[0] for _, key, _, _ in found], object),
            "name": np.array([key[1] for _, key, _, _ in found], object),
            "shapes": np.array([key[2] for _, key, _, _ in found], object),
            "base_count": np.array([sums.times for sums in sides[0]], np.int64),
            "new_count": np.array([sums.times for sums in sides[1]], np.int64),
            "base_ns": base_ns,
            "new_ns": new_ns,
            "delta_ns": new_ns - base_ns,
            **_spread("base", base, sides[0]),
            **_spread("new", new, sides[1]),
            "class": _classes((base, new), found),
        }
    )
    won_ns = (base_ns - new_ns).tolist()
    order = sorted(range(len(found)), key=lambda row: (won_ns[row], found[row][:2]))
    return table.take(np.array(order, np.intp))


def _spread(name: str, run: RunOperators, side: Sequence[_Sums]) -> dict[str, npt.NDArray[Any]]:
    """The columns of SPREAD of one run."""
    pair = np.full(len(run.table), -1, np.int64)
    for at, sums in enumerate(side):
        pair[list(sums.rows)] = at
    nothing = np.empty(0, np.int64)
    operator = nothing if run.operator is None else run.operator
    lengths_ns = nothing if run.length_ns is None else run.length_ns
    found = quartiles_by_group(pair[operator], lengths_ns, len(side))
    columns = (found.first, found.median, found.third, found.deviation)
    return {
        f"{name}_{title}": np.ma.masked_array(values, found.count == 0)
        for title, values in zip(SPREAD, columns, strict=True)
    }


def _classes(runs: tuple[RunOperators, RunOperators], found: Sequence[_Pair]) -> npt.NDArray[Any]:
    """The class of each pair, that of its first operator."""
    classes = []
    for _, _, *sides in found:
        firsts = (
            run.classes[sums.rows[0]]
            for run, sums in zip(runs, sides, strict=True)
            if sums.rows and run.classes is not None
        )
        classes.append(next(firsts, ""))
    return np.array(classes, object)


def _pairs(base: Mapping[_Key, _Sums], new: Mapping[_Key, _Sums]) -> list[_Pair]:
    """Match by ever less: what is left of both runs is summed by it before it is matched.

    A name may hold a number that changes from run to run, and a layout may not tell shapes.
    """
    found = list[_Pair]()
    for telling in _TELLING:
        sums = [_summed(_reduced(side, telling)) for side in (base, new)]
        both = sums[0].keys() & sums[1].keys()
        types = {name: kind for kind, name, _ in sorted((*base, *new), reverse=True)}
        for key in both:
            spelled = key if key[0] else (types[key[1]], *key[1:])
            found.append((_how(key), spelled, sums[0][key], sums[1][key]))
        base, new = (
            {key: sums_of_key for key, sums_of_key in side.items() if telling(key) not in both}
            for side in (base, new)
        )
    found += [(ONE_RUN_ONLY, key, sums_of_key, _NEVER) for key, sums_of_key in base.items()]
    found += [(ONE_RUN_ONLY, key, _NEVER, sums_of_key) for key, sums_of_key in new.items()]
    return found


def _with_name_and_shapes(key: _Key) -> _Key | None:
    return key if key[1] and key[2] else None


def _with_name_alone(key: _Key) -> _Key | None:
    return (key[0], key[1], "") if key[1] else None


def _with_name_of_any_type(key: _Key) -> _Key | None:
    return ("", key[1], "") if key[1] else None


def _with_shapes(key: _Key) -> _Key | None:
    return (key[0], "", key[2]) if key[2] else None


def _with_type(key: _Key) -> _Key | None:
    return (key[0], "", "")


_TELLING = (
    _with_name_and_shapes,
    _with_name_alone,
    _with_name_of_any_type,
    _with_shapes,
    _with_type,
)
"""What of a key must be the same, ever less; None where it is not given."""


def _reduced(
    side: Mapping[_Key, _Sums], telling: Callable[[_Key], _Key | None]
) -> Iterator[tuple[_Key, _Sums]]:
    for key, sums in side.items():
        reduced = telling(key)
        if reduced is not None:
            yield reduced, sums


def _how(key: _Key) -> str:
    _, name, shapes = key
    return ("name" if name else "type") + (" and shapes" if shapes else "")


def _by_key(operators: Table) -> Mapping[_Key, _Sums]:
    columns = ("type", "name", "shapes", "count", "total_ns")
    rows = zip(*(operators[name].tolist() for name in columns), strict=True)
    return _summed(
        ((kind, name, shapes), _Sums(count, total_ns, (row,)))
        for row, (kind, name, shapes, count, total_ns) in enumerate(rows)
    )


def _summed(rows: Iterable[tuple[_Key, _Sums]]) -> dict[_Key, _Sums]:
    found: dict[_Key, list[_Sums]] = {}
    for key, sums in rows:
        so_far = found.setdefault(key, [])
        so_far.append(sums)
    return {
        key: _Sums(
            sum(one.times for one in parts),
            sum(one.total_ns for one in parts),
            tuple(row for one in parts for row in one.rows),
        )
        for key, parts in found.items()
    }
