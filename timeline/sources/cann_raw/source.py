"""Source of raw device logs, which hold steps and tasks without names."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.columns import Codes, TableBuilder
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct, map_values
from timeline.columns.strings import NO_NAME, StringPool
from timeline.errors import SourceError
from timeline.records.clock import Clock
from timeline.records.not_given import NO_CONTEXT, NO_GRAPH, NO_ID
from timeline.records.tables import OmissionCode, Records, StepParts, Steps, Tasks
from timeline.records.task_kinds import COPY_TYPES, compute_by_type
from timeline.sources.cann_raw import find_slices
from timeline.sources.cann_raw.logs import (
    SUBTASK,
    SUBTASK_TYPES,
    TaskLog,
    find_missing_slices,
    find_other_logs,
    hwts_log,
    select_slices,
    stars_log,
)
from timeline.sources.cann_raw.steps import find_graphs, read_step_trace, track_log
from timeline.sources.common.device_clock import (
    NO_ANCHOR,
    CounterClock,
    device_frequency,
    find_clock_files,
    parse_tick_ns,
    read_anchor,
)
from timeline.sources.common.export_files import how_to_export
from timeline.sources.common.losses import FFTS_REASON, LostRows
from timeline.sources.common.overlap_analysis import remark_on_ai_cpu_tasks
from timeline.sources.common.raw_logs import (
    RecordReader,
    TaskIntervals,
    UInt64,
    read_intervals,
)
from timeline.sources.decoders.joins import covering_parents
from timeline.sources.decoders.json_values import read_json
from timeline.sources.files.opened import open_regular_file, source_errors_for
from timeline.sources.source import Identity, ReadRequest

_CHIP_V6 = frozenset({"15", "16", "19"})
"""`platform_version` of chips whose records have the newest layout (V6)."""
_STREAM_SPEC = re.compile(r"(?:un)?aging\.compact\.expand_stream_spec\.slice_\d+")
_EXPANDED_AT = 24
"""Offset of the byte in the host's record of stream limits that is 1 if ids have 15 bits."""
_KINDS = 256
"""Number of task types; sub-task types are counted from here on."""


@dataclass(frozen=True)
class RawSlicesSource:
    """`PROF_*/device_N/data`: logs of the task hardware (HWTS or STARS) and of the scheduler."""

    layout: str
    identity: Identity
    host_clock: Clock
    data: Path

    @property
    def clock(self) -> Clock:
        """The host's clock, or an unknown one if nothing relates the device's counter to it."""
        # The frequency in info.json corrects an anchor, but does not decide if there is one.
        return Clock() if read_anchor(self.data.parent, {}) is None else self.host_clock

    @property
    def files(self) -> tuple[Path, ...]:
        """The slices."""
        return find_slices(self.data)

    def read(self, wanted: ReadRequest) -> Records:
        """Read all tasks and steps, whatever is wanted.

        Times are counts of the device, converted to CLOCK_MONOTONIC_RAW of the host. Names,
        communication and everything else that only the host recorded are missing; a warning says
        so.
        """
        path, info = read_device_info(self.data.parent)
        clock = read_device_clock(self.data.parent, path, info)
        is_v6 = str(info.get("platform_version", "")).strip() in _CHIP_V6
        expanded = _has_expanded_streams(self.identity.directory / "host" / "data")
        reader = _Reader(self, clock, wanted.with_names)
        for log in (hwts_log(), stars_log(is_v6=is_v6, expanded_streams=expanded)):
            reader.read_tasks(log)
        reader.read_steps(is_v6=is_v6)
        return reader.records()


def read_device_info(directory: Path) -> tuple[Path, dict[str, Any]]:
    """Return the path and content of the info.json of a device directory.

    Raises:
        SourceError: there is none, or it cannot be read.
    """
    paths = find_clock_files(directory, "info.json")
    if not paths:
        raise SourceError(
            directory,
            "holds no info.json, which gives the frequency of the device's counter.",
            do=how_to_export(directory.parent),
        )
    return paths[0], read_json(paths[0])


def read_device_clock(directory: Path, path: Path, info: dict[str, Any]) -> CounterClock:
    """Return the clock of a device; without an anchor it counts from the device's start.

    Args:
        path, info: path and content of the device's info.json.

    Raises:
        SourceError: the frequency is missing or not a frequency, or a log cannot be read.
    """
    frequency = device_frequency(info)
    tick_ns = parse_tick_ns(frequency)
    if tick_ns is None:
        raise SourceError(
            path,
            f"gives no frequency of the device's counter: hwts_frequency is {frequency!r}.",
            do=how_to_export(directory.parent),
        )
    return CounterClock(tick_ns, read_anchor(directory, info) or NO_ANCHOR)


def _has_expanded_streams(host_data: Path) -> bool:
    """Return whether the host recorded that stream ids have 15 bits.

    Raises:
        SourceError: the record cannot be read.
    """
    with source_errors_for(host_data):
        if not host_data.is_dir():
            return False
        paths = sorted(path for path in host_data.iterdir() if _STREAM_SPEC.fullmatch(path.name))
        if not paths:
            return False
        with open_regular_file(paths[0]) as file:
            return file.read(_EXPANDED_AT + 1)[_EXPANDED_AT:] == b"\x01"


class _Reader(LostRows):
    """One pass over the logs of one device."""

    def __init__(self, source: RawSlicesSource, clock: CounterClock, with_names: bool) -> None:
        super().__init__(source.identity.rank)
        self.source, self.clock, self.with_names = source, clock, with_names
        self.slices = source.files
        self.strings = StringPool()
        self.tasks = TableBuilder(Tasks)
        self.steps, self.parts = Steps.empty(), StepParts.empty()
        self.others = 0
        self.is_unanchored = clock.anchor is NO_ANCHOR
        self.knows_streams = True

    def read_tasks(self, log: TaskLog) -> None:
        reader = RecordReader(log.log, select_slices(self.slices, log.log.name))
        intervals = read_intervals(reader, log.marks)
        self.omissions += reader.omissions(self.rank)
        for reason, rows in (
            ("device tasks that started but never ended", intervals.unfinished),
            ("ends of device tasks without a start", intervals.unstarted),
        ):
            self.leave_out(reason, rows, OmissionCode.UNPAIRED)
        self.others += intervals.others
        self.tasks.add(self._build_tasks(log, intervals))
        self.knows_streams &= log.knows_streams or not len(intervals.key)

    def read_steps(self, *, is_v6: bool) -> None:
        """Read the log of the task scheduler."""
        log = track_log(is_v6=is_v6)
        reader = RecordReader(log, select_slices(self.slices, log.name))
        trace = read_step_trace(reader, self.clock.times_ns, self.rank)
        self.omissions += [*reader.omissions(self.rank), *trace.omissions]
        self.others += trace.others
        self.steps, self.parts = trace.steps, trace.parts

    def _build_tasks(self, log: TaskLog, intervals: TaskIntervals) -> Tasks:
        count = len(intervals.key)
        stream, task, context = (ids.astype(np.int64) for ids in log.ids(intervals.key))
        is_subtask = intervals.key & SUBTASK != 0
        kind = intervals.kind + np.where(is_subtask, _KINDS, 0)
        types = [log.types.get(code, f"type {code}") for code in range(_KINDS)]
        types += [SUBTASK_TYPES.get(code, f"sub-task type {code}") for code in range(_KINDS)]
        is_copy = np.array([name in COPY_TYPES for name in types])
        present = distinct(kind)
        codes = np.zeros(2 * _KINDS, np.int32)
        codes[present] = self.strings.codes(types[code] for code in present.tolist())
        device = self.source.identity.device
        task_type = codes[kind]
        compute = compute_by_type(task_type, self.strings)
        return Tasks.of(
            count,
            start_ns=self.clock.times_ns(intervals.start_ticks),
            end_ns=self.clock.times_ns(intervals.end_ticks),
            device=NO_ID if device is None else device,
            stream=stream if log.knows_streams else constant(NO_ID, count, np.int64),
            task=task,
            context=np.where(is_subtask, context, NO_CONTEXT),
            name=self._build_names(log, intervals, kind, types),
            task_type=task_type,
            op_type=np.where(compute, task_type, NO_NAME),
            compute=compute,
            copy=is_copy[kind],
        )

    def _build_names(
        self, log: TaskLog, intervals: TaskIntervals, kind: np.ndarray, types: list[str]
    ) -> Codes:
        """Return names made of the ids and type of each task, which has no name of its own."""
        if not self.with_names:
            return constant(NO_NAME, len(kind), np.int32)
        # The type replaces the thread in the key, so that each distinct name is formatted once.
        name_key: UInt64 = intervals.key & ~np.uint64(0xFFFF) | kind.astype(np.uint64)

        def codes(keys: UInt64) -> Codes:
            ids = (column.tolist() for column in log.ids(keys))
            kinds = (keys & np.uint64(0xFFFF)).tolist()
            return self.strings.codes(
                _format_name(log, stream, task, context if code >= _KINDS else None, types[code])
                for stream, task, context, code in zip(*ids, kinds, strict=True)
            )

        return map_values(name_key, codes)

    def records(self) -> Records:
        """Return records of all tasks and steps that were read.

        Raises:
            SourceError: there is neither a whole task nor a whole step.
        """
        tasks = self.tasks.build()
        directory = self.source.identity.directory
        if not len(tasks) and not len(self.steps):
            raise SourceError(
                self.source.data,
                "holds no whole task and no whole step.",
                do=how_to_export(directory),
            )
        covering = covering_parents(tasks)
        tasks = tasks.take(~covering)
        parents = int(np.count_nonzero(covering))
        self.leave_out(FFTS_REASON, parents, OmissionCode.FFTS_WHOLE, loss=False)
        reason = "raw records of other things than tasks and steps"
        self.leave_out(reason, self.others, OmissionCode.NOT_DRAWN, loss=False)
        graph, several = find_graphs(tasks.start_ns, self.steps)
        self._add_warnings(directory, several, tasks)
        return Records(
            self.rank,
            self.strings,
            tasks=replace(tasks, graph=graph),
            steps=self.steps,
            parts=self.parts,
            omissions=tuple(self.omissions),
            warnings=tuple(self.warnings),
        )

    def _add_warnings(self, directory: Path, several: int, tasks: Tasks) -> None:
        """Warn of data that is missing or ambiguous in raw logs, and say how to get it."""
        self.warn(
            "raw data, read without CANN. Names and shapes of operators, communication with its "
            "planes, host calls and counters are not known; communication shows as idle time "
            "and copies. "
            f"To have them: msprof --export=on --output={directory}"
        )
        if remark := remark_on_ai_cpu_tasks(tasks, self.strings, "the host's record of operators"):
            self.warn(remark)
        if self.is_unanchored:
            self.warn(
                "dev_start.log and host_start.log do not relate the counter of the device to the "
                "clock of its host; times count from the start of the device."
            )
        if not self.knows_streams:
            self.warn("records of this chip do not name the stream of a task.")
        if (self.steps.graph != NO_GRAPH).any():
            self.warn(
                "raw records do not name the graph of a task; each task is taken to be of the "
                "graph whose step runs when it starts."
            )
        if several:
            self.warn(f"{several} tasks start in steps of several graphs and count for none.")
        if missing := find_missing_slices(self.slices):
            self.warn(f"slices are missing: {', '.join(missing)}.")
        if logs := find_other_logs(self.source.data):
            self.warn(f"raw logs that are not read: {', '.join(logs)}.")


def _format_name(log: TaskLog, stream: int, task: int, context: int | None, kind: str) -> str:
    ids = f"stream {stream} task {task}" if log.knows_streams else f"task {task}"
    context_suffix = "" if context is None else f" context {context}"
    return f"{ids}{context_suffix} ({kind})"
