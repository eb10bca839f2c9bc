"""Proves that several devices in one capture are several ranks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from simulator.model import RankRun
from simulator.overlap import expected_overlap
from tests.support.found_profiles import join_databases, only, overlap_ns, ranks_of, read
from tests.support.profile_shelf import Event, Profile, ProfileShelf, change_events, change_fields
from timeline.errors import RankIdentityError, UsageError
from timeline.sources.finding.discovery import discover


def join_devices(profile: Profile, process: int) -> Path:
    """Make one PROF directory of two: one process that drives two devices.

    process: its id, from which msprof makes the ids of the rows.
    """
    first, second = profile.captures
    outputs = [capture / "mindstudio_profiler_output" for capture in profile.captures]
    for path in sorted(outputs[0].glob("*.json")):
        events = [
            moved(event, rank.rank, rank.os_pid, process)
            for rank, output in zip(profile.run.ranks, outputs, strict=True)
            for event in json.loads((output / path.name).read_text(encoding="utf-8"))
        ]
        path.write_text(json.dumps(events), encoding="utf-8")
    for path in sorted(outputs[0].glob("*.csv")):
        rows = (outputs[1] / path.name).read_text(encoding="utf-8").splitlines()[1:]
        with path.open("a", encoding="utf-8", newline="") as file:
            file.writelines(f"{row}\n" for row in rows)
    shutil.move(second / "device_1", first / "device_1")
    shutil.rmtree(second)
    return first


def moved(event: Event, number: int, old: int, new: int) -> Event:
    """The event as the process with another id would have left it, its own ids kept apart."""
    made = event | {"pid": event["pid"] + ((new - old) << 10)}
    if "id" in event:
        made["id"] = f"{event['id']}{number}"
    args = dict(event.get("args", {}))
    if "connection_id" in args:
        args["connection_id"] += 1_000_000 * number
        made["args"] = args
    return made


@pytest.mark.parametrize("process", [12340, 167], ids=["usual process id", "id in a container"])
def test_several_devices_in_one_export(shelf: ProfileShelf, tmp_path: Path, process: int) -> None:
    """Two devices in one export are two ranks that share nothing but the host."""
    profile = shelf.copy("mindstudio", tmp_path / "run", graphs=(1, 3))
    capture = join_devices(profile, process)
    sources = discover(capture).sources
    assert [source.identity.rank for source in sources] == [0, 1]
    for source in sources:
        rank = profile.run.rank(source.identity.rank)
        records = read(source)
        assert len(records.tasks) == task_count(rank)
        assert overlap_ns(records) == expected_overlap(profile.run, rank.rank)


def task_count(rank: RankRun) -> int:
    """The device tasks of a rank, those outside its steps included."""
    return len(rank.switches) + sum(len(one.tasks) for one in rank.iterations)


def test_unknown_ranks_of_several_devices(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Each device of a capture can be given its rank, and the errors lead there."""
    profile = shelf.copy("mindstudio", tmp_path / "run")
    capture = join_devices(profile, 12340)
    for path in [*capture.glob("device_*/info.json.?"), capture / "host/info.json"]:
        change_fields(path, {"rank_id": -1})
    assert ranks_of(profile.path) == [0, 1]
    devices = [f"{capture.name}/device_{number}" for number in (0, 1)]
    with pytest.raises(RankIdentityError, match=f"--assign-rank {devices[1]}=0"):
        discover(profile.path, {devices[0]: 4})
    with pytest.raises(UsageError) as caught:
        discover(profile.path, {capture.name: 4})
    assert all(device in str(caught.value) for device in devices)
    assert ranks_of(profile.path, {devices[0]: 4, devices[1]: 5}) == [4, 5]


@pytest.mark.parametrize("table", ["json", "csv"])
def test_step_trace_of_several_devices(shelf: ProfileShelf, tmp_path: Path, table: str) -> None:
    """Each rank has the iterations and reduces of its own device, from either step trace."""
    profile = shelf.copy("mindstudio", tmp_path / "run", graphs=(1, 3))
    capture = join_devices(profile, 12340)
    change_events(
        only(capture, "msprof_2*.json"),
        lambda event: None if event.get("tid", 0) in (70_001, 70_003) else event,
    )
    if table == "csv":
        only(capture, "step_trace_*.json").unlink()
    for source in discover(capture).sources:
        rank = profile.run.rank(source.identity.rank)
        records = read(source)
        found = zip(
            records.steps.graph.tolist(),
            records.steps.iteration.tolist(),
            records.steps.start_ns.tolist(),
            records.steps.end_ns.tolist(),
            strict=True,
        )
        expected = [(one.graph, one.number, one.start_ns, one.end_ns) for one in rank.iterations]
        assert sorted(found) == sorted(expected)
        reduces = records.parts.start_ns[records.parts.kind == 0].tolist()
        expected_starts = [reduce.start_ns for one in rank.iterations for reduce in one.collectives]
        assert sorted(reduces) == sorted(expected_starts)


@pytest.mark.parametrize("with_directories", [True, False], ids=["PROF", "copied out"])
def test_several_devices_in_one_database(
    shelf: ProfileShelf, tmp_path: Path, with_directories: bool
) -> None:
    """Two devices in one database are two ranks, whether or not their directories are there."""
    profile = shelf.get("torch-db")
    capture = tmp_path / "PROF_000001_20250109120000123_AAAAAAAAAAAAAAAA"
    capture.mkdir()
    join_databases(profile, capture / "msprof_20250109120100.db")
    if with_directories:
        for number, session in enumerate(shelf.get("mindstudio").captures):
            device = f"device_{number}"
            shutil.copytree(session / device, capture / device)
    sources = discover(tmp_path).sources
    assert [source.identity.rank for source in sources] == [0, 1]
    for source in sources:
        rank = profile.run.rank(source.identity.rank)
        records = read(source)
        assert len(records.tasks) == task_count(rank)
        assert overlap_ns(records) == expected_overlap(profile.run, rank.rank)
        assert len(records.planes) == sum(
            len(reduce.tasks) for one in rank.iterations for reduce in one.collectives
        )
