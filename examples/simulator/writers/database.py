"""The SQLite export of torch_npu: one profiler and one analysis database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

from simulator.model import NO_ID, FrameworkCall, Iteration, RankRun, Run, Step, Task
from simulator.overlap import COMMUNICATION, COMPUTING, FREE, NOT_OVERLAPPED, sweep, totals
from simulator.writers.session import (
    HOST_NAME,
    HOST_UID,
    parallel_group_info,
    worker_name,
    write_profiler_info,
    write_profiler_metadata,
)
from simulator.writers.trace_json.msprof import TWIN_NAMES

Row = Sequence[object]
Tables = dict[str, list[Row]]

LARGEST_INT64 = (1 << 63) - 1
FRAMEWORK_STRINGS = 1 << 28
API_TYPES = {"node": 10_000, "acl": 20_000, "hccl": 5_500}
CALL_TYPES = {"cpu_op": 50_001, "enqueue": 50_002, "dequeue": 50_002, "python_function": 50_003}

SCHEMA = """
CREATE TABLE SESSION_TIME_INFO (startTimeNs INTEGER,endTimeNs INTEGER);
CREATE TABLE NPU_INFO (id INTEGER,name TEXT);
CREATE TABLE HOST_INFO (hostUid TEXT,hostName TEXT);
CREATE TABLE ENUM_HCCL_RDMA_TYPE (id INTEGER PRIMARY KEY,name TEXT);
CREATE TABLE ENUM_MSTX_EVENT_TYPE (id INTEGER PRIMARY KEY,name TEXT);
CREATE TABLE ENUM_HCCL_LINK_TYPE (id INTEGER PRIMARY KEY,name TEXT);
CREATE TABLE ENUM_HCCL_TRANSPORT_TYPE (id INTEGER PRIMARY KEY,name TEXT);
CREATE TABLE ENUM_HCCL_DATA_TYPE (id INTEGER PRIMARY KEY,name TEXT);
CREATE TABLE ENUM_API_TYPE (id INTEGER PRIMARY KEY,name TEXT);
CREATE TABLE COMPUTE_TASK_INFO (name INTEGER,globalTaskId INTEGER PRIMARY KEY,blockDim INTEGER,\
mixBlockDim INTEGER,taskType INTEGER,opType INTEGER,inputFormats INTEGER,inputDataTypes INTEGER,\
inputShapes INTEGER,outputFormats INTEGER,outputDataTypes INTEGER,outputShapes INTEGER,\
attrInfo INTEGER);
CREATE TABLE NPU_MEM (type INTEGER,ddr NUMERIC,hbm NUMERIC,timestampNs INTEGER,deviceId INTEGER);
CREATE TABLE CANN_API (startNs INTEGER,endNs INTEGER,type INTEGER,globalTid INTEGER,\
connectionId INTEGER PRIMARY KEY,name INTEGER);
CREATE TABLE TASK (startNs INTEGER,endNs INTEGER,deviceId INTEGER,connectionId INTEGER,\
globalTaskId INTEGER,globalPid INTEGER,taskType INTEGER,contextId INTEGER,streamId INTEGER,\
taskId INTEGER,modelId INTEGER);
CREATE TABLE COMMUNICATION_TASK_INFO (name INTEGER,globalTaskId INTEGER,taskType INTEGER,\
planeId INTEGER,groupName INTEGER,notifyId INTEGER,rdmaType INTEGER,srcRank INTEGER,\
dstRank INTEGER,transportType INTEGER,size INTEGER,dataType INTEGER,linkType INTEGER,opId INTEGER);
CREATE INDEX CommunicationTaskIndex ON COMMUNICATION_TASK_INFO (globalTaskId);
CREATE INDEX TaskIndex ON TASK (startNs,globalTaskId);
CREATE TABLE HBM (deviceId INTEGER,timestampNs INTEGER,bandwidth NUMERIC,hbmId INTEGER,\
type INTEGER);
CREATE TABLE LLC (deviceId INTEGER,llcId INTEGER,timestampNs INTEGER,hitRate REAL,\
throughput INTEGER,mode INTEGER);
CREATE TABLE META_DATA (name TEXT,value TEXT);
CREATE TABLE AICORE_FREQ (deviceId INTEGER,timestampNs NUMERIC,freq INTEGER);
CREATE TABLE COMMUNICATION_OP (opName INTEGER,startNs INTEGER,endNs INTEGER,connectionId INTEGER,\
groupName INTEGER,opId INTEGER PRIMARY KEY,relay INTEGER,retry INTEGER,dataType INTEGER,\
algType INTEGER,count NUMERIC,opType INTEGER);
CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY,value TEXT);
CREATE TABLE RANK_DEVICE_MAP (rankId INTEGER, deviceId INTEGER);
CREATE TABLE STEP_TIME (id INTEGER, startNs INTEGER, endNs INTEGER);
CREATE TABLE PYTORCH_API (startNs TEXT, endNs TEXT, globalTid INTEGER, connectionId INTEGER, \
name INTEGER, sequenceNumber INTEGER, fwdThreadId INTEGER, inputDtypes INTEGER, \
inputShapes INTEGER, callchainId INTEGER, type INTEGER);
CREATE TABLE CONNECTION_IDS (id INTEGER, connectionId INTEGER);
CREATE TABLE PYTORCH_CALLCHAINS (id INTEGER, stack INTEGER, stackDepth INTEGER);
"""
ANALYSIS_SCHEMA = """
CREATE TABLE StepTraceTime (step TEXT, computing NUMERIC, communication_not_overlapped NUMERIC, \
overlapped NUMERIC, communication NUMERIC, free NUMERIC, stage NUMERIC, bubble NUMERIC, \
communication_not_overlapped_and_exclude_receive NUMERIC, preparing NUMERIC);
"""
_UNKNOWN = {"N/A": 65_534, "INVALID_TYPE": 65_535}
_DATA_TYPES = "INT8 INT16 INT32 FP16 FP32 INT64 UINT64 UINT8 UINT16 UINT32 FP64 BFP16 INT128"
_LINKS = "ON_CHIP HCCS PCIE ROCE SIO HCCS_SW STANDARD_ROCE RESERVED"


def _numbered(names: str) -> dict[str, int]:
    return {name: index for index, name in enumerate(names.split())}


ENUMS: dict[str, dict[str, int]] = {
    "ENUM_HCCL_RDMA_TYPE": _numbered(
        "RDMA_SEND_NOTIFY RDMA_SEND_PAYLOAD RDMA_PAYLOAD_PREPARE RDMA_PAYLOAD_CHECK"
        " RDMA_PAYLOAD_ACK RDMA_SEND_OP"
    )
    | _UNKNOWN,
    "ENUM_MSTX_EVENT_TYPE": _numbered("marker push/pop start/end marker_ex"),
    "ENUM_HCCL_LINK_TYPE": _numbered(_LINKS) | _UNKNOWN,
    "ENUM_HCCL_TRANSPORT_TYPE": _numbered("SDMA RDMA LOCAL") | _UNKNOWN,
    "ENUM_HCCL_DATA_TYPE": _numbered(_DATA_TYPES) | _UNKNOWN,
    "ENUM_API_TYPE": {
        "runtime": 5_000,
        "hccl": 5_500,
        "node": 10_000,
        "model": 15_000,
        "acl": 20_000,
        "op": 50_001,
        "queue": 50_002,
        "trace": 50_003,
        "mstx": 50_004,
    },
}


def write_torch_database(run: Run, directory: str | Path, *, operators: bool = True) -> list[Path]:
    """Write one `*_ascend_pt` directory per rank and return them.

    Without `operators` nothing is known of what computes but the types of tasks.
    """
    workers = []
    for rank in run.ranks:
        worker = Path(directory) / worker_name(run, rank)
        output = worker / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True, exist_ok=True)
        tables = database_tables(run, rank)
        if not operators:
            tables["COMPUTE_TASK_INFO"] = []
        write_database(output / f"ascend_pytorch_profiler_{rank.rank}.db", SCHEMA, tables)
        steps: Tables = {"StepTraceTime": [_step_row(step) for step in rank.steps]}
        write_database(output / "analysis.db", ANALYSIS_SCHEMA, steps)
        write_profiler_info(run, rank, worker, "db")
        write_profiler_metadata(run, rank, worker)
        workers.append(worker)
    return workers


def database_tables(run: Run, rank: RankRun) -> Tables:
    """The rows of a rank by table, which other writers keep in part."""
    return _Database(run, rank).tables()


def write_database(path: Path, schema: str, tables: Tables) -> None:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(schema)
        for table, rows in tables.items():
            if rows:
                places = ",".join("?" * len(rows[0]))
                connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)


def _step_row(step: Step) -> Row:
    """Sums of one step in microseconds, exact to the ns unlike those of the text export."""
    segments = sweep(step.iterations)
    sums = totals(segments)
    start_ns, end_ns = segments[0].start_ns, max(one.end_ns for one in segments)
    overlapped_ns = sums[COMMUNICATION] - sums[NOT_OVERLAPPED]
    return (
        str(step.id),
        sums[COMPUTING] / 1000,
        sums[NOT_OVERLAPPED] / 1000,
        overlapped_ns / 1000,
        sums[COMMUNICATION] / 1000,
        sums[FREE] / 1000,
        (end_ns - start_ns) / 1000,
        0,
        sums[NOT_OVERLAPPED] / 1000,
        (start_ns - step.host_start_ns) / 1000,
    )


class _Strings:
    """Interns text as the STRING_IDS of one writer."""

    def __init__(self, first_id: int) -> None:
        self._first_id = first_id
        self._ids: dict[str, int] = {}

    def __getitem__(self, text: str) -> int:
        return self._ids.setdefault(text, self._first_id + len(self._ids))

    def rows(self) -> Iterator[Row]:
        return ((number, text) for text, number in self._ids.items())


class _Database:
    """Collects the rows of one rank, which refer to each other by id."""

    def __init__(self, run: Run, rank: RankRun) -> None:
        self._run = run
        self._rank = rank
        self._strings = _Strings(0)
        self._framework_strings = _Strings(FRAMEWORK_STRINGS)
        self._rows: Tables = {}

    def tables(self) -> Tables:
        run, rank = self._run, self._rank
        session = (run.wall_ns(rank.start_ns), run.wall_ns(rank.end_ns))
        self._rows = {
            "SESSION_TIME_INFO": [session],
            "NPU_INFO": [(rank.device, "Ascend910B")],
            "HOST_INFO": [(HOST_UID, HOST_NAME)],
            "RANK_DEVICE_MAP": [(rank.rank, rank.device)],
            "META_DATA": [
                ("SCHEMA_VERSION_MICRO", "0"),
                ("SCHEMA_VERSION_MINOR", "0"),
                ("SCHEMA_VERSION_MAJOR", "1"),
                ("SCHEMA_VERSION", "1.0.0"),
                ("ENV_VARIABLES", json.dumps({"ASCEND_LAUNCH_BLOCKING": ""})),
                *self._groups(),
            ],
            "STEP_TIME": [
                (step.id, run.wall_ns(step.host_start_ns), run.wall_ns(step.host_end_ns))
                for step in rank.steps
            ],
        }
        for name, values in ENUMS.items():
            self._add(name, ((number, text) for text, number in values.items()))
        self._add_tasks()
        self._add_cann_calls()
        self._add_framework_calls()
        self._add_counters()
        self._add("STRING_IDS", [*self._strings.rows(), *self._framework_strings.rows()])
        return self._rows

    def _groups(self) -> list[Row]:
        if not self._run.truth.named:
            return []
        groups = parallel_group_info(self._run, self._rank)
        return [("parallel_group_info", json.dumps(groups))]

    def _add(self, table: str, rows: Iterable[Row]) -> None:
        self._rows.setdefault(table, []).extend(rows)

    def _thread(self, thread: int) -> int:
        return self._rank.os_pid << 32 | thread

    def _add_tasks(self) -> None:
        parents = [task for iteration in self._rank.iterations for task in iteration.parents]
        placed = [*self._rank.switches, *parents]
        placed += [task for iteration in self._rank.iterations for task in iteration.tasks]
        # FFTS+ graph tasks start before their sub-tasks, so they come first here as well.
        placed.sort(key=lambda task: (task.start_ns, task.stream, task.task_id, task.context_id))
        global_ids = {task: number for number, task in enumerate(placed)}
        for task in placed:
            self._add("TASK", [self._task_row(task, global_ids[task])])
        op_ids = count(1)
        for iteration in self._rank.iterations:
            self._add_kernels(iteration, global_ids)
            self._add_collectives(iteration, global_ids, op_ids)

    def _task_row(self, task: Task, global_id: int) -> Row:
        kind = TWIN_NAMES[task.kind] if task.transfer else task.kind
        return (
            self._run.wall_ns(task.start_ns),
            self._run.wall_ns(task.end_ns),
            self._rank.device,
            task.connection_id,
            global_id,
            self._rank.os_pid,
            self._strings[kind],
            task.context_id,
            task.stream,
            task.task_id,
            NO_ID,
        )

    def _add_kernels(self, iteration: Iteration, global_ids: dict[Task, int]) -> None:
        text = self._strings
        for task, kernel in iteration.kernels:
            row = (
                text[kernel.name],
                global_ids[task],
                kernel.blocks,
                0,
                text[kernel.core],
                text[kernel.op_type],
                text[kernel.input_formats],
                text[kernel.input_types],
                text[f'"{kernel.input_shapes}"'],
                text[kernel.output_formats],
                text[kernel.output_types],
                text[f'"{kernel.output_shapes}"'],
                text["N/A"],
            )
            self._add("COMPUTE_TASK_INFO", [row])

    def _add_collectives(
        self, iteration: Iteration, global_ids: dict[Task, int], op_ids: Iterator[int]
    ) -> None:
        text, run = self._strings, self._run
        for one, op_id in zip(iteration.collectives, op_ids, strict=False):
            row = (
                text[one.name],
                run.wall_ns(one.start_ns),
                run.wall_ns(one.end_ns),
                one.connection_id,
                text[one.group],
                op_id,
                0,
                0,
                ENUMS["ENUM_HCCL_DATA_TYPE"][one.data_type],
                text[one.algorithm],
                one.count,
                text[one.op_type],
            )
            self._add("COMMUNICATION_OP", [row])
            for task in one.tasks:
                shared = (text[one.name], global_ids[task], text[one.group], op_id)
                self._add("COMMUNICATION_TASK_INFO", [self._plane_row(task, *shared)])

    def _plane_row(self, task: Task, name: int, global_id: int, group: int, op_id: int) -> Row:
        transfer = task.transfer
        assert transfer is not None
        return (
            name,
            global_id,
            self._strings[transfer.kind],
            transfer.plane,
            group,
            min(transfer.notify_id, LARGEST_INT64),
            ENUMS["ENUM_HCCL_RDMA_TYPE"]["INVALID_TYPE"],
            transfer.source_rank,
            transfer.target_rank,
            ENUMS["ENUM_HCCL_TRANSPORT_TYPE"][transfer.transport],
            transfer.size_bytes,
            ENUMS["ENUM_HCCL_DATA_TYPE"][transfer.data_type],
            ENUMS["ENUM_HCCL_LINK_TYPE"][transfer.link],
            op_id,
        )

    def _add_cann_calls(self) -> None:
        for call in self._rank.cann_calls:
            row = (
                self._run.wall_ns(call.start_ns),
                self._run.wall_ns(call.end_ns),
                API_TYPES[call.level],
                self._thread(call.thread),
                call.connection_id,
                self._strings[call.name],
            )
            self._add("CANN_API", [row])

    def _add_framework_calls(self) -> None:
        connections, chains = count(), count()
        for call in self._rank.framework_calls:
            tied = (call.correlation_id,) if call.correlation_id is not None else call.launches
            connection = next(connections) if tied else None
            self._add("CONNECTION_IDS", ((connection, one) for one in tied))
            chain = next(chains) if call.call_stack else None
            text = self._framework_strings
            stack = enumerate(call.call_stack)
            self._add("PYTORCH_CALLCHAINS", ((chain, text[frame], at) for at, frame in stack))
            self._add("PYTORCH_API", [self._call_row(call, connection, chain)])

    def _call_row(self, call: FrameworkCall, connection: int | None, chain: int | None) -> Row:
        text = self._framework_strings
        operator = call.category == "cpu_op"
        return (
            str(self._run.wall_ns(call.start_ns)),
            str(self._run.wall_ns(call.end_ns)),
            self._thread(call.thread),
            connection,
            text[call.name],
            call.sequence if operator else None,
            call.forward_thread if operator else None,
            text[call.types] if call.types else None,
            text[call.shapes] if call.shapes else None,
            chain,
            CALL_TYPES[call.category],
        )

    def _add_counters(self) -> None:
        device, text = self._rank.device, self._strings
        hit_rates: dict[tuple[int, int], int] = {}
        for counter in self._rank.counters:
            if counter.series == "Hit Rate":
                hit_rates |= {(counter.unit, at): value for at, value in counter.samples}
        for counter in self._rank.counters:
            unit = counter.unit
            for at_ns, value in counter.samples:
                time_ns = self._run.wall_ns(at_ns)
                if counter.family == "HBM":
                    row: Row = (device, time_ns, value, unit, text[counter.series.lower()])
                    self._add("HBM", [row])
                elif counter.series == "Throughput":
                    rate = hit_rates[unit, at_ns] / 1000
                    self._add("LLC", [(device, unit, time_ns, rate, value, text["read"])])
                elif counter.family == "NPU MEM":
                    row = (text[counter.series.lower()], 0, value, time_ns, device)
                    self._add("NPU_MEM", [row])
                elif counter.family == "AI Core Freq":
                    self._add("AICORE_FREQ", [(device, time_ns, value)])
