"""Proves that tasks of AI CPUs are read from every form of their log."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulator.model import RankRun, Run
from simulator.simulation import make_run
from simulator.writers.mindspore.tables.aicpu_log import DISPATCH_US, write_aicpu_log
from simulator.writers.mindspore.text import TextFiles, device_ns
from timeline.sources.companions.aicpu_log import (
    BINARY_RECORD,
    MAGIC,
    AicpuTasks,
    read_aicpu_tasks,
)
from timeline.sources.companions.delimited import TablesBuilder
from timeline.sources.companions.file_kinds import NumberedFile

THREAD = (
    "Thread[ 1] process device[0]:aicpu[ 0] task end, tickDrvTopHalf=8000,"
    "tickDrvBottomHalf=8100, tickBeforeRun=18300,tickAfterRun=165010, "
    "dispatchTime=100 us, totalTime=1567 us."
)
PARSED = """serial_number node_type_name total_time(ms) dispatch_time(ms) run_start run_end
1 InitData 7.906 0.15 154901853050 154901853210
2 GetNext 0.888 0.132 154907895189 154907895707
AI CPU Total Time(ms): 8.794000
"""
IN_MICROSECONDS = """serial_number  node_type_name  total_time(us)  dispatch_time(us)  start  end
-------------  --------------  --------------  -----------------  ---------  -------
1              InitData                  1567                100       2298     2427
AI CPU Total Time(us):  1567
"""


def read(path: Path, kind: NumberedFile, *others: Path) -> tuple[AicpuTasks, TablesBuilder]:
    into = TablesBuilder(0)
    files = {kind: (path,), NumberedFile.TASK_DESCRIPTIONS: others}
    return read_aicpu_tasks(files, into), into


def read_text(path: Path, *records: str) -> tuple[AicpuTasks, list[str]]:
    path.write_bytes("\n\0".join(records).encode() + b"\0")
    tasks, into = read(path, NumberedFile.AICPU_LOG)
    return tasks, [one.reason for one in into.build()[1]]


@pytest.fixture
def run() -> tuple[Run, RankRun]:
    run = make_run(1, 2, ops_per_step=24)
    return run, run.rank(0)


def test_a_log_holds_the_tasks_of_the_run(tmp_path: Path, run: tuple[Run, RankRun]) -> None:
    """Names, types and times are those that ran, on the counter of the device."""
    write_aicpu_log(*run, tmp_path)
    tasks, into = read(tmp_path / "DATA_PREPROCESS.dev.AICPU.0.slice_0", NumberedFile.AICPU_LOG)
    ran = TextFiles(*run, tmp_path).kernels(on_cpu=True)
    assert ran
    assert [into.strings[code] for code in tasks.name] == [kernel.scope for _, kernel in ran]
    assert list(zip(tasks.start_ns.tolist(), tasks.end_ns.tolist(), strict=True)) == [
        (device_ns(run[0], task.start_ns), device_ns(run[0], task.end_ns)) for task, _ in ran
    ]
    assert (tasks.run_ns == tasks.end_ns - tasks.start_ns).all()
    assert {*tasks.dispatch_ns.tolist()} == {DISPATCH_US * 1000}
    assert into.build()[1] == ()


def test_tasks_of_threads_alone_have_no_name_and_the_times_of_their_threads(tmp_path: Path) -> None:
    tasks, lost = read_text(tmp_path / "log", THREAD)
    assert (tasks.name.tolist(), tasks.thread.tolist()) == ([0], [1])
    assert (tasks.start_ns.tolist(), tasks.run_ns.tolist()) == ([183_000], [1_467_100])
    assert (tasks.total_ns.tolist(), tasks.dispatch_ns.tolist()) == ([1_567_000], [100_000])
    assert not lost


@pytest.mark.parametrize(
    ("operator", "kind", "run_ns"),
    [
        ("[9] Node:InitData, Run tart:2298200409, Run end:2298200538", "InitData", 129_000),
        ("[9] Node:InitData, Run start:22982 2298200, Run end:22983 2298311", "InitData", 1_110),
        (
            "[9] Node:Default/net/GetNext-op12, Run tart:5, compute start:6, memcpy start:7, "
            "memcpy end:8, Run end:9",
            "GetNext",
            4_000,
        ),
    ],
)
def test_operators_tell_their_own_run(
    tmp_path: Path, operator: str, kind: str, run_ns: int
) -> None:
    """In microseconds, or in ticks where those are told too; other cells may stand between."""
    path = tmp_path / "log"
    path.write_bytes(f"{operator}\0{THREAD}\n\0[7] Create session end:3\n\0".encode())
    tasks, into = read(path, NumberedFile.AICPU_LOG)
    assert [into.strings[code] for code in tasks.kind] == [kind]
    assert tasks.run_ns.tolist() == [run_ns]
    assert tasks.total_ns.tolist() == [1_567_000]


def test_what_is_half_or_damaged_is_counted(tmp_path: Path) -> None:
    lone = "[9] Node:InitData, Run tart:1, Run end:2"
    tasks, lost = read_text(tmp_path / "log", lone, lone, THREAD, THREAD[:-20], lone)
    assert len(tasks) == 1
    assert lost == [
        "log: operators without the record of a thread, the first at record 2",
        "log: records of threads without times, the first at record 4",
    ]


@pytest.mark.parametrize(
    ("text", "totals", "runs"),
    [(PARSED, [7_906_000, 888_000], [160_000, 518_000]), (IN_MICROSECONDS, [1_567_000], [129_000])],
)
def test_what_mindspore_made_of_it_is_the_same(
    tmp_path: Path, text: str, totals: list[int], runs: list[int]
) -> None:
    """Lengths are in the unit that the header names, times in microseconds."""
    path = tmp_path / "output_data_preprocess_aicpu_0.txt"
    path.write_text(text + "3 cut\n", encoding="utf-8")
    tasks, into = read(path, NumberedFile.AICPU_TEXT)
    assert (tasks.total_ns.tolist(), tasks.run_ns.tolist()) == (totals, runs)
    (lost,) = into.build()[1]
    assert "lines that are not a task" in lost.reason


def test_the_binary_form_is_named_by_what_the_host_described(tmp_path: Path) -> None:
    """Tasks of the runtime are no operators, and broken records are counted."""
    rows = np.zeros(4, BINARY_RECORD)
    rows["magic"], rows["stream"] = [MAGIC, MAGIC, MAGIC, 1], 22
    rows["task"] = [2, 30_000, 5, 2]
    rows["run_start_tick"], rows["run_end_tick"] = 1000, 1500
    rows["dispatch_us"], rows["total_us"] = 7, 50
    path, names = tmp_path / "log", tmp_path / "names"
    path.write_bytes(rows.tobytes() + b"rest")
    names.write_text("Default/net/DropoutGenMask-op281 0 2 22\n", encoding="utf-8")
    tasks, into = read(path, NumberedFile.AICPU_LOG, names)
    assert [into.strings[code] for code in tasks.kind] == ["DropoutGenMask", ""]
    assert tasks.start_ns.tolist() == [10_000, 10_000]
    assert (tasks.run_ns.tolist(), tasks.total_ns.tolist()) == ([5_000] * 2, [50_000] * 2)
    assert [one.rows for one in into.build()[1]] == [1, 1]
