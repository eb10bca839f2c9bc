"""Proves that many counters get rows above them by what they count, and few stay as they are."""

from __future__ import annotations

from timeline.tracks.counter_families import MANY, counter_families, natural_order


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


def test_names_with_any_digits_have_an_order() -> None:
    """Numbers by value, however long; a digit that is raised is none of a number."""
    long = "Stream " + "9" * 5000
    assert sorted([long, "Stream 010", "Stream 9", "Stream ²"], key=natural_order) == [
        "Stream 9",
        "Stream 010",
        long,
        "Stream ²",
    ]
