"""Runs of steps that show best what is slow, for keeping their detail longest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from timeline.analysis.ordinary_steps import number_steps, ordinary_steps
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.culprit import Culprit
from timeline.columns.columns import Int64, Rows
from timeline.columns.distinct import NO_ROWS, rows_by_value


@dataclass(frozen=True)
class StepRun:
    """One run of a step: the position of its rank, and its time.

    The time includes the work of the step on host and device.
    """

    place: int
    step: int
    start_ns: int
    end_ns: int


def telling_steps(
    ranks: Sequence[RankFacts], culprit: Culprit | None, asked: Sequence[int] | None = None
) -> Iterator[StepRun]:
    """Yield runs of steps, the most informative first.

    First the slowest ordinary step of the rank that holds up the others, on that rank and on the
    one that waits longest for it, then on all ranks; then the median ordinary step likewise; then
    the other steps of that rank, the slowest first. Without such a rank, the rank of the slowest
    step is used.

    Args:
        ranks: on one clock.
        culprit: the rank that holds up the others, if any.
        asked: numbers of steps requested instead, in order.
    """
    steps = _Steps.of(ranks)
    if not len(steps.rank):
        return
    late, waits = None, None
    if culprit is not None:
        late, waits = culprit.rank, next((one.rank for one in culprit.waiters), None)
    lead, waiter = steps.lead(late, ranks), _place_of(ranks, waits)
    for row in dict.fromkeys(steps.order(lead, waiter, asked)):
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

    def order(self, lead: int, waiter: int | None, asked: Sequence[int] | None) -> Iterator[int]:
        """Yield the rows of all requested runs, some of them repeatedly."""
        if asked is not None:
            for iteration in asked:
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
