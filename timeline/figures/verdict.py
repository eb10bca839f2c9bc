"""The answer to "what is slow": which rank, which step, which operators, who waits.

Sentences, shares and extremes are found here, in the tables of `timeline/figures/rank_tables.py`.
What those hold is summed for each rank: device time of ranks and steps in
`timeline/analysis/overlap.py`, operators in `timeline/analysis/operators.py`, and waiting in
`timeline/analysis/waiting.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.waiting import Basis
from timeline.columns.columns import Bool, Int64
from timeline.columns.distinct import distinct, distinct_pairs
from timeline.figures.rank_tables import PARTS, Figures, extent_ns
from timeline.figures.table import Table
from timeline.units import spell_count, spell_duration

__all__ = [
    "Extreme",
    "Verdict",
    "has_several_graphs",
    "slowest_rank_of_each_step",
    "total_by_type",
]

MOST_OPERATORS = 5
NOTABLE = 0.05
"""By so much of the median a rank must compute longer before others are said to wait for it."""


@dataclass(frozen=True)
class Extreme:
    """The slowest and the fastest of several ranks or steps, and what lies between."""

    slowest: int
    slowest_ns: int
    fastest: int
    fastest_ns: int
    median_ns: int
    rank: int | None = None
    """On which rank the slowest step was slowest."""
    graph: int | None = None
    """Of which graph the slowest step is."""

    @property
    def spread(self) -> float:
        """How much longer the slowest took than the fastest, as a share of the fastest."""
        return self.slowest_ns / self.fastest_ns - 1 if self.fastest_ns else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The values under the names of the report."""
        return {
            "slowest": self.slowest,
            "slowest_ns": self.slowest_ns,
            "fastest": self.fastest,
            "fastest_ns": self.fastest_ns,
            "median_ns": self.median_ns,
            "spread": round(self.spread, 6),
            "rank": self.rank,
            "graph": self.graph,
        }


@dataclass(frozen=True)
class Verdict:
    """What is slow.

    ranks: a row per rank, `step_ns` the mean span of its steps on the device. steps: a row per
    graph and step, of the rank where it took longest. operators, collectives: the types that took
    longest over all ranks, with their share of all computing or communicating. stragglers: a row
    per rank that kept others waiting in collectives, who cost most first. basis: what that stands
    on. used_ranks, unused_ranks: how many ranks did anything, and how many nothing. mean_ns: the
    means over the first of some columns of `ranks` (`span_ns` is without what is outside), None
    where no rank tells it.
    """

    ranks: Table
    steps: Table
    rank_extreme: Extreme | None
    step_extreme: Extreme | None
    operators: Table
    collectives: Table
    stragglers: Table
    basis: Basis
    used_ranks: int = 0
    unused_ranks: int = 0
    mean_ns: dict[str, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, figures: Figures) -> Verdict:
        """The verdict on some ranks."""
        steps = slowest_rank_of_each_step(figures.steps)
        totals = total_by_type(figures.operators)
        communication = totals["communication"] == 1
        used = _used(figures.overlap)
        return cls(
            figures.overlap,
            steps,
            _rank_extreme(figures.overlap),
            _step_extreme(steps),
            _longest(totals, ~communication),
            _longest(totals, communication),
            _stragglers(figures.waiting),
            figures.basis,
            len(used),
            len(figures.overlap) - len(used),
            _means_ns(used),
        )

    def sentences(self) -> Iterator[str]:
        """The answers for people, the most telling first."""
        worst = self._slowest_rank_row()
        if worst is None:
            return
        several = len(self.ranks) > 1
        if len(self.operators):
            yield _where_time_goes(worst, several=several)
        else:
            yield _only_communication(worst, several=several)
        yield from _outside(worst)
        if self.rank_extreme is not None:
            extreme = self.rank_extreme
            yield (
                f"Slowest rank: {extreme.slowest}, {spell_duration(extreme.slowest_ns)}"
                f"{' a step' if worst['step_ns'] is not None else ''}, "
                f"{extreme.spread:.1%} more than the fastest, {extreme.fastest}."
            )
        yield from self._straggler() if len(self.stragglers) else self._computes_longest()
        if self.step_extreme is not None:
            extreme = self.step_extreme
            on = f" on rank {extreme.rank}" if len(self.ranks) > 1 else ""
            yield (
                f"Slowest step: {extreme.slowest}, {spell_duration(extreme.slowest_ns)}{on}; "
                f"the median is {spell_duration(extreme.median_ns)}, "
                f"the fastest {spell_duration(extreme.fastest_ns)} ({extreme.fastest})."
            )

    def _slowest_rank_row(self) -> dict[str, Any] | None:
        used = _used(self.ranks)
        if not len(used):
            return None
        at = int(np.argmax(_rank_times_ns(used)))
        return used.take(np.array([at])).to_dicts()[0]

    def _computes_longest(self) -> Iterator[str]:
        """Ranks wait for each other in collectives: who computes longest makes the others wait.

        That is a guess, for where collectives do not tell it. Sums over different numbers of steps
        tell nothing of that.
        """
        used = _used(self.ranks)
        if len(used) < 2 or len(distinct(used["steps"])) > 1:
            return
        computing_ns = used["computing_ns"]
        median_ns = float(np.median(computing_ns))
        at = int(np.argmax(computing_ns))
        if median_ns and computing_ns[at] > median_ns * (1 + NOTABLE):
            yield (
                f"Rank {used['rank'][at]} computes longest, "
                f"{computing_ns[at] / median_ns - 1:.0%} more than the median: "
                "others may wait for it."
            )

    def _straggler(self) -> Iterator[str]:
        """Whom the others wait for most, and why."""
        worst = self.stragglers.take(np.array([0])).to_dicts()[0]
        all_ns = int(self.stragglers["caused_ns"].sum())
        late = "computing" if worst["compute_late_ns"] >= worst["host_late_ns"] else "its host"
        yield (
            f"Others waited {spell_duration(worst['caused_ns'])} for rank {worst['rank']} "
            f"({worst['caused_ns'] / all_ns:.0%} of all waiting), which came last to "
            f"{spell_count(worst['times_last'], 'collective')}, late by {late} "
            f"({_stands_on(self.basis)})."
        )

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain values."""
        return {
            "sentences": list(self.sentences()),
            "ranks": self.ranks.to_dicts(),
            "slowest_rank": None if self.rank_extreme is None else self.rank_extreme.to_dict(),
            "slowest_step": None if self.step_extreme is None else self.step_extreme.to_dict(),
            "operators": self.operators.to_dicts(),
            "collectives": self.collectives.to_dicts(),
            "stragglers": self.stragglers.to_dicts(),
            "waiting_basis": {**asdict(self.basis), "share": round(self.basis.share, 6)},
        }


def _stands_on(basis: Basis) -> str:
    """How much of all communication tells who waited for whom."""
    of = basis.compared == basis.collectives
    counted = f"all {basis.collectives}" if of else f"{basis.compared} of {basis.collectives}"
    return f"stands on {counted} collectives, {basis.share:.0%} of communication time"


def _where_time_goes(row: dict[str, Any], *, several: bool) -> str:
    whole_ns = row["span_ns"] - (row["outside_ns"] or 0)
    spent = {
        "computing": row["computing_ns"],
        "communication that nothing overlaps": row["not_overlapped_ns"],
        "copies": row["copies_ns"] or 0,
        "idle": row["idle_ns"],
    }
    parts = sorted(spent.items(), key=lambda item: -item[1])
    percents = [(round(100 * part_ns / whole_ns), name) for name, part_ns in parts]
    shares = ", ".join(f"{percent}% {name}" for percent, name in percents if percent)
    where = f" of rank {row['rank']}" if several else ""
    return f"Device time{where}: {shares}."


def _only_communication(row: dict[str, Any], *, several: bool) -> str:
    """What can be said where the profile holds no computing: what would overlap is not known."""
    whole_ns = row["span_ns"] - (row["outside_ns"] or 0)
    where = f" of rank {row['rank']}" if several else ""
    percent = round(100 * row["communication_ns"] / whole_ns)
    return f"Device time{where}: {percent}% communication; the profile holds nothing that computes."


def _outside(row: dict[str, Any]) -> Iterator[str]:
    """What the writer of the profile calls free beside the time that shares are of."""
    if not row["outside_ns"]:
        return
    edges = {
        "before the first kernel": row["before_ns"],
        "after the last": row["outside_ns"] - row["before_ns"],
    }
    if not row["before_ns"]:
        edges["after the last kernel"] = edges.pop("after the last")
    lengths = " and ".join(
        f"{spell_duration(length_ns)} {where}" for where, length_ns in edges.items() if length_ns
    )
    yield f"Not in these shares: {lengths}, which the profiler counts as free."


def _rank_times_ns(ranks: Table) -> npt.NDArray[Any]:
    """The mean step of each rank; all of its time where not every rank has steps."""
    steps_ns = ranks["step_ns"]
    return extent_ns(ranks) if np.ma.getmaskarray(steps_ns).any() else steps_ns


def _used(ranks: Table) -> Table:
    """The ranks that did anything."""
    return ranks.take(ranks["span_ns"] > 0) if len(ranks) else ranks


def _means_ns(used: Table) -> dict[str, int | None]:
    if not len(used):
        return {}
    columns = {"span_ns": extent_ns(used)} | {name: used[name] for name in ("step_ns", *PARTS)}
    known = {name: np.ma.compressed(column) for name, column in columns.items()}
    return {
        name: round(float(np.mean(values))) if len(values) else None
        for name, values in known.items()
    }


def _rank_extreme(ranks: Table) -> Extreme | None:
    used = _used(ranks)
    if len(used) < 2:
        return None
    return _extreme(used["rank"], np.asarray(_rank_times_ns(used)))


def _extreme(ids: Int64, times_ns: Int64, **more: Any) -> Extreme:
    slowest, fastest = int(np.argmax(times_ns)), int(np.argmin(times_ns))
    return Extreme(
        int(ids[slowest]),
        int(times_ns[slowest]),
        int(ids[fastest]),
        int(times_ns[fastest]),
        int(np.median(times_ns)),
        **more,
    )


def slowest_rank_of_each_step(steps: Table) -> Table:
    """For each graph and step the row of the rank on which it took longest, in order of time.

    Ranks number their graphs apart, so a step is matched by its number alone unless a rank has
    several graphs.
    """
    if not len(steps):
        return steps
    known = steps.take(np.ma.filled(steps["span_ns"], 0) > 0)
    graph = np.ma.filled(known["graph"], -1)
    if not has_several_graphs(known["rank"], graph):
        graph = np.zeros_like(graph)
    order = np.lexsort((-np.asarray(known["span_ns"]), known["step"], graph))
    known, graph = known.take(order), graph[order]
    first = np.ones(len(known), np.bool_)
    first[1:] = (np.diff(graph) != 0) | (np.diff(known["step"]) != 0)
    longest = known.take(first)
    return longest.take(np.argsort(longest["start_ns"], kind="stable"))


def has_several_graphs(rank: Int64, graph: Int64) -> bool:
    """Whether any rank has several, from the rank and graph of each row."""
    pairs, _ = distinct_pairs(rank, graph)
    return len(pairs) > len(distinct(rank))


def _step_extreme(steps: Table) -> Extreme | None:
    if len(steps) < 2:
        return None
    times_ns = np.asarray(steps["span_ns"])
    if times_ns.min() == times_ns.max():
        return None
    at = int(np.argmax(times_ns))
    row = steps.take(np.array([at])).to_dicts()[0]
    return _extreme(steps["step"], times_ns, rank=row["rank"], graph=row["graph"])


def total_by_type(operators: Table, *, by_name: bool = False) -> Table:
    """Operators of all ranks together, a row per type and core, longest first.

    by_name: a row for each name too, as far as figures tell names apart.
    """
    keys = ("communication", "type", "core", *(("name",) if by_name else ()))
    columns = ("count", "total_ns", "shortest_ns", "longest_ns")
    found: dict[tuple[Any, ...], list[int]] = {}
    ids = zip(*(operators[name].tolist() for name in keys), strict=True) if operators else ()
    rows = zip(*(operators[name].tolist() for name in columns), strict=True) if operators else ()
    for key, (count, total_ns, shortest_ns, longest_ns) in zip(ids, rows, strict=True):
        sums = found.setdefault(key, [0, 0, shortest_ns, 0])
        sums[0] += count
        sums[1] += total_ns
        sums[2] = min(sums[2], shortest_ns)
        sums[3] = max(sums[3], longest_ns)
    order = sorted(found, key=lambda key: (-found[key][1], key))
    values = np.array([found[key] for key in order], np.int64).reshape(-1, 4)
    return Table(
        {
            name: np.array([key[at] for key in order], object if at else np.int64)
            for at, name in enumerate(keys)
        }
        | dict(zip(columns, values.T, strict=True))
    )


def _longest(totals: Table, chosen: Bool) -> Table:
    """The first rows of those chosen, with their share of all that were."""
    rows = totals.take(chosen)
    all_ns = int(rows["total_ns"].sum())
    top = rows.take(np.arange(min(len(rows), MOST_OPERATORS)))
    columns = {name: top[name] for name in ("type", "core", "count", "total_ns")}
    share = top["total_ns"] / all_ns if all_ns else np.zeros(len(top))
    return Table({**columns, "share": np.round(share, 6)})


def _stragglers(waiting: Table) -> Table:
    caused_ns = np.ma.filled(waiting["caused_ns"], 0)
    order = np.argsort(-caused_ns, kind="stable")
    return waiting.take(order[caused_ns[order] > 0])
