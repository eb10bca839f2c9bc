"""Proves that a few units show what a layer takes, and that plans spare what matters most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from timeline.columns.strings import StringPool
from timeline.encoders.formats import format_of
from timeline.encoders.piece_maker import PieceMaker
from timeline.encoders.pieces import Compression, batch_tracks
from timeline.fitting.coarsen import EXACT, Resolution, at_resolution
from timeline.fitting.limits import Cost, Limits
from timeline.fitting.plan import Planner
from timeline.fitting.sizes import COARSEST, measure_by, measure_layers
from timeline.layers import SliceKind
from timeline.tracks.model import Slices, Track, element_count

STEP, TASK, CALL = (kind.value for kind in (SliceKind.STEP, SliceKind.TASK, SliceKind.HOST_CALL))


def row(number: int, count: int, kind: SliceKind = SliceKind.TASK) -> Track:
    """A row of slices; those whose number is the same modulo 16 are alike."""
    random = np.random.default_rng(number % 16)
    strings = StringPool()
    codes = strings.codes(f"{kind.value} {number % 16} of layer {one}" for one in range(40))
    start_ns = np.cumsum(random.integers(200, 4_000, count))
    end_ns = start_ns + random.integers(1, 200, count)
    slices = Slices(start_ns, end_ns, random.choice(codes, count), strings, kind)
    return Track(number, None, kind.value, number, content=slices, rank=number // 16)


@contextmanager
def planner_of(tracks: Sequence[Track]) -> Iterator[tuple[PieceMaker, Planner]]:
    with PieceMaker(format_of(Path("any.pftrace")), tracks, 0) as maker:
        measure = measure_by(maker, Limits(), Compression.BEST)
        yield maker, Planner(measure_layers(tracks, measure, {}), Cost(), 0)


@pytest.mark.parametrize("level", [EXACT, 12, 14])
@pytest.mark.parametrize("lengths", [[400] * 384, [20, 60, 400, 800, 1_200] * 48, [80_000]])
def test_a_few_units_show_what_a_layer_takes(level: int, lengths: list[int]) -> None:
    """Rows of many ranks, rows of unlike lengths, and one long row."""
    tracks = [row(number, count) for number, count in enumerate(lengths)]
    drawn = [at_resolution(track, Resolution(level)) for track in tracks]
    with planner_of(tracks) as (maker, planner):
        expected = planner.sizes[TASK].at(level)
        pieces = maker.make_all(batch_tracks(drawn, 0), Compression.BEST)
        took = sum(len(piece) for piece, _ in pieces)
    assert expected.size_bytes == pytest.approx(took, rel=0.35)
    assert expected.elements == pytest.approx(element_count(drawn), rel=0.2)


def test_what_matters_most_stays_exact_longest() -> None:
    """Steps are merged after tasks, and tasks after calls, as the limit shrinks."""
    tracks = [
        row(0, 2_000, SliceKind.STEP),
        row(1, 30_000),
        row(2, 30_000, SliceKind.HOST_CALL),
    ]
    with planner_of(tracks) as (_, planner):
        whole = planner.whole
        for share in (1.0, 0.9, 0.6, 0.3, 0.1, 0.02):
            limits = Limits(whole.size_bytes * share)
            plan = planner.plan(limits)
            assert (limits * 1.001).hold(sum(plan.costs.values(), Cost())) or share < 0.1
            assert plan.levels[STEP] <= plan.levels[TASK] <= plan.levels[CALL]
        assert planner.plan(Limits(1)).levels == dict.fromkeys((STEP, TASK, CALL), COARSEST)
        assert set(planner.plan(limits_of_events(whole)).levels.values()) == {EXACT}


def limits_of_events(cost: Cost) -> Limits:
    return Limits(0, cost.elements)
