"""Arrows from launches on the host to what they run, and from operators to their gradients."""

from __future__ import annotations

import numpy as np

from timeline.columns.chunks import rows_where
from timeline.columns.columns import Int64, Rows, take
from timeline.columns.constant import constant
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID
from timeline.records.tables import FORWARD_BACKWARD, CommunicationOps, FlowEnd, Flows, Tasks
from timeline.sources.decoders.joins import pairs_by_key, rows_in


class ArrowTargets:
    """Tasks and ops as ends of arrows.

    The tasks of a communication op share its connection; the arrow goes to the op alone.
    """

    def __init__(self, strings: StringPool, tasks: Tasks, ops: CommunicationOps) -> None:
        self._strings = strings
        self._op_connection = ops.connection
        others = np.append(ops.connection, NO_ID)
        self._task_rows = rows_in(tasks.connection, others, invert=True)
        self._task_connection = take(tasks.connection, self._task_rows)

    def arrows(self, category: str, connection: Int64, host_row: Rows) -> list[Flows]:
        """One arrow per host call and device record of the same connection."""
        connected = connection != NO_ID
        if not connected.all():
            connection, host_row = connection[connected], host_row[connected]
        source, op = pairs_by_key(connection, self._op_connection)
        caller, task = pairs_by_key(connection, self._task_connection)
        return [
            build_arrows(self._strings, category, FlowEnd.OP, host_row[source], op),
            build_arrows(
                self._strings, category, FlowEnd.TASK, host_row[caller], self._task_rows[task]
            ),
        ]


def build_arrows(
    strings: StringPool, category: str, kind: FlowEnd, source: Rows, target: Rows
) -> Flows:
    """Arrows from rows of the host's calls to rows of one other table."""
    count = len(source)
    return Flows.of(
        count,
        {
            "category": constant(strings.code(category), count, np.int32),
            "source_kind": constant(FlowEnd.HOST, count, np.int64),
            "source_row": source,
            "target_kind": constant(kind, count, np.int64),
            "target_row": target,
        },
    )


def gradient_arrows(
    strings: StringPool, host_row: Rows, start_ns: Int64, number: Int64, forward_thread: Int64
) -> Flows:
    """Arrows as PyTorch's traces draw them, for a profile that gives the numbers alone.

    A forward call and those that work out its gradient have one sequence number. Of the forward
    calls the innermost counts, which starts last, and of backward the first.

    Args:
        strings: of the rank.
        host_row: (n,) the row of each call in the host table.
        start_ns: (n,)
        number: (n,) sequence numbers, at most 0 for none.
        forward_thread: (n,) the thread that ran forward, which backward calls alone name; else at
            most 0.
    """
    numbered = rows_where(lambda some: some > 0, number)
    is_backward = forward_thread[numbered] > 0
    backward = numbered[is_backward]
    backward = _firsts(backward, number[backward], start_ns[backward])
    forward = numbered[~is_backward]
    # Most numbers of forward are not asked for: inference has no gradients at all.
    forward = forward[np.isin(number[forward], number[backward])]
    forward = _firsts(forward, number[forward], -start_ns[forward])
    source, target = pairs_by_key(number[forward], number[backward])
    return build_arrows(
        strings,
        FORWARD_BACKWARD,
        FlowEnd.HOST,
        host_row[forward[source]],
        host_row[backward[target]],
    )


def _firsts(rows: Rows, number: Int64, key: Int64) -> Rows:
    """The row of each number that has the least key, in order of number."""
    order = np.lexsort((key, number))
    ordered = number[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    return rows[order[first]]
