"""Turns the events of trace lanes into the tables of records."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from timeline.records.columns import Columns, Int64, column, constant
from timeline.records.strings import NO_NAME, StringPool
from timeline.records.tables import (
    NO_CONTEXT,
    NO_GRAPH,
    NO_ID,
    NO_TIME,
    CommunicationOps,
    HostEvents,
    PlaneTasks,
    StepPart,
    StepParts,
    Steps,
    Tasks,
)
from timeline.sources.event_columns import Interval, first_ids, ids_of, names_of, spans_of
from timeline.sources.lane_events import LaneEvents
from timeline.sources.microseconds import interval_ns, moment_ns, moments_ns
from timeline.sources.trace_events import NO_ARGS, Args, Complete, number
from timeline.sources.whole_numbers import real

__all__ = [
    "COMPUTE_TYPES",
    "Calls",
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
    (StepPart.REDUCE, re.compile(r"Reduce_([0-9]{1,9})_([0-9]{1,9})"), "Reduce"),
    (StepPart.GET_NEXT, re.compile(r"GetNext\D*([0-9]{1,9})_([0-9]{1,9})"), "GetNext Time"),
)
"""Parts by name, or by category where a version of msprof writes plain names."""
_ITERATION_NAME = re.compile(r"Iteration ([0-9]{1,9})")
_PROFILER_STEP = re.compile(r"ProfilerStep#([0-9]{1,9})")


def tasks_table(
    lanes: LaneEvents,
    strings: StringPool,
    *,
    streams: Sequence[int | None],
    device: int,
    graph: int,
    every_arg: bool,
) -> Tasks:
    """Device tasks of streams; `graph` is the graph of tasks that name none."""
    args, count = lanes.args(), len(lanes.events)
    types = names_of([arg.task_type for arg in args], strings)
    computing = [code for kind in COMPUTE_TYPES if (code := strings.find(kind)) is not None]
    return Tasks.of(
        count,
        spans_of(lanes.events)
        | {
            "device": constant(device, count, np.int64),
            "stream": _streams(lanes, streams, args),
            "task": ids_of([arg.task for arg in args], NO_ID),
            "graph": first_ids(
                [arg.model for arg in args], [arg.small_model for arg in args], graph
            ),
            "connection": ids_of([arg.connection for arg in args], NO_ID),
            "name": lanes.names(strings),
            "task_type": types,
            "context": ids_of([arg.subtask for arg in args], NO_CONTEXT),
            "compute": np.isin(types, np.array(computing, np.int32)),
        }
        | ({"batch": ids_of([arg.batch for arg in args], NO_ID)} if every_arg else {}),
    )


def _streams(lanes: LaneEvents, streams: Sequence[int | None], args: Sequence[Args]) -> Int64:
    """The streams that the lanes are; where their names do not tell, those that the tasks name."""
    named = lanes.ids([NO_ID if stream is None else stream for stream in streams])
    if None not in streams:
        return named
    told = first_ids([arg.physical_stream for arg in args], [arg.stream for arg in args], NO_ID)
    return told if set(streams) == {None} else np.where(named == NO_ID, told, named)


def planes_table(
    lanes: LaneEvents,
    strings: StringPool,
    *,
    groups: Sequence[str],
    planes: Sequence[int],
    graph: int,
    every_arg: bool,
) -> PlaneTasks:
    """HCCL tasks of planes."""
    args = lanes.args()
    return PlaneTasks.of(
        len(args),
        spans_of(lanes.events)
        | {
            "group": lanes.codes(groups, strings),
            "plane": lanes.ids(planes),
            "name": lanes.names(strings),
            "graph": first_ids(
                [arg.small_model for arg in args], [arg.model for arg in args], graph
            ),
            "task": ids_of([arg.plane_task for arg in args], NO_ID),
            "context": ids_of([arg.plane_context for arg in args], NO_CONTEXT),
            "source_rank": ids_of([arg.source_rank for arg in args], NO_ID),
            "target_rank": ids_of([arg.target_rank for arg in args], NO_ID),
            "size_bytes": ids_of([arg.size for arg in args], NO_ID),
            "link": names_of([arg.link for arg in args], strings),
            "bandwidth": [
                real(arg.bandwidth) if isinstance(arg.bandwidth, (int, float)) else np.nan
                for arg in args
            ],
        }
        | (
            {
                "stream": ids_of([arg.plane_stream for arg in args], NO_ID),
                "notify": names_of([arg.notify for arg in args], strings),
                "transport": names_of([arg.transport for arg in args], strings),
                "data_type": names_of([arg.plane_data_type for arg in args], strings),
            }
            if every_arg
            else {}
        ),
    )


def ops_table(
    lanes: LaneEvents, strings: StringPool, *, groups: Sequence[str], graph: int
) -> CommunicationOps:
    """Communication ops of groups."""
    args = lanes.args()
    return CommunicationOps.of(
        len(args),
        spans_of(lanes.events)
        | {
            "group": lanes.codes(groups, strings),
            "name": lanes.names(strings),
            "graph": first_ids(
                [arg.small_model for arg in args], [arg.model for arg in args], graph
            ),
            "connection": ids_of([arg.connection for arg in args], NO_ID),
            "count": ids_of([arg.count for arg in args], NO_ID),
            "data_type": names_of([arg.data_type for arg in args], strings),
            "algorithm": names_of([arg.algorithm for arg in args], strings),
        },
    )


def host_table(
    lanes: LaneEvents,
    strings: StringPool,
    *,
    layers: Sequence[str],
    processes: Sequence[int],
    threads: Sequence[int],
    graph: int,
    every_arg: bool,
) -> HostEvents:
    """Host events of threads."""
    args, count = lanes.args(), len(lanes.events)
    return HostEvents.of(
        count,
        spans_of(lanes.events)
        | {
            "layer": lanes.codes(layers, strings),
            "process": lanes.ids(processes) if every_arg else constant(NO_ID, count, np.int64),
            "thread": lanes.ids(threads),
            "name": lanes.names(strings),
            "level": names_of(
                [arg.level or event.cat for arg, event in zip(args, lanes.events, strict=True)],
                strings,
            )
            if every_arg
            else constant(NO_NAME, count, np.int32),
            "connection": ids_of([arg.connection for arg in args], NO_ID),
            "graph": ids_of([arg.model for arg in args], graph),
        },
    )


@dataclass(frozen=True)
class Calls(Columns):
    """Host calls that launched something: their connection, and when they began."""

    connection: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)

    @classmethod
    def of_host(cls, host: HostEvents) -> Calls:
        """The calls among host events."""
        rows = host.connection != NO_ID
        return cls(host.connection[rows], host.start_ns[rows])

    @classmethod
    def of_events(cls, events: Sequence[Complete]) -> Calls:
        """The calls among events that do not become host events."""
        connection = ids_of(
            [event.args.connection if event.args else None for event in events], NO_ID
        )
        rows = np.flatnonzero(connection != NO_ID)
        start_ns = moments_ns([events[row].ts for row in rows.tolist()])
        return cls.of(len(rows), {"connection": connection[rows], "start_ns": start_ns})


def profiler_steps(events: Sequence[Interval]) -> Steps:
    """Steps of the framework's own profiler: the host window of each ProfilerStep#N."""
    names = [event.name for event in events]
    numbers = {
        name: int(match[1]) for name in set(names) if (match := _PROFILER_STEP.fullmatch(name))
    }
    if not numbers:
        return Steps.empty()
    found = [(event, numbers[event.name]) for event in events if event.name in numbers]
    return Steps.of(
        len(found),
        spans_of([event for event, _ in found])
        | {
            "graph": np.full(len(found), NO_GRAPH),
            "iteration": [step for _, step in found],
            "host": np.ones(len(found), np.bool_),
        },
    )


def step_tables(events: Sequence[Complete], *, graph: int) -> tuple[Steps, StepParts]:
    """Steps and their parts from the step-trace events of one graph.

    FP start and BP end of 0 or N/A mean that the step has none (inference, step mode).
    """
    steps: dict[str, list[int]] = defaultdict(list)
    parts: dict[str, list[int]] = defaultdict(list)
    start_ns, end_ns = interval_ns([event.ts for event in events], [event.dur for event in events])
    for event, start, end in zip(events, start_ns.tolist(), end_ns.tolist(), strict=True):
        args = event.args or NO_ARGS
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
