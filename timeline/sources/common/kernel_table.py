"""Exported tables of kernels, which describe tasks, and of steps with their parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.columns import (
    Bool,
    Codes,
    ColumnTable,
    Int64,
    Rows,
    TableBuilder,
    column,
    rows_of_runs,
    sort_rows,
)
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct, distinct_pairs
from timeline.columns.group_by import group_by
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.clock import EARLIEST_WALL_NS
from timeline.records.not_given import NO_CONTEXT, NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import Omission, StepPart, StepParts, Steps, Tasks
from timeline.records.task_kinds import drive_communication, have_type
from timeline.sources.common.core_metrics import MetricsBuilder
from timeline.sources.common.counters import select_device_rows
from timeline.sources.common.decimals import interval_ns, parse_times_ns
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.csv_blocks import Block, ColumnNames, read_blocks

COMMUNICATION_CORES = frozenset({"HCCL", "COMMUNICATION"})
"""The accelerator core of communication rows: the older and the newer spelling."""

_STARTS_WITH_UNIT = ("Start Time(us)", "Task Start Time(us)", "task_start(us)")
_NO_UNIT = ("Task Start Time", "Start Time")
"""Start columns of msprof and torch_npu before mid-2023, in nanoseconds or in microseconds."""

DESCRIPTION: ColumnNames = {
    "start": (*_STARTS_WITH_UNIT, *_NO_UNIT),
    "name": ("Name", "Op Name", "kernel_name"),
    "core": ("Accelerator Core", "Task Type", "kernel_type"),
    "device": ("Device_id",),
    "op_type": ("Type", "OP Type"),
}
"""Columns of the kernel: start, name, unit, device and operator type."""
SHAPES: ColumnNames = {"input_shapes": ("Input Shapes",)}
"""Columns of its input."""
ARGS: ColumnNames = {
    "output_shapes": ("Output Shapes",),
    "input_types": ("Input Data Types",),
    "blocks": ("Block Num", "Block Dim"),
    "context": ("Context ID",),
}
"""Columns that only `--args all` shows."""
PLACE: ColumnNames = {"stream": ("Stream ID", "stream_id"), "task": ("Task ID", "task_id")}
"""Columns that distinguish tasks with the same start."""
EXECUTION: ColumnNames = {
    "duration": ("Duration(us)", "Task Duration(us)", "task_time(us)"),
    "stop": ("task_stop(us)",),
    **PLACE,
    "graph": ("Model ID",),
    "iteration": ("Step Id", "Step ID"),
}
"""Columns of the kernel's execution; rows without a duration are damaged."""
LENGTH: ColumnNames = {"length": EXECUTION["duration"]}
"""The duration, if rows without one are of use too."""
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
    """Strip the quotes that are part of a cell of shapes."""
    return cell.strip().strip('"')


_NAMES: Mapping[str, Callable[[str], str]] = {
    "name": str.strip,
    "core": str.strip,
    "op_type": str.strip,
    "input_types": str.strip,
    "input_shapes": _shapes,
    "output_shapes": _shapes,
}


class KernelTable(ColumnTable):
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
    metrics: Int64 = column(np.int64, NO_ID)
    communicates: Bool = column(np.bool_, 0)
    is_op: Bool = column(np.bool_, 0)
    """Whether the row is a communication op, which has no place on a stream."""


@dataclass(frozen=True)
class KernelTableFile:
    """One file of a table, with the graph and iteration in its name, which apply to all rows."""

    path: Path
    graph: int = NO_GRAPH
    iteration: int = NO_ID


def read_kernel_rows(
    file: KernelTableFile,
    strings: StringPool,
    wanted: ColumnNames,
    damage: LossLog,
    metrics: MetricsBuilder | None = None,
) -> KernelTable:
    """Read one file in its own order; count rows without a time as damage.

    Args:
        wanted: the columns to read, from `DESCRIPTION` to `LENGTH`; at least `start`.
        metrics: collects what the counters of the cores measured of each row, if wanted.

    Raises:
        SourceError: the file cannot be read, or lacks a column of times.
    """
    times = [key for key in ("start", "duration") if key in wanted]
    builder = TableBuilder(KernelTable)
    blocks = read_blocks(file.path, wanted, times, damage)
    first = [*islice(blocks, 1)]
    if not any(name in block.header for block in first for name in _STARTS_WITH_UNIT):
        first += blocks
    in_ns = _starts_in_ns(first)
    for block in chain(first, blocks):
        rows = _rows_of(block, file, strings, in_ns=in_ns)
        if metrics is not None:
            rows = replace(rows, metrics=metrics.add(block))
        timed = rows.start_ns != NO_TIME
        damage.add_lines(f"rows without a {' and a '.join(times)}", block.lines[~timed])
        builder.add(rows.take(timed))
    return builder.build()


def _starts_in_ns(blocks: Sequence[Block]) -> bool:
    """Return whether starts are in nanoseconds, which a column name without a unit leaves open.

    Kernels of one stream, or of one type of core if the table has no streams, run one after the
    other. So if the starts in ns would leave kernels too little time to run, they are microseconds.

    blocks: all of a table without the unit.
    """
    if any(name in block.header for block in blocks for name in _STARTS_WITH_UNIT):
        return False
    cells = [cell for block in blocks for cell in block.cells("start")]
    starts = [int(whole) for whole, _, _ in map(_split_ns, cells) if whole.isdigit()]
    if not starts or min(starts) >= EARLIEST_WALL_NS:
        return True
    run_ns, lanes = 0, set[bytes]()
    longest_ns = 0
    for block in blocks:
        lengths = block.cells("duration" if "duration" in block else "length")
        _, lengths_ns = interval_ns([b"0"] * len(block), [cell or b"0" for cell in lengths])
        lengths_ns = lengths_ns[lengths_ns != NO_TIME]
        run_ns += int(lengths_ns.sum())
        longest_ns = max(longest_ns, int(lengths_ns.max(initial=0)))
        lanes.update(block.cells("stream" if "stream" in block else "core"))
    return run_ns - longest_ns <= len(lanes) * (max(starts) - min(starts))


def _split_ns(cell: bytes) -> tuple[bytes, bytes, bytes]:
    return cell.strip(b'" \t').partition(b".")


def _microseconds(cell: bytes) -> bytes:
    """Convert decimal nanoseconds to microseconds by moving the point."""
    whole, _, rest = _split_ns(cell)
    return b"%s.%s%s" % (whole[:-3] or b"0", whole[-3:].zfill(3), rest) if whole else cell


def _rows_of(
    block: Block, file: KernelTableFile, strings: StringPool, *, in_ns: bool
) -> KernelTable:
    columns: dict[str, Any] = {}
    starts = block.cells("start")
    if in_ns:
        starts = [*map(_microseconds, starts)]
    if "duration" in block:
        durations = [cell or b"N/A" for cell in block.cells("duration")]
        columns["start_ns"], columns["end_ns"] = interval_ns(starts, durations)
        if "stop" in block:
            # Start and stop were truncated separately, so start + duration may be 1 ns off.
            stop_ns = parse_times_ns(block.cells("stop"))
            near = np.abs(stop_ns - columns["end_ns"]) <= 1
            columns["end_ns"] = np.where(near, stop_ns, columns["end_ns"])
    else:
        columns["start_ns"] = parse_times_ns(starts)
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
    in_core = have_type(COMMUNICATION_CORES, rows.core, strings)
    is_driver = drive_communication(rows.name, strings)
    return replace(rows, communicates=in_core | is_driver, is_op=in_core & ~is_driver)


MATCH_TOLERANCE_NS = 1
"""Difference of the same time in two exported files, since each is rounded by itself."""
MOST_DELAY_NS = 1_000_000
"""The most by which a row may start after its task; beyond, it describes another task."""


def read_kernel_table(
    paths: Sequence[Path],
    strings: StringPool,
    rank: int,
    device: int | None = None,
    metrics: MetricsBuilder | None = None,
    *,
    described: bool = True,
) -> tuple[KernelTable, tuple[Omission, ...]]:
    """Read all slices of a kernel table, without communication and other devices' rows.

    described: whether to read the shapes and args of kernels.

    Returns:
        the rows in order of start and name, and the damaged rows: their tasks are in the trace, but
        cannot be recognised as computing.

    Raises:
        SourceError: a file cannot be read, or has no column of start times.
    """
    wanted = {**DESCRIPTION, **LENGTH, **PLACE} | ({**SHAPES, **ARGS} if described else {})
    damages = [LossLog(path) for path in paths]
    parts = [
        read_kernel_rows(KernelTableFile(path), strings, wanted, damage, metrics)
        for path, damage in zip(paths, damages, strict=True)
    ]
    omissions = tuple(omission for damage in damages for omission in damage.omissions(rank))
    table = KernelTable.concat(parts)
    table = table.take(~table.communicates)
    if device is not None:
        table = table.take((table.device == device) | (table.device == NO_ID))
    return table.take(np.lexsort((table.name, table.start_ns))), omissions


def delay_of_table(table: KernelTable, tasks: Tasks) -> int:
    """Return the delay in ns by which all rows start after their tasks; 0 if it is not constant.

    msprof places the kernels of a capture that samples cores 100 ns later in its tables than in
    its trace. Names with equally many rows and tasks are compared, pairwise in order of start.
    """
    by_row = sort_rows(table.name, table.start_ns)
    by_task = sort_rows(tasks.name, tasks.start_ns)
    keys, first, count = np.unique(table.name[by_row], return_index=True, return_counts=True)
    task_keys = tasks.name[by_task]
    at = np.searchsorted(task_keys, keys)
    alike = np.searchsorted(task_keys, keys, side="right") - at == count
    if not alike.any():
        return 0
    rows = by_row[rows_of_runs(first[alike], count[alike])]
    later_ns = table.start_ns[rows] - tasks.start_ns[by_task[rows_of_runs(at[alike], count[alike])]]
    least, most = int(later_ns.min()), int(later_ns.max())
    is_one = most - least <= 2 * MATCH_TOLERANCE_NS and max(-least, most) <= MOST_DELAY_NS
    return (least + most) // 2 if is_one else 0


def move_table(table: KernelTable, by_ns: int) -> KernelTable:
    """Shift all times of a table."""
    end_ns = np.where(table.end_ns == NO_TIME, NO_TIME, table.end_ns + by_ns)
    return replace(table, start_ns=table.start_ns + by_ns, end_ns=end_ns)


def match_tasks(tasks: Tasks, table: KernelTable) -> Rows:
    """Return the row of each task, (n,), -1 for none, using the key that matches most rows.

    Keys are the start with either the name, stream and task id, or the end: MindSpore prefixes
    names of kernels with its own operator, and tables of level 0 have no ids.
    """
    if not len(table):
        return np.full(len(tasks), -1, np.intp)
    named = match_rows(tasks.name, tasks.start_ns, table.name, table.start_ns)
    ids = (np.concatenate([getattr(rows, key) for rows in (tasks, table)]) for key in PLACE)
    _, place = distinct_pairs(*ids)
    placed = match_rows(place[: len(tasks)], tasks.start_ns, place[len(tasks) :], table.start_ns)
    placed = np.where(tasks.task == NO_ID, -1, placed)
    alike = np.zeros(len(tasks), np.int64), np.zeros(len(table), np.int64)
    row = match_rows(alike[0], tasks.start_ns, alike[1], table.start_ns)
    off_ns = np.abs(table.end_ns[np.maximum(row, 0)] - tasks.end_ns)
    at_edges = np.where(off_ns <= 2 * MATCH_TOLERANCE_NS, row, -1)
    return max(named, placed, at_edges, key=lambda rows: len(distinct(rows[rows >= 0])))


def describe_tasks(tasks: Tasks, table: KernelTable, row: Rows) -> Tasks:
    """Copy the unit, op type, shapes, blocks and length of rows to their tasks.

    A task computes if and only if it has a row, as CANN 8 defines it for its Overlap Analysis.

    Args:
        row: (n,) the row of each task, -1 for none; if all are -1, tasks stay unchanged.
    """
    has = row >= 0
    if not has.any():
        return tasks
    at = np.maximum(row, 0)

    def column_of(name: str, absent: int) -> np.ndarray:
        values = getattr(table, name)
        return np.where(has, values[at], absent).astype(values.dtype)

    listed_length = table.end_ns[at] - table.start_ns[at]
    near = np.abs(listed_length - (tasks.end_ns - tasks.start_ns)) <= MATCH_TOLERANCE_NS
    listed = has & near & (table.end_ns[at] != NO_TIME)
    core = column_of("core", NO_NAME)
    return replace(
        tasks,
        # A trace names the unit after the task's queue, which is AI_CORE for vector cores too.
        task_type=np.where(core == NO_NAME, tasks.task_type, core),
        op_type=column_of("op_type", NO_NAME),
        input_shapes=column_of("input_shapes", NO_NAME),
        output_shapes=column_of("output_shapes", NO_NAME),
        input_types=column_of("input_types", NO_NAME),
        blocks=column_of("blocks", NO_ID),
        metrics=column_of("metrics", NO_ID),
        listed_length=np.where(listed, listed_length, NO_ID),
        compute=has,
    )


def end_tasks(tasks: Tasks, table: KernelTable, row: Rows) -> Tasks:
    """Set the ends of tasks to those of their rows in op_summary, as databases have them.

    Those of a trace are up to 1 ns off, since it truncates starts before it adds the duration.
    """
    if not len(table):
        return tasks
    own_ns = table.end_ns[np.maximum(row, 0)]
    own_ns = np.where((row >= 0) & (own_ns != NO_TIME), own_ns, tasks.end_ns)
    near = np.abs(own_ns - tasks.end_ns) <= MATCH_TOLERANCE_NS
    return replace(tasks, end_ns=np.where(near, own_ns, tasks.end_ns))


def match_rows(
    key: Codes | Int64, start_ns: Int64, of_key: Codes | Int64, of_start_ns: Int64
) -> Rows:
    """Return the row with each key and start, within `MATCH_TOLERANCE_NS`: (n,), -1 for none.

    Args:
        key, start_ns: (n,) keys, not negative, and starts to find.
        of_key, of_start_ns: (m,) the same of rows, in any order.
    """
    at = find_following_rows(key, start_ns, of_key, of_start_ns)
    if not len(of_key):
        return at
    return np.where((at >= 0) & (np.abs(of_start_ns[at] - start_ns) <= MATCH_TOLERANCE_NS), at, -1)


def find_following_rows(
    key: Codes | Int64, start_ns: Int64, of_key: Codes | Int64, of_start_ns: Int64
) -> Rows:
    """Return the first row with each key from a start on, (n,), -1 for none.

    Rows may start `MATCH_TOLERANCE_NS` earlier. Arguments are those of `match_rows`.
    """
    if not len(of_key):
        return np.full(len(key), -1, np.intp)
    order = np.lexsort((of_start_ns, of_key))
    rows_ns = distinct(of_start_ns)

    def place(keys: Codes | Int64, starts_ns: Int64) -> Int64:
        """Combine key and start into one sortable integer, the start as an index of `rows_ns`."""
        ranks: Int64 = np.searchsorted(rows_ns, starts_ns)
        return keys.astype(np.int64) * (len(rows_ns) + 1) + ranks

    places = place(of_key[order], of_start_ns[order])
    wanted = place(key, start_ns - MATCH_TOLERANCE_NS)
    at = order[np.minimum(np.searchsorted(places, wanted), len(order) - 1)]
    follows = of_start_ns[at] >= start_ns - MATCH_TOLERANCE_NS
    return np.where((of_key[at] == key) & follows, at, -1)


# -- steps -----------------------------------------------------------------------------------------


_END, _LENGTH, _FP_START, _BP_END = (
    "Iteration End(us)",
    "Iteration Time(us)",
    "FP Start(us)",
    "BP End(us)",
)
_ITERATION, _GRAPH = "Iteration ID", "Model ID"
_COLUMNS = (_ITERATION, _FP_START, _BP_END, _END, _LENGTH)
_REDUCE_START = "Reduce Start"


def read_step_table(path: Path, device: int | None, damage: LossLog) -> tuple[Steps, StepParts]:
    """Read a table of steps; with a device, only its rows.

    A step starts at Iteration End minus Iteration Time. Rows are ragged: each has a pair of columns
    for each of its reduces. N/A and 0 in FP Start and BP End mean none.

    Raises:
        SourceError: the file cannot be read or lacks a column.
    """
    steps, parts = [], []
    for block in read_blocks(path, None, _COLUMNS, damage):
        end_ns, length_ns = parse_times_ns(block.cells(_END)), parse_times_ns(block.cells(_LENGTH))
        iteration = block.integers(_ITERATION, NO_ID)
        of_device = select_device_rows(block, device)
        good = of_device & (end_ns > 0) & (length_ns >= 0) & (iteration >= 0)
        damage.add_lines("rows without a step, an end and a length", block.lines[of_device & ~good])
        block_steps = Steps.of(
            len(block),
            graph=block.integers(_GRAPH, NO_GRAPH),
            iteration=iteration,
            start_ns=end_ns - np.where(good, length_ns, 0),
            end_ns=end_ns,
            fp_start_ns=_marks_ns(block, _FP_START),
            bp_end_ns=_marks_ns(block, _BP_END),
        )
        steps.append(block_steps.take(good))
        parts += _reduces(block, block_steps, good)
    return Steps.concat(steps), StepParts.concat(parts)


def _marks_ns(block: Block, key: str) -> Int64:
    time_ns = parse_times_ns(block.cells(key))
    return np.where(time_ns > 0, time_ns, NO_TIME)


def _reduces(block: Block, steps: Steps, good: Bool) -> list[StepParts]:
    """Return the reduces of good rows, one table per column; rows may be longer than the header."""
    names = (at for at, name in enumerate(block.header) if name.startswith(_REDUCE_START))
    first = next(names, None)
    if first is None:
        return []
    parts = []
    for number, place in enumerate(range(first, int(block.cells_of.max(initial=0)) - 1, 2)):
        start_ns, end_ns = interval_ns(block.cells(place), block.cells(place + 1))
        count = len(block)
        reduces = StepParts.of(
            count,
            graph=steps.graph,
            iteration=steps.iteration,
            number=number,
            kind=StepPart.REDUCE,
            start_ns=start_ns,
            end_ns=end_ns,
        )
        parts.append(reduces.take(good & (start_ns > 0)))
    return parts


def distinct_steps(steps: Steps) -> Steps:
    """Return one row per graph and iteration, since several files repeat the step trace."""
    return steps.take(group_by(len(steps), (steps.graph, steps.iteration)).first)


def distinct_parts(parts: StepParts) -> StepParts:
    """Return one row per part of a step."""
    keys = (parts.graph, parts.iteration, parts.kind, parts.number, parts.start_ns)
    return parts.take(group_by(len(parts), keys).first)
