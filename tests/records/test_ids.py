"""Proves which ids, texts and types of tasks are known, however they are spelled."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.analysis.sound_records import drop_invalid_rows
from timeline.columns.constant import constant, is_constant
from timeline.columns.strings import NO_NAME, NO_TEXT, StringPool
from timeline.records.joining import IDS, Id, normalise_ids
from timeline.records.not_given import NO_CONTEXT, NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import (
    CommunicationOps,
    HostEvents,
    PlaneTasks,
    Records,
    Spans,
    StepParts,
    Steps,
    Tasks,
)
from timeline.records.task_kinds import compute_by_type, function_parts

TABLES: tuple[type[Spans], ...] = (
    Tasks,
    PlaneTasks,
    CommunicationOps,
    Steps,
    StepParts,
    HostEvents,
)
NONE_IN_ALL = (-1, -2, -(2**63), 2**63 - 1)
SPELLED = (65_535, 2**32 - 1)


def test_every_column_of_ids_is_described_once() -> None:
    """So that a column that is added cannot be forgotten; its default is none in both places."""
    for table in TABLES:
        for column in fields(table):
            name, dtype = column.name, column.metadata["dtype"]
            if dtype != np.int64 or name in ("start_ns", "end_ns", "kind", "phase", "metrics"):
                continue
            assert name in IDS, f"{table.__name__}.{name}"
            if column.metadata["default"] is not None:
                assert column.metadata["default"] == IDS[name].nothing, name


@pytest.mark.parametrize(
    ("column", "kept", "none"),
    [
        ("stream", (0, 7, 65_534, 65_536), (*NONE_IN_ALL, *SPELLED)),
        ("plane", (0, 2**31, 2**40), (*NONE_IN_ALL, *SPELLED)),
        ("task", (0, 65_535, 2**31), (*NONE_IN_ALL, 2**32 - 1)),
        ("source_rank", (0, 65_535, 2**31), (*NONE_IN_ALL, 2**32 - 1)),
        ("connection", (0, 65_535, 2**32), (*NONE_IN_ALL, 2**32 - 1)),
        ("size_bytes", (0, 65_535, 2**32 - 1), NONE_IN_ALL),
        ("graph", (0, 65_535, NO_GRAPH), NONE_IN_ALL),
        ("context", (0, 65_535, NO_CONTEXT), NONE_IN_ALL),
        ("thread", (0, -2, 65_535, -(2**40)), (-1, 2**32 - 1, 2**63 - 1)),
        ("launch_ns", (0, -5, 2**62 - 1), (-(2**63), 2**63 - 1, 2**62)),
    ],
)
def test_an_id_is_kept_or_becomes_none(
    column: str, kept: tuple[int, ...], none: tuple[int, ...]
) -> None:
    described = IDS[column]
    values = np.array([*kept, *none], np.int64)
    assert described.normalise(values).tolist() == [*kept, *[described.nothing] * len(none)]
    for value in none:
        whole = described.normalise(constant(value, 3, np.int64))
        assert is_constant(whole)
        assert whole.tolist() == [described.nothing] * 3


@given(
    st.lists(
        st.integers(-(2**63), 2**63 - 1)
        | st.integers(-2, 3)
        | st.sampled_from([*NONE_IN_ALL, *SPELLED, NO_TIME])
    ),
    st.sampled_from(list(IDS.values())),
)
def test_what_is_given_once_is_given_for_good(values: list[int], described: Id) -> None:
    """A second pass changes nothing, and a column without anything to change is not copied."""
    once = described.normalise(np.array(values, np.int64))
    assert described.normalise(once) is once
    absent = described.absent(np.array(values, np.int64)).tolist()
    assert once.tolist() == [
        described.nothing if none else value for value, none in zip(values, absent, strict=True)
    ]


@pytest.mark.parametrize("text", sorted(NO_TEXT))
def test_texts_that_stand_for_none_have_no_code(text: str) -> None:
    """Neither alone nor among others, nor when they are looked up."""
    strings = StringPool()
    first = strings.code("Add")
    assert strings.code(text) == NO_NAME
    assert strings.find(text) == NO_NAME
    assert strings.codes(["Add", text, "Mul"]).tolist() == [first, NO_NAME, first + 1]
    assert list(strings) == ["", "Add", "Mul"]


def test_tables_are_made_valid_with_their_ids() -> None:
    """What stands for none is none in every table, whichever reader made it."""
    strings = StringPool()
    name = strings.code("Notify Wait")
    notify = strings.codes(["4294967295", "18446744073709551615", "12"])
    span = {"start_ns": [1, 2, 3], "end_ns": [2, 3, 4]}
    planes = PlaneTasks.of(
        3,
        span
        | {
            "group": [name] * 3,
            "name": [name] * 3,
            "plane": [4_294_967_295, 65_535, 3],
            "source_rank": [4_294_967_295, -1, 1],
            "target_rank": [4_294_967_295, 2, -7],
            "size_bytes": [-1, -5, 8],
            "notify": notify,
        },
    )
    steps = Steps.of(
        3, span | {"graph": [-1] * 3, "iteration": [1, 2, 3], "fp_start_ns": [2**63 - 1, 2, 3]}
    )
    found = drop_invalid_rows(Records(0, strings, planes=planes, steps=steps))
    assert found.planes.plane.tolist() == [NO_ID, NO_ID, 3]
    assert found.planes.source_rank.tolist() == [NO_ID, NO_ID, 1]
    assert found.planes.target_rank.tolist() == [NO_ID, 2, NO_ID]
    assert found.planes.size_bytes.tolist() == [NO_ID, NO_ID, 8]
    assert [strings[code] for code in found.planes.notify.tolist()] == ["", "", "12"]
    assert found.steps.graph.tolist() == [NO_GRAPH] * 3
    assert found.steps.fp_start_ns.tolist() == [NO_TIME, 2, 3]


def test_a_table_of_given_ids_stays_the_same() -> None:
    strings = StringPool()
    tasks = Tasks.of(2, start_ns=[1, 2], end_ns=[2, 3], name=[0, 0], stream=[0, 1])
    assert normalise_ids(tasks, strings) is tasks
    changed = replace(tasks, stream=np.array([65_535, 1]))
    assert normalise_ids(changed, strings).stream.tolist() == [NO_ID, 1]


# -- types of tasks and names of kernels -----------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "named", "unnamed"),
    [
        ("AI_CORE", True, True),
        ("AI_VECTOR_CORE", True, True),
        ("MIX_AIC", True, True),
        ("DSA_SQE", True, True),
        ("KERNEL_AICORE", True, True),
        ("KERNEL_AIVEC", True, True),
        ("KERNEL_MIX_AIV", True, True),
        ("KERNEL_OF_TOMORROW", True, True),
        ("AI_CPU", True, False),
        ("AI_CPU_SQE", True, False),
        ("KERNEL_AICPU", True, False),
        ("TASK_TIMEOUT_SET", False, False),
        ("EVENT_WAIT", False, False),
        ("MEMCPY_ASYNC", False, False),
        ("PLACE_HOLDER_SQE", False, False),
        ("Other", False, False),
        ("", False, False),
    ],
)
def test_types_that_compute(kind: str, named: bool, unnamed: bool) -> None:
    """With a name of its own, and where no name was recorded."""
    strings = StringPool()
    types = strings.codes([kind])
    assert compute_by_type(types, strings, strings.codes(["a name"])).tolist() == [named]
    assert compute_by_type(types, strings).tolist() == [unnamed]


@pytest.mark.parametrize("kind", ["KERNEL_AICORE", "KERNEL_AICPU", "KERNEL_AIVEC", "AI_CPU"])
def test_a_kernel_called_by_its_type_ran_no_operator(kind: str) -> None:
    strings = StringPool()
    types = strings.codes([kind, kind])
    assert not compute_by_type(types, strings, strings.codes([kind, ""])).any()


def test_a_mangled_name_with_endless_digits() -> None:
    """The length of a part is no longer than a name can be, so such a name has no such part."""
    assert function_parts("_Z3foov") == ["foo"]
    assert "foo" not in function_parts("_Z" + "9" * 5000 + "foo")
