"""Steps and their parts from msprof's tables of the step trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Int64
from timeline.records.not_given import NO_GRAPH, NO_ID
from timeline.records.tables import StepPart, StepParts, Steps
from timeline.sources.common.device_clock import DeviceClocks
from timeline.sources.decoders.joins import Lookup, common_keys, ordinals
from timeline.sources.decoders.sqlite_loose import LooseTable
from timeline.sources.msprof_sqlite.databases import ParsedDatabases

NO_MARK = 0
"""What training_trace holds for a mark that the graph does not set."""


@dataclass(frozen=True)
class ParsedSteps:
    """Steps, their reduces and data fetches; uncounted: rows that no clock relates to the rest."""

    steps: Steps
    parts: StepParts
    uncounted: int


def read_steps(databases: ParsedDatabases, clock: DeviceClocks) -> ParsedSteps:
    """Read trace.db, or step_trace.db where a version wrote that only.

    Both hold counts of the device; without its counter they have no times.
    """
    training = databases.device_table("trace.db", "training_trace")
    marked = training if len(training) else None
    spans = databases.device_table("step_trace.db", "step_trace_data", "StepTime")
    reduces = databases.device_table("trace.db", "all_reduce")
    fetches = databases.device_table("trace.db", "get_next")
    if clock.counter is None:
        uncounted = len(training) if marked else len(spans)
        return ParsedSteps(
            Steps.empty(), StepParts.empty(), uncounted + len(reduces) + len(fetches)
        )
    steps = _marked_steps(marked, clock) if marked else _bare_steps(spans, clock)
    parts = StepParts.concat(
        [
            _parts(reduces, steps, clock, StepPart.REDUCE, "start", "end"),
            _parts(fetches, steps, clock, StepPart.GET_NEXT, "start_time", "end_time"),
        ]
    )
    return ParsedSteps(steps, parts, 0)


def _marked_steps(table: LooseTable, clock: DeviceClocks) -> Steps:
    """A step starts at iteration_end less iteration_time."""
    raw = table.integers(
        {
            "model_id": NO_GRAPH,
            "iteration_id": NO_ID,
            "FP_start": NO_MARK,
            "BP_end": NO_MARK,
            "iteration_end": NO_ID,
            "iteration_time": NO_ID,
        }
    )
    length = raw["iteration_time"]
    start = np.where(length >= 0, raw["iteration_end"] - length, NO_ID)
    return Steps.of(
        len(length),
        {
            "start_ns": clock.counted_ns(start),
            "end_ns": clock.counted_ns(raw["iteration_end"]),
            "graph": _graphs(raw["model_id"]),
            "iteration": raw["iteration_id"],
            "fp_start_ns": clock.counted_ns(raw["FP_start"]),
            "bp_end_ns": clock.counted_ns(raw["BP_end"]),
        },
    )


def _bare_steps(table: LooseTable, clock: DeviceClocks) -> Steps:
    """Steps without marks of forward and backward."""
    raw = table.integers(
        {"model_id": NO_GRAPH, "index_id": NO_ID, "step_start": NO_ID, "step_end": NO_ID}
    )
    return Steps.of(
        len(raw["index_id"]),
        {
            "start_ns": clock.counted_ns(raw["step_start"]),
            "end_ns": clock.counted_ns(raw["step_end"]),
            "graph": _graphs(raw["model_id"]),
            "iteration": raw["index_id"],
        },
    )


def _graphs(models: Int64) -> Int64:
    return np.where(models < 0, NO_GRAPH, models)


def _parts(
    table: LooseTable, steps: Steps, clock: DeviceClocks, kind: StepPart, start: str, end: str
) -> StepParts:
    """Parts of one kind, numbered within their step in order of start."""
    raw = table.integers(
        {"model_id": NO_GRAPH, "index_id": NO_ID, "iteration_end": NO_ID, start: NO_ID, end: NO_ID}
    )
    graph = _graphs(raw["model_id"])
    iteration = raw["index_id"]
    if not table.has("index_id"):  # told by the end of the step then
        iteration = _iteration_of(graph, clock.counted_ns(raw["iteration_end"]), steps)
    start_ns = clock.counted_ns(raw[start])
    step, _ = common_keys([graph, iteration], [graph[:0], iteration[:0]])
    return StepParts.of(
        len(start_ns),
        {
            "start_ns": start_ns,
            "end_ns": clock.counted_ns(raw[end]),
            "graph": graph,
            "iteration": iteration,
            "number": ordinals(step, start_ns),
            "kind": np.full(len(start_ns), kind),
        },
    )


def _iteration_of(graph: Int64, end_ns: Int64, steps: Steps) -> Int64:
    key, of_step = common_keys([graph, end_ns], [steps.graph, steps.end_ns])
    lookup = Lookup({"key": of_step, "iteration": steps.iteration}, "key")
    return lookup.of("iteration", lookup.find(key))
