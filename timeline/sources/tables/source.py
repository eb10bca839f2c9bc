"""Source of captures of which only tables are left (CSV)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

import numpy as np

from timeline.columns.columns import Int64
from timeline.columns.distinct import distinct
from timeline.columns.strings import StringPool
from timeline.errors import SourceError, spell_ids
from timeline.frozen import dataclass
from timeline.layers import Layer
from timeline.patterns import compile_late
from timeline.records.not_given import NO_ID
from timeline.records.tables import Omission, OmissionCode, Records, StepParts, Steps
from timeline.records.task_kinds import compute_by_type
from timeline.sources.common.compute_tasks import remark_on_ai_cpu_tasks
from timeline.sources.common.kernel_table import (
    ARGS,
    DESCRIPTION,
    EXECUTION,
    SHAPES,
    KernelTable,
    TableFile,
    read_kernel_rows,
)
from timeline.sources.common.losses import FFTS_REASON, LossLog, counted_losses
from timeline.sources.common.msprof_files import find_newest_export
from timeline.sources.common.step_table import distinct_parts, distinct_steps, read_step_table
from timeline.sources.companions.vendor_communication import read_op_groups
from timeline.sources.companions.vendor_sums import read_step_sums
from timeline.sources.files.opened import find_file, without_gz
from timeline.sources.source import Clock, Identity, ReadRequest
from timeline.sources.tables.kernel_tasks import (
    build_ops,
    build_steps,
    build_tasks,
    find_repeats,
    with_step_graphs,
)

__all__ = ["KernelTableSource"]

_OF_ITERATION = compile_late(
    r"\D+_(\d{1,10})_(\d{1,10})_(\d{1,10})(?:_slice_\d+)?(?:_\d{14})?\.csv"
)
"""Device, graph and iteration in the name of a table that was exported for that iteration only."""


@dataclass(frozen=True)
class KernelTableSource:
    """Tables of kernels without a trace: `kernel_details.csv`, or msprof's `op_summary_*.csv`.

    `task_time_*.csv` adds the device tasks that are no kernels, or stands alone: then the type of
    a task tells whether it computes, and there are no communication ops.
    """

    identity: Identity
    clock: Clock
    output: Path
    several_devices: bool = False

    @property
    def layout(self) -> str:
        """The kind of the table that decides what computes."""
        if self._tables("kernel_details"):
            return "kernel_details.csv"
        return "op_summary" if self._tables("op_summary") else "task_time"

    @property
    def files(self) -> tuple[Path, ...]:
        """The tables of kernels and tasks, of steps, and of communication."""
        tables = (*self._kernels(), *self._tables("task_time"))
        return (*(table.path for table in tables), *self._step_tables(), *self._others())

    def _kernels(self) -> list[TableFile]:
        return self._tables("kernel_details") or self._tables("op_summary")

    def _tables(self, kind: str) -> list[TableFile]:
        """The newest tables of a kind, without those of other devices."""
        found = []
        for path in _newest(self.output, kind):
            match = _OF_ITERATION.fullmatch(without_gz(path.name))
            if not match:
                found.append(TableFile(path))
            elif not self.several_devices or int(match[1]) == self.identity.device:
                found.append(TableFile(path, int(match[2]), int(match[3])))
        return found

    def _step_tables(self) -> tuple[Path, ...]:
        return _newest(self.output, "step_trace")

    def _others(self) -> tuple[Path, ...]:
        names = ("step_trace_time.csv", "communication.json")
        return tuple(path for name in names if (path := find_file(self.output, name)))

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least what is wanted.

        Raises:
            SourceError: a file cannot be read.
        """
        reading = _Reading(self.identity, self.several_devices, wanted)
        files = self._kernels(), self._tables("task_time")
        if not any(files):
            raise SourceError(self.output, "holds no kernel_details, op_summary or task_time now.")
        kernels, others = map(reading.rows, files)
        marked, parts = self._marked_steps(reading)
        unmarked = [build_steps(kernels), build_steps(others)]
        steps = distinct_steps(Steps.concat([marked, *unmarked]))
        records = reading.records(kernels, with_step_graphs(others, steps), self._groups(reading))
        records = replace(records, steps=steps, parts=parts)
        return replace(
            records,
            omissions=tuple(reading.omissions),
            warnings=(*reading.warnings, *self._absent_steps(records)),
        )

    def _groups(self, reading: _Reading) -> Mapping[str, str]:
        path = find_file(self.output, "communication.json")
        try:
            return read_op_groups(path) if path else {}
        except SourceError as error:
            reading.warnings.append(f"rank {self.identity.rank}: {error}")
            return {}

    def _marked_steps(self, reading: _Reading) -> tuple[Steps, StepParts]:
        """The steps that msprof's step trace marks; tables of each iteration may repeat them."""
        device = self.identity.device if self.several_devices else None
        found = []
        for path in self._step_tables():
            damage = LossLog(path)
            found.append(read_step_table(path, device, damage))
            reading.omissions += damage.omissions(self.identity.rank)
        return (
            distinct_steps(Steps.concat(steps for steps, _ in found)),
            distinct_parts(StepParts.concat(parts for _, parts in found)),
        )

    def _absent_steps(self, records: Records) -> list[str]:
        """A remark on steps that step_trace_time.csv has and no row belongs to.

        That table has lengths and no times, so it tells nothing else that rows do not.
        """
        path = find_file(self.output, "step_trace_time.csv")
        if path is None:
            return []
        try:
            listed = set(read_step_sums(path, None, LossLog(path)).step.tolist())
        except SourceError as error:
            return [f"rank {records.rank}: {error}"]
        absent = listed - {NO_ID} - set(records.steps.iteration.tolist())
        if not absent or not len(records.steps):
            return []
        return [
            f"rank {records.rank}: {path.name} has steps {spell_ids(absent)}, which no row of "
            f"{self.layout} belongs to."
        ]


@dataclass
class _Reading:
    """What is found while the tables of one capture are read."""

    identity: Identity
    several_devices: bool
    wanted: ReadRequest
    strings: StringPool = field(default_factory=StringPool)
    omissions: list[Omission] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def rows(self, files: Sequence[TableFile]) -> KernelTable:
        """The rows of all files that are of this device."""
        columns = {**DESCRIPTION, **EXECUTION}
        if Layer.HARDWARE in self.wanted.layers:
            columns |= {**SHAPES, **(ARGS if self.wanted.every_arg else {})}
        parts = []
        for file in files:
            damage = LossLog(file.path)
            parts.append(read_kernel_rows(file, self.strings, columns, damage))
            self.omissions += damage.omissions(self.identity.rank)
        rows = KernelTable.concat(parts)
        given = rows.device[rows.device != NO_ID]
        if self.several_devices and self.identity.device is not None:
            rows = rows.take((rows.device == self.identity.device) | (rows.device == NO_ID))
        elif len(given) and given.min() != given.max():
            self.warnings.append(
                f"rank {self.identity.rank}: {files[0].path.name} has rows of devices "
                f"{spell_ids(distinct(given).tolist())}, which are drawn as one."
            )
        if self.identity.device is None:
            return rows
        return replace(rows, device=_given(rows.device, self.identity.device))

    def records(
        self, kernels: KernelTable, others: KernelTable, groups: Mapping[str, str]
    ) -> Records:
        """The tasks of both tables, each once, and the ops."""
        tells_copies = len(others) > 0
        if len(kernels):
            again, whole = find_repeats(others, kernels)
            drawn = "rows of task_time that are kernels, which are drawn from their own table"
            for reason, dropped, code in (
                (drawn, again, OmissionCode.REPEATED),
                (FFTS_REASON, whole, OmissionCode.FFTS_WHOLE),
            ):
                count = int(np.count_nonzero(dropped))
                self.omissions += counted_losses(
                    {reason: count}, self.identity.rank, code, loss=False
                )
            others = others.take(~(again | whole))
            compute = np.concatenate([~kernels.communicates, np.zeros(len(others), np.bool_)])
        else:
            compute = compute_by_type(others.core, self.strings, others.name)
        rows = KernelTable.concat([kernels, others])
        tasks = build_tasks(rows, compute, self.strings)
        if not len(kernels) and (
            remark := remark_on_ai_cpu_tasks(tasks, self.strings, "op_summary")
        ):
            self.warnings.append(f"rank {self.identity.rank}: {remark}")
        return Records(
            self.identity.rank,
            self.strings,
            tasks=tasks,
            ops=build_ops(rows, self.strings, groups),
            tells_copies=tells_copies,
        )


def _newest(output: Path, kind: str) -> tuple[Path, ...]:
    """The newest tables of a kind; a framework writes one without a time in its name."""
    plain = find_file(output, f"{kind}.csv")
    return find_newest_export(output, kind, "csv") or ((plain,) if plain else ())


def _given(ids: Int64, default: int) -> Int64:
    return np.where(ids == NO_ID, default, ids)
