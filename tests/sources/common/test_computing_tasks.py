"""Proves which tasks count as computing in traces, tables, raw and parsed data."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter as Multiset
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.writers.cann_raw import RawTask, counter_of, stars_record
from simulator.writers.tables import write_op_summary
from tests.support.profile_shelf import Copier, Profile, ProfileShelf, change_events, tiny_run
from tests.support.read_profiles import records_of
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_CONTEXT
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS
from timeline.sources.ascend_trace.reader import TraceFiles, read_trace
from timeline.sources.source import ReadRequest

START_US = 1_736_424_000_000_000
HARDWARE, OVERLAP = 7, 8


def computing(records: Records) -> Multiset[str]:
    """The names of what computes."""
    codes = records.tasks.name[records.tasks.compute].tolist()
    return Multiset(records.strings[code] for code in codes)


def omitted_rows(records: Records, beginning: str) -> list[int]:
    return [one.rows for one in records.omissions if one.reason.startswith(beginning)]


# -- a trace without tables ----------------------------------------------------------------------


def trace_of(tmp_path: Path, tasks: list[tuple[str, str, int, int]], spans: list[Any]) -> Path:
    """A trace of tasks (name, type, start, length) and of what the exporter says of computing."""
    named = {HARDWARE: "Ascend Hardware", OVERLAP: "Overlap Analysis"}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        for pid, name in named.items()
    ]
    events += [
        {"ph": "M", "name": "thread_name", "pid": HARDWARE, "tid": 2, "args": {"name": "Stream 2"}}
    ]
    rows = [(HARDWARE, 2, *task) for task in tasks]
    rows += [(OVERLAP, 0, name, "", start, length) for name, start, length in spans]
    events += [
        {
            "ph": "X",
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": f"{START_US + start}.000",
            "dur": length,
            "args": {"Task Type": kind} if kind else {},
        }
        for pid, tid, name, kind, start, length in rows
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    return path


TASKS = [
    ("MatMul", "KERNEL_AICORE", 0, 10),
    ("Zeros", "Other", 20, 5),
    ("Cast", "Other", 25, 5),
    ("Tile", "AI_CPU", 40, 10),
    ("KERNEL_AICPU", "KERNEL_AICPU", 42, 4),
    ("Signal", "Other", 60, 10),
    ("Dump", "AI_CPU", 80, 10),
    ("TASK_TIMEOUT_SET", "TASK_TIMEOUT_SET", 100, 10),
]


def test_the_exporter_settles_what_types_do_not(tmp_path: Path) -> None:
    """Tasks of an unknown type and of AI CPUs compute where its Overlap Analysis says so."""
    spans = [("Computing", 0, 10), ("Free", 10, 10), ("Computing", 20, 10), ("Computing", 40, 10)]
    path = trace_of(tmp_path, TASKS, spans)
    records = read_trace(TraceFiles((path,), 0), 0, StringPool(), ReadRequest(DETAIL_LAYERS))
    assert computing(records) == Multiset(["MatMul", "Zeros", "Cast", "Tile"])


def test_without_the_exporter_names_tell(tmp_path: Path) -> None:
    """What an AI CPU ran under a name is an operator; of unknown types nothing is known."""
    path = trace_of(tmp_path, TASKS, [])
    records = read_trace(TraceFiles((path,), 0), 0, StringPool(), ReadRequest(DETAIL_LAYERS))
    assert computing(records) == Multiset(["MatMul", "Tile", "Dump"])


def test_a_span_that_was_cut_down(tmp_path: Path) -> None:
    """Exporters cut fractions of nanoseconds off the spans, and tasks are rounded."""
    spans = [("Computing", 20, 4.9995), ("Computing", 25, 4.998)]
    path = trace_of(tmp_path, TASKS[:3], spans)
    records = read_trace(TraceFiles((path,), 0), 0, StringPool(), ReadRequest(DETAIL_LAYERS))
    assert computing(records) == Multiset(["MatMul", "Zeros", "Cast"])


# -- tables alone ----------------------------------------------------------------------------------


def test_the_whole_of_an_ffts_task_is_no_second_kernel(tmp_path: Path) -> None:
    """task_time has the FFTS+ task, which starts before the kernel and ends after it."""
    run = tiny_run(ranks=1, ops_per_step=24)
    plain, covered = tmp_path / "plain", tmp_path / "covered"
    write_op_summary(run, plain)
    write_op_summary(run, covered, wholes=True)
    wanted, found = records_of(plain), records_of(covered)
    mixed = sum(
        kernel.core == "MIX_AIV" for one in run.rank(0).iterations for _, kernel in one.kernels
    )
    assert mixed > 0
    assert omitted_rows(found, "FFTS+") == [mixed]
    assert omitted_rows(wanted, "FFTS+") == []
    for name in ("start_ns", "end_ns", "compute"):
        assert getattr(found.tasks, name).tolist() == getattr(wanted.tasks, name).tolist()


def test_a_kernel_table_names_the_unit(shelf: ProfileShelf) -> None:
    """Traces of CANN 8 call vector cores AI_CORE; the table beside them knows, as databases do."""

    def units(layout: str) -> dict[str, set[str]]:
        records = records_of(shelf.get(layout, ranks=1, ops_per_step=24).path)
        tasks = records.tasks.take(records.tasks.compute)
        found: dict[str, set[str]] = {}
        for kind, unit in zip(tasks.op_type.tolist(), tasks.task_type.tolist(), strict=True):
            found.setdefault(records.strings[kind], set()).add(records.strings[unit])
        return found

    assert units("torch-text") == units("torch-db")
    assert {"AI_VECTOR_CORE"} in units("torch-text").values()


KernelRow = dict[str, str]


def change_rows(path: Path, change: Callable[[int, KernelRow], KernelRow | None]) -> None:
    """Replace each row of a table by what `change` makes of it and its number; None removes it."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [made for at, row in enumerate(csv.DictReader(file)) if (made := change(at, row))]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def launched(number: int, row: KernelRow) -> KernelRow:
    """Put a launch before the name, but for the rows of which MindSpore finds none."""
    bare = number % 3 == 0
    return (
        row if bare else row | {"Name": f"Kernel::KernelLaunch::Default/op{number}/{row['Name']}"}
    )


def without_ids(_number: int, row: KernelRow) -> KernelRow:
    return {name: cell for name, cell in row.items() if name not in ("Task ID", "Stream ID")}


@pytest.mark.parametrize(
    "change",
    [
        launched,
        lambda number, row: row | {"Name": f"Default/op{number}"},
        without_ids,
        lambda number, row: without_ids(number, launched(number, row)),
    ],
    ids=["launch before the name", "launch alone", "no ids", "no ids, launch before the name"],
)
def test_rows_find_their_tasks_by_one_key_or_another(
    copied: Copier, change: Callable[[int, KernelRow], KernelRow]
) -> None:
    """Ids, names or both edges: whichever finds more rows describes the tasks of all of them."""
    profile = copied("torch-text", ranks=1, ops_per_step=24)
    (table,) = profile.path.rglob("kernel_details.csv")
    wanted = records_of(profile.path)
    change_rows(table, change)
    found = records_of(profile.path)
    for name in ("compute", "task_type", "op_type", "input_shapes", "blocks"):
        mine, theirs = (getattr(one.tasks, name).tolist() for one in (found, wanted))
        if name in ("task_type", "op_type", "input_shapes"):
            mine = [found.strings[code] for code in mine]
            theirs = [wanted.strings[code] for code in theirs]
        assert mine == theirs
    assert found.warnings == wanted.warnings


def test_ids_that_repeat_are_told_apart_by_the_start(copied: Copier) -> None:
    """Task ids are counted in 16 bits, so that all rows may share one."""
    profile = copied("torch-text", ranks=1, ops_per_step=24)
    (table,) = profile.path.rglob("kernel_details.csv")
    (trace,) = profile.path.rglob("trace_view.json")
    wanted = records_of(profile.path)
    change_rows(table, lambda _, row: row | {"Task ID": "7"} if row["Task ID"] != "N/A" else row)
    change_rows(table, launched)
    change_events(
        trace,
        lambda event: (
            event | {"args": event["args"] | {"Task Id": 7}}
            if "Task Id" in event.get("args", {})
            else event
        ),
    )
    found = records_of(profile.path)
    mine, theirs = (
        [one.strings[code] for code in one.tasks.op_type.tolist()] for one in (found, wanted)
    )
    assert mine == theirs


@pytest.mark.parametrize("kept", [2, 9])
def test_overlap_analysis_completes_a_table_that_lists_too_little(
    copied: Copier, kept: int
) -> None:
    """What lies in computing segments computes though its row is lost; that is said."""
    profile = copied("torch-text", ranks=1, ops_per_step=24)
    (table,) = profile.path.rglob("kernel_details.csv")
    wanted = records_of(profile.path)
    change_rows(table, lambda number, row: None if number % kept else row)
    found = records_of(profile.path)
    assert computing(found) == computing(wanted)
    (warning,) = set(found.warnings) - set(wanted.warnings)
    lost = int((wanted.tasks.op_type >= 1).sum() - (found.tasks.op_type >= 1).sum())
    assert f"{lost} kernels without a row in kernel_details.csv count as computing" in warning


def test_a_table_alone_decides_where_nothing_else_tells(copied: Copier) -> None:
    """Without segments of the exporter a task computes if it has a row."""
    profile = copied("torch-text", ranks=1, ops_per_step=24)
    (table,) = profile.path.rglob("kernel_details.csv")
    (trace,) = profile.path.rglob("trace_view.json")
    whole = len(list(computing(records_of(profile.path)).elements()))
    change_events(trace, lambda event: None if event["name"] == "Computing" else event)
    change_rows(table, lambda number, row: None if number == 5 else row)
    assert len(list(computing(records_of(profile.path)).elements())) == whole - 1


def move_kernels(path: Path, later_ns: Callable[[int], int]) -> None:
    """Move the kernels of a table, each by what its number tells."""

    def moved(number: int, row: KernelRow) -> KernelRow:
        start_us = Decimal(row["Start Time(us)"]) + Decimal(later_ns(number)) / 1000
        return row | {"Start Time(us)": f"{start_us}\t"}

    change_rows(path, moved)


@pytest.mark.parametrize("name", ["hcom_allReduce_AivKernel", "allreduceAicpuKernel"])
def test_kernels_of_communication_do_not_compute(tmp_path: Path, name: str) -> None:
    """They run on cores under names of their own, and their ops are drawn apart."""
    path = trace_of(tmp_path, [TASKS[0], (name, "AI_CORE", 30, 9)], [])
    records = read_trace(TraceFiles((path,), 0), 0, StringPool(), ReadRequest(DETAIL_LAYERS))
    assert computing(records) == Multiset(["MatMul"])


def test_a_kernel_table_that_is_late_describes_its_tasks(copied: Copier) -> None:
    """msprof places kernels 100 ns later in its tables where it samples cores; that is told."""
    profile = copied("torch-text", ranks=1, ops_per_step=24)
    (table,) = profile.path.rglob("kernel_details.csv")
    wanted = records_of(profile.path)
    move_kernels(table, lambda number: 99 + number % 2)
    found = records_of(profile.path)
    for name in ("start_ns", "compute", "task_type", "op_type", "input_shapes"):
        assert getattr(found.tasks, name).tolist() == getattr(wanted.tasks, name).tolist()
    (warning,) = set(found.warnings) - set(wanted.warnings)
    assert warning == (
        "rank 0: kernels start 99 ns later in kernel_details.csv than in the trace, which is drawn."
    )


@pytest.mark.parametrize(
    "later_ns", [lambda number: 50 * number + 50, lambda _: 3_600_000_000_000], ids=["each", "far"]
)
def test_kernels_that_are_late_by_other_times_are_not_those_tasks(
    copied: Copier, later_ns: Callable[[int], int]
) -> None:
    profile = copied("torch-text", ranks=1, ops_per_step=24)
    (table,) = profile.path.rglob("kernel_details.csv")
    move_kernels(table, later_ns)
    (warning,) = (text for text in records_of(profile.path).warnings if "kernel_details" in text)
    assert re.fullmatch(r"rank 0: (\d+) of \1 rows of kernel_details.csv .*", warning)


# -- what AI CPUs ran ----------------------------------------------------------------------------


def ai_cpu_warnings(records: Records) -> list[str]:
    return [text for text in records.warnings if "AI CPU" in text]


def test_raw_data_does_not_tell_what_ai_cpus_ran(copied: Copier) -> None:
    """Their tasks are drawn, counted and said, and the type of the others is that of their unit."""
    profile = copied("raw", ranks=1)
    (data,) = profile.path.rglob("device_0/data")
    for path in data.iterdir():
        path.unlink()
    zero = counter_of(profile.run, profile.run.rank(0), "100").value
    log = b""
    for number, kind in enumerate(["AI_CORE", "AI_CPU", "AI_CPU", "AI_VECTOR_CORE"]):
        task = RawTask(2, number, NO_CONTEXT, kind, 0, 0)
        for is_end in (False, True):
            ticks = zero + 1000 * (number + 1) + 150 * is_end
            log += stars_record(ticks, is_end, task)
    (data / "stars_soc.data.0.slice_0").write_bytes(log)
    records = records_of(profile.path)
    spelled = [records.strings[code] for code in records.tasks.op_type.tolist()]
    assert sorted(spelled) == ["", "", "AI_CORE", "AI_VECTOR_CORE"]
    assert np.count_nonzero(records.tasks.compute) == 2
    (warning,) = ai_cpu_warnings(records)
    assert "2 AI CPU tasks (3.000 us) do not count as computing" in warning


def device_alone(profile: Profile) -> Path:
    """A parsed capture of which the databases of the host are gone."""
    for path in profile.path.rglob("host/sqlite"):
        shutil.rmtree(path)
    return profile.path


def test_parsed_data_of_a_device_alone(copied: Copier) -> None:
    """Cores compute; AI CPUs may have; setting a timeout never does. Types are those of units."""
    profile = copied("msprof-sqlite-cann-9", ranks=1, ops_per_step=24)
    records = records_of(device_alone(profile))
    kernels = [kernel.core for one in profile.run.rank(0).iterations for _, kernel in one.kernels]
    on_cores = sum(core != "AI_CPU" for core in kernels)
    assert np.count_nonzero(records.tasks.compute) == on_cores
    types = {
        records.strings[code] for code in records.tasks.op_type[records.tasks.compute].tolist()
    }
    assert types <= {"KERNEL_AICORE", "KERNEL_AIVEC", "MIX_AIV"}
    (warning,) = ai_cpu_warnings(records)
    # One of the runtime's own is among them, the one that sets a timeout is not.
    assert f"{len(kernels) - on_cores + 1} AI CPU tasks" in warning
