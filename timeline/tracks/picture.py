"""The rows of one rank, layer by layer, and those of all ranks put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from timeline.analysis.rank_facts import RankFacts, holds_any
from timeline.analysis.selected_rank import DrawOptions, SelectedRank
from timeline.layers import LAYERS, Layer
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks import descriptions, detail, summary
from timeline.tracks.detail import expect_arrows, paint_arrows
from timeline.tracks.drawn_rank import RankTracks
from timeline.tracks.model import Samples, Slices, Track
from timeline.tracks.overview import paint_overview
from timeline.tracks.painter import ArgColumn, LayerDrawing, Painter, PaintLayer

__all__ = ["PAINTERS", "assemble", "draw_rank"]


PAINTERS: Mapping[Layer | None, PaintLayer] = {**summary.PAINTERS, **detail.PAINTERS}
"""What paints each row of LAYERS, by its option."""


def draw_rank(
    rank: SelectedRank, options: DrawOptions, wanted: Callable[[ArgColumn], bool]
) -> RankTracks:
    """Draw the layers of one rank that are asked for, with the args that are wanted."""
    painter, records = Painter(wanted), rank.detail
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


def assemble(
    facts: Sequence[RankFacts], ranks: Sequence[RankTracks], *, by_layer: bool
) -> tuple[Track, ...]:
    """Put the rows of all ranks into one picture, grouped by layer or by rank."""
    painter = Painter()
    root = paint_overview(painter, facts)
    layers = [(rank, track) for rank in ranks for track in rank.tracks if track.parent is None]
    folders: dict[object, int] = {}
    places = {rank: place for place, rank in enumerate(sorted(rank.rank for rank in ranks))}
    if by_layer:
        named = {track.name: track for _, track in layers}
        for name, track in sorted(named.items(), key=lambda item: item[1].order):
            folders[name] = painter.group(name, root, track.order, track.description)
    elif len(ranks) > 1:
        for rank in ranks:
            name = f"Rank {rank.rank}"
            folders[rank.rank] = painter.group(
                name, root, places[rank.rank], descriptions.RANK, rank.rank
            )
    made = list(painter.tracks)
    first_arrow, last_arrow = 0, sum(rank.arrows for rank in ranks)
    for rank in ranks:
        first_id = len(made)
        for track in rank.tracks:
            if track.parent is not None:
                moved = replace(track, parent=track.parent + first_id)
            elif by_layer:
                moved = replace(
                    track,
                    name=f"Rank {rank.rank}",
                    order=places[rank.rank],
                    parent=folders[track.name],
                )
            else:
                moved = replace(track, parent=folders.get(rank.rank, root))
            made.append(
                replace(
                    moved,
                    id=track.id + first_id,
                    content=_with_arrows_after(track.content, first_arrow, last_arrow),
                )
            )
        first_arrow += rank.arrows
    return tuple(made)


def _with_arrows_after(
    content: Slices | Samples | None, first: int, last: int
) -> Slices | Samples | None:
    """Arrows of the rank behind those of ranks before it, and those between ranks behind all."""
    if not isinstance(content, Slices) or not len(content.arrows.arrow):
        return content
    arrow = content.arrows.arrow
    arrows = replace(content.arrows, arrow=np.where(arrow > 0, arrow + first, last - arrow))
    return replace(content, arrows=arrows)
