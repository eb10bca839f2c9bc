"""Layouts of raw task logs by chip generation, and starts and ends of tasks from their records."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool
from timeline.sources.cann_raw import SLICE
from timeline.sources.common.raw_logs import (
    HWTS_RECORD,
    TASK_END,
    TASK_START,
    Log,
    RecordArray,
    TaskMarks,
    UInt64,
    has_magic,
    record_layout,
)
from timeline.sources.files.opened import source_errors_for

_ANY_SLICE = re.compile(r"(.+?)(?:\.\d+)?\.slice_\d+")
STREAMS_OF_HARDWARE = 2048
"""Number of streams of a chip whose stream ids have 11 bits."""
SUBTASK = np.uint64(1 << 63)
"""Bit of a task key that marks a sub-task of an FFTS+ task."""
_STREAM, _TASK, _CONTEXT = np.uint64(48), np.uint64(32), np.uint64(16)
"""First bits of the ids in a task key; the thread id of a sub-task fills the lowest 16 bits."""

UInt16 = npt.NDArray[np.uint16]


def find_other_logs(directory: Path) -> list[str]:
    """Return the names of logs in a directory that this package does not read.

    Raises:
        SourceError: the directory cannot be read.
    """
    with source_errors_for(directory):
        names = [path.name for path in directory.iterdir() if not SLICE.fullmatch(path.name)]
    return sorted({match[1] for name in names if (match := _ANY_SLICE.fullmatch(name))})


def select_slices(slices: Sequence[Path], log: str) -> tuple[Path, ...]:
    """Return the slices of one log, in the given order."""
    return tuple(path for path in slices if path.name.startswith(f"{log}.data."))


def find_missing_slices(slices: Sequence[Path]) -> list[str]:
    """Return the names of slices that are missing before existing ones, as names or ranges.

    slices: of any logs, each log's in order of their numbers, which count from 0.
    """
    missing = []
    numbers: dict[str, list[int]] = {}
    for path in slices:
        stem, _, number = path.name.rpartition("_")
        numbers.setdefault(stem, []).append(int(number))
    for stem, log_numbers in numbers.items():
        for before, after in pairwise([-1, *log_numbers]):
            if after == before + 2:
                missing.append(f"{stem}_{before + 1}")
            elif after > before + 2:
                missing.append(f"{stem}_{before + 1} to {after - 1}")
    return missing


@dataclass(frozen=True)
class TaskLog:
    """A log of task starts and ends: its record layout, decoder and names of task types.

    knows_streams: whether records hold the stream of a task; those of chip V6 do not.
    """

    log: Log
    marks: Callable[[RecordArray], TaskMarks]
    types: Mapping[int, str]
    knows_streams: bool = True

    def ids(self, key: UInt64) -> tuple[UInt64, UInt64, UInt64]:
        """Return stream, task and context ids from task keys; 0 if the log has no such id."""
        low = np.uint64(0xFFFF)
        if not self.knows_streams:
            zeros = np.zeros(len(key), np.uint64)
            return zeros, key >> _CONTEXT, zeros
        ids = key & ~SUBTASK
        return ids >> _STREAM, (ids >> _TASK) & low, (ids >> _CONTEXT) & low


_SHARED_TYPES = (
    *("AI_CORE", "AI_CPU", "AI_VECTOR_CORE", "PLACE_HOLDER", "EVENT_RECORD", "EVENT_WAIT"),
    *("NOTIFY_RECORD", "NOTIFY_WAIT", "WRITE_VALUE"),
)
_HWTS_TYPES = dict(enumerate((*_SHARED_TYPES, "SDMA")))
_STARS_TYPES = dict(
    enumerate(
        (
            *(*_SHARED_TYPES, "VQ6", "TOF", "SDMA", "VPC", "JPEGE", "JPEGD", "DSA", "ROCCE"),
            *("PCIE_DMA", "HOST_CPU", "CDQM", "C_CORE"),
        )
    )
)
_V6_TYPES = {
    **dict(
        enumerate(("AI_CORE", "AI_VECTOR_CORE", "FUSION", "PLACE_HOLDER", "AICPU_H", "AICPU_D"))
    ),
    **dict(enumerate(("NOTIFY_RECORD", "NOTIFY_WAIT", "WRITE_VALUE", "UBDMA", "ASYNCDMA"), 6)),
    **dict(enumerate(("SDMA", "VPC", "JPEGE", "JPEGD", "CMO", "CCU"), 11)),
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
"""Types of sub-tasks of FFTS+ tasks, by number."""

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
_SUBTASK_START, _SUBTASK_END = 0b100010, 0b100011


def hwts_log() -> TaskLog:
    """Return the log of chips that schedule by HWTS (910A, 310): `hwts.data`."""
    return TaskLog(Log("hwts", HWTS_RECORD, has_magic), _decode_hwts, _HWTS_TYPES)


def stars_log(*, is_v6: bool, expanded_streams: bool) -> TaskLog:
    """Return the log of chips that schedule by STARS (910B and later): `stars_soc.data`.

    Args:
        is_v6: whether records have the layout of chip V6.
        expanded_streams: whether stream ids have 15 bits instead of 11.
    """
    if is_v6:
        return TaskLog(Log("stars_soc", _STARS_V6, has_magic), _decode_v6, _V6_TYPES, False)
    return TaskLog(
        Log("stars_soc", _STARS, has_magic),
        lambda records: _decode_stars(records, expanded_streams),
        _STARS_TYPES,
    )


def _mark(records: RecordArray, key: UInt64, kind: npt.NDArray[Any], is_end: Bool) -> TaskMarks:
    return TaskMarks(key, records["ticks"].astype(np.uint64), kind.astype(np.uint8), is_end)


def _decode_hwts(records: RecordArray) -> TaskMarks:
    function = records["head"] & 7
    tasks = records[function <= TASK_END]
    key = (tasks["stream"] % STREAMS_OF_HARDWARE).astype(np.uint64) << _STREAM
    key |= tasks["task"].astype(np.uint64) << _TASK
    return _mark(tasks, key, tasks["kind"], tasks["head"] & 7 == TASK_END)


def _decode_stars(records: RecordArray, expanded: bool) -> TaskMarks:
    function = records["head"] & 63
    tasks = records[np.isin(function, (TASK_START, TASK_END, _SUBTASK_START, _SUBTASK_END))]
    function, kind = tasks["head"] & 63, tasks["head"] >> 10
    decode_ids = _decode_long_ids if expanded else _decode_ids
    stream, task = decode_ids(tasks["stream"], tasks["task"], kind)
    key = stream.astype(np.uint64) << _STREAM | task.astype(np.uint64) << _TASK
    is_subtask = function >= _SUBTASK_START
    subtask = (
        tasks["context"].astype(np.uint64) << _CONTEXT | tasks["thread"].astype(np.uint64) | SUBTASK
    )
    key = np.where(is_subtask, key | subtask, key)
    kind = np.where(is_subtask, tasks["subtask"] & 255, kind)
    return _mark(tasks, key, kind, function & 1 == 1)


def _decode_v6(records: RecordArray) -> TaskMarks:
    function = records["head"] & 63
    tasks = records[function <= TASK_END]
    task = tasks["task"].astype(np.uint64) << np.uint64(16) | tasks["stream"].astype(np.uint64)
    return _mark(tasks, task << _CONTEXT, tasks["head"] >> 10, tasks["head"] & 63 == TASK_END)


def _decode_ids(stream: UInt16, task: UInt16, kind: npt.NDArray[Any]) -> tuple[UInt16, UInt16]:
    """Return stream and task ids from the two fields of a record.

    If bit 12 of the stream field is set, its upper three bits belong to the task id; if only bit 13
    is set, the lower 12 bits of both fields are exchanged.
    """
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


def _decode_long_ids(stream: UInt16, task: UInt16, kind: npt.NDArray[Any]) -> tuple[UInt16, UInt16]:
    """Return stream and task ids if stream ids have 15 bits.

    If bit 15 of the stream field is set, the lower 15 bits of both fields are exchanged, except in
    place holders (3) and event records (4).
    """
    swapped = (stream & 0x8000 != 0) & (kind != 3) & (kind != 4)
    return (
        np.where(swapped, task, stream) & np.uint16(0x7FFF),
        np.where(swapped, task & 0x8000 | stream & 0x7FFF, task),
    )
