"""Proves that steps are found where nothing marks them, and only there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from simulator.model import Iteration
from simulator.overlap import expected_overlap
from tests.support.drawn_slices import drawn_slices
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import (
    Profile,
    ProfileShelf,
    change_events,
    without_markers,
)
from tests.support.run_command import Command, whole_overlap


@dataclass(frozen=True)
class Unmarked:
    """A profile without step markers, and the operators that a user would name."""

    profile: Profile
    forward: str
    backward: str

    def expected(self) -> list[tuple[int, int]]:
        """Forward start and backward end of each iteration of rank 0."""
        return [
            (self.run_of(one, self.forward)[0], self.run_of(one, self.backward)[1])
            for one in self.profile.run.rank(0).iterations
        ]

    def run_of(self, iteration: Iteration, operator: str) -> tuple[int, int]:
        """Start and end of an operator in an iteration."""
        (found,) = [
            (task.start_ns, task.end_ns)
            for task, kernel in iteration.kernels
            if kernel.scope.endswith(f"/{operator}")
        ]
        return found


@pytest.fixture
def unmarked(shelf: ProfileShelf, tmp_path: Path) -> Unmarked:
    found = without_markers(shelf, tmp_path / "unmarked", ranks=1)
    names = [kernel.scope for _, kernel in next(found.run.rank(0).iterations).kernels]
    (forward,) = [name for name in names if name.endswith("BNTrainingUpdate-op2")]
    backward = next(name for name in names if name.startswith("Gradients/"))
    return Unmarked(found, forward.rpartition("/")[2], backward.rpartition("/")[2])


def forward_backward(picture: TraceProcessor) -> list[tuple[int, int]]:
    """Start and end of each FP/BP slice."""
    return [
        (one.start_ns, one.end_ns)
        for one in drawn_slices(picture, "Step Trace")
        if one.name == "FP/BP"
    ]


def test_no_markers_and_no_operators(command: Command, unmarked: Unmarked) -> None:
    """Without markers, data fetches and named operators there are no steps, and it is said."""
    outcome = command(unmarked.profile.path)
    assert outcome.code == 0
    assert "no step marks" in outcome.out
    report = command.report(unmarked.profile.path, "-o", "out.pftrace")
    assert whole_overlap(report, 0) == expected_overlap(unmarked.profile.run, 0)


@pytest.mark.parametrize(
    "way",
    [
        "options",
        "full names",
        "PROFILING_FP_START and PROFILING_BP_END",
        "FP_POINT and BP_POINT",
        "options over environment",
        "newer over older environment",
    ],
)
def test_named_operators(
    command: Command, unmarked: Unmarked, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The operators that begin forward and end backward come from options or the environment."""
    forward, backward = unmarked.forward, unmarked.backward
    options = ["--fp-start", forward, "--bp-end", backward]
    if way == "full names":
        (first,) = {
            kernel.scope
            for one in unmarked.profile.run.rank(0).iterations
            for _, kernel in one.kernels
            if kernel.scope.endswith(f"/{forward}")
        }
        options[1] = first
    if way == "options over environment":
        monkeypatch.setenv("PROFILING_FP_START", "absent")
        monkeypatch.setenv("BP_POINT", "absent")
    if "environment" not in way and " and " in way:
        start, end = way.split(" and ")
        monkeypatch.setenv(start, forward)
        monkeypatch.setenv(end, backward)
        options = []
    if way == "newer over older environment":
        monkeypatch.setenv("PROFILING_FP_START", forward)
        monkeypatch.setenv("PROFILING_BP_END", backward)
        monkeypatch.setenv("FP_POINT", "absent")
        monkeypatch.setenv("BP_POINT", "absent")
        options = []
    path = unmarked.profile.path
    assert forward_backward(command.picture(path, *options)) == unmarked.expected()
    report = command.report(path, *options, "-o", "out.pftrace")
    assert report["outputs"][0]["steps"] == [1, 2, 3]
    assert [row["step"] for row in report["overlap"]] == [None, 1, 2, 3]


def test_markers_win_over_operators(command: Command, profile: Profile) -> None:
    """A graph whose steps the device has marked keeps those marks."""
    named = ("--fp-start", "BNTrainingUpdate-op2", "--bp-end", "BNTrainingUpdate-op2")
    options = (profile.path, "--ranks", "0")
    marks = [(one.forward_start_ns, one.backward_end_ns) for one in profile.run.rank(0).iterations]
    assert forward_backward(command.picture(*options)) == sorted(marks)
    assert forward_backward(command.picture(*options, *named)) == sorted(marks)


def test_steps_from_data_fetches(command: Command, shelf: ProfileShelf, tmp_path: Path) -> None:
    """Unnamed: forward starts after get_next, backward ends before the last AllReduce begins."""
    found = without_markers(shelf, tmp_path / "run", ranks=1)
    (trace,) = found.captures[0].glob("mindstudio_profiler_output/msprof_2*.json")
    change_events(
        trace,
        lambda event: (
            event | {"name": "Default/GetNext-op0"} if event["name"] == "MEMCPY_ASYNC" else event
        ),
    )
    expected = []
    for one in found.run.rank(0).iterations:
        computing = [task for task, _ in one.kernels]
        last = max(reduce.start_ns for reduce in one.collectives)
        before = [task for task in computing if task.start_ns < last]
        expected.append((computing[0].start_ns, before[-1].end_ns))
    assert forward_backward(command.picture(found.path)) == expected
