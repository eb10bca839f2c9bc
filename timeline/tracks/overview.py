"""The row of the steps of all ranks, which is seen before anything is unfolded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.columns.distinct import distinct
from timeline.columns.strings import StringPool
from timeline.errors import spell_ids
from timeline.layers import SliceKind
from timeline.records.not_given import NO_GRAPH, NO_TIME
from timeline.tracks import descriptions
from timeline.tracks.lanes import nested_lanes
from timeline.tracks.painter import ArgColumn, Painter, SliceTable, integers
from timeline.tracks.summary import rounded_percent, spent_args

__all__ = ["paint_overview", "step_starts_ns"]


@dataclass(frozen=True)
class _Span:
    """One step on one rank; row: that of the rank's steps."""

    row: int
    graph: int
    step: int
    rank: int
    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


def paint_overview(painter: Painter, facts: Sequence[RankFacts]) -> int:
    """Draw the row that holds all others; its id.

    A root row of its own keeps the order of the rows below it ours: Perfetto sorts roots by name.
    Where a step runs into the next one on another rank, the next slice moves to the row "Steps,
    continued" inside.
    """
    ranks = [rank.rank for rank in facts]
    name = f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {spell_ids(ranks, shortest_run=2)}"
    steps = _spans_by_step(facts)
    strings = StringPool()
    start_ns = np.array([min(span.start_ns for span in spans) for spans in steps], np.int64)
    end_ns = np.array([max(span.end_ns for span in spans) for spans in steps], np.int64)
    drawn = _drawn(steps, start_ns, end_ns, strings, facts)
    lane = nested_lanes(start_ns, end_ns)
    first, rest = np.flatnonzero(lane == 0), np.flatnonzero(lane != 0)
    meaning = descriptions.STEPS_OF_ALL_RANKS if len(ranks) > 1 else descriptions.STEPS_OF_ONE_RANK
    root = painter.add_stacked_row(name, None, 0, replace(drawn, rows=first), strings, meaning)
    if len(rest):
        painter.add_flat_row(
            "Steps, continued",
            root,
            -1,
            replace(drawn, rows=rest),
            strings,
            None,
            descriptions.CONTINUED,
        )
    return root


def step_starts_ns(facts: Sequence[RankFacts]) -> dict[tuple[int, int], int]:
    """When each step begins on its first rank, by graph (NO_GRAPH unless a rank has several)."""
    several = _has_several_graphs(facts)
    return {
        (spans[0].graph if several else NO_GRAPH, spans[0].step): min(
            span.start_ns for span in spans
        )
        for spans in _spans_by_step(facts)
    }


def _has_several_graphs(facts: Sequence[RankFacts]) -> bool:
    return any(len(distinct(rank.steps.graph)) > 1 for rank in facts)


def _spans_by_step(facts: Sequence[RankFacts]) -> list[list[_Span]]:
    """The spans of each step over the ranks, in order of time.

    Ranks number their graphs apart, so a step is matched by its number alone unless a rank has
    several graphs.
    """
    several = _has_several_graphs(facts)
    found: dict[tuple[int, int], list[_Span]] = {}
    for rank in facts:
        for span in _spans(rank):
            key = (span.graph if several else NO_GRAPH, span.step)
            found.setdefault(key, []).append(span)
    return sorted(found.values(), key=lambda spans: min(span.start_ns for span in spans))


def _spans(facts: RankFacts) -> list[_Span]:
    """Steps as they ran on the device: host windows count only where no device work is known."""
    steps = facts.steps
    on_device = steps.host & (facts.device_start_ns != NO_TIME)
    start_ns = np.where(on_device, facts.device_start_ns, steps.start_ns)
    end_ns = np.where(on_device, facts.device_end_ns, steps.end_ns)
    return [
        _Span(row, graph, step, facts.rank, start, end)
        for row, graph, step, start, end in zip(
            range(len(steps)),
            steps.graph.tolist(),
            steps.iteration.tolist(),
            start_ns.tolist(),
            end_ns.tolist(),
            strict=True,
        )
    ]


def _drawn(
    steps: list[list[_Span]],
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    strings: StringPool,
    facts: Sequence[RankFacts],
) -> SliceTable:
    several = len({spans[0].graph for spans in steps}) > 1 and len(
        {spans[0].step for spans in steps}
    ) < len(steps)
    labels = [
        f"Graph {spans[0].graph} Step {spans[0].step}" if several else f"Step {spans[0].step}"
        for spans in steps
    ]
    args = [integers("iteration", np.array([spans[0].step for spans in steps], np.int64))]
    args += _comparison(steps) if len(facts) > 1 else _spent(steps, facts)
    return SliceTable(start_ns, end_ns, strings.codes(labels), SliceKind.STEP, args)


def _comparison(steps: list[list[_Span]]) -> list[ArgColumn]:
    """Which rank took longest and shortest, and how far they are apart."""
    slow = [max(spans, key=lambda span: span.length_ns) for spans in steps]
    fast = [min(spans, key=lambda span: span.length_ns) for spans in steps]
    slowest_ns = np.array([span.length_ns for span in slow], np.int64)
    fastest_ns = np.array([span.length_ns for span in fast], np.int64)
    spread_percent = rounded_percent(slowest_ns - fastest_ns, np.maximum(fastest_ns, 1))
    return [
        integers("slowest_rank", np.array([span.rank for span in slow], np.int64)),
        integers("fastest_rank", np.array([span.rank for span in fast], np.int64)),
        integers("slowest_ns", slowest_ns),
        integers("fastest_ns", fastest_ns),
        integers("spread_percent", spread_percent),
    ]


def _spent(steps: list[list[_Span]], facts: Sequence[RankFacts]) -> list[ArgColumn]:
    """How the steps of the only rank were spent."""
    if not steps:
        return []
    (rank,) = facts
    rows = np.array([spans[0].row for spans in steps], np.int64)
    return spent_args(
        rank.step_totals,
        rows,
        np.array([len(spans) == 1 for spans in steps]),
        tells_copies=rank.free_parts.copies_ns is not None,
    )
