"""Raw device logs as CANN records them, before msprof parses them."""

from __future__ import annotations

import re
from pathlib import Path

from timeline.sources.files.opened import source_errors_for

SLICE = re.compile(r"(hwts|stars_soc|ts_track)\.data\.(\d{1,9})\.slice_(\d{1,9})")
"""Name of a slice of a log that is read: log, device and slice number."""


def find_slices(directory: Path) -> tuple[Path, ...]:
    """Return all slices that are not empty, ordered by log, device and slice number.

    Raises:
        SourceError: the directory cannot be read.
    """
    slices = []
    with source_errors_for(directory):
        if directory.is_dir():
            for path in directory.iterdir():
                match = SLICE.fullmatch(path.name)
                if match and path.is_file() and path.stat().st_size:
                    slices.append(((match[1], int(match[2]), int(match[3])), path))
    return tuple(path for _, path in sorted(slices))
