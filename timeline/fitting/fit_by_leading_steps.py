"""`--fit steps`: one file with the detail of as many leading steps as keep the limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.leading_detail import Leading
from timeline.analysis.rank_facts import RankFacts
from timeline.columns.columns import Int64
from timeline.fitting.writer import (
    MOST_WRITES,
    TARGET_FILL,
    Drawing,
    Writer,
    Written,
    too_small_error,
)
from timeline.layers import SliceKind
from timeline.records.not_given import NO_TIME
from timeline.tracks.model import Slices, Track
from timeline.tracks.rank_tracks import DrawnRank

__all__ = ["Redraw", "Trimming", "order_pieces", "write_leading_steps"]

PIECES_WITHOUT_STEPS = 64
"""A profile without steps is trimmed by this many equal pieces of its time instead."""


@dataclass(frozen=True)
class Trimming:
    """One way to trim: the detail of a number of leading pieces of all ranks, in drawing order.

    weights[i] is the number of records in piece i, so the size of any number of leading pieces
    can be estimated before it is encoded.
    """

    steps: tuple[int, ...]
    edges_ns: tuple[int, ...]
    weights: tuple[int, ...]

    @property
    def pieces(self) -> int:
        """How many pieces there are."""
        return len(self.weights)

    def leading(self, kept: int) -> Leading:
        """The leading `kept` pieces."""
        if self.steps:
            return Leading(frozenset(self.steps[:kept]), self.steps[kept:])
        if not self.edges_ns:
            return Leading()
        return Leading(window_ns=(self.edges_ns[0], self.edges_ns[kept]))


def order_pieces(ranks: Sequence[RankFacts], tracks: Sequence[Track]) -> Trimming:
    """Pieces of the selection that all ranks share: its steps in order of time, else its time."""
    order = _steps_in_order(ranks)
    if order:
        weights = dict.fromkeys(order, 0.0)
        for facts in ranks:
            _add_weights(weights, facts)
        return Trimming(tuple(order), (), tuple(int(weights[step]) for step in order))
    spans = [facts.span_ns for facts in ranks if facts.span_ns is not None]
    if not spans:
        return Trimming((), (), ())
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    edges = np.linspace(first, last + 1, PIECES_WITHOUT_STEPS + 1).astype(np.int64)
    starts = [
        track.content.start_ns
        for track in tracks
        if isinstance(track.content, Slices) and track.content.kind is SliceKind.TASK
    ]
    counts = np.histogram(np.concatenate([edges[:0], *starts]), edges)[0]
    return Trimming((), tuple(edges.tolist()), tuple(counts.tolist()))


def _steps_in_order(ranks: Sequence[RankFacts]) -> list[int]:
    first: dict[int, int] = {}
    for facts in ranks:
        on_device = facts.device_start_ns != NO_TIME
        for step, start in zip(
            facts.steps.iteration[on_device].tolist(),
            facts.steps.start_ns[on_device].tolist(),
            strict=True,
        ):
            first[step] = min(start, first.get(step, start))
    return sorted(first, key=lambda step: (first[step], step))


def _add_weights(weights: dict[int, float], facts: RankFacts) -> None:
    """Records of each step; host events and samples are spread over the steps evenly."""
    for step, count in zip(facts.steps.iteration.tolist(), facts.step_rows.tolist(), strict=True):
        if step in weights:
            weights[step] += count
    for step in weights:
        weights[step] += facts.other_rows / len(weights)


Redraw = Callable[[Leading], Sequence[DrawnRank]]
"""Draws all ranks again, with detail in their leading part only."""


def write_leading_steps(writer: Writer, drawing: Drawing, redraw: Redraw) -> Written:
    """Write the detail of as many leading steps as fit, and of all others the summary.

    Raises:
        LimitError: the summary alone does not fit.
    """
    whole = writer.exact(drawing, drawing.steps)
    size = whole.parts[0].draft.size_bytes
    if size <= writer.limit_bytes:
        return whole
    whole.discard()
    trimming = order_pieces(drawing.facts, drawing.tracks)

    def leading(kept: int) -> Drawing:
        return writer.draw(redraw(trimming.leading(kept)))

    records = np.concatenate([[0], np.cumsum(np.maximum(trimming.weights, 1))])
    points = [(0.0, 0.0), (float(records[-1]), float(size))]
    best: Written | None = None
    low, high = 0, trimming.pieces
    for _ in range(MOST_WRITES - 2):
        kept = _pieces_to_try(records, points, low, high, writer.limit_bytes * TARGET_FILL)
        if kept is None:
            break
        tried = writer.exact(leading(kept), trimming.steps[:kept])
        size = tried.parts[0].draft.size_bytes
        points = sorted([*(point for point in points if point[0] > 0), (records[kept], size)])
        if size <= writer.limit_bytes:
            if best is not None:
                best.discard()
            best, low = tried, kept
        else:
            tried.discard()
            high = kept
    if best is None:
        best = writer.exact(leading(0), ())
        least = best.parts[0].draft.size_bytes
        if least > writer.limit_bytes:
            best.discard()
            raise too_small_error(writer.limit_bytes, min(least, int(whole.exact_bytes)))
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
