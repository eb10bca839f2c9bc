"""Holds who was waited for in real captures against what their own tasks and the vendor say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from tests.support.places import DATA, needs_captures
from tests.support.read_profiles import records_of
from timeline import Selection, open_profile
from timeline.analysis.work.task_sums import rank_links
from timeline.cli.main import main
from timeline.commands.export import export
from timeline.records.not_given import NO_ID
from timeline.records.tables import Records

TEXT, DATABASE = DATA / "torch-npu-text", DATA / "torch-npu-db"
LEVEL_0, RINGS = DATA / "torch-npu-db-level0", DATA / "torch-npu-db-2024-10"
FOUR_GPUS = DATA / "gpu-ranks" / "sst_long_a2a_optimizer_4.tar.gz"
EIGHT_GPUS = DATA / "gpu" / "dlrm_kineto.tar.gz"
MS = 1_000_000
TRANSFERS = ("Memcpy", "Reduce_Inline")


pytestmark = needs_captures


def waits_of(path: Path, **selected: Any) -> list[tuple[Any, ...]]:
    """Rank, whom it waited for, whether that is read, how often, and how long in ms."""
    with open_profile(path) as profile:
        table = profile.waiting(Selection(**selected))
    return [
        (*row[:4], round(row[4] / MS, 2))
        for row in zip(*(column.tolist() for column in table.columns.values()), strict=True)
    ]


def collectives_of(path: Path, capsysbinary: pytest.CaptureFixture[bytes], out: Path) -> Any:
    """The JSON report of a summary."""
    assert main([str(path), "-o", str(out / "t.pftrace"), "--json"]) == 0
    return orjson.loads(capsysbinary.readouterr().out)


def test_a_rank_that_was_not_profiled_is_named(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Two of eight ranks: rank 5 came last to all four collectives, and moved at 101 GB/s."""
    expected = [(0, 5, False, 4, 101.77), (1, 5, False, 4, 96.16)]
    assert waits_of(TEXT) == expected
    assert waits_of(TEXT, ranks=[0]) == expected[:1]
    report = collectives_of(TEXT, capsysbinary, tmp_path)
    for row, transfer_ms in zip(report["collectives"], (4.22, 4.22), strict=True):
        assert row["transfer_ns"] / MS == pytest.approx(transfer_ms, abs=0.01)
        assert row["bandwidth_gb_s"] == pytest.approx(101.3, abs=0.2)
    assert [row["caused_ns"] for row in report["waiting"]] == [0, 0]
    waited = report["waiting"][0]["waited_for"]
    assert waited == [{"rank": 5, "profiled": False, "times": 4, "waited_ns": 101_767_553}]


def test_each_collective_carries_what_it_waited_for(tmp_path: Path) -> None:
    """The four collectives of rank 0 in a detail: waited and transfer in us, as its waits tell."""
    expected = [(78_776.7, 312.8), (911.0, 1_370.1), (83.6, 2_318.8), (21_996.2, 222.6)]
    out = tmp_path / "t.json"
    export(TEXT, out, kind="detail", selection=Selection(ranks=[0]))
    ops = [
        event["args"]
        for event in json.loads(out.read_bytes())["traceEvents"]
        if event.get("name", "").startswith("hcom_") and "waited_ns" in event.get("args", {})
    ]
    assert [op["last_rank"] for op in ops] == [5] * 4
    found = [(op["waited_ns"] / 1000, op["transfer_ns"] / 1000) for op in ops]
    assert found == [pytest.approx(pair, abs=0.1) for pair in expected]
    assert not any("arrived_after_first_ns" in op for op in ops)


def test_databases_tell_it_too() -> None:
    """Of another run, in a database: rank 6 came last in all four."""
    assert waits_of(DATABASE) == [(0, 6, False, 4, 97.72), (1, 6, False, 4, 94.21)]


def test_rings_tell_that_some_rank_was_late(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Ranks that talk to neighbours only know how long they waited for one, and no bandwidth."""
    assert [row[:3] for row in waits_of(RINGS)] == [(0, None, False), (1, None, False)]
    report = collectives_of(RINGS, capsysbinary, tmp_path)
    for row in report["collectives"]:
        assert (row["transfer_ns"], row["bandwidth_gb_s"]) == (None, None)


def test_the_lowest_level_says_that_it_does_not_tell(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Level 0 records neither names nor ranks of HCCL tasks: null, and a sentence why."""
    report = collectives_of(LEVEL_0, capsysbinary, tmp_path)
    assert any(
        "ranks 0,1: of 8 collectives" in warning and "level 0" in warning
        for warning in report["warnings"]
    )
    for row in report["waiting"]:
        assert (row["waited_ns"], row["caused_ns"], row["waited_for"]) == (None, None, [])
    for row in report["collectives"]:
        assert (row["waited_ns"], row["transfer_ns"], row["bandwidth_gb_s"]) == (None,) * 3


def test_without_causes_nothing_is_guessed(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Where HCCL tasks are not read, two ranks of unknown groups are not taken for all members."""
    assert main([str(TEXT), "-o", str(tmp_path / "t.pftrace"), "--json", "--no-causes"]) == 0
    report = orjson.loads(capsysbinary.readouterr().out)
    assert [row["waited_ns"] for row in report["waiting"]] == [None, None]


@pytest.mark.parametrize(
    ("path", "culprit", "caused_ms"), [(FOUR_GPUS, 2, 329.24), (EIGHT_GPUS, 7, 35.55)]
)
def test_gpus_wait_for_the_rank_that_came_last(path: Path, culprit: int, caused_ms: float) -> None:
    """All ranks of a run: what the others waited for one adds up to what it caused."""
    rows = [row for row in waits_of(path) if row[1] == culprit]
    assert all(profiled for _, _, profiled, _, _ in rows)
    assert sum(waited_ms for *_, waited_ms in rows) == pytest.approx(caused_ms, abs=0.1)


def test_the_row_of_waits_names_whom(tmp_path: Path) -> None:
    """Slices of a summary say who came last, and that it was not profiled, whoever is selected."""
    out = tmp_path / "t.json"
    export(TEXT, out)
    names = {event.get("name") for event in json.loads(out.read_bytes())["traceEvents"]}
    assert "Waiting for rank 5 (not profiled)" in names
    export(TEXT, out, selection=Selection(ranks=[0]), force=True)
    names = {event.get("name") for event in json.loads(out.read_bytes())["traceEvents"]}
    assert "Waiting for rank 5 (not profiled)" in names


# -- the profiler's own numbers --------------------------------------------------------------------


def ops_of(records: Records) -> dict[str, np.ndarray]:
    """The rows of HCCL tasks of each op, by its name."""
    planes, ops, found = records.planes, records.ops, {}
    for row in range(len(ops)):
        inside = (planes.start_ns >= ops.start_ns[row]) & (planes.start_ns < ops.end_ns[row])
        found[records.strings[ops.name[row]]] = np.flatnonzero(inside)
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_the_times_of_the_vendor_follow_from_the_tasks(rank: int) -> None:
    """Elapse, Transit and Wait of communication.json, of plane 1: all tasks are read, exactly."""
    records = records_of(TEXT, rank)
    planes, strings = records.planes, records.strings
    (file,) = (TEXT / f"rank{rank}_ascend_pt").rglob("communication.json")
    told = json.loads(file.read_text(encoding="utf-8"))
    names = np.array(list(strings), object)
    compared = 0
    for kinds in told.values():
        for key, op in kinds["collective"].items():
            rows = ops_of(records).get(key.partition("@")[0])
            if rows is None:
                continue
            times, lengths_ns = op["Communication Time Info"], planes.end_ns - planes.start_ns
            on_one = rows[planes.plane[rows] == 1]
            moves = np.isin(names[planes.name[on_one]], TRANSFERS)
            moves &= names[planes.transport[on_one]] == "SDMA"
            moves &= names[planes.link[on_one]] != "ON_CHIP"
            waits = names[planes.name[on_one]] == "Notify_Wait"
            elapsed_ns = int(planes.end_ns[rows].max() - planes.start_ns[rows].min())
            for ours, theirs in (
                (elapsed_ns, times["Elapse Time(ms)"]),
                (int(lengths_ns[on_one[moves]].sum()), times["Transit Time(ms)"]),
                (int(lengths_ns[on_one[waits]].sum()), times["Wait Time(ms)"]),
            ):
                assert ours == pytest.approx(theirs * MS, abs=3)
            compared += 1
    assert compared == 4


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("path", [TEXT, DATABASE], ids=lambda path: path.name)
def test_links_equal_the_matrix_of_the_vendor(path: Path, rank: int) -> None:
    """What each link moved, and how long that took, by tasks and by the vendor's sums."""
    records = records_of(path, rank)
    (ours, theirs) = rank_links(records, None, whole=True), records.vendor_links
    assert len(theirs) == 7
    sums = {
        (source, target): (size, time_ns)
        for source, target, size, time_ns in zip(
            theirs.source_rank.tolist(),
            theirs.target_rank.tolist(),
            theirs.size_bytes.tolist(),
            theirs.total_ns.tolist(),
            strict=True,
        )
    }
    for row in range(len(ours.times)):
        ends = int(ours.times.source_rank[row]), int(ours.times.target_rank[row])
        size_bytes, time_ns = sums.pop(ends)
        assert int(ours.times.size_bytes[row]) == size_bytes
        assert int(ours.times.total_ns[row]) == pytest.approx(time_ns, abs=25)
        assert int(ours.times.count[row]) != NO_ID
    assert not sums
