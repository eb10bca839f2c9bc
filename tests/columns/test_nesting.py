"""Proves intervals, the order of edges and the search for enclosing ones against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_intervals import (
    EPOCH_NS,
    Interval,
    columns_of,
    covered_ns,
    intervals,
    laminar_intervals,
    normal_ns,
)
from timeline.columns import nesting
from timeline.columns.intervals import subtract, union, union_of_sets
from timeline.columns.nesting import (
    are_exceeded,
    innermost,
    is_compiled,
    latest_open,
    nested_events,
    open_around,
    order_edges,
    split_at_gaps,
)

compiled = pytest.mark.skipif(not is_compiled(), reason="the package was built without a compiler")


def replayed(pairs: list[Interval]) -> list[Interval | None]:
    """What a stack machine such as Perfetto's makes of the edges: each interval as it closed it.

    It opens at each beginning and closes the newest open interval at each end, whichever interval
    the end belongs to.
    """
    edges = order_edges(*columns_of(pairs))
    drawn: list[Interval | None] = [None] * len(pairs)
    stack: list[tuple[int, int]] = []
    for row, is_end, time_ns in zip(
        edges.row.tolist(), edges.is_end.tolist(), edges.time_ns.tolist(), strict=True
    ):
        if is_end:
            opened, start_ns = stack.pop()
            drawn[opened] = (start_ns, time_ns)
        else:
            stack.append((row, time_ns))
    assert not stack
    return drawn


@given(laminar_intervals())
def test_edges_of_nested_intervals_are_a_valid_bracket_sequence(pairs: list[Interval]) -> None:
    edges = order_edges(*columns_of(pairs))
    assert (np.diff(edges.time_ns) >= 0).all()
    stack: list[int] = []
    for row, is_end in zip(edges.row.tolist(), edges.is_end.tolist(), strict=True):
        if is_end:
            assert stack.pop() == row, "an end closes what was opened last"
        else:
            stack.append(row)
    assert not stack


@pytest.mark.parametrize("touching", [False, True])
@given(laminar_intervals(), st.integers(1, 4))
def test_runs_have_the_edges_of_the_whole(
    touching: bool, pairs: list[Interval], least: int
) -> None:
    """In the same order, one run after the other: those of one moment too."""
    start_ns, end_ns = columns_of(pairs)
    found: list[tuple[int, bool]] = []
    for rows in split_at_gaps(start_ns, end_ns, least, touching=touching):
        edges = order_edges(start_ns[rows], end_ns[rows])
        found += zip(rows[edges.row].tolist(), edges.is_end.tolist(), strict=True)
    whole = order_edges(start_ns, end_ns)
    assert found == list(zip(whole.row.tolist(), whole.is_end.tolist(), strict=True))


@given(laminar_intervals())
def test_a_stack_machine_draws_nested_intervals_as_they_are(pairs: list[Interval]) -> None:
    assert replayed(pairs) == pairs


@given(laminar_intervals())
def test_longer_intervals_enclose_shorter_ones(pairs: list[Interval]) -> None:
    edges = order_edges(*columns_of(pairs))
    stack: list[int] = []
    for row, is_end in zip(edges.row.tolist(), edges.is_end.tolist(), strict=True):
        if is_end:
            stack.pop()
            continue
        for outer in stack:
            assert pairs[outer][0] <= pairs[row][0]
            assert pairs[row][1] <= pairs[outer][1]
        stack.append(row)


def test_intervals_that_cross_would_be_drawn_wrong() -> None:
    """The reason for lanes: a stack machine swaps the ends without a word."""
    assert replayed([(100, 300), (200, 400)]) == [(100, 400), (200, 300)]


def innermost_by_search(pairs: list[Interval], moment: int) -> Interval | None:
    """The shortest interval that is open at a moment.

    One without length is open at its own moment unless something longer starts there.
    """
    begun = any(start == moment < end for start, end in pairs)
    found = [
        (start, end)
        for start, end in pairs
        if start <= moment < end or (start == moment == end and not begun)
    ]
    return min(found, key=lambda pair: pair[1] - pair[0], default=None)


@given(laminar_intervals())
def test_innermost_is_the_shortest_interval_that_is_open(pairs: list[Interval]) -> None:
    edges = sorted({edge for pair in pairs for edge in pair})
    moments = range(edges[0] - 1, edges[-1] + 2) if edges else range(0)
    rows = innermost(*columns_of(pairs), np.array(moments, np.int64))
    found = [pairs[row] if row >= 0 else None for row in rows.tolist()]
    assert found == [innermost_by_search(pairs, moment) for moment in moments]


def test_innermost_of_nothing_is_nothing() -> None:
    assert innermost(*columns_of([]), np.array([5])).tolist() == [-1]
    assert innermost(*columns_of([(0, 9)]), np.empty(0, np.int64)).tolist() == []


@given(intervals(), st.lists(st.integers(EPOCH_NS - 1, EPOCH_NS + 40), max_size=10))
def test_latest_open_is_found_among_intervals_that_cross(
    pairs: list[Interval], moments: list[int]
) -> None:
    """The last to begin of those that are open; of nested ones this is the innermost."""
    found = latest_open(*columns_of(pairs), np.array(moments, np.int64))
    for moment_ns, row in zip(moments, found.tolist(), strict=True):
        opened = [pair for pair in pairs if pair[0] <= moment_ns < pair[1]]
        wanted = max(opened, key=lambda one: (one[0], -one[1]), default=None)
        assert (pairs[row] if row >= 0 else None) == wanted


@given(intervals())
def test_an_interval_is_exceeded_if_one_that_begins_inside_it_ends_behind_it(
    pairs: list[Interval],
) -> None:
    pairs.sort(key=lambda pair: (pair[0], -pair[1]))
    wanted = [
        any(one[0] < end < one[1] for one in pairs[row:]) for row, (_, end) in enumerate(pairs)
    ]
    assert are_exceeded(*columns_of(pairs)).tolist() == wanted


@given(intervals())
def test_around_a_beginning_is_the_last_of_those_before_that_is_open(pairs: list[Interval]) -> None:
    pairs.sort(key=lambda pair: (pair[0], -pair[1]))
    wanted = [
        max((at for at in range(row) if pairs[at][1] > start), default=-1)
        for row, (start, _) in enumerate(pairs)
    ]
    assert open_around(*columns_of(pairs)).tolist() == wanted


# -- the compiled module -----------------------------------------------------------------------


@compiled
@given(intervals(), st.lists(st.integers(EPOCH_NS - 1, EPOCH_NS + 40), max_size=10))
def test_what_is_open_is_the_same_without_the_compiled_module(
    pairs: list[Interval], moments: list[int]
) -> None:
    """Of intervals in any order, and of those in order what is around each and what exceeds it."""
    columns, asked = columns_of(pairs), np.array(moments, np.int64)
    ordered = columns_of(sorted(pairs, key=lambda pair: (pair[0], -pair[1])))
    fast = latest_open(*columns, asked), open_around(*ordered), are_exceeded(*ordered)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_nesting", None)
        slow = latest_open(*columns, asked), open_around(*ordered), are_exceeded(*ordered)
    for one, other in zip(fast, slow, strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


@given(laminar_intervals(), st.integers(-5, 5))
def test_events_are_edges_with_ends_beside_their_beginnings(
    pairs: list[Interval], before_ns: int
) -> None:
    """Each edge is told once, in order; with and without the compiled module."""
    columns = columns_of(pairs)
    edges = order_edges(*columns)
    for without in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if without:
                patch.setattr(nesting, "_nesting", None)
            events = nested_events(*columns, before_ns)
        told = []
        time_ns = before_ns
        assert events.begins is not None
        assert events.ends is not None
        for at, row in enumerate(events.row.tolist()):
            for has, since_ns, is_end in (
                (events.begins[at], events.begin_ns[at], False),
                (events.ends[at], events.end_ns[at], True),
            ):
                if has:
                    time_ns += int(since_ns)
                    told.append((row, is_end, time_ns))
        assert told == list(
            zip(edges.row.tolist(), edges.is_end.tolist(), edges.time_ns.tolist(), strict=True)
        )
        assert (events.row[1:] != events.row[:-1]).all(), "an end is beside its beginning"


def test_a_deep_chain_takes_no_longer_than_a_flat_row() -> None:
    """Half a million intervals, each in the one before; a walk up the chain would take hours."""
    count = 1 << 19
    start_ns = np.arange(count)
    assert np.array_equal(open_around(start_ns, 3 * count - start_ns), start_ns - 1)


COLUMN = bytes(16)
AFTER = np.arange(2).tobytes()


@compiled
@pytest.mark.parametrize(
    ("name", "given_columns"),
    [
        ("are_exceeded", (COLUMN, bytes(8))),
        ("are_exceeded", (COLUMN, AFTER)),
        ("events", (COLUMN, bytes(8), 0)),
        ("events", (bytes(15), bytes(15), 0)),
        ("events", (AFTER[::-1], AFTER[::-1], 0)),
        ("events", (COLUMN, AFTER, 0)),
        ("groups", (COLUMN, AFTER, bytes(2), COLUMN)),
        ("groups", (COLUMN, COLUMN, bytes(1), COLUMN)),
        ("groups", (COLUMN, COLUMN, bytes(2), bytes(8))),
        ("latest_open", (COLUMN, bytes(8), COLUMN)),
        ("latest_open", (COLUMN, COLUMN, bytes(9))),
        ("latest_open", (COLUMN, AFTER, COLUMN)),
        ("latest_open", (COLUMN, COLUMN, AFTER[::-1])),
        ("open_around", (COLUMN, bytes(8))),
        ("open_around", (COLUMN, AFTER)),
    ],
)
def test_columns_that_do_not_belong_together_are_refused(
    name: str, given_columns: tuple[bytes | int, ...]
) -> None:
    from timeline.columns import _nesting

    words = "different lengths|order of start"
    with pytest.raises(ValueError, match=words):
        getattr(_nesting, name)(*given_columns)


# -- arithmetic of intervals -----------------------------------------------------------------------


@given(intervals())
def test_union_covers_the_same_nanoseconds(pairs: list[Interval]) -> None:
    start_ns, end_ns = columns_of(pairs)
    merged = union(start_ns, end_ns)
    wanted = covered_ns(start_ns, end_ns)
    assert normal_ns(merged) == wanted
    assert merged.total_ns == len(wanted)
    assert merged.span_ns == ((min(wanted), max(wanted) + 1) if wanted else None)


@given(intervals(), intervals())
def test_a_union_of_sets_covers_what_any_of_them_does(
    left: list[Interval], right: list[Interval]
) -> None:
    first, second = union(*columns_of(left)), union(*columns_of(right))
    merged = union_of_sets(first, second, first)
    assert normal_ns(merged) == covered_ns(*columns_of(left)) | covered_ns(*columns_of(right))


@given(intervals(), intervals())
def test_subtract_removes_exactly_the_nanoseconds_of_the_right_side(
    left: list[Interval], right: list[Interval]
) -> None:
    rest = subtract(union(*columns_of(left)), union(*columns_of(right)))
    assert normal_ns(rest) == covered_ns(*columns_of(left)) - covered_ns(*columns_of(right))


def test_union_leaves_its_arguments_alone() -> None:
    start_ns, end_ns = np.array([5, 0]), np.array([9, 6])
    union(start_ns, end_ns)
    assert (start_ns.tolist(), end_ns.tolist()) == ([5, 0], [9, 6])


def test_intervals_of_all_of_time_are_merged_and_subtracted() -> None:
    first, last = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    merged = union(np.array([first, 0, 5]), np.array([0, last, 5]))
    assert (merged.start_ns.tolist(), merged.end_ns.tolist()) == ([first], [last])
    rest = subtract(merged, union(np.array([-3]), np.array([7])))
    assert (rest.start_ns.tolist(), rest.end_ns.tolist()) == ([first, 7], [-3, last])


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"different lengths|broadcast"):
        union(np.array([1, 2]), np.array([3]))
