"""Strings as small integers, which they become once, when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np

from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.distinct import distinct_values
from timeline.columns.interner import Interner

NO_NAME = 0
"""Code of the empty string, which stands for "not given"."""
NO_TEXT = frozenset({"", "N/A", "INVALID_TYPE"})
"""Texts with which writers of profiles say that there is none."""


class _CodeOfText(Interner[str]):
    """The code of each string; all texts that say that there is none have the same."""

    def __missing__(self, string: str) -> int:
        return NO_NAME if string in NO_TEXT else super().__missing__(string)

    def _without_number(self, values: Iterable[str]) -> list[str]:
        return [string for string in super()._without_number(values) if string not in NO_TEXT]


class StringPool:
    """All distinct strings of one rank, numbered in the order in which they were first seen.

    Of one that was pickled, codes are looked for when somebody asks for one by its string: most
    ranks are only asked for strings by then.
    """

    def __init__(self, strings: Iterable[str] = ("",)) -> None:
        """strings: distinct, by their codes."""
        self._strings = list(strings)

    def __reduce__(self) -> tuple[Callable[..., StringPool], tuple[Any, ...]]:
        return StringPool, (list(self),)

    @cached_property
    def _codes(self) -> Interner[str]:
        return _CodeOfText(zip(self._strings, range(len(self._strings)), strict=True))

    def __len__(self) -> int:
        return len(self._strings)

    def __getitem__(self, code: int) -> str:
        return self._strings[code]

    def texts(self, codes: Codes | Int64 | Rows) -> list[str]:
        """The string of each of many codes."""
        return list(map(self._strings.__getitem__, codes.tolist()))

    def code(self, string: str) -> int:
        """The code of a string, new if it was not seen before."""
        if string not in self._codes:
            self._strings += self._codes.number([string])
        return self._codes[string]

    def find(self, string: str) -> int | None:
        """The code of a string, or None where it never occurred."""
        return NO_NAME if string in NO_TEXT else self._codes.get(string)

    def codes(self, strings: Iterable[str]) -> Codes:
        """The codes of many strings, (n,) int32."""
        every = list(strings)
        self._strings += self._codes.number(every)
        return np.fromiter(map(self._codes.__getitem__, every), np.int32, len(every))

    def translate(
        self, codes: Codes, pool: StringPool, meaning: Callable[[str], str] = str
    ) -> Codes:
        """The codes here of what codes of another pool mean; each string is asked once."""
        seen = np.zeros(len(pool), np.bool_)
        seen[codes] = True
        table = np.zeros(len(pool), np.int32)
        table[seen] = self.codes(map(meaning, pool.texts(np.flatnonzero(seen))))
        return table[codes]

    def by_spelling(self, codes: Codes | Int64) -> tuple[Int64, Rows]:
        """The distinct codes in order of what they spell, and the place of each code among them."""
        found, which = distinct_values(codes.astype(np.int64))
        spelled = self.texts(found)
        order = np.array(sorted(range(len(found)), key=spelled.__getitem__), np.intp)
        place = np.empty(len(found), np.intp)
        place[order] = np.arange(len(found))
        return found[order], place[which]

    def codes_where(self, tests: Iterable[bool]) -> Codes:
        """The codes of the strings whose test is true, (k,) int32; tests are in order of codes."""
        return np.flatnonzero(np.fromiter(tests, np.bool_)).astype(np.int32)

    def codes_with(self, words: Iterable[str]) -> Codes:
        """The codes of the strings that hold one of some words, (k,) int32 ascending.

        words: in small letters; the size of letters does not matter. A pattern would be tried at
        every place of a string, which takes ten times as long.
        """
        folded = [string.casefold() for string in self]
        found = {code for word in words for code, string in enumerate(folded) if word in string}
        return np.array(sorted(found), np.int32)

    def extended(self) -> tuple[StringPool, int, Sequence[str]]:
        """The pool that it extends, how many strings of that it has, and the further ones."""
        return self, len(self), ()

    def __iter__(self) -> Iterator[str]:
        return iter(self._strings)


class _PoolBehind(StringPool):
    """The first strings of a pool, under their codes, and further ones behind them.

    Those may be among the first ones too, so that a string has several codes: it can only be asked
    for strings.
    """

    _base: StringPool
    _first: int

    def __len__(self) -> int:
        return self._first + len(self._strings)

    def __getitem__(self, code: int) -> str:
        return self._base[code] if code < self._first else self._strings[code - self._first]

    def texts(self, codes: Codes | Int64 | Rows) -> list[str]:
        """The string of each of many codes."""
        further = np.flatnonzero(codes >= self._first)
        of_base = codes.copy()
        of_base[further] = NO_NAME
        made = self._base.texts(of_base)
        places = (codes[further] - self._first).tolist()
        for at, place in zip(further.tolist(), places, strict=True):
            made[at] = self._strings[place]
        return made

    def __iter__(self) -> Iterator[str]:
        return chain(islice(self._base, self._first), self._strings)


class ExtendedPool(_PoolBehind):
    """The strings that a pool has by now, under their codes, and further ones that it never gets.

    Any number of threads may each extend a pool that they share.
    """

    def __init__(self, base: StringPool, further: Sequence[str]) -> None:
        """further: distinct; they follow those of the pool."""
        self._base, self._first = base, len(base)
        self._strings = list(further)

    def extended(self) -> tuple[StringPool, int, Sequence[str]]:
        """The pool that it extends, how many strings of that it has, and the further ones."""
        return self._base, self._first, self._strings


class JoinedPool(_PoolBehind):
    """The strings of pools that extend the same one; further ones of each have their own codes."""

    def __init__(self, pools: Sequence[StringPool]) -> None:
        parts = [pool.extended() for pool in pools]
        self._base = parts[0][0]
        self._first = max(first for _, first, _ in parts)
        self._strings = list(chain.from_iterable(further for _, _, further in parts))
        self._firsts = np.array([first for _, first, _ in parts], np.int64)
        counts = np.array([len(further) for _, _, further in parts], np.int64)
        self._shifts = self._first + np.cumsum(counts) - counts - self._firsts

    def joined(self, codes: Codes, counts: Int64) -> Codes:
        """The codes here of codes of the pools; so many of each."""
        if not len(self._strings):
            return codes
        is_further = codes >= np.repeat(self._firsts, counts)
        made: Codes = np.where(is_further, codes + np.repeat(self._shifts, counts), codes)
        return made.astype(np.int32)
