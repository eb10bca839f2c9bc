"""Packet sequences: slices of short tracks joined, and the numbers of their strings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Int64, Rows
from timeline.columns.nesting import Events, nested_events
from timeline.columns.strings import JoinedPool, StringPool
from timeline.encoders.drawn_values import (
    DrawnTexts,
    NumberOfCode,
    SpelledArg,
    count_codes,
    number_texts,
    spell_args,
)
from timeline.encoders.protobuf_rows import varint
from timeline.layers import ARGS_MESSAGES, MERGED_ARGS, SLICES, ArgsMessage
from timeline.tracks.colours import colours_of, is_coloured_by_name
from timeline.tracks.model import Arg, ArgKind, Arrows, Slices, Track

FAR_NS = float(1 << 62)
"""Tracks that are moved behind each other may reach so far."""


@dataclass(frozen=True)
class JoinedSlices:
    """The slices of tracks one after the other; of most it is one track, as it is.

    first: (t,) the row at which each track begins. moved_ns: (t,) what is added to the times of
    each so that none begins before the one before has ended; None if there is one track.
    """

    tracks: Sequence[Track]
    slices: Slices
    first: Rows
    moved_ns: Int64 | None = None

    @cached_property
    def track(self) -> Rows:
        """(n,) which of the tracks each slice is of."""
        counts = np.diff(self.first, append=len(self.slices))
        return np.repeat(np.arange(len(self.first)), counts)

    def first_track_with(self, arg: Arg) -> int:
        """Return the first track of which a slice has an arg that some have."""
        return int(self.track[int(arg.present.argmax())])

    def events(self, first_ns: int) -> tuple[Events, Bool]:
        """Return the events of several tracks, and which are the first ones of their track.

        Those tell time since first_ns.
        """
        slices = self.slices
        by_ns = np.asarray(self.moved_ns)[self.track]
        start_ns, end_ns = slices.start_ns + by_ns, slices.end_ns + by_ns
        if slices.nested:
            events = nested_events(start_ns, end_ns, 0)
        else:
            since_ns = np.diff(start_ns, prepend=0)
            since_ns[1:] = start_ns[1:] - end_ns[:-1]
            events = Events(np.arange(len(slices)), since_ns, end_ns - start_ns)
        begins = np.diff(self.track[events.row], prepend=-1) > 0
        since_ns = events.begin_ns.copy()
        since_ns[begins] = np.minimum.reduceat(slices.start_ns, self.first) - first_ns
        return replace(events, begin_ns=since_ns), begins


def join_slices(tracks: Iterable[Track]) -> Iterator[JoinedSlices | Track]:
    """Join the slices of tracks that follow each other and are alike; others come as they are."""
    together: list[Track] = []
    for track in tracks:
        if not isinstance(track.content, Slices):
            yield from _join(together)
            yield track
            together = []
        elif together and not _are_alike(together, track):
            yield from _join(together)
            together = [track]
        else:
            together.append(track)
    yield from _join(together)


def _are_alike(tracks: Sequence[Track], other: Track) -> bool:
    """Return whether slices have the same kind and names, and args that the others have too."""
    one, last, it = tracks[0].content, tracks[-1].content, other.content
    assert isinstance(one, Slices)
    assert isinstance(last, Slices)
    assert isinstance(it, Slices)
    return (
        one.kind is it.kind
        and one.category is it.category
        and one.nested == it.nested
        and one.strings.extended()[0] is it.strings.extended()[0]
        and not SLICES[it.kind].spelled
        and not is_coloured_by_name(it.kind)
        and _args_of(last) == _args_of(it)
    )


def _args_of(slices: Slices) -> list[tuple[str, ArgKind, bool, str]]:
    return [(arg.name, arg.kind, arg.of_several, arg.values.dtype.str) for arg in slices.args]


def _join(tracks: Sequence[Track]) -> Iterator[JoinedSlices]:
    every = [track.content for track in tracks if isinstance(track.content, Slices)]
    if len(every) > 1:
        counts = np.array([len(slices) for slices in every])
        first = np.cumsum(counts) - counts
        joined = _concat(every, counts, first)
        begin_ns = np.minimum.reduceat(joined.start_ns, first)
        span_ns = np.maximum.reduceat(joined.end_ns, first) - begin_ns + 1
        if span_ns.min() > 0 and span_ns.sum(dtype=np.float64) < FAR_NS:
            moved_ns = np.cumsum(span_ns) - span_ns - begin_ns
            yield JoinedSlices(tracks, joined, first, moved_ns)
            return
    for track, slices in zip(tracks, every, strict=True):
        yield JoinedSlices([track], slices, np.zeros(1, np.intp))


def _concat(every: Sequence[Slices], counts: Int64, first: Rows) -> Slices:
    pool = JoinedPool([slices.strings for slices in every])

    def args(number: int) -> Arg:
        its = [slices.args[number] for slices in every]
        values = np.concatenate([arg.values for arg in its])
        if its[0].kind is ArgKind.NAME:
            values = pool.joined(values, counts)
        return replace(its[0], values=values, present=np.concatenate([arg.present for arg in its]))

    ends = [slices.arrows for slices in every]
    at = np.repeat(first, [len(arrows.slice) for arrows in ends])
    return replace(
        every[0],
        start_ns=np.concatenate([slices.start_ns for slices in every]),
        end_ns=np.concatenate([slices.end_ns for slices in every]),
        name=pool.joined(np.concatenate([slices.name for slices in every]), counts),
        strings=pool,
        args=tuple(map(args, range(len(every[0].args)))),
        arrows=Arrows(
            np.concatenate([arrows.slice for arrows in ends]) + at,
            np.concatenate([arrows.arrow for arrows in ends]),
        ),
        coarse=None,
    )


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
        """Look for those of some columns where present, everywhere if that is None."""
        codes, count = count_codes(columns)
        return cls(codes, count, strings.texts(codes))

    def drawn(self, numbers: Mapping[str, int]) -> DrawnTexts:
        """Return how the strings are drawn, by code; numbers: of those that have one."""
        return DrawnTexts(self.codes, self.texts, numbers)


@dataclass(frozen=True)
class UsedStrings:
    """The strings that slices use as names and in args, and what is formatted beside those."""

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

    def colour_numbers(self, numbers: Mapping[str, int]) -> NumberOfCode:
        """Return the number of the colour of each name, 0 for none; numbers: of each colour."""
        found = [0 if colour is None else numbers[colour] for colour in self.colours]
        return NumberOfCode(self.events.codes, found)

    def messages(self) -> list[tuple[ArgsMessage, list[Arg]]]:
        """Return the messages that its args are in."""
        given = [arg for arg in self.slices.args if arg.present.any()]
        return [
            (ARGS_MESSAGES[self.slices.kind], [arg for arg in given if not arg.of_several]),
            (MERGED_ARGS, [arg for arg in given if arg.of_several]),
        ]

    def annotations(self) -> Iterator[str]:
        """Return the names of annotations: formatted args, and those without a field."""
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
        """Assign numbers to all that some slices use."""
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
    for its in every:
        for text, count in zip(its.texts, its.count.tolist(), strict=True):
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
