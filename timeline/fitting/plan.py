"""Planner: the power of each layer, so that what matters most stays exact longest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

from timeline.fitting.exact_runs import ExactRuns
from timeline.fitting.ladder import COARSEST, Ladder
from timeline.fitting.limits import Cost, Limits
from timeline.frozen import dataclass
from timeline.layers import COUNTERS, SIZE_LAYERS, SizeLayer, SliceKind
from timeline.tracks.model import Slices, Track

__all__ = ["Plan", "Planner", "screen_power"]

EXACT_FIRST = 5
"""So many of the leading layers are made exact before any other is refined at all."""
SEEN_FIRST: tuple[SizeLayer, ...] = (SliceKind.OVERLAP.value, SliceKind.PARTITION.value)
"""Layers that tell where time goes: as fine as a screen shows before others are refined, and finer
only with what all others leave, since tasks tell more than that."""
SCREEN_BINS = 4096
"""Pixels of a wide screen."""
RUNGS_FOR_EXACT = 2
"""Layers give way by so many rungs, each twice as coarse, to one that matters more."""
MOST_PLANS = 3
"""So often the layer that is paced may turn out to be another one than was taken for it."""
COUNTERS_SHARE = 1 / 8
"""What counters may take of the limits, where slices must be merged."""


@dataclass(frozen=True)
class Plan:
    """A power for each layer, what the file is expected to take, and the layer that is paced."""

    powers: Mapping[SizeLayer, int]
    expected: Cost
    paced: SizeLayer


@dataclass
class Planner:
    """Knows what each layer takes at each power, and what all takes in any case.

    exact: what stays exact whatever the power.
    """

    ladders: Mapping[SizeLayer, Ladder]
    base: Cost
    screen_power: int
    exact: ExactRuns = field(default_factory=ExactRuns)
    arrows: Mapping[tuple[SizeLayer, SizeLayer], int] = field(default_factory=dict)
    """How many lead from slices of one layer to those of another, or of the same."""

    @cached_property
    def whole(self) -> Cost:
        """What a file takes in which nothing is merged that was not merged before."""
        self._sample_as_written(None)
        return self.expected({layer: ladder.floor for layer, ladder in self.ladders.items()})

    def coarsest(self) -> Plan:
        """The plan that merges all it can.

        The layer is paced that holds most: the smallest file does not depend on the limits.
        """
        powers = dict.fromkeys(self.ladders, COARSEST)
        return Plan(powers, self.expected(powers), self._most_elements())

    def expected(self, powers: Mapping[SizeLayer, int], *, sized: bool = True) -> Cost:
        """What a file takes: its rows, the elements of each layer, and the arrows between them.

        sized: whether the bytes of layers are asked for, which takes long.
        """
        total = self.base
        for layer, power in powers.items():
            total += self._cost(layer, power, sized)
        return total + self._arrows(powers)

    def plan(self, limits: Limits) -> Plan:
        """The finest powers that are expected to keep the limits.

        Leading layers are made exact first, as far as all others at their coarsest allow. The
        rest of the slices share one power, and what is left over refines layers one by one.
        Counters are thinned before any slice of the rest is merged, to a part of the limits. The
        layer that is paced is written in short units, which takes more. That is taken to be the
        largest; where another one turns out to be it, all is planned again.
        """
        chosen = self._most_elements(besides=COUNTERS)
        for _ in range(MOST_PLANS):
            paced = chosen
            self._sample_as_written(paced)
            powers = self._plan_with_bytes_if_they_bind(limits)
            chosen = self._choose_paced(powers, limits)
            if chosen == paced:
                break
        return Plan(powers, self.expected(powers), chosen)

    def _most_elements(self, besides: SizeLayer | None = None) -> SizeLayer:
        """The layer that holds most elements, another one than `besides` if one holds any."""

        def order(layer: SizeLayer) -> tuple[bool, int]:
            elements = self.ladders[layer].elements
            return elements > 0 and layer != besides, elements

        return max(self.ladders, key=order)

    def _sample_as_written(self, paced: SizeLayer | None) -> None:
        for layer, ladder in self.ladders.items():
            ladder.sample_as_written(paced=layer == paced)

    def _plan_with_bytes_if_they_bind(self, limits: Limits) -> dict[SizeLayer, int]:
        """Where all fits that is not merged, bytes hardly bind, and to know them takes long."""
        if self.whole.size_bytes <= limits.size_bytes:
            powers = self._plan(replace(limits, size_bytes=0))
            if limits.hold(self.expected(powers)):
                return powers
        return self._plan(limits)

    def _choose_paced(self, powers: Mapping[SizeLayer, int], limits: Limits) -> SizeLayer:
        """The layer by which most could be won: what is written last, of those that hold any."""
        if all(power == COARSEST for power in powers.values()):
            return self.coarsest().paced
        now = self.expected(powers)

        def gain(layer: SizeLayer) -> tuple[bool, bool, float]:
            finer = self.next_finer(layer, powers[layer])
            is_merged = not self._is_exact(powers, layer)
            then = self.expected({**powers, layer: finer})
            more = then - now if is_merged else self.ladders[layer].at(powers[layer])
            return self.ladders[layer].elements > 0, is_merged, limits.share(more)

        return max(self.ladders, key=gain)

    def _plan(self, limits: Limits) -> dict[SizeLayer, int]:
        powers = dict.fromkeys(self.ladders, COARSEST)
        leading = [layer for layer in self.ladders if layer in SIZE_LAYERS[:EXACT_FIRST]]
        rest = [layer for layer in self.ladders if layer not in {*leading, COUNTERS}]
        for layer in leading:
            finest = self._finest(powers, layer, limits)
            if layer in SEEN_FIRST:
                finest = self._as_seen(powers, layer, max(finest, self.screen_power), limits)
            powers[layer] = finest
        if all(self._is_exact(powers, layer) for layer in leading if layer not in SEEN_FIRST):
            exact = {**powers, **{layer: self.ladders[layer].floor for layer in rest}}
            if self._keeps(limits, exact):
                powers = exact
            else:
                if COUNTERS in powers:
                    powers[COUNTERS] = self._counters(powers, limits)
                self._refine_together(powers, rest, limits)
        for layer in (*rest, COUNTERS, *SEEN_FIRST):
            if layer in powers:
                # What is measured meanwhile may take more than it was taken for between others.
                powers[layer] = min(powers[layer], self._finest(powers, layer, limits))
        return powers

    def next_finer(self, layer: SizeLayer, power: int) -> int:
        """The next finer power of a layer; the same where there is none."""
        rungs = self.ladders[layer].rungs
        at = rungs.index(max(power, rungs[0]))
        return rungs[max(at - 1, 0)]

    def exact_cost(self, layer: SizeLayer, elements: int) -> Cost:
        """What so many elements of a layer take that are exact and follow each other."""
        ladder = self.ladders[layer]
        ends = ladder.ends_at(ladder.floor) * elements / max(1, ladder.elements)
        return ladder.exact(elements, elements) + ladder.end_cost * ends

    def end_cost(self) -> Cost:
        """What an end of an arrow takes."""
        ends = [ladder.end_cost for ladder in self.ladders.values()]
        return max(ends, key=lambda cost: cost.size_bytes, default=Cost(0.0, 1))

    def _keeps(self, limits: Limits, powers: Mapping[SizeLayer, int]) -> bool:
        """Whether the limits are kept; nothing is measured once it is clear that they are not."""
        sized, total = limits.size_bytes > 0, self.base

        def is_cheap(layer: SizeLayer) -> tuple[bool, int]:
            ladder = self.ladders[layer]
            return not ladder.knows(powers[layer], sized=sized), -ladder.elements

        for layer in sorted(powers, key=is_cheap):
            total += self._cost(layer, powers[layer], sized)
            if not limits.hold(total):
                return False
        return limits.hold(total + self._arrows(powers))

    def _is_exact(self, powers: Mapping[SizeLayer, int], layer: SizeLayer) -> bool:
        return powers[layer] <= self.ladders[layer].floor

    def _cost(self, layer: SizeLayer, power: int, sized: bool) -> Cost:
        ladder, share = self.ladders[layer], self.exact.shares.get(layer, 0.0)
        cost = ladder.at(power, sized=sized)
        if not share or power <= ladder.floor:
            return cost
        if sized:
            exact = ladder.exact(share * ladder.elements, self.exact.each[layer])
        else:
            exact = ladder.at(ladder.floor, sized=False) * share
        return cost * (1 - share) + exact

    def _arrows(self, powers: Mapping[SizeLayer, int]) -> Cost:
        """What arrows take of which both ends are drawn."""
        return self.end_cost() * self.ends(powers)

    def ends(self, powers: Mapping[SizeLayer, int]) -> float:
        """How many ends of arrows are drawn of which the other end is drawn too.

        Whether one end is on an exact slice tells nothing of the other, but in exact steps.
        """
        drawn = 0.0
        for (one, other), count in self.arrows.items():
            exact = min(self.exact.shares.get(one, 0.0), self.exact.shares.get(other, 0.0))
            kept = self._share_of_ends(one, powers) * self._share_of_ends(other, powers)
            drawn += 2 * count * (exact + (1 - exact) * kept)
        return drawn

    def _share_of_ends(self, layer: SizeLayer, powers: Mapping[SizeLayer, int]) -> float:
        """Which part of the ends on slices of a layer is on slices that are exact."""
        ladder = self.ladders[layer]
        before = ladder.ends_at(ladder.floor)
        return ladder.ends_at(powers[layer]) / before if before else 0.0

    def _finest(self, powers: Mapping[SizeLayer, int], layer: SizeLayer, limits: Limits) -> int:
        """The finest power of one layer that fits beside the others as they are."""
        rungs = self.ladders[layer].rungs

        def fits(at: int) -> bool:
            return self._keeps(limits, {**powers, layer: rungs[at]})

        return rungs[_first_that_fits(len(rungs), fits)]

    def _as_seen(
        self, powers: Mapping[SizeLayer, int], layer: SizeLayer, power: int, limits: Limits
    ) -> int:
        """A power, or the finest one if that takes no more: many unlike slices pack worst."""
        floor = self.ladders[layer].floor
        exact, seen = (
            self.expected({**powers, layer: one}, sized=limits.size_bytes > 0)
            for one in (floor, power)
        )
        return floor if limits.share(exact) <= limits.share(seen) else power

    def _counters(self, powers: Mapping[SizeLayer, int], limits: Limits) -> int:
        """The finest power of counters that leaves most of the limits to slices."""
        rungs, part = self.ladders[COUNTERS].rungs, limits * COUNTERS_SHARE

        def fits(at: int) -> bool:
            its = self._cost(COUNTERS, rungs[at], limits.size_bytes > 0)
            return part.hold(its) and self._keeps(limits, {**powers, COUNTERS: rungs[at]})

        return rungs[_first_that_fits(len(rungs), fits)]

    def _refine_together(
        self, powers: dict[SizeLayer, int], layers: Sequence[SizeLayer], limits: Limits
    ) -> None:
        """Give layers the finest power that they can have in common.

        What matters more is exact where that costs what matters less no more than a few rungs.
        """
        rungs = sorted({power for layer in layers for power in self.ladders[layer].rungs})
        if not rungs:
            return

        def shared(at: int) -> dict[SizeLayer, int]:
            return {layer: max(rungs[at], self.ladders[layer].floor) for layer in layers}

        def fits(at: int) -> bool:
            return self._keeps(limits, {**powers, **shared(at)})

        found = _first_that_fits(len(rungs), fits)
        powers.update(shared(found))
        coarser = shared(min(found + RUNGS_FOR_EXACT, len(rungs) - 1))
        for at, layer in enumerate(layers[:-1]):
            less = {other: coarser[other] for other in layers[at + 1 :]}
            exact = {**powers, **less, layer: self.ladders[layer].floor}
            if self._keeps(limits, exact):
                powers.update(exact)


def _first_that_fits(count: int, fits: Callable[[int], bool]) -> int:
    """The first of so many places, from fine to coarse, that fits; the last where none does."""
    if fits(0):
        return 0
    low, high = 0, count - 1
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle
    return high


def screen_power(tracks: Sequence[Track]) -> int:
    """The power of two of ns whose bins are pixels of a screen that shows all slices of tracks."""
    bounds = [
        (int(content.start_ns.min()), int(content.end_ns.max()))
        for content in (track.content for track in tracks)
        if isinstance(content, Slices) and len(content)
    ]
    if not bounds:
        return 0
    span_ns = max(end for _, end in bounds) - min(start for start, _ in bounds)
    return max(span_ns // SCREEN_BINS, 1).bit_length() - 1
