"""Proves what is read of operators of PyTorch's traces where a comparison asks for it."""

from __future__ import annotations

from typing import Any

from tests.support.kineto_traces import CALL, KERNEL, Write, spelled
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS
from timeline.sources.kineto.header import KinetoHeader
from timeline.sources.kineto.source import read_kineto
from timeline.sources.source import ReadRequest

BASE_NS = 5_000


def operator(dims: Any, name: str = "aten::mm") -> dict[str, Any]:
    args = {"External id": 1} if dims is None else {"External id": 1, "Input Dims": dims}
    return CALL | {"cat": "cpu_op", "name": name, "args": args}


def memory(at: float, changed: int, address: int, device: int = 0) -> dict[str, Any]:
    return {
        "ph": "i",
        "s": "t",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 100,
        "tid": 101,
        "ts": at,
        "args": {
            "Total Reserved": 900,
            "Total Allocated": 500,
            "Bytes": changed,
            "Addr": address,
            "Device Id": device,
            "Device Type": 1,
        },
    }


def read(write: Write, *events: dict[str, Any], **asked: bool) -> Records:
    wanted = ReadRequest(DETAIL_LAYERS, every_arg=False, **asked)
    path = write([KERNEL, CALL, *events])
    return read_kineto(path, 0, KinetoHeader(None, BASE_NS), StringPool(), wanted)


def test_shapes_are_spelled_as_those_of_device_tasks(write: Write) -> None:
    """Lists of tensors are in brackets; what has no shape leaves its place empty."""
    dims = ([[32, 3], [3, 4]], [[], [7]], [[[4], [5, 6]], []], "none", None)
    records = read(write, *map(operator, dims), operators=True, shapes=True)
    host = records.host
    (code,) = (records.strings.code("aten::mm"),)
    found = spelled(records, host.shapes[host.name == code])
    assert found == ["32,3;3,4", ";7", "[4;5,6];", "", ""]
    assert not spelled(records, host.shapes[host.name != code]).count("32,3;3,4")


def test_what_nobody_asks_for_is_not_read(write: Write) -> None:
    """Neither categories nor shapes nor allocations."""
    plain = read(write, operator([[1]]), memory(1, 64, 7))
    assert not plain.host.level.any()
    assert not plain.host.shapes.any()
    assert not len(plain.allocations)
    told = read(write, operator([[1]]), memory(1, 64, 7), operators=True)
    assert set(spelled(told, told.host.level)) == {"cuda_runtime", "cpu_op"}
    assert not told.host.shapes.any()
    assert len(told.allocations) == 1


def test_memory_is_held_until_its_address_is_given_back(write: Write) -> None:
    """On its own device, and in full; what is taken again before was not seen to be given back."""
    records = read(
        write,
        memory(1, 64, 7),
        memory(2, 64, 7, device=1),
        memory(3, -64, 7),
        memory(4, 32, 8),
        memory(5, 16, 8),
        memory(6, -8, 8),
        memory(7, 24, 7),
        memory(8, 2, 9, device=-1),
        operators=True,
    )
    rows = zip(
        *(getattr(records.allocations, name).tolist() for name in ("start_ns", "end_ns")),
        records.allocations.size_bytes.tolist(),
        strict=True,
    )
    assert sorted(rows) == [
        (BASE_NS + 1_000, BASE_NS + 3_000, 64),
        (BASE_NS + 2_000, NO_TIME, 64),
        (BASE_NS + 4_000, NO_TIME, 32),
        (BASE_NS + 5_000, NO_TIME, 16),
        (BASE_NS + 7_000, NO_TIME, 24),
    ]


def test_memory_without_an_address_is_not_seen_given_back(write: Write) -> None:
    """Any other allocation of that size may have been released."""
    taken, released = memory(1, 64, 7), memory(3, -64, 7)
    for event in (taken, released):
        del event["args"]["Addr"]
    records = read(write, taken, released, operators=True)
    assert records.allocations.end_ns.tolist() == [NO_TIME]


def test_frames_of_older_traces_are_parted_by_semicolons(write: Write) -> None:
    """PyTorch until 1.10 wrote stacks into args of operators, without new lines."""
    stack = "torch/_ops.py(1): f; a.py(2): g;"
    operator = CALL | {"cat": "cpu_op", "name": "aten::mm", "args": {"Call stack": stack}}
    records = read(write, operator)
    found = spelled(records, records.host.stack)
    assert [one for one in found if one] == ["torch/_ops.py(1): f\na.py(2): g"]


def test_kernels_of_gpus_have_the_shapes_of_their_operator(write: Write) -> None:
    """By the operator around the call that launched them, if shapes are asked for."""
    around = operator([[32, 3], [3, 4]]) | {"ts": 0, "dur": 9}
    asked = read(write, around, shapes=True)
    assert spelled(asked, asked.tasks.input_shapes) == ["32,3;3,4"]
    assert not read(write, around).tasks.input_shapes.any()
