"""Proves that people can read what is slow on terminals of any width and kind, and in pipes."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.profile_shelf import ProfileShelf, change_events
from timeline.cli.main import main
from timeline.commands.export import export
from timeline.reports.export_report import ExportReport
from timeline.reports.terminal import MOST_BAR, PIPE_WIDTH, Display, TimesGrid, render_blocks
from timeline.reports.terminal_verdict import FEW_RANKS, MOST_STEPS, verdict_text
from timeline.tables.table import Table
from timeline.tables.times import PARTS
from timeline.tracks.colours import Colour
from timeline.units import ColumnUnit, format_share, format_short
from timeline.verdict.figures import TABLES, Figures
from timeline.verdict.verdict import Verdict

WIDTHS = (60, 80, 120)
ON_TERMINALS = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pty")
if sys.platform != "win32":
    from tests.support.terminal_screen import plain, run_on_terminal


@pytest.fixture
def report(shelf: ProfileShelf, tmp_path: Path) -> ExportReport:
    return export(shelf.get("torch-db").path, tmp_path / "o.pftrace")


def said(report: ExportReport, page: Display, *, verbose: bool = False) -> str:
    return verdict_text(report.verdict, report.figures, page, verbose=verbose)


def many(report: ExportReport, ranks: int) -> ExportReport:
    """The report of so many ranks that do not wait, of which number 7 is the slowest."""
    one, step = report.figures.overlap.to_dicts()[0], report.figures.steps.to_dicts()[0]
    spans_ns = {rank: 10_000_000 + rank for rank in range(ranks)} | {7: 20_000_000}
    overlap = [{**one, "rank": rank, "step_ns": span_ns} for rank, span_ns in spans_ns.items()]
    steps = [
        {**step, "rank": rank, "span_ns": span_ns, "period_ns": span_ns, "ordinary": 1}
        for rank, span_ns in spans_ns.items()
    ]
    figures = Figures(
        {
            **{spec.name: report.figures[spec.name] for spec in TABLES},
            **dict.fromkeys(("exposed", "exposed_steps", "waited_for"), Table({})),
            "overlap": table_of(overlap),
            "steps": table_of(steps),
            "waiting": report.figures.waiting.take(slice(0)),
        }
    )
    return replace(report, figures=figures, verdict=Verdict.of(figures))


def table_of(rows: list[dict[str, Any]]) -> Table:
    """The rows as a table; None is masked."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return Table(
        {
            name: np.ma.masked_array(
                [0 if value is None else value for value in values],
                [value is None for value in values],
            )
            for name, values in columns.items()
        }
    )


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("terminal", [True, False])
def test_every_number_is_there(
    report: ExportReport, width: int, encoding: str, terminal: bool
) -> None:
    """No line is longer than a terminal, and no time or share is cut for that."""
    page = Display(width if terminal else PIPE_WIDTH, encoding, terminal)
    text = plain(said(report, page, verbose=True))
    assert text.encode(encoding)
    if terminal:
        assert max(map(len, text.splitlines())) <= width
    shown = {*PARTS, "waiting_ns"} - {"free_ns", "communication_ns"}
    shown |= set() if page.width < PIPE_WIDTH else {"transfer_ns"}
    unit = ColumnUnit.of_times(report.verdict.mean_steps["period_ns"].tolist())
    for row in report.verdict.mean_steps.to_dicts():
        for part in shown:
            if part == "copies_ns" and not report.verdict.mean_steps[part].any():
                continue
            assert unit.format(row[part]) in text
            assert format_share(row[part], row["period_ns"]) in text
        assert unit.format(row["period_ns"]) in text
    for table in (report.verdict.operators, report.verdict.collectives):
        unit = ColumnUnit.of_times(table["total_ns"].tolist())
        assert f"time ({unit.name})" in text
        for row in table.to_dicts():
            assert re.search(rf"\b{row['count']} +{unit.format(row['total_ns'])}\b", text)
    assert " ".join(report.verdict.sentences()) in " ".join(text.split())


def test_a_pipe_has_a_shape_of_its_own(
    report: ExportReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the terminal around it: no styles, no bar, a row for each rank, then who is late."""
    texts = set()
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setenv("FORCE_COLOR", "1")
        with Path(os.devnull).open("w", encoding="utf-8") as pipe:
            page = Display.of(pipe)
            texts.add(said(report, replace(page, terminal=False)))
    (text,) = texts
    assert "\x1b" not in text
    rows = [line.split() for line in text.splitlines() if re.match(r" +\d+ ", line)]
    assert [row[0] for row in rows] == ["1", "0", "1", "0"]
    assert {len(row) for row in rows[:2]} == {2 + 6 * 2}
    assert [len(row) for row in rows[2:]] == [1 + 3 + 1 + 1 + bars for bars in (2, 1)]


def test_the_bar_has_the_parts(report: ExportReport) -> None:
    """A bar is as long as its column, and each part as long as its share."""
    text = plain(said(report, Display(130, "utf-8", True)))
    bars = re.findall("█+░*▓*▒*≡*·*", text.partition("times last")[0])
    assert len(bars) == 1 + 2  # the mark of the title, and a bar for each rank
    rows = report.verdict.mean_steps.to_dicts()
    for bar, row in zip(bars[1:], reversed(rows), strict=True):
        assert len(bar) == len(bars[1])
        for mark, part in (("█", "computing_ns"), ("▓", "waiting_ns"), ("▒", "transfer_ns")):
            assert abs(bar.count(mark) / len(bar) - row[part] / row["period_ns"]) < 1 / len(bar)


@ON_TERMINALS
def test_the_bar_has_the_colours_of_the_timeline(shelf: ProfileShelf) -> None:
    """Its headings are the legend, each with the mark and the colour of its part."""
    words = [str(shelf.get("torch-db").path), "--verdict"]
    _, text = run_on_terminal(words, 130, {"COLORTERM": "truecolor"})
    for colour, mark, title in (
        (Colour.COMPUTING, "█", "compute"),
        (Colour.WAITING, "▓", "waiting"),
        (Colour.TRANSFER, "▒", "transfer"),
        (Colour.EXPOSED, "░", "exposed"),
        (Colour.IDLE, "·", "idle"),
    ):
        red, green, blue = bytes.fromhex(colour.shown[1:])
        coloured = rf"38;2;{red};{green};{blue}m *{mark}"
        assert re.search(rf"{coloured} {title}", text), title
        if colour in (Colour.COMPUTING, Colour.WAITING, Colour.TRANSFER):
            assert re.search(rf"{coloured}+\x1b", text), title


def test_the_bar_of_a_step_without_device_work() -> None:
    """A step in which nothing ran has an empty bar, and parts beyond a step do not lengthen it."""
    times = {name: np.array([0, 10**18]) for name in PARTS}
    table = Table({"period_ns": np.array([0, 5]), **times})
    wide = Display(200, "utf-8", terminal=True)
    grid = TimesGrid(wide, ["rank", "time"], table)
    for row in table.to_dicts():
        grid.add(["0"], row)
    lines = render_blocks([[grid.grid]], wide).splitlines()
    empty, full = (len(re.findall("[█▓▒░≡·]", line)) for line in lines[-2:])
    assert empty == 0
    assert 0 < full <= MOST_BAR


@pytest.mark.parametrize("ranks", [9, 1000])
def test_many_ranks_are_few_lines(report: ExportReport, ranks: int) -> None:
    """The slowest and the mean, however many there are, and where all of them are."""
    text = plain(said(many(report, ranks), Display(100, "utf-8", True)))
    lines = [line.split() for line in text.splitlines()]
    head = next(at for at, words in enumerate(lines) if words[:1] == ["rank"])
    shown = [words[0] for words in lines[head + 1 : head + FEW_RANKS + 3]]
    others = [str(rank) for rank in range(ranks - 1, ranks - FEW_RANKS - 1, -1) if rank != 7]
    assert shown == ["7", *others[: FEW_RANKS - 1], "…", "mean"]
    assert "--csv FILE" in text
    assert len(lines) < 36


def test_the_culprit_is_red_and_first_and_nobody_is_green(report: ExportReport) -> None:
    """Ranks that wait least look fastest: the culprit stands first in red, however many there are.

    A bar is green where a device computes; no rank or time is.
    """
    culprit = report.verdict.culprit
    assert culprit is not None
    shown = said(report, Display(100, "utf-8", True))
    (red,) = set(re.findall(r"\x1b\[1;31m *(\d+)\x1b", shown))
    assert int(red) == culprit.rank
    rows = [line.split()[0] for line in plain(shown).splitlines() if re.match(r" +\d+ ", line)]
    assert rows[0] == str(culprit.rank)
    assert not re.search(r"\x1b\[(1;)?32m *\w", shown)


def test_many_steps_are_few_lines(report: ExportReport) -> None:
    """Of many steps the slowest are shown, in their own order."""
    one = report.figures.steps.to_dicts()[0]
    names = [name for name, value in one.items() if value is not None]
    one |= dict.fromkeys(PARTS, 1000)
    rows = [
        {**one, "step": step, "start_ns": step, "span_ns": 5000, "period_ns": 5000 + step}
        for step in range(500)
    ]
    columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in names}
    columns["graph"] = np.ma.masked_array(columns["step"], True)
    figures = report.figures.with_tables(steps=Table(columns), exposed_steps=Table({}))
    changed = replace(report, figures=figures, verdict=Verdict.of(figures))
    text = plain(said(changed, Display(120, "utf-8", True), verbose=True))
    steps = [int(found) for found in re.findall(r"^ *(\d+) +\d+ +5\.\d{3} ", text, re.MULTILINE)]
    assert steps == list(range(500 - MOST_STEPS, 500))
    assert "--csv FILE" in text


def test_names_are_shown_and_not_obeyed(report: ExportReport) -> None:
    """Neither markup of the library nor sequences of the terminal in names have an effect."""
    name = "[bold red]Mat[/] \x1b[2J\u202e :smile:"
    operators = report.figures.operators
    names = operators["type"].copy()
    names[:] = name
    figures = report.figures.with_tables(operators=Table({**operators.columns, "type": names}))
    changed = replace(report, figures=figures, verdict=Verdict.of(figures))
    for encoding in ("utf-8", "ascii"):
        text = said(changed, Display(200, encoding, False))
        assert "[bold red]Mat[/] \\x1b[2J\\u202e :smile:" in text


def test_wide_characters_keep_columns_aligned(report: ExportReport) -> None:
    """A name of characters that take two columns moves no number."""
    operators = report.figures.operators
    names = operators["type"].copy()
    names[np.flatnonzero(operators["communication"] == 0)[:2]] = "矩阵乘"
    figures = report.figures.with_tables(operators=Table({**operators.columns, "type": names}))
    changed = replace(report, figures=figures, verdict=Verdict.of(figures))
    text = plain(said(changed, Display(120, "ascii", True)))
    assert "\\u77e9\\u9635\\u4e58" in text
    assert "矩阵乘" in plain(said(changed, Display(120, "utf-8", True)))


def test_a_profile_without_steps(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without steps the time of a rank is shown; without device records that is said."""
    text = shelf.copy("torch-text", tmp_path / "run", ranks=1)
    trace = next(text.path.rglob("trace_view.json"))

    def unmarked(event: dict[str, Any]) -> dict[str, Any] | None:
        return None if event["name"].startswith("ProfilerStep") else event

    change_events(trace, unmarked)
    arguments = [str(text.path), "-o", str(tmp_path / "out.pftrace"), "--force"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:2] == ["rank", "time"] for line in lines)
    assert any(line.endswith(", no step marks") for line in lines)
    change_events(trace, lambda event: event if event["ph"] == "M" else None)
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("The selection holds no device records")
    assert "Wrote " in out


@pytest.mark.parametrize(
    ("duration_ns", "spelled"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1000, "1.00 us"),
        (999_499, "999 us"),
        (999_500, "1.00 ms"),
        (9_994_999, "9.99 ms"),
        (9_995_001, "10.0 ms"),
        (1_234_567_890_123, "1235 s"),
    ],
)
def test_short_durations(duration_ns: int, spelled: str) -> None:
    """Three digits that count, and never more than seven characters below 1000 s."""
    assert format_short(duration_ns) == spelled


@pytest.mark.parametrize(
    ("longest", "unit", "cells"),
    [
        (0, "ns", {0: "0", None: "-"}),
        (999, "ns", {999: "999", 1: "1"}),
        (999_500, "ms", {999_500: "1.000", 1_000: "0.001", 400: "<0.001"}),
        (9_999_500, "ms", {9_999_500: "10.00", 4_999: "<0.01", 5_001: "0.01"}),
        (1_234_567_890_123, "s", {1_234_567_890_123: "1234.57"}),
    ],
)
def test_a_column_has_one_unit(longest: int, unit: str, cells: dict[int | None, str]) -> None:
    """That of its largest number; smaller ones have as many decimals, and are never called zero."""
    column = ColumnUnit.of_times([None, longest, 1])
    assert column.title("time") == f"time ({unit})"
    assert {value: column.format(value) for value in cells} == cells


def test_changes_have_a_sign() -> None:
    column = ColumnUnit.of_sizes([3 << 20, None])
    changes = [column.format(value, signed=True) for value in (1 << 20, -(1 << 20), 1, 0, None)]
    assert (column.name, changes) == ("MB", ["+1.000", "-1.000", "+0.000", "0", "-"])


# -- on a real terminal ----------------------------------------------------------------------------

SLOW = """
import sys, time
from timeline.ranks import workers
read = workers.WorkerPool._submit
def slowly(*given):
    time.sleep(0.4)
    return read(*given)
workers.WorkerPool._submit = slowly
from timeline.cli.main import main
sys.exit(main())
"""


@ON_TERMINALS
def test_colours_on_a_terminal(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Colours are for terminals that want them; without them the text is the same."""
    arguments = [str(shelf.get("torch-db").path), "-o", str(tmp_path / "out.pftrace"), "--force"]
    code, shown = run_on_terminal(arguments, 80)
    assert code == 0
    assert "\x1b[1;31m" in shown
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        code, without = run_on_terminal(arguments, 80, environment)
        assert code == 0
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]", without)
        again = plain(without).replace(" (replaced)", "")
        assert again.splitlines()[-4:] == plain(shown).splitlines()[-4:]


@ON_TERMINALS
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_progress_on_a_terminal(shelf: ProfileShelf, tmp_path: Path, jobs: str) -> None:
    """It tells ranks and bytes in one line, never goes back, and is erased before the result."""
    profile = shelf.get("torch-db", ranks=5).path
    script = tmp_path / "slow.py"
    script.write_text(SLOW, encoding="utf-8")
    arguments = [str(profile), "-o", str(tmp_path / "out.pftrace"), "--jobs", jobs, "--force"]
    code, shown = run_on_terminal(arguments, 70, start=[str(script)])
    assert code == 0
    progress, erased, result = shown.rpartition("\r\x1b[K")
    assert erased
    assert result.lstrip("\x1b[1m").startswith("Input-bound: the hosts of all 5 ranks wait ")
    lines = progress.split("\r\x1b[K")[1:]
    assert all(len(line) < 70 and "\n" not in line for line in lines)
    read = [int(match[1]) for line in lines if (match := re.match(r"Read (\d) of 5 ranks  ", line))]
    assert read == sorted(read)
    assert len(set(read)) >= 2
    assert any(re.search(r"\d KB of [\d.]+ KB  [━─]{16} +\d+%", line) for line in lines)
    if jobs == "1":
        assert run_on_terminal([*arguments, "-q"], 70, start=[str(script)]) == (0, "")


@ON_TERMINALS
def test_progress_is_erased_before_a_list(shelf: ProfileShelf, tmp_path: Path) -> None:
    """A table follows no line that was not ended."""
    script = tmp_path / "slow.py"
    script.write_text(SLOW, encoding="utf-8")
    arguments = [str(shelf.get("torch-db", ranks=5).path), "--list"]
    code, shown = run_on_terminal(arguments, 70, start=[str(script)])
    assert code == 0
    progress, _, result = shown.rpartition("\r\x1b[K")
    assert "of 5 ranks" in progress
    assert result.startswith("rank  graph  steps")


@ON_TERMINALS
def test_a_quick_run_shows_no_progress(tmp_path: Path) -> None:
    """Below half a second nothing but the result is written."""
    code, shown = run_on_terminal([str(tmp_path), "--list"], 80)
    assert code == 1
    assert "\r\x1b[K" not in shown
    assert shown.startswith(f"tlexport: {tmp_path}")
