"""Recognition of trace JSON that torch_npu, MindSpore or msprof exported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from timeline.sources.capture import (
    Capture,
    CaptureFile,
    Claim,
    Evidence,
    Extent,
    Folder,
    FolderKind,
    Format,
    Lookalike,
    Root,
)
from timeline.sources.common.export_files import (
    OPERATOR_TABLE,
    JsonKind,
    find_device_table_directories,
    find_event_time_ns,
    has_file_named,
    has_json_name,
    kind_of_json,
)
from timeline.sources.common.identity import (
    identify_all_devices,
    identify_device,
    identify_each_device,
    ranks_in_file_name,
)
from timeline.sources.files.opened import find_file, without_gz
from timeline.sources.source import MINDSTUDIO_OUTPUT, OUTPUT, Identity, Source

_TRACE_VIEW = "trace_view.json"
_STEP_TABLE = "step_trace_time.csv"
_TRACE = re.compile(r"msprof(?:_slice|_\d+)+\.json")
_DISPLAY = re.compile(r"(?:ascend_)?timeline_display_\d+\.json")
"""A timeline that MindSpore exported next to its text files; its own format reads both."""
_TRACE_OF_DEVICE = re.compile(r"msprof_\d+(?:_\d{1,10}){1,2}(?:_slice_\d+)?\.json")
"""A trace of one device, of a graph (if named) and an iteration: CANN before 7."""
_PART_OF_EXPORT = re.compile(r"(?:hccl|task_time|msprof_tx|msprof)(?:_slice|_\d+)+\.json(?:\.gz)?")
"""A file of an msprof export in many files, none of which alone is the trace of a rank."""


def _directory_of_tables(capture: Capture) -> tuple[Path, ...]:
    return (capture.content,) if capture.content.is_dir() else ()


# -- trace_view.json -------------------------------------------------------------------------------


def _recognise_trace_view(folder: Folder) -> list[Capture]:
    is_trace_view = False
    if folder.kind is FolderKind.OUTPUT:
        trace = find_file(folder.path, _TRACE_VIEW)
        is_trace_view = trace is not None and (
            trace.is_file() or has_file_named(folder.path, OPERATOR_TABLE)
        )
    elif folder.kind is FolderKind.LOOSE and _TRACE_VIEW in map(without_gz, folder.names):
        trace = find_file(folder.path, _TRACE_VIEW)
        is_trace_view = trace is None or kind_of_json(trace) is not JsonKind.KINETO
    return [Capture(TRACE_VIEW, folder.directory, folder.path)] if is_trace_view else []


def _file_of_trace_view(file: CaptureFile) -> list[Capture]:
    if file.name != _TRACE_VIEW or kind_of_json(file.path) is JsonKind.KINETO:
        return []
    parent = file.path.parent
    return [Capture(TRACE_VIEW, parent.parent if parent.name == OUTPUT else parent, parent)]


def _identify_trace_view(capture: Capture, root: Root) -> list[Claim]:
    return identify_each_device(capture, root, _devices_of_trace_view)


def _devices_of_trace_view(content: Path) -> list[int]:
    """Return the devices with activity: from the step table, or from the trace if it is absent."""
    if content.is_dir() and find_file(content, _STEP_TABLE):
        from timeline.sources.companions.measures import find_busy_devices

        return find_busy_devices(content)
    from timeline.sources.ascend_trace.reader import find_packed_devices

    trace = find_file(content, _TRACE_VIEW) if content.is_dir() else content
    return find_packed_devices(trace)[1] if trace else []


def _read_trace_view(claim: Claim, identity: Identity) -> Source:
    from timeline.sources.trace_json.source import TraceViewSource

    return TraceViewSource(
        TRACE_VIEW.name, identity, claim.clock, claim.capture.content, claim.several
    )


TRACE_VIEW = Format(
    name="trace_view.json",
    recognise=_recognise_trace_view,
    recognise_file=_file_of_trace_view,
    identify=_identify_trace_view,
    read_with=_read_trace_view,
    table_directories=_directory_of_tables,
)


# -- the same trace under any other name -----------------------------------------------------------


def _recognise_any_trace(folder: Folder) -> Iterator[Capture | Lookalike]:
    names = (name for name in folder.names if has_json_name(name))
    for path in (folder.path / name for name in names if not _DISPLAY.fullmatch(without_gz(name))):
        if kind_of_json(path) is JsonKind.NPU_TRACE:
            if _PART_OF_EXPORT.fullmatch(path.name):
                yield Lookalike(path, JsonKind.NPU_TRACE.value)
            else:
                yield Capture(ANY_TRACE, path, path)


def _file_of_any_name(file: CaptureFile) -> list[Capture]:
    if kind_of_json(file.path) is not JsonKind.NPU_TRACE:
        return []
    return [Capture(ANY_TRACE, file.path.parent, file.path)]


def _identify_any_trace(capture: Capture, root: Root) -> list[Claim]:
    """Identify a trace by the rank in its file name, else like a capture in its directory."""
    name = capture.content.name
    from_name = tuple(Evidence(rank, f"file name {name}") for rank in ranks_in_file_name(name))
    in_directory = replace(capture, directory=capture.content.parent)
    return [
        replace(claim, capture=capture, evidence=from_name or claim.evidence)
        for claim in _identify_trace_view(in_directory, root)
    ]


def _recorded_time(capture: Capture) -> Extent:
    return find_event_time_ns(capture.content), None


ANY_TRACE = Format(
    name="trace_view.json",
    recognise=_recognise_any_trace,
    recognise_content=_file_of_any_name,
    identify=_identify_any_trace,
    recorded_time=_recorded_time,
    read_with=_read_trace_view,
    shares_directory=True,
)


# -- mindstudio_profiler_output --------------------------------------------------------------------


def _recognise_mindstudio(folder: Folder) -> list[Capture]:
    if folder.kind is FolderKind.MSPROF:
        output = folder.path / MINDSTUDIO_OUTPUT
        return folder.captures_of(MINDSTUDIO, output) if has_file_named(output, _TRACE) else []
    names = map(without_gz, folder.names)
    is_loose = folder.kind is FolderKind.LOOSE and any(
        _TRACE.fullmatch(name) and not _TRACE_OF_DEVICE.fullmatch(name) for name in names
    )
    return [Capture(MINDSTUDIO, folder.directory, folder.path)] if is_loose else []


def _file_of_mindstudio(file: CaptureFile) -> list[Capture]:
    """Return captures that cover the file: existing ones of its directory, else new ones.

    If another format already reads the directory, its first capture is returned; msprof's export
    holds less. A new capture is made for each device known from captures around the file.
    """
    if not _TRACE.fullmatch(file.name):
        return []
    existing = file.beside
    if existing:
        return existing if existing[0].format is MINDSTUDIO else existing[:1]
    output = file.path.parent
    directory = output.parent if output.name == MINDSTUDIO_OUTPUT else output
    around = (capture.device for capture in file.around if capture.directory == directory)
    devices: list[int | None] = [*sorted({device for device in around if device is not None})]
    return [Capture(MINDSTUDIO, directory, output, device) for device in devices or [None]]


def _read_mindstudio(claim: Claim, identity: Identity) -> Source:
    from timeline.sources.trace_json.source import MindStudioSource

    return MindStudioSource(
        MINDSTUDIO.name, identity, claim.clock, claim.capture.content, claim.several
    )


MINDSTUDIO = Format(
    name="mindstudio_profiler_output",
    recognise=_recognise_mindstudio,
    recognise_file=_file_of_mindstudio,
    identify=identify_all_devices,
    read_with=_read_mindstudio,
    table_directories=_directory_of_tables,
)


# -- device_N/timeline -----------------------------------------------------------------------------


def _recognise_graph_timeline(folder: Folder) -> list[Capture]:
    if folder.kind is FolderKind.MSPROF:
        contents = [(device, folder.path / f"device_{device}/timeline") for device in folder.free]
        return [
            Capture(GRAPH_TIMELINE, folder.directory, content, device)
            for device, content in contents
            if has_file_named(content, _TRACE)
        ]
    is_loose = folder.kind is FolderKind.LOOSE and any(
        map(_TRACE_OF_DEVICE.fullmatch, map(without_gz, folder.names))
    )
    return [Capture(GRAPH_TIMELINE, folder.directory, folder.path)] if is_loose else []


def _read_graph_timeline(claim: Claim, identity: Identity) -> Source:
    from timeline.sources.trace_json.source import GraphTimelineSource

    return GraphTimelineSource(GRAPH_TIMELINE.name, identity, claim.clock, claim.capture.content)


GRAPH_TIMELINE = Format(
    name="device_N/timeline",
    recognise=_recognise_graph_timeline,
    identify=identify_device,
    read_with=_read_graph_timeline,
    table_directories=find_device_table_directories,
)
