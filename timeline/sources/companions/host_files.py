"""Finds the files that MindSpore wrote on the host, in the directories around a capture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from timeline.columns.columns import Rows
from timeline.records.tables import Records
from timeline.sources.files.opened import find_file, lies_there

__all__ = ["CPU_LAYER", "find_cpu_operators", "find_host_files"]

CPU_LAYER = "CPU OP"
"""What MindSpore's own timeline calls operators that run on the host."""
_INNER = "host_info"
"""The directory of MindSpore's host files within one of the capture."""
_TIMELINE = "timeline_{}.json"
_NAMES = (
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
        for name in _NAMES:
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
