"""Proves that sums of operators, tasks, copies and memory are those of a walk over all records."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_tables import table_of
from tests.support.places import DATA, needs_captures
from tests.support.profile_shelf import ProfileShelf
from timeline.analysis.memory import memory_peaks
from timeline.analysis.steps import Membership
from timeline.analysis.work.operator_names import operator_type
from timeline.analysis.work.operators import (
    LONGEST_OPS,
    OperatorFigures,
    OperatorSteps,
    kernel_waits,
    operator_figures,
)
from timeline.analysis.work.task_sums import sum_tasks
from timeline.columns.strings import NO_NAME, StringPool
from timeline.commands.export import export
from timeline.layers import Layer
from timeline.profile import open_profile
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import OperatorRuns, RunLevel
from timeline.records.tables import GPU, CommunicationOps, Records, Tasks
from timeline.records.task_kinds import collective_kind
from timeline.selection import Kind, Selection
from timeline.sources.source import ReadRequest
from timeline.tables.operators import OPERATORS, total_by_type
from timeline.tables.table import Table

# -- operators -------------------------------------------------------------------------------------


NAMES = (
    "trans_TransData_0",
    "Default/network/Cast-op239",
    "aclnnMm_MatMulCommon_MatMulV2",
    "",
    "task 4 (AI CORE)",
)
TYPES = ("", "", "Cast", "MatMulV2", "N/A")
CORES = ("AI_CORE", "AI_CPU", "")
OPS = ("hcom_allReduce__586_0_1", "Default/AllReduce-op7", "hcom_receive__1_2_3", "own")
Key = tuple[bool, str, str, str]
Times = tuple[int, int, int, int]
"""Count, total, shortest and longest."""


@st.composite
def _records(draw: st.DrawFn) -> Records:
    """A rank with some tasks, of which some compute, and some ops."""
    strings = StringPool()
    task = st.tuples(
        st.integers(0, 50),
        st.integers(0, 9),
        st.sampled_from(NAMES),
        st.sampled_from(TYPES),
        st.sampled_from(CORES),
        st.booleans(),
    )
    op = st.tuples(st.integers(0, 50), st.integers(0, 9), st.sampled_from(OPS))
    tasks, ops = draw(st.lists(task, max_size=15)), draw(st.lists(op, max_size=30))
    return Records(
        0,
        strings,
        tasks=table_of(
            Tasks,
            [
                {
                    "start_ns": start,
                    "end_ns": start + length,
                    "name": name,
                    "op_type": kind,
                    "task_type": core,
                    "compute": computes,
                }
                for start, length, name, kind, core, computes in tasks
            ],
            strings,
        ),
        ops=table_of(
            CommunicationOps,
            [{"start_ns": one[0], "end_ns": one[0] + one[1], "name": one[2]} for one in ops],
            strings,
            group="group",
        ),
    )


def _walked(records: Records, *, by_name: bool) -> dict[Key, Times]:
    lengths: dict[Key, list[int]] = defaultdict(list)
    strings, tasks, ops = records.strings, records.tasks, records.ops
    for at in range(len(tasks)):
        if tasks.compute[at]:
            name = strings[tasks.name[at]]
            core = strings[tasks.task_type[at]]
            kind = strings[tasks.op_type[at]] or operator_type(name) or core
            key = (False, kind, core, name if by_name else "")
            lengths[key].append(int(tasks.end_ns[at] - tasks.start_ns[at]))
    for at in range(len(ops)):
        name = strings[ops.name[at]]
        key = (True, collective_kind(name), "", name if by_name else "")
        lengths[key].append(int(ops.end_ns[at] - ops.start_ns[at]))
    return {key: (len(found), sum(found), min(found), max(found)) for key, found in lengths.items()}


def _found(figures: OperatorFigures) -> Iterator[tuple[Key, Times]]:
    times, strings = figures.times, figures.strings
    for at in range(len(times)):
        kind, core, name = (strings[one[at]] for one in (times.type, times.core, times.name))
        yield (
            (bool(times.communication[at]), kind, core, name),
            (
                int(times.count[at]),
                int(times.total_ns[at]),
                int(times.shortest_ns[at]),
                int(times.longest_ns[at]),
            ),
        )


@given(records=_records(), by_name=st.booleans())
def test_times_are_those_of_a_plain_walk(records: Records, by_name: bool) -> None:
    """Count, sum, shortest and longest per type and core (and name), each pair in one row."""
    ids = np.arange(len(records.ops))
    figures = operator_figures(records, ids, most_names=1000 if by_name else 0)
    found = list(_found(figures))
    assert len({key for key, _ in found}) == len(found)
    assert dict(found) == _walked(records, by_name=by_name)


def test_types_of_gpus_are_those_of_launching_operators() -> None:
    """Else the kernel's own; kernels of one graph of a compiler are one type."""
    strings = StringPool()
    gemm = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64>(cutlass_80_x::Params)"
    rows = [
        (gemm, "aten::mm", "aten::mm"),
        (gemm, "", "CUTLASS GEMM"),
        (gemm, "## Call CompiledFxGraph 1 ##", "CUTLASS GEMM"),
        ("triton_poi_fused_add_1", "triton_poi_fused_add_1", "triton_poi_fused_add"),
        ("triton_poi_fused_add_2", "", "triton_poi_fused_add"),
    ]
    named = [{"name": name, "op_type": kind} for name, kind, _ in rows]
    tasks = table_of(Tasks, named, strings, start_ns=0, end_ns=1, compute=True)
    figures = operator_figures(Records(0, strings, tasks=tasks, hardware=GPU), np.arange(0))
    found = {
        figures.strings[kind]: count
        for kind, count in zip(
            figures.times.type.tolist(), figures.times.count.tolist(), strict=True
        )
    }
    assert found == {"aten::mm": 1, "CUTLASS GEMM": 2, "triton_poi_fused_add": 2}


@given(records=_records())
def test_the_longest_ops_are_the_longest(records: Records) -> None:
    """Longest first, with the name and step of each."""
    ids = np.arange(len(records.ops)) + 100
    longest = operator_figures(records, ids)
    lengths = records.ops.end_ns - records.ops.start_ns
    found = longest.longest
    assert (found.end_ns - found.start_ns).tolist() == sorted(lengths.tolist())[::-1][:LONGEST_OPS]
    assert len(set(found.iteration.tolist())) == len(found)
    for at in range(len(found)):
        row = int(found.iteration[at]) - 100
        assert longest.strings[found.name[at]] == records.strings[records.ops.name[row]]
        assert found.start_ns[at] == records.ops.start_ns[row]


@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from(["A", "B", "C"]),
            st.sampled_from(["", "AI_CORE"]),
            st.integers(1, 9),
            st.integers(0, 99),
            st.integers(0, 9),
            st.integers(0, 99),
            st.none() | st.integers(0, 99),
        ),
        max_size=12,
    )
)
def test_totals_by_type_are_those_of_all_ranks(
    rows: list[tuple[int, str, str, int, int, int, int, int | None]],
) -> None:
    """Rows of one type and core become one, longest first; waits are told if all are known."""
    names = ("communication", "type", "core", "count", "total_ns", "shortest_ns", "longest_ns")
    kinds = {name: object if at in (1, 2) else int for at, name in enumerate((*names, "waited_ns"))}
    table = Table.of_rows(kinds | OPERATORS.kinds, [(*row, *[None] * 20) for row in rows])
    wanted: dict[tuple[int, str, str], tuple[int, int, int, int, int | None]] = {}
    for communication, kind, core, count, total, shortest, longest, waited in rows:
        old = wanted.get((communication, kind, core), (0, 0, 1 << 60, 0, 0))
        wanted[communication, kind, core] = (
            old[0] + count,
            old[1] + total,
            min(old[2], shortest),
            max(old[3], longest),
            None if old[4] is None or waited is None else old[4] + waited,
        )
    totals = total_by_type(table).to_dicts()
    found = [tuple(row[name] for name in (*names, "waited_ns")) for row in totals]
    assert {row[:3]: row[3:] for row in found} == wanted
    assert len(found) == len(wanted)
    assert [row[4] for row in found] == sorted((row[4] for row in found), reverse=True)


HASH = "0123456789abcdef0123456789abcdef"
TYPES_BY_NAME = {
    # operators of graphs, with the numbers of their copies; versions have one digit
    "Default/network/Cast-op239": "Cast",
    "Default/network-Part/gradients/Conv2DBackpropInput-op3": "Conv2DBackpropInput",
    "Default/network/FusionOp_Conv2D_ReluV2-op3": "FusionOp_Conv2D_ReluV2",
    "Default/network/Fused_Add_split-op17": "Fused_Add_split",
    "Add116": "Add",
    "Conv2D12": "Conv2D",
    "Conv2D": "Conv2D",
    "TopKV241": "TopKV2",
    "SoftmaxV2": "SoftmaxV2",
    "RealDiv53": "RealDiv",
    "MyPool2dGrad71LeftMatMul": "MatMul",
    "ReduceMean12_MemSet": "MemSet",
    "atomic_memset-1_271": "MemSet",
    "trans_TransData_0": "TransData",
    "trans_Cast_10": "Cast",
    "QuantMatMulV3_12": "QuantMatMulV3",
    # single calls
    "aclnnAdd_AddAiCore_Add": "Add",
    "aclnnMm_MatMulCommon_MemSet": "MemSet",
    "aclnnPool2dBackward_TransDataSpecial_TransData": "TransData",
    "aclnnSift_SiftKernel_sift_custom": "sift_custom",
    "aclnnSift": "Sift",
    # what the compiler calls kernels
    f"Add_{HASH}_high_performance_210000000": "Add",
    f"FlashScore_{HASH}_10000000000022420943_mix_aic": "FlashScore",
    f"Diag_{HASH}_high_precision_mix_aic_mix_aiv__kernel0": "Diag",
    f"te_gatherv2_{HASH}{HASH}_1__kernel0": "gatherv2",
    f"te_cast_{HASH}_static_bin": "cast",
    "Fused_Mul_13570952190744021808_0__kernel0": "Fused_Mul",
    "Foo_0_mix_aic": "Foo",
    "matmul_custom_1301_mix_aiv": "matmul_custom",
    # kernels that are no operators
    "add_kernel": "add_kernel",
    "_slot_mapping_kernel": "_slot_mapping_kernel",
    "LAB_relu_kernel_2d": "LAB_relu_kernel_2d",
    "sparse_kernel_aic8_tile256": "sparse_kernel_aic8_tile256",
    "fused_high_performance": "fused_high_performance",
    "void ops::add_custom<half, 4>(unsigned char*)": "add_custom",
    "_Z10add_customPhS_": "add_custom",
    # types of tasks that have no name
    "KERNEL_AIVEC": "KERNEL_AIVEC",
    "TASK_TIMEOUT_SET": "TASK_TIMEOUT_SET",
    # places of tasks that have no name: what ran them tells more
    "stream 3 task 4 (AI CORE)": "",
    "task 4 context 2 (AI CPU)": "",
    "": "",
}


@pytest.mark.parametrize(("name", "kind"), TYPES_BY_NAME.items())
def test_types_told_by_names(name: str, kind: str) -> None:
    assert operator_type(name) == kind


@given(st.text("aZ09_-/<>(),:* é", max_size=30) | st.text(max_size=20))
def test_no_name_makes_debris_of_a_type(name: str) -> None:
    """A type holds no bracket that a template or a parameter began, whatever the name is."""
    assert not set(operator_type(name)) & set("<(")


def test_tasks_without_a_name_have_the_type_of_what_ran_them(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """Raw data tells neither names nor types of operators."""
    for kind in Kind:
        target = tmp_path / f"{kind.value}.pftrace"
        report = export(shelf.get("raw").path, target, kind=kind).to_dict()
        operators = report["verdict"]["operators"]
        assert operators
        assert all(operator["type"] == operator["core"] for operator in operators)


@needs_captures
@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(
    ("capture", "types"),
    [
        ("cann9-matmul/PROF_000001_20260716*", {"BatchMatMulV2"}),
        ("cann9-div/PROF_*", {"RealDiv"}),
        ("cann9-add/PROF_000001_20260716124543725*", {"add_kernel"}),
        ("cann9-relu/PROF_*", {"PYPTO_relu_kernel_2d"}),
        ("cann-ffts/PROF_*", {"spmm_kernel_aic8_ktile256"}),
    ],
)
def test_types_of_real_captures_that_name_none(
    tmp_path: Path, capture: str, types: set[str], kind: Kind
) -> None:
    """Each ran one operator, of which only the name is known; one tells its type."""
    (path,) = (DATA / "msprof-single").glob(capture)
    report = export(path, tmp_path / "timeline.pftrace", kind=kind).to_dict()
    assert {operator["type"] for operator in report["verdict"]["operators"]} == types


@needs_captures
def test_types_told_by_real_names() -> None:
    """The type of every operator of a real run follows from its name; vendors give both."""
    told = 0
    for path in DATA.rglob("kernel_details.csv"):
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["Accelerator Core"] in ("HCCL", "COMMUNICATION"):
                    assert collective_kind(row["Name"]) != row["Name"]
                else:
                    assert operator_type(row["Name"]) == row["Type"], row["Name"]
                    told += 1
    assert told > 100


KINDS = ("", "Add", "Cast", "MatMul", "Softmax")


def _sums_by_rank(table: Table) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    columns = (table[name].tolist() for name in ("rank", "type", "total_ns"))
    for rank, kind, total_ns in zip(*columns, strict=True):
        found[rank, kind] += total_ns
    return found


@pytest.mark.filterwarnings("ignore::timeline.errors.TimelineWarning")
@pytest.mark.parametrize("layout", ["torch-text", "mindspore-2.1", "kineto", "mindspore-text"])
def test_steps_sum_up_to_operators(shelf: ProfileShelf, layout: str) -> None:
    """Where steps are selected every task lies in one: their operators are all operators."""
    with open_profile(shelf.get(layout).path) as profile:
        steps = sorted({step for step in profile.steps()["step"].tolist() if step is not None})
        selection = Selection(steps=frozenset(steps))
        operators = profile.operators(selection)
        expected = _sums_by_rank(operators.take(operators["source"] == "tasks"))
        assert expected
        for level in ("type", "name"):
            found = profile.operator_steps(selection, level)
            assert set(found["step"].tolist()) == set(steps)
            assert _sums_by_rank(found) == expected
        every = profile.operator_steps(selection)
        assert set(every["level"].tolist()) == {"type", "name"}


@pytest.mark.filterwarnings("ignore::timeline.errors.TimelineWarning")
@pytest.mark.parametrize(
    ("layout", "told"), [("torch-text", False), ("torch-db", False), ("mindspore-tables", True)]
)
def test_they_are_worked_out_for_those_who_see_them(
    shelf: ProfileShelf, tmp_path: Path, layout: str, *, told: bool
) -> None:
    """The file does not hold them; those that the profiler tells are read in any case."""
    path = shelf.get(layout).path
    whole, plain, page = (tmp_path / name for name in ("whole.pftrace", "plain.pftrace", "page"))
    every = export(path, whole).figures.operator_steps
    assert len(every)
    found = export(path, plain, operator_steps=False)
    assert len(found.figures.operator_steps) == (len(every) if told else 0)
    assert plain.read_bytes() == whole.read_bytes()
    report = page.with_suffix(".html")
    shown = export(path, plain, operator_steps=False, report=report, force=True)
    assert len(shown.figures.operator_steps) == len(every)


@st.composite
def _runs(draw: st.DrawFn) -> OperatorRuns:
    keys = draw(
        st.sets(st.tuples(st.integers(0, 9), st.integers(0, len(KINDS) - 1)), min_size=1).map(
            sorted
        )
    )
    count = len(keys)
    times = draw(st.lists(st.integers(1, 10**6), min_size=count, max_size=count))
    return OperatorRuns.of(
        count,
        {
            "step": [step for step, _ in keys],
            "level": np.full(count, RunLevel.TYPE),
            "kind": [kind for _, kind in keys],
            "count": np.ones(count, np.int64),
            "total_ns": times,
        },
    )


@given(runs=_runs(), most=st.integers(1, 60), again=st.integers(1, 60))
def test_a_limit_keeps_all_sums(runs: OperatorRuns, most: int, again: int) -> None:
    """There are so many rows at most; what they sum up is the same, and kept rows are as before."""
    limited = OperatorSteps(KINDS, runs).limited(most).limited(again).runs
    assert len(limited) <= min(most, again)
    assert limited.count.sum() == runs.count.sum()
    assert limited.total_ns.sum() == runs.total_ns.sum()
    before = {
        (step, kind): total_ns
        for step, kind, total_ns in zip(runs.step, runs.kind, runs.total_ns, strict=True)
    }
    kept = limited.take(~limited.rest)
    for step, kind, total_ns in zip(kept.step, kept.kind, kept.total_ns, strict=True):
        assert before[step, kind] == total_ns
    if len(runs) <= min(most, again):
        assert not limited.rest.any() and not (limited.step == NO_ID).any()


def test_names_go_where_there_is_no_room() -> None:
    """Single operators and kernels are left out before a type is."""
    types = OperatorRuns.of(
        2, {"step": [1, 2], "level": [0, 0], "kind": [1, 1], "count": [1, 1], "total_ns": [5, 5]}
    )
    names = replace(types, level=np.ones(2, np.int64), name=np.array([2, 2], np.int32))
    steps = OperatorSteps(KINDS, OperatorRuns.concat([types, names]))
    assert len(steps.limited(4).runs) == 4
    assert steps.limited(3).runs.level.tolist() == [0, 0]


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.integers(0, 2)), max_size=8)


def spans_of(
    tasks: list[tuple[int, int, int]], ops: list[tuple[int, int, int]], computes: list[bool]
) -> Records:
    """Spans of start, length and step; all from one moment on, of which floats lose digits."""
    pool = StringPool()
    name = int(pool.codes(["one"])[0])

    def columns(spans: list[tuple[int, int, int]]) -> dict[str, np.ndarray]:
        start_ns = np.array([start for start, _, _ in spans], np.int64) + 1_736_424_000_130_953_241
        lengths_ns = np.array([length for _, length, _ in spans], np.int64)
        names = np.full(len(spans), name, np.int32)
        return {"start_ns": start_ns, "end_ns": start_ns + lengths_ns, "name": names}

    mask = np.array(computes[: len(tasks)], np.bool_)
    return Records(
        0,
        pool,
        tasks=Tasks.of(len(tasks), {**columns(tasks), "compute": mask}),
        ops=CommunicationOps.of(len(ops), {**columns(ops), "group": np.zeros(len(ops), np.int32)}),
    )


@given(SPANS, SPANS, st.lists(st.booleans(), min_size=8, max_size=8), st.booleans())
def test_waits_are_those_of_a_plain_walk(
    tasks: list[tuple[int, int, int]],
    ops: list[tuple[int, int, int]],
    computes: list[bool],
    by_step: bool,
) -> None:
    """Since the end of what began before, among what computes and communicates."""
    records = spans_of(tasks, ops, computes)
    none = np.zeros(0, np.int64)
    membership = Membership(
        np.array([step for _, _, step in tasks], np.int64),
        np.array([step for _, _, step in ops], np.int64),
        none,
        np.full(0, NO_TIME),
        none,
    )
    found = kernel_waits(records, membership if by_step else None)
    kernels = [(*span, "task", at) for at, span in enumerate(tasks) if computes[at]]
    kernels += [(*span, "op", at) for at, span in enumerate(ops)]
    kernels.sort(key=lambda kernel: kernel[0])
    expected = {("task", at): 0 for at in range(len(tasks))}
    for before, (start, _, step, table, at) in zip([None, *kernels], kernels, strict=False):
        counts = before is not None and not (by_step and before[2] != step)
        waited = start - (before[0] + before[1]) if before is not None and counts else 0
        expected[table, at] = max(0, waited)
    assert found.tasks.tolist() == [expected["task", at] for at in range(len(tasks))]
    assert found.ops.tolist() == [expected["op", at] for at in range(len(ops))]


@pytest.mark.skipif(not (DATA / "torch-npu-text").exists(), reason="needs the real captures")
def test_they_are_those_of_kernel_details(tmp_path: Path) -> None:
    """Of each type, to the ns that each of its runs is rounded by."""
    figures = export(DATA / "torch-npu-text", tmp_path / "a.pftrace").figures
    totals = total_by_type(figures.operators).to_dicts()
    ours = {row["type"]: row for row in totals if not row["communication"]}
    listed: dict[str, int] = {}
    for file in (DATA / "torch-npu-text").glob("rank*/ASCEND_PROFILER_OUTPUT/kernel_details.csv"):
        with file.open(newline="") as lines:
            for line in csv.DictReader(lines):
                waited_ns = round(Decimal(line["Wait Time(us)"].strip()) * 1000)
                listed[line["Type"]] = listed.get(line["Type"], 0) + waited_ns
    collectives = {kind for kind in listed if kind.startswith("hcom")}
    assert set(ours) == set(listed) - collectives
    for kind, row in ours.items():
        assert abs(row["waited_ns"] - listed[kind]) <= row["count"], kind
    theirs = sum(row["waited_ns"] for row in totals if row["communication"])
    assert abs(theirs - sum(listed[kind] for kind in collectives)) <= 8


# -- tasks, copies and memory ----------------------------------------------------------------------


SIZES = {"B": 1, "KB": 1024, "MB": 1024**2}


def read(path: Path) -> Records:
    with open_profile(path) as profile:
        return profile.sources[0].read(ReadRequest(frozenset(Layer)))


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "msprof-sqlite"])
def test_every_hccl_task_is_in_one_sum(layout: str, shelf: ProfileShelf) -> None:
    """With its length, and the kind of the op of its group around it, told or not."""
    records = read(shelf.get(layout).path)
    planes, ops, strings = records.planes, records.ops, records.strings
    expected = Counter[tuple[str, str]]()
    for group, name, start_ns, end_ns in zip(
        *(column.tolist() for column in (planes.group, planes.name, planes.start_ns)),
        planes.end_ns.tolist(),
        strict=True,
    ):
        around = (ops.group == group) & (ops.start_ns <= start_ns) & (end_ns <= ops.end_ns)
        (op,) = np.flatnonzero(around)
        expected[collective_kind(strings[ops.name[op]]), strings[name]] += end_ns - start_ns
    found = sum_tasks(records)
    its = found.times.take(found.times.hccl)
    assert int(its.count.sum()) == len(planes)
    assert expected == {
        (found.strings[kind], found.strings[task]): total_ns
        for kind, task, total_ns in zip(
            its.collective.tolist(), its.task.tolist(), its.total_ns.tolist(), strict=True
        )
    }


def test_copies_are_those_outside_of_collectives(shelf: ProfileShelf) -> None:
    """The twins of HCCL tasks, which copy too, are none."""
    records = read(shelf.get("torch-db").path)
    tasks, planes = records.tasks, records.planes
    twins = set(zip(planes.start_ns.tolist(), planes.end_ns.tolist(), strict=True))
    lengths = [
        end_ns - start_ns
        for start_ns, end_ns, copies in zip(
            tasks.start_ns.tolist(), tasks.end_ns.tolist(), tasks.copy.tolist(), strict=True
        )
        if copies and (start_ns, end_ns) not in twins
    ]
    times = sum_tasks(records).times
    copies = times.take(~times.hccl)
    assert lengths
    assert int(copies.count.sum()) == len(lengths)
    assert int(copies.total_ns.sum()) == sum(lengths)


@pytest.mark.parametrize("layout", ["torch-text", "torch-db"])
def test_memory_is_what_is_sampled_in_sizes(layout: str, shelf: ProfileShelf) -> None:
    """The largest sample in bytes; rates and frequencies are no memory."""
    records = read(shelf.get(layout).path)
    strings, series = records.strings, records.series
    expected = {}
    for row, unit in enumerate(strings[code] for code in series.unit.tolist()):
        values = records.samples.value[records.samples.series == row]
        if unit in SIZES and values.max() > 0:
            name = strings[series.group[row]], strings[series.name[row]]
            expected[name] = round(float(values.max()) * SIZES[unit])
    found = memory_peaks(records)
    table = found.table
    assert expected
    assert expected == {
        (found.strings[group], found.strings[name]): peak
        for group, name, peak in zip(
            table.group.tolist(), table.name.tolist(), table.peak_bytes.tolist(), strict=True
        )
    }
    assert memory_peaks(Records(0, strings)).table.peak_bytes.tolist() == []


@pytest.mark.parametrize("rank", [0, 1])
def test_small_transfers_are_those_of_the_profilers_distribution(rank: int) -> None:
    """Tasks on links of a real run are as many, and as many are small, as communication.json."""
    path = DATA / "torch-npu-text" / f"rank{rank}_ascend_pt"
    if not path.exists():
        pytest.skip("torch-npu-text is not beside the project")
    steps = json.loads((path / "ASCEND_PROFILER_OUTPUT" / "communication.json").read_bytes())
    packets = Counter[bool]()
    for kinds in steps.values():
        for ops in kinds.values():
            for name, op in ops.items():
                if name.startswith("Total"):
                    continue
                sizes = op["Communication Bandwidth Info"].get("HCCS", {})
                for size_mb, (count, _) in sizes.get("Size Distribution", {}).items():
                    packets[float(size_mb) < 16] += count
    with open_profile(path) as profile:
        links = profile.links()
    assert int(links["small_count"].sum()) == packets[True] > 0
    assert int(links["count"].sum()) == packets.total()


def test_the_line_of_an_operator_launched_most_of_its_time() -> None:
    """It is the line with most time over all tasks of a row, not the most frequent one."""
    strings = StringPool()
    code = strings.code
    lines = [code(f"a.py({number}): f") for number in (1, 2, 2, 2)] + [NO_NAME]
    times_ns = ((0, 50), (60, 70), (70, 80), (80, 90), (100, 300))
    tasks = Tasks.of(
        5,
        {
            "start_ns": np.array([start for start, _ in times_ns]),
            "end_ns": np.array([end for _, end in times_ns]),
            "name": np.full(5, code("add_1"), np.int32),
            "op_type": np.full(5, code("Add"), np.int32),
            "compute": np.ones(5, np.bool_),
            "line": np.array(lines, np.int32),
        },
    )
    figures = operator_figures(Records(0, strings, tasks=tasks), np.empty(0, np.int64))
    (line,) = figures.lines.longest(np.zeros(len(figures.times), np.int64), 1)
    assert figures.strings[line] == "a.py(1): f"
