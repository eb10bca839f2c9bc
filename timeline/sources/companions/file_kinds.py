"""The kinds of files beside a capture: what each holds, and what it is used for."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from timeline.columns.columns import Rows
from timeline.frozen import dataclass
from timeline.patterns import compile_late
from timeline.records.tables import Records
from timeline.sources.common.counter_tables import OPERATOR_MEMORY, csv_tables
from timeline.sources.files.opened import find_file, lies_there

__all__ = [
    "CPU_LAYER",
    "CompanionKind",
    "Use",
    "find_cpu_operators",
    "find_host_files",
    "find_kind",
    "kinds_for",
]


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
