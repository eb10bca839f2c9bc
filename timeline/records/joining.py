"""Makes records of what files hold: ids written in one way, and several files of a rank joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from timeline.columns.chunks import chunks, compute_in_chunks
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64
from timeline.columns.constant import constant, is_constant
from timeline.columns.strings import NO_NAME, StringPool
from timeline.ranges import FURTHEST_NS
from timeline.records.clock import FreeRule
from timeline.records.kernel_metrics import KernelMetrics
from timeline.records.not_given import NO_CONTEXT, NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import CounterSamples, FlowEnd, Flows, Records, Spans

_UINT16, _UINT32, _INT64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 63) - 1

NO_VALUE = frozenset({-1, _UINT16 - 1, _UINT16, _UINT32, _INT64})
"""Values of enumerations that stand for none, where their own table does not name them."""


@dataclass(frozen=True)
class Id:
    """One id: from which value to which it is one, and which values between stand for none.

    nothing: what tables hold where there is none. The largest number of 64 bits is none in every
    column: it is what SQLite makes of 2**64 - 1.
    """

    nothing: int = NO_ID
    least: int = 0
    most: int = _INT64 - 1
    none: tuple[int, ...] = ()

    def absent(self, values: Int64) -> Bool:
        """Return which values stand for none, but are written otherwise than in tables."""
        found: Bool = (values < self.least) | (values > self.most)
        for spelled in self.none:
            found |= values == spelled
        found &= values != self.nothing
        return found

    def _has_absent(self, values: Int64) -> bool:
        """Return whether a value stands for none and is written otherwise than in tables."""
        low, high = int(values.min()), int(values.max())
        may_be = low < min(self.least, self.nothing) or high > self.most
        may_be |= low < self.least and self.nothing != self.least - 1
        may_be |= any(low <= spelled <= high for spelled in self.none)
        return may_be and bool(self.absent(values).any())

    def given(self, values: Int64) -> Int64:
        """Replace values that stand for none, in whatever way, by `nothing`."""
        if is_constant(values):
            if not len(values) or not self.absent(values[:1])[0]:
                return values
            return constant(self.nothing, len(values), np.int64)
        if not any(self._has_absent(values[chunk]) for chunk in chunks(len(values))):
            return values
        return compute_in_chunks(
            np.int64, lambda some: np.where(self.absent(some), self.nothing, some), values
        )


_AMOUNT = Id()
_MOMENT = Id(NO_TIME, -FURTHEST_NS, FURTHEST_NS)
_OF_16_BITS = Id(none=(_UINT16, _UINT32))
"""The hardware has fewer; writers hold them in 16 or 32 bits, of which the largest is none."""
_OF_32_BITS = Id(none=(_UINT32,))
_OF_THE_HOST = Id(least=-_INT64, none=(-1, _UINT32))
"""Threads and processes are opaque; some writers make negative numbers of addresses."""

IDS: Mapping[str, Id] = {
    "device": _OF_16_BITS,
    "stream": _OF_16_BITS,
    # Task ids are 16 bits wide on older chips and use all of them.
    "task": _OF_32_BITS,
    "batch": _OF_16_BITS,
    "context": Id(NO_CONTEXT),
    "graph": Id(NO_GRAPH),
    "iteration": _OF_32_BITS,
    "number": _OF_32_BITS,
    "connection": _OF_32_BITS,
    "plane": _OF_16_BITS,
    "source_rank": _OF_32_BITS,
    "target_rank": _OF_32_BITS,
    "process": _OF_THE_HOST,
    "thread": _OF_THE_HOST,
    "blocks": _OF_32_BITS,
    "count": _AMOUNT,
    "sequence": _AMOUNT,
    "size_bytes": _AMOUNT,
    "moved_bytes": _AMOUNT,
    "listed_length": _AMOUNT,
    "occupancy": _AMOUNT,
    "launch_ns": _MOMENT,
    "fp_start_ns": _MOMENT,
    "bp_end_ns": _MOMENT,
}
"""Each id, amount and moment by the name of its column, which is the same in all tables."""

_TEXT_IDS: Mapping[str, frozenset[str]] = {
    "notify": frozenset(str(none) for none in (-1, _UINT32, _INT64, (1 << 64) - 1)),
}
"""Ids that are wider than a column and therefore texts, and the texts that stand for none."""

_Table = TypeVar("_Table", bound=Spans)


def normalise_ids(table: _Table, strings: StringPool) -> _Table:
    """Spell ids of a table that stand for none as tables do, however their writer did."""
    made: dict[str, Any] = {}
    for column in fields(table):
        values = getattr(table, column.name)
        if column.name in IDS:
            made[column.name] = IDS[column.name].given(values)
        elif column.name in _TEXT_IDS:
            made[column.name] = _normalise_texts(values, _TEXT_IDS[column.name], strings)
    changed = {name: values for name, values in made.items() if values is not getattr(table, name)}
    return replace(table, **changed) if changed else table


def _normalise_texts(codes: Codes, none: frozenset[str], strings: StringPool) -> Codes:
    absent = [code for text in none if (code := strings.find(text)) is not None]
    if not absent:
        return codes
    return compute_in_chunks(
        np.int32, lambda some: np.where(np.isin(some, absent), np.int32(NO_NAME), some), codes
    )


# -- joining ---------------------------------------------------------------------------------------


def join_records(parts: Sequence[Records]) -> Records:
    """Join the records of several files of one rank; flows keep pointing at their rows."""
    flows, samples = list[Flows](), list[CounterSamples]()
    firsts, first_series = dict.fromkeys(FlowEnd, 0), 0
    for part in parts:
        samples.append(replace(part.samples, series=part.samples.series + first_series))
        first_series += len(part.series)
        shift = np.array([firsts[kind] for kind in FlowEnd])
        flows.append(
            replace(
                part.flows,
                source_row=part.flows.source_row + shift[part.flows.source_kind],
                target_row=part.flows.target_row + shift[part.flows.target_kind],
            )
        )
        for kind, table in (
            (FlowEnd.HOST, part.host),
            (FlowEnd.TASK, part.tasks),
            (FlowEnd.OP, part.ops),
            (FlowEnd.PLANE, part.planes),
        ):
            firsts[kind] += len(table)
    first = parts[0]
    parts = _with_joined_metrics(parts)
    joined: dict[str, Any] = {}
    for one in fields(Records):
        values = [getattr(part, one.name) for part in parts]
        if isinstance(values[0], ColumnTable):
            joined[one.name] = type(values[0]).concat(values)
        elif isinstance(values[0], tuple):
            joined[one.name] = tuple(chain.from_iterable(values))
    return Records(
        first.rank,
        first.strings,
        **joined | {"samples": CounterSamples.concat(samples), "flows": Flows.concat(flows)},
        hardware=first.hardware,
        tells_copies=all(part.tells_copies for part in parts),
        tells_free=all(part.tells_free for part in parts),
        free_rule=FreeRule.join([part.free_rule for part in parts]),
        communication_rule=first.communication_rule,
        reserved_bytes=max(part.reserved_bytes for part in parts),
        tables_only=first.tables_only,
        metrics=KernelMetrics.join(part.metrics for part in parts),
        cores=first.cores,
    )


def _with_joined_metrics(parts: Sequence[Records]) -> Sequence[Records]:
    """Return the parts with tasks that point at the rows of all their metrics joined."""
    moved, before = list[Records](), 0
    for part in parts:
        tasks = part.tasks
        if before and len(part.metrics):
            row = np.where(tasks.metrics == NO_ID, NO_ID, tasks.metrics + before)
            tasks = replace(tasks, metrics=row)
        moved.append(replace(part, tasks=tasks))
        before += len(part.metrics)
    return moved
