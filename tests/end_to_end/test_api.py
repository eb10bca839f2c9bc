"""Proves that the library offers what it says, and that its figures are those of the command."""

from __future__ import annotations

import argparse
import contextlib
import gc
import inspect
import json
import shutil
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import timeline
from simulator.archives import write_archive
from tests.support.profile_shelf import Copier, ProfileShelf
from tests.support.public_names import members
from tests.support.run_command import REPORTED
from timeline.cli.main import main
from timeline.cli.parser import build_parser
from timeline.layers import Layer
from timeline.library.open_profile import MOST_SELECTIONS
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS, Kind, Selection

REPORTED_PARTS = ("computing_ns", "communication_ns", "exposed_communication_ns", "free_ns")
HEAVY = (
    *("numpy", "orjson", "msgspec", "apsw", "perfetto", "google.protobuf"),
    *("zlib_ng", "isal", "pandas", "polars", "pyarrow", "multiprocessing", "tempfile", "argparse"),
)

# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, _ in members() if name != "__version__"])
def test_every_name_is_explained(name: str) -> None:
    """By a docstring of its own, not one that is inherited or generated."""
    found = dict(members())[name]
    said = found.__doc__ or ""
    assert said.strip().endswith(".")
    assert not said.startswith(f"{name}(")


def test_names_are_loaded_when_they_are_used() -> None:
    """`import timeline` loads nothing that takes time; every name is listed, and no other is."""
    code = f"""
import sys, timeline
print([name for name in {HEAVY} if name in sys.modules])
print(set(timeline.__all__) - set(dir(timeline)))
print(hasattr(timeline, "nothing"))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n") == ["[]", "set()", "False", ""]


def test_the_package_is_typed() -> None:
    assert (Path(timeline.__file__).parent / "py.typed").is_file()


if TYPE_CHECKING:
    from typing_extensions import assert_type

    def used_by_somebody(path: Path) -> list[int]:
        """What mypy finds right and, where an error is expected, wrong; it is never run."""
        chosen = timeline.Selection(ranks=[0, 1], steps=range(10, 20), layers=["steps"])
        with timeline.open_profile(path, jobs=2, assign_rank={"PROF_3": 3}) as profile:
            assert_type(profile.operators(chosen, by="name"), timeline.Table)
            assert_type(profile.idle(ranks="0-3", window="30%:60%", by="call"), timeline.Table)
            assert_type(profile.estimate_gain(3, steps=[1, 2]), "int | None")
            profile.overlap(rank=0)  # type: ignore[call-arg]
            profile.overlap(ranks=[0.5])  # type: ignore[list-item]
            profile.overlap(layers="steps")  # type: ignore[call-arg]
            report = timeline.export(profile, path / "x.pftrace", kind="detail", limit="5MB")
        timeline.export(path, ranks=0, layers=["steps", timeline.Layer.OVERLAP])
        assert_type(report, timeline.ExportReport)
        timeline.export(str(path), kind=timeline.Kind.DETAIL, fit="split", limit=1 << 20)
        timeline.export(path, kind="both")  # type: ignore[arg-type]
        timeline.export(path, limits=3)  # type: ignore[call-arg]
        timeline.Selection(ranks=[0.5])  # type: ignore[list-item]
        timeline.nothing()  # type: ignore[attr-defined]
        return [output.size_bytes for output in report.outputs]


def actions() -> dict[str, argparse.Action]:
    """The options of the command, by the name that Python knows them by."""
    return {action.dest: action for action in build_parser()._actions}


def test_every_flag_is_a_keyword() -> None:
    """What the command can, the library can, under the same name and with the same default."""
    exported = inspect.signature(timeline.export).parameters
    chosen = inspect.signature(timeline.Selection).parameters
    flags = actions()
    of_the_terminal = {"help", "version", "quiet", "verbose", "json", "list", "path"}
    of_the_terminal |= {"open", "offline", "completion", "sql", "verdict"}
    assert set(flags) - of_the_terminal == {*exported, *chosen} - {
        *("profile", "selection", "progress"),
        *("estimate", "operator_steps"),  # which --json asks for
    }
    for name, parameter in exported.items():
        if name in flags:
            unset = (parameter.default in (None, "")) and not flags[name].default
            assert unset or parameter.default == flags[name].default, name
    assert {flags[name].default for name in chosen if name != "window"} == {"all"}


def test_a_path_is_opened_by_the_same_keywords() -> None:
    """What export passes on to open_profile means the same there."""
    exported = inspect.signature(timeline.export).parameters
    opened = dict(inspect.signature(timeline.open_profile).parameters)
    assert opened.pop("path").default == "."
    for name, parameter in opened.items():
        assert exported[name].default == parameter.default
        assert exported[name].annotation == parameter.annotation


# -- selections ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids",
    [[0, 1, 2], (2, 1, 0, 1), range(3), {0, 1, 2}, np.arange(3), "0-2", "2,0,1", iter(range(3))],
)
def test_ids_are_what_is_at_hand(ids: Any) -> None:
    """However ids are given, the selection is the same value, of Python's own numbers."""
    selection = Selection(ranks=ids)
    assert selection == Selection(ranks=frozenset({0, 1, 2}))
    assert hash(selection) == hash(Selection(ranks="0-2"))
    assert {type(one) for one in selection.ranks or ()} == {int}


def test_one_id_all_ids_and_none() -> None:
    assert Selection(steps=7).steps == frozenset({7})
    assert Selection(steps="all") == Selection(steps=None) == Selection()
    assert Selection(steps=[]).steps == frozenset()


def test_layers_are_members_or_names() -> None:
    """None leaves the layers to the kind."""
    wanted = frozenset({Layer.STEPS, Layer.ARROWS})
    assert Selection(layers=["steps", "arrows"]).layers == wanted
    assert Selection(layers="steps, Arrows").layers == wanted
    assert Selection(layers=wanted).layers_of(Kind.SUMMARY) == wanted
    assert Selection().layers_of(Kind.SUMMARY) == SUMMARY_LAYERS
    assert Selection(layers="all").layers_of(Kind.DETAIL) == DETAIL_LAYERS


@pytest.mark.parametrize(
    "wrong",
    [
        {"ranks": "first"},
        {"ranks": "3-1"},
        {"ranks": [0.5]},
        {"ranks": 1.0},
        {"graphs": [-1]},
        {"steps": range(10**12)},
        {"steps": ["1"]},
        {"window": "5"},
        {"window": "30%:120%"},
        {"window": "nan%:"},
        {"layers": "steps,hccl"},
        {"layers": [1]},
    ],
    ids=str,
)
def test_a_selection_without_meaning_is_refused(wrong: dict[str, Any]) -> None:
    """Where it is made, with the name of what is wrong."""
    with pytest.raises(timeline.UsageError, match=next(iter(wrong))):
        Selection(**wrong)


def test_a_part_is_a_selection_or_its_keywords(opened: timeline.Profile, tmp_path: Path) -> None:
    """Both ways give the same, wherever a Selection is taken."""
    chosen = Selection(ranks=[1], steps="2-3")
    for name in TABLES:
        by_selection = getattr(opened, name)(chosen)
        by_keywords = getattr(opened, name)(ranks=1, steps=range(2, 4))
        assert by_keywords.to_dicts() == by_selection.to_dicts(), name
    one = timeline.export(opened, tmp_path / "one.pftrace", selection=chosen)
    other = timeline.export(opened, tmp_path / "other.pftrace", ranks=1, steps="2,3")
    (first,), (second,) = one.outputs, other.outputs
    assert first.path.read_bytes() == second.path.read_bytes()


def takes_a_selection(name: str) -> bool:
    return "selection" in inspect.signature(getattr(timeline.Profile, name)).parameters


TABLES = [
    name
    for name, method in inspect.getmembers(timeline.Profile, inspect.isfunction)
    if not name.startswith("_")
    and takes_a_selection(name)
    and name not in ("estimate_gain", "table")
]
"""All methods of a profile that give one table of what is selected."""


@pytest.mark.parametrize("name", [*TABLES, "estimate_gain"])
def test_what_selects_is_checked(opened: timeline.Profile, name: str) -> None:
    """Before anything is read: a part is given one way, and each keyword is known."""
    ask = getattr(opened, name)
    more = {"rank": 0} if name == "estimate_gain" else {}
    with pytest.raises(TypeError, match="a Selection and ranks, steps are both given"):
        ask(selection=Selection(ranks=0), ranks=[0], steps=[1], **more)
    with pytest.raises(TypeError, match=rf"{name}\(\) got .* argument 'step'; did you mean steps"):
        ask(step=1, **more)
    with pytest.raises(TypeError, match=r"is a Selection, not \[0\]: write ranks="):
        ask(selection=[0], **more)
    assert set(inspect.signature(ask).parameters) >= {"ranks", "graphs", "steps", "window"}


@pytest.mark.parametrize("name", ["export", "compare", "open_profile"])
def test_unknown_keywords_are_told_with_what_is_near(name: str, tmp_path: Path) -> None:
    """By every function that has keywords."""
    paths = [tmp_path] * (1 + (name == "compare"))
    with pytest.raises(TypeError, match=rf"{name}\(\) got .* argument 'job'; did you mean jobs"):
        getattr(timeline, name)(*paths, job=2)
    if name != "open_profile":
        with pytest.raises(TypeError, match="both given"):
            getattr(timeline, name)(*paths, selection=Selection(), ranks=0)


# -- figures ---------------------------------------------------------------------------------------


@pytest.fixture
def opened(shelf: ProfileShelf) -> Iterator[timeline.Profile]:
    """Two ranks with two graphs and three steps."""
    with timeline.open_profile(shelf.get("mindstudio").path) as profile:
        yield profile


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What the command reports."""
    capsys.readouterr()
    assert main([*arguments, "--json", "--force"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


CHOICES: list[dict[str, str]] = [
    {},
    {"ranks": "1"},
    {"graphs": "3", "steps": "2-3"},
    {"window": "30%:60%"},
]


@pytest.mark.parametrize("layout", ["torch-db", "mindstudio"])
@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_figures_are_those_of_the_command(
    shelf: ProfileShelf,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    layout: str,
    choice: dict[str, str],
) -> None:
    """Overlap of ranks and steps, and operators, equal what the command reports of a detail."""
    run: dict[str, Any] = {"graphs": (1, 3)} if layout == "mindstudio" else {}
    if not run and "graphs" in choice:
        choice = {"steps": "2-3"}
    path = shelf.get(layout, **run).path
    flags = [word for name, value in choice.items() for word in (f"--{name}", value)]
    target = str(tmp_path / "x.pftrace")
    report = reported(capsys, str(path), "--kind", "detail", "-o", target, *flags)
    selection = Selection(**choice)
    with timeline.open_profile(path) as profile:
        overlap, steps = profile.overlap(selection), profile.steps(selection)
        operators = profile.operators(selection)
    assert list(map(as_reported, overlap.to_dicts())) == report["verdict"]["ranks"]
    whole = [row for row in report["overlap"] if row["step"] is None]
    assert only(("rank", *REPORTED_PARTS), map(as_reported, overlap.to_dicts())) == only(
        ("rank", *REPORTED_PARTS), whole
    )
    known = [row for row in steps.to_dicts() if row["span_ns"] is not None]
    of_steps = [row for row in report["overlap"] if row["step"] is not None]
    names = ("rank", "graph", "step", *REPORTED_PARTS, "copies_ns", "idle_ns")
    assert only(names, map(as_reported, known)) == only(names, of_steps)
    assert {row["outside_ns"] for row in of_steps} == {0}
    assert known
    for row in report["verdict"]["operators"]:
        of_type = operators["total_ns"][(operators["type"] == row["type"])]
        assert of_type.sum() == row["total_ns"]


def as_reported(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a table under the names of the report."""
    return {REPORTED.get(name, name): value for name, value in row.items()}


def only(names: Sequence[str], rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some columns of rows."""
    return [{name: row[name] for name in names} for row in rows]


def test_operators_by_name_sum_to_those_by_type(opened: timeline.Profile) -> None:
    """A type's row counts the operators of the type, and collectives are the longest of them."""
    by_type, by_name = opened.operators(), opened.operators(by="name")
    assert "name" not in by_type.columns
    assert all(by_name["name"])
    assert len(by_name) > len(by_type)
    keys = ("rank", "communication", "type", "core")
    sums: dict[tuple[Any, ...], list[int]] = {}
    for row in by_name.to_dicts():
        sums_of_key = sums.setdefault(tuple(row[key] for key in keys), [0, 0])
        sums_of_key[0] += row["count"]
        sums_of_key[1] += row["total_ns"]
    assert sums == {
        tuple(row[key] for key in keys): [row["count"], row["total_ns"]]
        for row in by_type.to_dicts()
    }
    for rank in opened.ranks:
        communicating = (by_type["rank"] == rank) & (by_type["communication"] == 1)
        collectives = opened.collectives(Selection(ranks=rank))
        assert max(collectives["duration_ns"]) == max(by_type["longest_ns"][communicating])
    with pytest.raises(timeline.UsageError, match="by"):
        opened.operators(by="core")  # type: ignore[arg-type]


def test_what_is_not_there_is_refused(opened: timeline.Profile) -> None:
    """By the same error as the command's, which lists what is."""
    with pytest.raises(timeline.SelectionError, match="found ranks 0,1"):
        opened.overlap(Selection(ranks=[0, 7]))
    with pytest.raises(timeline.SelectionError, match="found steps 1-3"):
        opened.steps(Selection(steps=range(3, 9)))


# -- files are read once ---------------------------------------------------------------------------


def test_figures_of_a_selection_are_read_once(copied: Copier) -> None:
    """One reading gives all figures but operators by name, and the verdict, whatever the layers."""
    path = copied("torch-db").path
    profile = timeline.open_profile(path)
    first, second = Selection(steps=2), Selection(steps=[2], layers="steps")
    overlap = profile.overlap(first)
    found = timeline.find_verdict(profile, steps=2)
    by_name = profile.operators(first, by="name")
    shutil.rmtree(path)
    assert profile.overlap(second) is overlap
    assert timeline.find_verdict(profile, selection=second).sentences == found.sentences
    assert len(profile.idle(second))
    assert len(profile.critical_path(steps="2"))
    assert set(profile.steps(first)["step"]) == {2}
    assert len(profile.collectives(second))
    assert len(profile.operators(first)) < len(by_name)
    assert len(profile.omissions(first)) >= 0
    with pytest.raises(timeline.SourceError):
        profile.overlap()


def test_few_selections_are_remembered(copied: Copier) -> None:
    """The figures of many windows do not fill the memory: the oldest are forgotten."""
    path = copied("kernel-details", ranks=1, steps=1).path
    profile = timeline.open_profile(path)
    profile.overlap()
    windows = [Selection(window=f"{start}%:") for start in range(MOST_SELECTIONS)]
    for window in windows:
        profile.overlap(window)
    shutil.rmtree(path)
    assert len(profile.overlap(windows[0])) == 1
    with pytest.raises((timeline.SourceError, FileNotFoundError)):
        profile.overlap()


# -- open and closed -------------------------------------------------------------------------------


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where archives are unpacked."""
    directory = tmp_path / "unpacked"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


@pytest.fixture
def archive(shelf: ProfileShelf, tmp_path: Path) -> Path:
    return write_archive(shelf.get("torch-db").path, tmp_path / "run.zip")


def test_an_archive_is_unpacked_until_the_profile_is_closed(archive: Path, unpacked: Path) -> None:
    """What `with` closes cannot be read any more, not even what is remembered."""
    with timeline.open_profile(archive) as profile:
        assert len(list(unpacked.iterdir())) == 1
        assert len(profile.overlap()) == 2
        assert str(unpacked) not in repr(profile)
    assert list(unpacked.iterdir()) == []
    profile.close()
    with pytest.raises(timeline.UsageError, match="closed"):
        profile.overlap()
    with pytest.raises(timeline.UsageError, match="closed"):
        timeline.export(profile, archive.with_name("never.pftrace"))


def test_an_archive_is_removed_with_its_profile(archive: Path, unpacked: Path) -> None:
    """As soon as nobody has the profile, though its figures were read: no `with` is needed."""
    gc.disable()
    try:
        profile = timeline.open_profile(archive)
        table = profile.overlap()
        del profile
        assert list(unpacked.iterdir()) == []
        assert len(table) == 2
    finally:
        gc.enable()


def test_an_archive_is_removed_at_the_end(archive: Path, unpacked: Path) -> None:
    """A script that just ends leaves nothing, nor a warning; its processes need no guard."""
    code = f"""
import timeline
profile = timeline.open_profile({str(archive)!r}, jobs=2)
print(len(profile.steps()))
"""
    script = archive.with_name("script.py")
    script.write_text(code, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "6\n", "")
    assert list(unpacked.iterdir()) == []


def test_a_profile_shows_its_ranks(opened: timeline.Profile) -> None:
    """Ranks, layouts and directories; a few lines even for many ranks."""
    assert opened.ranks == (0, 1)
    rows = opened.captures.to_dicts()
    assert [row["rank"] for row in rows] == [0, 1]
    for text in (repr(opened), opened._repr_html_()):
        for row in rows:
            assert row["layout"] in text
            assert row["source"] in text


# -- exports ---------------------------------------------------------------------------------------


def test_a_path_and_an_open_profile_give_the_same_file(
    opened: timeline.Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the command does with the same options."""
    monkeypatch.chdir(tmp_path)
    selection = Selection(ranks=1, steps=[1, 2])
    report = timeline.export(opened, selection=selection, kind="detail", limit=0, scopes=True)
    name = f"timeline-{opened.path.name}-detail-r1-s1-2.pftrace"
    assert [output.path for output in report.outputs] == [Path(name)]
    timeline.export(
        str(opened.path),
        "path.pftrace",
        selection=selection,
        kind=Kind.DETAIL,
        limit=0,
        scopes=True,
    )
    flags = ["--ranks", "1", "--steps", "1,2", "--kind", "detail", "--limit", "0", "--scopes"]
    assert main([str(opened.path), *flags, "-q", "-o", "command.pftrace"]) == 0
    found = {path.read_bytes() for path in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) == 3
    assert len(found) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "both"},
        {"fit": "luck"},
        {"args": "some"},
        {"group_by": "step"},
        {"limit": "plenty"},
        {"limit": -1},
        {"jobs": 0},
    ],
    ids=str,
)
def test_an_option_without_meaning_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    """Before anything is looked for."""
    with pytest.raises(timeline.UsageError):
        timeline.export(tmp_path / "absent", **wrong)


def test_an_open_profile_has_its_own_jobs(opened: timeline.Profile, tmp_path: Path) -> None:
    """How a profile is read is said once, where it is opened."""
    with pytest.raises(timeline.UsageError, match=r"jobs.*open_profile"):
        timeline.export(opened, tmp_path / "x.pftrace", jobs=2)


def test_a_report_shows_what_was_written(
    opened: timeline.Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, as the command does, and in a notebook with a link to each file."""
    monkeypatch.chdir(tmp_path)
    name = 'a "b" <c>.pftrace'
    report = timeline.export(
        opened, name, selection=Selection(steps="2,3"), kind="detail", limit="13KB"
    )
    assert name in repr(report)
    assert "\n" not in repr(report)
    assert str(report).splitlines() == report.lines()
    shown = report._repr_html_()
    assert 'href="a%20%22b%22%20%3Cc%3E.pftrace"' in shown
    assert "<c>" not in shown
    assert "left out" in shown
    assert report.suggestion in shown
    whole = timeline.export(opened, tmp_path / "whole.pftrace")
    assert (tmp_path / "whole.pftrace").as_uri() in whole._repr_html_()


# -- what figures do not hold ----------------------------------------------------------------------


@contextlib.contextmanager
def warned() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield said


def test_lost_records_are_a_warning_once(shelf: ProfileShelf, tmp_path: Path) -> None:
    """It points to the line that asked; the table counts them, as the command does."""
    profile = shelf.copy("torch-text", tmp_path / "run", ranks=1)
    (trace,) = profile.path.rglob("trace_view.json")
    trace.write_bytes(trace.read_bytes()[:-5000])
    with timeline.open_profile(profile.path) as opened:
        with warned() as said:
            opened.steps()
        assert said
        assert {one.category for one in said} == {timeline.TimelineWarning}
        assert {one.filename for one in said} == {__file__}
        with warned() as again:
            lost = opened.omissions().to_dicts()
        assert again == []
        report = timeline.export(opened, tmp_path / "x.pftrace")
    assert [row["rows"] for row in lost if row["loss"]] == [
        omission.rows for omission in report.omissions if omission.loss
    ]
    assert sum(row["rows"] for row in lost if row["loss"])


def test_ranks_that_are_left_out_are_a_warning(copied: Copier) -> None:
    """Figures of fewer ranks than there are say which are missing."""
    profile = copied("torch-db", ranks=2)
    (path,) = profile.captures[1].rglob("ascend_pytorch_profiler_1.db")
    with contextlib.closing(sqlite3.connect(path)) as database:
        ((page_bytes,),) = database.execute("PRAGMA page_size")
        ((page,),) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'TASK'")
    with path.open("r+b") as file:
        file.seek((page - 1) * page_bytes)
        file.write(b"\xa5" * page_bytes)
    with timeline.open_profile(profile.path, keep_going=True) as opened, warned() as said:
        assert list(opened.overlap()["rank"]) == [0]
    assert any("rank 1 is left out" in str(one.message) for one in said)


@pytest.mark.parametrize(
    ("keyword", "suffix"),
    [("output", ".pftrace"), ("csv", ".csv"), ("report", ".html")],
)
def test_names_of_files_without_a_zero_byte_alone(
    shelf: ProfileShelf, keyword: str, suffix: str
) -> None:
    """The system knows no others; a command line cannot hold them."""
    with pytest.raises(timeline.UsageError, match=r"'a\\x00b.* is not a file name"):
        timeline.export(shelf.get("torch-db").path, **{keyword: f"a\0b{suffix}"})  # type: ignore[arg-type]
