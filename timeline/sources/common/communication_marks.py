"""Communication that the framework marked with mstx, all that profilers of level none record."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Bool, Codes
from timeline.columns.distinct import distinct
from timeline.columns.strings import StringPool
from timeline.records.collective_kinds import collective_kind
from timeline.records.not_given import NO_ID
from timeline.records.tables import CommunicationOps, Tasks
from timeline.sources.common.decimals import whole_number

_FIELD = re.compile(r'\\*"(\w+)\\*"\s*:\s*\\*"?([^\\",{}]*)')
_OLDER = re.compile(r"comm:([^,]+),([^,]+),([^,]*),([^,]*)")
"""How older messages write the op, its group, data type and count."""


@dataclass(frozen=True)
class CommunicationMark:
    """What the message of a mark says of the op that it encloses."""

    op: str = ""
    group: str = ""
    data_type: str = ""
    count: int = NO_ID


def parse_mark(message: str) -> CommunicationMark:
    r"""Return what a message says of a communication op, nothing where it lacks op or group.

    Messages are cut at 156 bytes, and some versions escape their quotes.

    >>> parse_mark('{"count": "8", "dataType": "fp32", "groupName": "g1", "opName": "HcclSend"}')
    CommunicationMark(op='HcclSend', group='g1', data_type='FP32', count=8)
    >>> parse_mark(r'{\"groupName\":\"g1\",\"opName\":\"HcclSend\"}').group
    'g1'
    >>> parse_mark("comm:HcclBroadcast,g1,int64,2").count
    2
    """
    if older := _OLDER.fullmatch(message):
        op, group, data_type, count = older.groups()
    else:
        given = dict(_FIELD.findall(message)) if message.startswith("{") else {}
        names = ("opName", "groupName", "dataType", "count")
        op, group, data_type, count = (given.get(name, "") for name in names)
    if not op or not group:
        return CommunicationMark()
    number = whole_number(count)
    return CommunicationMark(op, group, data_type.upper(), NO_ID if number is None else number)


def find_marked_ops(
    tasks: Tasks, message: Codes, listed: CommunicationOps, strings: StringPool
) -> CommunicationOps:
    """Return an op for each task that a mark put around communication, unless it is listed.

    Args:
        tasks: the device tasks that may be marks.
        message: (n,) what the mark of each says.
        listed: the ops that the profile lists as such.
    """
    said = ((code, parse_mark(strings[code])) for code in distinct(message).tolist())
    found = {code: mark for code, mark in said if mark.op}  # few of many names, in their order
    if not found:
        return CommunicationOps.empty()
    marks, codes = [*found.values()], np.array([*found])
    rows = np.flatnonzero(np.isin(message, codes))
    tasks, which = tasks.take(rows), np.searchsorted(codes, message[rows])
    made = CommunicationOps.of(
        len(rows),
        {
            "start_ns": tasks.start_ns,
            "end_ns": tasks.end_ns,
            "group": strings.codes(f"Group {mark.group}" for mark in marks)[which],
            "group_name": strings.codes(mark.group for mark in marks)[which],
            "name": strings.codes(mark.op for mark in marks)[which],
            "graph": tasks.graph,
            "connection": tasks.connection,
            "launch_ns": tasks.launch_ns,
            "count": np.array([mark.count for mark in marks], np.int64)[which],
            "data_type": strings.codes(mark.data_type for mark in marks)[which],
        },
    )
    return made.take(~_are_listed(made, listed, strings))


def _are_listed(made: CommunicationOps, listed: CommunicationOps, strings: StringPool) -> Bool:
    """Return which ops are listed too: with the same connection, or of the same kind meanwhile.

    msMonitor numbers the connections of marks and of ops apart.
    """
    same: Bool = np.isin(made.connection, listed.connection) & (made.connection != NO_ID)
    kinds, others = (np.array(_kinds(ops, strings), str) for ops in (made, listed))
    for kind in {*kinds.tolist()} & {*others.tolist()}:
        rows, its = np.flatnonzero(kinds == kind), listed.take(others == kind)
        its = its.take(np.argsort(its.start_ns, kind="stable"))
        begun = np.searchsorted(its.start_ns, made.end_ns[rows])
        latest_ns = np.maximum.accumulate(its.end_ns)[begun - 1]
        same[rows] |= (begun > 0) & (latest_ns > made.start_ns[rows])
    return same


def _kinds(ops: CommunicationOps, strings: StringPool) -> list[str]:
    return [collective_kind(name) for name in strings.texts(ops.name)]
