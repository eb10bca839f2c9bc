"""Sentinels in columns for values that a source does not give."""

from __future__ import annotations

import numpy as np

NO_GRAPH = 4294967295
"""Graph of tasks outside graphs, as of single operators or in step mode (UINT32_MAX in files)."""
NO_CONTEXT = 4294967295
"""Context of a task that is not a sub-task of an FFTS+ task."""
NO_ID = -1
"""Missing id."""
NO_TIME = np.iinfo(np.int64).min
"""Missing timestamp or length."""
FLOAT_NOT_GIVEN = float("nan")
"""Missing real number."""
