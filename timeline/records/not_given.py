"""Values that stand in columns where a source gives none."""

from __future__ import annotations

import numpy as np

NO_GRAPH = 4294967295
"""Graph of a task that belongs to none: single operators, step mode (UINT32_MAX in all layouts)."""
NO_CONTEXT = 4294967295
"""Context of a task that is not a sub-task of an FFTS+ task."""
NO_ID = -1
"""An id that the source does not give."""
NO_TIME = np.iinfo(np.int64).min
"""A moment that the source does not give."""
FLOAT_NOT_GIVEN = float("nan")
