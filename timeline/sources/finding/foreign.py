"""Files of other programs that look like profiles: what each is, and what to do with it."""

from __future__ import annotations

import contextlib
import re
import shlex
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from timeline.errors import SourceError
from timeline.sources.files.opened import open_profile_file, walk

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
        """What to do with a file of it."""
        return self.do.format(path=shlex.quote(str(path)))

    def is_of(self, name: str, text: bytes = b"", tables: Iterable[str] = ()) -> bool:
        """Whether a file is of the format, by its name, first bytes or tables."""
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
    """The format that a file is of by its content, else by its name; a directory by its name."""
    text = _first_bytes(path) if path.is_file() else b""
    tables = _tables(path) if text.startswith(_SQLITE) else ()
    return next((one for one in _FOREIGN if one.is_of(path.name, text, tables)), None)


def foreign_files_below(directory: Path) -> dict[Foreign, Path]:
    """The first file of each such format below a directory."""
    found: dict[Foreign, Path] = {}
    listed = walk(directory, lambda _: None)
    paths = (inside / name for inside, _, names in listed for name in sorted(names))
    for path in islice(paths, MOST_LOOKED_AT):
        if (foreign := find_foreign(path)) is not None:
            found.setdefault(foreign, path)
    return found


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
    from timeline.sources.decoders.sqlite import open_database  # most profiles need no SQLite

    with contextlib.suppress(SourceError), open_database(path, in_part=True) as database:
        return tuple(name for (name,) in database.rows("SELECT name FROM sqlite_master"))
    return ()
