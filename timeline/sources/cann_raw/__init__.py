"""The raw data of a device, as CANN records it."""

from __future__ import annotations

import re
from pathlib import Path

from timeline.sources.files.opened import source_errors_for

SLICE = re.compile(r"(hwts|stars_soc|ts_track)\.data\.(\d{1,9})\.slice_(\d{1,9})")
"""The slices of logs that are read: log, device and number."""


def find_slices(directory: Path) -> tuple[Path, ...]:
    """All slices of logs that are read, by log, device and number; empty ones hold nothing.

    Raises:
        SourceError: the directory cannot be read.
    """
    found = []
    with source_errors_for(directory):
        if directory.is_dir():
            for path in directory.iterdir():
                match = SLICE.fullmatch(path.name)
                if match and path.is_file() and path.stat().st_size:
                    found.append(((match[1], int(match[2]), int(match[3])), path))
    return tuple(path for _, path in sorted(found))
