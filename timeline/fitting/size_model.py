"""SizeModel: the bytes of every layer at every resolution, and the plans a size limit allows.

What matters most stays exact longest. Costs come from excerpts of tracks, which are encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from timeline.columns.columns import Float64, Int64
from timeline.fitting.coarsen import (
    EXACT,
    Resolution,
    as_coarse,
    coarsen,
    count_elements,
    count_samples,
)
from timeline.fitting.excerpts import Excerpts, excerpt
from timeline.fitting.merged_slices import draw_coarse
from timeline.fitting.plan import Plan
from timeline.layers import SIZE_LAYERS, SizeLayer, SliceKind
from timeline.tracks.model import Samples, Slices, Track, element_count

__all__ = ["Measure", "SizeModel", "bytes_by_layer"]

EXACT_FIRST = 5
"""So many of the leading layers are made exact before any other is refined at all."""
SEEN_FIRST: SizeLayer = SliceKind.PARTITION.value
"""The layer that is seen before anything is unfolded: as fine as a screen shows before others are
refined, and finer only with what all others leave."""
SCREEN_BINS = 4096
"""Pixels of a wide screen."""
COARSEST = 62
"""The power of two of ns that merges all there is: no time span is longer."""
COUNTED_POWERS = (EXACT, 8, 11, 13, 15, 17, 19, 21, 23, 25, 28, 32, 40, COARSEST)
"""Powers at which slices are counted; between them counts are interpolated."""
SAMPLE_SLICES = 12_288
"""Slices of a layer that are encoded to see what one costs."""
LEAST_SAMPLE = 512
"""Slices that each sampled track adds to its part of those."""
ROUGH_BYTES = 8
"""What a slice or sample takes at most in a file of a large profile, where they are much alike."""
MOST_STARTS = 1 << 20
"""Starts of slices, at most, of which a quantile is taken."""
SAMPLE_TRACKS = 6
"""Tracks of one layer differ: some have arrows and args that others lack."""
LEAST_BYTES_OF_SLICE = 0.05
"""What repeats every step takes a tenth of a byte."""
MERGED_PER_EXACT = 1.4
"""Bytes of a merged slice for each byte of an exact one, where no sample tells."""

Measure = Callable[[Sequence[Track]], int]
"""The bytes that tracks take in the file, descriptors included."""


class SizeModel:
    """What every layer of some tracks would cost in the file at every resolution."""

    def __init__(
        self,
        tracks: Sequence[Track],
        measure: Measure,
        floors: Mapping[SizeLayer, int] | None = None,
    ) -> None:
        """floors: the powers at which layers were merged before; no plan is finer."""
        self._tracks = tracks
        self._floors = floors or {}
        self._measure = measure
        drawn = {track.size_layer for track in tracks}
        self.layers = [layer for layer in SIZE_LAYERS if layer in drawn]
        self._exact_factor: dict[SizeLayer, float] = {}
        self._excerpts = Excerpts()

    def _tracks_of(self, layer: SizeLayer) -> list[Track]:
        return [track for track in self._tracks if track.size_layer == layer]

    @cached_property
    def _base_bytes(self) -> int:
        return self._measure([self._excerpts.run(track, 0, 0) for track in self._tracks])

    @cached_property
    def _exact_bytes(self) -> dict[SizeLayer, float]:
        return {layer: self._element_bytes(self._samples(layer)) for layer in self.layers}

    @cached_property
    def _costs(self) -> dict[SizeLayer, _LayerCosts]:
        """Built when something must be merged; most exports never need them."""
        return {layer: self._layer_costs(layer) for layer in self.layers}

    def plan(self, limit_bytes: float) -> Plan:
        """The finest resolutions whose expected size keeps the limit.

        Leading layers are made exact first, as far as all others at their coarsest allow. The
        rest share one resolution, and what is left over refines layers one by one.
        """
        powers = dict.fromkeys(self.layers, COARSEST)
        leading = self.layers[: self._leading_count()]
        for layer in leading:
            finest = self._finest(powers, layer, limit_bytes)
            powers[layer] = max(finest, self._screen_power) if layer == SEEN_FIRST else finest
        rest = self.layers[len(leading) :]
        leading = [layer for layer in leading if layer != SEEN_FIRST]
        if all(powers[layer] == self._floor(layer) for layer in leading):
            self._refine_together(powers, rest, limit_bytes)
        for layer in rest:
            powers[layer] = self._finest(powers, layer, limit_bytes)
        if SEEN_FIRST in powers:
            powers[SEEN_FIRST] = self._finest(powers, SEEN_FIRST, limit_bytes)
        return Plan(_resolutions(powers), self._expected(powers))

    @cached_property
    def _screen_power(self) -> int:
        """The power of two whose bins are pixels of a screen that shows all of the time."""
        contents = [track.content for track in self._tracks_of(SEEN_FIRST)]
        slices = [content for content in contents if isinstance(content, Slices) and len(content)]
        if not slices:
            return EXACT
        start_ns = min(int(one.start_ns.min()) for one in slices)
        end_ns = max(int(one.end_ns.max()) for one in slices)
        return max((end_ns - start_ns) // SCREEN_BINS, 1).bit_length() - 1

    def finest_plan(self) -> Plan:
        """The plan that merges nothing, or no more than was merged before."""
        expected = self._base_bytes + sum(
            self._exact_model_bytes(layer) * self._exact_factor.get(layer, 1.0)
            for layer in self.layers
        )
        return self._finest_expecting(expected)

    def rough_plan(self) -> Plan:
        """The plan that merges nothing, expected to be rather too large without any measuring."""
        return self._finest_expecting(element_count(self._tracks) * ROUGH_BYTES)

    def coarsest_plan(self) -> Plan:
        """The plan that merges all it can."""
        powers = dict.fromkeys(self.layers, COARSEST)
        return Plan(_resolutions(powers), self._expected(powers))

    def mixed(self, fine: Plan, coarse: Plan, share: float) -> Plan:
        """A plan that is as fine as one for a share of the slices, those that start first."""
        each = max(1, element_count(self._tracks) // MOST_STARTS)
        starts = [self._starts(layer, each) for layer in self.layers]
        until_ns = int(np.quantile(np.concatenate(starts), share, method="nearest"))
        resolutions = {}
        for layer, coarser in coarse.resolutions.items():
            finer = fine.resolutions[layer]
            if finer.power < coarser.power:
                resolutions[layer] = Resolution(coarser.power, finer.power, until_ns)
            else:
                resolutions[layer] = coarser
        expected = share * fine.expected_bytes + (1 - share) * coarse.expected_bytes
        return Plan(resolutions, expected)

    def learn(self, plan: Plan, layer_bytes: Mapping[SizeLayer, float]) -> None:
        """Correct the costs by what the layers of a plan really took."""
        for layer, resolution in plan.resolutions.items():
            real, model = layer_bytes.get(layer, 0.0), self._model_bytes(layer, resolution)
            if not real or not model:
                continue
            if resolution.power == self._floor(layer):
                self._exact_factor[layer] = real / model
            if resolution.power != self._floor(layer) or "_costs" in self.__dict__:
                self._costs[layer].correct(resolution.power, real / model)

    def _floor(self, layer: SizeLayer) -> int:
        return self._floors.get(layer, EXACT)

    def _finest_expecting(self, expected_bytes: float) -> Plan:
        powers = {layer: self._floor(layer) for layer in self.layers}
        return Plan(_resolutions(powers), expected_bytes, finest=True)

    def _model_bytes(self, layer: SizeLayer, resolution: Resolution) -> float:
        """What a layer was expected to cost before any correction."""
        if resolution.power == self._floor(layer):
            return self._exact_model_bytes(layer)
        return self._costs[layer].model_at(resolution.power)

    def _exact_model_bytes(self, layer: SizeLayer) -> float:
        return self._exact_bytes[layer] * element_count(self._tracks_of(layer))

    def _leading_count(self) -> int:
        return sum(1 for layer in self.layers if layer in SIZE_LAYERS[:EXACT_FIRST])

    def _expected(self, powers: Mapping[SizeLayer, int]) -> float:
        return self._base_bytes + sum(
            self._costs[layer].at(power) for layer, power in powers.items()
        )

    def _finest(self, powers: Mapping[SizeLayer, int], layer: SizeLayer, limit: float) -> int:
        """The finest power of one layer that fits beside the others as they are."""
        left_bytes = (
            limit - self._expected({**powers, layer: COARSEST}) + self._costs[layer].at(COARSEST)
        )
        fits = np.flatnonzero(self._costs[layer].cost_bytes <= left_bytes)
        fits = fits[fits >= self._floor(layer)]
        return int(fits[0]) if len(fits) else COARSEST

    def _refine_together(
        self, powers: dict[SizeLayer, int], layers: Sequence[SizeLayer], limit: float
    ) -> None:
        """Give layers the finest power that they can have in common."""
        for power in range(COARSEST + 1):
            shared = {**powers, **{layer: max(power, self._floor(layer)) for layer in layers}}
            if self._expected(shared) <= limit:
                powers.update(shared)
                return

    def _starts(self, layer: SizeLayer, each: int) -> Int64:
        """The starts of every `each`-th slice or sample of a layer."""
        contents = [track.content for track in self._tracks_of(layer) if track.content is not None]
        starts = [
            content.start_ns if isinstance(content, Slices) else content.time_ns
            for content in contents
        ]
        return np.concatenate([start_ns[::each] for start_ns in starts])

    def _layer_costs(self, layer: SizeLayer) -> _LayerCosts:
        exact, merged = np.zeros(len(COUNTED_POWERS)), np.zeros(len(COUNTED_POWERS))
        for track, weight in self._excerpts.of_all(self._tracks_of(layer)):
            if isinstance(track.content, Slices):
                counts = weight * np.array(count_elements(track.content, COUNTED_POWERS))
                exact += counts[:, 0]
                merged += counts[:, 1]
            elif isinstance(track.content, Samples):
                exact += weight * np.array(count_samples(track.content, COUNTED_POWERS))
        untouched = max(
            (power for power, several in zip(COUNTED_POWERS, merged, strict=True) if not several),
            default=EXACT,
        )
        exact, merged = _at_all_powers(exact, untouched), _at_all_powers(merged, untouched)
        exact_bytes = self._exact_bytes[layer]
        merged_bytes = self._merged_slice_bytes(layer)
        costs = _LayerCosts(exact * exact_bytes + merged * merged_bytes, exact + merged)
        if layer in self._exact_factor:
            costs.correct(self._floor(layer), self._exact_factor[layer])
        return costs

    def _samples(self, layer: SizeLayer) -> list[Track]:
        """Excerpts of the longest tracks of a layer, in proportion to their lengths."""
        tracks = self._tracks_of(layer)
        longest = sorted(tracks, key=lambda track: -len(track.content or ()))[:SAMPLE_TRACKS]
        weights = np.array([max(1, len(track.content or ())) for track in longest], float)
        weights /= weights.sum()
        return [
            self._excerpts.middle(track, int(SAMPLE_SLICES * weight) + LEAST_SAMPLE)
            for track, weight in zip(longest, weights, strict=True)
        ]

    def _merged_slice_bytes(self, layer: SizeLayer) -> float:
        """Bytes of one merged slice: what half merged samples take less their exact slices."""
        exact = self._exact_bytes[layer]
        halved = [found for found in map(_halved, self._samples(layer)) if found is not None]
        if not halved:
            return exact * MERGED_PER_EXACT
        tracks = [track for track, _ in halved]
        single = 1 - sum(several for _, several in halved) / element_count(tracks)
        return max(exact * 0.5, (self._element_bytes(tracks) - single * exact) / (1 - single))

    def _element_bytes(self, samples: Sequence[Track]) -> float:
        """Bytes of one slice more: of the second halves of samples, whose names mostly repeat."""
        halves = [excerpt(track, slice(len(track.content or ()) // 2)) for track in samples]
        rest = max(1, element_count(samples) - element_count(halves))
        return max(LEAST_BYTES_OF_SLICE, (self._measure(samples) - self._measure(halves)) / rest)


class _LayerCosts:
    """The bytes of one layer at every power, corrected by what it was found to take.

    What repeats compresses better than what was merged in bins that cut across the repetition,
    so each finding corrects its own power. Between two findings the correction is interpolated by
    how far slices are merged: as long as few are, a layer costs what it costs exactly.
    """

    def __init__(self, cost_bytes: Float64, elements: Float64) -> None:
        self._model_bytes = cost_bytes
        self._merging = -np.log(np.maximum(elements, 1.0))
        self._found: dict[float, float] = {}
        self.cost_bytes = cost_bytes

    def at(self, power: int) -> float:
        """The expected bytes at a power."""
        return float(self.cost_bytes[power])

    def correct(self, power: int, factor: float) -> None:
        """Note that a power costs so many times what the model says."""
        self._found[float(self._merging[power])] = factor
        merges = sorted(self._found)
        factors = np.interp(self._merging, merges, np.log([self._found[one] for one in merges]))
        self.cost_bytes = self._model_bytes * np.exp(factors)

    def model_at(self, power: int) -> float:
        """The bytes at a power before any correction."""
        return float(self._model_bytes[power])


def _at_all_powers(counts: Float64, untouched: int) -> Float64:
    """Counts at every power, from those at the powers counted: they fall in proportion.

    Below the first of these that merges anything nothing is taken to be merged: a plan that
    counts on it would change nothing.
    """
    made = np.expm1(np.interp(np.arange(COARSEST + 1), COUNTED_POWERS, np.log1p(counts)))
    next_power = COUNTED_POWERS[min(COUNTED_POWERS.index(untouched) + 1, len(COUNTED_POWERS) - 1)]
    made[:next_power] = counts[0]
    return made


def bytes_by_layer(
    tracks: Sequence[Track], by_track: Mapping[int | None, float]
) -> dict[SizeLayer, float]:
    """The bytes of each layer, from those of its tracks."""
    made: dict[SizeLayer, float] = {}
    for track in tracks:
        layer = track.size_layer
        if layer is not None:
            made[layer] = made.get(layer, 0.0) + by_track.get(track.id, 0.0)
    return made


def _resolutions(powers: Mapping[SizeLayer, int]) -> dict[SizeLayer, Resolution]:
    return {layer: Resolution(power) for layer, power in powers.items()}


def _halved(track: Track) -> tuple[Track, int] | None:
    """A track at the resolution that leaves about half of it, and its number of merged slices."""
    content = track.content
    if not isinstance(content, Slices):
        return None
    for power, (single, several) in enumerate(count_elements(content, range(COARSEST + 1))):
        if several and (single + several) * 2 <= len(content):
            coarse = coarsen(as_coarse(content), content, Resolution(power))
            return replace(track, content=draw_coarse(coarse, content)), several
    return None
