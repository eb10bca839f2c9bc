"""Names of what msprof and the frameworks' profilers leave, which several formats look for."""

from __future__ import annotations

import re
from pathlib import Path

from timeline.sources.capture import Capture
from timeline.sources.files.opened import files_by_name
from timeline.sources.source import MINDSTUDIO_OUTPUT

__all__ = ["HOST_DEVICE", "TABLE", "device_of", "holds", "summaries_of_device"]

TABLE = re.compile(r"(?:kernel_details|op_summary|task_time)(?:_slice|_\d+)*\.csv")
"""Tables of operators and tasks."""
HOST_DEVICE = 31
"""Device number that msprof packs into the pid of host processes."""


def device_of(pid: object) -> int | None:
    """The device packed into the low bits of every pid that msprof writes in traces."""
    return pid & 31 if isinstance(pid, int) else None


def holds(directory: Path, names: re.Pattern[str]) -> bool:
    """Whether a directory is there and holds something of such a name, compressed or not.

    Raises:
        SourceError: the directory cannot be read.
    """
    return directory.is_dir() and any(map(names.fullmatch, files_by_name(directory)))


def summaries_of_device(capture: Capture) -> tuple[Path, ...]:
    """Where msprof leaves the tables of a device whose content lies in `device_N/*`."""
    return (capture.directory / MINDSTUDIO_OUTPUT, capture.content.parent / "summary")
