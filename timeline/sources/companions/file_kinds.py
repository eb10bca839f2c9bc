"""The kinds of files beside a capture: what each holds, and what it is used for."""

from __future__ import annotations

import enum

from timeline.frozen import dataclass
from timeline.patterns import compile_late
from timeline.sources.common.counter_tables import OPERATOR_MEMORY, csv_tables

__all__ = ["CompanionKind", "Use", "find_kind", "kinds_for"]


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
