"""Classes of device work in two runs, by kernel and by launch, as rows of their whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.figures.table import Table, join_columns

__all__ = ["are_classes", "pair_classes", "select_classes", "select_parts", "with_classes"]

_Key = tuple[str, str]
"""By what a class is told, and its metric."""
_NOT_TOLD = (None, None)


def pair_classes(sides: tuple[Table, Table], shares: tuple[float, float]) -> Table:
    """The classes of both runs, in the order in which they are told; none if neither tells any.

    Args:
        sides: see `Figures.work_classes`. A run tells a class where all its ranks do.
        shares: what the times of each run are multiplied by.

    Returns:
        metric, part_of (of nothing), base_ns, new_ns and delta_ns; by, base_count and new_count;
        masked where a run does not tell.
    """
    sums = [_sums(side) for side in sides]
    keys = list(dict.fromkeys(key for of_run in sums for key in of_run))
    rows = []
    for by, metric in keys if any(map(_tells, sums)) else ():
        counts, times = zip(*(of_run.get((by, metric), _NOT_TOLD) for of_run in sums), strict=True)
        base_ns, new_ns = (
            None if time is None else round(time * share)
            for time, share in zip(times, shares, strict=True)
        )
        delta_ns = None if base_ns is None or new_ns is None else new_ns - base_ns
        rows.append((metric, "", base_ns, new_ns, delta_ns, by, *counts))
    return Table.of_rows(_COLUMNS, rows)


_COLUMNS = {
    "metric": object,
    "part_of": object,
    "base_ns": int,
    "new_ns": int,
    "delta_ns": int,
    "by": object,
    "base_count": int,
    "new_count": int,
}


def _sums(side: Table) -> dict[_Key, tuple[int | None, int | None]]:
    """The count and time of each class over all ranks, None where one does not tell it."""
    found: dict[_Key, tuple[int | None, int | None]] = {}
    for row in side.to_dicts():
        key, told = (row["by"], row["metric"]), (row["count"], row["total_ns"])
        before = found.get(key, (0, 0))
        if before[0] is None or before[1] is None or None in told:
            found[key] = _NOT_TOLD
        else:
            found[key] = (before[0] + told[0], before[1] + told[1])
    return found


def _tells(sums: dict[_Key, tuple[int | None, int | None]]) -> bool:
    return any(told is not None for told, _ in sums.values())


def with_classes(parts: Table, classes: Table) -> Table:
    """Both in one table; what is no class is by nothing, and is not counted."""
    names = list(_COLUMNS)[:5]
    columns = {name: join_columns([parts[name], classes[name]]) for name in names}
    for name, kind in list(_COLUMNS.items())[5:]:
        nothing = np.full(len(parts), "", object) if kind is object else np.zeros(len(parts), int)
        absent = np.ma.masked_array(nothing, np.ones(len(parts), np.bool_))
        columns[name] = join_columns([absent, classes[name]])
    return Table(columns)


def select_parts(overall: Table) -> Table:
    """The rows of a whole that are no classes, without columns that are of those alone."""
    names = list(_COLUMNS)[:5]
    chosen = overall.take(~are_classes(overall))
    return Table({name: chosen[name] for name in names}) if len(overall.columns) else overall


def select_classes(overall: Table, by: str) -> Table:
    """The classes of a whole by kernel or by launch of which either run tells something."""
    chosen = are_classes(overall)
    if not chosen.any():
        return Table({})
    rows = [at for at, row in enumerate(overall.to_dicts()) if row["by"] == by and any(_told(row))]
    return overall.take(np.array(rows, np.intp))


def _told(row: dict[str, Any]) -> Iterator[int]:
    """How often the class ran in each run that tells it."""
    return (row[name] for name in ("base_count", "new_count") if row[name] is not None)


def are_classes(overall: Table) -> npt.NDArray[np.bool_]:
    """Which rows of a whole are classes; none where it was made before there were any."""
    if not _COLUMNS.keys() <= overall.columns.keys():
        return np.zeros(len(overall), np.bool_)
    return np.array([by is not None for by in overall["by"].tolist()], np.bool_)
