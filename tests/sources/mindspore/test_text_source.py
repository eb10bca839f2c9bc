"""Proves that text outputs of MindSpore 0.7 to 2.2 read, and look, as the run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.model import Run
from simulator.overlap import expected_overlap
from simulator.simulation import make_run
from simulator.writers.mindspore.text import device_ns, write_mindspore_text
from simulator.writers.trace_json.mindspore import write_mindspore_timeline
from simulator.writers.trace_json.mindstudio import write_mindstudio
from tests.support.examples import at_most
from tests.support.places import DATA
from tests.support.profile_shelf import Copier, ProfileShelf, change_fields
from tests.support.read_profiles import lost_rows, records_of
from timeline.analysis.overlap import measure_overlap
from timeline.analysis.steps import assign_steps, with_steps
from timeline.columns.strings import StringPool
from timeline.errors import RankIdentityError, SourceError
from timeline.options import StepOperators
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import Records, Tasks
from timeline.selection import DETAIL_LAYERS
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.framework import describe_operators, read_framework_rows
from timeline.sources.companions.step_trace import read_step_ticks
from timeline.sources.decoders.csv_blocks import read_last_cells
from timeline.sources.finding.discovery import discover
from timeline.sources.mindspore.text_source import read_aicpu_rows, read_device_rows
from timeline.sources.source import ReadRequest

REAL = DATA / "mindspore-0.7-text"


# -- what is read ------------------------------------------------------------------------------


def read_all(path: Path) -> list[Records]:
    """The records of every rank, all layers."""
    return [source.read(ReadRequest(DETAIL_LAYERS)) for source in discover(path).sources]


def unnumbered(profiler: Path) -> None:
    """Name the directory and the files of HCCL tasks as MindSpore 1.x does."""
    directory = (profiler / "hccl_info_0").rename(profiler / "hccl_info")
    for path in directory.rglob("*.json"):
        path.rename(path.with_name(f"iter{path.stem}.trace"))


@pytest.mark.parametrize("as_list", [False, True])
def test_hccl_tasks_of_a_directory_without_an_id(copied: Copier, as_list: bool) -> None:
    """The only rank of a directory is the one that hccl_info and its traces are of."""
    profile = copied("mindspore-text-hccl", ranks=1)
    (before,) = read_all(profile.path)
    (directory,) = profile.path.rglob("hccl_info_0")
    unnumbered(directory.parent)
    for path in profile.path.rglob("*.trace"):
        if as_list:
            events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
            path.write_text(json.dumps(events), encoding="utf-8")
    (after,) = read_all(profile.path)
    assert len(after.planes) == len(before.planes) > 0
    for one, other in ((before.planes, after.planes), (before.ops, after.ops)):
        assert sorted(one.start_ns.tolist()) == sorted(other.start_ns.tolist())
        assert sorted(one.end_ns.tolist()) == sorted(other.end_ns.tolist())
    assert not any(one.file == "hccl_info" for one in after.unused)


def test_hccl_tasks_of_no_known_rank_are_named(copied: Copier) -> None:
    """Where several ranks share a directory, whose hccl_info it is cannot be told."""
    profile = copied("mindspore-text-hccl", ranks=1)
    (directory,) = profile.path.rglob("hccl_info_0")
    profiler = directory.parent
    unnumbered(profiler)
    for path in profiler.glob("*_0*"):
        shutil.copy(path, path.with_name(path.name.replace("_0", "_1", 1)))
    found = read_all(profile.path)
    assert len(found) == 2
    for records in found:
        assert not len(records.planes)
        assert any(one.file == "hccl_info" for one in records.unused)


def test_reduces_without_hccl_files_stay(copied: Copier) -> None:
    """Where HCCL files tell of some steps only, the step trace tells of the others."""
    profile = copied("mindspore-text-hccl")
    for path in profile.path.rglob("hccl_info_0/*/2.json"):
        path.unlink()
    records = records_of(profile.path)
    assert measure_overlap(records.tasks, records.ops).totals_ns() == expected_overlap(
        profile.run, 0
    )
    names = {records.strings[code] for code in records.ops.name.tolist()}
    assert {name.split("_")[0] for name in names} == {
        "AllReduce-op534",
        "AllReduce-op535",
        "stream",
    }


def test_several_graphs(tmp_path: Path) -> None:
    """Tasks of the graph that the step trace is not of make steps of their own graph."""
    run = make_run(ranks=1, steps=2, ops_per_step=6, planes=2, graphs=(1, 3))
    write_mindspore_text(run, tmp_path)
    records = with_steps(records_of(tmp_path), StepOperators())
    main_graph = {1, 3} - {3}
    found = set(zip(records.steps.graph.tolist(), records.steps.iteration.tolist(), strict=True))
    assert {number for _, number in found} == {1, 2}
    assert main_graph <= {graph for graph, _ in found}
    member = assign_steps(records).tasks
    iteration = records.steps.iteration[member]
    step_of = {
        (device_ns(run, task.start_ns), device_ns(run, task.end_ns)): step.id
        for step in run.rank(0).steps
        for one in step.iterations
        for task, _ in one.kernels
    }
    moments = zip(records.tasks.start_ns.tolist(), records.tasks.end_ns.tolist(), strict=True)
    assert (member >= 0).all()
    assert iteration.tolist() == [step_of[moment] for moment in moments]


# -- the picture -------------------------------------------------------------------------------


# -- where it is found -------------------------------------------------------------------------


def test_found_from_around_and_from_one_file(shelf: ProfileShelf) -> None:
    """The directory, the one above it, and one file of an id stand for the same."""
    profile = shelf.get("mindspore-text")
    profiler = profile.path / "profiler"
    for path in (profile.path, profiler):
        assert [one.identity.rank for one in discover(path).sources] == [0, 1]
    (source,) = discover(profiler / "output_timeline_data_1.txt").sources
    assert (source.identity.rank, source.layout) == (1, "MindSpore text")


def test_device_id_in_a_directory_of_a_rank(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Before 1.5 the id is the device: a directory named after a rank tells which rank it is."""
    source = shelf.get("mindspore-text").path / "profiler"
    for rank, device in ((8, 0), (9, 1)):
        target = tmp_path / f"rank_{rank}" / "profiler"
        target.mkdir(parents=True)
        for path in source.glob(f"*_{device}[._]*"):
            shutil.copy(path, target)
    found = discover(tmp_path).sources
    assert [(one.identity.rank, one.identity.device) for one in found] == [(8, 0), (9, 1)]


def test_same_id_twice_is_an_error(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Two hosts that both have a device 0 are told apart by the user only."""
    for host in ("a", "b"):
        shutil.copytree(shelf.get("mindspore-text").path, tmp_path / host)
        (tmp_path / host / "profiler" / f"of_host_{host}").touch()  # else they would be copies
    with pytest.raises(RankIdentityError, match="rank 0 appears twice"):
        discover(tmp_path)
    shared = tmp_path / "b" / "profiler"
    given = {f"{shared}/device_{number}": 8 + number for number in (0, 1)}
    found = discover(tmp_path, given).sources
    assert [one.identity.rank for one in found] == [0, 1, 8, 9]
    assert found[3].identity.directory == shared
    only = tmp_path / "a" / "profiler"
    for path in only.glob("*_1[._]*"):
        path.unlink()
    with pytest.raises(RankIdentityError, match="rank 0 appears twice"):
        discover(tmp_path)
    found = discover(tmp_path, {str(only): 7}).sources
    assert [one.identity.rank for one in found] == [0, 1, 7]


@pytest.mark.parametrize("export", [write_mindstudio, write_mindspore_timeline])
@pytest.mark.parametrize("named", [True, False], ids=["with rank ids", "without rank ids"])
def test_export_beside_it_wins(
    copied: Copier, export: Callable[[Run, Path], list[Path]], *, named: bool
) -> None:
    """An export in the same directory is richer: one picture of a rank, and a note."""
    profile = copied("mindspore-text")
    run = replace(profile.run, ranks=profile.run.ranks[:1]) if not named else profile.run
    for session in export(run, profile.path / "profiler"):
        for info in session.rglob("info.json*"):
            if not named and not info.name.endswith(".done"):
                change_fields(info, {"rank_id": -1})
    if not named:
        for path in (profile.path / "profiler").glob("*_1[._]*"):
            path.unlink()
    found = discover(profile.path)
    assert [one.identity.rank for one in found.sources] == [one.rank for one in run.ranks]
    assert {one.layout for one in found.sources} <= {
        "mindstudio_profiler_output",
        "device_N/timeline",
    }
    assert len(found.notes) == len(run.ranks)
    assert all("text outputs in profiler hold less than PROF_" in note for note in found.notes)


def test_exports_of_unknown_ranks_beside_it(copied: Copier) -> None:
    """Where nothing tells which export is of which rank, the text is read and a note says why."""
    profile = copied("mindspore-text")
    for session in write_mindstudio(profile.run, profile.path / "profiler"):
        for info in session.rglob("info.json*"):
            if not info.name.endswith(".done"):
                change_fields(info, {"rank_id": -1})
    found = discover(profile.path)
    assert [(one.identity.rank, one.layout) for one in found.sources] == [
        (0, "MindSpore text"),
        (1, "MindSpore text"),
    ]
    assert len(found.notes) == 2
    assert all("no rank id" in note for note in found.notes)


def test_raw_data_beside_it_is_passed_over(copied: Copier) -> None:
    """Raw data that was never exported does not hide the text that MindSpore made of it."""
    profile = copied("mindspore-text")
    raw = profile.path / "profiler" / "PROF_000001_20250109120000123_ABC" / "device_0"
    (raw / "data").mkdir(parents=True)
    found = discover(profile.path)
    assert [one.layout for one in found.sources] == ["MindSpore text"] * 2


# -- broken and unusual files ------------------------------------------------------------------


def device_rows(path: Path, text: str | bytes) -> tuple[Tasks, dict[str, int], StringPool]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    strings = StringPool()
    tasks, omissions = read_device_rows(path, strings, 0)
    return tasks, {one.reason: one.rows for one in omissions}, strings


HEADER = "op_name, stream_id, start_time(ms), duration(ms)\n"
GOOD = "Default/A-op1,519,438068.41592,0.00266\n"


@pytest.mark.parametrize(
    ("text", "names", "bad_lines"),
    [
        (HEADER + GOOD, ["Default/A-op1"], []),
        (GOOD, ["Default/A-op1"], []),
        ("\ufeff" + HEADER + GOOD, ["Default/A-op1"], []),
        ((HEADER + GOOD).replace("\n", "\r\n"), ["Default/A-op1"], []),
        (HEADER + GOOD.replace(",", ", ").replace("\n", "\t\n"), ["Default/A-op1"], []),
        (HEADER + GOOD + "\n\n" + GOOD, ["Default/A-op1"] * 2, []),
        (HEADER + 'a,b"' + GOOD, ['a,b"Default/A-op1'], []),
        (HEADER + '"a,""b""",519,438068.41592,0.00266\n', ['a,"b"'], []),
        (HEADER + GOOD + "Default/B-op2,519,438068.4", ["Default/A-op1"], [3]),
        (HEADER + GOOD + "Default/B-op2,519,438068.41,0.0", ["Default/A-op1"], [3]),
        (HEADER + "x,519,nan,1\n" + GOOD + "y,519,1,N/A\n", ["Default/A-op1"], [2, 4]),
        (HEADER + "x,519,,1\ny,519,1,\nz,1\n" + GOOD, ["Default/A-op1"], [2, 3, 4]),
        (HEADER + "x,519,1e300,1\n" + GOOD, ["Default/A-op1"], [2]),
    ],
)
def test_lines_of_device_tasks(
    tmp_path: Path, text: str, names: list[str], bad_lines: list[int]
) -> None:
    """What is whole is read however it is spelled; what is not is counted with its first line."""
    tasks, omitted, strings = device_rows(tmp_path / "output_timeline_data_0.txt", text)
    assert [strings[code] for code in tasks.name.tolist()] == names
    assert tasks.start_ns.tolist() == [438_068_415_920] * len(names)
    assert tasks.end_ns.tolist() == [438_068_418_580] * len(names)
    assert tasks.stream.tolist() == [519] * len(names)
    assert sum(omitted.values()) == len(bad_lines)
    assert all(reason.startswith("output_timeline_data_0.txt: rows ") for reason in omitted)
    firsts = [int(reason.rpartition(" ")[2]) for reason in omitted]
    assert set(firsts) <= set(bad_lines)
    assert min(firsts, default=0) == min(bad_lines, default=0)


def test_bytes_and_ids_that_do_not_fit(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 and streams beyond 64 bits cost no task."""
    text = HEADER.encode() + b"a\xff,99999999999999999999,1.5,0.5\nb,x,2,1e-05\n"
    tasks, omitted, strings = device_rows(tmp_path / "output_timeline_data_0.txt", text)
    assert [strings[code] for code in tasks.name.tolist()] == ["a\ufffd", "b"]
    assert tasks.stream.tolist() == [NO_ID, NO_ID]
    assert tasks.end_ns.tolist() == [2_000_000, 2_000_010]
    assert omitted == {}


@pytest.mark.parametrize(("text", "found"), [("", "is empty"), ("hello\nworld\n", "no device")])
def test_unusable_device_tasks(tmp_path: Path, text: str, found: str) -> None:
    """A file of which nothing can be read is an error that names it."""
    with pytest.raises(SourceError, match=f"output_timeline_data_0.txt.*{found}"):
        device_rows(tmp_path / "output_timeline_data_0.txt", text)


def test_header_alone_is_no_error(tmp_path: Path) -> None:
    """A rank on which nothing ran has no tasks."""
    tasks, omitted, _ = device_rows(tmp_path / "output_timeline_data_0.txt", HEADER)
    assert (len(tasks), omitted) == (0, {})


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=9),
            st.integers(0, 4096),
            st.integers(0, 10**15),
            st.integers(0, 10**9),
        ),
        max_size=40,
    )
)
@settings(max_examples=at_most(40))
def test_device_tasks_survive_the_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int, int, int]]
) -> None:
    """Any ticks that are written as decimal milliseconds come back to the tick."""
    lines = [
        f"op{name.strip()},{stream},{start // 10**5}.{start % 10**5:05d},{length / 10**5!r}\n"
        for name, stream, start, length in rows
    ]
    path = tmp_path_factory.mktemp("rows") / "output_timeline_data_0.txt"
    tasks, omitted, _ = device_rows(path, HEADER + "".join(lines))
    assert tasks.start_ns.tolist() == [start * 10 for _, _, start, _ in rows]
    assert tasks.end_ns.tolist() == [(start + length) * 10 for _, _, start, length in rows]
    assert tasks.stream.tolist() == [stream for _, stream, _, _ in rows]
    assert omitted == {}


STEP_HEADER = (
    "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail,"
    "s_1_0,s_1_0_start_point,s_1_0_end_point"
)


def step_rows(path: Path, *rows: str, header: str = STEP_HEADER, end: str = "\n") -> Any:
    path.write_text("\n".join((header, *rows)) + end, encoding="utf-8")
    return read_step_ticks(path, StringPool(), 0)


def test_single_step_has_a_mean_of_zeros(tmp_path: Path) -> None:
    """The mean that MindSpore writes below a single step is all 0; step 0 itself would be kept."""
    one = "1,100,200,100,110,150,10,40,50,5,160,165"
    zeros = ",".join("0" * 12)
    found = step_rows(tmp_path / "steps.csv", one, zeros)
    assert found.steps.iteration.tolist() == [1]
    found = step_rows(tmp_path / "steps.csv", one.replace("1,", "0,", 1), "-" + zeros[1:])
    assert found.steps.iteration.tolist() == [0]
    assert found.omissions == ()


def test_a_mean_may_be_numbered_as_step_0(tmp_path: Path) -> None:
    """As the last row; a first one of that number is a step."""
    cells = "100,200,100,110,150,10,40,50,5,160,165"
    found = step_rows(tmp_path / "steps.csv", f"0,{cells}", f"1,{cells}", f"0,{cells}")
    assert found.steps.iteration.tolist() == [0, 1]
    assert found.omissions == ()


def test_marks_that_are_not_there(tmp_path: Path) -> None:
    """FP, BP and reduces of 0 mean none, and so do columns that inference does not write."""
    found = step_rows(tmp_path / "steps.csv", "1,100,200,100,0,0,0,0,0,0,0,0")
    assert found.steps.fp_start_ns.tolist() == [NO_TIME]
    assert found.steps.bp_end_ns.tolist() == [NO_TIME]
    assert len(found.parts) == len(found.reduces) == 0
    header = "step_num,start_point,end_point,total,fp_point,iteration_interval,fp"
    found = step_rows(tmp_path / "steps.csv", "1,100,200,100,110,10,90", header=header)
    assert found.steps.fp_start_ns.tolist() == [1100]
    assert found.steps.bp_end_ns.tolist() == [NO_TIME]


def test_step_trace_that_breaks_off(tmp_path: Path) -> None:
    """A row is used as far as it is whole, and what is missing is counted."""
    whole = "1,100,200,100,110,150,10,40,50,5,160,165"
    broken = "2,200,300,100,210,250,10,40,50,5,260,26"
    found = step_rows(tmp_path / "steps.csv", whole, broken, end="")
    assert found.steps.iteration.tolist() == [1, 2]
    assert found.parts.iteration.tolist() == [1]
    reason = "steps.csv: rows that break off, without their last reduces, the first at line 3"
    assert {one.reason: (one.rows, one.loss) for one in found.omissions} == {reason: (1, True)}
    found = step_rows(tmp_path / "steps.csv", whole, "2,200,30", end="")
    assert found.steps.iteration.tolist() == [1]
    reason = "steps.csv: rows without a number, a start and an end, the first at line 3"
    assert {one.reason: one.rows for one in found.omissions} == {reason: 1}


def test_step_trace_of_several_graphs_is_remarked(tmp_path: Path) -> None:
    """Numbers that repeat are kept, and said to be ambiguous."""
    rows = ("1,100,200,100,0,0,0,0,0,0,0,0", "1,200,300,100,0,0,0,0,0,0,0,0")
    found = step_rows(tmp_path / "steps.csv", *rows)
    assert len(found.steps) == 2
    assert "step 1 more than once" in found.warnings[0]


@pytest.mark.parametrize(
    ("text", "found"), [("", "is empty"), ("a,b\n1,2\n", "has no column step_num; found a, b")]
)
def test_unusable_step_trace(tmp_path: Path, text: str, found: str) -> None:
    """A table of something else is an error that names the column."""
    path = tmp_path / "steps.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=found):
        read_step_ticks(path, StringPool(), 0)


def test_ai_cpu_rows_without_times(tmp_path: Path) -> None:
    """AI CPU rows that lack a time are counted; a table without starts is an error."""
    path = tmp_path / "aicpu_intermediate_0.csv"
    header = "serial_number,kernel_type,total_time,dispatch_time,execution_time,run_start,run_end\n"
    path.write_text(f"{header}1,A,1,0,1,5.25,7.5\n2,B,1,0,1,N/A,9\n3,C,1\n", encoding="utf-8")
    tasks, (omission,) = read_aicpu_rows(path, StringPool(), 0)
    assert (tasks.start_ns.tolist(), tasks.end_ns.tolist()) == ([5250], [7500])
    assert (omission.rows, omission.loss) == (2, True)
    assert omission.reason.endswith("at line 3")
    path.write_text("serial_number,kernel_type\n1,A\n", encoding="utf-8")
    with pytest.raises(SourceError, match="no column run_start"):
        read_aicpu_rows(path, StringPool(), 0)


def test_operators_that_differ_are_not_described(tmp_path: Path) -> None:
    """Of an operator with several rows, only what they agree on is told; JSON may be broken."""
    path = tmp_path / "framework_raw_0.csv"
    path.write_text(
        "task_id,stream_id,block_dim,full_kernel_name,op_name,kernel_name,kernel_type,subgraph,"
        'op_info,graph_id\n1,8,2,D/A-op1,,,A,D,"{""input_0"": {""shape"": [2, 3]}}",11\n'
        '2,8,2,D/A-op1,,,A,D,"{""input_0"": {""shape"": [4, 3]}}",11\n'
        "3,8,x,D/B-op2,,,B,D,{broken,99999999999999999999\n",
        encoding="utf-8",
    )
    strings = StringPool()
    names = StringPool()
    rows = read_framework_rows(path, names, LossLog(path))
    tasks = Tasks.of(2, start_ns=[0, 1], end_ns=[1, 2], name=strings.codes(["D/A-op1", "D/B-op2"]))
    tasks, described = describe_operators(tasks, rows, names, strings)
    assert described == 2
    assert tasks.task.tolist() == [NO_ID, 3]
    assert tasks.graph.tolist() == [11, NO_GRAPH]
    assert tasks.blocks.tolist() == [2, NO_ID]
    assert [strings[code] for code in tasks.op_type.tolist()] == ["A", "B"]
    assert [strings[code] for code in tasks.input_shapes.tolist()] == ["", ""]


def test_broken_hccl_files_are_counted(copied: Copier) -> None:
    """One broken file of many costs its own op only."""
    profile = copied("mindspore-text-hccl")
    paths = sorted(profile.path.rglob("hccl_info_0/*/*.json"))
    paths[0].write_text('{"traceEvents": [{"name"', encoding="utf-8")
    records = records_of(profile.path)
    (reason,) = lost_rows(records)
    assert "/".join(paths[0].parts[-3:]) in reason
    assert len(records.ops) == len(paths)


# -- real data ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Records:
    if not REAL.is_dir():
        pytest.skip(f"the real profile is not beside the project, in {REAL}")
    return records_of(REAL, 1)


def test_real_profile_has_all_tasks_and_steps(real: Records) -> None:
    """Counts and sums of a profile of 2020 are those that MindSpore's own summary says."""
    summary = json.loads((REAL / "profiler" / "timeline_summary_1.json").read_bytes())
    assert len(real.tasks) == summary["op_exe_times"] == 2817
    assert len(np.unique(real.tasks.stream)) == summary["num_of_streams"]
    assert len(np.unique(real.tasks.name)) == summary["num_of_ops"] == 199
    total_ns = int((real.tasks.end_ns - real.tasks.start_ns).sum())
    assert total_ns == round(summary["total_time"] * 1000) == 1_771_382_850
    assert lost_rows(real) == {}
    assert real.steps.iteration.tolist() == list(range(1, 323))
    lengths = real.steps.end_ns - real.steps.start_ns
    assert lengths[:2].tolist() == [284_271_180, 205_683_580]
    assert round(int(lengths[1:].sum()) / 321 / 10) == 20_538_093, "the mean in the last row"
    assert (real.steps.start_ns[1:] == real.steps.end_ns[:-1]).all()
    assert len(real.parts) == len(real.ops) == 322 * 11


def test_real_profile_is_on_one_clock(real: Records) -> None:
    """The first task starts at the count of min_cycle_counter, just before the first step."""
    origin = (REAL / "profiler" / "min_cycle_counter_1.txt").read_text(encoding="utf-8")
    assert int(real.tasks.start_ns.min()) == int(float(origin)) * 10
    first, last = int(real.steps.start_ns.min()), int(real.steps.end_ns.max())
    assert 0 < first - int(real.tasks.start_ns.min()) < 200_000
    assert int(real.tasks.end_ns.max()) < last
    inside = (real.parts.start_ns >= first) & (real.parts.end_ns <= last)
    assert inside.all()


def test_a_byte_order_mark_alone_is_an_empty_table(tmp_path: Path) -> None:
    path = tmp_path / "marked.txt"
    path.write_bytes(b"\xef\xbb\xbf")
    with pytest.raises(SourceError, match="is empty"):
        list(read_last_cells(path, ("start", "end"), LossLog(path)))
