"""Turns the picture of each rank into rows, and the rows of all ranks into one picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.selected_rank import PictureOptions, RankPicture
from timeline.records.tables import RUNTIME_LAYERS, Omission, OmissionCode
from timeline.selection import Layer
from timeline.tracks import meanings
from timeline.tracks.detail import (
    expect_arrows,
    host_layers,
    paint_arrows,
    paint_communication,
    paint_counters,
    paint_hardware,
    paint_host,
    paint_missing,
    paint_scopes,
)
from timeline.tracks.drawn_rank import RankTracks
from timeline.tracks.model import Samples, Slices, Track
from timeline.tracks.overview import paint_overview
from timeline.tracks.painter import ArgColumn, Painter
from timeline.tracks.summary import OVERLAP, STEP_TRACE, paint_overlap, paint_steps

__all__ = ["assemble", "draw_rank"]


@dataclass(frozen=True)
class _Row:
    """One layer of one rank: its place among layers and how it is painted below a parent."""

    layer: str
    order: int
    paint: Callable[[Painter, int], None]


def draw_rank(
    picture: RankPicture, options: PictureOptions, wanted: Callable[[ArgColumn], bool]
) -> RankTracks:
    """Draw one rank, with the args that are wanted."""
    painter, records = Painter(wanted), picture.detail
    if Layer.ARROWS in options.layers:
        expect_arrows(painter, records)
    for row in _rows(picture, options):
        meaning = meanings.layer(row.layer, records.hardware)
        folder = painter.group(row.layer, None, row.order, meaning, records.rank)
        row.paint(painter, folder)
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
    layers = [(own, track) for own in ranks for track in own.tracks if track.parent is None]
    folders: dict[object, int] = {}
    places = {rank: place for place, rank in enumerate(sorted(own.rank for own in ranks))}
    if by_layer:
        named = {track.name: track for _, track in layers}
        for name, track in sorted(named.items(), key=lambda item: item[1].order):
            folders[name] = painter.group(name, root, track.order, track.description)
    elif len(ranks) > 1:
        for own in ranks:
            name = f"Rank {own.rank}"
            folders[own.rank] = painter.group(name, root, places[own.rank], meanings.RANK, own.rank)
    made = list(painter.tracks)
    first_arrow, last_arrow = 0, sum(own.arrows for own in ranks)
    for own in ranks:
        first_id = len(made)
        for track in own.tracks:
            if track.parent is not None:
                moved = replace(track, parent=track.parent + first_id)
            elif by_layer:
                moved = replace(
                    track,
                    name=f"Rank {own.rank}",
                    order=places[own.rank],
                    parent=folders[track.name],
                )
            else:
                moved = replace(track, parent=folders.get(own.rank, root))
            made.append(
                replace(
                    moved,
                    id=track.id + first_id,
                    content=_with_arrows_after(track.content, first_arrow, last_arrow),
                )
            )
        first_arrow += own.arrows
    return tuple(made)


def _with_arrows_after(
    content: Slices | Samples | None, first: int, last: int
) -> Slices | Samples | None:
    """Arrows of the rank behind those of ranks before it, and those between ranks behind all."""
    if not isinstance(content, Slices) or not len(content.arrows.arrow):
        return content
    own = content.arrows.arrow
    arrows = replace(content.arrows, arrow=np.where(own > 0, own + first, last - own))
    return replace(content, arrows=arrows)


def _rows(picture: RankPicture, options: PictureOptions) -> list[_Row]:
    """The layers of one rank that are asked for and hold anything, in drawing order."""
    records, layers = picture.detail, options.layers
    rows = []
    if Layer.STEPS in layers and len(picture.records.steps):
        rows.append(
            _Row(
                STEP_TRACE,
                0,
                lambda painter, parent: paint_steps(
                    painter, parent, picture, merge_graphs=options.merge_graphs
                ),
            )
        )
    if Layer.OVERLAP in layers:
        rows.append(
            _Row(
                OVERLAP,
                1,
                lambda painter, parent: paint_overlap(painter, parent, picture),
            )
        )
    if Layer.HARDWARE in layers and len(records.tasks):
        rows.append(
            _Row(
                records.hardware,
                2,
                lambda painter, parent: paint_hardware(painter, parent, records),
            )
        )
    if Layer.COMMUNICATION in layers and len(records.ops) + len(records.planes):
        rows.append(
            _Row(
                "Communication",
                3,
                lambda painter, parent: paint_communication(painter, parent, records),
            )
        )
    if Layer.SCOPES in layers and len(records.tasks):
        rows.append(
            _Row("Scope Layer", 4, lambda painter, parent: paint_scopes(painter, parent, records))
        )
    rows += _host_rows(picture, layers)
    if (missing := picture.missing) is not None:
        rows.append(
            _Row(
                "Not in this file",
                2,
                lambda painter, parent: paint_missing(painter, parent, records, missing),
            )
        )
    if Layer.COUNTERS in layers and len(records.samples):
        rows.append(
            _Row("Counters", 90, lambda painter, parent: paint_counters(painter, parent, records))
        )
    return rows


def _host_rows(picture: RankPicture, layers: frozenset[Layer]) -> list[_Row]:
    records = picture.detail
    found = host_layers(records, cann=Layer.CANN in layers, framework=Layer.FRAMEWORK in layers)
    return [
        _Row(
            name,
            80 if name in RUNTIME_LAYERS else 10 + place,
            lambda painter, parent, rows=rows: paint_host(  # type: ignore[misc]
                painter, parent, records, rows
            ),
        )
        for place, (name, rows) in enumerate(found)
    ]
