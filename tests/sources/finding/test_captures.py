"""Proves that captures that others left lying in many ways open as they should."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import timeline
from simulator.overlap import expected_overlap
from tests.support.found_profiles import (
    join_databases,
    only,
    overlap_ns,
    ranks_of,
    read,
    without_rank,
)
from tests.support.places import DATA, needs_captures
from tests.support.profile_shelf import Copier, ProfileShelf
from timeline.cli.main import main
from timeline.errors import NoProfileError, RankIdentityError, UsageError
from timeline.sources.common.export_files import GLANCE_BYTES
from timeline.sources.finding.discovery import discover

# -- one file as PATH ------------------------------------------------------------------------------


def test_an_export_as_path_beside_a_database(shelf: ProfileShelf, tmp_path: Path) -> None:
    """PATH may be one file: then that export is read, though the directory opens as a database."""
    profile = shelf.copy("mindstudio", tmp_path / "run")
    for capture, worker in zip(profile.captures, shelf.get("torch-db").captures, strict=True):
        database = only(worker, "ascend_pytorch_profiler_*.db")
        shutil.copyfile(database, capture / "msprof_20250109120100.db")
    for rank, capture in enumerate(profile.captures):
        (whole,) = discover(capture).sources
        assert whole.layout == "database"
        trace = only(capture, "msprof_2*.json")
        (source,) = discover(trace).sources
        assert source.layout == "mindstudio_profiler_output"
        assert source.identity.rank == rank
        assert trace.resolve() in source.files
        assert overlap_ns(read(source)) == expected_overlap(profile.run, rank)


def test_a_trace_of_an_npu_under_any_name_as_path(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Passed as PATH or in a directory, packed or not, it is read for what it holds."""
    profile = shelf.get("torch-text", ranks=1)
    trace = only(profile.path, "trace_view.json").read_bytes()
    for number, name in enumerate(
        ("my model.json", "x.JSON", "host_1.1736424000142.pt.trace.json", "a.json.gz")
    ):
        path = tmp_path / str(number) / name
        path.parent.mkdir()
        path.write_bytes(gzip.compress(trace) if path.suffix == ".gz" else trace)
        for found in (discover(path), discover(path.parent)):
            (source,) = found.sources
            assert (source.identity.rank, source.layout) == (0, "trace_view.json")
            assert overlap_ns(read(source)) == expected_overlap(profile.run, 0)


def test_traces_of_npus_beside_each_other_are_ranks(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Each is a capture of its own, whose name tells its rank; what is no trace is passed over."""
    profile = shelf.get("torch-text")
    for rank, capture in enumerate(profile.captures):
        path = tmp_path / f"model_rank{rank}_trace.json"
        shutil.copyfile(only(capture, "trace_view.json"), path)
    (tmp_path / "config.json").write_text('{"layers": 3}', encoding="utf-8")
    sources = discover(tmp_path).sources
    assert [source.identity.rank for source in sources] == [0, 1]
    for rank, source in enumerate(sources):
        assert overlap_ns(read(source)) == expected_overlap(profile.run, rank)


def test_traces_beside_a_loose_trace_view_are_named(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Its name stands for a whole directory, so the others there are not read, which is said."""
    trace = only(shelf.get("torch-text").captures[0], "trace_view.json")
    for name in ("trace_view.json", "trace_view (1).json", "trace_view (2).json"):
        shutil.copyfile(trace, tmp_path / name)
    (tmp_path / "config.json").write_text('{"layers": 3}', encoding="utf-8")
    found = discover(tmp_path)
    assert len(found.sources) == 1
    (note,) = [one for one in found.notes if "not read" in one]
    assert "trace_view (1).json and 1 more were not read" in note
    (tmp_path / "trace_view (1).json").unlink()
    (tmp_path / "trace_view (2).json").unlink()
    assert not [one for one in discover(tmp_path).notes if "not read" in one]


@pytest.mark.parametrize("times", ["strings", "numbers"])
def test_a_long_head_of_host_calls_does_not_hide_the_npu(tmp_path: Path, times: str) -> None:
    """torch_npu writes its rows and arrows behind host calls, which look like those of PyTorch."""
    spell = str if times == "strings" else int
    call = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "dur": 1}
    calls = [call | {"ts": spell(1736408883000000 + at)} for at in range(2_000)]
    named = {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "Ascend Hardware"}}
    args = {"Task Type": "AI_CORE", "Physic Stream Id": 2, "Task Id": 1}
    task = {"ph": "X", "name": "MatMul", "pid": 9, "tid": 2, "dur": 9, "args": args}
    path = tmp_path / "trace.json"
    events = [*calls, named, task | {"ts": spell(1736408883000100)}]
    path.write_text(json.dumps(events), encoding="utf-8")
    assert path.read_bytes().find(b"Ascend") > GLANCE_BYTES
    for found in (discover(path), discover(tmp_path)):
        (source,) = found.sources
        assert len(read(source).tasks) == 1


def test_a_trace_of_gpus_named_trace_view_is_one(shelf: ProfileShelf, tmp_path: Path) -> None:
    """What a file holds decides, whatever it is called."""
    (capture, *_) = shelf.get("kineto").captures
    path = tmp_path / "trace_view.json"
    shutil.copyfile(capture, path)
    for found in (discover(path), discover(tmp_path)):
        (source,) = found.sources
        assert source.layout == "PyTorch trace"


@pytest.mark.parametrize(("taken", "runs"), [("20250109115958000", 1), ("20250301115958000", 2)])
def test_data_of_msprof_beside_the_output_of_a_framework(
    shelf: ProfileShelf, tmp_path: Path, taken: str, runs: int
) -> None:
    """It is what that output was made of, unless it was taken at another time."""
    profile = shelf.copy("torch-db", tmp_path / "run", ranks=1)
    (capture,) = shelf.get("mindstudio", ranks=1).captures
    shutil.copytree(capture, profile.path / f"PROF_000001_{taken}_AHJCDGNJNLNHIKFN")
    found = discover(profile.path)
    assert len(found.runs) == runs
    assert [source.identity.taken[:8] for source in found.sources] == [
        ("20250109", taken[:8])[runs - 1]
    ]


# -- captures of no rank ---------------------------------------------------------------------------


def test_devices_of_a_database_without_ranks_are_numbered(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """RANK_DEVICE_MAP holds -1 for each; every device is read, whether or not it is assigned."""
    database = tmp_path / "run" / "msprof_20250109120100.db"
    database.parent.mkdir()
    profile = shelf.get("torch-db")
    join_databases(profile, database)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE RANK_DEVICE_MAP SET rankId = -1")
    for path in (database, database.parent):
        sources = discover(path).sources
        assert [(one.identity.rank, one.identity.device) for one in sources] == [(0, 0), (1, 1)]
        for source in sources:
            expected = expected_overlap(profile.run, source.identity.rank)
            assert overlap_ns(read(source)) == expected
    assert ranks_of(database, {"run/device_0": 4, "run/device_1": 5}) == [4, 5]


@pytest.mark.parametrize("number", [4_294_967_295, 2**63 - 1])
def test_all_bits_are_no_rank(copied: Copier, number: int) -> None:
    """Writers that know no sign spell -1 so."""
    profile = copied("torch-db", ranks=1)
    without_rank(profile, 0)
    database = only(profile.path, "ascend_pytorch_profiler.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE RANK_DEVICE_MAP SET rankId = ?", (number,))
    assert ranks_of(profile.path) == [0]


def test_in_a_comparison_each_run_is_identified_by_itself(
    shelf: ProfileShelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank may be given to a capture of one run; it is an error only if neither has it."""
    monkeypatch.chdir(tmp_path)
    base = shelf.copy("mindstudio", tmp_path / "base", ranks=1)
    new = shelf.copy("torch-db", tmp_path / "new", ranks=1)
    name = without_rank(base, 0).name
    without_rank(new, 0)
    assert main(["compare", "base", "new", "-q"]) == 0
    given = ["--assign-rank", f"{name}=3", "--assign-rank", f"{new.captures[0].name}=3"]
    assert main(["compare", "base", "new", "-q", "--force", *given]) == 0
    with pytest.raises(UsageError, match="neither run has such a capture"):
        timeline.compare("base", "new", "c.pftrace", assign_rank={"PROF_absent": 3})


# -- MindSpore's own files -------------------------------------------------------------------------


def test_raw_files_in_a_job_and_in_its_data_are_one_capture(copied: Copier) -> None:
    """They are of one rank, which is there once and has the tasks of one and steps of the other."""
    profile = copied("mindspore-raw", ranks=1)
    logs = sorted(profile.path.rglob("training_trace.*"))
    data = logs[0].parent
    job = data.parent if data.name == "data" else data
    (job / "data").mkdir(exist_ok=True)
    for path in sorted(data.iterdir()):
        if path.is_file():
            inner = path.name.startswith("training_trace")
            path.rename((job / "data" if inner else job) / path.name)
    (source,) = discover(profile.path).sources
    records = read(source)
    assert len(records.tasks)
    assert len(records.steps) == 3
    assert ranks_of(profile.path, {job.name: 5}) == [5]


def test_step_traces_alone_are_a_profile(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each rank its steps and reduces; that there are no tasks is said."""
    profile = shelf.get("mindspore-text")
    run = tmp_path / "run"
    run.mkdir()
    for path in profile.path.rglob("step_trace_raw_*_detail_time.csv"):
        shutil.copyfile(path, run / path.name)
    sources = discover(run).sources
    assert [(one.identity.rank, one.layout) for one in sources] == [
        (0, "MindSpore step trace"),
        (1, "MindSpore step trace"),
    ]
    for source in sources:
        assert len(read(source).steps) == 3
    file = run / "step_trace_raw_1_detail_time.csv"
    assert ranks_of(file) == [1]
    assert main([str(run), "-o", str(tmp_path / "out.pftrace")]) == 0
    assert "only tables are here" in capsys.readouterr().err


def test_step_traces_beside_more_are_no_profile_of_their_own(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """They are read with the text outputs, or give way to what lies beside or below them."""
    text = shelf.get("mindspore-text")
    assert {one.layout for one in discover(text.path).sources} == {"MindSpore text"}
    profile = shelf.copy("mindspore-2.1", tmp_path / "run")
    for path in text.path.rglob("step_trace_raw_*_detail_time.csv"):
        shutil.copyfile(path, profile.path / path.name)
    assert {one.layout for one in discover(profile.path).sources} == {"device_N/timeline"}


# -- what is made of profiles ----------------------------------------------------------------------


def test_what_was_measured_of_one_operator_is_named(tmp_path: Path) -> None:
    """The trace of the simulator has keys that PyTorch writes too, and is none of its traces."""
    trace = tmp_path / "OPPROF_20260605155158_TIDPSIUYBGPWXXNW/simulator/trace.json"
    trace.parent.mkdir(parents=True)
    event = {"name": "MOV", "ph": "X", "pid": "core3.veccore0", "tid": "MTE2", "ts": 1, "dur": 2}
    content = {"profilingType": "op", "schemaVersion": 1, "traceEvents": [event]}
    trace.write_text(json.dumps(content))
    with pytest.raises(NoProfileError, match="is a trace of one operator by msprof op"):
        discover(trace)
    with pytest.raises(NoProfileError) as found:
        discover(trace.parent)
    assert any("was not read: it is a trace of one op" in hint for hint in found.value.hints)
    with pytest.raises(NoProfileError, match="is what msprof op measured of one operator"):
        discover(trace.parent.parent)


@pytest.mark.parametrize(
    "name",
    [
        "cluster_analysis.db",
        "cluster_analysis_output/cluster_step_trace_time.csv",
        "cluster_analysis_output/cluster_communication.json",
    ],
)
def test_outputs_of_the_cluster_analysis_are_named(
    shelf: ProfileShelf, tmp_path: Path, name: str
) -> None:
    """Alone they are no profile, and the message says what they are; else a note does."""
    alone = tmp_path / "alone" / name
    alone.parent.mkdir(parents=True)
    alone.write_bytes(b"")
    for path in (alone, tmp_path / "alone"):
        with pytest.raises(NoProfileError) as caught:
            discover(path)
        assert "msprof-analyze made of the profiles" in "\n".join(caught.value.lines())
    profile = shelf.copy("torch-text", tmp_path / "run")
    beside = profile.path / name
    beside.parent.mkdir(exist_ok=True)
    beside.write_bytes(b"")
    found = discover(profile.path)
    assert [source.identity.rank for source in found.sources] == [0, 1]
    (note,) = found.notes
    assert "msprof-analyze" in note


# -- real captures ---------------------------------------------------------------------------------


@needs_captures
@pytest.mark.parametrize(
    ("name", "ranks", "runs"),
    [
        ("msprof-single/cann9-add", [0], 2),
        ("msprof-single/cann-2024", [0], 3),
        ("msprof-single/cann-ffts", [0], 1),
        ("gpu-ranks/sst_long_a2a_optimizer_2.tar.gz", [0, 1, 2, 3], 2),
        ("gpu-ranks/sst_long_a2a_optimizer_4.tar.gz", [0, 1, 2, 3], 1),
        ("gpu/dlrm_kineto.tar.gz", list(range(8)), 1),
        ("gpu/trace_filter", [0, 1], 1),
        ("gpu/h100", [0], 1),
        ("gpu/mi300/gaunernst_bert-small-uncased__1016001.json.gz", [0], 1),
        ("gpu/torch_compile_triton", [0], 1),
        ("torch-npu-text", [0, 1], 1),
        ("torch-npu-db", [0, 1], 1),
        ("torch-npu-db-level0", [0, 1], 1),
        ("mindspore-2.1", [0, 1], 1),
        ("mindspore-raw-JOB3", [1], 1),
        ("mindspore-cluster-steps", [0, 1, 2, 3], 1),
    ],
)
def test_real_captures_open_with_no_option(name: str, ranks: list[int], runs: int) -> None:
    """Each is found, its runs are told apart, and the newest is read."""
    with timeline.open_profile(DATA / name) as profile:
        assert list(profile.ranks) == ranks
        assert len(profile.found.runs) == runs


def test_names_of_captures_in_several_places(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Where directories of ranks have one name, errors tell them apart by path."""
    profile = shelf.copy("torch-text", tmp_path / "run")
    places = []
    for number in (1, 0):
        capture = without_rank(profile, number)
        places.append(tmp_path / "run" / f"node{number}" / "prof")
        places[-1].parent.mkdir()
        capture.rename(places[-1])
    with pytest.raises(UsageError, match="fits several captures of one run") as caught:
        discover(profile.path, {"prof": 3})
    assert all(str(place) in str(caught.value) for place in places)
    with pytest.raises(RankIdentityError, match="states no rank") as half:
        discover(profile.path, {str(places[0]): 3})
    assert f"{places[1]}=0" in str(half.value)
    assert ranks_of(profile.path, {str(places[0]): 3, str(places[1]): 0}) == [0, 3]


def test_an_empty_database_of_steps_is_no_loss(copied: Copier) -> None:
    """msprof makes the files of tables before it knows whether there are rows."""
    profile = copied("msprof-sqlite", ranks=1)
    steps = only(profile.path, "trace.db")
    steps.unlink()
    steps.with_name("step_trace.db").write_bytes(b"")
    (source,) = discover(profile.path).sources
    records = read(source)
    assert not [omission for omission in records.omissions if omission.loss]
    assert not len(records.steps)


def test_a_list_shows_the_ranks_that_can_be_read(
    copied: Copier, capsys: pytest.CaptureFixture[str]
) -> None:
    """One whose trace is no trace is noted; alone it is an error."""
    profile = copied("torch-text")
    (broken,) = profile.captures[1].rglob("trace_view.json")
    broken.write_text("no trace", encoding="utf-8")
    assert main([str(profile.path), "--list"]) == 0
    listed, *_ = capsys.readouterr().out.split("rank 1 is left out: ")[::-1]
    assert "trace_view.json" in listed
    assert main([str(profile.captures[1]), "--list"]) == 1
    assert "trace_view.json" in capsys.readouterr().err
