"""Queues, the pipeline and processors of the preparation of data, as tables and as counters."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

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
from timeline.sources.beside.delimited import MOST, Cell, TablesBuilder, read_texts, table_of_rows
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
_TIMED = {b"0": "get_ns", b"1": "push_ns", b"2": "total_ns"}
_LEAST_CELLS = 4
"""Of a line of a queue; a fifth is the time of the sample, which older versions do not write."""
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
_BLANKS = b" \t\n\r\x0b\x0c"
_NO_KIND = "lines of no known kind"
_NO_NUMBER = "lines with a cell that is no number"


def read_data_preparation(files: NumberedFiles, into: TablesBuilder) -> None:
    """Read QueueRecords, PipelineOperations and ProcessorUse.

    Of files that hold the same, only the one that holds more.
    """
    kind = NumberedFile
    for choices in (
        {kind.DEVICE_QUEUE: _read_host_queue, kind.ITERATOR_QUEUE: _read_host_queue},
        {
            kind.GET_NEXT: partial(_read_device_queue, is_whole_ns=False),
            kind.GET_NEXT_GPU: partial(_read_device_queue, is_whole_ns=True),
        },
        {kind.ENQUEUED: _read_enqueued},
        {kind.PIPELINE: _read_pipeline, kind.PIPELINE_TABLE: _read_pipeline_table},
        {kind.PROCESSORS: _read_processors},
    ):
        for chosen in [one for one in choices if one in files][:1]:
            for path in files[chosen]:
                with into.reading(path) as losses:
                    choices[chosen](path, losses, into)


# -- queues ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueueLines:
    """Lines that are parted by blanks, as columns.

    cells: of all lines, one after another, (m,) bytes; first, count: (n,) where those of a line
    begin, and how many it has; lines: their numbers.
    """

    cells: npt.NDArray[np.object_]
    first: Int64
    count: Int64
    lines: Int64

    @classmethod
    def of(cls, lines: Lines, more_blanks: bytes = b"") -> QueueLines:
        """The lines that are not empty."""
        blank = np.zeros(256, np.bool_)
        blank[list(_BLANKS + more_blanks)] = True
        is_blank = blank[lines.characters]
        begins = ~is_blank
        begins[1:] &= is_blank[:-1]
        count = np.add.reduceat(begins, lines.starts, dtype=np.int64)
        data = lines.data.translate(bytes.maketrans(more_blanks, b" " * len(more_blanks)))
        found = data.split()
        cells = np.empty(len(found), object)
        cells[:] = found
        return cls(cells, np.cumsum(count) - count, count, lines.numbers).take(count > 0)

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: Bool) -> QueueLines:
        """Some of the lines."""
        return QueueLines(self.cells, self.first[rows], self.count[rows], self.lines[rows])

    def column(self, place: int) -> list[bytes]:
        """One cell of each line, all of which have it."""
        found: list[bytes] = self.cells[self.first + place].tolist()
        return found

    def where(self, place: int, known: Collection[bytes]) -> Bool:
        """Which lines have one of some texts in a cell."""
        cells = (text in known for text in self.column(place))
        return np.fromiter(cells, np.bool_, len(self))


def _read_host_queue(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read lines `0 what batch ms` and `1 capacity batch size`, which are in no order of batches.

    what: 0 took it from the pipeline, 1 put it into the queue behind, 2 both together.
    """
    for found in _read_queue_lines(path, losses, _NO_KIND):
        sized = found.where(0, {_SIZE_LINE})
        _add_times(found.take(~sized), losses, into)
        _add_sizes(found.take(sized), losses, into)


def _read_queue_lines(path: Path, losses: LossLog, reason: str) -> Iterator[QueueLines]:
    """Lines of a queue, which are those of a time or a size; others are noted for a reason.

    Raises:
        SourceError: the file cannot be read.
    """
    for lines in read_lines(path, losses):
        found = QueueLines.of(lines)
        known = found.count >= _LEAST_CELLS
        whole = found.take(known)
        is_time = whole.where(0, {_TIME_LINE}) & whole.where(1, _TIMED)
        known[known] = is_time | whole.where(0, {_SIZE_LINE})
        losses.add_lines(reason, found.lines[~known])
        yield found.take(known)


def _add_times(found: QueueLines, losses: LossLog, into: TablesBuilder) -> None:
    batch, numbered = whole_numbers(found.column(2), 0)
    time_ns, _ = interval_ns_of_milliseconds(found.column(3), [b""] * len(batch))
    good = numbered & (time_ns != NO_TIME) & (time_ns <= MOST)
    losses.add_lines(_NO_NUMBER, found.lines[~good])
    for code, name in _TIMED.items():
        its = good & found.where(1, {code})
        _add_batches(into, Queue.HOST, **{"step": batch[its], name: time_ns[its]})


def _add_sizes(found: QueueLines, losses: LossLog, into: TablesBuilder) -> None:
    batch, numbered = whole_numbers(found.column(2), 0)
    size, sized = whole_numbers(found.column(3), 0)
    capacity, known = whole_numbers(found.column(1), NO_ID)
    good = numbered & sized & known & (size >= 0)
    losses.add_lines(_NO_NUMBER, found.lines[~good])
    columns = {"step": batch[good], "size": size[good], "capacity": capacity[good]}
    _add_batches(into, Queue.HOST, **columns)


def _add_batches(into: TablesBuilder, queue: Queue, **columns: Int64) -> None:
    count = len(columns["step"])
    into.add(QueueRecords.of(count, {"queue": np.full(count, int(queue)), **columns}))


def _read_device_queue(path: Path, losses: LossLog, into: TablesBuilder, is_whole_ns: bool) -> None:
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
            _whole_ns(found.column(place)) if is_whole_ns else moments_ns(found.column(place))
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


def _whole_ns(texts: Sequence[bytes]) -> Int64:
    """Nanoseconds; decimals behind them are cut off."""
    return whole_numbers([text.split(b".")[0] for text in texts], NO_TIME)[0]


def _read_enqueued(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read records `Enqueue data to dp, .. index:i, size:n`, parted by NUL, of any length."""
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
    """An operation of the pipeline as a file tells it; sizes is None where it has no queue."""

    op: int
    kind: str
    workers: int
    children: list[int]
    sizes: list[Any] | None
    capacity: int


def _read_pipeline(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read pipeline_profiling_R.json, where operations are in no order."""
    entries = read_json(path).get("op_info")
    found: list[_Operation] = []
    for at, entry in enumerate(entries if isinstance(entries, list) else []):
        op = whole_number(entry.get("op_id")) if isinstance(entry, dict) else None
        if op is None:
            losses.add("operations without a number", f"operation {at + 1}")
            continue
        metrics = entry.get("metrics")
        queue = metrics.get("output_queue") if isinstance(metrics, dict) else None
        found.append(
            _Operation(
                op,
                str(entry.get("op_type") or ""),
                _number(entry.get("num_workers")),
                _whole(entry.get("children")),
                _listed(queue.get("size")) if isinstance(queue, dict) and queue else None,
                _number(queue.get("length")) if isinstance(queue, dict) else NO_ID,
            )
        )
    _add_operations(found, losses, into)


def _read_pipeline_table(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read minddata_pipeline_raw_R.csv, which is made of the JSON; lists are JSON in a cell."""
    found: list[_Operation] = []
    for row in read_texts(path, _PIPELINE_CELLS, losses):
        number, kind, workers, children, sizes, capacity = row.cells
        op = whole_number(number)
        if op is None:
            losses.add("rows with a cell that cannot be read", f"line {row.line}")
            continue
        found.append(
            _Operation(
                op,
                kind,
                _number(workers),
                _whole(_json(children)),
                _listed(_json(sizes)) if sizes else None,
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
    """The samples of a queue that are numbers; None where there is no queue."""
    if one.sizes is None:
        return None
    numbers = [whole_number(size) for size in one.sizes]
    good = [size for size in numbers if size is not None and 0 <= size < _MOST_BATCHES]
    if len(good) < len(numbers):
        bad = len(numbers) - len(good)
        losses.add("samples of queues that are no number", f"operation {one.op}", bad)
    return good


# -- processors ------------------------------------------------------------------------------------


def _read_processors(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read minddata_cpu_utilization_R.json: lists of samples, which may be one shorter than times.

    An operation with the number -1 is none of the pipeline.
    """
    document = read_json(path)
    users: list[tuple[ProcessorUser, int, Any]] = [
        (ProcessorUser.HOST, NO_ID, document.get("device_info")),
        (ProcessorUser.PROCESS, NO_ID, document.get("process_info")),
    ]
    for entry in _listed(document.get("op_info")):
        op = whole_number(entry.get("op_id")) if isinstance(entry, dict) else None
        if op is None:
            losses.add("operations without a number", f"operation {len(users) - 1}")
        elif op >= 0:
            users.append((ProcessorUser.OPERATION, op, entry.get("metrics")))
    rows = [(int(user), op, metrics) for user, op, metrics in users if isinstance(metrics, dict)]
    columns: dict[str, Any] = {
        column: np.array([_mean(metrics, name) for _, _, metrics in rows], np.float64)
        for column, name in _USES.items()
    }
    columns |= {"user": [user for user, _, _ in rows], "op": [op for _, op, _ in rows]}
    into.add(ProcessorUse.of(len(rows), columns))


_USES = {
    "in_user": "user_utilization",
    "in_system": "sys_utilization",
    "idle": "idle_utilization",
}


def _mean(metrics: Mapping[str, Any], name: str) -> float:
    """The mean of the samples that are numbers, NaN without any."""
    samples = [real(one) for one in _listed(metrics.get(name)) if _is_number(one)]
    return sum(samples) / len(samples) if samples else float("nan")


# -- counters --------------------------------------------------------------------------------------

AddSamples = Callable[[str, str, str, Int64, Float64], None]
"""Takes group, name, unit, times in ns and values."""
CPU_GROUP, QUEUE_GROUP = "MindData CPU", "MindData Queue"
_NS_IN_MS = 1_000_000
_FIELDS = 5
_NO_SAMPLE = "lines without a time or of no known kind"
_MOST_MS = 9 * 10**12
_OF_HOST = {
    "user_utilization": ("Host User", "%"),
    "sys_utilization": ("Host System", "%"),
    "io_utilization": ("Host I/O Wait", "%"),
    "idle_utilization": ("Host Idle", "%"),
    "context_switch_count": ("Context Switches", ""),
    "runnable_process": ("Runnable Processes", ""),
}
_OF_TASK = {"user_utilization": "User", "sys_utilization": "System"}
_SERIES = {b"0": "Pipeline Time", b"1": "Push Time", b"2": "Batch Time"}


def read_cpu_use(path: Path, damage: LossLog, add: AddSamples) -> None:
    """Read minddata_cpu_utilization_R.json: lists of samples beside one list of times (ms).

    A process or an operation has no first sample, because its use is that since the one before.

    Raises:
        SourceError: the file cannot be read.
    """
    document = read_json(path)
    time_ns = _times_ns(document)

    def draw(metrics: Any, key: str, name: str, unit: str) -> None:
        if isinstance(metrics, dict) and key in metrics:
            values = _values(metrics[key])
            missing = len(time_ns) - len(values)
            sample_ns = time_ns[missing:] if missing in (0, 1) else np.full(len(values), NO_TIME)
            _add_timed(add, damage, (CPU_GROUP, name, unit), sample_ns, values)

    for key, (name, unit) in _OF_HOST.items():
        draw(document.get("device_info"), key, name, unit)
    for key, label in _OF_TASK.items():
        draw(document.get("process_info"), key, f"Process {label}", "%")
    for op in (one for one in _listed(document.get("op_info")) if isinstance(one, dict)):
        for key, label in _OF_TASK.items():
            draw(op.get("metrics"), key, f"Op {op.get('op_id')} {label}", "%")


def read_queue_sizes(path: Path, times: Path | None, damage: LossLog, add: AddSamples) -> None:
    """Read pipeline_profiling_R.json: how full the output queue of each operation is.

    It has no times: the monitor that samples processors samples the queues in the same round, so
    the times are those of minddata_cpu_utilization_R.json, the first to the first. The files are
    saved one after the other, so one may have a sample more.

    Raises:
        SourceError: a file cannot be read.
    """
    document = read_json(path)
    time_ns = _times_ns(read_json(times)) if times else np.empty(0, np.int64)
    for op in (one for one in _listed(document.get("op_info")) if isinstance(one, dict)):
        metrics = op.get("metrics")
        queue = metrics.get("output_queue") if isinstance(metrics, dict) else None
        if not isinstance(queue, dict):
            continue  # such an operation has no queue
        values = _values(queue.get("size"))
        sample_ns = np.full(len(values), NO_TIME)
        if abs(len(values) - len(time_ns)) <= 1:
            count = min(len(values), len(time_ns))
            sample_ns[:count] = time_ns[:count]
        name = f"{op.get('op_type', 'Op')} {op.get('op_id')}"
        _add_timed(add, damage, (QUEUE_GROUP, name, ""), sample_ns, values)


def _add_timed(
    add: AddSamples, damage: LossLog, series: tuple[str, str, str], time_ns: Int64, values: Float64
) -> None:
    """Add the samples of a series that have a number and a time; the others are noted."""
    good = np.isfinite(values) & (time_ns != NO_TIME)
    if not good.all():
        where = f"sample {int(np.argmin(good))} of {series[1]}"
        damage.add("samples without a time or a number", where, int(np.count_nonzero(~good)))
    add(*series, time_ns[good], values[good])


def read_queue_trace(path: Path, damage: LossLog, add: AddSamples) -> int:
    """Read device_queue_profiling_R.txt or dataset_iterator_profiling_R.txt.

    One line is: kind, more, batch, value, time (ms). Kind 0 is how long (ms) a batch took, `more`
    tells for what; kind 1 is how full the queue was, `more` is its capacity. Older versions write
    no time.

    Returns:
        The lines without a time.

    Raises:
        SourceError: the file cannot be read.
    """
    untimed = 0
    where = "Device Queue" if path.name.startswith("device_queue") else "Iterator Queue"
    for found in _read_queue_lines(path, damage, _NO_SAMPLE):
        whole = found.take(found.count == _FIELDS)
        untimed += len(found) - len(whole)
        time_ms, timed = whole_numbers(whole.column(4), 0)
        values, valued = whole_numbers(whole.column(3), 0)
        good = timed & valued & (np.abs(time_ms) < _MOST_MS)
        damage.add_lines(_NO_SAMPLE, whole.lines[~good])
        is_size = whole.where(0, {_SIZE_LINE})
        timed_for = (
            (f"{where} {name}", "ms", ~is_size & whole.where(1, {code}))
            for code, name in _SERIES.items()
        )
        for name, unit, rows in ((where, "", is_size), *timed_for):
            kept = rows & good
            if kept.any():
                time_ns, numbers = time_ms[kept] * _NS_IN_MS, values[kept].astype(np.float64)
                add(QUEUE_GROUP, name, unit, time_ns, numbers)
    return untimed


def _times_ns(document: dict[str, Any]) -> Int64:
    """The times (ms) of samples; NO_TIME where one is no whole number."""
    times = _listed(document.get("time_stamp"))
    good = [_is_number(time) and 0 <= time < _MOST_MS for time in times]
    rows = zip(times, good, strict=True)
    return np.array([int(time) * _NS_IN_MS if ok else NO_TIME for time, ok in rows], np.int64)


def _values(samples: Any) -> Float64:
    """Samples as floats, NaN where one is no number."""
    values = (float(one) if _is_number(one) else np.nan for one in _listed(samples))
    return np.array([*values], np.float64)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# -- cells -----------------------------------------------------------------------------------------


def _json(text: str) -> Any:
    """What a cell holds; None where that is no JSON."""
    try:
        return orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: Any) -> list[int]:
    numbers = (whole_number(one) for one in _listed(value))
    return [one for one in numbers if one is not None]


def _number(value: Any) -> int:
    number = whole_number(value)
    return NO_ID if number is None else number
