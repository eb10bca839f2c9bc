"""The version of the package, equal to that of its metadata."""

from __future__ import annotations

__version__ = "0.1.0"
