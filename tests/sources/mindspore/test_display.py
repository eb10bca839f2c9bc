"""Proves that timeline displays of MindSpore 0.7 to 2.4 read as the run they show."""

from __future__ import annotations

import json
import shutil
from collections import Counter as Multiset
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.simulation import make_run
from simulator.writers.mindspore.display import write_mindspore_display
from simulator.writers.mindspore.text import device_ns
from tests.support.places import DATA
from tests.support.profile_shelf import Copier, ProfileShelf
from tests.support.read_profiles import lost_rows, records_of
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.records.not_given import NO_ID
from timeline.records.tables import Records, Steps
from timeline.sources.finding.discovery import discover
from timeline.sources.mindspore.display import read_display
from timeline.sources.mindspore.text_source import report_cut_off

MIB = 1024 * 1024
REAL = DATA / "mindspore-0.7-text"


# -- the older generation ----------------------------------------------------------------------


def test_copied_overlap_is_not_a_loss(shelf: ProfileShelf) -> None:
    """Rows that MindSpore computed from others are counted, not drawn and not missed."""
    (omission,) = records_of(shelf.get("mindspore-display-1.5").path).omissions
    assert (omission.reason, omission.loss) == (
        "overlap and scopes, which are computed anew",
        False,
    )
    assert omission.rows > 10


def test_steps_of_the_display_itself(copied: Copier) -> None:
    """Without a step trace, the steps are those that the display draws, from its own zero."""
    profile = copied("mindspore-display-1.5")
    for path in profile.path.rglob("step_trace_raw_*"):
        path.unlink()
    records = records_of(profile.path)
    first_ns = min(
        device_ns(profile.run, task.start_ns)
        for one in profile.run.rank(0).iterations
        for task, _ in one.kernels
    )
    steps = profile.run.rank(0).steps
    assert records.steps.iteration.tolist() == [1, 2, 3]
    assert records.steps.end_ns.tolist() == [
        device_ns(profile.run, step.iterations[0].end_ns) - first_ns for step in steps
    ]
    assert int(records.tasks.start_ns.min()) == 0


def test_step_trace_that_nothing_relates(copied: Copier) -> None:
    """Steps on a clock of which nothing is known are left out and counted, never drawn wrongly."""
    profile = copied("mindspore-display")
    for path in profile.path.rglob("min_cycle_counter_*"):
        path.unlink()
    assert lost_rows(records_of(profile.path)) == {}, "the reduces tell the origin"
    for path in profile.path.rglob("timeline_display_0.json"):
        events = json.loads(path.read_text(encoding="utf-8"))
        kept = [event for event in events if event["pid"] != 10000]
        path.write_text(json.dumps(kept), encoding="utf-8")
    records = records_of(profile.path)
    assert len(records.steps) == len(records.ops) == 0
    reason = "steps of the step trace, whose clock nothing relates to the timeline"
    assert lost_rows(records) == {reason: 3}


# -- the newer generation ----------------------------------------------------------------------


def test_display_that_is_a_trace_view(shelf: ProfileShelf, tmp_path: Path) -> None:
    """MindSpore 2.3 and 2.4 write msprof's own events into the display: read as such."""
    export = shelf.get("mindstudio")
    (trace,) = export.captures[0].rglob("msprof_2*.json")
    folder = tmp_path / "profiler"
    folder.mkdir()
    shutil.copy(trace, folder / "ascend_timeline_display_0.json")
    (source,) = discover(tmp_path).sources
    assert (source.layout, source.identity.rank) == ("MindSpore text", 0)
    found, wanted = records_of(tmp_path), records_of(export.path)
    assert len(found.tasks) == len(wanted.tasks) > 0
    assert len(found.planes) == len(wanted.planes) > 0
    assert found.tasks.start_ns.tolist() == wanted.tasks.start_ns.tolist()
    assert int(found.tasks.start_ns.min()) > 10**18, "wall time"


def test_displays_beside_what_tells_several_ranks(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Files of ranks around a display say nothing of it: it is read as the rank in its name."""
    profile = shelf.get("torch-text", ranks=2)
    for rank, capture in enumerate(profile.captures):
        trace = next(capture.rglob("trace_view.json"))
        shutil.copy(trace, tmp_path / f"ascend_timeline_display_{rank}.json")
        info = tmp_path / f"profiler_info_{rank}.json"
        info.write_text(f'{{"rank_id": {rank}}}', encoding="utf-8")
    found = discover(tmp_path)
    assert [(one.layout, one.identity.rank) for one in found.sources] == [
        ("MindSpore text", 0),
        ("MindSpore text", 1),
    ]
    assert not [note for note in found.notes if "profiler_info" in note]


# -- what the size limit cut off ---------------------------------------------------------------


def cut_run(path: Path, limit_bytes: int) -> tuple[list[str], list[str], int, dict[str, Any]]:
    """Events written, warnings, steps lost and omissions of a display with a limit."""
    run = make_run(ranks=1, steps=6, ops_per_step=12, planes=2)
    write_mindspore_display(run, path, limit_bytes=limit_bytes)
    records = records_of(path)
    wanted = sum(len(one.kernels) for one in run.rank(0).iterations)
    return (
        [one.reason for one in records.omissions if one.loss],
        list(records.warnings),
        wanted - len(records.tasks),
        lost_rows(records),
    )


def test_cut_off_display_is_reported(tmp_path: Path) -> None:
    """A display that stops in the middle of the run says so, with the number of operators."""
    reasons, warnings, missing, rows = cut_run(tmp_path, 16 * 1024)
    assert missing > 0
    assert rows == {"operators behind the size limit of timeline_display_0.json": missing}
    assert len(reasons) == len(warnings) == 1
    assert "MindSpore cut off timeline_display_0.json" in warnings[0]
    assert "steps" in warnings[0]


def test_whole_display_is_not_suspected(tmp_path: Path) -> None:
    """A display below its limit has no such warning."""
    assert cut_run(tmp_path, 20 * MIB)[:3] == ([], [], 0)


@pytest.mark.parametrize(
    ("size_bytes", "missing", "last_ns", "cut"),
    [
        (20 * MIB + 8200, 0, 0, True),
        (100 * MIB + 1, 0, 0, True),
        (500 * MIB + 16_000, 0, 0, True),
        (20 * MIB, 0, 0, False),
        (20 * MIB + 40_000, 0, 0, False),
        (7 * MIB + 5000, 0, 0, False),
        (7 * MIB + 5000, 3, 0, True),
        (7 * MIB + 50_000, 3, 0, False),
        (5000, 0, 250, True),
        (5000, 0, 350, False),
        (5000, 0, 0, False),
    ],
)
def test_signs_of_a_limit(size_bytes: int, missing: int, last_ns: int, *, cut: bool) -> None:
    """A size just above a limit tells, or steps behind the last record, or lost operators."""
    steps = Steps.of(
        3,
        start_ns=np.array([100, 200, 300]),
        end_ns=np.array([200, 300, 400]),
        graph=np.zeros(3, np.int64),
        iteration=np.array([1, 2, 3]),
    )
    omissions, warnings = report_cut_off(
        Path("display.json"), 5, size_bytes, missing, last_ns, steps
    )
    assert bool(omissions) == bool(warnings) == cut
    assert all(one.loss and one.rank == 5 and one.rows > 0 for one in omissions)


# -- broken files ------------------------------------------------------------------------------


def event(number: int, **fields: Any) -> dict[str, Any]:
    made = {"name": f"Op-op{number}", "ph": "X", "tid": 519, "ts": number, "dur": 0.5, "pid": 1}
    return made | fields


@pytest.mark.parametrize(
    ("text", "tasks", "omitted"),
    [
        ("[]", 0, {}),
        (f"\ufeff[{json.dumps(event(1))}]\r\n", 1, {}),
        (f"[{json.dumps(event(1))},]", 1, {}),
        (
            json.dumps([event(1), {"name": "x", "ph": "X", "args": 5}, event(2)]),
            2,
            {
                "timeline_display_0.json: events whose args are of another shape, "
                f"the first at byte {len(json.dumps(event(1))) + 3}": 1,
                "device tasks without a valid time": 1,
            },
        ),
        (
            json.dumps([event(1), event(2, ts=None), event(3, dur="N/A"), event(4, ts="nan")]),
            1,
            {"device tasks without a valid time": 3},
        ),
        (
            json.dumps([event(1), event(2, ph="i"), event(3, pid=13000)]),
            1,
            {"trace events that stand for nothing known": 2},
        ),
    ],
)
def test_unusual_displays(tmp_path: Path, text: str, tasks: int, omitted: dict[str, int]) -> None:
    """What is readable is read, and the rest is counted by what is wrong with it."""
    (tmp_path / "timeline_display_0.json").write_text(text, encoding="utf-8")
    records = records_of(tmp_path)
    assert len(records.tasks) == tasks
    assert lost_rows(records) == omitted


def test_streams_as_text(tmp_path: Path) -> None:
    """Versions to 1.2 write streams as text; ids beyond 64 bits are none."""
    events = [event(1, tid="519"), event(2, tid="Stream #7"), event(3, tid=10**30)]
    path = tmp_path / "timeline_display_0.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    assert read_display(path, StringPool(), 0).tasks.stream.tolist() == [519, 7, NO_ID]


@pytest.mark.parametrize(("text", "found"), [("", "is empty"), ("op,stream\n", "is no trace")])
def test_unusable_display(tmp_path: Path, text: str, found: str) -> None:
    """A file of another kind is an error that shows how it opens."""
    path = tmp_path / "timeline_display_0.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=found):
        records_of(tmp_path)


# -- real data ---------------------------------------------------------------------------------


@pytest.mark.skipif(not REAL.is_dir(), reason=f"the real profile is not in {REAL}")
def test_real_display_equals_the_real_text(tmp_path: Path) -> None:
    """The display of 2020 and the text it was made of give the same records."""
    for path in (REAL / "profiler").iterdir():
        if not path.name.startswith(("output_", "framework_")):
            shutil.copy(path, tmp_path)
    wanted, found = records_of(REAL, 1), records_of(tmp_path, 1)
    assert lost_rows(found) == {}
    assert found.warnings == ()
    for table, columns in (
        ("ops", "start_ns end_ns"),
        ("steps", "iteration start_ns end_ns fp_start_ns bp_end_ns"),
        ("parts", "iteration start_ns end_ns"),
    ):
        mine, theirs = (
            Multiset(
                zip(
                    *(getattr(getattr(records, table), name).tolist() for name in columns.split()),
                    strict=True,
                )
            )
            for records in (found, wanted)
        )
        assert mine == theirs, table

    def tasks(records: Records) -> Multiset[tuple[str, int, int, int]]:
        tasks = records.tasks
        names = (records.strings[code] for code in tasks.name.tolist())
        moments = tasks.start_ns.tolist(), tasks.end_ns.tolist()
        return Multiset(zip(names, tasks.stream.tolist(), *moments, strict=True))

    assert tasks(found) == tasks(wanted)
    (tmp_path / "min_cycle_counter_1.txt").unlink()
    assert tasks(records_of(tmp_path, 1)) == tasks(wanted), "the reduces tell the same origin"
