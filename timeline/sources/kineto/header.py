"""Metadata of a PyTorch trace, from before and after its events, and from its file name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import orjson

from timeline.errors import SourceError
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.export_files import (
    EVENTS,
    LIST_OF_OBJECTS,
    read_beginning,
    tail_values,
)
from timeline.sources.common.identity import ranks_in, ranks_in_file_name
from timeline.sources.files.opened import UTF8_MARK, last_bytes, open_profile_file

MOST_HEAD_BYTES = 1 << 24
"""Most bytes of metadata before the events; they grow with the number of process groups."""
_DISTRIBUTED, _BASE = b"distributedInfo", b"baseTimeNanoseconds"
_MSMONITOR, _MSMONITOR_BASE = b"metadata", "traceStartNs"
"""Keys of the wall time of zero in traces of msMonitor (chrome_trace_exporter.py)."""
_RANKS = re.compile(rb'"(rank|world_size)"\s*:\s*(\d{1,9})\b')


@dataclass(frozen=True)
class KinetoHeader:
    """Metadata of a trace.

    rank: None if the run was not distributed. base_ns: wall time of the trace's time zero. world:
    the number of all ranks, None if unknown. groups: members of process groups by name. damaged:
    keys of values that are not valid JSON.
    """

    rank: int | None
    base_ns: int
    world: int | None = None
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()

    def of_other_rank(self) -> KinetoHeader:
        """Return the header for other ranks of a merged trace: only groups of all ranks remain."""
        shared = {name: ranks for name, ranks in self.groups.items() if len(ranks) == self.world}
        return replace(self, rank=None, groups=shared)


def read_rank(path: Path) -> tuple[int | None, int | None]:
    """Read the rank of a trace and the number of all ranks from its metadata, None if missing.

    Raises:
        SourceError: the file cannot be read.
    """
    return _parse_rank(_find_distributed(_read_values(path, _DISTRIBUTED)[0]))


def read_header(path: Path) -> KinetoHeader:
    """Read metadata from before the events of a trace and, if keys are missing, from after them.

    Raises:
        SourceError: the file cannot be read.
    """
    values, damaged = _read_values(path, _DISTRIBUTED, _BASE)
    info, base = _find_distributed(values), values.get(_BASE.decode())
    if base is None and isinstance(metadata := values.get(_MSMONITOR.decode()), dict):
        base = metadata.get(_MSMONITOR_BASE)
    rank, world = _parse_rank(info)
    base_ns = base if isinstance(base, int) else 0
    return KinetoHeader(rank, base_ns, world, _parse_groups(info), damaged)


def _read_values(path: Path, *keys: bytes) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return metadata by key, and the keys of values that are not valid JSON.

    keys: the keys that are needed. If one is not before the events it is looked for after them,
    where captures on demand write it; in a compressed trace all events are decompressed for that.
    """
    head = _read_head(path)
    # A bare list of events has no metadata.
    if EVENTS in head and not head.keys() >= {*keys}:
        head = tail_values(path, (*keys, _MSMONITOR)) | head
    return _decode(head)


def _find_distributed(values: Mapping[str, Any]) -> Mapping[str, Any]:
    info = values.get(_DISTRIBUTED.decode())
    return info if isinstance(info, dict) else {}


def _parse_rank(info: Mapping[str, Any]) -> tuple[int | None, int | None]:
    rank = whole_number(info.get("rank"))
    return None if rank is None or rank < 0 else rank, whole_number(info.get("world_size"))


_PID = rb'"pid"\s*:\s*("[^"]*"|-?[0-9]+)'
_ANY_PID = re.compile(_PID)
_LABELLED = re.compile(
    rb'"pid"\s*:\s*"\[|"process_name"[^}]{0,200}?[Rr](?:ank|ANK)[ _-]?\d'
    rb'|"args"\s*:\s*\{(?:[^{}]{0,200}?,)?\s*"rank"\s*:'
)
"""Marks of a merged trace: labels in pids, ranks in names of processes or among args."""
_ONE_PER_RANK = (
    re.compile(rb'"cat"\s*:\s*"[a-z0-9]+_(?:runtime|driver)"[^{}]*?' + _PID),
    re.compile(rb'"cat"\s*:\s*"kernel"[^{}]*?' + _PID),
    re.compile(rb'"(?:deviceId"\s*:\s*|name"\s*:\s*"Device )([0-9]+)'),
)
"""Patterns with a single value in a trace of one rank: the pid of runtime calls, the pid of
kernels, and the device as msMonitor writes it."""
_AFTER_PID = (re.compile(rb'"name"\s*:\s*"stream '), re.compile(rb'"labels"\s*:\s*"CPU"'))
"""Patterns that follow a pid, which has a single value each in a trace of one rank: names of
streams, and the label of the host."""
_LONGEST_EVENT = 300
"""Most bytes between such a pattern and the pid before it."""
_ENDS_BYTES = 1 << 16
"""Number of bytes that are searched at the beginning and at the end of a trace."""


def may_hold_several(path: Path, *, is_distributed: bool) -> bool:
    """Return whether the first and last bytes of a trace hint at several ranks.

    The end of a large compressed trace is searched only if its metadata names no rank, because all
    of the trace must be decompressed for that.

    Args:
        path: the trace.
        is_distributed: whether its metadata names a rank.

    Raises:
        SourceError: the file cannot be read.
    """
    with open_profile_file(path, in_part=True) as file:
        text, is_plain = file.read(_ENDS_BYTES), file.seekable()
    if len(text) == _ENDS_BYTES and (is_plain or not is_distributed):
        text += last_bytes(path, _ENDS_BYTES)
    if _LABELLED.search(text):
        return True
    values = [{match[1] for match in pattern.finditer(text)} for pattern in _ONE_PER_RANK]
    for pattern in _AFTER_PID:
        prefixes = (
            text[max(0, match.start() - _LONGEST_EVENT) : match.start()]
            for match in pattern.finditer(text)
        )
        values.append({pids[-1] for prefix in prefixes if (pids := _ANY_PID.findall(prefix))})
    return any(len(distinct) > 1 for distinct in values)


def _read_head(path: Path) -> dict[bytes, bytes]:
    """Return the undecoded values before the events by key, and an entry that marks the events.

    Raises:
        SourceError: there are no events.
    """
    text, values = read_beginning(path, MOST_HEAD_BYTES, EVENTS)
    if not text:
        raise SourceError(path, "is empty.", do="Check that the profiler had time to write it.")
    if EVENTS in values:
        return values
    if LIST_OF_OBJECTS.match(text.removeprefix(UTF8_MARK)):
        return {}
    raise SourceError(
        path,
        "is not a PyTorch trace: it has no list of events, or too much before it.",
        offset=0,
        do='Expected an object with "traceEvents", or a list of events.',
    )


def _decode(head: Mapping[bytes, bytes]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Decode metadata, and return the keys of values that are not valid JSON.

    From a damaged distributedInfo, rank and number of ranks are read if they can be found.
    """
    values, damaged = {}, []
    for key, text in head.items():
        name = key.decode("utf-8", "replace")
        try:
            if key != EVENTS:
                values[name] = orjson.loads(text)
        except orjson.JSONDecodeError:
            damaged.append(name)
    if (name := _DISTRIBUTED.decode()) in damaged:
        numbers = _RANKS.findall(head[_DISTRIBUTED])
        values[name] = values | {key.decode(): int(number) for key, number in numbers}
    return values, tuple(damaged)


def _parse_groups(info: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    groups = info.get("pg_config")
    return {
        str(group.get("pg_name")): ranks_in(group.get("ranks"))
        for group in (groups if isinstance(groups, list) else ())
        if isinstance(group, dict)
    }


_NAMED = re.compile(r"(.+)\.pt\.trace\.json(?:\.(?:gz|bz2|xz))?", re.DOTALL)
_STAMP = re.compile(r"(.+)\.(\d{13}|\d{19})", re.DOTALL)
_WORKER = re.compile(r"(?!rank|worker|node|gpu|local|trace)([a-z0-9.-]+)_\d{2,}", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class KinetoName:
    """Parts of a file name: all ranks that it names, the worker, and the time (`taken`) in UTC.

    `taken` has the form YYYYmmddHHMMSSmmm.
    """

    ranks: tuple[int, ...]
    worker: str = ""
    taken: str = ""


def is_named_kineto(name: str) -> bool:
    """Return whether a file name is one of torch.profiler.tensorboard_trace_handler."""
    return _NAMED.fullmatch(name) is not None


def read_name(name: str) -> KinetoName:
    """Parse the file name of a trace.

    PyTorch's trace handler names a file by worker, a dot, and the time in ms or, since 2.1, in ns.
    """
    ranks = ranks_in_file_name(name)
    handler_name = _NAMED.fullmatch(name)
    stamp = _STAMP.fullmatch(handler_name[1]) if handler_name else None
    if stamp is None:
        return KinetoName(ranks)
    time_ms = int(stamp[2][:13])
    time = _EPOCH + timedelta(milliseconds=time_ms)
    return KinetoName(ranks, stamp[1], f"{time:%Y%m%d%H%M%S}{time_ms % 1000:03d}")


def host_of(worker: str) -> str:
    """Return HOST from a worker named HOST_PID by PyTorch's trace handler, else an empty string."""
    match = _WORKER.fullmatch(worker)
    return match[1] if match else ""
