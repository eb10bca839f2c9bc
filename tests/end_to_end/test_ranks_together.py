"""Proves that a picture of several ranks has one clock and all waits."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import Copier, ProfileShelf, change_events
from tests.support.run_command import Command

SKEW_US = 250
"""How far the clock of rank 1 is wrong; the residuals of the simulated run are below 1 us."""
SLOW_RANK = 1
"""The simulated run's own straggler: it computes longer in the second step."""


@pytest.fixture
def skewed(copied: Copier) -> Path:
    """A profile of four ranks whose second clock is ahead."""
    profile = copied("torch-text", ranks=4)

    def later(event: dict[str, Any]) -> dict[str, Any]:
        if "ts" in event:
            event["ts"] = str(Decimal(str(event["ts"])) + SKEW_US)
        return event

    (trace,) = profile.captures[1].rglob("trace_view.json")
    change_events(trace, later)
    return profile.path


@pytest.mark.parametrize(
    "layout", ["torch-text", "torch-db", "mindspore-2.1", "kineto", "kineto-announced"]
)
def test_the_straggler_is_named_in_every_layout(
    layout: str, shelf: ProfileShelf, command: Command
) -> None:
    """Rank 1 computes longer in one step, and the others wait for it.

    Without launches, what it computes longer and starts later cannot be told apart.
    """
    path = shelf.get(layout, ranks=4, ops_per_step=24, planes=4).path
    report = command.report(path)
    worst = report["verdict"]["stragglers"][0]
    assert worst["rank"] == SLOW_RANK
    assert worst["alone"] == worst["unmatched"] == 0
    finding, culprit = report["verdict"]["findings"][0], report["verdict"]["culprit"]
    assert (finding["kind"], finding["ranks"]) == ("slow_rank", [SLOW_RANK])
    assert culprit["rank"] == SLOW_RANK
    assert culprit["cause"] == ("unknown" if layout == "mindspore-2.1" else "computing")
    assert culprit["estimated_gain_ns"] == finding["gain_ns"]
    told = report["verdict"]["sentences"][0]
    assert told == finding["sentence"]
    if layout != "mindspore-2.1":
        assert finding["steps"] == [2]
        assert re.match(rf"Rank {SLOW_RANK} computes \d+% longer in step 2: without that, ", told)
    assert report["verdict"]["waiting_basis"]["share"] == 1.0


def test_a_wrong_clock_is_found_and_put_right(skewed: Path, command: Command) -> None:
    """A clock that is 250 us ahead is moved back, and the report tells how well they agree."""
    report = command.report(skewed)
    moved = {rank["rank"]: rank["offset_ns"] for rank in report["ranks"]}
    assert moved[1] == pytest.approx(-SKEW_US * 1000, abs=2000)
    assert all(abs(moved[rank]) < 2000 for rank in (0, 2, 3))
    assert {rank["align"] for rank in report["ranks"]} == {"collectives"}
    assert all(rank["spread_ns"] < 2000 and rank["matched_ops"] == 6 for rank in report["ranks"])


@pytest.mark.parametrize(
    ("options", "moved_ns", "method"),
    [
        (["--align", "recorded"], 0, "recorded"),
        (["--align", "none"], 0, "none"),
        (["--offset", "1=-1us"], -1000, "given"),
        (["--align", "recorded", "--offset", "1=+2ms"], 2_000_000, "given"),
    ],
)
def test_clocks_are_left_or_moved_as_asked(
    options: list[str], moved_ns: int, method: str, skewed: Path, command: Command
) -> None:
    """Recorded clocks stay, and an offset that is given takes the place of any correction."""
    report = command.report(skewed, *options)
    assert (report["ranks"][1]["offset_ns"], report["ranks"][1]["align"]) == (moved_ns, method)


def test_ranks_can_begin_together(skewed: Path, tmp_path: Path, command: Command) -> None:
    """--align start: the first device record of every rank lies at the same moment."""
    target = tmp_path / "t.pftrace"
    command.report(skewed, "-o", target, "--align", "start", "--kind", "detail")
    rows = TraceProcessor.load(target.read_bytes()).rows(
        "SELECT rank, min(ts) FROM (SELECT s.ts AS ts, substr(trim(top.name), 6) AS rank"
        " FROM slice s JOIN track t ON s.track_id = t.id JOIN track layer ON t.parent_id = layer.id"
        " JOIN track top ON layer.parent_id = top.id"
        " WHERE layer.name = 'Ascend Hardware' AND trim(top.name) GLOB 'Rank *') GROUP BY rank"
    )
    assert len(rows) == 4
    assert len({first for _, first in rows}) == 1


def test_waits_are_drawn(shelf: ProfileShelf, tmp_path: Path, command: Command) -> None:
    """Every rank that waited has a row of waits, as long in all as the report says; the ops that
    waited carry it, and arrows join them to the op of the last rank."""
    target = tmp_path / "t.pftrace"
    path = shelf.get("torch-db", ranks=4).path
    report = command.report(path, "-o", target, "--kind", "detail")
    processor = TraceProcessor.load(target.read_bytes())
    assert processor.import_errors() == []
    waited_ns = _waited_ns(processor)
    assert waited_ns == sum(row["waited_ns"] for row in report["waiting"])
    ((drawn, drawn_ns),) = processor.rows(
        "SELECT count(*), sum(dur) FROM slice WHERE category = 'wait'"
    )
    assert drawn_ns == waited_ns
    args = processor.rows(
        "SELECT sum(extract_arg(arg_set_id, 'communication.waited_ns')) FROM slice"
        " WHERE name GLOB 'hcom_*'"
        " AND extract_arg(arg_set_id, 'communication.last_rank') IS NOT NULL"
        " AND extract_arg(arg_set_id, 'communication.ranks') IS NULL"
    )
    assert args == [(waited_ns,)]
    arrows = processor.rows(
        "SELECT count(*), min(b.name = a.name), min(b.ts >= a.ts) FROM flow"
        " JOIN slice a ON flow.slice_out = a.id JOIN slice b ON flow.slice_in = b.id"
        " WHERE a.name GLOB 'hcom_*' AND b.name GLOB 'hcom_*'"
    )
    assert arrows == [(drawn, 1, 1)]


@pytest.mark.parametrize("kind", ["summary", "detail"])
def test_a_wait_leads_to_what_the_late_rank_did(
    kind: str, shelf: ProfileShelf, tmp_path: Path, command: Command
) -> None:
    """One arrow joins each wait to a slice of the rank it names, from some of that time: in a
    detail, a task or why it idled. A transfer that a hidden wait delayed leads to an earlier one.
    """
    target = tmp_path / "t.pftrace"
    command.report(shelf.get("torch-db", ranks=4).path, "-o", target, "--kind", kind)
    found = TraceProcessor.load(target.read_bytes()).rows(
        "WITH RECURSIVE above(id, top, name) AS (SELECT id, id, trim(name) FROM track"
        "   WHERE parent_id IS NULL UNION ALL SELECT track.id, top, above.name"
        "   FROM track JOIN above ON parent_id = above.id)"
        " SELECT wait.id, substr(wait.name, 13), lower(substr(on_rank.name, 1, 6)),"
        "   work.ts < wait.ts + wait.dur"
        "   AND (wait.ts < work.ts + work.dur OR wait.category = 'partition'), work.category"
        " FROM slice wait LEFT JOIN flow ON wait.id IN (slice_out, slice_in)"
        " LEFT JOIN slice work ON work.id = slice_out + slice_in - wait.id"
        " LEFT JOIN above on_rank ON on_rank.id = work.track_id"
        " WHERE wait.name GLOB 'Waiting for rank *' AND wait.dur > 0"
    )
    assert len({wait for wait, *_ in found}) == len(found) > 20
    assert all(named == on_rank and meets for _, named, on_rank, meets, _ in found)
    categories = {category for *_, category in found}
    assert categories == ({"partition"} if kind == "summary" else {"task", "partition"})


def _waited_ns(processor: TraceProcessor) -> int:
    """What all ranks waited, from the starts of the ops in the trace itself."""
    starts = processor.rows(
        "SELECT s.name, s.ts FROM slice s JOIN track t ON s.track_id = t.id"
        " WHERE s.name GLOB 'hcom_*' AND t.name GLOB 'Group*'"
        " AND extract_arg(arg_set_id, 'communication.ranks') IS NULL"  # of one rank
    )
    last_ns: dict[str, int] = {}
    for name, start_ns in starts:
        last_ns[name] = max(last_ns.get(name, 0), start_ns)
    assert len(starts) == 4 * len(last_ns)
    return sum(last_ns[name] - start_ns for name, start_ns in starts)


def test_ranks_without_their_group_are_told(
    shelf: ProfileShelf, tmp_path: Path, command: Command
) -> None:
    """An offset of a rank that is not selected is refused; a rank alone has nobody to wait for."""
    path = shelf.get("torch-db", ranks=4).path
    target = tmp_path / "t.pftrace"
    refused = command(path, "--ranks", "0", "--offset", "1=1us")
    assert refused.code == 3
    assert "--offset" in refused.err
    report = command.report(path, "-o", target, "--ranks", "0")
    assert report["verdict"]["stragglers"] == []
