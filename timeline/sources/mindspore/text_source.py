"""Sources of text files of MindSpore 0.7 to 2.2, and of its small tables if only they remain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.errors import SourceError, format_ids
from timeline.layers import Layer
from timeline.records.clock import Clock
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, Omission, OmissionCode, Records, Steps, Tasks
from timeline.sources.ascend_trace.reader import TraceFiles, read_trace
from timeline.sources.capture import Capture
from timeline.sources.common.decimals import interval_ns_of_milliseconds, parse_times_ns
from timeline.sources.common.losses import LossLog, counted_losses
from timeline.sources.companions.step_trace import StepTicks
from timeline.sources.decoders.csv_blocks import Block, RowShape, read_blocks, read_last_cells
from timeline.sources.decoders.json_values import read_json
from timeline.sources.files.opened import find_file, read_whole_file
from timeline.sources.mindspore.display import Display, names_its_rows, read_display
from timeline.sources.mindspore.records_builder import (
    AI_CORE,
    AI_CPU,
    RecordsBuilder,
    find_hccl_files,
)
from timeline.sources.source import Identity, ReadRequest
from timeline.units import format_bytes

_FIELDS = ("op_name", "stream_id", "start_time", "duration")
_NO_LENGTH = b"N/A"


def read_device_rows(
    path: Path, strings: StringPool, rank: int
) -> tuple[Tasks, tuple[Omission, ...]]:
    """Read AI Core tasks from lines of name, stream, start and duration.

    Both times are milliseconds, although the header of MindSpore 2.1 and 2.2 says "us". A line is
    split from its end, because older versions do not quote names.

    Raises:
        SourceError: the file cannot be read, is empty, or holds no line of that shape.
    """
    damage, parts = LossLog(path), []
    for block in read_last_cells(path, _FIELDS, damage):
        lengths = [cell or _NO_LENGTH for cell in block.cells("duration")]
        times_ns = interval_ns_of_milliseconds(block.cells("start_time"), lengths)
        columns = {
            "stream": block.integers("stream_id", NO_ID),
            "name": block.codes("op_name", strings, str.strip),
            "task_type": strings.code(AI_CORE),
        }
        parts.append(_build_timed_tasks(block, times_ns, columns, "a duration", damage))
    tasks = Tasks.concat(parts)
    if not len(tasks) and damage.rows:
        raise SourceError(
            path,
            f"holds no device task: none of its lines has {len(_FIELDS)} fields with two times.",
            do="Expected op_name, stream_id, start_time(ms), duration(ms).",
        )
    return tasks, damage.omissions(rank)


def read_aicpu_rows(
    path: Path, strings: StringPool, rank: int
) -> tuple[Tasks, tuple[Omission, ...]]:
    """Read AI CPU tasks.

    Start and end are microseconds of the device clock. MindSpore 2.1 and 2.2, which name the second
    column op_type, write milliseconds instead, and an end that includes the wait before the start;
    there the duration is the execution time.

    Raises:
        SourceError: the file cannot be read or has no column of starts.
    """
    damage, parts = LossLog(path), []
    for block in read_blocks(path, None, ("run_start",), damage, RowShape.ENDED):
        column = "kernel_type" if "kernel_type" in block else "op_type"
        names = block.codes(column, strings, str.strip)
        columns = {"name": names, "op_type": names, "task_type": strings.code(AI_CPU)}
        parts.append(_build_timed_tasks(block, _read_times_ns(block), columns, "an end", damage))
    return Tasks.concat(parts), damage.omissions(rank)


def _build_timed_tasks(
    block: Block,
    times_ns: tuple[Int64, Int64],
    columns: Mapping[str, Any],
    end: str,
    damage: LossLog,
) -> Tasks:
    """Build tasks from rows with both times, and count other rows as damage.

    end: the noun for the second time in the reason of the damage.
    """
    start_ns, end_ns = times_ns
    is_timed = (start_ns != NO_TIME) & (end_ns != NO_TIME)
    damage.add_lines(f"rows without a start and {end}", block.lines[~is_timed])
    tasks = Tasks.of(len(block), columns, start_ns=start_ns, end_ns=end_ns, compute=True)
    return tasks.take(is_timed)


def _read_times_ns(block: Block) -> tuple[Int64, Int64]:
    starts = block.cells("run_start")
    if "op_type" in block:
        lengths = [cell or _NO_LENGTH for cell in block.cells("execution_time")]
        return interval_ns_of_milliseconds(starts, lengths)
    return parse_times_ns(starts), parse_times_ns(block.cells("run_end"))


_SUMMARIES = {
    "ascend_timeline_display": "ascend_timeline_summary",
    "timeline_display": "timeline_summary",
}
"""Names of summary files by those of displays, the preferred display first."""
_TICKS_IN_MICROSECOND = 100
_MIB = 1024 * 1024
LIMITS_BYTES = (20 * _MIB, 100 * _MIB, 500 * _MIB)
"""Default size limits of displays in MindSpore 0.7 to 1.2, 1.3 to 1.9, and 1.10 to 2.2.

MindSpore writes events in order of time, and silently drops the rest once the limit is exceeded.
"""
OVERSHOOT_BYTES = 32 * 1024
"""Most bytes written beyond the limit: two text buffers, one event and the process labels."""
MOST_DISAGREEMENT_NS = 1000
"""Largest difference by rounding between origins computed from several ops."""


_CutOff = tuple[tuple[Omission, ...], tuple[str, ...]]
"""Omissions and warnings about a display that was cut off by a limit, empty for a whole one."""


def report_cut_off(
    path: Path, rank: int, size_bytes: int, missing_ops: int, last_ns: int, steps: Steps
) -> _CutOff:
    """Count and warn about rows missing from a display that was cut off by a limit.

    A display was cut off if its size is just above a limit of MindSpore, if whole steps begin after
    its last record, or if its summary counts more operators and its size is just above a whole
    number of MiB (users may set another limit in MindSpore 2.0 to 2.2).

    Args:
        path: the display.
        rank: the rank of the display.
        size_bytes: its size.
        missing_ops: operators in the summary that are not in the display, 0 if unknown.
        last_ns: the end of the last record, 0 without any.
        steps: steps of the step trace on the clock of last_ns, empty if the clocks are unrelated.
    """
    later = steps.iteration[steps.start_ns >= last_ns] if last_ns else np.empty(0, np.int64)
    at_limit = any(0 < size_bytes - limit <= OVERSHOOT_BYTES for limit in LIMITS_BYTES)
    at_megabyte = size_bytes > _MIB and size_bytes % _MIB <= OVERSHOOT_BYTES
    if not (at_limit or len(later) or (missing_ops > 0 and at_megabyte)):
        return (), ()
    steps_lost = f"; steps {format_ids(later.tolist())} have no device record" if len(later) else ""
    warning = (
        f"rank {rank}: MindSpore cut off {path.name} ({format_bytes(size_bytes)}) at its size "
        f"limit, so the end of the run is missing{steps_lost}."
    )
    noun, rows = "the unknown rest", 1
    if missing_ops > 0:
        noun, rows = "operators", missing_ops
    elif len(later):
        noun, rows = "steps", len(later)
    reason = f"{noun} behind the size limit of {path.name}"
    code = OmissionCode.WRITER_LIMIT
    omission = Omission(reason, rows, rank, tuple(later.tolist()), loss=True, code=code)
    return (omission,), (warning,)


@dataclass(frozen=True)
class MindSporeTextSource:
    """The files of one id in a `profiler` directory, all on the clock of its device."""

    identity: Identity
    clock: Clock
    capture: Capture

    @property
    def layout(self) -> str:
        """The name of the format."""
        return self.capture.format.name

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the id that are read; the display only if there is no file of tasks."""
        device = self._file("output_timeline_data_{}.txt")
        display = self._display()
        chosen = (
            (device, self._file("aicpu_intermediate_{}.csv"))
            if device or not display
            else (display, self._file("min_cycle_counter_{}.txt"), self._summary(display))
        )
        shared = (self._step_trace, self._file("framework_raw_{}.csv"))
        return (*filter(None, (*chosen, *shared)), *find_hccl_files(self.capture))

    def _file(self, name: str) -> Path | None:
        return find_file(self.capture.content, name.format(self.capture.device))

    def _display(self) -> Path | None:
        paths = (self._file(f"{name}_{{}}.json") for name in _SUMMARIES)
        return next((path for path in paths if path), None)

    def _summary(self, display: Path) -> Path | None:
        """Return the summary file, which counts all operators even if the display was cut off."""
        return self._file(f"{_SUMMARIES[display.name.rpartition('_')[0]]}_{{}}.json")

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least what is wanted.

        Raises:
            SourceError: a file cannot be read.
        """
        display = self._display()
        if self._file("output_timeline_data_{}.txt") or display is None:
            return self._of_text(wanted)
        if names_its_rows(display):
            device = NO_ID if self.identity.device is None else self.identity.device
            files = TraceFiles((display,), device)
            return read_trace(files, self.identity.rank, StringPool(), wanted)
        return self._of_display(display, wanted)

    def _of_text(self, wanted: ReadRequest) -> Records:
        strings, rank = StringPool(), self.identity.rank
        empty = Records(rank, strings, records_copies=False)
        builder = RecordsBuilder(empty, with_tables=wanted.measures)
        if path := self._file("output_timeline_data_{}.txt"):
            builder.add_tasks(*read_device_rows(path, strings, rank))
        if path := self._file("aicpu_intermediate_{}.csv"):
            builder.add_tasks(*read_aicpu_rows(path, strings, rank))
        builder.add_steps(builder.read_steps(self._step_trace))
        self._add_operators(builder)
        self._add_communication(builder, wanted)
        return builder.build()

    @property
    def _step_trace(self) -> Path | None:
        return self._file("step_trace_raw_{}_detail_time.csv")

    def _add_operators(self, builder: RecordsBuilder) -> None:
        if path := self._file("framework_raw_{}.csv"):
            builder.describe(path)

    def _add_communication(self, builder: RecordsBuilder, wanted: ReadRequest) -> None:
        builder.add_hccl(self.capture, with_planes=Layer.COMMUNICATION in wanted.layers)

    def _of_display(self, path: Path, wanted: ReadRequest) -> Records:
        strings, rank = StringPool(), self.identity.rank
        display = read_display(path, strings, rank)
        empty = Records(rank, strings, records_copies=False)
        builder = RecordsBuilder(empty, with_tables=wanted.measures)
        ticks = builder.read_steps(self._step_trace)
        origin_ns = self._origin_ns(display, ticks)
        builder.report(display.omissions)
        shift_ns = origin_ns or 0
        builder.add_tasks(display.tasks.shifted(shift_ns))
        builder.add_ops(display.ops.shifted(shift_ns))
        builder.records = replace(builder.records, host=display.host.shifted(shift_ns))
        step_trace = StepTicks.none()
        if origin_ns is not None and len(ticks.steps):
            step_trace = ticks
            builder.add_steps(ticks)
        else:
            builder.report_unrelated_steps(ticks)
            builder.add_steps(replace(step_trace, steps=display.steps.shifted(shift_ns)))
        last_ns = display.last_ns + shift_ns if display.last_ns else 0
        builder.report(*self._cut_off(path, display, last_ns, step_trace))
        self._add_operators(builder)
        if origin_ns is not None:
            self._add_communication(builder, wanted)
        elif files := find_hccl_files(self.capture):
            reason = f"HCCL files, whose clock nothing relates to {path.name}"
            builder.report(counted_losses({reason: len(files)}, rank, OmissionCode.NO_CLOCK))
        return builder.build()

    def _origin_ns(self, display: Display, ticks: StepTicks) -> int | None:
        """Return the device time at 0 of the display, from its file or from the step trace."""
        if path := self._file("min_cycle_counter_{}.txt"):
            ticks_as_us_ns = int(parse_times_ns([read_whole_file(path).strip()])[0])
            if ticks_as_us_ns > 0:
                return ticks_as_us_ns // _TICKS_IN_MICROSECOND
        return _offset_by_reduces(display.ops, ticks.reduces)

    def _cut_off(self, path: Path, display: Display, last_ns: int, ticks: StepTicks) -> _CutOff:
        summary = self._summary(path)
        counted, warnings = 0, tuple[str, ...]()
        if summary is not None:
            try:
                value = read_json(summary).get("op_exe_times")
                counted = value if isinstance(value, int) else 0
            except SourceError as error:
                warnings = (f"rank {self.identity.rank}: {error}",)
        rank, size_bytes = self.identity.rank, path.stat().st_size
        missing = max(0, counted - display.op_runs)
        omissions, cut_off = report_cut_off(path, rank, size_bytes, missing, last_ns, ticks.steps)
        return omissions, (*warnings, *cut_off)


def _offset_by_reduces(ops: CommunicationOps, reduces: CommunicationOps) -> int | None:
    """Return the time from the first op of a name to the first reduce of that name.

    It is the median over all names. None if no name is shared, or if names disagree.
    """
    shared = np.intersect1d(ops.name, reduces.name)
    is_timed = reduces.start_ns != NO_TIME
    offsets_ns = [
        int(reduces.start_ns[is_timed & (reduces.name == name)].min(initial=np.iinfo(np.int64).max))
        - int(ops.start_ns[ops.name == name].min())
        for name in shared.tolist()
    ]
    if not offsets_ns or max(offsets_ns) - min(offsets_ns) > MOST_DISAGREEMENT_NS:
        return None
    return sorted(offsets_ns)[len(offsets_ns) // 2]


class MindSporeTablesSource(MindSporeTextSource):
    """The small tables of one id in a directory: its step trace and HCCL files.

    Other tables are read like the tables in the directory of any capture.
    """

    @property
    def layout(self) -> str:
        """MindSpore step trace, or MindSpore tables if there is no step trace."""
        return super().layout if self._step_trace is None else "MindSpore step trace"

    @property
    def files(self) -> tuple[Path, ...]:
        """The step trace and the HCCL files, as far as they exist."""
        steps = () if self._step_trace is None else (self._step_trace,)
        return (*steps, *find_hccl_files(self.capture))

    def read(self, wanted: ReadRequest) -> Records:
        """Read steps, and communication ops from their reduces or from HCCL files.

        Raises:
            SourceError: a file cannot be read.
        """
        empty = Records(self.identity.rank, StringPool(), records_copies=False, tables_only=True)
        builder = RecordsBuilder(empty, with_tables=True)
        builder.add_steps(builder.read_steps(self._step_trace))
        self._add_communication(builder, wanted)
        return builder.build()
