"""Proves that remedies need evidence, and that each is given once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.places import DATA
from timeline.analysis.gains.findings import Basis, Cause, Finding, FindingKind
from timeline.cli.main import main
from timeline.tables.table import Table
from timeline.verdict import advice as remedies
from timeline.verdict.advice import find_remedy

EXPOSED = FindingKind.EXPOSED_COMMUNICATION


def _finding(kind: FindingKind, cause: Cause, steps: tuple[int, ...] | None = None) -> Finding:
    return Finding(kind, None, steps, cause, 100, 100, 200, 100, fault=True, basis=Basis.REPLAY)


def _remedy(
    cause: Cause,
    kind: FindingKind = FindingKind.SLOW_HOSTS,
    *,
    call: str = "",
    waits: tuple[str, ...] = (),
    share: float = 0.2,
    steps: tuple[int, ...] | None = None,
    on_ai_cpu: bool = False,
    idle: tuple[tuple[str, int], ...] = (),
    small: float = 0.0,
) -> str:
    return find_remedy(
        _finding(kind, cause, steps),
        cause,
        call=call,
        share=share,
        waits=waits,
        on_ai_cpu=on_ai_cpu,
        first_steps=(1,),
        small=small,
        idle_calls=Table(
            {
                "call": np.array([call for call, _ in idle], object),
                "total_ns": np.array([ns for _, ns in idle], np.int64),
            }
        ),
    )


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        (remedies.COMPILE, {"cause": Cause.HOST, "call": "AscendCL@aclopCompileAndExecute"}),
        (remedies.ALLOCATE, {"cause": Cause.MEMORY, "call": "cudaMalloc"}),
        ("", {"cause": Cause.MEMORY, "call": "cudaMalloc", "share": 0.04}),
        (
            remedies.NO_WORKERS,
            {
                "cause": Cause.INPUT,
                "waits": ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",),
            },
        ),
        (
            remedies.MORE_WORKERS,
            {
                "cause": Cause.INPUT,
                "waits": ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",),
            },
        ),
        ("", {"cause": Cause.INPUT}),
        (remedies.READ_LESS, {"cause": Cause.HOST, "call": "aten::_local_scalar_dense"}),
        (remedies.READ_LESS, {"cause": Cause.HOST, "call": "aten::item"}),
        ("", {"cause": Cause.HOST, "call": "train.py(9): items"}),
        (remedies.WARM_UP, {"cause": Cause.HOST, "steps": (1,)}),
        ("", {"cause": Cause.COMPUTING, "steps": (1,)}),
        ("", {"cause": Cause.HOST, "steps": (2,)}),
        (
            remedies.AI_CPU,
            {"cause": Cause.COMPUTING, "kind": FindingKind.SLOW_OPERATOR, "on_ai_cpu": True},
        ),
        ("", {"cause": Cause.COMPUTING, "kind": FindingKind.SLOW_OPERATOR}),
        (
            remedies.COMPILE,
            {"cause": Cause.HOST, "idle": (("aclopCompileAndExecute", 5), ("aten::add", 95))},
        ),
        (
            remedies.READ_LESS,
            {"cause": Cause.HOST, "idle": (("aclopCompileAndExecute", 5), ("aten::item", 6))},
        ),
        (remedies.PACKETS, {"cause": Cause.COMMUNICATION, "kind": EXPOSED, "small": 0.21}),
        ("", {"cause": Cause.COMMUNICATION, "kind": EXPOSED, "small": 0.2}),
        ("", {"cause": Cause.HOST, "idle": (("aclopCompileAndExecute", 4), ("aten::add", 96))}),
    ],
)
def test_a_remedy_needs_its_evidence(expected: str, given: dict[str, object]) -> None:
    """Each evidence has its remedy; without any there is none."""
    assert _remedy(**given) == expected  # type: ignore[arg-type]


def test_allocations_of_a_first_step_are_no_reason_to_change_the_allocator(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a real run of three steps only the first allocates: it is to warm up, and no base."""
    path = DATA / "gpu-ranks"
    if not Path(path).exists():
        pytest.skip("gpu-ranks is not beside the project")
    assert main(["--verdict", str(path)]) == 0
    answer = " ".join(capsys.readouterr().out.split())
    assert answer.count(remedies.WARM_UP) == 1
    assert remedies.ALLOCATE not in answer
    assert "Mean of 4 ranks and 2 steps." in answer
