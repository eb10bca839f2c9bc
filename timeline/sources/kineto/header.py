"""The rank of a PyTorch trace and the zero of its times, from its first and last bytes."""

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
"""What stands before the events grows with the number of process groups."""
_DISTRIBUTED, _BASE = b"distributedInfo", b"baseTimeNanoseconds"
_OF_MSMONITOR, _BEGUN = b"metadata", "traceStartNs"
"""Where msMonitor (chrome_trace_exporter.py) has the wall time at which its times are zero."""
_RANKS = re.compile(rb'"(rank|world_size)"\s*:\s*(\d{1,9})\b')


@dataclass(frozen=True)
class KinetoHeader:
    """Facts of a trace beside its events.

    `rank` is None if it was not part of a distributed run; `base_ns` is the wall time at which
    its times are zero. world: the number of all ranks, None if it is not known. groups: the
    members of process groups, by name. damaged: the keys of values that are not valid JSON.
    """

    rank: int | None
    base_ns: int
    world: int | None = None
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()

    def of_other_rank(self) -> KinetoHeader:
        """Return what holds for the other ranks of a merged trace, such as groups of all ranks."""
        shared = {name: ranks for name, ranks in self.groups.items() if len(ranks) == self.world}
        return replace(self, rank=None, groups=shared)


def place_of(path: Path) -> tuple[int | None, int | None]:
    """Return the rank that a trace tells, and the number of all ranks.

    Raises:
        SourceError: the file cannot be read.
    """
    return _place_in(_distributed(_read_values(path, _DISTRIBUTED)[0]))


def read_header(path: Path) -> KinetoHeader:
    """Read what stands before the events and, where that is not all, behind them.

    Raises:
        SourceError: the file cannot be read.
    """
    values, damaged = _read_values(path, _DISTRIBUTED, _BASE)
    info, base = _distributed(values), values.get(_BASE.decode())
    if base is None and isinstance(own := values.get(_OF_MSMONITOR.decode()), dict):
        base = own.get(_BEGUN)
    rank, world = _place_in(info)
    base_ns = base if isinstance(base, int) else 0
    return KinetoHeader(rank, base_ns, world, _groups_in(info), damaged)


def _read_values(path: Path, *keys: bytes) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what stands beside the events, and the keys of values there that are not valid JSON.

    keys: what a capture on demand has behind its events. To look there takes unpacking all of a
    packed trace.
    """
    head = _head(path)
    # A bare list of events has no other values.
    if EVENTS in head and not head.keys() >= {*keys}:
        head = tail_values(path, (*keys, _OF_MSMONITOR)) | head
    return _decoded(head)


def _distributed(values: Mapping[str, Any]) -> Mapping[str, Any]:
    info = values.get(_DISTRIBUTED.decode())
    return info if isinstance(info, dict) else {}


def _place_in(info: Mapping[str, Any]) -> tuple[int | None, int | None]:
    rank = whole_number(info.get("rank"))
    return None if rank is None or rank < 0 else rank, whole_number(info.get("world_size"))


_PID = rb'"pid"\s*:\s*("[^"]*"|-?[0-9]+)'
_LAST_PID = re.compile(_PID)
_LABELLED = re.compile(
    rb'"pid"\s*:\s*"\[|"process_name"[^}]{0,200}?[Rr](?:ank|ANK)[ _-]?\d'
    rb'|"args"\s*:\s*\{(?:[^{}]{0,200}?,)?\s*"rank"\s*:'
)
"""What merged traces have: labels in pids, ranks in names of processes or among args."""
_ON_ONE_PROCESS = (
    re.compile(rb'"cat"\s*:\s*"[a-z0-9]+_(?:runtime|driver)"[^{}]*?' + _PID),
    re.compile(rb'"cat"\s*:\s*"kernel"[^{}]*?' + _PID),
    re.compile(rb'"(?:deviceId"\s*:\s*|name"\s*:\s*"Device )([0-9]+)'),
)
"""What has one pid in a trace of one rank: calls that launch, and kernels; and one device.

Devices are looked for as msMonitor names them.
"""
_OF_ONE_PROCESS = (re.compile(rb'"name"\s*:\s*"stream '), re.compile(rb'"labels"\s*:\s*"CPU"'))
"""The same of names that are given to a process behind its pid: of its streams, and of the host."""
_LONGEST_EVENT = 300
_ENDS_BYTES = 1 << 16
"""So many bytes at the beginning and at the end are looked at."""


def may_hold_several(path: Path, *, is_distributed: bool) -> bool:
    """Return whether the ends of a trace look like those of one that holds several ranks.

    The end of a large packed trace is looked at only where it does not say that it is of one rank:
    all of it would have to be unpacked.

    Raises:
        SourceError: the file cannot be read.
    """
    with open_profile_file(path, in_part=True) as file:
        text, is_plain = file.read(_ENDS_BYTES), file.seekable()
    if len(text) == _ENDS_BYTES and (is_plain or not is_distributed):
        text += last_bytes(path, _ENDS_BYTES)
    if _LABELLED.search(text):
        return True
    pids = [{match[1] for match in found.finditer(text)} for found in _ON_ONE_PROCESS]
    for named in _OF_ONE_PROCESS:
        befores = (
            text[max(0, match.start() - _LONGEST_EVENT) : match.start()]
            for match in named.finditer(text)
        )
        pids.append({found[-1] for before in befores if (found := _LAST_PID.findall(before))})
    return any(len(alike) > 1 for alike in pids)


def _head(path: Path) -> dict[bytes, bytes]:
    """Return the values before the events, by key; the events themselves are left out.

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
        "is no PyTorch trace: it has no list of events, or too much before it.",
        offset=0,
        do='Expected an object with "traceEvents", or a list of events.',
    )


def _decoded(head: Mapping[bytes, bytes]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the values beside the events by key, and the keys of those that are not valid JSON.

    Of what the run says of its ranks, what can be found is taken where it is not.
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
        found = _RANKS.findall(head[_DISTRIBUTED])
        values[name] = values | {key.decode(): int(number) for key, number in found}
    return values, tuple(damaged)


def _groups_in(info: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
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
    """Parts of a file name: `ranks` are all that it names, `taken` is YYYYmmddHHMMSSmmm."""

    ranks: tuple[int, ...]
    worker: str = ""
    taken: str = ""


def is_named_kineto(name: str) -> bool:
    """Return whether a file is named by torch.profiler.tensorboard_trace_handler."""
    return _NAMED.fullmatch(name) is not None


def read_name(name: str) -> KinetoName:
    """Return what the name of a trace tells.

    The handler's names are the worker, a point and the time in ms or, since 2.1, in ns.
    """
    ranks = ranks_in_file_name(name)
    handled = _NAMED.fullmatch(name)
    stamped = _STAMP.fullmatch(handled[1]) if handled else None
    if stamped is None:
        return KinetoName(ranks)
    return KinetoName(ranks, stamped[1], _taken(int(stamped[2][:13])))


def host_of(worker: str) -> str:
    """Return the host of a worker named HOST_PID by the handler; empty for other names."""
    found = _WORKER.fullmatch(worker)
    return found[1] if found else ""


def _taken(time_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return f"{moment:%Y%m%d%H%M%S}{time_ms % 1000:03d}"
