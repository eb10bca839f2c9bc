"""Finds captures in a directory tree, and names files of other profilers."""

from __future__ import annotations

import contextlib
import re
import shlex
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from timeline.errors import NoProfileError, SourceError, did_you_mean
from timeline.sources import formats
from timeline.sources.capture import (
    DEVICE_DIRECTORY,
    Capture,
    CaptureFile,
    Folder,
    FolderKind,
    FormatKind,
)
from timeline.sources.common.export_files import JsonKind, kind_of_json, plain_name_of_table
from timeline.sources.companions.file_kinds import NumberedFile, Use, find_numbered_files
from timeline.sources.files.opened import open_profile_file, source_errors_for, walk, without_gz
from timeline.sources.source import MINDSTUDIO_OUTPUT, OUTPUT, PROF, SQLITE

GLANCE_BYTES = 1 << 16
MOST_LOOKED_AT = 1_000
"""Files below a directory."""
_SQLITE = b"SQLite format 3\0"
_PACKED_TRACE = re.compile(rb"\n[\x80-\xff]*[^\x80-\xff]\x92\x03[\x80-\xff]*[^\x80-\xff]")
"""How a Perfetto trace begins whose packets are compressed, up to their zlib stream."""
_ELSEWHERE = "Open it in {0}, or record the run with torch.profiler and pass its trace."
_ROCM = _ELSEWHERE.format("Perfetto or with the tools of ROCm")
_NSIGHT = _ELSEWHERE.format("Nsight Systems")
_OPERATOR = "Open it in MindStudio Insight, or pass the profile of a run."


@dataclass(frozen=True)
class Foreign:
    """A format that is not read: what its files are, what to do, and what recognises one.

    content: of the first bytes, unpacked. tables: of a database. name: where no content tells. Each
    is a pattern, and an empty one that of nothing.
    """

    what: str
    do: str
    content: bytes = b""
    tables: str = ""
    name: str = ""

    def describe(self, path: Path) -> str:
        """Return advice for a file of it."""
        return self.do.format(path=shlex.quote(str(path)))

    def is_of(self, name: str, text: bytes = b"", tables: Iterable[str] = ()) -> bool:
        """Return whether a file is of the format, by its name, first bytes or tables."""
        return bool(
            (self.content and re.search(self.content, text, re.DOTALL))
            or (self.tables and any(re.fullmatch(self.tables, table) for table in tables))
            or (self.name and re.fullmatch(self.name, name))
        )


_SHOW = "Pass the profile that it was made of; for what it says: tlexport show {path}"
_KINETO = "Record the run with torch.profiler, or torch_npu.profiler on NPUs, and pass its trace."
_SNAPSHOT = "Open it at https://pytorch.org/memory_viz, or pass a trace of the profiler."
_SERVICE = "Parse it with msserviceprofiler, or pass the profile of its NPUs."
_VIZ = "a trace of VizTracer, of Python on the host alone"
_OF_NSYS = r"CUPTI_ACTIVITY_KIND_\w+|META_DATA_EXPORT|TARGET_INFO_NSYS\w+"
_NSYS_JSON = rb'\A\{"data":\s*\[|"(?:Cuda|Nvtx|TraceProcess|OSRuntime)Event":'
_AUTOGRAD = rb'"pid":\s*"(?:CPU|CUDA|NPU|XPU|PrivateUse1) functions"'
_HATCHET = rb'"frame":\s*\{[^{}]*"ROOT"|"cat":\s*"triton"'
_PLANES = rb'"/(?:device|host):\w+|\A\n[\x00-\xff]{1,40}?/(?:device|host):'
_OF_SERVICE = r"(?:ms_service|ascend_service_profiler)_.*\.db|ms_service_profiler.*"
_OF_CLUSTER = (
    r"cluster_analysis\.db|cluster_(?:step_trace_time\.csv|communication.*\.json)"
    r"|communication_group\.json"
)
NAMED_BESIDE = (
    Foreign(
        "what msprof-analyze made of the profiles of all ranks, which is not read",
        "Pass the profiles that it was made of.",
        name=_OF_CLUSTER,
    ),
    Foreign(
        "what msMonitor recorded line by line, which is not read",
        "Have it write a database (export type DB), and pass that: msmonitor_*.db.",
        name=r"msmonitor_.*\.jsonl(?:\.gz)?",
    ),
)
"""What is named beside profiles too, where somebody may expect it to be read."""
_FOREIGN = (
    Foreign("a timeline that tlexport wrote", _SHOW, rb"io\.tlexport"),
    Foreign("an export of Nsight Systems", _NSIGHT, _NSYS_JSON, tables=_OF_NSYS),
    Foreign("a report of Nsight Systems", _NSIGHT, name=r".*\.(?:nsys-rep|qdrep|qdstrm)"),
    Foreign("a report of Nsight Compute", _NSIGHT, rb"\ANVR\0", name=r".*\.ncu-rep"),
    Foreign("a database of rocprof (rocpd)", _ROCM, tables=r"rocpd_\w+"),
    Foreign("a trace of rocprofv3", _ROCM, rb'"rocprofiler-sdk-tool"|\A"?Kind"?,"?Agent_Id"?,'),
    Foreign("a trace of rocprof", _ROCM, rb'CPU HIP API"|"BeginNs"|\A"?Index"?,"?KernelName"?,'),
    Foreign("a profile of Proton (Triton)", _ELSEWHERE.format("proton-viewer"), _HATCHET),
    Foreign("a memory snapshot of PyTorch", _SNAPSHOT, rb"\A\x80[\x02-\x05].*(?:segments|_traces)"),
    Foreign("a trace of torch.autograd.profiler without Kineto", _KINETO, _AUTOGRAD),
    Foreign("data of msServiceProfiler", _SERVICE, tables="Mstx", name=_OF_SERVICE),
    Foreign(_VIZ, _ELSEWHERE.format("vizviewer"), rb'"viztracer_metadata"|"cat":\s*"FEE"'),
    Foreign(
        "a trace of XProf (JAX, TensorFlow)",
        _ELSEWHERE.format("XProf or TensorBoard"),
        _PLANES,
        name=r".*\.xplane\.pb",
    ),
    Foreign(
        "what msprof op measured of one operator, which is not read",
        _OPERATOR,
        name=r"OPPROF_.*|visualize_data\.bin",
    ),
    Foreign(
        "a Perfetto trace of another program",
        "Open it at https://ui.perfetto.dev, or pass a profile.",
        name=r".*\.(?:pftrace|perfetto-trace)(?:\.gz)?",
    ),
    *NAMED_BESIDE,
)
"""Most particular first: what this program wrote says so, whatever is in it."""


def find_foreign(path: Path) -> Foreign | None:
    """Return the format of a file by its content, else by its name; of a directory by name."""
    text = _first_bytes(path) if path.is_file() else b""
    tables = _tables(path) if text.startswith(_SQLITE) else ()
    return next((one for one in _FOREIGN if one.is_of(path.name, text, tables)), None)


def foreign_files_below(directory: Path) -> dict[Foreign, Path]:
    """Return the first file of each such format below a directory."""
    found: dict[Foreign, Path] = {}
    listed = walk(directory, lambda _: None)
    paths = (inside / name for inside, _, names in listed for name in sorted(names))
    for path in islice(paths, MOST_LOOKED_AT):
        if (foreign := find_foreign(path)) is not None:
            found.setdefault(foreign, path)
    return found


def _first_bytes(path: Path) -> bytes:
    """Return the beginning of a file, unpacked; nothing if it cannot be read."""
    text = b""
    with contextlib.suppress(SourceError), open_profile_file(path, in_part=True) as file:
        text = file.read(GLANCE_BYTES)
    if (packed := _PACKED_TRACE.match(text)) is not None:
        with contextlib.suppress(zlib.error):
            text += zlib.decompressobj().decompress(text[packed.end() :], GLANCE_BYTES)
    return text


def _tables(path: Path) -> tuple[str, ...]:
    from timeline.sources.decoders.sqlite import open_database  # most profiles need no SQLite

    with contextlib.suppress(SourceError), open_database(path, in_part=True) as database:
        return tuple(name for (name,) in database.rows("SELECT name FROM sqlite_master"))
    return ()


# -- captures --------------------------------------------------------------------------------------


_INSIDE_CAPTURES = frozenset(
    {OUTPUT, MINDSTUDIO_OUTPUT, "timeline", "FRAMEWORK", "host", "summary", "data", SQLITE}
)
"""Directories that lie in a capture, which is read when one of them is passed."""
_FRAMEWORK_CAPTURE = re.compile(r".+_ascend_(?:pt|ms)")
_POOR = frozenset({FormatKind.TABLES, FormatKind.RAW, FormatKind.UNREADABLE})
"""Kinds that hold less than any other of the same profile, and give way to it."""
_OF_JOBS = frozenset({FormatKind.LOG, FormatKind.STEPS})
"""Kinds whose files lie in the directory of a job, in `data` there, or in both."""
_GIVE_WAY = frozenset({FormatKind.STEPS, FormatKind.UNREADABLE})
"""Kinds to which bare tables do not give way."""
_HOST_FILES = frozenset(kind for kind in NumberedFile if kind.use is Use.HOST)
_DECODED_LOG = {NumberedFile.AICPU_TEXT}
MOST_RENAMED = 3
"""So many tables with longer names are named."""
MOST_FOREIGN = 4
"""So many formats of other programs are named."""


@dataclass(frozen=True)
class FoundCaptures:
    """Captures and what else was found, each in order of directories.

    empty: directories with an OUTPUT, without anything to read in it or below. remarks: on files
    that look like profiles and are none. tables: small tables that give way to captures, which may
    read them.
    """

    captures: tuple[Capture, ...]
    empty: tuple[Path, ...] = ()
    remarks: tuple[str, ...] = ()
    tables: tuple[Capture, ...] = ()


def find_captures(path: Path, unreadable: list[SourceError] | None = None) -> FoundCaptures:
    """Find every capture at, below or around a path.

    The path may be a capture, any directory above it, a directory inside it, or one file of it.

    Args:
        path: where to look.
        unreadable: takes the errors of directories that cannot be read; without it they are raised.

    Raises:
        NoProfileError: there is none.
        SourceError: the path does not exist, is neither file nor directory, or one cannot be read.
    """
    if not path.exists():
        raise SourceError(path, f"does not exist{_sibling_like(path)}", do="Check the PATH.")
    if not (path.is_file() or path.is_dir()):
        raise SourceError(path, "is a pipe or device.", do="Name a directory or a file.")
    walk, found, empty = _Walk(unreadable), list[Capture](), list[Path]()
    if path.is_file():
        captures = _captures_of_file(path)
    else:
        found = list(walk.captures_below(_capture_root(path.resolve())))
        captures = _without_poorer(found)
        empty = sorted(set(walk.empty) - _at_and_above(found))
    known = frozenset(captures)
    tables = [one for one in found if one.format.kind is FormatKind.STEPS and one not in known]
    if not captures and not empty:
        if (foreign := find_foreign(path.resolve())) is not None:
            raise NoProfileError(path, f"is {foreign.what}.", do=foreign.describe(path))
        raise _nothing_found(path, walk.remarks)
    return FoundCaptures(
        tuple(sorted(captures, key=lambda found: (str(found.directory), found.device or 0))),
        tuple(empty),
        tuple(walk.remarks),
        tuple(tables),
    )


def _nothing_found(path: Path, remarks: Sequence[str]) -> NoProfileError:
    others = dict(islice(foreign_files_below(path).items(), MOST_FOREIGN))
    more = [one for one in remarks if not any(str(at) in one for at in others.values())]
    looked_for = (
        "Looked for",
        *formats.LOOKED_FOR,
        "Other raw data must be exported first:",
        f"  msprof --export=on --output={path}",
    )
    return NoProfileError(
        path.resolve() if path == Path() else path,
        f"holds {next(iter(others)).what}, no profile." if others else "holds no Ascend profile.",
        do="Pass what the profiler wrote, or any directory above that: tlexport PATH",
        hints=(
            *(f"{at} is {one.what}. {one.describe(at)}" for one, at in others.items()),
            *more,
            *islice(_renamed_tables(path), MOST_RENAMED),
            *(() if others else looked_for),
        ),
    )


def _sibling_like(path: Path) -> str:
    """Return the end of a message that names an entry beside a path with a similar name."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return "."
    return did_you_mean(path.name, names)


def _capture_root(path: Path) -> Path:
    """Return the capture that a directory belongs to; any other is its own root."""
    root = path
    for directory in (path, *path.parents):
        parent, of_device = directory.parent, DEVICE_DIRECTORY.fullmatch
        is_inside = directory.name in _INSIDE_CAPTURES or of_device(directory.name)
        is_capture = parent.name.startswith(PROF) or (parent / OUTPUT).is_dir()
        if is_inside and parent != directory and (is_capture or of_device(parent.name)):
            root = parent
            continue
        if directory.name.startswith(PROF) and _FRAMEWORK_CAPTURE.fullmatch(parent.name):
            root = parent
        break
    return root


# -- one file --------------------------------------------------------------------------------------


def _captures_of_file(path: Path) -> Sequence[Capture]:
    """Return the captures of a file, one a device, whatever else lies beside it."""
    resolved = path.resolve()
    root = _capture_root(resolved.parent)
    around = tuple(_Walk(None).captures_below(root))
    file = CaptureFile(resolved, without_gz(path.name), around)
    by_name = (known.recognise_file for known in formats.FORMATS)
    by_content = (known.recognise_content for known in formats.FORMATS)
    for recognise in chain(by_name, by_content):
        if captures := recognise(file):
            return captures
    if (foreign := find_foreign(resolved)) is not None:
        raise NoProfileError(path, f"is {foreign.what}, no profile.", do=foreign.describe(path))
    if named := plain_name_of_table(path.name):
        raise NoProfileError(
            path,
            f"is no profile under this name, but may be {named}.",
            do=f"Pass it under that name: {shlex.join(('mv', path.name, named))}",
        )
    kind = kind_of_json(resolved)
    if around and kind is JsonKind.NO_TRACE:
        raise NoProfileError(
            path,
            "is no profile, but lies in one.",
            do=f"Pass that: tlexport {root}",
        )
    raise NoProfileError(
        path,
        "is no profile." if kind is JsonKind.NO_TRACE else f"is {kind.value}, no profile.",
        do=f"Expected a directory, a .zip or .tar archive of one, {formats.EXPECTED}",
    )


def _renamed_tables(path: Path) -> Iterator[str]:
    for directory, _, names in walk(path, lambda _: None):
        for name in sorted(names):
            if plain := plain_name_of_table(name):
                yield f"{directory / name} may be {plain}. Pass it under that name."


# -- a directory and those below -------------------------------------------------------------------


class _Walk:
    """One walk through directories; files outside captures gather on the way."""

    def __init__(self, unreadable: list[SourceError] | None) -> None:
        self.empty: list[Path] = []
        self.remarks: list[str] = []
        self._unreadable = unreadable

    def captures_below(self, root: Path) -> Iterator[Capture]:
        """Return all captures at a directory and below."""

        def refuse(error: OSError) -> None:
            where = Path(error.filename or root)
            self._refuse(SourceError.of_system(where, "cannot be read", error))

        for directory, directories, files in walk(root, refuse):
            directories.sort()
            try:
                captures = list(self._captures_in(directory, frozenset(directories), sorted(files)))
            except SourceError as error:
                self._refuse(error)
                directories.clear()
                continue
            if any(map(_may_hold_others, captures)):
                taken = {capture.content for capture in captures}
                directories[:] = [inner for inner in directories if directory / inner not in taken]
            elif not all(capture.format.lies_beside for capture in captures):
                directories.clear()
            yield from captures

    def _refuse(self, error: SourceError) -> None:
        if self._unreadable is None:
            raise error
        self._unreadable.append(error)

    def _captures_in(
        self, directory: Path, directories: frozenset[str], names: list[str]
    ) -> Iterator[Capture]:
        """Return the captures of the first format that takes the directory, else all in it."""
        if OUTPUT in directories:
            output = directory / OUTPUT
            with source_errors_for(output):
                inside = [path.name for path in output.iterdir()]
            if found := _captures_alone(Folder(FolderKind.OUTPUT, directory, output, inside)):
                yield from found
                return
            self.empty.append(directory)
        if directory.name.startswith(PROF) or MINDSTUDIO_OUTPUT in directories:
            matches = map(DEVICE_DIRECTORY.fullmatch, directories)
            devices = tuple(sorted(int(match[1]) for match in matches if match))
            place = (directory, directory, names, directories)
            yield from _captures_alone(Folder(FolderKind.MSPROF, *place, devices, free=devices))
            return
        folder = Folder(FolderKind.LOOSE, directory, directory, names, directories)
        alone = _captures_alone(folder)
        yield from alone or self._captures_beside(folder)
        self._note_traces_beside(folder, alone)
        for other in NAMED_BESIDE:
            if own := [name for name in names if other.is_of(name)]:
                more = f" and {len(own) - 1} more" if len(own) > 1 else ""
                self.remarks.append(f"{directory / own[0]}{more} is {other.what}. {other.do}")

    def _note_traces_beside(self, folder: Folder, alone: Sequence[Capture]) -> None:
        """Note traces of ranks beside one whose name stands for its whole directory."""
        traces = [
            one for one in formats.FORMATS if one.lies_beside and one.kind is FormatKind.EXPORT
        ]
        whole = {one.name for one in traces} & {one.format.name for one in alone}
        if not whole:
            return
        found = [one for known in traces for one in known.recognise(folder)]
        names = [one.content.name for one in found if isinstance(one, Capture)]
        if others := sorted(one for one in names if without_gz(one) not in whole):
            more = f" and {len(others) - 1} more were" if len(others) > 1 else " was"
            self.remarks.append(
                f"{folder.path / others[0]}{more} not read, because {min(whole)} lies beside. "
                "Pass one as PATH, or give each trace a directory of its own."
            )

    def _captures_beside(self, folder: Folder) -> list[Capture]:
        """Return the captures of all formats that lie beside others."""
        known = [one for one in formats.FORMATS if one.lies_beside]
        found = [(one, item) for one in known for item in one.recognise(folder)]
        captures = [item for _, item in found if isinstance(item, Capture)]
        for one, item in found:
            if not isinstance(item, Capture) and all(other.format is one for other in captures):
                what = (find_foreign(item.path) or item).what
                self.remarks.append(f"{item.path} was not read: it is {what}.")
        return captures


def _captures_alone(folder: Folder) -> list[Capture]:
    """Return the captures of the first format that recognises a directory.

    Where it recognises some devices of msprof alone, the next ones are asked for the others.
    """
    captures: list[Capture] = []
    for known in formats.FORMATS:
        if known.lies_beside:
            continue
        found = [one for one in known.recognise(folder) if isinstance(one, Capture)]
        captures += found
        taken = {capture.device for capture in found}
        free = tuple(device for device in folder.free if device not in taken)
        if found and (not free or None in taken):
            break
        folder = replace(folder, free=free)
    return captures


def _may_hold_others(capture: Capture) -> bool:
    """Return whether a capture is tables with room for other captures below its directory."""
    return (
        capture.format.kind is FormatKind.TABLES
        and capture.directory in (capture.content, capture.content.parent)
        and not capture.directory.name.startswith(PROF)
    )


# -- what is left of all that was found ------------------------------------------------------------


def _without_poorer(found: list[Capture]) -> list[Capture]:
    """Drop tables above something richer, and what is not richer below a framework's tables."""
    captures = _without_decoded_logs(_without_bare_tables(_without_inner_jobs(found)))
    above_rich = _above(one for one in captures if one.format.kind not in _POOR)
    above_any = above_rich | _above(one for one in captures if one.format.kind is FormatKind.TABLES)
    kept, owners = [], set()
    for one in captures:
        is_output = one.content.name == OUTPUT
        if not _may_hold_others(one):
            kept.append(one)
        elif one.directory not in (above_rich if is_output else above_any):
            kept.append(one)
            owners |= {one.directory} if is_output else set()
    return [
        one for one in kept if one.format.kind not in _POOR or not owners & {*one.directory.parents}
    ]


def _above(captures: Iterable[Capture]) -> set[Path]:
    return {parent for one in captures for parent in one.directory.parents}


def _at_and_above(captures: Collection[Capture]) -> set[Path]:
    return _above(captures) | {one.directory for one in captures}


def _without_inner_jobs(captures: list[Capture]) -> list[Capture]:
    """Keep one capture of the files of an id in a job's directory and in its `data`."""
    kept = {
        (one.directory, one.device, one.format.kind): one
        for one in sorted(captures, key=lambda one: one.content == one.directory)
    }
    return [
        one
        for one in captures
        if one.format.kind not in _OF_JOBS
        or one.content == one.directory
        or kept[one.directory, one.device, one.format.kind].content != one.directory
    ]


def _without_bare_tables(captures: list[Capture]) -> list[Capture]:
    """Drop bare tables at, above and below anything else: that holds or is read with them.

    What cannot be read holds nothing.
    """
    for kind, give_way in (
        (FormatKind.SUMS, _GIVE_WAY | {FormatKind.SUMS}),
        (FormatKind.STEPS, _GIVE_WAY),
    ):
        others = [one for one in captures if one.format.kind not in give_way]
        around, places = _at_and_above(others), {one.directory for one in others}
        captures = [
            one
            for one in captures
            if one.format.kind is not kind
            or (one.directory not in around and places.isdisjoint(one.directory.parents))
        ]
    return captures


def _without_decoded_logs(captures: list[Capture]) -> list[Capture]:
    """Drop tables that are nothing but a log of AI CPUs, decoded, where the log lies beside them.

    Its tasks are read from the log, which knows more of them.
    """
    held = {
        one: find_numbered_files((one.content,), one.device).keys() - _HOST_FILES
        for one in captures
        if one.format.kind in _OF_JOBS and one.device is not None
    }
    logs = {
        (parent, one.device)
        for one, files in held.items()
        if NumberedFile.AICPU_LOG in files
        for parent in (one.directory, one.directory.parent)
    }
    return [
        one
        for one in captures
        if held.get(one) != _DECODED_LOG
        or one.format.kind is not FormatKind.STEPS
        or (one.directory.parent, one.device) not in logs
    ]
