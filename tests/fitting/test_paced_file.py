"""Proves that layers that are written together share what that took as it was expected of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from timeline.columns.strings import StringPool
from timeline.encoders.batches import FIRST_SEQUENCE, TrackBatch
from timeline.encoders.compression import Compression
from timeline.encoders.formats import format_of
from timeline.encoders.piece_maker import PieceMaker
from timeline.encoders.piece_store import PieceStore
from timeline.fitting.exact_runs import ExactRuns
from timeline.fitting.ladder import make_ladders
from timeline.fitting.limits import Cost, Limits
from timeline.fitting.paced_file import PacedFile
from timeline.fitting.plan import Plan, Planner
from timeline.layers import SliceKind
from timeline.tracks.model import Slices, Track

COUNT = 4_000
POWER = 20
"""One bin holds all slices of the first two layers, of which the finer power would win nothing."""


def row(number: int, kind: SliceKind, rank: int | None, count: int = COUNT) -> Track:
    strings = StringPool()
    names = strings.codes(f"{kind.value} {number}" for number in range(50))
    start_ns = np.arange(count) * 100
    random = np.random.default_rng(number)
    end_ns = start_ns + random.integers(1, 100, count)
    slices = Slices(start_ns, end_ns, random.choice(names, count), strings, kind)
    return Track(number, None, kind.value, number, content=slices, rank=rank)


def test_layers_of_one_piece_differ_from_what_was_expected_alike() -> None:
    """Whether most of a layer is exact or all of it is merged: else plans take one for small."""
    tracks = [
        row(0, SliceKind.STEP, 0),
        row(1, SliceKind.PARTITION, None),
        row(2, SliceKind.TASK, None, 10 * COUNT),
    ]
    with PieceMaker(format_of(Path("any.pftrace")), tracks, 0) as maker, PieceStore() as store:

        def measure(some: Sequence[Track], *, sized: bool = True) -> Cost:
            batch = TrackBatch(tuple(enumerate(some, FIRST_SEQUENCE)), 0)
            size_bytes = len(maker.make(batch, Compression.BEST)) if sized else 0
            return Limits().cost(size_bytes, some)

        planner = Planner(make_ladders(tracks, measure, {}), Cost(), 0)
        powers = {**dict.fromkeys(planner.ladders, POWER), SliceKind.TASK.value: 13}
        plan = Plan(powers, Cost())
        exact = ExactRuns(windows_ns={0: ((0, COUNT * 80),)})
        paced = PacedFile(
            tracks, plan, planner, exact, Limits(1 << 20), maker, Compression.BEST, lambda _: None
        )
        paced.write(store, Cost())
        costs = paced.costs_by_layer()
    assert paced.paced == SliceKind.TASK.value
    step, partition = (
        found.size_bytes / expected.size_bytes
        for found, expected in (costs[SliceKind.STEP.value], costs[SliceKind.PARTITION.value])
    )
    assert step == pytest.approx(partition, rel=0.01)
