"""Where the project lies, and where captures of real runs may lie beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
"""The directory of the project."""
DATA = ROOT.parent / "shared" / "data"
"""Captures of real runs; tests of a capture that is not there are skipped."""
needs_captures = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"the real captures are not beside the project, in {DATA}"
)


def real_capture(name: str) -> Path:
    """The path of a real capture; skips the test if it is not there."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not beside the project")
    return path
