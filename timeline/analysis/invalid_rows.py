"""Rows whose times or ids make no sense, or that are there twice: dropped, and counted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np

from timeline.columns.chunks import chunks, rows_where
from timeline.columns.columns import Bool, Int64, Rows, ascending, take
from timeline.frozen import dataclass
from timeline.layers import HOST_LAYERS, Layer
from timeline.ranges import FURTHEST_NS
from timeline.records.counting_rules import FreeRule
from timeline.records.ids import normalise_ids
from timeline.records.not_given import NO_TIME
from timeline.records.tables import CounterSamples, Omission, OmissionCode, Records, Spans, Steps

__all__ = ["drop_invalid_rows", "repeated_rows"]

SORTED_ROWS = 1 << 20
"""Rows that are sorted at a time."""
SAMPLED = 1 << 14
"""Rows that tell how all are spread."""


def repeated_rows(table: Spans) -> Bool:
    """Rows that are equal to an earlier row in every column, and take time.

    No context of a stream or plane, and no thread, does the same thing twice in one interval:
    exports that overlap, and files that were put together twice, give such rows.
    """
    repeated = np.zeros(len(table), np.bool_)
    rows = _with_equals(table.start_ns)
    rows = rows[table.end_ns[rows] > table.start_ns[rows]]
    if not len(rows):
        return repeated
    columns = [take(getattr(table, field.name), rows) for field in fields(table)]
    columns = [
        values.view(np.int64) if values.dtype == np.float64 else values for values in columns
    ]
    order = np.lexsort(columns)
    equal = np.ones(max(0, len(rows) - 1), np.bool_)
    for values in columns:
        equal &= values[order][1:] == values[order][:-1]
    repeated[rows[order[1:][equal]]] = True
    return repeated


def _with_equals(values: Int64) -> Rows:
    """The rows, ascending, whose value other rows have too; of many some are sorted at a time."""
    before, after = values[:-1], values[1:]
    if all((after[chunk] >= before[chunk]).all() for chunk in chunks(len(after))):
        rows = rows_where(np.equal, after, before)
        return np.union1d(rows, rows + 1) if len(rows) else rows
    found = [np.empty(0, np.intp)]
    for low, high in pairwise(_bounds(values)):
        rows = _rows_between(values, low, high)
        near = values[rows]
        order = np.argsort(near, kind="stable")
        same = near[order][1:] == near[order][:-1]
        found.append(rows[order[np.append(same, False) | np.append(False, same)]])
    return ascending(np.concatenate(found))


def _rows_between(values: Int64, low: float, high: float) -> Rows:
    return rows_where(lambda some: (some >= low) & (some < high), values)


def _bounds(values: Int64) -> Iterator[int | float]:
    """Values between which about SORTED_ROWS lie, from below all of them to above."""
    some = ascending(values[:: max(1, len(values) // SAMPLED)])
    yield -math.inf
    yield from np.unique(some[:: max(1, len(some) * SORTED_ROWS // len(values))])[1:].tolist()
    yield math.inf


MOST_TIMES = 1 << 20
"""Times of a table that tell where its middle is."""
MOST_APART_NS = 10 * 366 * 86_400 * 10**9
"""Ten years: no clock of one capture is that wrong."""


def drop_invalid_rows(records: Records) -> Records:
    """Drop rows whose times make no sense, and count them; ids that stand for none become so.

    Those rows have no start, end before they start, or lie more than ten years from the others: a
    damaged time puts them there, and they would leave nothing of the rest to see. Host events
    do so where their clock counts from the start of the host in a profile that otherwise has wall
    time, as MindSpore's CPU operators do. Rows that are there twice are dropped too.
    """
    records = _with_normal_ids(records)
    omissions = list(records.omissions)
    middle = _Middle.of(records)

    def omit(
        count: int,
        reason: str,
        code: OmissionCode,
        layers: frozenset[Layer] = frozenset(),
        *,
        loss: bool = True,
    ) -> None:
        if count:
            omissions.append(
                Omission(reason, count, records.rank, loss=loss, code=code, layers=layers)
            )

    def check(
        table: Spans,
        noun: str,
        far: str = "more than ten years from the others",
        layers: frozenset[Layer] = frozenset(),
    ) -> Bool:
        good = np.empty(len(table), np.bool_)
        untimed = distant = 0
        for chunk in chunks(len(table)):
            start_ns, end_ns = table.start_ns[chunk], table.end_ns[chunk]
            timed = (start_ns >= -FURTHEST_NS) & (end_ns >= start_ns) & (end_ns <= FURTHEST_NS)
            near = middle.holds(start_ns) & middle.holds(end_ns)
            untimed += int(np.count_nonzero(~timed))
            distant += int(np.count_nonzero(timed & ~near))
            good[chunk] = timed & near
        repeated = repeated_rows(table)
        omit(untimed, f"{noun} without a valid time", OmissionCode.NO_TIME, layers)
        omit(distant, f"{noun} {far}", OmissionCode.FAR_TIME, layers)
        twice = int(np.count_nonzero(good & repeated))
        omit(twice, f"{noun} that are there twice", OmissionCode.REPEATED, layers, loss=False)
        good &= ~repeated
        return good

    def check_samples(samples: CounterSamples) -> Bool:
        good: Bool = (
            (samples.time_ns >= -FURTHEST_NS)
            & (samples.time_ns <= FURTHEST_NS)
            & np.isfinite(samples.value)
            & middle.holds(samples.time_ns)
        )
        untimed = int(np.count_nonzero(~good))
        omit(untimed, "counter samples without a valid time", OmissionCode.NO_TIME)
        return good

    kept = records.filter(
        tasks=check(records.tasks, "device tasks"),
        planes=check(records.planes, "HCCL tasks", layers=frozenset({Layer.COMMUNICATION})),
        ops=check(records.ops, "communication ops"),
        steps=check(records.steps, "steps"),
        parts=check(records.parts, "step parts"),
        host=check(
            records.host, "host events", "on a clock that nothing relates to the rest", HOST_LAYERS
        ),
        samples=check_samples(records.samples),
    )
    cut_flows = kept.omissions[len(records.omissions) :]
    unsound = _unsound_marks(kept.steps)
    omit(
        int(np.count_nonzero(unsound)),
        "forward and backward that do not lie within their step",
        OmissionCode.NO_TIME,
        frozenset({Layer.STEPS}),
    )
    marks = (kept.steps.fp_start_ns, kept.steps.bp_end_ns)
    fp_start_ns, bp_end_ns = (np.where(unsound, NO_TIME, times_ns) for times_ns in marks)
    steps = replace(kept.steps, fp_start_ns=fp_start_ns, bp_end_ns=bp_end_ns)
    rule = records.free_rule
    bounds = [time_ns for time_ns in (rule.start_ns, rule.end_ns) if time_ns is not None]
    if not middle.holds(np.array(bounds, np.int64)).all():
        rule = FreeRule()
    return replace(kept, steps=steps, omissions=(*omissions, *cut_flows), free_rule=rule)


def _unsound_marks(steps: Steps) -> Bool:
    """Steps whose forward begins, or backward ends, outside of them or in the wrong order."""
    has_fp, has_bp = steps.fp_start_ns != NO_TIME, steps.bp_end_ns != NO_TIME
    unsound: Bool = (
        (has_fp & ((steps.fp_start_ns < steps.start_ns) | (steps.fp_start_ns > steps.end_ns)))
        | (has_bp & ((steps.bp_end_ns < steps.start_ns) | (steps.bp_end_ns > steps.end_ns)))
        | (has_fp & has_bp & (steps.fp_start_ns > steps.bp_end_ns))
    )
    return unsound


def _with_normal_ids(records: Records) -> Records:
    strings = records.strings
    return replace(
        records,
        tasks=normalise_ids(records.tasks, strings),
        planes=normalise_ids(records.planes, strings),
        ops=normalise_ids(records.ops, strings),
        steps=normalise_ids(records.steps, strings),
        parts=normalise_ids(records.parts, strings),
        host=normalise_ids(records.host, strings),
    )


@dataclass(frozen=True)
class _Middle:
    """The middle of a profile in time, None where it has no records."""

    time_ns: int | None

    @classmethod
    def of(cls, records: Records) -> _Middle:
        """That of device records, else of host events."""
        device = [records.tasks.start_ns, records.ops.start_ns, records.steps.start_ns]
        for columns in (device, [records.host.start_ns], [records.samples.time_ns]):
            known = np.concatenate([_some_known(column) for column in columns])
            if len(known):
                return cls(int(np.partition(known, len(known) // 2)[len(known) // 2]))
        return cls(None)

    def holds(self, times_ns: Int64) -> Bool:
        """Which times are within ten years of it."""
        if self.time_ns is None:
            return np.ones(len(times_ns), np.bool_)
        low, high = self.time_ns - MOST_APART_NS, self.time_ns + MOST_APART_NS
        good: Bool = (times_ns >= low) & (times_ns <= high)
        return good


def _some_known(times_ns: Int64) -> Int64:
    """Some of the times that are known, spread evenly; all of a table that is not very large."""
    each = max(1, len(times_ns) // MOST_TIMES)
    known = _known(times_ns[::each])
    return _known(times_ns) if each > 1 and not len(known) else known


def _known(times_ns: Int64) -> Int64:
    known: Int64 = times_ns[(times_ns >= -FURTHEST_NS) & (times_ns <= FURTHEST_NS)]
    return known
