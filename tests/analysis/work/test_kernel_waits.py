"""Proves what was before each kernel, by the profiler's own numbers too."""

from __future__ import annotations

import csv
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.places import DATA
from timeline.analysis.steps import Membership
from timeline.analysis.work.operators import kernel_waits
from timeline.columns.strings import StringPool
from timeline.commands.export import export
from timeline.records.not_given import NO_TIME
from timeline.records.tables import CommunicationOps, Records, Tasks
from timeline.verdict.verdict import total_by_type

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(0, 2)), max_size=8)


def records_of(
    tasks: list[tuple[int, int, int]], ops: list[tuple[int, int, int]], computes: list[bool]
) -> Records:
    """Spans of start, length and step; all from one moment on, of which floats lose digits."""
    pool = StringPool()
    name = int(pool.codes(["one"])[0])

    def columns(spans: list[tuple[int, int, int]]) -> dict[str, np.ndarray]:
        start_ns = np.array([start for start, _, _ in spans], np.int64) + 1_736_424_000_130_953_241
        lengths_ns = np.array([length for _, length, _ in spans], np.int64)
        names = np.full(len(spans), name, np.int32)
        return {"start_ns": start_ns, "end_ns": start_ns + lengths_ns, "name": names}

    mask = np.array(computes[: len(tasks)], np.bool_)
    return Records(
        0,
        pool,
        tasks=Tasks.of(len(tasks), {**columns(tasks), "compute": mask}),
        ops=CommunicationOps.of(len(ops), {**columns(ops), "group": np.zeros(len(ops), np.int32)}),
    )


@given(SPANS, SPANS, st.lists(st.booleans(), min_size=8, max_size=8), st.booleans())
def test_waits_are_those_of_a_plain_walk(
    tasks: list[tuple[int, int, int]],
    ops: list[tuple[int, int, int]],
    computes: list[bool],
    by_step: bool,
) -> None:
    """Since the end of what began before, among what computes and communicates."""
    records = records_of(tasks, ops, computes)
    none = np.zeros(0, np.int64)
    membership = Membership(
        np.array([step for _, _, step in tasks], np.int64),
        np.array([step for _, _, step in ops], np.int64),
        none,
        np.full(0, NO_TIME),
        none,
    )
    found = kernel_waits(records, membership if by_step else None)
    kernels = [(*span, "task", at) for at, span in enumerate(tasks) if computes[at]]
    kernels += [(*span, "op", at) for at, span in enumerate(ops)]
    kernels.sort(key=lambda kernel: kernel[0])
    expected = {("task", at): 0 for at in range(len(tasks))}
    for before, (start, _, step, table, at) in zip([None, *kernels], kernels, strict=False):
        counts = before is not None and not (by_step and before[2] != step)
        waited = start - (before[0] + before[1]) if before is not None and counts else 0
        expected[table, at] = max(0, waited)
    assert found.tasks.tolist() == [expected["task", at] for at in range(len(tasks))]
    assert found.ops.tolist() == [expected["op", at] for at in range(len(ops))]


@pytest.mark.skipif(not (DATA / "torch-npu-text").exists(), reason="needs the real captures")
def test_they_are_those_of_kernel_details(tmp_path: Path) -> None:
    """Of each type, to the ns that each of its runs is rounded by."""
    figures = export(DATA / "torch-npu-text", tmp_path / "a.pftrace").figures
    totals = total_by_type(figures.operators).to_dicts()
    ours = {row["type"]: row for row in totals if not row["communication"]}
    listed: dict[str, int] = {}
    for file in (DATA / "torch-npu-text").glob("rank*/ASCEND_PROFILER_OUTPUT/kernel_details.csv"):
        with file.open(newline="") as lines:
            for line in csv.DictReader(lines):
                waited_ns = round(Decimal(line["Wait Time(us)"].strip()) * 1000)
                listed[line["Type"]] = listed.get(line["Type"], 0) + waited_ns
    collectives = {kind for kind in listed if kind.startswith("hcom")}
    assert set(ours) == set(listed) - collectives
    for kind, row in ours.items():
        assert abs(row["waited_ns"] - listed[kind]) <= row["count"], kind
    theirs = sum(row["waited_ns"] for row in totals if row["communication"])
    assert abs(theirs - sum(listed[kind] for kind in collectives)) <= 8
