"""Turns the events of trace lanes into the tables of records."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from timeline.records.strings import StringPool
from timeline.records.tables import (
    NO_CONTEXT,
    NO_GRAPH,
    NO_ID,
    NO_TIME,
    CommunicationOps,
    CounterSamples,
    CounterSeries,
    HostEvents,
    PlaneTasks,
    StepPart,
    StepParts,
    Steps,
    Tasks,
)
from timeline.sources.counter_units import name_and_unit
from timeline.sources.json_events import Event
from timeline.sources.microseconds import interval_ns, moment_ns, moments_ns
from timeline.sources.trace_args import (
    HostArgs,
    OpArgs,
    PlaneArgs,
    StepArgs,
    TaskArgs,
    decode_args,
    first_int,
    number,
    text,
)

__all__ = [
    "COMPUTE_TYPES",
    "counters_table",
    "host_table",
    "ops_table",
    "planes_table",
    "profiler_steps",
    "step_tables",
    "tasks_table",
]

COMPUTE_TYPES = frozenset(
    {
        "AI_CORE",
        "AI_VECTOR_CORE",
        "AIV",
        "AIV_SQE",
        "AIC",
        "MIX_AIC",
        "MIX_AIV",
        "AI_CPU",
        "AI_CPU_SQE",
        "AICPU",
        "DSA",
        "DSA_SQE",
        "VECTOR_CORE",
    }
)
"""Task types that compute, for exports without a kernel table."""

_PARTS = (
    (StepPart.REDUCE, re.compile(r"Reduce_(\d+)_(\d+)"), "Reduce"),
    (StepPart.GET_NEXT, re.compile(r"GetNext\D*(\d+)_(\d+)"), "GetNext Time"),
)
"""Parts by name, or by category where a version of msprof writes plain names."""
_ITERATION_NAME = re.compile(r"Iteration (\d+)")
_PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)")

_task_args = msgspec.json.Decoder(TaskArgs)
_plane_args = msgspec.json.Decoder(PlaneArgs)
_op_args = msgspec.json.Decoder(OpArgs)
_host_args = msgspec.json.Decoder(HostArgs)
_step_args = msgspec.json.Decoder(StepArgs)
_counter_args: Callable[[bytes], dict[str, Any]] = msgspec.json.Decoder(dict[str, Any]).decode


def _spans(events: Sequence[Event]) -> dict[str, Any]:
    start_ns, end_ns = interval_ns([event.ts for event in events], [event.dur for event in events])
    return {"start_ns": start_ns, "end_ns": end_ns}


def tasks_table(
    events: Sequence[Event], strings: StringPool, *, stream: int | None, device: int, graph: int
) -> Tasks:
    """Device tasks of one stream; `graph` is the graph of tasks that name none."""
    args = [decode_args(_task_args, event.args) for event in events]
    types = [text(arg.task_type) for arg in args]
    return Tasks.of(
        len(events),
        _spans(events)
        | {
            "device": np.full(len(events), device),
            "stream": [
                stream if stream is not None else first_int((arg.stream, arg.old_stream), NO_ID)
                for arg in args
            ],
            "task": [number(arg.task, NO_ID) for arg in args],
            "batch": [number(arg.batch, NO_ID) for arg in args],
            "context": [number(arg.context, NO_CONTEXT) for arg in args],
            "graph": [first_int((arg.graph, arg.other_graph), graph) for arg in args],
            "connection": [number(arg.connection, NO_ID) for arg in args],
            "name": strings.codes(event.name for event in events),
            "task_type": strings.codes(types),
            "compute": [kind in COMPUTE_TYPES for kind in types],
        },
    )


def planes_table(
    events: Sequence[Event], strings: StringPool, *, group: str, plane: int, graph: int
) -> PlaneTasks:
    """HCCL tasks of one plane."""
    args = [decode_args(_plane_args, event.args) for event in events]
    return PlaneTasks.of(
        len(events),
        _spans(events)
        | {
            "group": np.full(len(events), strings.code(group)),
            "plane": np.full(len(events), plane),
            "name": strings.codes(event.name for event in events),
            "stream": [number(arg.stream, NO_ID) for arg in args],
            "task": [number(arg.task, NO_ID) for arg in args],
            "context": [number(arg.context, NO_CONTEXT) for arg in args],
            "graph": [first_int((arg.graph, arg.other_graph), graph) for arg in args],
            "source_rank": [number(arg.source_rank, NO_ID) for arg in args],
            "target_rank": [number(arg.target_rank, NO_ID) for arg in args],
            "size_bytes": [number(arg.size, NO_ID) for arg in args],
            "notify": strings.codes(text(arg.notify) for arg in args),
            "transport": strings.codes(text(arg.transport) for arg in args),
            "link": strings.codes(text(arg.link) for arg in args),
            "data_type": strings.codes(text(arg.data_type) for arg in args),
            "bandwidth": [
                float(arg.bandwidth) if isinstance(arg.bandwidth, (int, float)) else np.nan
                for arg in args
            ],
        },
    )


def ops_table(
    events: Sequence[Event], strings: StringPool, *, group: str, graph: int
) -> CommunicationOps:
    """Communication ops of one group."""
    args = [decode_args(_op_args, event.args) for event in events]
    return CommunicationOps.of(
        len(events),
        _spans(events)
        | {
            "group": np.full(len(events), strings.code(group)),
            "name": strings.codes(event.name for event in events),
            "graph": [first_int((arg.graph, arg.other_graph), graph) for arg in args],
            "connection": [number(arg.connection, NO_ID) for arg in args],
            "count": [number(arg.count, NO_ID) for arg in args],
            "data_type": strings.codes(text(arg.data_type) for arg in args),
            "algorithm": strings.codes(text(arg.algorithm) for arg in args),
        },
    )


def host_table(
    events: Sequence[Event],
    strings: StringPool,
    *,
    layer: str,
    process: int,
    thread: int,
    graph: int,
) -> HostEvents:
    """Host events of one thread."""
    args = [decode_args(_host_args, event.args) for event in events]
    return HostEvents.of(
        len(events),
        _spans(events)
        | {
            "layer": np.full(len(events), strings.code(layer)),
            "process": np.full(len(events), process),
            "thread": np.full(len(events), thread),
            "name": strings.codes(event.name for event in events),
            "level": strings.codes(
                text(arg.level) or event.cat for arg, event in zip(args, events, strict=True)
            ),
            "connection": [number(arg.connection, NO_ID) for arg in args],
            "graph": [number(arg.graph, graph) for arg in args],
        },
    )


def profiler_steps(events: Sequence[Event]) -> Steps:
    """Steps of the framework's own profiler: the host window of each ProfilerStep#N."""
    matches = [(event, _PROFILER_STEP.fullmatch(event.name)) for event in events]
    found = [(event, int(match[1])) for event, match in matches if match]
    if not found:
        return Steps.empty()
    return Steps.of(
        len(found),
        _spans([event for event, _ in found])
        | {
            "graph": np.full(len(found), NO_GRAPH),
            "iteration": [step for _, step in found],
            "host": np.ones(len(found), np.bool_),
        },
    )


def step_tables(events: Sequence[Event], *, graph: int) -> tuple[Steps, StepParts]:
    """Steps and their parts from the step-trace events of one graph.

    FP start and BP end of 0 or N/A mean that the step has none (inference, step mode).
    """
    steps: dict[str, list[int]] = defaultdict(list)
    parts: dict[str, list[int]] = defaultdict(list)
    start_ns, end_ns = interval_ns([event.ts for event in events], [event.dur for event in events])
    for event, start, end in zip(events, start_ns.tolist(), end_ns.tolist(), strict=True):
        args = decode_args(_step_args, event.args)
        if match := _ITERATION_NAME.fullmatch(event.name):
            _extend(
                steps,
                start_ns=start,
                end_ns=end,
                graph=graph,
                iteration=number(args.iteration, int(match[1])),
                fp_start_ns=_mark_ns(args.fp_start),
                bp_end_ns=_mark_ns(args.bp_end),
            )
            continue
        for kind, pattern, category in _PARTS:
            match = pattern.match(event.name)
            if match or event.cat == category:
                iteration, place = (int(match[1]), int(match[2])) if match else (NO_ID, 0)
                _extend(
                    parts,
                    start_ns=start,
                    end_ns=end,
                    graph=graph,
                    kind=kind,
                    iteration=number(args.iteration, iteration),
                    number=place,
                )
                break
    return (
        Steps.of(len(steps["graph"]), steps) if steps else Steps.empty(),
        StepParts.of(len(parts["graph"]), parts) if parts else StepParts.empty(),
    )


def _extend(columns: dict[str, list[int]], **row: int) -> None:
    for name, value in row.items():
        columns[name].append(value)


def _mark_ns(raw: msgspec.Raw) -> int:
    time_ns = moment_ns(bytes(raw))
    return time_ns if time_ns > 0 else int(NO_TIME)


def counters_table(
    events: Sequence[Event], process: Callable[[object], str], strings: StringPool
) -> tuple[CounterSeries, CounterSamples]:
    """Counter series and samples; args named *_id tell series apart, all other args are values."""
    series: dict[tuple[str, str, str], int] = {}
    times: list[bytes] = []
    numbers: list[int] = []
    values: list[float] = []
    for event in events:
        args = _counter_args(event.args or b"{}")
        ids = "".join(f" {key[:-3]} {args[key]}" for key in args if key.endswith("_id"))
        held = {key: value for key, value in args.items() if not key.endswith("_id")}
        for key, value in held.items():
            if not isinstance(value, (int, float)):
                continue
            name, unit = name_and_unit(event.name, key, len(held))
            row = series.setdefault((process(event.pid), name + ids, unit), len(series))
            times.append(bytes(event.ts))
            numbers.append(row)
            values.append(float(value))
    if not series:
        return CounterSeries.empty(), CounterSamples.empty()
    groups, names, units = zip(*series, strict=True)
    return (
        CounterSeries.of(
            len(series),
            {
                "group": strings.codes(groups),
                "name": strings.codes(names),
                "unit": strings.codes(units),
            },
        ),
        CounterSamples.of(
            len(times),
            {
                "time_ns": moments_ns(times),
                "series": numbers,
                "value": values,
            },
        ),
    )
