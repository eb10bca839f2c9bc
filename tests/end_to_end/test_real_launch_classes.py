"""Proves on real captures that classes of work are those of msprof-analyze compare.

The captures lie beside the project; without them these tests are skipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import DATA, needs_captures
from timeline.cli.main import main

TEXT, LEVEL0 = DATA / "torch-npu-text", DATA / "torch-npu-db-level0"
Row = dict[str, Any]
pytestmark = needs_captures


def compared(base: Path, new: Path, capsys: pytest.CaptureFixture[str], here: Path) -> Row:
    """The comparison that the command prints."""
    words = ["compare", str(base), str(new), "-o", str(here / "t.pftrace"), "--json", "-q"]
    assert main(words) == 0
    found: Row = json.loads(capsys.readouterr().out)["comparison"]
    return found


def classes(comparison: Row) -> dict[tuple[str, str], Row]:
    return {(row["by"], row["metric"]): row for row in comparison["overall"] if row["by"]}


def test_classes_are_those_of_msprof_analyze(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """By launch as it prints them, by kernel as the types and times in kernel_details.csv say."""
    base, new = TEXT / "rank0_ascend_pt", TEXT / "rank1_ascend_pt"
    rows = classes(compared(base, new, capsys, tmp_path))
    names = ("base_ns", "base_count", "new_ns", "new_count")
    expected = {
        ("launch", "forward convolution"): (1_116_440, 20, 1_117_780, 20),
        ("launch", "backward convolution"): (1_966_314, 46, 1_961_894, 46),
        ("launch", "matmul"): (1_066_139, 14, 1_088_601, 14),
        ("launch", "vector"): (4_145_534, 94, 4_132_950, 94),
        ("launch", "cube"): (0, 0, 0, 0),
        ("kernel", "forward convolution"): (723_434, 5, 722_494, 5),
        ("kernel", "backward convolution"): (1_085_022, 9, 1_092_002, 9),
        ("kernel", "matmul"): (997_399, 9, 1_022_861, 9),
        ("kernel", "vector"): (5_488_572, 151, 5_463_868, 151),
        ("kernel", "SDMA"): (573_790, 11, 571_570, 11),
        ("kernel", "lccl"): (0, 0, 0, 0),
        ("kernel", "forward flash attention"): (0, 0, 0, 0),
    }
    assert {key: tuple(rows[key][name] for name in names) for key in expected} == expected
    for row in rows.values():
        assert row["delta_ns"] == row["new_ns"] - row["base_ns"]
