"""Proves that layers that are written together share what that took as it was expected of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from timeline.columns.strings import StringPool
from timeline.encoders.compression import Compression
from timeline.encoders.formats import format_of
from timeline.encoders.piece_maker import PieceMaker
from timeline.encoders.piece_store import PieceStore
from timeline.fitting.exact_runs import ExactRuns
from timeline.fitting.ladder import make_ladders, measure_by
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
        measure = measure_by(maker, Limits(), Compression.BEST)
        planner = Planner(make_ladders(tracks, measure, {}), Cost(), 0)
        powers = {**dict.fromkeys(planner.ladders, POWER), SliceKind.TASK.value: 13}
        plan = Plan(powers, Cost(), SliceKind.TASK.value)
        exact = ExactRuns(windows_ns={0: ((0, COUNT * 80),)})
        paced = PacedFile(
            tracks, plan, planner, exact, Limits(1 << 20), maker, Compression.BEST, lambda _: None
        )
        paced.write(store, Cost())
        costs = paced.costs_by_layer()
    step, partition = (
        found.size_bytes / expected.size_bytes
        for found, expected in (costs[SliceKind.STEP.value], costs[SliceKind.PARTITION.value])
    )
    assert step == pytest.approx(partition, rel=0.01)


@pytest.mark.parametrize("limit_bytes", [1, 100, 1 << 20])
def test_a_layer_that_holds_nothing_is_not_paced(limit_bytes: int) -> None:
    """It is never merged, and no unit of it could make up for what others take."""
    empty = SliceKind.PARTITION, SliceKind.COMMUNICATION_OP
    tracks = [row(number, kind, 0, 0) for number, kind in enumerate(empty)]
    tracks.append(row(2, SliceKind.TASK, 0, 1))
    with PieceMaker(format_of(Path("any.pftrace")), tracks, 0) as maker:
        limits = Limits(limit_bytes)
        measure = measure_by(maker, limits, Compression.BEST)
        planner = Planner(make_ladders(tracks, measure, {}), Cost(), 0)
        assert planner.plan(limits).paced == SliceKind.TASK.value


def unlike_rows() -> list[Track]:
    """Dense rows, rows with few names, and steps that are exact lie one behind the other."""
    rows = [row(0, SliceKind.STEP, 0)]
    for number in range(1, 9):
        rank = number % 2
        its = row(number, SliceKind.HOST_CALL, rank, 8 * COUNT)
        slices = its.content
        assert isinstance(slices, Slices)
        names = slices.name if number < 5 else slices.name[:1].repeat(len(slices))
        moved = number // 2 * 500 * COUNT
        slower = 1 + number % 3
        content = replace(
            slices,
            start_ns=slices.start_ns * slower + moved,
            end_ns=slices.end_ns * slower + moved,
            name=names,
        )
        rows.append(replace(its, content=content))
    return rows


@contextmanager
def paced_within(limits: Limits) -> Iterator[tuple[PacedFile, PieceStore, Planner]]:
    """A file of rows that are unlike, written but not yet sure to keep its limits."""
    rows = unlike_rows()
    with PieceMaker(format_of(Path("any.pftrace")), rows, 0) as maker, PieceStore() as store:
        measure = measure_by(maker, limits, Compression.BEST)
        planner = Planner(make_ladders(rows, measure, {}), Cost(), 0)
        exact = ExactRuns(windows_ns={0: ((0, 40 * COUNT),)})
        paced = PacedFile(
            rows,
            planner.plan(limits),
            planner,
            exact,
            limits,
            maker,
            Compression.BEST,
            lambda _: None,
        )
        paced.write(store, Cost())
        yield paced, store, planner


@pytest.mark.parametrize("limit_kb", [60, 100, 150, 180, 220, 260])
def test_all_of_the_time_is_drawn_about_as_finely(limit_kb: int) -> None:
    """What the first of unlike rows take tells little of the others, which would have nothing."""
    limits = Limits(limit_kb << 10)
    with paced_within(limits) as (paced, store, planner):
        assert paced.shrink(store, Cost())
        drawn = {layer.layer: layer for layer in paced.layers()}[SliceKind.HOST_CALL.value]
    assert limits.share(paced.cost) > 0.98
    rungs = planner.ladders[SliceKind.HOST_CALL.value].rungs
    finest, coarsest = min(paced.powers), max(paced.powers)
    assert rungs.index(coarsest) - rungs.index(finest) <= 3, drawn


@pytest.mark.parametrize("more_bytes", [10, 100, 1_000, 2_000])
def test_to_keep_a_limit_little_is_given_up(more_bytes: int) -> None:
    """One unit may give less than was expected: then another gives what is missing still.

    None becomes coarser than the coarsest one.
    """
    limits = Limits(100 << 10)
    with paced_within(limits) as (paced, store, _):
        rest = Cost(limits.size_bytes - paced.cost.size_bytes + more_bytes)
        assert not paced.holds(rest)
        coarsest = max(paced.powers)
        assert paced.shrink(store, rest)
        assert max(paced.powers) == coarsest
    assert 0.985 < limits.share(paced.cost) <= 1
