"""Turns pictures into one file with the detail of as many leading steps as keep the limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from timeline.analysis.leading import Leading
from timeline.columns.columns import Int64
from timeline.fitting.writer import AIM, MOST_TRIES, Drawing, Writer, Written, too_small
from timeline.share import Share
from timeline.tracks.trimming import trimming_of

__all__ = ["Redraw", "trimmed"]


Redraw = Callable[[Leading], Sequence[Share]]
"""Draws all ranks again, with detail in their leading part only."""


def trimmed(writer: Writer, drawing: Drawing, redraw: Redraw) -> Written:
    """Write the detail of as many leading steps as fit, by what the tries before took."""
    whole = writer.exact(drawing, drawing.steps)
    size = whole.parts[0].draft.size_bytes
    if size <= writer.limit:
        return whole
    whole.discard()
    trimming = trimming_of(drawing.facts, drawing.tracks)

    def leading(kept: int) -> Drawing:
        return writer.draw(redraw(trimming.leading(kept)))

    records = np.concatenate([[0], np.cumsum(np.maximum(trimming.weights, 1))])
    points = [(0.0, 0.0), (float(records[-1]), float(size))]
    best: Written | None = None
    low, high = 0, trimming.pieces
    for _ in range(MOST_TRIES - 2):
        kept = _pieces_to_try(records, points, low, high, writer.limit * AIM)
        if kept is None:
            break
        tried = writer.exact(leading(kept), trimming.steps[:kept])
        size = tried.parts[0].draft.size_bytes
        points = sorted([*(point for point in points if point[0] > 0), (records[kept], size)])
        if size <= writer.limit:
            if best is not None:
                best.discard()
            best, low = tried, kept
        else:
            tried.discard()
            high = kept
    if best is None:
        best = writer.exact(leading(0), ())
        least = best.parts[0].draft.size_bytes
        if least > writer.limit:
            best.discard()
            raise too_small(writer.limit, min(least, int(whole.exact_bytes)))
    return replace(best, exact_bytes=whole.exact_bytes)


def _pieces_to_try(
    records: Int64, points: Sequence[tuple[float, float]], low: int, high: int, aim_bytes: float
) -> int | None:
    """How many pieces between `low`, which fits, and `high`, which does not, should just fit.

    Size grows with the number of records in proportion, from what the summary takes: two known
    points (records, bytes) tell both.
    """
    if high - low <= 1:
        return None
    (first, first_bytes), (second, second_bytes) = points[0], points[1]
    for_one = (second_bytes - first_bytes) / max(1.0, second - first)
    wanted = first + (aim_bytes - first_bytes) / max(for_one, 1e-9)
    kept = int(np.searchsorted(records, wanted, side="right")) - 1
    return min(max(kept, low + 1), high - 1)
