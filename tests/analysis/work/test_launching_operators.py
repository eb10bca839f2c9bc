"""Proves whose work device items are told to be: launching operator, module and phase; and sums."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_launches import Arrow, Call, Op, Task, made_records
from timeline.analysis.work import launching_operators
from timeline.analysis.work.launching_operators import (
    LauncherFigures,
    LauncherTimes,
    Phase,
    launcher_figures,
    with_launchers,
)
from timeline.records.tables import GPU, FlowEnd, Records

FORWARD, ENGINE, QUEUE = 1, 2, 3
"""The threads of a program that torch_npu runs: its own, autograd's, and that of the queue."""


def _host(row: int) -> tuple[FlowEnd, int]:
    return FlowEnd.HOST, row


def _told(records: Records) -> list[tuple[str, str, str, str]]:
    """Launching operator, innermost operator, module and phase of each task, then of each op."""
    found, strings = with_launchers(records), records.strings
    return [
        (strings[launch], strings[inner], strings[module], Phase(phase).name.lower())
        for table in (found.tasks, found.ops)
        for launch, inner, module, phase in zip(
            table.launched_by.tolist(),
            table.operator.tolist(),
            table.module.tolist(),
            table.phase.tolist(),
            strict=True,
        )
    ]


TRAINING = [
    Call(0, 100, "ProfilerStep#3", "Python", FORWARD),
    Call(2, 50, "nn.Module: Net_0", "Python", FORWARD),
    Call(5, 40, "nn.Module: Linear_1", "Python", FORWARD),
    Call(6, 39, "torch/nn/modules/linear.py(114): forward", "Python", FORWARD),
    Call(10, 30, "aten::linear", "Python", FORWARD),
    Call(12, 28, "aten::addmm", "Python", FORWARD),
    Call(20, 22, "Enqueue", "Python", FORWARD),
    Call(60, 80, "Optimizer.step#SGD.step", "Python", FORWARD),
    Call(62, 70, "aten::_foreach_add_", "Python", FORWARD),
    Call(64, 66, "Enqueue", "Python", FORWARD),
    Call(40, 50, "autograd::engine::evaluate_function: AddmmBackward0", "Python", ENGINE),
    Call(41, 49, "AddmmBackward0", "Python", ENGINE),
    Call(42, 47, "aten::mm", "Python", ENGINE),
    Call(44, 45, "Enqueue", "Python", ENGINE),
    Call(
        52, 58, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "Python", 2
    ),
    Call(54, 55, "Enqueue", "Python", ENGINE),
    *(Call(at, at + 3, f"Dequeue@{at}", "Python", QUEUE) for at in (30, 70, 50, 60)),
    *(Call(at + 1, at + 2, "launch", "CANN", QUEUE, at) for at in (30, 70, 50, 60)),
]
ENQUEUES = (6, 9, 13, 15)


def _training() -> Records:
    arrows = [
        Arrow("async_task_queue", _host(put), _host(taken))
        for put, taken in zip(ENQUEUES, range(16, 20), strict=True)
    ]
    return made_records(
        calls=TRAINING,
        tasks=[Task(100, 110, 30), Task(120, 130, 70), Task(140, 150, 50)],
        ops=[Op(160, 170, 60)],
        arrows=[*arrows, Arrow("fwdbwd", _host(5), _host(11))],
    )


def test_work_of_a_training_step_is_told_by_operator_module_and_phase() -> None:
    """Through the queue to the call that asked; backward has the module of its forward call."""
    assert _told(_training()) == [
        ("aten::linear", "aten::addmm", "Net_0/Linear_1", "forward"),
        ("aten::_foreach_add_", "aten::_foreach_add_", "Optimizer.step#SGD.step", "other"),
        ("AddmmBackward0", "aten::mm", "Net_0/Linear_1", "backward"),
        ("torch::autograd::AccumulateGrad", "torch::autograd::AccumulateGrad", "", "backward"),
    ]


def test_without_autograd_no_phase_is_told() -> None:
    """A run that only infers is not called forward: nothing tells it from what lies around."""
    records = _training()
    kept = np.array([call.thread != ENGINE for call in TRAINING])
    inferring = with_launchers(records.filter(host=kept))
    assert not inferring.tasks.phase.any() and not inferring.ops.phase.any()
    assert inferring.tasks.module.astype(bool).tolist() == [True, True, False]


def test_annotations_lie_around_operators_and_operators_may_have_any_name() -> None:
    """A name without a namespace is an operator's where no operator lies inside, or one around."""
    records = made_records(
        calls=[
            Call(0, 90, "my region", "Python"),
            Call(10, 20, "fused_kernel", "Python"),
            Call(11, 12, "launch", connection=1),
            Call(30, 50, "c10d::allreduce_", "Python"),
            Call(32, 48, "nccl:all_reduce", "Python"),
            Call(34, 44, "record::comms", "Python"),
            Call(40, 41, "launch", connection=2),
            Call(60, 61, "launch", connection=3),
            Call(70, 80, "range of a program", "MSTX"),
            Call(72, 73, "launch", connection=4),
            Call(95, 96, "launch", connection=5),
        ],
        tasks=[Task(100 + at, 101 + at, at) for at in (1, 2, 3, 4, 5)] + [Task(200, 210)],
    )
    assert [told[:3] for told in _told(records)] == [
        ("fused_kernel", "fused_kernel", "my region"),
        ("c10d::allreduce_", "record::comms", "my region"),
        ("launch", "", "my region"),
        ("launch", "", "my region/range of a program"),
        ("launch", "", ""),
        ("", "", ""),
    ]


def test_deep_nesting_adds_only_the_paths_of_launches() -> None:
    """Paths of all calls would take memory, and time to look through, by the square of depth."""
    depth, asked = 1_000, 2_000
    regions = [Call(at, 2 * asked - at, f"nn.Module: Layer_{at}", "Python") for at in range(depth)]
    operator = Call(asked - 1, asked + 2, "aten::mm", "Python")
    launch = Call(asked, asked + 1, "launch", connection=1)
    records = made_records(
        calls=[*regions, operator, launch], tasks=[Task(3 * asked, 3 * asked + 1, 1)]
    )
    before = sum(map(len, records.strings))
    ((*_, path, _),) = _told(records)
    names = path.split("/")
    assert (names[0], names[-1], len(names)) == ("Layer_0", f"Layer_{depth - 1}", depth)
    assert sum(map(len, records.strings)) - before < 2 * len(path)


def test_operators_of_the_library_count_where_no_framework_is_recorded() -> None:
    """A program without a framework calls CANN's operators itself."""
    calls = [Call(10, 20, "AscendCL@aclnnMatmul"), Call(12, 13, "launch", connection=1)]
    (told,) = _told(made_records(calls=calls, tasks=[Task(100, 110, 1)]))
    assert told == ("aclnnMatmul", "aclnnMatmul", "", "unknown")
    framework = Call(5, 30, "aten::mm", "Python")
    (told,) = _told(made_records(calls=[*calls, framework], tasks=[Task(100, 110, 1)]))
    assert told[:2] == ("aten::mm", "aten::mm")


def _named(names: list[str], hardware: str = "Ascend Hardware") -> Records:
    records = made_records(tasks=[Task(10 * at, 10 * at + 5) for at in range(len(names))])
    codes = records.strings.codes(names)
    return replace(records, tasks=replace(records.tasks, name=codes), hardware=hardware)


def test_scopes_of_graphs_are_modules() -> None:
    """MindSpore's scopes tell module and phase; kernels of GPUs have slashes of their own."""
    names = [
        "Default/network-Net/conv1-Conv2d/Conv2D-op1",
        "Gradients/Default/network-Net/conv1-Conv2d/gradConv2D-expand/Conv2DBackprop-op2",
        "Default/optimizer-Momentum/ApplyMomentum-op3",
        "TransData_4",
    ]
    assert [told[2:] for told in _told(_named(names))] == [
        ("Default/network-Net/conv1-Conv2d", "forward"),
        ("Default/network-Net/conv1-Conv2d", "backward"),
        ("Default/optimizer-Momentum", "other"),
        ("", "unknown"),
    ]
    assert [told[2:] for told in _told(_named(names, GPU))] == [("", "unknown")] * 4


NAMES = ("aten::mm", "nn.Module: Linear_0", "my region", "<built-in function len>", "Enqueue")


@st.composite
def _nested_calls(draw: st.DrawFn) -> list[Call]:
    """Calls of two threads that nest, and launches that are inside some of them."""
    calls = []
    for thread in (1, 2):
        edges = draw(st.lists(st.integers(0, 200), min_size=4, max_size=30, unique=True))
        todo = [sorted(edges)]
        while todo:
            moments = todo.pop()
            if len(moments) < 2:
                continue
            if draw(st.booleans()):
                name = draw(st.sampled_from(NAMES))
                calls.append(Call(moments[0], moments[-1], name, "Python", thread))
                todo.append(moments[1:-1])
            else:
                at = draw(st.integers(1, len(moments) - 1))
                todo += [moments[:at], moments[at:]]
        for one, (start, end) in enumerate(pairwise(sorted(edges))):
            if end - start > 1 and draw(st.booleans()):
                launch = Call(start, end, "launch", "CANN", thread, 1000 * thread + one)
                calls.append(launch)
    return calls


def _expected(calls: list[Call], launch: Call) -> tuple[str, str, str]:
    """What a walk from the outermost call around a launch to the innermost finds."""
    middle = launch.start_ns + (launch.end_ns - launch.start_ns) // 2
    framework = [call for call in calls if call.layer == "Python"]
    around = [
        call
        for call in framework
        if call.thread == launch.thread and call.start_ns <= middle < call.end_ns
    ]
    operators, path = list[str](), list[str]()
    for call in sorted(around, key=lambda call: call.start_ns):
        holds = any(
            other.name == "aten::mm"
            and other.thread == call.thread
            and call.start_ns <= other.start_ns < call.end_ns
            for other in framework
        )
        if call.name == "aten::mm" or (call.name == "my region" and (operators or not holds)):
            operators.append(call.name)
        elif call.name == "my region":
            path.append(call.name)
        elif call.name == "nn.Module: Linear_0":
            path.append("Linear_0")
    first, last = (operators[0], operators[-1]) if operators else ("launch", "")
    return first, last, "/".join(path)


@given(_nested_calls())
def test_what_is_around_a_launch_is_what_a_walk_over_all_calls_finds(calls: list[Call]) -> None:
    """However calls nest, each task gets the chain of those around its launch on that thread."""
    if not any(call.name == "aten::mm" for call in calls):
        calls.append(Call(500, 501, "aten::mm", "Python", 1))
    launches = [call for call in calls if call.name == "launch"]
    records = made_records(
        calls=calls,
        tasks=[Task(1000 + at, 1001 + at, call.connection) for at, call in enumerate(launches)],
    )
    told = [one[:3] for one in _told(records)]
    assert told == [_expected(calls, launch) for launch in launches]


@st.composite
def _launched(draw: st.DrawFn) -> Records:
    """A rank whose tasks and ops have launching operators, modules and phases."""
    tasks = draw(st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=40))
    ops = draw(st.lists(st.integers(0, 99), max_size=10))
    records = made_records(
        tasks=[
            Task(100 * at, 100 * at + length, does="computes" if computes else "copies")
            for at, (length, computes) in enumerate(tasks)
        ],
        ops=[Op(100 * at, 100 * at + length) for at, length in enumerate(ops)],
    )
    names = st.sampled_from(["", "a", "b", "c", "a/b", "a/c", "a/b/c", "d/b/c"])

    def columns(count: int) -> dict[str, np.ndarray]:
        drawn = {
            name: records.strings.codes(draw(names) for _ in range(count))
            for name in ("launched_by", "operator", "module", "line")
        }
        return drawn | {"phase": np.array([draw(st.integers(0, 3)) for _ in range(count)], int)}

    return replace(
        records,
        tasks=replace(records.tasks, **columns(len(tasks))),
        ops=replace(records.ops, **columns(len(ops))),
    )


@given(_launched(), st.sampled_from([2, 6, 1000]))
def test_each_task_and_op_is_in_one_row(records: Records, most: int) -> None:
    """Either table adds up to all tasks that compute and all ops, however few rows it may have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching_operators, "MOST_ROWS", most)
        figures = launcher_figures(records)
    tasks, ops = records.tasks.take(records.tasks.compute), records.ops
    for table in (figures.by_launch, figures.by_module):
        for communication, its in ((False, tasks), (True, ops)):
            rows = table.take(table.communication == communication)
            assert int(rows.count.sum()) == len(its)
            assert int(rows.total_ns.sum()) == int((its.end_ns - its.start_ns).sum())
    if most == 1000:
        assert _sums(figures, figures.by_launch) == _walk(records, "launched_by", "operator")
        assert _sums(figures, figures.by_module) == _walk(records, "module")
        assert not figures.by_module.line.any()
        by_line, names, rows = _time_by_line(records), figures.strings, figures.by_launch
        for launch, inner, phase, line, communication in zip(
            *(getattr(rows, name).tolist() for name in ("launched_by", "operator", "phase")),
            rows.line.tolist(),
            rows.communication.tolist(),
            strict=True,
        ):
            times_ns = by_line[communication, names[launch], names[inner], phase]
            assert times_ns[names[line]] == max(times_ns.values())
    else:
        # Beside the longest there are rows of the rest: for each phase, of computing and of
        # communication, with each name told or not.
        assert len(figures.by_launch) <= most + 2 * len(Phase) * 2**2
        assert len(figures.by_module) <= most + 2 * len(Phase) * 2


Key = tuple[bool, str, str, str, int]


def _sums(figures: LauncherFigures, table: LauncherTimes) -> dict[Key, list[int]]:
    names = np.array(figures.strings, object)
    return {
        (bool(communication), names[launch], names[inner], names[module], phase): [*times]
        for communication, launch, inner, module, _, phase, *times in zip(
            *(getattr(table, name).tolist() for name in table.columns()), strict=True
        )
    }


def _time_by_line(records: Records) -> dict[tuple[bool, str, str, int], dict[str, int]]:
    """The time of each line of code, by whether it communicates, launching operators and phase."""
    times_ns: dict[tuple[bool, str, str, int], dict[str, int]] = defaultdict(
        lambda: defaultdict(int)
    )
    strings = records.strings
    for communication, table in ((False, records.tasks), (True, records.ops)):
        for row in range(len(table)):
            if communication or records.tasks.compute[row]:
                launch, inner, line = (
                    strings[getattr(table, name)[row]]
                    for name in ("launched_by", "operator", "line")
                )
                key = (communication, launch, inner, int(table.phase[row]))
                times_ns[key][line] += int(table.end_ns[row] - table.start_ns[row])
    return times_ns


def _walk(records: Records, *told: str) -> dict[Key, list[int]]:
    lengths: dict[Key, list[int]] = defaultdict(list)
    for communication, table in ((False, records.tasks), (True, records.ops)):
        for row in range(len(table)):
            if not communication and not records.tasks.compute[row]:
                continue
            launch, inner, module = (
                records.strings[getattr(table, name)[row]] if name in told else ""
                for name in ("launched_by", "operator", "module")
            )
            key = (communication, launch, inner, module, int(table.phase[row]))
            lengths[key].append(int(table.end_ns[row] - table.start_ns[row]))
    return {key: [len(all_), sum(all_), min(all_), max(all_)] for key, all_ in lengths.items()}


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 20), st.sampled_from(NAMES)), max_size=25
    ),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), max_size=8),
    st.lists(st.tuples(st.integers(0, 24), st.integers(0, 24)), max_size=5),
)
def test_calls_that_cross_or_take_no_time_lose_nothing(
    calls: list[tuple[int, int, str]], launches: list[tuple[int, int]], pairs: list[tuple[int, int]]
) -> None:
    """Clocks that round make calls cross; each task is in one row of either table all the same."""
    records = made_records(
        calls=[
            *(Call(start, start + length, name, "Python") for start, length, name in calls),
            *(
                Call(start, start + length, "launch", connection=at)
                for at, (start, length) in enumerate(launches)
            ),
        ],
        tasks=[Task(100 + at, 101 + at, at) for at in range(len(launches))],
        arrows=[
            Arrow("fwdbwd", _host(one), _host(other))
            for one, other in pairs
            if max(one, other) < len(calls)
        ],
    )
    figures = launcher_figures(with_launchers(records))
    assert figures.by_launch.count.sum() == figures.by_module.count.sum() == len(launches)
