"""Files of other programs that look like profiles: what each is, and what to do with it."""

from __future__ import annotations

import contextlib
import re
import shlex
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from timeline.errors import SourceError
from timeline.frozen import dataclass
from timeline.patterns import compile_late
from timeline.sources.decoders.sqlite import open_database
from timeline.sources.files.opened import open_profile_file, walk

__all__ = ["ForeignFile", "find_foreign", "foreign_files_below"]

GLANCE_BYTES = 1 << 16
MOST_LOOKED_AT = 1_000
"""Files below a directory."""
_SQLITE = b"SQLite format 3\0"
_PACKED_TRACE = compile_late(rb"\n[\x80-\xff]*[^\x80-\xff]\x92\x03[\x80-\xff]*[^\x80-\xff]")
"""How a Perfetto trace begins whose packets are compressed, up to their zlib stream."""
_NOWHERE = compile_late(rb"(?!)")
_ON_GPUS = "Open it in {tool}, or record the run with torch.profiler and pass its trace."
_ROCPROF = _ON_GPUS.format(tool="Perfetto or with the tools of ROCm")
_NSIGHT = _ON_GPUS.format(tool="Nsight Systems")
_OPERATOR = "Open it in MindStudio Insight, or pass the profile of a run."


@dataclass(frozen=True)
class _Foreign:
    """A format that is not read: what its files are, what to do, and what recognises one.

    content: of the first bytes, unpacked. tables: of a database. name: where no content tells.
    """

    what: str
    do: str
    content: re.Pattern[bytes] = _NOWHERE
    tables: str = ""
    name: str = ""


_FOREIGN = (
    _Foreign(
        "a timeline that tlexport wrote",
        "Pass the profile that it was made of; for what it says: tlexport show {path}",
        compile_late(rb"io\.tlexport"),
    ),
    _Foreign(
        "an export of Nsight Systems",
        _NSIGHT,
        compile_late(rb'\A\{"data":\s*\[|"(?:Cuda|Nvtx|TraceProcess|OSRuntime)Event":'),
        tables=r"CUPTI_ACTIVITY_KIND_\w+|META_DATA_EXPORT|TARGET_INFO_NSYS\w+",
    ),
    _Foreign("a report of Nsight Systems", _NSIGHT, name=r".*\.(?:nsys-rep|qdrep|qdstrm)"),
    _Foreign(
        "a report of Nsight Compute",
        _ON_GPUS.format(tool="Nsight Compute"),
        compile_late(rb"\ANVR\0"),
        name=r".*\.ncu-rep",
    ),
    _Foreign("a database of rocprof (rocpd)", _ROCPROF, tables=r"rocpd_\w+"),
    _Foreign(
        "a trace of rocprofv3",
        _ROCPROF,
        compile_late(rb'"rocprofiler-sdk-tool"|\A"?Kind"?,"?Agent_Id"?,'),
    ),
    _Foreign(
        "a trace of rocprof",
        _ROCPROF,
        compile_late(rb'CPU HIP API"|"BeginNs"|\A"?Index"?,"?KernelName"?,'),
    ),
    _Foreign(
        "a profile of Proton (Triton)",
        _ON_GPUS.format(tool="proton-viewer"),
        compile_late(rb'"frame":\s*\{[^{}]*"ROOT"|"cat":\s*"triton"'),
        name=r".*\.hatchet",
    ),
    _Foreign(
        "a memory snapshot of PyTorch",
        "Open it at https://pytorch.org/memory_viz, or pass a trace of the profiler.",
        compile_late(rb"\A\x80[\x02-\x05].*(?:segments|device_traces)", re.DOTALL),
    ),
    _Foreign(
        "what msServiceProfiler recorded of a service",
        "Parse it with msserviceprofiler, or pass the profile of its NPUs.",
        tables="Mstx",
        name=r"(?:ms_service|ascend_service_profiler)_.*\.db|ms_service_profiler.*",
    ),
    _Foreign(
        "a trace of VizTracer, of Python on the host alone",
        "Open it with vizviewer, or pass a trace of torch.profiler.",
        compile_late(rb'"viztracer_metadata"|"cat":\s*"FEE"'),
    ),
    _Foreign(
        "a trace of XProf (JAX, TensorFlow)",
        _ON_GPUS.format(tool="XProf or TensorBoard"),
        compile_late(rb'"/(?:device|host):\w+|\A\n[\x00-\xff]{1,40}?/(?:device|host):'),
        name=r".*\.xplane\.pb",
    ),
    _Foreign(
        "a log of TensorBoard",
        "Pass the traces of the profiler beside it.",
        name=r"events\.out\.tfevents\..*",
    ),
    _Foreign(
        "what msprof op measured of one operator, which is not read",
        _OPERATOR,
        name=r"OPPROF_.*|visualize_data\.bin",
    ),
    _Foreign(
        "a Perfetto trace of another program",
        "Open it at https://ui.perfetto.dev, or pass a profile.",
        name=r".*\.(?:pftrace|perfetto-trace)(?:\.gz)?",
    ),
)
"""Most particular first: what this program wrote says so, whatever is in it."""


@dataclass(frozen=True)
class ForeignFile:
    """A file or directory that is not read: what it is, and what to do with it."""

    path: Path
    what: str
    do: str


def find_foreign(path: Path) -> ForeignFile | None:
    """The format that a file is of by its content, else by its name; a directory by its name."""
    text = _first_bytes(path) if path.is_file() else b""
    tables = _tables(path) if text.startswith(_SQLITE) else ()
    for one in _FOREIGN:
        if (
            one.content.search(text)
            or any(re.fullmatch(one.tables, table) for table in tables)
            or re.fullmatch(one.name or "(?!)", path.name)
        ):
            return ForeignFile(path, one.what, one.do.format(path=shlex.quote(str(path))))
    return None


def foreign_files_below(directory: Path) -> Iterator[ForeignFile]:
    """The first file of each such format below a directory."""
    listed = walk(directory, lambda _: None)
    paths = (inside / name for inside, _, names in listed for name in sorted(names))
    known = set[str]()
    for path in islice(paths, MOST_LOOKED_AT):
        found = find_foreign(path)
        if found is not None and found.what not in known:
            known.add(found.what)
            yield found


def _first_bytes(path: Path) -> bytes:
    """What a file begins with, unpacked; nothing of one that cannot be read."""
    text = b""
    with contextlib.suppress(SourceError), open_profile_file(path, in_part=True) as file:
        text = file.read(GLANCE_BYTES)
    if (packed := _PACKED_TRACE.match(text)) is not None:
        with contextlib.suppress(zlib.error):
            text += zlib.decompressobj().decompress(text[packed.end() :], GLANCE_BYTES)
    return text


def _tables(path: Path) -> tuple[str, ...]:
    with contextlib.suppress(SourceError), open_database(path, in_part=True) as database:
        return tuple(name for (name,) in database.rows("SELECT name FROM sqlite_master"))
    return ()
