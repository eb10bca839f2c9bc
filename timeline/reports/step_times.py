"""The times of each step in the columns of torch_npu's step_trace_time.csv."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from timeline.figures.parallel_tables import ParallelIndices
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table

TIMES = (
    "Computing",
    "Communication(Not Overlapped)",
    "Overlapped",
    "Communication",
    "Free",
    "Stage",
    "Bubble",
    "Communication(Not Overlapped and Exclude Receive)",
    "Preparing",
)
_RECEIVE = "Receive"


def step_times(
    figures: Figures,
    devices: Mapping[int, int | None],
    indices: Mapping[int, ParallelIndices],
) -> Table:
    """A row per rank and step (and graph, where a rank has several) with device work.

    One rank has the columns of torch_npu's step_trace_time.csv, Device_id first; several have
    those of cluster_step_trace_time.csv, which msprof-analyze makes of such files: Step, Type
    ("rank") and Index (the rank). msprof-analyze takes any column that it does not know for a
    time, so there is no column of our own but Graph, and that only where steps are not told apart
    without it. A rank without steps has one row, whose Step is empty.

    Times are decimal text in us with all digits of ns. Stage is the span of the device work less
    Bubble, the time in receive ops. Preparing, from the start of the step on the host to its first
    device work, is empty where steps are not marked on the host.

    devices: the device of each rank, where it is known. indices: of each rank in the groups of its
    run; several ranks have columns of them where any is known.
    """
    rows = [*_step_rows(figures.steps), *_whole_rows(figures)]
    rows.sort(key=lambda row: row["rank"])  # stable: steps stay in order of time
    several = len(devices) > 1
    graphs = {(row["rank"], row["graph"]) for row in rows}
    columns: dict[str, list[Any]] = {}
    if several:
        columns["Step"] = [_spelled(row["step"]) for row in rows]
        columns["Type"] = ["rank"] * len(rows)
        columns["Index"] = [str(row["rank"]) for row in rows]
    else:
        columns["Device_id"] = [_spelled(devices.get(row["rank"])) for row in rows]
        columns["Step"] = [_spelled(row["step"]) for row in rows]
    times = [_times_ns(row) for row in rows]
    for at, name in enumerate(TIMES):
        columns[name] = [_microseconds(times_ns[at]) for times_ns in times]
    if several and set(indices.values()) - {ParallelIndices()}:
        for name in ("dp", "pp", "tp"):
            cells = [getattr(indices[row["rank"]], name) for row in rows]
            columns[f"{name.upper()} Index"] = ["NA" if at is None else str(at) for at in cells]
    if len(graphs) > len({rank for rank, _ in graphs}):
        columns["Graph"] = [_spelled(row["graph"]) for row in rows]
    return Table({name: np.array(cells, object) for name, cells in columns.items()})


def _step_rows(steps: Table) -> list[dict[str, Any]]:
    if not len(steps):
        return []
    return steps.take(np.ma.filled(steps["span_ns"], 0) > 0).to_dicts()


def _whole_rows(figures: Figures) -> Iterator[dict[str, Any]]:
    """The ranks whose device work is in no step, each as a whole."""
    in_steps = {row["rank"] for row in _step_rows(figures.steps)}
    receive_ns: dict[int, int] = {}
    for row in figures.operators.to_dicts():
        if row["communication"] and row["type"] == _RECEIVE:
            receive_ns[row["rank"]] = receive_ns.get(row["rank"], 0) + row["total_ns"]
    for row in figures.overlap.to_dicts():
        if row["span_ns"] and row["rank"] not in in_steps:
            received = receive_ns.get(row["rank"], 0)
            yield {**row, "graph": None, "step": None, "receive_ns": received, "preparing_ns": None}


def _times_ns(row: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Return the times in the order of the columns, None where they are not recorded."""
    received, not_overlapped = row["receive_ns"], row["not_overlapped_ns"]
    alone = not_overlapped is not None
    return (
        row["computing_ns"],
        not_overlapped,
        row["communication_ns"] - not_overlapped if alone else None,
        row["communication_ns"],
        row["free_ns"],
        row["span_ns"] - received,
        received,
        max(not_overlapped - received, 0) if alone else None,
        row["preparing_ns"],
    )


def _microseconds(time_ns: int | None) -> str:
    if time_ns is None:
        return ""
    whole, rest = divmod(abs(time_ns), 1000)
    return f"{'-' if time_ns < 0 else ''}{whole}.{rest:03d}"


def _spelled(number: int | None) -> str:
    return "" if number is None else str(number)
