"""PacedFile: the pieces of a file, made once; how fine its last layer is drawn shows meanwhile.

What merged slices take cannot be foretold to the percent. So all layers but one are written as they
are planned; the units of that one, in order of time, are then as fine as what is left of the limits
allows, given what those before them took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from timeline.encoders.batches import TrackBatch
from timeline.encoders.compression import Compression
from timeline.encoders.piece_maker import PieceMaker
from timeline.encoders.piece_store import PieceStore
from timeline.encoders.pieces import Piece
from timeline.encoders.track_parts import PART_ELEMENTS, split_track
from timeline.fitting.coarsen import Resolution
from timeline.fitting.drawn_layer import DrawnLayer
from timeline.fitting.exact_runs import ExactRuns
from timeline.fitting.ladder import COARSEST
from timeline.fitting.limits import Cost, Limits, count_elements_of
from timeline.fitting.pace import Pace
from timeline.fitting.plan import Plan, Planner
from timeline.fitting.resolve import WholeArrows, at_resolution, count_drawn
from timeline.fitting.units import Unit, make_units
from timeline.frozen import dataclass
from timeline.layers import SIZE_LAYERS, SizeLayer
from timeline.tracks.model import Track, element_count

__all__ = ["AIM", "PacedFile"]

AIM = 0.985
"""What plans aim at, of the limits."""
FILL = 0.999
"""What pacing aims at, of the limits."""
GOOD_FILL = 0.985
"""A file that uses so much of the limit that binds is not worth another try of any unit."""
PACED_UNITS = 96
"""Units of the layer that is paced, where it is large."""
LEAST_UNIT_ELEMENTS, LEAST_UNIT_LEFT = 1 << 10, 1 << 5
"""What a unit has at least, before and after merging: very small pieces compress badly."""
MOST_UNIT_ELEMENTS = 1 << 20
AT_ONCE = 4
"""Units that are paced together, so that threads have work; whatever their number is."""
ONE_BY_ONE = 2 * AT_ONCE
"""The last units are paced one by one."""
REWRITTEN_SHARE = 0.05
"""Units, at most, that are made again to use what is left of the limits; or one."""


@dataclass(frozen=True)
class _Made:
    """A unit as it is in the file: at which power, what it takes, and its tracks."""

    power: int
    cost: Cost
    tracks: tuple[Track, ...]


class PacedFile:
    """Makes the pieces of a file that keeps its limits."""

    def __init__(
        self,
        tracks: Sequence[Track],
        plan: Plan,
        planner: Planner,
        exact: ExactRuns,
        limits: Limits,
        maker: PieceMaker,
        compression: Compression,
        tell: Callable[[int], None],
    ) -> None:
        """compression: how hard what is exact is compressed. tell: is told how many slices and
        samples are written, whenever there are more.
        """
        self._planner, self._plan = planner, plan
        self._exact, self._limits = exact, limits
        self._maker, self._compression, self._tell = maker, compression, tell
        self.paced = self._choose_paced()
        self.units = make_units(
            tracks, {layer: self._unit_elements(layer) for layer in planner.ladders}, exact
        )
        its = [unit for unit in self.units if unit.layer == self.paced]
        self._its = sorted(its, key=lambda unit: (unit.start_ns, unit.number))
        self._fixed = Cost()
        self._written = set[int]()
        powers = {unit.number: plan.powers[unit.layer] for unit in self.units}
        if not self._is_coarsest:
            powers.update(self._planned_powers())
        resolved = self._maker.map(
            lambda unit: self._resolve(unit, powers[unit.number]), self.units
        )
        self._made = {
            unit.number: _Made(powers[unit.number], Cost(), made)
            for unit, made in zip(self.units, resolved, strict=True)
        }
        self._arrows = WholeArrows(self.tracks())
        every = self._count_paced_ends()
        for number, made in self._made.items():
            self._made[number] = replace(made, tracks=tuple(map(self._arrows.of, made.tracks)))
        # Which part of the ends of arrows on exact slices of the paced layer is drawn.
        self._ends_left = self._count_paced_ends() / every if every else 1.0

    def tracks(self) -> Iterator[Track]:
        """All tracks with slices or samples, in parts, as they are drawn."""
        return (track for made in self._made.values() for track in made.tracks)

    @property
    def cost(self) -> Cost:
        """What the file takes by now."""
        return sum((made.cost for made in self._made.values()), self._fixed)

    def holds(self, fixed: Cost) -> bool:
        """Whether the limits are kept, given what the rest of the file takes."""
        self._fixed = fixed
        return self._limits.hold(self.cost)

    def costs_by_layer(self) -> dict[SizeLayer, tuple[Cost, Cost]]:
        """What each layer takes by now, and what it was expected to take, with its arrows."""
        made = dict[SizeLayer, tuple[Cost, Cost]]()
        for unit in self.units:
            found, expected = made.get(unit.layer, (Cost(), Cost()))
            cost = self._made[unit.number].cost
            made[unit.layer] = found + cost, expected + self._expected(unit)
        return made

    def count_arrows(self) -> int:
        """How many arrows are drawn, of which all ends are."""
        return WholeArrows(self.tracks()).count

    def layers(self) -> tuple[DrawnLayer, ...]:
        """How each layer is drawn, the most important first."""
        by_layer: dict[SizeLayer, list[Unit]] = {}
        for unit in self.units:
            by_layer.setdefault(unit.layer, []).append(unit)
        return tuple(
            self._drawn_layer(layer, by_layer[layer]) for layer in SIZE_LAYERS if layer in by_layer
        )

    def write(self, store: PieceStore, fixed: Cost) -> None:
        """Make all pieces.

        fixed: what the rest of the file takes.
        """
        self._fixed = fixed
        others = [unit for unit in self.units if unit.layer != self.paced]
        for compression in dict.fromkeys((Compression.BEST, self._compression)):
            groups = list(
                self._grouped([one for one in others if self._compression_of(one) == compression])
            )
            pieces = self._maker.make_all(map(self._batch_of, groups), compression)
            for group, (piece, _) in zip(groups, pieces, strict=True):
                self._put_group(store, group, piece)
        pace = Pace(self._planner.ladders[self.paced], self._ends_left, self._its)
        first = 0
        while first < len(self._its):
            left = len(self._its) - first
            count = min(AT_ONCE, left - ONE_BY_ONE) if left > ONE_BY_ONE else 1
            group, rest = self._its[first : first + count], self._its[first + count :]
            power = self._choose_power(pace, group, rest)
            self._make(store, [(unit, power) for unit in group], pace)
            first += count
        self._use_what_is_left(store, pace)

    def shrink(self, store: PieceStore, fixed: Cost) -> bool:
        """Draw the last units coarser until the limits are kept; whether they are.

        fixed: what the rest of the file takes by now.
        """
        self._fixed = fixed
        step = 1
        for unit in reversed(self._its):
            if self._limits.hold(self.cost):
                break
            step = self._shrink_unit(store, unit, step)
        return self._limits.hold(self.cost)

    def _shrink_unit(self, store: PieceStore, unit: Unit, step: int) -> int:
        """Draw a unit coarser, as much as keeps the limits, or as coarse as can be.

        A unit of many tracks takes long to make, so not every power is tried.

        step: how many rungs coarser is tried first.

        Returns:
            How many rungs coarser it is; `step` where it cannot be coarser.
        """
        before = self._made[unit.number]
        rungs = self._planner.ladders[self.paced].rungs
        coarser = [power for power in rungs if power > before.power]
        spent = self.cost - before.cost
        held: tuple[_Made, Piece] | None = None
        below, at = 0, min(step, len(coarser))
        while at > below:
            made, piece = self._piece(unit, coarser[at - 1])
            if self._limits.hold(spent + made.cost):
                held = made, piece
                break
            self._put(store, unit, made, piece)
            below, at = at, min(2 * at, len(coarser))
        if held is None:
            return below or step
        while at - below > 1:
            middle = (below + at) // 2
            made, piece = self._piece(unit, coarser[middle - 1])
            if self._limits.hold(spent + made.cost):
                held, at = (made, piece), middle
            else:
                below = middle
        self._put(store, unit, *held)
        return at

    @property
    def _is_coarsest(self) -> bool:
        """Whether all is as coarse as can be: then nothing is paced."""
        return all(power == COARSEST for power in self._plan.powers.values())

    # -- what is planned -----------------------------------------------------------------------

    def _choose_paced(self) -> SizeLayer:
        """The layer by which most could be won: what is written last.

        Where all is as coarse as can be, the one that holds most: the smallest file that there is
        does not depend on the limits.
        """
        powers, ladders = self._plan.powers, self._planner.ladders
        if self._is_coarsest:
            return max(ladders, key=lambda layer: ladders[layer].elements)

        def gain(layer: SizeLayer) -> tuple[bool, float]:
            finer = self._planner.next_finer(layer, powers[layer])
            is_merged = powers[layer] > self._planner.ladders[layer].floor
            now, then = (
                self._planner.expected({**powers, layer: power}) for power in (powers[layer], finer)
            )
            more = then - now if is_merged else self._planner.ladders[layer].at(powers[layer])
            return is_merged, self._limits.share(more)

        return max(self._planner.ladders, key=gain)

    def _unit_elements(self, layer: SizeLayer) -> int:
        """How many slices or samples of a layer make a unit: as many as fill a part when merged."""
        ladder = self._planner.ladders[layer]
        left = max(1.0, ladder.at(self._plan.powers[layer]).elements)
        most = min(MOST_UNIT_ELEMENTS, int(PART_ELEMENTS * max(1.0, ladder.elements / left)))
        if layer != self.paced:
            return most
        least = max(LEAST_UNIT_ELEMENTS, int(LEAST_UNIT_LEFT * ladder.elements / left))
        return min(most, max(least, ladder.elements // PACED_UNITS))

    def _planned_powers(self) -> dict[int, int]:
        """The powers of the units that are paced, the first ones finer, as far as is expected."""
        coarse = self._plan.powers[self.paced]
        fine = self._planner.next_finer(self.paced, coarse)
        if fine == coarse:
            return {}
        finer = self._planner.expected({**self._plan.powers, self.paced: fine})
        more = finer - self._plan.expected
        part = (self._limits * FILL).part_that_fits(self._plan.expected, more)
        until = part * sum(unit.elements - unit.exact for unit in self._its)
        powers, before = {}, 0
        for unit in self._its:
            before += unit.elements - unit.exact
            powers[unit.number] = fine if before <= until else coarse
        return powers

    def _count_paced_ends(self) -> int:
        """How many ends of arrows are on slices of the paced layer."""
        its = [track for unit in self._its for track in self._made[unit.number].tracks]
        return count_elements_of(its) - element_count(its)

    # -- pacing --------------------------------------------------------------------------------

    def _choose_power(self, pace: Pace, group: Sequence[Unit], rest: Sequence[Unit]) -> int:
        """The finest power of some units that leaves enough for the rest."""
        if self._is_coarsest:
            return COARSEST
        spent = self.cost
        target = self._limits * FILL

        def fits(power: int, power_of_rest: int) -> bool:
            cost = pace.expected(group, power) + pace.expected(rest, power_of_rest)
            return target.hold(spent + cost)

        coarse = self._plan.powers[self.paced]
        finer = self._planner.next_finer(self.paced, coarse)
        while finer != coarse and fits(finer, finer):
            coarse, finer = finer, self._planner.next_finer(self.paced, finer)
        while coarse != COARSEST and not fits(coarse, coarse):
            finer, coarse = coarse, self._planner.next_coarser(self.paced, coarse)
        while finer != coarse and rest == [] and fits(finer, coarse):
            coarse, finer = finer, self._planner.next_finer(self.paced, finer)
        return finer if fits(finer, coarse) else coarse

    def _use_what_is_left(self, store: PieceStore, pace: Pace) -> None:
        """Draw a few units finer that were drawn too coarse, as far as that fits."""
        if self._is_coarsest:
            return
        target = self._limits
        tries = max(1, int(REWRITTEN_SHARE * len(self.units)))
        tried = set[int]()
        while self._limits.share(self.cost) < GOOD_FILL and tries:
            spent = self.cost
            fitting: list[tuple[float, int, Unit]] = []
            for unit in self._its:
                made = self._made[unit.number]
                finer = self._planner.next_finer(self.paced, made.power)
                then = spent - made.cost + pace.expected([unit], finer)
                if finer != made.power and unit.number not in tried and target.hold(then):
                    fitting.append((self._limits.share(then), finer, unit))
            if not fitting:
                return
            _, finer, unit = max(fitting, key=lambda one: (one[0], -one[2].number))
            before = self._made[unit.number]
            made, piece = self._piece(unit, finer)
            if target.hold(spent - before.cost + made.cost):
                self._put(store, unit, made, piece)
            else:
                tried.add(unit.number)
            tries -= 1

    def _make(
        self, store: PieceStore, powers: Sequence[tuple[Unit, int]], pace: Pace | None
    ) -> None:
        """Make the pieces of some units, in threads, and note what they took."""
        found = (
            self._maker.threads.map(lambda one: self._piece(*one), powers)
            if len(powers) > 1
            else [self._piece(*one) for one in powers]
        )
        for (unit, power), (made, piece) in zip(powers, found, strict=True):
            self._put(store, unit, made, piece)
            if pace is not None:
                pace.learn(unit, power, self._made[unit.number].cost)

    def _piece(self, unit: Unit, power: int) -> tuple[_Made, Piece]:
        made = self._made[unit.number]
        tracks = made.tracks
        if made.power != power:
            tracks = tuple(map(self._arrows.of, self._resolve(unit, power)))
        piece = self._maker.make(self._batch(unit, tracks), self._compression_of(unit, power))
        return _Made(power, self._limits.cost(len(piece), tracks), tracks), piece

    def _compression_of(self, unit: Unit, power: int | None = None) -> Compression:
        """How hard a unit is compressed: merged slices take half as much again if not the most."""
        power = self._made[unit.number].power if power is None else power
        is_exact = power <= self._planner.ladders[unit.layer].floor
        return self._compression if is_exact else Compression.BEST

    def _put(self, store: PieceStore, unit: Unit, made: _Made, piece: Piece) -> None:
        store.put(unit.number, piece)
        self._note(unit, made)

    def _note(self, unit: Unit, made: _Made) -> None:
        self._made[unit.number] = made
        self._written.add(unit.number)
        self._tell(sum(self.units[number].elements for number in self._written))

    def _grouped(self, units: Sequence[Unit]) -> Iterator[list[Unit]]:
        """Units that are encoded together, since they are small by now."""
        group: list[Unit] = []
        elements = 0
        for unit in units:
            group.append(unit)
            elements += element_count(self._made[unit.number].tracks)
            if elements >= PART_ELEMENTS:
                yield group
                group, elements = [], 0
        if group:
            yield group

    def _put_group(self, store: PieceStore, units: Sequence[Unit], piece: Piece) -> None:
        """Hold a piece of several units; each gets its part of the bytes as they were expected."""
        expected = [self._expected(unit).size_bytes for unit in units]
        # Parts end at whole bytes, so that together they are what the piece takes, exactly.
        ends = np.rint(np.cumsum(expected) * (len(piece) / (sum(expected) or 1.0)))
        ends[-1] = len(piece)
        store.put(units[0].number, piece)
        for unit, size_bytes in zip(units, np.diff(ends, prepend=0).tolist(), strict=True):
            made = self._made[unit.number]
            self._note(unit, replace(made, cost=self._limits.cost(size_bytes, made.tracks)))

    def _expected(self, unit: Unit) -> Cost:
        """What a unit was expected to take as it is, with its arrows."""
        planner, layer = self._planner, unit.layer
        exact = planner.element_cost(layer, planner.ladders[layer].floor) * unit.exact
        merged = planner.element_cost(layer, self._made[unit.number].power)
        return exact + merged * (unit.elements - unit.exact)

    def _batch_of(self, units: Sequence[Unit]) -> TrackBatch:
        batches = [self._batch(unit, self._made[unit.number].tracks) for unit in units]
        return TrackBatch([one for batch in batches for one in batch.tracks], self._maker.first_ns)

    def _resolve(self, unit: Unit, power: int) -> tuple[Track, ...]:
        return tuple(
            at_resolution(track, Resolution(power, self._exact.of(track.rank)))
            for track in unit.tracks
        )

    def _batch(self, unit: Unit, tracks: Sequence[Track]) -> TrackBatch:
        parts = (part for track in tracks for part in split_track(track))
        return TrackBatch(tuple(enumerate(parts, unit.sequence)), self._maker.first_ns)

    def _drawn_layer(self, layer: SizeLayer, units: Sequence[Unit]) -> DrawnLayer:
        drawn = count_drawn(track for unit in units for track in self._made[unit.number].tracks)
        coarsest = max(self._made[unit.number].power for unit in units)
        if not drawn.merged:
            return DrawnLayer(layer, self._planner.ladders[layer].floor, drawn)
        until_ns = min(unit.start_ns for unit in units if self._made[unit.number].power == coarsest)
        before = [self._made[unit.number].power for unit in units if unit.start_ns < until_ns]
        if not before:
            return DrawnLayer(layer, coarsest, drawn)
        return DrawnLayer(layer, coarsest, drawn, max(before), until_ns)
