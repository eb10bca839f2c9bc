"""Turns strings into small integers, once, when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from timeline.records.columns import Codes

__all__ = ["NO_NAME", "StringPool"]

NO_NAME = 0
"""Code of the empty string, which stands for "not given"."""


class StringPool:
    """All distinct strings of one rank, numbered in the order in which they were first seen."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {"": NO_NAME}
        self._strings: list[str] = [""]

    def __len__(self) -> int:
        return len(self._strings)

    def __getitem__(self, code: int) -> str:
        return self._strings[code]

    def code(self, string: str) -> int:
        """The code of a string, new if it was not seen before."""
        code = self._codes.get(string)
        if code is None:
            code = len(self._strings)
            self._codes[string] = code
            self._strings.append(string)
        return code

    def find(self, string: str) -> int | None:
        """The code of a string, or None where it never occurred."""
        return self._codes.get(string)

    def codes(self, strings: Iterable[str]) -> Codes:
        """The codes of many strings, (n,) int32."""
        wanted = list(strings)
        found = list(map(self._codes.get, wanted))
        if None in found:
            found = list(map(self.code, wanted))
        return np.array(found, np.int32)

    def translated(
        self, codes: Codes, pool: StringPool, meaning: Callable[[str], str] = str
    ) -> Codes:
        """The codes here of what codes of another pool mean; each string is asked once."""
        seen = np.zeros(len(pool), np.bool_)
        seen[codes] = True
        table = np.zeros(len(pool), np.int32)
        for code in np.flatnonzero(seen).tolist():
            table[code] = self.code(meaning(pool[code]))
        return table[codes]

    def matching(self, test: Iterable[bool]) -> Codes:
        """The codes of the strings whose test, given in code order, is true; (k,) int32."""
        return np.flatnonzero(np.fromiter(test, np.bool_)).astype(np.int32)

    def __iter__(self) -> Iterator[str]:
        return iter(self._strings)
