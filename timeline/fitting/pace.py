"""Pace: what the rest of a layer is expected to take, given what was written of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import numpy as np

from timeline.columns.columns import Float64, Rows
from timeline.fitting.ladder import Ladder
from timeline.fitting.limits import Cost
from timeline.fitting.units import Unit
from timeline.frozen import dataclass

__all__ = ["Pace", "PlannedUnit"]

PRIOR_UNITS = 1
"""Units of which estimates are worth as much as what was found."""
PRIOR_ROW_UNITS = 2
"""The same of the units of one row, of which all others tell something too."""
ONE = Cost(1.0, 1.0, 1.0)
LABEL_ELEMENTS = 6
"""As many merged slices take the bytes that a label takes: four to nine, as measured."""
NEAR = 0.5
"""What is found at a power tells so much of the next one, and that of the one behind it."""
_Rows = tuple[tuple[int, str], ...]
"""The rows that a unit has a part of: of most it is one."""


@dataclass
class _Found:
    """What was found of some units beside what they were expected to take."""

    found: Cost = field(default_factory=Cost)
    expected: Cost = field(default_factory=Cost)
    units: int = 0

    def add(self, found: Cost, expected: Cost, weight: float = 1.0) -> None:
        self.found += found * weight
        self.expected += expected * weight
        self.units += 1

    def correct(self, cost: Cost) -> Cost:
        """What is expected, corrected by how far off the expectation was."""
        found, expected = self.found, self.expected
        return Cost(
            cost.size_bytes * _ratio(found.size_bytes, expected.size_bytes),
            cost.elements * _ratio(found.elements, expected.elements),
            cost.memory_bytes * _ratio(found.memory_bytes, expected.memory_bytes),
        )


@dataclass
class _Known:
    """What was asked for, which stays as it is until more is learned.

    each: what an element takes by power. rows: (n, 3) how many times that those of each unit take.
    exact: (n, 3) what is exact of each unit.
    """

    each: dict[int, Cost] = field(default_factory=dict)
    rows: Float64 | None = None
    exact: Float64 | None = None


@dataclass(frozen=True)
class PlannedUnit:
    """A unit as it is planned: at which power, how many slices or samples it has then, exact ones
    too, and how many distinct labels its merged slices have.

    Slices that are merged leave the more of others in a unit, the longer they are; and labels take
    more bytes than what has them.
    """

    power: int
    elements: int
    labels: int


class Pace:
    """What units of a layer take at a power, corrected by what was found.

    What is exact at any power is corrected apart from what is merged. Each unit names anew what it
    holds, which weighs more the less that is: so what was found tells most of units that are merged
    alike, or of which about as much is exact. And units of one row are alike: the calls of a thread
    that does the same again and again take a fifth of those of another one.
    """

    def __init__(
        self,
        ladder: Ladder,
        ends_left: float,
        units: Sequence[Unit],
        planned: Sequence[PlannedUnit],
    ) -> None:
        """ends_left: which part of the ends of arrows on exact slices is drawn."""
        self._ladder, self._ends_left = ladder, ends_left
        self._place = {unit.number: place for place, unit in enumerate(units)}
        self._elements = np.array([unit.elements for unit in units], np.float64)
        self._exact_elements = [unit.exact for unit in units]
        self._prior_elements = PRIOR_UNITS * float(self._elements.sum()) / max(1, len(units))
        exact = np.array(self._exact_elements, np.float64)
        left = np.array([it.elements for it in planned], np.float64) - exact
        labels = np.array([it.labels for it in planned], np.float64)
        of_all = [ladder.at(it.power, sized=False).elements for it in planned]
        weights = np.stack([left + LABEL_ELEMENTS * labels, left, left], axis=1)
        weights /= np.maximum(1.0, of_all)[:, None]
        sums = weights.sum(axis=0)
        merged = self._elements.sum() - exact.sum()
        self._merged_elements = weights * (merged / np.where(sums > 0, sums, 1.0))
        """How many elements of the layer are as those of each unit that are merged, in bytes, in
        elements and in memory, (n, 3)."""
        self._row = [unit.rows for unit in units]
        self._exact: dict[int, _Found] = {}
        """By how many bits the number of exact elements has."""
        self._merged: dict[int, _Found] = {}
        """By power."""
        self._exact_rows: dict[_Rows, _Found] = {}
        self._merged_rows: dict[_Rows, _Found] = {}
        """By row, beside what all rows let expect."""
        self._known = _Known()

    def expected(self, units: Iterable[Unit], power: int) -> Cost:
        """What units take at a power."""
        at = np.array([self._place[unit.number] for unit in units], np.intp)
        total = self._merged_costs(power, at).sum(axis=0)
        if self._merges(power):
            total = total + self._exact_costs()[at].sum(axis=0)
        return Cost(*total.tolist())

    def expected_again(self, unit: Unit, before: int, cost: Cost, power: int) -> Cost:
        """What a unit takes at a power, given what it took at the one before."""
        expected, first = self.expected([unit], power), self.expected([unit], before)
        return _Found(cost, first).correct(expected)

    def learn(self, unit: Unit, power: int, cost: Cost) -> None:
        """Note what a unit took; what less of it is, exact or merged, took what was expected."""
        place = self._place[unit.number]
        count = self._exact_elements[place] if self._merges(power) else 0
        bits, elements = count.bit_length(), self._elements_at(power, np.array([place]))[0]
        row = self._row[place]
        exact = self._exact_each(bits) * count
        merged = _times(self._merged_each(power), elements)
        exact_of_row = _of_row(self._exact_rows, row, exact)
        merged_of_row = _of_row(self._merged_rows, row, merged)
        if (exact_of_row.size_bytes, exact_of_row.elements) > (
            merged_of_row.size_bytes,
            merged_of_row.elements,
        ):
            found, expected = _less(cost, merged_of_row), self._exact_cost(bits) * count
            expected = _of_row(self._exact_rows, row, expected)
            self._exact.setdefault(bits, _Found()).add(found, expected)
            self._exact_rows.setdefault(row, _Found()).add(found, exact)
        else:
            found, expected = _less(cost, exact_of_row), self._element_cost(power)
            expected = _of_row(self._merged_rows, row, _times(expected, elements))
            self._merged.setdefault(power, _Found()).add(found, expected)
            self._merged_rows.setdefault(row, _Found()).add(found, merged)
        self._known = _Known()

    def _merges(self, power: int) -> bool:
        """Whether anything is merged at a power: then what is exact is told apart."""
        return power > self._ladder.floor

    def _elements_at(self, power: int, at: Rows) -> Float64:
        """How many elements of the layer are as those of units that are not told apart, (k, 3)."""
        if self._merges(power):
            merged: Float64 = self._merged_elements[at]
            return merged
        elements: Float64 = np.repeat(self._elements[at, None], 3, axis=1)
        return elements

    def _merged_costs(self, power: int, at: Rows) -> Float64:
        """What units take beside what is told apart, (k, 3)."""
        known = self._known
        if power not in known.each:
            known.each[power] = self._merged_each(power)
        if known.rows is None:
            known.rows = self._ratios(self._merged_rows)
        each = np.array(_numbers(known.each[power]))
        costs: Float64 = self._elements_at(power, at) * known.rows[at] * each
        return costs

    def _exact_costs(self) -> Float64:
        """What is exact of each unit where the rest is merged, (n, 3)."""
        if self._known.exact is None:
            bits = [count.bit_length() for count in self._exact_elements]
            each = {some: _numbers(self._exact_each(some)) for some in set(bits)}
            counts = np.array(self._exact_elements)[:, None] * self._ratios(self._exact_rows)
            self._known.exact = counts * np.array([each[some] for some in bits])
        return self._known.exact

    def _ratios(self, rows: Mapping[_Rows, _Found]) -> Float64:
        """How many times what all rows let expect the row of each unit takes, (n, 3)."""
        ratios = {row: _numbers(_of_row(rows, row, ONE)) for row in set(self._row)}
        return np.array([ratios[row] for row in self._row])

    def _exact_each(self, bits: int) -> Cost:
        """What each element takes that is exact, by what was found."""
        each = self._exact_cost(bits)
        return self._found_near(self._exact, bits, each).correct(each)

    def _merged_each(self, power: int) -> Cost:
        """What each element takes that is merged, by what was found of any row."""
        each = self._element_cost(power)
        return self._found_near(self._merged, power, each).correct(each)

    def _found_near(self, found: Mapping[int, _Found], key: int, each: Cost) -> _Found:
        """All that was found, which weighs less the farther its key is."""
        prior = each * self._prior_elements
        made = _Found(prior, prior)
        for other, its in found.items():
            made.add(its.found, its.expected, NEAR ** abs(other - key))
        return made

    def _exact_cost(self, bits: int) -> Cost:
        """What each element was expected to take, of so many bits' number of exact ones."""
        ladder = self._ladder
        ends = ladder.ends_at(ladder.floor) * self._ends_left / max(1, ladder.elements)
        return ladder.exact(1, 1 << bits >> 1) + ladder.end_cost * ends

    def _element_cost(self, power: int) -> Cost:
        """What each element was expected to take that is not exact in any case."""
        ladder = self._ladder
        ends = ladder.end_cost * (ladder.ends_at(power) * self._ends_left)
        return (ladder.at(power) + ends) * (1 / max(1, ladder.elements))


def _of_row(rows: Mapping[_Rows, _Found], row: _Rows, cost: Cost) -> Cost:
    """What all rows let expect, corrected by what was found of one."""
    its = rows.get(row)
    if its is None:
        return cost
    prior = its.expected * (PRIOR_ROW_UNITS / its.units)
    return _Found(prior + its.found, prior + its.expected).correct(cost)


def _numbers(cost: Cost) -> tuple[float, float, float]:
    return cost.size_bytes, cost.elements, cost.memory_bytes


def _times(each: Cost, elements: Float64) -> Cost:
    """What elements (3,) take in bytes, in elements and in memory."""
    size, count, memory = elements.tolist()
    return Cost(each.size_bytes * size, each.elements * count, each.memory_bytes * memory)


def _less(found: Cost, other: Cost) -> Cost:
    """What is left without another cost, none of it below zero."""
    left = found - other
    return Cost(max(0.0, left.size_bytes), max(0.0, left.elements), max(0.0, left.memory_bytes))


def _ratio(found: float, expected: float) -> float:
    return found / expected if expected else 1.0
