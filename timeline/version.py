"""The version of the package, as its metadata has it."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
