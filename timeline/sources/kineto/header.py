"""The rank of a PyTorch trace and the zero of its times, from its first and last bytes."""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import orjson

from timeline.errors import SourceError
from timeline.records.clock import EARLIEST_WALL_NS
from timeline.sources.common.decimals import whole_number
from timeline.sources.decoders.json_values import end_of_value, leading_values
from timeline.sources.files.opened import UTF8_MARK, last_bytes, opened

__all__ = [
    "JsonKind",
    "KinetoHeader",
    "KinetoName",
    "a_moment_ns",
    "host_of",
    "is_named_json",
    "is_named_kineto",
    "kind_of_json",
    "rank_of",
    "read_header",
    "read_name",
]

GLANCE_BYTES = 1 << 16
"""So many bytes tell what most files are."""
MOST_GLANCE_BYTES = 1 << 20
"""Others add facts of their own in front of what tells."""
MOST_HEAD_BYTES = 1 << 24
"""What stands before the events grows with the number of process groups."""
TAIL_BYTES = 1 << 20
_OWN = frozenset({b"schemaVersion", b"deviceProperties", b"distributedInfo"})
_SHARED = frozenset({b"traceEvents", b"baseTimeNanoseconds"})
_EVENTS, _DISTRIBUTED, _BASE = b"traceEvents", b"distributedInfo", b"baseTimeNanoseconds"
_NODES, _SCHEMA = b"nodes", b"schema"
_CATEGORY = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|user_annotation|python_function|cuda_runtime|cuda_driver|kernel'
    rb'|gpu_memcpy|gpu_memset|Operator|Runtime|Kernel|Memcpy|Memset)"'
)
"""What PyTorch calls its events, the oldest versions with capitals."""
_OF_ASCEND = re.compile(rb'"(?:Ascend Hardware|CANN|Overlap Analysis|HCCL|NPU|async_npu)"')
"""Rows and arrows of traces of NPUs, whose other categories are those of PyTorch."""
_EVENT = re.compile(rb'"ph"\s*:\s*"')
_LIST = re.compile(rb"\s*\[\s*\{")
_MOMENT = re.compile(rb'"ts"\s*:\s*"?([1-9][0-9]*)')


class JsonKind(enum.Enum):
    """What a JSON file is, as people call it."""

    KINETO = "a PyTorch trace"
    EXECUTION_TRACE = "an execution trace (operators of PyTorch without times of a device)"
    NPU_TRACE = "a trace of an NPU, which is read when it is passed as PATH itself"
    OTHER_TRACE = "a trace of another program"
    OWN_TIMELINE = "a timeline that tlexport wrote"
    NO_TRACE = "no trace"


@dataclass(frozen=True)
class KinetoHeader:
    """What a trace says beside its events.

    `rank` is None where it was not part of a distributed run; `base_ns` is the wall time at which
    its times are zero.
    """

    rank: int | None
    base_ns: int


def kind_of_json(path: Path) -> JsonKind:
    """What a file is by what it holds, in whatever order.

    A trace of PyTorch has two of the keys that it writes beside its events, one of them its own;
    or its events have the categories of PyTorch.
    """
    try:
        with opened(path) as file:
            text = file.read(GLANCE_BYTES)
            values = _values(text)
            while _is_open(values) and len(text) < MOST_GLANCE_BYTES:
                more = file.read(len(text))
                if not more:
                    break
                text += more
                values = _values(text)
    except SourceError:
        return JsonKind.NO_TRACE  # whoever names the file gets the error when it is read
    if _is_named_by_keys(values):
        return JsonKind.KINETO
    if b"io.tlexport" in values.get(b"otherData", b""):
        return JsonKind.OWN_TIMELINE
    if _EVENTS in values or _LIST.match(text.removeprefix(UTF8_MARK)):
        return _kind_by_events(path, text, in_object=_EVENTS in values)
    if _NODES in values or values.get(_SCHEMA, b"").startswith(b'"'):
        return JsonKind.EXECUTION_TRACE if b"nodes" in text else JsonKind.NO_TRACE
    return JsonKind.NO_TRACE


def _values(text: bytes) -> dict[bytes, bytes]:
    """The values of an object as far as its text goes; those that end behind it are empty."""
    found = leading_values(text, _first_key(text))
    return {key: text[first:end] if end else b"" for key, first, end in found}


def _is_open(values: dict[bytes, bytes]) -> bool:
    """Whether a value that may be large ends behind the text, before anything tells what it is."""
    last = next(reversed(values), None)
    return last not in (None, _EVENTS, _NODES) and not values[last or b""]


def _is_named_by_keys(values: dict[bytes, bytes]) -> bool:
    particular = _OWN & values.keys()
    is_text = values.get(b"schemaVersion", b"1").startswith(b'"')
    return bool(particular) and len(particular | (_SHARED & values.keys())) > 1 and not is_text


def _kind_by_events(path: Path, text: bytes, *, in_object: bool) -> JsonKind:
    if _OF_ASCEND.search(text):
        return JsonKind.NPU_TRACE
    if _CATEGORY.search(text):
        return JsonKind.KINETO
    if in_object and _is_named_by_keys({_EVENTS: b""} | _tail(path, tuple(_OWN))):
        return JsonKind.KINETO
    return JsonKind.OTHER_TRACE if _EVENT.search(text) else JsonKind.NO_TRACE


def rank_of(path: Path) -> int | None:
    """The rank that a trace tells, before its events or, of a capture on demand, behind them.

    Raises:
        SourceError: the file cannot be read, or what it says of its rank is no JSON.
    """
    head = _head(path)
    if _DISTRIBUTED not in head and _is_object(head):
        head = _tail(path, (_DISTRIBUTED,)) | head
    return _rank_in(_decoded(path, head.get(_DISTRIBUTED, b"{}")))


def read_header(path: Path) -> KinetoHeader:
    """Read what stands before the events and, where that is not all, behind them.

    Raises:
        SourceError: the file cannot be read, or what it says of its rank or time is no JSON.
    """
    head = _head(path)
    if _is_object(head) and not head.keys() >= {_DISTRIBUTED, _BASE}:
        head = _tail(path, (_DISTRIBUTED, _BASE)) | head
    info = _decoded(path, head.get(_DISTRIBUTED, b"{}"))
    base = _decoded(path, head.get(_BASE, b"0"))
    return KinetoHeader(_rank_in(info), base if isinstance(base, int) else 0)


def a_moment_ns(path: Path) -> int | None:
    """A wall time during the capture: that of one of its first events; None where none is told.

    Raises:
        SourceError: the file cannot be read.
    """
    with opened(path) as file:
        text = file.read(GLANCE_BYTES)
        events = text.find(b'"%s"' % _EVENTS)
        if events < 0 and len(text) == GLANCE_BYTES:
            text += file.read(MOST_GLANCE_BYTES)
            events = text.find(b'"%s"' % _EVENTS)
        text += file.read(GLANCE_BYTES)
    found = _MOMENT.search(text, max(events, 0))
    if found is None:
        return None
    base = whole_number(_values(text).get(_BASE, b"0").decode("ascii", "replace"))
    moment_ns = int(found[1]) * 1000 + (base or 0)
    return moment_ns if moment_ns > EARLIEST_WALL_NS else None


def _head(path: Path) -> dict[bytes, bytes]:
    """The values before the events, by key; the events themselves are cut off.

    Raises:
        SourceError: there are no events.
    """
    with opened(path) as file:
        text = file.read(GLANCE_BYTES)
        if _LIST.match(text.removeprefix(UTF8_MARK)):
            return {}
        while True:
            values = {}
            for key, first, end in leading_values(text, _first_key(text)):
                values[key] = text[first : first + 1] if key == _EVENTS else text[first:end]
                if key == _EVENTS:
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
    return _EVENTS in head


def _first_key(text: bytes) -> int:
    """The place behind the brace that opens an object; the end of the text for anything else."""
    held = text.removeprefix(UTF8_MARK).lstrip()
    return len(text) - len(held) + 1 if held.startswith(b"{") else len(text)


def _tail(path: Path, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    """The values of keys that stand behind the events."""
    text, values = b"", {}
    with contextlib.suppress(SourceError):  # what breaks off has no tail; reading it tells more
        text = last_bytes(path, TAIL_BYTES)
    for key in keys:
        found = list(re.finditer(rb'"%s"\s*:\s*(?=\S)' % key, text))
        end = end_of_value(text, found[-1].end()) if found else None
        if end is not None:
            values[key] = text[found[-1].end() : end]
    return values


def _decoded(path: Path, text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SourceError(
            path, f"is not valid JSON in what stands beside its events: {error.msg}."
        ) from error


def _rank_in(info: Any) -> int | None:
    rank = whole_number(info.get("rank")) if isinstance(info, dict) else None
    return None if rank is None or rank < 0 else rank


_NAMED = re.compile(r"(.+)\.pt\.trace\.json(?:\.gz)?", re.DOTALL)
_JSON = re.compile(r".+\.json(?:\.gz)?", re.DOTALL)
_STAMP = re.compile(r"(.+)\.(\d{13}|\d{19})", re.DOTALL)
_RANK = re.compile(r"(?<![a-z])(?<!local[-_])rank[-_]?(\d{1,9})(?!\d)", re.IGNORECASE)
_WORKER = re.compile(r"(?!rank|worker|node|gpu|local|trace)([a-z0-9.-]+)_\d{2,}", re.IGNORECASE)
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


def is_named_json(name: str) -> bool:
    """Whether a file may be a trace by its name."""
    return _JSON.fullmatch(name) is not None


def read_name(name: str) -> KinetoName:
    """What the name of a trace tells.

    The handler's names are the worker, a point and the time in ms or, since 2.1, in ns.
    """
    ranks = tuple(dict.fromkeys(int(found) for found in _RANK.findall(name)))
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
