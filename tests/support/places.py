"""Where the project lies, and where captures of real runs may lie beside it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The directory of the project."""
DATA = ROOT.parent / "shared" / "data"
"""Captures of real runs; tests of a capture that is not there are skipped."""
