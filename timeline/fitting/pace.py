"""Pace: what the rest of a layer is expected to take, given what was written of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from timeline.fitting.ladder import Ladder
from timeline.fitting.limits import Cost
from timeline.fitting.units import Unit
from timeline.frozen import dataclass

__all__ = ["Pace"]

PRIOR_UNITS = 1
"""Units of which estimates are worth as much as what was found."""
NEAR = 0.5
"""What is found at a power tells so much of the next one, and that of the one behind it."""


@dataclass
class _Found:
    """What was found of some units beside what they were expected to take."""

    found: Cost = field(default_factory=Cost)
    expected: Cost = field(default_factory=Cost)

    def add(self, found: Cost, expected: Cost, weight: float = 1.0) -> None:
        self.found += found * weight
        self.expected += expected * weight

    def correct(self, cost: Cost) -> Cost:
        """What is expected, corrected by how far off the expectation was."""
        found, expected = self.found, self.expected
        return Cost(
            cost.size_bytes * _ratio(found.size_bytes, expected.size_bytes),
            cost.elements * _ratio(found.elements, expected.elements),
            cost.memory_bytes * _ratio(found.memory_bytes, expected.memory_bytes),
        )


class Pace:
    """What units of a layer take at a power, corrected by what was found.

    What is exact at any power is corrected apart from what is merged. Each unit names anew what it
    holds, which weighs more the less that is: so what was found tells most of units that are merged
    alike, or of which about as much is exact.
    """

    def __init__(
        self,
        ladder: Ladder,
        ends_left: float,
        units: Sequence[Unit],
        drawn: Sequence[tuple[int, int]],
    ) -> None:
        """drawn: the power at which each unit is planned, and how many slices or samples it has
        then, the exact ones too. ends_left: which part of the ends of arrows on exact slices is
        drawn.
        """
        self._ladder, self._ends_left = ladder, ends_left
        elements = [unit.elements for unit in units]
        self._prior_elements = PRIOR_UNITS * sum(elements) / max(1, len(elements))
        left = [
            (some - unit.exact) / max(1.0, ladder.at(power, sized=False).elements)
            for unit, (power, some) in zip(units, drawn, strict=True)
        ]
        merged = sum(elements) - sum(unit.exact for unit in units)
        each = merged / (sum(left) or 1.0)
        self._merged_elements = {
            unit.number: each * some for unit, some in zip(units, left, strict=True)
        }
        self._exact: dict[int, _Found] = {}
        """By how many bits the number of exact elements has."""
        self._merged: dict[int, _Found] = {}
        """By power."""
        self._exact_each: dict[int, Cost] = {}
        self._merged_each: dict[int, Cost] = {}
        """What each element takes, as far as is known until more is learned."""

    def expected(self, units: Iterable[Unit], power: int) -> Cost:
        """What units take at a power."""
        merged, exact = 0.0, dict[int, int]()
        for unit in units:
            merged += self._elements_at(unit, power)
            if apart := self._exact_at(unit, power):
                bits = apart.bit_length()
                exact[bits] = exact.get(bits, 0) + apart
        total = self._corrected_merged(power, merged)
        for bits, count in exact.items():
            total += self._corrected_exact(bits, count)
        return total

    def expected_again(self, unit: Unit, before: int, cost: Cost, power: int) -> Cost:
        """What a unit takes at a power, given what it took at the one before."""
        expected = _Found(self.expected([unit], power), self.expected([unit], before))
        return expected.correct(cost)

    def learn(self, unit: Unit, power: int, cost: Cost) -> None:
        """Note what a unit took; what less of it is, exact or merged, took what was expected."""
        count = self._exact_at(unit, power)
        bits, elements = count.bit_length(), self._elements_at(unit, power)
        exact = self._corrected_exact(bits, count)
        merged = self._corrected_merged(power, elements)
        if (exact.size_bytes, exact.elements) > (merged.size_bytes, merged.elements):
            expected = self._exact_cost(bits) * count
            self._exact.setdefault(bits, _Found()).add(_less(cost, merged), expected)
        else:
            expected = self._element_cost(power) * elements
            self._merged.setdefault(power, _Found()).add(_less(cost, exact), expected)
        self._exact_each.clear()
        self._merged_each.clear()

    def _exact_at(self, unit: Unit, power: int) -> int:
        """How many elements of a unit are exact where the others are not."""
        return unit.exact if power > self._ladder.floor else 0

    def _elements_at(self, unit: Unit, power: int) -> float:
        """How many elements of the layer are as the others of a unit are; all where all are exact.

        Those that are merged leave the more of others in a unit, the longer they are.
        """
        is_merged = power > self._ladder.floor
        return self._merged_elements[unit.number] if is_merged else unit.elements

    def _corrected_exact(self, bits: int, elements: float) -> Cost:
        if bits not in self._exact_each:
            each = self._exact_cost(bits)
            self._exact_each[bits] = self._found_near(self._exact, bits, each).correct(each)
        return self._exact_each[bits] * elements

    def _corrected_merged(self, power: int, elements: float) -> Cost:
        if power not in self._merged_each:
            each = self._element_cost(power)
            self._merged_each[power] = self._found_near(self._merged, power, each).correct(each)
        return self._merged_each[power] * elements

    def _found_near(self, found: Mapping[int, _Found], key: int, each: Cost) -> _Found:
        """All that was found, which weighs less the farther its key is."""
        prior = each * self._prior_elements
        made = _Found(prior, prior)
        for other, its in found.items():
            made.add(its.found, its.expected, NEAR ** abs(other - key))
        return made

    def _exact_cost(self, bits: int) -> Cost:
        """What each element takes that is exact, of a number with so many bits in one unit."""
        ladder = self._ladder
        ends = ladder.ends_at(ladder.floor) * self._ends_left / max(1, ladder.elements)
        return ladder.exact(1, 1 << bits >> 1) + ladder.end_cost * ends

    def _element_cost(self, power: int) -> Cost:
        """What each element takes that is not exact in any case."""
        ladder = self._ladder
        ends = ladder.end_cost * (ladder.ends_at(power) * self._ends_left)
        return (ladder.at(power) + ends) * (1 / max(1, ladder.elements))


def _less(found: Cost, other: Cost) -> Cost:
    """What is left without another cost, none of it below zero."""
    left = found - other
    return Cost(max(0.0, left.size_bytes), max(0.0, left.elements), max(0.0, left.memory_bytes))


def _ratio(found: float, expected: float) -> float:
    return found / expected if expected else 1.0
