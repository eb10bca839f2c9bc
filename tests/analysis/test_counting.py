"""Proves that free time and communication are counted as the writer of a profile counts them."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from simulator.model import RankRun
from simulator.overlap import COPIES, IDLE, free_segments, sweep
from tests.support.places import DATA, needs_captures
from tests.support.profile_shelf import COMPARABLE, Event, Profile, ProfileShelf, change_json
from timeline.cli.main import main
from timeline.commands.compare import compare
from timeline.commands.export import export
from timeline.reports.export_report import ExportReport
from timeline.selection import Kind, Selection

pytestmark = pytest.mark.sweep

INNER = {"KERNEL_AICORE", "KERNEL_AIVEC", "FFTS_PLUS", "KERNEL_MIX_AIC", "KERNEL_MIX_AIV"}
"""Types that do not widen the time in which the outer rule counts, beside the profiler's marks."""
NO_COPIES = (
    *("kernel-details", "summary-directory", "mindspore-text", "mindspore-display"),
    "mindspore-2.6-tables",
)
"""Beginnings of layouts that hold kernels alone."""


def whole(report: ExportReport, rank: int = 0) -> dict[str, Any]:
    rows: list[dict[str, Any]] = report.figures.in_json()["overlap"]
    (row,) = (row for row in rows if (row["rank"], row["step"]) == (rank, None))
    return row


def exported(profile: Path, into: Path, **options: Any) -> ExportReport:
    return export(profile, into / "out.pftrace", force=True, **options)


def rewritten(profile: Profile, statements: Iterable[str]) -> None:
    """Change the database of each rank."""
    for path in profile.path.rglob("ascend_pytorch_profiler_*.db"):
        with closing(sqlite3.connect(path)) as database, database:
            for statement in statements:
                database.execute(statement)


def busy_of(rank: RankRun) -> tuple[int, int]:
    """First start and last end of what computes or communicates."""
    segments = sweep(rank.iterations)
    return min(one.start_ns for one in segments), max(one.end_ns for one in segments)


def widest_of(rank: RankRun, *, parents: bool) -> tuple[int, int]:
    """The same of the tasks that count for the outer rule."""
    tasks = [
        task
        for one in rank.iterations
        for task in (*one.tasks, *(one.parents if parents else ()))
        if task.kind not in INNER
    ]
    start_ns, end_ns = busy_of(rank)
    return (
        min(start_ns, *(task.start_ns for task in tasks)),
        max(end_ns, *(task.end_ns for task in tasks)),
    )


# -- free time -------------------------------------------------------------------------------------


NEW_SCHEMA = "UPDATE META_DATA SET value = '1.2.0' WHERE name = 'SCHEMA_VERSION'"
OLD_SCHEMA = "UPDATE META_DATA SET value = '1.1.4' WHERE name = 'SCHEMA_VERSION'"
FAR_AWAY = """UPDATE TASK SET startNs = 5, endNs = 9 WHERE rowid = (
    SELECT min(TASK.rowid) FROM TASK JOIN STRING_IDS ON taskType = id WHERE value = 'EVENT_RECORD'
)"""
NO_SCHEMA = "DELETE FROM META_DATA WHERE name = 'SCHEMA_VERSION'"
DRAWN = "CREATE TABLE OVERLAP_ANALYSIS (deviceId INTEGER, startNs INTEGER, endNs INTEGER, type INT)"
DRAWN_INNER = "INSERT INTO OVERLAP_ANALYSIS VALUES (0, 10, 20, 0), (0, 20, 30, 3), (0, 30, 40, 1)"
DRAWN_OUTER = "INSERT INTO OVERLAP_ANALYSIS VALUES (0, 10, 20, 0), (0, 20, 30, 3)"
INSIGHT = "CREATE TABLE status_info (name TEXT)"


@pytest.mark.parametrize(
    ("statements", "rule", "evidence"),
    [
        ([NEW_SCHEMA], "outer", "SCHEMA_VERSION 1.2.0"),
        ([OLD_SCHEMA], "inner", "SCHEMA_VERSION 1.1.4"),
        ([NO_SCHEMA], None, None),
        ([NEW_SCHEMA, DRAWN, DRAWN_INNER], "inner", "table OVERLAP_ANALYSIS"),
        ([OLD_SCHEMA, DRAWN, DRAWN_OUTER], "outer", "table OVERLAP_ANALYSIS"),
        ([NEW_SCHEMA, DRAWN, DRAWN_INNER, INSIGHT], "outer", "SCHEMA_VERSION 1.2.0"),
    ],
)
def test_a_database_tells_its_rule(
    shelf: ProfileShelf,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    statements: list[str],
    rule: str | None,
    evidence: str | None,
) -> None:
    """By its own Overlap Analysis unless MindStudio Insight drew it, else by its version."""
    profile = shelf.copy("torch-db", tmp_path / "run")
    inner = whole(exported(profile.path, tmp_path))
    rewritten(profile, statements)
    report = exported(profile.path, tmp_path)
    found = report.to_dict()["ranks"][0]
    assert (found["free_rule"], found["free_evidence"]) == (rule, evidence)
    row = whole(report)
    outside = {"inner": 0, None: None}
    rank = profile.run.ranks[0]
    (start_ns, end_ns), (first_ns, last_ns) = busy_of(rank), widest_of(rank, parents=True)
    outside_ns = outside.get(rule, start_ns - first_ns + last_ns - end_ns)
    assert row["outside_ns"] == outside_ns
    assert row["free_ns"] == inner["free_ns"] + (outside_ns or 0)
    assert [row[name] for name in ("copies_ns", "idle_ns")] == [
        inner[name] for name in ("copies_ns", "idle_ns")
    ]
    assert main([str(profile.path), "--list"]) == 0
    listed = capsys.readouterr().out
    assert (f"free time by the {rule} rule, as {evidence} tells." in listed) == bool(rule)
    assert main([str(profile.path), "--list", "--json"]) == 0
    listed_rank = json.loads(capsys.readouterr().out)["ranks"][0]
    assert (listed_rank["free_rule"], listed_rank["free_evidence"]) == (rule, evidence)


def test_time_outside_is_of_the_whole_capture_alone(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Whichever ranks and layers are chosen; steps, graphs and windows have none, nor shares."""
    profile = shelf.copy("torch-db", tmp_path / "run")
    rewritten(profile, [NEW_SCHEMA])
    report = exported(profile.path, tmp_path)
    outside_ns = whole(report)["outside_ns"]
    assert outside_ns > 0
    (row, _) = report.verdict.ranks.to_dicts()
    assert row["span_ns"] == row["computing_ns"] + row["not_overlapped_ns"] + row["free_ns"]
    assert 0 < row["before_ns"] <= row["outside_ns"] == outside_ns
    steps = [row for row in report.figures.in_json()["overlap"] if row["step"] is not None]
    assert {row["outside_ns"] for row in steps} == {0}
    for selection in (Selection(ranks=0), Selection(ranks=0, layers="steps")):
        for kind in (Kind.SUMMARY, Kind.DETAIL):
            part = exported(profile.path, tmp_path, selection=selection, kind=kind)
            assert whole(part)["outside_ns"] == outside_ns
    for selection in (Selection(steps="1-3"), Selection(window="0%:100%")):
        part = exported(profile.path, tmp_path, selection=selection)
        assert whole(part)["outside_ns"] == 0
    alone = compare(profile.path, profile.path, tmp_path / "c.pftrace").comparison
    parts = {one["metric"]: one["base_ns"] for one in alone.parts.to_dicts()}
    names = ("computing", "communication, not overlapped", "copies", "idle")
    assert abs(sum(parts[name] for name in names) - parts["end to end"]) <= len(names)


def outer_events(events: list[Event]) -> list[Event]:
    """Free time before the first and after the last of the overlap events of a trace."""
    (pid,) = (one["pid"] for one in events if one.get("args", {}).get("name") == "Overlap Analysis")
    of_process = [event for event in events if event["pid"] == pid and event["ph"] == "X"]
    free = next(event for event in of_process if event["name"] == "Free")
    first = min(Decimal(event["ts"]) for event in of_process)
    last = max(Decimal(event["ts"]) + Decimal(str(event["dur"])) for event in of_process)
    return [
        *events,
        {**free, "ts": str(first - 7), "dur": 7},
        {**free, "ts": str(last), "dur": 11.5},
    ]


@pytest.mark.parametrize("layout", ["mindstudio", "torch-text"])
def test_a_trace_tells_its_rule_by_its_own_free_events(
    shelf: ProfileShelf, tmp_path: Path, layout: str
) -> None:
    profile = shelf.copy(layout, tmp_path / "run", ranks=1)
    report = exported(profile.path, tmp_path)
    inner = whole(report)
    assert (report.ranks[0].free_rule.name, inner["outside_ns"]) == ("inner", 0)
    (trace,) = [
        path
        for path in profile.path.rglob("*.json")
        if "Overlap Analysis" in path.read_text(encoding="utf-8")
    ]
    change_json(trace, outer_events)
    report = exported(profile.path, tmp_path)
    assert report.ranks[0].free_rule.evidence == f"Overlap Analysis of {trace.name}"
    assert whole(report) == {**inner, "free_ns": inner["free_ns"] + 18_500, "outside_ns": 18_500}
    (row,) = report.verdict.ranks.to_dicts()
    assert (row["before_ns"], row["outside_ns"]) == (7_000, 18_500)


def test_a_damaged_time_does_not_tell_where_free_time_begins(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """A task decades away is left out, and then nothing is known of what lies outside."""
    profile = shelf.copy("torch-db", tmp_path / "run")
    rewritten(profile, [NEW_SCHEMA, FAR_AWAY])
    assert whole(exported(profile.path, tmp_path))["outside_ns"] is None


# -- copies and idle time --------------------------------------------------------------------------


@pytest.mark.parametrize("layout", COMPARABLE)
def test_copies_and_idle_time_are_those_of_the_run(
    shelf: ProfileShelf, tmp_path: Path, layout: str
) -> None:
    """In each layout that holds communication; where copies are not told they are idle time."""
    profile = shelf.get(layout)
    if layout.startswith("raw") or layout == "mindspore-raw":
        pytest.skip("raw data tells no communication")
    options = {}
    if all(path.is_file() for path in profile.captures):
        options["assign_rank"] = {path.name: at for at, path in enumerate(profile.captures)}
    report = exported(profile.path, tmp_path, **options)
    for rank in profile.run.ranks:
        row = whole(report, rank.rank)
        free = free_segments(profile.run, rank.rank)
        sums = {name: sum(one.duration_ns for one in free if one.category == name)
                for name in (COPIES, IDLE)}  # fmt: skip
        told = row["copies_ns"] is not None
        assert told != layout.startswith(NO_COPIES)
        if told:
            assert (row["copies_ns"], row["idle_ns"]) == (sums[COPIES], sums[IDLE])
        assert row["free_ns"] == (row["copies_ns"] or 0) + (row["outside_ns"] or 0) + row["idle_ns"]


# -- communication ---------------------------------------------------------------------------------

BEFORE = "UPDATE SESSION_TIME_INFO SET startTimeNs = 1727599958675815000"
GAP = "DELETE FROM COMMUNICATION_TASK_INFO WHERE rowid % 2 = 0"


def without_sums(profile: Profile) -> None:
    for path in profile.path.rglob("analysis.db"):
        path.unlink()


def with_sums_of_tasks(profile: Profile) -> None:
    """What a version that sums up HCCL tasks writes of each step."""
    for path in profile.path.rglob("analysis.db"):
        (database,) = path.parent.glob("ascend_pytorch_profiler_*.db")
        with closing(sqlite3.connect(path)) as sums, sums:
            for (step,) in sums.execute("SELECT step FROM StepTraceTime").fetchall():
                spans = spans_of_step(profile, database, int(step))
                told = Decimal(covered_ns(spans)) / 1000
                sums.execute(
                    "UPDATE StepTraceTime SET communication = ? WHERE step = ?", (float(told), step)
                )


def spans_of_step(profile: Profile, database: Path, step: int) -> list[tuple[int, int]]:
    rank = int(database.stem.rpartition("_")[2])
    (simulated,) = (one for one in profile.run.rank(rank).steps if one.id == step)
    with closing(sqlite3.connect(database)) as opened:
        return opened.execute(
            "SELECT startNs, endNs FROM TASK JOIN COMMUNICATION_TASK_INFO USING (globalTaskId) "
            "WHERE startNs BETWEEN ? AND ?",
            (
                profile.run.wall_ns(simulated.device_start_ns),
                profile.run.wall_ns(simulated.device_end_ns),
            ),
        ).fetchall()


def covered_ns(spans: Iterable[tuple[int, int]]) -> int:
    total_ns, until_ns = 0, 0
    for start_ns, end_ns in sorted(spans):
        total_ns += max(0, end_ns - max(start_ns, until_ns))
        until_ns = max(until_ns, end_ns)
    return total_ns


@pytest.mark.parametrize(
    ("statements", "change", "rule", "evidence"),
    [
        ([GAP], None, "ops", "StepTraceTime of analysis.db"),
        ([GAP, BEFORE], None, "ops", "StepTraceTime of analysis.db"),
        ([GAP], with_sums_of_tasks, "tasks", "StepTraceTime of analysis.db"),
        ([GAP], without_sums, "ops", "captured on 2025-01-09, after 2024-10-24"),
        ([GAP, BEFORE], without_sums, "tasks", "captured on 2024-09-29, before 2024-10-24"),
    ],
)
def test_what_counts_as_communication(
    shelf: ProfileShelf,
    tmp_path: Path,
    statements: list[str],
    change: Callable[[Profile], None] | None,
    rule: str,
    evidence: str,
) -> None:
    """Ops, or HCCL tasks as torch_npu had it once: its own sums tell, else the date."""
    profile = shelf.copy("torch-db", tmp_path / "run")
    by_ops = whole(exported(profile.path, tmp_path))
    rewritten(profile, statements)
    if change:
        change(profile)
    report = exported(profile.path, tmp_path)
    found = report.to_dict()["ranks"][0]
    assert (found["communication_rule"], found["communication_evidence"]) == (rule, evidence)
    row = whole(report)
    assert row["free_ns"] == row["copies_ns"] + row["outside_ns"] + row["idle_ns"]
    assert (row["communication_ns"] < by_ops["communication_ns"]) == (rule == "tasks")
    if rule == "ops":
        assert row == by_ops


def test_sums_that_cannot_be_read_are_told(shelf: ProfileShelf, tmp_path: Path) -> None:
    profile = shelf.copy("torch-db", tmp_path / "run", ranks=1)
    (path,) = profile.path.rglob("analysis.db")
    path.write_bytes(b"no database at all, but longer than the header of one" * 9)
    report = exported(profile.path, tmp_path)
    assert any("analysis.db" in warning for warning in report.warnings)
    assert report.ranks[0].communication_rule.name == "ops"


# -- a single card ---------------------------------------------------------------------------------


def test_of_a_single_card_nothing_is_said_of_others(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Not who waits, nor which rank or step is slowest; what is not known is null or a dash.

    Its HCCL tasks, which tell when others came, are not read.
    """
    profile = shelf.get("torch-db", ranks=1, steps=1)
    report = exported(profile.path, tmp_path, report=tmp_path / "page.html", causes=False)
    sentences = " ".join(report.verdict.sentences())
    assert not any(word in sentences for word in ("Slowest", "median", "fastest", "waited", "rank"))
    (waiting,) = report.to_dict()["waiting"]
    assert waiting["alone"] > 0
    names = ("times_last", "waited_ns", "caused_ns", "slowest_ns")
    assert [waiting[name] for name in names] == [None] * 4
    for row in report.to_dict()["collectives"]:
        assert (row["waited_ns"], row["transfer_ns"]) == (None, None)
    compared = compare(
        profile.path, profile.path, tmp_path / "c.pftrace", report=tmp_path / "c.html", causes=False
    )
    rows = {row["metric"]: row for row in compared.comparison.parts.to_dicts()}
    waited = rows["waiting for other ranks"]
    assert [waited[name] for name in ("base_ns", "new_ns", "delta_ns")] == [None] * 3
    assert (tmp_path / "page.html").stat().st_size > 0
    assert "waiting for other ranks" in (tmp_path / "c.html").read_text(encoding="utf-8")


# -- real captures ---------------------------------------------------------------------------------


def captures(pattern: str) -> list[Path]:
    return sorted((DATA / "msprof-single").glob(pattern)) if DATA.is_dir() else []


@needs_captures
@pytest.mark.parametrize(
    "capture", captures("cann9-*/PROF_*") + captures("cann-ffts/PROF_*"), ids=lambda path: path.name
)
def test_free_time_of_new_captures_is_their_own(capture: Path, tmp_path: Path) -> None:
    """Within a nanosecond of each of the free events of the trace beside the database."""
    (trace,) = capture.glob("mindstudio_profiler_output/msprof_[0-9]*.json")
    events = json.loads(trace.read_text(encoding="utf-8"), parse_float=Decimal)
    free = [event for event in events if event["ph"] == "X" and event["name"] == "Free"]
    own_ns = sum(int(Decimal(event["dur"]) * 1000) for event in free)
    (database,) = capture.glob("msprof_*.db")
    tables = [path for path in capture.rglob("op_summary_*.csv") if path.is_file()]
    assert tables
    found = [whole(exported(path, tmp_path)) for path in (database, trace.parent)]
    for row in found:
        assert abs(row["free_ns"] - own_ns) <= 2 * len(free)
        assert row["outside_ns"] > 0
    inner = [row["free_ns"] - row["outside_ns"] for row in found]
    assert inner[0] == inner[1]


@needs_captures
@pytest.mark.parametrize("capture", ["torch-npu-db", "torch-npu-db-2024-10", "torch-npu-db-level0"])
def test_steps_of_databases_are_those_that_torch_npu_summed_up(
    capture: str, tmp_path: Path
) -> None:
    """To the nanosecond, before and after the rule of communication changed."""
    report = exported(DATA / capture, tmp_path)
    for rank in (0, 1):
        directory = DATA / capture / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        uri = f"{(directory / 'analysis.db').as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            (sums,) = database.execute(
                "SELECT computing, communication, communication_not_overlapped, free "
                "FROM StepTraceTime"
            )
        row = whole(report, rank)
        names = ("computing_ns", "communication_ns", "exposed_communication_ns", "free_ns")
        assert [row[name] for name in names] == [round(Decimal(str(one)) * 1000) for one in sums]
    rule = "tasks" if capture == "torch-npu-db-2024-10" else "ops"
    assert {one.communication_rule.name for one in report.ranks} == {rule}


@needs_captures
def test_copies_of_a_real_database(tmp_path: Path) -> None:
    """Only those between computing and communication; most lie before and after both."""
    assert whole(exported(DATA / "torch-npu-db", tmp_path))["copies_ns"] == 11_001


def test_every_column_of_the_vendor_stays(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Free of --csv is the vendor's, with copies in it."""
    profile = shelf.get("torch-db", ranks=1)
    report = exported(profile.path, tmp_path, csv=tmp_path / "steps.csv")
    with (tmp_path / "steps.csv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    free_ns = report.figures.steps["free_ns"].tolist()
    assert [Decimal(row["Free"]) * 1000 for row in rows] == free_ns
