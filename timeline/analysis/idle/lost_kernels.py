"""Launches whose kernels were not recorded, and when those may have run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timeline.analysis.idle.call_kinds import capture_edges, launching_names
from timeline.columns.columns import Bool, Rows
from timeline.columns.distinct import distinct, distinct_values, rows_by_value
from timeline.columns.intervals import IntervalSet, subtract, union, union_of_sets
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import GPU, RUNTIME, Records, Spans
from timeline.units import spell_number, spell_short

LONG_NS = 10_000_000
"""Minimum delay after its launch for the first kernel of a stream to have waited for other work."""


def with_lost_kernels(records: Records) -> Records:
    """Add the times in which unrecorded kernels of a GPU may have run, and warn of lost kernels.

    The recording may begin in the middle of the work of a stream, see `cut_off_before`. A launch
    lost its kernels if no device task has its connection although a later launch has run. A stream
    runs kernels in the order of their launches, so they ran between the launches before and after,
    on the busier of the streams of these two. The last launches may not have run when the recording
    ended.
    """
    host, tasks = records.host, records.tasks
    cut_off = cut_off_before(records)
    if len(cut_off):
        warning = (
            f"rank {records.rank}: the recording begins in the middle of the work of a stream; "
            f"{spell_short(cut_off.total_ns)} before its first kernel count for nothing."
        )
        records = replace(
            records,
            unrecorded=Spans(cut_off.start_ns, cut_off.end_ns),
            warnings=(*records.warnings, warning),
        )
    lost = _launches_without_tasks(records)
    if not len(lost):
        return records
    launched = np.flatnonzero((tasks.launch_ns != NO_TIME) & ~tasks.copy)
    if not len(launched) and not tasks.compute.any():
        return _with_warning(records, lost, ", and no kernel")
    launched = launched[np.argsort(tasks.launch_ns[launched], kind="stable")]
    after = np.searchsorted(tasks.launch_ns[launched], host.start_ns[lost], side="right")
    lost, after = lost[after < len(launched)], after[after < len(launched)]
    first, last = _around(tasks.stream[launched], tasks.compute[launched], after)
    ended_ns = np.append(tasks.end_ns[launched], NO_TIME)[first]
    start_ns = np.maximum(host.start_ns[lost], ended_ns)
    end_ns = tasks.start_ns[launched[last]]
    some = start_ns < end_ns
    times = union_of_sets(union(start_ns[some], end_ns[some]), cut_off)
    records = replace(records, unrecorded=Spans(times.start_ns, times.end_ns))
    description = " without a kernel, though later ones have theirs"
    return _with_warning(records, lost, description) if len(lost) else records


def cut_off_before(records: Records) -> IntervalSet:
    """Return when streams of a GPU worked on launches from before the recording.

    That is the time from the launch of the first kernel of a stream to its start, if it is long and
    no recorded task runs.
    """
    tasks = records.tasks
    kernels = np.flatnonzero(tasks.compute & (tasks.launch_ns != NO_TIME))
    if records.hardware != GPU or not len(kernels):
        return union(tasks.start_ns[:0], tasks.end_ns[:0])
    kernels = kernels[np.argsort(tasks.start_ns[kernels], kind="stable")]
    _, first = np.unique(tasks.stream[kernels], return_index=True)
    launch_ns, start_ns = tasks.launch_ns[kernels[first]], tasks.start_ns[kernels[first]]
    late = start_ns - launch_ns > LONG_NS
    first_ns = tasks.start_ns.min()
    before = union(np.maximum(launch_ns[late], first_ns), start_ns[late])
    before = subtract(before, union(tasks.start_ns, tasks.end_ns))
    lasts = before.end_ns - before.start_ns > LONG_NS
    return IntervalSet(before.start_ns[lasts], before.end_ns[lasts])


def _with_warning(records: Records, lost: Rows, description: str) -> Records:
    noun = "launch" if len(lost) == 1 else "launches"
    lost_by = "the profiler lost what they launched" if len(lost) > 1 else "the profiler lost it"
    warning = f"rank {records.rank}: {spell_number(len(lost))} {noun}{description}: {lost_by}."
    return replace(records, warnings=(*records.warnings, warning))


def _around(stream: Rows, compute: Bool, after: Rows) -> tuple[Rows, Rows]:
    """Return the launches before and after lost kernels on their stream, -1 if none is before.

    Args:
        stream, compute: (n,) of the launched tasks, in order of launch.
        after: (k,) the next of these after each lost kernel.
    """
    _, which = distinct_values(stream)
    busy = np.bincount(which, compute)
    before = after - 1
    is_before = (before >= 0) & (busy[which[before]] >= busy[which[after]])
    own, count = np.where(is_before, which[before], which[after]), len(which)
    order = np.argsort(which, kind="stable")
    at = np.searchsorted(which[order] * count + order, own * count + after)
    last, following = order[at - 1], order[np.minimum(at, count - 1)]
    return (
        np.where((at > 0) & (which[last] == own), last, before),
        np.where(which[following] == own, following, after),
    )


def _launches_without_tasks(records: Records) -> Rows:
    """Return the host rows of launches outside captures that have no device task."""
    host, strings = records.host, records.strings
    layer, launching = strings.find(RUNTIME), launching_names(strings)
    rows = np.flatnonzero(
        (host.layer == (NO_NAME if layer is None else layer))
        & (host.connection != NO_ID)
        & np.isin(host.name, launching)
    )
    rows = rows[~np.isin(host.connection[rows], distinct(records.tasks.connection))]
    rows = rows[~_are_captured(records, rows)] if len(rows) else rows
    return rows[np.unique(host.connection[rows], return_index=True)[1]]


def _are_captured(records: Records, rows: Rows) -> Bool:
    """Return a mask of calls that a stream captured.

    They lie between calls of their thread that begin and end a capture.
    """
    host = records.host
    begins, ends = (np.isin(host.name, codes) for codes in capture_edges(records.strings))
    edges = np.flatnonzero(begins | ends)
    captured = np.zeros(len(rows), np.bool_)
    if not len(edges):
        return captured
    edges = edges[np.argsort(host.start_ns[edges], kind="stable")]
    for thread, of_thread in rows_by_value(host.thread[edges]):
        thread_edges = edges[of_thread]
        some = np.flatnonzero(host.thread[rows] == thread)
        at = np.searchsorted(host.start_ns[thread_edges], host.start_ns[rows[some]])
        # Before the first edge, a capture is open if that edge ends one.
        captured[some] = np.append(ends[thread_edges[0]], begins[thread_edges])[at]
    return captured
