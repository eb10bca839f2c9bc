"""Strings that the slices of a packet sequence use, and the numbers that stand for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy.typing as npt

from timeline.columns.columns import Bool
from timeline.columns.strings import StringPool
from timeline.encoders.drawn_texts import DrawnTexts, number_texts
from timeline.encoders.joined_slices import JoinedSlices
from timeline.encoders.protobuf_rows import varint
from timeline.encoders.spelled_args import SpelledArg, spell_args
from timeline.encoders.used_codes import NumberOfCode, UsedCodes
from timeline.layers import ARGS_MESSAGES, MERGED_ARGS, ArgsMessage
from timeline.tracks.colours import colours_of
from timeline.tracks.model import Arg, ArgKind, Slices

_BYTES_TYPE = 2
_CATEGORIES, _EVENT_NAMES, _ANNOTATION_NAMES, _ANNOTATION_STRINGS, _CORRELATION_IDS = (
    varint(field << 3 | _BYTES_TYPE) for field in (1, 2, 3, 29, 43)
)


@dataclass(frozen=True)
class UsedTexts:
    """The strings that columns of codes use: codes (k,) ascending, and the string of each, (k,)."""

    used: UsedCodes
    texts: Sequence[str]

    @classmethod
    def of(
        cls, columns: Iterable[tuple[npt.NDArray[Any], Bool | None]], strings: StringPool
    ) -> UsedTexts:
        """Those of some columns where they are present, everywhere if that is None."""
        used = UsedCodes.of(columns)
        return cls(used, strings.texts(used.codes))


@dataclass(frozen=True)
class UsedStrings:
    """The strings that slices use as names and in args, and what is spelled beside those."""

    joined: JoinedSlices
    events: UsedTexts
    values: UsedTexts
    spelled: Mapping[str, SpelledArg]

    @classmethod
    def by(cls, joined: JoinedSlices) -> UsedStrings:
        """Look for them."""
        slices = joined.slices
        args = [arg for arg in slices.args if arg.kind is ArgKind.NAME]
        return cls(
            joined,
            UsedTexts.of([(slices.name, None)], slices.strings),
            UsedTexts.of([(arg.values, arg.present) for arg in args], slices.strings),
            {one.of.name: one for one in spell_args(slices)},
        )

    @property
    def slices(self) -> Slices:
        """The slices."""
        return self.joined.slices

    def drawn(self, its: UsedTexts, numbers: Mapping[str, int]) -> DrawnTexts:
        """How strings are drawn, by code; numbers: of those that have one."""
        strings, rows = len(self.slices.strings), len(self.slices)
        return DrawnTexts(its.used.codes, its.texts, numbers, strings, rows)

    def colour_numbers(self, numbers: Mapping[str, int]) -> NumberOfCode:
        """The number of the colour of each name, by code, 0 for none; numbers: of each colour."""
        found = [0 if colour is None else numbers[colour] for colour in self.colours]
        strings, rows = len(self.slices.strings), len(self.slices)
        return NumberOfCode(self.events.used.codes, found, strings, rows)

    def messages(self) -> list[tuple[ArgsMessage, list[Arg]]]:
        """The messages that its args are in."""
        given = [arg for arg in self.slices.args if arg.present.any()]
        return [
            (ARGS_MESSAGES[self.slices.kind], [arg for arg in given if not arg.of_several]),
            (MERGED_ARGS, [arg for arg in given if arg.of_several]),
        ]

    def annotations(self) -> Iterator[str]:
        """The names of args that are annotations: what is spelled, and what has no field."""
        found = [(message, arg) for message, args in self.messages() for arg in args]
        for message, arg in sorted(found, key=lambda one: self.joined.first_track_with(one[1])):
            if arg.name in self.spelled:
                yield self.spelled[arg.name].name
            if arg.name not in message.fields:
                yield arg.name

    @cached_property
    def colours(self) -> list[str | None]:
        """The colour of each name that is used."""
        found = colours_of(self.slices.kind, self.slices.category, self.events.texts)
        return [None if colour is None else colour.value for colour in found]


@dataclass(frozen=True)
class SequenceNames:
    """Strings of one sequence that are numbered, from 1 on.

    spelled: what is spelled beside numeric args; its numbers follow those of the values.
    """

    categories: Mapping[str, int]
    events: Mapping[str, int]
    args: Mapping[str, int]
    values: Mapping[str, int]
    spelled: Mapping[str, int]
    colours: Mapping[str, int]

    @classmethod
    def of(cls, every: Collection[UsedStrings]) -> SequenceNames:
        """Number all that some slices use."""
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
        """The message of interned data; one by one the protobuf library takes ten times as long."""
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
    """How often each string is used."""
    uses: dict[str, int] = {}
    for its in every:
        for text, count in zip(its.texts, its.used.count.tolist(), strict=True):
            uses[text] = uses.get(text, 0) + count
    return uses


def _numbers(strings: Iterable[str], first: int = 1) -> dict[str, int]:
    """The number of each distinct string, in their order."""
    return {string: number for number, string in enumerate(dict.fromkeys(strings), first)}


def _interned_strings(tag: bytes, numbers: Mapping[str, int]) -> bytes:
    """Messages of a number and a string."""
    made: list[bytes] = []
    for string, number in numbers.items():
        text = string.encode("utf-8", "replace")
        inner = b"\x08%b\x12%b%b" % (varint(number), varint(len(text)), text)
        made += tag, varint(len(inner)), inner
    return b"".join(made)
