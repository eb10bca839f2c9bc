"""The rows of all ranks as one tree, whose ids and arrows are numbered throughout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from timeline.analysis.path.critical_path import CriticalPath
from timeline.analysis.rank_facts import RankFacts
from timeline.tracks import descriptions
from timeline.tracks.model import Samples, Slices, Track
from timeline.tracks.overview import paint_overview
from timeline.tracks.painter import Painter
from timeline.tracks.path_rows import with_critical_path
from timeline.tracks.rank_tracks import RankTracks

__all__ = ["assemble"]


def assemble(
    facts: Sequence[RankFacts],
    ranks: Sequence[RankTracks],
    *,
    by_layer: bool,
    path: CriticalPath | None = None,
) -> tuple[Track, ...]:
    """Put the rows of all ranks below those of the overview, grouped by layer or by rank.

    path: is drawn behind them, where there is one.
    """
    painter = Painter()
    root = paint_overview(painter, facts)
    layers = [(rank, track) for rank in ranks for track in rank.tracks if track.parent is None]
    folders: dict[object, int] = {}
    order_of = {rank: order for order, rank in enumerate(sorted(rank.rank for rank in ranks))}
    if by_layer:
        named = {track.name: track for _, track in layers}
        for name, track in sorted(named.items(), key=lambda item: item[1].order):
            folders[name] = painter.add_group(name, root, track.order, track.description)
    elif len(ranks) > 1:
        for rank in ranks:
            name = f"Rank {rank.rank}"
            folders[rank.rank] = painter.add_group(
                name, root, order_of[rank.rank], descriptions.RANK, rank.rank
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
                    order=order_of[rank.rank],
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
    return tuple(made) if path is None else with_critical_path(made, path)


def _with_arrows_after(
    content: Slices | Samples | None, first: int, last: int
) -> Slices | Samples | None:
    """Arrows of the rank behind those of ranks before it, and those between ranks behind all."""
    if not isinstance(content, Slices) or not len(content.arrows.arrow):
        return content
    arrow = content.arrows.arrow
    arrows = replace(content.arrows, arrow=np.where(arrow > 0, arrow + first, last - arrow))
    return replace(content, arrows=arrows)
