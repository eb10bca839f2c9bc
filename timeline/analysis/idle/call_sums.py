"""Host calls of a rank by name: how often and how long they ran, and what idle time they caused."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from timeline.analysis.idle.charges import ChargedCalls
from timeline.analysis.idle.host_calls import call_name
from timeline.analysis.idle.idle_sums import CAUSES, IdleCause
from timeline.columns.columns import Codes, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import distinct_pairs, rows_by_value
from timeline.columns.group_by import GroupBy, group_by, medians_by_group, sum_by
from timeline.columns.intervals import are_touching, union
from timeline.columns.nesting import own_lengths
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.tables import HostEvents

ONE_OFF_SHARE = 0.5
"""A single call that takes such a share of a rank's idle time may be a one-off cost."""
ONE_OFF_RATIO = 20
"""It is one if it is longer than so many times the median call of its name."""


class CallTimes(ColumnTable):
    """Host calls, one row per layer and name, longest own time first.

    name: NO_NAME for all names of a layer that have no rows of their own. self_ns: time in which no
    other call of the same thread is open inside. idle_ns: idle time of the device charged to them.
    """

    layer: Codes = column(np.int32)
    name: Codes = column(np.int32, NO_NAME)
    count: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    self_ns: Int64 = column(np.int64)
    median_ns: Int64 = column(np.int64)
    longest_ns: Int64 = column(np.int64)
    idle_ns: Int64 = column(np.int64)


@dataclass(frozen=True, slots=True)
class OneOff:
    """A single host call that took most of a rank's idle time and is far longer than its like.

    name: as recorded. median_ns: of all calls of its name. causes: the idle time charged to it, by
    cause.
    """

    name: str
    length_ns: int
    median_ns: int
    causes: tuple[tuple[IdleCause, int], ...]

    @property
    def idle_ns(self) -> int:
        """Return the idle time charged to it."""
        return sum(idle_ns for _, idle_ns in self.causes)


@dataclass(frozen=True, slots=True)
class HostCallSums:
    """Host calls of one rank by name; codes are positions in `strings`.

    idle_ns: all idle time of the rank, charged to calls or not.
    """

    strings: tuple[str, ...] = ("",)
    times: CallTimes = field(default_factory=CallTimes.empty)
    idle_ns: int = 0
    one_off: OneOff | None = None


def own_times(host: HostEvents, wanted: Rows) -> Int64:
    """Return the time of each call in which it is the innermost of its thread, (n,).

    Calls may cross if their times were rounded: the one that began last counts. The times of a
    thread add up to the time in which any of its calls is open.

    wanted: rows of the calls whose times are right; those of others may be too short or too long.
    """
    own_ns = np.zeros(len(host), np.int64)
    near: Rows | None = None
    if len(wanted) < len(host):
        during = union(host.start_ns[wanted], host.end_ns[wanted])
        near = np.flatnonzero(are_touching(host.start_ns, host.end_ns, during))
    some = slice(None) if near is None else near
    _, lane = distinct_pairs(host.process[some], host.thread[some])
    for _, places in rows_by_value(lane):
        rows = places if near is None else near[places]
        own_ns[rows] = own_lengths(host.start_ns[rows], host.end_ns[rows])
    return own_ns


def sum_calls(
    host: HostEvents,
    own_ns: Int64,
    charged: ChargedCalls,
    around: HostEvents,
    strings: StringPool,
    *,
    idle_ns: int,
    most: int,
) -> HostCallSums:
    """Sum the calls of a selection by layer and name.

    Args:
        own_ns: the own time of each call of `host`.
        charged: idle time of the selection by call.
        around: the calls that rows of `charged` refer to, in the selection or beside it.
        strings: what names are codes of.
        idle_ns: all idle time.
        most: names with rows of their own, those with the longest own times.
    """
    count, beside = len(host), around.take(charged.row)
    pool = StringPool()
    layer = pool.translate(np.concatenate([host.layer, beside.layer]), strings)
    name = pool.translate(np.concatenate([host.name, beside.name]), strings, call_name)
    groups = group_by(len(name), [layer, name])
    own_times_ns = sum_by(groups.group[:count], own_ns, len(groups.first))
    if len(own_times_ns) > most:
        kept = np.zeros(len(own_times_ns), np.bool_)
        kept[np.argsort(-own_times_ns, kind="stable")[:most]] = True
        name = np.where(kept[groups.group], name, np.int32(NO_NAME))
        groups = group_by(len(name), [layer, name])
    length_ns = host.end_ns - host.start_ns
    of, charged_to, names = groups.group[:count], groups.group[count:], len(groups.first)
    longest_ns = np.zeros(names, np.int64)
    np.maximum.at(longest_ns, of, length_ns)
    times = CallTimes(
        layer[groups.first],
        name[groups.first],
        np.bincount(of, minlength=names).astype(np.int64),
        sum_by(of, length_ns, names),
        sum_by(of, own_ns, names),
        medians_by_group(of, length_ns, names),
        longest_ns,
        sum_by(charged_to, charged.idle_ns, names),
    )
    one_off = _one_off(charged, beside, groups, count, times, strings, idle_ns)
    order = np.lexsort((-times.total_ns, -times.self_ns))
    return HostCallSums(tuple(pool), times.take(order), idle_ns, one_off)


def _one_off(
    charged: ChargedCalls,
    beside: HostEvents,
    groups: GroupBy,
    count: int,
    times: CallTimes,
    strings: StringPool,
    idle_ns: int,
) -> OneOff | None:
    """Return the call that is a one-off cost, None without any.

    beside: the call of each row of `charged`, whose group follows those of `count` calls.
    """
    if not len(charged):
        return None
    calls = group_by(len(charged), [charged.row])
    call = int(np.argmax(calls.sum(charged.idle_ns)))
    rows = np.flatnonzero(calls.group == call)
    at = int(rows[0])
    group = int(groups.group[count + at])
    length_ns = int(beside.end_ns[at] - beside.start_ns[at])
    median_ns = int(times.median_ns[group])
    is_largest = int(charged.idle_ns[rows].sum()) >= ONE_OFF_SHARE * idle_ns
    if not is_largest or not times.count[group] or length_ns <= ONE_OFF_RATIO * median_ns:
        return None
    causes = zip(charged.cause[rows].tolist(), charged.idle_ns[rows].tolist(), strict=True)
    return OneOff(
        strings[int(beside.name[at])],
        length_ns,
        median_ns,
        tuple((CAUSES[cause], part_ns) for cause, part_ns in causes),
    )
