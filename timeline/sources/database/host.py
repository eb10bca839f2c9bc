"""Host calls of a profile database, and arrows to what they launched."""

from __future__ import annotations

import numpy as np

from timeline.columns.chunks import compute_in_chunks
from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.constant import constant
from timeline.columns.strings import NO_NAME
from timeline.records.joining import IDS
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import (
    FRAMEWORK_LAUNCH,
    CommunicationOps,
    FlowEnd,
    Flows,
    HostEvents,
    Tasks,
)
from timeline.sources.common.flow_events import ArrowTargets, build_arrows, gradient_arrows
from timeline.sources.database.names import DatabaseNames
from timeline.sources.decoders.joins import pairs_by_key
from timeline.sources.decoders.sqlite import Database

QUEUE_CALL = 50002
"""ENUM_API_TYPE of torch_npu's task queue."""
THREAD_BITS = 32
THREAD_MASK = (1 << THREAD_BITS) - 1
"""globalTid packs the process above the thread."""


def read_cann_calls(database: Database, *, whole: bool, every_arg: bool) -> dict[str, Int64]:
    """The calls of CANN as they are in the database; when they began, unless they are drawn.

    The table was called API until early in 2024, and its column of types level.
    """
    table, level = ("CANN_API", "type") if database.has("CANN_API") else ("API", "level")
    columns = {"startNs": NO_TIME, "connectionId": NO_ID}
    if whole:
        columns |= {"endNs": NO_TIME, "globalTid": NO_ID, "name": NO_ID}
        columns |= {level: NO_ID} if every_arg else {}
    calls = database.integers(table, columns)
    calls["connectionId"] = IDS["connection"].given(calls["connectionId"])
    if level in calls:
        calls["type"] = calls.pop(level)
    return calls


def read_host(
    database: Database,
    names: DatabaseNames,
    calls: dict[str, Int64],
    tasks: Tasks,
    ops: CommunicationOps,
    *,
    shapes: bool,
) -> tuple[HostEvents, Flows]:
    """CANN calls, framework calls and marks, with the arrows that connections give.

    shapes: whether those of the framework's operators are read.
    """
    framework = database.integers(
        "PYTORCH_API",
        {
            "startNs": NO_TIME,
            "endNs": NO_TIME,
            "type": NO_ID,
            "globalTid": NO_ID,
            "connectionId": NO_ID,
            "name": NO_ID,
            "sequenceNumber": NO_ID,
            "fwdThreadId": NO_ID,
        }
        | ({"inputShapes": NO_ID, "inputDtypes": NO_ID} if shapes else {}),
    )
    marks = database.integers(
        "MSTX_EVENTS",
        {
            "startNs": NO_TIME,
            "endNs": NO_TIME,
            "eventType": NO_ID,
            "globalTid": NO_ID,
            "connectionId": NO_ID,
            "message": NO_ID,
        },
    )
    levels: Codes = constant(NO_NAME, len(calls["name"]), np.int32)
    kinds = "ENUM_API_TYPE" if database.has("ENUM_API_TYPE") else "ENUM_API_LEVEL"
    if "type" in calls:
        levels = names.enum(kinds, calls["type"])
    host = HostEvents.concat(
        [
            _calls(names, "CANN", calls, calls["name"], levels),
            _calls(
                names,
                "Python",
                framework,
                framework["name"],
                names.enum(kinds, framework["type"]),
            ),
            _calls(
                names,
                "MSTX",
                marks,
                marks["message"],
                names.enum("ENUM_MSTX_EVENT_TYPE", marks["eventType"]),
            ),
        ]
    )
    first_framework = len(calls["connectionId"])
    first_mark = first_framework + len(framework["connectionId"])
    device = ArrowTargets(names.strings, tasks, ops)
    flows = Flows.concat(
        [
            *device.arrows("HostToDevice", calls["connectionId"], np.arange(first_framework)),
            *_framework_arrows(database, names, framework, first_framework, device),
            gradient_arrows(
                names.strings,
                first_framework + np.arange(len(framework["startNs"])),
                framework["startNs"],
                framework["sequenceNumber"],
                framework["fwdThreadId"],
            ),
            *device.arrows(
                "MsTx", marks["connectionId"], np.arange(len(marks["connectionId"])) + first_mark
            ),
        ]
    )
    return host, flows


def _calls(
    names: DatabaseNames, layer: str, raw: dict[str, Int64], ids: Int64, level: Codes
) -> HostEvents:
    count = len(ids)
    none = constant(NO_ID, count, np.int64)
    thread = raw["globalTid"]
    return HostEvents.of(
        count,
        {
            "start_ns": raw["startNs"],
            "end_ns": raw["endNs"],
            "layer": constant(names.strings.code(layer), count, np.int32),
            "process": compute_in_chunks(np.int64, _process, thread),
            "thread": compute_in_chunks(np.int64, _thread, thread),
            "name": names.codes(ids),
            "level": level,
            "connection": raw["connectionId"] if layer == "CANN" else none,
        }
        | (
            {"shapes": names.input_shapes(raw["inputShapes"], raw["inputDtypes"])}
            if "inputShapes" in raw
            else {}
        ),
    )


def _process(global_tid: Int64) -> Int64:
    return np.where(global_tid == NO_ID, NO_ID, global_tid >> THREAD_BITS)


def _thread(global_tid: Int64) -> Int64:
    return np.where(global_tid == NO_ID, NO_ID, global_tid & THREAD_MASK)


def _framework_arrows(
    database: Database,
    names: DatabaseNames,
    framework: dict[str, Int64],
    first: int,
    device: ArrowTargets,
) -> list[Flows]:
    """Arrows from framework calls: one call may have several connections."""
    ids = database.integers("CONNECTION_IDS", {"id": NO_ID, "connectionId": NO_ID})
    connected = np.flatnonzero(framework["connectionId"] != NO_ID)
    call, link = pairs_by_key(framework["connectionId"][connected], ids["id"])
    caller, connection = connected[call], ids["connectionId"][link]
    return [
        *device.arrows(FRAMEWORK_LAUNCH, connection, caller + first),
        _queue_arrows(names, framework, caller, connection, first),
    ]


def _queue_arrows(
    names: DatabaseNames, framework: dict[str, Int64], caller: Rows, connection: Int64, first: int
) -> Flows:
    """Arrows from Enqueue to the Dequeue of the same correlation."""
    queue = framework["type"] == QUEUE_CALL
    starts = framework["name"] == names.id_of("Enqueue")
    puts, takes = (starts & queue)[caller], (~starts & queue)[caller]
    left, right = pairs_by_key(connection[puts], connection[takes])
    return build_arrows(
        names.strings,
        "async_task_queue",
        FlowEnd.HOST,
        caller[puts][left] + first,
        caller[takes][right] + first,
    )
