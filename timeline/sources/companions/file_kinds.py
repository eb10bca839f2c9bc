"""Kinds of companion files of a capture, with their names and uses, and functions to find them.

Exporters append stamps and numbers of slices to a name, MindSpore inserts the number of a rank.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from timeline.records.profiler_tables import L2_HIT_RATES
from timeline.sources.common.counter_tables import OPERATOR_MEMORY, csv_tables
from timeline.sources.files.opened import files_by_name, remember_by_directory


class Use(enum.Enum):
    """A use of files; the files of one use are read by one module."""

    COUNTERS = enum.auto()
    OPERATOR_SUMS = enum.auto()
    STEP_SUMS = enum.auto()
    OPS = enum.auto()
    LINKS = enum.auto()
    MEASURES = enum.auto()
    """Databases of step sums, ops and links."""
    TRACE = enum.auto()
    """Traces of the capture, of which only the Overlap Analysis is read."""
    HOST = enum.auto()
    """Events and memory of the host."""
    FLOPS = enum.auto()
    DATA_PREPARATION = enum.auto()
    STEP_TRACE = enum.auto()
    CLUSTER = enum.auto()
    OPERATORS = enum.auto()
    MEMORY_GRAPHS = enum.auto()
    NONE = enum.auto()


# -- files of exporters ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ExportKind:
    """A kind of exported file; `name` is without a time stamp and a number of a slice.

    what: a description of its contents, for reports of unused files. beside_any: whether no export
    has this content, so that msprof's internal file is reported even if there is an export.
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
    "l2_cache": L2_HIT_RATES,
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
    "op_counter": "sums of operators",
    "biu_perf": "metrics of the bus",
    "l2cache": L2_HIT_RATES,
    "soc_log": "tasks as the scheduler logged them",
    "rts_track": "numbering of tasks",
    "tensor_info": "tensors of kernels",
    "node_basic_info": "kernels as the host launched them",
    "ge_host_info": "host calls of the graph engine",
    "stream_expand_spec": "how streams are numbered",
    "time": "clocks",
}
EXPORT_KINDS = (
    *(
        ExportKind(table.table, "csv", f"samples of {table.group}", Use.COUNTERS)
        for table in csv_tables()
    ),
    ExportKind(OPERATOR_MEMORY, "csv", "memory of operators", Use.COUNTERS),
    ExportKind("step_trace_time", "csv", "sums of each step", Use.STEP_SUMS),
    ExportKind("op_statistic", "csv", "sums of operators by type", Use.OPERATOR_SUMS),
    ExportKind("communication", "json", "measures of communication ops", Use.OPS),
    ExportKind("communication_matrix", "json", "measures of links", Use.LINKS),
    ExportKind("analysis", "db", "sums of steps, measures of communication", Use.MEASURES),
    ExportKind("communication_analyzer", "db", "measures of communication", Use.MEASURES),
    ExportKind("msprof", "json", _SAME, Use.TRACE),
    ExportKind("trace_view", "json", _SAME, Use.TRACE),
    *(ExportKind(name, "csv", what) for name, what in _UNUSED_CSV.items()),
    *(ExportKind(name, "json", what) for name, what in _UNUSED_JSON.items()),
    *(ExportKind(name, "db", what) for name, what in _UNUSED_SQLITE.items()),
    ExportKind("voltage", "db", "voltages of the AI Cores and the bus", beside_any=True),
)
_BY_NAME = {(kind.name, kind.suffix): kind for kind in EXPORT_KINDS}
_NAME = re.compile(r"(.+?)(?:_slice|_\d+)*\.([a-z]+)")
"""The name of an exported file: its kind, then stamps and numbers, and its suffix."""


def find_kind(name: str) -> ExportKind | None:
    """Return the kind of a file by its plain name; None if no exporter writes such a name."""
    match = _NAME.fullmatch(name)
    return _BY_NAME.get((match[1], match[2])) if match else None


# -- files of MindSpore ----------------------------------------------------------------------------

_SLICE = r"\.slice_(?P<slice>\d+)"
_VM = r"Framework\.host\.(?:vm[._])?{}\.?{{id}}(?:\.[A-Za-z0-9]+)?" + _SLICE
_ANY_ID = r"(?P<id>0|[1-9]\d{0,8})"
HOST_INFO = "host_info"
"""The subdirectory in which MindSpore writes host files."""
UNNUMBERED = "hccl_info"
"""The directory of communication of a single rank, whose name has no id of the rank."""
CPU_LAYER = "CPU OP"
"""The layer of operators on the host; MindSpore's timeline appends the rank to its name."""
TABLE_READERS: Mapping[Use, str] = {
    Use.DATA_PREPARATION: "",
    Use.FLOPS: "flops.read_flops",
    Use.STEP_TRACE: "step_trace.read_step_trace",
    Use.CLUSTER: "cluster.read_cluster",
    Use.OPERATORS: "operators.read_operators",
    Use.MEMORY_GRAPHS: "memory_graphs.read_memory_graphs",
}
"""The `module.function` that reads the tables of each use; empty if read with their counters."""


class NumberedFile(enum.Enum):
    """A kind of file of MindSpore: the pattern of its names, and its use.

    `{id}` matches the number of the rank, or of the device before MindSpore 1.5; a suffix of
    compression may follow. alone: whether one such file suffices to make a directory a profile.
    """

    FLOPS = r"flops_{id}\.txt", Use.FLOPS
    FLOPS_SUMMARY = r"flops_summary_{id}\.json", Use.FLOPS
    FLOPS_SCOPE = r"flops_scope_{id}\.json", Use.FLOPS
    FLOPS_STEPS = r"flops_utilization_step_{id}\.json", Use.FLOPS
    DEVICE_QUEUE = r"device_queue_profiling_{id}\.txt", Use.DATA_PREPARATION
    ITERATOR_QUEUE = r"dataset_iterator_profiling_{id}\.txt", Use.DATA_PREPARATION
    GET_NEXT = r"minddata_aicpu_{id}\.txt", Use.DATA_PREPARATION
    GET_NEXT_GPU = r"minddata_getnext_profiling_{id}\.txt", Use.DATA_PREPARATION
    PIPELINE = r"pipeline_profiling_{id}\.json", Use.DATA_PREPARATION
    PIPELINE_TABLE = r"minddata_pipeline_raw_{id}\.csv", Use.DATA_PREPARATION
    PROCESSORS = r"minddata_cpu_utilization_{id}\.json", Use.DATA_PREPARATION
    ENQUEUED = r"DATA_PREPROCESS\.dev\.TDT\.{id}" + _SLICE, Use.DATA_PREPARATION
    STEP_TRACE = r"step_trace_raw_{id}_detail_time\.csv", Use.STEP_TRACE
    STEP_POINTS = r"step_trace_point_info(?:_{id})?\.json", Use.STEP_TRACE, False
    STEP_MARKS = _VM.format("point"), Use.STEP_TRACE
    PARALLEL_TIMES = r"ascend_cluster_analyse_[a-z-]+_\d+_\d+_{id}\.csv", Use.CLUSTER
    HCCL = r"hccl_raw_{id}\.csv", Use.CLUSTER
    PARALLEL_STRATEGY = r"parallel_strategy_{id}\.json", Use.CLUSTER
    PROFILER_INFO = r"profiler_info_{id}\.json", Use.CLUSTER, False
    METADATA = r"profiler_metadata\.json", Use.CLUSTER, False
    AICPU_SUMS = r"aicpu_intermediate_{id}\.csv", Use.OPERATORS
    AICORE_TYPES = r"aicore_intermediate_{id}_type\.csv", Use.OPERATORS
    AICORE_DETAIL = r"aicore_intermediate_{id}_detail\.csv", Use.OPERATORS
    FRAMEWORK = r"framework_raw_{id}\.csv", Use.OPERATORS
    DYNAMIC_SHAPES = r"dynamic_shape_info_{id}\.json", Use.OPERATORS
    GRAPH_DESCRIPTIONS = _VM.format("graph_desc_info"), Use.OPERATORS
    TASK_DESCRIPTIONS = _VM.format("task_desc_info"), Use.OPERATORS
    AICPU_LOG = r"DATA_PREPROCESS\.(?:dev\.)?AICPU\.{id}" + _SLICE, Use.OPERATORS
    AICPU_TEXT = r"output_data_preprocess_aicpu_{id}\.txt", Use.OPERATORS
    MEMORY_USAGE = r"memory_usage_{id}\.pb", Use.MEMORY_GRAPHS
    CPU_OPERATORS = r"cpu_op_execute_timestamp_{id}\.txt", Use.HOST, False
    HOST_STAGES = r"host_info_{id}\.csv", Use.HOST, False
    HOST_TIMELINE = r"timeline_{id}\.json", Use.HOST, False
    HOST_MEMORY = r"host_memory_{id}\.csv", Use.HOST, False
    DATASET = r"dataset_{id}\.csv", Use.HOST, False
    DATASET_OF_ANY = r"dataset\.csv", Use.HOST, False

    def __init__(self, pattern: str, use: Use, alone: bool = True) -> None:
        self.pattern, self.use, self.alone = pattern, use, alone
        self.beginning = "".join(takewhile(lambda char: char.isalnum() or char in "_-", pattern))

    @property
    def is_of_host(self) -> bool:
        """True if its times are on a clock of the host, so that it is drawn with any capture."""
        return self.use is Use.HOST or self.name in _TIMED_BY_HOST

    @functools.cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern.replace("{id}", _ANY_ID), re.ASCII)

    def match(self, name: str) -> re.Match[str] | None:
        """Match a whole name; compile the pattern only when a name has the right beginning."""
        return self._compiled.fullmatch(name) if name.startswith(self.beginning) else None


_TIMED_BY_HOST = frozenset({"DEVICE_QUEUE", "ITERATOR_QUEUE", "PIPELINE", "PROCESSORS"})
UNUSED_NUMBERED = {
    "output_op_compute_time_{}.txt": "mean times of operators",
    "output_op_compute_time_detail_{}.txt": "mean times of operators",
    "output_format_data_hwts_{}.txt": "the log of the device, decoded",
    "minddata_pipeline_summary_{}.json": "sums of the data pipeline",
    "memory_usage_summary_{}.json": "the peaks of graphs, rounded to GB",
    "memory_usage_details_{}.json": "the memory of graphs, rounded to GB",
    "pynative_op_intermediate_{}_type.csv": "sums of host operators",
}
"""Contents of unused files by name, in which `{}` is replaced by the number."""
NumberedFiles = Mapping[NumberedFile, tuple[Path, ...]]
"""The files of a rank by kind, slices in their order."""
_BEGINNINGS = tuple({kind.beginning for kind in NumberedFile})
"""The beginnings of the names of all kinds, which most names in a directory lack."""


def find_numbered_files(directories: Sequence[Path], number: int) -> NumberedFiles:
    """Return the files of a rank or device by kind, each from the first directory that has any.

    Files without a number belong to every rank that has no numbered file of the same kind; small
    tables among them only if the rank has another small table.

    Raises:
        SourceError: a directory cannot be read.
    """
    own: dict[NumberedFile, tuple[Path, ...]] = {}
    shared: dict[NumberedFile, tuple[Path, ...]] = {}
    for directory in filter(Path.is_dir, directories):
        by_number = _files_by_number(directory)
        for files, more in ((own, by_number.get(number, {})), (shared, by_number.get(None, {}))):
            files.update((kind, paths) for kind, paths in more.items() if kind not in files)
    has_tables = any(kind.use in TABLE_READERS for kind in own)
    shared = {kind: paths for kind, paths in shared.items() if has_tables or kind.use is Use.HOST}
    return shared | own


@remember_by_directory
def numbers_in(directory: Path) -> frozenset[int]:
    """Return the numbers in names of files that alone make a directory a profile.

    Raises:
        SourceError: the directory cannot be read.
    """
    return frozenset(
        number
        for number, files in _files_by_number(directory).items()
        if number is not None and any(kind.alone for kind in files)
    )


def table_number(name: str) -> int | None:
    """Return the number in the name of a file that alone makes a directory a profile, else None."""
    if name.startswith(_BEGINNINGS):
        for kind in NumberedFile:
            if kind.alone and (match := kind.match(name)):
                return int(match["id"])
    return None


@remember_by_directory
def _files_by_number(directory: Path) -> Mapping[int | None, NumberedFiles]:
    """Return the files of a directory by number and kind; the number is None for names without."""
    files_of: dict[int | None, dict[NumberedFile, list[tuple[int, Path]]]] = {}
    for name, path in files_by_name(directory).items():
        if not name.startswith(_BEGINNINGS):
            continue
        for kind in NumberedFile:
            # Other programs also write files with the name of the host's timeline.
            if kind is NumberedFile.HOST_TIMELINE and directory.name != HOST_INFO:
                continue
            if match := kind.match(name):
                parts = match.groupdict()
                number = None if parts.get("id") is None else int(parts["id"])
                of_kind = files_of.setdefault(number, {}).setdefault(kind, [])
                of_kind.append((int(parts.get("slice") or 0), path))
                break
    return {
        number: {kind: tuple(path for _, path in sorted(paths)) for kind, paths in kinds.items()}
        for number, kinds in files_of.items()
    }
