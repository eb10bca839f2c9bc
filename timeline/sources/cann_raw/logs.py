"""Raw logs of each generation of chips, and the tasks that their records mark."""

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
SUBTASK = np.uint64(1 << 63)
"""Set in the key of a sub-task of an FFTS+ task."""
_STREAM, _TASK, _CONTEXT = np.uint64(48), np.uint64(32), np.uint64(16)
"""Where ids lie in a key; the thread of a sub-task fills the lowest bits."""

UInt16 = npt.NDArray[np.uint16]


def find_other_logs(directory: Path) -> list[str]:
    """Return the names of the logs in a directory that are not read.

    Raises:
        SourceError: the directory cannot be read.
    """
    with source_errors_for(directory):
        names = [path.name for path in directory.iterdir() if not SLICE.fullmatch(path.name)]
    return sorted({match[1] for name in names if (match := _ANY_SLICE.fullmatch(name))})


def select_slices(slices: Sequence[Path], log: str) -> tuple[Path, ...]:
    """Return the slices of one log, in their order."""
    return tuple(path for path in slices if path.name.startswith(f"{log}.data."))


def find_missing_slices(slices: Sequence[Path]) -> list[str]:
    """Return the names of missing slices between those that are there."""
    found = []
    numbers: dict[str, list[int]] = {}
    for path in slices:
        stem, _, number = path.name.rpartition("_")
        numbers.setdefault(stem, []).append(int(number))
    for stem, of_log in numbers.items():
        for before, after in pairwise(of_log):
            if after == before + 2:
                found.append(f"{stem}_{before + 1}")
            elif after > before + 2:
                found.append(f"{stem}_{before + 1} to {after - 1}")
    return found


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
"""Of the sub-tasks of an FFTS+ task."""

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
    return TaskLog(Log("hwts", HWTS_RECORD, has_magic), _hwts_marks, _HWTS_TYPES)


def stars_log(*, is_v6: bool, expanded_streams: bool) -> TaskLog:
    """Return the log of chips that schedule by STARS (910B and later): `stars_soc.data`.

    Args:
        is_v6: whether the records are those of chip V6.
        expanded_streams: whether stream ids have 15 bits, and not 11.
    """
    if is_v6:
        return TaskLog(Log("stars_soc", _STARS_V6, has_magic), _v6_marks, _V6_TYPES, False)
    return TaskLog(
        Log("stars_soc", _STARS, has_magic),
        lambda records: _stars_marks(records, expanded_streams),
        _STARS_TYPES,
    )


def _marks(records: RecordArray, key: UInt64, kind: npt.NDArray[Any], is_end: Bool) -> TaskMarks:
    return TaskMarks(key, records["ticks"].astype(np.uint64), kind.astype(np.uint8), is_end)


def _hwts_marks(records: RecordArray) -> TaskMarks:
    function = records["head"] & 7
    tasks = records[function <= TASK_END]
    key = (tasks["stream"] % STREAMS_OF_HARDWARE).astype(np.uint64) << _STREAM
    key |= tasks["task"].astype(np.uint64) << _TASK
    return _marks(tasks, key, tasks["kind"], tasks["head"] & 7 == TASK_END)


def _stars_marks(records: RecordArray, expanded: bool) -> TaskMarks:
    function = records["head"] & 63
    tasks = records[np.isin(function, (TASK_START, TASK_END, _SUBTASK_START, _SUBTASK_END))]
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
    tasks = records[function <= TASK_END]
    task = tasks["task"].astype(np.uint64) << np.uint64(16) | tasks["stream"].astype(np.uint64)
    return _marks(tasks, task << _CONTEXT, tasks["head"] >> 10, tasks["head"] & 63 == TASK_END)


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
