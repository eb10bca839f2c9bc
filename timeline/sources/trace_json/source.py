"""Sources of captures that were exported as JSON, in three layouts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from timeline.columns.distinct import distinct
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.frozen import dataclass
from timeline.patterns import compile_late
from timeline.records.joining import join_records
from timeline.records.not_given import NO_ID
from timeline.records.tables import Records
from timeline.sources.ascend_trace.reader import TraceFiles, read_trace, read_trace_and_overlap
from timeline.sources.common.compute_tasks import mark_unlisted_kernels
from timeline.sources.common.kernel_table import (
    delay_of_table,
    describe_tasks,
    end_tasks,
    match_tasks,
    move_table,
    read_kernel_table,
)
from timeline.sources.common.losses import LossLog
from timeline.sources.common.msprof_files import find_newest_export
from timeline.sources.common.overlap_analysis import VendorOverlap
from timeline.sources.common.step_table import distinct_parts, distinct_steps, read_step_table
from timeline.sources.files.opened import files_by_name, find_file, without_gz
from timeline.sources.source import Clock, Identity, ReadRequest
from timeline.sources.trace_json.format import GRAPH_TIMELINE, MINDSTUDIO, TRACE_VIEW
from timeline.units import spell_count, spell_duration

__all__ = ["GraphTimelineSource", "MindStudioSource", "TraceViewSource"]

_TIMELINE_NAME = compile_late(r"msprof_([0-9]{1,10})_([0-9]{1,10})_([0-9]{1,10})\.json")
_STEP_TRACE_NAME = compile_late(r"step_trace_([0-9]{1,10})_([0-9]{1,10})_([0-9]{1,10})\.json")


@dataclass(frozen=True)
class TraceViewSource:
    """`ASCEND_PROFILER_OUTPUT/trace_view.json` of torch_npu and MindSpore.

    output: the directory, or a trace that lies anywhere and is called anything.
    """

    identity: Identity
    clock: Clock
    output: Path
    layout: str = TRACE_VIEW.name

    @property
    def files(self) -> tuple[Path, ...]:
        """The trace, and the kernel table where there is one."""
        name = "trace_view.json"
        if self.output.is_file():
            return (self.output,)
        trace = find_file(self.output, name) or self.output / name
        kernels = find_file(self.output, "kernel_details.csv")
        return (trace, *([kernels] if kernels else []))

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        trace, *kernels = self.files
        device = NO_ID if self.identity.device is None else self.identity.device
        strings = StringPool()
        records, overlap = read_trace_and_overlap(
            TraceFiles((trace,), device), self.identity.rank, strings, wanted
        )
        return _finish(records, kernels, None, overlap)


@dataclass(frozen=True)
class MindStudioSource:
    """`PROF_*/mindstudio_profiler_output` of msprof: the newest export of each kind."""

    identity: Identity
    clock: Clock
    output: Path
    several_devices: bool = False
    layout: str = MINDSTUDIO.name

    @property
    def files(self) -> tuple[Path, ...]:
        """The traces, step traces and kernel tables."""
        return (*self._traces(), *self._step_traces(), *self._tables("op_summary", "csv"))

    def _traces(self) -> tuple[Path, ...]:
        names = find_newest_export(self.output, "msprof", "json")
        return tuple(path for path in names if not path.name.startswith("msprof_tx_"))

    def _step_traces(self) -> tuple[Path, ...]:
        return self._tables("step_trace", "json") or self._tables("step_trace", "csv")

    def _tables(self, kind: str, suffix: str) -> tuple[Path, ...]:
        return find_newest_export(self.output, kind, suffix)

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        device = NO_ID if self.identity.device is None else self.identity.device
        strings, rank = StringPool(), self.identity.rank
        only = device if self.several_devices else None
        steps = self._step_traces()
        json_steps = tuple(path for path in steps if without_gz(path.name).endswith(".json"))
        traces = TraceFiles(self._traces(), device, only_device=self.several_devices)
        records, overlap = read_trace_and_overlap(traces, rank, strings, wanted)
        # Apart, because step traces use process ids that mean something else in the trace.
        marks = [
            read_trace(
                TraceFiles((path,), device, only_device=self.several_devices),
                rank,
                strings,
                wanted,
            )
            for path in json_steps
        ]
        records = join_records([records, *marks])
        for path in steps:
            if path not in json_steps and not len(records.steps):
                damage = LossLog(path)
                found, pieces = read_step_table(path, only, damage)
                omissions = (*records.omissions, *damage.omissions(rank))
                records = replace(records, steps=found, parts=pieces, omissions=omissions)
        return _finish(records, list(self._tables("op_summary", "csv")), only, overlap, ends=True)


@dataclass(frozen=True)
class GraphTimelineSource:
    """`PROF_*/device_N/timeline` of MindSpore 2.0 to 2.2: a file per graph and iteration."""

    identity: Identity
    clock: Clock
    output: Path
    layout: str = GRAPH_TIMELINE.name

    @property
    def files(self) -> tuple[Path, ...]:
        """The msprof and step-trace files; hccl and task_time files repeat parts of them."""
        return (*(path for path, _, _ in self._traces()), *self._step_traces())

    def _traces(self) -> list[tuple[Path, int, int]]:
        return sorted(
            (
                (path, int(match[2]), int(match[3]))
                for name, path in files_by_name(self.output).items()
                if (match := _TIMELINE_NAME.fullmatch(name))
            ),
            key=lambda found: found[1:],
        )

    def _step_traces(self) -> list[Path]:
        """One step trace per graph: each holds all iterations of its graph."""
        by_graph: dict[int, list[tuple[int, Path]]] = defaultdict(list)
        for name, path in files_by_name(self.output).items():
            if match := _STEP_TRACE_NAME.fullmatch(name):
                by_graph[int(match[2])].append((int(match[3]), path))
        return [max(by_graph[graph])[1] for graph in sorted(by_graph)]

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        device = NO_ID if self.identity.device is None else self.identity.device
        strings, rank = StringPool(), self.identity.rank
        parts = [
            read_trace(TraceFiles((path,), device, graph, iteration), rank, strings, wanted)
            for path, graph, iteration in self._traces()
        ]
        for path in self._step_traces():
            match = _STEP_TRACE_NAME.fullmatch(without_gz(path.name))
            assert match is not None
            files = TraceFiles((path,), device, int(match[2]))
            parts.append(read_trace(files, rank, strings, wanted))
        if not parts:
            raise SourceError(self.output, "holds no msprof_*.json file.")
        return _finish(join_records(parts), [], None, VendorOverlap.empty())


def _finish(
    records: Records,
    kernel_tables: list[Path],
    device: int | None,
    overlap: VendorOverlap,
    *,
    ends: bool = False,
) -> Records:
    """Describe tasks by their kernel table and keep one copy of each step.

    overlap: the trace's own Overlap Analysis. ends: whether the table also tells when tasks end.
    """
    warnings = records.warnings
    if kernel_tables:
        table, lost = read_kernel_table(kernel_tables, records.strings, records.rank, device)
        row = match_tasks(records.tasks, table)
        if not (row >= 0).any() and (later_ns := delay_of_table(table, records.tasks)):
            table = move_table(table, -later_ns)
            row = match_tasks(records.tasks, table)
            warnings += (
                f"rank {records.rank}: kernels start {spell_duration(abs(later_ns))} "
                f"{'later' if later_ns > 0 else 'earlier'} in {kernel_tables[0].name} than in the "
                "trace, which is drawn.",
            )
        tasks = end_tasks(records.tasks, table, row) if ends else records.tasks
        tasks = describe_tasks(tasks, table, row)
        listed = tasks.compute
        tasks = mark_unlisted_kernels(tasks, records.tasks.compute & (row < 0), overlap)
        records = replace(records, tasks=tasks, omissions=(*records.omissions, *lost))
        if added := int((tasks.compute & ~listed).sum()):
            warnings += (
                f"rank {records.rank}: {spell_count(added, 'kernel')} without a row in "
                f"{kernel_tables[0].name} count as computing, as the trace's own Overlap Analysis "
                "counts them.",
            )
        unmatched = len(table) - len(distinct(row[row >= 0]))
        if unmatched:
            warnings += (
                f"rank {records.rank}: {unmatched} of {len(table)} rows of "
                f"{kernel_tables[0].name} have no task in the trace.",
            )
    return replace(
        records,
        steps=distinct_steps(records.steps),
        parts=distinct_parts(records.parts),
        warnings=warnings,
    )
