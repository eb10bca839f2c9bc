"""Turns two columns of ids into the distinct pairs of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from timeline.records.columns import Int64, Rows

__all__ = ["distinct_pairs"]


def distinct_pairs(first: Int64, second: Int64) -> tuple[npt.NDArray[np.int64], Rows]:
    """The distinct pairs in ascending order, (k, 2), and which of them each row is, (n,).

    Each column becomes ranks before they are joined: rows of two columns compare a hundred times
    slower than numbers.
    """
    ones, one = np.unique(first, return_inverse=True)
    others, other = np.unique(second, return_inverse=True)
    width = max(1, len(others))
    keys, which = np.unique(one.reshape(-1) * width + other.reshape(-1), return_inverse=True)
    return np.stack([ones[keys // width], others[keys % width]], axis=1), which.reshape(-1)
