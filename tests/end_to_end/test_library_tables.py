"""Proves that single tasks, host calls and ops make up the sums that a profile tells."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timeline
from simulator.archives import write_archive
from tests.support.profile_shelf import ProfileShelf

pytestmark = pytest.mark.sweep

LAYOUTS = ("torch-db", "torch-text", "mindstudio", "kernel-details", "kineto")


@pytest.fixture(scope="module", params=LAYOUTS)
def opened(request: pytest.FixtureRequest, shelf: ProfileShelf) -> timeline.Profile:
    """Two ranks in different layouts."""
    return timeline.open_profile(shelf.get(request.param).path)


parts = st.fixed_dictionaries(
    {},
    optional={
        "ranks": st.sampled_from([0, [1], "0-1", "all"]),
        "steps": st.sampled_from([2, [1, 3], "2-3", None]),
        "window": st.sampled_from(["20%:70%", ":50%", "10us:", None]),
    },
)


def summed(table: timeline.Table, keys: tuple[str, ...]) -> dict[Any, list[int]]:
    """Count and total duration by some columns."""
    sums: dict[Any, list[int]] = {}
    for row in table.to_dicts():
        found = sums.setdefault(tuple(row[key] for key in keys), [0, 0])
        found[0] += 1
        found[1] += row["duration_ns"]
    return sums


@settings(max_examples=12, deadline=None)
@given(part=parts)
def test_single_records_make_up_the_sums(opened: timeline.Profile, part: dict[str, Any]) -> None:
    """Whatever is selected: of operators by type, of collectives by kind and by group."""
    tasks, ops = opened.tasks(**part), opened.collectives(by="op", **part)
    operators = opened.operators(**part)
    told = {
        tuple(row[key] for key in ("rank", "type")): [row["count"], row["total_ns"]]
        for row in with_one_core(operators)
    }
    assert summed(tasks.take(tasks["role"] == "computing"), ("rank", "type")) == told
    by_kind = opened.collectives(by="kind", **part)
    assert summed(ops, ("rank", "kind", "group")) == {
        (row["rank"], row["kind"], row["group"]): [row["count"], row["total_ns"]]
        for row in by_kind.to_dicts()
    }
    by_group = opened.collectives(by="group", **part)
    assert summed(ops, ("rank", "group")) == {
        (row["rank"], row["group"]): [row["count"], row["total_ns"]] for row in by_group.to_dicts()
    }
    for name in ("waited_ns", "transfer_ns", "size_bytes"):
        kinds, groups = (known(table, name) for table in (by_kind, by_group))
        assert sum(kinds) == sum(groups) == sum(known(ops, name))
    waits = opened.waiting(by="rank", **part)
    pairs = opened.waiting(**part)
    assert (np.ma.filled(waits["waited_ns"], 0)).sum() == pairs["waited_ns"].sum()


def known(table: timeline.Table, name: str) -> list[int]:
    """The values of a column that are given, if there are any rows."""
    return [row[name] for row in table.to_dicts() if row[name] is not None]


def with_one_core(operators: timeline.Table) -> list[dict[str, Any]]:
    """Compute rows of tasks, summed over what ran them."""
    sums: dict[Any, dict[str, Any]] = {}
    for row in operators.to_dicts():
        if row["source"] == "tasks" and not row["communication"]:
            found = sums.setdefault((row["rank"], row["type"]), {**row, "count": 0, "total_ns": 0})
            found["count"] += row["count"]
            found["total_ns"] += row["total_ns"]
    return list(sums.values())


def test_tasks_name_the_call_that_launched_them(opened: timeline.Profile) -> None:
    """A call of the same rank that began before, and the moment that is told of it."""
    tasks, calls = opened.tasks(), opened.host_calls()
    started = {(row["rank"], row["call"]): row["start_ns"] for row in calls.to_dicts()}
    assert len(started) == len(calls)
    for rank in opened.ranks:
        own = calls["start_ns"][calls["rank"] == rank]
        assert (np.diff(own) >= 0).all()
    told = [row for row in tasks.to_dicts() if row["call"] is not None]
    assert all(started[row["rank"], row["call"]] <= row["start_ns"] for row in told)
    if set(calls["layer"]) & {"CANN", "Runtime"}:
        assert told


def test_steps_part_the_tasks(opened: timeline.Profile) -> None:
    """Each step has as many tasks as `steps` counts, at times inside of the rank's."""
    tasks = opened.tasks()
    counted = Counter((row["rank"], row["step"]) for row in tasks.to_dicts())
    for row in opened.steps().to_dicts():
        assert counted[row["rank"], row["step"]] == row["tasks"]
    assert set(tasks["role"]) <= {"computing", "communication", "copy", "other"}
    assert (tasks["duration_ns"] >= 0).all()


def test_records_are_read_again_and_not_kept(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Unlike figures, which are small: what a closed profile gave stays, nothing else is there."""
    archive = write_archive(shelf.get("torch-db").path, tmp_path / "run.zip")
    with timeline.open_profile(archive) as profile:
        assert profile.tasks() is not profile.tasks()
        assert profile.overlap() is profile.overlap()
    for ask in (profile.tasks, profile.host_calls):
        with pytest.raises(timeline.UsageError, match="closed"):
            ask()


def test_tables_turn_into_frames(opened: timeline.Profile) -> None:
    """Integers that may be missing stay integers, texts stay texts."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = opened.tasks(steps=2).to_pandas()
    assert str(frame["step"].dtype) == "int64"
    assert str(frame["call"].dtype) in ("Int64", "int64")
    assert str(frame["name"].dtype) == "string"
    assert frame["duration_ns"].sum() == sum(opened.tasks(steps=2)["duration_ns"])
    assert isinstance(opened.host_calls().to_pandas(), pandas.DataFrame)


@pytest.mark.parametrize("ask", ["collectives", "waiting", "idle", "operators", "memory"])
def test_only_what_is_declared_tells_rows_apart(opened: timeline.Profile, ask: str) -> None:
    """The error names what there is."""
    with pytest.raises(timeline.UsageError, match=r"by='colour': .* by \w+"):
        getattr(opened, ask)(by="colour")
