"""Numbers and strings of slices as they are drawn: rounded, formatted, numbered or in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.chunks import chunks
from timeline.columns.columns import Bool, Float64, Int64, Rows
from timeline.columns.group_by import sum_by
from timeline.encoders.protobuf_rows import Bytes, Piece, Text, Varint, varint
from timeline.layers import SLICES, SliceKind
from timeline.tracks.model import Arg, ArgKind, Slices
from timeline.units import format_bytes, format_duration, format_rate

SPELLERS: Sequence[tuple[str, Callable[[Any], str]]] = (
    ("_ns", format_duration),
    ("_bytes", format_bytes),
    ("_gb_s", format_rate),
)
"""Function that formats a number, by the unit at the end of its name."""
DIGITS = 4
"""Number of significant digits of real numbers that are drawn."""
_MOST_POWER = 300
"""Beyond this power of ten on either side of one, rounding would leave what a float holds."""


def round_reals(values: Float64) -> Float64:
    """Round finite real numbers to few significant digits; others and extreme ones stay.

    >>> round_reals(np.array([0.223045894482905, 645.604, -12345.6, 0.0])).tolist()
    [0.223, 645.6, -12350.0, 0.0]
    """
    size = np.abs(values)
    usual = (size >= 10.0**-_MOST_POWER) & (size <= 10.0**_MOST_POWER)
    behind = DIGITS - 1 - np.floor(np.log10(np.where(usual, size, 1.0)))
    scale = 10.0 ** np.abs(behind)
    # Multiplied by a power of ten from one on, or divided by it, which is exact more often.
    times, by = np.where(behind >= 0, scale, 1.0), np.where(behind >= 0, 1.0, scale)
    less = np.round(np.where(usual, values, 1.0) * times / by) * by / times
    return np.where(usual, less, values)


@dataclass(frozen=True)
class SpelledArg:
    """An arg that formats another one: `waited` "5.616 ms" stands beside `waited_ns`.

    texts: (k,) distinct; text: (n,) which of them a slice has, where it is present.
    """

    name: str
    of: Arg
    texts: Sequence[str]
    text: Rows

    @property
    def present(self) -> Bool:
        """Return a mask of the slices that have it."""
        return self.of.present

    def add_texts(self, counts: Counter[str]) -> None:
        """Count the uses of each text."""
        uses = np.bincount(self.text[self.present], minlength=len(self.texts))
        for text, count in zip(self.texts, uses.tolist(), strict=True):
            counts[text] += count


def format_args(slices: Slices) -> list[SpelledArg]:
    """Format the numbers of slices; none for kinds that people do not read one by one."""
    made = []
    for arg in slices.args:
        speller = _speller_of(slices.kind, arg)
        if speller is not None and arg.present.any():
            unit, spell = speller
            texts, text = _spell(arg.values, arg.present, spell)
            made.append(SpelledArg(arg.name.removesuffix(unit), arg, texts, text))
    return made


def is_spelled(kind: SliceKind, arg: Arg) -> bool:
    """Return whether an arg of slices of a kind is drawn formatted too."""
    return _speller_of(kind, arg) is not None


def _speller_of(kind: SliceKind, arg: Arg) -> tuple[str, Callable[[Any], str]] | None:
    """Return the unit of an arg and the function that formats it, None if there is none."""
    if not SLICES[kind].spelled or arg.kind is ArgKind.NAME:
        return None
    return next((speller for speller in SPELLERS if arg.name.endswith(speller[0])), None)


def _spell(
    values: npt.NDArray[Any], present: Bool, spell: Callable[[Any], str]
) -> tuple[list[str], Rows]:
    """Return the distinct strings, and which of them each row has; absent rows have any."""
    distinct, which = np.unique(values[present], return_inverse=True)
    numbers: dict[str, int] = {}
    number = [numbers.setdefault(spell(value), len(numbers)) for value in distinct.tolist()]
    text = np.zeros(len(values), np.intp)
    text[present] = np.array(number, np.intp)[which]
    return list(numbers), text


def count_codes(
    columns: Iterable[tuple[npt.NDArray[Any], Bool | None]],
) -> tuple[npt.NDArray[Any], Int64]:
    """Return the codes that columns use where present (everywhere if None), and how often, (k,).

    Codes ascend. Takes as much memory as is used, however many strings there are: a file may have
    as many short tracks as strings.
    """
    parts = [
        np.unique(
            codes[chunk] if present is None else codes[chunk][present[chunk]], return_counts=True
        )
        for codes, present in columns
        for chunk in chunks(len(codes))
    ]
    every = np.concatenate([np.empty(0, np.int32), *(codes for codes, _ in parts)])
    used, which = np.unique(every, return_inverse=True)
    counts = np.concatenate([np.empty(0, np.int64), *(count for _, count in parts)])
    return used, sum_by(which, counts, len(used))


class NumberOfCode:
    """The number of each code that is used, 0 of any other one."""

    def __init__(self, codes: npt.NDArray[Any], numbers: Sequence[int]) -> None:
        """Take the codes, ascending, and their numbers."""
        self._codes, self._numbers = codes, np.array(numbers, np.int64)

    def of(self, codes: npt.NDArray[Any]) -> Int64:
        """Return the numbers of codes (n,), (n,)."""
        if not len(self._codes):
            return np.zeros(len(codes), np.int64)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        return np.where(self._codes[at] == codes, self._numbers[at], 0)


ELEMENTS_PER_NUMBER = 16
"""Slices for each string that is numbered: a file of millions has not as many of those."""
FEWEST_NUMBERS = 1 << 10
"""As many strings of a sequence may be numbered, however few slices it has."""
USE_BYTES, ENTRY_BYTES = 2, 8
"""What each use of a number takes more than that of an empty string; and what the list of numbers
takes for each beside its string."""


def number_texts(uses: Mapping[str, int], elements: int, first: int = 1) -> dict[str, int]:
    """Assign numbers to the strings that save most bytes so, from `first`, most common first.

    Equally common ones are in alphabetical order, so that the bytes do not depend on the order in
    which a profile was read.

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
    """Strings of a column by code, numbered or in place."""

    def __init__(
        self, codes: npt.NDArray[Any], texts: Sequence[str], numbers: Mapping[str, int]
    ) -> None:
        """Take the codes that are used, ascending, their strings, and the numbers of some."""
        # A joined pool may have a string under several codes.
        without = dict.fromkeys(text for text in texts if text not in numbers)
        bare = {text: place for place, text in enumerate(without, 1)}
        places = [numbers[text] if text in numbers else -bare[text] for text in texts]
        self._places = NumberOfCode(codes, places)
        """By code a number, or less than 0 the place among the bare strings; 0 where not used."""
        self._bare = _BareTexts(list(bare)) if bare else None

    @classmethod
    def of(cls, texts: Sequence[str], numbers: Mapping[str, int]) -> DrawnTexts:
        """Draw strings of which each is a code of its own."""
        return cls(np.arange(len(texts)), texts, numbers)

    @property
    def longest(self) -> int:
        """Return the size of the longest string that is written in place."""
        return 0 if self._bare is None else self._bare.longest

    def pieces(self, number_tag: bytes, text_tag: bytes, codes: npt.NDArray[Any]) -> list[Piece]:
        """Return the field of some rows: the one of numbers, or the one of strings."""
        place = self._places.of(codes)
        if self._bare is None:
            return [Bytes(number_tag), Varint(place)]
        has_number, is_bare = place > 0, place < 0
        return [
            Bytes(number_tag, has_number),
            Varint(place, has_number),
            Bytes(text_tag, is_bare),
            self._bare.of(np.where(is_bare, -place, 0), is_bare),
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
        """Return the strings at places, which count from 1; 0 is none."""
        return Text(self._bytes, self._start.take(places), self._length.take(places), present)
