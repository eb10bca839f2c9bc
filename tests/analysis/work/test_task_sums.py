"""Proves that HCCL tasks, copies and memory are summed as a walk over all records sums them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.support.profile_shelf import ProfileShelf
from timeline.analysis.memory import memory_peaks
from timeline.analysis.work.task_sums import sum_tasks
from timeline.layers import Layer
from timeline.profile import open_profile
from timeline.records.tables import Records
from timeline.records.task_kinds import collective_kind
from timeline.sources.source import ReadRequest

SIZES = {"B": 1, "KB": 1024, "MB": 1024**2}


def read(path: Path) -> Records:
    with open_profile(path) as profile:
        return profile.sources[0].read(ReadRequest(frozenset(Layer)))


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "msprof-sqlite"])
def test_every_hccl_task_is_in_one_sum(layout: str, shelf: ProfileShelf) -> None:
    """With its length, and the kind of the op of its group around it, told or not."""
    records = read(shelf.get(layout).path)
    planes, ops, strings = records.planes, records.ops, records.strings
    expected = Counter[tuple[str, str]]()
    for group, name, start_ns, end_ns in zip(
        *(column.tolist() for column in (planes.group, planes.name, planes.start_ns)),
        planes.end_ns.tolist(),
        strict=True,
    ):
        around = (ops.group == group) & (ops.start_ns <= start_ns) & (end_ns <= ops.end_ns)
        (op,) = np.flatnonzero(around)
        expected[collective_kind(strings[ops.name[op]]), strings[name]] += end_ns - start_ns
    found = sum_tasks(records)
    its = found.times.take(found.times.hccl)
    assert int(its.count.sum()) == len(planes)
    assert expected == {
        (found.strings[kind], found.strings[task]): total_ns
        for kind, task, total_ns in zip(
            its.collective.tolist(), its.task.tolist(), its.total_ns.tolist(), strict=True
        )
    }


def test_copies_are_those_outside_of_collectives(shelf: ProfileShelf) -> None:
    """The twins of HCCL tasks, which copy too, are none."""
    records = read(shelf.get("torch-db").path)
    tasks, planes = records.tasks, records.planes
    twins = set(zip(planes.start_ns.tolist(), planes.end_ns.tolist(), strict=True))
    lengths = [
        end_ns - start_ns
        for start_ns, end_ns, copies in zip(
            tasks.start_ns.tolist(), tasks.end_ns.tolist(), tasks.copy.tolist(), strict=True
        )
        if copies and (start_ns, end_ns) not in twins
    ]
    times = sum_tasks(records).times
    copies = times.take(~times.hccl)
    assert lengths
    assert int(copies.count.sum()) == len(lengths)
    assert int(copies.total_ns.sum()) == sum(lengths)


@pytest.mark.parametrize("layout", ["torch-text", "torch-db"])
def test_memory_is_what_is_sampled_in_sizes(layout: str, shelf: ProfileShelf) -> None:
    """The largest sample in bytes; rates and frequencies are no memory."""
    records = read(shelf.get(layout).path)
    strings, series = records.strings, records.series
    expected = {}
    for row, unit in enumerate(strings[code] for code in series.unit.tolist()):
        values = records.samples.value[records.samples.series == row]
        if unit in SIZES and values.max() > 0:
            name = strings[series.group[row]], strings[series.name[row]]
            expected[name] = round(float(values.max()) * SIZES[unit])
    found = memory_peaks(records)
    table = found.table
    assert expected
    assert expected == {
        (found.strings[group], found.strings[name]): peak
        for group, name, peak in zip(
            table.group.tolist(), table.name.tolist(), table.peak_bytes.tolist(), strict=True
        )
    }
    assert memory_peaks(Records(0, strings)).table.peak_bytes.tolist() == []
