"""Proves that work grows with the records, not with their square, whatever there is much of."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.grown_records import DIMENSIONS, grown_profile
from tests.support.growth import NOISE_SECONDS, check_growth
from tests.support.random_records import Sizes, random_records
from timeline import export
from timeline.analysis.ordinary_steps import informative_steps
from timeline.analysis.path.critical_path import critical_path
from timeline.analysis.questions import Questions
from timeline.analysis.waits.waiting import measure_waiting
from timeline.layers import Layer
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS, Selection

pytestmark = pytest.mark.sweep

MOST_GROWTH = 10.0
"""Of the time for four times as much: four is linear, and sixteen the square."""
REQUEST = RankRequest(
    Selection(layers=SUMMARY_LAYERS),
    draw=False,
    questions=Questions(causes=True),
    read_ranks=frozenset({0}),
)


def _seconds(records: Records) -> float:
    """Of the processor, the least of three runs."""

    def once() -> float:
        begin = time.process_time()
        facts = draw_rank_from_records(records, REQUEST).facts
        critical_path([facts], measure_waiting([facts.collectives]))
        return time.process_time() - begin

    return min(once() for _ in range(3))


def test_four_times_as_many_random_records_take_about_four_times_as_long() -> None:
    """So many that what does not grow is little beside it."""
    few, many = (
        random_records(0, Sizes(steps=steps, tasks=100, ops=4, calls=200, samples=5))
        for steps in (200, 800)
    )
    assert _seconds(many) < MOST_GROWTH * _seconds(few)


def test_steps_are_told_one_after_the_other() -> None:
    """Those that stay exact within a limit, where there may be a million: no step asks for all."""

    def seconds(steps: int) -> float:
        records = random_records(0, Sizes(steps=steps, tasks=1, ops=0, calls=0, samples=0))
        facts = draw_rank_from_records(records, REQUEST).facts
        begin = time.process_time()
        assert len(list(informative_steps([facts], None))) > steps // 2
        return time.process_time() - begin

    assert seconds(40_000) < 3 * MOST_GROWTH * seconds(4_000) + NOISE_SECONDS


@pytest.mark.parametrize("name", DIMENSIONS)
def test_the_detail_of_much_of_one_kind(name: str, tmp_path: Path) -> None:
    """What is measured, drawn and encoded of n, 2n and 4n, with scopes and all args."""
    dimension = DIMENSIONS[name]
    sizes = [max(1, dimension.least * times // 16) for times in (1, 2, 4)]

    def once(size: int) -> float:
        shape = dimension.shape(size)
        target = tmp_path / "detail.pftrace"
        layers = DETAIL_LAYERS | {Layer.SCOPES}
        begin = time.process_time()
        with grown_profile(shape) as profile:
            export(profile, target, kind="detail", layers=layers, limit=0, args="all", force=True)
        return time.process_time() - begin

    check_growth(once, sizes)
