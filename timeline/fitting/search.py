"""Turns the sizes of the plans that were tried into the plan to try next."""

from __future__ import annotations

from timeline.fitting.budget import Budget
from timeline.fitting.resolve import Plan
from timeline.fitting.writer import AIM

__all__ = ["WORTH_A_TRY", "Search"]

WORTH_A_TRY = 1.3
"""An exact file that is expected to be this much too large is tried all the same."""
COARSER = 0.95
"""How far below what the last miss asks for the next aim is."""
FINER = 1.6
"""How much higher the next aim is when all tries so far fitted."""
UNTRIED = 1.1
"""A plan that was not tried is taken to need this much more than is expected of it."""


class Search:
    """Closes in on the plan whose file is just below the limit.

    Between a plan that fits and one that does not, the finer of both is taken for a leading share
    of the slices: the size is then nearly linear in the share.
    """

    def __init__(self, budget: Budget, limit: int) -> None:
        self._budget = budget
        self._limit = limit
        self._target = limit * AIM
        self._fits: tuple[Plan, int] | None = None
        self._exceeds: tuple[Plan, int] | None = None
        self._shares: list[tuple[float, int]] = []
        self._last_share: float | None = None
        self._hits = 0
        self._misses = 0
        self._aim = self._target
        self._tried: list[Plan] = []
        self._exact_bytes = 0.0

    @property
    def exact_bytes(self) -> float:
        """The size of the exact file, measured where it was tried."""
        return self._exact_bytes or self._budget.finest_plan().expected_bytes

    def plain(self, plan: Plan) -> bool:
        """Whether a plan is not a mix of two."""
        return all(own.finer_until_ns is None for own in plan.resolutions.values())

    def add(self, plan: Plan, size: int) -> None:
        """Note the size of a plan that was tried."""
        self._tried.append(plan)
        if plan.finest:
            self._exact_bytes = float(size)
        if self._last_share is not None:
            self._shares.append((self._last_share, size))
        elif size <= self._limit:
            self._hits += 1
            if self._fits is None or size > self._fits[1]:
                self._fits = (plan, size)
        else:
            self._misses += 1
            if self._misses > 1:
                self._aim *= COARSER * self._target / size
            if self._exceeds is None or size < self._exceeds[1]:
                self._exceeds = (plan, size)

    def next_plan(self) -> Plan:
        """What to try next."""
        if self._fits is None:
            return self._coarser()
        if self._exceeds is not None:
            again = self._budget.plan(self._aim)
            if self._only_coarsest_fits() and not self._was_tried(again):
                return again
            return self._mixed(*self._fits, *self._exceeds)
        exact = self._budget.finest_plan()
        if not self._exact_bytes and exact.expected_bytes <= self._limit * WORTH_A_TRY:
            return exact
        finer = self._budget.plan(self._target * FINER**self._hits)
        size = int(finer.expected_bytes * UNTRIED)
        if size <= self._limit or self._only_coarsest_fits():
            return finer
        self._exceeds = (finer, size)
        return self._mixed(*self._fits, *self._exceeds)

    def _coarser(self) -> Plan:
        """What is expected to fit, given how far the last try missed."""
        plan = self._budget.plan(self._aim)
        while self._was_tried(plan) and not self._is_coarsest(plan):
            self._aim *= COARSER
            plan = self._budget.plan(self._aim)
        return plan

    def _only_coarsest_fits(self) -> bool:
        """Whether mixing is a bad choice: the coarsest part costs a slice on every track."""
        return self._fits is not None and self._is_coarsest(self._fits[0])

    def _is_coarsest(self, plan: Plan) -> bool:
        return plan.resolutions == self._budget.coarsest_plan().resolutions

    def _was_tried(self, plan: Plan) -> bool:
        return any(plan.resolutions == tried.resolutions for tried in self._tried)

    def _mixed(self, coarse: Plan, coarse_size: int, fine: Plan, fine_size: int) -> Plan:
        points = sorted([(0.0, coarse_size), *self._shares, (1.0, fine_size)])
        low = max(point for point in points if point[1] <= self._limit)
        high = min(point for point in points if point[0] > low[0])
        part = (self._target - low[1]) / max(1, high[1] - low[1])
        self._last_share = low[0] + (high[0] - low[0]) * min(max(part, 0.0), 1.0)
        return self._budget.mixed(fine, coarse, self._last_share)
