"""Proves that each kernel is of the operator that launched it, and of no other."""

from __future__ import annotations

import pytest

from tests.support.kineto_traces import CALL, KERNEL, Write, read, spelled
from tests.support.profile_shelf import Event
from timeline.layers import Layer
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS

OPERATOR: Event = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "aten::mm",
    "pid": 100,
    "tid": 101,
    "ts": 0,
    "dur": 9,
    "args": {"External id": 77},
}


def launched_by(
    write: Write, *events: Event, layers: frozenset[Layer] = SUMMARY_LAYERS
) -> list[str]:
    """The operators that launched the tasks of a trace."""
    records = read(write(list(events)), layers=layers)
    return spelled(records, records.tasks.op_type)


@pytest.mark.parametrize("layers", [SUMMARY_LAYERS, DETAIL_LAYERS])
@pytest.mark.parametrize("key", ["External id", "external id"])
def test_a_kernel_names_its_operator(write: Write, key: str, layers: frozenset[Layer]) -> None:
    """Also where the host is not drawn, and as the first versions spelled it."""
    kernel = KERNEL | {"args": KERNEL["args"] | {key: 77}}
    unknown = KERNEL | {"args": KERNEL["args"] | {key: 78, "correlation": 4}}
    assert launched_by(write, kernel, OPERATOR, unknown, layers=layers) == ["aten::mm", ""]


def test_a_call_tells_the_operator(write: Write) -> None:
    """The innermost that is open on its thread in the middle of the call."""
    outer = OPERATOR | {"name": "aten::linear", "ts": -5, "dur": 90, "args": {}}
    frame = OPERATOR | {"cat": "python_function", "name": "train.py(1)", "ts": 1, "dur": 1}
    elsewhere = OPERATOR | {"tid": 102, "name": "aten::add", "ts": 1, "dur": 1}
    assert launched_by(write, KERNEL, CALL, frame, elsewhere, OPERATOR, outer) == ["aten::mm"]
    assert launched_by(write, KERNEL, CALL, elsewhere, outer) == ["aten::linear"]
    assert launched_by(write, KERNEL, CALL, elsewhere) == [""]
    assert launched_by(write, KERNEL, OPERATOR) == [""]


def test_clocks_of_host_and_runtime_differ(write: Write) -> None:
    """An operator that ends in the call is not around it, nor one that makes a view of memory."""
    before = OPERATOR | {"name": "aten::add", "ts": 0, "dur": 1.5}
    view = OPERATOR | {"name": "aten::as_strided", "ts": 1, "dur": 3}
    around = OPERATOR | {"ts": 0.5, "dur": 2.9}
    assert launched_by(write, KERNEL, CALL, before, view, around) == ["aten::mm"]


def test_the_correlation_is_no_operator(write: Write) -> None:
    """Some versions write it as the id of the operator, and an operator may have the same."""
    kernel = KERNEL | {"args": KERNEL["args"] | {"External id": 3}}
    other = OPERATOR | {"name": "aten::add", "ts": 50, "args": {"External id": 3}}
    assert launched_by(write, kernel, CALL, OPERATOR, other) == ["aten::mm"]
    assert launched_by(write, kernel, other) == [""]


@pytest.mark.parametrize("name", ["cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch"])
def test_kernels_of_a_graph_have_no_operator(write: Write, name: str) -> None:
    """Those that ran when it was captured are not in the trace."""
    kernel = KERNEL | {"args": KERNEL["args"] | {"External id": 77}}
    assert launched_by(write, kernel, KERNEL, CALL | {"name": name}, OPERATOR) == ["", ""]
