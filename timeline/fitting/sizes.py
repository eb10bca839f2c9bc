"""Sizes of layers in a file at each level, measured on a few units of each.

A unit is some short tracks of one layer, or a run of a long one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from timeline.encoders.piece_maker import PieceMaker
from timeline.encoders.pieces import (
    FIRST_SEQUENCE,
    Compression,
    TrackBatch,
    split_track,
)
from timeline.fitting.coarsen import EXACT, Resolution, at_resolution
from timeline.fitting.limits import Cost, Limits
from timeline.layers import SIZE_LAYERS, SizeLayer
from timeline.tracks.model import Track, element_count

COARSEST = 62
"""The level that merges everything: no time span is longer than 2**62 ns."""
LEVELS = (EXACT, 6, *range(8, 35), 36, 38, 40, 44, COARSEST)
"""The levels at which a layer may be drawn, the finest first."""
MEASURED_LEVELS = (EXACT, 6, *range(8, 37, 4), 44, COARSEST)
"""The levels at which samples of large layers are encoded; sizes of others are interpolated."""
UNITS = 32
"""Number of units into which a large layer is divided."""
LEAST_UNIT_ELEMENTS, MOST_UNIT_ELEMENTS = 1 << 11, 1 << 15
"""Minimum and maximum number of slices and samples from which a unit is full."""
SAMPLED_UNITS = 3
"""Number of units measured; odd, so that samples do not repeat with the rows of ranks."""
TRACK_ELEMENTS = 1 << 6
"""The bytes of a track, however short, expressed as a number of elements."""


Measure: TypeAlias = Callable[[Sequence[Track]], Cost]
"""Returns the cost of tracks that are encoded together."""


def measure_by(maker: PieceMaker, limits: Limits, compression: Compression) -> Measure:
    """Return a function that encodes tracks as for a file and returns their cost by its limits."""

    def measure(tracks: Sequence[Track]) -> Cost:
        batch = TrackBatch(tuple(enumerate(tracks, FIRST_SEQUENCE)), maker.first_ns)
        return limits.cost(len(maker.make(batch, compression, arrows=True)), tracks)

    return measure


class LayerSize:
    """The cost of one layer at each level, with its arrows, extrapolated from a few units."""

    def __init__(self, tracks: Sequence[Track], measure: Measure, floor: int) -> None:
        """floor: the level at which the layer was merged before, the finest possible one."""
        self.floor = floor
        self.elements = element_count(tracks)
        units = list(_units(tracks))
        count = min(SAMPLED_UNITS, len(units))
        sampled = [units[(2 * at + 1) * len(units) // (2 * count)] for at in range(count)]
        self._weight = _weigh(units) / max(1, _weigh(sampled))
        self._ratios: dict[float, Cost] = {}
        """The cost of the layer in files, by level, as a multiple of the sampled cost."""
        self._measure = measure
        self._drawn = {floor: [track for unit in sampled for track in unit]}
        self._costs: dict[int, Cost] = {}

    @property
    def levels(self) -> tuple[int, ...]:
        """Return the levels at which the layer can be drawn, the finest first."""
        return (self.floor, *(level for level in LEVELS if level > self.floor))

    def next_finer(self, level: int) -> int:
        """Return the next finer level, or the finest one."""
        levels = self.levels
        return levels[max(levels.index(level) - 1, 0)]

    def at(self, level: int) -> Cost:
        """Return the cost of the layer at a level."""
        level = max(level, self.floor)
        return self._sampled_at(level) * self._ratio_at(level)

    def _sampled_at(self, level: int) -> Cost:
        finer = max((one for one in MEASURED_LEVELS if one < level), default=EXACT)
        if level in MEASURED_LEVELS or finer <= self.floor or self._weight == 1:
            if level not in self._costs:
                self._costs[level] = self._measure(self._sample_at(level)) * self._weight
            return self._costs[level]
        coarser = min(one for one in MEASURED_LEVELS if one > level)
        part = (level - finer) / (coarser - finer)
        return self._sampled_at(finer).between(self._sampled_at(coarser), part)

    def correct(self, level: float, ratio: Cost) -> None:
        """Correct sizes by the ratio of an actual cost at a level to the expected one."""
        self._ratios[level] = self._ratio_at(level) * ratio

    def _ratio_at(self, level: float) -> Cost:
        """Return the ratio at a level, interpolated between the levels at which it is known."""
        finer = max((one for one in self._ratios if one <= level), default=None)
        coarser = min((one for one in self._ratios if one >= level), default=finer)
        if coarser is None:
            return Cost(1.0, 1.0, 1.0)
        if finer is None or finer == coarser:
            return self._ratios[coarser]
        part = (level - finer) / (coarser - finer)
        return self._ratios[finer].between(self._ratios[coarser], part)

    def _sample_at(self, level: int) -> list[Track]:
        """Draw the sampled units, starting from the next finer level at which they are drawn."""
        if level not in self._drawn:
            finer = self._drawn[max(one for one in self._drawn if one < level)]
            resolution = Resolution(level)
            self._drawn[level] = [at_resolution(track, resolution) for track in finer]
        return self._drawn[level]


def _units(tracks: Sequence[Track]) -> Iterator[tuple[Track, ...]]:
    """Yield short tracks of one layer together, and long ones in runs."""
    most = min(max(element_count(tracks) // UNITS, LEAST_UNIT_ELEMENTS), MOST_UNIT_ELEMENTS)
    group: list[Track] = []
    elements = 0
    for track in tracks:
        for part in split_track(track, most):
            group.append(part)
            elements += len(part.content or ())
            if elements >= most:
                yield tuple(group)
                group, elements = [], 0
    if group:
        yield tuple(group)


def _weigh(units: Iterable[Sequence[Track]]) -> int:
    """Return an estimate of the size of units, in elements."""
    return sum(element_count(unit) + TRACK_ELEMENTS * len(unit) for unit in units)


def measure_layers(
    tracks: Sequence[Track], measure: Measure, floors: Mapping[SizeLayer, int]
) -> dict[SizeLayer, LayerSize]:
    """Return the sizes of all layers that hold anything, the most important layer first."""
    by_layer: dict[SizeLayer, list[Track]] = {}
    for track in tracks:
        if track.size_layer is not None and track.content:
            by_layer.setdefault(track.size_layer, []).append(track)
    return {
        layer: LayerSize(by_layer[layer], measure, floors.get(layer, EXACT))
        for layer in SIZE_LAYERS
        if layer in by_layer
    }
