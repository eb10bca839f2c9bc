"""PlanSearch: the plan to try next, so that its file ends up just below the limit."""

from __future__ import annotations

from timeline.fitting.plan import Plan
from timeline.fitting.size_model import SizeModel
from timeline.fitting.writer import TARGET_FILL

__all__ = ["TRY_EXACT_BELOW", "PlanSearch"]

TRY_EXACT_BELOW = 1.3
"""An exact file is tried though it is expected to take up to so many times the limit."""
TARGET_SHRINK = 0.95
"""The next target, of what the last miss asks for."""
TARGET_GROWTH = 1.6
"""The next target, of the last one, when all tries so far fitted."""
UNTRIED_GROWTH = 1.1
"""What a plan that was not tried is taken to need, of what is expected of it."""


class PlanSearch:
    """Chooses the next plan to try, from the sizes of those that were tried.

    Between a plan that fits and one that does not, the finer of both is taken for a leading share
    of the slices: the size is then nearly linear in the share.
    """

    def __init__(self, model: SizeModel, limit_bytes: int) -> None:
        self._model = model
        self._limit = limit_bytes
        self._target = limit_bytes * TARGET_FILL
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
        return self._exact_bytes or self._model.finest_plan().expected_bytes

    def is_plain(self, plan: Plan) -> bool:
        """Whether a plan is not a mix of two."""
        return all(found.finer_until_ns is None for found in plan.resolutions.values())

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
                self._aim *= TARGET_SHRINK * self._target / size
            if self._exceeds is None or size < self._exceeds[1]:
                self._exceeds = (plan, size)

    def next_plan(self) -> Plan:
        """What to try next."""
        if self._fits is None:
            return self._coarser()
        if self._exceeds is not None:
            again = self._model.plan(self._aim)
            if self._only_coarsest_fits() and not self._was_tried(again):
                return again
            return self._mixed(*self._fits, *self._exceeds)
        exact = self._model.finest_plan()
        if not self._exact_bytes and exact.expected_bytes <= self._limit * TRY_EXACT_BELOW:
            return exact
        finer = self._model.plan(self._target * TARGET_GROWTH**self._hits)
        size = int(finer.expected_bytes * UNTRIED_GROWTH)
        if size <= self._limit or self._only_coarsest_fits():
            return finer
        self._exceeds = (finer, size)
        return self._mixed(*self._fits, *self._exceeds)

    def _coarser(self) -> Plan:
        """What is expected to fit, given how far the last try missed."""
        plan = self._model.plan(self._aim)
        while self._was_tried(plan) and not self._is_coarsest(plan):
            self._aim *= TARGET_SHRINK
            plan = self._model.plan(self._aim)
        return plan

    def _only_coarsest_fits(self) -> bool:
        """Whether mixing is a bad choice: the coarsest part costs a slice on every track."""
        return self._fits is not None and self._is_coarsest(self._fits[0])

    def _is_coarsest(self, plan: Plan) -> bool:
        return plan.resolutions == self._model.coarsest_plan().resolutions

    def _was_tried(self, plan: Plan) -> bool:
        return any(plan.resolutions == tried.resolutions for tried in self._tried)

    def _mixed(self, coarse: Plan, coarse_size: int, fine: Plan, fine_size: int) -> Plan:
        points = sorted([(0.0, coarse_size), *self._shares, (1.0, fine_size)])
        low = max(point for point in points if point[1] <= self._limit)
        high = min(point for point in points if point[0] > low[0])
        part = (self._target - low[1]) / max(1, high[1] - low[1])
        self._last_share = low[0] + (high[0] - low[0]) * min(max(part, 0.0), 1.0)
        return self._model.mixed(fine, coarse, self._last_share)
