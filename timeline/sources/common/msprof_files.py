"""What msprof and the frameworks' profilers export: file names, the newest, and how to export."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from timeline.errors import SourceError
from timeline.sources.capture import Capture
from timeline.sources.files.opened import files_by_name, without_gz
from timeline.sources.files.remembered import remember_by_directory
from timeline.sources.source import MINDSTUDIO_OUTPUT, PROF

OPERATOR_TABLE = re.compile(r"(?:kernel_details|op_summary|task_time)(?:_slice|_\d+)*\.csv")
"""Tables of operators and tasks."""
_FRAMEWORKS = {"_ascend_pt": "torch_npu", "_ascend_ms": "mindspore"}
"""Whose profiler leaves captures in directories that end so."""


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
    """Return the files of a kind from the newest export in a directory, as `select_newest_export`.

    Raises:
        SourceError: the directory cannot be read.
    """
    return select_newest_export(files_by_name(output), kind, suffix)


def select_newest_export(files: Mapping[str, Path], kind: str, suffix: str) -> tuple[Path, ...]:
    """Return the files of a kind from the newest export; exporting again leaves the older ones.

    msprof stamps each file when it is written, so slices and iterations of one export may differ:
    the newest of each name counts, as where msprof collects them (`get_newest_file_list`). Names of
    iterations and names without do not mix, since what has no iteration holds all of them.

    Args:
        files: what lies in a directory, by plain name.
        kind: what stands before ids, slice and stamp in a name. suffix: what follows the point.
    """
    pattern = re.compile(
        rf"{kind}(?=_)((?:_\d+)*?)(?:_slice_(\d{{1,9}}))?(?:_(\d{{14}}))?\.{suffix}"
    )
    exports: dict[tuple[int, ...], _Slices] = {}
    newest = "", 0
    for name, path in files.items():
        if match := pattern.fullmatch(name):
            ids, number, stamp = match.groups("")
            slices = exports.setdefault(tuple(map(int, ids.split("_")[1:])), {})
            slices.setdefault(int(number or 0), []).append((stamp, path))
            newest = max(newest, (stamp, ids.count("_")))
    chosen = [slices for ids, slices in sorted(exports.items()) if len(ids) == newest[1]]
    return tuple(path for slices in chosen for path in _newest_slices(slices))


_Slices = dict[int, list[tuple[str, Path]]]
"""Files with their stamps, by the number of the slice; what is not sliced is slice 0."""


def _newest_slices(slices: _Slices) -> list[Path]:
    """Return the newest file of each slice, without what only older exports had.

    Each export has a first slice. Processes write slices in any order, so the newest export began
    with the oldest file among those slices of which there are as many as exports.
    """
    count = len(slices[min(slices)])
    newest = {number: max(files) for number, files in sorted(slices.items())}
    began = min(newest[number][0] for number, files in slices.items() if len(files) >= count)
    return [path for stamp, path in newest.values() if stamp >= began]


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
