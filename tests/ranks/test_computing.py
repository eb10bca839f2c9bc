"""Proves that the frequency of the AI Core is read for causes alone, and what ranks then say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.profile_shelf import ProfileShelf
from timeline.analysis.questions import Questions
from timeline.analysis.rank_facts import RankFacts
from timeline.options import StepOperators
from timeline.profile import open_profile
from timeline.ranks.rank_work import (
    RankRequest,
    draw_rank_from_records,
    draw_rank_from_source,
    read_rank,
)
from timeline.records.tables import AI_CORE_FREQUENCY
from timeline.selection import Align, Selection
from timeline.sources.source import ReadRequest
from timeline.tables.work import COMPUTING_CAUSES
from timeline.verdict.figures import Figures

SAMPLED = ("torch-text", "torch-db", "mindstudio", "msprof-sqlite")
CAUSES = RankRequest(Selection(), draw=False, questions=Questions(causes=True))


@pytest.mark.parametrize("layout", SAMPLED)
def test_only_the_frequency_is_read_where_no_counter_is_drawn(
    shelf: ProfileShelf, layout: str
) -> None:
    """Whatever else was sampled stays unread, and without causes the frequency too."""
    with open_profile(shelf.get(layout).path) as profile:
        source = profile.sources[0]
        asked = ReadRequest(CAUSES.read_layers, every_arg=False, frequency=True)
        records = source.read(asked)
        assert [records.strings[code] for code in records.series.group] == [AI_CORE_FREQUENCY]
        assert (records.samples.value == 1800).all() and len(records.samples) == 2
        assert not len(source.read(replace(asked, frequency=False)).samples)
        assert draw_rank_from_source(source, CAUSES).facts.work.frequency_mhz == 1800


def test_a_layout_without_counters_says_that_nothing_is_recorded(shelf: ProfileShelf) -> None:
    """Traces of GPUs have no frequency."""
    with open_profile(shelf.get("kineto").path) as profile:
        work = draw_rank_from_source(profile.sources[0], CAUSES).facts.work
    assert work.frequency_mhz is None and work.digest and work.steps


def _facts(shelf: ProfileShelf, *, slower: float, megahertz: float | None) -> RankFacts:
    """A rank of another number whose tasks take longer, at some frequency."""
    with open_profile(shelf.get("torch-db").path) as profile:
        request = ReadRequest(CAUSES.read_layers, every_arg=False, frequency=True)
        records = read_rank(profile.sources[0], request, StepOperators(), Align.RECORDED)
    tasks, samples = records.tasks, records.samples
    lengths_ns = ((tasks.end_ns - tasks.start_ns) * slower).astype(np.int64)
    records = replace(
        records,
        rank=3 if slower != 1 else records.rank,
        tasks=replace(tasks, end_ns=tasks.start_ns + lengths_ns),
        samples=samples.take(np.zeros(len(samples), np.bool_))
        if megahertz is None
        else replace(samples, value=np.full(len(samples), float(megahertz))),
    )
    return draw_rank_from_records(records, CAUSES).facts


def test_a_slower_rank_is_told_by_its_frequency_or_its_operators(shelf: ProfileShelf) -> None:
    """The same operators 12% longer at 1.5 GHz, at the same frequency, and at an unknown one."""
    usual = _facts(shelf, slower=1, megahertz=1800)
    for megahertz, cause in ((1500, "frequency"), (1800, "operators"), (None, "operators")):
        slower = _facts(shelf, slower=1.12, megahertz=megahertz)
        table = COMPUTING_CAUSES.of_run(Figures(facts=[usual, slower]))
        assert table["cause"].tolist() == [None, cause]
        assert table["frequency_mhz"].tolist() == [1800, megahertz]
