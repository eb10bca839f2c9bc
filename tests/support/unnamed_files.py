"""Whether files can be without a name until they are complete, which a file system decides."""

from __future__ import annotations

import os
from pathlib import Path


def holds_unnamed_files(directory: Path) -> bool:
    """Whether a file without a name can be opened in a directory, and named later."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not Path("/proc/self/fd").is_dir():
        return False
    try:
        os.close(os.open(directory, flag | os.O_RDWR))
    except OSError:
        return False
    return True
