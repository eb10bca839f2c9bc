"""Communication that the framework marked with mstx, all that profilers of level none record."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from timeline.columns.columns import Bool, Codes
from timeline.columns.distinct import distinct, distinct_values
from timeline.columns.strings import NO_NAME, StringPool
from timeline.frozen import dataclass
from timeline.patterns import compile_late
from timeline.records.collective_kinds import collective_kind
from timeline.records.not_given import NO_ID
from timeline.records.tables import CommunicationOps, Tasks
from timeline.sources.decoders.exported_values import number

__all__ = ["CommunicationMark", "find_marked_ops", "parse_mark"]

_FIELD = compile_late(r'\\*"(\w+)\\*"\s*:\s*\\*"?([^\\",{}]*)')
_OLDER = "comm:"
"""How messages begin that are `comm:op,group,data type,count`."""


@dataclass(frozen=True)
class CommunicationMark:
    """What the message of a mark says of the op that it encloses."""

    op: str
    group: str
    data_type: str = ""
    count: int = field(default=NO_ID)


def parse_mark(message: str) -> CommunicationMark | None:
    r"""Return what a message says of a communication op, None if it is not about one.

    Messages are cut at 156 bytes, and some versions escape their quotes.

    >>> parse_mark('{"count": "8", "dataType": "fp32", "groupName": "g1", "opName": "HcclSend"}')
    CommunicationMark(op='HcclSend', group='g1', data_type='FP32', count=8)
    >>> parse_mark(r'{\"groupName\":\"g1\",\"opName\":\"HcclSend\"}').group
    'g1'
    >>> parse_mark("comm:HcclBroadcast,g1,int64,2").count
    2
    """
    if message.startswith(_OLDER):
        values = message.removeprefix(_OLDER).split(",")
        names = ("opName", "groupName", "dataType", "count")
        given = dict(zip(names, values, strict=True)) if len(values) == len(names) else {}
    else:
        given = dict(_FIELD.findall(message)) if message.startswith("{") else {}
    op, group = given.get("opName", "").strip(), given.get("groupName", "").strip()
    if not op or not group:
        return None
    count = given.get("count", "").strip()
    return CommunicationMark(
        op,
        group,
        given.get("dataType", "").strip().upper(),
        number(int(count), NO_ID) if count.isascii() and count.isdecimal() else NO_ID,
    )


def find_marked_ops(
    tasks: Tasks, message: Codes, listed: CommunicationOps, strings: StringPool
) -> CommunicationOps:
    """Return an op for each task that a mark put around communication, unless it is listed.

    A listed op of the same connection is the same op, and so is one of the same kind that runs
    meanwhile: connections of marks and of ops may be numbered apart.

    Args:
        tasks: the device tasks that may be marks.
        message: (n,) what the mark of each says.
        listed: the ops that the profile lists as such.
    """
    codes, which = distinct_values(message)
    marks = [parse_mark(strings[code]) for code in codes.tolist()]
    rows = np.flatnonzero(np.array([mark is not None for mark in marks], np.bool_)[which])
    if not len(rows):
        return CommunicationOps.empty()
    known = [mark or CommunicationMark("", "") for mark in marks]
    names = strings.codes(mark.op for mark in known)
    groups = strings.codes(mark.group for mark in known)
    which, tasks = which[rows], tasks.take(rows)
    counts = np.array([mark.count for mark in known], np.int64)
    types = strings.codes(mark.data_type for mark in known)
    made = CommunicationOps.of(
        len(rows),
        {
            "start_ns": tasks.start_ns,
            "end_ns": tasks.end_ns,
            "group": _labels(groups[which], tasks, listed, strings),
            "group_name": groups[which],
            "name": names[which],
            "graph": tasks.graph,
            "connection": tasks.connection,
            "launch_ns": tasks.launch_ns,
            "count": counts[which],
            "data_type": types[which],
        },
    )
    return made.take(~_are_listed(made, listed, strings))


def _labels(groups: Codes, tasks: Tasks, listed: CommunicationOps, strings: StringPool) -> Codes:
    """Return labels of groups, numbered in order of their first op as exports number them."""
    labels = dict(zip(listed.group_name.tolist(), listed.group.tolist(), strict=True))
    labels.pop(NO_NAME, None)
    used = len(distinct(listed.group))
    for group in groups[np.argsort(tasks.start_ns, kind="stable")].tolist():
        if group not in labels:
            labels[group] = strings.code(f"Group {used}")
            used += 1
    return np.array([labels[group] for group in groups.tolist()], np.int32)


def _are_listed(made: CommunicationOps, listed: CommunicationOps, strings: StringPool) -> Bool:
    """Return which ops the profile lists too."""
    same: Bool = np.isin(made.connection, listed.connection) & (made.connection != NO_ID)
    kinds = [_kinds(ops, strings) for ops in (made, listed)]
    for kind in set(kinds[0].tolist()) & set(kinds[1].tolist()):
        rows, others = np.flatnonzero(kinds[0] == kind), listed.take(kinds[1] == kind)
        order = np.argsort(others.start_ns, kind="stable")
        latest_ns = np.maximum.accumulate(others.end_ns[order])
        begun = np.searchsorted(others.start_ns[order], made.end_ns[rows])
        same[rows] |= (begun > 0) & (latest_ns[begun - 1] > made.start_ns[rows])
    return same


def _kinds(ops: CommunicationOps, strings: StringPool) -> Codes:
    codes, which = distinct_values(ops.name)
    return strings.codes(collective_kind(strings[code]) for code in codes.tolist())[which]
