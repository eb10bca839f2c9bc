"""What profilers record that know collectives as marks of the framework, or by a plug-in alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from simulator.model import COMMUNICATION_STREAM, NO_ID, Collective, RankRun, Run
from simulator.writers.database import (
    SCHEMA,
    Row,
    Tables,
    database_tables,
    write_database,
    write_torch_database,
)
from simulator.writers.events import Event, fine_us, slice_event
from simulator.writers.session import stamp
from simulator.writers.trace_json.msprof import CANN_8, wall_clock
from simulator.writers.trace_json.torch_text import write_torch_text

FIRST_MARK = 4_000_000_000
"""msprof numbers the connections of marks from here on."""
MSTX_SCHEMA = """
CREATE TABLE MSTX_EVENTS (startNs INTEGER,endNs INTEGER,eventType INTEGER,rangeId INTEGER,\
category INTEGER,message INTEGER,globalTid INTEGER,endGlobalTid INTEGER,domainId INTEGER,\
connectionId INTEGER);
"""
START_END = 2
"""ENUM_MSTX_EVENT_TYPE of a range."""
_MONITORED = (
    *("SESSION_TIME_INFO", "STRING_IDS", "TASK", "CANN_API", "COMPUTE_TASK_INFO", "HOST_INFO"),
    *("COMMUNICATION_OP", "NPU_INFO", "RANK_DEVICE_MAP", "META_DATA", "ENUM_HCCL_DATA_TYPE"),
)
"""The tables of msMonitor."""
_HCCL_TABLES = ("COMMUNICATION_OP", "COMMUNICATION_TASK_INFO")


def mark_message(one: Collective, *, escaped: bool = False) -> str:
    """What torch_npu says of a collective in the mark around it (since the end of 2024)."""
    kind = one.op_type.strip("_").removeprefix("hcom_")
    values = {
        "streamId": str(COMMUNICATION_STREAM),
        "count": str(one.count),
        "dataType": one.data_type.lower(),
        "groupName": one.group,
        "opName": f"Hccl{kind[:1].upper()}{kind[1:]}",
    }
    text = json.dumps(values)
    return text.replace('"', '\\"') if escaped else text


def write_marked_database(run: Run, directory: str | Path) -> list[Path]:
    """Write databases of torch_npu at level none: HCCL is not recorded, marks around it are."""
    workers = write_torch_database(run, directory)
    for rank, worker in zip(run.ranks, workers, strict=True):
        tables = database_tables(run, rank)
        _replace_hccl_by_marks(run, rank, tables)
        path = worker / "ASCEND_PROFILER_OUTPUT" / f"ascend_pytorch_profiler_{rank.rank}.db"
        write_database(path, SCHEMA + MSTX_SCHEMA, tables)
        (path.parent / "analysis.db").unlink()
    return workers


def _replace_hccl_by_marks(run: Run, rank: RankRun, tables: Tables) -> None:
    twins = {row[1] for row in tables["COMMUNICATION_TASK_INFO"]}
    tables["TASK"] = [row for row in tables["TASK"] if row[4] not in twins]
    for name in _HCCL_TABLES:
        tables[name] = []
    strings = tables["STRING_IDS"]
    first_text, next_task = 1 << 27, 1 << 20
    thread = rank.os_pid << 32 | rank.queue_thread
    launched = {call.connection_id: call for call in rank.cann_calls if call.mode == "launch"}
    strings.append((first_text, "MsTx"))
    rows: list[Row] = []
    for number, one in enumerate(_collectives(rank)):
        message, connection = first_text + 1 + number, FIRST_MARK + number
        call = launched[one.connection_id]
        times = (run.wall_ns(call.start_ns), run.wall_ns(call.end_ns))
        strings.append((message, mark_message(one, escaped=number % 2 == 1)))
        rows.append(
            (*times, START_END, NO_ID, NO_ID, message, thread, thread, first_text, connection)
        )
        span = (run.wall_ns(one.start_ns), run.wall_ns(one.end_ns))
        ids = (rank.device, connection, next_task + number, rank.os_pid, first_text)
        task = (*span, *ids, NO_ID, COMMUNICATION_STREAM, NO_ID, NO_ID)
        tables["TASK"].append(task)
    tables["MSTX_EVENTS"] = rows


def _collectives(rank: RankRun) -> Iterator[Collective]:
    return (one for iteration in rank.iterations for one in iteration.collectives)


def write_marked_text(run: Run, directory: str | Path) -> list[Path]:
    """Write text of torch_npu at level none: the mark's message names a task of the device."""
    workers = write_torch_text(run, directory)
    for rank, worker in zip(run.ranks, workers, strict=True):
        output = worker / "ASCEND_PROFILER_OUTPUT"
        path = output / "trace_view.json"
        events: list[Event] = json.loads(path.read_text(encoding="utf-8"))
        hidden = {CANN_8.pid(rank, layer) for layer in ("Communication", "Overlap Analysis")}
        twins = {task.task_id for one in _collectives(rank) for task in one.tasks}
        kept = [event for event in events if event["pid"] not in hidden]
        kept = [event for event in kept if event.get("args", {}).get("Task Id") not in twins]
        kept += _marks(run, rank)
        path.write_text(json.dumps(kept), encoding="utf-8")
        for name in ("kernel_details.csv", "step_trace_time.csv"):
            (output / name).unlink()
    return workers


def _marks(run: Run, rank: RankRun) -> Iterator[Event]:
    pid, clock = CANN_8.pid(rank, "Ascend Hardware"), wall_clock(run)
    for number, one in enumerate(_collectives(rank)):
        args = {"Physic Stream Id": COMMUNICATION_STREAM, "Task Id": 60_000 + number}
        ts, duration = clock(one.start_ns), fine_us(one.duration_ns)
        yield slice_event(mark_message(one), pid, COMMUNICATION_STREAM, ts, duration, args)


def write_msmonitor(run: Run, directory: str | Path) -> list[Path]:
    """Write databases of msMonitor (2025): kernels, collectives and calls, all in one directory."""
    paths = []
    Path(directory).mkdir(parents=True, exist_ok=True)
    for rank in run.ranks:
        tables = database_tables(run, rank)
        kernels = {row[1] for row in tables["COMPUTE_TASK_INFO"]}
        tables["TASK"] = [(*row[:9], NO_ID, NO_ID) for row in tables["TASK"] if row[4] in kernels]
        tables["COMMUNICATION_OP"] = [(*row, rank.device) for row in tables["COMMUNICATION_OP"]]
        stamped = stamp(run, rank.start_ns, milliseconds=True)
        path = Path(directory) / f"msmonitor_{rank.os_pid}_{stamped}_{rank.rank}.db"
        schema = "".join(
            statement.replace("opType INTEGER);", "opType INTEGER,deviceId INTEGER);")
            for statement in SCHEMA.splitlines(keepends=True)
            if any(f"TABLE {name} " in statement for name in _MONITORED)
        )
        write_database(path, schema, {name: tables[name] for name in _MONITORED})
        paths.append(path)
    return paths
