"""Cleaning of records: without invalid and repeated rows, host and device on one clock."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np

from timeline.analysis.idle.launches import MOST_HOST_OFFSET_NS
from timeline.columns.chunks import chunks, rows_where
from timeline.columns.columns import Bool, Int64, Rows, ascending, take
from timeline.layers import HOST_LAYERS, Layer
from timeline.ranges import FURTHEST_NS
from timeline.records.clock import ClockMove, FreeRule
from timeline.records.joining import normalise_ids
from timeline.records.not_given import NO_TIME
from timeline.records.tables import (
    CounterSamples,
    FlowEnd,
    Omission,
    OmissionCode,
    Records,
    Spans,
    Steps,
)

SORTED_ROWS = 1 << 20
"""Number of rows sorted at a time."""
SAMPLED = 1 << 14
"""Number of rows sampled to estimate the distribution of all."""


def repeated_rows(table: Spans) -> Bool:
    """Return a mask of rows with a duration that equal an earlier row in every column.

    Only the metrics of a kernel may lie in another row of their table.

    No context of a stream or plane, and no thread, does the same thing twice in one interval: such
    rows come from exports that overlap, and from files that were merged twice.
    """
    repeated = np.zeros(len(table), np.bool_)
    rows = _with_equals(table.start_ns)
    rows = rows[table.end_ns[rows] > table.start_ns[rows]]
    if not len(rows):
        return repeated
    compared = (field.name for field in fields(table) if field.name != "metrics")
    columns = [take(getattr(table, name), rows) for name in compared]
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
    """Return the rows, ascending, whose value occurs repeatedly; sorts large columns in parts."""
    before, after = values[:-1], values[1:]
    if all((after[chunk] >= before[chunk]).all() for chunk in chunks(len(after))):
        rows = rows_where(np.equal, after, before)
        return np.union1d(rows, rows + 1) if len(rows) else rows
    parts = [np.empty(0, np.intp)]
    for low, high in pairwise(_bounds(values)):
        rows = _rows_between(values, low, high)
        near = values[rows]
        order = np.argsort(near, kind="stable")
        same = near[order][1:] == near[order][:-1]
        parts.append(rows[order[np.append(same, False) | np.append(False, same)]])
    return ascending(np.concatenate(parts))


def _rows_between(values: Int64, low: float, high: float) -> Rows:
    return rows_where(lambda some: (some >= low) & (some < high), values)


def _bounds(values: Int64) -> Iterator[int | float]:
    """Yield bounds with about SORTED_ROWS values in between, from -inf to inf."""
    some = ascending(values[:: max(1, len(values) // SAMPLED)])
    yield -math.inf
    yield from np.unique(some[:: max(1, len(some) * SORTED_ROWS // len(values))])[1:].tolist()
    yield math.inf


MOST_TIMES = 1 << 20
"""Number of times of a table sampled to find its middle."""
MOST_APART_NS = 10 * 366 * 86_400 * 10**9
"""Ten years: no clock of one capture is that wrong."""


def drop_invalid_rows(records: Records) -> Records:
    """Drop and count rows with invalid times, and normalise ids that stand for none.

    Such rows have no start, end before they start, or lie more than ten years from the others
    because of a damaged time, and would make the rest invisible. Host events do so if their clock
    counts from the start of the host in a profile that otherwise has wall time, as MindSpore's CPU
    operators do. Repeated rows are dropped too.
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
    cut = kept.omissions[len(records.omissions) :]
    cut_flows = (replace(one, reason=LOST_END_REASON) for one in cut)
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
    """Return a mask of steps with forward or backward marks outside of them or out of order."""
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
    """Middle of a profile in time, None without records."""

    time_ns: int | None

    @classmethod
    def of(cls, records: Records) -> _Middle:
        """Return the middle of device records, else of host events, else of samples."""
        device = [records.tasks.start_ns, records.ops.start_ns, records.steps.start_ns]
        for columns in (device, [records.host.start_ns], [records.samples.time_ns]):
            known = np.concatenate([_some_known(column) for column in columns])
            if len(known):
                return cls(int(np.partition(known, len(known) // 2)[len(known) // 2]))
        return cls(None)

    def holds(self, times_ns: Int64) -> Bool:
        """Return a mask of times within ten years of the middle."""
        if self.time_ns is None:
            return np.ones(len(times_ns), np.bool_)
        low, high = self.time_ns - MOST_APART_NS, self.time_ns + MOST_APART_NS
        good: Bool = (times_ns >= low) & (times_ns <= high)
        return good


def _some_known(times_ns: Int64) -> Int64:
    """Return some of the valid times, spread evenly; all in a table that is not very large."""
    each = max(1, len(times_ns) // MOST_TIMES)
    known = _known(times_ns[::each])
    return _known(times_ns) if each > 1 and not len(known) else known


def _known(times_ns: Int64) -> Int64:
    known: Int64 = times_ns[(times_ns >= -FURTHEST_NS) & (times_ns <= FURTHEST_NS)]
    return known


LOST_END_REASON = "arrows with an end at a record that is invalid or there twice"
BACKWARDS_REASON = "arrows to what began more than 1 ms before the call"
EARLY_REASON = (
    "records that start before their launch, unlike 99% of all: taken to be launched at their "
    "start, without an arrow"
)
MOST_EARLY = 100
"""One launch in this many, and always one, may start before its call without moving a clock."""


def drop_backward_arrows(records: Records) -> Records:
    """Drop and count arrows to records that start too long before the call to be launched by it."""
    left = _without_arrows(records, MOST_HOST_OFFSET_NS)
    return _with_omission(left, BACKWARDS_REASON, len(records.flows) - len(left.flows))


def fit_host_clock(records: Records) -> Records:
    """Move host times back by the amount that tasks start before their launch, at most 1 ms.

    Host times are those of host events, windows of host steps, and launches; device times stay.
    Records that start even earlier were not launched by the call. A single odd record must not move
    all others, so of each kind of launch one percent, and always one, may still start early: those
    count as launched when they start. Their arrows are counted as omissions here, and stay until
    `drop_early_arrows`.
    """
    early_ns = max((_most_early_ns(one) for one in _earliness(records)), default=0)
    if early_ns > 0:
        back = ClockMove(-early_ns)
        records = replace(
            records,
            host=records.host.moved(back),
            allocations=records.allocations.moved(back),
            steps=_moved_host_steps(records.steps, back),
            tasks=replace(records.tasks, launch_ns=back.of(records.tasks.launch_ns)),
            ops=replace(records.ops, launch_ns=back.of(records.ops.launch_ns)),
            planes=replace(records.planes, launch_ns=back.of(records.planes.launch_ns)),
            host_offset_ns=-early_ns,
        )
    arrows = int(np.count_nonzero(_leads(records)[1] > 0))
    clipped, launches = _clipped(records)
    return _with_omission(clipped, EARLY_REASON, max(arrows, launches))


def drop_early_arrows(records: Records) -> Records:
    """Drop the arrows that `fit_host_clock` counted, to what still starts before its call."""
    if all(one.reason != EARLY_REASON for one in records.omissions):
        return records
    return _without_arrows(records, 0)


def _most_early_ns(early_ns: Int64) -> int:
    """Return how much earlier than their launch records start, without the exceptions."""
    possible = early_ns[early_ns <= MOST_HOST_OFFSET_NS]
    left = max(len(possible) // MOST_EARLY, 1)
    if len(possible) <= left:
        return 0
    return max(int(np.partition(possible, -left - 1)[-left - 1]), 0)


def _clipped(records: Records) -> tuple[Records, int]:
    """Move launches after the start of their record to that start, and count them.

    Records that start earlier by more than clocks may differ were not launched by the call.
    """
    changed, count = {}, 0
    for name in ("tasks", "ops", "planes"):
        table = getattr(records, name)
        early_ns = table.launch_ns - table.start_ns
        limit_ns = MOST_HOST_OFFSET_NS + records.host_offset_ns
        early = (table.launch_ns != NO_TIME) & (early_ns > 0) & (early_ns <= limit_ns)
        if early.any():
            launch_ns = np.where(early, table.start_ns, table.launch_ns)
            changed[name] = replace(table, launch_ns=launch_ns)
            count += int(np.count_nonzero(early))
    return (replace(records, **changed) if changed else records), count


def _without_arrows(records: Records, most_early_ns: int) -> Records:
    """Return the records without arrows to what starts over `most_early_ns` before its call."""
    leads, early_ns = _leads(records)
    early = leads[early_ns > most_early_ns]
    if not len(early):
        return records
    stays = np.ones(len(records.flows), np.bool_)
    stays[early] = False
    return replace(records, flows=records.flows.take(stays))


def _with_omission(records: Records, reason: str, rows: int) -> Records:
    if not rows:
        return records
    layers = frozenset({Layer.ARROWS})
    code = OmissionCode.ARROW_BACKWARDS
    lost = Omission(reason, rows, records.rank, code=code, layers=layers)
    return replace(records, omissions=(*records.omissions, lost))


def _earliness(records: Records) -> Iterator[Int64]:
    """Yield how much earlier records start than their launch, by arrows and by launch times."""
    yield _leads(records)[1]
    for table in (records.tasks, records.ops, records.planes):
        known = table.launch_ns != NO_TIME
        yield table.launch_ns[known] - table.start_ns[known]


def _leads(records: Records) -> tuple[Int64, Int64]:
    """Return the rows of arrows from host to device, and how much before its call each ends."""
    flows, host = records.flows, records.host
    from_host: Bool = flows.source_kind == FlowEnd.HOST
    arrows, early_ns = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for kind, table in (
        (FlowEnd.TASK, records.tasks),
        (FlowEnd.OP, records.ops),
        (FlowEnd.PLANE, records.planes),
    ):
        rows = np.flatnonzero(from_host & (flows.target_kind == kind))
        arrows.append(rows)
        early_ns.append(
            host.start_ns[flows.source_row[rows]] - table.start_ns[flows.target_row[rows]]
        )
    return np.concatenate(arrows), np.concatenate(early_ns)


def _moved_host_steps(steps: Steps, move: ClockMove) -> Steps:
    """Return the steps with those marked on the host moved."""
    if not steps.host.any():
        return steps
    moved = steps.moved(move).columns()
    columns = steps.columns()
    return Steps(**{name: np.where(steps.host, moved[name], columns[name]) for name in columns})
