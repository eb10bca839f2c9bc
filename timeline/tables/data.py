"""Tables of data preparation: its bottleneck, its queues and its pipeline.

The rules and thresholds are those of MindInsight's page on data preparation.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import numpy as np

from timeline.analysis.data_queues import QueueCurves, QueueSums
from timeline.analysis.rank_facts import RankFacts
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import (
    PipelineOperations,
    ProcessorUse,
    ProcessorUser,
    Queue,
)
from timeline.tables.table import Json, Method, Spec, View

OFTEN_EMPTY = 0.3
"""Share of batches that found the host queue empty, above which the pipeline is too slow."""
FULLER_BY = 0.1
"""Difference in fill of an input queue to the own queue, above which an operation is slow."""
SLOW_SOURCE = 0.6
"""Fill of the queue of a source, below which the source is slow."""
USED_UP = 0.8
"""Minimum fill of all other queues for the root to be slow."""
_QUEUES = {Queue.HOST: "host", Queue.DEVICE: "device", Queue.TO_DEVICE: "to device"}


class Bottleneck(str, enum.Enum):
    """The bottleneck of data preparation; the values are part of the JSON report."""

    PROCESSING = "processing"
    SENDING = "sending"
    NONE = "none"


class Limit(str, enum.Enum):
    """Reason why an operation limits its pipeline; the values are part of the JSON report."""

    FULLER_INPUT = "fuller input"
    SLOW_SOURCE = "slow source"
    SLOW_SINK = "slow sink"


DATA_PREPARATION: Spec = Spec(
    "data_preparation",
    "rank with records of data preparation, and its bottleneck, by MindInsight's rules",
    """
    rank
    text bottleneck = Bottleneck: processing, sending or none; None without a host queue
    share empty_share = Host queue empty: share of batches that found the host queue empty
    text operations = Operations: a list: the ids of those that limit the pipeline
    share cpu_busy = Processors busy: 0 to 1
    """,
    lambda run: DATA_PREPARATION.of_rows(filter(None, map(_preparation, run.facts))),
    Json("data_preparation"),
    Method("data_preparation"),
    (
        View(
            "data-ranks",
            "What limits the preparation of data",
            ("rank", "bottleneck", "empty_share", "operations", "cpu_busy"),
            most=50,
            section="Data preparation",
        ),
    ),
)
DATA_QUEUES: Spec = Spec(
    "data_queues",
    "rank and queue that its batches pass; times are means per batch",
    """
    rank
    text queue = Queue: host, from the pipeline to the sender; device, as seen by GetNext; to \
        device, as seen by the sender
    records = Batches: number of batches
    empty: number of batches that found it empty
    full: number of batches that found it full
    capacity: in batches
    get_ns = Waited for: until a batch was there
    push_ns = Put in: into the next queue
    total_ns = Together: for the device queue the time of fetching
    """,
    lambda run: DATA_QUEUES.of_rows(
        (rank.rank, _QUEUES[Queue(queue)], records, *map(_given, more))
        for rank in run.facts
        for queue, records, *more in _rows(rank.profiler_tables.of(QueueSums))
    ),
    Json("data_queues"),
    Method("data_queues"),
    (
        View(
            "data-queues",
            "Queues",
            (
                *("rank", "queue", "records", "empty", "full", "capacity"),
                *("get_ns", "push_ns", "total_ns"),
            ),
            most=50,
            section="Data preparation",
        ),
    ),
)
DATA_PIPELINE: Spec = Spec(
    "data_pipeline",
    "rank and operation of its data pipeline with a queue, and the root, which is the first",
    """
    rank
    op = Number: its id
    text type
    workers
    parent: the id of the operation that takes from it
    text children: ids of the operations it takes from; those without a queue are skipped
    samples: number of samples of its queue, as for the next four
    capacity: in batches
    real mean_size: in batches
    share usage = Queue filled: mean_size / capacity
    share empty_share = Queue empty: share of samples
    share cpu_user = User: share of all processors
    share cpu_system = System: share of all processors
    text bottleneck: fuller input, slow source or slow sink, by MindInsight's rules
    text advice = What to try: against the bottleneck
    """,
    lambda run: DATA_PIPELINE.of_rows(row for rank in run.facts for row in _pipeline_rows(rank)),
    Json("data_pipeline"),
    Method("data_pipeline"),
    (
        View(
            "data-pipeline",
            "Operations of the pipeline",
            (
                *("rank", "op", "type", "workers", "capacity", "usage", "empty_share"),
                *("cpu_user", "cpu_system", "bottleneck", "advice"),
            ),
            most=50,
            section="Data preparation",
        ),
    ),
)
DATA_CURVES: Spec = Spec(
    "data_curves",
    "rank, queue and run of consecutive batches",
    """
    rank
    text queue
    first: its first batch
    least: smallest size of the queue
    greatest: largest size of the queue
    """,
    lambda run: DATA_CURVES.of_rows(
        (rank.rank, _QUEUES[Queue(queue)], *more)
        for rank in run.facts
        for queue, *more in _rows(rank.profiler_tables.of(QueueCurves))
    ),
)


def _rows(table: QueueSums | QueueCurves) -> Iterator[tuple[int, ...]]:
    return zip(*(column.tolist() for column in table.columns().values()), strict=True)


def _given(value: int) -> int | None:
    return None if value in (NO_ID, NO_TIME) else value


def _preparation(rank: RankFacts) -> tuple[object, ...] | None:
    tables = rank.profiler_tables
    queues, pipeline = tables.of(QueueSums), tables.of(PipelineOperations)
    busy = _busy(tables.of(ProcessorUse))
    if not len(queues) and not len(pipeline) and busy is None:
        return None
    host, device = _counts(queues, Queue.HOST), _counts(queues, Queue.DEVICE)
    bottleneck = _bottleneck(host, device)
    return (
        rank.rank,
        None if bottleneck is None else bottleneck.value,
        None if host is None else host[0] / host[1],
        sorted(pipeline_limits(pipeline)),
        busy,
    )


def _counts(queues: QueueSums, queue: Queue) -> tuple[int, int] | None:
    """Return the number of batches that found a queue empty, and of all; None if not recorded."""
    row = queues.take(queues.queue == queue)
    if not len(row) or row.found_empty[0] == NO_ID:
        return None
    return int(row.found_empty[0]), int(row.records[0])


def _bottleneck(host: tuple[int, int] | None, device: tuple[int, int] | None) -> Bottleneck | None:
    """Return the bottleneck by MindInsight's rule, None without a host queue.

    host, device: numbers of batches that found the queue empty, and of all. Processing limits if
    the host queue is often empty, sending if the device queue ever is.
    """
    if host is None:
        return None
    if host[0] > OFTEN_EMPTY * host[1]:
        return Bottleneck.PROCESSING
    sends_late = device is not None and device[0] > 0
    return Bottleneck.SENDING if sends_late else Bottleneck.NONE


def _busy(uses: ProcessorUse) -> float | None:
    idle = uses.idle[uses.user == ProcessorUser.HOST]
    return (100 - round(float(idle[0]))) / 100 if len(idle) and np.isfinite(idle[0]) else None


def pipeline_limits(rows: PipelineOperations) -> dict[int, Limit]:
    """Return the operations of a rank that limit its pipeline, by MindInsight's rules.

    use(o) is the mean size of the queue of operation o / its capacity, 0 without a queue. Slow
    sink: use >= USED_UP for all operations but the root; then the root alone limits. Fuller input:
    o is not the root, and use(k) - use(o) > FULLER_BY for an operation k that it takes from. Slow
    source: o takes from none, and use(o) < SLOW_SOURCE.

    rows: the root first.
    """
    ops, use, inputs = rows.op.tolist(), _use(rows), _children(rows)
    if not ops:
        return {}
    root, *others = ops
    if all(use[op] >= USED_UP for op in others):
        return {root: Limit.SLOW_SINK}
    limits = {}
    for op in ops:
        if op != root and any(use[child] - use[op] > FULLER_BY for child in inputs[op]):
            limits[op] = Limit.FULLER_INPUT
        elif not inputs[op] and use[op] < SLOW_SOURCE:
            limits[op] = Limit.SLOW_SOURCE
    return limits


def _use(rows: PipelineOperations) -> dict[int, float]:
    columns = (rows.op, rows.samples, rows.capacity, rows.total_size)
    return {
        op: total / samples / capacity if samples > 0 and capacity > 0 else 0.0
        for op, samples, capacity, total in zip(*(one.tolist() for one in columns), strict=True)
    }


def _children(rows: PipelineOperations) -> dict[int, list[int]]:
    """Return the operations that each operation takes from."""
    children: dict[int, list[int]] = {op: [] for op in rows.op.tolist()}
    for op, parent in zip(rows.op.tolist(), rows.parent.tolist(), strict=True):
        if parent != NO_ID:
            children[parent].append(op)
    return children


def _pipeline_rows(rank: RankFacts) -> Iterator[tuple[object, ...]]:
    tables = rank.profiler_tables
    rows, uses = tables.of(PipelineOperations), tables.of(ProcessorUse)
    limits, children = pipeline_limits(rows), _children(rows)
    of_operations = np.flatnonzero(uses.user == ProcessorUser.OPERATION)
    processors = {int(uses.op[at]): at for at in of_operations.tolist()}
    for row in zip(*(column.tolist() for column in rows.columns().values()), strict=True):
        op, kind, workers, parent, samples, capacity, total, empty = row
        has_queue, kind = samples > 0, tables.strings[kind]
        at, limit = processors.get(op), limits.get(op)
        yield (
            rank.rank,
            op,
            kind,
            _given(workers),
            _given(parent),
            children[op],
            _given(samples),
            _given(capacity),
            total / samples if has_queue else None,
            total / samples / capacity if has_queue and capacity > 0 else None,
            empty / samples if has_queue else None,
            None if at is None else _share(float(uses.in_user[at])),
            None if at is None else _share(float(uses.in_system[at])),
            None if limit is None else limit.value,
            None if limit is None else _advice(kind, is_source=not children[op]),
        )


def _share(percent: float) -> float | None:
    return percent / 100 if np.isfinite(percent) else None


def _advice(kind: str, *, is_source: bool) -> str:
    """Return what to try to make an operation of a type faster."""
    name = kind.removesuffix("Op").lower()
    workers = "raise its num_parallel_workers"
    if name.startswith("generator"):
        return f"{workers}, or read MindRecord files with MindRecordDataset"
    if name.startswith("map"):
        return f"{workers}; where it calls functions of Python, make those faster"
    if is_source:
        return workers
    if "batch" in name:
        return f"raise prefetch_size, or {workers.removeprefix('raise ')}"
    return "raise prefetch_size"
