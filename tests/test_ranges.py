"""Proves that times, ids and orders that nothing can hold are told as errors, and others work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.loaded_picture import LoadedPicture
from tests.support.made_tracks import encode_timeline
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.cli.main import main
from timeline.columns.strings import StringPool
from timeline.commands.export import export
from timeline.declarations import fill
from timeline.encoders.formats import format_of
from timeline.errors import RecordError, UsageError
from timeline.options import ExportOptions, ReadingOptions
from timeline.ranges import FURTHEST_NS, LARGEST_ID
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Records, Tasks
from timeline.selection import Selection
from timeline.tracks.model import Timeline, Track


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--offset", "0=9000000000s"], 2, "too far"),
        (["--offset", "0=99999999999999s"], 2, "too far"),
        (["--offset", "0=3000000000s"], 1, "more than 146 years from zero"),
        (["--steps", "9" * 20], 2, "ids end at"),
        (["--graphs", "9" * 20], 2, "ids end at"),
        (["--ranks", "9" * 20], 2, "ids end at"),
        (["--steps", "9" * 18], 3, "not in"),
        (["--window", "0:9000000000s"], 0, ""),
        (["--window", "0:99999999999999999999s"], 0, ""),
        (["--window=-9000000000s:50%"], 0, ""),
        (["--window", "9000000000s:"], 3, "outside of what there is"),
        (["--assign-rank", f"PROF={'9' * 20}"], 2, "ids end at"),
    ],
)
def test_no_option_ends_in_a_traceback(
    shelf: ProfileShelf,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    says: str,
) -> None:
    """Whatever number is asked for works, or is an error with its exit code."""
    target = tmp_path / "timeline.pftrace"
    asked = [str(shelf.get("torch-db", ranks=1).path), "--kind", "detail", "-o", str(target)]
    assert main([*asked, *options]) == code
    assert says in capsys.readouterr().err
    assert target.exists() == (code == 0)
    if code == 0:
        assert TraceProcessor.load(target.read_bytes()).import_errors() == []


@pytest.mark.parametrize("rank", [2**31 - 1, 2**31, 3_000_000_000, 2**32 - 1, LARGEST_ID])
@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_ranks_of_any_number_are_drawn(
    shelf: ProfileShelf, tmp_path: Path, rank: int, suffix: str
) -> None:
    """Rows are ordered by their place among others, which fits whatever the ranks are."""
    profile = shelf.get("torch-db", ranks=2)
    assigned = {capture.name: rank - place for place, capture in enumerate(profile.captures)}
    for kind in ("summary", "detail"):
        target = tmp_path / f"{kind}{suffix}"
        report = export(profile.path, target, kind=kind, assign_rank=assigned)
        assert [one.rank for one in report.ranks] == [rank - 1, rank]
        processor = TraceProcessor.load(target.read_bytes())
        assert processor.import_errors() == []
        shown = LoadedPicture(processor, is_json=suffix == ".json").by_id.values()
        assert {one.rank for one in shown} >= {rank - 1, rank}


def test_an_order_that_no_trace_holds_is_an_error() -> None:
    picture = Timeline((Track(0, None, "a row", 2**31),), 0, 0)
    with pytest.raises(RecordError, match="row a row: its order is 2147483648"):
        list(encode_timeline(format_of(Path("any.pftrace")), picture))


def test_options_of_the_library_are_checked_alike() -> None:
    with pytest.raises(UsageError, match="ids end at"):
        Selection(steps=2**63)
    with pytest.raises(UsageError, match="no id is negative"):
        Selection(graphs=-1)
    with pytest.raises(UsageError, match="no id is negative"):
        ReadingOptions(assign_rank={"PROF": -1})
    assert Selection(ranks=LARGEST_ID).ranks == frozenset({LARGEST_ID})


@pytest.mark.parametrize("ids", [range(1 << 40), range(0, 1 << 80, 3), range(1 << 70, 0, -1)])
def test_ranges_that_nobody_can_list_are_refused(ids: range) -> None:
    """Before anything of them is listed, which would take all memory."""
    with pytest.raises(UsageError, match="too long"):
        Selection(ranks=ids)
    with pytest.raises(UsageError, match="too long"):
        fill(ExportOptions, {"output": None, "exact_steps": ids})


def test_no_move_wraps() -> None:
    """Times far from zero are moved exactly or not at all; what is not given stays so."""
    times = np.array([NO_TIME, -5, 0, FURTHEST_NS - 7])
    assert ClockMove(7).of(times).tolist() == [NO_TIME, 2, 7, FURTHEST_NS]
    with pytest.raises(RecordError, match="146 years"):
        ClockMove(8).of(times)
    with pytest.raises(RecordError, match="146 years"):
        ClockMove(FURTHEST_NS + 1)


def test_any_two_moments_lie_as_far_apart_as_a_trace_can_tell() -> None:
    """A picture that begins before zero is moved there, and then ends at their difference."""
    assert np.iinfo(np.int64).max >= FURTHEST_NS - -FURTHEST_NS


@pytest.mark.parametrize("time_ns", [0, 2**62, 2**63 - 5, 2**63 + 5, -(2**64)])
@pytest.mark.parametrize("move", [ClockMove(), ClockMove(5), ClockMove(-7, 90_000, 11)])
def test_the_way_back_ends(move: ClockMove, time_ns: int) -> None:
    back = move.back(time_ns)
    assert move.of_time(back) >= time_ns > move.of_time(back - 1)


def test_records_beyond_all_times_are_left_out_and_counted() -> None:
    start_ns = [10, 20, FURTHEST_NS + 1, -FURTHEST_NS - 1]
    tasks = Tasks.of(
        4, {"start_ns": start_ns, "end_ns": [one + 1 for one in start_ns], "name": [0] * 4}
    )
    found = drop_invalid_rows(Records(0, StringPool(), tasks=tasks))
    assert found.tasks.start_ns.tolist() == [10, 20]
    (omission,) = found.omissions
    assert (omission.reason, omission.rows) == ("device tasks without a valid time", 2)
