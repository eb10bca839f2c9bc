"""Stages and CPU operators of the host, from the tables and texts of MindSpore."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from timeline.columns.columns import Float64, Int64
from timeline.columns.constant import constant
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import HostEvents, Omission
from timeline.sources.common.counters import SIZES
from timeline.sources.common.decimals import moments_ns, whole_numbers
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.file_kinds import CPU_LAYER
from timeline.sources.decoders.csv_blocks import RowShape, read_blocks
from timeline.sources.decoders.text_lines import read_lines
from timeline.sources.files.opened import read_whole_file

__all__ = ["LAYER", "HostStages", "read_cpu_operators", "read_host_stages", "read_host_timeline"]

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
