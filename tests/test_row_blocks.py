"""Proves that rows become the same columns with the compiled module and without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.sources import row_blocks
from timeline.sources.row_blocks import column_blocks, is_compiled

compiled = pytest.mark.skipif(not is_compiled(), reason="the package was built without a compiler")
LEAST, GREATEST = -(2**63), 2**63 - 1
ROW = st.integers(1, 12).flatmap(
    lambda width: st.lists(
        st.tuples(*[st.integers(LEAST, GREATEST) | st.integers(-2, 2)] * width), min_size=1
    )
)


@pytest.fixture(params=["compiled", "interpreted"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways, each with blocks of a few rows."""
    if request.param == "interpreted":
        monkeypatch.setattr(row_blocks, "next_columns", None)
    elif not is_compiled():
        pytest.skip("the package was built without a compiler")
    return str(request.param)


def read(rows: list[tuple[Any, ...]], width: int) -> list[tuple[int, ...]]:
    """The rows that the columns of all blocks make."""
    made: list[tuple[int, ...]] = []
    for block in column_blocks(iter(rows), width, np.int64):
        assert [column.dtype for column in block] == [np.int64] * width
        made += zip(*(column.tolist() for column in block), strict=True)
    return made


@compiled
@given(rows=ROW, most=st.integers(1, 9))
def test_compiled_columns_hold_what_the_rows_do(rows: list[tuple[int, ...]], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_blocks, "BLOCK_ROWS", most)
        made = read(rows, len(rows[0]))
        patch.setattr(row_blocks, "next_columns", None)
        assert made == read(rows, len(rows[0])) == rows


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("cell", [None, "text", b"\x00", GREATEST + 1, LEAST - 1, 2**200], ids=repr)
def test_a_cell_that_is_no_number_of_64_bits_is_refused(cell: object) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        read([(1, 2), (3, cell)], 2)


@pytest.mark.usefixtures("way")
def test_what_reading_raises_is_raised() -> None:
    """A page may be damaged behind rows that are whole."""

    def rows() -> Iterator[tuple[int, ...]]:
        yield 1, -1
        raise KeyError("damaged")

    with pytest.raises(KeyError, match="damaged"):
        next(iter(column_blocks(rows(), 2, np.int64)))


@compiled
def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match="width"):
        read([(1, 2), (3, 4, 5)], 2)
    with pytest.raises(ValueError, match="sizes"):
        read([()], 0)
