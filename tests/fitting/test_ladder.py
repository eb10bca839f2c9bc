"""Proves that samples tell what a layer takes in a file, also where they could lie to please."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from timeline.columns.strings import StringPool
from timeline.encoders.batches import batch_tracks
from timeline.encoders.compression import Compression
from timeline.encoders.formats import format_of
from timeline.encoders.piece_maker import PieceMaker
from timeline.fitting.coarsen import EXACT, Resolution
from timeline.fitting.excerpts import Excerpts
from timeline.fitting.ladder import COARSEST, Ladder, measure_by
from timeline.fitting.limits import Limits
from timeline.fitting.resolve import at_resolution
from timeline.layers import SliceKind
from timeline.tracks.model import Slices, Track

POWER = 12


def tasks(number: int, kernel: int, count: int, names: int = 40) -> Track:
    """A row of tasks; those with the same `kernel` are alike, whatever rank they are of."""
    random = np.random.default_rng(kernel)
    strings = StringPool()
    codes = strings.codes(f"kernel {kernel} of layer {one} of the model" for one in range(names))
    start_ns = np.cumsum(random.integers(200, 4_000, count))
    end_ns = start_ns + random.integers(1, 200, count)
    slices = Slices(start_ns, end_ns, random.choice(codes, count), strings, SliceKind.TASK)
    return Track(number, None, "tasks", number, content=slices)


@contextmanager
def sampled(tracks: Sequence[Track]) -> Iterator[tuple[PieceMaker, Ladder]]:
    with PieceMaker(format_of(Path("any.pftrace")), tracks, 0) as maker:
        measure = measure_by(maker, Limits(), Compression.BEST)
        yield maker, Ladder(tracks, measure, EXACT, Excerpts())


def bytes_in_file(maker: PieceMaker, tracks: Sequence[Track]) -> int:
    pieces = maker.make_all(batch_tracks(tracks, 0), Compression.BEST)
    return sum(len(piece) for piece, _ in pieces)


@pytest.mark.parametrize("power", [EXACT, POWER])
def test_alike_rows_of_many_ranks_take_what_they_take_apart(power: int) -> None:
    """In a file, the other rows of a rank stand between a row and the same one of the next."""
    tracks = [tasks(rank * 16 + row, row, 400) for rank in range(24) for row in range(16)]
    drawn = [at_resolution(track, Resolution(power)) for track in tracks]
    with sampled(tracks) as (maker, ladder):
        expected = ladder.at(power)
        assert expected.size_bytes == pytest.approx(bytes_in_file(maker, drawn), rel=0.15)
        elements = sum(len(track.content or ()) for track in drawn)
        assert expected.elements == pytest.approx(elements, rel=0.05)


@pytest.mark.parametrize("power", [POWER, 20, COARSEST])
def test_short_and_shorter_rows_of_a_layer_that_is_paced_stand_for_each_other(power: int) -> None:
    """Each takes some bytes, however few its slices are: those that are met first are not all."""
    lengths = (20, 60, 400, 800, 1_200)
    tracks = [tasks(8 * rank + row, row, n) for rank in range(48) for row, n in enumerate(lengths)]
    drawn = [at_resolution(track, Resolution(power)) for track in tracks]
    with sampled(tracks) as (maker, ladder):
        ladder.sample_as_written(paced=True)
        expected = ladder.at(power).size_bytes
        each = 2 * len(lengths)
        units = [drawn[first : first + each] for first in range(0, len(drawn), each)]
        took = sum(bytes_in_file(maker, unit) for unit in units)
        assert expected == pytest.approx(took, rel=0.25)


def test_what_is_exact_takes_more_the_less_of_it_follows_each_other() -> None:
    """A step of a few hundred calls in a unit that is merged writes nearly as many names."""
    (track,) = tracks = [tasks(0, 0, 80_000, names=300)]
    with sampled(tracks) as (maker, ladder):
        for run in (256, 1_024):
            runs = [Excerpts().run(track, at, at + run) for at in range(0, 80_000, 8_000)]
            took = sum(bytes_in_file(maker, [one]) for one in runs)
            expected = ladder.exact(len(runs) * run, run).size_bytes
            assert expected == pytest.approx(took, rel=0.1)
            long = ladder.at(EXACT).size_bytes * len(runs) * run / 80_000
            assert expected > 1.2 * long


def test_a_few_short_rows_are_counted_not_sampled() -> None:
    """A limit of a few thousand events leaves no room for estimates of hundreds."""
    tracks = [tasks(number, number, 40 + 20 * number) for number in range(20)]
    with sampled(tracks) as (_, ladder):
        for power in (EXACT, 10, POWER, 16):
            drawn = [at_resolution(track, Resolution(power)) for track in tracks]
            exactly = sum(len(track.content or ()) for track in drawn)
            assert ladder.at(power, sized=False).elements == exactly


def test_between_two_powers_that_are_near_none_is_measured_and_little_is_off() -> None:
    """What is off is less than units differ by; what is exact tells nothing of what is merged."""
    tracks = [tasks(0, 0, 80_000, names=300)]
    powers = (12, 13, 14, 15, 16)
    with sampled(tracks) as (_, ladder):
        measured = [ladder.at(power) for power in powers]
    with sampled(tracks) as (_, ladder):
        ladder.at(EXACT)
        assert not ladder.knows(8, sized=True)
        ladder.at(powers[0])
        ladder.at(powers[-1])
        for power, one in zip(powers, measured, strict=True):
            assert ladder.knows(power, sized=True)
            assert ladder.at(power).size_bytes == pytest.approx(one.size_bytes, rel=0.2)
            assert ladder.at(power).elements == pytest.approx(one.elements, rel=0.2)
        assert not ladder.knows(18, sized=True)
        assert not ladder.knows(10, sized=True)
