"""Proves that columns of one repeated value take no memory and read like plain ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.columns.columns import Codes, ColumnTable, Float64, Int64, Rows, column
from timeline.columns.constant import constant
from timeline.records.not_given import FLOAT_NOT_GIVEN, NO_GRAPH, NO_TIME
from timeline.records.tables import CommunicationOps, HostEvents, PlaneTasks, Spans, Steps, Tasks


class Sheet(ColumnTable):
    """A table with a column that is always given, and some that have a default."""

    row: Int64 = column(np.int64)
    share: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    count: Int64 = column(np.int64, NO_TIME)
    code: Codes = column(np.int32, 0)


shares = st.sampled_from([FLOAT_NOT_GIVEN, 0.0, -0.0, 1.5])


@st.composite
def sheets(draw: st.DrawFn) -> tuple[Sheet, Sheet]:
    """A table whose columns are default, constant or plain, and one whose are all plain."""
    count = draw(st.integers(0, 4))
    columns: dict[str, npt.NDArray[Any]] = {"row": np.arange(count)}
    if draw(st.booleans()):
        columns["share"] = constant(draw(shares), count, np.float64)
    elif draw(st.booleans()):
        columns["share"] = np.array(
            draw(st.lists(shares, min_size=count, max_size=count)), np.float64
        )
    if draw(st.booleans()):
        columns["count"] = constant(draw(st.sampled_from([NO_TIME, 3])), count, np.int64)
    lean = Sheet.of(count, columns)
    plain = {field.name: getattr(lean, field.name).copy() for field in dataclasses.fields(lean)}
    return lean, Sheet(**plain)


def same_bytes(one: Sheet, other: Sheet) -> bool:
    """Whether all values are the same, absent ones and the sign of zero included."""
    return all(
        getattr(one, field.name).tobytes() == getattr(other, field.name).tobytes()
        for field in dataclasses.fields(one)
    )


@given(st.lists(sheets(), max_size=4))
def test_tables_with_constants_join_like_plain_ones(parts: list[tuple[Sheet, Sheet]]) -> None:
    joined = Sheet.concat(lean for lean, _ in parts)
    assert same_bytes(joined, Sheet.concat(plain for _, plain in parts))
    if len(joined):
        assert joined.code.strides == (0,), "a default in all parts"


@given(sheets(), st.data())
def test_rows_of_tables_with_constants_are_those_of_plain_ones(
    tables: tuple[Sheet, Sheet], data: st.DataObject
) -> None:
    """By a mask and by positions, repeated ones among them."""
    lean, plain = tables
    places = st.lists(st.sampled_from(range(len(lean))), max_size=6) if len(lean) else st.just([])
    positions: Rows = np.array(data.draw(places), np.intp)
    mask = np.isin(np.arange(len(lean)), positions)
    for taken, wanted in (
        (lean.take(mask), plain.take(mask)),
        (lean.take(positions), plain.take(positions)),
    ):
        assert same_bytes(taken, wanted)
        assert not len(taken) or taken.code.strides == (0,)


@pytest.mark.parametrize("table", [Tasks, PlaneTasks, CommunicationOps, HostEvents, Steps])
def test_columns_that_a_source_does_not_give_take_no_memory(table: type[Spans]) -> None:
    """Their values are the declared ones, and nobody can write to one row and change all."""
    declared = {field.name: field.metadata for field in dataclasses.fields(table)}
    needed = {name: np.arange(3) for name, field in declared.items() if field["default"] is None}
    made = table.of(3, needed)
    for name in declared.keys() - needed.keys():
        values: npt.NDArray[Any] = getattr(made, name)
        wanted = np.full(3, declared[name]["default"], declared[name]["dtype"])
        assert values.dtype == wanted.dtype
        assert values.tobytes() == wanted.tobytes()
        assert values.strides == (0,)
        assert not values.flags.writeable


def test_a_constant_is_as_long_as_one_likes() -> None:
    """Also where no memory would hold its rows."""
    rows = 1 << 50
    values = constant(NO_GRAPH, rows, np.int64)
    assert len(values) == rows
    assert values[-1] == NO_GRAPH


def test_constants_of_different_values_join_to_a_plain_column() -> None:
    """Of which NaN is one value, whatever it compares to."""
    absent, present = (
        Sheet.of(2, {"row": [0, 1], "share": [value] * 2}) for value in (np.nan, 1.0)
    )
    same = Sheet.concat([Sheet.of(2, {"row": [0, 1]})] * 2)
    assert same.share.strides == (0,)
    assert np.isnan(same.share).tolist() == [True] * 4
    mixed = Sheet.concat([absent, present])
    np.testing.assert_array_equal(mixed.share, [np.nan, np.nan, 1.0, 1.0])
