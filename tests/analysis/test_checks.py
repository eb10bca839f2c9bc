"""Proves that figures are compared with the profiler's own, and that nothing else is unknown."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.writers.companions.measures import (
    links_of,
    write_communication_measures,
    write_measures_database,
    write_operator_sums,
)
from simulator.writers.trace_json.mindspore_text import write_mindspore_export
from tests.support.places import real_capture
from tests.support.profile_shelf import Copier, Profile, ProfileShelf, tiny_run
from tests.support.run_command import Command
from timeline.analysis.checks import MOST_ALIKE, Checks, RankChecks, known_reasons
from timeline.cli.main import main
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import Measure

pytestmark = pytest.mark.sweep

OUTPUT = "ASCEND_PROFILER_OUTPUT"
Report = dict[str, Any]


def measured(copied: Copier, layout: str) -> Profile:
    """A torch_npu profile with the measures that profilers write beside one."""
    profile = copied(layout)
    for rank, capture in zip(profile.run.ranks, profile.captures, strict=True):
        output = capture / OUTPUT
        if layout == "torch-db":
            write_measures_database(profile.run, rank, output / "analysis.db")
        else:
            write_operator_sums(rank, output / "op_statistic.csv")
            write_communication_measures(profile.run, rank, output)
    return profile


def unequal(report: Report) -> list[Report]:
    return [row for row in report["checks"] if not row["equal"]]


def warned(report: Report, file: str) -> list[str]:
    return [warning for warning in report["warnings"] if f"in {file}" in warning]


# -- what is compared --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "files"),
    [
        (
            "torch-text",
            {
                "Overlap Analysis of trace_view.json",
                "communication.json",
                "op_statistic.csv",
                "step_trace_time.csv",
            },
        ),
        ("kernel-details", {"communication.json", "op_statistic.csv", "step_trace_time.csv"}),
        ("torch-db", {"analysis.db"}),
        ("mindspore-2.1", {"Overlap Analysis of msprof_*.json"}),
    ],
)
@pytest.mark.parametrize("kind", ["summary", "detail"])
def test_every_number_of_the_profiler_is_compared(
    copied: Copier, shelf: ProfileShelf, command: Command, layout: str, files: set[str], kind: str
) -> None:
    """Whatever lies beside what is read is equal to it, and each file is compared."""
    given = layout == "mindspore-2.1"
    profile = shelf.get(layout) if given else measured(copied, layout)
    report = command.report(profile.path, "--kind", kind)
    assert unequal(report) == []
    assert {row["file"] for row in report["checks"]} == files
    assert {row["rank"] for row in report["checks"]} == {one.rank for one in profile.run.ranks}
    assert not any(warned(report, file) for file in files)
    keys = {"rank", "file", "what", "numbers", "ours", "theirs", "tolerance", "equal", "reason"}
    assert set(report["checks"][0]) == keys


def test_types_are_compared_only_where_they_are_told(copied: Copier, command: Command) -> None:
    """Without the table of kernels a trace tells names and no types of operators."""
    profile = measured(copied, "torch-text")
    for capture in profile.captures:
        (capture / OUTPUT / "kernel_details.csv").unlink()
    report = command.report(profile.path)
    assert not [row for row in report["checks"] if row["file"] == "op_statistic.csv"]
    assert not warned(report, "op_statistic.csv")


def test_a_difference_is_told(
    copied: Copier, tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number that differs is a row that is not equal, and a warning with both numbers."""
    profile = measured(copied, "torch-text")
    path = profile.captures[0] / OUTPUT / "step_trace_time.csv"
    header, first, *rows = path.read_text(encoding="utf-8").splitlines()
    step, computing, *others = first.split(",")
    changed = ",".join([step, str(float(computing) + 1), *others])
    path.write_text("\n".join([header, changed, *rows]), encoding="utf-8")
    report = command.report(profile.path)
    (row,) = unequal(report)
    assert (row["what"], row["file"]) == (f"computing_ns of step {step}", path.name)
    assert abs(row["theirs"] - row["ours"] - 1000) <= row["tolerance"]
    (warning,) = warned(report, path.name)
    assert f"{row['theirs']} ns" in warning
    assert f"{row['ours']} ns" in warning
    main([str(profile.path), "-o", str(tmp_path / "o.pftrace"), "-v"])
    told = capsys.readouterr().out
    assert f"differ from {path.name}" in told
    assert "equal to communication.json within 1 ns" in told


def test_only_what_is_wholly_selected_is_compared(
    copied: Copier, shelf: ProfileShelf, command: Command
) -> None:
    """Of a choice of steps, those; of a window or a graph, nothing."""
    profile = measured(copied, "torch-text")
    step = profile.run.ranks[0].steps[1].id
    rows = command.report(profile.path, "--steps", str(step))["checks"]
    assert rows
    assert all(row["equal"] for row in rows)
    assert {row["file"] for row in rows} == {"communication.json", "step_trace_time.csv"}
    of_steps = [row["what"] for row in rows if row["file"] == "step_trace_time.csv"]
    assert all(what.endswith(f"of step {step}") for what in of_steps)
    assert command.report(profile.path, "--window", "10%:60%")["checks"] == []
    graph = str(profile.run.graphs[0])
    assert command.report(shelf.get("mindspore-2.1").path, "--graphs", graph)["checks"] == []


def test_the_only_step_of_a_capture_without_steps(copied: Copier, command: Command) -> None:
    """Profilers call it 0, or nothing: it is the capture."""
    profile = copied("kernel-details", ranks=1, steps=1)
    (capture,) = profile.captures
    output = capture / OUTPUT
    table = output / "kernel_details.csv"
    header, *rows = table.read_text(encoding="utf-8").splitlines()
    text = "\n".join([header, *("," + row.partition(",")[2] for row in rows)])
    table.write_text(text, encoding="utf-8")
    path = output / "step_trace_time.csv"
    header, row = path.read_text(encoding="utf-8").splitlines()
    path.write_text(f"{header}\n,{row.partition(',')[2]}\n", encoding="utf-8")
    report = command.report(profile.path, "--fp-start", "none such")
    parts = [row for row in report["checks"] if row["file"] == path.name]
    assert {row["what"] for row in parts} == {
        "computing_ns",
        "communication_ns",
        "not_overlapped_ns",
        "free_ns",
    }
    assert unequal(report) == []


def test_a_trace_beside_a_database_is_compared(
    shelf: ProfileShelf, tmp_path: Path, command: Command
) -> None:
    """Overlap Analysis of a small trace is looked at even where a database is read."""
    profile = shelf.copy("torch-db", tmp_path / "run")
    text = shelf.get("torch-text")
    for capture, other in zip(profile.captures, text.captures, strict=True):
        shutil.copy(other / OUTPUT / "trace_view.json", capture / OUTPUT)
    report = command.report(profile.path)
    assert "Overlap Analysis of trace_view.json" in {row["file"] for row in report["checks"]}
    assert unequal(report) == []
    assert {row["layout"] for row in report["ranks"]} == {"database"}


def test_a_table_of_overlap_is_compared(copied: Copier, command: Command) -> None:
    """OVERLAP_ANALYSIS, which msprof and MindStudio Insight write into databases."""
    profile = copied("torch-db", ranks=1, steps=1)
    (capture,) = profile.captures
    (database,) = (capture / OUTPUT).glob("ascend_pytorch_profiler_*.db")
    (whole,) = (row for row in command.report(profile.path)["overlap"] if row["step"] is None)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "CREATE TABLE OVERLAP_ANALYSIS (id INTEGER, deviceId INTEGER, startNs INTEGER, "
            "endNs INTEGER, type INTEGER)"
        )
        for kind, part in enumerate(
            ("computing_ns", "communication_ns", "exposed_communication_ns")
        ):
            connection.execute(
                "INSERT INTO OVERLAP_ANALYSIS VALUES (?, 0, 5, ?, ?)", (kind, 5 + whole[part], kind)
            )
    rows = [
        row for row in command.report(profile.path)["checks"] if row["file"].startswith("OVERLAP")
    ]
    assert [row["equal"] for row in rows] == [True] * 3
    assert rows[0]["theirs"] == whole["computing_ns"]


def test_many_equal_numbers_are_one_row(copied: Copier, command: Command) -> None:
    """A report does not grow with the number of ops; the row says how many it stands for."""
    steps = MOST_ALIKE + 1
    profile = copied("kernel-details", ranks=1, steps=steps)
    (capture,), (rank,) = profile.captures, profile.run.ranks
    write_communication_measures(profile.run, rank, capture / OUTPUT)
    rows = command.report(profile.path)["checks"]
    assert len(rows) == 5
    assert {row["what"] for row in rows if row["file"] == "step_trace_time.csv"} == {
        f"{part}_ns of {steps} steps"
        for part in ("computing", "communication", "not_overlapped", "free")
    }
    (ops,) = [row for row in rows if row["file"] == "communication.json"]
    count = sum(len(one.collectives) for one in rank.iterations)
    assert ops["numbers"] == count
    assert ops["what"] == f"total_ns of {count} communication ops"
    assert all(row["equal"] for row in rows)


def test_a_file_that_is_broken_is_left_out(copied: Copier, command: Command) -> None:
    """The capture is whole without it; what could not be read is counted."""
    profile = measured(copied, "torch-text")
    whole = command.report(profile.path)
    output = profile.captures[0] / OUTPUT
    for name in ("communication.json", "communication_matrix.json"):
        (output / name).write_text('{"step1": 7}', encoding="utf-8")
    (output / "op_statistic.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    report = command.report(profile.path)
    assert report["overlap"] == whole["overlap"]
    reasons = [row["reason"] for row in report["omitted"] if row["loss"]]
    for name in ("communication.json", "communication_matrix.json", "op_statistic.csv"):
        assert any(name in reason for reason in reasons), name


EXTREMES = ("1e400", "-1", "1e300", "99999999999999999999", "9" * 400, "null", '"x"', "[" * 99999)


@pytest.mark.parametrize("value", EXTREMES)
def test_extreme_numbers_end_no_export(copied: Copier, command: Command, value: str) -> None:
    """Whatever a number is, the capture is drawn and its own figures stay."""
    profile = measured(copied, "torch-text")
    whole = command.report(profile.path)
    output = profile.captures[0] / OUTPUT
    op = f'{{"Communication Time Info": {{"Elapse Time(ms)": {value}}}}}'
    link = f'{{"Transit Size(MB)": {value}, "Transit Time(ms)": 1}}'
    for name, one in (("communication", op), ("communication_matrix", f'{{"0-1": {link}}}')):
        text = f'{{"step1": {{"collective": {{"a-total@1": {one}}}}}}}'
        (output / f"{name}.json").write_text(text, encoding="utf-8")
    if len(value) < 999:
        for name in ("step_trace_time.csv", "op_statistic.csv"):
            header, first, *rows = (output / name).read_text(encoding="utf-8").splitlines()
            cells = [first.split(",")[0], *([value] * first.count(","))]
            text = "\n".join([header, ",".join(cells), *rows])
            (output / name).write_text(text, encoding="utf-8")
    report = command.report(profile.path)
    assert report["overlap"] == whole["overlap"]


@pytest.mark.parametrize("value", [1e300, -1.0, float("inf"), "x", None, 1 << 62])
def test_extreme_numbers_of_a_database_end_no_export(
    copied: Copier, command: Command, value: object
) -> None:
    """The same of each column of numbers in analysis.db."""
    profile = measured(copied, "torch-db")
    whole = command.report(profile.path)
    path = profile.captures[0] / OUTPUT / "analysis.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, column in (
            ("StepTraceTime", "computing"),
            ("CommAnalyzerTime", "elapse_time"),
            ("CommAnalyzerTime", "start_timestamp"),
            ("CommAnalyzerBandwidth", "transit_size"),
            ("CommAnalyzerMatrix", "transit_time"),
        ):
            connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
    assert command.report(profile.path)["overlap"] == whole["overlap"]


@pytest.mark.parametrize("trace", [True, False])
def test_a_run_without_steps_equals_step_0_of_mindspore(
    tmp_path: Path, command: Command, trace: bool
) -> None:
    """Where nobody called profiler.step() its table holds one step, which is the capture."""
    write_mindspore_export(tiny_run(), tmp_path / "run", steps=False, trace=trace)
    report = command.report(tmp_path / "run")
    assert unequal(report) == []
    assert "step_trace_time.csv" in {row["file"] for row in report["checks"]}


def test_steps_of_mindspore_count_what_starts_in_their_host_window(
    tmp_path: Path, command: Command
) -> None:
    """Its numbers of several steps are others, and each is found by its rule; any other is not."""
    write_mindspore_export(tiny_run(ops_per_step=24), tmp_path / "run")
    report = command.report(tmp_path / "run")
    reasons = [row["reason"] for row in unequal(report)]
    assert len(reasons) > 4
    assert all("in whose host window they start" in reason for reason in reasons)
    path = next((tmp_path / "run").rglob("step_trace_time.csv"))
    header, first, *rest = path.read_text(encoding="utf-8").splitlines()
    cells = first.split(",")
    cells[1] = "9999.125"
    path.write_text("\n".join([header, ",".join(cells), *rest]), encoding="utf-8")
    (row,) = [
        row for row in unequal(command.report(tmp_path / "run")) if row["theirs"] == 9_999_125
    ]
    assert row["reason"] is None


def checks_of(*rows: tuple[Measure, str, int, int]) -> RankChecks:
    """Checks of one step from measure, file, ours and theirs, with no tolerance."""
    files = ["", *dict.fromkeys(file for _, file, _, _ in rows)]
    made = Checks.of(
        len(rows),
        {
            "measure": [measure for measure, _, _, _ in rows],
            "file": [files.index(file) for _, file, _, _ in rows],
            "step": np.full(len(rows), NO_ID),
            "name": np.zeros(len(rows)),
            "numbers": np.ones(len(rows)),
            "ours_ns": [ours for _, _, ours, _ in rows],
            "theirs_ns": [theirs for *_, theirs in rows],
            "tolerance_ns": np.zeros(len(rows)),
            "by_start": np.zeros(len(rows), np.bool_),
        },
    )
    return RankChecks(tuple(files), made)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(Measure.FREE, "Overlap Analysis of a.json", 5, 9)], ["first and the last task"]),
        ([(Measure.FREE, "Overlap Analysis of a.json", 9, 5)], [None]),
        (
            [
                (Measure.COMMUNICATION, "analysis.db", 9, 8),
                (Measure.NOT_OVERLAPPED, "analysis.db", 9, 8),
                (Measure.FREE, "analysis.db", 1, 2),
            ],
            ["before 2024-10-24"] * 3,
        ),
        (
            [
                (Measure.COMPUTING, "Overlap Analysis of a.json", 5, 9),
                (Measure.FREE, "Overlap Analysis of a.json", 5, 9),
            ],
            [None, None],
        ),
        ([(Measure.COLLECTIVE, "communication.json", 9, 5)], ["main plane"]),
        ([(Measure.OPERATOR, "op_statistic.csv", int(NO_TIME), 5)], ["nothing of that name"]),
        ([(Measure.COMPUTING, "analysis.db", 5, 5)], [None]),
    ],
)
def test_reasons_follow_from_versions(
    rows: list[tuple[Measure, str, int, int]], said: list[str | None]
) -> None:
    """A difference is explained where a version of the profiler is known to make it."""
    found = known_reasons(checks_of(*rows))
    for reason, part in zip(found, said, strict=True):
        assert (reason is None) == (part is None)
        assert part is None or part in str(reason)


def test_what_is_not_there_is_not_equal() -> None:
    """A number of which there is none of ours equals nothing, whatever its size."""
    largest = int(np.iinfo(np.int64).max)
    checks = checks_of((Measure.FREE, "a", int(NO_TIME), largest), (Measure.FREE, "a", 3, 3))
    assert checks.rows.equal.tolist() == [False, True]


# -- sizes and links ---------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["torch-text", "kernel-details", "torch-db"])
@pytest.mark.parametrize("kind", ["summary", "detail"])
def test_sizes_and_links_are_told_in_every_layout(
    copied: Copier, command: Command, layout: str, kind: str
) -> None:
    """What ops moved, and over which links, is told without the tasks that moved it."""
    profile = measured(copied, layout)
    report = command.report(profile.path, "--kind", kind)
    for rank in profile.run.ranks:
        collectives = [one for iteration in rank.iterations for one in iteration.collectives]
        moved = sum(size for one in collectives for size, _ in links_of(one).values())
        rows = [row for row in report["collectives"] if row["rank"] == rank.rank]
        assert sum(row["moved_bytes"] for row in rows) == moved
        expected: dict[tuple[int, int], int] = {}
        for one in collectives:
            for ends, (size_bytes, _) in links_of(one).items():
                expected[ends] = expected.get(ends, 0) + size_bytes
        links = [row for row in report["links"] if row["rank"] == rank.rank]
        found = {(row["source_rank"], row["target_rank"]): row["size_bytes"] for row in links}
        assert found == expected
        assert {row["link"] for row in links} == {"HCCS"}
        has_tasks = layout != "kernel-details"
        assert all((row["count"] is not None) == has_tasks for row in links)


def test_links_are_of_the_steps_that_are_selected(copied: Copier, command: Command) -> None:
    """The profiler's sums are by step; a window cuts through them, so they tell nothing then."""
    profile = measured(copied, "kernel-details")
    rank = profile.run.ranks[0]
    step = rank.steps[1]
    collectives = [one for iteration in step.iterations for one in iteration.collectives]
    moved = sum(size for one in collectives for size, _ in links_of(one).values())
    links = command.report(profile.path, "--steps", str(step.id))["links"]
    assert sum(row["size_bytes"] for row in links if row["rank"] == rank.rank) == moved
    assert command.report(profile.path, "--window", "10%:60%")["links"] == []


def test_sizes_that_nothing_tells_are_not_zero(copied: Copier, command: Command) -> None:
    """Tables of kernels alone tell no sizes: unknown is null."""
    profile = copied("kernel-details")
    rows = command.report(profile.path)["collectives"]
    assert {(row["size_bytes"], row["moved_bytes"]) for row in rows} == {(None, None)}


def test_links_of_single_ops_where_there_are_no_sums(copied: Copier, command: Command) -> None:
    """Older files list ops and no sums; what the profiler picked out is not counted twice."""
    profile = copied("kernel-details", ranks=1, steps=1)
    cell = {"Transport Type": "HCCS", "Transit Size(MB)": 1, "Transit Time(ms)": 0.5}
    step = profile.run.ranks[0].steps[0].id
    ops = {"a@1": {"0-1": cell}, "b@1": {"0-1": cell}, "allreduce-top1@1": {"0-1": cell}}
    path = profile.captures[0] / OUTPUT / "communication_matrix.json"
    path.write_text(json.dumps({f"step{step}": {"collective": ops}}), encoding="utf-8")
    (row,) = command.report(profile.path)["links"]
    assert (row["size_bytes"], row["total_ns"]) == (2_000_000, 1_000_000)


# -- what is not used --------------------------------------------------------------------------


def test_what_is_not_used_is_named(
    shelf: ProfileShelf, tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files that are known and not used, and files that are not known, but no other."""
    profile = shelf.copy("torch-text", tmp_path / "run", ranks=1)
    (capture,) = profile.captures
    output = capture / OUTPUT
    for name in ("api_statistic.csv", "something_new.csv", "notes.txt"):
        (output / name).write_text("a,b\n", encoding="utf-8")
    found = {(row["file"], row["what"]) for row in command.report(profile.path)["unused"]}
    assert found == {
        ("api_statistic.csv", "sums of host calls by name"),
        ("something_new.csv", "not known"),
    }
    main([str(profile.path), "-o", str(tmp_path / "o.pftrace"), "-v"])
    told = capsys.readouterr().out
    assert "not used of rank 0: api_statistic.csv (sums of host calls by name), " in told


def test_tables_of_a_database_that_are_not_used_are_named(copied: Copier, command: Command) -> None:
    """Metrics of kernels, where there are any."""
    profile = copied("torch-db", ranks=1)
    (capture,) = profile.captures
    (database,) = (capture / OUTPUT).glob("ascend_pytorch_profiler_*.db")

    def named() -> bool:
        return any(
            "SAMPLE_PMU_SUMMARY" in row["file"] for row in command.report(profile.path)["unused"]
        )

    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DROP TABLE IF EXISTS SAMPLE_PMU_SUMMARY")
        connection.execute("CREATE TABLE SAMPLE_PMU_SUMMARY (globalTaskId INTEGER)")
    assert not named()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT INTO SAMPLE_PMU_SUMMARY VALUES (1)")
    assert named()


# -- real captures -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "files"),
    [
        (
            "torch-npu-text",
            {
                "Overlap Analysis of trace_view.json",
                "communication.json",
                "op_statistic.csv",
                "step_trace_time.csv",
            },
        ),
        ("torch-npu-db", {"analysis.db", "OVERLAP_ANALYSIS of ascend_pytorch_profiler_0.db"}),
        ("torch-npu-db-level0", {"analysis.db"}),
        ("mindspore-2.1", {"Overlap Analysis of msprof_*.json"}),
    ],
)
def test_real_captures_equal_their_own_numbers(
    command: Command, name: str, files: set[str]
) -> None:
    """All that their profilers say, within what those round."""
    report = command.report(real_capture(name))
    assert unequal(report) == []
    assert {row["file"] for row in report["checks"]} == files


def test_real_tables_alone_tell_counters_sizes_and_links(tmp_path: Path, command: Command) -> None:
    """Without the trace the tables beside it tell the same bytes and links, and have counters."""
    source = real_capture("torch-npu-text")
    alone = tmp_path / "alone"
    ignored = shutil.ignore_patterns("trace_view.json")
    shutil.copytree(source, alone, ignore=ignored)
    whole, tables = (command.report(path, "--kind", "detail") for path in (source, alone))
    assert {row["layout"] for row in tables["ranks"]} == {"kernel_details.csv"}
    assert not any("counters" in warning for warning in tables["warnings"])
    for report in (whole, tables):
        assert {row["moved_bytes"] for row in report["collectives"]} == {427_596_096}
    ends = ("rank", "source_rank", "target_rank", "link", "size_bytes")
    found = [sorted([row[key] for key in ends] for row in one["links"]) for one in (whole, tables)]
    assert found[0] == found[1]
    assert len(found[0]) == 14
    assert unequal(tables) == []
