"""Comparison of figures with the profiler's own figures of the same capture."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from timeline.analysis.overlap import Overlap
from timeline.analysis.work.operators import OperatorTimes
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, column
from timeline.columns.distinct import distinct
from timeline.columns.group_by import group_by
from timeline.columns.intervals import covered_between
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import Measure, VendorFigures
from timeline.records.tables import CommunicationOps, Records, Steps
from timeline.selection import Selection

PARTS = {
    Measure.COMPUTING: "computing_ns",
    Measure.COMMUNICATION: "communication_ns",
    Measure.NOT_OVERLAPPED: "not_overlapped_ns",
    Measure.FREE: "free_ns",
}
"""Parts of device time under the names of the report."""
MOST_ALIKE = 16
"""Maximum number of equal numbers of one measure and file with rows of their own; more share one
row.
"""


class Checks(ColumnTable):
    """Compared numbers, one row each.

    numbers: number of equal numbers that share the row. ours_ns: NO_TIME if there is nothing to
    compare. theirs_ns: the profiler's number. by_start: whether the profiler counts segments that
    start in the step's host window, see `_counts_by_start`.
    """

    measure: Int64 = column(np.int64)
    file: Codes = column(np.int32)
    step: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    numbers: Int64 = column(np.int64)
    ours_ns: Int64 = column(np.int64)
    theirs_ns: Int64 = column(np.int64)
    tolerance_ns: Int64 = column(np.int64)
    by_start: Bool = column(np.bool_, 0)

    @property
    def equal(self) -> Bool:
        """Return a mask of numbers that are equal within the file's own rounding."""
        known = self.ours_ns != NO_TIME
        off_ns = np.abs(np.where(known, self.ours_ns - self.theirs_ns, 0))
        same: Bool = known & (off_ns <= self.tolerance_ns)
        return same


@dataclass(frozen=True, slots=True)
class RankChecks:
    """Comparisons of one rank; codes are positions in `strings`."""

    strings: tuple[str, ...] = ("",)
    rows: Checks = field(default_factory=Checks.empty)


@dataclass(frozen=True)
class Measured:
    """Measurements of the selected part of a rank.

    overlap: parts of its device time. steps: selected steps. by_launch: parts of each step by the
    rule of its profiler, see `overlap_by_launch`. operators and operator_strings: its types of
    operators. op_steps: (ops,) the step of each op.
    """

    overlap: Overlap
    steps: Steps
    by_launch: list[dict[str, int]]
    operators: OperatorTimes
    operator_strings: tuple[str, ...]
    op_steps: Int64


def rank_checks(
    records: Records, selection: Selection, windowed: bool, measured: Measured
) -> RankChecks:
    """Compare the profiler's numbers whose records are all selected.

    A window or a choice of graphs selects none of them completely, a choice of steps only those of
    single steps.
    """
    vendor = records.vendor
    if not len(vendor) or windowed or selection.graphs is not None:
        return RankChecks()
    whole = selection.steps is None
    if whole:
        vendor = _of_capture(vendor, measured.steps)
    else:
        chosen = np.fromiter(selection.steps or (), np.int64)
        vendor = vendor.take(np.isin(vendor.step, chosen))
    tasks = records.tasks
    if not (tasks.op_type[tasks.compute] != NO_NAME).any():
        # This layout has no types, and names may differ from those of the profiler.
        vendor = vendor.take(vendor.measure != Measure.OPERATOR)
    # Steps of ops are compared only if both sides have them.
    op_steps = measured.op_steps
    are_ops = vendor.measure == Measure.COLLECTIVE
    if not ((vendor.step[are_ops] != NO_ID).any() and (op_steps != NO_ID).any()):
        op_steps = np.full(len(op_steps), NO_ID)
        vendor = replace(vendor, step=np.where(are_ops, NO_ID, vendor.step))
    vendor = _joined(vendor, records.strings)
    ours_ns = np.full(len(vendor), NO_TIME)
    for measure, part in PARTS.items():
        rows = np.flatnonzero(vendor.measure == measure)
        ours_ns[rows] = _parts_ns(vendor.step[rows], part, measured, whole=whole)
    rows = np.flatnonzero(vendor.measure == Measure.OPERATOR)
    ours_ns[rows] = _operators_ns(vendor.name[rows], records.strings, measured)
    rows = np.flatnonzero(vendor.measure == Measure.COLLECTIVE)
    ours_ns[rows] = _collectives_ns(vendor.step[rows], vendor.name[rows], op_steps, records.ops)
    checks = Checks(
        vendor.measure,
        vendor.file,
        vendor.step,
        vendor.name,
        np.ones(len(vendor), np.int64),
        ours_ns,
        vendor.value_ns,
        vendor.tolerance_ns,
        _counts_by_start(vendor, measured, records.host_offset_ns) & whole,
    )
    checks, strings = _summed(checks), StringPool()
    checks = replace(
        checks,
        file=strings.translate(checks.file, records.strings),
        name=strings.translate(checks.name, records.strings),
    )
    return RankChecks(tuple(strings), checks)


def _of_capture(vendor: VendorFigures, steps: Steps) -> VendorFigures:
    """Assign the numbers of the only step of a capture that has no such step to the whole capture.

    Profilers call it 0, or leave its cell empty, if steps were not marked for them. The capture may
    have other steps, marked by the runtime.
    """
    numbers = distinct(vendor.step[vendor.step != NO_ID]).tolist()
    if len(numbers) != 1 or (len(steps) and numbers != [0]) or numbers[0] in steps.iteration:
        return vendor
    return replace(vendor, step=np.full(len(vendor), NO_ID))


def _counts_by_start(vendor: VendorFigures, measured: Measured, host_offset_ns: int) -> Bool:
    """Return a mask of parts of steps that equal the segments starting in the step's host window.

    MindSpore counts so since 2.6: whole busy segments, and free time within the window, including
    both of its ends.
    """
    steps = measured.steps.take(measured.steps.host)
    steps = steps.take(np.argsort(steps.iteration, kind="stable"))
    by_start = np.zeros(len(vendor), np.bool_)
    if not len(steps):
        return by_start
    at = np.minimum(np.searchsorted(steps.iteration, vendor.step), len(steps) - 1)
    for measure, part in PARTS.items():
        rows = np.flatnonzero((vendor.measure == measure) & (steps.iteration[at] == vendor.step))
        start_ns, end_ns = (
            times_ns[at[rows]] - host_offset_ns for times_ns in (steps.start_ns, steps.end_ns)
        )
        segments = getattr(measured.overlap, part.removesuffix("_ns"))
        first = np.searchsorted(segments.start_ns, start_ns)
        last = np.searchsorted(segments.start_ns, end_ns, side="right")
        upto_ns = np.concatenate([[0], np.cumsum(segments.end_ns - segments.start_ns)])
        counted_ns = upto_ns[last] - upto_ns[first]
        if measure is Measure.FREE:
            counted_ns = covered_between(segments, start_ns, end_ns)
        # Each segment is rounded by itself.
        near_ns = vendor.tolerance_ns[rows] + (last - first)
        by_start[rows] = np.abs(counted_ns - vendor.value_ns[rows]) <= near_ns
    return by_start


def _parts_ns(steps: Int64, part: str, measured: Measured, *, whole: bool) -> Int64:
    """Return the time of a part of device time in each step; NO_ID is the capture.

    A step of several graphs is the sum over them.
    """
    part_ns = np.array([totals[part] for totals in measured.by_launch], np.int64)
    sums_ns = _sums_ns(measured.steps.iteration, part_ns, steps)
    all_ns = measured.overlap.totals_ns()[part] if whole else NO_TIME
    return np.where(steps == NO_ID, all_ns, sums_ns)


def _operators_ns(names: Codes, strings: StringPool, measured: Measured) -> Int64:
    times = measured.operators.take(~measured.operators.communication)
    pool = StringPool()
    ours = pool.codes(measured.operator_strings)[times.type]
    return _sums_ns(ours, times.total_ns, pool.translate(names, strings))


def _joined(vendor: VendorFigures, strings: StringPool) -> VendorFigures:
    """Sum rows of the same file, measure, step and name: a file may split a number into rows."""
    _, file = strings.by_spelling(vendor.file)
    _, name = strings.by_spelling(vendor.name)
    keys = (file, vendor.measure, vendor.step - NO_ID, name)
    groups = group_by(len(vendor), keys)
    return replace(
        vendor.take(groups.first),
        value_ns=groups.sum(vendor.value_ns),
        tolerance_ns=groups.sum(vendor.tolerance_ns),
    )


def _collectives_ns(step: Int64, name: Codes, op_steps: Int64, ops: CommunicationOps) -> Int64:
    """Return the length of all ops of each step and name, NO_TIME for none."""
    width = 1 + max(int(name.max(initial=0)), int(ops.name.max(initial=0)))
    ours = (op_steps - NO_ID) * width + ops.name
    return _sums_ns(ours, ops.end_ns - ops.start_ns, (step - NO_ID) * width + name)


def _sums_ns(keys: Int64 | Codes, values_ns: Int64, wanted: Int64 | Codes) -> Int64:
    """Return the sum of the values of each wanted key, NO_TIME for none."""
    order = np.argsort(keys, kind="stable")
    upto_ns = np.concatenate([[0], np.cumsum(values_ns[order])])
    begin, end = (np.searchsorted(keys, wanted, side, order) for side in ("left", "right"))
    return np.where(end > begin, upto_ns[end] - upto_ns[begin], NO_TIME)


def _summed(checks: Checks) -> Checks:
    """Merge equal numbers of one measure and file into a row if there are many."""
    equal = checks.equal
    parts = [checks.take(np.flatnonzero(~equal))]
    same = checks.take(equal)
    groups = group_by(len(same), (same.file, same.measure))
    for number in np.argsort(groups.first).tolist():
        alike = same.take(groups.group == number)
        if len(alike) > MOST_ALIKE:
            names = ("numbers", "ours_ns", "theirs_ns", "tolerance_ns")
            sums = {name: getattr(alike, name).sum(keepdims=True) for name in names}
            nameless = {"step": np.array([NO_ID]), "name": np.array([NO_NAME], np.int32)}
            alike = Checks(**(alike[:1].columns() | nameless | sums))
        parts.append(alike)
    return Checks.concat(parts)


def known_reasons(checks: RankChecks) -> list[str | None]:
    """Return known reasons for each of our numbers to differ from the profiler's, by its version.

    Free time follows from the other parts of the same step, and is explained by them first.
    """
    rows, equal = checks.rows, checks.rows.equal
    reasons: list[str | None] = []
    others: dict[tuple[int, int], str | None] = {}
    for row in range(len(rows)):
        measure, at = Measure(int(rows.measure[row])), (int(rows.file[row]), int(rows.step[row]))
        ours_ns, theirs_ns = int(rows.ours_ns[row]), int(rows.theirs_ns[row])
        reason = None
        if not equal[row] and ours_ns == NO_TIME:
            reason = "nothing of that name, or no such step, was read"
        elif not equal[row] and rows.by_start[row]:
            reason = "its writer counts whole segments in the step in whose host window they start"
        elif not equal[row]:
            file = checks.strings[at[0]]
            reason = others.get(at) if at in others else _reason(measure, file, ours_ns - theirs_ns)
        if not equal[row] and measure in (Measure.COMPUTING, Measure.COMMUNICATION):
            others[at] = reason
        reasons.append(reason)
    return reasons


def _reason(measure: Measure, file: str, off_ns: int) -> str | None:
    """Return a known reason for a difference; off_ns: ours minus theirs."""
    in_steps = file.endswith(".db") or file.startswith("step_trace_time")
    match measure:
        case Measure.FREE if off_ns < 0 and not in_steps:
            return "its writer counts Free between the first and the last task of any kind"
        case Measure.COMMUNICATION | Measure.NOT_OVERLAPPED if off_ns > 0 and in_steps:
            return "profilers before 2024-10-24 measure the tasks of communication, not its ops"
        case Measure.COLLECTIVE if off_ns > 0:
            return "newer profilers measure the main plane of an op alone"
        case _:
            return None
