"""MindSpore's data preparation: queues, pipeline and CPU use, as tables and as counters."""

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
from timeline.sources.common.decimals import (
    interval_ns_of_milliseconds,
    parse_times_ns,
    real,
    whole_number,
    whole_numbers,
)
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.delimited import (
    MOST,
    UNREADABLE,
    Cell,
    TablesBuilder,
    parse_json,
    read_texts,
    table_of_rows,
)
from timeline.sources.companions.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.decoders.csv_blocks import Lines, read_lines
from timeline.sources.decoders.json_values import read_json
from timeline.sources.files.opened import open_profile_file

ROOT = 0
"""The operation that feeds the network; operations that do not lead to it are ignored."""
_TIME_LINE, _SIZE_LINE = b"0", b"1"
_TIMED = {
    b"0": ("get_ns", "Pipeline Time"),
    b"1": ("push_ns", "Push Time"),
    b"2": ("total_ns", "Batch Time"),
}
"""Column of QueueRecords and name of the counter by the code of a timed activity."""
_LEAST_CELLS, _TIMED_CELLS = 4, 5
"""Cells of a line of a queue: the fifth, the time of the sample, is missing in older versions."""
_FETCHES = b"GetNext"
_ENQUEUED = re.compile(
    rb"Enqueue data to dp,(?:(?!Enqueue )[^\0\n])*?index:\s*(\d+),\s*size:\s*(\d+)"
)
"""A record of a batch. It does not extend into the next, which keeps the search linear."""
_BLOCK_BYTES = 1 << 21
_LEAST_OF_DEVICE = 3
"""The least cells of a line of an operator that fetches a batch; the fourth is its size."""
_MOST_BATCHES = 1 << 32
"""The largest plausible length of a queue, whose sums fit 64 bits."""
_PIPELINE_CELLS = (
    Cell(("op_id",)),
    Cell(("op_type",), absent=NO_NAME),
    Cell(("num_workers",), absent=NO_NAME),
    Cell(("children_id",), absent=NO_NAME),
    Cell(("output_queue_size",), absent=NO_NAME),
    Cell(("output_queue_length",), absent=NO_NAME),
)
_NO_NUMBER = "lines with a cell that is not a number"


class Samples(NamedTuple):
    """Samples of one counter in a file: times on a clock of the host, and values."""

    path: Path
    group: str
    name: str
    unit: str
    time_ns: Int64
    values: Float64


def read_data_preparation(files: NumberedFiles, into: TablesBuilder, drawn: bool) -> list[Samples]:
    """Add QueueRecords, PipelineOperations and ProcessorUse, and return samples of counters.

    Of files with the same content, only the most complete one fills tables.

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
        available = [choice for choice in choices if choice in files]
        for number, choice in enumerate(available):
            reader.fills_tables = not number
            if not number or (drawn and choice is kind.ITERATOR_QUEUE):
                for path in files[choice]:
                    with into.reading(path) as losses:
                        choices[choice](path, losses)
    return reader.samples


@dataclass
class _Reader:
    """Reader of files that hold both rows of tables and samples of counters."""

    into: TablesBuilder
    drawn: bool
    fills_tables: bool = True
    samples: list[Samples] = field(default_factory=list)
    time_ns: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    """Times of the samples of CPU use, which samples of the pipeline's queues share."""

    def read_host_queue(self, path: Path, losses: LossLog) -> None:
        """Read lines `0 activity batch ms time` and `1 capacity batch size time`, in any order.

        Activity 0 takes the batch from the pipeline, 1 pushes it to the queue, 2 is both together.
        The last cell is the time of the sample in ms.
        """
        queue = "Device Queue" if path.name.startswith("device_queue") else "Iterator Queue"
        untimed = 0
        for lines in _read_queue_lines(path, losses):
            is_size = lines.where(0, {_SIZE_LINE})
            batch, numbered = whole_numbers(lines.column(2), 0)
            size, sized = whole_numbers(lines.column(3), 0)
            capacity, has_capacity = whole_numbers(lines.column(1), NO_ID)
            length_ns, _ = interval_ns_of_milliseconds(lines.column(3), [b""] * len(lines))
            has_length = (length_ns != NO_TIME) & (length_ns <= MOST)
            good = numbered & np.where(is_size, sized & has_capacity & (size >= 0), has_length)
            losses.add_lines(_NO_NUMBER, lines.lines[~good])
            time_ns = np.full(len(lines), NO_TIME)
            whole = lines.count == _TIMED_CELLS
            time_ms, has_time = whole_numbers(lines.take(whole).column(4), 0)
            has_time &= np.abs(time_ms) < _MOST_MS
            time_ns[whole] = np.where(has_time, np.where(has_time, time_ms, 0) * _NS_IN_MS, NO_TIME)
            if self.drawn:
                untimed += int(np.count_nonzero(~whole))
                reason = "lines without a time that can be read"
                losses.add_lines(reason, lines.lines[good & whole & (time_ns == NO_TIME)])
            sizes = {"size": size, "capacity": capacity}
            series = [(queue, "", is_size, sizes, size.astype(np.float64))]
            series += [
                (f"{queue} {label}", "ms", of_activity, {column: length_ns}, length_ns / _NS_IN_MS)
                for code, (column, label) in _TIMED.items()
                if (of_activity := ~is_size & lines.where(1, {code})).any()
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
        """Read pipeline_profiling_R.json, whose operations are in any order.

        Its samples have no times. The monitor samples CPU use and queues in the same round, so the
        n-th time of minddata_cpu_utilization_R.json is that of the n-th sample. The files are saved
        one after the other, so one may have one more sample.
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
        """Read minddata_cpu_utilization_R.json: lists of samples, and one list of times in ms.

        Processes and operations lack the first sample, because their use is measured since the
        previous one. The operation -1 is not part of the pipeline, and not in tables.
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
            for key, (metric, unit) in series.items():
                if not self.drawn or key not in metrics:
                    continue
                name = metric if user is ProcessorUser.HOST else f"{label} {metric}"
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
        """Add the samples of a series that have a number and a time; count the others as damage."""
        good = np.isfinite(values) & (time_ns != NO_TIME)
        if not good.all():
            where = f"sample {int(np.argmin(good))} of {series[1]}"
            losses.add("samples without a time or a number", where, int(np.count_nonzero(~good)))
        self.samples.append(Samples(path, *series, time_ns[good], values[good]))


def _entries(
    document: Mapping[str, Any], losses: LossLog
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield number and entry of each operation; count those without a number as damage."""
    for at, entry in enumerate(_listed(document.get("op_info"))):
        op = whole_number(entry.get("op_id")) if isinstance(entry, dict) else None
        if op is None:
            losses.add("operations without a number", f"operation {at + 1}")
        else:
            yield op, entry


# -- queues ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueueLines:
    """Lines split at blanks: the cells of each line, and the line numbers, (n,)."""

    cells: Sequence[list[bytes]]
    lines: Int64

    @classmethod
    def of(cls, lines: Lines, more_blanks: bytes = b"") -> QueueLines:
        """Split the lines that are not empty; `more_blanks` are bytes that also separate cells."""
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
        """Return one cell of each line; all lines must have it."""
        return [cells[place] for cells in self.cells]

    def where(self, place: int, accepted: Collection[bytes]) -> Bool:
        """Return a mask of the lines whose cell at a place is one of some strings."""
        cells = (text in accepted for text in self.column(place))
        return np.fromiter(cells, np.bool_, len(self))


def _read_queue_lines(path: Path, losses: LossLog) -> Iterator[QueueLines]:
    """Yield the lines of a queue that hold a time or a size; count others as damage.

    Raises:
        SourceError: the file cannot be read.
    """
    for lines in read_lines(path, losses):
        queue_lines = QueueLines.of(lines)
        is_known = queue_lines.count >= _LEAST_CELLS
        whole = queue_lines.take(is_known)
        is_time = whole.where(0, {_TIME_LINE}) & whole.where(1, _TIMED)
        is_known[is_known] = is_time | whole.where(0, {_SIZE_LINE})
        losses.add_lines("lines of an unknown kind", queue_lines.lines[~is_known])
        yield queue_lines.take(is_known)


def _add_batches(into: TablesBuilder, queue: Queue, **columns: Int64) -> None:
    into.add(QueueRecords.of(len(columns["step"]), columns, queue=int(queue)))


def _read_device_queue(into: TablesBuilder, path: Path, losses: LossLog, is_whole_ns: bool) -> None:
    """Read lines `node start end size` of the operators that fetch batches; skip other operators.

    Batches are numbered from 1 in order of lines. Times are microseconds, or whole nanoseconds.
    """
    first = 1
    for lines in read_lines(path, losses):
        fetched = QueueLines.of(lines, b",")
        fetches = (text.startswith(_FETCHES) for text in fetched.column(0))
        fetched = fetched.take(np.fromiter(fetches, np.bool_, len(fetched)))
        whole = fetched.count >= _LEAST_OF_DEVICE
        losses.add_lines("lines with too few cells", fetched.lines[~whole])
        fetched = fetched.take(whole)
        start_ns, end_ns = (
            # Truncate the fraction that may follow whole nanoseconds.
            whole_numbers([text.split(b".")[0] for text in fetched.column(place)], NO_TIME)[0]
            if is_whole_ns
            else parse_times_ns(fetched.column(place))
            for place in (1, 2)
        )
        has_size = fetched.count > _LEAST_OF_DEVICE
        size, sized = np.full(len(fetched), NO_ID), np.ones(len(fetched), np.bool_)
        size[has_size], sized[has_size] = whole_numbers(fetched.take(has_size).column(3), NO_ID)
        good = (start_ns != NO_TIME) & (end_ns != NO_TIME) & sized
        losses.add_lines(_NO_NUMBER, fetched.lines[~good])
        length_ns = np.where(good, end_ns - np.where(good, start_ns, 0), 0)
        possible = (end_ns >= start_ns) & (length_ns >= 0) & (length_ns <= MOST)
        losses.add_lines(
            "lines that end before they begin, or much later", fetched.lines[good & ~possible]
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
        if match := _ENQUEUED.search(record):
            batches.append(match.groups())
        elif record.strip():
            damaged += 1
    if damaged:
        losses.add("records without a batch", "an unknown place", damaged)
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
    """An operation of the pipeline; `sizes` are samples of its output queue, None without one."""

    op: int
    kind: str
    workers: int
    children: list[int]
    sizes: list[Any] | None
    capacity: int


def _read_pipeline_table(into: TablesBuilder, path: Path, losses: LossLog) -> None:
    """Read minddata_pipeline_raw_R.csv, derived from pipeline_profiling_R.json; lists are JSON."""
    operations: list[_Operation] = []
    for row in read_texts(path, _PIPELINE_CELLS, losses):
        number, kind, workers, children, sizes, capacity = row.cells
        op = whole_number(number)
        if op is None:
            losses.add(UNREADABLE, f"line {row.line}")
            continue
        operations.append(
            _Operation(
                op,
                kind,
                _number(workers),
                _whole(parse_json(children)),
                _listed(parse_json(sizes)) if sizes else None,
                _number(capacity),
            )
        )
    _add_operations(operations, losses, into)


def _add_operations(operations: Sequence[_Operation], losses: LossLog, into: TablesBuilder) -> None:
    """Add the operations that feed the root, breadth first, with the parent of each.

    Operations without a queue are skipped: their children count as those of their parent.
    """
    by_number = {operation.op: operation for operation in operations}
    if operations and ROOT not in by_number:
        reason = f"operations of a pipeline without a root (op {ROOT})"
        losses.add(reason, "the first", len(operations))
    reached: list[tuple[_Operation, int]] = []
    seen = {ROOT}
    if ROOT in by_number:
        reached.append((by_number[ROOT], NO_ID))
    for operation, _ in reached:  # grows while it is iterated
        waiting = deque(operation.children)
        while waiting:
            child = by_number.get(waiting.popleft())
            if child is None or child.op in seen:
                continue
            seen.add(child.op)
            if child.sizes is None:
                waiting.extend(child.children)
            else:
                reached.append((child, operation.op))
    rows = []
    for operation, parent in reached:
        sizes = _sizes(operation, losses)
        samples = (
            (NO_ID, NO_ID, 0, 0)
            if sizes is None
            else (len(sizes), operation.capacity, sum(sizes), sizes.count(0))
        )
        kind = into.strings.code(operation.kind)
        rows.append((operation.op, kind, operation.workers, parent, *samples))
    into.add(table_of_rows(PipelineOperations, rows))


def _sizes(operation: _Operation, losses: LossLog) -> list[int] | None:
    """Return the valid samples of the operation's queue, None if it has no queue."""
    if operation.sizes is None:
        return None
    numbers = [whole_number(size) for size in operation.sizes]
    good = [size for size in numbers if size is not None and 0 <= size < _MOST_BATCHES]
    if len(good) < len(numbers):
        bad = len(numbers) - len(good)
        losses.add("samples of queues that are not a number", f"operation {operation.op}", bad)
    return good


# -- processors ------------------------------------------------------------------------------------


_USES = {
    "in_user": "user_utilization",
    "in_system": "sys_utilization",
    "idle": "idle_utilization",
}


def _mean(metrics: Mapping[str, Any], name: str) -> float:
    """Return the mean of the samples that are numbers, NaN if there are none."""
    samples = [real(sample) for sample in _listed(metrics.get(name)) if _is_number(sample)]
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
    """Return the times of samples, which are in ms; NO_TIME for one that is not a number."""
    times_ns = [
        int(time) * _NS_IN_MS if _is_number(time) and 0 <= time < _MOST_MS else NO_TIME
        for time in _listed(document.get("time_stamp"))
    ]
    return np.array(times_ns, np.int64)


def _values(samples: Any) -> Float64:
    values = (float(sample) if _is_number(sample) else np.nan for sample in _listed(samples))
    return np.array([*values], np.float64)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# -- cells -----------------------------------------------------------------------------------------


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: Any) -> list[int]:
    numbers = map(whole_number, _listed(value))
    return [number for number in numbers if number is not None]


def _number(value: Any) -> int:
    number = whole_number(value)
    return NO_ID if number is None else number
