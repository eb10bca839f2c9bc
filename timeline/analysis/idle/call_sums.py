"""Host calls of a rank by name: how often and how long they ran, and what idle time they caused."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from timeline.analysis.idle.charges import ChargedCalls
from timeline.analysis.idle.host_calls import call_name
from timeline.analysis.idle.idle_sums import CAUSES, IdleCause
from timeline.columns.columns import Codes, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import distinct, distinct_pairs, rows_by_value
from timeline.columns.group_by import group_by, quartiles_by_group, sum_by
from timeline.columns.intervals import are_touching, union
from timeline.columns.nesting import latest_open
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
    near = np.arange(len(host))
    if len(wanted) < len(host):
        during = union(host.start_ns[wanted], host.end_ns[wanted])
        near = np.flatnonzero(are_touching(host.start_ns, host.end_ns, during))
    _, lane = distinct_pairs(host.process[near], host.thread[near])
    for _, places in rows_by_value(lane):
        rows = near[places]
        start_ns, end_ns = host.start_ns[rows], host.end_ns[rows]
        edges_ns = distinct(np.concatenate([start_ns, end_ns]))
        innermost = latest_open(start_ns, end_ns, edges_ns[:-1])
        is_open = innermost >= 0
        own_ns[rows] = sum_by(innermost[is_open], np.diff(edges_ns)[is_open], len(rows))
    return own_ns


def sum_calls(
    host: HostEvents,
    own_ns: Int64,
    charged: ChargedCalls,
    around: HostEvents,
    strings: StringPool,
    *,
    most: int,
) -> tuple[tuple[str, ...], CallTimes]:
    """Sum the calls of a selection by layer and name; return strings and what has codes of them.

    Args:
        own_ns: the own time of each call of `host`.
        charged: idle time of the selection by call.
        around: the calls that rows of `charged` refer to, in the selection or beside it.
        strings: what names are codes of.
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
    spread = quartiles_by_group(of, length_ns, names)
    longest_ns = np.zeros(names, np.int64)
    np.maximum.at(longest_ns, of, length_ns)
    times = CallTimes(
        layer[groups.first],
        name[groups.first],
        spread.count,
        sum_by(of, length_ns, names),
        sum_by(of, own_ns, names),
        spread.median,
        longest_ns,
        sum_by(charged_to, charged.idle_ns, names),
    )
    return tuple(pool), times.take(np.lexsort((-times.total_ns, -times.self_ns)))


def find_one_off(
    host: HostEvents,
    charged: ChargedCalls,
    around: HostEvents,
    strings: StringPool,
    idle_ns: int,
) -> OneOff | None:
    """Return the call of a selection that is a one-off cost, None without any.

    Args:
        host: the calls that its length is compared with.
        charged, around, strings: as for `sum_calls`.
        idle_ns: all idle time.
    """
    if not len(charged):
        return None
    calls = group_by(len(charged), [charged.row])
    rows = np.flatnonzero(calls.group == np.argmax(calls.sum(charged.idle_ns)))
    if int(charged.idle_ns[rows].sum()) < ONE_OFF_SHARE * idle_ns:
        return None
    call = around.take(charged.row[rows[:1]])
    length_ns = int(call.end_ns[0] - call.start_ns[0])
    pool = StringPool()
    name, own_name = (pool.translate(one.name, strings, call_name) for one in (host, call))
    like = np.flatnonzero((host.layer == call.layer) & (name == own_name))
    median_ns = int(
        quartiles_by_group(
            np.zeros(len(like), np.int64), host.end_ns[like] - host.start_ns[like], 1
        ).median[0]
    )
    if not len(like) or length_ns <= ONE_OFF_RATIO * median_ns:
        return None
    causes = zip(charged.cause[rows].tolist(), charged.idle_ns[rows].tolist(), strict=True)
    return OneOff(
        strings[int(call.name[0])],
        length_ns,
        median_ns,
        tuple((CAUSES[cause], part_ns) for cause, part_ns in causes),
    )
