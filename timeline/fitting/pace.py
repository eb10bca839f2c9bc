"""Pace: what the rest of a layer is expected to take, given what was written of it."""

from __future__ import annotations

from collections.abc import Iterable

from timeline.fitting.ladder import Ladder
from timeline.fitting.limits import Cost
from timeline.fitting.units import Unit

__all__ = ["Pace"]

PRIOR_UNITS = 3
"""Units of which estimates are worth as much as what was found."""


class Pace:
    """What units of a layer take at a power, corrected by what was found at the nearest one."""

    def __init__(self, ladder: Ladder, ends_left: float, units: Iterable[Unit]) -> None:
        """ends_left: which part of the ends of arrows on exact slices is drawn."""
        self._ladder, self._ends_left = ladder, ends_left
        self._found: dict[int, tuple[Cost, Cost]] = {}
        elements = [unit.elements for unit in units]
        self._prior = PRIOR_UNITS * sum(elements) / max(1, len(elements))

    def expected(self, units: Iterable[Unit], power: int) -> Cost:
        """What units take at a power."""
        cost = self._modelled(units, power)
        if not self._found:
            return cost
        nearest = min(self._found, key=lambda one: (abs(one - power), one))
        model, found = self._found[nearest]
        prior = self._element_cost(nearest) * self._prior
        return Cost(
            cost.size_bytes
            * _ratio(found.size_bytes + prior.size_bytes, model.size_bytes + prior.size_bytes),
            cost.elements
            * _ratio(found.elements + prior.elements, model.elements + prior.elements),
            cost.memory_bytes
            * _ratio(
                found.memory_bytes + prior.memory_bytes, model.memory_bytes + prior.memory_bytes
            ),
        )

    def learn(self, unit: Unit, power: int, cost: Cost) -> None:
        """Note what a unit took."""
        model, found = self._found.get(power, (Cost(), Cost()))
        self._found[power] = model + self._modelled([unit], power), found + cost

    def _modelled(self, units: Iterable[Unit], power: int) -> Cost:
        exact = elements = 0
        for unit in units:
            exact, elements = exact + unit.exact, elements + unit.elements
        of_exact = self._element_cost(self._ladder.floor) * exact
        return of_exact + self._element_cost(power) * (elements - exact)

    def _element_cost(self, power: int) -> Cost:
        """What each element takes that is not exact in any case."""
        ladder = self._ladder
        ends = ladder.end_cost * (ladder.ends_at(power) * self._ends_left)
        return (ladder.at(power) + ends) * (1 / max(1, ladder.elements))


def _ratio(found: float, expected: float) -> float:
    return found / expected if expected else 1.0
