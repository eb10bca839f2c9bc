"""Proves that what was written of a row tells what the rest of it takes, and less of other rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from timeline.columns.strings import StringPool
from timeline.encoders.compression import Compression
from timeline.encoders.formats import format_of
from timeline.encoders.piece_maker import PieceMaker
from timeline.fitting.coarsen import Resolution
from timeline.fitting.exact_runs import ExactRuns
from timeline.fitting.ladder import make_ladders, measure_by
from timeline.fitting.limits import Cost, Limits
from timeline.fitting.merged_slices import count_labels
from timeline.fitting.pace import Pace, PlannedUnit
from timeline.fitting.resolve import at_resolution
from timeline.fitting.units import Unit, make_units
from timeline.layers import SliceKind
from timeline.tracks.model import Slices, Track, element_count

COUNT = 60_000
LAYER = SliceKind.HOST_CALL.value
POWERS = 16, 17


def thread(number: int, names: int) -> Track:
    """A thread whose calls take the more bytes, the more names they have."""
    random = np.random.default_rng(number)
    strings = StringPool()
    codes = strings.codes(f"{number:03d}{at:07d}" * 3 for at in range(names))
    start_ns = np.arange(COUNT) * 10_000
    length_ns = random.integers(1, 10_000, COUNT)
    slices = Slices(
        start_ns, start_ns + length_ns, random.choice(codes, COUNT), strings, SliceKind.HOST_CALL
    )
    return Track(number, None, f"Thread {number}", number, content=slices)


def merged(unit: Unit, power: int) -> Sequence[Track]:
    return [at_resolution(track, Resolution(power)) for track in unit.tracks]


@dataclass(frozen=True)
class Layer:
    """Units of two threads, what they take at each power, and what is expected of them."""

    units: Sequence[Unit]
    costs: Mapping[tuple[int, int], Cost]
    pace: Pace

    @classmethod
    def of(cls, tracks: Sequence[Track]) -> Layer:
        with PieceMaker(format_of(Path("any.pftrace")), tracks, 0) as maker:
            measure = measure_by(maker, Limits(), Compression.BEST)
            ladder = make_ladders(tracks, measure, {})[LAYER]
            units = make_units(tracks, {LAYER: 6_000}, ExactRuns())
            planned = [
                PlannedUnit(POWERS[0], element_count(drawn), count_labels(drawn))
                for drawn in (merged(unit, POWERS[0]) for unit in units)
            ]
            costs = {
                (unit.number, power): measure(merged(unit, power))
                for unit in units
                for power in POWERS
            }
            return cls(units, costs, Pace(ladder, 1.0, units, planned))

    def of_row(self, row: int, power: int) -> tuple[float, float]:
        """The bytes that the last units of a row take, and those that are expected."""
        its = [unit for unit in self.units if unit.tracks[0].id == row][1::2]
        found = sum(self.costs[unit.number, power].size_bytes for unit in its)
        return found, self.pace.expected(its, power).size_bytes


def test_units_of_a_row_take_what_those_before_them_took() -> None:
    """One thread takes four times the other, where the layer lets expect the same of both."""
    layer = Layer.of([thread(1, 5_000), thread(2, 1)])
    for unit in layer.units[::2]:
        power = POWERS[unit.number // 2 % 2]
        layer.pace.learn(unit, power, layer.costs[unit.number, power])
    dense, expected_of_dense = layer.of_row(1, POWERS[0])
    alike, expected_of_alike = layer.of_row(2, POWERS[0])
    assert dense > 3 * alike
    assert expected_of_dense == pytest.approx(dense, rel=0.25)
    assert expected_of_alike == pytest.approx(alike, rel=0.25)


def test_a_row_tells_what_the_same_of_other_ranks_takes() -> None:
    """Nothing is written of the other rank yet."""
    rows = [thread(1, 5_000), thread(2, 1)]
    others = [replace(track, id=track.id + 10, rank=1) for track in rows]
    layer = Layer.of([*rows, *others])
    for unit in layer.units:
        if unit.tracks[0].id < 10:
            layer.pace.learn(unit, POWERS[0], layer.costs[unit.number, POWERS[0]])
    for other in others:
        found, expected = layer.of_row(other.id, POWERS[0])
        assert expected == pytest.approx(found, rel=0.1)


def test_units_take_more_the_more_labels_they_have() -> None:
    """That is known before anything is written: as many slices are left of both threads."""
    layer = Layer.of([thread(1, 5_000), thread(2, 1)])
    dense, expected_of_dense = layer.of_row(1, POWERS[0])
    alike, expected_of_alike = layer.of_row(2, POWERS[0])
    assert dense > 3 * alike
    assert expected_of_dense > 2 * expected_of_alike
    elements = [layer.pace.expected([unit], POWERS[0]).elements for unit in layer.units]
    assert max(elements) == pytest.approx(min(elements), rel=0.1)
