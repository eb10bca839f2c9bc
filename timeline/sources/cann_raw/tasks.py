"""The intervals in which tasks ran, from the records of a device's task logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, ColumnTable, Rows, TableBuilder, column
from timeline.sources.cann_raw.slices import (
    Log,
    RecordArray,
    RecordReader,
    UInt64,
    record_layout,
)

MAGIC = 0x6BD3
"""The second word of every record of HWTS and STARS."""
STREAMS_OF_HARDWARE = 2048
SUBTASK = np.uint64(1 << 63)
"""Set in the key of a sub-task of an FFTS+ task."""
_STREAM, _TASK, _CONTEXT = np.uint64(48), np.uint64(32), np.uint64(16)
"""Where ids lie in a key; the thread of a sub-task fills the lowest bits."""

UInt16 = npt.NDArray[np.uint16]


class TaskMarks(ColumnTable):
    """Starts and ends of tasks as recorded: the ids in one key, the counter, and the task type."""

    key: UInt64 = column(np.uint64)
    ticks: UInt64 = column(np.uint64)
    kind: npt.NDArray[np.uint8] = column(np.uint8)
    is_end: Bool = column(np.bool_)


@dataclass(frozen=True)
class TaskIntervals:
    """Tasks that started and ended, and how many did only one of both.

    start_ticks, end_ticks, key, kind: (n,), in order of key and start; others: records of the log
    that are of something else than tasks.
    """

    start_ticks: UInt64
    end_ticks: UInt64
    key: UInt64
    kind: npt.NDArray[np.uint8]
    unfinished: int
    unstarted: int
    others: int


@dataclass(frozen=True)
class TaskLog:
    """A log of tasks: its records, what they say, and the names of its task types.

    knows_streams: whether its records name the stream; those of chip V6 leave that to the host.
    """

    log: Log
    marks: Callable[[RecordArray], TaskMarks]
    types: Mapping[int, str]
    knows_streams: bool = True

    def ids(self, key: UInt64) -> tuple[UInt64, UInt64, UInt64]:
        """Stream, task and context of keys; 0 for what they do not hold."""
        low = np.uint64(0xFFFF)
        if not self.knows_streams:
            none = np.zeros(len(key), np.uint64)
            return none, key >> _CONTEXT, none
        plain = key & ~SUBTASK
        return plain >> _STREAM, (plain >> _TASK) & low, (plain >> _CONTEXT) & low


def _has_magic(records: RecordArray) -> Bool:
    found: Bool = records["magic"] == MAGIC
    return found


_SHARED_TYPES = {
    0: "AI_CORE",
    1: "AI_CPU",
    2: "AI_VECTOR_CORE",
    3: "PLACE_HOLDER",
    4: "EVENT_RECORD",
    5: "EVENT_WAIT",
    6: "NOTIFY_RECORD",
    7: "NOTIFY_WAIT",
    8: "WRITE_VALUE",
}
_HWTS_TYPES = _SHARED_TYPES | {9: "SDMA"}
_STARS_TYPES = _SHARED_TYPES | {
    9: "VQ6",
    10: "TOF",
    11: "SDMA",
    12: "VPC",
    13: "JPEGE",
    14: "JPEGD",
    15: "DSA",
    16: "ROCCE",
    17: "PCIE_DMA",
    18: "HOST_CPU",
    19: "CDQM",
    20: "C_CORE",
}
_V6_TYPES = {
    0: "AI_CORE",
    1: "AI_VECTOR_CORE",
    2: "FUSION",
    3: "PLACE_HOLDER",
    4: "AICPU_H",
    5: "AICPU_D",
    6: "NOTIFY_RECORD",
    7: "NOTIFY_WAIT",
    8: "WRITE_VALUE",
    9: "UBDMA",
    10: "ASYNCDMA",
    11: "SDMA",
    12: "VPC",
    13: "JPEGE",
    14: "JPEGD",
    15: "CMO",
    16: "CCU",
    20: "CONDITION",
    21: "END",
}
SUBTASK_TYPES = {
    0: "AIC",
    1: "AIV",
    3: "NOTIFY_WAIT",
    4: "NOTIFY_RECORD",
    5: "WRITE_VALUE",
    6: "MIX_AIC",
    7: "MIX_AIV",
    8: "SDMA",
    9: "DATA_CONTEXT",
    10: "INVALIDATE_DATA_CONTEXT",
    11: "WRITEBACK_DATA_CONTEXT",
    12: "AI_CPU",
    13: "LOAD_CONTEXT",
    15: "DSA",
}
"""Of the sub-tasks of an FFTS+ task."""

_HWTS = record_layout(
    64,
    head=(0, "u1"),
    kind=(1, "u1"),
    magic=(2, "<u2"),
    task=(6, "<u2"),
    ticks=(8, "<u8"),
    stream=(16, "<u4"),
)
_STARS_FIELDS = {
    "head": (0, "<u2"),
    "magic": (2, "<u2"),
    "stream": (4, "<u2"),
    "task": (6, "<u2"),
    "ticks": (8, "<u8"),
    "subtask": (16, "<u2"),
    "context": (18, "<u2"),
    "thread": (22, "<u2"),
}
_STARS, _STARS_V6 = record_layout(64, **_STARS_FIELDS), record_layout(32, **_STARS_FIELDS)
_TASK_START, _TASK_END = 0, 1
_SUBTASK_START, _SUBTASK_END = 0b100010, 0b100011


def hwts_log() -> TaskLog:
    """The log of chips that schedule by HWTS (910A, 310): `hwts.data`."""
    return TaskLog(Log("hwts", _HWTS, _has_magic), _hwts_marks, _HWTS_TYPES)


def stars_log(*, is_v6: bool, expanded_streams: bool) -> TaskLog:
    """The log of chips that schedule by STARS (910B and later): `stars_soc.data`.

    Args:
        is_v6: whether the records are those of chip V6.
        expanded_streams: whether stream ids have 15 bits, and not 11.
    """
    if is_v6:
        return TaskLog(Log("stars_soc", _STARS_V6, _has_magic), _v6_marks, _V6_TYPES, False)
    return TaskLog(
        Log("stars_soc", _STARS, _has_magic),
        lambda records: _stars_marks(records, expanded_streams),
        _STARS_TYPES,
    )


def _marks(records: RecordArray, key: UInt64, kind: npt.NDArray[Any], is_end: Bool) -> TaskMarks:
    return TaskMarks(key, records["ticks"].astype(np.uint64), kind.astype(np.uint8), is_end)


def _hwts_marks(records: RecordArray) -> TaskMarks:
    function = records["head"] & 7
    tasks = records[function <= _TASK_END]
    key = (tasks["stream"] % STREAMS_OF_HARDWARE).astype(np.uint64) << _STREAM
    key |= tasks["task"].astype(np.uint64) << _TASK
    return _marks(tasks, key, tasks["kind"], tasks["head"] & 7 == _TASK_END)


def _stars_marks(records: RecordArray, expanded: bool) -> TaskMarks:
    function = records["head"] & 63
    tasks = records[np.isin(function, (_TASK_START, _TASK_END, _SUBTASK_START, _SUBTASK_END))]
    function, kind = tasks["head"] & 63, tasks["head"] >> 10
    stream, task = (_expanded_ids if expanded else _ids)(tasks["stream"], tasks["task"], kind)
    key = stream.astype(np.uint64) << _STREAM | task.astype(np.uint64) << _TASK
    inside = function >= _SUBTASK_START
    part = (
        tasks["context"].astype(np.uint64) << _CONTEXT | tasks["thread"].astype(np.uint64) | SUBTASK
    )
    key = np.where(inside, key | part, key)
    kind = np.where(inside, tasks["subtask"] & 255, kind)
    return _marks(tasks, key, kind, function & 1 == 1)


def _v6_marks(records: RecordArray) -> TaskMarks:
    function = records["head"] & 63
    tasks = records[function <= _TASK_END]
    task = tasks["task"].astype(np.uint64) << np.uint64(16) | tasks["stream"].astype(np.uint64)
    return _marks(tasks, task << _CONTEXT, tasks["head"] >> 10, tasks["head"] & 63 == _TASK_END)


def _ids(stream: UInt16, task: UInt16, kind: npt.NDArray[Any]) -> tuple[UInt16, UInt16]:
    """Stream and task from their fields, which the hardware uses for each other's bits."""
    bit_12, bit_13 = stream & 0x1000 != 0, stream & 0x2000 != 0
    swapped = bit_13 & ~bit_12
    return (
        np.where(swapped, task & 0x0FFF, stream) % np.uint16(STREAMS_OF_HARDWARE),
        np.where(
            bit_12,
            task & 0x1FFF | stream & 0xE000,
            np.where(swapped, stream & 0x0FFF | task & 0xF000, task),
        ),
    )


def _expanded_ids(stream: UInt16, task: UInt16, kind: npt.NDArray[Any]) -> tuple[UInt16, UInt16]:
    """Ids of tasks where those of streams have 15 bits; place holders and events never swap."""
    swapped = (stream & 0x8000 != 0) & (kind != 3) & (kind != 4)
    return (
        np.where(swapped, task, stream) & np.uint16(0x7FFF),
        np.where(swapped, task & 0x8000 | stream & 0x7FFF, task),
    )


def read_intervals(log: TaskLog, reader: RecordReader) -> TaskIntervals:
    """Read a log, block by block, and match its starts and ends.

    Raises:
        SourceError: a slice cannot be read.
    """
    builder = TableBuilder(TaskMarks)
    others = 0
    for records in reader.blocks():
        marks = log.marks(records)
        others += len(records) - len(marks)
        builder.add(marks)
    return match_marks(builder.build(), others)


def match_marks(marks: TaskMarks, others: int = 0) -> TaskIntervals:
    """Match starts and ends: an end belongs to the start right before it with the same ids.

    So a start that another one follows has lost its end, as msprof has it too. Records of one
    tick keep their order.
    """
    order: Rows = np.lexsort((marks.ticks, marks.key))
    key, is_end = marks.key[order], marks.is_end[order]
    found = np.flatnonzero(~is_end[:-1] & is_end[1:] & (key[:-1] == key[1:]))
    starts, ends = order[found], order[found + 1]
    last = int(np.count_nonzero(is_end))
    return TaskIntervals(
        marks.ticks[starts],
        marks.ticks[ends],
        marks.key[starts],
        marks.kind[starts],
        unfinished=len(marks) - last - len(found),
        unstarted=last - len(found),
        others=others,
    )
