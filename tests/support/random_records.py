"""Makes records of ranks whose durations, gaps, names and ids are random, so nothing repeats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.support.random_intervals import EPOCH_NS
from timeline.columns.columns import Codes, Int64
from timeline.columns.strings import StringPool
from timeline.records.tables import (
    CommunicationOps,
    CounterSamples,
    CounterSeries,
    FlowEnd,
    Flows,
    HostEvents,
    PlaneTasks,
    Records,
    StepPart,
    StepParts,
    Steps,
    Tasks,
)

GRAPH = 1
STREAMS = (2, 3, 4, 5)
STREAM_SHARES = (0.7, 0.15, 0.1, 0.05)
"""Most tasks run on one stream, as they do in training."""
KINDS = ("MatMul", "Add", "LayerNorm", "Cast", "Mul", "Softmax", "Transpose", "ReduceSum")
CORES = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "AI_CPU")
TASK_NS, TASK_SPREAD = 9_000, 1.2
GAP_NS = 2_500
STEP_GAP_NS = 1_000
MOST_TASK_IDS = 1 << 16
"""Device task ids are 16 bits wide and start again."""


@dataclass(frozen=True)
class Sizes:
    """How much a rank records; all but steps, names and streams is per step."""

    steps: int = 10
    tasks: int = 200
    ops: int = 2
    planes: int = 4
    calls: int = 100
    samples: int = 50
    names: int = 200
    streams: int = 4
    task_ns: int = TASK_NS


def random_records(rank: int, sizes: Sizes, seed: int = 1) -> Records:
    """One rank with steps of a graph, tasks, communication, calls, a counter and launches."""
    random = np.random.default_rng([seed, rank])
    strings = StringPool()
    tasks, step_of_task = _tasks(random, strings, sizes)
    steps = _steps(tasks, step_of_task, sizes)
    ops = _ops(random, strings, steps, sizes)
    host = _host(random, strings, steps, sizes)
    series, samples = _samples(random, strings, steps, sizes)
    return Records(
        rank,
        strings,
        tasks=tasks,
        planes=_planes(random, strings, ops, sizes),
        ops=ops,
        steps=steps,
        parts=_reduces(ops),
        host=host,
        series=series,
        samples=samples,
        flows=_launches(random, strings, host, tasks),
    )


def _tasks(random: np.random.Generator, strings: StringPool, sizes: Sizes) -> tuple[Tasks, Int64]:
    """Tasks of random length one after the other on each stream, and the step of each."""
    count = sizes.steps * sizes.tasks
    streams = STREAMS[: sizes.streams]
    shares = np.array(STREAM_SHARES[: sizes.streams])
    stream = random.choice(streams, count, p=shares / shares.sum())
    start_ns, end_ns = np.empty(count, np.int64), np.empty(count, np.int64)
    task = np.empty(count, np.int64)
    for one in streams:
        rows = np.flatnonzero(stream == one)
        length = random.lognormal(np.log(sizes.task_ns), TASK_SPREAD, len(rows))
        gap = random.exponential(GAP_NS, len(rows)).astype(np.int64)
        length_ns = length.astype(np.int64) + 1
        end_ns[rows] = EPOCH_NS + np.cumsum(length_ns + gap)
        start_ns[rows] = end_ns[rows] - length_ns
        task[rows] = np.arange(len(rows)) % MOST_TASK_IDS
    order = np.argsort(start_ns, kind="stable")
    step = np.arange(count) // max(1, sizes.tasks)
    kind = np.arange(sizes.names) % len(KINDS)
    names = strings.codes(
        f"Default/network-TrainOneStep/layer.{number % 24}/{KINDS[number % len(KINDS)]}-op{number}"
        for number in range(sizes.names)
    )
    shapes = strings.codes(
        '"' + ";".join(f"{rows},{columns}" for rows, columns in matrices) + '"'
        for matrices in random.integers(1, 4096, (sizes.names, 2, 2)).tolist()
    )
    which = random.integers(0, sizes.names, count)
    table = Tasks.of(
        count,
        {
            "start_ns": start_ns[order],
            "end_ns": end_ns[order],
            "stream": stream[order],
            "task": task[order],
            "graph": np.full(count, GRAPH),
            "iteration": step + 1,
            "name": names[which],
            "op_type": strings.codes(KINDS)[kind[which]],
            "task_type": strings.codes(CORES)[which % len(CORES)],
            "input_shapes": shapes[which],
            "compute": np.ones(count, np.bool_),
        },
    )
    return table, step


def _steps(tasks: Tasks, step: Int64, sizes: Sizes) -> Steps:
    """Steps that follow each other, each with FP start and BP end inside."""
    first = np.searchsorted(step, np.arange(sizes.steps))
    start_ns = tasks.start_ns[first]
    next_ns = np.append(start_ns[1:], tasks.end_ns.max() + 2 * STEP_GAP_NS)
    # Steps of few tasks may begin within less than the gap of each other.
    end_ns = next_ns - np.minimum(STEP_GAP_NS, (next_ns - start_ns) // 2)
    length_ns = end_ns - start_ns
    return Steps.of(
        sizes.steps,
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "graph": np.full(sizes.steps, GRAPH),
            "iteration": np.arange(1, sizes.steps + 1),
            "fp_start_ns": start_ns + length_ns // 50,
            "bp_end_ns": start_ns + length_ns * 4 // 5,
        },
    )


def _ops(
    random: np.random.Generator, strings: StringPool, steps: Steps, sizes: Sizes
) -> CommunicationOps:
    """Ops at random moments of each step, which do not overlap."""
    start_ns, end_ns, step = _one_after_the_other(random, steps, sizes.ops)
    count = len(start_ns)
    return CommunicationOps.of(
        count,
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "group": np.full(count, strings.code("Group 0")),
            "name": strings.codes(f"hcom_allReduce__0_{number}" for number in range(count)),
            "graph": np.full(count, GRAPH),
            "iteration": step + 1,
            "count": random.integers(1, 1 << 24, count),
            "data_type": np.full(count, strings.code("FP32")),
            "algorithm": np.full(count, strings.code("MESH-RING")),
        },
    )


def _planes(
    random: np.random.Generator, strings: StringPool, ops: CommunicationOps, sizes: Sizes
) -> PlaneTasks:
    """On each plane, every op is parted at random moments into transfers."""
    count = len(ops) * sizes.planes
    owner = np.repeat(np.arange(len(ops)), sizes.planes)
    length_ns = (ops.end_ns - ops.start_ns)[owner]
    start_ns = ops.start_ns[owner] + random.integers(0, length_ns // 2 + 1)
    end_ns = start_ns + random.integers(0, length_ns // 2 + 1)
    kinds = strings.codes(("Memcpy", "Reduce_Inline", "Notify_Wait"))
    return PlaneTasks.of(
        count,
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "group": ops.group[owner],
            "plane": np.tile(np.arange(sizes.planes), len(ops)),
            "name": kinds[random.integers(0, len(kinds), count)],
            "source_rank": np.zeros(count),
            "target_rank": random.integers(0, 8, count),
            "size_bytes": random.integers(1, 1 << 22, count),
            "bandwidth": random.uniform(1, 28, count),
            "link": np.full(count, strings.code("HCCS")),
            "graph": ops.graph[owner],
            "iteration": ops.iteration[owner],
        },
    )


def _reduces(ops: CommunicationOps) -> StepParts:
    return StepParts.of(
        len(ops),
        {
            "start_ns": ops.start_ns,
            "end_ns": ops.end_ns,
            "graph": ops.graph,
            "iteration": ops.iteration,
            "number": np.arange(len(ops)),
            "kind": np.full(len(ops), int(StepPart.REDUCE)),
        },
    )


def _host(
    random: np.random.Generator, strings: StringPool, steps: Steps, sizes: Sizes
) -> HostEvents:
    """Calls on a thread of two layers; every second Python call holds another one."""
    start_ns, end_ns, _ = _one_after_the_other(random, steps, sizes.calls)
    inner = np.arange(0, len(start_ns), 2)
    third_ns = (end_ns[inner] - start_ns[inner]) // 3
    starts = np.concatenate([start_ns, start_ns[inner] + third_ns])
    ends = np.concatenate([end_ns, end_ns[inner] - third_ns])
    is_cann = np.concatenate([np.arange(len(start_ns)) % 4 == 1, np.zeros(len(inner), np.bool_)])
    count = len(starts)
    names = strings.codes(f"aten::op_{number}" for number in range(60))
    layers: Codes = np.where(is_cann, strings.code("CANN"), strings.code("Python")).astype(np.int32)
    return HostEvents.of(
        count,
        {
            "start_ns": starts,
            "end_ns": ends,
            "layer": layers,
            "thread": np.full(count, 1234),
            "name": names[random.integers(0, len(names), count)],
            "connection": np.arange(count),
        },
    )


def _samples(
    random: np.random.Generator, strings: StringPool, steps: Steps, sizes: Sizes
) -> tuple[CounterSeries, CounterSamples]:
    series = CounterSeries.of(
        1,
        {
            "group": [strings.code("HBM")],
            "name": [strings.code("Read")],
            "unit": [strings.code("MB/s")],
        },
    )
    count = sizes.steps * sizes.samples
    first_ns, last_ns = int(steps.start_ns[0]), int(steps.end_ns[-1])
    samples = CounterSamples.of(
        count,
        {
            "time_ns": np.sort(random.integers(first_ns, last_ns, count)),
            "series": np.zeros(count),
            "value": random.normal(20_000, 4_000, count),
        },
    )
    return series, samples


def _launches(
    random: np.random.Generator, strings: StringPool, host: HostEvents, tasks: Tasks
) -> Flows:
    """Every third call launches a task."""
    callers = np.arange(0, len(host), 3)[: len(tasks)]
    count = len(callers)
    return Flows.of(
        count,
        {
            "category": np.full(count, strings.code("launch")),
            "source_kind": np.full(count, int(FlowEnd.HOST)),
            "source_row": callers,
            "target_kind": np.full(count, int(FlowEnd.TASK)),
            "target_row": np.sort(random.choice(len(tasks), count, replace=False)),
        },
    )


def _one_after_the_other(
    random: np.random.Generator, steps: Steps, count: int
) -> tuple[Int64, Int64, Int64]:
    """In each step, `count` intervals between random moments, with gaps: start, end and step."""
    first, length = steps.start_ns[:, None], (steps.end_ns - steps.start_ns)[:, None]
    moments = np.sort(random.random((len(steps), 2 * count)), axis=1)
    moments_ns = first + (moments * length).astype(np.int64)
    start_ns, end_ns = moments_ns[:, 0::2].reshape(-1), moments_ns[:, 1::2].reshape(-1)
    return start_ns, end_ns, np.repeat(np.arange(len(steps)), count)
