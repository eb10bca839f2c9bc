"""Operators of two runs, each with its like in the other run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from timeline.figures.table import Table

__all__ = ["ONE_RUN_ONLY", "pair_operators"]

ONE_RUN_ONLY = "one run only"
"""How an operator is matched of which the other run has none, not even of its type."""

_Key = tuple[str, str, str]
"""Type, name and shapes."""
_Sums = tuple[int, int]
"""How often, and how long."""
_Pair = tuple[str, _Key, _Sums, _Sums]
"""How it was recognised, what it is, and its sums in both runs."""
_NEVER: _Sums = (0, 0)


def pair_operators(base: Table, new: Table, shares: tuple[float, float]) -> Table:
    """Match by name and shapes, else by name, by type and shapes, or by type; who lost most first.

    Every operator of both runs is in exactly one row, so that totals stay what they are. Names
    match of one type first, and then of any, because one run may tell other types: its own.

    Args:
        base, new: type, name, shapes, count and total_ns of operators.
        shares: what the times of each run are multiplied by.

    Returns:
        matched, type, name, shapes, base_count, new_count, base_ns, new_ns, delta_ns.
    """
    found = _pairs(_by_key(base), _by_key(new))
    base_ns = np.array([round(sums[1] * shares[0]) for _, _, sums, _ in found], np.int64)
    new_ns = np.array([round(sums[1] * shares[1]) for _, _, _, sums in found], np.int64)
    table = Table(
        {
            "matched": np.array([how for how, _, _, _ in found], object),
            "type": np.array([key[0] for _, key, _, _ in found], object),
            "name": np.array([key[1] for _, key, _, _ in found], object),
            "shapes": np.array([key[2] for _, key, _, _ in found], object),
            "base_count": np.array([sums[0] for _, _, sums, _ in found], np.int64),
            "new_count": np.array([sums[0] for _, _, _, sums in found], np.int64),
            "base_ns": base_ns,
            "new_ns": new_ns,
            "delta_ns": new_ns - base_ns,
        }
    )
    won_ns = (base_ns - new_ns).tolist()
    order = sorted(range(len(found)), key=lambda row: (won_ns[row], found[row][:2]))
    return table.take(np.array(order, np.intp))


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
        ((kind, name, shapes), (count, total_ns)) for kind, name, shapes, count, total_ns in rows
    )


def _summed(rows: Iterable[tuple[_Key, _Sums]]) -> dict[_Key, _Sums]:
    found: dict[_Key, _Sums] = {}
    for key, (count, total_ns) in rows:
        so_far = found.get(key, _NEVER)
        found[key] = (so_far[0] + count, so_far[1] + total_ns)
    return found
