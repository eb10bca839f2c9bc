"""Turns output_timeline_data_N.txt and aicpu_intermediate_N.csv into device tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from timeline.errors import SourceError
from timeline.records.columns import Int64, Pile, constant
from timeline.records.strings import StringPool
from timeline.records.tables import NO_ID, NO_TIME, Omission, Tasks
from timeline.sources.microseconds import interval_ns, milliseconds_ns
from timeline.sources.opened import open_binary
from timeline.sources.text_rows import omitted_rows, read_text_rows

__all__ = ["AI_CORE", "AI_CPU", "read_aicpu_rows", "read_device_rows"]

BLOCK_BYTES = 4 * 1024 * 1024
AI_CORE, AI_CPU = "AI_CORE", "AI_CPU"
_FIELDS = 4
_HEADER = b"op_name"
_UTF8_MARK = b"\xef\xbb\xbf"


def read_device_rows(
    path: Path, strings: StringPool, rank: int
) -> tuple[Tasks, tuple[Omission, ...]]:
    """Read the AI Core tasks: name, stream, start and duration by line.

    Both times are milliseconds, whatever unit the header names (MindSpore 2.1 and 2.2 write "us"
    above milliseconds). A line is split from its end, because older versions do not quote names.

    Raises:
        SourceError: the file cannot be read, is empty, or holds no line of that shape.
    """
    reader = _DeviceRows(strings)
    try:
        for lines in _blocks_of_lines(path):
            reader.add(lines)
    except OSError as error:
        raise SourceError(path, f"cannot be read: {error.strerror}.") from error
    if not reader.lines:
        raise SourceError(path, "is empty.", offset=0)
    tasks = reader.tasks()
    if not len(tasks) and reader.bad:
        raise SourceError(
            path,
            f"holds no device task: none of its lines has {_FIELDS} fields with two times.",
            do="Expected op_name, stream_id, start_time(ms), duration(ms).",
        )
    return tasks, omitted_rows(path, reader.bad, rank)


def _blocks_of_lines(path: Path) -> Iterator[list[bytes]]:
    """The lines of a file with their ends, some thousands at a time."""
    with open_binary(path) as file:
        while lines := file.readlines(BLOCK_BYTES):
            yield lines


class _DeviceRows:
    """Lines become columns block by block."""

    def __init__(self, strings: StringPool) -> None:
        self._strings = strings
        self._names: dict[bytes, int] = {}
        self._streams: dict[bytes, int] = {}
        self._pile = Pile(Tasks)
        self.lines = 0
        self.bad: list[int] = []

    def add(self, lines: list[bytes]) -> None:
        first = self.lines
        self.lines += len(lines)
        if not first:
            lines[0] = lines[0].removeprefix(_UTF8_MARK)
        rows = [line.strip().rsplit(b",", _FIELDS - 1) for line in lines]
        if not lines[-1].endswith(b"\n"):
            # Its last field may lack digits.
            rows[-1] = rows[-1][: _FIELDS - 1]
        numbers = np.arange(first + 1, self.lines + 1)
        whole = np.array([len(row) for row in rows]) == _FIELDS
        if not whole.all():
            empty = np.array([row == [b""] for row in rows])
            self.bad += numbers[~whole & ~empty].tolist()
            rows, numbers = [row for row in rows if len(row) == _FIELDS], numbers[whole]
        if len(numbers) and numbers[0] == 1 and rows[0][0].strip(b'" ') == _HEADER:
            rows, numbers = rows[1:], numbers[1:]
        if rows:
            self._add_rows(rows, numbers)

    def _add_rows(self, rows: list[list[bytes]], numbers: Int64) -> None:
        names, streams, starts, durations = (list(column) for column in zip(*rows, strict=True))
        start_ns, end_ns = milliseconds_ns(starts, durations)
        good = start_ns != NO_TIME
        if b"" in (text.strip() for text in set(durations)):
            good &= np.array([text.strip() != b"" for text in durations], np.bool_)
        self.bad += numbers[~good].tolist()
        table = Tasks.of(
            len(rows),
            {
                "start_ns": start_ns,
                "end_ns": end_ns,
                "stream": _looked_up(self._streams, streams, _stream),
                "name": _looked_up(self._names, names, self._name),
                "task_type": constant(self._strings.code(AI_CORE), len(rows), np.int32),
                "compute": constant(True, len(rows), np.bool_),
            },
        )
        self._pile.add(table.take(good))

    def _name(self, text: bytes) -> int:
        name = text.decode("utf-8", "replace").strip()
        if len(name) > 1 and name[0] == name[-1] == '"':
            name = name[1:-1].replace('""', '"')
        return self._strings.code(name)

    def tasks(self) -> Tasks:
        """All tasks so far."""
        return self._pile.joined()


def _stream(text: bytes) -> int:
    digits = text.strip()
    return int(digits) if digits.isdigit() and len(digits) < 19 else NO_ID


def _looked_up(
    known: dict[bytes, int], texts: list[bytes], find: Callable[[bytes], int]
) -> list[int]:
    """The number of each text, found once for each distinct one."""
    for text in dict.fromkeys(texts):
        if text not in known:
            known[text] = find(text)
    return [known[text] for text in texts]


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
    table = read_text_rows(path)
    if "run_start" not in table.header:
        found = ", ".join(table.header)
        raise SourceError(path, f"has no column run_start; found {found}.")
    starts = [cell.encode() for cell in table.column("run_start")]
    if "op_type" in table.header:
        lengths = [cell.encode() for cell in table.column("execution_time")]
        start_ns, end_ns = milliseconds_ns(starts, lengths)
        whole = np.array([length != b"" for length in lengths], np.bool_)
    else:
        ends = [cell.encode() for cell in table.column("run_end")]
        start_ns, end_ns = _both_ns(starts, ends)
        whole = np.ones(len(starts), np.bool_)
    names = strings.codes(table.column("kernel_type", "op_type"))
    good = (start_ns != NO_TIME) & (end_ns != NO_TIME) & whole
    tasks = Tasks.of(
        len(starts),
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "name": names,
            "op_type": names,
            "task_type": constant(strings.code(AI_CPU), len(starts), np.int32),
            "compute": constant(True, len(starts), np.bool_),
        },
    )
    bad = [table.lines[row] for row in np.flatnonzero(~good).tolist()]
    return tasks.take(good), omitted_rows(path, bad, rank)


def _both_ns(starts: list[bytes], ends: list[bytes]) -> tuple[Int64, Int64]:
    none = [b""] * len(starts)
    return interval_ns(starts, none)[0], interval_ns(ends, none)[0]
