"""Constant columns: read-only arrays of stride 0; and short columns, shared if equal."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

SHORT = 256
"""Columns of at most this many rows are shared if equal.

Small ranks have hundreds of them, and an array takes 200 bytes.
"""


def constant(value: float, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return a read-only column of `count` rows with one value, stored once."""
    cell = np.array(value, dtype)
    if count <= SHORT and not cell.dtype.hasobject:
        return _short(cell.tobytes(), count, cell.dtype)
    return _repeated(cell, count)


@lru_cache(maxsize=4096)
def _short(cell: bytes, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return _repeated(np.frombuffer(cell, dtype), count)


def _repeated(cell: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = np.ndarray((count,), cell.dtype, cell, strides=(0,))
    values.flags.writeable = False
    return values


def is_constant(values: npt.NDArray[Any]) -> bool:
    """Return whether a column was made by `constant`."""
    return values.strides == (0,)


MOST_SHARED_BYTES = 512
"""Longer columns are hardly ever equal to another."""


def short_column(values: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a read-only column of these bytes."""
    make = _shared if len(values) <= MOST_SHARED_BYTES else _column
    return make(values, dtype)


def _column(values: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.frombuffer(values, dtype)


_shared = lru_cache(maxsize=4096)(_column)
