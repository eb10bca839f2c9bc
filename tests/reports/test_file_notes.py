"""Proves that a file tells its problems: above all rows, in few bytes, and only where needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.drawn_slices import DrawnSlice, drawn_slices
from tests.support.loaded_picture import LoadedPicture
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from tests.support.row_totals import rows_of
from timeline.commands.export import export
from timeline.options import Fit
from timeline.records.tables import Omission, OmissionCode
from timeline.reports.export_report import ExportReport
from timeline.reports.report_rows import MERGED, MOST_CHARACTERS, MOST_NOTES, notes_of
from timeline.tracks.root_rows import (
    COLLECTIVES,
    CRITICAL_PATH,
    NOTES,
    STEPS,
    WHAT_IS_SLOW,
    seen_name,
)

if TYPE_CHECKING:
    from tests.support.perfetto_ui import PerfettoUi

SPAN = """SELECT min(ts), max(ts + dur) FROM (
  SELECT ts, dur FROM slice UNION ALL SELECT ts, 0 FROM counter)"""


def drawn(
    shelf: ProfileShelf, target: Path, layout: str, limit: int = 0, fit: Fit = Fit.COARSEN
) -> tuple[ExportReport, TraceProcessor]:
    """The detail of a layout under a limit."""
    path = shelf.get(layout).path
    report = export(path, target, kind="detail", limit=limit, fit=fit, force=True)
    processor = TraceProcessor.load(target.read_bytes())
    assert processor.import_errors() == []
    return report, processor


def notes_in(processor: TraceProcessor, *, is_json: bool) -> dict[str, list[DrawnSlice]]:
    """The notes by row, outermost first."""
    rows = rows_of(processor, is_json=is_json)
    found: dict[str, list[DrawnSlice]] = {}
    for track, name, start_ns, length_ns in processor.rows(
        "SELECT track_id, name, ts, dur FROM slice ORDER BY track_id, depth"
    ):
        path = tuple(rows[track][-1].split(": ")) if is_json else rows[track]
        if path[0] == "Notes":
            one = DrawnSlice(path, name, start_ns, length_ns)
            found.setdefault(path[-1], []).append(one)
    return found


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_a_file_in_which_nothing_is_wrong_has_no_notes(
    shelf: ProfileShelf, tmp_path: Path, suffix: str
) -> None:
    """Records that only repeat others are no reason for notes."""
    report, processor = drawn(shelf, tmp_path / f"exact{suffix}", "torch-db")
    assert report.omissions
    assert notes_in(processor, is_json=suffix == ".json") == {}


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_what_the_limit_cost_is_noted(shelf: ProfileShelf, tmp_path: Path, suffix: str) -> None:
    """Each merged layer and each reason is a note as long as the picture, which stays as long."""
    is_json = suffix == ".json"
    target = tmp_path / f"timeline{suffix}"
    _, whole = drawn(shelf, target, "torch-db")
    limit = target.stat().st_size * 3 // 5
    report, coarse = drawn(shelf, target, "torch-db", limit)
    assert target.stat().st_size <= limit
    notes = notes_in(coarse, is_json=is_json)
    merged = [row for row in report.resolutions if row.merged]
    lines = [row.describe() for row in merged]
    if len(lines) > MOST_NOTES:
        more = len(lines) - MOST_NOTES
        noun = "note" if more == 1 else "notes"
        lines[MOST_NOTES:] = [f"and {more} more {noun} in the report"]
    assert [note.name for note in notes[MERGED]] == lines
    reasons = [note.name.partition(", ")[2] for note in notes["Left out"]]
    assert reasons == list(dict.fromkeys(omission.reason for omission in report.omissions))
    (headline,) = notes["Notes"]
    left_out = sum(omission.rows for omission in report.omissions)
    assert headline.name.replace(" ", "").startswith(f"{left_out}recordsleftout;")
    assert headline.name.endswith(f"{len(merged)} layers merged to keep the size limit")
    spans = {(note.start_ns, note.end_ns) for one in notes.values() for note in one}
    assert spans == set(coarse.rows(SPAN))
    ((first_ns, last_ns),) = whole.rows(SPAN)
    assert all(first_ns <= start_ns and end_ns <= last_ns for start_ns, end_ns in spans)
    untyped = "args" if is_json else "note"
    numbers = coarse.rows(
        f"SELECT extract_arg(arg_set_id, '{untyped}.resolution_ns'),"
        f" extract_arg(arg_set_id, '{untyped}.merged') FROM slice"
        f" WHERE extract_arg(arg_set_id, '{untyped}.resolution_ns') IS NOT NULL"
    )
    told = merged[:MOST_NOTES]
    assert sorted(numbers) == sorted((row.resolution_ns, row.merged) for row in told)


def test_steps_without_detail_are_noted(shelf: ProfileShelf, tmp_path: Path) -> None:
    target = tmp_path / "t.pftrace"
    drawn(shelf, target, "torch-db")
    limit = target.stat().st_size * 9 // 10
    report, processor = drawn(shelf, target, "torch-db", limit, Fit.STEPS)
    (lost,) = {omission.reason for omission in report.omissions if omission.loss}
    notes = notes_in(processor, is_json=False)
    (told,) = [note.name for note in notes["Left out"] if lost in note.name]
    assert re.match(r"steps? [123,]+: \d", told)
    assert MERGED not in notes


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_warnings_are_in_the_file_as_in_the_report(
    shelf: ProfileShelf, tmp_path: Path, suffix: str
) -> None:
    """Clocks that nothing aligns, and layers that the profile does not hold."""
    report, processor = drawn(shelf, tmp_path / f"text{suffix}", "mindspore-text")
    assert any("nothing shows whether they ran on one host" in text for text in report.warnings)
    assert any("in this profile" in text for text in report.warnings)
    notes = notes_in(processor, is_json=suffix == ".json")
    assert [note.name for note in notes["Warnings"]] == list(report.warnings)
    assert notes["Notes"][0].name == f"{len(report.warnings)} warnings"


def test_notes_are_the_same_whatever_wrote_them(shelf: ProfileShelf, tmp_path: Path) -> None:
    contents = set()
    for number in range(2):
        target = tmp_path / f"{number}.pftrace"
        drawn(shelf, target, "mindspore-text", 10 << 10)
        contents.add(target.read_bytes())
    assert len(contents) == 1


def test_very_many_and_very_long_notes_are_cut() -> None:
    """A thousand ranks that fail alike take a few lines, and the last one says how many more."""
    warnings = [f"rank {rank}: " + "too long " * 100 for rank in range(1_000)]
    damaged = OmissionCode.DAMAGED
    omissions = [Omission(f"reason {number}", 2, loss=True, code=damaged) for number in range(100)]
    notes = notes_of(warnings, omissions, [])
    assert notes is not None
    assert notes.headline == "1 000 warnings; 200 records left out"
    for (_, one), more in zip(notes.topics, (992, 92), strict=True):
        assert len(one) == MOST_NOTES + 1
        assert max(len(note.text) for note in one) <= MOST_CHARACTERS
        assert one[-1].text == f"and {more} more notes in the report"


def test_the_same_warning_is_told_once() -> None:
    notes = notes_of(["it is damaged."] * 3, [], [])
    assert notes is not None
    assert (notes.headline, [len(one) for _, one in notes.topics]) == ("1 warning", [1])


def test_notes_stay_out_of_overlap_and_of_all_ranks(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Every slice of the file without problems is in that with problems, and only notes besides."""
    _, plain = drawn(shelf, tmp_path / "a.pftrace", "mindspore-text")
    rows = {one.row[0] for one in drawn_slices(plain)}
    above = (WHAT_IS_SLOW, STEPS, COLLECTIVES, CRITICAL_PATH, NOTES)
    named = {seen_name(name) for name in above}
    assert {row for row in rows if not row.startswith("Rank ")} == named
    loaded = LoadedPicture(plain, is_json=False)
    roots = {track.path[-1]: track for track in loaded.tracks.values() if track.parent is None}
    assert {name.partition(":")[0] for name in roots} == rows
    assert all(track.description for track in loaded.tracks.values())


@pytest.mark.browser
def test_notes_are_seen_before_anything_is_unfolded(
    ui: PerfettoUi, shelf: ProfileShelf, tmp_path: Path
) -> None:
    """Their row is above that of the steps, and unfolds into one row per topic."""
    target = tmp_path / "coarse.pftrace"
    drawn(shelf, target, "torch-db", 14 << 10)
    ui.drop(target)
    shown = [row.name for row in ui.rows() if row.name not in ("System", "Clock Snapshots")]
    above = ["What is slow", "Steps", "Collectives", "Critical path", "Notes"]
    ranks = ["Rank 1: slows the others", "Rank 0"]
    assert shown == [*above, *ranks]
    ui.expand_all()
    shown = [row.name for row in ui.rows() if row.name not in ("System", "Clock Snapshots")]
    assert shown[shown.index("Notes") :][:4] == [
        "Notes",
        "Left out",
        MERGED,
        ranks[0],
    ]
    assert ui.errors == []
