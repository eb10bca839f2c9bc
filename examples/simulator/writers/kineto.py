"""Traces of PyTorch's own profiler (Kineto), as if the run had been on GPUs."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from simulator.model import COMMUNICATION_STREAM, COMPUTE_STREAM, Collective, RankRun, Run, Task
from simulator.writers.events import Event, exact_us
from simulator.writers.session import HOST_NAME

BASE_NS = 1_736_416_800_000_000_000
"""What times count from: PyTorch takes a round moment some time before the run."""
STREAMS = {2: 7, 3: 20, 4: 24}
"""CUDA's default stream is 7, and libraries make theirs later."""
_ALL_TO_ALL = (
    ("cpu_op", "c10d::alltoall_base_"),
    ("cpu_op", "record_param_comms"),
    ("user_annotation", "nccl:all_to_all"),
)
"""What PyTorch records around the launch of an all-to-all, outermost first."""
_SENDS = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
_KERNELS = {
    "hcom_allReduce_": (
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "allreduce",
    ),
    "hcom_send_": (_SENDS, "send"),
    "hcom_receive_": (_SENDS, "recv"),
}
"""The kernel of NCCL for each op, and what PyTorch calls what it does."""
_LAUNCH = "cudaLaunchKernel"
_CALLS = {
    "MEMCPY_ASYNC": "cudaMemcpyAsync",
    "EVENT_WAIT": "cudaStreamWaitEvent",
    "EVENT_RECORD": "cudaEventRecord",
}
"""The call of the runtime for each kind of task; all others are kernels."""
_DECIMALS = re.compile(r'"(ts|dur)": "([0-9.]+)"')
_TIMES = re.compile(r'"(ts|dur)": ([0-9.]+)')
_REPEATED_NS = (1, 2)
"""Annotations on a device begin this much earlier and are this much longer than their kernels."""


def write_kineto(
    run: Run,
    directory: str | Path,
    *,
    base_ns: int = BASE_NS,
    distributed: bool = True,
    announced: bool = False,
    damaged_step: int | None = None,
) -> list[Path]:
    """Write one trace per rank, every other one packed, and return them.

    A base of 0 writes no base, as versions before 2.3 did, and a kernel names its own correlation
    instead of its operator, as some of those did. A run that is not distributed does not say which
    rank a trace is of. Collectives that are announced are all-to-alls, of which nothing tells but
    the annotation and the operator around their launch, as before 2.2: NCCL runs them as sends and
    receives. Of a damaged step, by its position, kernels in the midst are lost (`lost_kernels`),
    and the first has a duration that runs over all later ones (`overrunning_kernel`).
    """
    written = []
    for rank in run.ranks:
        stamp = run.wall_ns(rank.end_ns)
        name = f"{HOST_NAME}_{rank.os_pid}.{stamp}.pt.trace.json"
        events = _Events(run, rank, base_ns, announced, damaged_step)
        text = _document(run, events, base_ns, distributed).encode()
        if rank.rank % 2:
            name, text = f"{name}.gz", gzip.compress(text, mtime=0)
        path = Path(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        written.append(path)
    return written


def write_merged_kineto(run: Run, directory: str | Path) -> list[Path]:
    """Write all ranks into one trace, as the merger of SGLang does of the traces of its ranks.

    The parts that come back are what --assign-rank calls them.
    """
    merged: dict[str, Any] = {"traceEvents": []}
    for rank in run.ranks:
        text = _document(run, _Events(run, rank, BASE_NS, False), BASE_NS, True)
        document = json.loads(_TIMES.sub(r'"\1": "\2"', text))
        for event in document.pop("traceEvents"):
            merged["traceEvents"].append(event | {"pid": f"[TP{rank.rank:02d}] {event['pid']}"})
        merged = document | merged
    path = Path(directory) / "merged-1736416800.5.trace.json.gz"
    text = _DECIMALS.sub(r'"\1": \2', json.dumps(merged))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return [path / f"TP{rank.rank:02d}" for rank in run.ranks]


def _document(run: Run, written: _Events, base_ns: int, distributed: bool) -> str:
    groups = [
        {"pg_name": name, "pg_desc": label, "backend_config": "cuda:nccl"}
        | {"pg_size": len(ranks), "ranks": ranks}
        for name, label, ranks in (process_group(run, group.name) for group in run.truth.groups)
    ]
    head: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": 0, "name": "GPU", "totalGlobalMem": 34_089_730_048, "numSms": 80},
            {"id": 1, "name": "GPU", "totalGlobalMem": 34_089_730_048, "numSms": 80},
        ],
        "cupti_version": 26,
    }
    if distributed:
        head["distributedInfo"] = {
            "backend": "nccl",
            "rank": written.rank.rank,
            "world_size": run.truth.world,
            "pg_count": len(groups),
            "pg_config": groups,
        }
    head["displayTimeUnit"] = "ms"
    if base_ns:
        head["baseTimeNanoseconds"] = base_ns
    events = ",\n".join(
        _DECIMALS.sub(r'"\1": \2', f"  {json.dumps(event)}") for event in written.all()
    )
    opening = json.dumps(head, indent=2).removesuffix("\n}")
    return f'{opening},\n  "traceEvents": [\n{events}\n  ],\n  "traceName": "trace.json"\n}}\n'


class _Events:
    """The events of one rank."""

    def __init__(
        self,
        run: Run,
        rank: RankRun,
        base_ns: int,
        announced: bool,
        damaged_step: int | None = None,
    ) -> None:
        self._run, self.rank, self._base_ns = run, rank, base_ns
        self._announced = announced
        self._tasks = [task for one in rank.iterations for task in one.local_tasks]
        self._collectives = [op for one in rank.iterations for op in one.collectives]
        self._operators = dict(launching_operators(rank))
        self._lost, self._overrun_ns = frozenset[int](), dict[int, int]()
        if damaged_step is not None:
            kernels = lost_kernels(rank, damaged_step)
            self._lost = frozenset(task.connection_id for task in kernels)
            first = overrunning_kernel(rank, damaged_step)
            self._overrun_ns = {first.connection_id: max(task.end_ns for task in self._tasks)}

    def all(self) -> Iterator[Event]:
        yield from self._names()
        yield from self._framework()
        yield from self._runtime()
        for task in self._tasks:
            if task.connection_id not in self._lost:
                yield from self._device(task)
        for one in self._collectives:
            yield from self._collective(one)
        yield from self._annotations()
        yield from self._memory()
        yield self._mark("Iteration Start: PyTorch Profiler", "Traces", self.rank.start_ns)
        yield self._mark("Record Window End", "", self.rank.end_ns)

    def _us(self, time_ns: int) -> str:
        return exact_us(self._run.wall_ns(time_ns) - self._base_ns)

    def _names(self) -> Iterator[Event]:
        start = self._us(self.rank.start_ns)
        for pid, label in ((self.rank.os_pid, "CPU"), (self.rank.device, "GPU 0")):
            for name, args in (("name", {"name": "python"}), ("labels", {"labels": label})):
                yield {
                    "name": f"process_{name}",
                    "ph": "M",
                    "ts": start,
                    "pid": pid,
                    "tid": 0,
                    "args": args,
                }
        for number in STREAMS.values():
            yield {
                "name": "thread_name",
                "ph": "M",
                "ts": start,
                "pid": self.rank.device,
                "tid": number,
                "args": {"name": f"stream {number} "},
            }

    def _span(
        self,
        category: str,
        name: str,
        place: tuple[Any, Any],
        times_ns: tuple[int, int],
        args: dict[str, Any],
    ) -> Event:
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": place[0],
            "tid": place[1],
            "ts": self._us(times_ns[0]),
            "dur": exact_us(times_ns[1] - times_ns[0]),
            "args": args,
        }

    def _flow(self, end: str, category: str, number: int, place: tuple[int, int], at: int) -> Event:
        return {
            "ph": end,
            "id": number,
            "pid": place[0],
            "tid": place[1],
            "ts": self._us(at),
            "cat": category,
            "name": category,
        } | ({"bp": "e"} if end == "f" else {})

    def _framework(self) -> Iterator[Event]:
        """Operators and Python frames; GPUs have no task queue."""
        for number, call in enumerate(self.rank.framework_calls, 1):
            if call.category in ("enqueue", "dequeue"):
                continue
            step = call.name.startswith("ProfilerStep#")
            category = "user_annotation" if step else call.category
            place, times = (self.rank.os_pid, call.thread), (call.start_ns, call.end_ns)
            yield self._span(category, call.name, place, times, {"External id": number})
            if call.sequence >= 0:
                end = "f" if call.forward_thread else "s"
                yield self._flow(end, "fwdbwd", call.sequence, place, call.start_ns)

    def _runtime(self) -> Iterator[Event]:
        names = {task.connection_id: _CALLS.get(task.kind, _LAUNCH) for task in self._tasks}
        launching = set(names)
        collective = {one.connection_id for one in self._collectives}
        launching |= collective
        for call in self.rank.cann_calls:
            if call.connection_id in launching:
                name = names.get(call.connection_id, _LAUNCH)
                place = (self.rank.os_pid, call.thread)
                args = {"cbid": 211, "correlation": call.connection_id}
                times = (call.start_ns, call.end_ns)
                yield self._span("cuda_runtime", name, place, times, args)
                yield self._flow("s", "ac2g", call.connection_id, place, call.start_ns)
                if self._announced and call.connection_id in collective:
                    for category, said in _ALL_TO_ALL:
                        yield self._span(category, said, place, times, {})

    def _place(self, stream: int) -> tuple[int, int]:
        return self.rank.device, STREAMS[stream]

    def _on_device(self, stream: int, correlation: int) -> dict[str, Any]:
        device, number = self._place(stream)
        operator, _ = self._operators.get(correlation, (correlation, ""))
        named = operator if self._base_ns else correlation
        args = {"device": device, "context": 1, "stream": number, "correlation": correlation}
        return args | {"External id": named}

    def _device(self, task: Task) -> Iterator[Event]:
        args = self._on_device(task.stream, task.connection_id)
        if task.kernel is not None:
            category, name = "kernel", task.kernel.name
            args |= {"grid": [task.kernel.blocks, 2, 1], "block": [128, 1, 1]}
            args |= {"blocks per SM": 1.5, "est. achieved occupancy %": 38}
        elif task.kind == "MEMCPY_ASYNC":
            category, name = "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)"
            args |= {"bytes": 602_112, "memory bandwidth (GB/s)": 12.5}
        elif task.kind == "EVENT_WAIT":
            category, name = "cuda_sync", "Stream Wait Event"
        else:  # recording an event leaves no trace on a GPU
            return
        end_ns = self._overrun_ns.get(task.connection_id, task.end_ns)
        place, times = self._place(task.stream), (task.start_ns, end_ns)
        yield self._span(category, name, place, times, args)
        yield self._flow("f", "ac2g", task.connection_id, place, task.start_ns)

    def _collective(self, one: Collective) -> Iterator[Event]:
        """An NCCL kernel with what its record_param_comms told."""
        place = self._place(COMMUNICATION_STREAM)
        times = (one.start_ns, one.end_ns)
        if self._announced:
            name = "ncclDevKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)"
            args = self._on_device(COMMUNICATION_STREAM, one.connection_id)
            yield self._span("kernel", name, place, times, args)
            return
        group, label, ranks = process_group(self._run, one.group)
        name, said = _KERNELS[one.op_type]
        args = self._on_device(COMMUNICATION_STREAM, one.connection_id) | {
            "Collective name": said,
            "In msg nelems": one.count,
            "Out msg nelems": one.count,
            "Group size": len(ranks),
            "dtype": "Float",
            "Process Group Name": group,
            "Process Group Description": label,
            "Process Group Ranks": str(ranks),
        }
        yield self._span("kernel", name, place, times, args)
        yield self._flow("f", "ac2g", one.connection_id, place, one.start_ns)

    def _annotations(self) -> Iterator[Event]:
        """What the host annotated, again around what it launched; and the span of the profiler."""
        early_ns, longer_ns = _REPEATED_NS
        for step in self.rank.steps:
            first_ns = step.device_start_ns - early_ns
            times = (first_ns, step.device_end_ns - early_ns + longer_ns)
            place = self._place(COMPUTE_STREAM)
            yield self._span("gpu_user_annotation", f"ProfilerStep#{step.id}", place, times, {})
        times = (self.rank.start_ns, self.rank.end_ns)
        yield self._span("Trace", "PyTorch Profiler (0)", ("Spans", "PyTorch Profiler"), times, {})

    def _memory(self) -> Iterator[Event]:
        """Every sample of the memory counter, as an allocation that changed the total."""
        for time_ns, size in memory_samples(self.rank):
            args = {"Total Reserved": 4 * size, "Total Allocated": size, "Bytes": 512}
            yield {
                "ph": "i",
                "cat": "cpu_instant_event",
                "s": "t",
                "name": "[memory]",
                "pid": self.rank.os_pid,
                "tid": self.rank.main_thread,
                "ts": self._us(time_ns),
                "args": args | {"Device Id": self.rank.device, "Device Type": 1, "Addr": 1 << 46},
            }

    def _mark(self, name: str, place: str, time_ns: int) -> Event:
        where = {"pid": place, "tid": place}
        return {"name": name, "ph": "i", "s": "g", **where, "ts": self._us(time_ns)}


def lost_kernels(rank: RankRun, step: int) -> list[Task]:
    """The kernels of a damaged step that are not in its trace: the middle third."""
    kernels = _kernels(rank, step)
    return kernels[len(kernels) // 3 : -(len(kernels) // 3)]


def overrunning_kernel(rank: RankRun, step: int) -> Task:
    """The kernel of a damaged step whose duration is too long in its trace."""
    return _kernels(rank, step)[0]


def _kernels(rank: RankRun, step: int) -> list[Task]:
    tasks = list(rank.iterations)[step].local_tasks
    return sorted((task for task in tasks if task.kernel), key=lambda task: task.start_ns)


def process_group(run: Run, name: str) -> tuple[str, str, list[int]]:
    """What PyTorch says of a group: its number, what it is for, its ranks."""
    group = run.truth.group(name)
    label = "default_pg" if group.label == "default_group" else group.label
    return str(run.truth.groups.index(group)), label, list(group.members)


def launching_operators(rank: RankRun) -> Iterator[tuple[int, tuple[int, str]]]:
    """By correlation, the number and name of the operator that launched; leaves are inside of one.

    A GPU has no leaves, but they are written like operators.
    """
    around: dict[int, tuple[int, int, str]] = {}
    for number, call in enumerate(rank.framework_calls, 1):
        if call.category != "cpu_op":
            continue
        if not call.launches:
            around[call.thread] = (call.end_ns, number, call.name)
        end_ns, outer, name = around.get(call.thread, (0, 0, ""))
        told = (outer, name) if end_ns >= call.end_ns else (number, call.name)
        for connection in call.launches:
            yield connection, told


def memory_samples(rank: RankRun) -> Iterable[tuple[int, int]]:
    """What a trace tells of the allocated memory of a rank's device: times and bytes."""
    (held,) = (one for one in rank.counters if (one.family, one.series) == ("NPU MEM", "APP"))
    return held.samples
