"""Tables on data preparation: what limits it, its queues and its pipeline.

The rules and their thresholds are those of MindInsight's page on data preparation.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence

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
from timeline.tables.table import Table

DATA_PREPARATION: Mapping[str, type] = {
    "rank": int,
    "bottleneck": object,
    "empty_share": float,
    "operations": object,
    "cpu_busy": float,
}
DATA_QUEUES: Mapping[str, type] = {
    "rank": int,
    "queue": object,
    "records": int,
    "empty": int,
    "full": int,
    "capacity": int,
    "get_ns": int,
    "push_ns": int,
    "total_ns": int,
}
DATA_PIPELINE: Mapping[str, type] = {
    "rank": int,
    "op": int,
    "type": object,
    "workers": int,
    "parent": int,
    "children": object,
    "samples": int,
    "capacity": int,
    "mean_size": float,
    "usage": float,
    "empty_share": float,
    "cpu_user": float,
    "cpu_system": float,
    "bottleneck": object,
    "advice": object,
}
_CURVES: Mapping[str, type] = {
    "rank": int,
    "queue": object,
    "first": int,
    "least": int,
    "greatest": int,
}
OFTEN_EMPTY = 0.3
"""The pipeline is too slow where a larger share of batches found the host queue empty."""
FULLER_BY = 0.1
"""An operation is slow where a queue that it takes from is fuller than its own by more."""
SLOW_SOURCE = 0.6
"""A source is slow where it fills a smaller share of its queue."""
USED_UP = 0.8
"""Where all other queues are filled to this share at least, the root is slow."""
_QUEUES = {Queue.HOST: "host", Queue.DEVICE: "device", Queue.TO_DEVICE: "to device"}


class Bottleneck(str, enum.Enum):
    """The bottlenecks of data preparation; programs may rely on the values."""

    PROCESSING = "processing"
    SENDING = "sending"
    NONE = "none"


class Limit(str, enum.Enum):
    """Why an operation limits its pipeline; programs may rely on the values."""

    FULLER_INPUT = "fuller input"
    SLOW_SOURCE = "slow source"
    SLOW_SINK = "slow sink"


def data_preparation_table(facts: Sequence[RankFacts]) -> Table:
    """Return a row per rank with data: what limits the preparation of its data.

    bottleneck: processing, sending or none, not given without a host queue. empty_share: the share
    of batches that found the host queue empty. operations: the ids of those that limit the
    pipeline, ascending. cpu_busy: 1 - the mean idle share of processors, which is rounded to a
    percent as MindInsight does.
    """
    return Table.of_rows(DATA_PREPARATION, filter(None, map(_preparation, facts)))


def data_queue_table(facts: Sequence[RankFacts]) -> Table:
    """Return a row per rank and queue: host, device, or to device.

    records: batches; empty, full: how many of them found it so; capacity: in batches; get_ns,
    push_ns, total_ns: means of a batch. Of the device queue, total_ns is how long the operator took
    that fetches a batch.
    """
    return Table.of_rows(
        DATA_QUEUES,
        (
            (rank.rank, _QUEUES[Queue(queue)], records, *map(_given, more))
            for rank in facts
            for queue, records, *more in _rows(rank.profiler_tables.of(QueueSums))
        ),
    )


def data_pipeline_table(facts: Sequence[RankFacts]) -> Table:
    """Return a row per rank and pipeline operation with a queue, and always the root, the first.

    parent, children: ids; operations without a queue are passed over. samples, capacity, mean_size,
    usage (mean_size / capacity), empty_share: of its queue, not given where it has none. cpu_user,
    cpu_system: shares of all processors. bottleneck: see `pipeline_limits`; advice: what to try
    then.
    """
    return Table.of_rows(DATA_PIPELINE, (row for rank in facts for row in _pipeline_rows(rank)))


def data_curve_table(facts: Sequence[RankFacts]) -> Table:
    """Return a row per rank, queue and run of batches: first batch, least and greatest size."""
    return Table.of_rows(
        _CURVES,
        (
            (rank.rank, _QUEUES[Queue(queue)], *more)
            for rank in facts
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
    """Return how many batches found a queue empty, of how many; None if that is not recorded."""
    its = queues.take(queues.queue == queue)
    if not len(its) or its.found_empty[0] == NO_ID:
        return None
    return int(its.found_empty[0]), int(its.records[0])


def _bottleneck(host: tuple[int, int] | None, device: tuple[int, int] | None) -> Bottleneck | None:
    """Return what limits by MindInsight's rule: a host queue often empty, a device queue ever."""
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
    """Return which operations of a rank limit its pipeline, by MindInsight's rules.

    use(o) is the mean size of the queue of operation o / its capacity, 0 without a queue. Fuller
    input: o is not the root, and use(k) - use(o) > FULLER_BY for an operation k that it takes from.
    Slow source: it takes from none, and use(o) < SLOW_SOURCE. Slow sink: the root and nothing else,
    where use >= USED_UP of all others.

    rows: the root first.
    """
    ops, use, inputs = rows.op.tolist(), _use(rows), _children(rows)
    if not ops:
        return {}
    root, *others = ops
    if all(use[op] >= USED_UP for op in others):
        return {root: Limit.SLOW_SINK}
    found = {}
    for op in ops:
        if op != root and any(use[child] - use[op] > FULLER_BY for child in inputs[op]):
            found[op] = Limit.FULLER_INPUT
        elif not inputs[op] and use[op] < SLOW_SOURCE:
            found[op] = Limit.SLOW_SOURCE
    return found


def _use(rows: PipelineOperations) -> dict[int, float]:
    columns = (rows.op, rows.samples, rows.capacity, rows.total_size)
    return {
        op: total / samples / capacity if samples > 0 and capacity > 0 else 0.0
        for op, samples, capacity, total in zip(*(one.tolist() for one in columns), strict=True)
    }


def _children(rows: PipelineOperations) -> dict[int, list[int]]:
    """Return the operations that each operation takes from."""
    found: dict[int, list[int]] = {op: [] for op in rows.op.tolist()}
    for op, parent in zip(rows.op.tolist(), rows.parent.tolist(), strict=True):
        if parent != NO_ID:
            found[parent].append(op)
    return found


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
    """Return what to try so that an operation of a type becomes faster."""
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
