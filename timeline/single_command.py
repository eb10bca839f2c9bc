"""Turns a process into one that runs a single command: what pays only in a longer life is off."""

from __future__ import annotations

import gc
import os

__all__ = ["settle_in"]

COLLECT_AFTER = 200_000
"""New objects before cycles are looked for; imports alone make half as many, and no garbage."""


def settle_in() -> None:
    """Do so before NumPy is imported.

    Nothing here multiplies matrices, but the library that NumPy does it with would start a thread
    for each core, which spin for a while before they sleep.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(COLLECT_AFTER)
