"""Reads the numbered slices of a raw log as blocks of its records."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool
from timeline.records.tables import Omission
from timeline.sources.cann_raw.format import SLICE
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
    """The layout of a record of `size` bytes: by name the offset and type of what is read of it."""
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
    """The names of the logs in a directory that are not read.

    Raises:
        SourceError: the directory cannot be read.
    """
    with source_errors_for(directory):
        names = [path.name for path in directory.iterdir() if not SLICE.fullmatch(path.name)]
    return sorted({match[1] for name in names if (match := _ANY_SLICE.fullmatch(name))})


def select_slices(slices: Sequence[Path], log: str) -> tuple[Path, ...]:
    """The slices of one log, in their order."""
    return tuple(path for path in slices if path.name.startswith(f"{log}.data."))


def find_missing_slices(slices: Sequence[Path]) -> list[str]:
    """The names of slices that are not there although earlier and later ones of the log are."""
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
        """The marked records in their order, block by block.

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
        """The records of one slice; returns what is left of its last one."""
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
        """Whether a slice ends the partial record before it, and how many bytes to skip."""
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
        """What was no whole record, and no record of this log, by file."""
        return [lost for damage in self._damages.values() for lost in damage.omissions(rank)]
