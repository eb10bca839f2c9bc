"""Strings that the slices of a packet sequence use, and the numbers that stand for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain

import numpy as np

from timeline.columns.columns import Int64
from timeline.columns.distinct import distinct
from timeline.encoders.drawn_texts import DrawnTexts, number_texts
from timeline.encoders.joined_slices import JoinedSlices
from timeline.encoders.protobuf_rows import varint
from timeline.encoders.spelled_args import SpelledArg, spell_args
from timeline.encoders.used_codes import NumberOfCode, UsedCodes
from timeline.frozen import dataclass
from timeline.layers import ARGS_MESSAGES, MERGED_ARGS, ArgsMessage
from timeline.tracks.colours import colours_of
from timeline.tracks.model import Arg, ArgKind, Slices

__all__ = ["SequenceNames", "UsedStrings"]

_BYTES_TYPE = 2
_CATEGORIES, _EVENT_NAMES, _ANNOTATION_NAMES, _ANNOTATION_STRINGS, _CORRELATION_IDS = (
    varint(field << 3 | _BYTES_TYPE) for field in (1, 2, 3, 29, 43)
)


@dataclass(frozen=True)
class UsedStrings:
    """How often slices use each code as a name and in args, and what is spelled beside those.

    Of events and values, codes and how often each is used are in order of tracks, and of codes in
    each.
    """

    joined: JoinedSlices
    events: UsedCodes
    values: UsedCodes
    spelled: Mapping[str, SpelledArg]

    @classmethod
    def by(cls, joined: JoinedSlices) -> UsedStrings:
        """Count it."""
        slices = joined.slices
        values = joined.count_codes(
            [(arg.values, arg.present) for arg in slices.args if arg.kind is ArgKind.NAME]
        )
        spelled = {one.of.name: one for one in spell_args(slices)}
        return cls(joined, joined.count_codes([(slices.name, None)]), values, spelled)

    @property
    def slices(self) -> Slices:
        """The slices."""
        return self.joined.slices

    def add_strings(self, used: UsedCodes, counts: Counter[str]) -> None:
        """Count the strings that are used."""
        texts = self.slices.strings.texts(used.codes)
        for text, count in zip(texts, used.count.tolist(), strict=True):
            counts[text] = counts.get(text, 0) + count

    def texts(self, used: UsedCodes, numbers: Mapping[str, int]) -> DrawnTexts:
        """The strings that are used, by code; numbers: of those that have one."""
        codes = self._distinct(used)
        strings = self.slices.strings
        return DrawnTexts(codes, strings.texts(codes), numbers, len(strings), len(self.slices))

    def _distinct(self, used: UsedCodes) -> Int64:
        """The codes that are used, ascending; those of one track are."""
        codes = used.codes if len(self.joined.tracks) == 1 else distinct(used.codes)
        return codes.astype(np.int64)

    def by_code(self, codes: Int64, numbers: Sequence[int]) -> NumberOfCode:
        """Numbers (k,) of the k codes that are used, by code."""
        return NumberOfCode(codes, numbers, len(self.slices.strings), len(self.slices))

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
    def colours(self) -> tuple[Int64, list[str | None]]:
        """The codes of names that are used, ascending, and the colour of each."""
        codes = self._distinct(self.events)
        names = self.slices.strings.texts(codes)
        found = colours_of(self.slices.kind, self.slices.category, names)
        return codes, [None if colour is None else colour.value for colour in found]


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
        events, values, spelled = Counter[str](), Counter[str](), Counter[str]()
        for used in every:
            used.add_strings(used.events, events)
            used.add_strings(used.values, values)
            for one in used.spelled.values():
                one.add_texts(spelled)
        elements = sum(len(used.slices) for used in every)
        texts = number_texts(values, elements)
        colours = {colour for used in every for colour in used.colours[1] if colour is not None}
        return cls(
            _numbers(used.slices.category.value for used in every),
            number_texts(events, elements),
            _numbers(chain.from_iterable(used.annotations() for used in every)),
            texts,
            number_texts(spelled, elements, len(texts) + 1),
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
