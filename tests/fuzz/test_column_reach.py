"""Proves that no column of any layout stops being read unnoticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.column_reach import SEEDS, ColumnReach, unread_columns

pytestmark = pytest.mark.sweep

SOME = slice(None, None, 6 if os.environ.get("CI") else 1)
"""A CI tries every sixth column: each takes an export."""


@pytest.mark.parametrize("layout", SEEDS)
def test_every_column_reaches_the_picture_unless_it_is_known_not_to(
    layout: str, tmp_path: Path
) -> None:
    """Of other values in a column, something else is drawn or reported."""
    known = {
        (file, column) for file, columns in unread_columns()[layout].items() for column in columns
    }
    reach = ColumnReach(layout, tmp_path)
    places = set(reach.places)
    assert not known - places, "there is no such column any more"
    read = sorted(places - known)
    assert not [place for place in read[SOME] if not reach.reaches(place)], "nothing comes of these"
