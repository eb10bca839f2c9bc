"""Sources of captures that consist of tables only: of kernels and tasks, or of sums."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.columns import Bool, Codes
from timeline.columns.distinct import distinct, distinct_pairs
from timeline.columns.group_by import group_by
from timeline.columns.intervals import only_open_at
from timeline.columns.strings import NO_NAME, StringPool
from timeline.errors import SourceError, format_ids
from timeline.layers import Layer
from timeline.records.clock import Clock
from timeline.records.kernel_metrics import KernelMetrics
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import CollectiveSums, ParallelTimes
from timeline.records.tables import (
    CommunicationOps,
    OmissionCode,
    Records,
    StepParts,
    Steps,
    Tasks,
)
from timeline.records.task_kinds import COPY_TYPES, collective_kind, compute_by_type, have_type
from timeline.sources.common.core_metrics import MetricsBuilder, read_core_counts
from timeline.sources.common.export_files import find_newest_export
from timeline.sources.common.identity import label_groups
from timeline.sources.common.kernel_table import (
    ARGS,
    DESCRIPTION,
    EXECUTION,
    MATCH_TOLERANCE_NS,
    SHAPES,
    KernelTable,
    KernelTableFile,
    distinct_parts,
    distinct_steps,
    find_following_rows,
    match_rows,
    read_kernel_rows,
    read_step_table,
)
from timeline.sources.common.losses import FFTS_REASON, LossLog, LostRows
from timeline.sources.common.overlap_analysis import remark_on_ai_cpu_tasks
from timeline.sources.companions.communication import (
    MeasuredOps,
    read_op_file,
    read_op_groups,
    read_op_table,
)
from timeline.sources.companions.delimited import TablesBuilder
from timeline.sources.companions.measures import read_step_sums
from timeline.sources.companions.measures import read_step_table as read_summed_steps
from timeline.sources.decoders.sqlite import open_database
from timeline.sources.files.opened import find_file, without_gz
from timeline.sources.source import Identity, ReadRequest

_OF_ITERATION = re.compile(r"\D+_(\d{1,10})_(\d{1,10})_(\d{1,10})(?:_slice_\d+)?(?:_\d{14})?\.csv")
"""Name of a table of a single iteration: device, graph and iteration."""


@dataclass(frozen=True)
class KernelTableSource:
    """Tables of kernels without a trace: `kernel_details.csv`, or msprof's `op_summary_*.csv`.

    `task_time_*.csv` adds the device tasks that are not kernels. If it is the only table, the type
    of a task decides whether it computes, and there are no communication ops.
    """

    identity: Identity
    clock: Clock
    output: Path
    several_devices: bool = False

    @property
    def layout(self) -> str:
        """The kind of table that decides which tasks compute."""
        if self._tables("kernel_details"):
            return "kernel_details.csv"
        return "op_summary" if self._tables("op_summary") else "task_time"

    @property
    def files(self) -> tuple[Path, ...]:
        """The tables of kernels and tasks, of steps, and of communication."""
        tables = (*self._kernels(), *self._tables("task_time"))
        names = ("step_trace_time.csv", "communication.json")
        named = (path for name in names if (path := find_file(self.output, name)))
        return (*(table.path for table in tables), *self._step_tables(), *named)

    def _kernels(self) -> list[KernelTableFile]:
        return self._tables("kernel_details") or self._tables("op_summary")

    def _tables(self, kind: str) -> list[KernelTableFile]:
        """Return the newest tables of a kind, without those of other devices."""
        tables = []
        for path in _find_newest(self.output, kind):
            match = _OF_ITERATION.fullmatch(without_gz(path.name))
            if not match:
                tables.append(KernelTableFile(path))
            elif not self.several_devices or int(match[1]) == self.identity.device:
                tables.append(KernelTableFile(path, int(match[2]), int(match[3])))
        return tables

    def _step_tables(self) -> tuple[Path, ...]:
        return _find_newest(self.output, "step_trace")

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        reader = _Reader(self.identity, self.several_devices, wanted)
        files = self._kernels(), self._tables("task_time")
        if not any(files):
            raise SourceError(self.output, "holds no kernel_details, op_summary or task_time now.")
        kernels, task_times = reader.kernels(files[0]), reader.rows(files[1])
        recorded, parts = self._step_trace(reader)
        inferred = [build_steps(kernels), build_steps(task_times)]
        steps = distinct_steps(Steps.concat([recorded, *inferred]))
        records = reader.records(
            kernels, with_step_graphs(task_times, steps), self._read_groups(reader)
        )
        records = replace(records, steps=steps, parts=parts)
        return replace(
            records,
            omissions=tuple(reader.omissions),
            warnings=(*reader.warnings, *self._absent_steps(records)),
        )

    def _read_groups(self, reader: _Reader) -> Mapping[str, str]:
        """Read the group of each communication op by name, none if the file is missing or bad."""
        path = find_file(self.output, "communication.json")
        try:
            return read_op_groups(path) if path else {}
        except SourceError as error:
            reader.warn(str(error))
            return {}

    def _step_trace(self, reader: _Reader) -> tuple[Steps, StepParts]:
        """Read steps from msprof's step traces, without steps that several tables repeat."""
        device = self.identity.device if self.several_devices else None
        tables = []
        for path in self._step_tables():
            damage = LossLog(path)
            tables.append(read_step_table(path, device, damage))
            reader.omissions += damage.omissions(self.identity.rank)
        return (
            distinct_steps(Steps.concat(steps for steps, _ in tables)),
            distinct_parts(StepParts.concat(parts for _, parts in tables)),
        )

    def _absent_steps(self, records: Records) -> list[str]:
        """Return a warning about steps of step_trace_time.csv to which no row belongs.

        Nothing else is read from that table, as it has durations but no times.
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
            f"rank {records.rank}: {path.name} has steps {format_ids(absent)}, which no row of "
            f"{self.layout} belongs to."
        ]


class _Reader(LostRows):
    """One pass over the tables of a capture."""

    def __init__(self, identity: Identity, several_devices: bool, wanted: ReadRequest) -> None:
        super().__init__(identity.rank)
        self.identity, self.several_devices, self.wanted = identity, several_devices, wanted
        self.strings = StringPool()
        self.metrics = KernelMetrics()

    def kernels(self, files: Sequence[KernelTableFile]) -> KernelTable:
        """Read the tables of kernels, with what the counters of the cores measured."""
        metrics = MetricsBuilder(every=self.wanted.every_arg)
        rows = self.rows(files, metrics)
        self.metrics = metrics.build()
        return rows

    def rows(
        self, files: Sequence[KernelTableFile], metrics: MetricsBuilder | None = None
    ) -> KernelTable:
        """Read the rows of one kind of table, only those of the device if there are several.

        metrics: collects what the counters of the cores measured.
        """
        columns = {**DESCRIPTION, **EXECUTION}
        if metrics is not None:
            columns |= {**SHAPES, **ARGS}
        if Layer.HARDWARE in self.wanted.layers:
            columns |= {**SHAPES, **(ARGS if self.wanted.every_arg else {})}
        parts = []
        for file in files:
            damage = LossLog(file.path)
            parts.append(read_kernel_rows(file, self.strings, columns, damage, metrics))
            self.omissions += damage.omissions(self.identity.rank)
        rows = KernelTable.concat(parts)
        devices = distinct(rows.device[rows.device != NO_ID])
        if self.several_devices and self.identity.device is not None:
            rows = rows.take((rows.device == self.identity.device) | (rows.device == NO_ID))
        elif len(devices) > 1:
            self.warn(
                f"{files[0].path.name} has rows of devices "
                f"{format_ids(devices.tolist())}, which are drawn as one."
            )
        if self.identity.device is None:
            return rows
        device = np.where(rows.device == NO_ID, self.identity.device, rows.device)
        return replace(rows, device=device)

    def records(
        self, kernels: KernelTable, task_times: KernelTable, groups: Mapping[str, str]
    ) -> Records:
        """Build tasks from both tables, without rows of the same task, and communication ops."""
        records_copies = len(task_times) > 0
        if len(kernels):
            kernels = _with_cores(kernels, task_times)
            repeats, parents = find_repeats(task_times, kernels)
            reason = "rows of task_time that are kernels, which are drawn from their own table"
            count = int(np.count_nonzero(repeats))
            self.leave_out(reason, count, OmissionCode.REPEATED, loss=False)
            count = int(np.count_nonzero(parents))
            self.leave_out(FFTS_REASON, count, OmissionCode.FFTS_WHOLE, loss=False)
            task_times = task_times.take(~(repeats | parents))
            compute = np.concatenate([~kernels.communicates, np.zeros(len(task_times), np.bool_)])
        else:
            compute = compute_by_type(task_times.core, self.strings, task_times.name)
        rows = KernelTable.concat([kernels, task_times])
        tasks = build_tasks(rows, compute, self.strings)
        if not len(kernels) and (
            remark := remark_on_ai_cpu_tasks(tasks, self.strings, "op_summary")
        ):
            self.warn(remark)
        return Records(
            self.identity.rank,
            self.strings,
            tasks=tasks,
            ops=build_ops(rows, self.strings, groups),
            records_copies=records_copies,
            metrics=self.metrics,
            cores=read_core_counts(self.identity.directory, self.identity.device),
        )


def _find_newest(output: Path, kind: str) -> tuple[Path, ...]:
    """Return the newest tables of a kind: of msprof's last export, else a framework's table."""
    plain = find_file(output, f"{kind}.csv")
    return find_newest_export(output, kind, "csv") or ((plain,) if plain else ())


_OP_NAME = re.compile(r".*hcom_\w+?__(\d+)_\d+_\d+")
"""Name of an op, with the last digits of its group's id, its index in the group and iteration."""
_LAUNCHED_NAME = re.compile(r"(?:.*::.*/|.*/(?=hcom_))([^/]+)")
"""Name of an op after the name of its launcher, which MindSpore adds on some ranks only."""


def build_tasks(rows: KernelTable, compute: Bool, strings: StringPool) -> Tasks:
    """Build device tasks from all rows that are not communication ops, ordered by start."""
    order = np.argsort(rows.start_ns, kind="stable")
    order = order[~rows.is_op[order]]
    tasks = rows.take(order)
    return Tasks.of(
        len(tasks),
        tasks.columns()
        | {
            "name": np.where(tasks.name == NO_NAME, tasks.core, tasks.name),
            "task_type": tasks.core,
            "compute": compute[order],
            "copy": have_type(COPY_TYPES, tasks.core, strings),
        },
    )


def _with_cores(kernels: KernelTable, rows: KernelTable) -> KernelTable:
    """Return the kernels with the kind of core that task_time names, if their own table does not.

    A row and a kernel are the same if they have the same stream, task and start.
    """
    bare = np.flatnonzero((kernels.core == NO_NAME) & (kernels.stream != NO_ID))
    if not len(bare) or not len(rows):
        return kernels
    streams = np.concatenate([rows.stream, kernels.stream[bare]])
    tasks = np.concatenate([rows.task, kernels.task[bare]])
    _, key = distinct_pairs(streams, tasks)
    at = match_rows(key[len(rows) :], kernels.start_ns[bare], key[: len(rows)], rows.start_ns)
    core = kernels.core.copy()
    core[bare[at >= 0]] = rows.core[at[at >= 0]]
    return replace(kernels, core=core)


def find_repeats(rows: KernelTable, kernels: KernelTable) -> tuple[Bool, Bool]:
    """Return which rows are one of the kernels, and which are an FFTS+ task around a kernel.

    A row and a kernel are the same if they have the same stream, task and start; names may differ.
    Kernels from tables of level 0 have neither stream nor task and are matched by start and end.
    An FFTS+ task starts before a kernel that is its sub-task, and covers it.
    """
    kernels = kernels.take(~kernels.is_op)
    placed = kernels.take(kernels.stream != NO_ID)
    bare = kernels.take(kernels.stream == NO_ID)
    _, key = distinct_pairs(
        np.concatenate([rows.stream, placed.stream]), np.concatenate([rows.task, placed.task])
    )
    row_key, kernel_key = key[: len(rows)], key[len(rows) :]
    repeats: Bool = match_rows(row_key, rows.start_ns, kernel_key, placed.start_ns) >= 0
    parents = np.zeros(len(rows), np.bool_)
    if len(placed):
        at = find_following_rows(row_key, rows.start_ns, kernel_key, placed.start_ns)
        parents = (at >= 0) & (placed.end_ns[at] <= rows.end_ns + MATCH_TOLERANCE_NS) & ~repeats
    if len(bare):
        at = match_rows(
            np.zeros(len(rows), np.int64),
            rows.start_ns,
            np.zeros(len(bare), np.int64),
            bare.start_ns,
        )
        repeats |= (at >= 0) & (np.abs(bare.end_ns[at] - rows.end_ns) <= 2 * MATCH_TOLERANCE_NS)
    return repeats, parents


def build_ops(
    rows: KernelTable, strings: StringPool, groups: Mapping[str, str]
) -> CommunicationOps:
    """Build communication ops from rows, ordered by start.

    Groups are numbered in order of their first op, as in trace JSON.

    Args:
        rows: all rows of the tables.
        strings: the pool of their strings.
        groups: known ids of groups by name of op.
    """
    ops = rows.take(rows.is_op)
    ops = ops.take(np.argsort(ops.start_ns, kind="stable"))
    ops = replace(ops, name=strings.translate(ops.name, strings, _name_of_op))
    label, group_id = _label_groups(ops.name, strings, groups)
    return CommunicationOps.of(len(ops), ops.columns() | {"group": label, "group_name": group_id})


def _name_of_op(name: str) -> str:
    match = _LAUNCHED_NAME.fullmatch(name)
    return match[1] if match else name


def _label_groups(
    names: Codes, strings: StringPool, groups: Mapping[str, str]
) -> tuple[Codes, Codes]:
    """Return the label of each op's group and its id, which is NO_NAME if unknown.

    The id is known by the name of the op, or if it is the only one that ends with the digits in
    that name.
    """
    ids = sorted(set(groups.values()))
    numbers: dict[str, int] = {}
    labels: dict[int, tuple[int, int]] = {}
    for code in dict.fromkeys(names.tolist()):
        name = strings[code]
        match = _OP_NAME.match(name)
        digits = match[1] if match else ""
        candidates = [group for group in ids if digits and group.endswith(digits)]
        group_id = groups.get(name) or (candidates[0] if len(candidates) == 1 else "")
        number = numbers.setdefault(group_id or digits, len(numbers))
        labels[code] = strings.code(f"Group {number}"), strings.code(group_id)
    pairs = np.array([labels[code] for code in names.tolist()], np.int32).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def build_steps(rows: KernelTable) -> Steps:
    """Build steps from the rows that name one, each from the first start to the last end.

    A step that runs several graphs becomes one step of each graph.
    """
    numbered = rows.take(rows.iteration != NO_ID)
    steps = group_by(len(numbered), [numbered.graph, numbered.iteration])
    return Steps.of(
        len(steps.first),
        start_ns=steps.least(numbered.start_ns),
        end_ns=steps.greatest(numbered.end_ns),
        graph=numbered.graph[steps.first],
        iteration=numbered.iteration[steps.first],
    )


def with_step_graphs(rows: KernelTable, steps: Steps) -> KernelTable:
    """Set the graph of rows that name neither graph nor step, from the only step they start in."""
    open_step, _ = only_open_at(rows.start_ns, steps.start_ns, steps.end_ns)
    inferred = (open_step >= 0) & (rows.graph == NO_GRAPH) & (rows.iteration == NO_ID)
    graph = rows.graph.copy()
    graph[inferred] = steps.graph[open_step[inferred]]
    return replace(rows, graph=graph)


@dataclass(frozen=True)
class StepTablesSource:
    """step_trace_time.csv and communication.json, or analysis.db, which holds both.

    Communication ops have times, rounded to a quarter of a microsecond. Steps have durations only,
    so their times are estimated. If a capture has several devices, ops are left out because they do
    not name their device.
    """

    layout: str
    identity: Identity
    clock: Clock
    directory: Path
    several_devices: bool = False

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
        """Read the sums of steps, and communication ops.

        A file that cannot be read is counted and warned about.
        """
        rank, device = self.identity.rank, self.identity.device
        builder = TablesBuilder(rank)
        strings = builder.strings
        sums, measured = ParallelTimes.empty(), MeasuredOps.empty()
        if self._steps is not None:
            with builder.reading(self._steps, warns=True) as damage:
                sums = _read_sums(self._steps, device if self.several_devices else None, damage)
        ops = CommunicationOps.empty()
        if self._ops is not None:
            with builder.reading(self._ops, warns=True) as damage:
                measured = _read_ops(self._ops, strings, damage)
                if self.several_devices:
                    damage.add("ops of several devices, which none names", "op 1", len(measured))
                    measured = MeasuredOps.empty()
                ops = _build_timed_ops(measured, strings, damage)
        steps = _place_steps(sums, ops)
        untimed = len(steps) > 0 and not len(ops)
        if untimed:
            builder.warn("when its steps ran is not recorded; they are drawn one by one.")
        builder.add(sums)
        builder.add(CollectiveSums.of(len(measured), _build_sums(measured, strings)))
        tables, omissions = builder.build()
        return Records(
            rank,
            strings,
            ops=ops,
            steps=steps,
            omissions=omissions,
            warnings=tuple(builder.warnings),
            untimed_steps=untimed,
            records_copies=False,
            profiler_tables=tables,
            tables_only=True,
        )


def _read_sums(path: Path, device: int | None, damage: LossLog) -> ParallelTimes:
    """Read the sums of steps; omit steps with several rows.

    device: the only device whose rows are read, None for all.
    """
    if path.suffix == ".db":
        with open_database(path) as database:
            sums = read_summed_steps(database, device)
    else:
        sums = read_step_sums(path, device, damage)
    _, place, count = np.unique(sums.step, return_inverse=True, return_counts=True)
    shared = np.flatnonzero(count[place] > 1)
    if len(shared):
        what = "rows that share their step with others, as where a process had several devices"
        damage.add(what, f"row {shared[0] + 1}", len(shared))
    sums = replace(sums, first=np.arange(len(sums)) == 0)
    return sums.take(count[place] == 1)


def _read_ops(path: Path, strings: StringPool, damage: LossLog) -> MeasuredOps:
    if path.suffix != ".db":
        return read_op_file(path, strings, damage)
    with open_database(path) as database:
        return read_op_table(database, strings)


def _build_sums(measured: MeasuredOps, strings: StringPool) -> dict[str, Any]:
    return {
        "step": measured.step,
        "kind": strings.codes(collective_kind(strings[code]) for code in measured.name.tolist()),
        "count": np.ones(len(measured)),
        "waited_ns": measured.waited_ns,
        "transfer_ns": measured.transfer_ns,
        "group": label_groups(measured.group, strings),
    }


def _build_timed_ops(
    measured: MeasuredOps, strings: StringPool, damage: LossLog
) -> CommunicationOps:
    """Build the ops that have a start, ordered by it."""
    timed = measured.start_ns != NO_TIME
    if not timed.all():
        damage.add("ops without a time", f"op {np.argmin(timed) + 1}", int((~timed).sum()))
    ops = CommunicationOps.of(
        len(measured),
        start_ns=measured.start_ns,
        end_ns=measured.start_ns + measured.elapsed_ns,
        group=label_groups(measured.group, strings),
        name=measured.name,
        graph=NO_GRAPH,
        iteration=measured.step,
        moved_bytes=measured.moved_bytes,
    ).take(timed)
    return ops.take(np.argsort(ops.start_ns, kind="stable"))


def _place_steps(sums: ParallelTimes, ops: CommunicationOps) -> Steps:
    """Estimate times of the numbered steps from their durations and communication ops.

    A step with ops ends with its last op, and starts one duration earlier, or with its first op if
    that is earlier still. A step without ops starts at the end of the step before it. Steps before
    the first one with ops end at its start. If no step has ops, the first one starts at 0.
    """
    sums = sums.take(sums.step != NO_ID)
    parts = (sums.computing_ns, sums.communication_alone_ns, sums.free_ns)
    length_ns = sum((np.maximum(part, 0) for part in parts), np.zeros(len(sums), np.int64))
    start_ns, end_ns = np.zeros((2, len(sums)), np.int64)
    previous_end_ns, is_placed = 0, False
    for at, (step, length) in enumerate(zip(sums.step.tolist(), length_ns.tolist(), strict=True)):
        start_ns[at], end_ns[at] = previous_end_ns, previous_end_ns + length
        in_step = ops.iteration == step
        if in_step.any():
            end_ns[at] = ops.end_ns[in_step].max()
            start_ns[at] = min(ops.start_ns[in_step].min(), end_ns[at] - length)
            if not is_placed:
                offset_ns = start_ns[at] - previous_end_ns
                start_ns[:at] += offset_ns
                end_ns[:at] += offset_ns
            is_placed = True
        previous_end_ns = int(end_ns[at])
    return Steps.of(
        len(sums), start_ns=start_ns, end_ns=end_ns, graph=NO_GRAPH, iteration=sums.step
    )
