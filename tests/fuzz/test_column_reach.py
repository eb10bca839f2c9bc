"""Proves that no column of any layout stops being read unnoticed."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.column_reach import SEEDS, ColumnReach, unread_columns
from tests.fuzz.sweep_seeds import Seed

pytestmark = pytest.mark.sweep

SOME = slice(None, None, 6 if os.environ.get("CI") else 1)
"""A CI tries every sixth column: each takes an export."""


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)
def test_every_column_reaches_the_picture_unless_it_is_known_not_to(seed: Seed) -> None:
    """Of other values in a column, something else is drawn or told.

    `python tests/fuzz columns` also tells which of the others are read by now.
    """
    known = {
        (file, column)
        for file, columns in unread_columns()[seed.name].items()
        for column in columns
    }
    reach = ColumnReach(seed)
    try:
        places = set(reach.places)
        assert not known - places, "there is no such column any more"
        read = sorted(places - known)
        lost = [place for place in read[SOME] if not reach.reaches(place)]
    finally:
        reach.close()
    assert not lost, "nothing comes of these any more"
