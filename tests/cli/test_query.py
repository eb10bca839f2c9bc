"""Proves that `tlexport query` answers from a written timeline, in each form."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from tests.support.perfetto_sql import TraceProcessor
from tests.support.places import ROOT
from tests.support.profile_shelf import ProfileShelf
from tests.support.run_command import Command
from timeline.viewer.queries import PROCESSOR, VARIABLE, queries_text, questions

PROGRAM = f"""#!{sys.executable}
import runpy, sys
sys.path.insert(0, {str(ROOT)!r})
runpy.run_module("tests.support.trace_processor_shell", run_name="__main__")
"""


@pytest.fixture
def written(
    command: Command, shelf: ProfileShelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A detail of two ranks, and a trace processor on the path."""
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / PROCESSOR
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.delenv(VARIABLE, raising=False)
    profile = shelf.get("torch-db").path
    command.report(profile, "--kind", "detail", "-o", "out.pftrace")
    return Path("out.pftrace")


def test_a_question_is_answered_in_every_form(command: Command, written: Path) -> None:
    """With what the same view gives in the viewer; as a table, CSV and JSON."""
    processor = TraceProcessor.load(written.read_bytes())
    processor.rows(queries_text())
    rows = processor.rows("SELECT * FROM rank_times")
    answer = json.loads(command("query", written, "rank_times", "--json").out)
    assert [tuple(row.values()) for row in answer] == rows
    assert {"rank", "step_ns", "idle_ns"} <= answer[0].keys()
    lines = list(csv.reader(io.StringIO(command("query", written, "rank_times", "--csv").out)))
    assert lines == [list(answer[0]), *([str(one) for one in row] for row in rows)]
    head, *printed = command("query", written, "rank_times").out.splitlines()
    assert head.split() == list(answer[0])
    assert [line.split() for line in printed] == lines[1:]


def test_sql_may_use_the_views_and_any_table(command: Command, written: Path) -> None:
    """Cells of all types; what is not known is empty."""
    sql = "SELECT count(*) AS tasks, NULL AS none, 0.5 AS half, x'00ff' AS raw FROM device_tasks"
    (row,) = json.loads(command("query", written, sql, "--json").out)
    assert row["tasks"] > 0
    assert (row["none"], row["half"], row["raw"]) == (None, 0.5, "00ff")
    assert command("query", written, "SELECT 1 AS one WHERE 0", "--csv").out == "one\n"


def test_the_questions_are_listed_by_name(command: Command, written: Path) -> None:
    """Each is a view that can be asked for, with words that end as sentences do."""
    out = command("query", written).out
    processor = TraceProcessor.load(written.read_bytes())
    processor.rows(queries_text())
    assert len(questions()) >= 18
    for name, words in questions():
        assert f"{name} " in out
        assert words.endswith("?")
        assert words in out
        processor.rows(f"SELECT * FROM {name}")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("out.pftrace", "slowest_step"), 2, "did you mean slowest_steps?"),
        (("out.pftrace", "SELECT * FROM spam"), 2, "no such table: spam"),
        (("none.pftrace", "SELECT 1"), 1, "is not a file"),
        (("text.txt", "slowest_steps"), 1, "not a trace"),
        (("text.txt", "SELECT 1"), 1, "cannot be loaded"),
        (("out.pftrace", "SELECT 1", "SELECT 2"), 2, "one FILE too many"),
    ],
)
def test_what_cannot_be_asked_is_explained(
    command: Command, written: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    Path("text.txt").write_text("text", encoding="utf-8")
    outcome = command("query", *words)
    assert (outcome.code, outcome.out) == (code, "")
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_processor_that_cannot_be_fetched_is_one_sentence(
    command: Command, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which names the variable that points at one."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("HOME", str(Path.cwd()))
    outcome = command("query", written, "rank_times")
    assert outcome.code == 1
    assert f"{PROCESSOR}: cannot be fetched" in outcome.err
    assert f"${VARIABLE}" in outcome.err
    monkeypatch.setenv(VARIABLE, "nowhere")
    assert "is not a file" in command("query", written, "rank_times").err
