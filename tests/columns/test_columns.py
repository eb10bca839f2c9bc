"""Proves that functions on columns give what NumPy gives, wherever the columns lie."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from timeline.columns import chunks, spill
from timeline.columns.chunks import compute_in_chunks, one_by_one, rows_where
from timeline.columns.columns import (
    PACKED_ROWS,
    Bool,
    Codes,
    Columnar,
    ColumnTable,
    Float64,
    Int64,
    column,
    concat_columns,
    sort_rows,
    take,
)
from timeline.columns.constant import constant, is_constant
from timeline.columns.group_by import GroupRuns

NUMBERS = st.lists(st.integers(-5, 5), max_size=60).map(lambda some: np.array(some, np.int64))
in_memory_or_files = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["memory", "files"], autouse=True)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks; and memory that has room for columns, or for none."""
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 7)
    if request.param == "files":
        monkeypatch.setattr(spill, "MEMORY_BYTES", 0)
        monkeypatch.setattr(spill, "LEAST_SPILLED_BYTES", 1)
        monkeypatch.setattr(spill, "FILE_BYTES", 1 << 12)


@in_memory_or_files
@given(values=NUMBERS)
def test_chunks_make_no_difference(values: Int64) -> None:
    doubled = compute_in_chunks(np.int64, np.add, values, values)
    assert doubled.tolist() == (2 * values).tolist()
    assert rows_where(np.less, values, -values).tolist() == np.flatnonzero(values < 0).tolist()


@in_memory_or_files
@given(values=NUMBERS, others=NUMBERS)
def test_rows_are_sorted_by_the_first_key_first(values: Int64, others: Int64) -> None:
    count = min(len(values), len(others))
    pairs = list(zip(values.tolist(), others.tolist(), range(count), strict=False))
    expected = [row for _, _, row in sorted(pairs)]
    assert sort_rows(values[:count], others[:count]).tolist() == expected
    assert sort_rows(values).tolist() == np.argsort(values, kind="stable").tolist()


@in_memory_or_files
@given(st.lists(NUMBERS, min_size=1, max_size=5))
def test_parts_of_a_column_are_joined(parts: list[Int64]) -> None:
    assert concat_columns(parts).tolist() == [value for part in parts for value in part.tolist()]


def test_constant_parts_of_one_value_stay_constant() -> None:
    threes = constant(3, 4, np.int64)
    joined = concat_columns([threes, threes])
    assert is_constant(joined)
    assert joined.tolist() == [3] * 8
    assert concat_columns([threes, constant(2, 1, np.int64)]).tolist() == [3, 3, 3, 3, 2]
    assert concat_columns([threes[:0]]).tolist() == []


@in_memory_or_files
@given(NUMBERS.filter(len))
def test_each_group_has_its_least_greatest_sum_and_single_value(keys: Int64) -> None:
    _, group = np.unique(keys, return_inverse=True)
    values = np.arange(len(keys)) * 3 - 5
    runs = GroupRuns.of(group)
    members = [values[group == number] for number in range(int(group.max()) + 1)]
    assert runs.least(values).tolist() == [member.min() for member in members]
    assert runs.greatest(values).tolist() == [member.max() for member in members]
    assert runs.sum(values).tolist() == [member.sum() for member in members]
    assert runs.any(values > 0).tolist() == [(member > 0).any() for member in members]
    single = [member[0] if len(member) == 1 else -99 for member in members]
    assert runs.single(values, otherwise=-99).tolist() == single
    rows = np.concatenate([runs.rows(groups) for groups in runs.stretches(4)])
    assert rows.tolist() == np.argsort(group, kind="stable").tolist()


class _Pairs(ColumnTable):
    number: Int64 = column(np.int64)
    double: Int64 = column(np.int64)


@dataclass(frozen=True)
class _Named(Columnar):
    values: Int64
    name: str


def test_what_holds_columns_puts_them_where_there_is_room() -> None:
    numbers = np.arange(100)
    table, named = _Pairs(numbers, 2 * numbers), _Named(3 * numbers, "three")
    in_files = spill.MEMORY_BYTES == 0
    assert [table.double.flags.owndata, named.values.flags.owndata] == [not in_files] * 2
    assert table[10:12].double.tolist() == [20, 22]
    assert take(named.values, np.array([1, 3])).tolist() == [3, 9]
    summed = compute_in_chunks(np.int64, lambda rows: rows.number + rows.double, table)
    assert summed.tolist() == named.values.tolist()


def test_what_was_read_of_one_thing_is_counted_before_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []

    def items() -> Iterator[int]:
        for number in range(3):
            assert len(counted) == number, "it may be given back before the next is made"
            yield number

    monkeypatch.setattr(chunks, "count_read", counted.append)
    assert list(one_by_one(items(), lambda number: 10 * number)) == [0, 1, 2]
    assert counted == [0, 10, 20]


@pytest.mark.parametrize(
    ("in_order", "by_name"),
    [
        ((np.arange(2),), {}),
        ((np.arange(2),) * 3, {}),
        ((np.arange(2),) * 2, {"number": np.arange(2)}),
    ],
    ids=["too few", "too many", "one twice"],
)
def test_tables_take_each_column_once(
    in_order: tuple[Int64, ...], by_name: dict[str, Int64]
) -> None:
    with pytest.raises(TypeError, match="_Pairs takes its columns, each once"):
        _Pairs(*in_order, **by_name)


class _Mixed(ColumnTable):
    flag: Bool = column(np.bool_)
    number: Int64 = column(np.int64)
    code: Codes = column(np.int32)
    share: Float64 = column(np.float64)


@in_memory_or_files
@given(st.integers(0, PACKED_ROWS + 1), st.integers(0, 9))
def test_a_pickled_table_holds_what_it_held(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(-9, 9, (4, count))
    table = _Mixed.of(count, dict(zip(("flag", "number", "code", "share"), values, strict=True)))
    for found in (pickle.loads(pickle.dumps(table)), replace(pickle.loads(pickle.dumps(table)))):
        assert isinstance(found, _Mixed)
        assert len(found) == count
        for name, column_ in table.columns().items():
            made = found.columns()[name]
            assert made.dtype == column_.dtype
            assert made.flags.aligned, "compiled code reads it as it is"
            assert made.tolist() == column_.tolist(), name
        assert _Mixed.concat([table, found[:1]]).number.tolist() == [
            *table.number.tolist(),
            *table.number[:1].tolist(),
        ]
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(table))))
    assert again.number.tolist() == table.number.tolist()
