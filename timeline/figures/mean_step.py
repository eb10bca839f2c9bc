"""Where the time of a mean ordinary step goes, of each rank and of all ranks together."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Int64
from timeline.columns.group_by import group_by
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.figures.time_tables import PARTS, extent_ns
from timeline.frozen import dataclass

__all__ = ["MeanStep", "mean_steps"]

_SPLIT = ("waiting_ns", "transfer_ns")


@dataclass(frozen=True)
class MeanStep:
    """Where the time of a mean step of all ranks goes; of a capture without steps, all its time.

    steps: how many ordinary steps there are, 0 without any. single: the number of the only one.
    exposed_ns: communication while nothing computes, of which waiting_ns and transfer_ns are known
    (None where nothing is). between_ns: what passes between the device work of two steps.
    """

    ranks: int
    steps: int
    single: int | None
    span_ns: int
    computing_ns: int
    communication_ns: int
    exposed_ns: int
    waiting_ns: int | None
    transfer_ns: int | None
    copies_ns: int
    idle_ns: int
    between_ns: int
    unexplained_ns: int = 0
    """Free time of ranks of which tables alone are left: idle or copying."""

    @property
    def period_ns(self) -> int:
        """From one step to the next."""
        return self.span_ns + self.between_ns

    @classmethod
    def of(cls, figures: Figures) -> MeanStep | None:
        """The mean of all steps of all ranks; None where no rank did anything."""
        rows = mean_steps(figures)
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
            mean("span_ns"),
            mean("computing_ns"),
            mean("communication_ns"),
            mean("not_overlapped_ns"),
            known("waiting_ns"),
            known("transfer_ns"),
            mean("copies_ns"),
            mean("idle_ns"),
            mean("between_ns"),
            mean("free_ns") - mean("copies_ns") - mean("idle_ns")
            if np.ma.getmaskarray(rows["idle_ns"]).any()
            else 0,
        )


def mean_steps(figures: Figures) -> Table:
    """A row per rank that did anything: where the time of its mean ordinary step goes.

    rank, steps (how many are ordinary), span_ns, the parts of `PARTS`, waiting_ns and transfer_ns
    (parts of not_overlapped_ns, masked where nothing tells of the rank's waiting), between_ns (from
    the last device end of the steps before to its first device start). Where a rank has no ordinary
    step, all rows are of the whole selection, with 0 steps, without what the profiler counts as
    free before and after.
    """
    used = figures.overlap.take(figures.overlap["span_ns"] > 0) if len(figures.overlap) else None
    if used is None or not len(used):
        return Table({})
    steps = _ordinary(figures.steps)
    if steps is None or not np.isin(used["rank"], steps["rank"]).all():
        whole = {
            "rank": used["rank"],
            "steps": np.zeros(len(used), np.int64),
            "span_ns": extent_ns(used),
            **{name: used[name] for name in PARTS},
        }
        return Table(
            whole
            | _split(figures, used["rank"], np.ones(len(used), np.int64), used["not_overlapped_ns"])
            | {"between_ns": np.zeros(len(used), np.int64)}
        )
    groups = group_by(len(steps), [np.asarray(steps["rank"])])
    order = np.argsort(groups.first, kind="stable")
    count = np.bincount(groups.group)[order].astype(np.int64)

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
            **{name: mean(name) for name in ("span_ns", *PARTS)},
            **_split(figures, ranks, count, mean("not_overlapped_ns")),
            "between_ns": mean("between_ns"),
        }
    )


def _ordinary(steps: Table) -> Table | None:
    """The ordinary steps with device work, and what passed before each; None without any."""
    if not len(steps):
        return None
    span_ns = np.ma.filled(steps["span_ns"], 0)
    start_ns = np.ma.filled(steps["device_start_ns"], 0)
    ranks = np.asarray(steps["rank"])
    rows = np.flatnonzero(span_ns > 0)
    rows = rows[np.lexsort((start_ns[rows], ranks[rows]))]
    chosen = np.ma.filled(steps["ordinary"], 0)[rows] == 1
    if not chosen.any():
        return None
    between_ns = _between_ns(ranks[rows], start_ns[rows], span_ns[rows])
    return Table({**steps.take(rows[chosen]).columns, "between_ns": between_ns[chosen]})


def _between_ns(ranks: Int64, start_ns: Int64, span_ns: Int64) -> Int64:
    """From the last device end of all steps before to the start of each, on its rank; at least 0.

    Rows, at least one, are in order of rank, then start.
    """
    end_ns = start_ns + span_ns
    between_ns = np.zeros(len(ranks), np.int64)
    heads = np.flatnonzero(np.diff(ranks, prepend=ranks[0] - 1))
    for first, last in zip(heads, [*heads[1:], len(ranks)], strict=True):
        reach_ns = np.maximum.accumulate(end_ns[first:last])
        between_ns[first + 1 : last] = np.maximum(start_ns[first + 1 : last] - reach_ns[:-1], 0)
    return between_ns


def _split(
    figures: Figures, ranks: Int64, steps: Int64, exposed_ns: npt.NDArray[Any]
) -> dict[str, npt.NDArray[Any]]:
    """Exposed waiting and transfer in a mean step of each rank.

    Where a file tells how much communication is exposed, and no task when, transfers are what is
    hidden first.
    """
    unknown = np.ma.masked_array(np.zeros(len(ranks), np.int64), np.ones(len(ranks), np.bool_))
    if not len(figures.exposed):
        return dict.fromkeys(_SPLIT, unknown)
    at = np.searchsorted(figures.exposed["rank"], ranks)
    rows = figures.exposed.take(at)
    known = (rows["waiting_ns"] > 0) | (rows["transfer_ns"] > 0)
    left_ns = np.ma.filled(exposed_ns, 0)
    found: dict[str, npt.NDArray[Any]] = {}
    for name in _SPLIT:
        part_ns = np.minimum(np.rint(rows[name] / steps).astype(np.int64), left_ns)
        left_ns = left_ns - part_ns
        found[name] = np.ma.masked_array(part_ns, ~known)
    return found
