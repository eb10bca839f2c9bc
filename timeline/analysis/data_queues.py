"""Fill levels of a rank's data queues: sums over batches, and a curve of bounded length."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Bool, ColumnTable, Int64, column
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import ProfilerTables, Queue, QueueRecords

MOST_POINTS = 400
"""Maximum number of points in the curve of a queue."""


class QueueSums(ColumnTable):
    """Sums of a queue: batches that found it empty or full, and mean times of a batch.

    One row per queue. records: batches with a known queue size; if there are none, batches with a
    known time.
    """

    queue: Int64 = column(np.int64)
    records: Int64 = column(np.int64)
    found_empty: Int64 = column(np.int64, NO_ID)
    found_full: Int64 = column(np.int64, NO_ID)
    capacity: Int64 = column(np.int64, NO_ID)
    get_ns: Int64 = column(np.int64, NO_TIME)
    push_ns: Int64 = column(np.int64, NO_TIME)
    total_ns: Int64 = column(np.int64, NO_TIME)


class QueueCurves(ColumnTable):
    """Curve of a queue: its minimum and maximum size in each run of batches, one row per run."""

    queue: Int64 = column(np.int64)
    first: Int64 = column(np.int64)
    """First batch of the run."""
    least: Int64 = column(np.int64)
    greatest: Int64 = column(np.int64)


def with_queue_sums(tables: ProfilerTables) -> ProfilerTables:
    """Return the tables with sums and curves of queues in place of a row for each batch."""
    records = tables.of(QueueRecords)
    if not len(records):
        return tables
    sums, curves = [], []
    for queue in Queue:
        of_queue = records.take(records.queue == queue)
        if len(of_queue):
            sums.append(_sum(of_queue))
            curves.append(_curve(of_queue))
    kept = {kind: table for kind, table in tables.tables.items() if kind is not QueueRecords}
    kept |= {QueueSums: QueueSums.concat(sums), QueueCurves: QueueCurves.concat(curves)}
    return ProfilerTables(tables.strings, kept)


def _sum(batches: QueueRecords) -> QueueSums:
    """Return the sums of one queue.

    empty and full are the numbers of batches with size = 0 and size = capacity, over batches with a
    known size.
    """
    sized = batches.size != NO_ID
    bounded = sized & (batches.capacity != NO_ID)
    count = int(np.count_nonzero(sized))
    empty, full, capacity = NO_ID, NO_ID, NO_ID
    if count:
        empty = int(np.count_nonzero(sized & (batches.size == 0)))
    if bounded.any():
        full = int(np.count_nonzero(bounded & (batches.size == batches.capacity)))
        capacity = int(batches.capacity[bounded].max())
    times = [_mean(getattr(batches, name)) for name in ("get_ns", "push_ns", "total_ns")]
    records = count or len(np.unique(batches.step))
    row = [int(batches.queue[0]), records, empty, full, capacity, *times]
    return QueueSums(*np.array(row, np.int64).reshape(-1, 1))


def _mean(times_ns: Int64) -> int:
    """Return the rounded mean of the known times, NO_TIME without any."""
    known: Bool = times_ns != NO_TIME
    count = int(np.count_nonzero(known))
    return round(int(times_ns[known].sum()) / count) if count else NO_TIME


def _curve(batches: QueueRecords) -> QueueCurves:
    """Return the extreme sizes of up to MOST_POINTS runs of consecutive batches, in order."""
    sized = batches.take(batches.size != NO_ID)
    sized = sized.take(np.argsort(sized.step, kind="stable"))
    count = len(sized)
    if not count:
        return QueueCurves.empty()
    points = min(count, MOST_POINTS)
    first = np.arange(points) * count // points
    return QueueCurves(
        np.full(points, int(batches.queue[0])),
        sized.step[first],
        np.minimum.reduceat(sized.size, first),
        np.maximum.reduceat(sized.size, first),
    )
