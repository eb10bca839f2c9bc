"""The rows of one rank, with its facts, and the selection of args."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from timeline.analysis.rank_facts import RankFacts
from timeline.layers import SizeLayer
from timeline.options import Args
from timeline.records.clock import ClockMove
from timeline.records.tables import Omission
from timeline.tracks.model import Arg, Slices, Track

if TYPE_CHECKING:
    from timeline.tracks.painter import ArgColumn


@dataclass(frozen=True, slots=True)
class DrawnRank:
    """The facts of one rank, and its rows."""

    facts: RankFacts
    tracks: RankTracks

    def moved(self, move: ClockMove) -> DrawnRank:
        """Return the rank moved to another clock."""
        return DrawnRank(self.facts.moved(move), self.tracks.moved(move))


def with_args(tracks: Sequence[Track], args: Args) -> tuple[Track, ...]:
    """Keep only the selected args of the tracks, and those that describe merged slices."""
    return tuple(
        replace(track, content=track.content.with_args(arg_filter(args)))
        if isinstance(track.content, Slices)
        else track
        for track in tracks
    )


def arg_filter(args: Args) -> Callable[[Arg | ArgColumn], bool]:
    """Return a function that returns whether an arg is drawn."""

    def wanted(arg: Arg | ArgColumn) -> bool:
        if args is Args.DEFAULT:
            return arg.default
        return args is Args.ALL or (isinstance(arg, Arg) and arg.of_several)

    return wanted


@dataclass(frozen=True, slots=True)
class RankTracks:
    """The rows of one rank, before those of all ranks are assembled.

    Tracks without a parent are layers. Ids of tracks count from 0, those of arrows from 1 to
    `arrows`, and those of arrows between ranks from -1 down. floors: by layer, the level (exponent
    of two of the resolution in ns) at which slices were merged already. lacks_ops: whether
    collectives are drawn, but the size limit left no room for some.
    """

    rank: int
    tracks: tuple[Track, ...]
    arrows: int
    omissions: tuple[Omission, ...] = ()
    floors: Mapping[SizeLayer, int] = field(default_factory=dict)
    lacks_ops: bool = False

    def moved(self, move: ClockMove) -> RankTracks:
        """Return the rows moved to another clock."""
        if move.still:
            return self
        return replace(self, tracks=tuple(_moved(track, move) for track in self.tracks))


def _moved(track: Track, move: ClockMove) -> Track:
    content = track.content
    if content is None:
        return track
    return replace(track, content=content.moved(move))
