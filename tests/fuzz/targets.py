"""Every reader as a target: what it reads, where, and from which valid inputs it starts.

A new reader is a function here with the decorator `target`: it is given the directory of a capture
whose fuzzed files hold the input, and gives the records, or None where the reader gives none.
"""

from __future__ import annotations

import tempfile
import warnings
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from tests.fuzz.changes import bytes_change, json_change, table_change
from tests.fuzz.database import change_database, shrink_database
from tests.fuzz.promises import BrokenPromise
from tests.fuzz.seeds import (
    database_seeds,
    file_seeds,
    filed_seeds,
    metadata_seeds,
    table_seeds,
    trace_events,
    trace_seeds,
    write_capture,
)
from tests.fuzz.shrink import shrink_text
from tests.fuzz.target import Form, target
from timeline.columns.strings import StringPool
from timeline.commands.compare import compare
from timeline.commands.show import read_verdict
from timeline.errors import SourceError, TimelineError, TimelineWarning
from timeline.figures.filed_verdict import CHECKSUM, TEXT, DamagedVerdictError, FiledVerdict
from timeline.profile import open_profile
from timeline.records.clock import Clock
from timeline.records.tables import Records, Tasks
from timeline.reports.terminal import Display
from timeline.reports.terminal_verdict import filed_text
from timeline.selection import DETAIL_LAYERS
from timeline.sources.ascend_trace import reader
from timeline.sources.ascend_trace.reader import TraceFiles, read_trace
from timeline.sources.ascend_trace.tables import ascend_format
from timeline.sources.common.kernel_table import (
    describe_tasks,
    match_tasks,
    read_kernel_table,
    read_step_table,
)
from timeline.sources.common.losses import LossLog
from timeline.sources.database.source import DatabaseSource
from timeline.sources.decoders.json_events import BLOCK_BYTES, read_events
from timeline.sources.finding.captures import find_captures
from timeline.sources.finding.discovery import discover
from timeline.sources.source import Identity, ReadRequest, Source
from timeline.sources.trace_json.source import (
    GraphTimelineSource,
    MindStudioSource,
    TraceViewSource,
)

ALL = ReadRequest(DETAIL_LAYERS, every_arg=True)
JSON = Form(".json", 8_192, json_change(trace_events), shrink_text)
SMALL_JSON = Form(".json", 4_096, json_change(lambda: ()), shrink_text)
CSV = Form(".csv", 8_192, table_change, shrink_text)
SQLITE = Form(".db", 131_072, change_database, shrink_database)


def files(layout: str, *patterns: str, without: Sequence[str] = ()) -> Callable[[Path], list[Path]]:
    """Write a capture; the files that fit the patterns take the input, some others go away."""

    def write(directory: Path) -> list[Path]:
        write_capture(layout, directory)
        for pattern in without:
            for path in directory.rglob(pattern):
                path.unlink()
        return [path for pattern in patterns for path in sorted(directory.rglob(pattern))]

    return write


def _one(capture: Path, pattern: str) -> Path:
    """The file or directory of a capture that fits; which one never changes."""
    known = _PLACES.get((capture, pattern))
    if known is None:
        known = _PLACES[capture, pattern] = next(iter(sorted(capture.rglob(pattern))))
    return known


_PLACES: dict[tuple[Path, str], Path] = {}


def _read(make: Callable[[str, Identity, Clock, Path], Source], content: Path) -> Records:
    """Read a source of rank 0, device 0."""
    return make("", Identity(0, content.parent, device=0), Clock(), content).read(ALL)


# -- JSON ----------------------------------------------------------------------------------------


@target(
    "json-view",
    form=JSON,
    capture=files("torch-text", "trace_view.json"),
    seeds=trace_seeds,
)
def trace_view(capture: Path) -> Records:
    """The trace of torch_npu and MindSpore."""
    return _read(TraceViewSource, _one(capture, "ASCEND_PROFILER_OUTPUT"))


@target(
    "json-graph",
    form=JSON,
    capture=files(
        "mindspore-2.1",
        "msprof_0_1_1.json",
        "step_trace_0_1_2.json",
        without=("msprof_0_1_2.json",),
    ),
    seeds=trace_seeds,
)
def graph_timeline(capture: Path) -> Records:
    """A trace for each graph and iteration, and the step trace of a graph."""
    return _read(GraphTimelineSource, _one(capture, "timeline"))


@target(
    "json-mindstudio",
    form=JSON,
    capture=files("mindstudio", "msprof_2*.json", "step_trace_*.json"),
    seeds=trace_seeds,
)
def mindstudio(capture: Path) -> Records:
    """An export of msprof that holds several devices."""

    def source(layout: str, identity: Identity, clock: Clock, content: Path) -> Source:
        return MindStudioSource(layout, identity, clock, content, several_devices=True)

    return _read(source, _one(capture, "mindstudio_profiler_output"))


@target(
    "json-blocks",
    form=JSON,
    capture=files("torch-text", "trace_view.json"),
    seeds=trace_seeds,
)
def blocks(capture: Path) -> None:
    """A file that is read in blocks, and of which few events are held, reads as one that is not."""
    path = _one(capture, "trace_view.json")
    small = 1 + zlib.crc32(path.read_bytes()) % 300
    damage = LossLog(path)
    whole = _events_or_refusal(path, BLOCK_BYTES, damage)
    cut = _events_or_refusal(path, small, LossLog(path))
    if isinstance(whole, str):
        raise SourceError(path, whole)
    if damage.omissions(0):
        return  # around damage more can be read of the whole than of a part
    if whole != cut:
        raise BrokenPromise("blocks change what is read")
    all_held = _records_holding(path, reader.HELD_EVENTS)
    if all_held != _records_holding(path, small % 7):
        raise BrokenPromise("events that are not held change what is read")


def _events_or_refusal(path: Path, block_bytes: int, damage: LossLog) -> list[object] | str:
    try:
        blocks = read_events(ascend_format().decoder, path, block_bytes, damage)
        return [event for block in blocks for event in block]
    except SourceError:
        return "is refused"


def _records_holding(path: Path, most: int) -> list[int]:
    """How many rows of each table are read when no more events are held."""
    usual = reader.HELD_EVENTS
    reader.HELD_EVENTS = most
    try:
        records = read_trace(TraceFiles((path,), 0), 0, StringPool(), ALL)
    finally:
        reader.HELD_EVENTS = usual
    tables = (records.tasks, records.planes, records.ops, records.steps, records.parts)
    return [len(table) for table in (*tables, records.host, records.samples, records.flows)]


# -- tables --------------------------------------------------------------------------------------


@target(
    "csv-kernels",
    form=CSV,
    capture=files("torch-text", "kernel_details.csv"),
    seeds=table_seeds("kernel_details.csv"),
)
def kernel_details(capture: Path) -> Records:
    """The kernels of torch_npu and MindSpore."""
    return _described(_one(capture, "kernel_details.csv"), None)


@target(
    "csv-ops",
    form=CSV,
    capture=files("mindstudio", "op_summary_*.csv"),
    seeds=table_seeds("op_summary_*.csv"),
)
def op_summary(capture: Path) -> Records:
    """The operators of msprof, of one device."""
    return _described(_one(capture, "op_summary_*.csv"), 0)


_LATEST_NS = 1 << 62


def _described(path: Path, device: int | None) -> Records:
    """Tasks at the moments of the run, described by a table."""
    strings = StringPool()
    table, _ = read_kernel_table((path,), strings, 0, device)
    # Rows of the table itself, so that some are found, and one nanosecond or more beside them.
    first = table.take(np.arange(min(4, len(table))))
    start_ns = np.where(first.start_ns < _LATEST_NS, first.start_ns, 0) + np.arange(len(first))
    tasks = Tasks.of(len(first), {"start_ns": start_ns, "end_ns": start_ns, "name": first.name})
    row = match_tasks(tasks, table)
    if len(row) and not -1 <= row.min() <= row.max() < max(1, len(table)):
        raise BrokenPromise(f"rows {row} of {len(table)}")
    return Records(0, strings, tasks=describe_tasks(tasks, table, row))


@target(
    "csv-steps",
    form=CSV,
    capture=files("mindstudio", "step_trace_*.csv", without=("step_trace_*.json",)),
    seeds=table_seeds("step_trace_*.csv"),
)
def step_trace(capture: Path) -> Records:
    """The steps of msprof, of all devices and of one."""
    path = _one(capture, "step_trace_*.csv")
    steps, parts = read_step_table(path, None, LossLog(path))
    some, _ = read_step_table(path, 0, LossLog(path))
    if len(some) > len(steps):
        raise BrokenPromise("one device has more steps than all")
    return Records(0, StringPool(), steps=steps, parts=parts)


# -- databases -----------------------------------------------------------------------------------


@target(
    "sqlite",
    form=SQLITE,
    capture=files("torch-db", "ascend_pytorch_profiler_0.db"),
    seeds=database_seeds,
)
def database(capture: Path) -> Records:
    """The database of torch_npu, MindSpore and msprof; for one input in three, one device of it."""
    path = _one(capture, "ascend_pytorch_profiler_0.db")
    several = path.stat().st_size // 512 % 3 == 0
    with suppress(TimelineError):  # what is no capture may still be a database that reads
        discover(capture)
    return DatabaseSource("", Identity(0, capture, device=0), Clock(), path, several).read(ALL)


# -- metadata ------------------------------------------------------------------------------------


def _all_metadata(directory: Path) -> list[Path]:
    """Captures of two kinds, apart: all their small files hold the input."""
    names = ("profiler_info_0.json", "info.json.0", "info.json", "start_info.0", "start_info")
    made = []
    for layout in ("torch-text", "mindstudio"):
        (directory / layout).mkdir()
        made += files(layout, *names)(directory / layout)
    return made


@target("metadata", form=SMALL_JSON, capture=_all_metadata, seeds=metadata_seeds)
def metadata(capture: Path) -> None:
    """What captures say about themselves: rank, device, host and clock."""
    refusals = []
    for layout in ("torch-text", "mindstudio"):
        try:
            for source in discover(capture / layout).sources:
                if source.identity.rank < 0:
                    raise BrokenPromise(f"rank {source.identity.rank}")
                offset_ns = source.clock.wall_offset_ns
                if offset_ns is not None and not -(1 << 63) <= offset_ns < 1 << 63:
                    raise BrokenPromise("the offset to wall time exceeds 64 bits")
        except TimelineError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


# -- written files -------------------------------------------------------------------------------

FILED = Form(".json", 65_536, json_change(lambda: ()), shrink_text)
DISPLAYS = (Display(20, "ascii", terminal=False), Display(200, "utf-8", terminal=True))


def _filed(directory: Path) -> list[Path]:
    payload = directory / "payload"
    payload.touch()
    return [payload]


@target("show", form=FILED, capture=_filed, seeds=filed_seeds)
def shown(capture: Path) -> None:
    """What a file says, whatever that is, with a right checksum."""
    payload = capture / "payload"
    text = payload.read_bytes().decode("utf-8", "surrogateescape")
    checksum = str(zlib.crc32(text.encode("utf-8", "surrogatepass")))
    try:
        filed = FiledVerdict.from_attributes({TEXT: text, CHECKSUM: checksum})
    except DamagedVerdictError as error:
        raise SourceError(payload, str(error)) from error
    if filed is None:
        raise BrokenPromise("a verdict is not found")
    filed.to_json()
    for display in DISPLAYS:
        filed_text(filed, display, verbose=True)


@target("compare", form=SQLITE, capture=files("torch-db", "*profiler_0.db"), seeds=database_seeds)
def compared(capture: Path) -> None:
    """A capture, compared with itself: every time is the same, and what it says can be shown."""
    known = {_assigned(capture): 0}
    with tempfile.TemporaryDirectory(prefix="tlexport-compared-") as name:
        output = Path(name, "both.json")
        report = compare(capture, capture, output, assign_rank=known, jobs=1)
        filed = read_verdict(output)
    comparison = report.comparison
    for table in (comparison.overall, comparison.steps, comparison.operators):
        if len(table) and np.ma.filled(table["delta_ns"], 0).any():
            raise BrokenPromise("a run differs from itself")
    for display in DISPLAYS:
        filed_text(filed, display, verbose=True)


# -- other layouts -------------------------------------------------------------------------------

RAW = Form(".bin", 32_768, bytes_change, shrink_text)
PARSED = Form(".db", 131_072, change_database, shrink_database)


def _discovered(capture: Path) -> Records | None:
    """The records of the one rank that is found."""
    sources = discover(capture, {_assigned(capture): 0}).sources
    return sources[0].read(ALL) if sources else None


def _assigned(capture: Path) -> str:
    """How the one capture below is named for --assign-rank: fuzzed metadata may not tell a rank."""
    return str(find_captures(capture).captures[0].directory)


def _add(
    name: str, form: Form, layout: str, *patterns: str, seeds: Callable[[], Sequence[bytes]]
) -> None:
    """A target that reads a layout as it is found."""
    target(name, form=form, capture=files(layout, *patterns), seeds=seeds)(_discovered)


for _name, _form, _layout, _pattern in (
    ("json-kineto", JSON, "kineto", "*.pt.trace.json"),
    ("json-display", JSON, "mindspore-display", "*timeline_display_*.json"),
    ("csv-alone", CSV, "kernel-details", "kernel_details.csv"),
    ("csv-summary", CSV, "op-summary", "op_summary_*.csv"),
    ("csv-task-time", CSV, "op-summary", "task_time_*.csv"),
    ("text-tasks", CSV, "mindspore-text", "output_timeline_data_*.txt"),
    ("text-steps", CSV, "mindspore-text", "step_trace_raw_*.csv"),
    ("text-aicpu", CSV, "mindspore-text-2.1", "aicpu_intermediate_*.csv"),
    ("text-framework", CSV, "mindspore-text", "framework_raw_*.csv"),
    ("text-hccl", JSON, "mindspore-text-hccl", "hccl_info_*/**/*.json"),
    ("raw-stars", RAW, "raw", "stars_soc.data.*.slice_[0-2]"),
    ("raw-steps", RAW, "raw", "ts_track.data.*.slice_[0-2]"),
    ("raw-hwts", RAW, "raw-hwts", "hwts.data.*.slice_[0-2]"),
    ("raw-v6", RAW, "raw-v6", "stars_soc.data.*.slice_[0-2]"),
    ("raw-mindspore", RAW, "mindspore-raw", "hwts.log.data.*.slice_[0-1]"),
    ("raw-mindspore-steps", RAW, "mindspore-raw", "training_trace.*.slice_0"),
    ("sqlite-parsed-tasks", PARSED, "msprof-sqlite", "ascend_task.db"),
    ("sqlite-parsed-steps", PARSED, "msprof-sqlite", "trace.db"),
    ("sqlite-parsed-hccl", PARSED, "msprof-sqlite", "hccl_single_device.db"),
    ("sqlite-parsed-host", PARSED, "msprof-sqlite", "api_event.db"),
):
    _add(_name, _form, _layout, _pattern, seeds=file_seeds(_pattern, _layout))

# -- small tables --------------------------------------------------------------------------------

TABLES: dict[str, tuple[Form, tuple[str, ...]]] = {
    "csv": (
        CSV,
        (
            "step_trace_raw_0_detail_time.csv",
            "ascend_cluster_analyse_pipeline-parallel_2_4_0.csv",
            "hccl_raw_0.csv",
            "aicpu_intermediate_0.csv",
            "aicore_intermediate_0_type.csv",
            "aicore_intermediate_0_detail.csv",
            "framework_raw_0.csv",
            "minddata_pipeline_raw_0.csv",
        ),
    ),
    "text": (
        CSV,
        (
            "flops_0.txt",
            "flops_utilization_step_0.json",
            "device_queue_profiling_0.txt",
            "minddata_aicpu_0.txt",
            "minddata_getnext_profiling_0.txt",
            "output_data_preprocess_aicpu_0.txt",
        ),
    ),
    "json": (
        SMALL_JSON,
        (
            "flops_summary_0.json",
            "flops_scope_0.json",
            "pipeline_profiling_0.json",
            "minddata_cpu_utilization_0.json",
            "parallel_strategy_0.json",
            "profiler_info_0.json",
            "step_trace_point_info.json",
            "dynamic_shape_info_0.json",
        ),
    ),
    "memory": (RAW, ("memory_usage_0.pb",)),
    "slices": (
        RAW,
        (
            "DATA_PREPROCESS.dev.AICPU.0.slice_0",
            "DATA_PREPROCESS.dev.TDT.0.slice_0",
            "Framework.host.vm.graph_desc_info.0.slice_0",
            "Framework.host.vm.task_desc_info.0.slice_0",
            "Framework.host.vm.point.0.slice_0",
        ),
    ),
}
"""By what they look like, the forms and the small tables that take the same input."""
TABLE_TEXTS = (
    b"op_full_name, MFLOPs, GFLOPS, utilization %\nDefault/Conv2D-op1, 236.1, 1180.5, 12.5\n",
    b"full_kernel_name,a,b,c,d,e,f\nDefault/Conv2D-op1,236.1,1180.5,1.5,2.5,3.5,4.5\n",
    b"0 0 1 4 100\n0 1 1 1 101\n0 2 1 5 102\n1 64 1 0 103\n1 64 2 7 104\n",
    b"GetNext_dequeue_wait 1000 1090 3\nGetNext_init 5 6 0\n",
    b"steps, FLOPS_Utilization %\n1,3.2\n",
)
TABLE_JSON = (
    b'{"FLOPs": 1.5, "FLOPS": 2.5, "FLOPS_Utilization": 3.5, "cube_FLOPs": 1, "vec_FLOPS": 2}',
    b'{"data": {"links": [{"source": "Total", "target": "Default(Default)", "value": 2.5}]}}',
    b'{"op_info": [{"op_id": 0, "op_type": "Batch", "num_workers": 2, "children": [1], "metrics":'
    b' {"output_queue": {"size": [0, 3, 4], "length": 16}}}, {"op_id": 1, "op_type": "Map",'
    b' "num_workers": 4, "children": null, "metrics": null}], "sampling_interval": 10}',
    b'{"time_stamp": [1, 2], "device_info": {"idle_utilization": [5, 6]}, "op_info": [{"op_id": 0,'
    b' "metrics": {"user_utilization": [1], "sys_utilization": [2]}}]}',
    b'{"operator": {"1": [{"step": 1, "op_side": "Ascend", "op_type": "Add", "op_name": "Add-op1",'
    b' "dur": 1.5, "shape_info": "[[2, 3]]"}]}, "operator_type": {"1": {"Add": [0, 3, 2, 1.5]}}}',
)


def _tables(names: Sequence[str]) -> Callable[[Path], list[Path]]:
    """Write a directory of small tables, in which some take the input."""

    def write(directory: Path) -> list[Path]:
        profiler = write_capture("mindspore-tables", directory)
        for name in names:
            (profiler / name).touch()
        return [profiler / name for name in names]

    return write


def _table_seeds(names: Sequence[str]) -> Callable[[], list[bytes]]:
    def seeds() -> list[bytes]:
        made = [text for name in names for text in file_seeds(name, "mindspore-tables")()]
        hand = TABLE_JSON if names[0].endswith(".json") else TABLE_TEXTS
        return [*made, *(hand if names[0].endswith((".json", ".txt")) else ())]

    return seeds


def _read_tables(capture: Path) -> Records:
    """The records of a directory of small tables, of which every figure is made as well."""
    (source,) = discover(capture).sources
    records = source.read(ALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TimelineWarning)
        open_profile(capture, jobs=1).memory()
    return records


for _name, (_form, _names) in TABLES.items():
    target(f"tables-{_name}", form=_form, capture=_tables(_names), seeds=_table_seeds(_names))(
        _read_tables
    )
