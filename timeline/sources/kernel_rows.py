"""Turns kernel_details.csv, op_summary_*.csv and task_time_*.csv into one table of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.columns import Bool, Codes, Columns, Int64, Pile, column
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.tables import NO_CONTEXT, NO_GRAPH, NO_ID, NO_TIME
from timeline.sources.common.damage import Damage
from timeline.sources.common.decimals import interval_ns, moments_ns
from timeline.sources.decoders.csv_blocks import Block, Spellings, read_blocks

__all__ = [
    "ARGS",
    "DESCRIPTION",
    "LENGTH",
    "PLACE",
    "SHAPES",
    "KernelTable",
    "TableFile",
    "read_kernel_rows",
]

COMMUNICATION_CORES = frozenset({"HCCL", "COMMUNICATION"})
"""Rows of communication: the older and the newer spelling."""
_KERNEL_ENDINGS = ("AivKernel", "AicpuKernel")
"""Communication that runs as a kernel: such a row is a task, and its op has another row."""

DESCRIPTION: Spellings = {
    "start": ("Start Time(us)", "Task Start Time(us)", "task_start(us)"),
    "name": ("Name", "Op Name", "kernel_name"),
    "core": ("Accelerator Core", "Task Type", "kernel_type"),
    "device": ("Device_id",),
    "op_type": ("Type", "OP Type"),
}
"""What a row runs."""
SHAPES: Spellings = {"input_shapes": ("Input Shapes",)}
"""What it works on."""
ARGS: Spellings = {
    "output_shapes": ("Output Shapes",),
    "input_types": ("Input Data Types",),
    "blocks": ("Block Num", "Block Dim"),
    "context": ("Context ID",),
}
"""The rest of that, which only `--args all` shows."""
PLACE: Spellings = {
    "duration": ("Duration(us)", "Task Duration(us)", "task_time(us)"),
    "stop": ("task_stop(us)",),
    "stream": ("Stream ID", "stream_id"),
    "task": ("Task ID", "task_id"),
    "graph": ("Model ID",),
    "iteration": ("Step Id", "Step ID"),
}
"""Where and when it runs."""
LENGTH: Spellings = {"length": PLACE["duration"]}
"""How long it runs, for tables whose rows are of use without that too."""
_NUMBERS = {
    "device": NO_ID,
    "stream": NO_ID,
    "task": NO_ID,
    "context": NO_CONTEXT,
    "graph": NO_GRAPH,
    "iteration": NO_ID,
    "blocks": NO_ID,
}


def _shapes(cell: str) -> str:
    """Shapes without the quotes that are part of them."""
    return cell.strip().strip('"')


_NAMES: Mapping[str, Callable[[str], str]] = {
    "name": str.strip,
    "core": str.strip,
    "op_type": str.strip,
    "input_types": str.strip,
    "input_shapes": _shapes,
    "output_shapes": _shapes,
}


@dataclass(frozen=True)
class KernelTable(Columns):
    """Rows of kernels and communication ops; end_ns is NO_TIME unless durations were read."""

    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64, NO_TIME)
    device: Int64 = column(np.int64, NO_ID)
    stream: Int64 = column(np.int64, NO_ID)
    task: Int64 = column(np.int64, NO_ID)
    context: Int64 = column(np.int64, NO_CONTEXT)
    graph: Int64 = column(np.int64, NO_GRAPH)
    iteration: Int64 = column(np.int64, NO_ID)
    name: Codes = column(np.int32, NO_NAME)
    core: Codes = column(np.int32, NO_NAME)
    op_type: Codes = column(np.int32, NO_NAME)
    input_shapes: Codes = column(np.int32, NO_NAME)
    output_shapes: Codes = column(np.int32, NO_NAME)
    input_types: Codes = column(np.int32, NO_NAME)
    blocks: Int64 = column(np.int64, NO_ID)
    communicates: Bool = column(np.bool_, 0)
    is_op: Bool = column(np.bool_, 0)
    """Whether the row is a communication op, which has no place on a stream."""


@dataclass(frozen=True)
class TableFile:
    """One file of a table; the graph and iteration that its name gives count for all rows."""

    path: Path
    graph: int = NO_GRAPH
    iteration: int = NO_ID


def read_kernel_rows(
    file: TableFile, strings: StringPool, wanted: Spellings, damage: Damage
) -> KernelTable:
    """Read one file, in its own order; rows without a time are noted as damage.

    Args:
        wanted: the columns to read, of those above; `start` at least.

    Raises:
        SourceError: the file cannot be read, or lacks a column of times.
    """
    times = [key for key in ("start", "duration") if key in wanted]
    pile = Pile(KernelTable)
    for block in read_blocks(file.path, wanted, times, damage):
        rows = _rows_of(block, file, strings)
        timed = rows.start_ns != NO_TIME
        damage.add_lines(f"rows without a {' and a '.join(times)}", block.lines[~timed])
        pile.add(rows.take(timed))
    return pile.joined()


def _rows_of(block: Block, file: TableFile, strings: StringPool) -> KernelTable:
    columns: dict[str, Any] = {}
    starts = block.cells("start")
    if "duration" in block:
        durations = [cell or b"N/A" for cell in block.cells("duration")]
        columns["start_ns"], columns["end_ns"] = interval_ns(starts, durations)
        if "stop" in block:
            # Both ends were cut down by themselves, so the duration may be 1 ns short.
            stop_ns = moments_ns(block.cells("stop"))
            near = np.abs(stop_ns - columns["end_ns"]) <= 1
            columns["end_ns"] = np.where(near, stop_ns, columns["end_ns"])
    else:
        columns["start_ns"] = moments_ns(starts)
    if "length" in block:
        lengths = [cell or b"N/A" for cell in block.cells("length")]
        columns["end_ns"] = interval_ns(starts, lengths)[1]
    for key, absent in _NUMBERS.items():
        if key in block:
            columns[key] = block.integers(key, absent)
    for key, meaning in _NAMES.items():
        if key in block:
            columns[key] = block.codes(key, strings, meaning)
    for key, value, absent in (
        ("graph", file.graph, NO_GRAPH),
        ("iteration", file.iteration, NO_ID),
    ):
        if value != absent:
            columns.setdefault(key, constant(value, len(block), np.int64))
    rows = KernelTable.of(len(block), columns)
    communicates = np.isin(rows.core, _codes(strings, COMMUNICATION_CORES))
    if not communicates.any():
        return rows
    names = distinct(rows.name[communicates]).tolist()
    kernels = [code for code in names if strings[code].endswith(_KERNEL_ENDINGS)]
    is_op = communicates & ~np.isin(rows.name, np.array(kernels, np.int32))
    return replace(rows, communicates=communicates, is_op=is_op)


def _codes(strings: StringPool, names: frozenset[str]) -> Codes:
    found = [code for name in sorted(names) if (code := strings.find(name)) is not None]
    return np.array(found, np.int32)
