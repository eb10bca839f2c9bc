"""Proves that the steps that tell most stay exact, within the limits of bytes and of events."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.limited_exports import Loaded
from tests.support.profile_shelf import ProfileShelf
from timeline import export
from timeline.errors import SelectionError, UsageError
from timeline.options import DEFAULT_MAX_EVENTS
from timeline.records.tables import OmissionCode
from timeline.reports.export_report import ExportReport
from timeline.selection import Kind

pytestmark = pytest.mark.sweep

RUN: dict[str, Any] = {"ranks": 3, "steps": 24, "ops_per_step": 24, "planes": 4}
LIMIT_BYTES = 128 << 10
MAX_EVENTS = 9_000


@pytest.fixture(scope="module")
def profile(shelf: ProfileShelf) -> Path:
    return shelf.get("torch-db", **RUN).path


@pytest.fixture(scope="module")
def exact(profile: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ExportReport, Loaded]:
    """Everything, whatever it takes."""
    target = tmp_path_factory.mktemp("exact") / "timeline.pftrace"
    return export(profile, target, kind="detail", limit=0), Loaded.of(target)


def elements_of(loaded: Loaded) -> int:
    """What the viewer holds: slices, samples, and two ends of each arrow."""
    ((slices, samples, arrows),) = loaded.processor.rows(
        "SELECT (SELECT count(*) FROM slice), (SELECT count(*) FROM counter),"
        " (SELECT count(*) FROM flow)"
    )
    return int(slices) + int(samples) + 2 * int(arrows)


LIMITS: dict[str, dict[str, Any]] = {
    "bytes": {"limit": LIMIT_BYTES},
    "events": {"max_events": MAX_EVENTS},
    "events alone": {"limit": 0, "max_events": MAX_EVENTS},
    "both": {"limit": LIMIT_BYTES, "max_events": MAX_EVENTS},
    "steps that were asked for": {"limit": LIMIT_BYTES, "exact_steps": "7,3"},
}


@pytest.fixture(scope="module", params=LIMITS)
def limited(
    request: pytest.FixtureRequest, profile: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ExportReport, Loaded]:
    target = tmp_path_factory.mktemp("limited") / "timeline.pftrace"
    report = export(profile, target, kind="detail", **LIMITS[request.param])
    return request.param, report, Loaded.of(target)


def test_both_limits_are_kept_and_the_one_that_binds_is_used(
    limited: tuple[str, ExportReport, Loaded],
) -> None:
    which, report, loaded = limited
    (output,) = report.outputs
    limits = {"bytes": report.limit_bytes, "events": report.max_events}
    used = {"bytes": loaded.path.stat().st_size, "events": output.elements}
    assert used["bytes"] == output.size_bytes
    assert elements_of(loaded) <= output.elements, "a half of an arrow is told too"
    shares = {name: used[name] / limit for name, limit in limits.items() if limit}
    assert max(shares.values()) <= 1
    assert report.limited_by == max(shares, key=lambda name: shares[name])
    assert shares[report.limited_by] > 0.9, which
    assert loaded.processor.import_errors() == []
    assert loaded.attributes["io.tlexport.limited_by"] == report.limited_by


def test_nothing_is_merged_in_the_steps_that_are_told(
    limited: tuple[str, ExportReport, Loaded], exact: tuple[ExportReport, Loaded]
) -> None:
    """Every slice that overlaps such a step of its rank is as it is without a limit."""
    which, report, loaded = limited
    assert report.exact_steps, which
    drawn, wanted = Counter(loaded.slices), Counter(exact[1].slices)
    checked = 0
    for rank, start_ns, end_ns in windows(report, exact[1]):
        for one, count in wanted.items():
            is_its = any(rank == named for named in ranks_of(one.row))
            if is_its and one.start_ns < end_ns and one.start_ns + one.length_ns > start_ns:
                assert drawn[one] == count, one
                checked += 1
    assert checked > 500, which
    assert any(one.busy_ns is not None for one in loaded.slices), "others are merged"


def ranks_of(row: tuple[str, ...]) -> list[int]:
    """The rank that a row is of, from its outermost name."""
    words = row[0].strip().split()
    return [int(words[1].rstrip(":"))] if words and words[0] == "Rank" else []


def windows(report: ExportReport, exact: Loaded) -> list[tuple[int, int, int]]:
    """When the steps ran that are told, on each of their ranks."""
    found = []
    for step in report.exact_steps:
        for one in exact.slices:
            if one.layer == "step" and one.name.startswith(f"Step {step.step} ".rstrip()):
                is_named = one.name.split()[1].rstrip(":") == str(step.step)
                its = [rank for rank in ranks_of(one.row) if is_named and rank in step.ranks]
                found += [(rank, one.start_ns, one.start_ns + one.length_ns) for rank in its]
    return found


def test_the_slowest_step_of_the_culprit_comes_first(
    limited: tuple[str, ExportReport, Loaded],
) -> None:
    which, report, _ = limited
    steps = {one.step: one.ranks for one in report.exact_steps}
    if "asked" in which:
        assert set(steps) <= {3, 7}
        assert 7 in steps
        return
    culprit = report.verdict.culprit
    if culprit is not None and culprit.profiled:
        assert all(culprit.rank in ranks for ranks in steps.values())
    assert report.verdict.step_extreme is not None


def test_reports_and_the_file_say_which(limited: tuple[str, ExportReport, Loaded]) -> None:
    _, report, loaded = limited
    told = json.loads(report.to_json())
    assert told["exact_steps"] == [one.step for one in report.exact_steps]
    assert told["exact_ranks"] == {str(one.step): list(one.ranks) for one in report.exact_steps}
    assert told["limited_by"] == report.limited_by
    assert told["outputs"][0]["elements"] == report.outputs[0].elements
    said = loaded.attributes["io.tlexport.exact_steps"]
    assert f"nothing is merged in: {said}" in "\n".join(report.lines())
    notes = [name for (name,) in loaded.processor.rows("SELECT name FROM slice")]
    assert f"nothing is merged in: {said}" in notes
    descriptions = loaded.processor.rows(
        "SELECT extract_arg(source_arg_set_id, 'description') FROM track"
    )
    assert any("Exact in step" in text for (text,) in descriptions if text)


def test_a_step_that_is_not_there_cannot_stay_exact(profile: Path, tmp_path: Path) -> None:
    with pytest.raises(SelectionError, match="step 99"):
        export(profile, tmp_path / "a.pftrace", kind="detail", exact_steps=[99])
    with pytest.raises(UsageError, match="not a number"):
        export(profile, tmp_path / "a.pftrace", max_events="many")
    assert list(tmp_path.iterdir()) == []


def test_without_a_limit_of_bytes_there_is_none_of_events(
    exact: tuple[ExportReport, Loaded], profile: Path, tmp_path: Path
) -> None:
    report, loaded = exact
    assert (report.max_events, report.limited_by, report.exact_steps) == (0, None, ())
    assert elements_of(loaded) == report.outputs[0].elements
    whole = export(profile, tmp_path / "a.pftrace", kind="detail")
    assert (whole.max_events, whole.limited_by) == (DEFAULT_MAX_EVENTS[Kind.DETAIL], None)


def test_detail_of_chosen_steps_says_where_others_are_left_out(
    profile: Path, tmp_path: Path
) -> None:
    """A slice for each stretch between them, with the steps and the records that it lacks."""
    target = tmp_path / "timeline.pftrace"
    report = export(
        profile, target, kind="detail", limit=LIMIT_BYTES, fit="steps", exact_steps="20,4"
    )
    kept = set(report.outputs[0].steps)
    assert {20, 4} & kept
    loaded = Loaded.of(target)
    stretches = loaded.processor.rows(
        "SELECT slice.name, extract_arg(arg_set_id, 'note.tasks') FROM slice"
        " JOIN track ON track.id = track_id WHERE track.name = 'Detail left out'"
    )
    lacking = sum(int(tasks) for _, tasks in stretches)
    every = sum(rank.tasks for rank in report.ranks)
    tasks = sum(1 for one in loaded.slices if one.layer == "task")
    assert tasks + lacking == every
    assert len(stretches) >= 2 * len(report.ranks)


def test_arrows_of_steps_without_room_are_counted(
    exact: tuple[ExportReport, Loaded], profile: Path, tmp_path: Path
) -> None:
    """Drawn arrows, and those left out of the same layers, are those of the whole timeline."""
    target = tmp_path / "steps.pftrace"
    report = export(profile, target, kind="detail", fit="steps", limit=LIMIT_BYTES)
    sql = (
        "SELECT count(*) FROM flow JOIN slice ON slice.id = slice_out"
        " WHERE category NOT IN ('path')"
    )
    ((drawn,),), ((every,),) = (one.processor.rows(sql) for one in (Loaded.of(target), exact[1]))
    left_out = [
        sum(one.rows for one in of.omissions if one.code is OmissionCode.ARROW_CUT)
        for of in (report, exact[0])
    ]
    assert drawn < every
    assert drawn + left_out[0] == every + left_out[1]
