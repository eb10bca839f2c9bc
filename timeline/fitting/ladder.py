"""Ladder: what one layer would take of a file at each resolution, from samples that are encoded."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import numpy as np

from timeline.encoders.batches import FIRST_SEQUENCE, TrackBatch
from timeline.encoders.compression import Compression
from timeline.encoders.piece_maker import PieceMaker
from timeline.fitting.coarsen import EXACT, Resolution
from timeline.fitting.excerpts import Excerpts
from timeline.fitting.limits import Cost, Limits
from timeline.fitting.resolve import at_resolution
from timeline.frozen import dataclass
from timeline.layers import SIZE_LAYERS
from timeline.tracks.model import Slices, Track, element_count, no_arrows

__all__ = ["COARSEST", "PACED_UNITS", "RUNGS", "Ladder", "Measure", "make_ladders", "measure_by"]

COARSEST = 62
"""The power of two of ns that merges all there is: no time span is longer."""
RUNGS = (EXACT, 6, *range(8, 35), 36, 38, 40, 44, COARSEST)
"""The powers at which a layer may be drawn."""
LEAST_EXACT_RUN = 1 << 7
"""Of fewer exact elements that follow each other each takes as much as of these."""
ENDS_RUN = 1 << 10
"""Elements of a run that tells what ends of arrows take."""
PACED_UNITS = 48
"""Units that a layer is written in where it is paced, if it is large."""
LEAST_RUN_ELEMENTS, MOST_RUN_ELEMENTS = 1 << 12, 1 << 15
"""Slices or samples that follow each other in a sample: as many as those of a unit where the layer
is paced, for names weigh more the fewer they are; and more where its units are written together."""
SAMPLED_PART, LEAST_SAMPLED, MOST_SAMPLED = 1 / 16, 1 << 14, 1 << 17
"""Which part of the elements of a layer is sampled, and between how many."""
LEAST_SAMPLED_RUNS, MOST_SAMPLED_RUNS, MOST_SHORT_RUNS = 3, 4, 2
"""How many runs are sampled; of those shorter than any unit, which tell of exact steps, fewer."""
BETWEEN_RUNGS = 4
"""Where two measured powers are so many rungs apart at most, those between are not measured."""
TRACK_ELEMENTS, TRACK_BYTES_ELEMENTS = 1 << 11, 1 << 6
"""As many elements as take the time that a track takes, and the bytes, however short it is."""
MOST_TRACKS = 12
"""Short tracks of a run, for the time that they take."""
FEW_ELEMENTS = 1 << 16
"""Short tracks that take no longer than so many elements are all taken."""


class Measure(Protocol):
    """Tells what the slices and samples of tracks take in a file, together with their arrows.

    sized: whether their bytes are asked for, for which they are encoded; 0 is told if not.
    """

    def __call__(self, tracks: Sequence[Track], /, *, sized: bool = True) -> Cost: ...


def measure_by(maker: PieceMaker, limits: Limits, compression: Compression) -> Measure:
    """What encodes tracks for a file, to tell what they take of its limits."""

    def measure(tracks: Sequence[Track], *, sized: bool = True) -> Cost:
        batch = TrackBatch(tuple(enumerate(tracks, FIRST_SEQUENCE)), maker.first_ns)
        size_bytes = len(maker.make(batch, compression, arrows=True)) if sized else 0
        return limits.cost(size_bytes, tracks)

    return measure


@dataclass(frozen=True, eq=False)
class _Sample:
    """Tracks that are encoded together, each of which counts `weight` times.

    Two are equal only where they are one: comparing tracks would compare all that they hold.
    """

    tracks: tuple[Track, ...]
    weight: float


class Ladder:
    """What one layer takes at each power: elements without arrows, and arrow ends apart.

    An end of an arrow is drawn as long as neither slice is merged, so ends are counted here and
    added up over all layers by whoever plans.
    """

    def __init__(
        self, tracks: Sequence[Track], measure: Measure, floor: int, excerpts: Excerpts
    ) -> None:
        """floor: the power at which the layer was merged before; nothing is finer."""
        self.floor = floor
        self.elements = element_count(tracks)
        self._measure = measure
        self._tracks, self._excerpts = tracks, excerpts
        sampled = int(self.elements * SAMPLED_PART)
        self._sampled = min(max(sampled, LEAST_SAMPLED), MOST_SAMPLED)
        self._run = MOST_RUN_ELEMENTS
        self._by_run: dict[int, dict[int, list[_Sample]]] = {}
        """The samples at each power, by how many elements their runs have."""
        self._costs: dict[_Sample, Cost] = {}
        self._unsized: dict[_Sample, Cost] = {}
        self._measured: dict[int, Cost] = {}
        """What the samples take at each power, in runs as they are now."""
        self._factors = 1.0, 1.0, 1.0
        """How many times the bytes, the elements and the memory of the samples the layer takes."""
        self._ends: dict[int, float] = {}

    @property
    def rungs(self) -> tuple[int, ...]:
        """The powers at which the layer can be drawn, the finest first."""
        return (self.floor, *(power for power in RUNGS if power > self.floor))

    def at(self, power: int, *, sized: bool = True) -> Cost:
        """What the layer takes at a power, without any arrows, and without bytes unless `sized`."""
        power = max(power, self.floor)
        if not sized:
            return self._corrected(self._sum(power, sized=False))
        if (near := self._near(power, self._measured)) is not None:
            return self._corrected(near.cost(self._measured))
        if power not in self._measured:
            self._measured[power] = self._sum(power, sized=True)
        return self._corrected(self._measured[power])

    def knows(self, power: int, *, sized: bool) -> bool:
        """Whether it is known already what the layer takes at a power."""
        power = max(power, self.floor)
        if sized:
            return power in self._measured or self._near(power, self._measured) is not None
        samples = self._at.get(power, ())
        return bool(samples) and all(sample in self._unsized for sample in samples)

    def sample_as_written(self, *, paced: bool) -> None:
        """Sample the layer in runs as short as the units of one that is paced, or in long ones."""
        run = max(self.elements // PACED_UNITS, LEAST_RUN_ELEMENTS)
        run = min(run, MOST_RUN_ELEMENTS) if paced else MOST_RUN_ELEMENTS
        if run != self._run:
            self._run, self._measured, self._ends = run, {}, {}

    def exact(self, elements: float, run: float) -> Cost:
        """What some elements take that are exact, so many of which follow each other each time.

        Each time all names are written anew, which weighs the more the fewer elements there are.
        """
        run = min(max(int(run), LEAST_EXACT_RUN), self._run)
        length = 1 << run.bit_length() - 1 if run < LEAST_RUN_ELEMENTS else self._run
        total, found = Cost(), 0.0
        for sample in self._sampled_in(length)[self.floor]:
            total += self._cost(sample, sized=True)
            found += sample.weight * element_count(sample.tracks)
        return self._corrected(total) * (elements / max(1.0, found))

    @property
    def _at(self) -> dict[int, list[_Sample]]:
        """The samples at each power that is known."""
        return self._sampled_in(self._run)

    def _sampled_in(self, run: int) -> dict[int, list[_Sample]]:
        """The samples in runs of so many elements, at each power that is known."""
        if run not in self._by_run:
            samples = list(_samples(self._tracks, self._excerpts, run, self._sampled))
            self._by_run[run] = {self.floor: samples}
        return self._by_run[run]

    def ends_at(self, power: int) -> float:
        """How many ends of arrows lie on slices that are not merged at a power."""
        power = max(power, self.floor)
        if (near := self._near(power, self._at)) is not None:
            return near.between(self.ends_at(near.finer), self.ends_at(near.coarser))
        if power not in self._ends:
            self._ends[power] = sum(
                sample.weight * _arrow_ends(sample.tracks) for sample in self._resolved(power)
            )
        return self._ends[power]

    @cached_property
    def end_cost(self) -> Cost:
        """What an end of an arrow takes, by the sample that has most of them; a short one if any.

        It hardly depends on how many there are, and longer ones take the time of what is between.
        """
        for run in (ENDS_RUN, self._run):
            samples = self._sampled_in(run)[self.floor]
            most = max(samples, key=lambda sample: _arrow_ends(sample.tracks), default=None)
            if most is not None and (ends := _arrow_ends(most.tracks)):
                return self._measure_end(most, ends)
        return Cost(0.0, 1)

    def _measure_end(self, sample: _Sample, ends: int) -> Cost:
        """What each of the ends of arrows of a sample takes."""
        with_arrows = self._measure(sample.tracks) * sample.weight
        more = self._corrected(with_arrows - self._cost(sample, sized=True)) * (1 / sample.weight)
        return Cost(max(0.0, more.size_bytes) / ends, 1, max(0.0, more.memory_bytes) / ends)

    def correct(self, found: Cost, expected: Cost) -> None:
        """Note what the layer takes, and what it was expected to take."""
        size, elements, memory = self._factors
        self._factors = (
            size * _factor(found.size_bytes, expected.size_bytes),
            elements * _factor(found.elements, expected.elements),
            memory * _factor(found.memory_bytes, expected.memory_bytes),
        )

    def _corrected(self, cost: Cost) -> Cost:
        size, elements, memory = self._factors
        return Cost(cost.size_bytes * size, cost.elements * elements, cost.memory_bytes * memory)

    def _sum(self, power: int, *, sized: bool) -> Cost:
        return sum((self._cost(sample, sized) for sample in self._resolved(power)), Cost())

    def _near(self, power: int, known: Container[int]) -> _Near | None:
        """The powers on either side of one that is not known itself, if they are near.

        None of a small layer, all of which is measured at no cost; nor if one would be that at
        which nothing is merged: what is merged may take more or less, whatever the power.
        """
        if power in known or self.elements <= self._sampled:
            return None
        rungs = self.rungs
        at = rungs.index(power)
        finer = next((one for one in reversed(range(1, at)) if rungs[one] in known), None)
        coarser = next((one for one in range(at + 1, len(rungs)) if rungs[one] in known), None)
        if finer is None or coarser is None or coarser - finer > BETWEEN_RUNGS:
            return None
        return _Near(rungs[finer], rungs[coarser], (at - finer) / (coarser - finer))

    def _resolved(self, power: int) -> list[_Sample]:
        """The samples at a power, made from those at the next finer one that is known."""
        if power not in self._at:
            finer = max(known for known in self._at if known < power)
            self._at[power] = [_at_power(sample, power) for sample in self._at[finer]]
        return self._at[power]

    def _cost(self, sample: _Sample, sized: bool) -> Cost:
        known = self._costs if sized else self._unsized
        if sample not in known:
            bare = [_without_arrows(track) for track in sample.tracks]
            known[sample] = self._measure(bare, sized=sized) * sample.weight
        return known[sample]


@dataclass(frozen=True)
class _Near:
    """The powers on either side of one, and which part of the way leads to it.

    From one to the other, what is left shrinks by about the same factor at each rung.
    """

    finer: int
    coarser: int
    part: float

    def cost(self, known: Mapping[int, Cost]) -> Cost:
        """A cost between those that are known."""
        one, other = known[self.finer], known[self.coarser]
        return Cost(
            self.between(one.size_bytes, other.size_bytes),
            self.between(one.elements, other.elements),
            self.between(one.memory_bytes, other.memory_bytes),
        )

    def between(self, one: float, other: float) -> float:
        """A number between those at the finer and the coarser power."""
        return one ** (1 - self.part) * other**self.part if one and other else 0.0


def _factor(found: float, expected: float) -> float:
    return found / expected if found and expected else 1.0


def _at_power(sample: _Sample, power: int) -> _Sample:
    """A sample at a power; the same where nothing of it is merged."""
    resolution = Resolution(power)
    tracks = tuple(at_resolution(track, resolution) for track in sample.tracks)
    same = all(made is track for made, track in zip(tracks, sample.tracks, strict=True))
    return sample if same else replace(sample, tracks=tracks)


def make_ladders(
    tracks: Sequence[Track], measure: Measure, floors: Mapping[str, int]
) -> dict[str, Ladder]:
    """A ladder for each layer that is drawn, the most important first."""
    excerpts = Excerpts()
    by_layer: dict[str, list[Track]] = {}
    for track in tracks:
        if track.size_layer is not None:
            by_layer.setdefault(track.size_layer, []).append(track)
    return {
        layer: Ladder(by_layer[layer], measure, floors.get(layer, EXACT), excerpts)
        for layer in SIZE_LAYERS
        if layer in by_layer
    }


def _samples(
    tracks: Sequence[Track], excerpts: Excerpts, run: int, sampled: int
) -> Iterator[_Sample]:
    """Runs of the long tracks, evenly spread over all of them, and of short tracks likewise.

    run: how many elements are encoded together, if there are as many among those that are sampled.
    """
    run = min(run, sampled // LEAST_SAMPLED_RUNS)
    runs = min(sampled // run, MOST_SHORT_RUNS if run < LEAST_RUN_ELEMENTS else MOST_SAMPLED_RUNS)
    long = [track for track in tracks if len(track.content or ()) > run]
    short = [track for track in tracks if 0 < len(track.content or ()) <= run]
    every = element_count(long)
    work = element_count(short) + TRACK_ELEMENTS * len(short)
    short_runs = max(1, round(runs * work / max(1, work + every)))
    if long:
        long_runs = min(max(1, runs - short_runs), -(-every // run))
        chosen = tuple(_runs(long, every, long_runs, run, excerpts))
        for one in chosen:
            yield _Sample((one,), every / element_count(chosen))
    if short:
        if work <= FEW_ELEMENTS:
            short_runs, run = 1, work
        chosen_tracks = list(_runs_of_tracks(short, short_runs, run))
        weight = _weigh(short) / sum(map(_weigh, chosen_tracks))
        for some in chosen_tracks:
            yield _Sample(some, weight)


def _weigh(tracks: Sequence[Track]) -> int:
    """What short tracks take, about, in elements."""
    return element_count(tracks) + TRACK_BYTES_ELEMENTS * len(tracks)


def _runs_of_tracks(tracks: Sequence[Track], runs: int, run: int) -> Iterator[tuple[Track, ...]]:
    """So many runs of short tracks that follow each other, as they do in a file, where what is
    alike is no nearer: those of one rank stand between a track and the same one of the next.
    """
    ends = np.cumsum([_weigh([track]) for track in tracks])
    every = int(ends[-1])
    runs = min(runs, -(-every // run))
    size = min(run, every // runs)
    most = len(tracks) if runs == 1 else MOST_TRACKS
    for number in range(runs):
        before = number * every // runs + (every // runs - size) // 2
        first, stop = np.searchsorted(ends, [before, before + size - 1], side="right")
        yield tuple(tracks[first : min(stop + 1, first + most)])


def _runs(
    tracks: Sequence[Track], every: int, runs: int, run: int, excerpts: Excerpts
) -> Iterator[Track]:
    """So many runs at even distances in the elements of all tracks together."""
    size = min(run, every // runs)
    ends, before = [], 0
    for track in tracks:
        before += len(track.content or ())
        ends.append(before)
    for number in range(runs):
        middle = (2 * number + 1) * every // (2 * runs)
        at = next(place for place, end in enumerate(ends) if middle < end)
        count = len(tracks[at].content or ())
        first = min(max(0, middle - (ends[at] - count) - size // 2), count - size)
        yield excerpts.run(tracks[at], first, first + size)


def _without_arrows(track: Track) -> Track:
    content = track.content
    if not isinstance(content, Slices) or not len(content.arrows.arrow):
        return track
    return replace(track, content=replace(content, arrows=no_arrows()))


def _arrow_ends(tracks: Sequence[Track]) -> int:
    return sum(
        len(track.content.arrows.arrow) for track in tracks if isinstance(track.content, Slices)
    )
