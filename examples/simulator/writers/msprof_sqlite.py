"""The databases that msprof parses a capture into before it exports anything."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from simulator.model import MIB, NO_ID, Collective, Iteration, Kernel, RankRun, Run, Task
from simulator.writers.session import session_name, write_device_info, write_host_info
from simulator.writers.trace_json.msprof import RUNTIME_TYPES, TWIN_NAMES
from simulator.writers.trace_json.step_trace import wait_for_data_ns

Row = Sequence[object]
Tables = dict[str, tuple[str, list[Row]]]
"""The columns of each table and its rows."""

HCCL_VERSIONS = ("named", "numbered", "launched")
"""Who tells the op of an HCCL task: its name in the task's table (CANN 7 and 8), the number of the
op in that table (since), or only the table of the host, because the device's was never made."""

TICK_NS = 10
FIRST_COUNT = 17_238_197_612_056
DEVICE_MONOTONIC_NS = 4_000_000_000_000
GROUP_HASH = "11022204950826225271"

ASCEND_TASK = (
    "model_id INTEGER, index_id INTEGER, stream_id INTEGER, task_id INTEGER, context_id INTEGER, "
    "batch_id INTEGER, start_time NUMERIC, duration NUMERIC, host_task_type TEXT, "
    "device_task_type TEXT, connection_id INTEGER"
)
TASK_INFO = (
    "model_id INTEGER, op_name TEXT, stream_id INTEGER, task_id INTEGER, block_num INTEGER, "
    "mix_block_num INTEGER, op_state TEXT, task_type TEXT, op_type TEXT, index_id INTEGER, "
    "thread_id INTEGER, timestamp NUMERIC, batch_id INTEGER, tensor_num INTEGER, "
    "input_formats TEXT, input_data_types TEXT, input_shapes TEXT, output_formats TEXT, "
    "output_data_types TEXT, output_shapes TEXT, device_id INTEGER, context_id INTEGER, "
    "op_flag TEXT, hashid TEXT"
)
HCCL_TASK = (
    "model_id INTEGER, index_id INTEGER, {op}hccl_name TEXT, group_name TEXT, {first}"
    "plane_id INTEGER, timestamp NUMERIC, duration REAL, is_master INTEGER, stream_id INTEGER, "
    "task_id INTEGER, local_rank INTEGER, remote_rank INTEGER, transport_type TEXT, "
    "size INTEGER, data_type TEXT, link_type TEXT, bandwidth REAL, context_id INTEGER, "
    "notify_id TEXT, batch_id INTEGER, rdma_type TEXT, {last} INTEGER"
)
HCCL_OP = (
    "model_id INTEGER, op_name TEXT, task_type TEXT, op_type TEXT, {times}relay INTEGER, "
    "retry INTEGER, data_type TEXT, alg_type TEXT, count NUMERIC, group_name TEXT, "
    "connection_id INTEGER, rank_size INTEGER"
)
HOST_HCCL_TASK = (
    "model_id INTEGER, index_id INTEGER, name TEXT, group_name TEXT, plane_id INTEGER, "
    "timestamp NUMERIC, duration REAL, stream_id INTEGER, task_id INTEGER, context_id INTEGER, "
    "batch_id INTEGER, device_id INTEGER, is_master INTEGER, local_rank INTEGER, "
    "remote_rank INTEGER, transport_type TEXT, size REAL, data_type TEXT, link_type TEXT, "
    "notify_id TEXT, rdma_type TEXT, thread_id INTEGER"
)
HOST_HCCL_OP = (
    "device_id INTEGER, model_id INTEGER, index_id INTEGER, thread_id INTEGER, op_name TEXT, "
    "task_type TEXT, op_type TEXT, begin REAL, end REAL, is_dynamic TEXT, connection_id INTEGER, "
    "relay INTEGER, retry INTEGER, data_type TEXT, alg_type TEXT, count NUMERIC, group_name TEXT"
)
TRAINING_TRACE = (
    "device_id INTEGER, model_id INTEGER, iteration_id INTEGER, FP_start INTEGER, BP_end INTEGER, "
    "iteration_end INTEGER, iteration_time INTEGER, fp_bp_time INTEGER, "
    "grad_refresh_bound INTEGER, data_aug_bound INTEGER"
)
ALL_REDUCE = (
    "device_id INTEGER, model_id INTEGER, index_id INTEGER, iteration_end INTEGER, "
    "start INTEGER, end INTEGER"
)
GET_NEXT = "model_id INTEGER, index_id INTEGER, start_time INTEGER, end_time INTEGER"
STEP_TIME = (
    "index_id INTEGER, model_id INTEGER, step_start INTEGER, step_end INTEGER, iter_id INTEGER"
)
API_DATA = (
    "struct_type TEXT, id TEXT, level TEXT, thread_id INTEGER, item_id TEXT, start INTEGER, "
    "end INTEGER, connection_id INTEGER"
)
MSPROF_TX = (
    "pid INTEGER, tid INTEGER, category INTEGER, event_type TEXT, payload_type INTEGER, "
    "payload_value INTEGER, start_time INTEGER, end_time INTEGER, message_type INTEGER, "
    "message TEXT"
)
DEVICE_TYPES = {"AI_VECTOR_CORE": "AIV"}


def write_msprof_sqlite(
    run: Run,
    directory: str | Path,
    *,
    hccl: str = "named",
    parsed: bool = True,
    cann_9: bool = False,
    operators: bool = True,
    distributed: bool = True,
) -> list[Path]:
    """Write one `PROF_*` directory per rank and return them.

    hccl is one of HCCL_VERSIONS; without `parsed` there is what surrounds the databases alone.
    With `cann_9` there are tasks of the runtime that AI CPUs run; without `operators` the host
    recorded none; what is not `distributed` has no rank.
    """
    if hccl not in HCCL_VERSIONS:
        raise ValueError(f"{hccl} is none of {', '.join(HCCL_VERSIONS)}")
    sessions = []
    for rank in run.ranks:
        session = Path(directory) / session_name(run, rank)
        write_host_info(run, rank, session, distributed=distributed)
        write_device_info(run, rank, session, distributed=distributed)
        clock = DeviceCounter(run, rank)
        clock.write(session / f"device_{rank.device}")
        if parsed:
            databases = _Databases(run, rank, clock, hccl, cann_9, operators)
            _write(session / f"device_{rank.device}" / "sqlite", databases.of_device())
            _write(session / "host" / "sqlite", databases.of_host())
        sessions.append(session)
    return sessions


class DeviceCounter:
    """The counter of a device and its monotonic clock, and what both showed at one moment."""

    def __init__(self, run: Run, rank: RankRun) -> None:
        self._run, self._device = run, rank.device
        self.host_ns = run.monotonic_ns(rank.start_ns) // TICK_NS * TICK_NS

    def count(self, time_ns: int) -> int:
        """What the counter showed."""
        return FIRST_COUNT + (self._run.monotonic_ns(time_ns) - self.host_ns) // TICK_NS

    def sampled_ns(self, time_ns: int) -> int:
        """What the device's monotonic clock showed."""
        return self._run.monotonic_ns(time_ns) - self.host_ns + DEVICE_MONOTONIC_NS

    def write(self, device: Path) -> None:
        """Write the logs that relate them to the host."""
        host = f"[Host]\nclock_monotonic_raw: {self.host_ns}\ncntvct: 1\ncntvct_diff: 0\n"
        clocks = f"clock_monotonic_raw: {DEVICE_MONOTONIC_NS}\ncntvct: {FIRST_COUNT}\n"
        for name, text in (("host_start.log", host), ("dev_start.log", clocks)):
            path = device / f"{name}.{self._device}"
            path.write_text(text, encoding="utf-8", newline="")


def _write(directory: Path, databases: dict[str, Tables]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, tables in databases.items():
        path = directory / name
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection, connection:
            for table, (columns, rows) in tables.items():
                connection.execute(f"CREATE TABLE {table} ({columns})")
                places = ",".join("?" * (columns.count(",") + 1))
                connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)


class _Databases:
    """The databases of one device and its host."""

    def __init__(
        self,
        run: Run,
        rank: RankRun,
        clock: DeviceCounter,
        hccl: str,
        cann_9: bool,
        operators: bool,
    ) -> None:
        self._run, self._rank, self._clock, self._hccl = run, rank, clock, hccl
        self._cann_9, self._with_operators = cann_9, operators

    def of_device(self) -> dict[str, Tables]:
        """Everything in `device_N/sqlite`."""
        found: dict[str, Tables] = {
            "ascend_task.db": {"AscendTask": (ASCEND_TASK, self._tasks())},
            "trace.db": {
                "training_trace": (TRAINING_TRACE, list(self._steps())),
                "all_reduce": (ALL_REDUCE, list(self._reduces())),
                "get_next": (GET_NEXT, list(self._fetches())),
            },
            "step_trace.db": {"step_trace_data": (STEP_TIME, list(self._step_times()))},
        }
        if self._hccl != "launched":
            found["hccl_single_device.db"] = self._hccl_tables()
        return found | self._counters()

    def of_host(self) -> dict[str, Tables]:
        """Everything in `host/sqlite`."""
        found: dict[str, Tables] = {
            "ge_info.db": {
                "TaskInfo": (TASK_INFO, list(self._operators()) if self._with_operators else [])
            },
            "api_event.db": {"ApiData": (API_DATA, list(self._calls()))},
            "msproftx.db": {"MsprofTx": (MSPROF_TX, list(self._marks()))},
            "ge_hash.db": {
                "GeHashInfo": ("hash_key TEXT, hash_value TEXT", [(GROUP_HASH, self._group)])
            },
        }
        if self._hccl == "launched":
            found["hccl.db"] = {
                "HCCLTask": (HOST_HCCL_TASK, list(self._launched_tasks())),
                "HCCLOP": (HOST_HCCL_OP, list(self._launched_ops())),
            }
        return found

    @property
    def _group(self) -> str:
        return next(one.group for _, one in self._collectives())

    def _monotonic_ns(self, time_ns: int) -> int:
        return self._run.monotonic_ns(time_ns)

    def _collectives(self) -> Iterator[tuple[Iteration, Collective]]:
        for iteration in self._rank.iterations:
            for one in iteration.collectives:
                yield iteration, one

    # -- the device ----------------------------------------------------------------------------

    def _tasks(self) -> list[Row]:
        """All tasks in order of start, FFTS+ tasks with their sub-tasks."""
        placed = [(task, NO_ID) for task in self._rank.switches]
        for iteration in self._rank.iterations:
            placed += [(task, iteration.graph) for task in iteration.tasks]
            placed += [(task, iteration.graph) for task in iteration.parents]
        placed.sort(key=lambda one: (one[0].start_ns, one[0].stream, one[0].task_id))
        parents = {
            (task.stream, task.task_id) for one in self._rank.iterations for task in one.parents
        }
        return [
            (
                graph,
                -1,
                task.stream,
                task.task_id,
                task.context_id,
                0,
                self._monotonic_ns(task.start_ns),
                task.duration_ns,
                "FFTS_PLUS" if (task.stream, task.task_id) in parents else self._kind(task),
                "AI_CPU" if self._kind(task) != task.kind else _device_type(task),
                task.connection_id,
            )
            for task, graph in placed
        ]

    def _kind(self, task: Task) -> str:
        is_switch = self._cann_9 and task in self._rank.switches
        return RUNTIME_TYPES[task.kind] if is_switch else task.kind

    def _steps(self) -> Iterator[Row]:
        count = self._clock.count
        for one in self._rank.iterations:
            waited_ns = wait_for_data_ns(self._rank, one)
            yield (
                self._rank.device,
                one.graph,
                one.number,
                count(one.forward_start_ns),
                count(one.backward_end_ns),
                count(one.end_ns),
                count(one.end_ns) - count(one.start_ns),
                count(one.backward_end_ns) - count(one.forward_start_ns),
                count(one.end_ns) - count(one.backward_end_ns),
                None if waited_ns is None else waited_ns // TICK_NS,
            )

    def _reduces(self) -> Iterator[Row]:
        count = self._clock.count
        for one, reduce in self._collectives():
            span = count(reduce.start_ns), count(reduce.end_ns)
            yield (self._rank.device, one.graph, one.number, count(one.end_ns), *span)

    def _fetches(self) -> Iterator[Row]:
        for one in self._rank.iterations:
            start, end = map(self._clock.count, one.next_data_ns)
            yield (one.graph, one.number, start, end)

    def _step_times(self) -> Iterator[Row]:
        ordered = sorted(self._rank.iterations, key=lambda one: one.end_ns)
        for place, one in enumerate(ordered, 1):
            start, end = self._clock.count(one.start_ns), self._clock.count(one.end_ns)
            yield (one.number, one.graph, start, end, place)

    def _hccl_tables(self) -> Tables:
        """Tasks by the name of their op and the time it was launched at, or by its number."""
        named = self._hccl == "named"
        columns = HCCL_TASK.format(
            op="op_name TEXT, " if named else "",
            first="first_timestamp NUMERIC, " if named else "",
            last="connection_id" if named else "op_id",
        )
        if not named:
            columns += ", iter_id INTEGER"
        tasks: list[Row] = []
        ops: list[Row] = []
        for number, (iteration, one) in enumerate(self._collectives(), 10_000):
            for task in one.tasks:
                of_op: list[object] = [one.name] if named else []
                launched: list[object] = [number] if named else []
                turn: list[object] = [] if named else [1]
                row = [iteration.graph, -1, *of_op, task.kind, GROUP_HASH, *launched]
                tasks.append([*row, *self._transfer(task), one.connection_id, *turn])
            times: list[object] = [number]
            if not named:
                times = [self._monotonic_ns(one.start_ns), self._monotonic_ns(one.end_ns), 1]
            op = [iteration.graph, one.name, "HCCL", one.op_type, *times, 0, 0, one.data_type]
            op += [one.algorithm, one.count, GROUP_HASH, one.connection_id, len(self._run.ranks)]
            ops.append(op)
        span = "timestamp NUMERIC, " if named else "start NUMERIC, end NUMERIC, iter_id INTEGER, "
        return {
            "HCCLTaskSingleDevice": (columns, tasks),
            "HCCLOpSingleDevice": (HCCL_OP.format(times=span), ops),
        }

    def _transfer(self, task: Task) -> list[object]:
        """The cells of a task from its plane to its RDMA type; plane 0 lasts as long as the op."""
        transfer = task.transfer
        assert transfer is not None
        return [
            transfer.plane,
            self._monotonic_ns(task.start_ns),
            task.duration_ns,
            int(transfer.plane == 0),
            task.stream,
            task.task_id,
            transfer.source_rank,
            transfer.target_rank,
            transfer.transport,
            transfer.size_bytes,
            transfer.data_type,
            transfer.link,
            transfer.size_bytes / task.duration_ns if task.duration_ns else 0.0,
            task.context_id,
            str(transfer.notify_id),
            0,
            "INVALID_TYPE",
        ]

    def _counters(self) -> dict[str, Tables]:
        device, count, sampled = self._rank.device, self._clock.count, self._clock.sampled_ns
        frequencies: list[Row] = []
        memory: list[Row] = []
        bandwidth: list[Row] = []
        caches: list[Row] = []
        rates = {
            (counter.unit, at_ns): value
            for counter in self._rank.counters
            if counter.series == "Hit Rate"
            for at_ns, value in counter.samples
        }
        for counter in self._rank.counters:
            unit, series = counter.unit, counter.series
            for at_ns, value in counter.samples:
                if counter.family == "HBM":
                    row = (device, sampled(at_ns), value / MIB, unit, series.lower())
                    bandwidth.append(row)
                elif series == "Throughput":
                    rate = rates[unit, at_ns] / 100_000
                    caches.append((device, unit, sampled(at_ns), rate, value / MIB))
                elif counter.family == "NPU MEM":
                    since_us = (self._monotonic_ns(at_ns) - self._clock.host_ns) / 1000
                    memory.append((str(int(series == "Device")), 0, value, since_us, value))
                elif counter.family == "AI Core Freq":
                    frequencies.append((count(at_ns), value))
        return {
            "freq.db": {"FreqParse": ("syscnt INTEGER, freq INTEGER", frequencies)},
            "hbm.db": {
                "HBMbwData": (
                    "device_id INT, timestamp REAL, bandwidth REAL, hbmid INT, event_type TEXT",
                    bandwidth,
                )
            },
            "llc.db": {
                "LLCMetrics": (
                    "device_id INT, l3tid INT, timestamp REAL, hitrate REAL, throughput REAL",
                    caches,
                )
            },
            "npu_mem.db": {
                "NpuMem": (
                    "event TEXT, ddr INTEGER, hbm INTEGER, timestamp NUMERIC, memory INTEGER",
                    memory,
                )
            },
        }

    # -- the host ------------------------------------------------------------------------------

    def _operators(self) -> Iterator[Row]:
        for iteration in self._rank.iterations:
            for task, kernel in iteration.kernels:
                yield self._operator(iteration.graph, task, kernel)

    def _operator(self, graph: int, task: Task, kernel: Kernel) -> Row:
        return (
            graph,
            kernel.scope,
            task.stream,
            task.task_id,
            kernel.blocks,
            0,
            "1",
            kernel.core,
            kernel.op_type,
            -1,
            self._rank.main_thread,
            self._monotonic_ns(task.start_ns) - 20_000,
            0,
            2,
            kernel.input_formats,
            kernel.input_types,
            f'"{kernel.input_shapes}"',
            kernel.output_formats,
            kernel.output_types,
            f'"{kernel.output_shapes}"',
            self._rank.device,
            task.context_id,
            "NO",
            "N/A",
        )

    def _calls(self) -> Iterator[Row]:
        """Calls of acl are named by their id, those of HCCL by their item, others by their type."""
        for call in self._rank.cann_calls:
            kind = {"acl": call.mode, "hccl": call.mode}.get(call.level, call.name)
            span = self._monotonic_ns(call.start_ns), self._monotonic_ns(call.end_ns)
            number = call.name if call.level == "acl" else "0"
            item = call.name if call.level == "hccl" else call.item
            yield (kind, number, call.level, call.thread, item, *span, call.connection_id)

    def _marks(self) -> Iterator[Row]:
        """The ranges that a user marked: one per step."""
        rank = self._rank
        for step in rank.steps:
            span = self._monotonic_ns(step.host_start_ns), self._monotonic_ns(step.host_end_ns)
            message = f"train step {step.id}"
            yield (rank.os_pid, rank.main_thread, 0, "push/pop", 0, 0, *span, 0, message)

    def _launched_tasks(self) -> Iterator[Row]:
        """Each a little after the call that launched its op, on the same thread."""
        began = self._call_starts()
        for iteration, one in self._collectives():
            start_ns = began[one.connection_id]
            for place, task in enumerate(one.tasks):
                plane, _, _, master, stream, number, *rest = self._transfer(task)
                source, target, transport, size, data_type, link, _, context, notify, *_ = rest
                yield (
                    *(iteration.graph, -1, task.kind, GROUP_HASH, plane, start_ns + 1 + place, 0),
                    *(stream, number, context, 0, self._rank.device, master, source, target),
                    *(transport, size, data_type, link, notify, "INVALID_TYPE"),
                    self._rank.main_thread,
                )

    def _launched_ops(self) -> Iterator[Row]:
        began = self._call_starts()
        for iteration, one in self._collectives():
            start_ns = began[one.connection_id]
            yield (
                *(self._rank.device, iteration.graph, -1, self._rank.main_thread, one.name),
                *("HCCL", one.op_type, start_ns, start_ns + len(one.tasks) + 1, "0"),
                *(one.connection_id, 0, 0, one.data_type, one.algorithm, one.count, GROUP_HASH),
            )

    def _call_starts(self) -> dict[int, int]:
        return {
            call.connection_id: self._monotonic_ns(call.start_ns) for call in self._rank.cann_calls
        }


def _device_type(task: Task) -> str:
    if task.kernel:
        return DEVICE_TYPES.get(task.kernel.core, task.kernel.core)
    return TWIN_NAMES[task.kind] if task.transfer else task.kind
