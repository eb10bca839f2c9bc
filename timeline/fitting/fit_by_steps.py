"""`--fit steps`: one file with the detail of as many steps as keep the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.selected_rank import ChosenDetail
from timeline.analysis.telling_steps import StepRun
from timeline.columns.columns import Int64
from timeline.fitting.exact_file import try_exact
from timeline.fitting.writer import Drawing, Writer, Written, first_moment_ns, too_small_error
from timeline.frozen import dataclass
from timeline.layers import SliceKind
from timeline.records.not_given import NO_TIME
from timeline.tracks.model import Slices, Track
from timeline.tracks.rank_tracks import DrawnRank

__all__ = ["Redraw", "Trimming", "order_pieces", "write_steps"]

TARGET_FILL = 0.93
"""How much of the limits is aimed at: estimates err by a few percent."""
MOST_WRITES = 3
"""How often a file is written at the most, besides the one that keeps no detail."""
PIECES_WITHOUT_STEPS = 64
"""A profile without steps is trimmed by this many equal pieces of its time instead."""


@dataclass(frozen=True)
class Trimming:
    """One way to trim: the detail of a number of pieces of all ranks, those that tell most first.

    weights[i] is the number of records in piece i, so the size of any number of pieces can be
    estimated before it is encoded. Without steps pieces are parts of the time, in order.
    """

    steps: tuple[int, ...]
    edges_ns: tuple[int, ...]
    weights: tuple[int, ...]

    @property
    def pieces(self) -> int:
        """How many pieces there are."""
        return len(self.weights)

    def first(self, kept: int) -> ChosenDetail:
        """The first `kept` pieces."""
        if self.steps:
            return ChosenDetail(frozenset(self.steps[:kept]), tuple(sorted(self.steps[kept:])))
        if not self.edges_ns:
            return ChosenDetail()
        return ChosenDetail(window_ns=(self.edges_ns[0], self.edges_ns[kept]))


def order_pieces(
    ranks: Sequence[RankFacts], tracks: Sequence[Track], runs: Iterable[StepRun]
) -> Trimming:
    """Pieces of the selection that all ranks share: its steps, else its time.

    runs: of steps, those that tell most first; other steps follow in order of time.
    """
    in_time = _steps_in_order(ranks)
    known = set(in_time)
    telling = [run.step for run in runs if run.step in known]
    order = list(dict.fromkeys([*telling, *in_time]))
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


Redraw = Callable[[ChosenDetail], Sequence[DrawnRank]]
"""Draws all ranks again, with nothing but the detail that was chosen."""


def write_steps(
    writer: Writer, drawing: Drawing, runs: Iterable[StepRun], redraw: Redraw
) -> Written:
    """Write the detail of as many steps as fit, those that tell most, and of all the summary.

    runs: of steps, those that tell most first.

    Raises:
        LimitError: the summary alone does not fit.
    """
    limits = writer.limits
    with writer.maker(drawing.tracks, first_moment_ns(drawing.tracks)) as maker:
        whole, planner = try_exact(writer, drawing, maker)
    if whole is not None:
        return whole
    everything = planner.whole
    trimming = order_pieces(drawing.facts, drawing.tracks, runs)

    def write(kept: int) -> Written:
        chosen = writer.draw(redraw(trimming.first(kept)))
        return writer.exact(replace(chosen, kept_steps=tuple(sorted(trimming.steps[:kept]))))

    records = np.concatenate([[0], np.cumsum(np.maximum(trimming.weights, 1))])
    points = [(0.0, 0.0), (float(records[-1]), limits.share(everything))]
    best: Written | None = None
    low, high = 0, trimming.pieces
    for _ in range(MOST_WRITES - 1):
        count = _pieces_to_try(records, points, low, high)
        if count is None:
            break
        tried = write(count)
        share = limits.share(tried.parts[0].cost)
        points = sorted([*(point for point in points if point[0] > 0), (records[count], share)])
        if share <= 1:
            if best is not None:
                best.discard()
            best, low = tried, count
        else:
            tried.discard()
            high = count
    if best is None:
        best = write(0)
        least = best.parts[0].cost
        if not limits.hold(least):
            best.discard()
            exact = writer.exact(drawing)
            exact.discard()
            raise too_small_error(limits, min(least, exact.parts[0].cost, key=limits.share))
    kept = replace(best.kept, limited_by=limits.binding(everything))
    return replace(best, kept=kept, exact_share=limits.share(everything))


def _pieces_to_try(
    records: Int64, points: Sequence[tuple[float, float]], low: int, high: int
) -> int | None:
    """How many pieces between `low`, which fits, and `high`, which does not, should just fit.

    What is used of the limits grows with the number of records in proportion, from what the
    summary takes: two known points (records, share) tell both.
    """
    if high - low <= 1:
        return None
    (first, first_share), (second, second_share) = points[0], points[1]
    for_one = (second_share - first_share) / max(1.0, second - first)
    wanted = first + (TARGET_FILL - first_share) / max(for_one, 1e-12)
    kept = int(np.searchsorted(records, wanted, side="right")) - 1
    return min(max(kept, low + 1), high - 1)
