"""The list of all formats that are read, preferred ones first."""

from __future__ import annotations

from timeline.sources.cann_raw.format import RAW, RAW_SLICES
from timeline.sources.capture import Format
from timeline.sources.database.format import DATABASE
from timeline.sources.kineto.format import KINETO
from timeline.sources.mindspore.format import MINDSPORE_RAW, MINDSPORE_TABLES, MINDSPORE_TEXT
from timeline.sources.msprof_sqlite.format import MSPROF_SQLITE
from timeline.sources.source import MINDSTUDIO_OUTPUT, OUTPUT
from timeline.sources.tables.format import STEP_TABLES, TABLES
from timeline.sources.trace_json.format import ANY_TRACE, GRAPH_TIMELINE, MINDSTUDIO, TRACE_VIEW

FORMATS: tuple[Format, ...] = (
    DATABASE,
    TRACE_VIEW,
    MINDSTUDIO,
    GRAPH_TIMELINE,
    ANY_TRACE,
    KINETO,
    MSPROF_SQLITE,
    TABLES,
    MINDSPORE_TEXT,
    MINDSPORE_RAW,
    STEP_TABLES,
    MINDSPORE_TABLES,
    RAW_SLICES,
    RAW,
)
"""All formats; if a directory matches several, the first one is read."""
LOOKED_FOR = (
    f"  *_ascend_pt/{OUTPUT}, *_ascend_ms/{OUTPUT}",
    f"  PROF_*/{MINDSTUDIO_OUTPUT}, PROF_*/device_N/timeline, sqlite or data",
    "  ascend_pytorch_profiler_*.db, ascend_mindspore_profiler_*.db, msprof_*.db,",
    "  msmonitor_*.db, or any SQLite file with their tables",
    "  kernel_details.csv, op_summary_*.csv, task_time_*.csv",
    "  step_trace_time.csv, communication.json, communication_matrix.json",
    "  output_timeline_data_*.txt, *timeline_display_*.json, JOB*/data  (MindSpore)",
    "  step_trace_raw_*.csv, flops_*, minddata_*, hccl_raw_*.csv  (MindSpore)",
    "  *.pt.trace.json, or any .json that holds such a trace  (PyTorch)",
)
"""Lines of an error message: names of captures, for a directory that holds none."""
EXPECTED = (
    "trace_view.json, kernel_details.csv, op_summary_*.csv, task_time_*.csv, an exported "
    "msprof_*.json, a trace of PyTorch, or a database such as ascend_pytorch_profiler_0.db, "
    "msprof_20240101120000.db or msmonitor_PID_TIME_RANK.db."
)
"""Part of an error message: names of single files, for a file that has another name."""
