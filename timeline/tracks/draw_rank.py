"""The rows of one rank: where its time goes, the selected layers and their arrows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from timeline.analysis.rank_facts import holds_any
from timeline.analysis.selected_rank import DrawOptions, SelectedRank
from timeline.layers import LAYERS, Layer
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks import detail, summary
from timeline.tracks.detail import expect_arrows, paint_arrows
from timeline.tracks.painter import ArgColumn, LayerDrawing, Painter, PaintLayer
from timeline.tracks.partition import paint_partition
from timeline.tracks.rank_tracks import RankTracks

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
