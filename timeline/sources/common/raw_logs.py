"""Raw logs of a device, cut into slices: their records, and the tasks that these mark."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, ColumnTable, Rows, TableBuilder, column
from timeline.records.tables import Omission
from timeline.sources.common.losses import LossLog
from timeline.sources.files.opened import open_regular_file, source_errors_for

BLOCK_BYTES = 1 << 22
"""What is read of a slice at a time."""
ALIGNED_BYTES = 1 << 13
"""The beginning of a slice, with the place where its records begin."""
TRUSTED_FRACTION = 0.5
"""Where fewer records than this fraction are marked, they may begin elsewhere."""
_SLICE = re.compile(r"(.+)\.slice_(\d+)")
"""The name of a slice: that of its log, and its number."""

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


def _consecutive(slices: Sequence[Path]) -> Iterator[list[Path]]:
    """Slices without a gap between them: a record may begin in one and end in the next."""
    run: list[Path] = []
    before: tuple[Path, str, int] | None = None
    for path in slices:
        match = _SLICE.fullmatch(path.name)
        assert match is not None
        log, number = match[1], int(match[2])
        if run and before != (path.parent, log, number - 1):
            yield run
            run = []
        run.append(path)
        before = path.parent, log, number
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
    records say which.
    """

    log: Log
    slices: Sequence[Path]
    records: int = 0
    """Number of the records so far."""
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
        self.records += int(np.count_nonzero(good))
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


# -- tasks -----------------------------------------------------------------------------------------

MAGIC = 0x6BD3
"""The second word of every record of HWTS and STARS."""
HWTS_RECORD = record_layout(
    64,
    head=(0, "u1"),
    kind=(1, "u1"),
    magic=(2, "<u2"),
    task=(6, "<u2"),
    ticks=(8, "<u8"),
    stream=(16, "<u4"),
)
"""One record of the hardware task scheduler; head: its kind, a warning and a rolling count."""
TASK_START, TASK_END = 0, 1
"""Kinds of records of tasks."""


def has_magic(records: RecordArray) -> Bool:
    """Return a mask of the records with the mark of HWTS and STARS."""
    marked: Bool = records["magic"] == MAGIC
    return marked


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


def read_intervals(
    reader: RecordReader, marks_of: Callable[[RecordArray], TaskMarks]
) -> TaskIntervals:
    """Read a log, block by block, and match the starts and ends that its records are.

    Raises:
        SourceError: a slice cannot be read.
    """
    builder = TableBuilder(TaskMarks)
    others = 0
    for records in reader.blocks():
        marks = marks_of(records)
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
