"""Tasks of AI CPUs: the raw log in its textual and binary form, and what MindSpore made of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
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
from timeline.sources.beside.delimited import MOST, MOST_MOMENT_NS, TablesBuilder, Unit, quantity
from timeline.sources.beside.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.beside.framework import read_tasks
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.losses import LossLog
from timeline.sources.files.opened import read_whole_file

TICK_NS, MICROSECOND_NS = 10, 1000
BINARY_MARK = b"\x5a\x5a"
MAGIC = 0x5A5A
LARGEST_OPERATOR_TASK = 25_000
"""From this id on tasks are of the runtime, which runs no operator for them."""
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
"""Microseconds and, in newer versions, ticks; some versions leave out the s."""
_RUN_END = re.compile(r"Run end:\s*(\d{1,18})(?: +(\d{1,18}))?")
_THREAD = re.compile(r"Thread\[\s*(\d{1,9})\]")
_TICKS = re.compile(r"tickBeforeRun=(\d{1,18})\b.*?tickAfterRun=(\d{1,18})\b")
_LENGTHS = re.compile(r"dispatchTime=(\d{1,15}) us.*?totalTime=(\d{1,15}) us")
_UNIT = re.compile(r"total_time\((us|ms)\)")
_UNITS = {"us": Unit.MICROSECONDS, "ms": Unit.MILLISECONDS}
_LEAST_CELLS = 6


class AicpuTasks(Spans):
    """Tasks that AI CPUs ran, a row each, in order of the file.

    kind: the type of the operator. start_ns, end_ns: on the counter of the device, NO_TIME where
    the file has lengths only.
    """

    name: Codes = column(np.int32, NO_NAME)
    """The full name of the operator, NO_NAME where only its thread is known."""
    kind: Codes = column(np.int32, NO_NAME)
    """The type of the operator: the last part of its name, without a number."""
    stream: Int64 = column(np.int64, NO_ID)
    task: Int64 = column(np.int64, NO_ID)
    thread: Int64 = column(np.int64, NO_ID)
    total_ns: Int64 = column(np.int64, NO_TIME)
    """From the moment at which the driver was notified, to the end of the run."""
    dispatch_ns: Int64 = column(np.int64, NO_TIME)
    """Until a thread began."""
    run_ns: Int64 = column(np.int64, NO_TIME)
    """What the operator took as it says itself, else what its thread took for it."""


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
        """Return whether it ends behind its start, with possible lengths and timestamps."""
        lengths_ns = (self.end_ns - self.start_ns, self.total_ns, self.dispatch_ns)
        return self.end_ns <= MOST_MOMENT_NS and all(0 <= one <= MOST for one in lengths_ns)


def read_aicpu_tasks(files: NumberedFiles, into: TablesBuilder) -> AicpuTasks:
    """Read the tasks in the log of a rank, else in what MindSpore made of it.

    into: takes what is damaged; names are codes of its strings.
    """
    log, parsed = (
        files.get(kind, ()) for kind in (NumberedFile.AICPU_LOG, NumberedFile.AICPU_TEXT)
    )
    for path in (log or parsed)[:1]:
        with into.reading(path) as losses:
            if log:
                data = b"".join(map(read_whole_file, log))
                if data.startswith(BINARY_MARK):
                    described = files.get(NumberedFile.TASK_DESCRIPTIONS, ())
                    return _table(_tasks_of_binary(data, described, losses), into.strings)
                return _table(_tasks_of_text(data, losses), into.strings)
            return _table(_tasks_of_parsed(path, losses), into.strings)
    return AicpuTasks.empty()


def _table(found: Iterable[_Task], strings: StringPool) -> AicpuTasks:
    tasks = [*found]
    if not tasks:
        return AicpuTasks.empty()
    columns = dict(zip(_Task._fields, zip(*tasks, strict=True), strict=True))
    run_ns = [NO_TIME if one.start_ns == NO_TIME else one.end_ns - one.start_ns for one in tasks]
    names = [one.name for one in tasks]
    coded = {"name": strings.codes(names), "kind": strings.codes(map(type_of_name, names))}
    return AicpuTasks.of(len(tasks), columns | coded, run_ns=run_ns)


def type_of_name(name: str) -> str:
    """Return the last part of a full name, without its number."""
    return name.rpartition("/")[2].partition("-")[0]


# -- text ------------------------------------------------------------------------------------------


def _tasks_of_text(data: bytes, losses: LossLog) -> Iterator[_Task]:
    """Return tasks: each a record of its thread, behind one of its operator if there is one."""
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
    lengths, ticks, number = (one.search(thread) for one in (_LENGTHS, _TICKS, _THREAD))
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
            start_ns, end_ns = _moment_of(begin), _moment_of(end)
    dispatch_us, total_us = map(int, lengths.groups())
    found = _Task(
        name,
        start_ns,
        end_ns,
        total_us * MICROSECOND_NS,
        dispatch_us * MICROSECOND_NS,
        int(number[1]) if number else NO_ID,
    )
    return found if found.is_possible() else None


def _moment_of(found: re.Match[str]) -> int:
    """Return ticks where the line has them, else microseconds."""
    return int(found[1]) * MICROSECOND_NS if found[2] is None else int(found[2]) * TICK_NS


# -- what MindSpore made of it ---------------------------------------------------------------------


def _tasks_of_parsed(path: Path, losses: LossLog) -> Iterator[_Task]:
    """Return tasks of lines of a number, a type, its total and dispatch time, and its run.

    The run is its start and end in microseconds; newer versions write its length before them.

    Raises:
        SourceError: the file cannot be read.
    """
    unit = Unit.MILLISECONDS
    for number, line in enumerate(read_whole_file(path).decode("utf-8", "replace").split("\n"), 1):
        if found := _UNIT.search(line):
            unit = _UNITS[found[1]]
        cells = line.split()
        if not cells or whole_number(cells[0]) is None:
            continue
        lengths = [_length_ns(cell, unit) for cell in cells[2:4]]
        moments = [_length_ns(cell, Unit.MICROSECONDS) for cell in cells[-2:]]
        if len(cells) >= _LEAST_CELLS and NO_TIME not in (*lengths, *moments):
            task = _Task(cells[1], *moments, *lengths)
            if task.is_possible():
                yield task
                continue
        losses.add("lines that are no task", f"line {number}")


def _length_ns(cell: str, unit: Unit) -> int:
    length = quantity(cell, unit)
    return NO_TIME if length is None else int(length)


# -- binary ----------------------------------------------------------------------------------------


def _tasks_of_binary(data: bytes, described: Sequence[Path], losses: LossLog) -> Iterator[_Task]:
    """Return tasks of records, named by the host's descriptions of each stream and task.

    Raises:
        SourceError: there is no whole record.
    """
    count = len(data) // BINARY_RECORD.itemsize
    if not count:
        raise SourceError(losses.path, "holds no whole record.", offset=0)
    if len(data) % BINARY_RECORD.itemsize:
        losses.add("records that end early", f"byte {count * BINARY_RECORD.itemsize}")
    every = np.frombuffer(data, BINARY_RECORD, count)
    start_tick, end_tick = every["run_start_tick"], every["run_end_tick"]
    sound: Bool = (every["magic"] == MAGIC) & (start_tick <= end_tick)
    sound &= (end_tick <= MOST_MOMENT_NS // TICK_NS) & (end_tick - start_tick <= MOST // TICK_NS)
    if not sound.all():
        first = int(np.argmin(sound)) * BINARY_RECORD.itemsize
        losses.add("broken records", f"byte {first}", int(np.count_nonzero(~sound)))
    tasks = (one for path in described for one in read_tasks(path, LossLog(path)))
    names = {(stream, task): name for name, _, task, stream in tasks}
    for row in every[sound & (every["task"] < LARGEST_OPERATOR_TASK)]:
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


def with_aicpu_tasks(records: Records, files: NumberedFiles) -> Records:
    """Add tasks of AI CPUs by thread to records whose device tasks hold none.

    They are no device tasks: the log of the device may hold them too, and does not name them. Both
    are on the counter of the device. What is damaged in the log is counted where tables are read.
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
