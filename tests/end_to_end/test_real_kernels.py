"""Proves on real captures what bounds kernels: against sums of their own tables, in each layout."""

from __future__ import annotations

import csv
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import timeline
from tests.support.places import DATA
from timeline.cli.main import main

TABLES = {
    "torch-npu-text": "rank*_ascend_pt/*/kernel_details.csv",
    "msprof-single": "*/PROF_*/mindstudio_profiler_output/op_summary_*.csv",
}
COMMUNICATION = ("HCCL", "COMMUNICATION")
PIPES = {"mac": "cube", "vec": "vector"}
TYPE, CORE = ("Type", "OP Type"), ("Accelerator Core", "Task Type")
DURATION = ("Duration(us)", "Task Duration(us)")
BLOCKS = ("Block Dim", "Block Num")


def _tables() -> list[Path]:
    return [
        path for name, pattern in TABLES.items() for path in sorted((DATA / name).glob(pattern))
    ]


def _of(row: dict[str, str], names: tuple[str, ...]) -> str:
    return next(row[name].strip() for name in names if name in row)


def _number(row: dict[str, str], *names: str) -> float | None:
    for name in names:
        try:
            return float(row.get(name, ""))
        except ValueError:
            continue
    return None


class _Expected:
    """The sums of one type and core, from the rows of its table."""

    def __init__(self) -> None:
        self.ratios: dict[str, float] = defaultdict(float)
        self.measured = self.split = self.blocks = self.cycles = self.block_core = 0.0
        self.timed = self.core = 0.0

    def add(self, row: dict[str, str]) -> None:
        duration = float(_of(row, DURATION))
        ratios = {
            name: value
            for name in row
            if name.endswith("_ratio") and (value := _number(row, name)) is not None
        }
        blocks = _number(row, *BLOCKS) or 0.0
        if blocks:
            self.split += duration
            self.blocks += blocks * duration
        if not ratios:
            return
        self.measured += duration
        for name, value in ratios.items():
            self.ratios[name] += value * duration
        aic = _number(row, "aicore_time(us)") or 0.0
        aiv = _number(row, "aiv_time(us)") or 0.0
        if max(aic, aiv):
            self.timed += duration
            self.core += max(aic, aiv)
        if blocks and max(aic, aiv):
            names = ("aic_total_cycles", "total_cycles") if aic else ("aiv_total_cycles",)
            self.cycles += _number(row, *names) or 0.0
            self.block_core += blocks * (aic or aiv)

    def bound(self) -> tuple[str, float] | None:
        if not self.measured:
            return None
        by_pipe: dict[str, float] = defaultdict(float)
        for name, total in self.ratios.items():
            pipe = name.removeprefix("aic_").removeprefix("aiv_").removesuffix("_ratio")
            pipe = pipe.removesuffix("_exe")
            pipe = PIPES.get(pipe, pipe)
            by_pipe[pipe] = max(by_pipe[pipe], total / self.measured)
        pipe = max(by_pipe, key=by_pipe.__getitem__)
        return (pipe if by_pipe[pipe] >= 0.3 else "latency"), by_pipe[pipe]


def _expected(table: Path) -> dict[tuple[str, str], _Expected]:
    sums: dict[tuple[str, str], _Expected] = defaultdict(_Expected)
    with table.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            kind, core = _of(row, TYPE), _of(row, CORE)
            if "N/A" not in (kind, core) and core not in COMMUNICATION:
                sums[kind, core].add(row)
    return sums


def _check(row: dict[str, Any], expected: _Expected) -> None:
    bound = expected.bound()
    assert (row["bound"], row["bound_share"]) == (
        (None, None) if bound is None else (bound[0], pytest.approx(bound[1], abs=2e-3))
    )
    used = expected.blocks / expected.split if expected.split else None
    assert row["cores"] == (None if used is None else pytest.approx(used, rel=2e-3))
    clock = expected.cycles / expected.block_core / 1000 if expected.block_core else None
    assert row["clock_ghz"] == (None if clock is None else pytest.approx(clock, rel=2e-3))
    outside = 1 - expected.core / expected.timed if expected.timed else None
    assert row["outside_core"] == (None if outside is None else pytest.approx(outside, abs=2e-3))


@pytest.mark.parametrize("table", _tables(), ids=lambda path: path.parent.parent.name)
def test_bounds_cores_and_clocks_are_those_of_the_table(table: Path) -> None:
    """Each type and core that the table names, with ratios rounded to three digits."""
    expected = _expected(table)
    with timeline.open_profile(table.parent.parent) as profile:
        rows = {(row["type"], row["core"]): row for row in profile.operators().to_dicts()}
    shared = expected.keys() & rows.keys()
    assert len(shared) == len(expected)
    for key in shared:
        _check(rows[key], expected[key])


def test_a_database_says_what_the_text_of_the_same_script_says() -> None:
    """Two runs of one script: types that take most time are bound by the same pipe."""
    found = []
    for name in ("torch-npu-text", "torch-npu-db"):
        if not (DATA / name).exists():
            pytest.skip(f"{name} is not beside the project")
        with timeline.open_profile(DATA / name) as profile:
            rows = profile.operators().to_dicts()
        rows = [row for row in rows if row["rank"] == 0 and row["total_ns"] > 200_000]
        found.append({row["type"]: row for row in rows if row["bound"]})
    text, database = found
    assert len(text) > 8
    for kind in text.keys() & database.keys():
        assert database[kind]["bound"] == text[kind]["bound"]
        assert database[kind]["clock_ghz"] == pytest.approx(text[kind]["clock_ghz"], rel=0.02)


def test_all_layouts_of_one_capture_agree(tmp_path: Path) -> None:
    """The database of msprof, its tables, and what it parsed, of one capture."""
    captures = sorted((DATA / "msprof-single" / "cann9-add").glob("PROF_*"))
    if not captures:
        pytest.skip("cann9-add is not beside the project")
    copy = tmp_path / captures[0].name
    shutil.copytree(captures[0], copy)
    layouts, shares = [], []
    for pattern in ("msprof_*.db", "mindstudio_profiler_output/*.json", "no more"):
        with timeline.open_profile(copy) as profile:
            layouts.append(profile.sources[0].layout)
            (row,) = profile.operators().to_dicts()
        shares.append(row["bound_share"])
        assert row["bound"] == "scalar"
        for path in copy.glob(pattern):
            path.unlink()
    assert len(set(layouts)) == 3
    assert shares == pytest.approx([shares[0]] * 3, abs=1e-3)


def test_the_verdict_on_a_single_operator_is_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Its pipe, its warm launches and its first one, before anything of the host."""
    captures = sorted((DATA / "msprof-single" / "cann9-div").glob("PROF_*"))
    if not captures:
        pytest.skip("cann9-div is not beside the project")
    assert main(["--verdict", str(captures[0])]) == 0
    assert capsys.readouterr().out.startswith(
        "RealDiv is limited by the scalar unit (49% busy; vector 45%): 7.48 us, 699 warm launches, "
        "first 21.80 us.\n"
    )
