"""What msprof and the frameworks' profilers export: file names, the newest, and how to export."""

from __future__ import annotations

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from timeline.errors import SourceError
from timeline.patterns import compile_late
from timeline.sources.capture import Capture
from timeline.sources.files.opened import files_by_name, without_gz
from timeline.sources.files.remembered import remember_by_directory
from timeline.sources.source import MINDSTUDIO_OUTPUT, PROF

__all__ = [
    "OPERATOR_TABLE",
    "find_device_table_directories",
    "find_newest_export",
    "find_sessions",
    "has_file_named",
    "how_to_export",
    "plain_name_of_table",
    "raw_error",
    "select_newest_export",
]

OPERATOR_TABLE = compile_late(r"(?:kernel_details|op_summary|task_time)(?:_slice|_\d+)*\.csv")
"""Tables of operators and tasks."""
_FRAMEWORKS = {"_ascend_pt": "torch_npu", "_ascend_ms": "mindspore"}
"""Whose profiler leaves captures in directories that end so."""
_STAMP = compile_late(r"_(\d{14})$")
"""When an export was made, at the end of its name."""


def plain_name_of_table(name: str) -> str:
    """The name that a table of operators had before somebody put words before it, else nothing.

    >>> plain_name_of_table("b1q8_kernel_details.csv")
    'kernel_details.csv'
    """
    ends = (name[at:] for at in range(1, len(name)) if not name[at - 1].isalnum())
    return next((end for end in ends if OPERATOR_TABLE.fullmatch(without_gz(end))), "")


def has_file_named(directory: Path, names: re.Pattern[str]) -> bool:
    """Whether a directory is there and holds something of such a name, compressed or not.

    Raises:
        SourceError: the directory cannot be read.
    """
    return directory.is_dir() and any(map(names.fullmatch, files_by_name(directory)))


def find_device_table_directories(capture: Capture) -> tuple[Path, ...]:
    """Where msprof leaves the tables of a device whose content lies in `device_N/*`."""
    return (capture.directory / MINDSTUDIO_OUTPUT, capture.content.parent / "summary")


def find_newest_export(output: Path, kind: str, suffix: str) -> tuple[Path, ...]:
    """The files of a kind from the newest export in a directory, its slices in their order.

    A kind is what stands before the stamp in a name, and the suffix what stands behind the point.

    Raises:
        SourceError: the directory cannot be read.
    """
    return select_newest_export(files_by_name(output), kind, suffix)


def select_newest_export(files: Mapping[str, Path], kind: str, suffix: str) -> tuple[Path, ...]:
    """The files of a kind from the newest export; exporting again leaves the older ones there.

    A file's time is the stamp in its name, never its modification time; slices of one export
    share a stamp.

    Args:
        files: what lies in a directory, by plain name.
    """
    by_stamp: dict[str, list[Path]] = defaultdict(list)
    pattern = re.compile(rf"{kind}(?:_slice|_\d+)+\.{suffix}")
    for name, path in files.items():
        if pattern.fullmatch(name):
            match = _STAMP.search(name.removesuffix(f".{suffix}"))
            by_stamp[match[1] if match else ""].append(path)
    if not by_stamp:
        return ()
    return tuple(sorted(by_stamp[max(by_stamp)], key=_slice_order))


def _slice_order(path: Path) -> tuple[int, str]:
    match = re.search(r"_slice_([0-9]{1,9})", path.name)
    return (int(match[1]) if match else -1, path.name)


def raw_error(directory: Path) -> SourceError:
    """The error of a capture that holds only raw data: which command exports it."""
    return SourceError(directory, "holds raw profiling data only.", do=how_to_export(directory))


def how_to_export(directory: Path) -> str:
    """What to do with a capture that only msprof can read, or the profiler of a framework.

    directory: of the session, or around it; what its framework left beside it is parsed with it.
    """
    for one in (directory, directory.parent):
        framework = _FRAMEWORKS.get(one.name[-len("_ascend_xx") :])
        if framework is not None:
            called = f"analyse({json.dumps(str(one))})"
            code = f"from {framework}.profiler.profiler import analyse; {called}"
            return f"Parse it first: python -c {shlex.quote(code)}"
    return f"Export it first: msprof --export=on --output={directory}"


@remember_by_directory
def find_sessions(directory: Path) -> tuple[Path, ...]:
    """The sessions of msprof in a directory, in order of names.

    Raises:
        SourceError: the directory is not there.
    """
    return tuple(sorted(directory.glob(f"{PROF}*")))
