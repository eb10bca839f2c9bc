"""Proves that a renamed key of JSON keeps its old name beside the new one."""

from __future__ import annotations

import pytest

from timeline.figures.renamed_keys import RENAMED_KEYS, with_renamed_keys


@pytest.mark.parametrize(("old", "new"), RENAMED_KEYS.items())
def test_both_names_have_the_value_whichever_is_given(old: str, new: str) -> None:
    """Other keys stay as they are, in their order."""
    for key in (old, new):
        row = with_renamed_keys({"rank": 3, key: 7, "steps": None})
        assert list(row.items()) == [("rank", 3), (old, 7), (new, 7), ("steps", None)]
