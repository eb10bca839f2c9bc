"""DrawnTexts: strings of slices, by number where that saves bytes, else where they are used.

A viewer pays more for a numbered string: Perfetto's trace processor keeps a decoder of each, which
takes 1.7 KB, and 0.1 KB for a string that stands where it is used (200 000 of either, measured).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Codes, Int64
from timeline.encoders.protobuf_rows import Bytes, Piece, Text, Varint, varint
from timeline.encoders.used_codes import NumberOfCode

ELEMENTS_PER_NUMBER = 16
"""Slices for each string that is numbered: a file of millions has not as many of those."""
FEWEST_NUMBERS = 1 << 10
"""As many strings of a sequence may be numbered, however few slices it has."""
USE_BYTES, ENTRY_BYTES = 2, 8
"""What each use of a number takes more than that of an empty string; and what the list of numbers
takes for each beside its string."""


def number_texts(uses: Mapping[str, int], elements: int, first: int = 1) -> dict[str, int]:
    """Number the strings whose numbers save most bytes, from `first` on, the most common first.

    Equally common ones are in alphabetical order: in the order in which they were met, the bytes
    would tell how a profile was read.

    uses: how often each string is used by so many elements.
    """
    saved = {
        text: saved_bytes
        for text, count in uses.items()
        if (saved_bytes := (count - 1) * len(text) - USE_BYTES * count - ENTRY_BYTES) > 0
    }
    chosen = sorted(saved)
    most = max(FEWEST_NUMBERS, elements // ELEMENTS_PER_NUMBER)
    if len(chosen) > most:
        chosen = sorted(sorted(chosen, key=saved.__getitem__, reverse=True)[:most])
    chosen.sort(key=uses.__getitem__, reverse=True)
    return {text: number for number, text in enumerate(chosen, first)}


class DrawnTexts:
    """How the strings of a column are drawn, by code."""

    def __init__(
        self,
        codes: Codes | Int64,
        texts: Sequence[str],
        numbers: Mapping[str, int],
        strings: int,
        rows: int,
    ) -> None:
        """Take the strings that are used.

        Args:
            codes: (k,) ascending, of `texts`.
            texts: what they stand for.
            numbers: of those strings that have one.
            strings: how many codes there are.
            rows: about to be asked for.
        """
        # A joined pool may have a string under several codes.
        without = dict.fromkeys(text for text in texts if text not in numbers)
        bare = {text: place for place, text in enumerate(without, 1)}
        found = [numbers[text] if text in numbers else -bare[text] for text in texts]
        self._found = NumberOfCode(codes, found, strings, rows)
        """By code a number, or less than 0 the place among the bare strings; 0 where not used."""
        self._bare = _BareTexts(list(bare)) if bare else None

    @classmethod
    def of(cls, texts: Sequence[str], numbers: Mapping[str, int]) -> DrawnTexts:
        """Strings of which each is a code of its own."""
        return cls(np.arange(len(texts)), texts, numbers, len(texts), len(texts))

    @property
    def longest(self) -> int:
        """Bytes of the longest string that stands where it is used."""
        return 0 if self._bare is None else self._bare.longest

    def pieces(self, number_tag: bytes, text_tag: bytes, codes: npt.NDArray[Any]) -> list[Piece]:
        """The field of some rows: the one of numbers, or the one of strings."""
        found = self._found.of(codes)
        if self._bare is None:
            return [Bytes(number_tag), Varint(found)]
        has_number, is_bare = found > 0, found < 0
        return [
            Bytes(number_tag, has_number),
            Varint(found, has_number),
            Bytes(text_tag, is_bare),
            self._bare.of(np.where(is_bare, -found, 0), is_bare),
        ]


class _BareTexts:
    """Strings with their lengths before them, one behind another."""

    def __init__(self, texts: Sequence[str]) -> None:
        encoded = [text.encode("utf-8", "replace") for text in texts]
        parts = [varint(len(text)) + text for text in encoded]
        length = np.array([0, *map(len, parts)], np.int64)
        self._bytes = b"".join(parts)
        self._length, self._start = length, np.cumsum(length) - length
        self.longest = int(length.max())

    def of(self, places: Int64, present: npt.NDArray[np.bool_]) -> Text:
        """Those at places, which count from 1; 0 is none."""
        return Text(self._bytes, self._start.take(places), self._length.take(places), present)
