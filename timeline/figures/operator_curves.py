"""How long types of operators that compute take in each step, of all ranks together."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Float64, Int64
from timeline.figures.table import Table
from timeline.frozen import dataclass
from timeline.records.not_given import NO_ID

__all__ = ["MOST_CURVES", "OperatorCurves", "operator_curves"]

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
    """The curves of types; None where there are not two steps.

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
