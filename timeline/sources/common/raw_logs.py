"""Raw logs of a device, split into slices: their records, and the tasks that records delimit."""

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
"""The size of the blocks in which slices are read."""
ALIGNED_BYTES = 1 << 13
"""The bytes at the beginning of a slice that are searched for the start of its records."""
TRUSTED_FRACTION = 0.5
"""The least fraction of valid records at which an alignment of records is accepted."""
_SLICE = re.compile(r"(.+)\.slice_(\d+)")
"""The name of a slice: the name of its log, and its number."""

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
    """A kind of raw log: its name, the layout of its records, and the check for valid records."""

    name: str
    record: np.dtype[Any]
    is_record: Callable[[RecordArray], Bool]


def _consecutive(slices: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield runs of slices with consecutive numbers; a record may straddle two slices of a run."""
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
    """One pass over the slices of a log; damage is known when it is done.

    A record may straddle two slices. If the first slices are missing, the log begins with the end
    of a record; if the capture broke off, it ends with the beginning of one. The alignment with
    the most valid records decides which.
    """

    log: Log
    slices: Sequence[Path]
    records: int = 0
    """Number of valid records so far."""
    _damages: dict[Path, LossLog] = field(default_factory=dict)

    def blocks(self) -> Iterator[RecordArray]:
        """Yield the valid records in their order, block by block.

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
        """Yield the valid records of one slice; return the bytes of an incomplete last record.

        partial: that of the slice `before`. rest: the size of all slices modulo that of a record.
        """
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
                yield self._keep_valid(np.frombuffer(partial, self.log.record, whole), path, at)
                at += whole * size
                partial = partial[whole * size :]
                read = file.read(BLOCK_BYTES)
        return partial

    def _alignment(self, partial: bytes, read: bytes, rest: int) -> tuple[bool, int]:
        """Return whether a slice continues the partial record, and the number of bytes to skip."""
        start = read[:ALIGNED_BYTES]

        def fraction(choice: tuple[bool, int]) -> float:
            kept, skipped = choice
            return self._valid_fraction((partial if kept else b"") + start[skipped:])

        best = max([(True, 0), (not partial, 0 if partial else rest)], key=fraction)
        if fraction(best) < TRUSTED_FRACTION:
            # The previous slice is missing, or lost its end: try all alignments.
            elsewhere = ((not partial, skipped) for skipped in range(self.log.record.itemsize))
            best = max([best, *elsewhere], key=fraction)
        return best

    def _valid_fraction(self, data: bytes) -> float:
        whole = len(data) // self.log.record.itemsize
        if not whole:
            return 0.0
        return float(self.log.is_record(np.frombuffer(data, self.log.record, whole)).mean())

    def _keep_valid(self, records: RecordArray, path: Path, at: int) -> RecordArray:
        good = self.log.is_record(records)
        self.records += int(np.count_nonzero(good))
        if good.all():
            return records
        byte = at + int(np.argmin(good)) * self.log.record.itemsize
        self._note("records of an unknown kind", path, byte, int(np.count_nonzero(~good)))
        return records[good]

    def _leave_out(self, path: Path, byte: int, length: int) -> None:
        if length:
            self._note("parts of records", path, byte, 1)

    def _note(self, what: str, path: Path, byte: int, rows: int) -> None:
        damage = self._damages.setdefault(path, LossLog(path))
        damage.add(what, f"byte {max(byte, 0)}", rows)

    def omissions(self, rank: int) -> list[Omission]:
        """Return omissions of partial and invalid records, by file."""
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
"""A record of the hardware task scheduler; `head` packs its kind, a warning and a counter."""
TASK_START, TASK_END = 0, 1
"""Kinds of records at the start and end of a task."""


def has_magic(records: RecordArray) -> Bool:
    """Return a mask of the records with the magic word of HWTS and STARS."""
    marked: Bool = records["magic"] == MAGIC
    return marked


class TaskMarks(ColumnTable):
    """Starts and ends of tasks as recorded: ids packed into a key, counter, and task type."""

    key: UInt64 = column(np.uint64)
    ticks: UInt64 = column(np.uint64)
    kind: npt.NDArray[np.uint8] = column(np.uint8)
    is_end: Bool = column(np.bool_)


@dataclass(frozen=True)
class TaskIntervals:
    """Tasks that started and ended, in order of key and start.

    Args:
        start_ticks, end_ticks, key, kind: (n,) counter values, packed ids, and task type.
        unfinished: the number of starts without an end. unstarted: of ends without a start.
        others: the number of records in the log that do not start or end a task.
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
    """Read a log and match starts and ends of tasks.

    marks_of: returns the starts and ends among some records.

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
    """Match each end to the start directly before it with the same ids.

    A start that is followed by another start has lost its end, as in msprof. Records with the same
    tick keep their order.
    """
    order: Rows = np.lexsort((marks.ticks, marks.key))
    key, is_end = marks.key[order], marks.is_end[order]
    first = np.flatnonzero(~is_end[:-1] & is_end[1:] & (key[:-1] == key[1:]))
    starts, ends = order[first], order[first + 1]
    end_count = int(np.count_nonzero(is_end))
    return TaskIntervals(
        marks.ticks[starts],
        marks.ticks[ends],
        marks.key[starts],
        marks.kind[starts],
        unfinished=len(marks) - end_count - len(first),
        unstarted=end_count - len(first),
        others=others,
    )
