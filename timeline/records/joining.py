"""Normalises the ids that files hold, and joins the records of several files of one rank."""

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
"""Values of enumerations that mean "none", unless the table of names in a file has them."""


@dataclass(frozen=True)
class Id:
    """The valid range of an id, and the values within it that writers use for "none".

    nothing: the sentinel that tables hold instead. least, most: the valid range; its upper end
    excludes 2**63 - 1, which SQLite makes of 2**64 - 1. none: values inside the range for "none".
    """

    nothing: int = NO_ID
    least: int = 0
    most: int = _INT64 - 1
    none: tuple[int, ...] = ()

    def absent(self, values: Int64) -> Bool:
        """Return a mask of the values that mean "none" but are not the sentinel yet."""
        is_absent: Bool = (values < self.least) | (values > self.most)
        for none in self.none:
            is_absent |= values == none
        is_absent &= values != self.nothing
        return is_absent

    def _has_absent(self, values: Int64) -> bool:
        """Return whether any value means "none" but is not the sentinel yet."""
        low, high = int(values.min()), int(values.max())
        may_be = low < min(self.least, self.nothing) or high > self.most
        may_be |= low < self.least and self.nothing != self.least - 1
        may_be |= any(low <= none <= high for none in self.none)
        return may_be and bool(self.absent(values).any())

    def normalise(self, values: Int64) -> Int64:
        """Replace all values that mean "none" by the sentinel `nothing`."""
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
_TIME = Id(NO_TIME, -FURTHEST_NS, FURTHEST_NS)
_OF_16_BITS = Id(none=(_UINT16, _UINT32))
"""Ids that writers store in 16 or 32 bits, the largest value of which means "none"."""
_OF_32_BITS = Id(none=(_UINT32,))
_OF_THE_HOST = Id(least=-_INT64, none=(-1, _UINT32))
"""Opaque ids of threads and processes; some writers store addresses, as negative numbers."""

IDS: Mapping[str, Id] = {
    "device": _OF_16_BITS,
    "stream": _OF_16_BITS,
    # Task ids have 16 bits on older chips, and 65535 is a valid one.
    "task": _OF_32_BITS,
    "batch": _OF_16_BITS,
    "context": Id(NO_CONTEXT),
    "graph": Id(NO_GRAPH),
    "iteration": _OF_32_BITS,
    "number": _OF_32_BITS,
    "connection": _OF_32_BITS,
    "call": _AMOUNT,
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
    "launch_ns": _TIME,
    "fp_start_ns": _TIME,
    "bp_end_ns": _TIME,
}
"""Rules for ids, amounts and timestamps by column name, which is the same in all tables."""

_STRING_IDS: Mapping[str, frozenset[str]] = {
    "notify": frozenset(str(none) for none in (-1, _UINT32, _INT64, (1 << 64) - 1)),
}
"""Columns of ids wider than 64 bits, stored as strings, and the strings that mean "none"."""

_Table = TypeVar("_Table", bound=Spans)


def normalise_ids(table: _Table, strings: StringPool) -> _Table:
    """Replace ids of a table that mean "none" by the sentinels of tables."""
    changed: dict[str, Any] = {}
    for column in fields(table):
        values = normalised = getattr(table, column.name)
        if column.name in IDS:
            normalised = IDS[column.name].normalise(values)
        elif column.name in _STRING_IDS:
            normalised = _normalise_strings(values, _STRING_IDS[column.name], strings)
        if normalised is not values:
            changed[column.name] = normalised
    return replace(table, **changed) if changed else table


def _normalise_strings(codes: Codes, none: frozenset[str], strings: StringPool) -> Codes:
    absent = [code for text in none if (code := strings.find(text)) is not None]
    if not absent:
        return codes
    return compute_in_chunks(
        np.int32, lambda some: np.where(np.isin(some, absent), np.int32(NO_NAME), some), codes
    )


# -- joining ---------------------------------------------------------------------------------------


def join_records(parts: Sequence[Records]) -> Records:
    """Join the records of several files of one rank; rows in flows and samples are renumbered."""
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
    parts = _with_joined_rows(parts)
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
        records_copies=all(part.records_copies for part in parts),
        free_is_known=all(part.free_is_known for part in parts),
        free_rule=FreeRule.join([part.free_rule for part in parts]),
        communication_rule=first.communication_rule,
        reserved_bytes=max(part.reserved_bytes for part in parts),
        tables_only=first.tables_only,
        metrics=KernelMetrics.join(part.metrics for part in parts),
        cores=first.cores,
    )


def _with_joined_rows(parts: Sequence[Records]) -> Sequence[Records]:
    """Return the parts with tasks that point at the rows of all their metrics and calls joined."""
    moved, before, calls = list[Records](), 0, 0
    for part in parts:
        tasks = part.tasks
        if calls and not is_constant(tasks.call):
            tasks = replace(tasks, call=np.where(tasks.call == NO_ID, NO_ID, tasks.call + calls))
        calls = max(calls, int(tasks.call.max(initial=NO_ID)) + 1)
        if before and len(part.metrics):
            row = np.where(tasks.metrics == NO_ID, NO_ID, tasks.metrics + before)
            tasks = replace(tasks, metrics=row)
        moved.append(replace(part, tasks=tasks))
        before += len(part.metrics)
    return moved
