"""Proves that --csv says what torch_npu's own step_trace_time.csv says, in its columns."""

from __future__ import annotations

import csv
import io
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from simulator.overlap import expected_overlap
from tests.support.places import DATA, needs_captures
from tests.support.profile_shelf import ProfileShelf, change_events
from timeline.cli.main import main

TIMES = (
    "Computing",
    "Communication(Not Overlapped)",
    "Overlapped",
    "Communication",
    "Free",
    "Stage",
    "Bubble",
    "Communication(Not Overlapped and Exclude Receive)",
    "Preparing",
)
EDGES = Decimal("0.025")
"""By so much, in us, sums of durations differ that trace_view.json rounds one by one."""
QUARTER = Decimal("0.25")
"""torch_npu adds moments of 10^15 us as floats, which are multiples of a quarter."""


def rows_of(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> list[dict[str, str]]:
    """What --csv - prints, which is nothing else."""
    output = tmp_path / "out.pftrace"
    assert main([str(path), "--csv", "-", "-o", str(output), "--force", "-q", *more]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return list(csv.DictReader(io.StringIO(said.out)))


@needs_captures
@pytest.mark.parametrize("rank", [0, 1])
def test_equals_the_text_export(
    rank: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a text export, within the rounding of its own file."""
    capture = DATA / "torch-npu-text" / f"rank{rank}_ascend_pt"
    (found,) = rows_of(capture, tmp_path, capsys)
    vendor = capture / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv"
    (wanted,) = csv.DictReader(vendor.read_text(encoding="utf-8").splitlines())
    assert list(found) == ["Device_id", *wanted]
    assert found["Step"] == wanted["Step"]
    for name in TIMES:
        within = QUARTER if name in ("Stage", "Preparing") else EDGES
        assert abs(Decimal(found[name]) - Decimal(wanted[name])) <= within, name


@needs_captures
@pytest.mark.parametrize("rank", [0, 1])
def test_equals_the_database(rank: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a database, to the nanosecond."""
    capture = DATA / "torch-npu-db" / f"rank{rank}_ascend_pt"
    (found,) = rows_of(capture, tmp_path, capsys)
    database = capture / "ASCEND_PROFILER_OUTPUT" / "analysis.db"
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro&immutable=1", uri=True)) as opened:
        ((step, *wanted),) = opened.execute("SELECT * FROM StepTraceTime").fetchall()
    assert found["Step"] == step
    for name, value in zip(TIMES, wanted, strict=True):
        assert Decimal(found[name]) == Decimal(str(value)), name


@pytest.mark.parametrize("ranks", ["0", "all"])
def test_columns_and_digits(
    ranks: str, shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One rank has torch_npu's columns, several those of msprof-analyze; all digits of ns."""
    profile = shelf.get("torch-db")
    rows = rows_of(profile.path, tmp_path, capsys, "--ranks", ranks)
    head = ["Step", "Type", "Index"] if ranks == "all" else ["Device_id", "Step"]
    keys = [(rank.rank, step) for rank in profile.run.ranks for step in (1, 2, 3)]
    assert len(rows) == len(keys[:3] if ranks == "0" else keys)
    for row, (rank, step) in zip(rows, keys, strict=False):
        assert list(row) == [*head, *TIMES]
        assert row["Step"] == str(step)
        if ranks == "all":
            assert (row["Type"], row["Index"]) == ("rank", str(rank))
        parts = expected_overlap(profile.run, rank, step)
        for name, part in (
            ("Computing", "computing_ns"),
            ("Communication", "communication_ns"),
            ("Communication(Not Overlapped)", "not_overlapped_ns"),
            ("Free", "free_ns"),
        ):
            assert row[name] == f"{parts[part] // 1000}.{parts[part] % 1000:03d}"
        assert Decimal(row["Preparing"]) > 0


def test_graphs_are_told_apart(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a rank has several graphs, a last column says which; nothing is marked on the host."""
    rows = rows_of(shelf.get("mindstudio", graphs=(1, 3)).path, tmp_path, capsys)
    assert {row["Graph"] for row in rows} == {"1", "3"}
    assert {row["Preparing"] for row in rows} == {""}


def test_receiving_is_a_bubble(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Time in receive ops is taken out of the stage; without steps there is one row for all."""
    text = shelf.copy("torch-text", tmp_path / "run", ranks=1)
    trace = next(text.path.rglob("trace_view.json"))
    plain = rows_of(text.path, tmp_path, capsys)

    def receiving(event: dict[str, object]) -> dict[str, object]:
        name = str(event["name"])
        return {**event, "name": name.replace("hcom_allReduce_", "hcom_receive_")}

    change_events(trace, receiving)
    rows = rows_of(text.path, tmp_path, capsys)
    for row, old in zip(rows, plain, strict=True):
        bubble = Decimal(row["Bubble"])
        assert bubble >= Decimal(row["Communication"]) > 0
        assert Decimal(row["Stage"]) == Decimal(old["Stage"]) - bubble
        assert row["Communication(Not Overlapped and Exclude Receive)"] == "0.000"

    def unmarked(event: dict[str, object]) -> dict[str, object] | None:
        return None if str(event["name"]).startswith("ProfilerStep") else event

    change_events(trace, unmarked)
    (whole,) = rows_of(text.path, tmp_path, capsys)
    assert (whole["Step"], whole["Preparing"]) == ("", "")
    assert Decimal(whole["Bubble"]) == sum(Decimal(row["Bubble"]) for row in rows)


def test_a_file_beside_the_timeline(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--csv FILE is written with the timeline or not at all, and replaced only with --force."""
    profile, table = shelf.get("torch-db").path, tmp_path / "steps.csv"
    arguments = [str(profile), "-o", str(tmp_path / "out.pftrace"), "--csv", str(table)]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert f"Wrote {table}  " in said
    assert "6 rows" in said
    assert len(table.read_text(encoding="utf-8").splitlines()) == 7
    (tmp_path / "out.pftrace").unlink()
    assert main(arguments) == 1
    assert f"{table} exists" in capsys.readouterr().err
    assert not (tmp_path / "out.pftrace").exists()
    assert main([*arguments[:-1], str(tmp_path / "out.pftrace")]) == 2
    assert main([*arguments, "--force", "--json"]) == 0


def test_words_give_way_to_the_table(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --csv - only the table is on stdout, and the words on stderr."""
    output = tmp_path / "out.pftrace"
    assert main([str(shelf.get("torch-db").path), "--csv", "-", "-o", str(output)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Step,Type,Index,")
    assert said.out.count("\n") == 7
    assert f"Wrote {output}" in said.err
