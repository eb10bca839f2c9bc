"""Builder that joins files of one MindSpore rank into records, and reader of its HCCL files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from timeline.columns.columns import Bool, Codes, Int64
from timeline.columns.intervals import open_at
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import ProfilerTables
from timeline.records.tables import (
    CommunicationOps,
    Omission,
    OmissionCode,
    PlaneTasks,
    Records,
    Steps,
    Tasks,
)
from timeline.sources.capture import Capture
from timeline.sources.common.decimals import interval_ns
from timeline.sources.common.losses import LossLog, counted_losses
from timeline.sources.companions.delimited import TablesBuilder
from timeline.sources.companions.file_kinds import UNNUMBERED
from timeline.sources.companions.framework import (
    add_operators,
    describe_operators,
    read_framework_rows,
)
from timeline.sources.companions.step_trace import GROUP, StepTicks, read_step_ticks
from timeline.sources.decoders.exported_values import number, text
from timeline.sources.files.opened import read_whole_file

AI_CORE, AI_CPU = "AI_CORE", "AI_CPU"
"""Types of device tasks."""
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_EMPTY = msgspec.Raw(b"")


class _Event(msgspec.Struct, gc=False):
    name: str = ""
    tid: int | str | float | None = None
    ts: msgspec.Raw = _EMPTY
    dur: msgspec.Raw = _EMPTY
    args: dict[str, Any] | None = None


class _File(msgspec.Struct):
    traceEvents: list[_Event] = []  # noqa: N815 - the key of the format


_decode = msgspec.json.Decoder(_File | list[_Event]).decode
_SUFFIXES = (".json", ".trace")


def find_hccl_files(capture: Capture) -> tuple[Path, ...]:
    """Return the HCCL files of a rank, from the directory with its id in the name.

    Files of a directory without an id are included if the capture is the only rank.
    """
    directory, ids = capture.content, capture.format.ids
    directories = [directory / f"{UNNUMBERED}_{capture.device}"]
    unnumbered = directory / UNNUMBERED
    if unnumbered.is_dir() and ids is not None and ids(directory) == [capture.device]:
        directories.append(unnumbered)
    paths = (path for parent in directories for path in parent.glob("**/*.*"))
    return tuple(sorted(path for path in paths if path.suffix in _SUFFIXES))


def read_hccl_files(
    paths: Sequence[Path], strings: StringPool, rank: int, *, with_planes: bool
) -> tuple[CommunicationOps, PlaneTasks, tuple[Omission, ...]]:
    """Read communication ops of a rank, their HCCL tasks (if wanted), and losses.

    Each file holds the tasks of one op, with times in microseconds of the device clock. The op
    lasts from its first to its last task. Files that cannot be read are counted.
    """
    ops, planes, unreadable = [], [], []
    timeless = 0
    for path in paths:
        try:
            document = _decode(read_whole_file(path))
        except (SourceError, msgspec.DecodeError, UnicodeDecodeError):
            unreadable.append(path)
            continue
        events = document if isinstance(document, list) else document.traceEvents
        # The directory of a file has the name of its op, unless it is shared by several ops.
        is_shared = path.parent.name.startswith(UNNUMBERED)
        tasks = _build_planes(
            events, strings, strings.code(path.stem if is_shared else path.parent.name)
        )
        is_valid = (tasks.start_ns != NO_TIME) & (tasks.end_ns >= tasks.start_ns)
        tasks = tasks.take(is_valid)
        timeless += int(np.count_nonzero(~is_valid))
        if len(tasks):
            ops.append(_build_op(tasks, strings))
            planes.append(tasks)
        elif is_valid.all():
            unreadable.append(path)
    omissions = counted_losses(
        {"HCCL tasks without a valid time": timeless}, rank, OmissionCode.NO_TIME
    )
    if unreadable:
        first = "/".join(unreadable[0].parts[-3:])
        reason = f"HCCL files that hold no tasks or are broken, the first {first}"
        omissions += counted_losses({reason: len(unreadable)}, rank, OmissionCode.DAMAGED)
    tasks = PlaneTasks.concat(planes) if with_planes else PlaneTasks.empty()
    return CommunicationOps.concat(ops), tasks, omissions


def _build_op(tasks: PlaneTasks, strings: StringPool) -> CommunicationOps:
    return CommunicationOps.of(
        1,
        start_ns=[tasks.start_ns.min()],
        end_ns=[tasks.end_ns.max()],
        group=[strings.code(GROUP)],
        name=[tasks.op[0]],
    )


def _build_planes(events: Sequence[_Event], strings: StringPool, op: int) -> PlaneTasks:
    start_ns, end_ns = interval_ns([event.ts for event in events], [event.dur for event in events])
    args, count = [event.args or {} for event in events], len(events)
    bandwidths = [_first(arg, "bandwidth(GB/s)", "bandwidth") for arg in args]

    def codes(*names: str) -> Codes:
        return strings.codes(_text(_first(arg, *names)) for arg in args)

    def ids(*names: str) -> Int64:
        return np.array([_number(_first(arg, *names)) for arg in args], np.int64)

    return PlaneTasks.of(
        count,
        start_ns=start_ns,
        end_ns=end_ns,
        group=strings.code(GROUP),
        plane=[number(event.tid, NO_ID) for event in events],
        name=strings.codes(event.name for event in events),
        op=op,
        source_rank=ids("src rank"),
        target_rank=ids("dst rank"),
        size_bytes=ids("size(Byte)", "size"),
        notify=codes("notify id", "notify_id"),
        transport=codes("transport type"),
        link=codes("link type"),
        data_type=codes("data type"),
        bandwidth=[value if isinstance(value, (int, float)) else np.nan for value in bandwidths],
    )


def _first(args: dict[str, Any], *names: str) -> Any:
    return next((args[name] for name in names if name in args), None)


def _text(value: Any) -> str:
    return text(value) if isinstance(value, (str, int, float)) else ""


def _number(value: Any) -> int:
    """Parse an id or size, which some versions write in hexadecimal."""
    if isinstance(value, str) and _HEXADECIMAL.fullmatch(value):
        value = int(value, 16)
    return number(value, NO_ID) if isinstance(value, (str, int, float)) else NO_ID


def find_repeated(reduces: CommunicationOps, ops: CommunicationOps) -> Bool:
    """Return which reduces of the step trace overlap an op, and so are recorded twice."""
    if not len(ops):
        return np.zeros(len(reduces), np.bool_)
    order = np.argsort(ops.start_ns, kind="stable")
    latest_end_ns = np.maximum.accumulate(ops.end_ns[order])
    last_begun = np.searchsorted(ops.start_ns[order], reduces.end_ns, side="left") - 1
    repeated: Bool = (last_begun >= 0) & (
        latest_end_ns[np.maximum(last_begun, 0)] > reduces.start_ns
    )
    return repeated


_Table = TypeVar("_Table", Tasks, CommunicationOps, PlaneTasks)


def find_main_graph(tasks: Tasks, steps: Steps) -> int:
    """Return the graph with most tasks inside the steps of a step trace.

    NO_GRAPH if no task names a graph.
    """
    has_graph = tasks.graph != NO_GRAPH
    in_step = has_graph & (open_at(tasks.start_ns, steps.start_ns, steps.end_ns) >= 0)
    graphs, counts = np.unique(
        tasks.graph[in_step if in_step.any() else has_graph], return_counts=True
    )
    return int(graphs[np.argmax(counts)]) if len(graphs) else NO_GRAPH


def with_iterations(tasks: Tasks, steps: Steps, main: int) -> Tasks:
    """Set the main graph of tasks that name none, and the iteration of tasks of other graphs.

    A training step with control flow runs several graphs. Tasks of graphs other than the main one
    get the number of the step in which they start, and so make steps of their own graph.
    """
    graph = np.where(tasks.graph == NO_GRAPH, main, tasks.graph)
    row = open_at(tasks.start_ns, steps.start_ns, steps.end_ns)
    other = (graph != main) & (row >= 0)
    iteration = tasks.iteration.copy()
    iteration[other] = steps.iteration[row[other]]
    return replace(tasks, graph=graph, iteration=iteration)


def with_known_graphs(table: _Table, steps: Steps) -> _Table:
    """Set the graph of rows that name none to that of the step in which they start."""
    row = open_at(table.start_ns, steps.start_ns, steps.end_ns)
    inferred = (table.graph == NO_GRAPH) & (row >= 0)
    graph = table.graph.copy()
    graph[inferred] = steps.graph[row[inferred]]
    return replace(table, graph=graph)


class RecordsBuilder:
    """Builder of records from files of MindSpore, whose steps name no graphs.

    with_tables: whether profiler tables in the same files are kept as well.
    """

    def __init__(self, records: Records, *, with_tables: bool = False) -> None:
        self.records, self._with_tables = records, with_tables
        self._tables = TablesBuilder(records.rank)
        self._ticks = StepTicks.none()

    def report(self, omissions: tuple[Omission, ...], warnings: tuple[str, ...] = ()) -> None:
        """Add omissions and warnings."""
        self.records = replace(
            self.records,
            omissions=(*self.records.omissions, *omissions),
            warnings=(*self.records.warnings, *warnings),
        )

    def add_tasks(self, tasks: Tasks, omissions: tuple[Omission, ...] = ()) -> None:
        """Add device tasks."""
        self.report(omissions)
        self.records = replace(self.records, tasks=Tasks.concat([self.records.tasks, tasks]))

    def read_steps(self, path: Path | None) -> StepTicks:
        """Read a step trace, and keep its means as a profiler table.

        Raises:
            SourceError: the file cannot be read.
        """
        if path is None:
            return StepTicks.none()
        ticks = read_step_ticks(path, self.records.strings, self.records.rank)
        self._tables.add(ticks.means)
        self._tables.step_numbers += ticks.numbers
        return ticks

    def add_steps(self, ticks: StepTicks) -> None:
        """Add steps, and their reduces as communication ops unless there are ops already."""
        self.report(ticks.omissions, ticks.warnings)
        self._ticks = ticks
        self.add_ops(ticks.reduces)

    def report_unrelated_steps(self, ticks: StepTicks) -> None:
        """Count steps that are left out because their clock cannot be related to other records."""
        reason = "steps of the step trace, whose clock nothing relates to the timeline"
        self.report(
            counted_losses({reason: len(ticks.steps)}, self.records.rank, OmissionCode.NO_CLOCK)
        )

    def add_ops(self, ops: CommunicationOps, *, better: bool = False) -> None:
        """Add communication ops without duplicates.

        better: whether an added op replaces an existing one that it overlaps, instead of being
        dropped.
        """
        existing = self.records.ops
        if better:
            existing = existing.take(~find_repeated(existing, ops))
        else:
            ops = ops.take(~find_repeated(ops, existing))
        self.records = replace(self.records, ops=CommunicationOps.concat([existing, ops]))

    def add_hccl(self, capture: Capture, *, with_planes: bool) -> None:
        """Add ops and tasks of HCCL files; these ops replace the reduces of the step trace."""
        records, paths = self.records, find_hccl_files(capture)
        ops, planes, omissions = read_hccl_files(
            paths, records.strings, records.rank, with_planes=with_planes
        )
        self.report(omissions)
        self.add_ops(ops, better=True)
        self.records = replace(self.records, planes=planes)

    def describe(self, path: Path) -> None:
        """Add operators of the framework's table to tasks; warn if it describes none of them."""
        records = self.records
        damage = LossLog(path)
        rows = read_framework_rows(path, self._tables.strings, damage)
        if self._with_tables:
            add_operators(rows, self._tables)
        strings = self._tables.strings, records.strings
        tasks, described = describe_operators(records.tasks, rows, *strings)
        self.records = replace(records, tasks=tasks)
        self.report(damage.omissions(records.rank))
        if len(rows) and len(tasks) and not described:
            self.report(
                (),
                (
                    f"rank {records.rank}: {path.name} describes none of the operators that ran; "
                    "it is of another run.",
                ),
            )

    def build(self) -> Records:
        """Return the records, with graphs set so that tasks, ops and steps agree."""
        records, ticks = self.records, self._ticks
        tasks, ops, planes = records.tasks, records.ops, records.planes
        main = find_main_graph(tasks, ticks.steps)
        if (ticks.steps.graph == NO_GRAPH).all():
            ticks = ticks.of_graph(main)
            tasks = with_iterations(tasks, ticks.steps, main)
        return replace(
            records,
            tasks=with_known_graphs(tasks, ticks.steps),
            ops=with_known_graphs(replace(ops, graph=np.full(len(ops), NO_GRAPH)), ticks.steps),
            planes=with_known_graphs(planes, ticks.steps),
            steps=ticks.steps,
            parts=ticks.parts,
            profiler_tables=self._tables.build()[0] if self._with_tables else ProfilerTables(),
            free_is_known=len(tasks) > 0 or not len(ticks.steps),
        )
