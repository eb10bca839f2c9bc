"""Patterns that are compiled late are those of the standard library."""

from __future__ import annotations

import re

import pytest

from timeline.patterns import compile_late


def test_a_pattern_matches_like_one_that_is_compiled_at_once() -> None:
    """With its flags, in text and in bytes, by every method that is used."""
    early, late = (make(r"rank_(\d+)", re.IGNORECASE) for make in (re.compile, compile_late))
    text = "RANK_7 rank_12"
    for _ in range(2):
        for pattern in (early, late):
            assert pattern.findall(text) == ["7", "12"]
            assert pattern.sub(r"\1", text) == "7 12"
            assert pattern.fullmatch(text) is None
        assert (late.pattern, late.flags, late.groups) == (early.pattern, early.flags, early.groups)
    found = compile_late(rb"\d+").search(b"step 3")
    assert found is not None
    assert found[0] == b"3"


def test_a_pattern_is_compiled_when_it_is_used() -> None:
    """One that cannot be compiled is told then, and not before."""
    wrong = compile_late("(")
    with pytest.raises(re.error):
        wrong.match("")
