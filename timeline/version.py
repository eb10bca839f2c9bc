"""The version of the package, as its metadata has it."""

from __future__ import annotations

__version__ = "0.1.0"
