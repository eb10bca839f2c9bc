"""Turns kernel_details.csv and op_summary_*.csv into op types, shapes and what computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.distinct import distinct
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.tables import NO_ID, NO_TIME, Omission, Tasks
from timeline.sources.common.damage import Damage
from timeline.sources.kernel_rows import (
    ARGS,
    DESCRIPTION,
    LENGTH,
    SHAPES,
    KernelTable,
    TableFile,
    read_kernel_rows,
)

__all__ = [
    "MATCH_TOLERANCE_NS",
    "describe_tasks",
    "end_tasks",
    "following_rows",
    "matching_rows",
    "read_kernel_table",
]

MATCH_TOLERANCE_NS = 1
"""Exports round the same moment in two places."""


def read_kernel_table(
    paths: Sequence[Path], strings: StringPool, rank: int, device: int | None = None
) -> tuple[KernelTable, tuple[Omission, ...]]:
    """Read what all slices of a kernel table say of kernels; with a device, only its rows.

    And what could not be read of it: the tasks of those rows are in the trace, but nothing tells
    that they compute.

    Raises:
        SourceError: a file cannot be read, or has no column of start times.
    """
    wanted = {**DESCRIPTION, **LENGTH, **SHAPES, **ARGS}
    damages = [Damage(path) for path in paths]
    parts = [
        read_kernel_rows(TableFile(path), strings, wanted, damage)
        for path, damage in zip(paths, damages, strict=True)
    ]
    omissions = tuple(own for damage in damages for own in damage.omissions(rank))
    table = KernelTable.concat(parts)
    table = table.take(~table.communicates)
    if device is not None:
        table = table.take((table.device == device) | (table.device == NO_ID))
    return table.take(np.lexsort((table.name, table.start_ns))), omissions


def describe_tasks(tasks: Tasks, table: KernelTable) -> tuple[Tasks, int]:
    """Give tasks the unit, op type, shapes and blocks of their row; also the rows unmatched.

    A task computes if and only if it has a row: that is how CANN 8 computes its own overlap.
    Rows and tasks are matched by name and start.
    """
    if not len(table):
        return tasks, 0
    row = matching_rows(tasks.name, tasks.start_ns, table.name, table.start_ns)
    has = row >= 0
    if not has.any():
        return tasks, len(table)
    at = np.maximum(row, 0)

    def column_of(name: str, absent: int) -> np.ndarray:
        values = getattr(table, name)
        return np.where(has, values[at], absent).astype(values.dtype)

    core = column_of("core", NO_NAME)
    described = replace(
        tasks,
        # The trace calls the unit by the queue of the task, which is AI_CORE for vector cores too.
        task_type=np.where(core == NO_NAME, tasks.task_type, core),
        op_type=column_of("op_type", NO_NAME),
        input_shapes=column_of("input_shapes", NO_NAME),
        output_shapes=column_of("output_shapes", NO_NAME),
        input_types=column_of("input_types", NO_NAME),
        blocks=column_of("blocks", NO_ID),
        compute=has,
    )
    return described, len(table) - len(distinct(row[has]))


def end_tasks(tasks: Tasks, table: KernelTable) -> Tasks:
    """Tasks that end as their rows in op_summary do, which is what databases say.

    A trace has lost the fraction of a start, with which the end was rounded.
    """
    if not len(table):
        return tasks
    row = matching_rows(tasks.name, tasks.start_ns, table.name, table.start_ns)
    own_ns = table.end_ns[np.maximum(row, 0)]
    own_ns = np.where((row >= 0) & (own_ns != NO_TIME), own_ns, tasks.end_ns)
    near = np.abs(own_ns - tasks.end_ns) <= MATCH_TOLERANCE_NS
    return replace(tasks, end_ns=np.where(near, own_ns, tasks.end_ns))


def matching_rows(
    key: Codes | Int64, start_ns: Int64, of_key: Codes | Int64, of_start_ns: Int64
) -> Rows:
    """The row of each key that starts within the tolerance, (n,) rows, -1 for none.

    Args:
        key, start_ns: (n,) what is looked for: codes or numbers, none of them negative.
        of_key, of_start_ns: (m,) the rows to find, in any order.
    """
    at = following_rows(key, start_ns, of_key, of_start_ns)
    if not len(of_key):
        return at
    return np.where((at >= 0) & (np.abs(of_start_ns[at] - start_ns) <= MATCH_TOLERANCE_NS), at, -1)


def following_rows(
    key: Codes | Int64, start_ns: Int64, of_key: Codes | Int64, of_start_ns: Int64
) -> Rows:
    """The first row of each key that starts then or later, within the tolerance, -1 for none.

    Args: as those of `matching_rows`.
    """
    if not len(of_key):
        return np.full(len(key), -1, np.intp)
    order = np.lexsort((of_start_ns, of_key))
    moments_ns = distinct(of_start_ns)

    def place(keys: Codes | Int64, starts_ns: Int64) -> Int64:
        """One sortable integer for both: starts become their rank among all starts."""
        ranks: Int64 = np.searchsorted(moments_ns, starts_ns)
        return keys.astype(np.int64) * (len(moments_ns) + 1) + ranks

    places = place(of_key[order], of_start_ns[order])
    wanted = place(key, start_ns - MATCH_TOLERANCE_NS)
    at = order[np.minimum(np.searchsorted(places, wanted), len(order) - 1)]
    follows = of_start_ns[at] >= start_ns - MATCH_TOLERANCE_NS
    return np.where((of_key[at] == key) & follows, at, -1)
