"""Makes records that are large in one way alone: many streams, deep calls, long names, and more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support.random_intervals import EPOCH_NS
from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.options import ReadingOptions
from timeline.profile import Profile
from timeline.progress import Silent
from timeline.records.clock import Clock
from timeline.records.not_given import NO_ID
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
from timeline.sources.finding.discovery import Discovered
from timeline.sources.source import Identity, ReadRequest

TASK_NS = 9_000
PERIOD_NS = 10_000
"""A task begins every so often."""


@dataclass(frozen=True)
class Shape:
    """How much a rank records of what, in all; what is not said is small.

    overlapping: how many tasks of a stream run at once. calls_form: flat, nested (each in the one
    before), crossing (each ends inside the next ones), pairs (each crosses the next alone) or
    around (half of them nest around all others). fetches: how many tasks fetch data, which alone
    tells of steps where none are marked.
    """

    ranks: int = 1
    tasks: int = 60
    task_ids: int = 1 << 16
    overlapping: int = 1
    streams: int = 1
    steps: int = 2
    graphs: int = 1
    parts: int = 0
    names: int = 8
    name_length: int = 10
    depth: int = 2
    shapes: int = 4
    ops: int = 4
    op_names: int = 4
    groups: int = 1
    ops_at_once: int = 1
    planes: int = 1
    plane_tasks: int = 4
    peers: int = 4
    calls: int = 20
    calls_form: str = "flat"
    call_names: int = 10
    threads: int = 1
    processes: int = 1
    layers: int = 1
    series: int = 1
    counter_groups: int = 1
    samples: int = 20
    flows: int = 10
    flow_fan: int = 1
    step_ns: int = 0
    fetches: int = 0


@dataclass(frozen=True)
class Dimension:
    """What grows; `least` is how much of it takes a tenth of a second or more in most ways."""

    shape: Callable[[int], Shape]
    least: int


def _calls(form: str) -> Callable[[int], Shape]:
    return lambda n: Shape(calls=n, calls_form=form)


DIMENSIONS: Mapping[str, Dimension] = {
    "tasks": Dimension(lambda n: Shape(tasks=n), 30_000),
    "tasks at once": Dimension(lambda n: Shape(tasks=n, overlapping=n), 2_000),
    "tasks 50 at once": Dimension(lambda n: Shape(tasks=n, overlapping=50), 20_000),
    "task ids": Dimension(lambda n: Shape(tasks=n, task_ids=n), 20_000),
    "streams": Dimension(lambda n: Shape(tasks=n, streams=n), 1_500),
    "steps": Dimension(lambda n: Shape(tasks=n, steps=n), 2_500),
    "steps of 1 us": Dimension(lambda n: Shape(tasks=0, steps=n, step_ns=1_000), 5_000),
    "steps without tasks": Dimension(lambda n: Shape(steps=n), 3_000),
    "steps that fetches tell": Dimension(
        lambda n: Shape(tasks=3 * n, steps=0, names=n, fetches=n, ops=n), 1_500
    ),
    "steps of many ranks": Dimension(lambda n: Shape(ranks=8, tasks=n, steps=n, ops=n), 500),
    "graphs": Dimension(lambda n: Shape(tasks=n, steps=n, graphs=n), 1_500),
    "step parts": Dimension(lambda n: Shape(tasks=n, steps=20, parts=n), 5_000),
    "names": Dimension(lambda n: Shape(tasks=n, names=n), 5_000),
    "names of calls": Dimension(lambda n: Shape(calls=n, call_names=n), 5_000),
    "names of ops": Dimension(lambda n: Shape(ops=n, op_names=n), 3_000),
    "length of names": Dimension(lambda n: Shape(names=4, name_length=n), 200_000),
    "depth of scopes": Dimension(lambda n: Shape(names=4, depth=n), 1_000),
    "deep scopes of many tasks": Dimension(lambda n: Shape(tasks=n, names=1, depth=n), 1_000),
    "shapes": Dimension(lambda n: Shape(tasks=n, shapes=n), 5_000),
    "ops": Dimension(lambda n: Shape(ops=n), 3_000),
    "ops at once": Dimension(lambda n: Shape(ops=n, ops_at_once=n), 1_500),
    "ops of 4 ranks": Dimension(lambda n: Shape(ranks=4, ops=n), 1_500),
    "ops of 4 ranks at once": Dimension(lambda n: Shape(ranks=4, ops=n, ops_at_once=n), 200),
    "groups": Dimension(lambda n: Shape(ops=n, groups=n, plane_tasks=n), 1_000),
    "groups of 4 ranks": Dimension(lambda n: Shape(ranks=4, ops=n, groups=n), 300),
    "planes": Dimension(lambda n: Shape(plane_tasks=n, planes=n), 1_500),
    "planes of groups": Dimension(
        lambda n: Shape(ops=n, plane_tasks=n, planes=n, groups=max(1, n // 10)), 1_000
    ),
    "HCCL tasks": Dimension(lambda n: Shape(plane_tasks=n), 10_000),
    "peers": Dimension(lambda n: Shape(plane_tasks=n, peers=n), 5_000),
    "calls": Dimension(_calls("flat"), 10_000),
    "calls that nest": Dimension(_calls("nested"), 2_000),
    "calls that cross": Dimension(_calls("crossing"), 2_000),
    "calls that cross in pairs": Dimension(_calls("pairs"), 5_000),
    "calls around all": Dimension(_calls("around"), 5_000),
    "threads": Dimension(lambda n: Shape(calls=n, threads=n), 1_500),
    "processes": Dimension(lambda n: Shape(calls=n, processes=n, threads=n), 1_500),
    "host layers": Dimension(lambda n: Shape(calls=n, layers=n), 1_000),
    "counters": Dimension(lambda n: Shape(series=n, samples=n), 2_000),
    "counter groups": Dimension(lambda n: Shape(series=n, counter_groups=n, samples=n), 1_000),
    "samples": Dimension(lambda n: Shape(samples=n), 30_000),
    "arrows": Dimension(lambda n: Shape(tasks=n, calls=n, flows=n), 5_000),
    "arrows of one call": Dimension(lambda n: Shape(tasks=n, flows=n, flow_fan=n), 5_000),
    "ranks": Dimension(lambda n: Shape(ranks=n), 30),
}
"""Every way in which an input may be large, by what grows."""


@dataclass(frozen=True)
class GrownSource:
    """One rank of a shape, made when it is read."""

    rank: int
    shape: Shape
    clock: Clock = Clock()
    files: tuple[Path, ...] = ()
    layout: str = "made"

    @property
    def identity(self) -> Identity:
        return Identity(self.rank, Path(f"rank{self.rank}"))

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        assert wanted.layers
        return grown_records(self.rank, self.shape)


def grown_profile(shape: Shape) -> Profile:
    """A profile of a shape, without files."""
    sources = tuple(GrownSource(rank, shape) for rank in range(shape.ranks))
    return Profile(Path("made"), Discovered(sources, ()), ReadingOptions(), Silent(), ExitStack())


def grown_records(rank: int, shape: Shape) -> Records:
    """One rank of a shape."""
    strings = StringPool()
    tasks = _tasks(strings, shape)
    length_ns = _length_ns(shape)
    steps = _steps(shape, length_ns)
    ops = _ops(rank, strings, shape, length_ns)
    host = _host(strings, shape, length_ns)
    series, samples = _counters(strings, shape, length_ns)
    return Records(
        rank,
        strings,
        tasks=tasks,
        planes=_planes(rank, strings, shape, ops, length_ns),
        ops=ops,
        steps=steps,
        parts=_parts(shape, length_ns),
        host=host,
        series=series,
        samples=samples,
        flows=_flows(strings, shape),
    )


def _length_ns(shape: Shape) -> int:
    if shape.step_ns:
        return shape.steps * shape.step_ns
    return max(1_000, shape.tasks, shape.ops, shape.steps) * PERIOD_NS


def _tasks(strings: StringPool, shape: Shape) -> Tasks:
    count = shape.tasks
    number = np.arange(count)
    start_ns = EPOCH_NS + number * PERIOD_NS
    long = "x" * shape.name_length
    names = strings.codes(
        f"Default/{'/'.join(f'scope{number % 3}' for _ in range(shape.depth))}/{long}-op{number}"
        for number in range(shape.names)
    )
    types = strings.codes(f"Type{number}" for number in range(min(shape.names, 1 << 12)))
    shapes = strings.codes(f'"{number},{number + 1}"' for number in range(shape.shapes))
    which = names[number % shape.names]
    if shape.fetches:
        which[:: max(1, count // shape.fetches)] = strings.code("Default/GetNext-op0")
    step = _step_at(shape, number * PERIOD_NS)
    return Tasks.of(
        count,
        {
            "start_ns": start_ns,
            "end_ns": start_ns + (shape.overlapping - 1) * PERIOD_NS + TASK_NS,
            "stream": number % shape.streams,
            "task": number % shape.task_ids,
            "graph": step % shape.graphs,
            "iteration": step // shape.graphs + 1 if shape.steps else np.full(count, NO_ID),
            "name": which,
            "op_type": types[number % len(types)],
            "task_type": np.full(count, strings.code("AI_CORE")),
            "input_shapes": shapes[number % shape.shapes],
            "connection": number,
            "compute": np.ones(count, np.bool_),
        },
    )


def _step_at(shape: Shape, time_ns: Int64) -> Int64:
    """The step that holds each moment after the first."""
    step = time_ns * shape.steps // _length_ns(shape)
    return np.minimum(step, max(0, shape.steps - 1))


def _steps(shape: Shape, length_ns: int) -> Steps:
    number = np.arange(shape.steps + 1)
    edges_ns = EPOCH_NS + number * length_ns // max(1, shape.steps)
    number = number[:-1]
    return Steps.of(
        shape.steps,
        {
            "start_ns": edges_ns[:-1],
            "end_ns": edges_ns[1:],
            "graph": number % shape.graphs,
            "iteration": number // shape.graphs + 1,
        },
    )


def _parts(shape: Shape, length_ns: int) -> StepParts:
    number = np.arange(shape.parts)
    start_ns = EPOCH_NS + number * (length_ns // max(1, shape.parts))
    step = _step_at(shape, start_ns - EPOCH_NS)
    return StepParts.of(
        shape.parts,
        {
            "start_ns": start_ns,
            "end_ns": start_ns + 1,
            "graph": step % shape.graphs,
            "iteration": step // shape.graphs + 1,
            "number": number,
            "kind": np.full(shape.parts, int(StepPart.REDUCE)),
        },
    )


def _ops(rank: int, strings: StringPool, shape: Shape, length_ns: int) -> CommunicationOps:
    count = shape.ops
    number = np.arange(count)
    period_ns = length_ns // max(1, count)
    start_ns = EPOCH_NS + number * period_ns + rank * 10
    groups = strings.codes(f"Group {number}" for number in range(shape.groups))
    names = strings.codes(f"hcom_allReduce__{number}_0" for number in range(shape.op_names))
    step = _step_at(shape, number * period_ns)
    return CommunicationOps.of(
        count,
        {
            "start_ns": start_ns,
            "end_ns": start_ns + (shape.ops_at_once - 1) * period_ns + period_ns // 2,
            "group": groups[number % shape.groups],
            "name": names[number % shape.op_names],
            "graph": step % shape.graphs,
            "iteration": step // shape.graphs + 1 if shape.steps else np.full(count, NO_ID),
            "connection": number,
            "count": number,
            "data_type": np.full(count, strings.code("FP32")),
        },
    )


def _planes(
    rank: int, strings: StringPool, shape: Shape, ops: CommunicationOps, length_ns: int
) -> PlaneTasks:
    count = shape.plane_tasks
    number = np.arange(count)
    start_ns = EPOCH_NS + number * (length_ns // max(1, count))
    groups = strings.codes(f"Group {number}" for number in range(shape.groups))
    kinds = strings.codes(("Memcpy", "Notify_Wait", "Reduce_Inline"))
    step = _step_at(shape, start_ns - EPOCH_NS)
    return PlaneTasks.of(
        count,
        {
            "start_ns": start_ns,
            "end_ns": start_ns + length_ns // max(1, count) // 2,
            "group": groups[number % shape.groups],
            "plane": number % shape.planes,
            "name": kinds[number % 3],
            "source_rank": np.full(count, rank),
            "target_rank": number % shape.peers,
            "size_bytes": number,
            "bandwidth": np.full(count, 10.0),
            "link": np.full(count, strings.code("HCCS")),
            "graph": step % shape.graphs,
            "iteration": step // shape.graphs + 1 if shape.steps else np.full(count, NO_ID),
        },
    )


def _host(strings: StringPool, shape: Shape, length_ns: int) -> HostEvents:
    count = shape.calls
    number = np.arange(count)
    start_ns, end_ns = _CALLS[shape.calls_form](number, length_ns // max(1, count) // 4 * 4)
    named = ["Python", "CANN", *(f"Layer {number}" for number in range(shape.layers))]
    layers = strings.codes(named[: shape.layers])
    names = strings.codes(f"aten::op_{number}" for number in range(shape.call_names))
    return HostEvents.of(
        count,
        {
            "start_ns": EPOCH_NS + start_ns,
            "end_ns": EPOCH_NS + end_ns,
            "layer": layers[number % shape.layers],
            "process": number % shape.processes,
            "thread": number % shape.threads,
            "name": names[number % shape.call_names],
            "connection": number,
        },
    )


def _flat(number: Int64, period_ns: int) -> tuple[Int64, Int64]:
    return number * period_ns, number * period_ns + period_ns // 2


def _nested(number: Int64, period_ns: int) -> tuple[Int64, Int64]:
    return number * 4, 8 * len(number) * period_ns - number * 4


def _crossing(number: Int64, period_ns: int) -> tuple[Int64, Int64]:
    return number * period_ns, (number + len(number)) * period_ns + 1


def _pairs(number: Int64, period_ns: int) -> tuple[Int64, Int64]:
    return number * period_ns, number * period_ns + period_ns + period_ns // 2


def _around(number: Int64, period_ns: int) -> tuple[Int64, Int64]:
    """Half of them nest, and each of those that follow is inside of all."""
    deep = len(number) // 2
    start_ns, end_ns = _flat(number, period_ns)
    outer = number < deep
    return (
        np.where(outer, number, start_ns),
        np.where(outer, len(number) * 2 * period_ns - number, end_ns),
    )


_CALLS = {
    "flat": _flat,
    "nested": _nested,
    "crossing": _crossing,
    "pairs": _pairs,
    "around": _around,
}


def _counters(
    strings: StringPool, shape: Shape, length_ns: int
) -> tuple[CounterSeries, CounterSamples]:
    number = np.arange(shape.series)
    groups = strings.codes(f"HBM {number}" for number in range(shape.counter_groups))
    series = CounterSeries.of(
        shape.series,
        {
            "group": groups[number % shape.counter_groups],
            "name": strings.codes(f"Read {number}" for number in range(shape.series)),
            "unit": np.full(shape.series, strings.code("MB/s")),
        },
    )
    number = np.arange(shape.samples)
    samples = CounterSamples.of(
        shape.samples,
        {
            "time_ns": EPOCH_NS + number * (length_ns // max(1, shape.samples)),
            "series": number % shape.series,
            "value": number * 1.5,
        },
    )
    return series, samples


def _flows(strings: StringPool, shape: Shape) -> Flows:
    count = min(shape.flows, shape.tasks, shape.calls * shape.flow_fan)
    number = np.arange(count)
    return Flows.of(
        count,
        {
            "category": np.full(count, strings.code("launch")),
            "source_kind": np.full(count, int(FlowEnd.HOST)),
            "source_row": number // shape.flow_fan,
            "target_kind": np.full(count, int(FlowEnd.TASK)),
            "target_row": number,
        },
    )
