"""Proves that raw files of MindSpore 0.x read as the run, and as its text outputs."""

from __future__ import annotations

import shutil
from collections import Counter as Multiset
from pathlib import Path

import numpy as np
import pytest

from simulator.writers.mindspore.raw import hardware_record, numbered_kernels, training_record
from simulator.writers.mindspore.text import STREAM_SHIFT, device_ns
from tests.support.profile_shelf import ProfileShelf
from tests.support.read_profiles import lost_rows
from timeline.errors import SourceError
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest

HARDWARE = "hwts.log.data.45.dev.profiler_default_tag.0.slice_0"
TRAINING = "training_trace.46.dev.profiler_default_tag.0.slice_0"


def records_of(path: Path, rank: int = 0) -> Records:
    (source,) = [one for one in discover(path).sources if one.identity.rank == rank]
    assert source.layout == "MindSpore raw"
    assert all(file.is_file() for file in source.files)
    return source.read(ReadRequest(DETAIL_LAYERS))


@pytest.mark.parametrize("rank", [0, 1])
def test_tasks_equal_the_run(shelf: ProfileShelf, rank: int) -> None:
    """Starts and ends pair up over slices; tasks are named by their id, and others are counted."""
    profile = shelf.get("mindspore-raw")
    run, records = profile.run, records_of(profile.path, rank)
    tasks, strings = records.tasks, records.strings
    named = tasks.take(tasks.compute)
    assert Multiset(
        zip(
            (strings[code] for code in named.name.tolist()),
            (strings[code] for code in named.op_type.tolist()),
            named.stream.tolist(),
            named.task.tolist(),
            named.blocks.tolist(),
            named.start_ns.tolist(),
            named.end_ns.tolist(),
            strict=True,
        )
    ) == Multiset(
        (
            kernel.scope,
            kernel.op_type,
            task.stream + STREAM_SHIFT,
            number,
            kernel.blocks,
            device_ns(run, task.start_ns),
            device_ns(run, task.end_ns),
        )
        for number, task, kernel in numbered_kernels(run, run.rank(rank))
    )
    (other,) = np.flatnonzero(~tasks.compute).tolist()
    assert strings[int(tasks.name[other])] == "not named"
    assert lost_rows(records) == {
        "device tasks that had not ended when the capture did": 1,
        "ends of device tasks whose start is not in the capture": 1,
    }


def test_ranks_are_on_the_wall_clock(shelf: ProfileShelf) -> None:
    """By what host and device showed when the log began."""
    profile = shelf.get("mindspore-raw")
    for source in discover(profile.path).sources:
        start_ns = profile.run.rank(source.identity.rank).start_ns
        offset_ns = profile.run.wall_ns(start_ns) - device_ns(profile.run, start_ns)
        assert source.clock.wall_offset_ns == offset_ns


def test_text_wins_over_raw_files(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Raw files beside the text that was made of them are passed over, with a note."""
    profile = shelf.copy("mindspore-text", tmp_path / "run")
    shutil.copytree(shelf.get("mindspore-raw").path, tmp_path / "run" / "container")
    found = discover(profile.path)
    assert [one.layout for one in found.sources] == ["MindSpore text"] * 2
    assert [one.identity.rank for one in found.sources] == [0, 1]
    assert len(found.notes) == 2
    assert all("text outputs are beside them" in note for note in found.notes)


def test_found_from_one_slice(shelf: ProfileShelf) -> None:
    """One slice stands for the files of its id."""
    job = shelf.get("mindspore-raw").captures[1]
    (path,) = job.rglob("hwts*.slice_0")
    (source,) = discover(path).sources
    assert (source.layout, source.identity.rank) == ("MindSpore raw", 1)


def test_task_ids_that_hardware_has_not(tmp_path: Path) -> None:
    """Only a line whose numbers are numbers, and whose task id has 16 bits, names a task."""
    marks = [(0, 100, 1, 5), (1, 200, 1, 5)]
    (tmp_path / HARDWARE).write_bytes(b"".join(hardware_record(*mark) for mark in marks))
    lines = ["long 1 1000000005 0", "arabic 1 \u0665 0", "signed 1 -5 0", "cut 1 5"]
    described = tmp_path / "Framework.host.vm.task_desc_info.0.slice_0"
    described.write_text("\n".join(lines), encoding="utf-8")
    records = records_of(tmp_path)
    assert [records.strings[code] for code in records.tasks.name.tolist()] == ["not named"]


def test_step_that_had_not_ended(tmp_path: Path) -> None:
    """Marks behind the last end are counted, and so is a first step that has no FP."""
    marks = [(2, 8, 10), (255, 8, 20), (1, 8, 25), (3, 520, 26), (4, 520, 28), (5, 522, 29)]
    marks += [(255, 8, 30), (1, 8, 35), (3, 520, 36)]
    data = b"".join(training_record(*mark) for mark in marks)
    (tmp_path / TRAINING).write_bytes(data)
    records = records_of(tmp_path)
    assert records.steps.iteration.tolist() == [2]
    assert (records.steps.start_ns.tolist(), records.steps.end_ns.tolist()) == ([200], [300])
    assert (records.parts.start_ns.tolist(), records.parts.end_ns.tolist()) == ([260], [280])
    assert lost_rows(records) == {
        "steps without a start": 1,
        "marks of a step that had not ended when the capture did": 2,
        "starts of reduces without an end": 1,
    }


def test_unusable_log(tmp_path: Path) -> None:
    """A log that holds nothing of that shape is an error that names the file."""
    (tmp_path / HARDWARE).write_bytes(b"\x01" * 640)
    with pytest.raises(SourceError, match="holds no record of the expected shape"):
        records_of(tmp_path)
