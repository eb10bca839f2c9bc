"""Finds captures in a directory tree, and recognises files of other profilers."""

from __future__ import annotations

import contextlib
import re
import shlex
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
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
"""Bytes of a file's beginning by which other profilers' formats are recognised."""
MOST_FILES_CHECKED = 1_000
"""Maximum number of files below a directory that are checked for other profilers' formats."""
_SQLITE = b"SQLite format 3\0"
_PACKED_TRACE = re.compile(rb"\n[\x80-\xff]*[^\x80-\xff]\x92\x03[\x80-\xff]*[^\x80-\xff]")
"""The beginning of a Perfetto trace with compressed packets, up to its zlib stream."""
_ELSEWHERE = "Open it in {0}, or record the run with torch.profiler and pass its trace."
_ROCM = _ELSEWHERE.format("Perfetto or with the tools of ROCm")
_NSIGHT = _ELSEWHERE.format("Nsight Systems")
_OPERATOR = "Open it in MindStudio Insight, or pass the profile of a run."


@dataclass(frozen=True)
class Foreign:
    """A file format of another program, which tlexport does not read.

    what: a noun phrase for its files. do: advice to the user. content, tables, name: regular
    expressions that recognise a file by its first bytes (decompressed), by a table of its database,
    or by its name; an empty one matches nothing.
    """

    what: str
    do: str
    content: bytes = b""
    tables: str = ""
    name: str = ""

    def advise(self, path: Path) -> str:
        """Return the advice for a file of this format."""
        return self.do.format(path=shlex.quote(str(path)))

    def matches(self, name: str, text: bytes = b"", tables: Iterable[str] = ()) -> bool:
        """Return whether a file has this format, by its name, first bytes or tables."""
        return bool(
            (self.content and re.search(self.content, text, re.DOTALL))
            or (self.tables and any(re.fullmatch(self.tables, table) for table in tables))
            or (self.name and re.fullmatch(self.name, name))
        )


_SHOW = (
    "Pass the profile that it was made of. To see it: tlexport open {path}; for what it says: "
    "tlexport show {path}"
)
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
REPORTED_BESIDE_CAPTURES = (
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
"""Formats that are reported even if captures are found, as users may expect them to be read."""
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
    *REPORTED_BESIDE_CAPTURES,
)
"""Formats of other programs, most specific first: timelines of tlexport may contain any string."""


def find_foreign(path: Path) -> Foreign | None:
    """Return the first format of another program that a file, or the name of a directory, has."""
    text = _first_bytes(path) if path.is_file() else b""
    tables = _tables(path) if text.startswith(_SQLITE) else ()
    return next((one for one in _FOREIGN if one.matches(path.name, text, tables)), None)


def find_foreign_files(directory: Path) -> dict[Foreign, Path]:
    """Return the first file of each format of another program below a directory."""
    files: dict[Foreign, Path] = {}
    listed = walk(directory, lambda _: None)
    paths = (inside / name for inside, _, names in listed for name in sorted(names))
    for path in islice(paths, MOST_FILES_CHECKED):
        if (foreign := find_foreign(path)) is not None:
            files.setdefault(foreign, path)
    return files


def _first_bytes(path: Path) -> bytes:
    """Return the beginning of a file, decompressed; nothing if it cannot be read."""
    text = b""
    with contextlib.suppress(SourceError), open_profile_file(path, in_part=True) as file:
        text = file.read(GLANCE_BYTES)
    if (packed := _PACKED_TRACE.match(text)) is not None:
        with contextlib.suppress(zlib.error):
            text += zlib.decompressobj().decompress(text[packed.end() :], GLANCE_BYTES)
    return text


def _tables(path: Path) -> tuple[str, ...]:
    from timeline.sources.decoders.sqlite import open_database  # imported late: rarely needed

    with contextlib.suppress(SourceError), open_database(path, in_part=True) as database:
        return tuple(name for (name,) in database.rows("SELECT name FROM sqlite_master"))
    return ()


# -- captures --------------------------------------------------------------------------------------


_INSIDE_CAPTURES = frozenset(
    {OUTPUT, MINDSTUDIO_OUTPUT, "timeline", "FRAMEWORK", "host", "summary", "data", SQLITE}
)
"""Names of directories inside a capture; if one is passed as PATH, the whole capture is read."""
_FRAMEWORK_CAPTURE = re.compile(r".+_ascend_(?:pt|ms)")
_POOR = frozenset({FormatKind.TABLES, FormatKind.RAW, FormatKind.UNREADABLE})
"""Kinds that are dropped if another kind of the same profile is found: they hold less."""
_OF_JOBS = frozenset({FormatKind.LOG, FormatKind.STEPS})
"""Kinds with files in the directory of a MindSpore job, in its `data` directory, or in both."""
_WORTHLESS = frozenset({FormatKind.STEPS, FormatKind.UNREADABLE})
"""Kinds for which step tables and sums (STEPS, SUMS) are not dropped."""
_HOST_FILES = frozenset(kind for kind in NumberedFile if kind.use is Use.HOST)
_DECODED_LOG = {NumberedFile.AICPU_TEXT}
MOST_RENAMED = 3
"""Maximum number of renamed tables that one error names."""
MOST_FOREIGN = 4
"""Maximum number of formats of other programs that one error names."""


@dataclass(frozen=True)
class FoundCaptures:
    """Captures, and what else the search met, each in order of directories.

    empty: directories with an ASCEND_PROFILER_OUTPUT in which nothing can be read. remarks: notes
    on files that look like profiles but are not read. tables: small tables that are not captures
    of their own, because other captures were found that may read them.
    """

    captures: tuple[Capture, ...]
    empty: tuple[Path, ...] = ()
    remarks: tuple[str, ...] = ()
    tables: tuple[Capture, ...] = ()


def find_captures(path: Path, unreadable: list[SourceError] | None = None) -> FoundCaptures:
    """Find every capture at, below or around a path.

    The path may be a capture, any directory above it, a directory inside it, or one file of it.

    Args:
        path: where to search.
        unreadable: a list that collects errors of unreadable directories; if None, they are raised.

    Raises:
        NoProfileError: no capture was found.
        SourceError: the path does not exist, is neither file nor directory, or a directory cannot
            be read.
    """
    if not path.exists():
        raise SourceError(path, f"does not exist{_sibling_like(path)}", do="Check the PATH.")
    if not (path.is_file() or path.is_dir()):
        raise SourceError(path, "is a pipe or device.", do="Name a directory or a file.")
    search, everything, empty = _Walk(unreadable), list[Capture](), list[Path]()
    if path.is_file():
        captures = _captures_of_file(path)
    else:
        everything = list(search.captures_below(_capture_root(path.resolve())))
        captures = _without_poorer(everything)
        empty = sorted(set(search.empty) - _at_and_above(everything))
    kept = frozenset(captures)
    tables = [one for one in everything if one.format.kind is FormatKind.STEPS and one not in kept]
    if not captures and not empty:
        if (foreign := find_foreign(path.resolve())) is not None:
            raise NoProfileError(path, f"is {foreign.what}.", do=foreign.advise(path))
        raise _nothing_found(path, search.remarks)
    return FoundCaptures(
        tuple(sorted(captures, key=lambda one: (str(one.directory), one.device or 0))),
        tuple(empty),
        tuple(search.remarks),
        tuple(tables),
    )


def _nothing_found(path: Path, remarks: Sequence[str]) -> NoProfileError:
    others = dict(islice(find_foreign_files(path).items(), MOST_FOREIGN))
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
            *(f"{at} is {one.what}. {one.advise(at)}" for one, at in others.items()),
            *more,
            *islice(_renamed_tables(path), MOST_RENAMED),
            *(() if others else looked_for),
        ),
    )


def _sibling_like(path: Path) -> str:
    """Return the end of a message: an entry of the same directory with a similar name, if any."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return "."
    return did_you_mean(path.name, names)


def _capture_root(path: Path) -> Path:
    """Return the directory of the capture that a directory lies in, else the directory itself."""
    root, match_device = path, DEVICE_DIRECTORY.fullmatch
    for directory in (path, *path.parents):
        parent = directory.parent
        is_inside = directory.name in _INSIDE_CAPTURES or match_device(directory.name)
        is_capture = parent.name.startswith(PROF) or (parent / OUTPUT).is_dir()
        if is_inside and parent != directory and (is_capture or match_device(parent.name)):
            root = parent
            continue
        if directory.name.startswith(PROF) and _FRAMEWORK_CAPTURE.fullmatch(parent.name):
            root = parent
        break
    return root


# -- one file --------------------------------------------------------------------------------------


def _captures_of_file(path: Path) -> Sequence[Capture]:
    """Return the captures in one file, one per device, even if its directory holds better ones."""
    resolved = path.resolve()
    root = _capture_root(resolved.parent)
    around = tuple(_Walk(None).captures_below(root))
    file = CaptureFile(resolved, without_gz(path.name), around)
    by_name = (one.recognise_file for one in formats.FORMATS)
    by_content = (one.recognise_content for one in formats.FORMATS)
    for recognise in chain(by_name, by_content):
        if captures := recognise(file):
            return captures
    if (foreign := find_foreign(resolved)) is not None:
        raise NoProfileError(path, f"is {foreign.what}, no profile.", do=foreign.advise(path))
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
            "is not a profile, but is inside one.",
            do=f"Pass the profile: tlexport {root}",
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


# -- directories -----------------------------------------------------------------------------------


class _Walk:
    """One walk through directories, which collects empty outputs and remarks on other files."""

    def __init__(self, unreadable: list[SourceError] | None) -> None:
        self.empty: list[Path] = []
        self.remarks: list[str] = []
        self._unreadable = unreadable

    def captures_below(self, root: Path) -> Iterator[Capture]:
        """Yield all captures in a directory and below."""

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
            elif not all(capture.format.shares_directory for capture in captures):
                directories.clear()
            yield from captures

    def _refuse(self, error: SourceError) -> None:
        if self._unreadable is None:
            raise error
        self._unreadable.append(error)

    def _captures_in(
        self, directory: Path, directories: frozenset[str], names: list[str]
    ) -> Iterator[Capture]:
        """Yield the captures of the first format that claims the whole directory, else all."""
        if OUTPUT in directories:
            output = directory / OUTPUT
            with source_errors_for(output):
                inside = [path.name for path in output.iterdir()]
            folder = Folder(FolderKind.OUTPUT, directory, output, inside)
            if captures := _captures_of_directory(folder):
                yield from captures
                return
            self.empty.append(directory)
        if directory.name.startswith(PROF) or MINDSTUDIO_OUTPUT in directories:
            matches = map(DEVICE_DIRECTORY.fullmatch, directories)
            devices = tuple(sorted(int(match[1]) for match in matches if match))
            place = (directory, directory, names, directories)
            folder = Folder(FolderKind.MSPROF, *place, devices, free=devices)
            yield from _captures_of_directory(folder)
            return
        folder = Folder(FolderKind.LOOSE, directory, directory, names, directories)
        captures = _captures_of_directory(folder)
        yield from captures or self._captures_sharing_directory(folder)
        self._note_other_traces(folder, captures)
        for other in REPORTED_BESIDE_CAPTURES:
            if files := [name for name in names if other.matches(name)]:
                more = f" and {len(files) - 1} more" if len(files) > 1 else ""
                self.remarks.append(f"{directory / files[0]}{more} is {other.what}. {other.do}")

    def _note_other_traces(self, folder: Folder, captures: Sequence[Capture]) -> None:
        """Note traces that are not read because another trace is taken for the whole directory.

        That is a file with the exact name of its format, such as trace_view.json.
        """
        traces = [
            one for one in formats.FORMATS if one.shares_directory and one.kind is FormatKind.EXPORT
        ]
        whole = {one.name for one in traces} & {one.format.name for one in captures}
        if not whole:
            return
        recognised = [one for trace in traces for one in trace.recognise(folder)]
        names = [one.content.name for one in recognised if isinstance(one, Capture)]
        if others := sorted(one for one in names if without_gz(one) not in whole):
            more = f" and {len(others) - 1} more were" if len(others) > 1 else " was"
            self.remarks.append(
                f"{folder.path / others[0]}{more} not read, because {min(whole)} lies beside. "
                "Pass one as PATH, or give each trace a directory of its own."
            )

    def _captures_sharing_directory(self, folder: Folder) -> list[Capture]:
        """Return the captures of all formats that may share a directory; note lookalikes."""
        sharing = [one for one in formats.FORMATS if one.shares_directory]
        recognised = [(one, item) for one in sharing for item in one.recognise(folder)]
        captures = [item for _, item in recognised if isinstance(item, Capture)]
        for one, item in recognised:
            if not isinstance(item, Capture) and all(other.format is one for other in captures):
                what = (find_foreign(item.path) or item).what
                self.remarks.append(f"{item.path} was not read: it is {what}.")
        return captures


def _captures_of_directory(folder: Folder) -> list[Capture]:
    """Return the captures of the first format that recognises a directory as a whole.

    If it recognises only some devices of an msprof session, later formats get the other devices.
    """
    captures: list[Capture] = []
    for one in formats.FORMATS:
        if one.shares_directory:
            continue
        recognised = [item for item in one.recognise(folder) if isinstance(item, Capture)]
        captures += recognised
        taken = {capture.device for capture in recognised}
        free = tuple(device for device in folder.free if device not in taken)
        if recognised and (not free or None in taken):
            break
        folder = replace(folder, free=free)
    return captures


def _may_hold_others(capture: Capture) -> bool:
    """Return whether a capture is tables whose directory may have other captures below it."""
    return (
        capture.format.kind is FormatKind.TABLES
        and capture.directory in (capture.content, capture.content.parent)
        and not capture.directory.name.startswith(PROF)
    )


# -- choice among captures -------------------------------------------------------------------------


def _without_poorer(everything: list[Capture]) -> list[Capture]:
    """Drop captures that hold less than others above or below them.

    Tables of an export are dropped if there are richer captures below their directory. Raw data
    and tables (_POOR) are dropped below the directory of a framework's tables that are kept.
    """
    captures = _without_decoded_logs(_without_bare_tables(_without_inner_jobs(everything)))
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
    above = set[Path]()
    for one in captures:
        # Whatever is above a directory that is known is known too.
        above.update(takewhile(lambda parent: parent not in above, one.directory.parents))
    return above


def _at_and_above(captures: Collection[Capture]) -> set[Path]:
    return _above(captures) | {one.directory for one in captures}


def _without_inner_jobs(captures: list[Capture]) -> list[Capture]:
    """Drop captures in the `data` directory of a job if the job's directory has the same id."""
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
    """Drop step tables and sums if another capture is in, above or below their directory.

    The other capture holds the same data, or is read together with the tables. Captures that
    cannot be read do not count.
    """
    for kind, ignored in (
        (FormatKind.SUMS, _WORTHLESS | {FormatKind.SUMS}),
        (FormatKind.STEPS, _WORTHLESS),
    ):
        others = [one for one in captures if one.format.kind not in ignored]
        around, places = _at_and_above(others), {one.directory for one in others}
        captures = [
            one
            for one in captures
            if one.format.kind is not kind
            or (one.directory not in around and places.isdisjoint(one.directory.parents))
        ]
    return captures


def _without_decoded_logs(captures: list[Capture]) -> list[Capture]:
    """Drop tables that hold only a decoded AI CPU log, if the log itself is there too.

    The tasks are read from the log, which holds more about them.
    """
    files_of = {
        one: find_numbered_files((one.content,), one.device).keys() - _HOST_FILES
        for one in captures
        if one.format.kind in _OF_JOBS and one.device is not None
    }
    logs = {
        (parent, one.device)
        for one, files in files_of.items()
        if NumberedFile.AICPU_LOG in files
        for parent in (one.directory, one.directory.parent)
    }
    return [
        one
        for one in captures
        if files_of.get(one) != _DECODED_LOG
        or one.format.kind is not FormatKind.STEPS
        or (one.directory.parent, one.device) not in logs
    ]
