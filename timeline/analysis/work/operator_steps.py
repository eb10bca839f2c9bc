"""How often and how long each kind of operator ran in each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from timeline.analysis.step_membership import NO_STEP, Membership
from timeline.analysis.work.operators import TaskTypes, computing_rows
from timeline.columns.columns import Codes, Int64
from timeline.columns.distinct import distinct
from timeline.columns.group_by import group_by
from timeline.columns.strings import NO_NAME, StringPool
from timeline.frozen import dataclass
from timeline.records.collective_kinds import collective_kind
from timeline.records.not_given import NO_ID
from timeline.records.profiler_tables import OperatorRuns, ProfilerTables, RunLevel
from timeline.records.tables import Records

__all__ = ["OperatorSteps", "operator_steps"]

_KEYS = ("level", "step", "side", "kind", "name", "shapes")


@dataclass(frozen=True, slots=True)
class OperatorSteps:
    """Runs of operators by step; texts are codes, which are positions in `strings`."""

    strings: tuple[str, ...] = ("",)
    runs: OperatorRuns = field(default_factory=OperatorRuns.empty)

    def limited(self, most: int) -> OperatorSteps:
        """The same with so many rows at most: types that take least share a row a step, and single
        operators and kernels go where there is no room for all of them."""
        return replace(self, runs=_limited(self.runs, most))


def operator_steps(
    records: Records,
    membership: Membership,
    told: ProfilerTables,
    *,
    most: int,
    names: bool = False,
) -> OperatorSteps:
    """The runs of operators by step and type, as the profiler tells them, else of all tasks.

    membership: the steps of the tasks and communication ops of the records, those in none are in
    no row. told: what is selected of the small tables of the records. most: how many rows there may
    be; types that take least have a row together then. names: whether rows of tasks tell single
    operators and their shapes apart too, beside those of types.
    """
    if len(records.profiler_tables.of(OperatorRuns)):
        return OperatorSteps(tuple(told.strings), told.of(OperatorRuns)).limited(most)
    strings = StringPool()
    parts = [_of_types(records, membership, strings)]
    if names:
        parts.append(_of_names(records, membership, strings))
    runs = OperatorRuns.concat(parts)
    return OperatorSteps(tuple(strings), runs).limited(most)


def _of_types(records: Records, membership: Membership, strings: StringPool) -> OperatorRuns:
    tasks, ops = records.tasks, records.ops
    types = TaskTypes.of(records, strings)
    parts = []
    for rows in computing_rows(tasks):
        kind, _ = types.at(tasks, rows)
        lengths_ns = tasks.end_ns[rows] - tasks.start_ns[rows]
        parts.append(_summed(membership.tasks[rows], {"kind": kind}, lengths_ns))
    kind = strings.translate(ops.name, records.strings, collective_kind)
    parts.append(_summed(membership.ops, {"kind": kind}, ops.end_ns - ops.start_ns))
    return _numbered(OperatorRuns.concat(parts), records.steps.iteration, RunLevel.TYPE)


def _of_names(records: Records, membership: Membership, strings: StringPool) -> OperatorRuns:
    tasks, ops, pool = records.tasks, records.ops, records.strings
    types = TaskTypes.of(records, strings)
    parts = []
    for rows in computing_rows(tasks):
        kind, _ = types.at(tasks, rows)
        keys = {
            "kind": kind,
            "name": strings.translate(tasks.name[rows], pool),
            "shapes": strings.translate(tasks.input_shapes[rows], pool),
        }
        lengths_ns = tasks.end_ns[rows] - tasks.start_ns[rows]
        parts.append(_summed(membership.tasks[rows], keys, lengths_ns))
    keys = {
        "kind": strings.translate(ops.name, pool, collective_kind),
        "name": strings.translate(ops.name, pool),
    }
    parts.append(_summed(membership.ops, keys, ops.end_ns - ops.start_ns))
    return _numbered(OperatorRuns.concat(parts), records.steps.iteration, RunLevel.NAME)


def _summed(steps: Int64, keys: Mapping[str, Codes], lengths_ns: Int64) -> OperatorRuns:
    """A row for each step, still a row of Steps or NO_STEP, and distinct combination of keys."""
    groups = group_by(len(steps), [steps, *keys.values()])
    return OperatorRuns.of(
        len(groups.first),
        {
            "step": steps[groups.first],
            "level": np.zeros(len(groups.first), np.int64),
            **{name: values[groups.first] for name, values in keys.items()},
            "count": groups.count(),
            "total_ns": groups.sum(lengths_ns),
        },
    )


def _numbered(runs: OperatorRuns, iterations: Int64, level: RunLevel) -> OperatorRuns:
    """The runs in steps, by the number of the step; those of several graphs are one row."""
    runs = runs.take(runs.step != NO_STEP)
    numbers = iterations[runs.step] if len(runs) else runs.step
    return _joined(replace(runs, step=numbers, level=np.full(len(runs), level, np.int64)))


def _joined(runs: OperatorRuns) -> OperatorRuns:
    """One row for rows that are equal in all but their sums."""
    rest = runs.rest.astype(np.int64)
    groups = group_by(len(runs), [*(getattr(runs, name) for name in _KEYS), rest])
    return replace(
        runs.take(groups.first), count=groups.sum(runs.count), total_ns=groups.sum(runs.total_ns)
    )


def _limited(runs: OperatorRuns, most: int) -> OperatorRuns:
    is_type = runs.level == RunLevel.TYPE
    types, others = runs.take(is_type), runs.take(~is_type)
    if len(types) > most:
        types = _with_rest(types, most)
    if len(types) + len(others) > most:
        others = others.take(np.zeros(len(others), np.bool_))
    return OperatorRuns.concat([types, others])


def _with_rest(types: OperatorRuns, most: int) -> OperatorRuns:
    steps = distinct(types.step)
    groups = group_by(len(types), [types.rest.astype(np.int64), types.kind])
    total_ns = np.where(types.rest[groups.first], -1, groups.sum(types.total_ns))
    kept = np.argsort(-total_ns, kind="stable")[: max(0, most // len(steps) - 1)]
    rest = types.rest | ~np.isin(groups.group, kept)
    # Of more steps than there may be rows, the last ones share the last row, which has no step.
    named = ~rest | np.isin(types.step, steps[: most - 1] if len(steps) > most else steps)
    nothing = np.int32(NO_NAME)
    return _joined(
        replace(
            types,
            step=np.where(named, types.step, NO_ID),
            kind=np.where(rest, nothing, types.kind),
            side=np.where(rest, nothing, types.side),
            rest=rest,
        )
    )
