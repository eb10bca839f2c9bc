"""The plan: a level for each layer, such that the most important slices stay exact longest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from timeline.analysis.ordinary_steps import StepRun
from timeline.columns.columns import Int64, ascending
from timeline.fitting.limits import Cost, Limits
from timeline.fitting.sizes import COARSEST, LEVELS, LayerSize
from timeline.layers import COUNTERS, SIZE_LAYERS, SizeLayer, SliceKind
from timeline.tracks.model import Slices, Track

EXACT_FIRST = 5
"""The leading layers, each of which is refined as far as possible before any other."""
SEEN_FIRST: tuple[SizeLayer, ...] = (SliceKind.OVERLAP.value, SliceKind.PARTITION.value)
"""Layers that show where time goes.

They are refined to the width of a screen before others, and further only if all others leave room,
because tasks show more.
"""
SCREEN_BINS = 4096
"""Width of a wide screen in pixels."""
LEVELS_FOR_EXACT = 2
"""Number of levels by which layers may become coarser so that a more important one is exact."""
COUNTERS_SHARE = 1 / 8
"""The share of the limits that counters may take if slices must be merged."""
STEPS_SHARE, ASKED_STEPS_SHARE = 1 / 4, 3 / 4
"""Shares of the limits that exact steps may take: automatically chosen, and requested ones."""


@dataclass(frozen=True)
class ExactSteps:
    """Runs of steps that stay exact, in the order in which they were chosen.

    windows_ns: by rank, disjoint [start, end) in order of time, in which nothing is merged. shares:
    by layer, the share of its elements in the windows.
    """

    runs: tuple[StepRun, ...] = ()
    windows_ns: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    shares: Mapping[SizeLayer, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A level for each layer, and one layer with a first part drawn one level finer.

    part: share of the elements of the refined layer, from 0 to 1. costs: expected cost of each
    layer.
    """

    levels: Mapping[SizeLayer, int]
    refined: SizeLayer
    finer_level: int
    part: float
    costs: Mapping[SizeLayer, Cost]


@dataclass
class Planner:
    """Planner of the levels of layers, given the size of each layer and of the rest of the file.

    sizes: the most important layer first. base: cost of the rest of the file. screen_level: finest
    level that a screen shows. exact: the part that stays exact at any level.
    """

    sizes: Mapping[SizeLayer, LayerSize]
    base: Cost
    screen_level: int
    exact: ExactSteps = field(default_factory=ExactSteps)

    @cached_property
    def whole(self) -> Cost:
        """Return the cost of a file without any further merging."""
        return sum((size.at(size.floor) for size in self.sizes.values()), self.base)

    def correct(self, plan: Plan, drawn: Mapping[SizeLayer, Cost], written: Cost) -> None:
        """Correct the sizes of layers by those in a file that was written by a plan.

        drawn: cost of each layer in the file. written: cost of the whole file.
        """
        for layer, cost in drawn.items():
            part = plan.part if layer == plan.refined else 0.0
            level = plan.levels[layer] * (1 - part) + plan.finer_level * part
            self.sizes[layer].correct(level, cost.ratio(plan.costs[layer]))
        self.base = sum((cost * -1 for cost in drawn.values()), written)

    def coarsest(self) -> Plan:
        """Return the plan that merges as much as possible, whatever the limits."""
        largest = max(self.sizes, key=lambda layer: self.sizes[layer].elements)
        levels = dict.fromkeys(self.sizes, COARSEST)
        return Plan(levels, largest, COARSEST, 0.0, self._costs(levels))

    def plan(self, limits: Limits) -> Plan:
        """Return the finest plan that is expected to keep the limits.

        Layers start as coarse as can be, and are refined one after the other as far as the limits
        allow: the leading ones, counters up to a part of the limits, the rest together at one
        level, and then each alone with what is left.
        """
        levels = dict.fromkeys(self.sizes, COARSEST)
        leading = [layer for layer in self.sizes if layer in SIZE_LAYERS[:EXACT_FIRST]]
        rest = [layer for layer in self.sizes if layer not in {*leading, COUNTERS}]
        for layer in leading:
            finest = self.screen_level if layer in SEEN_FIRST else 0
            self._refine(levels, [layer], limits, finest)
        if COUNTERS in levels:
            self._refine(levels, [COUNTERS], limits, alone=limits * COUNTERS_SHARE)
        self._refine(levels, rest, limits)
        self._make_exact(levels, rest, limits)
        for layer in (*rest, COUNTERS, *SEEN_FIRST):
            if layer in levels:
                self._refine(levels, [layer], limits)
        return self._with_part(levels, limits)

    def _refine(
        self,
        levels: dict[SizeLayer, int],
        layers: Sequence[SizeLayer],
        limits: Limits,
        finest: int = 0,
        alone: Limits | None = None,
    ) -> None:
        """Give layers the finest level in common at which the limits are kept.

        Args:
            finest: the finest level to choose, unless exact slices take no more.
            alone: limits for these layers alone.
        """
        now = [levels[layer] for layer in layers]
        coarsest = max(now, default=COARSEST)
        choices = [level for level in LEVELS if finest <= level <= coarsest] or [coarsest]

        def at(level: int) -> dict[SizeLayer, int]:
            return {
                layer: min(before, max(level, self.sizes[layer].floor))
                for layer, before in zip(layers, now, strict=True)
            }

        def fits(level: int) -> bool:
            chosen = at(level)
            if alone is not None and not alone.hold(self._sum(chosen)):
                return False
            return self._keeps({**levels, **chosen}, limits)

        chosen = at(_first_that_fits(choices, fits))
        exact = at(0)
        if limits.share(self._sum(exact)) <= limits.share(self._sum(chosen)):
            chosen = exact  # many different slices compress worse than the single ones
        levels.update(chosen)

    def _make_exact(
        self, levels: dict[SizeLayer, int], layers: Sequence[SizeLayer], limits: Limits
    ) -> None:
        """Make layers exact if that makes less important ones only a few levels coarser."""
        coarser = dict[SizeLayer, int]()
        for layer in layers:
            place = LEVELS.index(levels[layer]) + LEVELS_FOR_EXACT
            coarser[layer] = LEVELS[min(place, len(LEVELS) - 1)]
        for at, layer in enumerate(layers[:-1], 1):
            less = {other: coarser[other] for other in layers[at:]}
            exact = {**levels, **less, layer: self.sizes[layer].floor}
            if self._keeps(exact, limits):
                levels.update(exact)

    def _with_part(self, levels: Mapping[SizeLayer, int], limits: Limits) -> Plan:
        """Choose the layer to refine in part: the one with most to gain."""
        costs = self._costs(levels)
        merged = [layer for layer, size in self.sizes.items() if levels[layer] > size.floor]
        if not merged:
            largest = max(costs, key=lambda layer: limits.share(costs[layer]))
            return Plan(levels, largest, levels[largest], 0.0, costs)
        finer = {layer: self.sizes[layer].next_finer(levels[layer]) for layer in merged}
        more = {layer: self._cost(layer, finer[layer]) + costs[layer] * -1 for layer in merged}
        refined = max(more, key=lambda layer: limits.share(more[layer]))
        part = limits.part_that_fits(sum(costs.values(), self.base), more[refined])
        expected = costs[refined] + more[refined] * part
        return Plan(levels, refined, finer[refined], part, {**costs, refined: expected})

    def _keeps(self, levels: Mapping[SizeLayer, int], limits: Limits) -> bool:
        return limits.hold(self.base + self._sum(levels))

    def _sum(self, levels: Mapping[SizeLayer, int]) -> Cost:
        return sum(self._costs(levels).values(), Cost())

    def _costs(self, levels: Mapping[SizeLayer, int]) -> dict[SizeLayer, Cost]:
        return {layer: self._cost(layer, level) for layer, level in levels.items()}

    def _cost(self, layer: SizeLayer, level: int) -> Cost:
        size, share = self.sizes[layer], self.exact.shares.get(layer, 0.0)
        cost = size.at(level)
        if not share or level <= size.floor:
            return cost
        return cost * (1 - share) + size.at(size.floor) * share


def _first_that_fits(choices: Sequence[int], fits: Callable[[int], bool]) -> int:
    """Return the first choice that fits, of some from fine to coarse; the last if none does."""
    if len(choices) == 1 or fits(choices[0]):
        return choices[0]
    return choices[bisect_left(choices, True, 1, len(choices) - 1, key=fits)]


def screen_level(tracks: Sequence[Track]) -> int:
    """Return the level whose bins are pixels of a screen that shows all slices of tracks."""
    bounds = [
        (int(content.start_ns.min()), int(content.end_ns.max()))
        for content in (track.content for track in tracks)
        if isinstance(content, Slices) and len(content)
    ]
    if not bounds:
        return 0
    span_ns = max(end for _, end in bounds) - min(start for start, _ in bounds)
    return max(span_ns // SCREEN_BINS, 1).bit_length() - 1


def choose_exact_steps(
    runs: Iterable[StepRun],
    ranks: Sequence[int],
    tracks: Sequence[Track],
    sizes: Mapping[SizeLayer, LayerSize],
    limits: Limits,
) -> ExactSteps:
    """Choose runs of steps until the next one would exceed the limits.

    Args:
        ranks: the rank at each place.
        limits: for the runs alone.
    """
    starts = _Starts(tracks)
    chosen, within, cost = list[StepRun](), dict.fromkeys(sizes, 0), Cost()
    windows: dict[int, list[tuple[int, int]]] = {}
    for run in runs:
        rank = ranks[run.place]
        counts = starts.count(rank, run.start_ns, run.end_ns)
        for layer, count in counts.items():
            size = sizes[layer]
            cost += size.at(size.floor) * (count / max(1, size.elements))
        if not limits.hold(cost):
            break
        chosen.append(run)
        windows.setdefault(rank, []).append((run.start_ns, run.end_ns))
        for layer, count in counts.items():
            within[layer] += count
    return ExactSteps(
        tuple(chosen),
        {rank: tuple(_joined(own)) for rank, own in windows.items()},
        {layer: min(1.0, count / max(1, sizes[layer].elements)) for layer, count in within.items()},
    )


def _joined(windows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join windows that overlap or touch; in order of time."""
    last: tuple[int, int] | None = None
    for start_ns, end_ns in sorted(windows):
        if last is not None and start_ns <= last[1]:
            last = last[0], max(last[1], end_ns)
            continue
        if last is not None:
            yield last
        last = start_ns, end_ns
    if last is not None:
        yield last


class _Starts:
    """Starts of slices and samples by rank and layer; a rank is sorted when it is needed."""

    def __init__(self, tracks: Sequence[Track]) -> None:
        self._tracks: dict[int, list[Track]] = {}
        self._sorted: dict[int, dict[SizeLayer, Int64]] = {}
        for track in tracks:
            if track.size_layer is not None and track.rank is not None and track.content:
                self._tracks.setdefault(track.rank, []).append(track)

    def count(self, rank: int, start_ns: int, end_ns: int) -> dict[SizeLayer, int]:
        """Count the slices and samples of each layer of a rank that begin in a window."""
        if rank not in self._sorted:
            self._sorted[rank] = self._sort(rank)
        return {
            layer: int(np.searchsorted(starts_ns, end_ns) - np.searchsorted(starts_ns, start_ns))
            for layer, starts_ns in self._sorted[rank].items()
        }

    def _sort(self, rank: int) -> dict[SizeLayer, Int64]:
        by_layer: dict[SizeLayer, list[Int64]] = {}
        for track in self._tracks.get(rank, []):
            content = track.content
            if content is not None and track.size_layer is not None:
                starts_ns = content.start_ns if isinstance(content, Slices) else content.time_ns
                by_layer.setdefault(track.size_layer, []).append(starts_ns)
        return {layer: ascending(np.concatenate(starts)) for layer, starts in by_layer.items()}
