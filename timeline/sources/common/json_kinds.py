"""What kind of trace a JSON file is, as its first and last bytes tell."""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Sequence
from pathlib import Path

from timeline.errors import SourceError
from timeline.ranges import FURTHEST_NS
from timeline.records.clock import EARLIEST_WALL_NS
from timeline.sources.common.decimals import whole_number
from timeline.sources.decoders.json_values import end_of_value, leading_values
from timeline.sources.files.opened import UTF8_MARK, last_bytes, open_profile_file

GLANCE_BYTES = 1 << 16
"""So many bytes tell what most files are."""
MOST_GLANCE_BYTES = 1 << 20
"""Others add facts of their own in front of what tells."""
TAIL_BYTES = 1 << 20
_PYTORCH = frozenset({b"schemaVersion", b"deviceProperties", b"distributedInfo"})
_BASE = b"baseTimeNanoseconds"
_SHARED = frozenset({b"traceEvents", _BASE})
EVENTS, _NODES, _SCHEMA = b"traceEvents", b"nodes", b"schema"
_JSON = re.compile(r".+\.json(?:\.(?:gz|bz2|xz))?", re.DOTALL | re.IGNORECASE)
_MOMENT = re.compile(rb'"ts"\s*:\s*"?([1-9][0-9]{0,18})(?![0-9])')
_CATEGORY = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|user_annotation|python_function|cuda_runtime|cuda_driver|kernel'
    rb'|gpu_memcpy|gpu_memset|Operator|Runtime|Kernel|Memcpy|Memset|(?:Acl|Node|Runtime)API)"'
)
"""What PyTorch calls its events, the oldest versions with capitals, and msMonitor calls."""
_OF_ASCEND = re.compile(
    rb'"(?:Ascend Hardware|CANN|Overlap Analysis|HCCL|NPU|async_npu|async_mindspore|HostToDevice'
    rb'|Physic Stream Id)"'
)
"""Rows and arrows of traces of NPUs, whose other categories are those of PyTorch."""
_NOT_OF_KINETO = re.compile(rb'"(?:ts"\s*:\s*"|cat"\s*:\s*"(?:en|de)queue")')
"""Times that are strings, and the categories of torch_npu's queue: Kineto writes neither."""
_EVENT = re.compile(rb'"ph"\s*:\s*"')
_FIRST_EVENT = re.compile(rb'(?:"traceEvents"\s*:|\A(?:\xef\xbb\xbf)?)\s*\[\s*\{')
LIST_OF_OBJECTS = re.compile(rb"\s*\[\s*\{")


class JsonKind(enum.Enum):
    """What a JSON file is, as people call it."""

    KINETO = "a PyTorch trace"
    EXECUTION_TRACE = "an execution trace (operators of PyTorch without times of a device)"
    NPU_TRACE = "a part of what msprof exported, which is read when it is passed as PATH itself"
    OPERATOR_TRACE = "a trace of one operator by msprof op, which MindStudio Insight opens"
    OTHER_TRACE = "a trace of another program"
    CUT_TRACE = "a trace that is cut in its first event"
    OWN_TIMELINE = "a timeline that tlexport wrote"
    NO_TRACE = "no trace"


def kind_of_json(path: Path) -> JsonKind:
    """Return what a file is by what it holds, in whatever order and under whatever name.

    A trace of PyTorch has two of the keys that it writes beside its events, one of them its own;
    or its events have the categories of PyTorch, and neither its first nor its last bytes have
    anything that only traces of NPUs have: torch_npu writes the names of its rows, and the arrows
    to them, behind what it calls as PyTorch does.
    """
    try:
        text, values = read_beginning(path)
    except SourceError:
        return JsonKind.NO_TRACE  # whoever names the file gets the error when it is read
    if values.get(b"profilingType") == b'"op"':
        return JsonKind.OPERATOR_TRACE
    if _is_named_by_keys(values):
        return JsonKind.KINETO
    if b"io.tlexport" in values.get(b"otherData", b""):
        return JsonKind.OWN_TIMELINE
    if EVENTS in values or LIST_OF_OBJECTS.match(text.removeprefix(UTF8_MARK)):
        return _kind_by_events(path, text, in_object=EVENTS in values)
    if _NODES in values or values.get(_SCHEMA, b"").startswith(b'"'):
        return JsonKind.EXECUTION_TRACE if b"nodes" in text else JsonKind.NO_TRACE
    return JsonKind.NO_TRACE


def read_beginning(
    path: Path, most_bytes: int = MOST_GLANCE_BYTES, until: bytes = b""
) -> tuple[bytes, dict[bytes, bytes]]:
    """Read a file as far as its events, and the values of the object in it by key.

    Args:
        most_bytes: where to stop if no events come.
        until: as in `head_values`.

    Raises:
        SourceError: the file cannot be read.
    """
    with open_profile_file(path, in_part=True) as file:
        text = file.read(GLANCE_BYTES)
        values = head_values(text, until)
        while values and len(text) < most_bytes and not values.keys() & {EVENTS, _NODES}:
            more = file.read(len(text))
            if not more:
                break
            text += more
            values = head_values(text, until)
    return text, values


def has_json_name(name: str) -> bool:
    """Return whether a file in a directory is named as JSON: no other is looked into there."""
    return _JSON.fullmatch(name) is not None


def find_moment_ns(path: Path) -> int | None:
    """A wall time during the capture: that of one of its first events; None where none is told.

    Raises:
        SourceError: the file cannot be read.
    """
    with open_profile_file(path, in_part=True) as file:
        text = file.read(GLANCE_BYTES)
        events = text.find(b'"%s"' % EVENTS)
        if events < 0 and len(text) == GLANCE_BYTES:
            text += file.read(MOST_GLANCE_BYTES)
            events = text.find(b'"%s"' % EVENTS)
        text += file.read(GLANCE_BYTES)
    found = _MOMENT.search(text, max(events, 0))
    if found is None:
        return None
    base = whole_number(head_values(text).get(_BASE, b"0").decode("ascii", "replace"))
    moment_ns = int(found[1]) * 1000 + (base or 0)
    return moment_ns if EARLIEST_WALL_NS < moment_ns <= FURTHEST_NS else None


def head_values(text: bytes, until: bytes = b"") -> dict[bytes, bytes]:
    """The values of an object by key, as far as its text goes; those cut off are empty.

    until: the key that is the last, whose value is left out.
    """
    found = leading_values(text, first_key(text), until)
    return {key: text[first:end] if end else b"" for key, first, end in found}


def _is_named_by_keys(values: dict[bytes, bytes]) -> bool:
    keys = _PYTORCH & values.keys()
    is_text = values.get(b"schemaVersion", b"1").startswith(b'"')
    return bool(keys) and len(keys | (_SHARED & values.keys())) > 1 and not is_text


def _kind_by_events(path: Path, text: bytes, *, in_object: bool) -> JsonKind:
    has_category, has_event = _CATEGORY.search(text), _EVENT.search(text)
    if _OF_ASCEND.search(text) or (has_category and _NOT_OF_KINETO.search(text)):
        return JsonKind.NPU_TRACE
    if not (has_category or has_event or in_object):
        return JsonKind.NO_TRACE
    tail = _tail(path)
    if in_object and _is_named_by_keys({EVENTS: b""} | _values_in(tail, tuple(_PYTORCH))):
        return JsonKind.KINETO
    if (has_category or has_event) and _OF_ASCEND.search(tail):
        return JsonKind.NPU_TRACE
    if has_category:
        return JsonKind.KINETO
    if len(text) < GLANCE_BYTES and _ends_in_first_event(text):
        return JsonKind.CUT_TRACE
    return JsonKind.OTHER_TRACE if has_event else JsonKind.NO_TRACE


def _ends_in_first_event(text: bytes) -> bool:
    """Whether the whole text of a trace ends within the first object of its list of events."""
    begin = _FIRST_EVENT.search(text)
    return begin is not None and end_of_value(text, begin.end() - 1) is None


def first_key(text: bytes) -> int:
    """The place behind the brace that opens an object; the end of the text for anything else."""
    rest = text.removeprefix(UTF8_MARK).lstrip()
    return len(text) - len(rest) + 1 if rest.startswith(b"{") else len(text)


def tail_values(path: Path, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    """The values of keys of an object that stand behind its events."""
    return _values_in(_tail(path), keys)


def _tail(path: Path) -> bytes:
    """Return the last bytes of a file; none of what breaks off, which reading it reports."""
    with contextlib.suppress(SourceError):
        return last_bytes(path, TAIL_BYTES)
    return b""


def _values_in(text: bytes, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    values = {}
    for key in keys:
        found = list(re.finditer(rb'"%s"\s*:\s*(?=\S)' % key, text))
        end = end_of_value(text, found[-1].end()) if found else None
        if end is not None:
            values[key] = text[found[-1].end() : end]
    return values
