"""What to do where data is prepared or sent too slowly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from timeline.figures.advice import NEVER_TOLD, Advice
from timeline.figures.data_tables import (
    FULLER_BY,
    OFTEN_EMPTY,
    SLOW_SOURCE,
    USED_UP,
    Bottleneck,
    Limit,
)
from timeline.figures.table import Table
from timeline.units import spell_short

__all__ = [
    "ABOUT_DATA",
    "MOST_BUSY",
    "STEP_INTERVAL",
    "STEP_INTERVAL_OF_RANKS",
    "data_advice",
    "mean_intervals",
]

DATA_PROCESSING = "data processing"
DATA_SENDING = "data sending"
DATA_OPERATION = "data operation"
PROCESSORS = "processors"
STEP_INTERVAL = "step interval"
STEP_INTERVAL_OF_RANKS = "step interval of ranks"
ABOUT_DATA = (DATA_PROCESSING, DATA_SENDING, DATA_OPERATION, PROCESSORS)
"""Subjects of advice on data itself."""
MOST_BUSY = 0.8
"""Processors that are busier leave nothing to more workers."""
LONG_INTERVAL_NS = 500_000
_THRESHOLDS = {
    Limit.FULLER_INPUT: FULLER_BY,
    Limit.SLOW_SOURCE: SLOW_SOURCE,
    Limit.SLOW_SINK: USED_UP,
}

Row = dict[str, Any]


def data_advice(
    preparation: Table, queues: Table, pipeline: Table, step_trace: Table
) -> Iterator[Advice]:
    """Advice on data processing, sending, the operation of the pipeline, processors, intervals.

    Args:
        preparation, queues, pipeline: see `data_tables`.
        step_trace: see `step_trace_table`.
    """
    counts = {(row["rank"], row["queue"]): row for row in queues.to_dicts()}
    operations: dict[int, list[Row]] = {}
    for row in pipeline.to_dicts():
        operations.setdefault(row["rank"], []).append(row)
    rows = preparation.to_dicts()
    for row in rows:
        rank = row["rank"]
        host, device = (counts.get((rank, queue)) for queue in ("host", "device"))
        # Where no queue tells, the pipeline may limit; where the queue is filled it does not.
        severity = 1.0 if row["bottleneck"] is None else NEVER_TOLD
        if row["bottleneck"] == Bottleneck.PROCESSING.value and host is not None:
            severity = row["empty_share"] / OFTEN_EMPTY
            yield _processing(rank, host, severity)
        elif row["bottleneck"] == Bottleneck.SENDING.value and host and device:
            yield _sending(rank, host, device)
        for one, share in sorted(_shares(operations.get(rank, [])), key=_worst):
            text = _operation_text(
                one,
                is_known=row["bottleneck"] == Bottleneck.PROCESSING.value,
                several=len(rows) > 1,
            )
            yield _operation(one, share, severity, text)
        if row["cpu_busy"] is not None and row["cpu_busy"] > MOST_BUSY:
            yield _processors(rank, row["cpu_busy"])
    yield from _intervals(step_trace)


def _processing(rank: int, host: Row, severity: float) -> Advice:
    empty, records = host["empty"], host["records"]
    return Advice(
        about=DATA_PROCESSING,
        rank=rank,
        value=empty,
        unit="batches",
        share=empty / records,
        threshold=OFTEN_EMPTY,
        text=f"Data processing of rank {rank} is too slow: its host queue was empty for {empty} of "
        f"{records} batches, more than {OFTEN_EMPTY:.0%}.",
        severity=severity,
    )


def _sending(rank: int, host: Row, device: Row) -> Advice:
    share = device["empty"] / device["records"]
    return Advice(
        about=DATA_SENDING,
        rank=rank,
        value=device["empty"],
        unit="batches",
        share=share,
        threshold=0.0,
        text=f"Sending data to rank {rank} may be slow: its device queue was empty for "
        f"{device['empty']} of {device['records']} steps, the host's for {host['empty']} of "
        f"{host['records']}.",
        severity=1 + share,
    )


def _shares(operations: list[Row]) -> Iterator[tuple[Row, float]]:
    """Operations that limit their pipeline, each with the number that is beyond its threshold.

    Of one with a fuller input that is by how much it is fuller, of the root that takes too little
    how full the least full queue before it is, else how full its own queue is.
    """
    use = {row["op"]: row["usage"] or 0.0 for row in operations}
    for one in operations:
        own = use[one["op"]]
        match one["bottleneck"]:
            case Limit.FULLER_INPUT.value:
                yield one, max(use[child] for child in one["children"]) - own
            case Limit.SLOW_SINK.value:
                others = [share for op, share in use.items() if op != one["op"]]
                yield one, min(others, default=own)
            case Limit.SLOW_SOURCE.value:
                yield one, own


def _worst(found: tuple[Row, float]) -> tuple[bool, float]:
    """Those whose inputs are there come first, by how much fuller they are, then empty sources."""
    one, share = found
    is_fuller = one["bottleneck"] == Limit.FULLER_INPUT.value
    return not is_fuller, -share if is_fuller else share


def _operation(one: Row, share: float, severity: float, text: str) -> Advice:
    return Advice(
        about=DATA_OPERATION,
        rank=one["rank"],
        op=one["op"],
        value=one["usage"],
        share=share,
        threshold=_THRESHOLDS[Limit(one["bottleneck"])],
        text=text,
        severity=severity,
    )


def _operation_text(one: Row, *, is_known: bool, several: bool) -> str:
    """Which operation it is likely; is_known: whether it is said before that data is late."""
    rank, fills = one["rank"], ""
    if one["usage"] is not None:
        fills = f", which fills {one['usage']:.0%} of its queue"
    named, advice = f"{one['type']} {one['op']}", one["advice"]
    if not is_known:
        return f"The data pipeline of rank {rank} is likely limited by {named}{fills}: {advice}."
    return f"Likely {named}{f' of rank {rank}' if several else ''}{fills}: {advice}."


def _processors(rank: int, busy: float) -> Advice:
    return Advice(
        about=PROCESSORS,
        rank=rank,
        value=busy,
        share=busy,
        threshold=MOST_BUSY,
        text=f"Processors of rank {rank}'s host are {busy:.0%} busy.",
        severity=busy / MOST_BUSY,
    )


def mean_intervals(step_trace: Table) -> list[Row]:
    """The mean row of the step trace of each rank and graph: the file's where there is one."""
    if not len(step_trace):
        return []
    found: dict[tuple[int, int | None], Row] = {}
    for row in step_trace.take(np.ma.getmaskarray(step_trace["step"])).to_dicts():
        key = (row["rank"], row["graph"])
        if key not in found or row["of"] == "file":
            found[key] = row
    return list(found.values())


def _intervals(step_trace: Table) -> Iterator[Advice]:
    for row in mean_intervals(step_trace):
        interval_ns = row["interval_ns"]
        if interval_ns is not None and interval_ns > LONG_INTERVAL_NS:
            yield Advice(
                about=STEP_INTERVAL,
                rank=row["rank"],
                value=interval_ns,
                unit="ns",
                threshold=LONG_INTERVAL_NS,
                text=f"The mean step interval of rank {row['rank']} is {spell_short(interval_ns)}, "
                f"more than {spell_short(LONG_INTERVAL_NS)}.",
                severity=1.0,
            )
