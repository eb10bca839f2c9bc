"""Proves that strings get their codes in order, in a pool and in one that extends another."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.columns import strings as string_pools
from timeline.columns.strings import ExtendedPool, StringPool

TEXTS = st.lists(st.sampled_from(["", "N/A", "a", "b", "c", "d"]))


@given(TEXTS, TEXTS, TEXTS, st.data())
def test_an_extended_pool_keeps_codes_and_adds_its_own(
    shared: Sequence[str], own: Sequence[str], later: Sequence[str], data: st.DataObject
) -> None:
    """What the shared pool gets later is not in it; a copy of it says the same."""
    base = StringPool()
    base.codes(shared)
    every = [*base, *own]
    pool = ExtendedPool(base, own)
    base.codes(later)
    codes = np.array(data.draw(st.lists(st.integers(0, len(every) - 1))), np.int32)
    for one in (pool, pickle.loads(pickle.dumps(pool))):
        assert list(one) == every
        assert len(one) == len(every)
        assert one.texts(codes) == [one[code] for code in codes] == [every[code] for code in codes]
    other = StringPool()
    told = other.texts(other.translate(codes, pool))
    assert told == ["" if text == "N/A" else text for text in pool.texts(codes)]


@given(TEXTS, TEXTS)
def test_codes_of_many_strings_are_those_of_each(shared: list[str], own: list[str]) -> None:
    """A pool is asked for many strings, some at a time, another one for one after the other."""
    together, one_by_one = StringPool(), StringPool()
    for strings in (shared, own):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(string_pools, "NUMBERED_AT_ONCE", 3)
            codes = together.codes(strings)
        assert codes.tolist() == list(map(one_by_one.code, strings))
        assert list(together) == list(one_by_one)
        assert together.texts(together.codes(strings)) == [
            "" if text == "N/A" else text for text in strings
        ]


@given(st.lists(st.text("aAbBſsK_", max_size=6)), st.lists(st.text("abs_", min_size=1, max_size=2)))
def test_codes_of_strings_with_words(texts: list[str], words: list[str]) -> None:
    """As a pattern finds them for which the size of letters does not matter; of any pool."""
    pool = StringPool()
    pool.codes(texts[:3])
    pool = ExtendedPool(pool, texts[3:])
    pattern = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
    wanted = [code for code, text in enumerate(pool) if words and pattern.search(text)]
    assert pool.codes_with(words).tolist() == wanted
