"""Host events and counters that MindSpore 2 recorded beside a capture, on the clock of that."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson

from timeline.columns.columns import Bool, Float64, Int64, Rows
from timeline.columns.constant import constant
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.layers import HOST_LAYERS, Layer
from timeline.records.clock import EARLIEST_WALL_NS, Clock
from timeline.records.joining import join_records
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import HostEvents, Omission, OmissionCode, Records
from timeline.sources.beside.file_kinds import CPU_LAYER, find_cpu_operators
from timeline.sources.beside.minddata import (
    read_cpu_use,
    read_queue_sizes,
    read_queue_trace,
)
from timeline.sources.common.counters import SIZES, CounterBuilder
from timeline.sources.common.decimals import moments_ns, whole_number, whole_numbers
from timeline.sources.common.device_clock import read_start_info_offset_ns
from timeline.sources.common.losses import LossLog, counted_losses, unreadable_file
from timeline.sources.common.msprof_files import find_sessions
from timeline.sources.decoders.csv_blocks import RowShape, read_blocks
from timeline.sources.decoders.json_values import read_json
from timeline.sources.decoders.text_lines import read_lines
from timeline.sources.files.opened import read_whole_file
from timeline.sources.source import ReadRequest

MOST_DRIFT_NS = 3600 * 10**9
"""How far the steady and the raw clock of a host are apart at most: months of corrections."""


@dataclass
class HostClock:
    """What relates the steady clock of a host, its raw clock and wall time.

    wall: whether the records hold wall time; otherwise they are on the raw monotonic clock.
    steady_ns, raw_ns: what turns either clock into wall time, None where nothing tells. A raw
    clock is never corrected; a steady one is, so the two drift apart while a host runs. span_ns:
    the first and the last time of the records: a steady time that has to be taken for a raw one,
    and lies further than they can drift apart from those, is on no clock that is known.
    """

    wall: bool
    steady_ns: int | None
    raw_ns: int | None
    span_ns: tuple[int, int] | None = None
    drifted: bool = field(default=False, init=False)
    """Whether a steady time had to be taken for a raw one."""

    def shift(self, time_ns: Int64) -> tuple[Int64, Bool]:
        """What moves each time to the clock of the records, and whether that is known.

        A time is wall time if it is too large to count from the start of a host: versions of
        MindSpore write the same columns from either clock.
        """
        is_wall = time_ns >= EARLIEST_WALL_NS
        is_steady = ~is_wall & (time_ns != NO_TIME)
        from_wall, from_steady = self._from_wall(), self._from_steady()
        mixed = from_steady is not None and self._is_mixed()
        if mixed and self.span_ns is not None:
            moved_ns = time_ns + (from_steady or 0)
            far = (moved_ns < self.span_ns[0] - MOST_DRIFT_NS) | (
                moved_ns > self.span_ns[1] + MOST_DRIFT_NS
            )
        else:
            far = np.zeros(len(time_ns), np.bool_)
        self.drifted |= mixed and bool((is_steady & ~far).any())
        moved = np.where(is_wall, from_wall or 0, np.where(is_steady, from_steady or 0, 0))
        known = (
            ~(is_wall | is_steady)
            | (is_wall & (from_wall is not None))
            | (is_steady & (from_steady is not None) & ~far)
        )
        return moved.astype(np.int64), known

    def _is_mixed(self) -> bool:
        return self.steady_ns is None or (not self.wall and self.raw_ns is None)

    def _from_wall(self) -> int | None:
        if self.wall:
            return 0
        offset_ns = self.raw_ns if self.raw_ns is not None else self.steady_ns
        return None if offset_ns is None else -offset_ns

    def _from_steady(self) -> int | None:
        if self.wall:
            return self.steady_ns if self.steady_ns is not None else self.raw_ns
        if self.steady_ns is None or self.raw_ns is None:
            return 0
        return self.steady_ns - self.raw_ns


def read_host_clock(
    records: Records, clock: Clock, directories: tuple[Path, ...]
) -> tuple[HostClock, list[Omission]]:
    """What the capture's clock and the files around it tell; files that tell nothing are counted.

    directories: the capture's own first, then those around it, which it may share with other ranks.
    """
    omissions: list[Omission] = []
    steady_ns, raw_ns = None, clock.wall_offset_ns
    try:
        steady_ns = _steady_offset_ns(directories, records.rank)
        if raw_ns is None and directories:
            raw_ns = _raw_offset_ns(directories[0])
    except SourceError as error:
        omissions.append(unreadable_file(error, records.rank))
    span_ns = _span_ns(records)
    wall = span_ns is None or span_ns[0] >= EARLIEST_WALL_NS
    return HostClock(wall, steady_ns, raw_ns, span_ns), omissions


def _span_ns(records: Records) -> tuple[int, int] | None:
    """The first and the last start of what the device did; None where nothing is known of it."""
    for table in (records.tasks, records.ops, records.steps):
        known = table.start_ns[table.start_ns != NO_TIME]
        if len(known):
            return int(known.min()), int(known.max())
    return None


def _steady_offset_ns(directories: tuple[Path, ...], rank: int) -> int | None:
    """diff_time (us) of MindSpore 2.3 and 2.4: wall time less its steady clock."""
    for directory in directories:
        path = directory / f"profiler_info_{rank}.json"
        if path.is_file():
            offset_us = whole_number(read_json(path).get("diff_time"))
            offset_ns = None if offset_us is None else whole_number(offset_us * 1000)
            if offset_ns is not None and offset_ns >= EARLIEST_WALL_NS:
                return offset_ns
    return None


def _raw_offset_ns(capture: Path) -> int | None:
    """What start_info of msprof, inside a framework's capture, says of the raw clock."""
    paths = (path / "host" / "start_info" for path in find_sessions(capture))
    for path in (one for one in paths if one.exists()):
        offset_ns = read_start_info_offset_ns(path)
        if offset_ns is not None and offset_ns >= EARLIEST_WALL_NS:
            return offset_ns
    return None


LAYER = "Host Info"
_BEGIN, _END, _MOMENT = "0", "1", "2"
_TIME, _MEMORY = "time_stamp(us)", "memory_usage(kB)"
_WORDS = ("tid", "pid", "module_name", "event", "stage", "start_end")
_Key = tuple[str, str, str, str]
"""Thread, process, module and name of a stage."""


@dataclass
class HostStages:
    """Stages with a start and an end, and samples of the memory of the process."""

    path: Path
    rank: int
    keys: list[_Key] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)
    ends_ns: list[int] = field(default_factory=list)
    memory: tuple[Int64, Float64] = field(
        default_factory=lambda: (np.empty(0, np.int64), np.empty(0, np.float64))
    )
    """Times in ns and sizes in bytes."""
    damage: LossLog = field(init=False)

    def __post_init__(self) -> None:
        self.damage = LossLog(self.path)

    @property
    def omissions(self) -> tuple[Omission, ...]:
        """What of the file is not drawn."""
        return self.damage.omissions(self.rank)

    def add(self, key: _Key, start_ns: int, end_ns: int) -> None:
        """Take one stage."""
        self.keys.append(key)
        self.starts_ns.append(start_ns)
        self.ends_ns.append(end_ns)

    def events(self, strings: StringPool) -> HostEvents:
        """The stages as host events: their level is the module."""
        count = len(self.keys)
        threads, processes, modules, names = zip(*self.keys, strict=True) if count else [()] * 4
        return HostEvents.of(
            count,
            {
                "start_ns": self.starts_ns,
                "end_ns": self.ends_ns,
                "layer": constant(strings.code(LAYER), count, np.int32),
                "process": _ids(processes),
                "thread": _ids(threads),
                "name": strings.codes(names),
                "level": strings.codes(modules),
            },
        )


def _ids(texts: Sequence[str]) -> Int64:
    ids, _ = whole_numbers([text.encode() for text in texts], NO_ID)
    return ids


def read_host_stages(path: Path, rank: int, *, paired: bool = True) -> HostStages:
    """Read one row per begin, end or moment of a stage, in the order in which they were written.

    paired: whether stages are wanted, not only samples of memory.

    Raises:
        SourceError: the file cannot be read, or has no times.
    """
    found = HostStages(path, rank)
    times: list[Int64] = []
    lines: list[Int64] = []
    sizes: list[Float64] = []
    words: dict[str, list[str]] = defaultdict(list)
    for block in read_blocks(path, None, (_TIME,), found.damage, RowShape.FULL):
        lines.append(block.lines)
        times.append(moments_ns(block.cells(_TIME)))
        sizes.append(block.reals(_MEMORY)[0] * SIZES["kB"])
        for name in _WORDS:
            words[name] += block.texts(name)
    if times:
        time_ns, size_bytes = np.concatenate(times), np.concatenate(sizes)
        line = np.concatenate(lines)
        _sample(found, time_ns, size_bytes, line)
        if paired:
            _pair(found, time_ns, words, line)
    return found


def _sample(found: HostStages, time_ns: Int64, size_bytes: Float64, lines: Int64) -> None:
    """Samples of memory: a row that was not sampled holds zero, and so does one without a time."""
    sampled = size_bytes > 0
    timed = time_ns > 0
    found.memory = time_ns[sampled & timed], size_bytes[sampled & timed]
    found.damage.add_lines("samples of memory without a time", lines[sampled & ~timed])


def _pair(found: HostStages, time_ns: Int64, words: dict[str, list[str]], lines: Int64) -> None:
    """Join each end to the last open begin of its stage on its thread."""
    opened: dict[_Key, list[tuple[int, int]]] = defaultdict(list)
    rows = zip(time_ns.tolist(), _keys(words), words["start_end"], lines.tolist(), strict=True)
    for time, key, kind, line in rows:
        if time == NO_TIME:
            found.damage.add("rows without a valid time", f"line {line}")
        elif time <= 0:
            continue  # only memory was recorded
        elif kind == _BEGIN:
            opened[key].append((time, line))
        elif kind == _MOMENT:
            found.add(key, time, time)
        elif kind == _END and opened[key]:
            found.add(key, opened[key].pop()[0], time)
        elif kind == _END:
            found.damage.add("ends of stages without a begin", f"line {line}")
        elif kind:
            found.damage.add("rows that neither begin nor end", f"line {line}")
    left = sorted(line for begins in opened.values() for _, line in begins)
    found.damage.add_lines("begins of stages without an end", np.array(left, np.int64))


def _keys(words: dict[str, list[str]]) -> Iterator[_Key]:
    columns = (words[name] for name in ("tid", "pid", "module_name", "event", "stage"))
    for thread, process, module, event, stage in zip(*columns, strict=True):
        yield thread, process, module, f"{event}::{stage}" if stage else event


def read_host_timeline(path: Path, rank: int) -> HostStages:
    """Read the trace that MindSpore makes of the table; times are whole microseconds.

    Raises:
        SourceError: the file cannot be read, or holds no list of events.
    """
    try:
        document = orjson.loads(read_whole_file(path))
    except orjson.JSONDecodeError as error:
        raise SourceError(path, f"is not valid JSON: {error.msg}.", offset=error.pos) from error
    if isinstance(document, dict):
        document = document.get("traceEvents")
    if not isinstance(document, list):
        raise SourceError(path, "holds no list of events.")
    found = HostStages(path, rank)
    events = [(at, event) for at, event in enumerate(document) if isinstance(event, dict)]
    drawn = [(at, event) for at, event in events if event.get("ph") in ("X", "i", "I")]
    start_ns = moments_ns([_text(event, "ts").encode() for _, event in drawn])
    length_ns = moments_ns([(_text(event, "dur") or "0").encode() for _, event in drawn])
    times = zip(start_ns.tolist(), length_ns.tolist(), strict=True)
    for (at, event), (start, length) in zip(drawn, times, strict=True):
        if start == NO_TIME or length < 0:
            found.damage.add("events without a valid time", f"event {at}")
            continue
        key = (_text(event, "tid"), _text(event, "pid"), _text(event, "cat"), _text(event, "name"))
        found.add(key, start, start + length)
    for at, event in events:
        if event.get("ph") == "B":
            found.damage.add("begins of stages without an end", f"event {at}")
    for at, event in enumerate(document):
        if not isinstance(event, dict):
            found.damage.add("entries that are no events", f"event {at}")
    return found


def _text(event: dict[str, Any], name: str) -> str:
    value = event.get(name)
    return "" if value is None else str(value)


_NS_IN_MS = 1_000_000


def read_cpu_operators(
    path: Path, strings: StringPool, rank: int
) -> tuple[HostEvents, list[Omission]]:
    """Read one line per operator: name;kind;start,length,thread start,length,thread ...

    Starts are ns of the host's steady clock, lengths ms. A length is written from a float32, so
    its end is exact to the digits that are there.

    Raises:
        SourceError: the file cannot be read.
    """
    names: list[str] = []
    calls: list[int] = []
    lines_of: list[int] = []
    cells: list[bytes] = []
    damage = LossLog(path)
    for lines in read_lines(path, damage):
        for at, line in enumerate(lines.numbers.tolist()):
            text = lines.text(at).rstrip()
            if not text.strip():
                continue
            name, *rest = text.rsplit(b";", 2)
            runs = [run.split(b",") for run in rest[-1].split()] if len(rest) == 2 else []
            whole = [run for run in runs if len(run) == 3]
            if lost := len(runs) - len(whole) or int(not runs):
                damage.add("cut or wrong runs", f"line {line}", lost)
            names.append(name.decode("utf-8", "replace").strip())
            calls.append(len(whole))
            lines_of += [line] * len(whole)
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
        {
            "start_ns": start_ns,
            "end_ns": start_ns + length_ns,
            "layer": constant(strings.code(CPU_LAYER), count, np.int32),
            "thread": thread,
            "name": np.repeat(strings.codes(names), calls),
        },
    ).take(good)
    damage.add_lines("runs without a valid time", np.array(lines_of, np.int64)[~good])
    return events, list(damage.omissions(rank))


def _length(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


_Found = TypeVar("_Found")


def with_mindspore_host(
    records: Records,
    files: Mapping[str, Path],
    directories: tuple[Path, ...],
    clock: Clock,
    wanted: ReadRequest,
) -> Records:
    """Records with the host events and counters of the layers that are wanted.

    Rows on a clock that nothing relates to the records are left out and counted. Operators that
    the capture's own timeline has are moved to that clock, and not read again.

    Args:
        files: those of `host_files`.
        directories: where they, and what tells of the clocks of the host, may lie.
    """
    operators = find_cpu_operators(records)
    clock_of_host, omissions = read_host_clock(records, clock, directories)
    reading = _Reading(records, files, clock_of_host, omissions=omissions)
    if len(operators):
        records = _move_operators(records, operators, clock_of_host)
    if Layer.FRAMEWORK in wanted.layers:
        before = len(reading.omissions)
        reading.read_events(with_operators=not len(operators))
        reading.omissions[before:] = [
            replace(omission, layers=HOST_LAYERS) for omission in reading.omissions[before:]
        ]
    if Layer.COUNTERS in wanted.layers:
        reading.read_counters()
    return join_records([records, reading.records()])


def _move_operators(records: Records, rows: Rows, clock: HostClock) -> Records:
    """Operators that are on the steady clock of the host, on that of the records where known."""
    start_ns, end_ns = records.host.start_ns.copy(), records.host.end_ns.copy()
    steady = rows[(start_ns[rows] != NO_TIME) & (start_ns[rows] < EARLIEST_WALL_NS)]
    shift_ns, known = clock.shift(start_ns[steady])
    steady, shift_ns = steady[known], shift_ns[known]
    start_ns[steady] += shift_ns
    end_ns[steady] += shift_ns
    return replace(records, host=replace(records.host, start_ns=start_ns, end_ns=end_ns))


@dataclass
class _Reading:
    """One pass over the host files of a rank."""

    capture: Records
    files: Mapping[str, Path]
    clock: HostClock
    events: list[HostEvents] = field(default_factory=list)
    counters: CounterBuilder = field(default_factory=CounterBuilder)
    omissions: list[Omission] = field(default_factory=list)
    _stages: HostStages | None = None
    _tried: bool = False
    _without_clock: Counter[str] = field(default_factory=Counter)
    """Rows on a clock that nothing relates to the records, by file."""

    def records(self) -> Records:
        """All that was read."""
        strings, rank = self.capture.strings, self.capture.rank
        series, samples = self.counters.tables(strings)
        lost = {
            f"rows of {name} on a clock that nothing relates to the records": rows
            for name, rows in self._without_clock.items()
        }
        warnings: tuple[str, ...] = ()
        if self.clock.drifted:
            warnings = (
                f"rank {rank}: what MindSpore timed by the host's steady clock is placed as if by "
                "its raw clock; it is off by as much as the host's time was corrected since it "
                "started.",
            )
        return Records(
            rank,
            strings,
            host=HostEvents.concat(self.events),
            series=series,
            samples=samples,
            omissions=(
                *self.omissions,
                *(
                    replace(omission, layers=HOST_LAYERS | {Layer.COUNTERS})
                    for omission in counted_losses(lost, rank, OmissionCode.NO_CLOCK)
                ),
            ),
            warnings=warnings,
        )

    def read_events(self, *, with_operators: bool) -> None:
        """Operators on the CPU and stages of the host."""
        rank, strings = self.capture.rank, self.capture.strings
        path = self.files.get("cpu_op_execute_timestamp_{}.txt")
        if path and with_operators:
            self._read_events_of(path, partial(read_cpu_operators, path, strings, rank))
        if stages := self._host_stages():
            self._add_events(stages.path, stages.events(strings))
        for name in ("dataset_{}.csv", "dataset.csv"):
            if path := self.files.get(name):
                self._add_losses(partial(_count_untimed_rows, path, rank))

    def read_counters(self) -> None:
        """Memory of the host process, and the queues and processors of MindData."""
        stages = self._host_stages()
        memory = None if stages is None else stages.memory
        path = self.files.get("host_memory_{}.csv")
        if path and (memory is None or not len(memory[0])):
            stages = self._try(partial(read_host_stages, path, self.capture.rank, paired=False))
            self.omissions += stages.omissions if stages else ()
            memory = stages.memory if stages else None
        if stages is not None and memory is not None:
            times_ns, sizes_bytes = memory
            self._add_samples(stages.path, "Host Memory", "Resident", "B", times_ns, sizes_bytes)
        rank = self.capture.rank
        for name, read in (
            ("minddata_cpu_utilization_{}.json", read_cpu_use),
            ("device_queue_profiling_{}.txt", read_queue_trace),
            ("dataset_iterator_profiling_{}.txt", read_queue_trace),
        ):
            if path := self.files.get(name):
                self._add_losses(partial(read, path, rank, partial(self._add_samples, path)))
        if path := self.files.get("pipeline_profiling_{}.json"):
            times = self.files.get("minddata_cpu_utilization_{}.json")
            self._add_losses(
                partial(read_queue_sizes, path, times, rank, partial(self._add_samples, path))
            )

    def _host_stages(self) -> HostStages | None:
        """The stages, from the table if it is there, else from the timeline made of it."""
        if not self._tried:
            self._tried, rank = True, self.capture.rank
            if path := self.files.get("host_info_{}.csv"):
                self._stages = self._try(partial(read_host_stages, path, rank))
            elif path := self.files.get("timeline_{}.json"):
                self._stages = self._try(partial(read_host_timeline, path, rank))
            self.omissions += self._stages.omissions if self._stages else ()
        return self._stages

    def _read_events_of(
        self, path: Path, read: Callable[[], tuple[HostEvents, list[Omission]]]
    ) -> None:
        if found := self._try(read):
            events, omissions = found
            self.omissions += omissions
            self._add_events(path, events)

    def _add_events(self, path: Path, events: HostEvents) -> None:
        shift_ns, known = self.clock.shift(events.start_ns)
        self._without_clock[path.name] += int((~known).sum())
        moved = replace(
            events, start_ns=events.start_ns + shift_ns, end_ns=events.end_ns + shift_ns
        )
        self.events.append(moved.take(known))

    def _add_samples(
        self, path: Path, group: str, name: str, unit: str, time_ns: Int64, values: Float64
    ) -> None:
        shift_ns, known = self.clock.shift(time_ns)
        self._without_clock[path.name] += int((~known).sum())
        self.counters.add(group, name, unit, (time_ns + shift_ns)[known], values[known])

    def _add_losses(self, read: Callable[[], list[Omission]]) -> None:
        self.omissions += self._try(read) or []

    def _try(self, read: Callable[[], _Found]) -> _Found | None:
        """What a file holds; one that cannot be read at all is counted instead."""
        try:
            return read()
        except SourceError as error:
            self.omissions.append(unreadable_file(error, self.capture.rank))
            return None


def _count_untimed_rows(path: Path, rank: int) -> list[Omission]:
    """dataset.csv sums up operations of MindData: it has no times, and repeats the stages."""
    damage = LossLog(path)
    count = sum(len(block) for block in read_blocks(path, None, (), damage, RowShape.FULL))
    reason = f"rows of {path.name}, which are sums without a time"
    return [
        *damage.omissions(rank),
        *counted_losses({reason: count}, rank, OmissionCode.REPEATED, loss=False),
    ]
