"""Proves what operators and modules of a framework launched and allocated, on made records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_launches import Arrow, Call, Op, Task, made_records
from timeline.analysis.work import framework_sums
from timeline.analysis.work.framework_sums import OperatorRules, sum_framework
from timeline.records.not_given import NO_TIME
from timeline.records.tables import GPU, Allocations, FlowEnd, PlaneTasks, Records

LAUNCH, GRADIENT, QUEUE = "async_npu", "fwdbwd", "async_task_queue"
OPERATOR, FRAME = "cpu_op", "python_function"
MAIN, ENGINE, LEAVING = 1, 2, 3


def launch(call: int, task: int) -> Arrow:
    return Arrow(LAUNCH, (FlowEnd.HOST, call), (FlowEnd.TASK, task))


def between(category: str, source: int, target: int) -> Arrow:
    return Arrow(category, (FlowEnd.HOST, source), (FlowEnd.HOST, target))


def records_of(calls: Sequence[tuple[Call, str]], **more: object) -> Records:
    """Records whose calls are of these categories."""
    records = made_records(calls=[call for call, _ in calls], **more)  # type: ignore[arg-type]
    levels = records.strings.codes(category for _, category in calls)
    return replace(records, host=replace(records.host, level=levels))


def python(start_ns: int, end_ns: int, name: str, thread: int = MAIN) -> Call:
    return Call(start_ns, end_ns, name, "Python", thread)


def with_allocations(records: Records, *rows: tuple[str, int, int, int]) -> Records:
    """The records with allocations: name, when, until when, bytes."""
    names, starts, ends, sizes = zip(*rows, strict=True)
    return replace(
        records,
        allocations=Allocations(
            np.array(starts, np.int64),
            np.array(ends, np.int64),
            records.strings.codes(names),
            np.array(sizes, np.int64),
        ),
    )


def operators(records: Records, rules: OperatorRules | None = None) -> dict[str, tuple[int, int]]:
    """How many operators of each name are shown, and the time of what they launched."""
    sums = sum_framework(records, rules or OperatorRules())
    rows = zip(
        sums.operators.name.tolist(),
        sums.operators.shapes.tolist(),
        sums.operators.count.tolist(),
        sums.operators.total_ns.tolist(),
        strict=True,
    )
    return {
        f"{sums.strings[name]} {sums.strings[shapes]}".strip(): (count, total_ns)
        for name, shapes, count, total_ns in rows
    }


TRAINING = [
    (python(0, 1000, "ProfilerStep#3"), OPERATOR),
    (python(10, 400, "nn.Module: Net_0"), FRAME),
    (python(20, 200, "nn.Module: Linear_1"), FRAME),
    (python(30, 190, "aten::linear"), OPERATOR),
    (python(40, 180, "aten::addmm"), OPERATOR),
    (python(50, 60, "Enqueue"), "enqueue"),
    (python(210, 300, "aten::relu"), OPERATOR),
    (python(500, 700, "autograd::engine::evaluate_function: AddmmBackward0", ENGINE), OPERATOR),
    (python(510, 690, "AddmmBackward0", ENGINE), OPERATOR),
    (python(520, 560, "aten::mm", ENGINE), OPERATOR),
    (python(600, 640, "aten::mm", ENGINE), OPERATOR),
    (python(1100, 1200, "aten::item"), OPERATOR),
    (python(70, 170, "Dequeue@addmm", LEAVING), "dequeue"),
]
TASKS = [Task(2000 + 100 * at, 2000 + 100 * at + 2**at) for at in range(6)]
ARROWS = [
    launch(4, 0),
    launch(6, 1),
    launch(9, 2),
    launch(10, 3),
    launch(8, 4),
    launch(11, 5),
    between(GRADIENT, 4, 7),
    between(QUEUE, 5, 12),
]


def training(**more: object) -> Records:
    return records_of(TRAINING, tasks=TASKS, arrows=ARROWS, **more)


def test_collectives_are_left_out() -> None:
    """Neither ops nor the tasks that are theirs count for the operator that launched them."""
    calls = [(python(0, 100, "c10d::allreduce_"), OPERATOR)]
    arrows = [launch(0, 0), launch(0, 1), Arrow(LAUNCH, (FlowEnd.HOST, 0), (FlowEnd.OP, 0))]
    tasks, ops = [Task(200, 300), Task(300, 302)], [Op(200, 300)]
    records = records_of(calls, tasks=tasks, ops=ops, arrows=arrows)
    planes = PlaneTasks.of(
        1, {"start_ns": [200], "end_ns": [300], "group": [0], "plane": [0], "name": [0]}
    )
    assert operators(replace(records, planes=planes)) == {"c10d::allreduce_": (1, 2)}


def test_marks_of_a_program_launch_for_no_operator() -> None:
    """Nor do the calls of CANN, whose arrows say again what the framework's say."""
    calls = [(python(0, 100, "aten::mm"), OPERATOR), (Call(10, 20, "mark", "MSTX"), "marker")]
    arrows = [
        Arrow("MsTx", (FlowEnd.HOST, 1), (FlowEnd.TASK, 0)),
        Arrow("HostToDevice", (FlowEnd.HOST, 0), (FlowEnd.TASK, 0)),
    ]
    records = records_of(calls, tasks=[Task(200, 300)], arrows=arrows)
    assert operators(records) == {"aten::mm": (1, 0)}


def test_shapes_tell_operators_apart_where_they_are_asked_for() -> None:
    """Without that, operators of one name are one row."""
    calls = [(python(0, 9, "aten::mm"), OPERATOR), (python(10, 19, "aten::mm"), OPERATOR)]
    records = records_of(calls, tasks=[Task(20, 21), Task(21, 23)], arrows=[launch(0, 0)])
    shapes = records.strings.codes(["2,3;3,4", "5,3;3,4"])
    records = replace(records, host=replace(records.host, shapes=shapes))
    assert operators(records) == {"aten::mm": (2, 1)}
    told = operators(records, OperatorRules(with_shapes=True))
    assert told == {"aten::mm 2,3;3,4": (1, 1), "aten::mm 5,3;3,4": (1, 0)}


def test_shapes_beyond_the_most_rows_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """No operator and no time is lost."""
    monkeypatch.setattr(framework_sums, "MOST_ROWS", 2)
    calls = [(python(10 * at, 10 * at + 9, "aten::mm"), OPERATOR) for at in range(4)]
    tasks = [Task(100 * at, 100 * at + 2**at) for at in range(4)]
    records = records_of(calls, tasks=tasks, arrows=[launch(at, at) for at in range(4)])
    shapes = records.strings.codes(f"{at}" for at in range(4))
    records = replace(records, host=replace(records.host, shapes=shapes))
    told = operators(records, OperatorRules(with_shapes=True))
    assert told == {"aten::mm 3": (1, 8), "aten::mm 2": (1, 4), "aten::mm": (2, 3)}


def test_allocations_belong_to_the_operator_at_their_time() -> None:
    """What CANN allocates belongs to the operator that filled its queue, whenever it is emptied."""
    records = with_allocations(
        training(),
        ("aten::relu", 250, 260, 100),
        ("aten::relu", 251, NO_TIME, 10),
        ("cann::Addmm1", 165, 365, 5),
        ("cann::Addmm2", 1150, 1160, 1000),
        ("aten::empty", 1050, 1060, 1000),
    )
    sums = sum_framework(records, OperatorRules())
    columns = (sums.operators.name, sums.operators.size_bytes, sums.operators.held_ns)
    found = {
        sums.strings[name]: (size, held)
        for name, size, held in zip(*(column.tolist() for column in columns), strict=True)
        if size
    }
    assert found == {"aten::relu": (110, 10), "aten::linear": (5, 200)}
    assert sums.has_allocations


def modules(records: Records) -> dict[tuple[str, str], tuple[int, int]]:
    """By path and direction, the time of modules themselves and with those inside."""
    sums = sum_framework(records, OperatorRules())
    columns = (
        sums.modules.path,
        sums.modules.backward,
        sums.modules.self_ns,
        sums.modules.total_ns,
    )
    return {
        (sums.strings[path], "backward" if backward else "forward"): (self_ns, total_ns)
        for path, backward, self_ns, total_ns in zip(
            *(column.tolist() for column in columns), strict=True
        )
    }


def test_modules_have_what_their_calls_and_gradients_launched() -> None:
    """An arrow that ends in the engine's call means the operator inside, not what is around."""
    assert modules(training()) == {
        ("Net_0", "forward"): (2, 3),
        ("Net_0/Linear_1", "forward"): (1, 1),
        ("Net_0", "backward"): (0, 28),
        ("Net_0/Linear_1", "backward"): (28, 28),
    }


def test_modules_without_operators_are_not_told() -> None:
    """Where no operator is recorded, nothing tells what modules launched."""
    frames = [row for row in TRAINING if row[1] == FRAME]
    assert not sum_framework(records_of(frames), OperatorRules()).has_operators
    assert modules(records_of(frames)) == {}


def test_modules_beyond_the_most_rows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest are kept."""
    monkeypatch.setattr(framework_sums, "MOST_ROWS", 2)
    assert sum_framework(training(), OperatorRules()).modules_left_out == 2
    assert set(modules(training())) == {("Net_0", "backward"), ("Net_0/Linear_1", "backward")}


def test_kernels_of_gpus_belong_to_the_operator_around_their_launch() -> None:
    """Copies count like kernels; fills, waits and kernels that communicate do not."""
    calls = [
        (python(0, 100, "aten::to"), OPERATOR),
        (Call(10, 20, "cudaMemcpyAsync", "Runtime"), "cuda_runtime"),
        (Call(30, 40, "cudaLaunchKernel", "Runtime"), "cuda_runtime"),
        (Call(50, 60, "cudaMemsetAsync", "Runtime"), "cuda_runtime"),
    ]
    tasks = [
        Task(200, 201, does="copies"),
        Task(210, 212),
        Task(220, 224, does="copies"),
        Task(230, 238, does="communicates"),
    ]
    arrows = [
        Arrow("ac2g", (FlowEnd.HOST, call), (FlowEnd.TASK, task))
        for call, task in ((1, 0), (2, 1), (3, 2), (2, 3))
    ]
    records = replace(records_of(calls, tasks=tasks, arrows=arrows), hardware=GPU)
    kinds = records.strings.codes(["gpu_memcpy", "kernel", "gpu_memset", "kernel"])
    records = replace(records, tasks=replace(records.tasks, task_type=kinds))
    assert operators(records) == {"aten::to": (1, 3)}


def test_what_has_no_category_is_no_operator() -> None:
    """Marks of a program may be called anything."""
    records = training()
    plain = replace(records.host, level=np.zeros(len(records.host), np.int32))
    assert not sum_framework(replace(records, host=plain), OperatorRules()).has_operators


calls_of_program = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 25), st.sampled_from("abc")), max_size=16
)


def reference(
    calls: Sequence[tuple[int, int, str]], kernels: Sequence[int], most: int
) -> Counter[tuple[str, int]]:
    """How many operators are shown by name and number of kernels, one call after the other."""
    order = sorted(
        range(len(calls)), key=lambda row: (calls[row][0], -calls[row][0] - calls[row][1], row)
    )
    children: dict[int, list[int]] = {row: [] for row in (-1, *order)}
    opened = list[int]()
    for row in order:
        while opened and sum(calls[opened[-1]][:2]) <= calls[row][0]:
            opened.pop()
        children[opened[-1] if opened else -1].append(row)
        opened.append(row)

    def count(row: int) -> int:
        return kernels.count(row) + sum(map(count, children[row]))

    shown, asked = Counter[tuple[str, int]](), children[-1][:]
    while asked:
        row = asked.pop()
        if most and children[row] and count(row) > most:
            asked += children[row]
        else:
            shown[calls[row][2], count(row)] += 1
    return shown


@given(calls_of_program, st.data(), st.sampled_from([0, 4, 5]))
def test_any_operators_are_shown_as_one_call_after_the_other_tells(
    calls: list[tuple[int, int, str]], data: st.DataObject, most: int
) -> None:
    """The tree, the kernels and what gives way are those of a program that walks the calls."""
    rows = st.integers(0, len(calls) - 1) if calls else st.nothing()
    kernels = data.draw(st.lists(rows, max_size=24)) if calls else []
    told = [(python(start, start + length, name), OPERATOR) for start, length, name in calls]
    records = records_of(
        told,
        tasks=[Task(at, at + 1) for at in range(len(kernels))],
        arrows=[launch(call, task) for task, call in enumerate(kernels)],
    )
    expected = reference(calls, kernels, most)
    sums = Counter[str](), Counter[str]()
    for (name, count), times in expected.items():
        sums[0][name] += times
        sums[1][name] += times * count
    found = operators(records, OperatorRules(most))
    assert found == {name: (sums[0][name], sums[1][name]) for name in sums[0]}
