"""Short columns, shared if equal.

Thousands of small ranks have hundreds of columns of a few rows each. Nearly all of the memory of
such an array is overhead, and most columns equal those of other ranks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_SHARED_BYTES = 512
"""Longer columns are hardly ever equal to another."""


def short_column(values: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a read-only column of these bytes."""
    make = _shared if len(values) <= MOST_SHARED_BYTES else _column
    return make(values, dtype)


def _column(values: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.frombuffer(values, dtype)


_shared = lru_cache(maxsize=4096)(_column)
