"""Reads what the counters of an AI Core measured of kernels, and which cores a device has."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from timeline.columns.columns import Float64, Int64
from timeline.columns.distinct import distinct_values
from timeline.errors import SourceError
from timeline.records.kernel_metrics import CoreCounts, KernelMetrics, is_metric
from timeline.records.not_given import NO_ID
from timeline.sources.common.decimals import whole_number
from timeline.sources.source import PROF

if TYPE_CHECKING:
    from timeline.sources.decoders.csv_blocks import Block
    from timeline.sources.decoders.sqlite import Database

_ABSENT = -1.0
"""Value of numbers that a database does not hold; no metric is negative."""


class MetricsBuilder:
    """Collects the metrics in the tables of kernels of one rank.

    every: whether all are wanted, or only those that say what bounds a kernel.
    """

    def __init__(self, *, every: bool = True) -> None:
        self._every = every
        self._parts: list[KernelMetrics] = []
        self._rows = 0

    def add(self, block: Block) -> Int64:
        """Add the rows of a block; return their row numbers, (rows,), NO_ID if it has no metric."""
        columns = dict[str, Float64]()
        for place, name in enumerate(block.header):
            # Of several columns of a name, the first one counts.
            if is_metric(name, every=self._every) and name not in columns:
                columns[name] = block.reals(place)[0]
        part = KernelMetrics(columns)
        if not len(part):
            return np.full(len(block), NO_ID)
        first = self._rows
        self._rows += len(block)
        self._parts.append(part)
        return np.arange(first, self._rows)

    def build(self) -> KernelMetrics:
        """Return the metrics of all blocks."""
        return KernelMetrics.join(self._parts).measured()


_TABLE = "TASK_PMU_INFO"
_COLUMNS = ("globalTaskId", "name", "value")
_MOST_EXACT = 1 << 53
"""Integers up to it are exact as reals; ids of tasks and strings count from 0."""


def read_task_metrics(
    database: Database, names: dict[int, str], task_ids: Int64, *, every: bool
) -> tuple[KernelMetrics, Int64]:
    """Read TASK_PMU_INFO, which has a row per task and metric.

    Args:
        names: strings of the database by id.
        task_ids: (tasks,) global id of each task.
        every: whether all are wanted, or only those that say what bounds a kernel.

    Returns:
        The metrics, and the row of each task in them, (tasks,), NO_ID if it has none.
    """
    absent = KernelMetrics(), np.full(len(task_ids), NO_ID)
    task, name, value = (database.column_name(_TABLE, one) for one in _COLUMNS)
    label_of = {number: one for number, one in names.items() if is_metric(one, every=every)}
    if not (label_of and task and name and value):
        return absent
    # One pass over the table, whose rows are most of the database: integers are read as reals.
    where = (
        f'WHERE "{name}" IN ({", ".join(map(str, label_of))}) '
        f'AND "{task}" BETWEEN 0 AND {_MOST_EXACT} '
        f"AND typeof(\"{value}\") IN ('integer', 'real')"
    )
    columns = database.floats(_TABLE, dict.fromkeys(_COLUMNS, _ABSENT), where)
    if not len(columns["name"]):
        return absent
    # The last of several values in one cell stays, which is the first one in the table.
    tasks, labelled, values = (columns[one][::-1] for one in _COLUMNS)
    ids, kernel = distinct_values(tasks.astype(np.int64))
    numbers, metric = distinct_values(labelled.astype(np.int64))
    labels = [label_of[number] for number in numbers.tolist()]
    wanted = {label: at for at, label in enumerate(dict.fromkeys(labels))}
    cells = np.full((len(wanted), len(ids)), np.nan)
    place = np.array([wanted[label] for label in labels])
    cells[place[metric], kernel] = np.where(values < 0, np.nan, values)
    metrics = KernelMetrics(dict(zip(wanted, cells, strict=True))).measured()
    at = np.minimum(np.searchsorted(ids, task_ids), len(ids) - 1)
    return metrics, np.where(ids[at] == task_ids, at, NO_ID)


def read_core_counts(directory: Path, device: int | None) -> CoreCounts:
    """Return the number of cores, and their clock, that the info.json of a device names.

    directory: of a capture. device: None for any, if all devices are alike. A file that cannot be
    read counts as absent: nothing but cores in use, clock and utilization depends on it.
    """
    from timeline.sources.common.device_clock import find_clock_files

    counts = set[CoreCounts]()
    for parent in (directory, *sorted(directory.glob(f"{PROF}*"))):
        for one in sorted(parent.glob("device_*" if device is None else f"device_{device}")):
            with contextlib.suppress(SourceError):
                counts.update(map(_core_counts, find_clock_files(one, "info.json")))
    return counts.pop() if len(counts) == 1 else CoreCounts()


def _core_counts(path: Path) -> CoreCounts:
    from timeline.sources.common.device_clock import first_entry
    from timeline.sources.decoders.json_values import read_json

    entry = first_entry(read_json(path), "DeviceInfo")
    names = ("ai_core_num", "aiv_num", "aic_frequency", "aiv_frequency")
    return CoreCounts(*(whole_number(entry.get(name)) or NO_ID for name in names))
