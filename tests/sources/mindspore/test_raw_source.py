"""Proves that raw files of MindSpore 0.x read as the run, and as its text outputs."""

from __future__ import annotations

import json
import shutil
from collections import Counter as Multiset
from pathlib import Path

import numpy as np
import pytest

from simulator.overlap import expected_overlap
from simulator.writers.mindspore.raw import hardware_record, numbered_kernels, training_record
from simulator.writers.mindspore.text import STREAM_SHIFT, device_ns
from tests.support.drawn_slices import drawn_slices
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from tests.support.read_profiles import lost_rows
from timeline.analysis.overlap import measure_overlap
from timeline.cli.main import main
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


def test_steps_equal_those_of_the_text(shelf: ProfileShelf) -> None:
    """The training trace gives the steps and reduces that MindSpore's own table has."""
    (source,) = discover(shelf.get("mindspore-text").path / "profiler").sources[:1]
    wanted, found = (
        source.read(ReadRequest(DETAIL_LAYERS)),
        records_of(shelf.get("mindspore-raw").path),
    )
    for name in ("iteration", "start_ns", "end_ns", "fp_start_ns", "bp_end_ns"):
        assert getattr(found.steps, name).tolist() == getattr(wanted.steps, name).tolist()
    for name in ("iteration", "start_ns", "end_ns", "number", "kind"):
        mine, theirs = (
            np.sort(getattr(records.parts, name)).tolist() for records in (found, wanted)
        )
        assert mine == theirs
    communication = measure_overlap(found.tasks, found.ops).totals_ns()["communication_ns"]
    run = shelf.get("mindspore-raw").run
    assert communication == expected_overlap(run, 0)["communication_ns"]


def test_picture_on_the_wall_clock(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ranks are put on wall time by what host and device showed at the start, without a remark."""
    profile = shelf.get("mindspore-raw")
    target = tmp_path / "raw.pftrace"
    assert main([str(profile.path), "--kind", "detail", "-o", str(target), "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert not [warning for warning in warnings if "clock" in warning]
    processor = TraceProcessor.load(target.read_bytes())
    assert processor.import_errors() == []
    run = profile.run
    offset_ns = run.wall_ns(run.rank(0).start_ns) - device_ns(run, run.rank(0).start_ns)
    assert offset_ns == run.wall_ns(run.rank(1).start_ns) - device_ns(run, run.rank(1).start_ns)
    drawn = drawn_slices(processor, "Ascend Hardware")
    assert Multiset(
        (one.name, one.start_ns, one.end_ns) for one in drawn if one.name != "not named"
    ) == Multiset(
        (
            kernel.scope,
            device_ns(run, task.start_ns) + offset_ns,
            device_ns(run, task.end_ns) + offset_ns,
        )
        for rank in run.ranks
        for _, task, kernel in numbered_kernels(run, rank)
    )


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
