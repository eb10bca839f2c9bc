"""Turns rows of numbers into columns, some rows at a time.

The package is whole without the compiled module: rows then take longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt

try:
    from timeline.sources._rows import next_columns
except ImportError:
    next_columns = None  # type: ignore[assignment]

__all__ = ["column_blocks", "is_compiled"]

BLOCK_ROWS = 2048
"""Rows whose numbers are Python objects at a time: few enough for the processor's own cache."""


def is_compiled() -> bool:
    """Whether this installation has the compiled module."""
    return next_columns is not None


def column_blocks(
    rows: Iterator[tuple[Any, ...]], width: int, dtype: npt.DTypeLike
) -> Iterator[Sequence[npt.NDArray[Any]]]:
    """The columns of some rows after the other, all of them as long.

    Raises:
        TypeError, ValueError, OverflowError: a value cannot be one of the dtype.
    """
    whole = next_columns is not None and np.dtype(dtype) == np.int64
    while True:
        columns = _whole_columns(rows, width) if whole else _columns(rows, width, dtype)
        if not len(columns[0]):
            return
        yield columns


def _whole_columns(rows: Iterator[tuple[Any, ...]], width: int) -> list[npt.NDArray[Any]]:
    return [np.frombuffer(cells, np.int64) for cells in next_columns(rows, width, BLOCK_ROWS)]


def _columns(
    rows: Iterator[tuple[Any, ...]], width: int, dtype: npt.DTypeLike
) -> list[npt.NDArray[Any]]:
    cells = np.fromiter(chain.from_iterable(islice(rows, BLOCK_ROWS)), dtype)
    return list(cells.reshape(-1, width).T)
