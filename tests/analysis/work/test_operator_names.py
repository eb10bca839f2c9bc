"""Proves that names of any length have a type at once, and end nothing."""

from __future__ import annotations

import pytest

from tests.support.deadline import deadline
from timeline.analysis.work.operator_names import operator_type

MEGABYTE = 1 << 20


@pytest.mark.parametrize("piece", ["Aa", "_9", "9", "a1_B", "-op1", "A1", "_Z9"])
@pytest.mark.parametrize("characters", [4_000, MEGABYTE])
def test_a_long_name_takes_no_longer_than_it_is(piece: str, characters: int) -> None:
    """Searching for some ends of names took the square of their length, so hours."""
    with deadline(60):
        assert operator_type(piece * (characters // len(piece)) + "x")


def test_the_length_of_a_mangled_name_may_be_endless() -> None:
    """Python makes no number of so many digits, and no part of a name is so long."""
    assert operator_type("_Z" + "9" * 4_500 + "foo")
    assert operator_type("_Z10add_customPhS_") == "add_custom"
    assert operator_type("Add_1_2") == "Add"
    assert operator_type("MatMulV241") == "MatMulV2"
