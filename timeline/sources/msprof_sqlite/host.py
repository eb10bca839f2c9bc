"""Calls and marks from msprof's host tables, with arrows to what they launched."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Codes
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.joining import IDS
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, Flows, HostEvents, Tasks
from timeline.sources.common.device_clock import DeviceClocks
from timeline.sources.common.flow_events import ArrowTargets
from timeline.sources.decoders.sqlite_loose import LooseTable
from timeline.sources.msprof_sqlite.databases import ParsedDatabases

_NAMED_BY_ID = ("acl",)
_NAMED_BY_ITEM = ("hccl", "communication")
"""Levels whose calls are told apart by another column than the type of the call."""


def read_calls(
    databases: ParsedDatabases,
    clock: DeviceClocks,
    strings: StringPool,
    *,
    whole: bool,
) -> HostEvents:
    """Read the calls of CANN; only when they began and what they launched, unless whole."""
    table = databases.host_table("api_event.db", "ApiData")
    raw = table.integers({"start": NO_TIME, "connection_id": NO_ID})
    count = len(raw["start"])
    columns = {
        "start_ns": clock.host_times_ns(raw["start"]),
        "layer": np.full(count, strings.code("CANN")),
        "connection": IDS["connection"].given(raw["connection_id"]),
    }
    if not whole:
        nothing = np.full(count, NO_ID)
        return HostEvents.of(
            count,
            columns
            | {
                "end_ns": columns["start_ns"],
                "thread": nothing,
                "name": np.full(count, NO_NAME, np.int32),
            },
        )
    raw = table.integers({"end": NO_TIME, "thread_id": NO_ID})
    texts = table.texts(("struct_type", "id", "level", "item_id"), strings)
    return HostEvents.of(
        count,
        columns
        | {
            "end_ns": clock.host_times_ns(raw["end"]),
            "process": np.full(count, clock.process),
            "thread": raw["thread_id"],
            "name": _call_names(texts, strings),
            "level": texts["level"],
        },
    )


def _call_names(texts: dict[str, Codes], strings: StringPool) -> Codes:
    """What msprof itself calls a call: by its id, its item or its type, depending on the level."""
    name = texts["struct_type"]
    for levels, column in ((_NAMED_BY_ID, "id"), (_NAMED_BY_ITEM, "item_id")):
        codes = [code for level in levels if (code := strings.find(level)) is not None]
        here = np.isin(texts["level"], np.array(codes, np.int32)) & (texts[column] != NO_NAME)
        name = np.where(here, texts[column], name)
    return name


def read_marks(databases: ParsedDatabases, clock: DeviceClocks, strings: StringPool) -> HostEvents:
    """Read the ranges and marks of mstx, of the older and the newer kind."""
    tables = [databases.host_table("msproftx.db", name) for name in ("MsprofTx", "MsprofTxEx")]
    return HostEvents.concat([_marks(table, clock, strings) for table in tables])


def _marks(table: LooseTable, clock: DeviceClocks, strings: StringPool) -> HostEvents:
    raw = table.integers({"start_time": NO_TIME, "end_time": NO_TIME, "pid": NO_ID, "tid": NO_ID})
    texts = table.texts(("message", "event_type"), strings)
    count = len(raw["tid"])
    start_ns, end_ns = (clock.host_times_ns(raw[name]) for name in ("start_time", "end_time"))
    return HostEvents.of(
        count,
        {
            "start_ns": start_ns,
            # A mark has no end of its own in some versions.
            "end_ns": np.where((raw["end_time"] == 0) & (start_ns != NO_TIME), start_ns, end_ns),
            "layer": np.full(count, strings.code("MSTX")),
            "process": raw["pid"],
            "thread": raw["tid"],
            "name": texts["message"],
            "level": texts["event_type"],
        },
    )


def launch_arrows(
    host: HostEvents, tasks: Tasks, ops: CommunicationOps, strings: StringPool
) -> Flows:
    """Arrows from each call of CANN to the tasks and ops of its connection."""
    rows = np.flatnonzero(host.layer == strings.code("CANN"))
    device = ArrowTargets(strings, tasks, ops)
    return Flows.concat(device.arrows("HostToDevice", host.connection[rows], rows))
