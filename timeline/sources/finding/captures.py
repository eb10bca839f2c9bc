"""Turns a directory tree into the captures that lie in it, each with its layout."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from timeline.errors import NoProfileError, SourceError, did_you_mean
from timeline.sources.cann_raw.slices import slices_in
from timeline.sources.files.opened import (
    held_file,
    named_files,
    plain_database,
    plain_name,
    readable,
)
from timeline.sources.kineto.header import JsonKind, is_named_json, is_named_kineto, kind_of_json
from timeline.sources.source import MINDSTUDIO_OUTPUT, OUTPUT, SQLITE, Capture, Layout

__all__ = ["find_captures", "hardware_log_ids", "step_ids", "text_ids"]


_BESIDE_OTHERS = frozenset({Layout.TEXT, Layout.STEP_TICKS, Layout.HARDWARE_LOG, Layout.KINETO})
"""Layouts whose directory may hold captures of other layouts."""
_MAY_HOLD_OTHERS = _BESIDE_OTHERS | {Layout.EMPTY}
_DATABASE = re.compile(r"(?:ascend_(?:pytorch|mindspore)_profiler(?:_\d+)?|msprof_\d+)\.db")
_EXPORTED_TRACE = re.compile(r"msprof(?:_slice|_\d+)+\.json")
_TIMELINE = re.compile(r"msprof_\d+_\d+_\d+\.json")
_TABLE = re.compile(r"(?:kernel_details|op_summary|task_time)(?:_slice|_\d+)*\.csv")
_DEVICE_DIRECTORY = re.compile(r"device_([0-9]{1,9})")
_TASKS = "ascend_task.db"
_CAPTURED = re.compile(r".+_ascend_(?:pt|ms)")
_PROF = "PROF_"
_TEXT = re.compile(
    r"(?:output_timeline_data_(?P<id>0|[1-9]\d{0,8})\.txt"
    r"|(?:ascend_)?timeline_display_(?P<other>0|[1-9]\d{0,8})\.json)",
    re.ASCII,
)
"""The files of MindSpore 0.7 to 2.2 that hold device tasks."""
_HARDWARE_LOG = re.compile(
    r"(?:hwts\.log\.data|training_trace)\.\d+\.dev\..+\.(?P<id>0|[1-9]\d{0,8})\.slice_\d+", re.ASCII
)
"""The raw files of MindSpore 0.x and 1.x, which need no export."""
_STEP_TICKS = re.compile(r"step_trace_raw_(?P<id>0|[1-9]\d{0,8})_detail_time\.csv", re.ASCII)
"""The steps of MindSpore 0.7 to 2.2, a profile where nothing finer is."""
_LOOKS_LIKE_ONE = frozenset({JsonKind.EXECUTION_TRACE, JsonKind.NPU_TRACE, JsonKind.OTHER_TRACE})
_CLUSTER_OUTPUT = "cluster_analysis_output"
_CLUSTER = re.compile(
    r"cluster_analysis\.db|cluster_(?:step_trace_time\.csv|communication.*\.json)"
)
_CLUSTER_SAID = "what msprof-analyze made of the profiles of all ranks, which is not read."
_CLUSTER_ADVICE = "Pass the profiles that it was made of."


_LOOKED_FOR = (
    "Looked for",
    f"  *_ascend_pt/{OUTPUT}, *_ascend_ms/{OUTPUT}",
    f"  PROF_*/{MINDSTUDIO_OUTPUT}, PROF_*/device_N/timeline, sqlite or data",
    "  ascend_pytorch_profiler_*.db, ascend_mindspore_profiler_*.db, msprof_*.db",
    "  kernel_details.csv, op_summary_*.csv, task_time_*.csv",
    "  output_timeline_data_*.txt, *timeline_display_*.json, JOB*/data  (MindSpore)",
    "  *.pt.trace.json, or any .json that holds such a trace  (PyTorch on GPUs)",
    "Other raw data must be exported first:",
)


def find_captures(
    path: Path,
    unreadable: list[SourceError] | None = None,
    passed: list[str] | None = None,
) -> list[Capture]:
    """Find every capture at, below or around a path, in order of their directories.

    The path may be a capture, any directory above it, a directory inside it, or one file of it.

    Args:
        path: where to look.
        unreadable: takes the errors of directories that cannot be read; without it they are raised.
        passed: takes a remark on each file that looks like a profile and is none.

    Raises:
        NoProfileError: there is none.
        SourceError: the path does not exist, or a directory cannot be read.
    """
    if not path.exists():
        raise SourceError(path, f"does not exist{_sibling_like(path)}", do="Check the PATH.")
    resolved = path.resolve()
    remarks: list[str] = []
    found = (
        _of_file(path)
        if path.is_file()
        else _richest(_walk(_capture_root(resolved), unreadable, remarks))
    )
    if not found:
        raise NoProfileError(
            path.resolve() if path == Path() else path,
            "holds no Ascend profile.",
            do="Pass what the profiler wrote, or any directory above that: tlexport PATH",
            hints=(*remarks, *_LOOKED_FOR, f"  msprof --export=on --output={path}"),
        )
    if passed is not None:
        passed += remarks
    return sorted(found, key=lambda capture: (str(capture.directory), capture.device or 0))


def _sibling_like(path: Path) -> str:
    """The end of a message that names what lies beside a path and is spelled nearly like it."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return "."
    return did_you_mean(path.name, names)


def _of_file(path: Path) -> list[Capture]:
    """The captures that a file is of, one a device; of that file, whatever else lies beside it."""
    resolved = path.resolve()
    parent, plain = resolved.parent, plain_name(path.name)
    found = list(_walk(_capture_root(parent), None, []))
    own = [capture for capture in found if capture.content in (resolved, parent)]
    if _DATABASE.fullmatch(plain_database(path.name)):
        inside = parent.parent if parent.name == OUTPUT else parent
        own = [capture for capture in own if capture.content == resolved]
        return own or [Capture(Layout.DATABASE, inside, resolved)]
    if plain == "trace_view.json":
        inside = parent.parent if parent.name == OUTPUT else parent
        return [Capture(Layout.TRACE_VIEW, inside, parent)]
    if _EXPORTED_TRACE.fullmatch(plain) or path.name == _TASKS or path in slices_in(path.parent):
        if own:
            return own[:1] if own[0].layout is not Layout.MINDSTUDIO else own
        if _EXPORTED_TRACE.fullmatch(plain):
            return _of_exported_trace(parent, found)
    if _TABLE.fullmatch(plain):
        return [_of_table(parent, found)]
    kind = _kind_of(resolved)
    if kind is JsonKind.KINETO:
        return [Capture(Layout.KINETO, resolved, resolved)]
    if kind is JsonKind.NPU_TRACE and not _TEXT.fullmatch(plain):
        return [Capture(Layout.TRACE_VIEW, parent, resolved)]
    for layout, pattern in _NUMBERED:
        if match := pattern.fullmatch(plain):
            return [Capture(layout, parent, parent, _id_in(match))]
    if _is_of_cluster(path):
        raise NoProfileError(path, f"is {_CLUSTER_SAID}", do=_CLUSTER_ADVICE)
    raise NoProfileError(
        path,
        "is no profile." if kind is JsonKind.NO_TRACE else f"is {kind.value}, no profile.",
        do="Expected a directory, a .zip or .tar archive of one, trace_view.json, "
        "kernel_details.csv, op_summary_*.csv, an exported msprof_*.json, a trace of PyTorch, or a "
        "database named like ascend_pytorch_profiler_0.db or msprof_20240101120000.db.",
    )


def _of_exported_trace(output: Path, found: list[Capture]) -> list[Capture]:
    """An export beside what is richer, such as a database of the same capture."""
    directory = output.parent if output.name == MINDSTUDIO_OUTPUT else output
    devices = [one.device for one in found if one.directory == directory]
    return list(
        _per_device(
            Layout.MINDSTUDIO,
            directory,
            output,
            sorted({own for own in devices if own is not None}),
        )
    )


def _of_table(content: Path, found: list[Capture]) -> Capture:
    """The tables in a directory, whatever else lies beside them."""
    own = [capture for capture in found if content in (capture.content, capture.content.parent)]
    if own:
        return replace(own[0], layout=Layout.KERNEL_TABLE, content=content)
    match = _DEVICE_DIRECTORY.fullmatch(content.parent.name)
    if match and content.name == "summary":
        return Capture(Layout.KERNEL_TABLE, content.parent.parent, content, int(match[1]))
    inside = content.parent if content.name in (OUTPUT, MINDSTUDIO_OUTPUT) else content
    return Capture(Layout.KERNEL_TABLE, inside, content)


def _capture_root(path: Path) -> Path:
    """The capture that a directory inside it belongs to; any other directory is its own root."""
    inner = {OUTPUT, MINDSTUDIO_OUTPUT, "timeline", "FRAMEWORK", "host", "summary", "data", SQLITE}
    root = path
    for directory in (path, *path.parents):
        inside = directory.name in inner or _DEVICE_DIRECTORY.fullmatch(directory.name)
        parent = directory.parent
        if inside and parent != directory and (_is_capture(parent) or _is_inside(parent)):
            root = parent
            continue
        if directory.name.startswith(_PROF) and _CAPTURED.fullmatch(parent.name):
            root = parent
        break
    return root


def _is_capture(directory: Path) -> bool:
    return directory.name.startswith(_PROF) or (directory / OUTPUT).is_dir()


def _is_inside(directory: Path) -> bool:
    return bool(_DEVICE_DIRECTORY.fullmatch(directory.name))


def _walk(
    root: Path, unreadable: list[SourceError] | None, remarks: list[str]
) -> Iterator[Capture]:
    def refuse(error: SourceError) -> None:
        if unreadable is None:
            raise error
        unreadable.append(error)

    def refuse_directory(error: OSError) -> None:
        where = Path(error.filename or root)
        refuse(SourceError.of_system(where, "cannot be read", error))

    for name, directories, files in os.walk(root, onerror=refuse_directory):
        directory = Path(name)
        directories.sort()
        try:
            found = list(_captures_of(directory, set(directories), sorted(files), remarks))
        except SourceError as error:
            refuse(error)
            directories.clear()
            continue
        if any(_may_cover(capture) for capture in found):
            taken = {capture.content for capture in found}
            directories[:] = [own for own in directories if directory / own not in taken]
        elif any(capture.layout not in _MAY_HOLD_OTHERS for capture in found):
            directories.clear()
        yield from found


def _may_cover(capture: Capture) -> bool:
    """Whether a capture is tables with room for other captures below its directory."""
    inner = capture.directory in (capture.content, capture.content.parent)
    return (
        capture.layout is Layout.KERNEL_TABLE
        and inner
        and not capture.directory.name.startswith(_PROF)
    )


def _richest(captures: Iterable[Capture]) -> list[Capture]:
    """Drop tables above something richer, and what is no richer below a framework's tables.

    And empty outputs with a capture in their directory.
    """
    found = _without_poor_steps(_joined_jobs(_without_empty(list(captures))))
    poor = (Layout.KERNEL_TABLE, Layout.RAW_SLICES, Layout.RAW)
    above_rich = {
        parent for one in found if one.layout not in poor for parent in one.directory.parents
    }
    above_any = above_rich | {
        parent
        for one in found
        if one.layout is Layout.KERNEL_TABLE
        for parent in one.directory.parents
    }
    kept, owners = [], set()
    for one in found:
        is_output = one.content.name == OUTPUT
        if _may_cover(one) and one.directory in (above_rich if is_output else above_any):
            continue
        kept.append(one)
        if _may_cover(one) and is_output:
            owners.add(one.directory)
    return [one for one in kept if one.layout not in poor or not owners & {*one.directory.parents}]


def _joined_jobs(found: list[Capture]) -> list[Capture]:
    """One capture of the raw files of an id in a job's directory and in its `data`."""
    logs = [one for one in found if one.layout is Layout.HARDWARE_LOG]
    outer = {(one.directory, one.device) for one in logs if one.content == one.directory}
    return [
        one
        for one in found
        if one.layout is not Layout.HARDWARE_LOG
        or one.content == one.directory
        or (one.directory, one.device) not in outer
    ]


def _without_poor_steps(found: list[Capture]) -> list[Capture]:
    """Drop bare step traces at, above and below anything else: that holds or is read with them."""
    others = [one.directory for one in found if one.layout is not Layout.STEP_TICKS]
    around = {parent for own in others for parent in (own, *own.parents)}
    return [
        one
        for one in found
        if one.layout is not Layout.STEP_TICKS
        or (one.directory not in around and not {*one.directory.parents} & {*others})
    ]


def _without_empty(found: list[Capture]) -> list[Capture]:
    held = [one.directory for one in found if one.layout is not Layout.EMPTY]
    inside = {parent for directory in held for parent in (directory, *directory.parents)}
    return [one for one in found if one.layout is not Layout.EMPTY or one.directory not in inside]


def _captures_of(
    directory: Path, directories: set[str], files: list[str], remarks: list[str]
) -> Iterator[Capture]:
    if OUTPUT in directories and (capture := _of_output(directory, directory / OUTPUT)):
        yield capture
        return
    if OUTPUT in directories:
        yield Capture(Layout.EMPTY, directory, directory / OUTPUT)
    if directory.name.startswith(_PROF) or MINDSTUDIO_OUTPUT in directories:
        yield from _of_prof(directory, directories, files)
    else:
        yield from _loose(directory, files, remarks)


def _of_output(directory: Path, output: Path) -> Capture | None:
    """What a framework's profiler left; its database wins over its text."""
    with readable(output):
        databases = _databases(path.name for path in output.iterdir())
    if databases:
        return Capture(Layout.DATABASE, directory, output / databases[-1])
    trace = held_file(output, "trace_view.json")
    if trace is not None and (trace.is_file() or _holds(output, _TABLE)):
        return Capture(Layout.TRACE_VIEW, directory, output)
    if _holds(output, _TABLE):
        return Capture(Layout.KERNEL_TABLE, directory, output)
    return None


def _databases(names: Iterable[str]) -> list[str]:
    """The databases among names, oldest first; a plain one wins over a compressed one of its name.

    MindSpore and torch_npu write one a capture, msprof one an export with the time in its name.
    """
    found: dict[str, str] = {}
    for name in sorted(names):
        if _DATABASE.fullmatch(plain_database(name)):
            found.setdefault(plain_database(name), name)
    return [found[plain] for plain in sorted(found)]


def _holds(directory: Path, names: re.Pattern[str]) -> bool:
    return directory.is_dir() and any(map(names.fullmatch, named_files(directory)))


def _of_prof(directory: Path, directories: set[str], files: list[str]) -> Iterator[Capture]:
    """What msprof left: a database wins over exports, exports over the older timeline."""
    devices = sorted(
        int(match[1]) for name in directories if (match := _DEVICE_DIRECTORY.fullmatch(name))
    )
    databases = _databases(files)
    output = directory / MINDSTUDIO_OUTPUT
    if databases:
        yield from _per_device(Layout.DATABASE, directory, directory / databases[-1], devices)
    elif _holds(output, _EXPORTED_TRACE):
        yield from _per_device(Layout.MINDSTUDIO, directory, output, devices)
    else:
        own = [_of_device(directory, device) for device in devices]
        richer = any(one.layout in (Layout.GRAPH_TIMELINE, Layout.PARSED) for one in own)
        if _holds(output, _TABLE) and not richer:
            yield from _per_device(Layout.KERNEL_TABLE, directory, output, devices)
        elif not devices and "host" in directories:
            yield Capture(Layout.RAW, directory, directory)
        else:
            yield from own


def _of_device(directory: Path, device: int) -> Capture:
    """What is in the directory of a device, best first."""
    inside = directory / f"device_{device}"
    if _holds(inside / "timeline", _TIMELINE):
        return Capture(Layout.GRAPH_TIMELINE, directory, inside / "timeline", device)
    if (inside / SQLITE / _TASKS).is_file():
        return Capture(Layout.PARSED, directory, inside / SQLITE, device)
    if _holds(inside / "summary", _TABLE):
        return Capture(Layout.KERNEL_TABLE, directory, inside / "summary", device)
    if slices_in(inside / "data"):
        return Capture(Layout.RAW_SLICES, directory, inside / "data", device)
    return Capture(Layout.RAW, directory, directory, device)


def _per_device(
    layout: Layout, directory: Path, content: Path, devices: list[int]
) -> Iterator[Capture]:
    for device in devices:
        yield Capture(layout, directory, content, device)
    if not devices:
        yield Capture(layout, directory, content)


def _loose(directory: Path, files: list[str], remarks: list[str]) -> Iterator[Capture]:
    """Files that were copied out of their capture."""
    databases = _databases(files)
    for name in databases:
        yield Capture(Layout.DATABASE, directory, directory / name)
    if databases:
        return
    names = {plain_name(name) for name in files}
    if "trace_view.json" in names:
        yield Capture(Layout.TRACE_VIEW, directory, directory)
    elif any(_EXPORTED_TRACE.fullmatch(name) and not _TIMELINE.fullmatch(name) for name in names):
        yield Capture(Layout.MINDSTUDIO, directory, directory)
    elif any(_TIMELINE.fullmatch(name) for name in names):
        yield Capture(Layout.GRAPH_TIMELINE, directory, directory)
    elif any(_TABLE.fullmatch(name) for name in names):
        yield Capture(Layout.KERNEL_TABLE, directory, directory)
    else:
        known = list(_of_mindspore(directory, files))
        yield from known
        for path in (directory / name for name in files):
            kind = _kind_of(path)
            if kind is JsonKind.KINETO:
                yield Capture(Layout.KINETO, path, path)
            elif kind in _LOOKS_LIKE_ONE and not known:
                remarks.append(f"{path} was not read: it is {kind.value}.")
    if any(map(_is_of_cluster, (directory / name for name in files))):
        remarks.append(f"{directory} holds {_CLUSTER_SAID} {_CLUSTER_ADVICE}")


def _kind_of(path: Path) -> JsonKind:
    """What a file is; each trace of PyTorch's own profiler is a capture.

    One that is named as such and is broken is a trace all the same: whoever reads it says so.
    """
    if not is_named_json(path.name):
        return JsonKind.NO_TRACE
    kind = kind_of_json(path)
    if is_named_kineto(path.name) and kind is not JsonKind.EXECUTION_TRACE:
        return JsonKind.KINETO
    return kind


def _is_of_cluster(path: Path) -> bool:
    """Whether a file is of msprof-analyze's output on all ranks."""
    return bool(_CLUSTER.fullmatch(path.name)) or path.parent.name == _CLUSTER_OUTPUT


def _of_mindspore(directory: Path, files: list[str]) -> Iterator[Capture]:
    """One per id in the names of MindSpore's own files; other captures may lie beside them."""
    texts = _ids_among(files, _TEXT)
    for number in texts:
        yield Capture(Layout.TEXT, directory, directory, number)
    if not texts:
        for number in _ids_among(files, _STEP_TICKS):
            yield Capture(Layout.STEP_TICKS, directory, directory, number)
    job = directory.parent if directory.name == "data" else directory
    for number in _ids_among(files, _HARDWARE_LOG):
        yield Capture(Layout.HARDWARE_LOG, job, directory, number)


_NUMBERED = (
    (Layout.TEXT, _TEXT),
    (Layout.HARDWARE_LOG, _HARDWARE_LOG),
    (Layout.STEP_TICKS, _STEP_TICKS),
)
"""Layouts that are told by names with an id."""


def step_ids(directory: Path) -> list[int]:
    """The ids in the names of MindSpore's step traces in a directory, ascending."""
    return _ids_among(_names_in(directory), _STEP_TICKS)


def text_ids(directory: Path) -> list[int]:
    """The ids in the names of MindSpore's text files in a directory, ascending."""
    return _ids_among(_names_in(directory), _TEXT)


def hardware_log_ids(directory: Path) -> list[int]:
    """The ids in the names of MindSpore's raw files in a directory, ascending."""
    return _ids_among(_names_in(directory), _HARDWARE_LOG)


def _names_in(directory: Path) -> list[str]:
    with readable(directory):
        return [path.name for path in directory.iterdir()]


def _ids_among(names: list[str], pattern: re.Pattern[str]) -> list[int]:
    return sorted(
        {_id_in(match) for name in names if (match := pattern.fullmatch(plain_name(name)))}
    )


def _id_in(match: re.Match[str]) -> int:
    found = match.groupdict()
    return int(found["id"] or found["other"])
