"""The records of one rank of MindSpore while its files are read, one after the other."""

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
    """Return the files of the rank whose id is in the name of their directory.

    A name without an id means the only rank of the directory.
    """
    directory, ids = capture.content, capture.format.ids
    directories = [directory / f"{UNNUMBERED}_{capture.device}"]
    unnumbered = directory / UNNUMBERED
    if unnumbered.is_dir() and ids is not None and ids(directory) == [capture.device]:
        directories.append(unnumbered)
    held = (path for one in directories for path in one.glob("**/*.*"))
    return tuple(sorted(path for path in held if path.suffix in _SUFFIXES))


def read_hccl_files(
    paths: Sequence[Path], strings: StringPool, rank: int, *, with_planes: bool
) -> tuple[CommunicationOps, PlaneTasks, tuple[Omission, ...]]:
    """Read the ops of a rank, each from its first to its last task, the tasks, and losses.

    Times are microseconds of the device clock.
    A file that cannot be read is counted with the first one's name.
    """
    ops, planes, bad = [], [], []
    timeless = 0
    for path in paths:
        try:
            document = _decode(read_whole_file(path))
        except (SourceError, msgspec.DecodeError, UnicodeDecodeError):
            bad.append(path)
            continue
        events = document if isinstance(document, list) else document.traceEvents
        # An op is called as its directory, or as its file in a shared one.
        is_shared = path.parent.name.startswith(UNNUMBERED)
        tasks = _planes(events, strings, strings.code(path.stem if is_shared else path.parent.name))
        good = (tasks.start_ns != NO_TIME) & (tasks.end_ns >= tasks.start_ns)
        tasks = tasks.take(good)
        timeless += int(np.count_nonzero(~good))
        if len(tasks):
            ops.append(_op(tasks, strings))
            planes.append(tasks)
        elif good.all():
            bad.append(path)
    lost = counted_losses({"HCCL tasks without a valid time": timeless}, rank, OmissionCode.NO_TIME)
    if bad:
        first = "/".join(bad[0].parts[-3:])
        reason = f"HCCL files that hold no tasks or are broken, the first {first}"
        lost += counted_losses({reason: len(bad)}, rank, OmissionCode.DAMAGED)
    tasks = PlaneTasks.concat(planes) if with_planes else PlaneTasks.empty()
    return CommunicationOps.concat(ops), tasks, lost


def _op(tasks: PlaneTasks, strings: StringPool) -> CommunicationOps:
    return CommunicationOps.of(
        1,
        start_ns=[tasks.start_ns.min()],
        end_ns=[tasks.end_ns.max()],
        group=[strings.code(GROUP)],
        name=[tasks.op[0]],
    )


def _planes(events: Sequence[_Event], strings: StringPool, op: int) -> PlaneTasks:
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
    """Return an id or size, which some versions write in hexadecimal."""
    if isinstance(value, str) and _HEXADECIMAL.fullmatch(value):
        value = int(value, 16)
    return number(value, NO_ID) if isinstance(value, (str, int, float)) else NO_ID


def find_repeated(reduces: CommunicationOps, ops: CommunicationOps) -> Bool:
    """Return which reduces of the step trace overlap an op, which is the same."""
    if not len(ops):
        return np.zeros(len(reduces), np.bool_)
    order = np.argsort(ops.start_ns, kind="stable")
    latest_end_ns = np.maximum.accumulate(ops.end_ns[order])
    begun = np.searchsorted(ops.start_ns[order], reduces.end_ns, side="left") - 1
    repeated: Bool = (begun >= 0) & (latest_end_ns[np.maximum(begun, 0)] > reduces.start_ns)
    return repeated


_Table = TypeVar("_Table", Tasks, CommunicationOps, PlaneTasks)


def find_main_graph(tasks: Tasks, steps: Steps) -> int:
    """Return the graph of a step trace: the one with most tasks inside its steps.

    NO_GRAPH where no task names a graph.
    """
    known = tasks.graph != NO_GRAPH
    inside = known & (open_at(tasks.start_ns, steps.start_ns, steps.end_ns) >= 0)
    graphs, counts = np.unique(tasks.graph[inside if inside.any() else known], return_counts=True)
    return int(graphs[np.argmax(counts)]) if len(graphs) else NO_GRAPH


def with_iterations(tasks: Tasks, steps: Steps, main: int) -> Tasks:
    """Return the tasks, with the main graph for those that name none.

    Those of other graphs get the number of the step in which they start, so they make steps of
    their own graph: a step of the training runs several graphs when it has control flow.
    """
    graph = np.where(tasks.graph == NO_GRAPH, main, tasks.graph)
    row = open_at(tasks.start_ns, steps.start_ns, steps.end_ns)
    other = (graph != main) & (row >= 0)
    iteration = tasks.iteration.copy()
    iteration[other] = steps.iteration[row[other]]
    return replace(tasks, graph=graph, iteration=iteration)


def with_known_graphs(table: _Table, steps: Steps) -> _Table:
    """Return the rows, with the graph of the step in which they start if they name none."""
    row = open_at(table.start_ns, steps.start_ns, steps.end_ns)
    found = (table.graph == NO_GRAPH) & (row >= 0)
    graph = table.graph.copy()
    graph[found] = steps.graph[row[found]]
    return replace(table, graph=graph)


class RecordsBuilder:
    """Builds the records of a profile whose steps name no graphs, a table at a time.

    with_tables: also keeps the small tables that lie in the same files.
    """

    def __init__(self, records: Records, *, with_tables: bool = False) -> None:
        self.records, self._with_tables = records, with_tables
        self._into = TablesBuilder(records.rank)
        self._ticks = StepTicks.none()

    def report(self, omissions: tuple[Omission, ...], warnings: tuple[str, ...] = ()) -> None:
        """Note what was left out, and remarks."""
        self.records = replace(
            self.records,
            omissions=(*self.records.omissions, *omissions),
            warnings=(*self.records.warnings, *warnings),
        )

    def add_tasks(self, tasks: Tasks, omissions: tuple[Omission, ...] = ()) -> None:
        """Put device tasks to those there are."""
        self.report(omissions)
        self.records = replace(self.records, tasks=Tasks.concat([self.records.tasks, tasks]))

    def read_steps(self, path: Path | None) -> StepTicks:
        """Read a step trace, and keep its mean.

        Raises:
            SourceError: the file cannot be read.
        """
        if path is None:
            return StepTicks.none()
        ticks = read_step_ticks(path, self.records.strings, self.records.rank)
        self._into.add(ticks.means)
        self._into.step_numbers += ticks.numbers
        return ticks

    def add_steps(self, ticks: StepTicks) -> None:
        """Take the steps, and their reduces as communication ops where there are no others."""
        self.report(ticks.omissions, ticks.warnings)
        self._ticks = ticks
        self.add_ops(ticks.reduces)

    def leave_out(self, ticks: StepTicks) -> None:
        """Report steps whose clock nothing relates to the other records."""
        reason = "steps of the step trace, whose clock nothing relates to the timeline"
        self.report(
            counted_losses({reason: len(ticks.steps)}, self.records.rank, OmissionCode.NO_CLOCK)
        )

    def add_ops(self, ops: CommunicationOps, *, better: bool = False) -> None:
        """Put ops to those there are, one of each that is there twice: the older, or the better."""
        old = self.records.ops
        if better:
            old = old.take(~find_repeated(old, ops))
        else:
            ops = ops.take(~find_repeated(ops, old))
        self.records = replace(self.records, ops=CommunicationOps.concat([old, ops]))

    def add_hccl(self, capture: Capture, *, with_planes: bool) -> None:
        """Take the communication ops and tasks that HCCL recorded, which are finer than reduces."""
        records, paths = self.records, find_hccl_files(capture)
        ops, planes, omissions = read_hccl_files(
            paths, records.strings, records.rank, with_planes=with_planes
        )
        self.report(omissions)
        self.add_ops(ops, better=True)
        self.records = replace(self.records, planes=planes)

    def describe(self, path: Path) -> None:
        """Give tasks what the framework's table says of their operators."""
        records = self.records
        damage = LossLog(path)
        rows = read_framework_rows(path, self._into.strings, damage)
        if self._with_tables:
            add_operators(rows, self._into)
        strings = self._into.strings, records.strings
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
        """Return the records, with graphs on which tasks, ops and steps agree."""
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
            profiler_tables=self._into.build()[0] if self._with_tables else ProfilerTables(),
            free_is_known=len(tasks) > 0 or not len(ticks.steps),
        )
