"""Turns kernel_details.csv and op_summary_*.csv into op types, shapes and what computes."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from timeline.errors import SourceError
from timeline.records.columns import Codes, Columns, Int64, column
from timeline.records.strings import NO_NAME, StringPool
from timeline.records.tables import NO_ID, NO_TIME, Tasks
from timeline.sources.microseconds import moments_ns

__all__ = ["KernelTable", "describe_tasks", "read_kernel_table"]

COMMUNICATION_CORES = frozenset({"HCCL", "COMMUNICATION"})
"""Rows of communication ops: the older and the newer spelling."""
MATCH_TOLERANCE_NS = 1
"""Exports round the same moment in two places."""


@dataclass(frozen=True)
class KernelTable(Columns):
    """Operators that ran as tasks: one row per compute task, in order of start."""

    start_ns: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    op_type: Codes = column(np.int32)
    core: Codes = column(np.int32)
    input_shapes: Codes = column(np.int32)
    output_shapes: Codes = column(np.int32)
    input_types: Codes = column(np.int32)
    blocks: Int64 = column(np.int64)


@dataclass(frozen=True)
class _Spelling:
    """The column names of one value over the versions, newest first."""

    names: tuple[str, ...]

    def of(self, row: dict[str, str]) -> str:
        for name in self.names:
            value = row.get(name)
            if value is not None:
                value = value.strip()
                return "" if value == "N/A" else value
        return ""


_NAME = _Spelling(("Name", "Op Name"))
_TYPE = _Spelling(("Type", "OP Type"))
_CORE = _Spelling(("Accelerator Core", "Task Type"))
_START = _Spelling(("Start Time(us)", "Task Start Time(us)"))
_BLOCKS = _Spelling(("Block Num", "Block Dim"))
_INPUT_SHAPES = _Spelling(("Input Shapes",))
_OUTPUT_SHAPES = _Spelling(("Output Shapes",))
_INPUT_TYPES = _Spelling(("Input Data Types",))
_DEVICE = _Spelling(("Device_id",))


def read_kernel_table(
    paths: Sequence[Path], strings: StringPool, device: int | None = None
) -> KernelTable:
    """Read all slices of a kernel table; with a device, only its rows.

    Raises:
        SourceError: a file cannot be read, or has no column of start times.
    """
    rows = [row for path in paths for row in _rows(path, device)]
    starts_ns = moments_ns([_START.of(row).encode() for row in rows])
    table = KernelTable.of(
        len(rows),
        {
            "start_ns": starts_ns,
            "name": strings.codes(_NAME.of(row) for row in rows),
            "op_type": strings.codes(_TYPE.of(row) for row in rows),
            "core": strings.codes(_CORE.of(row) for row in rows),
            "input_shapes": strings.codes(_INPUT_SHAPES.of(row).strip('"') for row in rows),
            "output_shapes": strings.codes(_OUTPUT_SHAPES.of(row).strip('"') for row in rows),
            "input_types": strings.codes(_INPUT_TYPES.of(row) for row in rows),
            "blocks": [_whole(_BLOCKS.of(row)) for row in rows],
        },
    )
    table = table.take(table.start_ns != NO_TIME)
    return table.take(np.lexsort((table.name, table.start_ns)))


def _rows(path: Path, device: int | None) -> Iterator[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            reader = csv.DictReader(file)
            if not any(name in (reader.fieldnames or ()) for name in _START.names):
                raise SourceError(path, f"has no column {' or '.join(_START.names)}.")
            for row in reader:
                here = _DEVICE.of(row)
                if device is not None and here and here != str(device):
                    continue
                if _CORE.of(row) not in COMMUNICATION_CORES:
                    yield row
    except OSError as error:
        raise SourceError(path, f"cannot be read: {error.strerror}.") from error
    except csv.Error as error:
        raise SourceError(path, f"is not a table: {error}.") from error


def _whole(text: str) -> int:
    return int(text) if text.isdigit() else NO_ID


def describe_tasks(tasks: Tasks, table: KernelTable) -> tuple[Tasks, int]:
    """Give tasks the op type, shapes and blocks of their row; also the number of rows unmatched.

    A task computes if and only if it has a row: that is how CANN 8 computes its own overlap.
    Rows and tasks are matched by name and start.
    """
    if not len(table):
        return tasks, 0
    row = _matching_row(tasks, table)
    has = row >= 0
    if not has.any():
        return tasks, len(table)
    at = np.maximum(row, 0)

    def column_of(name: str, absent: int) -> np.ndarray:
        values = getattr(table, name)
        return np.where(has, values[at], absent).astype(values.dtype)

    described = replace(
        tasks,
        op_type=column_of("op_type", NO_NAME),
        input_shapes=column_of("input_shapes", NO_NAME),
        output_shapes=column_of("output_shapes", NO_NAME),
        input_types=column_of("input_types", NO_NAME),
        blocks=column_of("blocks", NO_ID),
        compute=has,
    )
    return described, len(table) - len(np.unique(row[has]))


def _matching_row(tasks: Tasks, table: KernelTable) -> Int64:
    """The row of each task's name that starts within the tolerance, -1 for none."""
    by_name = table.take(np.lexsort((table.start_ns, table.name)))
    order = np.lexsort((table.start_ns, table.name))
    key_low = _key(by_name.name, by_name.start_ns, table.start_ns)
    wanted = _key(tasks.name, tasks.start_ns - MATCH_TOLERANCE_NS, table.start_ns)
    at = np.minimum(np.searchsorted(key_low, wanted), len(table) - 1)
    same_name = by_name.name[at] == tasks.name
    near = np.abs(by_name.start_ns[at] - tasks.start_ns) <= MATCH_TOLERANCE_NS
    return np.where(same_name & near, order[at], -1)


def _key(name: Codes, start_ns: Int64, starts_ns: Int64) -> Int64:
    """One sortable integer for (name, start): starts become their rank among all starts."""
    moments = np.unique(starts_ns)
    return name.astype(np.int64) * (len(moments) + 1) + np.searchsorted(moments, start_ns)
