"""Constant columns: read-only arrays of stride 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["constant", "is_constant"]


def constant(value: float, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Make a read-only column of `count` rows that all hold `value`; it takes the memory of one."""
    made: npt.NDArray[Any] = np.ndarray((count,), dtype, np.array(value, dtype), strides=(0,))
    made.flags.writeable = False
    return made


def is_constant(values: npt.NDArray[Any]) -> bool:
    """Whether a column was made by `constant`."""
    return values.strides == (0,)
