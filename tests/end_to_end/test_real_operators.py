"""Proves on real captures that operators, modules and memory compare as msprof-analyze does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import real_capture
from timeline.cli.main import main
from timeline.commands.compare import compare

TEXT = "torch-npu-text"
ROUNDED_NS = 100
"""The vendor rounds each time of a kernel to a thousandth of a microsecond before it adds them."""


def _capture(name: str, rank: int = 0) -> Path:
    return real_capture(name) / f"rank{rank}_ascend_pt"


def _compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> dict[str, list[dict[str, Any]]]:
    """The comparison of the two ranks by the command."""
    runs = [str(_capture(TEXT, rank)) for rank in (0, 1)]
    target = str(tmp_path / "compared.pftrace")
    assert main(["compare", *runs, "--json", "-o", target, *words]) == 0
    found: dict[str, list[dict[str, Any]]] = json.loads(capsys.readouterr().out)["comparison"]
    return found


def _row(rows: list[dict[str, Any]], **wanted: str) -> dict[str, Any]:
    (row,) = (row for row in rows if wanted.items() <= row.items())
    return row


@pytest.mark.parametrize(
    ("words", "names", "operators", "casts"),
    [((), 35, 115, 4), (("--max-kernels", "10"), 48, 188, 12)],
)
def test_operators_are_those_of_msprof_analyze(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    names: int,
    operators: int,
    casts: int,
) -> None:
    """Names, how often they ran and how long what they launched; also with a most of kernels."""
    rows = _compared(tmp_path, capsys, *words)["framework_operators"]
    assert (len(rows), sum(row["base_count"] for row in rows)) == (names, operators)
    cast = _row(rows, name="aten::to")
    assert cast["base_count"] == cast["new_count"] == casts
    assert cast["base_ns"] == pytest.approx(844977, abs=ROUNDED_NS)
    assert cast["new_ns"] == pytest.approx(1277346, abs=ROUNDED_NS)
    gathered = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    assert _row(rows, name=gathered)["base_ns"] == pytest.approx(254944, abs=ROUNDED_NS)


def test_memory_and_modules_are_those_of_msprof_analyze(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sizes and how long they were held are exact; modules have paths, forward and backward."""
    found = _compared(tmp_path, capsys)
    forward = _row(found["operator_memory"], name="DistributedDataParallel.forward")
    assert forward["base_bytes"] == 378382336
    assert forward["base_held_ns"] == 411863650
    assert forward["base_count"] == 1
    net = "DistributedDataParallel_0/AlexNet_0"
    rows = found["modules"]
    convolution = _row(rows, path=f"{net}/Sequential_0/Conv2d_0", direction="forward")
    assert convolution["class"] == "Conv2d"
    assert convolution["base_self_ns"] == pytest.approx(401248, abs=ROUNDED_NS)
    whole = _row(rows, path=net, direction="forward")
    assert whole["base_total_ns"] == pytest.approx(2318946, abs=ROUNDED_NS)
    assert _row(rows, path=net, direction="backward")["base_self_ns"] == 0


def test_shapes_of_a_database_are_those_of_text(tmp_path: Path) -> None:
    """torch_npu wrote them into the column of types; one network has the same in both."""
    runs = _capture(TEXT), _capture("torch-npu-db")
    report = compare(*runs, output=tmp_path / "compared.pftrace", match_shapes=True)
    operators = report.comparison.framework_operators
    assert len(operators) == 56
    assert not operators["delta_count"].any()


@pytest.mark.parametrize("name", ["torch-npu-db", "torch-npu-db-level0", "torch-npu-db-2024-10"])
def test_databases_tell_the_same_operators(name: str, tmp_path: Path) -> None:
    """A database has the operators of such a run, their allocations and their modules."""
    runs = _capture(name, 0), _capture(name, 1)
    found = compare(*runs, output=tmp_path / "compared.pftrace").comparison
    assert len(found.framework_operators) == 35
    assert found.framework_operators["base_count"].sum() == 115
    assert found.operator_memory["base_bytes"].sum() > 10**9
    assert "DistributedDataParallel_0/AlexNet_0" in found.modules["path"].tolist()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torch-npu-db", [(20, 1114784), (46, 1970891), (14, 1103462)]),
        ("torch-npu-db-level0", [(20, 1122722), (46, 1944638), (14, 1095422)]),
        ("torch-npu-db-2024-10", [(25, 977399), (63, 1602325), (69, 2626038)]),
    ],
)
def test_classes_of_databases_are_those_of_msprof_analyze(
    name: str, expected: list[tuple[int, int]], tmp_path: Path
) -> None:
    """By launch, to the nanosecond: convolution forward and backward, and matmul."""
    report = compare(_capture(name, 0), _capture(name, 1), output=tmp_path / "compared.pftrace")
    overall = report.comparison.overall.to_dicts()
    rows = [
        _row(overall, by="launch", metric=metric)
        for metric in ("forward convolution", "backward convolution", "matmul")
    ]
    assert [(row["base_count"], row["base_ns"]) for row in rows] == expected
