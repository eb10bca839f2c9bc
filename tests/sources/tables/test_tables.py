"""Proves that tables alone show what the run was, and that damage to them is counted."""

from __future__ import annotations

import bz2
import csv
import functools
import gzip
import io
import lzma
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.model import Collective, RankRun, Step
from simulator.overlap import expected_overlap
from tests.support.examples import at_most
from tests.support.found_profiles import only, same
from tests.support.places import DATA
from tests.support.profile_shelf import Copier, Profile, ProfileShelf
from timeline.analysis.cut import cut
from timeline.analysis.overlap import measure_overlap
from timeline.analysis.steps import with_steps
from timeline.columns.columns import Codes
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.options import StepOperators
from timeline.ranks.rank_work import RankRequest, draw_rank_from_source
from timeline.records.not_given import NO_CONTEXT, NO_ID, NO_TIME
from timeline.records.tables import Records, Tasks
from timeline.selection import DETAIL_LAYERS, Selection
from timeline.sources.common import kernel_table
from timeline.sources.common.kernel_table import read_step_table
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders import csv_blocks
from timeline.sources.decoders.csv_blocks import RowShape, read_blocks
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest, Source

LAYOUTS = ("kernel-details", "op-summary", "summary-directory")
REAL = DATA / "torch-npu-text"


def sources_of(path: Path, assigned: dict[str, int] | None = None) -> list[Source]:
    return list(discover(path, assigned).sources)


def read(source: Source) -> Records:
    return source.read(ReadRequest(DETAIL_LAYERS))


def read_one(path: Path) -> Records:
    (source,) = sources_of(path)
    return read(source)


def names_of(records: Records, codes: Codes) -> list[str]:
    return [records.strings[code] for code in codes.tolist()]


def collectives_of(step: RankRun | Step) -> list[Collective]:
    return [found for one in step.iterations for found in one.collectives]


def compute_rows(records: Records) -> list[tuple[object, ...]]:
    tasks, strings = records.tasks.take(records.tasks.compute), records.strings
    return [
        (*ids, *(strings[code] for code in codes))
        for ids, codes in zip(
            zip(tasks.start_ns, tasks.end_ns, tasks.stream, tasks.task, tasks.context, strict=True),
            zip(tasks.name, tasks.op_type, tasks.task_type, tasks.input_shapes, strict=True),
            strict=True,
        )
    ]


def wanted_rows(rank: RankRun, *, scoped: bool) -> list[tuple[object, ...]]:
    return [
        (
            task.start_ns,
            task.end_ns,
            task.stream,
            task.task_id,
            task.context_id,
            kernel.scope if scoped else kernel.name,
            kernel.op_type,
            kernel.core,
            kernel.input_shapes,
        )
        for one in rank.iterations
        for task, kernel in one.kernels
    ]


# -- what tables show ------------------------------------------------------------------------------


def test_task_time_adds_what_is_no_kernel(shelf: ProfileShelf) -> None:
    """Each device task is there once, though two tables have kernels, by two names."""
    profile = shelf.get("op-summary", graphs=(1, 3))
    for source in sources_of(profile.path):
        rank = profile.run.rank(source.identity.rank)
        records = read(source)
        tasks = [*rank.switches, *(task for one in rank.iterations for task in one.tasks)]
        found = records.tasks
        same(
            zip(found.start_ns, found.end_ns, found.stream, found.task, strict=True),
            ((task.start_ns, task.end_ns, task.stream, task.task_id) for task in tasks),
        )
        (omission,) = records.omissions
        assert omission.rows == sum(1 for task in tasks if task.kernel)
        assert not omission.loss
        assert "" not in {records.strings[name] for name in found.name.tolist()}


def test_tasks_of_a_step_are_selected_with_it(shelf: ProfileShelf) -> None:
    """task_time names no graph; a transfer goes with the step that it starts in."""
    profile = shelf.get("op-summary", graphs=(1, 3))
    (source, _) = sources_of(profile.path)
    records = with_steps(read(source), StepOperators())
    part = cut(records, Selection(layers=DETAIL_LAYERS, steps=frozenset({2}))).records
    wanted = [task for one in profile.run.rank(0).steps[1].iterations for task in one.tasks]
    same(part.tasks.start_ns.tolist(), (task.start_ns for task in wanted))


@pytest.mark.parametrize("graphs", [(1,), (1, 3)])
def test_task_time_alone(copied: Copier, graphs: tuple[int, ...]) -> None:
    """Types tell what computes, the step trace tells steps, and there is no communication."""
    profile = copied("op-summary", graphs=graphs)
    for path in profile.path.rglob("op_summary_*.csv"):
        path.unlink()
    for source in sources_of(profile.path):
        rank = profile.run.rank(source.identity.rank)
        records = read(source)
        assert source.layout == "task_time"
        computing = records.tasks.take(records.tasks.compute)
        kernels = [task for one in rank.iterations for task, _ in one.kernels]
        same(computing.start_ns.tolist(), (task.start_ns for task in kernels))
        assert len(records.ops) == 0
        wanted = expected_overlap(profile.run, rank.rank)["computing_ns"]
        assert measure_overlap(records.tasks, records.ops).computing.total_ns == wanted
        same(
            zip(records.steps.graph, records.steps.iteration, records.steps.end_ns, strict=True),
            ((one.graph, one.number, one.end_ns) for one in rank.iterations),
        )


def test_steps_of_kernel_details_span_their_rows(shelf: ProfileShelf) -> None:
    profile = shelf.get("kernel-details")
    for source in sources_of(profile.path):
        steps = read(source).steps
        wanted = []
        for step in profile.run.rank(source.identity.rank).steps:
            spans = [
                (task.start_ns, task.end_ns) for one in step.iterations for task, _ in one.kernels
            ]
            spans += [(op.start_ns, op.end_ns) for one in step.iterations for op in one.collectives]
            wanted.append((step.id, min(span[0] for span in spans), max(span[1] for span in spans)))
        assert list(zip(steps.iteration, steps.start_ns, steps.end_ns, strict=True)) == wanted


def test_groups_of_ops(copied: Copier) -> None:
    """communication.json tells the groups of ops; without it their names number them."""
    profile = copied("kernel-details", ranks=1)
    output = profile.captures[0] / "ASCEND_PROFILER_OUTPUT"
    records = read_one(profile.path)
    assert {records.strings[code] for code in records.ops.group.tolist()} == {"Group 0"}
    names = sorted({records.strings[code] for code in records.ops.name.tolist()})
    keys = ", ".join(f'"{name}@12{at % 2}": {{}}' for at, name in enumerate(names))
    text = f'{{"step1": {{"p2p": {{}}, "collective": {{{keys}, "Total Op Info": {{}}}}}}}}'
    (output / "communication.json").write_text(text, encoding="utf-8")
    records = read_one(profile.path)
    found = {
        records.strings[name]: (records.strings[group], records.strings[called])
        for name, group, called in zip(
            records.ops.name.tolist(),
            records.ops.group.tolist(),
            records.ops.group_name.tolist(),
            strict=True,
        )
    }
    assert {name: called for name, (_, called) in found.items()} == {
        name: f"12{at % 2}" for at, name in enumerate(names)
    }
    assert len({group for group, _ in found.values()}) == min(2, len(names))
    (output / "communication.json").write_text("{", encoding="utf-8")
    assert "communication.json" in "".join(read_one(profile.path).warnings)


def test_steps_without_rows_are_remarked(copied: Copier) -> None:
    profile = copied("kernel-details", ranks=1)
    assert read_one(profile.path).warnings == ()
    path = profile.captures[0] / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv"
    path.write_text(path.read_text(encoding="utf-8") + "17,1,1,0,1,1,3,0,1,1\n", encoding="utf-8")
    (warning,) = read_one(profile.path).warnings
    assert "steps 17" in warning


# -- where tables lie ------------------------------------------------------------------------------


def loose(profile: Profile, target: Path) -> list[Path]:
    """The tables of each rank in a directory of its own that is named after nothing."""
    made = []
    for number, capture in enumerate(profile.captures):
        folder = target / f"card{number}"
        folder.mkdir(parents=True)
        for path in capture.rglob("*.csv"):
            shutil.copy(path, folder)
        made.append(folder)
    return made


@pytest.mark.parametrize("layout", LAYOUTS)
def test_loose_tables_tell_no_rank(shelf: ProfileShelf, tmp_path: Path, layout: str) -> None:
    """It comes from --assign-rank or from the name of a directory; else they are numbered."""
    folders = loose(shelf.get(layout), tmp_path / "run")
    assert [one.identity.rank for one in sources_of(tmp_path / "run")] == [0, 1]
    assert "not distributed" in discover(tmp_path / "run").notes[0]
    assigned = {folder.name: 7 - number for number, folder in enumerate(folders)}
    assert [one.identity.rank for one in sources_of(tmp_path / "run", assigned)] == [6, 7]
    for number, folder in enumerate(folders):
        folder.rename(folder.with_name(f"rank_{number}"))
    sources = sources_of(tmp_path / "run")
    assert [one.identity.rank for one in sources] == [0, 1]
    wanted = wanted_rows(shelf.get(layout).run.rank(1), scoped=layout != "kernel-details")
    same(compute_rows(read(sources[1])), wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_found_from_inside_and_from_one_table(shelf: ProfileShelf, layout: str) -> None:
    profile = shelf.get(layout)
    pattern = "kernel_details.csv" if layout == "kernel-details" else "op_summary_*.csv"
    table = next(iter(sorted(profile.captures[1].rglob(pattern))))
    for path in (profile.captures[1], table.parent, table):
        (source,) = sources_of(path)
        assert source.identity.rank == 1
        assert source.identity.directory.resolve() == profile.captures[1].resolve()


@pytest.mark.parametrize("layout", ["torch-text", "mindstudio", "mindspore-2.1"])
def test_what_is_richer_wins(shelf: ProfileShelf, tmp_path: Path, layout: str) -> None:
    """A trace beside tables is read, unless the path is a table."""
    profile = shelf.copy(layout, tmp_path / "run", ranks=1)
    (capture,) = profile.captures
    if layout == "mindspore-2.1":
        folder = next(capture.glob("device_0")) / "summary"
        folder.mkdir(exist_ok=True)
        for path in shelf.get("summary-directory", ranks=1).path.rglob("*.csv"):
            shutil.copy(path, folder)
    (source,) = sources_of(profile.path)
    assert source.layout in ("trace_view.json", "mindstudio_profiler_output", "device_N/timeline")
    tables = [*capture.rglob("kernel_details.csv"), *capture.rglob("op_summary_*.csv")]
    (source,) = sources_of(tables[0])
    assert source.layout in ("kernel_details.csv", "op_summary")
    assert source.identity.rank == 0
    assert len(read(source).ops)


def test_tables_above_captures_hide_nothing(shelf: ProfileShelf, tmp_path: Path) -> None:
    """A stray table in a directory of captures is passed over, whatever those are."""
    for layout in ("torch-db", "kernel-details"):
        profile = shelf.copy(layout, tmp_path / layout)
        table = next(iter(shelf.get("kernel-details").path.rglob("kernel_details.csv")))
        shutil.copy(table, profile.path)
        assert [one.identity.rank for one in sources_of(profile.path)] == [0, 1]


def test_raw_data_below_tables_is_passed_over(copied: Copier) -> None:
    profile = copied("kernel-details", ranks=1)
    (profile.captures[0] / "PROF_000001_20250109120000123_AAAA" / "device_0" / "data").mkdir(
        parents=True
    )
    (source,) = sources_of(profile.path)
    assert source.layout == "kernel_details.csv"


def test_export_below_a_framework_table_is_richer(shelf: ProfileShelf, tmp_path: Path) -> None:
    profile = shelf.copy("kernel-details", tmp_path / "run", ranks=1)
    shutil.copytree(
        shelf.get("mindstudio", ranks=1).captures[0],
        profile.captures[0] / "PROF_000001_20250109120000123_AAAA",
    )
    (source,) = sources_of(profile.path)
    assert source.layout == "mindstudio_profiler_output"


def test_several_devices_in_one_table(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Two devices in the tables of one export are two ranks, each with its own rows."""
    profile = shelf.copy("op-summary", tmp_path / "run")
    first, second = profile.captures
    for path in sorted((first / "mindstudio_profiler_output").glob("*.csv")):
        other = second / "mindstudio_profiler_output" / path.name
        rows = other.read_text(encoding="utf-8").splitlines(keepends=True)[1:]
        path.write_text(path.read_text(encoding="utf-8") + "".join(rows), encoding="utf-8")
    shutil.move(second / "device_1", first / "device_1")
    shutil.rmtree(second)
    sources = sources_of(profile.path)
    assert [one.identity.rank for one in sources] == [0, 1]
    for source in sources:
        rank = profile.run.rank(source.identity.rank)
        same(compute_rows(read(source)), wanted_rows(rank, scoped=True))
    folder = tmp_path / "rank_5"
    folder.mkdir()
    shutil.copy(next(iter(first.rglob("op_summary_*.csv"))), folder)
    assert "devices 0,1" in "".join(read_one(folder).warnings)


def test_newest_export_wins(copied: Copier) -> None:
    """Tables of an earlier export lie beside the newer ones, and are not read."""
    profile = copied("op-summary", ranks=1)
    wanted = len(read_one(profile.path).tasks)
    for path in list(profile.path.rglob("*_2025*.csv")):
        kind = path.name.rpartition("_")[0]
        shutil.copy(path, path.with_name(f"{kind}_20240101000000.csv"))
    assert len(read_one(profile.path).tasks) == wanted


# -- broken tables ---------------------------------------------------------------------------------


def in_slices(path: Path) -> None:
    """Cut a table as msprof does, which leaves the number out of the first slice."""
    header, *rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
    half = len(rows) // 2
    kind, _, stamp = path.stem.rpartition("_")
    path.write_text(header + "".join(rows[:half]), encoding="utf-8", newline="")
    other = path.with_name(f"{kind}_slice_1_{stamp}.csv")
    other.write_text(header + "".join(rows[half:]), encoding="utf-8", newline="")


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return write


def with_header_again(data: bytes) -> bytes:
    header, *rows = data.splitlines(keepends=True)
    return b"".join([header, *rows[:3], b"\xef\xbb\xbf" + header, *rows[3:], b"\n", b"  \r\n"])


def quoted(data: bytes) -> bytes:
    """Every cell in quotes."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows(csv.reader(io.StringIO(data.decode())))
    return out.getvalue().encode()


@pytest.mark.parametrize(
    "change",
    [
        in_slices,
        rewritten(lambda data: b"\xef\xbb\xbf" + data),
        rewritten(lambda data: data.replace(b"\n", b"\r\n")),
        rewritten(lambda data: data.replace(b"\t", b"")),
        rewritten(lambda data: data.rstrip(b"\n")),
        rewritten(with_header_again),
        rewritten(quoted),
    ],
    ids=["slices", "mark", "CRLF", "no tabs", "no last line end", "repeated header", "all quoted"],
)
def test_spellings_of_one_table(copied: Copier, change: Callable[[Path], None]) -> None:
    """However a table is written, it says the same and nothing is lost."""
    profile = copied("op-summary", ranks=1)
    change(next(iter(profile.path.rglob("op_summary_*.csv"))))
    records = read_one(profile.path)
    same(compute_rows(records), wanted_rows(profile.run.rank(0), scoped=True))
    assert [one for one in records.omissions if one.loss] == []


def changed_cell(column: str, text: str, row: int = 3) -> Callable[[bytes], bytes]:
    """Replace one cell of one data row."""

    def change(data: bytes) -> bytes:
        rows = list(csv.reader(io.StringIO(data.decode())))
        rows[row][rows[0].index(column)] = text
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(rows)
        return out.getvalue().encode()

    return change


def cut_in_the_last_row(data: bytes) -> bytes:
    """What is left when the writer stopped within a time, which then looks like an earlier one."""
    last = data.rindex(b"\n", 0, len(data) - 2)
    return data[: data.index(b".", last) - 4]


@pytest.mark.parametrize(
    ("change", "reason", "line"),
    [
        (changed_cell("Start Time(us)", "N/A"), "without a start and a duration", 4),
        (changed_cell("Start Time(us)", "NaN\t"), "without a start and a duration", 4),
        (changed_cell("Duration(us)", "N/A"), "without a start and a duration", 4),
        (changed_cell("Duration(us)", ""), "without a start and a duration", 4),
        (changed_cell("Name", 'a"b,c'), None, 0),
        (changed_cell("Task ID", "9" * 30), None, 0),
        (changed_cell("Input Shapes", "\U0001f600" * 40), None, 0),
        (cut_in_the_last_row, "that are cut off", -1),
        (lambda data: data + b"1,2,\xff\xfe\n", "without a start and a duration", -1),
        (lambda data: data.replace(b'"""', b'""', 1), None, 0),
        (lambda data: data + b"\0\0\0\0\n", "without a start and a duration", -1),
    ],
    ids=[
        "no start",
        "start is no number",
        "no duration",
        "empty duration",
        "name with a quote",
        "id beyond 64 bits",
        "long cell",
        "last row cut off",
        "bytes that are no text",
        "quote that is not closed",
        "zeros at the end",
    ],
)
def test_damage_costs_one_row_and_is_counted(
    copied: Copier, change: Callable[[bytes], bytes], reason: str | None, line: int
) -> None:
    """Everything else is read; what is lost is counted with the file and the line."""
    profile = copied("kernel-details", ranks=1)
    path = next(iter(profile.path.rglob("kernel_details.csv")))
    whole = read_one(profile.path)
    before = len(path.read_bytes().splitlines())
    path.write_bytes(change(path.read_bytes()))
    after = len(path.read_bytes().splitlines())
    records = read_one(profile.path)
    losses = [one for one in records.omissions if one.loss]
    kept = len(records.tasks) + len(records.ops)
    if reason is None:
        assert losses == []
        assert kept == len(whole.tasks) + len(whole.ops)
    else:
        (loss,) = losses
        assert loss.rows == 1
        wanted = after if line < 0 else line
        assert loss.reason == f"kernel_details.csv: rows {reason}, the first at line {wanted}"
        assert kept == len(whole.tasks) + len(whole.ops) - (after == before)
    assert set(records.tasks.start_ns.tolist()) <= set(whole.tasks.start_ns.tolist())


@pytest.mark.parametrize("end", ["", ",", ",Wait Ti", "\n"])
def test_a_header_that_breaks_off_is_told(copied: Copier, end: str) -> None:
    """A table that was cut within its header, behind the columns it needs, is no empty table."""
    profile = copied("kernel-details", ranks=1)
    path = next(iter(profile.path.rglob("kernel_details.csv")))
    path.write_text("\nName,Start Time(us),Duration(us)" + end, encoding="utf-8")
    reasons = [one.reason for one in read_one(profile.path).omissions if one.loss]
    cut = "kernel_details.csv: headers that are cut off, with all rows, the first at line 2"
    assert reasons == ([] if end == "\n" else [cut])


@pytest.mark.parametrize("content", ["", "\n\n", "Name,Type\na,b\n", "\0\0\0\0"])
def test_a_table_without_times_is_an_error(copied: Copier, content: str) -> None:
    """The message names the file and the column that is missing."""
    profile = copied("kernel-details", ranks=1)
    path = next(iter(profile.path.rglob("kernel_details.csv")))
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SourceError, match=r"kernel_details\.csv: has no column Start Time\(us\)"):
        read_one(profile.path)


def test_columns_of_level_0(copied: Copier) -> None:
    """Eight columns: no streams, no ids, no shapes; task_time still adds no kernel twice."""
    profile = copied("op-summary", ranks=1)
    path = next(iter(profile.path.rglob("op_summary_*.csv")))
    names = ("Op Name", "OP Type", "Task Type", "Task Start Time(us)", "Task Duration(us)")
    with path.open(encoding="utf-8", newline="") as file:
        rows = [[row[name] for name in names] for row in csv.DictReader(file)]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    records = read_one(profile.path)
    rank = profile.run.rank(0)
    tasks = [*rank.switches, *(task for one in rank.iterations for task in one.tasks)]
    same(records.tasks.start_ns.tolist(), (task.start_ns for task in tasks))
    assert measure_overlap(records.tasks, records.ops).totals_ns() == expected_overlap(
        profile.run, 0
    )
    bare = records.tasks.take(records.tasks.compute)
    assert set(bare.stream.tolist()) | set(bare.task.tolist()) == {NO_ID}
    assert set(bare.context.tolist()) == {NO_CONTEXT}


@pytest.mark.parametrize("core", ["COMMUNICATION", "AI_VECTOR_CORE"])
def test_communication_kernels_are_tasks(copied: Copier, core: str) -> None:
    """A row that runs communication on vector cores is drawn on its stream and computes not."""
    profile = copied("op-summary", ranks=1)
    whole = read_one(profile.path)
    path = next(iter(profile.path.rglob("op_summary_*.csv")))
    data = changed_cell("Op Name", "hcom_allReduce_AivKernel", 1)(path.read_bytes())
    path.write_bytes(changed_cell("Task Type", core, 1)(data))
    records = read_one(profile.path)
    assert len(records.ops) == len(whole.ops)
    assert len(records.tasks) == len(whole.tasks)
    assert records.tasks.compute.sum() == whole.tasks.compute.sum() - 1


@pytest.mark.parametrize("in_ns", [True, False])
@pytest.mark.parametrize("layout", ["op-summary", "kernel-details", "mindstudio", "torch-text"])
def test_starts_without_a_unit(copied: Copier, layout: str, in_ns: bool) -> None:
    """Writers before mid-2023 wrote nanoseconds; microseconds are told by kernels that must fit."""
    profile = copied(layout, ranks=1)
    for path in profile.path.rglob("task_time_*.csv"):
        path.unlink()
    whole = read_one(profile.path)
    (path,) = [*profile.path.rglob("op_summary_*.csv"), *profile.path.rglob("kernel_details.csv")]
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    at = next(place for place, name in enumerate(header) if name.endswith("Start Time(us)"))
    header[at] = header[at].removesuffix("(us)")
    for row in rows if in_ns else ():
        row[at] = row[at].replace(".", "")
    if layout in ("kernel-details", "torch-text"):
        kept = [place for place, name in enumerate(header) if name not in ("Stream ID", "Task ID")]
        header, *rows = [[row[place] for place in kept] for row in (header, *rows)]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    found = read_one(profile.path)
    assert len(found.tasks) > 0
    for name in ("start_ns", "end_ns", "compute"):
        assert getattr(found.tasks, name).tolist() == getattr(whole.tasks, name).tolist()
    assert found.warnings == whole.warnings


def test_the_unit_of_starts_follows_from_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle seconds fill the first block; only later kernels show that starts are microseconds."""
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 256)
    idle = [f"idle,{second * 10**6},0.5" for second in range(1, 60)]
    busy = [f"busy,{10**8 + at * 10**4},10000" for at in range(100)]
    path = tmp_path / "kernel_details.csv"
    path.write_text("\n".join(["Name,Start Time,Duration(us)", *idle, *busy]), encoding="utf-8")
    wanted = {**kernel_table.DESCRIPTION, **kernel_table.EXECUTION}
    file = kernel_table.KernelTableFile(path)
    rows = kernel_table.read_kernel_rows(file, StringPool(), wanted, LossLog(path))
    assert rows.start_ns.tolist()[:2] == [10**9, 2 * 10**9]
    assert rows.end_ns.tolist()[-1] == (10**8 + 10**6) * 1000


@pytest.mark.parametrize("layout", ["mindstudio", "torch-text"])
def test_rows_of_another_name_and_length_are_found_by_their_ids(
    copied: Copier, layout: str
) -> None:
    """A row with the stream, the task id and the start of a task is its row; ids alone repeat."""
    profile = copied(layout, ranks=1)
    whole = read_one(profile.path)
    (path,) = [*profile.path.rglob("op_summary_*.csv"), *profile.path.rglob("kernel_details.csv")]
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    name, length, task = (
        next(place for place, text in enumerate(header) if text in texts)
        for texts in (("Name", "Op Name"), ("Duration(us)", "Task Duration(us)"), ("Task ID",))
    )
    for row in rows:
        if row[task].isdigit():
            row[name], row[length] = f"scope/{row[name]}", str(float(row[length]) + 1)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    found = read_one(profile.path)
    assert found.tasks.compute.tolist() == whole.tasks.compute.tolist()
    assert names_of(found, found.tasks.op_type) == names_of(whole, whole.tasks.op_type)
    assert found.warnings == whole.warnings


def test_ops_of_ranks_have_one_name_wherever_a_launch_was_found(shelf: ProfileShelf) -> None:
    """MindSpore puts the launch before the name of an op, on one rank and not on the other."""
    profile = shelf.get("mindspore-2.6-tables")
    tables = [only(capture, "kernel_details.csv") for capture in profile.captures]
    lines = [path.read_text(encoding="utf-8").splitlines() for path in tables]
    with_launch = [["/hcom_" in line for line in some if "hcom_" in line] for some in lines]
    assert with_launch[0] != with_launch[1]
    for rank, source in enumerate(sources_of(profile.path)):
        records = read(source)
        names = [records.strings[code] for code in records.ops.name.tolist()]
        assert names == [one.name for one in collectives_of(profile.run.ranks[rank])]


CELLS = st.text(
    st.characters(codec="utf-8", exclude_characters='\r\n\t \0"\ufeff'), max_size=30
) | (st.sampled_from(["a,b", 'a""b', '"', "1,2;3,4", ""]))


@settings(max_examples=at_most(60))
@given(
    rows=st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=12),
    ends=st.sampled_from(["\n", "\r\n"]),
    block_bytes=st.integers(8, 200),
)
def test_cells_are_those_of_the_csv_module(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], ends: str, block_bytes: int
) -> None:
    """Whatever is in cells, and wherever blocks end, as long as a row is a line."""
    out = io.StringIO()
    csv.writer(out, lineterminator=ends).writerows([["one", "two", "three"], *rows])
    path = tmp_path_factory.mktemp("cells") / "table.csv"
    path.write_bytes(out.getvalue().encode())
    wanted = {key: (key,) for key in ("one", "three")}
    strings = StringPool()
    found: list[list[str]] = [[], []]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_blocks, "BLOCK_BYTES", block_bytes)
        for block in read_blocks(path, wanted, ("one",), LossLog(path)):
            for at, key in enumerate(wanted):
                codes = block.codes(key, strings, str)
                found[at] += [strings[code] for code in codes.tolist()]
    kept = [row for row in rows if row != ["one", "two", "three"]]
    assert found == [[row[0] for row in kept], [row[2] for row in kept]]


@settings(max_examples=at_most(60))
@given(st.lists(st.integers(-5, 10**19) | st.sampled_from(["N/A", "", "7.0", "12\t", "x"])))
def test_ids_are_read_exactly(
    tmp_path_factory: pytest.TempPathFactory, values: list[int | str]
) -> None:
    """Ids that fit 64 bits, as integers or as reals without a fraction; all others are absent."""
    path = tmp_path_factory.mktemp("ids") / "table.csv"
    path.write_text("id,x\n" + "".join(f"{value},1\n" for value in values), encoding="utf-8")
    found: list[int] = []
    for block in read_blocks(path, {"id": ("id",)}, ("id",), LossLog(path)):
        found += block.integers("id", -9).tolist()
    wanted = []
    for value in values:
        text = str(value).strip().removesuffix(".0")
        is_id = text.lstrip("-").isdigit() and int(text) < 1 << 63
        wanted.append(int(text) if is_id else -9)
    assert found == wanted


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": functools.partial(lzma.compress, preset=0),  # fast, and read alike
}


@pytest.mark.parametrize("way", PACKERS)
def test_a_packed_table_that_breaks_off_gives_the_rows_before(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole lines before the break are rows, in order; the break is one loss with its line."""
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", 1 << 14)
    dice = random.Random(3)
    values = [dice.getrandbits(60) for _ in range(100_000)]
    packed = PACKERS[way]("".join(["id,x\n", *(f"{value},1\n" for value in values)]).encode())
    path = tmp_path / "table.csv"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    damage = LossLog(path)
    found: list[int] = []
    for block in read_blocks(path, {"id": ("id",)}, ("id",), damage):
        found += block.integers("id", -9).tolist()
    assert 10_000 < len(found) < 90_000
    assert found == values[: len(found)]
    (loss,) = damage.omissions(0)
    line = len(found) + 2
    what = "compressed content that cannot be unpacked"
    assert loss.reason == f"table.csv: {what}, the first at line {line}"


def test_rows_of_another_width(tmp_path: Path) -> None:
    """Where rows must be full, others are noted by line; empty cells behind a row are none."""
    path = tmp_path / "table.csv"
    path.write_text("id,x\n1,2\n3,4,,\n5\n6,7,8\n\nid,x\n9,\n", encoding="utf-8")
    damage = LossLog(path)
    (block,) = read_blocks(path, None, (), damage, RowShape.FULL)
    assert block.integers("id", -1).tolist() == [1, 3, 9]
    assert block.lines.tolist() == [2, 3, 8]
    (loss,) = damage.omissions(0)
    assert (loss.rows, loss.reason.rpartition(" ")[2]) == (2, "4")


def test_steps_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    """Reduces beyond the header belong to their row; rows without a time are noted."""
    path = tmp_path / "step_trace_0.csv"
    path.write_text(
        "Iteration ID,FP Start(us),BP End(us),Iteration End(us),Iteration Time(us),"
        "Reduce Start(us),Reduce Duration(us)\n"
        "1,N/A,0,20,10.5,12,1,15,2.5\n2,21,29,N/A,10\n3,31,39,40,10,\n4,1,2,3",
        encoding="utf-8",
    )
    damage = LossLog(path)
    steps, parts = read_step_table(path, None, damage)
    assert steps.iteration.tolist() == [1, 3]
    assert steps.start_ns.tolist() == [9_500, 30_000]
    assert steps.fp_start_ns.tolist() == [NO_TIME, 31_000]
    assert parts.start_ns.tolist() == [12_000, 15_000]
    assert parts.end_ns.tolist() == [13_000, 17_500]
    assert {one.reason.rpartition(" ")[2]: one.rows for one in damage.omissions(0)} == {
        "3": 1,
        "5": 1,
    }


# -- real tables -----------------------------------------------------------------------------------


@pytest.fixture
def real_tables(tmp_path: Path) -> Path:
    """The tables of the real capture, without its trace."""
    if not REAL.is_dir():
        pytest.skip(f"the real captures are not beside the project, in {REAL}")
    for capture in REAL.iterdir():
        target = tmp_path / "real" / capture.name
        (target / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
        for path in capture.glob("*.json"):
            shutil.copy(path, target)
        for name in ("kernel_details.csv", "step_trace_time.csv", "communication.json"):
            shutil.copy(
                capture / "ASCEND_PROFILER_OUTPUT" / name, target / "ASCEND_PROFILER_OUTPUT"
            )
    return tmp_path / "real"


def edges(tasks: Tasks) -> np.ndarray:
    """Start and end of compute tasks, in order."""
    computing = tasks.take(tasks.compute)
    order = np.lexsort((computing.end_ns, computing.start_ns))
    return np.stack([computing.start_ns[order], computing.end_ns[order]])


def test_real_tables_tell_what_the_trace_does(real_tables: Path) -> None:
    """The same compute tasks within 1 ns, and ops within 2: the table cuts off what is finer."""
    for bare, full in zip(sources_of(real_tables), sources_of(REAL), strict=True):
        assert bare.layout == "kernel_details.csv"
        assert bare.identity.rank == full.identity.rank
        found, wanted = read(bare), read(full)
        assert found.tasks.compute.all()
        assert edges(found.tasks).shape == edges(wanted.tasks).shape == (2, 187)
        assert np.abs(edges(found.tasks) - edges(wanted.tasks)).max() <= 1
        for name in ("start_ns", "end_ns"):
            assert np.abs(getattr(found.ops, name) - getattr(wanted.ops, name)).max() <= 2
        for name in ("name", "group"):
            same(
                names_of(found, getattr(found.ops, name)),
                names_of(wanted, getattr(wanted.ops, name)),
            )
        computing = wanted.tasks.take(wanted.tasks.compute)
        for name in ("stream", "task", "context", "graph"):
            same(getattr(found.tasks, name).tolist(), getattr(computing, name).tolist())
        for name in ("name", "op_type", "input_shapes"):
            same(
                names_of(found, getattr(found.tasks, name)),
                names_of(wanted, getattr(computing, name)),
            )
        assert found.warnings == ()
        assert found.omissions == ()


def test_real_tables_equal_step_trace_time(real_tables: Path) -> None:
    """Each sum within 25 ns of the vendor's: it adds up to 187 rounded durations."""
    for source in sources_of(real_tables):
        facts = draw_rank_from_source(
            source, RankRequest(Selection(layers=DETAIL_LAYERS), draw=False)
        ).facts
        path = source.files[1]
        assert path.name == "step_trace_time.csv"
        with path.open(newline="", encoding="utf-8") as file:
            (row,) = csv.DictReader(file)
        assert facts.steps.iteration.tolist() == [int(row["Step"])]
        for name, column in (
            ("computing_ns", "Computing"),
            ("communication_ns", "Communication"),
            ("not_overlapped_ns", "Communication(Not Overlapped)"),
            ("free_ns", "Free"),
        ):
            (found,) = getattr(facts.step_totals, name).tolist()
            assert abs(found - float(row[column]) * 1000) <= 25, column
