"""Exported files: their names, the newest of them, how to export, and kinds of JSON files."""

from __future__ import annotations

import contextlib
import enum
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from timeline.errors import SourceError
from timeline.ranges import FURTHEST_NS
from timeline.records.clock import EARLIEST_WALL_NS
from timeline.sources.capture import Capture
from timeline.sources.common.decimals import whole_number
from timeline.sources.decoders.json_values import end_of_value, leading_values
from timeline.sources.files.opened import (
    UTF8_MARK,
    files_by_name,
    last_bytes,
    open_profile_file,
    remember_by_directory,
    without_gz,
)
from timeline.sources.source import MINDSTUDIO_OUTPUT, PROF

OPERATOR_TABLE = re.compile(r"(?:kernel_details|op_summary|task_time)(?:_slice|_\d+)*\.csv")
"""Names of tables of operators and tasks."""
_FRAMEWORKS = {"_ascend_pt": "torch_npu", "_ascend_ms": "mindspore"}
"""Frameworks by the ending of the directories in which their profilers leave captures."""


def plain_name_of_table(name: str) -> str:
    """Remove words that somebody put before the name of a table of operators.

    Returns an empty string if the rest is not such a name, or nothing was put before it.

    >>> plain_name_of_table("b1q8_kernel_details.csv")
    'kernel_details.csv'
    """
    ends = (name[at:] for at in range(1, len(name)) if not name[at - 1].isalnum())
    return next((end for end in ends if OPERATOR_TABLE.fullmatch(without_gz(end))), "")


def has_file_named(directory: Path, names: re.Pattern[str]) -> bool:
    """Return whether a directory holds a file that matches a pattern, compressed or not.

    Raises:
        SourceError: the directory cannot be read.
    """
    return directory.is_dir() and any(map(names.fullmatch, files_by_name(directory)))


def find_device_table_directories(capture: Capture) -> tuple[Path, ...]:
    """Return where msprof writes the tables of a device whose content is in `device_N/*`."""
    return (capture.directory / MINDSTUDIO_OUTPUT, capture.content.parent / "summary")


def find_newest_export(output: Path, kind: str, suffix: str) -> tuple[Path, ...]:
    """List a directory and return the files of `select_newest_export`.

    Raises:
        SourceError: the directory cannot be read.
    """
    return select_newest_export(files_by_name(output), kind, suffix)


def select_newest_export(files: Mapping[str, Path], kind: str, suffix: str) -> tuple[Path, ...]:
    """Return the files of a kind from the newest export, since older ones stay in the directory.

    msprof stamps each file with the time of writing, so stamps differ within an export: the newest
    file of each name counts, as in msprof's `get_newest_file_list`. Names with and without an
    iteration are not mixed, since a file without one holds all iterations.

    Args:
        files: the files of a directory by plain name.
        kind: the beginning of the name, before ids, slice and stamp.
        suffix: the suffix without its point.
    """
    pattern = re.compile(
        rf"{kind}(?=_)((?:_\d+)*?)(?:_slice_(\d{{1,9}}))?(?:_(\d{{14}}))?\.{suffix}"
    )
    exports: dict[tuple[int, ...], _Slices] = {}
    newest = "", 0
    for name, path in files.items():
        if match := pattern.fullmatch(name):
            ids, number, stamp = match.groups("")
            slices = exports.setdefault(tuple(map(int, ids.split("_")[1:])), {})
            slices.setdefault(int(number or 0), []).append((stamp, path))
            newest = max(newest, (stamp, ids.count("_")))
    chosen = [slices for ids, slices in sorted(exports.items()) if len(ids) == newest[1]]
    return tuple(path for slices in chosen for path in _newest_slices(slices))


_Slices = dict[int, list[tuple[str, Path]]]
"""Files with their stamps, by the number of the slice; 0 if the file is not sliced."""


def _newest_slices(slices: _Slices) -> list[Path]:
    """Return the newest file of each slice, without slices that only older exports had.

    Every export has a first slice, so its files count the exports. Slices are written in any order:
    the newest export began at the oldest of the newest files of slices that every export has.
    """
    exports = len(slices[min(slices)])
    newest = {number: max(files) for number, files in sorted(slices.items())}
    began = min(newest[number][0] for number, files in slices.items() if len(files) >= exports)
    return [path for stamp, path in newest.values() if stamp >= began]


def raw_error(directory: Path) -> SourceError:
    """Return the error of a capture that holds only raw data, with the command for exporting."""
    return SourceError(directory, "holds raw profiling data only.", do=how_to_export(directory))


def how_to_export(directory: Path) -> str:
    """Return advice for exporting a capture that only msprof or the framework's profiler can read.

    directory: that of the session, or its parent, which holds the framework's own data.
    """
    for place in (directory, directory.parent):
        framework = _FRAMEWORKS.get(place.name[-len("_ascend_xx") :])
        if framework is not None:
            call = f"analyse({json.dumps(str(place))})"
            code = f"from {framework}.profiler.profiler import analyse; {call}"
            return f"Parse it first: python -c {shlex.quote(code)}"
    return f"Export it first: msprof --export=on --output={directory}"


@remember_by_directory
def find_sessions(directory: Path) -> tuple[Path, ...]:
    """Return the directories of sessions of msprof in a directory, by name.

    Raises:
        SourceError: the directory does not exist.
    """
    return tuple(sorted(directory.glob(f"{PROF}*")))


# -- JSON ------------------------------------------------------------------------------------------


GLANCE_BYTES = 1 << 16
"""The first bytes that are read of a JSON file: enough to recognise most."""
MOST_GLANCE_BYTES = 1 << 20
"""The most bytes that are read to find the events behind other values."""
TAIL_BYTES = 1 << 20
"""The last bytes of a trace that are searched for values after its events."""
_PYTORCH = frozenset({b"schemaVersion", b"deviceProperties", b"distributedInfo"})
_BASE = b"baseTimeNanoseconds"
_SHARED = frozenset({b"traceEvents", _BASE})
EVENTS, _NODES, _SCHEMA = b"traceEvents", b"nodes", b"schema"
_JSON = re.compile(r".+\.json(?:\.(?:gz|bz2|xz))?", re.DOTALL | re.IGNORECASE)
_TIME = re.compile(rb'"ts"\s*:\s*"?([1-9][0-9]{0,18})(?![0-9])')
_CATEGORY = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|user_annotation|python_function|cuda_runtime|cuda_driver|kernel'
    rb'|gpu_memcpy|gpu_memset|Operator|Runtime|Kernel|Memcpy|Memset|(?:Acl|Node|Runtime)API)"'
)
"""Categories of PyTorch's events, capitalised in the oldest versions, and of msMonitor's."""
_OF_ASCEND = re.compile(
    rb'"(?:Ascend Hardware|CANN|Overlap Analysis|HCCL|NPU|async_npu|async_mindspore|HostToDevice'
    rb'|Physic Stream Id)"'
)
"""Rows and arrows that only traces of NPUs have; their other categories are also PyTorch's."""
_NOT_OF_KINETO = re.compile(rb'"(?:ts"\s*:\s*"|cat"\s*:\s*"(?:en|de)queue")')
"""Times written as strings, and categories of torch_npu's queue: Kineto writes neither."""
_EVENT = re.compile(rb'"ph"\s*:\s*"')
_FIRST_EVENT = re.compile(rb'(?:"traceEvents"\s*:|\A(?:\xef\xbb\xbf)?)\s*\[\s*\{')
LIST_OF_OBJECTS = re.compile(rb"\s*\[\s*\{")


class JsonKind(enum.Enum):
    """A kind of JSON file; the value describes it in messages."""

    KINETO = "a PyTorch trace"
    EXECUTION_TRACE = "an execution trace (operators of PyTorch without times of a device)"
    NPU_TRACE = "a part of an msprof export, which is read only if it is passed as PATH itself"
    OPERATOR_TRACE = "a trace of one operator by msprof op, which MindStudio Insight opens"
    OTHER_TRACE = "a trace of another program"
    CUT_TRACE = "a trace that is cut in its first event"
    OWN_TIMELINE = "a timeline that tlexport wrote"
    NO_TRACE = "no trace"


def kind_of_json(path: Path) -> JsonKind:
    """Recognise the kind of a JSON file by its content, whatever its name and order of keys.

    A trace of PyTorch has two of the keys that PyTorch writes beside the events, one of which only
    PyTorch writes. Or its events have PyTorch's categories, and neither its beginning nor its end
    holds anything specific to NPUs: torch_npu writes rows and arrows of the NPU after the events
    that have PyTorch's categories.
    """
    try:
        text, values = read_beginning(path)
    except SourceError:
        return JsonKind.NO_TRACE  # the error is raised when the file itself is read
    if values.get(b"profilingType") == b'"op"':
        return JsonKind.OPERATOR_TRACE
    if _has_pytorch_keys(values):
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
    """Read a JSON file up to its events or, of an execution trace, its nodes.

    Args:
        most_bytes: where to stop if there are no events.
        until: the key at which to stop parsing, if it comes first.

    Returns:
        The bytes, and the values of the object in them by key; values that are cut off are empty.

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
    """Return whether a file name is that of JSON; other files in a directory are not opened."""
    return _JSON.fullmatch(name) is not None


def find_event_time_ns(path: Path) -> int | None:
    """Return the wall time of one of the first events of a trace, None if none is found.

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
    match = _TIME.search(text, max(events, 0))
    if match is None:
        return None
    base = whole_number(head_values(text).get(_BASE, b"0").decode("ascii", "replace"))
    time_ns = int(match[1]) * 1000 + (base or 0)
    return time_ns if EARLIEST_WALL_NS < time_ns <= FURTHEST_NS else None


def head_values(text: bytes, until: bytes = b"") -> dict[bytes, bytes]:
    """Return the values of a truncated JSON object by key; values that are cut off are empty.

    until: the key at which to stop; its value is not returned.
    """
    places = leading_values(text, first_key(text), until)
    return {key: text[first:end] if end else b"" for key, first, end in places}


def _has_pytorch_keys(values: dict[bytes, bytes]) -> bool:
    """Return whether an object has a key of PyTorch, and another one of PyTorch or any trace."""
    keys = _PYTORCH & values.keys()
    is_text = values.get(b"schemaVersion", b"1").startswith(b'"')
    return bool(keys) and len(keys | (_SHARED & values.keys())) > 1 and not is_text


def _kind_by_events(path: Path, text: bytes, *, in_object: bool) -> JsonKind:
    """Return the kind of a list of events by its first and last bytes."""
    has_category, has_event = _CATEGORY.search(text), _EVENT.search(text)
    if _OF_ASCEND.search(text) or (has_category and _NOT_OF_KINETO.search(text)):
        return JsonKind.NPU_TRACE
    if not (has_category or has_event or in_object):
        return JsonKind.NO_TRACE
    tail = _tail(path)
    if in_object and _has_pytorch_keys({EVENTS: b""} | _values_in(tail, tuple(_PYTORCH))):
        return JsonKind.KINETO
    if (has_category or has_event) and _OF_ASCEND.search(tail):
        return JsonKind.NPU_TRACE
    if has_category:
        return JsonKind.KINETO
    if len(text) < GLANCE_BYTES and _ends_in_first_event(text):
        return JsonKind.CUT_TRACE
    return JsonKind.OTHER_TRACE if has_event else JsonKind.NO_TRACE


def _ends_in_first_event(text: bytes) -> bool:
    """Return whether a trace ends within the first object of its list of events."""
    begin = _FIRST_EVENT.search(text)
    return begin is not None and end_of_value(text, begin.end() - 1) is None


def first_key(text: bytes) -> int:
    """Return the index after the brace that opens an object, the end if there is no object."""
    rest = text.removeprefix(UTF8_MARK).lstrip()
    return len(text) - len(rest) + 1 if rest.startswith(b"{") else len(text)


def tail_values(path: Path, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the values of keys that follow the events of a trace."""
    return _values_in(_tail(path), keys)


def _tail(path: Path) -> bytes:
    """Return the last bytes of a file, none if it is damaged: whoever reads it all reports that."""
    with contextlib.suppress(SourceError):
        return last_bytes(path, TAIL_BYTES)
    return b""


def _values_in(text: bytes, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the value at the last place of each key in a piece of JSON."""
    values = {}
    for key in keys:
        matches = list(re.finditer(rb'"%s"\s*:\s*(?=\S)' % key, text))
        end = end_of_value(text, matches[-1].end()) if matches else None
        if end is not None:
            values[key] = text[matches[-1].end() : end]
    return values
