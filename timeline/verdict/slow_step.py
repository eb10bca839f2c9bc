"""A slow step beside a usual one of the same rank: the parts of it that take longer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from timeline.analysis.idle.idle_sums import IdleCause
from timeline.columns.columns import Bool
from timeline.tables.table import Table
from timeline.units import format_like
from timeline.verdict.figures import Figures

MOST_PARTS = 3
LEAST_PART = 0.1
"""A part that explains a smaller share of the longer time is left out."""
_FREE = {"idle_ns": "idle", "before_ns": "before its first kernel", "between_ns": "between steps"}
"""Names of time without work, where causes of idle time are not known."""


@dataclass(frozen=True)
class SlowBesideUsual:
    """A slow step, and a step of median length over all ranks with which it is compared.

    usual, slow: numbers of steps. longer: parts that take longer in the slow one, longest first, as
    name and ns.
    """

    usual: int
    slow: int
    longer: tuple[tuple[str, int], ...]

    @classmethod
    def of(
        cls, figures: Figures, slowest: Table, odd: Collection[int] = ()
    ) -> SlowBesideUsual | None:
        """Compare the longest of some steps with a usual one; None if there is none.

        Args:
            slowest: rows of `Figures.steps`, each of the rank where the step took longest.
            odd: steps that are not usual, besides the longest.
        """
        if not len(slowest):
            return None
        (row,) = slowest.take(np.array([int(np.argmax(slowest["period_ns"]))])).to_dicts()
        steps = Table({**figures.steps.columns, **figures.exposed_steps.columns})
        steps = steps.take(np.ma.filled(steps["span_ns"], 0) > 0)
        numbers, which = np.unique(np.asarray(steps["step"]), return_inverse=True)
        # Other ranks may wait in the step after a slow one of this rank.
        mean_ns = np.bincount(which, np.asarray(steps["period_ns"])) / np.bincount(which)
        own = steps.take(_are_of(steps, row["rank"], row["graph"]))
        step = np.asarray(own["step"])
        others = own.take((own["ordinary"] == 1) & ~np.isin(step, [row["step"], *odd]))
        if not len(others):
            return None
        usual_ns = mean_ns[np.searchsorted(numbers, np.asarray(others["step"]))]
        order = np.argsort(usual_ns, kind="stable")
        at = order[(len(order) - 1) // 2]
        if mean_ns[np.searchsorted(numbers, row["step"])] <= usual_ns[at]:
            return None
        usual, slow = others.take(np.array([at])), own.take(step == row["step"])
        parts = [_parts(figures, one) for one in (usual, slow)]
        more_ns = {name: parts[1].get(name, 0) - parts[0].get(name, 0) for name in parts[1]}
        least_ns = LEAST_PART * int(slow["period_ns"][0] - usual["period_ns"][0])
        longest = sorted(more_ns.items(), key=lambda part: -part[1])[:MOST_PARTS]
        return cls(
            int(usual["step"][0]),
            row["step"],
            tuple((name, ns) for name, ns in longest if ns > 0 and ns >= least_ns),
        )

    def text(self) -> str:
        """Return the parts that take longer, such as "18 ms more waiting, 4 ms more idle"."""
        most_ns = max((ns for _, ns in self.longer), default=0)
        return ", ".join(f"{format_like(ns, most_ns)} more {name}" for name, ns in self.longer)


def _parts(figures: Figures, step: Table) -> dict[str, int]:
    """Return the parts of the period of a step of a rank, the only row, that are known."""
    (row,) = step.to_dicts()
    exposed_ns = row["not_overlapped_ns"]
    waiting_ns, transfer_ns = row.get("waiting_ns"), row.get("transfer_ns")
    parts = {"compute": row["computing_ns"], "copies": row["copies_ns"]}
    if waiting_ns is None or transfer_ns is None:
        parts["exposed communication"] = exposed_ns
    else:
        parts |= {"waiting": waiting_ns, "transfer": transfer_ns}
        parts["waiting or transfer"] = (exposed_ns or 0) - waiting_ns - transfer_ns
    causes, idle = figures.idle, Table({})
    if len(causes):
        of_step = np.ma.filled(causes["step"] == row["step"], False)
        idle = causes.take(of_step & _are_of(causes, row["rank"], row["graph"]))
    if len(idle):
        sums = zip(idle["cause"].tolist(), idle["total_ns"].tolist(), strict=True)
        parts |= {f"idle ({IdleCause(cause).words})": total_ns for cause, total_ns in sums}
        free_ns = sum(row[name] or 0 for name in _FREE)
        parts["copies"] = (row["copies_ns"] or 0) + free_ns - int(idle["total_ns"].sum())
    else:
        parts |= {words: row[name] for name, words in _FREE.items()}
    return {name: ns for name, ns in parts.items() if ns is not None}


def _are_of(rows: Table, rank: int, graph: int | None) -> Bool:
    """Return which rows (n,) are of a rank and a graph, None for those without graphs."""
    absent = np.ma.getmaskarray(rows["graph"])
    same = absent if graph is None else ~absent & (np.ma.getdata(rows["graph"]) == graph)
    chosen: Bool = same & (np.asarray(rows["rank"]) == rank)
    return chosen
