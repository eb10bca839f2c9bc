"""Proves on chains made by hand what the start of a collective is said to have depended on."""

from __future__ import annotations

from typing import Any

from timeline.analysis.path.op_delays import op_delays
from timeline.analysis.path.path_items import PathItems, PathKind
from timeline.records.tables import NO_ID, NO_TIME

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
