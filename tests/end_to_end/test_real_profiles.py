"""Proves on real captures that timelines say what the vendor's own files say.

What is wanted is read here from the raw files, with plain json, csv and sqlite3. The captures lie
beside the project; without them these tests are skipped.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter as Multiset
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.support.expected_picture import OVERLAP_ROWS, OWN_NAMES, Shown
from tests.support.found_profiles import same
from tests.support.loaded_picture import LoadedPicture
from tests.support.perfetto_sql import TraceProcessor
from tests.support.places import DATA, needs_captures
from timeline.commands.export import export
from timeline.options import Args
from timeline.profile import open_profile
from timeline.reports.export_report import ExportReport
from timeline.selection import Kind

CAPTURES = ("torch-npu-db", "torch-npu-text", "mindspore-2.1")
RANKS = (0, 1)
ITERATIONS = range(1, 6)
"""Iterations of which the MindSpore capture holds tasks; its step trace has ten."""
NO_CONTEXT = 4_294_967_295
OVERLAP = "Overlap Analysis"
HALF = Fraction(1, 2)

pytestmark = needs_captures

Event = dict[str, Any]
Slice = tuple[int, str, str, int, int, str]
"""Rank, layer, row, start, length and name."""


@dataclass(frozen=True)
class Export:
    """A detail of one capture, loaded, and its report."""

    report: ExportReport
    loaded: LoadedPicture

    def slices(self, layer: str, rank: int | None = None) -> list[Shown]:
        return [
            one
            for one in self.loaded.by_id.values()
            if one.layer == layer and rank in (None, one.rank)
        ]

    def overlap_slices(self, rank: int) -> list[Shown]:
        """The slices of the overlap rows; waits lie below them."""
        return [one for one in self.slices(OVERLAP, rank) if one.row in OVERLAP_ROWS]

    def overlap(self, rank: int, step: int | None) -> dict[str, int]:
        """The four sums of the report, in ns, by row."""
        rows = self.report.figures.in_json()["overlap"]
        (row,) = (row for row in rows if (row["rank"], row["step"]) == (rank, step))
        parts = ("computing", "communication", "not_overlapped", "free")
        sums = [row[f"{part}_ns"] or 0 for part in parts]
        return dict(zip(OVERLAP_ROWS, sums, strict=True))


def export_of(capture: str, target: Path) -> Export:
    """An export at the times that the capture holds."""
    report = export(DATA / capture, target, kind=Kind.DETAIL, args=Args.ALL, align="recorded")
    processor = TraceProcessor.load(target.read_bytes())
    assert processor.import_errors() == []
    picture = LoadedPicture(processor, ".json" in target.suffixes, processor.zero_ns)
    return Export(report, picture)


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Export]:
    """A detail of every capture."""
    folder = tmp_path_factory.mktemp("real")
    return {capture: export_of(capture, folder / f"{capture}.pftrace") for capture in CAPTURES}


# -- raw files ---------------------------------------------------------------------------------


def output_of(capture: str, rank: int) -> Path:
    return DATA / capture / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"


def rows_of(database: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro&immutable=1", uri=True)) as opened:
        return opened.execute(sql).fetchall()


def database_of(rank: int) -> Path:
    return output_of("torch-npu-db", rank) / f"ascend_pytorch_profiler_{rank}.db"


def events_of(path: Path) -> list[Event]:
    """The events of a trace; numbers stay text, so that no digit is lost."""
    found: list[Event] = json.loads(path.read_text(encoding="utf-8"), parse_float=str)
    return found


def span_ns(event: Event) -> tuple[int, int]:
    """Start and length: both edges are rounded, never the duration."""
    start_us, length_us = Fraction(str(event["ts"])), Fraction(str(event["dur"]))
    start_ns = nearest_ns(start_us)
    return start_ns, nearest_ns(start_us + length_us) - start_ns


def nearest_ns(microseconds: Fraction | str) -> int:
    return (Fraction(microseconds) * 1000 + HALF).__floor__()


def lanes_of(events: Iterable[Event]) -> dict[tuple[str, str], list[Event]]:
    """The slices of each (process name, thread name), by the names that rows have here."""
    events = list(events)
    processes, threads = {}, {}
    for event in events:
        if event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
        elif event["name"] == "thread_name":
            told = event["args"]["name"]
            threads[event["pid"], event["tid"]] = OWN_NAMES.get(told, told)
    lanes: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        if event["ph"] == "X":
            thread = threads.get((event["pid"], event["tid"]), "")
            lanes.setdefault((processes.get(event["pid"], ""), thread), []).append(event)
    return lanes


def text_lanes(rank: int) -> dict[tuple[str, str], list[Event]]:
    return lanes_of(events_of(output_of("torch-npu-text", rank) / "trace_view.json"))


def timeline_of(rank: int) -> Path:
    (folder,) = (DATA / "mindspore-2.1").glob(f"PROF_*/device_{rank}/timeline")
    return folder


def iteration_lanes(rank: int, iteration: int) -> dict[tuple[str, str], list[Event]]:
    (path,) = timeline_of(rank).glob(f"msprof_{rank}_*_{iteration}.json")
    return lanes_of(events_of(path))


# -- overlap -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", RANKS)
def test_overlap_of_databases_equals_step_trace_time_to_the_nanosecond(
    exports: dict[str, Export], rank: int
) -> None:
    table = output_of("torch-npu-db", rank) / "analysis.db"
    ((step, *sums, stage, bubble, preparing),) = rows_of(
        table,
        "SELECT step, computing, communication, communication_not_overlapped, free, stage, bubble,"
        " preparing FROM StepTraceTime",
    )
    exported = exports["torch-npu-db"]
    wanted = dict(zip(OVERLAP_ROWS, (nearest_ns(str(value)) for value in sums), strict=True))
    assert exported.overlap(rank, int(step)) == wanted
    assert exported.overlap(rank, None) == wanted
    assert drawn_sums(exported, rank) == wanted
    busy = [one for one in exported.overlap_slices(rank) if one.row != "Free"]
    first_ns = min(one.start_ns for one in busy)
    last_ns = max(one.start_ns + one.length_ns for one in busy)
    assert bubble == 0
    assert last_ns - first_ns == nearest_ns(str(stage))
    (host,) = (one for one in exported.slices("Step Trace", rank) if one.row == "ProfilerStep")
    assert first_ns - host.start_ns == nearest_ns(str(preparing))


def test_steps_of_the_library_equal_the_mindspore_files() -> None:
    """Every iteration of both ranks, to the nanosecond; those without tasks are not known."""
    names = ("computing_ns", "communication_ns", "not_overlapped_ns", "free_ns")
    steps = open_profile(DATA / "mindspore-2.1").steps().to_dicts()
    assert {(row["rank"], row["step"]) for row in steps if row["span_ns"] is not None} == {
        (rank, iteration) for rank in RANKS for iteration in ITERATIONS
    }
    for row in steps:
        if row["span_ns"] is not None:
            lanes = iteration_lanes(row["rank"], row["step"])
            assert [row[name] for name in names] == [
                sum(span_ns(event)[1] for event in lanes[OVERLAP, part]) for part in OVERLAP_ROWS
            ]


def drawn_sums(exported: Export, rank: int) -> dict[str, int]:
    sums = dict.fromkeys(OVERLAP_ROWS, 0)
    for one in exported.overlap_slices(rank):
        sums[one.row] += one.length_ns
    return sums


def test_overlap_of_databases_equals_their_overlap_analysis_table(
    exports: dict[str, Export],
) -> None:
    """Every segment, to the nanosecond; only one of the two databases has that table."""
    held = [
        rank
        for rank in RANKS
        if rows_of(database_of(rank), "SELECT 1 FROM sqlite_master WHERE name = 'OVERLAP_ANALYSIS'")
    ]
    assert held == [0]
    for rank in held:
        same(
            (
                (one.row, one.start_ns, one.length_ns)
                for one in exports["torch-npu-db"].overlap_slices(rank)
            ),
            (
                (OVERLAP_ROWS[kind], start_ns, length_ns)
                for kind, start_ns, length_ns in rows_of(
                    database_of(rank), "SELECT type, startNs, endNs - startNs FROM OVERLAP_ANALYSIS"
                )
            ),
        )


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("iteration", ITERATIONS)
def test_overlap_of_mindspore_iterations_equals_their_own_files(
    exports: dict[str, Export], rank: int, iteration: int
) -> None:
    lanes = iteration_lanes(rank, iteration)
    drawn = Multiset(
        (one.row, one.start_ns, one.length_ns)
        for one in exports["mindspore-2.1"].overlap_slices(rank)
    )
    sums = {}
    for name in OVERLAP_ROWS:
        spans = [span_ns(event) for event in lanes[OVERLAP, name]]
        sums[name] = sum(length for _, length in spans)
        missing = Multiset((name, *span) for span in spans) - drawn
        assert spans
        assert not missing
    assert exports["mindspore-2.1"].overlap(rank, iteration) == sums


# -- clocks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("capture", "apart_us"), [("torch-npu-text", 8), ("torch-npu-db", 14)])
def test_clocks_are_put_right_by_collectives(capture: str, apart_us: int, tmp_path: Path) -> None:
    """Clocks of one host are not quite one; within 2 us they are when ends of collectives meet."""
    report = export(DATA / capture, tmp_path / "timeline.pftrace")
    first, second = report.ranks
    assert (first.offset_ns, first.align) == (0, "collectives")
    assert abs(second.offset_ns) // 1000 == apart_us
    assert second.spread_ns is not None
    assert second.spread_ns <= 2000


# -- tasks -------------------------------------------------------------------------------------


def bare(slices: Iterable[Shown]) -> Iterator[Slice]:
    return ((*one[:5], one.whole_name) for one in slices)


def test_every_task_of_the_text_capture_is_drawn(exports: dict[str, Export]) -> None:
    exported = exports["torch-npu-text"]
    assert_lanes(exported, {rank: [text_lanes(rank)] for rank in RANKS})
    same(
        (one[:6] for one in bare(exported.slices("Python"))),
        (
            (rank, "Python", thread, *span_ns(event), event["name"])
            for rank in RANKS
            for (process, thread), events in text_lanes(rank).items()
            if process == "Python"
            for event in events
        ),
    )


def test_every_task_of_the_mindspore_capture_is_drawn(exports: dict[str, Export]) -> None:
    assert_lanes(
        exports["mindspore-2.1"],
        {rank: [iteration_lanes(rank, iteration) for iteration in ITERATIONS] for rank in RANKS},
    )


def assert_lanes(
    exported: Export, files: dict[int, list[dict[tuple[str, str], list[Event]]]]
) -> None:
    """Device tasks, ops, plane tasks and CANN calls are those of the files, to the nanosecond."""
    wanted: dict[str, list[Slice]] = {"Ascend Hardware": [], "HCCL": [], "CANN": []}
    for rank, lanes in files.items():
        for (process, thread), events in (item for one in lanes for item in one.items()):
            if process not in wanted or thread.startswith("Step Trace"):
                continue
            layer, row = process, thread
            if process == "HCCL":
                is_plane = thread.startswith("Plane")
                layer, row = "Communication", f"Group 0 {thread if is_plane else 'Communication'}"
            wanted[process] += [
                (rank, layer, row, *span_ns(event), event["name"]) for event in events
            ]
    for process, slices in wanted.items():
        layer = "Communication" if process == "HCCL" else process
        same(bare(exported.slices(layer)), slices)


FFTS_PARENTS = f"""
    SELECT parent.rowid FROM TASK parent WHERE parent.contextId = {NO_CONTEXT} AND EXISTS (
        SELECT 1 FROM TASK child WHERE child.contextId != {NO_CONTEXT}
        AND (child.deviceId, child.streamId, child.taskId)
          = (parent.deviceId, parent.streamId, parent.taskId)
        AND child.startNs >= parent.startNs AND child.endNs <= parent.endNs)"""


def test_every_task_of_the_databases_is_drawn(exports: dict[str, Export]) -> None:
    exported = exports["torch-npu-db"]
    tasks: list[Slice] = []
    communication: list[Slice] = []
    calls: list[Slice] = []
    for rank in RANKS:
        database = database_of(rank)
        tasks += (
            (rank, "Ascend Hardware", f"Stream {stream}", *span, name)
            for stream, *span, name in rows_of(
                database,
                f"""SELECT streamId, startNs, endNs - startNs, value FROM TASK
                LEFT JOIN COMPUTE_TASK_INFO info USING (globalTaskId)
                JOIN STRING_IDS ON id = COALESCE(info.name, TASK.taskType)
                WHERE TASK.rowid NOT IN ({FFTS_PARENTS})""",
            )
        )
        communication += (
            (rank, "Communication", f"Group 0 Plane {plane}", *span, name)
            for plane, *span, name in rows_of(
                database,
                """SELECT planeId, startNs, endNs - startNs, value FROM COMMUNICATION_TASK_INFO info
                JOIN TASK USING (globalTaskId) JOIN STRING_IDS ON id = info.taskType""",
            )
        )
        communication += (
            (rank, "Communication", "Group 0 Communication", *row)
            for row in rows_of(
                database,
                """SELECT startNs, endNs - startNs, value FROM COMMUNICATION_OP
                JOIN STRING_IDS ON id = opName""",
            )
        )
        calls += (
            (rank, "CANN", f"Thread {thread}", *span, name)
            for thread, *span, name in rows_of(
                database,
                """SELECT globalTid & 0xffffffff, startNs, endNs - startNs, value FROM CANN_API
                JOIN STRING_IDS ON id = name""",
            )
        )
    same(bare(exported.slices("Ascend Hardware")), tasks)
    same(bare(exported.slices("Communication")), communication)
    same(bare(exported.slices("CANN")), calls)


@pytest.mark.parametrize("rank", RANKS)
def test_parents_of_ffts_tasks_are_dropped_and_counted(
    exports: dict[str, Export], rank: int
) -> None:
    assert len(rows_of(database_of(rank), FFTS_PARENTS)) == 17
    (omission,) = (
        one
        for one in exports["torch-npu-db"].report.omissions
        if one.rank == rank and "FFTS+" in one.reason
    )
    assert omission.rows == 17
    assert not omission.loss, "they only repeat what is drawn"


def test_nothing_else_is_left_out(exports: dict[str, Export]) -> None:
    assert {
        one.reason for exported in exports.values() for one in exported.report.omissions if one.loss
    } == (set())


# -- steps and arrows --------------------------------------------------------------------------


@pytest.mark.parametrize("rank", RANKS)
def test_the_step_trace_has_all_ten_iterations(exports: dict[str, Export], rank: int) -> None:
    path = sorted(timeline_of(rank).glob("step_trace_*.json"))[0]
    graph = int(path.stem.split("_")[3])
    wanted: list[tuple[str, int, int, str]] = []
    marks: dict[int, tuple[int, int]] = {}
    for event in events_of(path):
        if event["ph"] != "X":
            continue
        number = int(event["args"]["Iteration ID"])
        start_ns, length_ns = span_ns(event)
        if event["cat"] == "Iteration Time":
            wanted.append(("Iterations", start_ns, length_ns, f"Iteration {number}"))
            forward = nearest_ns(str(event["args"]["FP Start"]))
            marks[number] = (forward, start_ns + length_ns)
        elif event["cat"] == "FP_BP Time":
            wanted.append(("Iterations", start_ns, length_ns, "FP/BP"))
        elif event["cat"] == "Iteration Refresh":
            wanted.append(("Iterations", start_ns, length_ns, "Iteration Refresh"))
        else:
            place = event["name"].rpartition("_")[2]
            wanted.append(("Reduce", start_ns, length_ns, f"Reduce {place}"))
    assert sorted(marks) == list(range(1, 11))
    for number in range(2, 11):
        begin, end = marks[number - 1][1], marks[number][0]
        wanted.append(("Data Aug Bound", begin, end - begin, "Data Aug Bound"))
    found = exports["mindspore-2.1"].slices("Step Trace", rank)
    same((one[2:6] for one in found), wanted)
    args = {(arg.name, arg.value) for one in found for arg in one.args if arg.kind == "step"}
    assert {value for name, value in args if name == "graph"} == {graph}
    assert {value for name, value in args if name == "iteration"} == set(range(1, 11))


@pytest.mark.parametrize("capture", ["torch-npu-db", "torch-npu-text"])
@pytest.mark.parametrize("rank", RANKS)
def test_every_kernel_has_an_arrow_from_cann_and_from_the_framework(
    exports: dict[str, Export], capture: str, rank: int
) -> None:
    """Perfetto turns an arrow round where the clocks say that a kernel ran before its launch."""
    exported = exports[capture]
    kernels = {
        one.bare
        for one in exported.slices("Ascend Hardware", rank)
        if any(arg.name == "op_type" for arg in one.args)
    }
    assert len(kernels) == 187
    joined: dict[Shown, list[str]] = {}
    for one, other in exported.loaded.arrows():
        for task, call in ((one, other), (other, one)):
            if task in kernels:
                joined.setdefault(task, []).append(call.layer)
    assert {tuple(sorted(joined.get(task, []))) for task in kernels} == {("CANN", "Python")}
