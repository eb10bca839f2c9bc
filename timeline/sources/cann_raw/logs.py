"""Raw logs of a device as blocks of records, and the intervals in which tasks ran."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, ColumnTable, Rows, TableBuilder, column
from timeline.records.tables import Omission
from timeline.sources.cann_raw import SLICE
from timeline.sources.common.losses import LossLog
from timeline.sources.files.opened import open_regular_file, source_errors_for

BLOCK_BYTES = 1 << 22
"""What is read of a slice at a time."""
ALIGNED_BYTES = 1 << 13
"""The beginning of a slice that tells where its records begin."""
TRUSTED_FRACTION = 0.5
"""Where fewer records than this fraction are marked, they may begin elsewhere."""
_ANY_SLICE = re.compile(r"(.+?)(?:\.\d+)?\.slice_\d+")

RecordArray = npt.NDArray[Any]
"""Whole records of a log: a structured array."""
UInt64 = npt.NDArray[np.uint64]


def record_layout(size: int, **fields: tuple[int, str]) -> np.dtype[Any]:
    """Return the layout of a record of `size` bytes; fields: offset and type by name."""
    return np.dtype(
        {
            "names": list(fields),
            "offsets": [offset for offset, _ in fields.values()],
            "formats": [form for _, form in fields.values()],
            "itemsize": size,
        }
    )


@dataclass(frozen=True)
class Log:
    """A raw log: its name, the layout of its records, and what marks a record as one of it."""

    name: str
    record: np.dtype[Any]
    is_record: Callable[[RecordArray], Bool]


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


def _consecutive(slices: Sequence[Path]) -> Iterator[list[Path]]:
    """Slices without a gap between them: a record may begin in one and end in the next."""
    run: list[Path] = []
    before: tuple[int, int] | None = None
    for path in slices:
        match = SLICE.fullmatch(path.name)
        assert match is not None
        device, number = int(match[2]), int(match[3])
        if run and before != (device, number - 1):
            yield run
            run = []
        run.append(path)
        before = device, number
    if run:
        yield run


def _size_bytes(path: Path) -> int:
    with source_errors_for(path):
        return path.stat().st_size


@dataclass
class RecordReader:
    """One pass over the slices of a log; what was no record is known when it is done.

    A record may straddle two slices. Where the first slices are gone, the rest of a record opens
    the log, and where the capture broke off, the beginning of one closes it: the marks of the
    records tell which.
    """

    log: Log
    slices: Sequence[Path]
    _damages: dict[Path, LossLog] = field(default_factory=dict)

    def blocks(self) -> Iterator[RecordArray]:
        """Return the marked records in their order, block by block.

        Raises:
            SourceError: a slice cannot be read.
        """
        for run in _consecutive(self.slices):
            partial, before = b"", run[0]
            rest = sum(map(_size_bytes, run)) % self.log.record.itemsize
            for path in run:
                with source_errors_for(path):
                    partial = yield from self._blocks_of(path, partial, before, rest)
                before, rest = path, 0
            self._leave_out(before, _size_bytes(before) - len(partial), len(partial))

    def _blocks_of(
        self, path: Path, partial: bytes, before: Path, rest: int
    ) -> Generator[RecordArray, None, bytes]:
        """Return the records of one slice; returns what is left of its last one."""
        size = self.log.record.itemsize
        with open_regular_file(path) as file:
            read = file.read(BLOCK_BYTES)
            kept, skipped = self._alignment(partial, read, rest)
            if not kept:
                self._leave_out(before, _size_bytes(before) - len(partial), len(partial))
                partial = b""
            self._leave_out(path, 0, skipped)
            read = read[skipped:]
            at = skipped - len(partial)
            while read:
                partial += read
                whole = len(partial) // size
                yield self._keep_marked(np.frombuffer(partial, self.log.record, whole), path, at)
                at += whole * size
                partial = partial[whole * size :]
                read = file.read(BLOCK_BYTES)
        return partial

    def _alignment(self, partial: bytes, read: bytes, rest: int) -> tuple[bool, int]:
        """Return whether a slice ends the partial record before it, and how many bytes to skip."""
        start = read[:ALIGNED_BYTES]

        def fraction(choice: tuple[bool, int]) -> float:
            kept, skipped = choice
            return self._marked_fraction((partial if kept else b"") + start[skipped:])

        best = max([(True, 0), (not partial, 0 if partial else rest)], key=fraction)
        if fraction(best) < TRUSTED_FRACTION:
            # The slice before is not there, or lost its end.
            elsewhere = ((not partial, skipped) for skipped in range(self.log.record.itemsize))
            best = max([best, *elsewhere], key=fraction)
        return best

    def _marked_fraction(self, data: bytes) -> float:
        whole = len(data) // self.log.record.itemsize
        if not whole:
            return 0.0
        return float(self.log.is_record(np.frombuffer(data, self.log.record, whole)).mean())

    def _keep_marked(self, records: RecordArray, path: Path, at: int) -> RecordArray:
        good = self.log.is_record(records)
        if good.all():
            return records
        byte = at + int(np.argmin(good)) * self.log.record.itemsize
        self._note("records of no known kind", path, byte, int(np.count_nonzero(~good)))
        return records[good]

    def _leave_out(self, path: Path, byte: int, length: int) -> None:
        if length:
            self._note("parts of records", path, byte, 1)

    def _note(self, what: str, path: Path, byte: int, rows: int) -> None:
        damage = self._damages.setdefault(path, LossLog(path))
        damage.add(what, f"byte {max(byte, 0)}", rows)

    def omissions(self, rank: int) -> list[Omission]:
        """Return what was no whole record, and no record of this log, by file."""
        return [lost for damage in self._damages.values() for lost in damage.omissions(rank)]


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
    """Return the log of chips that schedule by HWTS (910A, 310): `hwts.data`."""
    return TaskLog(Log("hwts", _HWTS, _has_magic), _hwts_marks, _HWTS_TYPES)


def stars_log(*, is_v6: bool, expanded_streams: bool) -> TaskLog:
    """Return the log of chips that schedule by STARS (910B and later): `stars_soc.data`.

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
