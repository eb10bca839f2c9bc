"""Traces that torch_npu, MindSpore and msprof exported: where they lie, and what reads them."""

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
"""What MindSpore left beside its text, which is read as that."""
_TRACE_OF_DEVICE = re.compile(r"msprof_\d+(?:_\d{1,10}){1,2}(?:_slice_\d+)?\.json")
"""Device, graph where there is one, and iteration: CANN before 7."""
_PART_OF_EXPORT = re.compile(r"(?:hccl|task_time|msprof_tx|msprof)(?:_slice|_\d+)+\.json(?:\.gz)?")
"""What msprof exports in many files, which are no trace of a rank one by one."""


def _directory_of_tables(capture: Capture) -> tuple[Path, ...]:
    return (capture.content,) if capture.content.is_dir() else ()


# -- trace_view.json -------------------------------------------------------------------------------


def _recognise_trace_view(folder: Folder) -> list[Capture]:
    found = False
    if folder.kind is FolderKind.OUTPUT:
        trace = find_file(folder.path, _TRACE_VIEW)
        found = trace is not None and (
            trace.is_file() or has_file_named(folder.path, OPERATOR_TABLE)
        )
    elif folder.kind is FolderKind.LOOSE and _TRACE_VIEW in map(without_gz, folder.names):
        trace = find_file(folder.path, _TRACE_VIEW)
        found = trace is None or kind_of_json(trace) is not JsonKind.KINETO
    return [Capture(TRACE_VIEW, folder.directory, folder.path)] if found else []


def _file_of_trace_view(file: CaptureFile) -> list[Capture]:
    if file.name != _TRACE_VIEW or kind_of_json(file.path) is JsonKind.KINETO:
        return []
    parent = file.path.parent
    return [Capture(TRACE_VIEW, parent.parent if parent.name == OUTPUT else parent, parent)]


def _identify_trace_view(capture: Capture, root: Root) -> list[Claim]:
    return identify_each_device(capture, root, _devices_of_trace_view)


def _devices_of_trace_view(content: Path) -> list[int]:
    """Return the devices that did anything, as the table of steps says; without one the trace."""
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
    """Identify a trace by its own name, else as the capture in whose directory it lies."""
    name = capture.content.name
    named = tuple(Evidence(rank, f"file name {name}") for rank in ranks_in_file_name(name))
    beside = replace(capture, directory=capture.content.parent)
    return [
        replace(claim, capture=capture, evidence=named or claim.evidence)
        for claim in _identify_trace_view(beside, root)
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
    """Return the captures of its directory, or an export beside something better."""
    if not _TRACE.fullmatch(file.name):
        return []
    beside = file.beside
    if beside:
        return beside if beside[0].format is MINDSTUDIO else beside[:1]
    output = file.path.parent
    directory = output.parent if output.name == MINDSTUDIO_OUTPUT else output
    known = (one.device for one in file.around if one.directory == directory)
    devices: list[int | None] = [*sorted({device for device in known if device is not None})]
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
