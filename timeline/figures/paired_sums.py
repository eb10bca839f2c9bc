"""Sums of two runs, paired by what they are of: waiting, idle causes, copies, HCCL tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.figures.table import Table

__all__ = ["pair_peaks", "pair_sums"]

_Key = tuple[Any, ...]


def pair_sums(
    sides: tuple[Table, Table],
    keys: Sequence[str],
    shares: tuple[float, float],
    *,
    time: str = "total_ns",
    counts: Sequence[str] = ("count",),
) -> Table:
    """Sum up rows of both runs that are equal in all keys; what changed most first.

    Args:
        keys: columns; what is masked in one is equal to what is masked.
        shares: what the times of each run are multiplied by.
        time: the column of times. counts: columns that are summed as they are.

    Returns:
        the keys; of each count base_ and new_; base_ns, new_ns and delta_ns. None where neither run
        has a row.
    """
    sums = [_summed(side, keys, (time, *counts)) for side in sides]
    found = sorted({*sums[0], *sums[1]}, key=_order)
    none = (0,) * (1 + len(counts))
    values = [[of_run.get(key, none) for key in found] for of_run in sums]
    base_ns, new_ns = (
        np.array([round(row[0] * share) for row in rows], np.int64)
        for rows, share in zip(values, shares, strict=True)
    )
    counted = {
        f"{run}_{name.removesuffix('_ns')}": np.array([row[at] for row in rows], np.int64)
        for at, name in enumerate(counts, 1)
        for run, rows in zip(("base", "new"), values, strict=True)
    }
    table = Table(
        {
            **{name: _key_column([key[at] for key in found]) for at, name in enumerate(keys)},
            **counted,
            "base_ns": base_ns,
            "new_ns": new_ns,
            "delta_ns": new_ns - base_ns,
        }
    )
    return table.take(np.argsort(-np.abs(new_ns - base_ns), kind="stable"))


def pair_peaks(sides: tuple[Table, Table], keys: Sequence[str], peak: str) -> Table:
    """The largest value of each run by keys, texts or None, which layouts spell differently.

    Returns:
        the keys, base_bytes, new_bytes and delta_bytes, masked where a run has no such row.
    """
    found: list[dict[_Key, int]] = []
    names: dict[_Key, _Key] = {}
    for side in sides:
        peaks: dict[_Key, int] = {}
        for key, (value,) in _rows(side, keys, (peak,)):
            plain = tuple(map(_plain, key))
            names.setdefault(plain, key)
            peaks[plain] = max(peaks.get(plain, 0), value)
        found.append(peaks)
    base, new = (
        np.ma.masked_equal(np.array([peaks.get(key, -1) for key in names], np.int64), -1)
        for peaks in found
    )
    spelled = list(names.values())
    return Table(
        {
            **{name: _key_column([key[at] for key in spelled]) for at, name in enumerate(keys)},
            "base_bytes": base,
            "new_bytes": new,
            "delta_bytes": new - base,
        }
    )


def _plain(text: str | None) -> str:
    return (text or "").replace("/", " ").casefold()


def _rows(
    table: Table, keys: Sequence[str], values: Sequence[str]
) -> Iterable[tuple[_Key, tuple[int, ...]]]:
    if not len(table):
        return []
    columns = ([table[name].tolist() for name in names] for names in (keys, values))
    return zip(*(zip(*lists, strict=True) for lists in columns), strict=True)


def _summed(
    table: Table, keys: Sequence[str], values: Sequence[str]
) -> dict[_Key, tuple[int, ...]]:
    found: dict[_Key, tuple[int, ...]] = {}
    for key, row in _rows(table, keys, values):
        before = found.get(key)
        found[key] = row if before is None else tuple(map(sum, zip(before, row, strict=True)))
    return found


def _order(key: _Key) -> Any:
    return tuple((one is None, str(one)) for one in key)


def _key_column(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Numbers stay numbers, masked where there is none; anything else is an object."""
    if values and all(type(value) in (int, type(None)) for value in values):
        absent = [value is None for value in values]
        return np.ma.masked_array([value or 0 for value in values], absent, np.int64)
    return np.array(values, object)
