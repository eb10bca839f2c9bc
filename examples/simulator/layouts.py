"""The layouts in which a simulated run can be written, each with the function that writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from simulator.model import Run
from simulator.writers.cann_raw import write_raw
from simulator.writers.database import write_torch_database
from simulator.writers.kineto import write_kineto
from simulator.writers.marks import write_marked_database, write_marked_text, write_msmonitor
from simulator.writers.mindspore.raw import write_mindspore_raw
from simulator.writers.mindspore.tables.profiler_directory import write_mindspore_tables
from simulator.writers.mindspore.text import write_mindspore_text
from simulator.writers.msprof_sqlite import write_msprof_sqlite
from simulator.writers.tables import write_kernel_details, write_op_summary
from simulator.writers.trace_json.mindspore import write_mindspore_timeline
from simulator.writers.trace_json.mindspore_text import write_mindspore_export
from simulator.writers.trace_json.mindstudio import write_mindformers, write_mindstudio
from simulator.writers.trace_json.torch_text import write_torch_text

Writer = Callable[[Run, Path], list[Path]]
"""Writes a run below a directory; the paths of its captures come back in order of ranks."""

LAYOUTS: dict[str, Writer] = {
    "torch-text": write_torch_text,
    "torch-db": write_torch_database,
    "mindspore-2.1": write_mindspore_timeline,
    "mindspore-2.6": write_mindspore_export,
    "mindstudio": write_mindstudio,
    "mindformers": write_mindformers,
    "raw": write_raw,
    "msprof-sqlite": write_msprof_sqlite,
    "kernel-details": write_kernel_details,
    "op-summary": write_op_summary,
    "kineto": write_kineto,
    "mindspore-text": write_mindspore_text,
    "mindspore-raw": write_mindspore_raw,
    "mindspore-tables": write_mindspore_tables,
}
"""By the name that `--layout` of `make_profile.py` takes."""

SPARSE_LAYOUTS: dict[str, Writer] = {
    "torch-db-marks": write_marked_database,
    "torch-text-marks": write_marked_text,
    "msmonitor": write_msmonitor,
}
"""What profilers write that record few things, with communication among them."""
