"""The rank of a PyTorch trace and the zero of its times, from its first and last bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import orjson

from timeline.errors import SourceError
from timeline.frozen import dataclass
from timeline.patterns import compile_late
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.identity import ranks_in_file_name
from timeline.sources.common.json_kinds import (
    EVENTS,
    GLANCE_BYTES,
    LIST_OF_OBJECTS,
    first_key,
    tail_values,
)
from timeline.sources.common.process_groups import ranks_in
from timeline.sources.decoders.json_values import leading_values
from timeline.sources.files.opened import UTF8_MARK, open_profile_file

__all__ = [
    "KinetoHeader",
    "KinetoName",
    "host_of",
    "is_named_kineto",
    "place_of",
    "read_header",
    "read_name",
]

MOST_HEAD_BYTES = 1 << 24
"""What stands before the events grows with the number of process groups."""
_DISTRIBUTED, _BASE = b"distributedInfo", b"baseTimeNanoseconds"
_RANKS = compile_late(rb'"(rank|world_size)"\s*:\s*(\d{1,9})\b')


@dataclass(frozen=True)
class KinetoHeader:
    """What a trace says beside its events.

    `rank` is None where it was not part of a distributed run; `base_ns` is the wall time at which
    its times are zero. world: the number of all ranks, None where it is not told. groups: the
    members of process groups, by name. damaged: the keys of values that are not valid JSON.
    """

    rank: int | None
    base_ns: int
    world: int | None = None
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()


def place_of(path: Path) -> tuple[int | None, int | None]:
    """The rank that a trace tells, and the number of all ranks.

    They stand before its events or, of a capture on demand, behind them.

    Raises:
        SourceError: the file cannot be read.
    """
    head = _head(path)
    if _DISTRIBUTED not in head and _is_object(head):
        head = tail_values(path, (_DISTRIBUTED,)) | head
    values, _ = _decoded(head)
    info = values.get(_DISTRIBUTED.decode())
    return _rank_in(info), _world_in(info)


def read_header(path: Path) -> KinetoHeader:
    """Read what stands before the events and, where that is not all, behind them.

    Raises:
        SourceError: the file cannot be read.
    """
    head = _head(path)
    if _is_object(head) and not head.keys() >= {_DISTRIBUTED, _BASE}:
        head = tail_values(path, (_DISTRIBUTED, _BASE)) | head
    values, damaged = _decoded(head)
    info, base = (values.get(key.decode()) for key in (_DISTRIBUTED, _BASE))
    base_ns = base if isinstance(base, int) else 0
    return KinetoHeader(_rank_in(info), base_ns, _world_in(info), _groups_in(info), damaged)


def _head(path: Path) -> dict[bytes, bytes]:
    """The values before the events, by key; the events themselves are cut off.

    Raises:
        SourceError: there are no events.
    """
    with open_profile_file(path, in_part=True) as file:
        text = file.read(GLANCE_BYTES)
        if not text:
            raise SourceError(
                path, "is empty.", offset=0, do="Check that the profiler had time to write it."
            )
        if LIST_OF_OBJECTS.match(text.removeprefix(UTF8_MARK)):
            return {}
        while True:
            values = {}
            for key, first, end in leading_values(text, first_key(text), EVENTS):
                values[key] = text[first : first + 1] if key == EVENTS else text[first:end]
                if key == EVENTS:
                    return values
            more = file.read(len(text)) if len(text) < MOST_HEAD_BYTES else b""
            if not more:
                break
            text += more
    raise SourceError(
        path,
        "is no PyTorch trace: it has no list of events, or too much before it.",
        offset=0,
        do='Expected an object with "traceEvents", or a list of events.',
    )


def _is_object(head: dict[bytes, bytes]) -> bool:
    """Whether something may stand behind the events: a bare list of events has no other values."""
    return EVENTS in head


def _decoded(head: Mapping[bytes, bytes]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values beside the events by key, and the keys of those that are not valid JSON.

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


def _rank_in(info: Any) -> int | None:
    rank = whole_number(info.get("rank")) if isinstance(info, dict) else None
    return None if rank is None or rank < 0 else rank


def _world_in(info: Any) -> int | None:
    return whole_number(info.get("world_size")) if isinstance(info, dict) else None


def _groups_in(info: Any) -> dict[str, tuple[int, ...]]:
    configured = info.get("pg_config") if isinstance(info, dict) else None
    return {
        str(group.get("pg_name")): ranks_in(group.get("ranks"))
        for group in (configured if isinstance(configured, list) else ())
        if isinstance(group, dict)
    }


_NAMED = compile_late(r"(.+)\.pt\.trace\.json(?:\.(?:gz|bz2|xz))?", re.DOTALL)
_STAMP = compile_late(r"(.+)\.(\d{13}|\d{19})", re.DOTALL)
_WORKER = compile_late(r"(?!rank|worker|node|gpu|local|trace)([a-z0-9.-]+)_\d{2,}", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class KinetoName:
    """What a file name tells: `ranks` are all that it names, `taken` is YYYYmmddHHMMSSmmm."""

    ranks: tuple[int, ...]
    worker: str = ""
    taken: str = ""


def is_named_kineto(name: str) -> bool:
    """Whether a file is named as torch.profiler.tensorboard_trace_handler names its files."""
    return _NAMED.fullmatch(name) is not None


def read_name(name: str) -> KinetoName:
    """What the name of a trace tells.

    The handler's names are the worker, a point and the time in ms or, since 2.1, in ns.
    """
    ranks = ranks_in_file_name(name)
    handled = _NAMED.fullmatch(name)
    stamped = _STAMP.fullmatch(handled[1]) if handled else None
    if stamped is None:
        return KinetoName(ranks)
    return KinetoName(ranks, stamped[1], _taken(int(stamped[2][:13])))


def host_of(worker: str) -> str:
    """The machine of a worker that is named by the handler, as HOST_PID; empty for other names."""
    found = _WORKER.fullmatch(worker)
    return found[1] if found else ""


def _taken(time_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return f"{moment:%Y%m%d%H%M%S}{time_ms % 1000:03d}"
