"""Proves that ranks are kept in little memory, and hold what they held before."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np

from tests.support.grown_records import Shape, grown_records
from timeline.analysis.questions import Questions
from timeline.analysis.selected_rank import DrawOptions
from timeline.analysis.steps import with_steps
from timeline.layers import Layer
from timeline.options import StepOperators
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.ranks.shared_columns import pack
from timeline.selection import SUMMARY_LAYERS, Selection
from timeline.tracks.rank_tracks import DrawnRank

RANKS = 40
MOST_BYTES = 24 << 10
"""Of a rank with 20 tasks and two steps; as it was drawn it takes twice as much."""


def drawn(rank: int) -> DrawnRank:
    records = with_steps(grown_records(rank, Shape(tasks=20)), StepOperators())
    layers = frozenset({Layer.OVERLAP, *SUMMARY_LAYERS})
    request = RankRequest(
        Selection(layers=layers), options=DrawOptions(layers), questions=Questions(causes=True)
    )
    return draw_rank_from_records(records, request)


def test_each_small_rank_that_is_kept_takes_little_memory() -> None:
    pack(drawn(0))  # what is imported late, and what all share
    tracemalloc.start()
    kept = [pack(drawn(rank)) for rank in range(1, RANKS + 1)]
    gc.collect()
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < MOST_BYTES * len(kept)


def test_short_columns_are_the_same_numbers_to_the_bit() -> None:
    for column in (np.array([0.0, -0.0, np.nan]), np.array([], np.int32), np.arange(9)[::2]):
        found = pack((column, "x"))[0]
        assert found.dtype == column.dtype
        assert found.tobytes() == column.tobytes()
        assert pack((column, "y"))[0] is found
        assert not found.flags.writeable
