"""Floating-point operations of device tasks: those that the profiler tells of their operator."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Columnar, Float64, Int64
from timeline.columns.strings import NO_NAME
from timeline.frozen import dataclass
from timeline.records.not_given import FLOAT_NOT_GIVEN, NO_ID
from timeline.records.profiler_tables import FlopLevel, FlopRows, FlopUnit
from timeline.records.tables import Records

__all__ = ["TaskFlops", "task_flops"]


@dataclass(frozen=True)
class TaskFlops(Columnar):
    """Operations by the name of a task: each column has a value for each code of a StringPool.

    flop and flop_per_s are those of all units together, NO_ID where the profiler tells none. The
    shares of the peak are from 0 to 1: of the operator, or where units are told apart of each.
    """

    flop: Int64
    flop_per_s: Int64
    utilization: Float64
    cube_utilization: Float64
    vector_utilization: Float64


def task_flops(records: Records) -> TaskFlops | None:
    """What files of a rank tell of its tasks by their names; None where they tell nothing."""
    table, named = records.profiler_tables.of(FlopRows), records.profiler_tables.strings
    table = table.take(table.level == FlopLevel.OPERATOR)
    if not len(table):
        return None
    found = [records.strings.find(named[code]) for code in table.name.tolist()]
    code = np.array([NO_NAME if one is None else one for one in found], np.int64)
    table, code = table.take(code != NO_NAME), code[code != NO_NAME]
    if not len(table):
        return None
    count = len(records.strings)
    shares = {unit: np.full(count, FLOAT_NOT_GIVEN) for unit in FlopUnit}
    for unit, by_code in shares.items():
        of_unit = table.unit == unit
        by_code[code[of_unit]] = table.utilization[of_unit]
    return TaskFlops(
        _sum_by_code(code, table.flop, count),
        _sum_by_code(code, table.flop_per_s, count),
        shares[FlopUnit.ALL],
        shares[FlopUnit.CUBE],
        shares[FlopUnit.VECTOR],
    )


def _sum_by_code(code: Int64, values: Int64, count: int) -> Int64:
    """The sum over the units of each name, NO_ID where none is told."""
    given = values != NO_ID
    sums = np.zeros(count, np.int64)
    np.add.at(sums, code[given], values[given])
    told = np.zeros(count, np.bool_)
    told[code[given]] = True
    return np.where(told, sums, NO_ID)
