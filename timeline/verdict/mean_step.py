"""The mean ordinary step and its parts, of each rank and of all ranks together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Int64
from timeline.columns.group_by import group_by
from timeline.tables.table import Table
from timeline.tables.times import PARTS, extent_ns
from timeline.verdict.figures import Figures

EDGES = ("before_ns", "between_ns")
"""Columns of the parts of a period outside the span of its device work; see `STEPS`."""
_SPLIT = ("waiting_ns", "transfer_ns")


@dataclass(frozen=True)
class MeanStep:
    """The parts of the mean step of all ranks, or of the whole time of a capture without steps.

    steps: maximum number of ordinary steps of a rank, 0 if there are none. single: number of the
    step if there is only one. period_ns: from the end of the previous step to its own. exposed_ns:
    communication while nothing computes. waiting_ns, transfer_ns: known parts of it, None if
    neither is known. before_ns: from when the step begins on the host to the first computing or
    communication. between_ns: before the step begins on the host, and after the last of them.
    unexplained_ns: free time of ranks with tables alone, which do not split it into idle time and
    copies.
    """

    ranks: int
    steps: int
    single: int | None
    period_ns: int
    computing_ns: int
    communication_ns: int
    exposed_ns: int
    waiting_ns: int | None
    transfer_ns: int | None
    copies_ns: int
    idle_ns: int
    before_ns: int
    between_ns: int
    unexplained_ns: int = 0

    @classmethod
    def of(cls, figures: Figures, rows: Table) -> MeanStep | None:
        """Return the mean over all ranks, None if there are no rows.

        rows: see `mean_steps`.
        """
        if not len(rows):
            return None
        times = np.maximum(rows["steps"], 1)

        def mean(name: str) -> int:
            return round(int((np.ma.filled(rows[name], 0) * times).sum()) / int(times.sum()))

        def known(name: str) -> int | None:
            return None if np.ma.getmaskarray(rows[name]).all() else mean(name)

        ordinary = (
            figures.steps.take(figures.steps["ordinary"] == 1) if len(figures.steps) else None
        )
        numbers = [] if ordinary is None else np.unique(ordinary["step"]).tolist()
        return cls(
            len(rows),
            int(rows["steps"].max()),
            numbers[0] if len(numbers) == 1 and rows["steps"].max() == 1 else None,
            mean("period_ns"),
            mean("computing_ns"),
            mean("communication_ns"),
            mean("not_overlapped_ns"),
            known("waiting_ns"),
            known("transfer_ns"),
            mean("copies_ns"),
            mean("idle_ns"),
            mean("before_ns"),
            mean("between_ns"),
            mean("free_ns") - mean("copies_ns") - mean("idle_ns")
            if np.ma.getmaskarray(rows["idle_ns"]).any()
            else 0,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the parts under the names of the report."""
        parts = asdict(self)
        return {
            "ranks": parts.pop("ranks"),
            "steps": parts.pop("steps"),
            "step": parts.pop("single"),
            "period_ns": parts.pop("period_ns"),
            "exposed_communication_ns": parts.pop("exposed_ns"),
            **parts,
        }


def own_times_ns(means: Table) -> npt.NDArray[Any]:
    """Return the time of each rank that is not exposed communication, (n,), masked if unknown.

    means: see `mean_steps`.
    """
    own_ns: npt.NDArray[Any] = means["period_ns"] - np.ma.filled(means["not_overlapped_ns"], 0)
    return own_ns


def mean_steps(figures: Figures) -> Table:
    """Return the parts of the mean ordinary step of each rank with device work.

    Columns: rank, steps (number of ordinary ones), period_ns, those of `PARTS`, waiting_ns and
    transfer_ns (parts of not_overlapped_ns, masked if the rank's waiting is unknown), and those of
    `EDGES`. If any rank has no ordinary step, each row is of the whole time from the first to the
    last device work of its rank, and steps is 0.
    """
    used = figures.overlap.take(figures.overlap["span_ns"] > 0) if len(figures.overlap) else None
    if used is None or not len(used):
        return Table({})
    steps = figures.steps
    if len(steps):
        steps = steps.take((steps["ordinary"] == 1) & (np.ma.filled(steps["span_ns"], 0) > 0))
    if not len(steps) or not np.isin(used["rank"], steps["rank"]).all():
        zeros = np.zeros(len(used), np.int64)
        return Table(
            {
                "rank": used["rank"],
                "steps": zeros,
                "period_ns": extent_ns(used),
                **{name: used[name] for name in PARTS},
                **_split(figures, used["rank"], zeros + 1, used["not_overlapped_ns"]),
                **dict.fromkeys(EDGES, zeros),
            }
        )
    groups = group_by(len(steps), [np.asarray(steps["rank"])])
    order = np.argsort(groups.first, kind="stable")
    count = groups.count()[order]

    def mean(name: str) -> npt.NDArray[Any]:
        known = ~np.ma.getmaskarray(steps[name])
        sums_ns = groups.sum(np.ma.filled(steps[name], 0))[order]
        means_ns = np.rint(sums_ns / count).astype(np.int64)
        is_known = groups.sum(known.astype(np.int64))[order] > 0
        return means_ns if is_known.all() else np.ma.masked_array(means_ns, ~is_known)

    ranks = np.asarray(steps["rank"])[groups.first[order]]
    return Table(
        {
            "rank": ranks,
            "steps": count,
            **{name: mean(name) for name in ("period_ns", *PARTS)},
            **_split(figures, ranks, count, mean("not_overlapped_ns")),
            **{name: mean(name) for name in EDGES},
        }
    )


def _split(
    figures: Figures, ranks: Int64, steps: Int64, exposed_ns: npt.NDArray[Any]
) -> dict[str, npt.NDArray[Any]]:
    """Return exposed waiting and transfer in a mean step of each rank.

    If their sum exceeds the exposed communication, as recorded in a file without times of tasks,
    transfer is reduced first.
    """
    unknown = np.ma.masked_array(np.zeros(len(ranks), np.int64), np.ones(len(ranks), np.bool_))
    if not len(figures.exposed):
        return dict.fromkeys(_SPLIT, unknown)
    at = np.searchsorted(figures.exposed["rank"], ranks)
    rows = figures.exposed.take(at)
    known = (rows["waiting_ns"] > 0) | (rows["transfer_ns"] > 0)
    left_ns = np.ma.filled(exposed_ns, 0)
    parts: dict[str, npt.NDArray[Any]] = {}
    for name in _SPLIT:
        part_ns = np.minimum(np.rint(rows[name] / steps).astype(np.int64), left_ns)
        left_ns = left_ns - part_ns
        parts[name] = np.ma.masked_array(part_ns, ~known)
    return parts


def edges_ns(table: Table) -> Int64:
    """Return the time before the first and after the last kernel of steps or mean steps, (n,).

    It is 0 if the rows are ranks as a whole, which have no such columns.
    """
    parts = [table[name] for name in EDGES] if EDGES[1] in table.columns else []
    return sum((np.ma.filled(part, 0) for part in parts), start=np.zeros(len(table), np.int64))


def are_of_ordinary_steps(rows: Table, steps: Table) -> Bool:
    """Return a mask (n,) of the rows whose rank, graph and step are those of an ordinary step."""
    if not len(steps):
        return np.zeros(len(rows), np.bool_)
    names = ("rank", "graph", "step")
    ordinary = steps.take(steps["ordinary"] == 1)
    keys = set(zip(*(ordinary[name].tolist() for name in names), strict=True))
    every = zip(*(rows[name].tolist() for name in names), strict=True)
    return np.fromiter((key in keys for key in every), np.bool_, len(rows))
