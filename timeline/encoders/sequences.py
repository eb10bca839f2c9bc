"""Packet sequences: the strings that their slices use, and the numbers of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy.typing as npt

from timeline.columns.columns import Bool, Int64
from timeline.columns.strings import StringPool
from timeline.encoders.drawn_values import (
    DrawnTexts,
    NumberOfCode,
    SpelledArg,
    count_codes,
    format_args,
    number_texts,
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
class UsedTexts:
    """Codes (k,) that columns use, ascending, how often each is used, (k,), and their strings."""

    codes: npt.NDArray[Any]
    count: Int64
    texts: Sequence[str]

    @classmethod
    def of(
        cls, columns: Iterable[tuple[npt.NDArray[Any], Bool | None]], strings: StringPool
    ) -> UsedTexts:
        """Return the texts of some columns where present, everywhere if that is None."""
        codes, count = count_codes(columns)
        return cls(codes, count, strings.texts(codes))

    def drawn(self, numbers: Mapping[str, int]) -> DrawnTexts:
        """Return the strings in drawn form; numbers: of the numbered ones."""
        return DrawnTexts(self.codes, self.texts, numbers)


@dataclass(frozen=True)
class UsedStrings:
    """The strings that slices use as names and in args, and what is formatted beside those."""

    slices: Slices
    events: UsedTexts
    values: UsedTexts
    spelled: Mapping[str, SpelledArg]

    @classmethod
    def by(cls, slices: Slices) -> UsedStrings:
        """Return the strings that some slices use."""
        args = [arg for arg in slices.args if arg.kind is ArgKind.NAME]
        return cls(
            slices,
            UsedTexts.of([(slices.name, None)], slices.strings),
            UsedTexts.of([(arg.values, arg.present) for arg in args], slices.strings),
            {one.of.name: one for one in format_args(slices)},
        )

    def colour_numbers(self, numbers: Mapping[str, int]) -> NumberOfCode:
        """Return the number of the colour of each name, 0 for none; numbers: of each colour."""
        of_code = [0 if colour is None else numbers[colour] for colour in self.colours]
        return NumberOfCode(self.events.codes, of_code)

    def messages(self) -> list[tuple[ArgsMessage, list[Arg]]]:
        """Return the messages that its args are in."""
        given = [arg for arg in self.slices.args if arg.present.any()]
        return [
            (ARGS_MESSAGES[self.slices.kind], [arg for arg in given if not arg.of_several]),
            (MERGED_ARGS, [arg for arg in given if arg.of_several]),
        ]

    def annotations(self) -> Iterator[str]:
        """Return the names of annotations: formatted args, and those without a field."""
        for message, args in self.messages():
            for arg in args:
                if arg.name in self.spelled:
                    yield self.spelled[arg.name].name
                if arg.name not in message.fields:
                    yield arg.name

    @cached_property
    def colours(self) -> list[str | None]:
        """Return the colour of each name that is used."""
        colours = colours_of(self.slices.kind, self.slices.category, self.events.texts)
        return [None if colour is None else colour.value for colour in colours]


@dataclass(frozen=True)
class SequenceNames:
    """Strings of one sequence that are numbered, from 1 on.

    spelled: strings formatted beside numeric args; their numbers follow those of the values.
    """

    categories: Mapping[str, int]
    events: Mapping[str, int]
    args: Mapping[str, int]
    values: Mapping[str, int]
    spelled: Mapping[str, int]
    colours: Mapping[str, int]

    @classmethod
    def of(cls, every: Collection[UsedStrings]) -> SequenceNames:
        """Assign numbers to all strings that some slices use."""
        spelled = Counter[str]()
        for used in every:
            for one in used.spelled.values():
                one.add_texts(spelled)
        elements = sum(len(used.slices) for used in every)
        values = number_texts(_count_uses(used.values for used in every), elements)
        colours = {colour for used in every for colour in used.colours if colour is not None}
        return cls(
            _numbers(used.slices.category.value for used in every),
            number_texts(_count_uses(used.events for used in every), elements),
            _numbers(chain.from_iterable(used.annotations() for used in every)),
            values,
            number_texts(spelled, elements, len(values) + 1),
            _numbers(sorted(colours)),
        )

    def interned(self) -> bytes:
        """Return the message of interned data; the protobuf library takes ten times as long."""
        return b"".join(
            _interned_strings(tag, strings)
            for tag, strings in (
                (_CATEGORIES, self.categories),
                (_EVENT_NAMES, self.events),
                (_ANNOTATION_NAMES, self.args),
                (_ANNOTATION_STRINGS, self.values),
                (_ANNOTATION_STRINGS, self.spelled),
                (_CORRELATION_IDS, self.colours),
            )
        )


def _count_uses(every: Iterable[UsedTexts]) -> Mapping[str, int]:
    uses: dict[str, int] = {}
    for used in every:
        for text, count in zip(used.texts, used.count.tolist(), strict=True):
            uses[text] = uses.get(text, 0) + count
    return uses


def _numbers(strings: Iterable[str], first: int = 1) -> dict[str, int]:
    """Return the number of each distinct string, in their order."""
    return {string: number for number, string in enumerate(dict.fromkeys(strings), first)}


def _interned_strings(tag: bytes, numbers: Mapping[str, int]) -> bytes:
    made: list[bytes] = []
    for string, number in numbers.items():
        text = string.encode("utf-8", "replace")
        inner = b"\x08%b\x12%b%b" % (varint(number), varint(len(text)), text)
        made += tag, varint(len(inner)), inner
    return b"".join(made)
