"""Proves that what was written of a row tells what the rest of it takes, and less of other rows."""

from __future__ import annotations

from collections.abc import Sequence
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
from timeline.fitting.pace import Pace
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


def test_units_of_a_row_take_what_those_before_them_took() -> None:
    """One thread takes four times the other, where the layer lets expect the same of both."""
    tracks = [thread(1, 5_000), thread(2, 1)]
    with PieceMaker(format_of(Path("any.pftrace")), tracks, 0) as maker:
        measure = measure_by(maker, Limits(), Compression.BEST)
        ladder = make_ladders(tracks, measure, {})[LAYER]
        units = make_units(tracks, {LAYER: 6_000}, ExactRuns())
        drawn = [(POWERS[0], element_count(merged(unit, POWERS[0]))) for unit in units]
        pace = Pace(ladder, 1.0, units, drawn)
        costs = {
            (unit.number, power): measure(merged(unit, power)) for unit in units for power in POWERS
        }
        for unit in units[::2]:
            power = POWERS[unit.number // 2 % 2]
            pace.learn(unit, power, costs[unit.number, power])
        sums = dict.fromkeys((1, 2), (Cost(), Cost()))
        for unit in units[1::2]:
            row, power = unit.tracks[0].id, POWERS[0]
            found, expected = sums[row]
            sums[row] = found + costs[unit.number, power], expected + pace.expected([unit], power)
    (dense, as_dense), (alike, as_alike) = sums[1], sums[2]
    assert dense.size_bytes > 2 * alike.size_bytes
    assert as_dense.size_bytes == pytest.approx(dense.size_bytes, rel=0.25)
    assert as_alike.size_bytes == pytest.approx(alike.size_bytes, rel=0.6)
