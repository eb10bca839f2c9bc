"""Tasks of AI CPUs, from the textual or binary log or the table that MindSpore derives from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from timeline.columns.columns import Bool, Codes, Int64, column
from timeline.columns.strings import NO_NAME, StringPool
from timeline.errors import SourceError
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import AI_CPU, HostEvents, Records, Spans
from timeline.records.task_kinds import run_on_ai_cpu
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.delimited import MOST, MOST_TIME_NS, TablesBuilder, Unit, quantity
from timeline.sources.companions.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.companions.framework import read_tasks
from timeline.sources.files.opened import read_whole_file

TICK_NS, MICROSECOND_NS = 10, 1000
BINARY_MARK = b"\x5a\x5a"
MAGIC = 0x5A5A
FIRST_RUNTIME_TASK = 25_000
"""The first id of tasks of the runtime itself, which do not run operators."""
BINARY_RECORD = np.dtype(
    {
        "names": [
            *("magic", "stream", "task", "run_start_us", "run_start_tick"),
            *("run_end_us", "run_end_tick", "thread", "dispatch_us", "total_us"),
        ],
        "formats": ["<u2", "<u2", "<u2", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4"],
        "offsets": [0, 4, 6, 8, 16, 48, 56, 64, 108, 112],
        "itemsize": 128,
    }
)
_RECORD_END = re.compile(rb"[\0\n]+")
_NODE = re.compile(r"Node:\s*([^,]*)")
_RUN_START = re.compile(r"Run s?tart:\s*(\d{1,18})(?: +(\d{1,18}))?")
"""Microseconds and, in newer versions, ticks; some versions write tart for start."""
_RUN_END = re.compile(r"Run end:\s*(\d{1,18})(?: +(\d{1,18}))?")
_THREAD = re.compile(r"Thread\[\s*(\d{1,9})\]")
_TICKS = re.compile(r"tickBeforeRun=(\d{1,18})\b.*?tickAfterRun=(\d{1,18})\b")
_LENGTHS = re.compile(r"dispatchTime=(\d{1,15}) us.*?totalTime=(\d{1,15}) us")
_UNIT = re.compile(r"total_time\((us|ms)\)")
_UNITS = {"us": Unit.MICROSECONDS, "ms": Unit.MILLISECONDS}
_LEAST_CELLS = 6


class AicpuTasks(Spans):
    """Tasks that AI CPUs ran, in order of the file.

    start_ns and end_ns are on the counter of the device, NO_TIME if the file has only lengths.
    """

    name: Codes = column(np.int32, NO_NAME)
    """The full name of the operator, NO_NAME if only its thread is known."""
    kind: Codes = column(np.int32, NO_NAME)
    """The type of the operator: the last part of its name, without a number."""
    stream: Int64 = column(np.int64, NO_ID)
    task: Int64 = column(np.int64, NO_ID)
    thread: Int64 = column(np.int64, NO_ID)
    total_ns: Int64 = column(np.int64, NO_TIME)
    """Time from the notification of the driver to the end of the run."""
    dispatch_ns: Int64 = column(np.int64, NO_TIME)
    """Time from the notification of the driver to the start of a thread."""
    run_ns: Int64 = column(np.int64, NO_TIME)
    """Length of the run as recorded by the operator itself, else by its thread."""


class _Task(NamedTuple):
    name: str
    start_ns: int
    end_ns: int
    total_ns: int
    dispatch_ns: int
    thread: int = NO_ID
    stream: int = NO_ID
    task: int = NO_ID

    def is_possible(self) -> bool:
        """Return whether the task does not end before it starts, and its times are plausible."""
        lengths_ns = (self.end_ns - self.start_ns, self.total_ns, self.dispatch_ns)
        return self.end_ns <= MOST_TIME_NS and 0 <= min(lengths_ns) <= max(lengths_ns) <= MOST


def read_aicpu_tasks(files: NumberedFiles, into: TablesBuilder) -> AicpuTasks:
    """Read the tasks in the log of a rank, else in the table that MindSpore derived from it.

    into: collects damage; names of tasks are codes of its strings.
    """
    log, parsed = (
        files.get(kind, ()) for kind in (NumberedFile.AICPU_LOG, NumberedFile.AICPU_TEXT)
    )
    for path in (log or parsed)[:1]:
        with into.reading(path) as losses:
            data = b"".join(map(read_whole_file, log or parsed[:1]))
            descriptions = files.get(NumberedFile.TASK_DESCRIPTIONS, ())
            if not log:
                tasks = _tasks_of_parsed(data, losses)
            elif data.startswith(BINARY_MARK):
                tasks = _tasks_of_binary(data, descriptions, losses)
            else:
                tasks = _tasks_of_text(data, losses)
            return _table([*tasks], into.strings)
    return AicpuTasks.empty()


def _table(tasks: Sequence[_Task], strings: StringPool) -> AicpuTasks:
    if not tasks:
        return AicpuTasks.empty()
    columns = dict(zip(_Task._fields, zip(*tasks, strict=True), strict=True))
    spans_ns = [(task.start_ns, task.end_ns) for task in tasks]
    run_ns = [NO_TIME if start == NO_TIME else end - start for start, end in spans_ns]
    names = [task.name for task in tasks]
    coded = {"name": strings.codes(names), "kind": strings.codes(map(type_of_name, names))}
    return AicpuTasks.of(len(tasks), columns | coded, run_ns=run_ns)


def type_of_name(name: str) -> str:
    """Return the type of an operator: the last part of its full name, without its number."""
    return name.rpartition("/")[2].partition("-")[0]


# -- text ------------------------------------------------------------------------------------------


def _tasks_of_text(data: bytes, losses: LossLog) -> Iterator[_Task]:
    """Yield a task for each record of a thread, which may follow a record of its operator."""
    operator: str | None = None
    for number, part in enumerate(_RECORD_END.split(data), 1):
        text = part.decode("utf-8", "replace")
        if "Node:" in text:
            if operator is not None:
                losses.add("operators without the record of a thread", f"record {number}")
            operator = text
        elif "Thread[" in text:
            task = _task_of(text, operator)
            if task is None:
                losses.add("records of threads without times", f"record {number}")
            else:
                yield task
            operator = None
    if operator is not None:
        losses.add("operators without the record of a thread", "the end of the file")


def _task_of(thread: str, operator: str | None) -> _Task | None:
    """Parse the record of a thread and that of its operator; None if times are missing or wrong."""
    lengths, ticks, number = (pattern.search(thread) for pattern in (_LENGTHS, _TICKS, _THREAD))
    if lengths is None:
        return None
    start_ns = end_ns = NO_TIME
    if ticks is not None:
        start_ns, end_ns = (int(ticks[place]) * TICK_NS for place in (1, 2))
    name = ""
    if operator is not None:
        node = _NODE.search(operator)
        name = node[1].strip() if node else ""
        begin, end = _RUN_START.search(operator), _RUN_END.search(operator)
        if begin and end:
            start_ns, end_ns = _time_ns(begin), _time_ns(end)
    dispatch_us, total_us = map(int, lengths.groups())
    task = _Task(
        name,
        start_ns,
        end_ns,
        total_us * MICROSECOND_NS,
        dispatch_us * MICROSECOND_NS,
        int(number[1]) if number else NO_ID,
    )
    return task if task.is_possible() else None


def _time_ns(match: re.Match[str]) -> int:
    """Return the time in ns from ticks if the record has them, else from microseconds."""
    return int(match[1]) * MICROSECOND_NS if match[2] is None else int(match[2]) * TICK_NS


# -- MindSpore's table -----------------------------------------------------------------------------


def _tasks_of_parsed(data: bytes, losses: LossLog) -> Iterator[_Task]:
    """Yield tasks from lines of a number, a type, total and dispatch time, and start and end.

    Start and end are microseconds; newer versions write the length of the run before them.
    """
    unit = Unit.MILLISECONDS
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        if match := _UNIT.search(line):
            unit = _UNITS[match[1]]
        cells = line.split()
        if not cells or whole_number(cells[0]) is None:
            continue
        lengths_ns = [_length_ns(cell, unit) for cell in cells[2:4]]
        times_ns = [_length_ns(cell, Unit.MICROSECONDS) for cell in cells[-2:]]
        if len(cells) >= _LEAST_CELLS and NO_TIME not in (*lengths_ns, *times_ns):
            task = _Task(cells[1], *times_ns, *lengths_ns)
            if task.is_possible():
                yield task
                continue
        losses.add("lines that are not a task", f"line {number}")


def _length_ns(cell: str, unit: Unit) -> int:
    length = quantity(cell, unit)
    return NO_TIME if length is None else int(length)


# -- binary ----------------------------------------------------------------------------------------


def _tasks_of_binary(data: bytes, described: Sequence[Path], losses: LossLog) -> Iterator[_Task]:
    """Yield tasks from binary records, named by the host's files that describe tasks.

    Raises:
        SourceError: there is no whole record.
    """
    count = len(data) // BINARY_RECORD.itemsize
    if not count:
        raise SourceError(losses.path, "holds no whole record.", offset=0)
    if len(data) % BINARY_RECORD.itemsize:
        losses.add("records that end early", f"byte {count * BINARY_RECORD.itemsize}")
    records = np.frombuffer(data, BINARY_RECORD, count)
    start_tick, end_tick = records["run_start_tick"], records["run_end_tick"]
    sound: Bool = (records["magic"] == MAGIC) & (start_tick <= end_tick)
    sound &= (end_tick <= MOST_TIME_NS // TICK_NS) & (end_tick - start_tick <= MOST // TICK_NS)
    if not sound.all():
        first = int(np.argmin(sound)) * BINARY_RECORD.itemsize
        losses.add("broken records", f"byte {first}", int(np.count_nonzero(~sound)))
    descriptions = (task for path in described for task in read_tasks(path, LossLog(path)))
    names = {(stream, task): name for name, _, task, stream in descriptions}
    for row in records[sound & (records["task"] < FIRST_RUNTIME_TASK)]:
        stream, task = int(row["stream"]), int(row["task"])
        yield _Task(
            names.get((stream, task), ""),
            int(row["run_start_tick"]) * TICK_NS,
            int(row["run_end_tick"]) * TICK_NS,
            int(row["total_us"]) * MICROSECOND_NS,
            int(row["dispatch_us"]) * MICROSECOND_NS,
            int(row["thread"]),
            stream,
            task,
        )


UNNAMED = "not named"
"""The name of a task that the log does not name."""


def with_aicpu_tasks(records: Records, files: NumberedFiles) -> Records:
    """Add the tasks of AI CPUs as host events, unless device tasks already include AI CPU tasks.

    They are added by thread, not as device tasks, since the log of the device may hold them again
    without a name. Both are on the counter of the device. Damage is counted where the tables of
    operators are read.
    """
    if run_on_ai_cpu(records.tasks.task_type, records.strings).any():
        return records
    into = TablesBuilder(records.rank)
    tasks = read_aicpu_tasks(files, into)
    tasks = tasks.take(tasks.start_ns != NO_TIME)
    if not len(tasks):
        return records
    strings = records.strings
    names = {code: strings.code(into.strings[code]) for code in np.unique(tasks.name).tolist()}
    names[NO_NAME] = strings.code(UNNAMED)
    events = HostEvents.of(
        len(tasks),
        start_ns=tasks.start_ns,
        end_ns=tasks.end_ns,
        layer=strings.code(AI_CPU),
        thread=tasks.thread,
        name=[names[code] for code in tasks.name.tolist()],
    )
    return replace(records, host=HostEvents.concat([records.host, events]))
