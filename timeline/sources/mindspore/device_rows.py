"""Device tasks from output_timeline_data_N.txt and aicpu_intermediate_N.csv."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from timeline.columns.columns import Int64, TableBuilder
from timeline.columns.constant import constant
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Omission, Tasks
from timeline.sources.common.decimals import interval_ns_of_milliseconds, moments_ns
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.csv_blocks import Block, RowShape, read_blocks, read_last_cells

__all__ = ["AI_CORE", "AI_CPU", "read_aicpu_rows", "read_device_rows"]

AI_CORE, AI_CPU = "AI_CORE", "AI_CPU"
_FIELDS = ("op_name", "stream_id", "start_time", "duration")
_NO_LENGTH = b"N/A"


def read_device_rows(
    path: Path, strings: StringPool, rank: int
) -> tuple[Tasks, tuple[Omission, ...]]:
    """Read the AI Core tasks: name, stream, start and duration by line.

    Both times are milliseconds, whatever unit the header names (MindSpore 2.1 and 2.2 write "us"
    above milliseconds). A line is split from its end, because older versions do not quote names.

    Raises:
        SourceError: the file cannot be read, is empty, or holds no line of that shape.
    """
    damage = LossLog(path)
    builder = TableBuilder(Tasks)
    for block in read_last_cells(path, _FIELDS, damage):
        lengths = [cell or _NO_LENGTH for cell in block.cells("duration")]
        start_ns, end_ns = interval_ns_of_milliseconds(block.cells("start_time"), lengths)
        good = start_ns != NO_TIME
        damage.add_lines("rows without a start and a duration", block.lines[~good])
        columns = {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "stream": block.integers("stream_id", NO_ID),
            "name": block.codes("op_name", strings, str.strip),
            "task_type": constant(strings.code(AI_CORE), len(block), np.int32),
            "compute": constant(True, len(block), np.bool_),
        }
        builder.add(Tasks.of(len(block), columns).take(good))
    tasks = builder.build()
    if not len(tasks) and damage.rows:
        raise SourceError(
            path,
            f"holds no device task: none of its lines has {len(_FIELDS)} fields with two times.",
            do="Expected op_name, stream_id, start_time(ms), duration(ms).",
        )
    return tasks, damage.omissions(rank)


def read_aicpu_rows(
    path: Path, strings: StringPool, rank: int
) -> tuple[Tasks, tuple[Omission, ...]]:
    """Read the AI CPU tasks.

    Start and end are microseconds of the device clock; MindSpore 2.1 and 2.2, which call the
    second column op_type, write milliseconds, and an end that includes the wait before the start,
    so there the execution time is the duration.

    Raises:
        SourceError: the file cannot be read or has no column of starts.
    """
    damage = LossLog(path)
    builder = TableBuilder(Tasks)
    for block in read_blocks(path, None, ("run_start",), damage, RowShape.ENDED):
        start_ns, end_ns = _times_ns(block)
        good = (start_ns != NO_TIME) & (end_ns != NO_TIME)
        damage.add_lines("rows without a start and an end", block.lines[~good])
        names = block.codes(
            "kernel_type" if "kernel_type" in block else "op_type", strings, str.strip
        )
        columns = {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "name": names,
            "op_type": names,
            "task_type": constant(strings.code(AI_CPU), len(block), np.int32),
            "compute": constant(True, len(block), np.bool_),
        }
        builder.add(Tasks.of(len(block), columns).take(good))
    return builder.build(), damage.omissions(rank)


def _times_ns(block: Block) -> tuple[Int64, Int64]:
    starts = block.cells("run_start")
    if "op_type" in block:
        lengths = [cell or _NO_LENGTH for cell in block.cells("execution_time")]
        return interval_ns_of_milliseconds(starts, lengths)
    return moments_ns(starts), moments_ns(block.cells("run_end"))
