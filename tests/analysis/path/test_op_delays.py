"""Proves on chains made by hand what the start of a collective is said to have depended on."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timeline.analysis.path.op_delays import op_delays
from timeline.analysis.path.path_items import PathItems, PathKind
from timeline.records.not_given import NO_ID, NO_TIME

COMPUTING, OP = PathKind.COMPUTING, PathKind.TRANSFER


def items(*rows: tuple[PathKind, int, int, int, int, tuple[int, int, int]]) -> PathItems:
    """Items of (kind, start, end, collective, before, (launch, asked, host))."""
    kind, start, end, collective, before, host = zip(*rows, strict=True)
    launch, asked, since = zip(*host, strict=True)
    columns: dict[str, Any] = {
        "kind": kind,
        "start_ns": start,
        "end_ns": end,
        "collective": collective,
    }
    columns |= {
        "name": [0] * len(rows),
        "before": before,
        "launch_ns": launch,
        "asked_ns": asked,
        "host_ns": since,
    }
    return PathItems.of(len(rows), columns)


def test_work_that_the_op_waited_for() -> None:
    """An op that was launched early waits for what computes before it, since the op before."""
    computing_ns, host_ns = op_delays(
        items(
            (OP, 0, 10, 0, NO_ID, (0, 0, 0)),
            (COMPUTING, 10, 60, NO_ID, 0, (10, 10, 10)),
            (OP, 60, 70, 1, 1, (60, 60, 60)),
        ),
        2,
    )
    assert computing_ns.tolist() == [0, 50]
    assert host_ns.tolist() == [0, 0]


def test_work_beside_a_late_host() -> None:
    """What computes while the host has not launched the op yet does not delay it; the host does."""
    computing_ns, host_ns = op_delays(
        items(
            (OP, 0, 10, 0, NO_ID, (0, 0, 0)),
            (COMPUTING, 10, 55, NO_ID, 0, (10, 10, 10)),
            (OP, 60, 70, 1, 0, (58, 50, NO_TIME)),
        ),
        2,
    )
    assert computing_ns.tolist() == [0, 0]
    assert host_ns.tolist() == [0, 60]


def test_work_beside_the_op_before() -> None:
    """What a rank computes while it waits in the op before counts as well: the next op needs it."""
    computing_ns, _ = op_delays(
        items(
            (OP, 0, 40, 0, NO_ID, (0, 0, 0)),
            (COMPUTING, 5, 50, NO_ID, NO_ID, (5, 5, 5)),
            (OP, 50, 70, 1, 1, (50, 50, 50)),
        ),
        2,
    )
    assert computing_ns.tolist() == [0, 45]


def test_a_host_that_waited_for_the_device() -> None:
    """Before the host waited for a task, that task delayed the op, and not the host."""
    computing_ns, host_ns = op_delays(
        items(
            (OP, 0, 10, 0, NO_ID, (0, 0, 0)),
            (COMPUTING, 10, 80, NO_ID, 0, (10, 10, 10)),
            (OP, 100, 110, 1, 1, (98, 95, 82)),
        ),
        2,
    )
    assert computing_ns.tolist() == [0, 70]
    assert host_ns.tolist() == [0, 18]


def test_ops_that_are_not_on_the_device() -> None:
    """Collectives without an item depend on nothing that is known."""
    computing_ns, host_ns = op_delays(PathItems.empty(), 3)
    assert computing_ns.tolist() == host_ns.tolist() == [0, 0, 0]


@st.composite
def chains(draw: st.DrawFn) -> PathItems:
    """Items in order of start, each behind one that had ended before it, or behind none."""
    rows = list[tuple[PathKind, int, int, int, int, tuple[int, int, int]]]()
    start, collective = 0, 0
    for row in range(draw(st.integers(1, 25))):
        start += draw(st.integers(0, 6))
        ended = [at for at in range(row) if rows[at][2] <= start]
        before = draw(st.sampled_from([NO_ID, *ended[-3:]]))
        ready = rows[before][2] if before != NO_ID else start - draw(st.integers(0, 9))
        since, asked, launch = sorted(draw(st.integers(ready, start)) for _ in range(3))
        if before == NO_ID:
            since = draw(st.sampled_from([NO_TIME, asked]))
        is_op = draw(st.booleans())
        its = collective if is_op else NO_ID
        collective += is_op
        end = start + draw(st.integers(0, 12))
        rows.append((OP if is_op else COMPUTING, start, end, its, before, (launch, asked, since)))
    return items(*rows)


@given(chains())
def test_it_is_the_sum_along_the_path(made: PathItems) -> None:
    """Walked item by item, back to when the op before began that ended last until then."""
    count = int((made.collective != NO_ID).sum())
    computing_ns, host_ns = op_delays(made, count)
    starts, ends, before = made.start_ns.tolist(), made.end_ns.tolist(), made.before.tolist()
    launches, asked, hosts = made.launch_ns.tolist(), made.asked_ns.tolist(), made.host_ns.tolist()
    ops = np.flatnonzero(made.collective != NO_ID).tolist()
    for op, row in enumerate(ops):
        ended = [at for at in ops if ends[at] <= starts[row]]
        begin = starts[max(ended, key=lambda at: (ends[at], at))] if ended else starts[0]
        begin = min(begin, starts[row])
        computing = host = 0
        item = row
        while item != NO_ID and (item == row or ends[item] > begin):
            if item != row and made.kind[item] == COMPUTING:
                computing += max(ends[item] - max(starts[item], begin), 0)
            # Late by launch, queue and host; what lies before that is between tasks.
            host += max(starts[item] - max(hosts[item], begin), 0)
            assert starts[item] >= launches[item] >= asked[item] >= hosts[item]
            item = before[item]
        assert (computing_ns[op], host_ns[op]) == (computing, host)


def test_many_ops_at_once_take_no_longer_each() -> None:
    """Ops none of which has ended lead back to the beginning, each by a long path."""
    tasks, ops = 50_000, 5_000
    rows = [(COMPUTING, at, at + 1, NO_ID, at - 1, (at, at, at)) for at in range(tasks)]
    rows += [(OP, tasks, tasks + 9, at, tasks - 1, (tasks,) * 3) for at in range(ops)]
    made = items(*rows)
    begin = time.perf_counter()
    computing_ns, _ = op_delays(made, ops)
    assert time.perf_counter() - begin < 5
    assert (computing_ns == tasks).all()
