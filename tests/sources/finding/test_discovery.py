"""Proves that in directory trees as users have them every rank is found, once."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from simulator.overlap import expected_overlap
from tests.support.found_profiles import captures_of, only, overlap_ns, ranks_of, read, without_rank
from tests.support.profile_shelf import (
    MAIN_LAYOUTS,
    Copier,
    Profile,
    ProfileShelf,
    change_events,
    change_fields,
    tree_state,
)
from timeline.cli.main import main
from timeline.errors import NoProfileError, SourceError
from timeline.selection import Kind
from timeline.sources.finding.copies import have_same_files
from timeline.sources.finding.discovery import discover

NEWER = "20250109130000123"
"""An hour after every tiny run."""
HOUR_NS = 3_600 * 10**9


def taken_later(capture: Path, by_ns: int) -> None:
    """Move the session of a capture, as the profiler noted it, in time."""
    for path in [*capture.rglob("start_info*"), *capture.rglob("end_info*")]:
        if path.suffix != ".done":
            fields = json.loads(path.read_text(encoding="utf-8"))
            for name, value in fields.items():
                if name.startswith("collectionTime") and value:
                    change_fields(path, {name: str(int(value) + by_ns // 1000)})
    for path in capture.rglob("ascend_pytorch_profiler*.db"):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                "UPDATE SESSION_TIME_INFO SET startTimeNs = startTimeNs + ?, "
                "endTimeNs = endTimeNs + ?",
                (by_ns, by_ns),
            )


# -- where the path may point ----------------------------------------------------------------------


@pytest.mark.parametrize("layout", MAIN_LAYOUTS)
def test_found_from_any_parent(shelf: ProfileShelf, tmp_path: Path, layout: str) -> None:
    """Every layout is found from the directory of its ranks and from any directory above."""
    profile = shelf.copy(layout, tmp_path / "team" / "monday" / "run")
    for parent in (profile.path, profile.path.parent, tmp_path):
        assert captures_of(parent) == [capture.resolve() for capture in profile.captures]
        assert ranks_of(parent) == [0, 1]


@pytest.mark.parametrize("layout", MAIN_LAYOUTS)
def test_found_from_the_current_directory(
    shelf: ProfileShelf, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Without a path, the profile around or below the current directory is taken."""
    profile = shelf.get(layout)
    monkeypatch.chdir(profile.path)
    assert ranks_of(Path()) == [0, 1]
    monkeypatch.chdir(profile.captures[1])
    assert ranks_of(Path()) == [1]
    assert captures_of(Path()) == [profile.captures[1].resolve()]


@pytest.mark.parametrize(
    ("layout", "inside"),
    [
        ("torch-text", "ASCEND_PROFILER_OUTPUT"),
        ("torch-db", "ASCEND_PROFILER_OUTPUT"),
        ("mindstudio", "mindstudio_profiler_output"),
        ("mindstudio", "host"),
        ("mindstudio", "device_1"),
        ("mindspore-2.1", "device_1"),
        ("mindspore-2.1", "device_1/timeline"),
        ("mindformers", "."),
        ("mindformers", ".."),
        ("mindformers", "mindstudio_profiler_output"),
    ],
)
def test_found_from_inside(shelf: ProfileShelf, layout: str, inside: str) -> None:
    """A directory inside a capture stands for that capture and for no other."""
    capture = shelf.get(layout).captures[1]
    assert captures_of(capture / inside) == [capture.resolve()]
    assert ranks_of(capture / inside) == [1]


@pytest.mark.parametrize(
    ("layout", "file"),
    [
        ("torch-text", "trace_view.json"),
        ("torch-db", "ascend_pytorch_profiler_1.db"),
        ("mindstudio", "msprof_2*.json"),
        ("mindspore-2.1", "msprof_1_1_2.json"),
    ],
)
def test_found_from_one_file(
    shelf: ProfileShelf, monkeypatch: pytest.MonkeyPatch, layout: str, file: str
) -> None:
    """One file of a capture stands for that capture, from anywhere and from beside it."""
    capture = shelf.get(layout).captures[1]
    path = only(capture, file)
    assert captures_of(path) == [capture.resolve()]
    assert ranks_of(path) == [1]
    monkeypatch.chdir(path.parent)
    assert captures_of(Path(path.name)) == [capture.resolve()]
    assert ranks_of(Path(path.name)) == [1]


def test_file_that_is_no_profile() -> None:
    """A file that belongs to no profile is refused, and the message says what would do."""
    with pytest.raises(NoProfileError, match=r"is no profile.*trace_view\.json"):
        discover(Path(__file__))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("b1q8_kernel_details.csv", "kernel_details.csv"),
        ("00006-op_summary_20260101.csv.gz", "op_summary_20260101.csv.gz"),
    ],
)
def test_a_table_under_a_longer_name(tmp_path: Path, name: str, plain: str) -> None:
    """People put words before a name; which name it had is said."""
    path = tmp_path / name
    path.write_text("Name,Type\n")
    said = re.escape(f"may be {plain}. Pass it under that name: mv {name} {plain}")
    with pytest.raises(NoProfileError, match=f"{said}$"):
        discover(path)
    with pytest.raises(NoProfileError) as found:
        discover(tmp_path)
    assert found.value.hints[0] == f"{path} may be {plain}. Pass it under that name."


def test_a_file_that_lies_in_a_profile_leads_to_it(copied: Copier) -> None:
    profile = copied("torch-text", ranks=1)
    capture = next(profile.path.rglob("*_ascend_pt"))
    path = capture / "ASCEND_PROFILER_OUTPUT/step_trace_time.csv"
    with pytest.raises(NoProfileError, match=f"profile: tlexport {re.escape(str(capture))}$"):
        discover(path)


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "mindstudio", "raw"])
def test_a_capture_in_two_places_is_read_once(
    shelf: ProfileShelf, tmp_path: Path, layout: str
) -> None:
    """As where an archive is unpacked beside what it was made of."""
    profile = shelf.copy(layout, tmp_path / "run", ranks=1)
    shutil.copytree(profile.path, tmp_path / "run/copied/deeper")
    found = discover(tmp_path)
    assert [source.identity.rank for source in found.sources] == [0]
    (note,) = (note for note in found.notes if "is a copy of" in note)
    assert "copied" in note.split(" is a copy of ")[0]


def test_copies_have_the_same_files(tmp_path: Path) -> None:
    """Of the same names, sizes, first and last bytes."""
    one, other = tmp_path / "one", tmp_path / "other"
    (one / "data").mkdir(parents=True)
    (one / "info.json").write_bytes(b"{}")
    (one / "data/slice_0").write_bytes(bytes(200_000))
    shutil.copytree(one, other)
    assert have_same_files(one, other)
    assert have_same_files(one / "info.json", other / "info.json")
    assert not have_same_files(one, one)
    for place, content in ((0, b"["), (-1, b"]")):
        changed = bytearray((one / "data/slice_0").read_bytes())
        changed[place] = content[0]
        (other / "data/slice_0").write_bytes(changed)
        assert not have_same_files(one, other)
    (other / "data/slice_0").rename(other / "data/slice_1")
    assert not have_same_files(one, other)
    shutil.rmtree(other)
    assert not have_same_files(one, other)


@pytest.mark.parametrize("layout", ["mindformers", "mindformers-2.1"])
def test_mindformers_tree(shelf: ProfileShelf, layout: str) -> None:
    """MindFormers' output/profile/rank_N/profiler is found from each of its levels."""
    profile = shelf.get(layout)
    for level in (".", "output", "output/profile"):
        assert ranks_of(profile.path / level) == [0, 1]
    for level in ("rank_1", "rank_1/profiler"):
        assert ranks_of(profile.path / "output/profile" / level) == [1]


@pytest.mark.parametrize("layout", MAIN_LAYOUTS)
def test_any_directory_name(shelf: ProfileShelf, tmp_path: Path, layout: str) -> None:
    """Dots, spaces and signs in the names around a profile change nothing."""
    profile = shelf.copy(layout, tmp_path / "v1.2.run/a.b.c/with space/100%?#&=;'")
    sources = discover(profile.path).sources
    for source in sources:
        rank = source.identity.rank
        assert overlap_ns(read(source)) == expected_overlap(profile.run, rank)
    assert [source.identity.rank for source in sources] == [0, 1]


def test_nothing_there(tmp_path: Path) -> None:
    """A tree without a profile is an error that says what was looked for and what may help."""
    (tmp_path / "logs").mkdir()
    with pytest.raises(NoProfileError) as caught:
        discover(tmp_path)
    for said in (str(tmp_path), "ASCEND_PROFILER_OUTPUT", "PROF_", "msprof --export=on"):
        assert said in "\n".join(caught.value.lines())
    with pytest.raises(SourceError, match="does not exist"):
        discover(tmp_path / "absent")


# -- what is read of a capture ---------------------------------------------------------------------


def test_database_beats_json(copied: Copier) -> None:
    """Where a database and text of one capture lie together, the text is not even opened."""
    profile = copied("torch-db")
    for capture in profile.captures:
        output = capture / "ASCEND_PROFILER_OUTPUT"
        (output / "trace_view.json").write_text("[{", encoding="utf-8")
        (output / "kernel_details.csv").write_text("", encoding="utf-8")
    for source in discover(profile.path).sources:
        assert source.layout == "database"
        expected = expected_overlap(profile.run, source.identity.rank)
        assert overlap_ns(read(source)) == expected


def test_database_of_msprof_beats_its_exports(shelf: ProfileShelf, tmp_path: Path) -> None:
    """A PROF directory with msprof_*.db is read from it, with the ranks of its info.json."""
    profile = shelf.copy("mindstudio", tmp_path / "run")
    databases = shelf.get("torch-db").captures
    for capture, worker in zip(profile.captures, databases, strict=True):
        target = capture / "msprof_20250109120100.db"
        shutil.copyfile(only(worker, "ascend_pytorch_profiler_*.db"), target)
        with closing(sqlite3.connect(target)) as connection, connection:
            connection.execute("UPDATE RANK_DEVICE_MAP SET rankId = -1")
    sources = discover(profile.path).sources
    assert [source.layout for source in sources] == ["database", "database"]
    assert [source.identity.rank for source in sources] == [0, 1]


@pytest.mark.parametrize("suffix", ["_ascend_pt", "_ascend_ms"])
def test_framework_output_beats_the_raw_data_inside(copied: Copier, suffix: str) -> None:
    """The PROF directory inside a framework's capture is part of it, not a capture of its own."""
    profile = copied("torch-db", ranks=1)
    capture = profile.captures[0].rename(profile.path / f"host_7_20250109120000123{suffix}")
    if suffix == "_ascend_ms":
        database = only(capture, "ascend_pytorch_profiler_0.db")
        database.rename(database.with_name("ascend_mindspore_profiler_0.db"))
    raw = capture / "PROF_000001_20250109120000123_AAAAAAAAAAAAAAAA"
    for directory in ("device_0/data", "host/data"):
        (raw / directory).mkdir(parents=True)
    for path in (profile.path, capture, raw, raw / "device_0", raw / "host"):
        (source,) = discover(path).sources
        assert source.layout == "database"
        assert source.identity.directory.resolve() == capture.resolve()


def test_newest_capture_of_a_rank(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two captures of one process the later one is read, by its name and not its file times."""
    profile = shelf.copy("torch-db", tmp_path / "run")
    later = shelf.get("torch-db", steps=1, seed=9)
    for old, new in zip(profile.captures, later.captures, strict=True):
        name = old.name.replace("20250109120000123", NEWER)
        shutil.copytree(new, old.with_name(name))
        for path in old.rglob("*"):
            os.utime(path, (2e9, 2e9))
    assert expected_overlap(later.run, 0) != expected_overlap(profile.run, 0)
    found = discover(profile.path)
    assert [source.identity.rank for source in found.sources] == [0, 1]
    for source in found.sources:
        assert NEWER in source.identity.directory.name
        expected = expected_overlap(later.run, source.identity.rank)
        assert overlap_ns(read(source)) == expected
    (note,) = found.notes
    assert all(old.name in note for old in profile.captures)
    assert main([str(profile.path), "-o", str(tmp_path / "out.pftrace")]) == 0
    warnings = capsys.readouterr().err
    assert all(old.name in warnings for old in profile.captures)


def test_ranks_of_different_runs_never_meet(copied: Copier) -> None:
    """A rank that was captured an hour before another is of another run, and that is said once."""
    profile = copied("torch-db")
    assert discover(profile.path).notes == ()
    older, newer = profile.captures
    taken_later(newer, HOUR_NS)
    newer = newer.rename(newer.with_name(newer.name.replace("20250109120000123", NEWER)))
    found = discover(profile.path)
    assert [source.identity.rank for source in found.sources] == [1]
    (note,) = found.notes
    assert "2 runs lie in" in note
    assert f"rank 0: tlexport {older.resolve()}" in note
    assert ranks_of(older) == [0]


def test_names_that_are_far_apart_do_not_part_what_overlaps(copied: Copier) -> None:
    """The session of a capture tells when it was taken better than its name does."""
    profile = copied("torch-db")
    later = profile.captures[1]
    later.rename(later.with_name(later.name.replace("20250109120000123", "20250109121000123")))
    assert ranks_of(profile.path) == [0, 1]
    assert discover(profile.path).notes == ()


def test_newest_export_of_each_kind(copied: Copier) -> None:
    """Exporting again leaves the older files there; the stamps in the names decide."""
    profile = copied("mindstudio-exported-twice")
    for capture in profile.captures:
        stamps = {path.stem[-14:] for path in capture.rglob("msprof_2*.json")}
        assert len(stamps) == 2
        for path in capture.rglob(f"*_{min(stamps)}.*"):
            os.utime(path, (2e9, 2e9))
    for source in discover(profile.path).sources:
        records = read(source)
        expected = expected_overlap(profile.run, source.identity.rank)
        assert overlap_ns(records) == expected
        assert sorted(records.steps.iteration.tolist()) == [1, 2, 3]


def test_newest_of_one_kind_only(copied: Copier) -> None:
    """A kind that was exported once keeps its only export, however old."""
    profile = copied("mindstudio", ranks=1)
    trace = only(profile.captures[0], "msprof_2*.json")
    trace.rename(trace.with_name("msprof_20260101000000.json"))
    (source,) = discover(profile.path).sources
    kinds = sorted(path.name.partition("_2")[0] for path in source.files)
    assert kinds == ["msprof", "op_summary", "step_trace"]
    assert overlap_ns(read(source)) == expected_overlap(profile.run, 0)


def test_slices_are_one_export(shelf: ProfileShelf) -> None:
    """All slices of an export are read, named by the first of them."""
    whole, sliced = shelf.get("mindstudio"), shelf.get("mindstudio-sliced")
    pairs = zip(discover(whole.path).sources, discover(sliced.path).sources, strict=True)
    for one, other in pairs:
        left, right = read(one), read(other)
        for table in ("tasks", "planes", "ops", "steps", "parts", "host", "samples", "flows"):
            assert len(getattr(left, table)) == len(getattr(right, table)) > 0
        assert overlap_ns(left) == overlap_ns(right)
        assert np.unique(left.tasks.stream).tolist() == np.unique(right.tasks.stream).tolist()


def sliced(path: Path, stamps: list[int]) -> None:
    """Cut an export into slices, each with the stamp of when it was written."""
    kind, text = path.name.partition("_2")[0], path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        events = json.loads(text)
        head = [json.dumps(event) for event in events if event["ph"] == "M"]
        rest = [json.dumps(event) for event in events if event["ph"] != "M"]
    else:
        lines = text.splitlines(keepends=True)
        head, rest = lines[:1], lines[1:]
    size = len(rest) // len(stamps) + 1
    for number, stamp in enumerate(stamps):
        part = head + rest[number * size : (number + 1) * size]
        written = f"[{','.join(part)}]" if path.suffix == ".json" else "".join(part)
        target = path.with_name(f"{kind}_slice_{number}_{stamp}{path.suffix}")
        target.write_text(written, encoding="utf-8", newline="")
    path.unlink()


@pytest.mark.parametrize(
    "stamps",
    [
        [20250109120100, 20250109120104, 20250109120107],
        [20250109120107, 20250109120104, 20250109120105, 20250109120111],
    ],
    ids=["in order", "by several processes"],
)
def test_slices_have_the_stamps_of_when_they_were_written(
    shelf: ProfileShelf, tmp_path: Path, stamps: list[int]
) -> None:
    """Slices of one export with different stamps are all read, of the trace and of its table."""
    profile = shelf.copy("mindstudio", tmp_path / "run", ranks=1)
    (whole,) = discover(shelf.get("mindstudio", ranks=1).path).sources
    sliced(only(profile.captures[0], "msprof_2*.json"), stamps)
    sliced(only(profile.captures[0], "op_summary_*.csv"), stamps)
    (source,) = discover(profile.path).sources
    records = read(source)
    assert overlap_ns(records) == expected_overlap(profile.run, 0)
    assert len(records.tasks) == len(read(whole).tasks)
    assert records.warnings == read(whole).warnings


@pytest.mark.parametrize("slices", [1, 2, 5], ids=["whole", "fewer", "more"])
def test_slices_of_an_older_export_are_left_out(copied: Copier, slices: int) -> None:
    """An older export of three slices adds nothing to a newer one of another number."""
    profile = copied("mindstudio", ranks=1)
    trace = only(profile.captures[0], "msprof_2*.json")
    again = trace.with_name("msprof_20250109130000.json")
    shutil.copy(trace, again)
    sliced(trace, [20250109120100, 20250109120104, 20250109120107])
    if slices > 1:
        sliced(again, [20250109130000 + 4 * number for number in range(slices)])
    (source,) = discover(profile.path).sources
    traces = [path.name for path in source.files if path.name.startswith("msprof")]
    assert len(traces) == slices
    assert all("_2025010913" in name for name in traces)
    assert overlap_ns(read(source)) == expected_overlap(profile.run, 0)


def test_each_iteration_may_be_an_export_of_its_own(copied: Copier) -> None:
    """Exports of an iteration each are read together, in the newest version of each."""
    profile = copied("mindstudio", ranks=1)
    trace = only(profile.captures[0], "msprof_2*.json")
    sliced(trace, [20250109120100, 20250109120104, 20250109120107])
    for path in trace.parent.glob("msprof_slice_*"):
        _, _, number, stamp = path.stem.split("_")
        renamed = path.rename(path.with_name(f"msprof_0_1_{int(number) + 1}_{stamp}.json"))
        shutil.copy(renamed, path.with_name(f"msprof_0_1_{int(number) + 1}_20240109120100.json"))
    (source,) = discover(profile.path).sources
    assert overlap_ns(read(source)) == expected_overlap(profile.run, 0)


@pytest.mark.parametrize("name", ["msprof_0_1", "msprof_0_1_20230809120100", "msprof_0"])
def test_a_timeline_of_one_device_without_graphs(copied: Copier, name: str) -> None:
    """CANN 6 leaves the model out of names where there is no step trace, and may slice them."""
    profile = copied("mindspore-2.1", ranks=1)
    timeline = only(profile.captures[0], "device_*/timeline")
    whole = overlap_ns(read(discover(profile.path).sources[0]))
    kept = timeline / "msprof_0_1_1.json"
    for path in [*timeline.iterdir()]:
        if path != kept:
            path.unlink()
    (source,) = discover(profile.path).sources
    of_iteration = overlap_ns(read(source))
    assert of_iteration != whole
    sliced(kept.rename(timeline / f"{name}_2.json"), [1, 2])
    for number in (0, 1):
        sliced_name = f"{name.removesuffix('_20230809120100')}_slice_{number}"
        stamp = "_20230809120100" if "_2023" in name else ""
        found = only(timeline, f"*_slice_{number}_{number + 1}.json")
        found.rename(timeline / f"{sliced_name}{stamp}.json")
    (source,) = discover(profile.path).sources
    assert source.layout == "device_N/timeline"
    assert overlap_ns(read(source)) == of_iteration


@pytest.mark.parametrize(
    "name", ["msprof_0_{}", "msprof_0_1_1_{}", "msprof_slice_0_{}", "msprof_0_slice_0_{}"]
)
def test_names_of_exports(copied: Copier, name: str) -> None:
    """Device, graph, iteration and slice may stand between the kind and the stamp of an export."""
    profile = copied("mindstudio", ranks=1)
    trace = only(profile.captures[0], "msprof_2*.json")
    renamed = trace.rename(trace.with_name(f"{name.format(trace.stem[-14:])}.json"))
    (source,) = discover(profile.path).sources
    assert renamed.resolve() in [path.resolve() for path in source.files]
    assert overlap_ns(read(source)) == expected_overlap(profile.run, 0)


def test_ranges_file_is_not_read_twice(copied: Copier) -> None:
    """msprof_tx_*.json repeats ranges of msprof_*.json and is left alone, whatever is in it."""
    profile = copied("mindstudio", ranks=1)
    ranges = only(profile.captures[0], "msprof_tx_*.json")
    ranges.rename(ranges.with_name("msprof_tx_20260101000000.json")).write_text("[{")
    (source,) = discover(profile.path).sources
    assert not [path for path in source.files if "msprof_tx" in path.name]
    records = read(source)
    marks = [records.strings[code] for code in records.host.name.tolist()]
    assert marks.count("train step 2") == 1


def test_subsets_of_a_graph_timeline_are_not_read_twice(shelf: ProfileShelf) -> None:
    """hccl_* and task_time_* repeat parts of msprof_*: each task is read once."""
    profile = shelf.get("mindspore-2.1")
    for source in discover(profile.path).sources:
        rank = profile.run.rank(source.identity.rank)
        records = read(source)
        assert len(records.tasks) == sum(len(one.tasks) for one in rank.iterations)
        assert len(records.ops) == sum(len(one.collectives) for one in rank.iterations)


# -- which run it is -------------------------------------------------------------------------------


def test_two_captures_of_one_card_are_two_runs(copied: Copier) -> None:
    """However close one follows the other: the newer is read, and a note names the older."""
    profile = copied("mindstudio", ranks=1)
    older = without_rank(profile, 0)
    newer = older.with_name(older.name.replace("20250109120000123", "20250109120011123"))
    shutil.copytree(older, newer)
    taken_later(newer, 11 * 10**9)
    found = discover(profile.path)
    (source,) = found.sources
    assert source.identity.directory == newer.resolve()
    assert source.identity.rank == 0
    runs, rank = found.notes
    assert f"tlexport {older.resolve()}" in runs
    assert newer.name in rank
    assert [run.path for run in found.runs] == [older.resolve(), newer.resolve()]


def test_without_their_sessions_the_records_tell_runs_apart(copied: Copier) -> None:
    """An export alone tells neither device nor session: what it recorded does."""
    profile = copied("mindstudio")
    captures = [without_rank(profile, number) for number in (1, 0)][::-1]
    for capture in captures:
        for path in capture.iterdir():
            if path.name != "mindstudio_profiler_output":
                shutil.rmtree(path)
    assert ranks_of(profile.path) == [0, 1]
    later = only(captures[1], "msprof_2*.json")
    change_events(
        later,
        lambda event: (
            event | {"ts": str(Decimal(event["ts"]) + 9_000_000)} if "ts" in event else event
        ),
    )
    assert captures_of(profile.path) == [captures[1].resolve()]


# -- raw data --------------------------------------------------------------------------------------


def raw_session(profile: Profile, number: int) -> Path:
    """The capture of a rank as it is before `msprof --export`."""
    capture = profile.captures[number]
    shutil.rmtree(capture / "mindstudio_profiler_output")
    for directory in (f"device_{number}", "host"):
        (capture / directory / "data").mkdir()
        (capture / directory / "data" / "ffts_profile.data.0.slice_0").write_bytes(b"\0" * 64)
    return capture


@pytest.mark.parametrize("rank_known", [True, False], ids=["rank known", "rank -1"])
def test_raw_data_names_the_command(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str], rank_known: bool
) -> None:
    """Raw data alone gives the command that exports it, whether or not its rank is known."""
    profile = shelf.copy("mindstudio", tmp_path / "run", ranks=1)
    capture = raw_session(profile, 0)
    if not rank_known:
        without_rank(profile, 0)
    for path in (profile.path, capture, capture / "device_0"):
        assert main([str(path), "-o", str(tmp_path / "out.pftrace")]) == 1
        assert f"msprof --export=on --output={capture}" in capsys.readouterr().err


def test_raw_rank_beside_an_exported_one(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One rank without an export stops an export of all ranks, but not of the others."""
    profile = shelf.copy("mindstudio", tmp_path / "run")
    capture = raw_session(profile, 1)
    out = ["-o", str(tmp_path / "out.pftrace")]
    assert main([str(profile.path), *out]) == 1
    assert f"--output={capture}" in capsys.readouterr().err
    assert main([str(profile.path), "--ranks", "0", *out]) == 0


@pytest.mark.parametrize("framework", ["torch_npu", "mindspore"])
def test_a_rank_that_was_not_parsed_names_the_profiler_that_does(
    copied: Copier, capsys: pytest.CaptureFixture[str], framework: str
) -> None:
    """What a framework left is parsed with the data of msprof inside; the others can be read."""
    profile = copied("mindstudio")
    session = raw_session(profile, 1)
    end = "pt" if framework == "torch_npu" else "ms"
    around = profile.path / f"dp0_pp0_tp1_rank1_45_20250109120000123_ascend_{end}"
    around.mkdir()
    session.rename(around / session.name)
    assert main([str(profile.path), "--verdict"]) == 1
    said = capsys.readouterr().err
    assert f"from {framework}.profiler.profiler import analyse" in said
    assert f'analyse("{around}")' in said
    assert "msprof --export" not in said
    assert "--keep-going" in said
    assert main([str(profile.path), "--verdict", "--keep-going", "-q"]) == 0
    assert "rank 1 is left out" in capsys.readouterr().err


def test_exported_capture_beats_a_raw_one(copied: Copier) -> None:
    """A later capture of a rank that was never exported does not hide the one that was."""
    profile = copied("mindstudio", ranks=1)
    exported = profile.captures[0]
    later = exported.with_name(exported.name.replace("20250109120000123", NEWER))
    shutil.copytree(exported, later)
    shutil.rmtree(later / "mindstudio_profiler_output")
    assert captures_of(profile.path) == [exported.resolve()]


# -- inputs stay as they are -----------------------------------------------------------------------


def test_log_beside_a_database(shelf: ProfileShelf, tmp_path: Path) -> None:
    """What is only in the write-ahead log is read, and neither file nor directory changes."""
    profile = shelf.copy("torch-db", tmp_path / "run", ranks=1)
    database = only(profile.captures[0], "ascend_pytorch_profiler_0.db")
    writer = tmp_path / "writer.db"
    shutil.move(database, writer)
    with closing(sqlite3.connect(writer)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("DELETE FROM STEP_TIME WHERE id = 3")
        connection.commit()
        log = writer.with_name("writer.db-wal")
        assert log.stat().st_size > 0
        shutil.copyfile(writer, database)
        shutil.copyfile(log, database.with_name(f"{database.name}-wal"))
    before = tree_state(profile.path)
    (source,) = discover(profile.path).sources
    assert read(source).steps.iteration.tolist() == [1, 2]
    assert tree_state(profile.path) == before


def test_empty_log_beside_a_database(copied: Copier) -> None:
    """An empty write-ahead log, as a clean exit leaves it, is not touched."""
    profile = copied("torch-db", ranks=1)
    database = only(profile.captures[0], "ascend_pytorch_profiler_0.db")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    database.with_name(f"{database.name}-wal").touch()
    before = tree_state(profile.path)
    (source,) = discover(profile.path).sources
    assert overlap_ns(read(source)) == expected_overlap(profile.run, 0)
    assert tree_state(profile.path) == before


@pytest.mark.parametrize("layout", MAIN_LAYOUTS)
def test_inputs_are_unchanged(
    shelf: ProfileShelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Listing and exporting leave every byte, time and name of the profile as it was."""
    profile = shelf.copy(layout, tmp_path / "run")
    before = tree_state(profile.path)
    monkeypatch.chdir(profile.captures[0])
    output = tmp_path / "out.pftrace"
    assert main(["--list"]) == 0
    for kind in Kind:
        arguments = ["--kind", kind.value, "--force", "-o", str(output)]
        assert main([str(profile.path), *arguments]) == 0
    assert tree_state(profile.path) == before
