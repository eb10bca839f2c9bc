"""Proves that operators by step say what operators say, and that a limit keeps all sums."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profile_shelf import ProfileShelf
from timeline.analysis.work.operators import OperatorSteps
from timeline.commands.export import export
from timeline.profile import open_profile
from timeline.records.not_given import NO_ID
from timeline.records.profiler_tables import OperatorRuns, RunLevel
from timeline.selection import Selection
from timeline.tables.table import Table

TYPES = ("", "Add", "Cast", "MatMul", "Softmax")


def _sums(table: Table) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    columns = (table[name].tolist() for name in ("rank", "type", "total_ns"))
    for rank, kind, total_ns in zip(*columns, strict=True):
        found[rank, kind] += total_ns
    return found


@pytest.mark.filterwarnings("ignore::timeline.errors.TimelineWarning")
@pytest.mark.parametrize("layout", ["torch-text", "mindspore-2.1", "kineto", "mindspore-text"])
def test_steps_sum_up_to_operators(shelf: ProfileShelf, layout: str) -> None:
    """Where steps are selected every task lies in one: their operators are all operators."""
    with open_profile(shelf.get(layout).path) as profile:
        steps = sorted({step for step in profile.steps()["step"].tolist() if step is not None})
        selection = Selection(steps=frozenset(steps))
        operators = profile.operators(selection)
        expected = _sums(operators.take(operators["source"] == "tasks"))
        assert expected
        for level in ("type", "name"):
            found = profile.operator_steps(selection, level)
            assert set(found["step"].tolist()) == set(steps)
            assert _sums(found) == expected
        every = profile.operator_steps(selection)
        assert set(every["level"].tolist()) == {"type", "name"}


@pytest.mark.filterwarnings("ignore::timeline.errors.TimelineWarning")
@pytest.mark.parametrize(
    ("layout", "told"), [("torch-text", False), ("torch-db", False), ("mindspore-tables", True)]
)
def test_they_are_worked_out_for_those_who_see_them(
    shelf: ProfileShelf, tmp_path: Path, layout: str, *, told: bool
) -> None:
    """The file does not hold them; those that the profiler tells are read in any case."""
    path = shelf.get(layout).path
    whole, plain, page = (tmp_path / name for name in ("whole.pftrace", "plain.pftrace", "page"))
    every = export(path, whole).figures.operator_steps
    assert len(every)
    found = export(path, plain, operator_steps=False)
    assert len(found.figures.operator_steps) == (len(every) if told else 0)
    assert plain.read_bytes() == whole.read_bytes()
    report = page.with_suffix(".html")
    shown = export(path, plain, operator_steps=False, report=report, force=True)
    assert len(shown.figures.operator_steps) == len(every)


@st.composite
def _runs(draw: st.DrawFn) -> OperatorRuns:
    keys = draw(
        st.sets(st.tuples(st.integers(0, 9), st.integers(0, len(TYPES) - 1)), min_size=1).map(
            sorted
        )
    )
    count = len(keys)
    times = draw(st.lists(st.integers(1, 10**6), min_size=count, max_size=count))
    return OperatorRuns.of(
        count,
        {
            "step": [step for step, _ in keys],
            "level": np.full(count, RunLevel.TYPE),
            "kind": [kind for _, kind in keys],
            "count": np.ones(count, np.int64),
            "total_ns": times,
        },
    )


@given(runs=_runs(), most=st.integers(1, 60), again=st.integers(1, 60))
def test_a_limit_keeps_all_sums(runs: OperatorRuns, most: int, again: int) -> None:
    """There are so many rows at most; what they sum up is the same, and kept rows are as before."""
    limited = OperatorSteps(TYPES, runs).limited(most).limited(again).runs
    assert len(limited) <= min(most, again)
    assert limited.count.sum() == runs.count.sum()
    assert limited.total_ns.sum() == runs.total_ns.sum()
    before = {
        (step, kind): total_ns
        for step, kind, total_ns in zip(runs.step, runs.kind, runs.total_ns, strict=True)
    }
    kept = limited.take(~limited.rest)
    for step, kind, total_ns in zip(kept.step, kept.kind, kept.total_ns, strict=True):
        assert before[step, kind] == total_ns
    if len(runs) <= min(most, again):
        assert not limited.rest.any() and not (limited.step == NO_ID).any()


def test_names_go_where_there_is_no_room() -> None:
    """Single operators and kernels are left out before a type is."""
    types = OperatorRuns.of(
        2, {"step": [1, 2], "level": [0, 0], "kind": [1, 1], "count": [1, 1], "total_ns": [5, 5]}
    )
    names = replace(types, level=np.ones(2, np.int64), name=np.array([2, 2], np.int32))
    steps = OperatorSteps(TYPES, OperatorRuns.concat([types, names]))
    assert len(steps.limited(4).runs) == 4
    assert steps.limited(3).runs.level.tolist() == [0, 0]
