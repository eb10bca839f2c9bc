"""Proves that saying why devices wait and idle grows with the records, not with their square."""

from __future__ import annotations

import time

from tests.support.random_records import Sizes, random_records
from timeline.analysis.path.path_steps import critical_path
from timeline.analysis.questions import Questions
from timeline.analysis.waits.waiting import measure_waiting
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.records.tables import Records
from timeline.selection import SUMMARY_LAYERS, Selection

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
