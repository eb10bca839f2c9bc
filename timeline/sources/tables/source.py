"""Sources of captures of which only tables are left: of kernels and tasks, or of sums."""

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
"""Device, graph and iteration in the name of a table that was exported for that iteration only."""


@dataclass(frozen=True)
class KernelTableSource:
    """Tables of kernels without a trace: `kernel_details.csv`, or msprof's `op_summary_*.csv`.

    `task_time_*.csv` adds the device tasks that are not kernels, or stands alone: then the type of
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
        names = ("step_trace_time.csv", "communication.json")
        others = (path for name in names if (path := find_file(self.output, name)))
        return (*(table.path for table in tables), *self._step_tables(), *others)

    def _kernels(self) -> list[KernelTableFile]:
        return self._tables("kernel_details") or self._tables("op_summary")

    def _tables(self, kind: str) -> list[KernelTableFile]:
        """Return the newest tables of a kind, without those of other devices."""
        found = []
        for path in _newest(self.output, kind):
            match = _OF_ITERATION.fullmatch(without_gz(path.name))
            if not match:
                found.append(KernelTableFile(path))
            elif not self.several_devices or int(match[1]) == self.identity.device:
                found.append(KernelTableFile(path, int(match[2]), int(match[3])))
        return found

    def _step_tables(self) -> tuple[Path, ...]:
        return _newest(self.output, "step_trace")

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
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
            reading.warn(str(error))
            return {}

    def _marked_steps(self, reading: _Reading) -> tuple[Steps, StepParts]:
        """Return the steps of msprof's step trace; tables of each iteration may repeat them."""
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
        """Return a remark on steps that step_trace_time.csv has and no row belongs to.

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
            f"rank {records.rank}: {path.name} has steps {format_ids(absent)}, which no row of "
            f"{self.layout} belongs to."
        ]


class _Reading(LostRows):
    """One reading of the tables of a capture."""

    def __init__(self, identity: Identity, several_devices: bool, wanted: ReadRequest) -> None:
        super().__init__(identity.rank)
        self.identity, self.several_devices, self.wanted = identity, several_devices, wanted
        self.strings = StringPool()

    def rows(self, files: Sequence[KernelTableFile]) -> KernelTable:
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
            self.warn(
                f"{files[0].path.name} has rows of devices "
                f"{format_ids(distinct(given).tolist())}, which are drawn as one."
            )
        if self.identity.device is None:
            return rows
        device = np.where(rows.device == NO_ID, self.identity.device, rows.device)
        return replace(rows, device=device)

    def records(
        self, kernels: KernelTable, others: KernelTable, groups: Mapping[str, str]
    ) -> Records:
        """Return the tasks of both tables, each once, and the ops."""
        records_copies = len(others) > 0
        if len(kernels):
            again, whole = find_repeats(others, kernels)
            drawn = "rows of task_time that are kernels, which are drawn from their own table"
            count = int(np.count_nonzero(again))
            self.leave_out(drawn, count, OmissionCode.REPEATED, loss=False)
            count = int(np.count_nonzero(whole))
            self.leave_out(FFTS_REASON, count, OmissionCode.FFTS_WHOLE, loss=False)
            others = others.take(~(again | whole))
            compute = np.concatenate([~kernels.communicates, np.zeros(len(others), np.bool_)])
        else:
            compute = compute_by_type(others.core, self.strings, others.name)
        rows = KernelTable.concat([kernels, others])
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
        )


def _newest(output: Path, kind: str) -> tuple[Path, ...]:
    """Return the newest tables of a kind; a framework writes one without a time in its name."""
    plain = find_file(output, f"{kind}.csv")
    return find_newest_export(output, kind, "csv") or ((plain,) if plain else ())


_OP_NAME = re.compile(r".*hcom_\w+?__(\d+)_\d+_\d+")
"""An op's name holds the last digits of its group's id, its index there, and the iteration."""
_LAUNCHED_NAME = re.compile(r"(?:.*::.*/|.*/(?=hcom_))([^/]+)")
"""MindSpore puts what launched an op before its name, on whichever rank it finds the launch."""


def build_tasks(rows: KernelTable, compute: Bool, strings: StringPool) -> Tasks:
    """Return the device tasks among rows, ordered by start."""
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


def find_repeats(rows: KernelTable, kernels: KernelTable) -> tuple[Bool, Bool]:
    """Return whether each row is one of the kernels, and whether it is the whole of one.

    Both name stream and task, but the kernel may go by another name; tables of level 0 name
    neither, and then both edges must agree. The whole of a kernel that runs as a sub-task of
    FFTS+ starts before it: its row covers the kernel.
    """
    kernels = kernels.take(~kernels.is_op)
    placed = kernels.take(kernels.stream != NO_ID)
    bare = kernels.take(kernels.stream == NO_ID)
    _, key = distinct_pairs(
        np.concatenate([rows.stream, placed.stream]), np.concatenate([rows.task, placed.task])
    )
    of_rows, of_kernels = key[: len(rows)], key[len(rows) :]
    found: Bool = match_rows(of_rows, rows.start_ns, of_kernels, placed.start_ns) >= 0
    whole = np.zeros(len(rows), np.bool_)
    if len(placed):
        at = find_following_rows(of_rows, rows.start_ns, of_kernels, placed.start_ns)
        whole = (at >= 0) & (placed.end_ns[at] <= rows.end_ns + MATCH_TOLERANCE_NS) & ~found
    if len(bare):
        at = match_rows(
            np.zeros(len(rows), np.int64),
            rows.start_ns,
            np.zeros(len(bare), np.int64),
            bare.start_ns,
        )
        found |= (at >= 0) & (np.abs(bare.end_ns[at] - rows.end_ns) <= 2 * MATCH_TOLERANCE_NS)
    return found, whole


def build_ops(
    rows: KernelTable, strings: StringPool, groups: Mapping[str, str]
) -> CommunicationOps:
    """Return the communication ops among rows, ordered by start.

    Groups are numbered in order of their first op, as exports and databases do.

    Args:
        groups: the id of the group of each op, by name, as far as it is known.
    """
    ops = rows.take(rows.is_op)
    ops = ops.take(np.argsort(ops.start_ns, kind="stable"))
    ops = replace(ops, name=strings.translate(ops.name, strings, _name_of_op))
    label, called = _groups(ops.name, strings, groups)
    return CommunicationOps.of(len(ops), ops.columns() | {"group": label, "group_name": called})


def _name_of_op(name: str) -> str:
    launched = _LAUNCHED_NAME.fullmatch(name)
    return launched[1] if launched else name


def _groups(names: Codes, strings: StringPool, groups: Mapping[str, str]) -> tuple[Codes, Codes]:
    """Return the label and, where it is known, the id of the group of each op."""
    ids = sorted(set(groups.values()))
    numbers: dict[str, int] = {}
    labels: dict[int, tuple[int, int]] = {}
    for code in dict.fromkeys(names.tolist()):
        name = strings[code]
        match = _OP_NAME.match(name)
        digits = match[1] if match else ""
        alike = [one for one in ids if digits and one.endswith(digits)]
        known = groups.get(name) or (alike[0] if len(alike) == 1 else "")
        number = numbers.setdefault(known or digits, len(numbers))
        labels[code] = strings.code(f"Group {number}"), strings.code(known)
    pairs = np.array([labels[code] for code in names.tolist()], np.int32).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def build_steps(rows: KernelTable) -> Steps:
    """Return steps of rows that name theirs: from the first start to the last end of each.

    A step that runs several graphs is one step of each, as everywhere.
    """
    held = rows.take(rows.iteration != NO_ID)
    steps = group_by(len(held), [held.graph, held.iteration])
    return Steps.of(
        len(steps.first),
        start_ns=steps.least(held.start_ns),
        end_ns=steps.greatest(held.end_ns),
        graph=held.graph[steps.first],
        iteration=held.iteration[steps.first],
    )


def with_step_graphs(rows: KernelTable, steps: Steps) -> KernelTable:
    """Rows without a graph get that of the step that they start in, where there is only one."""
    open_step, _ = only_open_at(rows.start_ns, steps.start_ns, steps.end_ns)
    found = (open_step >= 0) & (rows.graph == NO_GRAPH) & (rows.iteration == NO_ID)
    graph = rows.graph.copy()
    graph[found] = steps.graph[open_step[found]]
    return replace(rows, graph=graph)


@dataclass(frozen=True)
class StepTablesSource:
    """step_trace_time.csv and communication.json, or analysis.db, which holds both.

    Communication ops have the times that the profiler noted, to a quarter of a microsecond. Steps
    have none: see `_place_steps`. Ops of several devices do not say of which, so none has any.
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
        """Read the sums of steps, and the communication ops.

        A file that cannot be read is counted, and a warning says so.
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
                ops = _ops_of(measured, strings, damage)
        steps = _place_steps(sums, ops)
        untimed = len(steps) > 0 and not len(ops)
        if untimed:
            builder.warn("when its steps ran is not recorded; they are drawn one by one.")
        builder.add(sums)
        builder.add(CollectiveSums.of(len(measured), _sums_of(measured, strings)))
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
    """Read the sums of steps that have one row of a device, or of all."""
    if path.suffix == ".db":
        with open_database(path) as database:
            sums = read_summed_steps(database, device)
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
        len(sums), start_ns=start_ns, end_ns=end_ns, graph=NO_GRAPH, iteration=sums.step
    )
