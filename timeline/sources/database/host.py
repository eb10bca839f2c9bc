"""Names and host calls of a profile database, and arrows from calls to the tasks they launched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from timeline.columns.chunks import compute_in_chunks
from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct, map_values
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.joining import IDS, NO_VALUE
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import (
    FRAMEWORK_LAUNCH,
    CommunicationOps,
    FlowEnd,
    Flows,
    HostEvents,
    Tasks,
)
from timeline.sources.common.call_stacks import read_chains
from timeline.sources.common.flow_events import ArrowTargets, build_arrows, gradient_arrows
from timeline.sources.decoders.joins import pairs_by_key
from timeline.sources.decoders.sqlite import Database
from timeline.sources.source import ReadRequest


class DatabaseNames:
    """The strings of one database by id, and the pool of those that are used."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.strings = StringPool()
        self.by_id: dict[int, str] = {}
        if database.has("STRING_IDS", "id", "value"):
            self.by_id = database.strings_by_id("STRING_IDS", "id", "value")

    def codes(self, ids: Int64) -> Codes:
        """Return the pool's codes of string ids; an id without a string is shown as its number."""
        return self._encode(ids, self.by_id)

    def shapes(self, ids: Int64) -> Codes:
        """Return the pool's codes of shapes, without the quotes that databases store."""
        return self._encode(ids, self.by_id, lambda text: text.strip('"'))

    def input_shapes(self, ids: Int64, type_ids: Int64) -> Codes:
        """Return the pool's codes of input shapes of framework operators, without line breaks.

        type_ids: string ids of the column of types. If torch_npu exchanged the two columns, shapes
        are read from there.
        """
        shapes = type_ids if self._are_swapped(ids, type_ids) else ids
        return self._encode(shapes, self.by_id, lambda text: "".join(text.split()))

    def input_types(self, ids: Int64, type_ids: Int64) -> Codes:
        """Return the pool's codes of the types of the same inputs, given both as above."""
        types = ids if self._are_swapped(ids, type_ids) else type_ids
        return self._encode(types, self.by_id, lambda text: "".join(text.split()))

    def _are_swapped(self, ids: Int64, type_ids: Int64) -> bool:
        return self._have_letters(ids) and not self._have_letters(type_ids)

    def _have_letters(self, ids: Int64) -> bool:
        """Return whether any string has a letter; type names have letters, shapes do not."""
        strings = (self.by_id.get(number, "") for number in distinct(ids).tolist())
        return any(character.isalpha() for string in strings for character in string)

    def enum(self, table: str, values: Int64) -> Codes:
        """Return the pool's codes of the names of enumeration values."""
        return self._encode(values, self.enum_names(table))

    def enum_names(self, table: str) -> Mapping[int, str]:
        """Return the names of an enumeration table by value; the strings by id if `table` is ""."""
        if not table:
            return self.by_id
        if not self._database.has(table, "id", "name"):
            return {}
        return self._database.strings_by_id(table, "id", "name")

    def numbers(self, ids: Int64) -> Codes:
        """Return the pool's codes of ids, which are shown as numbers."""
        return self._encode(ids, {})

    def _encode(
        self, ids: Int64, names: Mapping[int, str], format_name: Callable[[str], str] = str
    ) -> Codes:
        def text(number: int) -> str:
            if number in names:
                return format_name(names[number])
            return "" if number in NO_VALUE else str(number)

        def codes(values: Int64) -> Codes:
            return self.strings.codes(map(text, values.tolist()))

        return map_values(ids, codes)


QUEUE_CALL = 50002
"""ENUM_API_TYPE of torch_npu's task queue."""
_SPAN = {"startNs": NO_TIME, "endNs": NO_TIME}
THREAD_BITS = 32
THREAD_MASK = (1 << THREAD_BITS) - 1
"""Mask of the thread in globalTid, which holds the process in its higher bits."""


def read_cann_calls(database: Database, *, whole: bool, every_arg: bool) -> dict[str, Int64]:
    """Read the columns of CANN calls.

    Until early 2024 the table was named API, and its column of types level.

    Args:
        database: the profile database.
        whole: whether calls are drawn, or only their starts and connections are wanted.
        every_arg: whether types are wanted too, if calls are drawn.
    """
    table, level = ("CANN_API", "type") if database.has("CANN_API") else ("API", "level")
    columns = {"startNs": NO_TIME, "connectionId": NO_ID}
    if whole:
        columns |= {"endNs": NO_TIME, "globalTid": NO_ID, "name": NO_ID}
        columns |= {level: NO_ID} if every_arg else {}
    calls = database.integers(table, columns)
    calls["connectionId"] = IDS["connection"].normalise(calls["connectionId"])
    if level in calls:
        calls["type"] = calls.pop(level)
    return calls


def read_host(
    database: Database,
    names: DatabaseNames,
    calls: dict[str, Int64],
    tasks: Tasks,
    ops: CommunicationOps,
    wanted: ReadRequest,
) -> tuple[HostEvents, Flows]:
    """Read CANN calls, framework calls and marks, and arrows by their connections.

    Args:
        database: the profile database.
        names: its names.
        calls: columns of all CANN calls.
        tasks, ops: the device tasks and communication ops at which arrows end.
        wanted: what is read of framework operators.
    """
    framework = database.integers(
        "PYTORCH_API",
        _SPAN
        | dict.fromkeys(("type", "globalTid", "connectionId", "name"), NO_ID)
        | {"sequenceNumber": NO_ID, "fwdThreadId": NO_ID}
        | {"callchainId": NO_ID}
        | ({"inputShapes": NO_ID, "inputDtypes": NO_ID} if wanted.with_shapes else {}),
    )
    marks = database.integers(
        "MSTX_EVENTS",
        _SPAN | dict.fromkeys(("eventType", "globalTid", "connectionId", "message"), NO_ID),
    )
    levels: Codes = constant(NO_NAME, len(calls["name"]), np.int32)
    kinds = "ENUM_API_TYPE" if database.has("ENUM_API_TYPE") else "ENUM_API_LEVEL"
    if "type" in calls:
        levels = names.enum(kinds, calls["type"])
    operators = _build_calls(
        names, "Python", framework, framework["name"], names.enum(kinds, framework["type"])
    )
    host = HostEvents.concat(
        [
            _build_calls(names, "CANN", calls, calls["name"], levels),
            replace(operators, **_read_operator_columns(database, names, framework, wanted)),
            _build_calls(
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
            *_build_framework_arrows(database, names, framework, first_framework, device),
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


def _build_calls(
    names: DatabaseNames, layer: str, raw: dict[str, Int64], ids: Int64, level: Codes
) -> HostEvents:
    count = len(ids)
    thread = raw["globalTid"]
    return HostEvents.of(
        count,
        {
            "start_ns": raw["startNs"],
            "end_ns": raw["endNs"],
            "layer": names.strings.code(layer),
            "process": compute_in_chunks(np.int64, lambda ids: ids >> THREAD_BITS, thread),
            "thread": compute_in_chunks(
                np.int64, lambda ids: np.where(ids == NO_ID, NO_ID, ids & THREAD_MASK), thread
            ),
            "name": names.codes(ids),
            "level": level,
            "connection": raw["connectionId"] if layer == "CANN" else NO_ID,
        },
    )


def _read_operator_columns(
    database: Database, names: DatabaseNames, raw: dict[str, Int64], wanted: ReadRequest
) -> dict[str, Any]:
    """Return the columns that only operators of the framework have."""
    columns: dict[str, Any] = {
        "stack": read_chains(database, names.by_id, names.strings, raw["callchainId"])
    }
    if wanted.with_shapes:
        columns["shapes"] = names.input_shapes(raw["inputShapes"], raw["inputDtypes"])
    if wanted.every_arg:
        columns["input_types"] = names.input_types(raw["inputShapes"], raw["inputDtypes"])
        columns["sequence"] = np.where(raw["sequenceNumber"] < 0, NO_ID, raw["sequenceNumber"])
    return columns


def _build_framework_arrows(
    database: Database,
    names: DatabaseNames,
    framework: dict[str, Int64],
    first: int,
    device: ArrowTargets,
) -> list[Flows]:
    """Return arrows from framework calls, each of which may have several connections."""
    ids = database.integers("CONNECTION_IDS", {"id": NO_ID, "connectionId": NO_ID})
    connected = np.flatnonzero(framework["connectionId"] != NO_ID)
    call, link = pairs_by_key(framework["connectionId"][connected], ids["id"])
    caller, connection = connected[call], ids["connectionId"][link]
    return [
        *device.arrows(FRAMEWORK_LAUNCH, connection, caller + first),
        _build_queue_arrows(names, framework, caller, connection, first),
    ]


def _build_queue_arrows(
    names: DatabaseNames, framework: dict[str, Int64], caller: Rows, connection: Int64, first: int
) -> Flows:
    """Return arrows from each Enqueue to the Dequeue with the same connection."""
    in_queue = framework["type"] == QUEUE_CALL
    enqueue_ids = [number for number, name in names.by_id.items() if name.startswith("Enqueue")]
    is_enqueue = np.isin(framework["name"], enqueue_ids)
    enqueue, dequeue = (is_enqueue & in_queue)[caller], (~is_enqueue & in_queue)[caller]
    left, right = pairs_by_key(connection[enqueue], connection[dequeue])
    return build_arrows(
        names.strings,
        "async_task_queue",
        FlowEnd.HOST,
        caller[enqueue][left] + first,
        caller[dequeue][right] + first,
    )
