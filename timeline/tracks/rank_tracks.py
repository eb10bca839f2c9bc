"""The rows of one rank: drawn from its records, with its facts, and with the selected args."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from timeline.analysis.rank_facts import RankFacts, holds_any
from timeline.analysis.selected_rank import DrawOptions, SelectedRank
from timeline.layers import LAYERS, Layer, SizeLayer
from timeline.options import Args
from timeline.records.clock import ClockMove
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks import detail, summary
from timeline.tracks.detail import expect_arrows, paint_arrows
from timeline.tracks.model import Arg, Slices, Track
from timeline.tracks.painter import ArgColumn, LayerDrawing, Painter, PaintLayer
from timeline.tracks.partition import paint_partition


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
    """Return a function that is True for each arg to draw."""

    def wanted(arg: Arg | ArgColumn) -> bool:
        if args is Args.DEFAULT:
            return arg.default
        return args is Args.ALL or (isinstance(arg, Arg) and arg.of_several)

    return wanted


@dataclass(frozen=True, slots=True)
class RankTracks:
    """The rows of one rank, not yet below those of all ranks.

    Tracks without a parent are its layers; ids count from 0 and those of arrows from 1, up to
    `arrows`. Arrows between ranks count from -1 down. floors: by layer, the level (exponent of two
    of the resolution) at which slices were merged already.
    """

    rank: int
    tracks: tuple[Track, ...]
    arrows: int
    omissions: tuple[Omission, ...] = ()
    floors: Mapping[SizeLayer, int] = field(default_factory=dict)

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


PAINTERS: Mapping[Layer | None, PaintLayer] = {**summary.PAINTERS, **detail.PAINTERS}
"""The painter of each row of LAYERS, by its option."""


def draw_rank(
    rank: SelectedRank, options: DrawOptions, wanted: Callable[[ArgColumn], bool]
) -> RankTracks:
    """Draw the selected layers of one rank, with the args for which `wanted` returns True."""
    painter, records = Painter(wanted), rank.detail
    idle = None if rank.idle is None else rank.idle.parts
    computes = not rank.records.tables_only
    paint_partition(painter, rank.overlap, idle, records.strings, records.rank, computes=computes)
    if Layer.ARROWS in options.layers:
        expect_arrows(painter, records)
    for layer in LAYERS:
        drawn = rank.records if layer.in_summary else records
        is_wanted = layer.option is None or layer.option in options.layers
        if is_wanted and holds_any(drawn, layer):
            PAINTERS[layer.option](LayerDrawing(painter, layer, rank, options))
    arrows, omissions = 0, tuple[Omission, ...]()
    if Layer.ARROWS in options.layers:
        next_id, lost = paint_arrows(painter, records, 1)
        arrows = next_id - 1
        if lost:
            reason = "arrows with an end in a layer that is not drawn"
            omissions = (Omission(reason, lost, records.rank, code=OmissionCode.ARROW_CUT),)
    return RankTracks(records.rank, tuple(painter.tracks), arrows, omissions)
