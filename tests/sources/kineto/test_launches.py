"""Proves which call launched a task: by correlation, by the file's arrows, or by External id."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kineto_traces import CALL, KERNEL, Write, read, spelled
from tests.support.profile_shelf import Event
from timeline.layers import Layer
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import FlowEnd, Records
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS

OPERATOR: Event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 100, "tid": 101}


def kernel(ts: int, *, external: int | None = None, name: str = "gemm", dur: int = 5) -> Event:
    """A kernel without a correlation."""
    args = {"device": 0, "stream": 7} | ({} if external is None else {"External id": external})
    return KERNEL | {"ts": ts, "dur": dur, "name": name, "args": args}


def call(ts: int, name: str = "hipLaunchKernel", dur: int = 2, **args: int) -> Event:
    """A call of the runtime with args, External id as `external`."""
    named = {{"external": "External id"}.get(key, key): value for key, value in args.items()}
    return CALL | {"ts": ts, "dur": dur, "name": name, "args": named}


def operator(ts: int, dur: int, name: str, external: int) -> Event:
    return OPERATOR | {"ts": ts, "dur": dur, "name": name, "args": {"External id": external}}


def arrow(number: int, start: Event, end: Event) -> list[Event]:
    """Both ends of an arrow from one event to another."""
    ends = []
    for phase, event in (("s", start), ("f", end)):
        place = {key: event[key] for key in ("pid", "tid", "ts")}
        ends.append({"ph": phase, "id": number, "cat": "ac2g", "name": "ac2g", "bp": "e"} | place)
    return ends


def launched(records: Records) -> list[int | None]:
    """When each task was launched, in us."""
    return [None if at == NO_TIME else at // 1000 for at in records.tasks.launch_ns.tolist()]


def lost_arrows(records: Records) -> dict[str, int]:
    return {one.reason: one.rows for one in records.omissions if "arrows" in one.reason}


@pytest.mark.parametrize("layers", [SUMMARY_LAYERS, DETAIL_LAYERS])
def test_arrows_of_the_file_tell_launches(write: Write, layers: frozenset[Layer]) -> None:
    """Of tasks without a correlation, whose External ids may be those of other operators."""
    calls = [call(1, external=5), call(21, external=6)]
    kernels = [kernel(10, external=5), kernel(30, external=6)]
    around = [operator(0, 9, "aten::mm", 6), operator(20, 9, "aten::add", 5)]
    events = [*calls, *kernels, *around, *arrow(5, calls[0], kernels[0])]
    records = read(write([*events, *arrow(6, calls[1], kernels[1])]), layers=layers)
    assert launched(records) == [1, 21]
    assert spelled(records, records.tasks.op_type) == ["aten::mm", "aten::add"]
    assert not lost_arrows(records)


def test_arrows_and_calls_are_drawn_as_one_connection(write: Write) -> None:
    """The number of the arrow is that of the call and the kernel, and the arrow is drawn."""
    one, other = call(1), kernel(10)
    records = read(write([one, other, *arrow(9, one, other)]))
    assert records.tasks.connection.tolist() == records.host.connection.tolist() == [9]
    assert records.flows.target_kind.tolist() == [FlowEnd.TASK]


def test_a_correlation_comes_before_arrows(write: Write) -> None:
    """An arrow to a kernel that has one does not lead to another call."""
    one, other = call(1, correlation=3), call(4, external=3)
    records = read(write([KERNEL, one, other, *arrow(8, other, KERNEL)]))
    assert launched(records) == [1]
    assert sum(lost_arrows(records).values()) == 2


def test_calls_that_begin_at_once_have_their_own_arrows(write: Write) -> None:
    """Times in microseconds coincide; ends stand in the order of what they are of."""
    calls = [call(1, "hipGetDevice", dur=0), call(1, dur=0), call(1, "hipLaunchKernel", dur=4)]
    kernels = [kernel(10), kernel(20)]
    arrows = [*arrow(1, calls[1], kernels[0]), *arrow(2, calls[2], kernels[1])]
    records = read(write([*calls, *kernels, *arrows]))
    by_call = records.flows.source_row.tolist()
    assert records.host.end_ns[by_call].tolist() == [1_000, 5_000]
    assert not lost_arrows(records)


def test_arrows_that_cannot_be_placed_are_counted_truly(write: Write) -> None:
    """Two kernels begin where one arrow ends, so that it may be of either."""
    one = call(1)
    records = read(write([one, kernel(10), kernel(10), *arrow(4, one, kernel(10))]))
    assert launched(records) == [None, None]
    assert lost_arrows(records) == {
        "arrows that could not be tied to a call and to what it launched": 2
    }


def test_the_start_of_an_arrow_alone_has_no_other_end(write: Write) -> None:
    """ROCm draws one from each call, also from those that launch nothing."""
    one, query = call(1, external=2), call(0, "hipGetDevice", external=1, dur=0)
    of_query = arrow(1, query, query)[0]
    records = read(write([one, query, kernel(10), of_query, *arrow(2, one, kernel(10))]))
    assert launched(records) == [1]
    assert lost_arrows(records) == {"arrows whose other end is not in the profile": 1}


@pytest.mark.parametrize(
    ("calls", "wanted"),
    [
        ([call(1, external=5)], 1),
        ([call(1, external=5), call(3, "hipGetDevice", external=5)], 1),
        ([call(1, external=5), call(3, "hipMemcpyAsync", external=5)], 1),
        ([call(1, external=5, correlation=70)], 1),
        ([call(1, external=5), call(3, external=5)], None),
        ([call(1, "hipGetDevice", external=5)], None),
        ([call(1, "cudaLaunchHostFunc", external=5)], None),
        ([call(1, external=6)], None),
    ],
)
def test_external_ids_tell_launches_of_one_call(
    write: Write, calls: list[Event], wanted: int | None
) -> None:
    """Only if one call that launches kernels has it, whatever others do."""
    records = read(write([*calls, kernel(10, external=5)]))
    assert launched(records) == [wanted]
    assert len(records.flows) == (wanted is not None)


def test_external_ids_that_are_correlations_of_others(write: Write) -> None:
    """A call that is found by External id keeps apart from those that have it as correlation."""
    calls = [call(1, external=3), call(4, external=9, correlation=3)]
    records = read(write([*calls, KERNEL, kernel(20, external=3)]))
    assert launched(records) == [4, 1]
    assert len(set(records.tasks.connection.tolist())) == 2
    assert records.tasks.connection.tolist() == records.host.connection[[1, 0]].tolist()


def test_external_ids_of_calls_name_no_operators(write: Write) -> None:
    """Where calls have them, an operator of the same id did not launch the kernel."""
    same = operator(50, 9, "aten::add", 5)
    records = read(write([kernel(10, external=5), same, call(1, external=7)]))
    assert spelled(records, records.tasks.op_type) == [""]
    assert records.tasks.connection.tolist() == [NO_ID]


def test_marks_at_the_start_of_kernels_tell_no_launch(write: Write) -> None:
    """MSPTI's calls have no length and begin with their kernels, which name their operators."""
    mark: dict[str, Any] = call(10, "MatMulV2", dur=0) | {"cat": "privateuse1_runtime"}
    one = kernel(10, external=5)
    around = operator(0, 9, "aten::mm", 5)
    records = read(write([around, mark, one, *arrow(5, mark, one)]))
    assert launched(records) == [None]
    assert spelled(records, records.tasks.op_type) == ["aten::mm"]
    assert not len(records.flows)
    assert sum(lost_arrows(records).values()) == 2


def test_arrows_from_nowhere_tell_nothing(write: Write) -> None:
    """Damaged ids and lanes that are no numbers join nothing."""
    one, other = call(1), kernel(10)
    ends = [end | {"id": "x"} for end in arrow(1, one, other)]
    records = read(write([one, other, *ends]))
    assert launched(records) == [None]
    assert sum(lost_arrows(records).values()) == 2
