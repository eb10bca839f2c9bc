"""Proves which line of code host calls come from, and the stacks of the frames around them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.deadline import deadline
from tests.support.made_launches import Arrow, Call, Task, made_records
from timeline.analysis.work.code_lines import CodeLines, line_of, whole_stacks
from timeline.analysis.work.launching_operators import with_launchers
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_ID
from timeline.records.tables import FORWARD_BACKWARD, FlowEnd, Records

TORCH = "/home/me/.local/lib/python3.9/site-packages/torch/nn/modules/module.py(1518): _call_impl"
OWN = "/home/me/train.py(345): train"


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        (f"{TORCH}\n{OWN}\n/home/me/train.py(282): main", "train.py(345): train"),
        ("/usr/lib/python3/dist-packages/torch/_ops.py(1): f\n" + OWN, "train.py(345): train"),
        ("/opt/conda/lib/python3.11/threading.py(10): run\n" + OWN, "train.py(345): train"),
        ("C:\\\\Python310\\\\Lib\\\\runpy.py(8): run\nD:\\\\me\\\\a.py(2): f", "a.py(2): f"),
        ("torch/nn/functional.py(2): f\nmodel/net.py(7): forward", "net.py(7): forward"),
        ("threading.py(10): run\ntest.py(3): main", "test.py(3): main"),
        ("torch_guard.py(9): f\naiter/jit/core.py(1401): wrapper\n" + OWN, "train.py(345): train"),
        ("/tmp/torchinductor_me/ov/cov4.py(25): call\n" + OWN, "train.py(345): train"),
        ("<string>(1): <module>", ""),
        ("<frozen importlib._bootstrap>(2): f", ""),
        (f"{TORCH}\n<built-in function linear>", ""),
        ("lib/python/tools.py(4): go", "tools.py(4): go"),
        ("", ""),
    ],
)
def test_the_line_is_the_innermost_of_the_program(stack: str, line: str) -> None:
    """Packages, the interpreter's library and what has no file are passed over."""
    assert line_of(stack.replace("\\\\", "\\")) == line


def _lines(records: Records, rows: list[int]) -> list[str]:
    lines = CodeLines(records.host, records.strings).of(np.array(rows, np.int64))
    return records.strings.texts(lines)


def _with_stacks(records: Records, stacks: dict[int, str]) -> Records:
    column = np.full(len(records.host), NO_NAME, np.int32)
    for row, stack in stacks.items():
        column[row] = records.strings.code(stack)
    return replace(records, host=replace(records.host, stack=column))


@pytest.mark.parametrize("frame", ["/me/app/module.py(line 7): f | ", "a.py(", "/me/a.py(1", "x"])
def test_a_long_line_takes_linear_time(frame: str) -> None:
    """A stack without line numbers, of a megabyte in one line, before a frame."""
    line = frame * (1_000_000 // len(frame))
    with deadline(5):
        assert line_of(f"{line}\n/me/train.py(3): go") == "train.py(3): go"


def test_a_call_comes_from_its_stack_or_from_what_is_around_it() -> None:
    """Its own stack first, then the nearest call around it on its thread; none on other threads."""
    records = made_records(
        calls=[
            Call(0, 100, "train.py(57): step", "Python"),
            Call(10, 50, "aten::mm", "Python"),
            Call(20, 30, "launch"),
            Call(60, 70, "torch/nn/functional.py(1): relu", "Python"),
            Call(62, 64, "launch"),
            Call(20, 30, "launch", thread=2),
            Call(110, 120, "launch"),
        ]
    )
    records = _with_stacks(records, {1: f"{TORCH}\n{OWN}"})
    own, step = "train.py(345): train", "train.py(57): step"
    assert _lines(records, [0, 1, 2, 3, 4, 5, 6, NO_ID]) == [step, own, own, step, step, "", "", ""]


def test_backward_work_comes_from_the_line_of_its_forward_call() -> None:
    """The engine has no frames of Python; the arrow to a forward call leads to its line."""
    records = made_records(
        calls=[
            Call(0, 10, "aten::mm", "Python"),
            Call(2, 4, "launch", connection=1),
            Call(20, 30, "MmBackward0", "Python", 2),
            Call(22, 24, "launch", "CANN", 2, connection=2),
        ],
        tasks=[Task(40, 50, 1), Task(60, 70, 2)],
        arrows=[
            Arrow("HostToDevice", (FlowEnd.HOST, 1), (FlowEnd.TASK, 0)),
            Arrow("HostToDevice", (FlowEnd.HOST, 3), (FlowEnd.TASK, 1)),
            Arrow(FORWARD_BACKWARD, (FlowEnd.HOST, 0), (FlowEnd.HOST, 2)),
        ],
    )
    tasks = with_launchers(_with_stacks(records, {0: OWN})).tasks
    assert records.strings.texts(tasks.line) == ["train.py(345): train"] * 2


_NAMES = ("a.py(1): f", "b.py(2): g", "torch/c.py(3): h", "<built-in function len>", "aten::mm")


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 30), st.sampled_from(_NAMES)),
        max_size=20,
        unique_by=lambda one: one[0],
    ),
)
def test_stacks_of_nested_frames_are_those_of_a_walk(spans: list[tuple[int, int, str]]) -> None:
    """Of calls that nest, each that is no frame has all frames around it, innermost first."""
    nested = list[tuple[int, int, str]]()
    for start, length, name in spans:
        end = start + length
        if all(
            end <= begin
            or start >= stop
            or (begin <= start and end <= stop)
            or (start <= begin and stop <= end)
            for begin, stop, _ in nested
        ):
            nested.append((start, end, name))
    records = made_records(
        calls=[Call(2 * start, 2 * end, name, "Python") for start, end, name in nested]
    )
    stacks = whole_stacks(records.host, np.arange(len(nested)), records.strings)
    for (start, end, name), code in zip(nested, stacks.tolist(), strict=True):
        around = [
            (begin - stop, other)
            for begin, stop, other in nested
            if begin <= start and end <= stop and ".py(" in other
        ]
        frames = [other for _, other in sorted(around, reverse=True)]
        expected = [] if ".py(" in name else frames
        assert records.strings[code] == "\n".join(expected)


def test_recorded_stacks_stay_as_they_are() -> None:
    """A profile that records stacks gets none from frames."""
    records = made_records(
        calls=[Call(0, 9, "a.py(1): f", "Python"), Call(1, 2, "aten::mm"), Call(3, 4, "aten::mm")]
    )
    records = _with_stacks(records, {1: OWN})
    stacks = whole_stacks(records.host, np.arange(3), records.strings)
    assert records.strings.texts(stacks) == ["", OWN, ""]
