"""Turns the records of a capture into which of its host events are operators on the CPU."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Rows
from timeline.records.tables import Records

__all__ = ["CPU_LAYER", "own_operators"]

CPU_LAYER = "CPU OP"
"""What MindSpore's own timeline calls operators that run on the host."""


def own_operators(records: Records) -> Rows:
    """Host events of the capture that are operators on the CPU; MindSpore adds the rank to it."""
    layers = records.strings.matching(name.startswith(CPU_LAYER) for name in records.strings)
    return np.flatnonzero(np.isin(records.host.layer, layers))
