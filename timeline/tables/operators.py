"""Tables of operators by type and source, by step, and as the framework describes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from timeline.analysis.questions import EVERY_ROW
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.work.kernel_bounds import bounds_of
from timeline.analysis.work.operators import OperatorSteps
from timeline.analysis.work.shape_work import rates_of
from timeline.columns.columns import Codes, Float64, Int64
from timeline.columns.group_by import group_by
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import (
    FrameworkOperators,
    OperatorSource,
    OperatorSums,
    RunLevel,
)
from timeline.tables.table import (
    Columns,
    Json,
    Method,
    Run,
    Spec,
    Table,
    given,
    join_parts,
    longest_first,
    longest_lines,
    no_numbers,
    number_rows,
    sum_rows,
    texts_or_none,
)

MOST_REPORTED_STEPS = 20_000
"""Maximum number of rows of operators by step in a report."""
_TASKS = "tasks"
_SOURCE = """
    text source: tasks, or the MindSpore file with the sums: aicore_intermediate (of a mean \
        step), aicpu_intermediate, or aicpu (the log of the AI CPUs)
    """
_TIMES = """
    count, total_ns = Total, shortest_ns = Min, longest_ns = Max
    waited_ns: total gap between each run and the kernel before it, as in kernel_details.csv
    """
_SUMS = """
    mean_ns
    dispatch_ns: of AI CPUs, until the task began
    run_ns: of AI CPUs, from the start of the task
    share share: of the total of its source and rank
    """
_BOUNDS = """
    text bound = Bound by: the busiest pipe of the AI Core (cube, vector, scalar, mte1, mte2, \
        mte3 or fixpipe), or latency if none is busy 30% of the time; null if not measured
    share bound_share = Busy: of the time in which that pipe is busy
    real cores: in use, a mean weighted by duration, from blocks; if these are not recorded, or \
        may run in waves, busy on average, from cycles
    real clock_ghz = Clock (GHz): of the cores
    share outside_core = Outside cores: of the time in which no core runs the kernel
    """
_WORK = """
    real flop = Work in FLOP: of all runs, from shapes
    real flop_per_s = Rate in FLOP/s: in the time of runs with known shapes
    share utilization: of the peak of the device
    real moved_bytes: inputs and outputs of all runs, from shapes
    """
_LINE = """
    text line = Line of code: of the program, that launched most of its time, by call stacks; \
        null if unknown
    """
_ONE_ROW = ", longest first; each compute task and communication op is in one row of tasks"

OPERATORS = Spec(
    "operators",
    "rank and operator, with name and shapes if requested",
    f"""
    rank
    communication: 1 or 0
    label type
    label core: type of core that ran it
    label name
    label shapes: of inputs
    {_TIMES}{_BOUNDS}{_WORK}{_LINE}""",
    lambda run: map(_operators, _with_records(run.facts)),
)
OPERATOR_SUMS: Spec = Spec(
    "operator_sums",
    "rank, source and type of operator, and core, longest first; those of tasks come first",
    f"""
    rank
    {_SOURCE}label type: empty if the log names no operators
    text core
    count, total_ns = Time
    {_SUMS}{_BOUNDS}{_WORK}{_LINE}""",
    lambda run: (
        *longest_first(map(_of_tasks, run.facts), OPERATOR_SUMS.kinds),
        *_sums_of_files(OPERATOR_SUMS, run, RunLevel.TYPE),
    ),
    Json("operators"),
)
OPERATOR_DETAILS: Spec = Spec(
    "operator_details",
    "rank, file of sums and single operator",
    f"""
    rank
    {_SOURCE}label type: empty if the log names no operators
    text core
    count, total_ns = Time
    {_SUMS}{_BOUNDS}{_WORK}{_LINE}label name
    """,
    lambda run: _sums_of_files(OPERATOR_DETAILS, run, RunLevel.NAME),
)
OPERATORS_BY_TYPE = Spec(
    "operators_by_type",
    f"rank, source and type of operator{_ONE_ROW}",
    f"""
    rank
    communication: 1 or 0
    label type
    label core: type of core that ran it
    label shapes: empty
    {_TIMES}{_SOURCE}{_SUMS}{_BOUNDS}{_WORK}{_LINE}""",
    lambda run: [_with_file_sums(run, "operator_sums")],
    method=Method("operators", by="type"),
)
OPERATORS_BY_NAME = Spec(
    "operators_by_name",
    f"rank, source, operator and shapes{_ONE_ROW}",
    f"""
    rank
    communication: 1 or 0
    label type
    label core: type of core that ran it
    label name
    label shapes: of inputs
    {_TIMES}{_SOURCE}{_SUMS}{_BOUNDS}{_WORK}{_LINE}""",
    lambda run: [_with_file_sums(run, "operator_details")],
    method=Method("operators", by="name", questions={"named_operators": EVERY_ROW}),
)
OPERATOR_STEPS = Spec(
    "operator_steps",
    "rank, step and type, operator or kernel; from the rank's dynamic_shape_info file, else from "
    "its tasks and communication ops in steps",
    """
    rank, step
    text level: type, name (an operator and its shapes) or kernel (of GPUs)
    text side: cpu or gpu, if a file names it
    text type, name
    text shapes: of inputs
    count, total_ns = Time, mean_ns
    """,
    lambda run: (_steps_of(rank.rank, rank.operator_steps) for rank in run.facts),
    method=Method(
        "operator_steps", levels=("type", "name", "kernel"), questions={"every_run": True}
    ),
)
REPORTED_OPERATOR_STEPS = Spec(
    "reported_operator_steps",
    "rank, step and type, operator or kernel",
    """
    rank, step
    text level: type, name (an operator and its shapes) or kernel (of GPUs)
    text side: cpu or gpu, if a file names it
    text type, name
    text shapes: of inputs
    count, total_ns = Time, mean_ns
    """,
    lambda run: _reported_steps(run),  # noqa: PLW0108 - defined below
    Json("operator_steps"),
    note="Tasks have the level type; `dynamic_shape_info_N.json`, if there, name and kernel too. "
    "At most about 20 000 rows: if there are more, the types with the least time share a row "
    "without a type in each step",
)
FRAMEWORK = Spec(
    "framework",
    "operator as MindSpore describes it to the device",
    """
    rank, graph, stream
    task: its id on the device
    label name
    text type
    block_dim: number of blocks it is split into
    text inputs: a list of objects with `format`, `type` and `shape`
    text outputs: as inputs
    """,
    lambda run: map(_described, run.facts),
    Json(
        "framework",
        lambda run, table: [] if any(rank.tasks for rank in run.facts) else table.to_dicts(),
        more="; empty if the profile has tasks",
    ),
    Method("framework"),
)


def _operators(facts: RankFacts) -> Columns:
    times = facts.operators.times
    every = np.arange(len(times))
    return OPERATORS.part(
        facts.rank,
        times,
        facts.operators.strings,
        communication=times.communication.astype(np.int64),
        waited_ns=times.waited_ns if facts.operators.has_waits else no_numbers(len(times)),
        **_bounds([facts], [every], len(times)),
        line=_lines(facts, every, len(times)),
    )


def _with_records(facts: Sequence[RankFacts]) -> Sequence[RankFacts]:
    """Return the ranks with device records, or all if no rank has any."""
    return [rank for rank in facts if rank.tasks or rank.communication_ops] or facts


def total_by_type(
    operators: Table, *, by_name: bool = False, facts: Sequence[RankFacts] = ()
) -> Table:
    """Sum the operators of all ranks: a row per type and core, longest first.

    waited_ns is masked if any rank does not know it. What bounds an operator, and its rate, follow
    from the sums over all ranks and shapes.

    Args:
        operators: rows of OPERATORS.
        by_name: a row for each name too, if figures have names.
        facts: of all ranks, of which the operators are; without them, nothing bounds operators.
    """
    keys = ("communication", "type", "core", *(("name",) if by_name else ()))
    if not len(operators):
        operators = OPERATORS.of_rows()
    unknown = np.ma.getmaskarray(operators["waited_ns"]).astype(np.int64)
    order = np.argsort(-operators["total_ns"], kind="stable")
    rows = Table({**operators.columns, "unknown": unknown}).take(order)
    totals = sum_rows(
        rows,
        keys,
        ("count", "total_ns", "waited_ns", "unknown"),
        least=("shortest_ns",),
        largest=("longest_ns",),
    )
    group = np.zeros(len(rows), np.int64)
    group[order] = number_rows(rows, keys)
    waited_ns = np.ma.masked_array(totals["waited_ns"], totals["unknown"] > 0)
    ranks = _with_records(facts)
    first = np.cumsum([0, *(len(rank.operators.times) for rank in ranks)])
    groups = [group[start:end] for start, end in pairwise(first.tolist())]
    bounds = _bounds(ranks, groups, len(totals)) if facts else _unbound(len(totals))
    line = longest_lines(rows, totals, keys)
    totals = Table({**totals.columns, "waited_ns": waited_ns, **bounds, "line": line})
    return Table(*longest_first([totals.columns], totals.columns))


def _bounds(
    facts: Sequence[RankFacts], group: Sequence[Int64], groups: int
) -> dict[str, npt.NDArray[Any]]:
    """Return what bounds groups of operators, and their work.

    group: for each rank, (operators,) group of each row of its times.
    """
    kernels = [one.operators.kernels for one in facts]
    bounds = bounds_of(zip(kernels, group, strict=True), groups)
    rates = rates_of(zip([one.operators.shapes for one in facts], group, strict=True), groups)
    return {
        "bound": texts_or_none(bounds.bound),
        **{name: np.ma.masked_invalid(getattr(bounds, name)) for name in _MEASURED},
        **{name: np.ma.masked_invalid(getattr(rates, name)) for name in _RATED},
    }


def _lines(facts: RankFacts, group: Int64, groups: int) -> npt.NDArray[Any]:
    """Return the line of code that launched most of each group of one rank's operators.

    group: (operators,) the group of each row of OperatorTimes.
    """
    lines = facts.operators.lines.longest(group, groups)
    return texts_or_none(np.array(facts.operators.strings, object)[lines])


_MEASURED = ("bound_share", "cores", "clock_ghz", "outside_core")
_RATED = ("flop", "flop_per_s", "utilization", "moved_bytes")


def _unbound(rows: int) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of what bounds operators, of which nothing was measured."""
    unknown = np.ma.masked_array(np.zeros(rows), True)
    bound = np.full(rows, None, object)
    return {"bound": bound, **dict.fromkeys((*_MEASURED, *_RATED), unknown)}


def _with_file_sums(run: Run, sums: str) -> Columns:
    """Return the operators of tasks, longest first, then those that MindSpore's files sum up.

    sums: the name of the table of operators by source; only its rows from files are added.
    """
    operators, files = run["operators"], run[sums]
    files = files.take(files["source"] != _TASKS)
    count = len(operators)
    total_ns = np.asarray(operators["total_ns"])
    added = {
        "source": np.full(count, _TASKS, object),
        "mean_ns": _mean(total_ns, np.asarray(operators["count"])),
        "dispatch_ns": no_numbers(count),
        "run_ns": no_numbers(count),
        "share": _share(total_ns, [np.asarray(operators["rank"])]),
    }
    empty, absent = np.full(len(files), "", object), no_numbers(len(files))
    below = {
        "communication": np.zeros(len(files), np.int64),
        **dict.fromkeys(("name", "shapes"), empty),
        **dict.fromkeys(("shortest_ns", "longest_ns", "waited_ns"), absent),
        **files.columns,
        "core": np.where(files["core"] == None, "", files["core"]),  # noqa: E711 - row by row
    }
    joined = {**operators.columns, **added}
    return join_parts([*longest_first([joined], joined), below], joined)


def _of_tasks(facts: RankFacts) -> Columns:
    """Sum compute tasks and communication ops of one rank by type and core."""
    times = facts.operators.times
    keys = (times.communication.astype(np.int64), times.type, times.core)
    groups = group_by(len(times), keys)
    first = groups.first
    strings = np.array(facts.operators.strings, object)
    count, total_ns = groups.sum(times.count), groups.sum(times.total_ns)
    return {
        "rank": np.full(len(first), facts.rank, np.int64),
        "source": np.full(len(first), _TASKS, object),
        "type": strings[times.type[first]],
        "core": texts_or_none(strings[times.core[first]]),
        "count": count,
        "total_ns": total_ns,
        "mean_ns": _mean(total_ns, count),
        "dispatch_ns": no_numbers(len(first)),
        "run_ns": no_numbers(len(first)),
        "share": _share(total_ns, [np.zeros(len(first), np.int64)]),
        **_bounds([facts], [groups.group], len(first)),
        "line": _lines(facts, groups.group, len(first)),
    }


def _sums_of_files(spec: Spec, run: Run, level: RunLevel) -> list[Columns]:
    """Return what the files of all ranks sum up, longest first."""
    parts = (part for rank in run.facts for part in _of_files(spec, rank, level))
    return longest_first(parts, spec.kinds)


def _of_files(spec: Spec, facts: RankFacts, level: RunLevel) -> Iterator[Columns]:
    sums = facts.profiler_tables.of(OperatorSums)
    sums = sums.take(sums.level == level)
    if not len(sums):
        return
    strings = facts.profiler_tables.strings
    names = np.array([source.name.lower() for source in OperatorSource], object)
    unknown = sums.total_ns == NO_TIME
    shares = _share(np.where(unknown, 0, sums.total_ns), [sums.source])
    yield spec.part(
        facts.rank,
        sums,
        strings,
        source=names[sums.source],
        type=np.array([*strings], object)[sums.kind],
        share=np.ma.masked_array(shares, unknown),
        line=np.full(len(sums), None, object),
        **_unbound(len(sums)),
    )


def _reported_steps(run: Run) -> Table | Iterator[Columns]:
    """Return the rows of OPERATOR_STEPS for a report, about MOST_REPORTED_STEPS at most.

    If there are more, the types with the least time share one row in each step.
    """
    if len(run["operator_steps"]) <= MOST_REPORTED_STEPS:
        return run["operator_steps"]
    most = max(1, MOST_REPORTED_STEPS // len(run.facts))
    return (_steps_of(rank.rank, rank.operator_steps.limited(most)) for rank in run.facts)


def _steps_of(rank: int, steps: OperatorSteps) -> Columns:
    runs = steps.runs
    types = texts_or_none(steps.strings)[runs.kind]
    types[runs.rest] = None
    return OPERATOR_STEPS.part(
        rank,
        runs,
        steps.strings,
        level=np.array([level.name.lower() for level in RunLevel], object)[runs.level],
        type=types,
        mean_ns=_mean(runs.total_ns, runs.count),
    )


def _described(facts: RankFacts) -> Columns:
    rows = facts.profiler_tables.of(FrameworkOperators)
    strings = np.array([*facts.profiler_tables.strings], object)
    return FRAMEWORK.part(
        facts.rank,
        rows,
        strings,
        type=texts_or_none(strings[rows.kind]),
        block_dim=given(rows.blocks, NO_ID),
        inputs=_tensors(strings, rows.inputs),
        outputs=_tensors(strings, rows.outputs),
    )


def _tensors(strings: npt.NDArray[np.object_], codes: Codes) -> npt.NDArray[np.object_]:
    """Return the parsed JSON list of each row, None for an empty string."""
    parsed = {code: orjson.loads(strings[code]) for code in np.unique(codes).tolist() if code}
    tensors = np.empty(len(codes), object)
    for row, code in enumerate(codes.tolist()):
        tensors[row] = parsed.get(code)
    return tensors


def _mean(total_ns: Int64, count: Int64) -> npt.NDArray[Any]:
    """Return the mean in whole ns, rounded; masked if nothing ran."""
    divisor = np.maximum(count, 1)
    mean_ns = (2 * total_ns + divisor) // (2 * divisor)
    return np.ma.masked_array(mean_ns, count < 1) if (count < 1).any() else mean_ns


def _share(total_ns: Int64, keys: Sequence[Int64]) -> npt.NDArray[np.float64]:
    """Return each row's share of the sum of all rows with equal keys."""
    groups = group_by(len(total_ns), keys)
    of_ns = groups.sum(total_ns)[groups.group]
    share: npt.NDArray[np.float64] = total_ns / np.maximum(of_ns, 1)
    return share


MOST_CURVES = 8
"""Maximum number of types with a curve of their own."""


@dataclass(frozen=True)
class OperatorCurves:
    """Time in each step of the operator types with the most time, longest first.

    steps: (C,), ascending. types: (K,). mean_ns: (K, C), mean of the ranks that ran the step.
    totals_ns: (K,) over all steps and ranks. others, others_ns: number and total time of all other
    types; the time may include a part of a type with a curve, where a rank's rows were merged.
    """

    steps: Int64
    types: tuple[str, ...]
    mean_ns: Float64
    totals_ns: Int64
    others: int
    others_ns: int


def operator_curves(steps: Table, operators: Table) -> OperatorCurves | None:
    """Return the curves of types, None if there are fewer than two steps.

    steps: rows of OPERATOR_STEPS. operators: rows of OPERATORS; types that only communicate have
    no curve.
    """
    if not len(steps):
        return None
    computing = operators["communication"] == 0
    collectives = set(operators["type"][~computing]) - set(operators["type"][computing])
    left_out = np.array([kind in collectives for kind in steps["type"].tolist()], np.bool_)
    in_steps = (steps["level"] == "type") & ~np.ma.getmaskarray(steps["step"])
    rows = steps.take(in_steps & ~left_out)
    numbers, at = np.unique(np.asarray(rows["step"]), return_inverse=True)
    if len(numbers) < 2:
        return None
    total_ns = np.asarray(rows["total_ns"])
    is_rest = np.array([kind is None for kind in rows["type"].tolist()], np.bool_)
    types, kind = np.unique(np.where(is_rest, "", rows["type"]), return_inverse=True)
    totals_ns = np.zeros(len(types), np.int64)
    np.add.at(totals_ns, kind[~is_rest], total_ns[~is_rest])
    shown = np.argsort(-totals_ns, kind="stable")[:MOST_CURVES]
    shown = shown[totals_ns[shown] > 0]
    curve = np.full(len(types), NO_ID)
    curve[shown] = np.arange(len(shown))
    drawn = ~is_rest & (curve[kind] != NO_ID)
    sums_ns = np.zeros((len(shown), len(numbers)), np.int64)
    np.add.at(sums_ns, (curve[kind[drawn]], at[drawn]), total_ns[drawn])
    ranks = np.unique(np.stack([at, np.asarray(rows["rank"])], axis=1), axis=0)
    ran = np.bincount(ranks[:, 0], minlength=len(numbers))
    return OperatorCurves(
        numbers,
        tuple(types[shown].tolist()),
        sums_ns / ran,
        totals_ns[shown],
        int(np.count_nonzero(totals_ns)) - len(shown),
        int(total_ns.sum() - totals_ns[shown].sum()),
    )
