"""Queues, the pipeline and processors of the preparation of data, as tables and as counters."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from timeline.columns.columns import Bool, Float64, Int64
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import (
    PipelineOperations,
    ProcessorUse,
    ProcessorUser,
    Queue,
    QueueRecords,
)
from timeline.records.tables import OmissionCode
from timeline.sources.beside.delimited import (
    MOST,
    UNREADABLE,
    Cell,
    TablesBuilder,
    parse_json,
    read_texts,
    table_of_rows,
)
from timeline.sources.beside.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.common.decimals import (
    interval_ns_of_milliseconds,
    moments_ns,
    real,
    whole_number,
    whole_numbers,
)
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.csv_blocks import Lines, read_lines
from timeline.sources.decoders.json_values import read_json
from timeline.sources.files.opened import open_profile_file

ROOT = 0
"""The operation that the network takes from; what is not below it feeds no queue that counts."""
_TIME_LINE, _SIZE_LINE = b"0", b"1"
_TIMED = {
    b"0": ("get_ns", "Pipeline Time"),
    b"1": ("push_ns", "Push Time"),
    b"2": ("total_ns", "Batch Time"),
}
"""By what a line times: the column of its time, and what is drawn of it."""
_LEAST_CELLS, _TIMED_CELLS = 4, 5
"""Of a line of a queue; the fifth is the time of the sample, which older versions do not write."""
_FETCHES = b"GetNext"
_ENQUEUED = re.compile(
    rb"Enqueue data to dp,(?:(?!Enqueue )[^\0\n])*?index:\s*(\d+),\s*size:\s*(\d+)"
)
"""Not beyond where another begins, so that damaged text is searched once."""
_BLOCK_BYTES = 1 << 21
_LEAST_OF_DEVICE = 3
_MOST_BATCHES = 1 << 32
"""No queue is longer, so that sums fit."""
_PIPELINE_CELLS = (
    Cell(("op_id",)),
    Cell(("op_type",), absent=NO_NAME),
    Cell(("num_workers",), absent=NO_NAME),
    Cell(("children_id",), absent=NO_NAME),
    Cell(("output_queue_size",), absent=NO_NAME),
    Cell(("output_queue_length",), absent=NO_NAME),
)
_NO_NUMBER = "lines with a cell that is no number"


class Samples(NamedTuple):
    """Samples of one counter: times in ns of a clock of the host, and values."""

    path: Path
    group: str
    name: str
    unit: str
    time_ns: Int64
    values: Float64


def read_data_preparation(files: NumberedFiles, into: TablesBuilder, drawn: bool) -> list[Samples]:
    """Read QueueRecords, PipelineOperations and ProcessorUse, and the samples behind them.

    Of files that hold the same, only the one that holds more fills tables.

    Args:
        drawn: whether samples are wanted.
    """
    reader, kind = _Reader(into, drawn), NumberedFile
    groups: tuple[dict[NumberedFile, Callable[[Path, LossLog], None]], ...] = (
        {kind.PROCESSORS: reader.read_processors},
        {kind.DEVICE_QUEUE: reader.read_host_queue, kind.ITERATOR_QUEUE: reader.read_host_queue},
        {
            kind.GET_NEXT: partial(_read_device_queue, into, is_whole_ns=False),
            kind.GET_NEXT_GPU: partial(_read_device_queue, into, is_whole_ns=True),
        },
        {kind.ENQUEUED: partial(_read_enqueued, into)},
        {
            kind.PIPELINE: reader.read_pipeline,
            kind.PIPELINE_TABLE: partial(_read_pipeline_table, into),
        },
    )
    for choices in groups:
        chosen = [one for one in choices if one in files]
        for number, one in enumerate(chosen):
            reader.fills_tables = not number
            if not number or (drawn and one is kind.ITERATOR_QUEUE):
                for path in files[one]:
                    with into.reading(path) as losses:
                        choices[one](path, losses)
    return reader.samples


@dataclass
class _Reader:
    """Reads files that hold both what tables keep and samples that are drawn.

    time_ns: the times of the samples of processors, which those of queues share.
    """

    into: TablesBuilder
    drawn: bool
    fills_tables: bool = True
    samples: list[Samples] = field(default_factory=list)
    time_ns: Int64 = field(default_factory=lambda: np.empty(0, np.int64))

    def read_host_queue(self, path: Path, losses: LossLog) -> None:
        """Read lines `0 what batch ms time` and `1 capacity batch size time`, in any order.

        what: 0 took the batch from the pipeline, 1 put it into the queue behind, 2 both together.
        The time of the sample is in ms.
        """
        where = "Device Queue" if path.name.startswith("device_queue") else "Iterator Queue"
        untimed = 0
        for found in _read_queue_lines(path, losses):
            is_size = found.where(0, {_SIZE_LINE})
            batch, numbered = whole_numbers(found.column(2), 0)
            size, sized = whole_numbers(found.column(3), 0)
            capacity, known = whole_numbers(found.column(1), NO_ID)
            taken_ns, _ = interval_ns_of_milliseconds(found.column(3), [b""] * len(found))
            is_taken = (taken_ns != NO_TIME) & (taken_ns <= MOST)
            good = numbered & np.where(is_size, sized & known & (size >= 0), is_taken)
            losses.add_lines(_NO_NUMBER, found.lines[~good])
            time_ns = np.full(len(found), NO_TIME)
            whole = found.count == _TIMED_CELLS
            time_ms, given = whole_numbers(found.take(whole).column(4), 0)
            given &= np.abs(time_ms) < _MOST_MS
            time_ns[whole] = np.where(given, np.where(given, time_ms, 0) * _NS_IN_MS, NO_TIME)
            if self.drawn:
                untimed += int(np.count_nonzero(~whole))
                reason = "lines without a time that can be read"
                losses.add_lines(reason, found.lines[good & whole & (time_ns == NO_TIME)])
            sizes = {"size": size, "capacity": capacity}
            series = [(where, "", is_size, sizes, size.astype(np.float64))]
            series += [
                (f"{where} {label}", "ms", of_what, {column: taken_ns}, taken_ns / _NS_IN_MS)
                for code, (column, label) in _TIMED.items()
                if (of_what := ~is_size & found.where(1, {code})).any()
            ]
            for name, unit, of_series, columns, values in series:
                rows = good & of_series
                if self.fills_tables:
                    kept = {column: value[rows] for column, value in columns.items()}
                    _add_batches(self.into, Queue.HOST, step=batch[rows], **kept)
                rows &= time_ns != NO_TIME
                if self.drawn and rows.any():
                    sampled = (QUEUE_GROUP, name, unit, time_ns[rows], values[rows])
                    self.samples.append(Samples(path, *sampled))
        reason = f"lines of {path.name} without a time, as older versions write them"
        self.into.leave_out(reason, untimed, OmissionCode.NO_TIME, loss=False)

    def read_pipeline(self, path: Path, losses: LossLog) -> None:
        """Read pipeline_profiling_R.json, where operations are in no order.

        It has no times: the monitor that samples processors samples the queues in the same round,
        so the times are those of minddata_cpu_utilization_R.json, the first to the first. The files
        are saved one after the other, so one may have a sample more.
        """
        operations: list[_Operation] = []
        for op, entry in _entries(read_json(path), losses):
            metrics = entry.get("metrics")
            queue = metrics.get("output_queue") if isinstance(metrics, dict) else None
            sizes = _listed(queue.get("size")) if isinstance(queue, dict) and queue else None
            operations.append(
                _Operation(
                    op,
                    str(entry.get("op_type") or ""),
                    _number(entry.get("num_workers")),
                    _whole(entry.get("children")),
                    sizes,
                    _number(queue.get("length")) if isinstance(queue, dict) else NO_ID,
                )
            )
            if self.drawn and sizes is not None:
                time_ns, count = np.full(len(sizes), NO_TIME), min(len(sizes), len(self.time_ns))
                if max(len(sizes), len(self.time_ns)) <= count + 1:
                    time_ns[:count] = self.time_ns[:count]
                name = f"{entry.get('op_type', 'Op')} {op}"
                self._add_samples(path, losses, (QUEUE_GROUP, name, ""), time_ns, _values(sizes))
        _add_operations(operations, losses, self.into)

    def read_processors(self, path: Path, losses: LossLog) -> None:
        """Read minddata_cpu_utilization_R.json: lists of samples beside one list of times (ms).

        A process or an operation has no first sample, because its use is that since the one before.
        An operation with the number -1 is none of the pipeline, and in no table.
        """
        document = read_json(path)
        self.time_ns = _times_ns(document)
        users: list[tuple[ProcessorUser, int, str, Any]] = [
            (ProcessorUser.HOST, NO_ID, "Host", document.get("device_info")),
            (ProcessorUser.PROCESS, NO_ID, "Process", document.get("process_info")),
        ]
        users += [
            (ProcessorUser.OPERATION, op, f"Op {op}", entry.get("metrics"))
            for op, entry in _entries(document, losses)
        ]
        rows = []
        for user, op, label, metrics in users:
            if not isinstance(metrics, dict):
                continue
            if user is not ProcessorUser.OPERATION or op >= 0:
                rows.append((int(user), op, metrics))
            series = _OF_HOST if user is ProcessorUser.HOST else _OF_TASK
            for key, (what, unit) in series.items():
                if not self.drawn or key not in metrics:
                    continue
                name = what if user is ProcessorUser.HOST else f"{label} {what}"
                values = _values(metrics[key])
                missing = len(self.time_ns) - len(values)
                untimed = np.full(len(values), NO_TIME)
                time_ns = self.time_ns[missing:] if missing in (0, 1) else untimed
                self._add_samples(path, losses, (CPU_GROUP, name, unit), time_ns, values)
        columns: dict[str, Any] = {
            column: np.array([_mean(metrics, name) for _, _, metrics in rows], np.float64)
            for column, name in _USES.items()
        }
        columns |= {"user": [user for user, _, _ in rows], "op": [op for _, op, _ in rows]}
        self.into.add(ProcessorUse.of(len(rows), columns))

    def _add_samples(
        self,
        path: Path,
        losses: LossLog,
        series: tuple[str, str, str],
        time_ns: Int64,
        values: Float64,
    ) -> None:
        """Add the samples of a series that have a number and a time; the others are noted."""
        good = np.isfinite(values) & (time_ns != NO_TIME)
        if not good.all():
            where = f"sample {int(np.argmin(good))} of {series[1]}"
            losses.add("samples without a time or a number", where, int(np.count_nonzero(~good)))
        self.samples.append(Samples(path, *series, time_ns[good], values[good]))


def _entries(
    document: Mapping[str, Any], losses: LossLog
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Return the operations of a document, each with its number; those without one are noted."""
    for at, entry in enumerate(_listed(document.get("op_info"))):
        op = whole_number(entry.get("op_id")) if isinstance(entry, dict) else None
        if op is None:
            losses.add("operations without a number", f"operation {at + 1}")
        else:
            yield op, entry


# -- queues ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueueLines:
    """Lines that are split at blanks: the cells of each, and their numbers, (n,)."""

    cells: Sequence[list[bytes]]
    lines: Int64

    @classmethod
    def of(cls, lines: Lines, more_blanks: bytes = b"") -> QueueLines:
        """Return the lines that are not empty."""
        data = lines.data.translate(bytes.maketrans(more_blanks, b" " * len(more_blanks)))
        cells = [line.split() for line in data.split(b"\n")[: len(lines)]]
        return cls(cells, lines.numbers).take(np.array([*map(bool, cells)], np.bool_))

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def count(self) -> Int64:
        """Return the number of cells of each line, (n,)."""
        return np.fromiter(map(len, self.cells), np.int64, len(self))

    def take(self, rows: Bool) -> QueueLines:
        """Return some of the lines."""
        return QueueLines([*compress(self.cells, rows.tolist())], self.lines[rows])

    def column(self, place: int) -> list[bytes]:
        """Return one cell of each line, all of which have it."""
        return [cells[place] for cells in self.cells]

    def where(self, place: int, accepted: Collection[bytes]) -> Bool:
        """Return a mask of the lines with one of some strings in a cell."""
        cells = (text in accepted for text in self.column(place))
        return np.fromiter(cells, np.bool_, len(self))


def _read_queue_lines(path: Path, losses: LossLog) -> Iterator[QueueLines]:
    """Read the lines of a queue, which are those of a time or a size; others are noted.

    Raises:
        SourceError: the file cannot be read.
    """
    for lines in read_lines(path, losses):
        found = QueueLines.of(lines)
        known = found.count >= _LEAST_CELLS
        whole = found.take(known)
        is_time = whole.where(0, {_TIME_LINE}) & whole.where(1, _TIMED)
        known[known] = is_time | whole.where(0, {_SIZE_LINE})
        losses.add_lines("lines of no known kind", found.lines[~known])
        yield found.take(known)


def _add_batches(into: TablesBuilder, queue: Queue, **columns: Int64) -> None:
    into.add(QueueRecords.of(len(columns["step"]), columns, queue=int(queue)))


def _read_device_queue(into: TablesBuilder, path: Path, losses: LossLog, is_whole_ns: bool) -> None:
    """Read lines `node start end size` of the operators that fetch; others are of no queue.

    A batch has no number: the first is 1. Times are microseconds, or whole nanoseconds.
    """
    first = 1
    for lines in read_lines(path, losses):
        found = QueueLines.of(lines, b",")
        fetches = (text.startswith(_FETCHES) for text in found.column(0))
        found = found.take(np.fromiter(fetches, np.bool_, len(found)))
        whole = found.count >= _LEAST_OF_DEVICE
        losses.add_lines("lines with too few cells", found.lines[~whole])
        found = found.take(whole)
        start_ns, end_ns = (
            # Decimals behind whole nanoseconds are cut off.
            whole_numbers([text.split(b".")[0] for text in found.column(place)], NO_TIME)[0]
            if is_whole_ns
            else moments_ns(found.column(place))
            for place in (1, 2)
        )
        has_size = found.count > _LEAST_OF_DEVICE
        size, sized = np.full(len(found), NO_ID), np.ones(len(found), np.bool_)
        size[has_size], sized[has_size] = whole_numbers(found.take(has_size).column(3), NO_ID)
        good = (start_ns != NO_TIME) & (end_ns != NO_TIME) & sized
        losses.add_lines(_NO_NUMBER, found.lines[~good])
        length_ns = np.where(good, end_ns - np.where(good, start_ns, 0), 0)
        possible = (end_ns >= start_ns) & (length_ns >= 0) & (length_ns <= MOST)
        losses.add_lines(
            "lines that end before they begin, or much later", found.lines[good & ~possible]
        )
        good &= possible
        count = int(np.count_nonzero(good))
        step = np.arange(first, first + count)
        columns = {"step": step, "size": size[good], "total_ns": length_ns[good]}
        _add_batches(into, Queue.DEVICE, **columns)
        first += count


def _read_enqueued(into: TablesBuilder, path: Path, losses: LossLog) -> None:
    """Read records `Enqueue data to dp, .. index:i, size:n`, separated by NUL, of any length."""
    batches: list[tuple[bytes, ...]] = []
    damaged = 0
    for record in _split_records(path):
        if found := _ENQUEUED.search(record):
            batches.append(found.groups())
        elif record.strip():
            damaged += 1
    if damaged:
        losses.add("records that tell of no batch", "an unknown place", damaged)
    step, numbered = whole_numbers([index for index, _ in batches], 0)
    size, sized = whole_numbers([size for _, size in batches], 0)
    good = np.flatnonzero(numbered & sized)
    good = good[np.argsort(step[good], kind="stable")]
    _add_batches(into, Queue.TO_DEVICE, step=step[good], size=size[good])


def _split_records(path: Path) -> Iterator[bytes]:
    rest = b""
    with open_profile_file(path) as file:
        while data := file.read(_BLOCK_BYTES):
            *records, rest = re.split(rb"[\0\n]", rest + data)
            yield from records
    yield rest


# -- the pipeline ----------------------------------------------------------------------------------


@dataclass
class _Operation:
    """An operation of the pipeline, of a file; sizes is None if it has no queue."""

    op: int
    kind: str
    workers: int
    children: list[int]
    sizes: list[Any] | None
    capacity: int


def _read_pipeline_table(into: TablesBuilder, path: Path, losses: LossLog) -> None:
    """Read minddata_pipeline_raw_R.csv, which is made of the JSON; lists are JSON in a cell."""
    found: list[_Operation] = []
    for row in read_texts(path, _PIPELINE_CELLS, losses):
        number, kind, workers, children, sizes, capacity = row.cells
        op = whole_number(number)
        if op is None:
            losses.add(UNREADABLE, f"line {row.line}")
            continue
        found.append(
            _Operation(
                op,
                kind,
                _number(workers),
                _whole(parse_json(children)),
                _listed(parse_json(sizes)) if sizes else None,
                _number(capacity),
            )
        )
    _add_operations(found, losses, into)


def _add_operations(found: Sequence[_Operation], losses: LossLog, into: TablesBuilder) -> None:
    """Add the operations from the root on, breadth first, with children over inline operations."""
    by_number = {one.op: one for one in found}
    if found and ROOT not in by_number:
        losses.add(f"operations of a pipeline without a root (op {ROOT})", "the first", len(found))
    shown: list[tuple[_Operation, int]] = []
    seen = {ROOT}
    if ROOT in by_number:
        shown.append((by_number[ROOT], NO_ID))
    for one, _ in shown:  # which grows
        waiting = deque(one.children)
        while waiting:
            child = by_number.get(waiting.popleft())
            if child is None or child.op in seen:
                continue
            seen.add(child.op)
            if child.sizes is None:
                waiting.extend(child.children)
            else:
                shown.append((child, one.op))
    rows = []
    for one, parent in shown:
        sizes = _sizes(one, losses)
        samples = (
            (NO_ID, NO_ID, 0, 0)
            if sizes is None
            else (len(sizes), one.capacity, sum(sizes), sizes.count(0))
        )
        rows.append((one.op, into.strings.code(one.kind), one.workers, parent, *samples))
    into.add(table_of_rows(PipelineOperations, rows))


def _sizes(one: _Operation, losses: LossLog) -> list[int] | None:
    if one.sizes is None:
        return None
    numbers = [whole_number(size) for size in one.sizes]
    good = [size for size in numbers if size is not None and 0 <= size < _MOST_BATCHES]
    if len(good) < len(numbers):
        bad = len(numbers) - len(good)
        losses.add("samples of queues that are no number", f"operation {one.op}", bad)
    return good


# -- processors ------------------------------------------------------------------------------------


_USES = {
    "in_user": "user_utilization",
    "in_system": "sys_utilization",
    "idle": "idle_utilization",
}


def _mean(metrics: Mapping[str, Any], name: str) -> float:
    """Return the mean of the samples that are numbers, NaN without any."""
    samples = [real(one) for one in _listed(metrics.get(name)) if _is_number(one)]
    return sum(samples) / len(samples) if samples else float("nan")


# -- counters --------------------------------------------------------------------------------------

CPU_GROUP, QUEUE_GROUP = "MindData CPU", "MindData Queue"
_NS_IN_MS = 1_000_000
_MOST_MS = 9 * 10**12
_OF_HOST = {
    "user_utilization": ("Host User", "%"),
    "sys_utilization": ("Host System", "%"),
    "io_utilization": ("Host I/O Wait", "%"),
    "idle_utilization": ("Host Idle", "%"),
    "context_switch_count": ("Context Switches", ""),
    "runnable_process": ("Runnable Processes", ""),
}
_OF_TASK = {"user_utilization": ("User", "%"), "sys_utilization": ("System", "%")}


def _times_ns(document: dict[str, Any]) -> Int64:
    """Return the times (ms) of samples; NO_TIME for one that is not an integer."""
    times_ns = [
        int(time) * _NS_IN_MS if _is_number(time) and 0 <= time < _MOST_MS else NO_TIME
        for time in _listed(document.get("time_stamp"))
    ]
    return np.array(times_ns, np.int64)


def _values(samples: Any) -> Float64:
    values = (float(one) if _is_number(one) else np.nan for one in _listed(samples))
    return np.array([*values], np.float64)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# -- cells -----------------------------------------------------------------------------------------


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: Any) -> list[int]:
    numbers = (whole_number(one) for one in _listed(value))
    return [one for one in numbers if one is not None]


def _number(value: Any) -> int:
    number = whole_number(value)
    return NO_ID if number is None else number
