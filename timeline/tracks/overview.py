"""The row of the steps of all ranks, which is seen before anything is unfolded."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.columns.columns import Int64
from timeline.columns.distinct import distinct
from timeline.columns.strings import StringPool
from timeline.frozen import dataclass
from timeline.layers import SliceKind
from timeline.records.not_given import NO_GRAPH
from timeline.tracks import descriptions
from timeline.tracks.lanes import nested_lanes
from timeline.tracks.painter import ArgColumn, Painter, SliceTable, integers
from timeline.tracks.root_rows import STEPS, SlowStep
from timeline.tracks.summary import rounded_percent, spent_args

__all__ = ["difference", "paint_overview", "paint_steps_of_run", "step_starts_ns"]

LENGTHS = "How long they took"


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


def paint_overview(
    painter: Painter, facts: Sequence[RankFacts], slowest: SlowStep | None = None
) -> None:
    """Draw the steps of all ranks, and how long they took below; nothing where there are none.

    Where a step runs into the next one on another rank, the next slice moves to the row "Steps,
    continued" inside.
    """
    steps = _spans_by_step(facts)
    if not steps:
        return
    strings = StringPool()
    start_ns, end_ns = _extents_ns(steps)
    drawn = _drawn(steps, start_ns, end_ns, strings, facts, slowest)
    lane = nested_lanes(start_ns, end_ns)
    first, rest = np.flatnonzero(lane == 0), np.flatnonzero(lane != 0)
    meaning = descriptions.STEPS_OF_ALL_RANKS if len(facts) > 1 else descriptions.STEPS_OF_ONE_RANK
    root = painter.add_stacked_row(STEPS, None, 0, replace(drawn, rows=first), strings, meaning)
    if len(rest):
        painter.add_flat_row(
            "Steps, continued",
            root,
            0,
            replace(drawn, rows=rest),
            strings,
            None,
            descriptions.CONTINUED,
        )
    lengths = strings.codes(_length_labels(steps))
    painter.add_flat_row(
        LENGTHS,
        root,
        1,
        SliceTable(start_ns, end_ns, lengths, SliceKind.STEP),
        strings,
        None,
        descriptions.LENGTHS_OF_STEPS,
    )


def difference(step: str, before_ns: int, after_ns: int, unchanged: str) -> str:
    """By how much something took longer than before, called so that the UI colours it well.

    It takes a hue from a name without its digits. In version 52 these words make what is slower red
    and what is faster green, whatever the time, because its unit stays the same.
    """
    delta_ns = after_ns - before_ns
    if not delta_ns:
        return f"{step} {unchanged}"
    word = "slower" if delta_ns > 0 else "faster"
    share = f" ({delta_ns / before_ns:+.1%})" if before_ns else ""
    return f"{step} {word} by {abs(delta_ns) / 1e6:.3f} ms{share}"


def _length_labels(steps: list[list[_Span]]) -> Iterator[str]:
    """How far each step, where it took longest, is from the median of all of them."""
    lengths_ns = [max(span.length_ns for span in spans) for spans in steps]
    median_ns = statistics.median_low(lengths_ns)
    for spans, length_ns in zip(steps, lengths_ns, strict=True):
        if len(steps) == 1:
            yield f"{length_ns / 1e6:.3f} ms"
        else:
            yield difference(f"Step {spans[0].step}", median_ns, length_ns, "is the median")


def paint_steps_of_run(
    painter: Painter, parent: int, order: int, facts: Sequence[RankFacts], run: str
) -> None:
    """Draw the steps of all ranks of one of several runs on a row that is called like the run."""
    steps = _spans_by_step(facts)
    if not steps:
        return
    strings = StringPool()
    drawn = _drawn(steps, *_extents_ns(steps), strings, facts, None)
    painter.add_flat_row(run, parent, order, drawn, strings, None, descriptions.STEPS_OF_ALL_RANKS)


def _extents_ns(steps: list[list[_Span]]) -> tuple[Int64, Int64]:
    """When each step begins on its first rank, and ends on its last."""
    return (
        np.array([min(span.start_ns for span in spans) for spans in steps], np.int64),
        np.array([max(span.end_ns for span in spans) for spans in steps], np.int64),
    )


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
    steps = facts.steps
    start_ns, end_ns = facts.steps_on_device_ns
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
    start_ns: Int64,
    end_ns: Int64,
    strings: StringPool,
    facts: Sequence[RankFacts],
    slowest: SlowStep | None,
) -> SliceTable:
    several = len({spans[0].graph for spans in steps}) > 1 and len(
        {spans[0].step for spans in steps}
    ) < len(steps)
    labels = [
        (f"Graph {spans[0].graph} Step {spans[0].step}" if several else f"Step {spans[0].step}")
        + (" (slowest)" if _is_it(spans[0], slowest, by_graph=several) else "")
        for spans in steps
    ]
    args = [integers("iteration", np.array([spans[0].step for spans in steps], np.int64))]
    args += _comparison(steps) if len(facts) > 1 else _spent(steps, facts)
    return SliceTable(start_ns, end_ns, strings.codes(labels), SliceKind.STEP, args)


def _is_it(span: _Span, slowest: SlowStep | None, *, by_graph: bool) -> bool:
    """Whether a step is the one that is called the slowest."""
    if slowest is None or span.step != slowest.step:
        return False
    return not by_graph or slowest.graph is None or span.graph == slowest.graph


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
