"""Proves on real captures what bounds kernels: against sums of their own tables, in each layout.

Also that the terminal, the page and JSON give the same numbers.
"""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import timeline
from tests.support.html_page import read
from tests.support.perfetto_sql import TraceProcessor
from tests.support.places import DATA
from timeline.analysis.work.shape_work import filters_by_format, shape_work
from timeline.cli.main import main

TABLES = {
    "torch-npu-text": "rank*_ascend_pt/*/kernel_details.csv",
    "msprof-single": "*/PROF_*/mindstudio_profiler_output/op_summary_*.csv",
}
COMMUNICATION = ("HCCL", "COMMUNICATION")
PIPES = {"mac": "cube", "vec": "vector"}
TYPE, CORE = ("Type", "OP Type"), ("Accelerator Core", "Task Type")
NAME = ("Name", "Op Name")
STARTS = ("Start Time(us)", "Task Start Time(us)")
CORE_TIMES = {"aic": "aicore_time(us)", "aiv": "aiv_time(us)"}
CYCLES = {"aic": ("aic_total_cycles", "total_cycles"), "aiv": ("aiv_total_cycles",)}
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


@dataclass(frozen=True)
class _Device:
    """Number and clock (GHz) of the cube and vector cores, and the type of core of each task."""

    cores: dict[str, int]
    clock: dict[str, float]
    types: dict[tuple[str, str, str], str]

    @classmethod
    def of(cls, table: Path) -> _Device:
        """Read info.json and task_time of a capture."""
        files = [*table.parent.parent.glob("device_*/info.json.[0-9]")]
        # torch_npu leaves no info.json: 24 cube and 48 vector cores; AICORE_FREQ is 1800 MHz.
        info = {"ai_core_num": 24, "aiv_num": 48, "aic_frequency": 1800, "aiv_frequency": 1800}
        for file in files:
            (info,) = json.loads(file.read_text().partition("}filesize")[0])["DeviceInfo"]
        types = {}
        for path in table.parent.glob("task_time_*.csv"):
            for row in _rows(path):
                key = (row["stream_id"], row["task_id"], row["task_start(us)"].strip())
                types[key] = row["kernel_type"]
        return cls(
            {"aic": info["ai_core_num"], "aiv": info["aiv_num"]},
            {side: float(info[f"{side}_frequency"]) / 1000 for side in ("aic", "aiv")},
            types,
        )

    def type_of(self, row: dict[str, str]) -> str:
        """The type of core in a row, or of its task."""
        stream, task = (row[name].strip() for name in ("Stream ID", "Task ID"))
        start = next(row[name].strip() for name in STARTS if name in row)
        return self.types[stream, task, start] if _of(row, CORE) == "N/A" else _of(row, CORE)


class _Expected:
    """The sums of one name and core, from the rows of its table."""

    def __init__(self, device: _Device) -> None:
        self.device = device
        self.ratios: dict[str, float] = defaultdict(float)
        self.measured = self.split = self.blocks = self.cycles = self.clocked = 0.0
        self.timed = self.core = 0.0

    def add(self, row: dict[str, str]) -> None:
        duration = float(_of(row, DURATION))
        ratios = {
            name: value
            for name in row
            if name.endswith("_ratio") and (value := _number(row, name)) is not None
        }
        if not ratios:
            return
        self.measured += duration
        for name, value in ratios.items():
            self.ratios[name] += value * duration
        blocks = _number(row, *BLOCKS) or 0.0
        times = {side: _number(row, name) or 0.0 for side, name in CORE_TIMES.items()}
        counted = {side: _number(row, *names) or 0.0 for side, names in CYCLES.items()}
        if max(times.values()):
            self.timed += duration
            self.core += max(times.values())
        side = "aic" if times["aic"] or not (times["aiv"] or not counted["aic"]) else "aiv"
        cycles, most = counted[side], self.device.cores[side]
        if not cycles:
            return
        if blocks:
            waves = math.ceil(blocks / most)
            self.cycles += cycles
            self.clocked += times[side] * blocks / waves
            busy = blocks / waves
            if blocks > most and not self.device.types:  # the number of cores is not in the files
                busy = cycles / 1000 / self.device.clock[side] / duration
        else:
            busy = cycles / 1000 / self.device.clock[side] / duration
            assert busy <= most
            self.cycles += cycles
            self.clocked += cycles / 1000 / self.device.clock[side]
        self.split += duration
        self.blocks += busy * duration

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


def _rows(table: Path) -> Iterator[dict[str, str]]:
    with table.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _expected(*tables: Path, by: tuple[str, ...]) -> dict[tuple[str, str], _Expected]:
    """The sums of tables by a column and the type of core."""
    sums: dict[tuple[str, str], _Expected] = {}
    for table in tables:
        device = _Device.of(table)
        for row in _rows(table):
            if _of(row, CORE) not in COMMUNICATION:
                key = _of(row, by), device.type_of(row)
                sums.setdefault(key, _Expected(device)).add(row)
    return sums


def _check(row: dict[str, Any], expected: _Expected) -> None:
    bound = expected.bound()
    assert (row["bound"], row["bound_share"]) == (
        (None, None) if bound is None else (bound[0], pytest.approx(bound[1], abs=2e-3))
    )
    used = expected.blocks / expected.split if expected.split else None
    assert row["cores"] == (None if used is None else pytest.approx(used, rel=3e-3))
    clock = expected.cycles / expected.clocked / 1000 if expected.clocked else None
    assert row["clock_ghz"] == (None if clock is None else pytest.approx(clock, rel=2e-3))
    outside = 1 - expected.core / expected.timed if expected.timed else None
    assert row["outside_core"] == (None if outside is None else pytest.approx(outside, abs=2e-3))


@pytest.mark.parametrize("table", _tables(), ids=lambda path: path.parent.parent.name)
def test_bounds_cores_and_clocks_are_those_of_the_table(table: Path) -> None:
    """Each name, type and core that the table has, with ratios rounded to three digits."""
    expected, by_type = _expected(table, by=NAME), _expected(table, by=TYPE)
    with timeline.open_profile(table.parent.parent) as profile:
        types = {(row["type"], row["core"]): row for row in profile.operators().to_dicts()}
        rows = profile.operators(by="name").to_dicts()
    for key in by_type.keys() - {key for key in by_type if key[0] == "N/A"}:
        _check(types[key], by_type[key])
    rows = [row for row in rows if not row["communication"]]
    assert {(row["name"], row["core"]) for row in rows} == {*expected}
    for row in rows:
        key = row["name"], row["core"]
        if [(one["name"], one["core"]) for one in rows].count(key) == 1:  # of one shape
            _check(row, expected[key])


def _of_torch() -> list[Path]:
    tables = [table for table in _tables() if "ascend_pt" in str(table)]
    if not tables:
        pytest.skip("torch-npu-text is not beside the project")
    return tables


def test_bounds_of_types_are_those_of_all_ranks_and_shapes_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal, JSON and the page sum both ranks, also if shapes are told apart."""
    tables = _of_torch()
    expected = {
        key: one.bound() for key, one in _expected(*tables, by=TYPE).items() if one.measured
    }
    source = str(DATA / "torch-npu-text")
    assert main(["--verdict", "--json", source]) == 0
    rows = json.loads(capsys.readouterr().out)["verdict"]["operators"]
    assert len(rows) == 5
    for row in rows:
        pipe, share = expected[row["type"], row["core"]] or ("", 0.0)
        assert row["bound"] == pipe
        assert row["bound_share"] == pytest.approx(share, abs=2e-3)
    assert main(["--verdict", source]) == 0
    text = capsys.readouterr().out
    for row in rows:
        (line,) = [line for line in text.splitlines() if line.startswith(f"{row['type']} ")]
        assert line.endswith(f"{row['bound']} {row['bound_share']:.0%}")
    page = tmp_path / "page.html"
    assert main([source, "-o", str(tmp_path / "a.pftrace"), "--report", str(page)]) == 0
    shown = read(page.read_bytes())
    columns = [shown.column("operators-by-bound", name) for name in ("Type", "Bound by", "Busy")]
    on_page = {kind: (pipe, float(busy)) for kind, pipe, busy in zip(*columns, strict=True)}
    for row in rows:
        pipe, busy = on_page[row["type"]]
        assert pipe == row["bound"]
        assert busy == pytest.approx(row["bound_share"], abs=1e-3)


def test_a_given_peak_is_shown_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As utilization in the terminal, JSON and the page."""
    _of_torch()
    source = str(DATA / "torch-npu-text")
    peak = ["--peak-flops", "300T"]
    assert main(["--verdict", source, *peak]) == 0
    text = capsys.readouterr().out
    assert "of the peak" in text
    assert "of peak" in text
    page = tmp_path / "page.html"
    assert main([source, "-o", str(tmp_path / "a.pftrace"), "--report", str(page), *peak]) == 0
    shown = read(page.read_bytes())
    kinds = shown.column("operators-by-bound", "Type")
    on_page = dict(zip(kinds, shown.column("operators-by-bound", "Utilization"), strict=True))
    capsys.readouterr()
    assert main(["--verdict", "--json", source, *peak]) == 0
    rows = json.loads(capsys.readouterr().out)["verdict"]["operators"]
    utilization = {
        row["type"]: row["utilization"] for row in rows if row["utilization"] is not None
    }
    assert {"MatMulV2", "Conv2D"} <= {*utilization}
    for kind, share in utilization.items():
        assert float(on_page[kind]) == pytest.approx(share, abs=1e-3)


def test_operations_of_convolutions_are_what_the_cube_unit_counts() -> None:
    """AlexNet of 32 images, 655.6 M multiplications each; the cube unit takes little longer.

    Of numbers of 32 bits as HF32, which does 4096 operations in a cycle, in whole blocks. The first
    layer has 3 of 8 channels and is left out there.
    """
    for table in _of_torch():
        flop, ratios = defaultdict[str, int](int), []
        rows = [
            {name: cell.strip().strip('"') for name, cell in row.items()} for row in _rows(table)
        ]
        filters = filters_by_format(
            (row["Type"], row["Input Shapes"], row["Output Shapes"]) for row in rows
        )
        for row in rows:
            if row["Type"].startswith("Conv2D"):
                shapes = row["Input Shapes"], row["Output Shapes"]
                types = row["Input Data Types"].replace("FLOAT", "FLOAT16")
                work = shape_work(row["Type"], *shapes, types, filters)
                flop[row["Type"]] += work.flop or 0
                cycles = float(row["aic_total_cycles"]) * float(row["aic_mac_ratio"])
                if "121,4,16,8" not in ";".join(shapes):
                    ratios.append(2 * work.peak_cycles / cycles)
        assert flop["Conv2D"] == pytest.approx(2 * 32 * 655.6e6, rel=1e-3)
        assert flop["Conv2DBackpropFilter"] == flop["Conv2D"] > flop["Conv2DBackpropInput"]
        assert 0.7 < min(ratios) < median(ratios) < max(ratios) <= 1


def _captures(name: str) -> list[str]:
    captures = sorted(map(str, (DATA / "msprof-single" / name).glob("PROF_*")))
    if not captures:
        pytest.skip(f"{name} is not beside the project")
    return captures


def test_time_outside_the_cores_leads_where_it_is_most(capsys: pytest.CaptureFixture[str]) -> None:
    """Before the pipe that is busiest in the cores."""
    for capture, start in zip(
        _captures("cann-2024"),
        ("61% of 91.9 us", "65% of 11.7 us", "65% of 11.5 us"),
        strict=True,
    ):
        assert main(["--verdict", capture]) == 0
        text = capsys.readouterr().out
        assert text.startswith(
            f"FastGeluGrad spends {start} outside the cores, ran once, cold, on 1 core; in them, "
        )


def test_kinds_of_core_and_streams_stay_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in tables, which name cores only of tasks; hosts win no more than the idle time."""
    (capture,) = _captures("cann9-relu")
    assert main(["--verdict", "--json", capture]) == 0
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    (finding,) = verdict["findings"]
    assert 0.9 < finding["gain_ns"] / verdict["ranks"][0]["idle_ns"] <= 1
    copy = tmp_path / Path(capture).name
    output = copy / "mindstudio_profiler_output"
    shutil.copytree(Path(capture) / output.name, output)
    for path in output.glob("*.json"):
        path.unlink()
    with timeline.open_profile(copy) as profile:
        rows = profile.operators().to_dicts()
    assert [(row["core"], row["count"], row["bound"]) for row in rows] == [
        ("KERNEL_AICPU", 200, None),
        ("KERNEL_MIX_AIC", 100, "scalar"),
    ]


def test_nothing_is_drawn_that_was_not_recorded(tmp_path: Path) -> None:
    """CANN 9 writes blocks and times in the cores as 0, beside cycles that are not."""
    capture = _captures("cann9-add")[0]
    target = tmp_path / "a.pftrace"
    options = ["--kind", "detail", "--args", "all", "-o", str(target)]
    assert main([capture, *options]) == 0
    processor = TraceProcessor.load(target.read_bytes())
    keys = {key.rpartition(".")[2] for (key,) in processor.rows("SELECT DISTINCT key FROM args")}
    assert {"aiv_total_cycles", "aiv_scalar_ratio"} <= keys
    assert not {"blocks", "aiv_total_time", "aiv_scalar_time", "aiv_time(us)"} & keys


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


# -- gaps between kernels --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Gap:
    """A time without kernels. launch_ns: start of the call that launched the next kernel.

    waited: whether a host call that waits for the device returned before the next kernel ended.
    """

    length_ns: int
    is_late: bool | None
    waited: bool


@dataclass(frozen=True)
class _Truth:
    """What the database of a capture says, by plain loops; outside_ns: (before, after)."""

    gaps: list[_Gap]
    span_ns: int
    longest_call: tuple[str, str]

    def late(self, *, is_late: bool) -> list[int]:
        return [gap.length_ns for gap in self.gaps if gap.is_late is is_late]


_WAITS = re.compile("Synchronize|aclrtMemcpy$")


def _truth(database: Path) -> _Truth:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as file:
        names = dict(file.execute("SELECT id, value FROM STRING_IDS"))
        kernels = sorted(
            file.execute(
                "SELECT startNs, endNs, connectionId FROM TASK WHERE globalTaskId IN "
                "(SELECT globalTaskId FROM COMPUTE_TASK_INFO)"
            )
        )
        calls = sorted(
            (start, end, names[name], connection)
            for start, end, name, connection in file.execute(
                "SELECT startNs, endNs, name, connectionId FROM CANN_API"
            )
        )
    launched = {connection: start for start, _, _, connection in calls}
    waits = [(start, end) for start, end, name, _ in calls if _WAITS.search(name)]
    gaps, free_ns = [], kernels[0][1]
    for start, end, connection in kernels[1:]:
        if start > free_ns:
            launch = launched.get(connection)
            waited = any(began <= start and free_ns < ended < end for began, ended in waits)
            is_late = None if launch is None else launch >= free_ns
            gaps.append(_Gap(start - free_ns, is_late, waited and is_late is not False))
        free_ns = max(free_ns, end)
    before = [(end - start, name) for start, end, name, _ in calls if end <= kernels[0][0]]
    after = [(end - start, name) for start, end, name, _ in calls if start >= free_ns]
    longest = (max(before)[1], max(after)[1])
    return _Truth(gaps, free_ns - kernels[0][0], longest)


def _databases(name: str) -> list[Path]:
    found = sorted((DATA / "msprof-single" / name).glob("PROF_*/msprof_*.db"))
    if not found:
        pytest.skip(f"{name} is not beside the project")
    return found


def _verdict(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["--verdict", str(path)]) == 0
    return capsys.readouterr().out.split("\n\n")[0]


def _percent(out: str, pattern: str) -> int:
    match = re.search(pattern, out)
    assert match is not None, out
    return int(match[1])


def _counts(out: str) -> tuple[int, int]:
    match = re.search(r"[Ii]n (\d+) of (\d+) gaps between kernels", out)
    assert match is not None, out
    return int(match[1]), int(match[2])


def test_gaps_of_queued_kernels_are_the_devices(capsys: pytest.CaptureFixture[str]) -> None:
    """Nearly all kernels of cann9-add are launched long before they start: it is not host-bound."""
    for database in _databases("cann9-add"):
        truth, out = _truth(database), _verdict(database.parent, capsys)
        queued, late = truth.late(is_late=False), truth.late(is_late=True)
        assert len(queued) > 0.98 * len(truth.gaps)
        assert f"in {len(queued)} of {len(truth.gaps)}, the next kernel was launched before" in out
        assert f"it starts {median(queued) / 1000:.2f} us later (median" in out
        assert "bound:" not in out
        assert "collecting metrics for each kernel may be part of that" in out
        assert _counts(out.split("later (median")[1]) == (len(late), len(truth.gaps))
        gain = _percent(out, r"at most (\d+)% shorter")
        assert gain <= round(100 * sum(late) / truth.span_ns)
        waited = [gap.length_ns for gap in truth.gaps if gap.waited]
        assert f"in {len(waited)} gaps in which the program waits" in out
        assert sum(waited) > 0.95 * sum(late)


def test_waits_of_a_benchmark_are_not_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels of cann9-div follow each other at once but for some late launches and five waits."""
    (database,) = _databases("cann9-div")
    truth, out = _truth(database), _verdict(database.parent, capsys)
    late = truth.late(is_late=True)
    waited = [gap.length_ns for gap in truth.gaps if gap.waited]
    assert "bound:" not in out
    assert "device makes" not in out
    assert _counts(out) == (len(late), len(truth.gaps))
    assert f"in {len(waited)} gaps in which the program waits for the device" in out
    rest = 100 * (sum(late) - sum(waited)) / truth.span_ns
    assert _percent(out, r"(\d+)% if these waits stay") == pytest.approx(rest, abs=1)


def test_late_launches_are_host_bound(capsys: pytest.CaptureFixture[str]) -> None:
    """Most kernels of cann9-matmul and cann9-relu are launched when the device is already free."""
    for database in (*_databases("cann9-matmul"), *_databases("cann9-relu")):
        truth, out = _truth(database), _verdict(database.parent, capsys)
        late = truth.late(is_late=True)
        assert "Host-bound: in" in out
        assert "Launch-bound" not in out
        count, of = _counts(out)
        assert of == len(truth.gaps)
        assert count == pytest.approx(len(late), rel=0.05)  # clocks of the host are fitted
        most = 100 * sum(gap.length_ns for gap in truth.gaps) / truth.span_ns
        assert _percent(out, r"at most (\d+)% shorter") <= round(most)


def test_waits_after_each_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    """The host of cann-ffts waits after each launch; the profile has no launches but says so."""
    (database,) = _databases("cann-ffts")
    truth, out = _truth(database), _verdict(database.parent, capsys)
    assert [gap.is_late for gap in truth.gaps] == [None] * 20
    assert all(gap.waited for gap in truth.gaps)
    assert "waits for the device after each kernel (aclrtSynchronizeStream, in 20 of 20 gaps" in out
    median_us = median(gap.length_ns for gap in truth.gaps) / 1000
    assert f"{median_us:.0f} us idle each (median), 13% of the time" in out
    assert "collecting L2 cache metrics for each kernel may be part of that" in out
    assert "not in this profile" not in out


def test_pipes_in_turn_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    """Shares of the pipes of cann-ffts add up to all of its time, in the mean of its kernels."""
    (database,) = _databases("cann-ffts")
    (table,) = (database.parent / "mindstudio_profiler_output").glob("op_summary_*.csv")
    (expected,) = _expected(table, by=("OP Type",)).values()
    sums = [
        total / expected.measured
        for name, total in expected.ratios.items()
        if name.startswith("aic_") and name.endswith("_ratio")
    ]
    out = _verdict(database.parent, capsys)
    assert f"their shares add up to {sum(sums):.0%} (MTE2 40%, FixPipe 30%, " in out
    for other in ("cann9-add", "cann9-div", "cann9-matmul"):
        assert "one after another" not in _verdict(_databases(other)[0].parent, capsys)


def test_host_calls_outside_the_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    """Where they take longer than all kernels, the longest of them is named."""
    for name, place in (("cann9-div", 0), ("cann9-matmul", 0), ("cann9-add", 1), ("cann-ffts", 1)):
        database = _databases(name)[0]
        call = _truth(database).longest_call[place]
        edge = ("before the first", "after the last")[place]
        out = _verdict(database.parent, capsys)
        assert re.search(rf"^Host calls outside .* ms {edge} kernel \({call}", out, re.MULTILINE)


def test_time_at_the_edges_is_said_if_it_is_a_hundredth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """1.58 us of cann-ffts are the first kernel itself, which begins before it computes."""
    for name, edge in (("cann-ffts", "5.644 ms after the last"), ("cann9-div", "89.014 ms before")):
        out = _verdict(_databases(name)[0].parent, capsys)
        (sentence,) = re.findall(r"^Not in these shares: .*$", out, re.MULTILINE)
        assert edge in sentence
        assert " and " not in sentence


@pytest.mark.parametrize("name", ["torch-npu-text", "torch-npu-db", "torch-npu-db-level0"])
def test_a_gap_may_be_the_cost_of_l2_metrics(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings of all three collect metrics of the L2 cache; their gaps are some 87 us at least."""
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not beside the project")
    out = _verdict(DATA / name, capsys)
    (settings,) = (DATA / name).glob("rank0_ascend_pt/profiler_info_0.json")
    assert '"_l2_cache": true' in settings.read_text()
    assert re.search(
        r"at least 8[78]\.\d us each, which may be the cost of collecting L2 cache", out
    )


def test_a_comparison_of_kernels_opens_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Medians of all launches but the first, and bounds, before anything end to end."""
    base, new = _databases("cann9-add")
    medians = []
    for database in (base, new):
        (table,) = (database.parent / "mindstudio_profiler_output").glob("op_summary_*.csv")
        with table.open(newline="", encoding="utf-8") as file:
            rows = sorted(csv.DictReader(file), key=lambda row: float(row["Task Start Time(us)"]))
        medians.append(median(float(_of(row, DURATION)) for row in rows[1:]))
    output = tmp_path / "both.pftrace"
    assert main(["compare", str(base.parent), str(new.parent), "-o", str(output)]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith(
        f"add_kernel {medians[1] / medians[0] - 1:+.1%} (+500 ns): 2.58 us before"
    )
    assert "scalar unit (59% busy; MTE2 29%) before" in line
    assert "scalar unit (58% busy; MTE2 44%) now" in line


def test_launches_that_differ_have_a_range_with_or_without_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two sizes of aten::mm, and one AI CPU kernel on two streams; names change nothing."""
    capture = DATA / "gpu" / "torch_compile_triton"
    if not capture.exists():
        pytest.skip("torch_compile_triton is not beside the project")
    page = ["--report", str(tmp_path / "page.html")]
    for options in ([], page):
        assert main([str(capture), "--verdict", *options]) == 0
        out = capsys.readouterr().out
        assert out.startswith("aten::mm takes 527 us to 2.03 ms, 7 launches.\n")
    (relu,) = _captures("cann9-relu")
    assert "on KERNEL_AICPU takes 26.9 us to 224 us, 200 launches." in _verdict(Path(relu), capsys)


def test_comparisons_say_what_they_cannot_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Single cold launches, and two operators."""
    first, second, _ = _captures("cann-2024")
    output = ["-o", str(tmp_path / "both.pftrace"), "--force"]
    assert main(["compare", first, second, *output]) == 0
    assert "(one launch each, cold)" in capsys.readouterr().out.splitlines()[0]
    assert main(["compare", _captures("cann9-add")[0], _captures("cann9-div")[0], *output]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("The operators differ, so that their times do not compare: add_kernel")
    assert "%)" not in line.partition("(medians")[0]
