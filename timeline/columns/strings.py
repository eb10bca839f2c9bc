"""Numbers for values in the order in which they are first seen, and pools of numbered strings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np

from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.distinct import distinct_values

_Key = TypeVar("_Key", bound=Hashable)

NUMBERED_AT_ONCE = 1 << 14
"""Number of values processed at a time, to limit memory."""


class Interner(dict[_Key, int]):
    """Numbers of values, in order of first access; a new value gets the next number."""

    first = 0
    """Number of the first value."""

    def __missing__(self, value: _Key) -> int:
        self[value] = number = self.first + len(self)
        return number

    def number(self, values: Iterable[_Key]) -> list[_Key]:
        """Assign the next numbers to the new ones among many values, and return the new ones.

        Three times as fast as looking up each value.
        """
        every, values = list[_Key](), iter(values)
        while some := list(islice(values, NUMBERED_AT_ONCE)):
            fresh = self._without_number(some)
            number = self.first + len(self)
            self.update(zip(fresh, range(number, number + len(fresh)), strict=True))
            every += fresh
        return every

    def _without_number(self, values: Iterable[_Key]) -> list[_Key]:
        """Return the values that would get a new number, each once."""
        return [value for value in dict.fromkeys(values) if value not in self]

    def of(self, values: Collection[_Key]) -> Int64:
        """Return the numbers of many values, (n,) int64."""
        self.number(values)
        return np.fromiter(map(self.__getitem__, values), np.int64, len(values))


NO_NAME = 0
"""Code of the empty string, which means "not given"."""
NO_TEXT = frozenset({"", "N/A", "INVALID_TYPE"})
"""Strings that writers of profiles use for "not given"."""


class _CodeOfText(Interner[str]):
    """Code of each string; all strings for "not given" share NO_NAME."""

    def __missing__(self, string: str) -> int:
        return NO_NAME if string in NO_TEXT else super().__missing__(string)

    def _without_number(self, values: Iterable[str]) -> list[str]:
        return [string for string in super()._without_number(values) if string not in NO_TEXT]


class StringPool:
    """All distinct strings of one rank, numbered in the order in which they were first seen.

    The lookup by string is built on first use: after unpickling, most pools are only used by code.
    """

    def __init__(self, strings: Iterable[str] = ("",)) -> None:
        """Make a pool of distinct strings, in the order of their codes."""
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
        """Return the string of each code."""
        return list(map(self._strings.__getitem__, codes.tolist()))

    def code(self, string: str) -> int:
        """Return the code of a string, a new one if it was not seen before."""
        if string not in self._codes:
            self._strings += self._codes.number([string])
        return self._codes[string]

    def find(self, string: str) -> int | None:
        """Return the code of a string, None if it never occurred."""
        return NO_NAME if string in NO_TEXT else self._codes.get(string)

    def codes(self, strings: Iterable[str]) -> Codes:
        """Return the codes of many strings, (n,) int32."""
        every = list(strings)
        self._strings += self._codes.number(every)
        return np.fromiter(map(self._codes.__getitem__, every), np.int32, len(every))

    def translate(
        self, codes: Codes, pool: StringPool, meaning: Callable[[str], str] = str
    ) -> Codes:
        """Return codes in this pool of the strings that codes of another pool have there.

        meaning: applied to each distinct string first.
        """
        seen = np.zeros(len(pool), np.bool_)
        seen[codes] = True
        table = np.zeros(len(pool), np.int32)
        table[seen] = self.codes(map(meaning, pool.texts(np.flatnonzero(seen))))
        return table[codes]

    def by_spelling(self, codes: Codes | Int64) -> tuple[Int64, Rows]:
        """Return the distinct codes in order of their strings, and each code's position there."""
        distinct_codes, which = distinct_values(codes.astype(np.int64))
        texts = self.texts(distinct_codes)
        order = np.array(sorted(range(len(distinct_codes)), key=texts.__getitem__), np.intp)
        place = np.empty(len(distinct_codes), np.intp)
        place[order] = np.arange(len(distinct_codes))
        return distinct_codes[order], place[which]

    def codes_where(self, tests: Iterable[bool]) -> Codes:
        """Return the codes of strings whose test is true, (k,) int32.

        tests: one per string, in order of codes.
        """
        return np.flatnonzero(np.fromiter(tests, np.bool_)).astype(np.int32)

    def codes_with(self, words: Iterable[str]) -> Codes:
        """Return the codes of the strings that contain one of some words, (k,) int32 ascending.

        words: in lower case; strings are compared without case. A regular expression would be tried
        at every position of a string, which takes ten times as long.
        """
        folded = [string.casefold() for string in self]
        matches = {code for word in words for code, string in enumerate(folded) if word in string}
        return np.array(sorted(matches), np.int32)

    def extended(self) -> tuple[StringPool, int, Sequence[str]]:
        """Return the extended pool, the number of its strings used, and the further ones."""
        return self, len(self), ()

    def __iter__(self) -> Iterator[str]:
        return iter(self._strings)


class ExtendedPool(StringPool):
    """A pool with the current strings of another one, under the same codes, and further strings.

    Further strings may repeat strings of the base pool, so a string may have several codes, and
    only lookup by code is possible. Several threads can extend the same pool at once.
    """

    def __init__(self, base: StringPool, further: Sequence[str]) -> None:
        """Extend a pool by distinct strings, whose codes follow those of its own."""
        self._base, self._first = base, len(base)
        self._strings = list(further)

    def __len__(self) -> int:
        return self._first + len(self._strings)

    def __getitem__(self, code: int) -> str:
        return self._base[code] if code < self._first else self._strings[code - self._first]

    def texts(self, codes: Codes | Int64 | Rows) -> list[str]:
        """Return the string of each code."""
        further = np.flatnonzero(codes >= self._first)
        of_base = codes.copy()
        of_base[further] = NO_NAME
        texts = self._base.texts(of_base)
        places = (codes[further] - self._first).tolist()
        for at, place in zip(further.tolist(), places, strict=True):
            texts[at] = self._strings[place]
        return texts

    def __iter__(self) -> Iterator[str]:
        return chain(islice(self._base, self._first), self._strings)

    def extended(self) -> tuple[StringPool, int, Sequence[str]]:
        """Return the extended pool, the number of its strings used, and the further ones."""
        return self._base, self._first, self._strings
