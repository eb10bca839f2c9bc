"""Turns the facts of all ranks into pieces of the selection, of which leading ones may be kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from timeline.analysis.leading import Leading
from timeline.analysis.rank_facts import RankFacts
from timeline.records.tables import NO_TIME
from timeline.tracks.model import Schema, Slices, Track

__all__ = ["Trimming", "trimming_of"]

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


def trimming_of(ranks: Sequence[RankFacts], tracks: Sequence[Track]) -> Trimming:
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
        if isinstance(track.content, Slices) and track.content.schema is Schema.TASK
    ]
    counts = np.histogram(np.concatenate([edges[:0], *starts]), edges)[0]
    return Trimming((), tuple(edges.tolist()), tuple(counts.tolist()))


def _steps_in_order(ranks: Sequence[RankFacts]) -> list[int]:
    first: dict[int, int] = {}
    for facts in ranks:
        held = facts.device_start_ns != NO_TIME
        for step, start in zip(
            facts.steps.iteration[held].tolist(), facts.steps.start_ns[held].tolist(), strict=True
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
