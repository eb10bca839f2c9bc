"""Short columns, of which those that are equal are one object for all who hold them.

Of thousands of small ranks each holds hundreds of columns of some rows. Nearly all of what an array
of two numbers takes is the array, and most of them hold what those of other ranks hold too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_SHARED_BYTES = 512
"""What is longer is hardly ever equal to anything else."""


def short_column(values: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A read-only column of these bytes."""
    made = _shared if len(values) <= MOST_SHARED_BYTES else _column
    return made(values, dtype)


def _column(values: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.frombuffer(values, dtype)


_shared = lru_cache(maxsize=4096)(_column)
