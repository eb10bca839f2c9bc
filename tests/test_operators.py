"""Proves that times of operators equal what a plain walk over all tasks and ops adds up."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.analysis.operator_names import operator_type
from timeline.analysis.operators import LONGEST_OPS, OperatorFigures, operator_figures
from timeline.records.collective_kinds import collective_kind
from timeline.records.strings import StringPool
from timeline.records.tables import CommunicationOps, Records, Tasks
from timeline.table import Table
from timeline.verdict import total_by_type

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
NAMES = ("trans_TransData_0", "Default/network/Cast-op239", "aclnnMm_MatMulCommon_MatMulV2", "")
TYPES = ("", "", "Cast", "MatMulV2")
CORES = ("AI_CORE", "AI_CPU", "")
OPS = ("hcom_allReduce__586_0_1", "Default/AllReduce-op7", "hcom_receive__1_2_3", "own")
Key = tuple[bool, str, str, str]
Times = tuple[int, int, int, int]
"""Count, total, shortest and longest."""


@st.composite
def _records(draw: st.DrawFn) -> Records:
    """A rank with some tasks, of which some compute, and some ops."""
    strings = StringPool()
    task = st.tuples(
        st.integers(0, 50),
        st.integers(0, 9),
        st.sampled_from(NAMES),
        st.sampled_from(TYPES),
        st.sampled_from(CORES),
        st.booleans(),
    )
    op = st.tuples(st.integers(0, 50), st.integers(0, 9), st.sampled_from(OPS))
    tasks, ops = draw(st.lists(task, max_size=15)), draw(st.lists(op, max_size=30))
    return Records(
        0,
        strings,
        tasks=Tasks.of(
            len(tasks),
            {
                "start_ns": [own[0] for own in tasks],
                "end_ns": [own[0] + own[1] for own in tasks],
                "name": strings.codes(own[2] for own in tasks),
                "op_type": strings.codes(own[3] for own in tasks),
                "task_type": strings.codes(own[4] for own in tasks),
                "compute": [own[5] for own in tasks],
            },
        ),
        ops=CommunicationOps.of(
            len(ops),
            {
                "start_ns": [own[0] for own in ops],
                "end_ns": [own[0] + own[1] for own in ops],
                "name": strings.codes(own[2] for own in ops),
                "group": strings.codes("group" for _ in ops),
            },
        ),
    )


def _walked(records: Records, *, by_name: bool) -> dict[Key, Times]:
    lengths: dict[Key, list[int]] = defaultdict(list)
    strings, tasks, ops = records.strings, records.tasks, records.ops
    for at in range(len(tasks)):
        if tasks.compute[at]:
            name = strings[tasks.name[at]]
            kind = strings[tasks.op_type[at]] or operator_type(name)
            key = (False, kind, strings[tasks.task_type[at]], name if by_name else "")
            lengths[key].append(int(tasks.end_ns[at] - tasks.start_ns[at]))
    for at in range(len(ops)):
        name = strings[ops.name[at]]
        key = (True, collective_kind(name), "", name if by_name else "")
        lengths[key].append(int(ops.end_ns[at] - ops.start_ns[at]))
    return {key: (len(own), sum(own), min(own), max(own)) for key, own in lengths.items()}


def _found(figures: OperatorFigures) -> Iterator[tuple[Key, Times]]:
    times, strings = figures.times, figures.strings
    for at in range(len(times)):
        kind, core, name = (strings[own[at]] for own in (times.type, times.core, times.name))
        yield (
            (bool(times.communication[at]), kind, core, name),
            (
                int(times.count[at]),
                int(times.total_ns[at]),
                int(times.shortest_ns[at]),
                int(times.longest_ns[at]),
            ),
        )


@given(records=_records(), by_name=st.booleans())
def test_times_are_those_of_a_plain_walk(records: Records, by_name: bool) -> None:
    """Count, sum, shortest and longest per type and core (and name), each pair in one row."""
    ids = np.arange(len(records.ops))
    figures = operator_figures(records, ids, most_names=1000 if by_name else 0)
    found = list(_found(figures))
    assert len({key for key, _ in found}) == len(found)
    assert dict(found) == _walked(records, by_name=by_name)


@given(records=_records())
def test_the_longest_ops_are_the_longest(records: Records) -> None:
    """Longest first, with the name and step of each."""
    ids = np.arange(len(records.ops)) + 100
    longest = operator_figures(records, ids)
    lengths = records.ops.end_ns - records.ops.start_ns
    found = longest.longest
    assert (found.end_ns - found.start_ns).tolist() == sorted(lengths.tolist())[::-1][:LONGEST_OPS]
    assert len(set(found.iteration.tolist())) == len(found)
    for at in range(len(found)):
        row = int(found.iteration[at]) - 100
        assert longest.strings[found.name[at]] == records.strings[records.ops.name[row]]
        assert found.start_ns[at] == records.ops.start_ns[row]


@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from(["A", "B", "C"]),
            st.sampled_from(["", "AI_CORE"]),
            st.integers(1, 9),
            st.integers(0, 99),
            st.integers(0, 9),
            st.integers(0, 99),
        ),
        max_size=12,
    )
)
def test_totals_by_type_are_those_of_all_ranks(
    rows: list[tuple[int, str, str, int, int, int, int]],
) -> None:
    """Rows of one type and core become one, longest first."""
    names = ("communication", "type", "core", "count", "total_ns", "shortest_ns", "longest_ns")
    columns = {
        name: np.array([row[at] for row in rows], object if at in (1, 2) else np.int64)
        for at, name in enumerate(names)
    }
    wanted: dict[tuple[int, str, str], Times] = {}
    for communication, kind, core, *own in rows:
        old = wanted.get((communication, kind, core), (0, 0, 1 << 60, 0))
        wanted[communication, kind, core] = (
            old[0] + own[0],
            old[1] + own[1],
            min(old[2], own[2]),
            max(old[3], own[3]),
        )
    found = [tuple(row) for row in total_by_type(Table(columns))]
    assert {row[:3]: row[3:] for row in found} == wanted
    assert len(found) == len(wanted)
    assert [row[4] for row in found] == sorted((row[4] for row in found), reverse=True)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the real captures are not in {DATA}")
def test_types_told_by_real_names() -> None:
    """The type of every operator of a real run follows from its name; vendors give both."""
    told = 0
    for path in DATA.rglob("kernel_details.csv"):
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["Accelerator Core"] in ("HCCL", "COMMUNICATION"):
                    assert collective_kind(row["Name"]) != row["Name"]
                else:
                    assert operator_type(row["Name"]) == row["Type"], row["Name"]
                    told += 1
    assert told > 100
