"""Ordinary steps, by which a run is judged, and the order in which steps are most informative."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.columns.columns import Bool, Int64, Rows
from timeline.columns.distinct import NO_ROWS, distinct, distinct_pairs, rows_by_value
from timeline.columns.group_by import group_by
from timeline.records.not_given import NO_GRAPH

if TYPE_CHECKING:
    from timeline.analysis.waits.culprit import Culprit

WARM_UP = 1.5
"""The first step is warm-up if it takes more than this many times the median of the others."""
LEAST_ORDINARY = 3
"""With fewer ordinary steps, steps with device tasks that are not cut count."""
LEAST_STEADY = 2
"""With fewer steps besides those that warm up, these count too."""


def ordinary_steps(ranks: Sequence[RankFacts], *, with_first: bool = True) -> tuple[Bool, ...]:
    """Return a mask of the ordinary steps of each rank among its selected ones, (steps,) each.

    A step is ordinary if it has device tasks, and on no rank is a warm-up step (the first of its
    graph) or cut by the edge of the recording or by a window. With fewer than LEAST_ORDINARY such
    steps, all that are not cut are, but for those that warm up if LEAST_STEADY others are left;
    without any, all with device tasks. If no rank has any device task, communication ops are used
    instead.

    with_first: whether a first step that does not warm up is ordinary. Of two compared runs, one
    may warm up.
    """
    measured = np.concatenate([np.zeros(0, np.bool_), *measured_steps(ranks)])
    if not measured.any():
        return tuple(np.zeros(len(rank.steps), np.bool_) for rank in ranks)
    warm, first, cut = (
        np.concatenate(masks)
        for masks in zip(
            *((_warms_up(rank), rank.recorded.first, rank.recorded.cut) for rank in ranks),
            strict=True,
        )
    )
    odd = (warm if with_first else first) | cut | ~measured
    step, counted = number_steps(ranks), _in_measured_rank(ranks, measured)
    is_odd, is_cut, is_warm = np.zeros((3, int(step.max()) + 1), np.bool_)
    for mask, of_any in ((odd, is_odd), (cut, is_cut), (warm, is_warm)):
        of_any[step[mask & counted]] = True
    plain, whole = measured & ~is_odd[step], measured & ~is_cut[step]
    steady = whole & ~is_warm[step]
    if len(distinct(step[plain])) >= LEAST_ORDINARY:
        chosen = plain
    elif len(distinct(step[steady])) >= LEAST_STEADY:
        chosen = steady
    else:
        chosen = whole if whole.any() else measured
    return tuple(np.split(chosen, np.cumsum([len(rank.steps) for rank in ranks])[:-1]))


def _warms_up(rank: RankFacts) -> Bool:
    """Return a mask of first steps of their graph that take much longer than the others, (n,)."""
    steps, period_ns = rank.recorded, rank.step_totals.period_ns
    others_ns = period_ns[~steps.first & (rank.step_totals.span_ns > 0)]
    if not len(others_ns):
        return np.zeros(len(steps), np.bool_)
    is_long: Bool = period_ns > WARM_UP * np.median(others_ns)
    return steps.first & is_long


def measured_steps(ranks: Sequence[RankFacts]) -> tuple[Bool, ...]:
    """Return a mask of the steps of each rank with device tasks, (steps,) each.

    A step with computing time in a table counts too. If no rank has any device task, communication
    ops are used instead.
    """
    computing = [(rank.recorded.tasks > 0) | (rank.step_totals.computing_ns > 0) for rank in ranks]
    if any(steps.any() for steps in computing):
        return tuple(computing)
    return tuple(rank.recorded.ops > 0 for rank in ranks)


def _in_measured_rank(ranks: Sequence[RankFacts], measured: Bool) -> Bool:
    """Return a mask of steps on ranks with any measured step; other ranks do not count."""
    lengths = [len(rank.steps) for rank in ranks]
    parts = np.split(measured, np.cumsum(lengths)[:-1])
    return np.repeat([bool(part.any()) for part in parts], lengths)


def number_steps(ranks: Sequence[RankFacts]) -> Int64:
    """Return a number for each step, shared by all ranks; (all steps,), rank by rank.

    Ranks number their graphs independently, so a step is matched by its number alone unless a rank
    has several graphs.
    """
    graph = np.concatenate([rank.steps.graph for rank in ranks])
    rank = np.repeat(np.arange(len(ranks)), [len(rank.steps) for rank in ranks])
    if not has_several_graphs(rank, graph):
        graph = np.full_like(graph, NO_GRAPH)
    iteration = np.concatenate([rank.steps.iteration for rank in ranks])
    return group_by(len(graph), (graph, iteration)).group


def has_several_graphs(rank: Int64, graph: Int64) -> bool:
    """Return whether any rank has several graphs, from the rank and graph of each row."""
    pairs, _ = distinct_pairs(rank, graph)
    return len(pairs) > len(distinct(rank))


def longest_periods_ns(ranks: Sequence[RankFacts], chosen: Sequence[Bool]) -> Int64:
    """Return the longest period over ranks of each chosen step, in order of number.

    Args:
        chosen: for each rank a mask of its steps.
    """
    among = np.concatenate([np.zeros(0, np.bool_), *chosen])
    if not among.any():
        return np.empty(0, np.int64)
    periods_ns = np.concatenate([rank.step_totals.period_ns for rank in ranks])[among]
    return group_by(len(periods_ns), [number_steps(ranks)[among]]).greatest(periods_ns)


@dataclass(frozen=True)
class StepRun:
    """One run of a step: the position of its rank, and its time.

    The time includes the work of the step on host and device.
    """

    place: int
    step: int
    start_ns: int
    end_ns: int


def informative_steps(
    ranks: Sequence[RankFacts], culprit: Culprit | None, requested: Sequence[int] | None = None
) -> Iterator[StepRun]:
    """Yield runs of steps, the most informative first.

    First the slowest ordinary step of the rank that holds up the others, on that rank and on the
    one that waits longest for it, then on all ranks; then the median ordinary step likewise; then
    the other steps of that rank, the slowest first. Without such a rank, the rank of the slowest
    step is used.

    Args:
        ranks: on one clock.
        culprit: the rank that holds up the others, if any.
        requested: numbers of the only steps to yield, in order, if given.
    """
    steps = _Steps.of(ranks)
    if not len(steps.rank):
        return
    late, waits = None, None
    if culprit is not None:
        late, waits = culprit.rank, next((one.rank for one in culprit.waiters), None)
    lead, waiter = steps.lead(late, ranks), _place_of(ranks, waits)
    for row in dict.fromkeys(steps.order(lead, waiter, requested)):
        place = int(steps.rank[row])
        start_ns, end_ns = int(steps.start_ns[row]), int(steps.end_ns[row])
        yield StepRun(place, int(steps.iteration[row]), start_ns, end_ns)


@dataclass(frozen=True)
class _Steps:
    """Steps with device work of all ranks, one row each.

    rank: position of the rank; number: the same for one step of all ranks; iteration: step number;
    start_ns and end_ns: of the step and its device work; span_ns: duration; ordinary: whether a run
    can be judged by the step.
    """

    rank: Int64
    number: Int64
    iteration: Int64
    start_ns: Int64
    end_ns: Int64
    span_ns: Int64
    ordinary: np.ndarray[tuple[int], np.dtype[np.bool_]]

    @classmethod
    def of(cls, ranks: Sequence[RankFacts]) -> _Steps:
        lengths = [len(facts.steps) for facts in ranks]
        none = np.zeros(0, np.int64)
        if not sum(lengths):
            return cls(none, none, none, none, none, none, np.zeros(0, np.bool_))
        known = np.concatenate([facts.step_totals.known for facts in ranks])
        spans_ns = [_spans_ns(facts) for facts in ranks]
        columns = (
            np.repeat(np.arange(len(ranks)), lengths),
            number_steps(ranks),
            np.concatenate([facts.steps.iteration for facts in ranks]),
            np.concatenate([starts_ns for starts_ns, _ in spans_ns]),
            np.concatenate([ends_ns for _, ends_ns in spans_ns]),
            np.concatenate([facts.step_totals.span_ns for facts in ranks]),
            np.concatenate(ordinary_steps(ranks)),
        )
        return cls(*(column[known] for column in columns))

    def lead(self, rank: int | None, ranks: Sequence[RankFacts]) -> int:
        """Return the position of a rank; that of the slowest ordinary step as a fallback."""
        place = _place_of(ranks, rank)
        if place is not None and (self.rank == place).any():
            return place
        return int(self.rank[np.argmax(np.where(self.ordinary, self.span_ns, -1))])

    def order(
        self, lead: int, waiter: int | None, requested: Sequence[int] | None
    ) -> Iterator[int]:
        """Yield the rows of runs, the most informative first, some of them repeatedly."""
        if requested is not None:
            for iteration in requested:
                rows = self._rows_of_iteration.get(iteration, NO_ROWS)
                for number in dict.fromkeys(self.number[rows].tolist()):
                    yield from self._everywhere(number, lead, waiter)
            return
        rows = np.flatnonzero(self.rank == lead)
        by_length = rows[np.argsort(-self.span_ns[rows], kind="stable")]
        plain = by_length[self.ordinary[by_length]]
        if len(plain):
            for row in (plain[0], plain[len(plain) // 2]):
                yield from self._everywhere(int(self.number[row]), lead, waiter)
        yield from by_length.tolist()

    @cached_property
    def _rows_of_iteration(self) -> dict[int, Rows]:
        return dict(rows_by_value(self.iteration))

    @cached_property
    def _rows_of_number(self) -> dict[int, Rows]:
        return dict(rows_by_value(self.number))

    def _everywhere(self, number: int, lead: int, waiter: int | None) -> Iterator[int]:
        """Yield a step on the leading rank, on the one that waits for it, then on all."""
        rows = self._rows_of_number[number]
        for place in (lead, waiter):
            yield from rows[self.rank[rows] == (-1 if place is None else place)].tolist()
        yield from rows.tolist()


def _place_of(ranks: Sequence[RankFacts], rank: int | None) -> int | None:
    return next((place for place, facts in enumerate(ranks) if facts.rank == rank), None)


def _spans_ns(facts: RankFacts) -> tuple[Int64, Int64]:
    """Return start and end of each step of a rank, including its device work."""
    starts_ns, ends_ns = facts.steps_on_device_ns
    return np.minimum(facts.steps.start_ns, starts_ns), np.maximum(facts.steps.end_ns, ends_ns)
