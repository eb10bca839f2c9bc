"""Proves that rows that are there twice are found, in any order and however many are sorted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_tables import table_of
from timeline.analysis import sound_records
from timeline.analysis.sound_records import repeated_rows
from timeline.columns import chunks
from timeline.records.tables import Tasks

SPAN = st.tuples(st.integers(-5, 30), st.integers(0, 2), st.integers(0, 1))
"""A start, a length and a stream, of which many are equal."""


@given(
    st.lists(SPAN, max_size=60),
    st.booleans(),
    st.sampled_from([1, 4, 1 << 20]),
    st.sampled_from([1, 7, 1 << 16]),
)
def test_the_later_of_equal_rows_is_a_copy(
    spans: list[tuple[int, int, int]], in_order: bool, sorted_rows: int, part_rows: int
) -> None:
    """But for intervals without length, which may well be there twice."""
    spans = sorted(spans) if in_order else spans
    rows = [
        {"start_ns": start, "end_ns": start + length, "stream": stream}
        for start, length, stream in spans
    ]
    table = table_of(Tasks, rows, name=0, compute=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sound_records, "SORTED_ROWS", sorted_rows)
        patch.setattr(chunks, "CHUNK_ROWS", part_rows)
        found = repeated_rows(table)
    expected = [
        length > 0 and span in spans[:at] for at, span in enumerate(spans) for length in [span[1]]
    ]
    assert found.tolist() == expected
