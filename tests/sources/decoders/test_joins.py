"""Proves that tables are joined by number alike, however far apart they lie; and tasks by time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timeline.columns.columns import Int64
from timeline.records.not_given import NO_CONTEXT, NO_ID
from timeline.records.tables import Tasks
from timeline.sources.decoders.joins import Lookup, covering_parents, pairs_by_key, rows_in

NUMBERS = st.integers(-3, 12) | st.sampled_from([-(2**63), 2**63 - 1, 2**40])
KEYS = st.lists(NUMBERS, max_size=30).map(lambda keys: np.array(keys, np.int64))
NEAR = st.lists(st.integers(-3, 12), max_size=30).map(lambda keys: np.array(keys, np.int64))


@st.composite
def clusters(draw: st.DrawFn) -> Int64:
    """Keys near each other in a few places that are far apart, in any order."""
    starts = draw(st.lists(st.sampled_from([-3_000, 0, 5_000, 9_001]), min_size=2, max_size=4))
    counts = [draw(st.integers(20, 60)) for _ in starts]
    keys = [start + np.arange(count) for start, count in zip(starts, counts, strict=True)]
    order = draw(st.randoms(use_true_random=False)).sample(range(sum(counts)), sum(counts))
    return np.concatenate(keys)[order]


APART = clusters()


@given(left=KEYS | APART, right=KEYS | NEAR | APART)
def test_pairs_are_all_rows_of_equal_keys_in_order(left: Int64, right: Int64) -> None:
    lefts, rights = pairs_by_key(left, right)
    assert list(zip(lefts.tolist(), rights.tolist(), strict=True)) == [
        (row, other)
        for row, key in enumerate(left.tolist())
        for other, one in enumerate(right.tolist())
        if key == one
    ]


@given(keys=KEYS | NEAR | APART, asked=KEYS | APART)
def test_a_key_is_found_in_its_first_row(keys: Int64, asked: Int64) -> None:
    """An id that is not given is no key."""
    lookup = Lookup({"key": keys, "value": np.arange(len(keys)) * 10}, "key")
    rows = lookup.find(asked)
    held = keys.tolist()
    expected = [held.index(key) if key in held and key != NO_ID else -1 for key in asked.tolist()]
    assert rows.tolist() == expected
    assert lookup.of("value", rows, -7).tolist() == [
        row * 10 if row >= 0 else -7 for row in expected
    ]


@given(values=KEYS | APART, wanted=KEYS | NEAR | APART, invert=st.booleans())
def test_rows_are_those_of_wanted_values(values: Int64, wanted: Int64, *, invert: bool) -> None:
    held = set(wanted.tolist())
    expected = [row for row, value in enumerate(values.tolist()) if (value in held) != invert]
    assert rows_in(values, wanted, invert=invert).tolist() == expected


ROWS = st.lists(
    st.tuples(
        st.integers(0, 3),  # stream
        st.integers(0, 2) | st.just(2**40),  # task
        st.sampled_from([NO_CONTEXT, NO_CONTEXT, 0, 1]),
        st.integers(0, 20),  # start
        st.integers(0, 9),  # length
    ),
    max_size=40,
)


@given(rows=ROWS, in_order=st.booleans())
def test_a_parent_covers_the_next_of_its_children(
    rows: list[tuple[int, int, int, int, int]], *, in_order: bool
) -> None:
    """Of the same stream and task number; such numbers come again, so that time counts too."""
    rows = sorted(rows, key=lambda row: row[3]) if in_order else rows
    stream, task, context, start_ns, length_ns = np.array(rows, np.int64).reshape(-1, 5).T
    end_ns = start_ns + length_ns
    tasks = Tasks.of(
        len(rows),
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "stream": stream,
            "task": task,
            "context": context,
            "name": np.zeros(len(rows), np.int32),
            "compute": np.zeros(len(rows), np.bool_),
        },
    )
    expected = []
    for row in range(len(rows)):
        same = (stream == stream[row]) & (task == task[row]) & (context != NO_CONTEXT)
        after = np.flatnonzero(same & (start_ns >= start_ns[row]))
        parent = bool(context[row] == NO_CONTEXT and len(after))
        expected.append(parent and end_ns[after[np.argmin(start_ns[after])]] <= end_ns[row])
    assert covering_parents(tasks).tolist() == expected
