"""Proves which steps a run is judged by, by a plain look at the device tasks of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_tables import table_of
from timeline.analysis.ordinary_steps import ordinary_steps
from timeline.analysis.rank_facts import RankFacts
from timeline.columns.strings import StringPool
from timeline.options import StepOperators
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.records.tables import Records, Steps, Tasks
from timeline.selection import Selection

STEP_NS, TASK_NS = 100_000, 1_000
Tallies = list[list[int]]
"""Of each graph, the number of device tasks of each step."""


def recorded(rank: int, graphs: Tallies) -> Records:
    """Steps of graphs that run by turns, each with so many tasks."""
    steps, tasks = list[tuple[int, int, int]](), list[tuple[int, int, int]]()
    for graph, counts in enumerate(graphs):
        for step, count in enumerate(counts, 1):
            start_ns = (step * len(graphs) + graph) * STEP_NS
            steps.append((start_ns, graph, step))
            tasks += [(start_ns + turn * TASK_NS, graph, step) for turn in range(count)]

    def made(rows: list[tuple[int, int, int]], length_ns: int) -> list[dict[str, int]]:
        return [
            {"start_ns": at_ns, "end_ns": at_ns + length_ns, "graph": graph, "iteration": step}
            for at_ns, graph, step in rows
        ]

    return Records(
        rank,
        StringPool(),
        tasks=table_of(Tasks, made(tasks, TASK_NS), name=0, compute=True),
        steps=table_of(Steps, made(sorted(steps), STEP_NS)),
    )


def facts_of(records: Records, **request: object) -> RankFacts:
    selection = Selection()
    wanted = RankRequest(selection, StepOperators(), draw=False, **request)  # type: ignore[arg-type]
    return draw_rank_from_records(records, wanted).facts


def chosen(facts: list[RankFacts]) -> list[set[tuple[int, int]]]:
    """The graph and number of each ordinary step of each rank."""
    return [
        set(zip(rank.steps.graph[rows].tolist(), rank.steps.iteration[rows].tolist(), strict=True))
        for rank, rows in zip(facts, ordinary_steps(facts), strict=True)
    ]


def with_tasks(counts: list[int]) -> set[int]:
    return {step for step, count in enumerate(counts, 1) if count}


def odd_steps(counts: list[int]) -> set[int]:
    """The steps of a graph that are without tasks, or cut at the end."""
    there = sorted(with_tasks(counts))
    odd = set(range(1, len(counts) + 1)) - set(there)
    if len(there) > 2:
        usual = median(counts[step - 1] for step in there[1:-1])
        odd |= {there[-1]} if counts[there[-1] - 1] < 0.95 * usual else set()
    return odd


COUNTS = st.lists(st.sampled_from([0, 18, 20, 20, 20]), max_size=7)


@given(st.integers(1, 2).flatmap(lambda graphs: st.lists(
    st.lists(COUNTS, min_size=graphs, max_size=graphs), min_size=1, max_size=3)))  # fmt: skip
def test_cut_steps_are_not_ordinary(ranks: list[Tallies]) -> None:
    """On no rank with device tasks at all; unless fewer than three are left."""
    facts = [facts_of(recorded(rank, graphs)) for rank, graphs in enumerate(ranks)]
    several = any(sum(map(bool, graphs)) > 1 for graphs in ranks)

    def keys(graphs: Tallies, steps_of: Callable[[list[int]], set[int]]) -> set[tuple[int, int]]:
        return {
            (graph * several, step)
            for graph, counts in enumerate(graphs)
            for step in steps_of(counts)
        }

    measured = [keys(graphs, with_tasks) for graphs in ranks]
    odd = set().union(
        *(keys(graphs, odd_steps) for graphs, its in zip(ranks, measured, strict=True) if its)
    )
    plain = [its - odd for its in measured]
    wanted = plain if len(set().union(*plain)) >= 3 else measured
    found = [{(graph * several, step) for graph, step in steps} for steps in chosen(facts)]
    assert found == wanted


def test_a_window_cuts_steps() -> None:
    """A step of which a window leaves a part is not ordinary; a whole one is."""
    records = recorded(0, [[20] * 8])
    window_ns = (3 * STEP_NS + 5 * TASK_NS, 7 * STEP_NS + 5 * TASK_NS)
    assert chosen([facts_of(records, window_ns=window_ns)]) == [{(0, 4), (0, 5), (0, 6)}]
    assert chosen([facts_of(records)]) == [{(0, step) for step in range(1, 9)}]


@pytest.mark.parametrize(("more_ns", "first"), [(STEP_NS // 3, 1), (STEP_NS, 2)])
def test_a_first_step_is_ordinary_unless_it_warms_up(more_ns: int, first: int) -> None:
    """It warms up where it takes half as long again as the others do."""
    records = recorded(0, [[20] * 8])
    steps = records.steps
    start_ns = np.where(steps.iteration == 1, steps.start_ns - more_ns, steps.start_ns)
    facts = facts_of(replace(records, steps=replace(steps, start_ns=start_ns)))
    assert chosen([facts]) == [{(0, step) for step in range(first, 9)}]


def test_a_step_that_warms_up_stays_that_when_others_are_selected() -> None:
    """A selection does not make its own first step a warm-up."""
    records = recorded(0, [[20] * 8])
    wanted = RankRequest(Selection(steps=range(3, 8)), StepOperators(), draw=False)
    facts = draw_rank_from_records(records, wanted).facts
    assert chosen([facts]) == [{(0, step) for step in range(3, 8)}]
