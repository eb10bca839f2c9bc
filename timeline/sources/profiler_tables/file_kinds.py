"""The files of small tables: the one place that knows their names, and finds those of a rank."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from timeline.frozen import dataclass
from timeline.sources.files.opened import files_by_name
from timeline.sources.files.remembered import remember_by_directory

__all__ = [
    "FILE_KINDS",
    "TableFile",
    "TableFiles",
    "Topic",
    "find_table_files",
    "numbers_in",
    "table_number",
]


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
