"""Turns the pictures of ranks into one timeline, grouped by rank or by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timeline.records.tables import Omission
from timeline.selection import Layer
from timeline.tracks.detail import (
    CANN,
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
from timeline.tracks.model import Track
from timeline.tracks.overview import paint_overview
from timeline.tracks.painter import Painter
from timeline.tracks.rank_picture import PictureOptions, RankPicture
from timeline.tracks.summary import STEP_TRACE, paint_overlap, paint_steps

__all__ = ["Painted", "paint"]


@dataclass(frozen=True)
class Painted:
    """The tracks of a picture and what could not be drawn."""

    tracks: tuple[Track, ...]
    omissions: tuple[Omission, ...]


@dataclass(frozen=True)
class _Row:
    """One layer of one rank: its place among layers and how it is painted below a parent."""

    layer: str
    order: int
    paint: Callable[[Painter, int], None]


def paint(pictures: Sequence[RankPicture], options: PictureOptions) -> Painted:
    """Draw all ranks."""
    painter = Painter()
    root = paint_overview(painter, pictures)
    if Layer.ARROWS in options.layers:
        for picture in pictures:
            expect_arrows(painter, picture.detail)
    rows = [(picture, row) for picture in pictures for row in _rows(picture, options)]
    if options.by_layer:
        _by_layer(painter, root, rows)
    else:
        _by_rank(painter, root, pictures, rows)
    omissions = []
    if Layer.ARROWS in options.layers:
        next_id = 1
        for picture in pictures:
            next_id, lost = paint_arrows(painter, picture.detail, next_id)
            if lost:
                omissions.append(
                    Omission(
                        "arrows with an end in a layer that is not drawn",
                        lost,
                        picture.records.rank,
                    )
                )
    return Painted(tuple(painter.tracks), tuple(omissions))


def _by_rank(
    painter: Painter,
    root: int,
    pictures: Sequence[RankPicture],
    rows: Sequence[tuple[RankPicture, _Row]],
) -> None:
    alone = len(pictures) == 1
    folders = {
        picture.records.rank: root
        if alone
        else painter.group(
            f"Rank {picture.records.rank}", root, picture.records.rank, rank=picture.records.rank
        )
        for picture in pictures
    }
    for picture, row in rows:
        rank = picture.records.rank
        folder = painter.group(row.layer, folders[rank], row.order, rank=rank)
        row.paint(painter, folder)


def _by_layer(painter: Painter, root: int, rows: Sequence[tuple[RankPicture, _Row]]) -> None:
    orders = {row.layer: row.order for _, row in rows}
    folders = {
        layer: painter.group(layer, root, order)
        for layer, order in sorted(orders.items(), key=lambda item: item[1])
    }
    for picture, row in rows:
        rank = picture.records.rank
        folder = painter.group(f"Rank {rank}", folders[row.layer], rank, rank=rank)
        row.paint(painter, folder)


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
                "Overlap Analysis",
                1,
                lambda painter, parent: paint_overlap(painter, parent, picture),
            )
        )
    if Layer.HARDWARE in layers and len(records.tasks):
        rows.append(
            _Row(
                "Ascend Hardware",
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
            80 if name == CANN else 10 + place,
            lambda painter, parent, rows=rows: paint_host(  # type: ignore[misc]
                painter, parent, records, rows
            ),
        )
        for place, (name, rows) in enumerate(found)
    ]
