"""Gaps of a device between kernels: queued in time, launched late, or after a wait of the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.analysis.idle.host_calls import call_name, names_waiting_for_device
from timeline.analysis.idle.launches import DeviceItems, values_at
from timeline.columns.columns import Int64, Rows, sort_rows
from timeline.columns.distinct import rows_by_value
from timeline.columns.group_by import group_by
from timeline.columns.intervals import covered_between, union
from timeline.records.not_given import NO_ID
from timeline.records.tables import Records, Spans

LEAST_QUEUED = 10
"""Minimum number of gaps before queued kernels to estimate the gap that the device needs."""
LEAST_SHARE = 0.05
"""Quantile of these gaps that is taken as that gap."""
_NONE, _EVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class GapSums:
    """Number and total of some gaps of a device, and their median; 0 for none."""

    count: int = 0
    total_ns: int = 0
    median_ns: int = 0


@dataclass(frozen=True, slots=True)
class CallsOutside:
    """Host calls outside the time from the first to the last kernel, without calls inside calls.

    total_ns: of all threads. call, call_ns: name of the call that takes longest, and its time.
    """

    total_ns: int = 0
    call: str = ""
    call_ns: int = 0


@dataclass(frozen=True, slots=True)
class KernelGaps:
    """Gaps of a device without steps, by the time at which the kernel after each was launched.

    all: gaps with work on both sides. queued: of them, those whose kernel the host began to launch
    before the device became free, so that it made the gap itself; late: those launched after it. A
    gap whose launch is not recorded, or in which kernels were lost, is in neither.
    waited: gaps that are not of queued kernels, and
    in which a host call returned that had waited for the device; call: name of most of these calls.
    least_ns: gap that the device needs, the low end of queued ones, 0 if too few are known.
    start_ns: median time from the return of a late launch to the start of its kernel, 0 or more.
    span_ns: from the first kernel to the last. before, after: host calls before and after that.
    """

    all: GapSums = GapSums()
    queued: GapSums = GapSums()
    late: GapSums = GapSums()
    waited: GapSums = GapSums()
    call: str = ""
    least_ns: int = 0
    start_ns: int = 0
    span_ns: int = 0
    before: CallsOutside = CallsOutside()
    after: CallsOutside = CallsOutside()

    @property
    def most_ns(self) -> int:
        """Return the time that a host could win: late gaps beyond what the device needs of each."""
        return max(self.late.total_ns - self.least_ns * self.late.count, 0)


def kernel_gaps(records: Records, gaps: Spans, item: Rows, items: DeviceItems) -> KernelGaps:
    """Sum the gaps of a device by when the kernel after each was launched.

    gaps: with work on both sides. item: (gaps,) row of the item that ends each, NO_ID for none.
    """
    if not len(items):
        return KernelGaps()
    first_ns, last_ns = int(items.start_ns.min()), int(items.end_ns.max())
    length_ns = gaps.end_ns - gaps.start_ns
    lost = union(records.unrecorded.start_ns, records.unrecorded.end_ns)
    known = values_at(items.launch, item, NO_ID) != NO_ID
    known &= covered_between(lost, gaps.start_ns, gaps.end_ns) == 0
    is_late = known & (values_at(items.launch_start_ns, item) >= gaps.start_ns)
    is_queued = known & ~is_late
    queued_ns, least_ns = length_ns[is_queued], 0
    if len(queued_ns) >= LEAST_QUEUED:
        least_ns = int(np.quantile(queued_ns, LEAST_SHARE, method="lower"))
    calls = _waits_ending_in(records, gaps, values_at(items.end_ns, item))
    waited = (calls != NO_ID) & ~is_queued
    names = np.bincount(records.host.name[calls[waited]])
    lag_ns = (gaps.end_ns - values_at(items.launch_end_ns, item))[is_late]
    return KernelGaps(
        _sums(length_ns),
        _sums(queued_ns),
        _sums(length_ns[is_late]),
        _sums(length_ns[waited]),
        call_name(records.strings[int(np.argmax(names))]) if len(names) else "",
        least_ns,
        max(int(np.median(lag_ns)), 0) if len(lag_ns) else 0,
        last_ns - first_ns,
        _calls_within(records, _NONE, first_ns),
        _calls_within(records, last_ns, _EVER),
    )


def _waits_ending_in(records: Records, gaps: Spans, until_ns: Int64) -> Rows:
    """Return the row of the last host call that ended its wait for the device in each gap.

    NO_ID for none. The call begins before the gap ends, and returns after the gap begins and before
    the kernel after it ends: clocks of host and device may differ by more than a gap, but hardly by
    a kernel.

    until_ns: (gaps,) the end of that kernel, NO_TIME for none.
    """
    host = records.host
    rows = np.flatnonzero(np.isin(host.name, names_waiting_for_device(records.strings)))
    if not len(rows):
        return np.full(len(gaps), NO_ID)
    rows = rows[np.argsort(host.end_ns[rows], kind="stable")]
    at = np.searchsorted(host.end_ns[rows], until_ns, side="left") - 1
    call = rows[np.maximum(at, 0)]
    ends = (at >= 0) & (host.end_ns[call] > gaps.start_ns) & (host.start_ns[call] <= gaps.end_ns)
    return np.where(ends, call, NO_ID)


def _calls_within(records: Records, start_ns: int, end_ns: int) -> CallsOutside:
    """Return the sums of the outermost host calls that lie within an interval."""
    host = records.host
    rows = np.flatnonzero((host.start_ns >= start_ns) & (host.end_ns <= end_ns))
    outermost = []
    for _, places in rows_by_value(host.thread[rows]):
        own = rows[places]
        own = own[sort_rows(host.start_ns[own], -host.end_ns[own])]
        reached_ns = np.maximum.accumulate(host.end_ns[own])
        outermost.append(own[np.append(True, host.end_ns[own][1:] > reached_ns[:-1])])
    if not outermost:
        return CallsOutside()
    calls = np.concatenate(outermost)
    length_ns = host.end_ns[calls] - host.start_ns[calls]
    groups = group_by(len(calls), [host.name[calls]])
    by_name_ns = groups.sum(length_ns)
    most = int(np.argmax(by_name_ns))
    name = call_name(records.strings[int(host.name[calls[groups.first[most]]])])
    return CallsOutside(int(length_ns.sum()), name, int(by_name_ns[most]))


def _sums(length_ns: Int64) -> GapSums:
    if not len(length_ns):
        return GapSums()
    return GapSums(len(length_ns), int(length_ns.sum()), int(np.median(length_ns)))
