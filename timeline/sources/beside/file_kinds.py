"""The kinds of files beside a capture: the one place that knows their names."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from timeline.columns.columns import Rows
from timeline.frozen import dataclass
from timeline.patterns import compile_late
from timeline.records.tables import Records
from timeline.sources.common.counter_tables import OPERATOR_MEMORY, csv_tables
from timeline.sources.files.opened import files_by_name, find_file, lies_there
from timeline.sources.files.remembered import remember_by_directory


class Use(enum.Enum):
    """What a file beside a capture is used for."""

    COUNTERS = enum.auto()
    OPERATOR_SUMS = enum.auto()
    STEP_SUMS = enum.auto()
    OPS = enum.auto()
    LINKS = enum.auto()
    MEASURES = enum.auto()
    """A database of step sums, ops and links."""
    TRACE = enum.auto()
    """The capture as a trace, of which Overlap Analysis alone is read."""
    NONE = enum.auto()


@dataclass(frozen=True)
class CompanionKind:
    """Files of one kind: `name` is theirs, without a time stamp and a number of a slice.

    beside_any: it holds what no export does, so it is named beside those too.
    """

    name: str
    suffix: str
    what: str
    use: Use = Use.NONE
    beside_any: bool = False


_SAME = "the same records in another form"
_UNUSED_CSV = {
    "api_statistic": "sums of host calls by name",
    "communication_statistic": "sums of communication ops by type",
    "operator_details": "host operators and their device time, without times",
    "op_summary": _SAME,
    "kernel_details": _SAME,
    "task_time": _SAME,
    "step_trace": _SAME,
    "l2_cache": "hit rates of the L2 cache by kernel",
    "data_preprocess": "operators of the data pipeline on AI CPU",
    "aicpu": "times of AI CPU operators",
    "fusion_op": "operators that were fused",
    "dataset": "sums of the data pipeline",
    "static_op_mem": "memory of operators of static graphs, without times",
    "ai_core_utilization": "shares of AI Core time by metric",
    "ai_vector_core_utilization": "shares of vector core time by metric",
    "ddr": "mean bandwidth of DDR",
    "hbm": "mean bandwidth of HBM",
    "hccs": "mean bandwidth of HCCS",
    "pcie": "mean bandwidth of PCIe",
    "llc_read_write": "mean bandwidth of the last-level cache",
    "llc_aicpu": "use of the last-level cache by AI CPU",
    "llc_ctrlcpu": "use of the last-level cache by the control CPU",
    "llc_bandwidth": "bandwidth of the last-level cache",
    "cpu_usage": "mean use of the host's CPUs",
    "host_mem_usage": "mean use of the host's memory",
    "host_disk_usage": "mean use of the host's disks",
    "host_network_usage": "mean use of the host's network",
    "process_cpu_usage": "CPU use of the process",
    "process_mem": "memory of the process",
    "os_runtime_statistic": "sums of calls of the operating system",
    "msprof_tx": "marks and ranges, which are in the trace too",
    "acc_pmu": "metrics of accelerators",
    "soc_pmu": "metrics of the chip",
    "block_detail": "blocks of kernels",
}
_UNUSED_JSON = {
    "prof_rule": "advice of msprof",
    "step_trace": _SAME,
    "msprof_tx": "marks and ranges, which are in the trace too",
}
_UNUSED_SQLITE = {
    "ai_core_op_summary": "metrics of kernels",
    "metric_summary": "metrics of kernels",
    "op_counter": "sums of operators",
    "biu_perf": "metrics of the bus",
    "l2cache": "hit rates of the L2 cache by kernel",
    "soc_log": "tasks as the scheduler logged them",
    "rts_track": "numbering of tasks",
    "tensor_info": "tensors of kernels",
    "node_basic_info": "kernels as the host launched them",
    "ge_host_info": "host calls of the graph engine",
    "stream_expand_spec": "how streams are numbered",
    "time": "clocks",
}
_KINDS = (
    *(
        CompanionKind(table.table, "csv", f"samples of {table.group}", Use.COUNTERS)
        for table in csv_tables()
    ),
    CompanionKind(OPERATOR_MEMORY, "csv", "memory of operators", Use.COUNTERS),
    CompanionKind("step_trace_time", "csv", "sums of each step", Use.STEP_SUMS),
    CompanionKind("op_statistic", "csv", "sums of operators by type", Use.OPERATOR_SUMS),
    CompanionKind("communication", "json", "measures of communication ops", Use.OPS),
    CompanionKind("communication_matrix", "json", "measures of links", Use.LINKS),
    CompanionKind("analysis", "db", "sums of steps, measures of communication", Use.MEASURES),
    CompanionKind("communication_analyzer", "db", "measures of communication", Use.MEASURES),
    CompanionKind("msprof", "json", _SAME, Use.TRACE),
    CompanionKind("trace_view", "json", _SAME, Use.TRACE),
    *(CompanionKind(name, "csv", what) for name, what in _UNUSED_CSV.items()),
    *(CompanionKind(name, "json", what) for name, what in _UNUSED_JSON.items()),
    *(CompanionKind(name, "db", what) for name, what in _UNUSED_SQLITE.items()),
    CompanionKind("voltage", "db", "voltages of the AI Cores and the bus", beside_any=True),
)
_BY_NAME = {(kind.name, kind.suffix): kind for kind in _KINDS}
_NAME = compile_late(r"(.+?)(?:_slice|_\d+)*\.([a-z]+)")
"""The name of a file without the stamps and numbers at its end, and its suffix."""


def find_kind(name: str) -> CompanionKind | None:
    """The kind of a file by its plain name, None for one that is not known."""
    match = _NAME.fullmatch(name)
    return _BY_NAME.get((match[1], match[2])) if match else None


def kinds_for(use: Use) -> tuple[CompanionKind, ...]:
    """The kinds that are used for something."""
    return tuple(kind for kind in _KINDS if kind.use is use)


CPU_LAYER = "CPU OP"
"""What MindSpore's own timeline calls operators that run on the host."""
_INNER = "host_info"
"""The directory of MindSpore's host files within one of the capture."""
_TIMELINE = "timeline_{}.json"
_HOST_FILES = (
    "cpu_op_execute_timestamp_{}.txt",
    "host_info_{}.csv",
    _TIMELINE,
    "host_memory_{}.csv",
    "dataset_{}.csv",
    "dataset.csv",
    "minddata_cpu_utilization_{}.json",
    "pipeline_profiling_{}.json",
    "device_queue_profiling_{}.txt",
    "dataset_iterator_profiling_{}.txt",
)
"""Files by rank. The pipeline tables of MindData repeat the JSON, and are not read."""


def find_host_files(directories: Sequence[Path], rank: int) -> dict[str, Path]:
    """The host files of a rank by their name without the rank, the first of each that is found.

    Directories may be shared with thousands of ranks, so files are asked for and not listed.
    """
    found: dict[str, Path] = {}
    for directory in directories:
        searched = [one for one in (directory, directory / _INNER) if lies_there(one)]
        for name in _HOST_FILES:
            for inside in searched:
                # Other programs call a file so; MindSpore's lies in its own directory.
                if name == _TIMELINE and inside.name != _INNER:
                    continue
                if name not in found and (path := find_file(inside, name.format(rank))):
                    found[name] = path
    return found


def find_cpu_operators(records: Records) -> Rows:
    """Host events of the capture that are operators on the CPU; MindSpore adds the rank to it."""
    layers = records.strings.codes_where(name.startswith(CPU_LAYER) for name in records.strings)
    return np.flatnonzero(np.isin(records.host.layer, layers))


class Topic(enum.Enum):
    """What files are about; each topic has a module that reads them."""

    FLOPS = "flops"
    DATA_PREPARATION = "data preparation"
    STEP_TRACE = "step trace"
    CLUSTER = "cluster"
    OPERATORS = "operators"
    MEMORY_GRAPHS = "memory graphs"


class TableFile(enum.Enum):
    """A kind of file; `FILE_KINDS` has its name and topic."""

    FLOPS = enum.auto()
    FLOPS_SUMMARY = enum.auto()
    FLOPS_SCOPE = enum.auto()
    FLOPS_STEPS = enum.auto()
    DEVICE_QUEUE = enum.auto()
    ITERATOR_QUEUE = enum.auto()
    GET_NEXT = enum.auto()
    GET_NEXT_GPU = enum.auto()
    PIPELINE = enum.auto()
    PIPELINE_TABLE = enum.auto()
    PROCESSORS = enum.auto()
    ENQUEUED = enum.auto()
    STEP_TRACE = enum.auto()
    STEP_POINTS = enum.auto()
    PARALLEL_TIMES = enum.auto()
    HCCL = enum.auto()
    PARALLEL_STRATEGY = enum.auto()
    PROFILER_INFO = enum.auto()
    METADATA = enum.auto()
    AICPU_SUMS = enum.auto()
    AICORE_TYPES = enum.auto()
    AICORE_DETAIL = enum.auto()
    FRAMEWORK = enum.auto()
    DYNAMIC_SHAPES = enum.auto()
    GRAPH_DESCRIPTIONS = enum.auto()
    TASK_DESCRIPTIONS = enum.auto()
    STEP_MARKS = enum.auto()
    AICPU_LOG = enum.auto()
    AICPU_TEXT = enum.auto()
    MEMORY_USAGE = enum.auto()


@dataclass(frozen=True)
class FileKind:
    """Files of one kind.

    pattern: a regular expression of their names, without a suffix of compression; `{id}` in it
    stands for the number of the rank, or of the device before MindSpore 1.5. alone: whether such a
    file alone makes a directory a profile.
    """

    file: TableFile
    topic: Topic
    pattern: str
    alone: bool = True

    @functools.cached_property
    def beginning(self) -> str:
        """How all its names begin."""
        return re.split(r"[^\w-]", self.pattern, maxsplit=1)[0]

    @functools.cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern.replace("{id}", _ANY_ID), re.ASCII)

    def match(self, name: str) -> re.Match[str] | None:
        """What a name tells, None if it is of no file of this kind.

        Compiled for the first name that begins so: most profiles have none.
        """
        return self._compiled.fullmatch(name) if name.startswith(self.beginning) else None


_SLICE = r"\.slice_(?P<slice>\d+)"
_VM = r"Framework\.host\.(?:vm[._])?{}\.?{{id}}(?:\.[A-Za-z0-9]+)?" + _SLICE
FILE_KINDS: tuple[FileKind, ...] = (
    FileKind(TableFile.FLOPS, Topic.FLOPS, r"flops_{id}\.txt"),
    FileKind(TableFile.FLOPS_SUMMARY, Topic.FLOPS, r"flops_summary_{id}\.json"),
    FileKind(TableFile.FLOPS_SCOPE, Topic.FLOPS, r"flops_scope_{id}\.json"),
    FileKind(TableFile.FLOPS_STEPS, Topic.FLOPS, r"flops_utilization_step_{id}\.json"),
    FileKind(TableFile.DEVICE_QUEUE, Topic.DATA_PREPARATION, r"device_queue_profiling_{id}\.txt"),
    FileKind(
        TableFile.ITERATOR_QUEUE, Topic.DATA_PREPARATION, r"dataset_iterator_profiling_{id}\.txt"
    ),
    FileKind(TableFile.GET_NEXT, Topic.DATA_PREPARATION, r"minddata_aicpu_{id}\.txt"),
    FileKind(
        TableFile.GET_NEXT_GPU, Topic.DATA_PREPARATION, r"minddata_getnext_profiling_{id}\.txt"
    ),
    FileKind(TableFile.PIPELINE, Topic.DATA_PREPARATION, r"pipeline_profiling_{id}\.json"),
    FileKind(TableFile.PIPELINE_TABLE, Topic.DATA_PREPARATION, r"minddata_pipeline_raw_{id}\.csv"),
    FileKind(TableFile.PROCESSORS, Topic.DATA_PREPARATION, r"minddata_cpu_utilization_{id}\.json"),
    FileKind(
        TableFile.ENQUEUED, Topic.DATA_PREPARATION, r"DATA_PREPROCESS\.dev\.TDT\.{id}" + _SLICE
    ),
    FileKind(TableFile.STEP_TRACE, Topic.STEP_TRACE, r"step_trace_raw_{id}_detail_time\.csv"),
    FileKind(
        TableFile.STEP_POINTS,
        Topic.STEP_TRACE,
        r"step_trace_point_info(?:_{id})?\.json",
        alone=False,
    ),
    FileKind(
        TableFile.PARALLEL_TIMES,
        Topic.CLUSTER,
        r"ascend_cluster_analyse_(?P<mode>[a-z-]+)_(?P<stages>\d+)_(?P<ranks>\d+)_{id}\.csv",
    ),
    FileKind(TableFile.HCCL, Topic.CLUSTER, r"hccl_raw_{id}\.csv"),
    FileKind(TableFile.PARALLEL_STRATEGY, Topic.CLUSTER, r"parallel_strategy_{id}\.json"),
    FileKind(TableFile.PROFILER_INFO, Topic.CLUSTER, r"profiler_info_{id}\.json", alone=False),
    FileKind(TableFile.METADATA, Topic.CLUSTER, r"profiler_metadata\.json", alone=False),
    FileKind(TableFile.AICPU_SUMS, Topic.OPERATORS, r"aicpu_intermediate_{id}\.csv"),
    FileKind(TableFile.AICORE_TYPES, Topic.OPERATORS, r"aicore_intermediate_{id}_type\.csv"),
    FileKind(TableFile.AICORE_DETAIL, Topic.OPERATORS, r"aicore_intermediate_{id}_detail\.csv"),
    FileKind(TableFile.FRAMEWORK, Topic.OPERATORS, r"framework_raw_{id}\.csv"),
    FileKind(TableFile.DYNAMIC_SHAPES, Topic.OPERATORS, r"dynamic_shape_info_{id}\.json"),
    FileKind(TableFile.GRAPH_DESCRIPTIONS, Topic.OPERATORS, _VM.format("graph_desc_info")),
    FileKind(TableFile.TASK_DESCRIPTIONS, Topic.OPERATORS, _VM.format("task_desc_info")),
    FileKind(TableFile.STEP_MARKS, Topic.STEP_TRACE, _VM.format("point")),
    FileKind(
        TableFile.AICPU_LOG, Topic.OPERATORS, r"DATA_PREPROCESS\.(?:dev\.)?AICPU\.{id}" + _SLICE
    ),
    FileKind(TableFile.AICPU_TEXT, Topic.OPERATORS, r"output_data_preprocess_aicpu_{id}\.txt"),
    FileKind(TableFile.MEMORY_USAGE, Topic.MEMORY_GRAPHS, r"memory_usage_{id}\.pb"),
)
TableFiles = Mapping[TableFile, tuple[Path, ...]]
"""The files of a rank by kind; slices in their order."""
_ALONE = frozenset(kind.file for kind in FILE_KINDS if kind.alone)
_ANY_ID = r"(?P<id>0|[1-9]\d{0,8})"
_BEGINNINGS = tuple({kind.beginning for kind in FILE_KINDS})
"""How the names of all kinds begin: most names in a directory are of none."""


def find_table_files(directories: Sequence[Path], number: int) -> TableFiles:
    """The files of the rank, or device, of a number; of each kind those of the first directory.

    Files without a number are of every rank whose own are not there.

    Raises:
        SourceError: a directory cannot be read.
    """
    found: dict[TableFile, tuple[Path, ...]] = {}
    shared: dict[TableFile, tuple[Path, ...]] = {}
    for directory in (one for one in directories if one.is_dir()):
        held = _files_by_number(directory)
        for all_files, files in ((found, held.get(number)), (shared, held.get(None))):
            for file, paths in (files or {}).items():
                all_files.setdefault(file, paths)
    return {**shared, **found} if found else {}


@remember_by_directory
def numbers_in(directory: Path) -> frozenset[int]:
    """The numbers in the names of files that make a directory a profile.

    Raises:
        SourceError: the directory cannot be read.
    """
    held = _files_by_number(directory)
    return frozenset(
        number for number, files in held.items() if number is not None and files.keys() & _ALONE
    )


def table_number(name: str) -> int | None:
    """The number in the name of a file that makes a directory a profile, None for any other."""
    if name.startswith(_BEGINNINGS):
        for kind in FILE_KINDS:
            if kind.alone and (match := kind.match(name)):
                return int(match["id"])
    return None


@remember_by_directory
def _files_by_number(directory: Path) -> Mapping[int | None, TableFiles]:
    """The files in a directory by the number in their names, None for none."""
    found: dict[int | None, dict[TableFile, list[tuple[int, Path]]]] = {}
    for name, path in files_by_name(directory).items():
        if not name.startswith(_BEGINNINGS):
            continue
        for kind in FILE_KINDS:
            if match := kind.match(name):
                parts = match.groupdict()
                number = None if parts.get("id") is None else int(parts["id"])
                of_kind = found.setdefault(number, {}).setdefault(kind.file, [])
                of_kind.append((int(parts.get("slice") or 0), path))
                break
    return {
        number: {file: tuple(path for _, path in sorted(paths)) for file, paths in files.items()}
        for number, files in found.items()
    }
