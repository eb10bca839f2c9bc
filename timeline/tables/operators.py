"""Operators by type and source, by step, and as the framework describes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.work.operators import OperatorSteps
from timeline.columns.columns import Bool, Codes, Float64, Int64
from timeline.columns.group_by import group_by
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import (
    FrameworkOperators,
    OperatorSource,
    OperatorSums,
    RunLevel,
)
from timeline.tables.table import Table, join_parts, join_tables, masked_if_needed, no_numbers

OPERATORS: Mapping[str, type] = {
    "rank": int,
    "source": object,
    "type": object,
    "core": object,
    "count": int,
    "total_ns": int,
    "mean_ns": int,
    "dispatch_ns": int,
    "run_ns": int,
    "share": float,
}
OPERATOR_STEPS: Mapping[str, type] = {
    "rank": int,
    "step": int,
    "level": object,
    "side": object,
    "type": object,
    "name": object,
    "shapes": object,
    "count": int,
    "total_ns": int,
    "mean_ns": int,
}
FRAMEWORK: Mapping[str, type] = {
    "rank": int,
    "graph": int,
    "stream": int,
    "task": int,
    "name": object,
    "type": object,
    "block_dim": int,
    "inputs": object,
    "outputs": object,
}


MOST_TOLD_STEPS = 20_000
"""Rows of operators by step in a report."""
_TASKS = "tasks"


def operator_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.operators`."""
    # Operators of a host alone are told only where no device is recorded at all.
    on_device = [rank for rank in facts if rank.tasks or rank.communication_ops]
    return join_tables(map(_operators, on_device or facts))


def _operators(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    times = facts.operators.times
    strings = np.array(facts.operators.strings, object)
    return {
        "rank": np.full(len(times), facts.rank, np.int64),
        "communication": times.communication.astype(np.int64),
        "type": strings[times.type],
        "core": strings[times.core],
        "name": strings[times.name],
        "shapes": strings[times.shapes],
        "count": times.count,
        "total_ns": times.total_ns,
        "shortest_ns": times.shortest_ns,
        "longest_ns": times.longest_ns,
        "waited_ns": np.ma.masked_array(
            times.waited_ns, np.full(len(times), not facts.operators.tells_waits)
        ),
    }


def operator_sum_table(facts: Sequence[RankFacts]) -> Table:
    """Return a row per rank, source, operator type and core.

    source: tasks (communication ops too), or a file of sums: aicore_intermediate (of a mean step),
    aicpu_intermediate, aicpu (the log of the AI CPUs). count, total_ns, mean_ns: of runs.
    dispatch_ns, run_ns: of AI CPUs, until the task began, and then. share: of all of its source and
    rank. A type is empty where the source names none; what is not known is masked or None.
    """
    parts = (part for rank in facts for part in (_of_tasks(rank), *_of_files(rank, RunLevel.TYPE)))
    return _joined(parts, OPERATORS)


def operator_detail_table(facts: Sequence[RankFacts]) -> Table:
    """Return the sums of single operators in files: as `operator_sum_table`, with names."""
    kinds = {**OPERATORS, "name": object}
    parts = (part for rank in facts for part in _of_files(rank, RunLevel.NAME, named=True))
    return _joined(parts, kinds)


def with_file_sums(operators: Table, sums: Table) -> Table:
    """Operators of tasks, and of other sources below them.

    operators: see `Figures.operators`. sums: rows of `operator_sum_table`, or of
    `operator_detail_table`; those of tasks are left out.
    """
    files = sums.take(sums["source"] != _TASKS)
    count = len(operators)
    total_ns = np.asarray(operators["total_ns"])
    added = {
        "source": np.full(count, _TASKS, object),
        "mean_ns": _mean(total_ns, np.asarray(operators["count"])),
        "dispatch_ns": no_numbers(count),
        "run_ns": no_numbers(count),
        "share": _share(total_ns, [np.asarray(operators["rank"])]),
    }
    texts = np.full(len(files), "", object)
    below = {
        "communication": np.zeros(len(files), np.int64),
        "name": texts,
        "shapes": texts,
        "shortest_ns": no_numbers(len(files)),
        "longest_ns": no_numbers(len(files)),
        "waited_ns": no_numbers(len(files)),
        **files.columns,
        "core": np.where(files["core"] == None, "", files["core"]),  # noqa: E711 - row by row
    }
    joined = {**operators.columns, **added}
    every = join_parts([joined, below], joined)
    return Table({name: masked_if_needed(column) for name, column in every.items()})


def _of_tasks(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    """Compute tasks and communication ops of one rank by type and core, whatever else is told."""
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
        "core": _or_none(strings[times.core[first]]),
        "count": count,
        "total_ns": total_ns,
        "mean_ns": _mean(total_ns, count),
        "dispatch_ns": no_numbers(len(first)),
        "run_ns": no_numbers(len(first)),
        "share": _share(total_ns, [np.zeros(len(first), np.int64)]),
    }


def _of_files(
    facts: RankFacts, level: RunLevel, *, named: bool = False
) -> Iterator[dict[str, npt.NDArray[Any]]]:
    sums = facts.profiler_tables.of(OperatorSums)
    sums = sums.take(sums.level == level)
    if not len(sums):
        return
    strings = np.array(list(facts.profiler_tables.strings), object)
    names = np.array([source.name.lower() for source in OperatorSource], object)
    yield {
        "rank": np.full(len(sums), facts.rank, np.int64),
        "source": names[sums.source],
        "type": strings[sums.kind],
        "core": _or_none(strings[sums.core]),
        "count": np.ma.masked_equal(sums.count, NO_ID),
        "total_ns": np.ma.masked_equal(sums.total_ns, NO_TIME),
        "mean_ns": np.ma.masked_equal(sums.mean_ns, NO_TIME),
        "dispatch_ns": np.ma.masked_equal(sums.dispatch_ns, NO_TIME),
        "run_ns": np.ma.masked_equal(sums.run_ns, NO_TIME),
        "share": np.ma.masked_array(
            _share(np.where(sums.total_ns == NO_TIME, 0, sums.total_ns), [sums.source]),
            sums.total_ns == NO_TIME,
        ),
        **({"name": strings[sums.name]} if named else {}),
    }


def operator_step_table(facts: Sequence[RankFacts]) -> Table:
    """Return how often and how long each type, operator or kernel ran in each step of a rank.

    level: type, name (an operator and its shapes) or kernel. side: cpu or gpu, where a file tells
    it. shapes: of inputs. A row of the level type that has no type sums up those that take least,
    one without a step those of several steps.
    """
    return _joined((_steps_of(rank.rank, rank.operator_steps) for rank in facts), OPERATOR_STEPS)


def told_operator_step_table(facts: Sequence[RankFacts], steps: Table) -> Table:
    """Return the rows of `operator_step_table` for a report: those of MOST_TOLD_STEPS or all.

    steps: all rows. Beyond, the types that take least share a row in each step.
    """
    if len(steps) <= MOST_TOLD_STEPS:
        return steps
    most = max(1, MOST_TOLD_STEPS // len(facts))
    told = (_steps_of(rank.rank, rank.operator_steps.limited(most)) for rank in facts)
    return _joined(told, OPERATOR_STEPS)


def _steps_of(rank: int, steps: OperatorSteps) -> dict[str, npt.NDArray[Any]]:
    runs, strings = steps.runs, np.array(steps.strings, object)
    levels = np.array([level.name.lower() for level in RunLevel], object)
    return {
        "rank": np.full(len(runs), rank, np.int64),
        "step": np.ma.masked_equal(runs.step, NO_ID),
        "level": levels[runs.level],
        "side": _or_none(strings[runs.side]),
        "type": _without(strings[runs.kind], runs.rest),
        "name": _or_none(strings[runs.name]),
        "shapes": _or_none(strings[runs.shapes]),
        "count": runs.count,
        "total_ns": runs.total_ns,
        "mean_ns": _mean(runs.total_ns, runs.count),
    }


def framework_table(facts: Sequence[RankFacts]) -> Table:
    """Return a row per rank and operator that the framework describes to the device.

    task: its id there. block_dim: how many blocks it is split into. inputs, outputs: lists of
    objects with format, type and shape. What is not known is masked or None.
    """
    return _joined((part for rank in facts for part in _described(rank)), FRAMEWORK)


def _described(facts: RankFacts) -> Iterator[dict[str, npt.NDArray[Any]]]:
    rows = facts.profiler_tables.of(FrameworkOperators)
    if not len(rows):
        return
    strings = np.array(list(facts.profiler_tables.strings), object)
    yield {
        "rank": np.full(len(rows), facts.rank, np.int64),
        "graph": np.ma.masked_equal(rows.graph, NO_GRAPH),
        "stream": np.ma.masked_equal(rows.stream, NO_ID),
        "task": np.ma.masked_equal(rows.task, NO_ID),
        "name": strings[rows.name],
        "type": _or_none(strings[rows.kind]),
        "block_dim": np.ma.masked_equal(rows.blocks, NO_ID),
        "inputs": _tensors(strings, rows.inputs),
        "outputs": _tensors(strings, rows.outputs),
    }


def _tensors(strings: npt.NDArray[np.object_], codes: Codes) -> npt.NDArray[np.object_]:
    """Return the JSON list of each row, None if it has none."""
    known = {code: orjson.loads(strings[code]) for code in np.unique(codes).tolist() if code}
    found = np.empty(len(codes), object)
    for row, code in enumerate(codes.tolist()):
        found[row] = known.get(code)
    return found


def _joined(parts: Iterable[dict[str, npt.NDArray[Any]]], kinds: Mapping[str, type]) -> Table:
    """Return the rows of all ranks, with all columns even without rows."""
    columns = join_parts(parts, kinds)
    if not len(columns.get("rank", ())):
        return Table.of_rows(kinds, ())
    return Table({name: masked_if_needed(column) for name, column in columns.items()})


def _or_none(texts: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    return _without(texts, texts == "")


def _without(texts: npt.NDArray[np.object_], absent: Bool) -> npt.NDArray[np.object_]:
    made = texts.copy()
    made[absent] = None
    return made


def _mean(total_ns: Int64, count: Int64) -> npt.NDArray[Any]:
    """Whole ns, rounded; masked where nothing ran."""
    divisor = np.maximum(count, 1)
    mean_ns = (2 * total_ns + divisor) // (2 * divisor)
    return np.ma.masked_array(mean_ns, count < 1) if (count < 1).any() else mean_ns


def _share(total_ns: Int64, keys: Sequence[Int64]) -> npt.NDArray[np.float64]:
    """Of the sum of all rows with equal keys."""
    groups = group_by(len(total_ns), keys)
    of_ns = groups.sum(total_ns)[groups.group]
    share: npt.NDArray[np.float64] = total_ns / np.maximum(of_ns, 1)
    return share


MOST_CURVES = 8
"""Types that have a curve of their own."""


@dataclass(frozen=True)
class OperatorCurves:
    """The types that take longest, longest first, and what they take in each step.

    steps: (C,), ascending. types: (K,). mean_ns: (K, C) of the ranks that ran the step. totals_ns:
    (K,) over all steps and ranks. others: how many more types there are, others_ns what they take;
    of some ranks those may hold a part of a type that has a curve.
    """

    steps: Int64
    types: tuple[str, ...]
    mean_ns: Float64
    totals_ns: Int64
    others: int
    others_ns: int


def operator_curves(steps: Table, operators: Table) -> OperatorCurves | None:
    """Return the curves of types, None if there are fewer than two steps.

    steps: rows of `operator_step_table`. operators: see `Figures.operators`; what is communication
    there, and no more than that, has no curve.
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
    spelled = np.where(is_rest, "", rows["type"])
    types, kind = np.unique(spelled, return_inverse=True)
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
