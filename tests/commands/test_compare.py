"""Proves that two runs are compared as they are, in words, tables, a page and one timeline."""

from __future__ import annotations

import csv
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timeline
from simulator.simulation import make_run
from tests.support.html_page import HOSTILE, MOST_BYTES, read
from tests.support.made_figures import made_report
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import WRITERS, ProfileShelf, change_events
from timeline.cli.main import main
from timeline.cli.parser import build_compare_parser
from timeline.comparison.comparison import Comparison
from timeline.comparison.sentences import cause_label
from timeline.reports.html import render_comparison_page
from timeline.reports.terminal import Display
from timeline.reports.terminal_comparison import comparison_text
from timeline.tables.table import Table

SLOWED = "MatMulV2"
TIMES = ("base_ns", "new_ns", "delta_ns")


@pytest.fixture(scope="module")
def slowed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The shelf's tiny run in a layout, with one type of operator three times as long."""
    made: dict[str, Path] = {}

    def get(layout: str) -> Path:
        if layout not in made:
            made[layout] = tmp_path_factory.mktemp(f"slowed-{layout}")
            run = make_run(ops_per_step=6, planes=2, slower={SLOWED: 3.0})
            WRITERS[layout](run, made[layout])
        return made[layout]

    return get


def run(*words: str | Path) -> int:
    return main(["compare", *map(str, words)])


def overall(comparison: Comparison) -> dict[str, dict[str, Any]]:
    return {row["metric"]: row for row in comparison.parts.to_dicts()}


# -- what is compared ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("torch-text", "torch-text"),
        ("torch-text", "torch-db"),
        ("torch-db", "kernel-details"),
        ("mindstudio", "mindformers"),
        ("mindspore-2.1", "mindstudio"),
        ("torch-text", "kineto"),
    ],
)
def test_a_run_does_not_differ_from_itself(
    one: str, other: str, shelf: ProfileShelf, here: Path
) -> None:
    """Not even through two layouts, of which one does not tell cores, shapes or graphs."""
    report = timeline.compare(shelf.get(one).path, shelf.get(other).path, here / "t.pftrace")
    comparison = report.comparison
    assert comparison.per_step
    for table in (comparison.operators, comparison.collectives):
        assert len(table)
        assert not table["delta_ns"].any()
    # Without marks of steps on the host, nothing tells when the first one began.
    marked = other != "kernel-details"
    assert not comparison.steps["delta_ns"][0 if marked else 1 :].any()
    if marked:
        assert not comparison.ranks["delta_ns"].any()
        assert not comparison.overall["delta_ns"].any()
        (said,) = comparison.sentences()
        assert said.startswith("Step exactly as long as before: ")


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "mindstudio"])
def test_the_operator_that_was_slowed_is_named_first(
    layout: str, shelf: ProfileShelf, slowed: Callable[[str], Path], here: Path
) -> None:
    """It leads the operators, alone explains its class, and is in a sentence."""
    report = timeline.compare(shelf.get(layout).path, slowed(layout), "t.pftrace")
    first, *_ = report.comparison.operators.to_dicts()
    assert first["type"] == SLOWED
    assert first["new_ns"] == pytest.approx(3 * first["base_ns"], rel=0.05)
    of_type = [row for row in report.comparison.operators.to_dicts() if row["type"] == SLOWED]
    assert sum(row["delta_ns"] for row in of_type) == pytest.approx(
        overall(report.comparison)["matmul"]["delta_ns"], abs=len(of_type)
    )
    said = list(report.comparison.sentences())
    assert said[0].startswith("Step +")
    assert ": matmul +" in said[0]
    explained = next(line for line in said if line.startswith("Matmul: "))
    assert first["name"][-30:] in explained


# -- runs that do not match ------------------------------------------------------------------------


def test_other_ranks_and_steps_are_told(shelf: ProfileShelf, here: Path) -> None:
    base = shelf.get("torch-text").path
    new = shelf.get("torch-text", ranks=3, steps=5).path
    report = timeline.compare(base, new, "t.pftrace")
    assert "new: rank 2 is in this run only, and in its means." in report.warnings
    (said,) = (one for one in report.warnings if one.startswith("the runs have "))
    assert "3 steps and 4 steps after the first: " in said
    assert said.endswith("means are of all but a first step, which may warm up.")
    assert any(
        "(mean of 3 steps and 4 steps after the first, 2 and 3 ranks)" in sentence
        for sentence in report.comparison.sentences()
    )
    assert report.comparison.ranks["rank"].tolist() == [0, 1]
    assert report.comparison.steps["base_step"].tolist() == [1, 2, 3]
    assert all(row["base_count"] for row in report.comparison.operators.to_dicts())


def test_runs_without_steps_are_compared_by_rank(shelf: ProfileShelf, here: Path) -> None:
    profile = shelf.copy("torch-text", here / "stepless")
    for trace in profile.path.rglob("trace_view.json"):
        change_events(trace, lambda one: None if "ProfilerStep" in str(one.get("name")) else one)
    for table in profile.path.rglob("kernel_details.csv"):
        table.unlink()
    report = timeline.compare(shelf.get("torch-text").path, profile.path, "t.pftrace")
    assert not report.comparison.per_step
    assert any(
        warning.startswith("new: ranks 0,1 are without steps") for warning in report.warnings
    )
    assert not len(report.comparison.steps)
    said = next(report.comparison.sentences())
    assert said.startswith("End to end exactly as long as before")


def test_a_run_without_device_records_is_told() -> None:
    """And nothing is compared with it."""
    figures = made_report(2, 3).figures
    nothing = np.zeros(0, np.int64)
    empty = figures.with_tables(
        overlap=figures.overlap.take(nothing),
        steps=figures.steps.take(nothing),
        operators=figures.operators.take(nothing),
        waiting=figures.waiting.take(nothing),
    )
    for sides, run_name in (((figures, empty), "new"), ((empty, figures), "base")):
        comparison = Comparison.of(*sides)
        assert f"{run_name}: holds no device records of the selection." in comparison.warnings
        assert list(comparison.sentences()) == []
        assert "nothing to compare" in comparison_text(comparison, Display(80, "utf-8", False))


# -- the timeline ----------------------------------------------------------------------------------

PLACES = "SELECT id, parent_id, coalesce(name, '') FROM track"
FLOWS = """
SELECT outs.track_id, ins.track_id
FROM flow JOIN slice outs ON outs.id = slice_out JOIN slice ins ON ins.id = slice_in
"""
STEPS = """
SELECT slice.name, ts, track_id FROM slice
WHERE slice.name GLOB 'Step [0-9]*' AND depth = 0 ORDER BY ts
"""
DIFFERENCES = """
SELECT slice.name, ts, EXTRACT_ARG(arg_set_id, 'step.base_ns'),
  EXTRACT_ARG(arg_set_id, 'step.new_ns'), EXTRACT_ARG(arg_set_id, 'step.delta_ns')
FROM slice JOIN track ON track.id = track_id WHERE track.name = '  Steps' ORDER BY ts
"""


def run_of_tracks(trace: TraceProcessor) -> dict[object, str]:
    """base or new of every track that lies in one of them."""
    rows = {one: (parent, str(name)) for one, parent, name in trace.rows(PLACES)}

    def found(row: object) -> str:
        while row in rows:
            row, name = rows[row]
            found_name = re.fullmatch(r" ?Rank \d+ (base|new)(: .*)?|(Base|New)", name)
            if found_name is not None:
                return (found_name[1] or found_name[3]).lower()
        return ""

    return {row: found(row) for row in rows}


def test_both_runs_begin_together_in_one_timeline(
    shelf: ProfileShelf, slowed: Callable[[str], Path], here: Path
) -> None:
    """Their first steps coincide, each keeps its lengths, and a row tells the differences."""
    report = timeline.compare(
        shelf.get("torch-text").path, slowed("torch-text"), "t.pftrace", kind="detail", limit=0
    )
    trace = TraceProcessor.load((here / "t.pftrace").read_bytes())
    assert trace.import_errors() == []
    runs = run_of_tracks(trace)
    base, new = (
        [(name, ts) for name, ts, track in trace.rows(STEPS) if runs[track] == title]
        for title in ("base", "new")
    )
    assert base[0] == new[0]
    assert base[0][0] == "Step 1"
    rows = trace.rows(DIFFERENCES)
    table = report.comparison.steps
    assert [row[2:] for row in rows] == list(
        zip(*(table[name].tolist() for name in TIMES), strict=True)
    )
    starts = dict(reversed(base))
    assert [row[1] for row in rows] == [starts[f"Step {at}"] for at in (1, 2, 3)]
    for at, (row, delta_ns) in enumerate(zip(rows, table["delta_ns"].tolist(), strict=True), 1):
        word = "slower" if delta_ns > 0 else "faster"
        change = f"{word} by {abs(delta_ns) / 1e6:.3f} ms (" if delta_ns else "as before"
        assert str(row[0]).startswith(f"Step {at} {change}")


def test_arrows_stay_in_their_run(shelf: ProfileShelf, here: Path) -> None:
    """Those of launches and those between ranks, which are numbered apart."""
    path = shelf.get("torch-text", ranks=3, ops_per_step=12).path
    timeline.compare(path, path, "both.pftrace", kind="detail", limit=0, causes=False)
    timeline.export(path, "one.pftrace", kind="detail", limit=0, causes=False)
    trace = TraceProcessor.load((here / "both.pftrace").read_bytes())
    alone = TraceProcessor.load((here / "one.pftrace").read_bytes())
    runs = run_of_tracks(trace)
    flows = trace.rows(FLOWS)
    assert len(flows) == 2 * len(alone.rows(FLOWS)) > 0
    for source, target in flows:
        assert runs[source] == runs[target] != ""


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_the_limit_holds_for_both_runs_together(
    shelf: ProfileShelf, here: Path, suffix: str
) -> None:
    path = shelf.get("torch-text", ops_per_step=48, steps=6).path
    target = here / f"t{suffix}"
    report = timeline.compare(path, path, target, kind="detail", limit="80KB")
    assert target.stat().st_size <= 80 * 1024
    assert sum(row.merged for row in report.resolutions)
    trace = TraceProcessor.load(target.read_bytes())
    assert trace.import_errors() == []
    if suffix == ".pftrace":
        assert {"base", "new"} <= set(run_of_tracks(trace).values())


# -- the page --------------------------------------------------------------------------------------


def test_the_page_says_what_the_comparison_says(
    shelf: ProfileShelf, slowed: Callable[[str], Path], here: Path
) -> None:
    report = timeline.compare(
        shelf.get("torch-text").path, slowed("torch-text"), "t.pftrace", report="t.html"
    )
    content = (here / "t.html").read_bytes()
    assert content == render_comparison_page(report)
    page = read(content)
    comparison = report.comparison
    for name, table in (
        ("overall", comparison.parts),
        ("steps", comparison.steps),
        ("ranks", comparison.ranks),
        ("operators", comparison.operators),
        ("collectives", comparison.collectives),
    ):
        assert list(map(int, page.column(name, "Before"))) == table["base_ns"].tolist()
        assert list(map(int, page.column(name, "Now"))) == table["new_ns"].tolist()
    metrics = [one.strip() for one in page.column("overall", "Part")]
    assert metrics == [cause_label(name, "") for name in comparison.parts["metric"].tolist()]
    assert "exposed communication" in metrics
    assert page.column("operators", "Name or type") == comparison.operators["name"].tolist()
    for said in comparison.sentences():
        assert said in content.decode()


def _report(ranks: int, steps: int, **more: Any) -> timeline.ComparisonReport:
    """A comparison of figures that nobody measured."""
    base, new = made_report(ranks, steps, **more), made_report(ranks, steps, **more)
    longer = new.figures.operators
    times = {name: longer[name] * 2 for name in ("total_ns",)}
    slower = new.figures.with_tables(operators=Table({**longer.columns, **times}))
    word = more.get("word", "")
    return timeline.ComparisonReport(
        Comparison.of(base.figures, slower),
        Path(f"/{word}/base"),
        Path(f"/{word}/new"),
        base.outputs,
        0,
        (f"a warning {word}",),
        (),
        (),
    )


def test_the_page_obeys_nothing_of_a_profile() -> None:
    """Names are text, whatever they hold; nothing is styled or run by attributes."""
    content = render_comparison_page(_report(3, 4, word=HOSTILE))
    text = content.decode()
    assert "<img" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    page = read(content)
    assert not {
        attribute
        for attribute in page.attributes
        if attribute.startswith("on") or attribute == "style"
    }
    assert page.policy.startswith("default-src 'none'")


def test_the_page_stays_small() -> None:
    """However many ranks, steps and operators are compared."""
    content = render_comparison_page(_report(60, 500, names=900))
    assert len(content) < MOST_BYTES
    assert read(content).tables["operators"]["rows"] <= 64


# -- the command -----------------------------------------------------------------------------------


def test_every_flag_of_compare_is_a_keyword() -> None:
    """With the same default; as for the command and export."""
    known = inspect.signature(timeline.compare).parameters
    chosen = inspect.signature(timeline.Selection).parameters
    flags = {action.dest: action for action in build_compare_parser()._actions}
    of_command = {"help", "json", "quiet", "verbose", "open", "offline", "verdict"}
    assert set(flags) - of_command == {*known, *chosen} - {"selection", "progress"}
    for name, parameter in known.items():
        if name in flags and parameter.default is not inspect.Parameter.empty:
            unset = parameter.default in (None, "") and not flags[name].default
            assert unset or parameter.default == flags[name].default, name


def test_json_and_tables_hold_all(
    shelf: ProfileShelf,
    slowed: Callable[[str], Path],
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The JSON is that of the library's report; the table has each operator and collective."""
    sides = (shelf.get("torch-text").path, slowed("torch-text"))
    assert run(*sides, "--json", "--csv", "t.csv", "-o", "a.pftrace") == 0
    found = json.loads(capsys.readouterr().out)
    report = timeline.compare(*sides, "b.pftrace")
    assert found["schema"] == 1
    assert found["comparison"] == report.comparison.to_dict()
    assert (here / "a.pftrace").read_bytes() == (here / "b.pftrace").read_bytes()
    rows = list(csv.DictReader((here / "t.csv").read_text().splitlines()))
    told = [*found["comparison"]["operators"], *found["comparison"]["collectives"]]
    assert [row["delta_ns"] for row in rows] == [str(one["delta_ns"]) for one in told]
    assert run(*sides, "--csv", "-", "--force", "-o", "a.pftrace") == 0
    printed = capsys.readouterr()
    assert printed.out == (here / "t.csv").read_text()
    assert "Step +" in printed.err


def test_open_profiles_are_compared_too(shelf: ProfileShelf, here: Path) -> None:
    """With the same file; how they are opened cannot be said again."""
    path = shelf.get("torch-text").path
    timeline.compare(path, path, "paths.pftrace")
    with timeline.open_profile(path) as base, timeline.open_profile(path) as new:
        report = timeline.compare(base, new, "open.pftrace")
        with pytest.raises(timeline.UsageError, match=r"jobs.*open_profile"):
            timeline.compare(base, path, "x.pftrace", jobs=1)
    assert (here / "paths.pftrace").read_bytes() == (here / "open.pftrace").read_bytes()
    assert "base and new are one profile." in report.warnings
    for shown in (str(report), repr(report), report._repr_html_()):
        assert "exactly as long as before" in shown


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("BASE",), 2, "NEW is missing. Name a second profile, or two parts"),
        ((), 2, "required: BASE. Try: tlexport compare --help-all"),
        (("BASE", "none"), 1, "none: does not exist"),
        (("BASE", "BASE", "BASE"), 2, "is one PATH too many"),
        (("BASE", "BASE", "--rank", "1"), 2, "did you mean --ranks?"),
        (("BASE", "BASE", "--ranks", "9"), 3, "rank 9 is not in"),
        (("BASE", "BASE", "--report", "a.pdf"), 2, "--report needs a name ending in .html"),
        (("BASE", "BASE", "-o", "a.png"), 2, "a.png"),
        (("BASE", "BASE", "-o", "there.pftrace"), 1, "Pass --force"),
        (
            ("BASE", "BASE", "--csv", "compare-BASE-BASE-summary.pftrace"),
            2,
            "two outputs have one name",
        ),
        (("BASE", "BASE", "--json", "--csv", "-"), 2, "exclude each other"),
    ],
)
def test_what_cannot_be_compared_is_said(
    shelf: ProfileShelf,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    """With what to do; nothing is written."""
    (here / "there.pftrace").touch()
    profile = shelf.get("torch-text").path
    replaced = (
        str(profile) if word == "BASE" else word.replace("BASE", profile.name) for word in words
    )
    assert run(*replaced) == code
    assert said in capsys.readouterr().err
    assert [one.name for one in here.iterdir()] == ["there.pftrace"]


def test_a_profile_may_be_called_compare(
    shelf: ProfileShelf, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is ./compare, as advice says; two paths without the word are advised of it."""
    shelf.copy("torch-text", here / "compare")
    assert main(["compare"]) == 2
    assert "tlexport ./compare" in capsys.readouterr().err
    assert main(["./compare", "-q"]) == 0
    assert main(["compare", "./compare"]) == 2
    capsys.readouterr()
    assert main(["./compare", "./compare"]) == 2
    assert "tlexport compare BASE NEW" in capsys.readouterr().err


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("word", ["", HOSTILE])
def test_text_fits_the_terminal(width: int, word: str) -> None:
    """And obeys nothing of a profile."""
    comparison = _report(20, 30, word=word).comparison
    text = comparison_text(comparison, Display(width, "ascii" if word else "utf-8", False))
    tables = text.split("\n\n", 1)[1].splitlines()
    assert max(map(len, tables)) <= width
    assert "\x1b" not in text
    assert "\u202e" not in text
