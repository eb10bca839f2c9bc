"""Source of a rank of which only sums of steps and of communication are left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.strings import StringPool
from timeline.records.clock import Clock
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import CollectiveSums, ParallelTimes
from timeline.records.tables import CommunicationOps, Records, Steps
from timeline.records.task_kinds import collective_kind
from timeline.sources.beside.communication import (
    MeasuredOps,
    read_op_file,
    read_op_table,
)
from timeline.sources.beside.delimited import TablesBuilder
from timeline.sources.beside.measures import read_step_sums, read_step_table
from timeline.sources.common.identity import label_groups
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.sqlite import open_database
from timeline.sources.files.opened import find_file
from timeline.sources.source import Identity, ReadRequest
from timeline.sources.tables.format import STEP_TABLES


@dataclass(frozen=True)
class StepTablesSource:
    """step_trace_time.csv and communication.json, or analysis.db, which holds both.

    Communication ops have the times that the profiler noted, to a quarter of a microsecond. Steps
    have none: see `_place_steps`. Ops of several devices do not say of which, so none has any.
    """

    identity: Identity
    clock: Clock
    directory: Path
    several_devices: bool = False
    layout: str = STEP_TABLES.name

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of steps and of ops."""
        return tuple(dict.fromkeys(path for path in (self._steps, self._ops) if path))

    @property
    def _steps(self) -> Path | None:
        return self._first_of("step_trace_time.csv", "analysis.db")

    @property
    def _ops(self) -> Path | None:
        return self._first_of("communication.json", "analysis.db", "communication_analyzer.db")

    def _first_of(self, *names: str) -> Path | None:
        return next(filter(None, (find_file(self.directory, name) for name in names)), None)

    def read(self, wanted: ReadRequest) -> Records:
        """Read the sums of steps, and the communication ops.

        A file that cannot be read is counted, and a warning says so.
        """
        rank, device = self.identity.rank, self.identity.device
        builder = TablesBuilder(rank)
        strings = builder.strings
        sums, measured = ParallelTimes.empty(), MeasuredOps.empty()
        warnings: list[str] = []
        if self._steps is not None:
            with builder.reading(self._steps, warnings) as damage:
                sums = _read_sums(self._steps, device if self.several_devices else None, damage)
        ops = CommunicationOps.empty()
        if self._ops is not None:
            with builder.reading(self._ops, warnings) as damage:
                measured = _read_ops(self._ops, strings, damage)
                if self.several_devices:
                    damage.add("ops of several devices, which none names", "op 1", len(measured))
                    measured = MeasuredOps.empty()
                ops = _ops_of(measured, strings, damage)
        steps = _place_steps(sums, ops)
        untimed = len(steps) > 0 and not len(ops)
        if untimed:
            warnings.append(
                f"rank {rank}: when its steps ran is not recorded; they are drawn one by one."
            )
        builder.add(sums)
        builder.add(CollectiveSums.of(len(measured), _sums_of(measured, strings)))
        tables, omissions = builder.build()
        return Records(
            rank,
            strings,
            ops=ops,
            steps=steps,
            omissions=omissions,
            warnings=tuple(warnings),
            untimed_steps=untimed,
            tells_copies=False,
            profiler_tables=tables,
            tables_only=True,
        )


def _read_sums(path: Path, device: int | None, damage: LossLog) -> ParallelTimes:
    """Read the sums of steps that have one row of a device, or of all."""
    if path.suffix == ".db":
        with open_database(path) as database:
            sums = read_step_table(database, device)
    else:
        sums = read_step_sums(path, device, damage)
    _, which, count = np.unique(sums.step, return_inverse=True, return_counts=True)
    shared = np.flatnonzero(count[which] > 1)
    if len(shared):
        what = "rows that share their step with others, as where a process had several devices"
        damage.add(what, f"row {shared[0] + 1}", len(shared))
    sums = replace(sums, first=np.arange(len(sums)) == 0)
    return sums.take(count[which] == 1)


def _read_ops(path: Path, strings: StringPool, damage: LossLog) -> MeasuredOps:
    if path.suffix != ".db":
        return read_op_file(path, strings, damage)
    with open_database(path) as database:
        return read_op_table(database, strings)


def _sums_of(measured: MeasuredOps, strings: StringPool) -> dict[str, Any]:
    """The columns of CollectiveSums."""
    return {
        "step": measured.step,
        "kind": strings.codes(collective_kind(strings[code]) for code in measured.name.tolist()),
        "count": np.ones(len(measured)),
        "waited_ns": measured.waited_ns,
        "transfer_ns": measured.transfer_ns,
        "group": label_groups(measured.group, strings),
    }


def _ops_of(measured: MeasuredOps, strings: StringPool, damage: LossLog) -> CommunicationOps:
    """Return the ops that have a start, in order of it."""
    timed = measured.start_ns != NO_TIME
    if not timed.all():
        damage.add("ops without a time", f"op {np.argmin(timed) + 1}", int((~timed).sum()))
    ops = CommunicationOps.of(
        len(measured),
        {
            "start_ns": measured.start_ns,
            "end_ns": measured.start_ns + measured.elapsed_ns,
            "group": label_groups(measured.group, strings),
            "name": measured.name,
            "graph": np.full(len(measured), NO_GRAPH),
            "iteration": measured.step,
            "moved_bytes": measured.moved_bytes,
        },
    ).take(timed)
    return ops.take(np.argsort(ops.start_ns, kind="stable"))


def _place_steps(sums: ParallelTimes, ops: CommunicationOps) -> Steps:
    """Return the numbered steps, each as long as its sums say.

    A step with communication ops ends with the last of them, but begins no later than the first:
    what of it lies before and behind is not recorded. Others follow the step before, the first ones
    precede the one behind; where no step has any op, time begins with the first step.
    """
    sums = sums.take(sums.step != NO_ID)
    parts = (sums.computing_ns, sums.communication_alone_ns, sums.free_ns)
    length_ns = sum((np.maximum(part, 0) for part in parts), np.zeros(len(sums), np.int64))
    start_ns, end_ns = np.zeros((2, len(sums)), np.int64)
    upto_ns, is_placed = 0, False
    for at, (step, length) in enumerate(zip(sums.step.tolist(), length_ns.tolist(), strict=True)):
        start_ns[at], end_ns[at] = upto_ns, upto_ns + length
        own = ops.iteration == step
        if own.any():
            end_ns[at] = ops.end_ns[own].max()
            start_ns[at] = min(ops.start_ns[own].min(), end_ns[at] - length)
            if not is_placed:
                ahead_ns = start_ns[at] - upto_ns
                start_ns[:at] += ahead_ns
                end_ns[:at] += ahead_ns
            is_placed = True
        upto_ns = int(end_ns[at])
    return Steps.of(
        len(sums),
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "graph": np.full(len(sums), NO_GRAPH),
            "iteration": sums.step,
        },
    )
