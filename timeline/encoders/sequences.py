"""Interned strings of packet sequences: the strings that slices use, and their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy.typing as npt

from timeline.columns.columns import Bool, Int64
from timeline.columns.strings import StringPool
from timeline.encoders.drawn_values import (
    DrawnStrings,
    FormattedArg,
    NumberOfCode,
    count_codes,
    format_args,
    number_strings,
    said_name,
)
from timeline.encoders.protobuf_rows import varint
from timeline.layers import ARGS_MESSAGES, MERGED_ARGS, ArgsMessage
from timeline.tracks.colours import colours_of
from timeline.tracks.model import Arg, ArgKind, Slices

_BYTES_TYPE = 2
_CATEGORIES, _EVENT_NAMES, _ANNOTATION_NAMES, _ANNOTATION_STRINGS, _CORRELATION_IDS = (
    varint(field << 3 | _BYTES_TYPE) for field in (1, 2, 3, 29, 43)
)


@dataclass(frozen=True)
class StringUses:
    """The distinct codes in columns, (k,) ascending, with the uses, (k,), and string of each."""

    codes: npt.NDArray[Any]
    count: Int64
    texts: Sequence[str]

    @classmethod
    def of(
        cls, columns: Iterable[tuple[npt.NDArray[Any], Bool | None]], strings: StringPool
    ) -> StringUses:
        """Return the strings that columns use in their present rows; a mask of None means all."""
        codes, count = count_codes(columns)
        return cls(codes, count, strings.texts(codes))

    def drawn(self, numbers: Mapping[str, int]) -> DrawnStrings:
        """Return the strings as they are encoded; numbers: those of interned strings."""
        return DrawnStrings(self.codes, self.texts, numbers)


@dataclass(frozen=True)
class SliceStrings:
    """The strings that slices use as names and in args, and the formatted forms of their args."""

    slices: Slices
    events: StringUses
    values: StringUses
    formatted: Mapping[str, FormattedArg]
    colours: Sequence[str | None]
    """The colour of each used name, None for none."""

    @classmethod
    def by(cls, slices: Slices, language: str) -> SliceStrings:
        """Collect the strings that some slices use; names are those in a language."""
        args = [arg for arg in slices.args if arg.kind is ArgKind.NAME]
        events = StringUses.of([(slices.name, None)], slices.strings)
        colours = colours_of(slices.kind, slices.category, events.texts)
        texts = [said_name(text, slices.kind, language) for text in events.texts]
        return cls(
            slices,
            replace(events, texts=texts),
            StringUses.of([(arg.values, arg.present) for arg in args], slices.strings),
            {one.of.name: one for one in format_args(slices)},
            [None if colour is None else colour.value for colour in colours],
        )

    def colour_numbers(self, numbers: Mapping[str, int]) -> NumberOfCode:
        """Return the number of each name's colour, 0 for none; numbers: those of colours."""
        of_code = [0 if colour is None else numbers[colour] for colour in self.colours]
        return NumberOfCode(self.events.codes, of_code)

    def messages(self) -> list[tuple[ArgsMessage, list[Arg]]]:
        """Return the messages for args of single and of merged slices, with their args."""
        args = [arg for arg in self.slices.args if arg.present.any()]
        return [
            (ARGS_MESSAGES[self.slices.kind], [arg for arg in args if not arg.of_several]),
            (MERGED_ARGS, [arg for arg in args if arg.of_several]),
        ]

    def annotations(self) -> Iterator[str]:
        """Yield the names of annotations: formatted args, and args without a protobuf field."""
        for message, args in self.messages():
            for arg in args:
                if arg.name in self.formatted:
                    yield self.formatted[arg.name].name
                if arg.name not in message.fields:
                    yield arg.name


@dataclass(frozen=True)
class SequenceNames:
    """The numbers, from 1 on, of the interned strings of one packet sequence.

    formatted: strings of formatted args; their numbers follow those of `values`.
    """

    categories: Mapping[str, int]
    events: Mapping[str, int]
    args: Mapping[str, int]
    values: Mapping[str, int]
    formatted: Mapping[str, int]
    colours: Mapping[str, int]

    @classmethod
    def of(cls, every: Collection[SliceStrings]) -> SequenceNames:
        """Assign numbers to the strings that slices use, as far as that saves bytes."""
        formatted = Counter[str]()
        for used in every:
            for one in used.formatted.values():
                one.add_texts(formatted)
        elements = sum(len(used.slices) for used in every)
        values = number_strings(_count_uses(used.values for used in every), elements)
        colours = {colour for used in every for colour in used.colours if colour is not None}
        return cls(
            _numbers(used.slices.category.value for used in every),
            number_strings(_count_uses(used.events for used in every), elements),
            _numbers(chain.from_iterable(used.annotations() for used in every)),
            values,
            number_strings(formatted, elements, len(values) + 1),
            _numbers(sorted(colours)),
        )

    def interned(self) -> bytes:
        """Encode the message of interned data, ten times as fast as the protobuf library."""
        return b"".join(
            _interned_strings(tag, strings)
            for tag, strings in (
                (_CATEGORIES, self.categories),
                (_EVENT_NAMES, self.events),
                (_ANNOTATION_NAMES, self.args),
                (_ANNOTATION_STRINGS, self.values),
                (_ANNOTATION_STRINGS, self.formatted),
                (_CORRELATION_IDS, self.colours),
            )
        )


def _count_uses(every: Iterable[StringUses]) -> Mapping[str, int]:
    uses: dict[str, int] = {}
    for used in every:
        for text, count in zip(used.texts, used.count.tolist(), strict=True):
            uses[text] = uses.get(text, 0) + count
    return uses


def _numbers(strings: Iterable[str], first: int = 1) -> dict[str, int]:
    """Return the number of each distinct string, in order of first appearance."""
    return {string: number for number, string in enumerate(dict.fromkeys(strings), first)}


def _interned_strings(tag: bytes, numbers: Mapping[str, int]) -> bytes:
    parts: list[bytes] = []
    for string, number in numbers.items():
        text = string.encode("utf-8", "replace")
        inner = b"\x08%b\x12%b%b" % (varint(number), varint(len(text)), text)
        parts += tag, varint(len(inner)), inner
    return b"".join(parts)
