"""PacedFile: the pieces of a file, made once; how fine its last layer is drawn shows meanwhile.

What merged slices take cannot be foretold to the percent. So all layers but one are written as they
are planned; the units of that one, in order of time, are then as fine as what is left of the limits
allows, given what those before them took.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from functools import partial

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
from timeline.fitting.ladder import COARSEST, PACED_UNITS
from timeline.fitting.limits import Cost, Limits, count_elements_of
from timeline.fitting.merged_slices import count_labels
from timeline.fitting.pace import Pace, PlannedUnit
from timeline.fitting.plan import Plan, Planner
from timeline.fitting.resolve import WholeArrows, at_resolution, count_drawn
from timeline.fitting.units import Unit, make_units
from timeline.frozen import dataclass
from timeline.layers import SIZE_LAYERS, SizeLayer
from timeline.tracks.model import Track, element_count

__all__ = ["AIM", "PacedFile"]

AIM = 0.985
"""What plans aim at, of the limits."""
FILL_FIRST, FILL = 0.99, 0.999
"""What pacing aims at, of the limits: at first, and for the last units."""
GOOD_FILL = 0.985
"""A file that uses so much of the limit that binds is not worth another try of any unit."""
LEAST_UNIT_ELEMENTS, LEAST_UNIT_LEFT = 1 << 10, 1 << 5
"""What a unit has at least, before and after merging: very small pieces compress badly."""
MOST_UNIT_ELEMENTS = 1 << 20
AT_ONCE = 4
"""Units that are paced together, so that threads have work; whatever their number is."""
ONE_BY_ONE = 2 * AT_ONCE
"""The last units are paced one by one."""
LEAST_OF_ROW = 3
"""Units of a row of which those that are made first tell what the last one takes."""
COARSER_BY = (2, 4, 8)
"""By how many rungs units are drawn coarser until the limits are kept, one time after the other."""
MOST_COARSER = 2
"""By so many at most is the one drawn coarser that suffices: it should not stand out."""
GOLDEN = 0x9E3779B97F4A7C15
"""The golden section of 2^64."""
REWRITTEN_SHARE = 0.05
"""Units, at most, that are made again to use what is left of the limits, and as many to keep them
with little lost; or one."""


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
        self.paced = plan.paced
        self.units = make_units(
            tracks, {layer: self._unit_elements(layer) for layer in planner.ladders}, exact
        )
        its = [unit for unit in self.units if unit.layer == self.paced]
        self._its = sorted(its, key=lambda unit: (unit.start_ns, unit.number))
        self._fixed = Cost()
        self._written = set[int]()
        self._groups: list[tuple[Sequence[Unit], int]] = []
        """The units that share a piece, and its bytes, which are not in the cost of any unit."""
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
        grouped = Cost(sum(size_bytes for _, size_bytes in self._groups))
        return sum((made.cost for made in self._made.values()), self._fixed + grouped)

    @property
    def powers(self) -> list[int]:
        """How finely the units that are paced are drawn, in order of time."""
        return [self._made[unit.number].power for unit in self._its]

    def holds(self, fixed: Cost) -> bool:
        """Whether the limits are kept, given what the rest of the file takes."""
        self._fixed = fixed
        return self._limits.hold(self.cost)

    def costs_by_layer(self) -> dict[SizeLayer, tuple[Cost, Cost]]:
        """What each layer takes by now, and what it was expected to take, with its arrows."""
        made = dict[SizeLayer, tuple[Cost, Cost]]()
        shares = {
            unit.number: share
            for units, size_bytes in self._groups
            for unit, share in zip(units, self._share_bytes(units, size_bytes), strict=True)
        }
        for unit in self.units:
            found, expected = made.get(unit.layer, (Cost(), Cost()))
            cost = self._made[unit.number].cost + Cost(shares.get(unit.number, 0.0))
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
        planned = [
            PlannedUnit(made.power, element_count(made.tracks), count_labels(made.tracks))
            for made in (self._made[unit.number] for unit in self._its)
        ]
        self._pace = Pace(self._planner.ladders[self.paced], self._ends_left, self._its, planned)
        left = self._its
        chosen = set[int]()
        for some in _spread(self._its):
            among = self._around(chosen) if len(some) < AT_ONCE else []
            powers = self._choose_powers(left, among)
            self._make(store, [(unit, powers[unit.number]) for unit in some])
            made = {unit.number for unit in some}
            left = [unit for unit in left if unit.number not in made]
            if not among:
                chosen |= {powers[number] for number in made}
        self._use_what_is_left(store)

    def shrink(self, store: PieceStore, fixed: Cost) -> bool:
        """Draw units coarser, one by one, until the limits are kept; whether they are.

        A few first, each the one of which it is expected to suffice and to cost least; then as
        little as can be of those that are drawn finest, and more of all if that is not enough.
        fixed: what the rest of the file takes by now.
        """
        self._fixed = fixed
        rungs = self._planner.ladders[self.paced].rungs
        for _ in range(self._most_rewritten):
            if self._limits.hold(self.cost):
                return True
            coarser = self._coarser_that_suffices()
            if coarser is None:
                break
            self._put(store, coarser[0], *self._piece(*coarser))
        for more in (*COARSER_BY, len(rungs)):
            for unit in self._finest_first():
                if self._limits.hold(self.cost):
                    return True
                before = self._made[unit.number].power
                power = rungs[min(rungs.index(before) + more, len(rungs) - 1)]
                if power != before:
                    self._put(store, unit, *self._piece(unit, power))
        return self._limits.hold(self.cost)

    def _coarser_that_suffices(self) -> tuple[Unit, int] | None:
        """The unit, and the power for it, of which it is expected to suffice and to cost least.

        If one suffices that stays as fine as the coarsest one is, none becomes coarser than that.
        """
        if not self._its:
            return None
        rungs = self._planner.ladders[self.paced].rungs
        stop = rungs.index(max(self.powers)) + 1
        for end in (stop, len(rungs)):
            found = self._best_change(self._its, partial(_next_coarser, rungs[:end]), FILL)
            if found is not None:
                return found
        return None

    @property
    def _is_coarsest(self) -> bool:
        """Whether all is as coarse as can be: then nothing is paced."""
        return all(power == COARSEST for power in self._plan.powers.values())

    @property
    def _most_rewritten(self) -> int:
        """How many units may be made again to come near the limits."""
        return max(1, int(REWRITTEN_SHARE * len(self.units)))

    # -- what is planned -----------------------------------------------------------------------

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

    def _choose_powers(self, left: Sequence[Unit], among: Sequence[int]) -> dict[int, int]:
        """The finest powers of the units that are left: two, the finer one for the first in time.

        left: in order of time. among: the powers that may be chosen, ascending; any if empty. The
        last ones would make up for all that the others took too much or too little otherwise.
        """
        if self._is_coarsest:
            return {unit.number: COARSEST for unit in left}
        room = self._limits * (FILL if among else FILL_FIRST)
        pace, spent = self._pace, self.cost

        def fits(power: int) -> bool:
            return room.hold(spent + pace.expected(left, power))

        rungs = among or self._planner.ladders[self.paced].rungs
        at = min(bisect_left(rungs, self._plan.powers[self.paced]), len(rungs) - 1)
        while at < len(rungs) - 1 and not fits(rungs[at]):
            at += 1
        while at > 0 and fits(rungs[at - 1]):
            at -= 1
        fine, coarse = rungs[max(0, at - 1)], rungs[at]

        def is_too_fine(count: int) -> bool:
            first, rest = pace.expected(left[:count], fine), pace.expected(left[count:], coarse)
            return not room.hold(spent + first + rest)

        finer = bisect_left(range(1, len(left) + 1), True, key=is_too_fine)
        return {unit.number: fine if at < finer else coarse for at, unit in enumerate(left)}

    def _around(self, powers: Set[int]) -> list[int]:
        """The powers from two finer than these to two coarser, ascending; none for none."""
        rungs = self._planner.ladders[self.paced].rungs
        places = [rungs.index(power) for power in powers]
        return list(rungs[max(0, min(places) - 2) : max(places) + 3]) if places else []

    def _finest_first(self) -> list[Unit]:
        """The units that are paced, those drawn finest first; those mostly exact come last."""

        def order(unit: Unit) -> tuple[bool, int, int]:
            is_exact = 2 * unit.exact >= unit.elements
            return is_exact, self._made[unit.number].power, -unit.start_ns

        return sorted(self._its, key=order)

    def _use_what_is_left(self, store: PieceStore) -> None:
        """Draw a few units finer that were drawn too coarse, as far as that fits.

        Little finer than most are drawn: what they would take then, others tell.
        """
        if self._is_coarsest or not self._its:
            return
        rungs = self._planner.ladders[self.paced].rungs
        finest = max(0, rungs.index(sorted(self.powers)[len(self.powers) // 2]) - 2)
        tries, left = self._most_rewritten, self._its
        while self._limits.share(self.cost) < GOOD_FILL and tries:
            finer = self._best_change(left, lambda at: rungs[finest:at], 1.0)
            if finer is None:
                return
            unit, power = finer
            before = self._made[unit.number]
            made, piece = self._piece(unit, power)
            self._pace.learn(unit, power, made.cost)
            if self._limits.hold(self.cost - before.cost + made.cost):
                self._put(store, unit, made, piece)
            left = [other for other in left if other is not unit]
            tries -= 1

    def _best_change(
        self, units: Iterable[Unit], powers_at: Callable[[int], Sequence[int]], part: float
    ) -> tuple[Unit, int] | None:
        """The unit, and the power for it, with which most of a part of the limits should be used.

        powers_at: the powers that a unit may get, given the place of its own among all.
        """
        rungs, spent = self._planner.ladders[self.paced].rungs, self.cost
        fitting: list[tuple[float, int, int, Unit]] = []
        for unit in units:
            made = self._made[unit.number]
            for power in powers_at(rungs.index(made.power)):
                expected = self._pace.expected_again(unit, made.power, made.cost, power)
                share = self._limits.share(spent - made.cost + expected)
                if share <= part:
                    fitting.append((share, power, -unit.number, unit))
        if not fitting:
            return None
        _, power, _, unit = max(fitting, key=lambda one: one[:3])
        return unit, power

    def _make(self, store: PieceStore, powers: Sequence[tuple[Unit, int]]) -> None:
        """Make the pieces of some units, in threads, and note what they took."""
        found = (
            self._maker.threads.map(lambda one: self._piece(*one), powers)
            if len(powers) > 1
            else [self._piece(*one) for one in powers]
        )
        for (unit, power), (made, piece) in zip(powers, found, strict=True):
            self._put(store, unit, made, piece)
            self._pace.learn(unit, power, self._made[unit.number].cost)

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
        """Hold a piece of several units."""
        store.put(units[0].number, piece)
        self._groups.append((units, len(piece)))
        for unit in units:
            made = self._made[unit.number]
            self._note(unit, replace(made, cost=self._limits.cost(0, made.tracks)))

    def _share_bytes(self, units: Sequence[Unit], size_bytes: int) -> list[float]:
        """The bytes that each of the units of a piece takes of it, as they were expected."""
        expected = [self._expected(unit).size_bytes for unit in units]
        # Parts end at whole bytes, so that together they are what the piece takes, exactly.
        ends = np.rint(np.cumsum(expected) * (size_bytes / (sum(expected) or 1.0)))
        ends[-1] = size_bytes
        shares: list[float] = np.diff(ends, prepend=0).tolist()
        return shares

    def _expected(self, unit: Unit) -> Cost:
        """What a unit was expected to take as it is, with the arrows that are drawn."""
        ladder, made = self._planner.ladders[unit.layer], self._made[unit.number]
        exact = unit.exact if made.power > ladder.floor else 0
        merged = ladder.at(made.power) * ((unit.elements - exact) / max(1, ladder.elements))
        ends = count_elements_of(made.tracks) - element_count(made.tracks)
        return ladder.exact(exact, exact) + merged + ladder.end_cost * ends

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


def _next_coarser(rungs: Sequence[int], at: int) -> Sequence[int]:
    """The rungs behind one that a unit may get which is drawn coarser alone."""
    return rungs[at + 1 :][:MOST_COARSER]


def _spread(units: Sequence[Unit]) -> Iterator[Sequence[Unit]]:
    """Units some at a time, those of any time among the first: so what these take tells what all
    do. Then the last ones, that fill what is left, one by one: merged ones of rows that others
    have told of, if there are as many.

    Steps are the golden section of all, which no number of ranks or threads divides: in any other
    step the first ones might all be of the same.
    """
    places = sorted(range(len(units)), key=lambda at: at * GOLDEN % (1 << 64))
    ordered = [units[at] for at in places]
    known = Counter(unit.rows for unit in units)
    told = [unit for unit in ordered if not unit.exact and known[unit.rows] >= LEAST_OF_ROW]
    last = (told if len(told) >= ONE_BY_ONE else ordered)[-ONE_BY_ONE:]
    numbers = {unit.number for unit in last}
    first = [unit for unit in ordered if unit.number not in numbers]
    for at in range(0, len(first), AT_ONCE):
        yield first[at : at + AT_ONCE]
    for unit in last:
        yield [unit]
