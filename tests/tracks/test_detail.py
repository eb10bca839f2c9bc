"""Proves that many counters get rows above them by what they count, and few stay as they are."""

from __future__ import annotations

from timeline.tracks.detail import MANY, counter_families, natural_order


def test_few_counters_have_no_row_above_them() -> None:
    named = {number: f"HBM {number}" for number in range(MANY - 1)}
    assert counter_families(named) == [("", [number]) for number in range(MANY - 1)]


def test_many_that_count_the_same_are_below_one_row_in_order_of_their_numbers() -> None:
    units = [10, 2, *range(20, 40)]
    named = dict(enumerate(f"Read Level, acc {unit}" for unit in units))
    named |= {100 + at: f"HBM {at}/Write" for at in range(3)}
    named[200] = "Frequency"
    found = counter_families(named)
    assert [(family, len(rows)) for family, rows in found] == [
        ("", 1),
        ("HBM/Write", 3),
        ("Read Level, acc", len(units)),
    ]
    assert [named[row] for row in found[2][1][:3]] == [
        "Read Level, acc 2",
        "Read Level, acc 10",
        "Read Level, acc 20",
    ]


def test_no_counter_is_lost() -> None:
    named = {number: f"{'ab'[number % 2]} {number}" for number in range(3 * MANY)}
    assert sorted(row for _, rows in counter_families(named) for row in rows) == sorted(named)


def test_names_sort_by_numbers_of_any_length() -> None:
    """Numbers may have more digits than Python reads, and other signs that count as digits."""
    long = "9" * 5_000
    names = [f"Read {long}", "Read 10", "Read 2", "Read \u00b2", "Read 010", "Read 0"]
    assert sorted(names, key=natural_order) == [
        "Read 0",
        "Read 2",
        "Read 10",
        "Read 010",
        f"Read {long}",
        "Read \u00b2",
    ]
