"""Sources that read captures exported as trace JSON, one for each of three layouts."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from timeline.columns.distinct import distinct
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.records.clock import Clock
from timeline.records.joining import join_records
from timeline.records.not_given import NO_GRAPH, NO_ID
from timeline.records.tables import Records
from timeline.sources.ascend_trace.reader import (
    TraceFiles,
    find_packed_devices,
    read_trace,
    read_trace_and_overlap,
)
from timeline.sources.common.core_metrics import MetricsBuilder, read_core_counts
from timeline.sources.common.export_files import find_newest_export
from timeline.sources.common.kernel_table import (
    delay_of_table,
    describe_tasks,
    distinct_parts,
    distinct_steps,
    end_tasks,
    match_tasks,
    move_table,
    read_kernel_table,
    read_step_table,
)
from timeline.sources.common.losses import LossLog
from timeline.sources.common.overlap_analysis import VendorOverlap, mark_unlisted_kernels
from timeline.sources.files.opened import find_file, without_gz
from timeline.sources.source import Identity, ReadRequest
from timeline.units import format_count, format_duration

_OF_ITERATION = re.compile(r"\D+\d+_(\d{1,10})_(\d{1,10})(?:_slice_\d+)?(?:_\d{14})?\.json")
"""Device, graph and iteration in the name of a trace of that iteration only."""


@dataclass(frozen=True)
class _Export:
    """A capture exported into a directory.

    several_devices: whether the export holds several devices, of which one is read.
    """

    layout: str
    identity: Identity
    clock: Clock
    output: Path
    several_devices: bool = False

    @property
    def _device(self) -> int:
        return NO_ID if self.identity.device is None else self.identity.device

    def _with_cores(self, records: Records) -> Records:
        cores = read_core_counts(self.identity.directory, self.identity.device)
        return replace(records, cores=cores)


@dataclass(frozen=True)
class TraceViewSource(_Export):
    """`ASCEND_PROFILER_OUTPUT/trace_view.json` of torch_npu and MindSpore.

    `output` is that directory, or the path of a single trace file of any name.
    """

    @property
    def files(self) -> tuple[Path, ...]:
        """The trace, and the kernel table if there is one."""
        name = "trace_view.json"
        if self.output.is_file():
            return (self.output,)
        trace = find_file(self.output, name) or self.output / name
        kernels = find_file(self.output, "kernel_details.csv")
        return (trace, *([kernels] if kernels else []))

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        trace, *kernels = self.files
        device = self._device
        strings, files = StringPool(), TraceFiles((trace,), device)
        if self.several_devices:
            packed, _ = find_packed_devices(trace)
            files = TraceFiles((trace,), device, only_device=True, packed=packed)
        records, overlap = read_trace_and_overlap(files, self.identity.rank, strings, wanted)
        only = device if self.several_devices else None
        return self._with_cores(_finish(records, kernels, only, overlap, wanted))


@dataclass(frozen=True)
class MindStudioSource(_Export):
    """`PROF_*/mindstudio_profiler_output` of msprof: the newest export of each kind."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The traces, step traces and kernel tables."""
        return (*self._traces(), *self._step_traces(), *self._tables("op_summary", "csv"))

    def _traces(self) -> tuple[Path, ...]:
        return self._tables("msprof", "json")

    def _step_traces(self) -> tuple[Path, ...]:
        return self._tables("step_trace", "json") or self._tables("step_trace", "csv")

    def _tables(self, kind: str, suffix: str) -> tuple[Path, ...]:
        return find_newest_export(self.output, kind, suffix)

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        device, strings, rank = self._device, StringPool(), self.identity.rank
        only = device if self.several_devices else None
        steps = self._step_traces()
        json_steps = tuple(path for path in steps if without_gz(path.name).endswith(".json"))
        traces = TraceFiles(self._traces(), device, only_device=self.several_devices)
        records, overlap = read_trace_and_overlap(traces, rank, strings, wanted)
        # Step traces are read separately because they reuse process ids of the trace.
        marks = [
            read_trace(
                TraceFiles((path,), device, only_device=self.several_devices), rank, strings, wanted
            )
            for path in json_steps
        ]
        records = join_records([records, *marks])
        for path in steps:
            if path not in json_steps and not len(records.steps):
                damage = LossLog(path)
                table, parts = read_step_table(path, only, damage)
                omissions = (*records.omissions, *damage.omissions(rank))
                records = replace(records, steps=table, parts=parts, omissions=omissions)
        kernels = list(self._tables("op_summary", "csv"))
        return self._with_cores(_finish(records, kernels, only, overlap, wanted, ends=True))


@dataclass(frozen=True)
class GraphTimelineSource(_Export):
    """`PROF_*/device_N/timeline` of CANN before 7: one file per iteration, or one for all."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The msprof and step-trace files; hccl and task_time files repeat parts of them."""
        parts = (*self._files("msprof").values(), *self._step_traces().values())
        return tuple(path for paths in parts for path in paths)

    def _files(self, kind: str) -> dict[tuple[int, int], list[Path]]:
        """Return files of the newest export by graph and iteration, ascending.

        Slices of one export are listed together.
        """
        paths: dict[tuple[int, int], list[Path]] = defaultdict(list)
        for path in find_newest_export(self.output, kind, "json"):
            match = _OF_ITERATION.fullmatch(without_gz(path.name))
            paths[(int(match[1]), int(match[2])) if match else (NO_GRAPH, NO_ID)].append(path)
        return dict(sorted(paths.items()))

    def _step_traces(self) -> dict[int, list[Path]]:
        """Return one step trace per graph: each holds all iterations of its graph."""
        return {graph: paths for (graph, _), paths in self._files("step_trace").items()}

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        files = [
            TraceFiles(tuple(paths), self._device, graph, iteration)
            for (graph, iteration), paths in self._files("msprof").items()
        ]
        if not files:
            raise SourceError(self.output, "holds no msprof_*.json file.")
        for graph, paths in self._step_traces().items():
            files.append(TraceFiles(tuple(paths), self._device, graph))
        strings, rank = StringPool(), self.identity.rank
        records = join_records([read_trace(group, rank, strings, wanted) for group in files])
        return _finish(records, [], None, VendorOverlap.empty(), wanted)


def _finish(
    records: Records,
    kernel_tables: list[Path],
    device: int | None,
    overlap: VendorOverlap,
    wanted: ReadRequest,
    *,
    ends: bool = False,
) -> Records:
    """Complete tasks from their kernel table, and drop duplicate steps and step parts.

    overlap: the trace's own Overlap Analysis. metrics: collects what the cores measured of kernels.
    ends: whether task ends are taken from the table.
    """
    warnings = records.warnings
    if kernel_tables:
        metrics = MetricsBuilder(every=wanted.every_arg) if wanted.measures else None
        table, lost = read_kernel_table(
            kernel_tables,
            records.strings,
            records.rank,
            device,
            metrics,
            described=wanted.measures,
        )
        if metrics is not None:
            records = replace(records, metrics=metrics.build())
        row = match_tasks(records.tasks, table)
        if not (row >= 0).any() and (later_ns := delay_of_table(table, records.tasks)):
            table = move_table(table, -later_ns)
            row = match_tasks(records.tasks, table)
            warnings += (
                f"rank {records.rank}: kernels start {format_duration(abs(later_ns))} "
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
                f"rank {records.rank}: {format_count(added, 'kernel')} without a row in "
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
