"""Values of slices as files hold them: rounded or formatted numbers, numbered or inline strings."""

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
from timeline.language import said
from timeline.layers import SLICES, SliceKind
from timeline.tracks.model import Arg, ArgKind, Samples, Slices, Track
from timeline.tracks.waiting import LATE
from timeline.units import format_bytes, format_duration, format_rate

FORMATTERS: Sequence[tuple[str, Callable[[Any], str]]] = (
    ("_ns", format_duration),
    ("_bytes", format_bytes),
    ("_gb_s", format_rate),
)
"""Functions that format a number, by the unit at the end of its name."""
DIGITS = 4
"""Number of significant digits of real numbers in a file."""
_MOST_POWER = 300
"""Power of ten beyond which, or below whose inverse, numbers are not rounded: it would overflow."""


def round_reals(values: Float64) -> Float64:
    """Round real numbers to DIGITS significant digits; extreme and non-finite ones stay.

    >>> round_reals(np.array([0.223045894482905, 645.604, -12345.6, 0.0])).tolist()
    [0.223, 645.6, -12350.0, 0.0]
    """
    size = np.abs(values)
    usual = (size >= 10.0**-_MOST_POWER) & (size <= 10.0**_MOST_POWER)
    behind = DIGITS - 1 - np.floor(np.log10(np.where(usual, size, 1.0)))
    scale = 10.0 ** np.abs(behind)
    # Both factors are powers of ten of at least one, since negative powers are not exact.
    times, by = np.where(behind >= 0, scale, 1.0), np.where(behind >= 0, 1.0, scale)
    less = np.round(np.where(usual, values, 1.0) * times / by) * by / times
    return np.where(usual, less, values)


@dataclass(frozen=True)
class FormattedArg:
    """The readable form of a numeric arg: `waited` "5.616 ms" in addition to `waited_ns`.

    texts: (k,) distinct strings. text: (n,) index of each slice's string, valid if present.
    """

    name: str
    of: Arg
    texts: Sequence[str]
    text: Rows

    @property
    def present(self) -> Bool:
        """Return a mask of the slices that have the arg."""
        return self.of.present

    def add_texts(self, counts: Counter[str]) -> None:
        """Add the number of uses of each string to `counts`."""
        uses = np.bincount(self.text[self.present], minlength=len(self.texts))
        for text, count in zip(self.texts, uses.tolist(), strict=True):
            counts[text] += count


def format_args(slices: Slices) -> list[FormattedArg]:
    """Format the numeric args of slices; kinds that are not read one by one have no such args."""
    formatted = []
    for arg in slices.args:
        formatter = _formatter_of(slices.kind, arg)
        if formatter is not None and arg.present.any():
            unit, format_value = formatter
            texts, text = _format(arg.values, arg.present, format_value)
            formatted.append(FormattedArg(arg.name.removesuffix(unit), arg, texts, text))
    return formatted


def is_formatted(kind: SliceKind, arg: Arg) -> bool:
    """Return whether an arg of slices of a kind has a formatted form too."""
    return _formatter_of(kind, arg) is not None


def _formatter_of(kind: SliceKind, arg: Arg) -> tuple[str, Callable[[Any], str]] | None:
    """Return the unit of an arg and the function that formats it, None if it is not formatted."""
    if not SLICES[kind].formatted or arg.kind is ArgKind.NAME:
        return None
    return next((formatter for formatter in FORMATTERS if arg.name.endswith(formatter[0])), None)


def _format(
    values: npt.NDArray[Any], present: Bool, format_value: Callable[[Any], str]
) -> tuple[list[str], Rows]:
    """Return the distinct strings, and the index of each row's string, arbitrary if absent."""
    distinct, which = np.unique(values[present], return_inverse=True)
    numbers: dict[str, int] = {}
    number = [numbers.setdefault(format_value(value), len(numbers)) for value in distinct.tolist()]
    text = np.zeros(len(values), np.intp)
    text[present] = np.array(number, np.intp)[which]
    return list(numbers), text


def count_codes(
    columns: Iterable[tuple[npt.NDArray[Any], Bool | None]],
) -> tuple[npt.NDArray[Any], Int64]:
    """Return the distinct codes in columns, (k,) ascending, and the number of uses of each, (k,).

    Each column comes with a mask of its present rows, None for all. Memory grows with the distinct
    codes, not with all strings, since a file may have as many short tracks as strings.
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
    """Map from string codes to numbers; other codes map to 0."""

    def __init__(self, codes: npt.NDArray[Any], numbers: Sequence[int]) -> None:
        """codes: ascending. numbers: of each code."""
        self._codes, self._numbers = codes, np.array(numbers, np.int64)

    def of(self, codes: npt.NDArray[Any]) -> Int64:
        """Return the number of each code, (n,)."""
        if not len(self._codes):
            return np.zeros(len(codes), np.int64)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        return np.where(self._codes[at] == codes, self._numbers[at], 0)


ELEMENTS_PER_NUMBER = 16
"""Minimum number of slices per numbered string, so that long files have few numbered strings."""
FEWEST_NUMBERS = 1 << 10
"""Number of strings of a sequence that may be numbered, however few slices it has."""
USE_BYTES, ENTRY_BYTES = 2, 8
"""Bytes per use of a number, beyond those of an empty inline string; and per entry in the list of
numbered strings, beyond the string."""


def number_strings(uses: Mapping[str, int], elements: int, first: int = 1) -> dict[str, int]:
    """Assign numbers from `first` on to the strings that save most bytes by it, most common first.

    Equally common ones are in alphabetical order, so that the bytes do not depend on the order in
    which a profile was read.

    uses: number of uses of each string. elements: number of slices that use them.
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


_OF_PROFILE = frozenset(
    {
        SliceKind.COMMUNICATION_OP,
        SliceKind.TASK,
        SliceKind.HCCL_TASK,
        SliceKind.HOST_CALL,
        SliceKind.SCOPE,
    }
)
"""Kinds of slices that the profile names; a merged slice of them has the number and one name."""


def said_name(name: str, kind: SliceKind, language: str) -> str:
    """Return the name of a slice in a language; names from the profile stay."""
    if kind is SliceKind.NOTE:
        return said(name, "", language)
    return said(name, "merged" if kind in _OF_PROFILE else "slice", language)


def said_row(track: Track, language: str) -> str:
    """Return the name of a row in a language; those of counters, which profiles name, stay."""
    is_counter = isinstance(track.content, Samples) and track.name != LATE
    return track.name if is_counter else said(track.name, "row", language)


class DrawnStrings:
    """Strings of a column by code, each of which is written as a number or inline."""

    def __init__(
        self, codes: npt.NDArray[Any], texts: Sequence[str], numbers: Mapping[str, int]
    ) -> None:
        """codes: those used, ascending. texts: their strings. numbers: of the numbered strings."""
        # A joined pool may have a string under several codes.
        without = dict.fromkeys(text for text in texts if text not in numbers)
        inline = {text: place for place, text in enumerate(without, 1)}
        places = [numbers[text] if text in numbers else -inline[text] for text in texts]
        self._places = NumberOfCode(codes, places)
        """By code: a number, or minus the place among the inline strings; 0 if not used."""
        self._inline = _InlineStrings(list(inline)) if inline else None

    @classmethod
    def of(cls, texts: Sequence[str], numbers: Mapping[str, int]) -> DrawnStrings:
        """Return strings whose codes are their indices."""
        return cls(np.arange(len(texts)), texts, numbers)

    @property
    def longest(self) -> int:
        """Return the size in bytes of the longest inline string."""
        return 0 if self._inline is None else self._inline.longest

    def pieces(self, number_tag: bytes, text_tag: bytes, codes: npt.NDArray[Any]) -> list[Piece]:
        """Return the field of each row: its number after one tag, or its string after another."""
        place = self._places.of(codes)
        if self._inline is None:
            return [Bytes(number_tag), Varint(place)]
        has_number, is_inline = place > 0, place < 0
        return [
            Bytes(number_tag, has_number),
            Varint(place, has_number),
            Bytes(text_tag, is_inline),
            self._inline.of(np.where(is_inline, -place, 0), is_inline),
        ]


class _InlineStrings:
    """Strings in one buffer, each after its length as a varint."""

    def __init__(self, texts: Sequence[str]) -> None:
        encoded = [text.encode("utf-8", "replace") for text in texts]
        parts = [varint(len(text)) + text for text in encoded]
        length = np.array([0, *map(len, parts)], np.int64)
        self._bytes = b"".join(parts)
        self._length, self._start = length, np.cumsum(length) - length
        self.longest = int(length.max())

    def of(self, places: Int64, present: npt.NDArray[np.bool_]) -> Text:
        """Return the strings at places, which count from 1; 0 means no string."""
        return Text(self._bytes, self._start.take(places), self._length.take(places), present)
