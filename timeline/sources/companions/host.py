"""Host events and counters recorded by MindSpore 2, converted to the clock of the capture."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.columns import Bool, Float64, Int64, Rows
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.layers import HOST_LAYERS, Layer
from timeline.records.clock import EARLIEST_WALL_NS, Clock
from timeline.records.joining import join_records
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import HostEvents, OmissionCode, Records
from timeline.sources.common.counters import SIZES, CounterBuilder
from timeline.sources.common.decimals import parse_times_ns, whole_number, whole_numbers
from timeline.sources.common.device_clock import read_start_info_offset_ns
from timeline.sources.common.export_files import find_sessions
from timeline.sources.common.losses import LossLog, LostRows, counted_losses
from timeline.sources.companions.file_kinds import CPU_LAYER, NumberedFile, NumberedFiles
from timeline.sources.companions.minddata import Samples
from timeline.sources.decoders.csv_blocks import RowShape, read_blocks, read_lines
from timeline.sources.decoders.json_values import read_json, read_json_value
from timeline.sources.source import ReadRequest

MOST_DRIFT_NS = 3600 * 10**9
"""The most by which the steady and the raw clock of a host drift apart, after months."""


@dataclass
class HostClock:
    """The relation of a host's steady clock, its raw clock and wall time.

    A steady clock is corrected while a host runs, a raw clock is not, so the two drift apart. If
    their offset is unknown, a steady time is taken for a raw one, unless it is further than
    `MOST_DRIFT_NS` from the records: then its clock is unknown.

    wall: whether the records hold wall time; otherwise they are on the raw clock. steady_ns,
    raw_ns: wall time minus either clock, None if unknown. span_ns: the first and the last time of
    the records.
    """

    wall: bool
    steady_ns: int | None
    raw_ns: int | None
    span_ns: tuple[int, int] | None = None
    drifted: bool = field(default=False, init=False)
    """Whether a steady time has been taken for a raw one."""

    def shift(self, time_ns: Int64) -> tuple[Int64, Bool]:
        """Return the shift of each time to the clock of the records, and whether it is known.

        A time is wall time if it is too large to count from the start of a host, since versions of
        MindSpore write the same columns on either clock.
        """
        is_wall = time_ns >= EARLIEST_WALL_NS
        is_steady = ~is_wall & (time_ns != NO_TIME)
        offset_ns = self.raw_ns if self.raw_ns is not None else self.steady_ns
        from_wall: int | None = 0
        if not self.wall:
            from_wall = None if offset_ns is None else -offset_ns
        from_steady: int | None = 0
        if self.wall:
            from_steady = self.steady_ns if self.steady_ns is not None else self.raw_ns
        elif self.steady_ns is not None and self.raw_ns is not None:
            from_steady = self.steady_ns - self.raw_ns
        mixed = self.steady_ns is None or (not self.wall and self.raw_ns is None)
        mixed &= from_steady is not None
        far = np.zeros(len(time_ns), np.bool_)
        if mixed and self.span_ns is not None:
            moved_ns = time_ns + (from_steady or 0)
            far |= moved_ns < self.span_ns[0] - MOST_DRIFT_NS
            far |= moved_ns > self.span_ns[1] + MOST_DRIFT_NS
        self.drifted |= mixed and bool((is_steady & ~far).any())
        shift_ns = np.where(is_wall, from_wall or 0, np.where(is_steady, from_steady or 0, 0))
        is_known = (
            ~(is_wall | is_steady)
            | (is_wall & (from_wall is not None))
            | (is_steady & (from_steady is not None) & ~far)
        )
        return shift_ns.astype(np.int64), is_known


def read_host_clock(
    records: Records, clock: Clock, directories: tuple[Path, ...], lost: LostRows
) -> HostClock:
    """Relate the clocks by the clock of the capture and files in its directories.

    directories: that of the capture first, then its parents, which other ranks may share.
    """
    steady_ns, raw_ns = None, clock.wall_offset_ns
    with lost.reading(directories[0] if directories else Path()):
        steady_ns = _steady_offset_ns(directories, records.rank)
        if raw_ns is None and directories:
            raw_ns = _raw_offset_ns(directories[0])
    span_ns = _span_ns(records)
    wall = span_ns is None or span_ns[0] >= EARLIEST_WALL_NS
    return HostClock(wall, steady_ns, raw_ns, span_ns)


def _span_ns(records: Records) -> tuple[int, int] | None:
    """Return the first and last start of tasks, else of ops, else of steps; None without any."""
    for table in (records.tasks, records.ops, records.steps):
        start_ns = table.start_ns[table.start_ns != NO_TIME]
        if len(start_ns):
            return int(start_ns.min()), int(start_ns.max())
    return None


def _steady_offset_ns(directories: tuple[Path, ...], rank: int) -> int | None:
    """Return wall time minus the steady clock from diff_time (us) of MindSpore 2.3 and 2.4."""
    for directory in directories:
        path = directory / f"profiler_info_{rank}.json"
        if path.is_file():
            offset_us = whole_number(read_json(path).get("diff_time"))
            offset_ns = None if offset_us is None else whole_number(offset_us * 1000)
            if offset_ns is not None and offset_ns >= EARLIEST_WALL_NS:
                return offset_ns
    return None


def _raw_offset_ns(capture: Path) -> int | None:
    """Return wall time minus the raw clock from start_info of msprof in a framework's capture."""
    paths = (path / "host" / "start_info" for path in find_sessions(capture))
    for path in filter(Path.exists, paths):
        offset_ns = read_start_info_offset_ns(path)
        if offset_ns is not None and offset_ns >= EARLIEST_WALL_NS:
            return offset_ns
    return None


LAYER = "Host Info"
_BEGIN, _END, _INSTANT = "0", "1", "2"
_TIME, _MEMORY = "time_stamp(us)", "memory_usage(kB)"
_WORDS = ("tid", "pid", "module_name", "event", "stage", "start_end")
_Key = tuple[str, str, str, str]
"""Thread, process, module and name of a stage."""


@dataclass
class HostStages:
    """Stages of the host process with start and end, and samples of its memory."""

    path: Path
    rows: list[tuple[_Key, int, int]] = field(default_factory=list)
    """Key, start and end of each stage."""
    memory: tuple[Int64, Float64] = field(
        default_factory=lambda: (np.empty(0, np.int64), np.empty(0, np.float64))
    )
    """Times in ns and sizes in bytes."""

    def events(self, strings: StringPool) -> HostEvents:
        """Return the stages as host events, with their module as the level."""
        keys, starts_ns, ends_ns = zip(*self.rows, strict=True) if self.rows else [()] * 3
        threads, processes, modules, names = zip(*keys, strict=True) if keys else [()] * 4
        return HostEvents.of(
            len(keys),
            start_ns=starts_ns,
            end_ns=ends_ns,
            layer=strings.code(LAYER),
            process=_ids(processes),
            thread=_ids(threads),
            name=strings.codes(names),
            level=strings.codes(modules),
        )


def _ids(texts: Sequence[str]) -> Int64:
    return whole_numbers([text.encode() for text in texts], NO_ID)[0]


def read_host_stages(path: Path, damage: LossLog, *, paired: bool = True) -> HostStages:
    """Read a table with a row for each begin, end or instant of a stage, in order of writing.

    paired: whether stages are wanted, not only samples of memory.

    Raises:
        SourceError: the file cannot be read, or has no column of times.
    """
    stages = HostStages(path)
    rows: list[tuple[int, int, str, str, str, str, str, str]] = []
    samples = [stages.memory]
    for block in read_blocks(path, None, (_TIME,), damage, RowShape.FULL):
        time_ns = parse_times_ns(block.cells(_TIME))
        size_bytes = block.reals(_MEMORY)[0] * SIZES["kB"]
        sampled, timed = size_bytes > 0, time_ns > 0  # a row without a sample holds 0
        samples.append((time_ns[sampled & timed], size_bytes[sampled & timed]))
        damage.add_lines("samples of memory without a time", block.lines[sampled & ~timed])
        words = [block.texts(name) for name in _WORDS]
        rows += zip(time_ns.tolist(), block.lines.tolist(), *words, strict=True)
    times_ns, sizes_bytes = zip(*samples, strict=True)
    stages.memory = np.concatenate(times_ns), np.concatenate(sizes_bytes)
    if paired:
        _pair(stages, rows, damage)
    return stages


def _pair(
    stages: HostStages,
    rows: Sequence[tuple[int, int, str, str, str, str, str, str]],
    damage: LossLog,
) -> None:
    """Pair each end with the last open begin of the same stage and thread."""
    opened: dict[_Key, list[tuple[int, int]]] = defaultdict(list)
    for time, line, thread, process, module, event, stage, kind in rows:
        key = (thread, process, module, f"{event}::{stage}" if stage else event)
        if time == NO_TIME:
            damage.add("rows without a valid time", f"line {line}")
        elif time <= 0:
            continue  # a row with memory only
        elif kind == _BEGIN:
            opened[key].append((time, line))
        elif kind == _INSTANT:
            stages.rows.append((key, time, time))
        elif kind == _END and opened[key]:
            stages.rows.append((key, opened[key].pop()[0], time))
        elif kind == _END:
            damage.add("ends of stages without a begin", f"line {line}")
        elif kind:
            damage.add("rows that neither begin nor end", f"line {line}")
    unended = sorted(line for begins in opened.values() for _, line in begins)
    damage.add_lines("begins of stages without an end", np.array(unended, np.int64))


def read_host_timeline(path: Path, damage: LossLog) -> HostStages:
    """Read the trace that MindSpore derives from the table, with times in whole microseconds.

    Raises:
        SourceError: the file cannot be read, or holds no list of events.
    """
    document = read_json_value(path)
    if isinstance(document, dict):
        document = document.get("traceEvents")
    if not isinstance(document, list):
        raise SourceError(path, "holds no list of events.")
    stages = HostStages(path)
    events = [(at, event) for at, event in enumerate(document) if isinstance(event, dict)]
    drawn = [(at, event) for at, event in events if event.get("ph") in ("X", "i", "I")]
    start_ns = parse_times_ns([_text(event, "ts").encode() for _, event in drawn])
    length_ns = parse_times_ns([(_text(event, "dur") or "0").encode() for _, event in drawn])
    times = zip(start_ns.tolist(), length_ns.tolist(), strict=True)
    for (at, event), (start, length) in zip(drawn, times, strict=True):
        if start == NO_TIME or length < 0:
            damage.add("events without a valid time", f"event {at}")
            continue
        key = (_text(event, "tid"), _text(event, "pid"), _text(event, "cat"), _text(event, "name"))
        stages.rows.append((key, start, start + length))
    for at, event in enumerate(document):
        if not isinstance(event, dict):
            damage.add("entries that are not events", f"event {at}")
        elif event.get("ph") == "B":
            damage.add("begins of stages without an end", f"event {at}")
    return stages


def _text(event: dict[str, Any], name: str) -> str:
    value = event.get(name)
    return "" if value is None else str(value)


_NS_IN_MS = 1_000_000


def read_cpu_operators(path: Path, strings: StringPool, damage: LossLog) -> HostEvents:
    """Read one line per operator: name;kind;start,length,thread start,length,thread ...

    Starts are ns of the host's steady clock, lengths are ms, written from a float32.

    Raises:
        SourceError: the file cannot be read.
    """
    names: list[str] = []
    calls: list[int] = []
    line_of_run: list[int] = []
    cells: list[bytes] = []
    for lines in read_lines(path, damage):
        for at, line in enumerate(lines.numbers.tolist()):
            text = lines.text(at).rstrip()
            if not text.strip():
                continue
            name, *rest = text.rsplit(b";", 2)
            runs = [run.split(b",") for run in rest[-1].split()] if len(rest) == 2 else []
            whole = [run for run in runs if len(run) == 3]
            if damaged := len(runs) - len(whole) or int(not runs):
                damage.add("cut or wrong runs", f"line {line}", damaged)
            names.append(name.decode("utf-8", "replace").strip())
            calls.append(len(whole))
            line_of_run += [line] * len(whole)
            for run in whole:
                cells += run
    start_ns, good = whole_numbers(cells[0::3], int(NO_TIME))
    length_ms = np.array([_length(text) for text in cells[1::3]], np.float64)
    thread, _ = whole_numbers(cells[2::3], NO_ID)
    good &= np.isfinite(length_ms) & (length_ms >= 0) & (np.abs(length_ms) < 1e12)
    length_ns = np.rint(np.where(good, length_ms, 0) * _NS_IN_MS).astype(np.int64)
    count = len(start_ns)
    events = HostEvents.of(
        count,
        start_ns=start_ns,
        end_ns=start_ns + length_ns,
        layer=strings.code(CPU_LAYER),
        thread=thread,
        name=np.repeat(strings.codes(names), calls),
    ).take(good)
    damage.add_lines("runs without a valid time", np.array(line_of_run, np.int64)[~good])
    return events


def _length(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def with_mindspore_host(
    records: Records,
    operators: Rows,
    files: NumberedFiles,
    directories: tuple[Path, ...],
    clock: Clock,
    samples: Sequence[Samples],
    wanted: ReadRequest,
) -> Records:
    """Add the host events and counters of the wanted layers to records.

    Rows on a clock that cannot be related to the records are left out and counted. If the timeline
    of the capture holds CPU operators, they are moved to the clock of the records, and not read
    again from their file.

    Args:
        operators: the rows of CPU operators among the host events.
        directories: directories with files that may relate the clocks of the host.
        samples: samples of counters from other files.
    """
    lost = LostRows(records.rank)
    host_clock = read_host_clock(records, clock, directories, lost)
    reading = _Reading(records, files, host_clock, lost)
    if len(operators):
        records = _move_operators(records, operators, host_clock)
    if Layer.FRAMEWORK in wanted.layers:
        before = len(lost.omissions)
        reading.read_events(with_operators=not len(operators))
        lost.omissions[before:] = [
            replace(omission, layers=HOST_LAYERS) for omission in lost.omissions[before:]
        ]
    if Layer.COUNTERS in wanted.layers:
        reading.read_memory()
        for of_counter in samples:
            reading.add_samples(of_counter)
    return join_records([records, reading.records()])


def _move_operators(records: Records, rows: Rows, clock: HostClock) -> Records:
    """Move host events without wall time to the clock of the records."""
    start_ns, end_ns = records.host.start_ns.copy(), records.host.end_ns.copy()
    steady = rows[(start_ns[rows] != NO_TIME) & (start_ns[rows] < EARLIEST_WALL_NS)]
    shift_ns, is_known = clock.shift(start_ns[steady])
    steady, shift_ns = steady[is_known], shift_ns[is_known]
    start_ns[steady] += shift_ns
    end_ns[steady] += shift_ns
    return replace(records, host=replace(records.host, start_ns=start_ns, end_ns=end_ns))


@dataclass
class _Reading:
    """One pass over the host files of a rank."""

    capture: Records
    files: NumberedFiles
    clock: HostClock
    lost: LostRows
    events: list[HostEvents] = field(default_factory=list)
    counters: CounterBuilder = field(default_factory=CounterBuilder)
    _without_clock: Counter[str] = field(default_factory=Counter)
    """Number of rows on an unknown clock by file."""

    def records(self) -> Records:
        """Return the records that were read, with omissions and warnings."""
        strings, rank = self.capture.strings, self.capture.rank
        series, samples = self.counters.tables(strings)
        untimed = {
            f"rows of {name} on a clock that cannot be related to the records": rows
            for name, rows in self._without_clock.items()
        }
        warning = (
            f"rank {rank}: MindSpore's host times are on the host's steady clock and are drawn as "
            "if on its raw clock, as the offset between them is not recorded; they may be off by "
            "the sum of all corrections to the steady clock since the host started."
        )
        omissions = [
            replace(omission, layers=HOST_LAYERS | {Layer.COUNTERS})
            for omission in counted_losses(untimed, rank, OmissionCode.NO_CLOCK)
        ]
        return Records(
            rank,
            strings,
            host=HostEvents.concat(self.events),
            series=series,
            samples=samples,
            omissions=(*self.lost.omissions, *omissions),
            warnings=(warning,) * self.clock.drifted,
        )

    def _paths(self, *kinds: NumberedFile) -> Iterator[Path]:
        return (self.files[kind][0] for kind in kinds if kind in self.files)

    def read_events(self, *, with_operators: bool) -> None:
        """Read operators on the CPU and stages of the host."""
        strings = self.capture.strings
        for path in self._paths(NumberedFile.CPU_OPERATORS) if with_operators else ():
            with self.lost.reading(path) as damage:
                self._add_events(path, read_cpu_operators(path, strings, damage))
        if stages := self._stages:
            self._add_events(stages.path, stages.events(strings))
        for path in self._paths(NumberedFile.DATASET, NumberedFile.DATASET_OF_ANY):
            # Sums over operations of MindData have no times, and repeat the stages.
            with self.lost.reading(path) as damage:
                rows = sum(map(len, read_blocks(path, None, (), damage, RowShape.FULL)))
                reason = f"rows of {path.name}, which are sums without a time"
                self.lost.leave_out(reason, rows, OmissionCode.REPEATED, loss=False)

    def read_memory(self) -> None:
        """Read the memory of the host process."""
        stages = self._stages
        if stages is None or not len(stages.memory[0]):
            for path in self._paths(NumberedFile.HOST_MEMORY):
                stages = None
                with self.lost.reading(path) as damage:
                    stages = read_host_stages(path, damage, paired=False)
        if stages is not None:
            self.add_samples(Samples(stages.path, "Host Memory", "Resident", "B", *stages.memory))

    @cached_property
    def _stages(self) -> HostStages | None:
        """The stages, from the table if it can be read, else from the timeline derived from it."""
        for path in self._paths(NumberedFile.HOST_STAGES, NumberedFile.HOST_TIMELINE):
            is_table = path in self.files.get(NumberedFile.HOST_STAGES, ())
            with self.lost.reading(path) as damage:
                return (read_host_stages if is_table else read_host_timeline)(path, damage)
        return None

    def _add_events(self, path: Path, events: HostEvents) -> None:
        shift_ns, is_known = self.clock.shift(events.start_ns)
        self._without_clock[path.name] += int((~is_known).sum())
        start_ns, end_ns = events.start_ns + shift_ns, events.end_ns + shift_ns
        self.events.append(replace(events, start_ns=start_ns, end_ns=end_ns).take(is_known))

    def add_samples(self, samples: Samples) -> None:
        """Add samples of a counter after moving them to the clock of the records."""
        path, group, name, unit, time_ns, values = samples
        shift_ns, is_known = self.clock.shift(time_ns)
        self._without_clock[path.name] += int((~is_known).sum())
        self.counters.add(group, name, unit, (time_ns + shift_ns)[is_known], values[is_known])
