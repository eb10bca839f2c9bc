"""What one run lost or won against another, in all, by step, rank and operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from timeline.analysis.computing_classes import CLASSES, computing_class, tells_vector
from timeline.errors import spell_ids
from timeline.figures.operator_pairs import pair_operators
from timeline.figures.rank_tables import Figures, extent_ns
from timeline.figures.short_names import operator_label, shortened
from timeline.figures.table import Table
from timeline.figures.verdict import slowest_rank_of_each_step
from timeline.units import spell_count, spell_duration

__all__ = ["NOTABLE", "WHOLE", "Comparison"]

MOST_OF_NAME = 160
"""Characters of a name in a sentence."""
NOTABLE = 0.01
"""A change by less than this share of a step is no change worth a sentence."""
WHOLE = "end to end"
"""The metric of all time from the first to the last device record."""
_RUNS = ("base", "new")


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side; times are sums over all ranks, divided by the steps of all ranks.

    So they hold what lies between steps too, and runs of other lengths and numbers of ranks
    compare; where a rank has no steps, sums of both runs are divided by their ranks.

    overall: metric, part_of (another metric, or ""), base_ns, new_ns, delta_ns, masked where a run
    does not tell. steps: a row per
    step in order, its own span on the rank where it took longest: base_graph, base_step, base_rank,
    new_graph, new_step, new_rank, base_ns, new_ns, delta_ns. ranks: those of both runs: rank,
    base_ns, new_ns, delta_ns. operators, collectives: see `pair_operators`. warnings: in what the
    runs do not match.
    """

    overall: Table
    steps: Table
    ranks: Table
    operators: Table
    collectives: Table
    per_step: bool
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, base: Figures, new: Figures) -> Comparison:
        """Compare two runs."""
        sides = (base, new)
        per_step = all(_has_steps(side) for side in sides)
        counts = [_counts(side, per_step=per_step) for side in sides]
        shares = (_share(counts[0]), _share(counts[1]))
        return cls(
            _overall(sides, shares),
            _steps(base, new),
            _ranks(sides, counts),
            pair_operators(_operators(base), _operators(new), shares),
            pair_operators(_collectives(base), _collectives(new), shares),
            per_step,
            tuple(_warnings(sides, counts)),
        )

    def sentences(self) -> Iterator[str]:
        """What changed, for people; the most telling first."""
        rows = {row["metric"]: row for row in self.overall.to_dicts()}
        whole = rows[WHOLE]
        base_ns, new_ns, delta_ns = whole["base_ns"], whole["new_ns"], whole["delta_ns"]
        if not base_ns or not new_ns:
            return
        unit = "step" if self.per_step else "rank"
        change = delta_ns / base_ns
        before_and_now = f"{spell_duration(base_ns)} before, {spell_duration(new_ns)} now"
        if not delta_ns:
            yield f"A {unit} takes exactly as long as before: {spell_duration(new_ns)}."
        elif abs(change) < NOTABLE:
            yield f"A {unit} takes about as long as before ({change:+.2%}): {before_and_now}."
        else:
            word = "longer" if delta_ns > 0 else "less"
            yield (
                f"A {unit} takes {spell_duration(abs(delta_ns))} {word} "
                f"({change:+.1%}): {before_and_now}."
            )
        yield from _most_changed("part", self.overall.take(_is_part(self.overall)), base_ns)
        yield from _most_changed("operator", self.operators, base_ns)
        yield from _most_changed("collective", self.collectives, base_ns)

    def all_operators(self) -> Table:
        """Operators and collectives in one table, whose column `what` tells them apart."""
        tables = (self.operators, self.collectives)
        whats = [
            np.full(len(table), what, object)
            for table, what in zip(tables, ("operator", "collective"), strict=True)
        ]
        columns = {
            name: np.concatenate([table[name] for table in tables])
            for name in self.operators.columns
        }
        return Table({"what": np.concatenate(whats), **columns})

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return {
            "per_step": self.per_step,
            "sentences": list(self.sentences()),
            "overall": self.overall.to_dicts(),
            "steps": self.steps.to_dicts(),
            "ranks": self.ranks.to_dicts(),
            "operators": self.operators.to_dicts(),
            "collectives": self.collectives.to_dicts(),
        }


def _is_part(overall: Table) -> Any:
    """The rows that together are the whole."""
    return overall["part_of"] == WHOLE


def _most_changed(noun: str, table: Table, whole_ns: int) -> Iterator[str]:
    """Who lost and who won most; that is told where it is a notable part of a step."""
    if not len(table):
        return
    lost, won = int(np.argmax(table["delta_ns"])), int(np.argmin(table["delta_ns"]))
    for at, word, sign in ((lost, "lost", 1), (won, "won", -1)):
        row = table.take(np.array([at])).to_dicts()[0]
        if sign * row["delta_ns"] > NOTABLE * whole_ns:
            name = row["metric"] if "metric" in row else operator_label(row["type"], row["name"])
            (name,) = shortened([name], MOST_OF_NAME)
            yield (
                f"Most {word} by {noun}: {name}, {spell_duration(abs(row['delta_ns']))} "
                f"({spell_duration(row['base_ns'])} before, {spell_duration(row['new_ns'])} now)."
            )


def _used(figures: Figures) -> Table:
    """The overlap of the ranks that did anything."""
    return figures.overlap.take(figures.overlap["span_ns"] > 0)


def _step_counts(figures: Figures) -> dict[int, int]:
    """How many steps of each rank hold device work."""
    ranks_of_steps = figures.steps["rank"][~np.ma.getmaskarray(figures.steps["span_ns"])]
    ranks, counts = np.unique(ranks_of_steps, return_counts=True)
    return dict(zip(ranks.tolist(), counts.tolist(), strict=True))


def _has_steps(figures: Figures) -> bool:
    """Whether each rank that did anything has steps."""
    used = set(_used(figures)["rank"].tolist())
    return bool(used) and used <= _step_counts(figures).keys()


def _counts(figures: Figures, *, per_step: bool) -> dict[int, int]:
    """By what the times of each rank that did anything are divided."""
    ranks = _used(figures)["rank"].tolist()
    counts = _step_counts(figures) if per_step else dict.fromkeys(ranks, 1)
    return {rank: counts[rank] for rank in ranks}


def _share(counts: dict[int, int]) -> float:
    return 1 / max(1, sum(counts.values()))


def _operators(figures: Figures) -> Table:
    return figures.operators.take(figures.operators["communication"] == 0)


def _collectives(figures: Figures) -> Table:
    """Collectives, of which HCCL's names only count, over all steps: they are no names."""
    collectives = figures.operators.take(figures.operators["communication"] == 1)
    names = ["" if name.startswith(_COUNTED) else name for name in collectives["name"].tolist()]
    return Table({**collectives.columns, "name": np.array(names, object)})


_COUNTED = "hcom_"


_PARTS = (
    ("computing", "computing_ns"),
    ("communication, not overlapped", "not_overlapped_ns"),
    ("copies", "copies_ns"),
    ("idle", "idle_ns"),
)
"""What together is the whole, under the names of metrics and of columns."""


def _overall(sides: tuple[Figures, Figures], shares: tuple[float, float]) -> Table:
    """The whole and its parts, as msprof-analyze compare has them in its overall table.

    Computing and communication that nothing overlaps are unions there too, and classes of
    computing are sums over operators, which may run at once. What ranks wait for is found from
    their arrivals here, and from tasks named Notify_Wait there.
    """
    vector_known = all(tells_vector(side.operators["core"].tolist()) for side in sides)
    copies_apart = all(_knows_copies(side) for side in sides)
    found = [
        _metrics(side, share, vector_known=vector_known, copies_apart=copies_apart)
        for side, share in zip(sides, shares, strict=True)
    ]
    names = [name for name in _ALL if any(name in metrics for metrics in found)]
    unknown = [[name == _WAITING and not _knows_waiting(side) for name in names] for side in sides]
    columns = [
        np.ma.masked_array([metrics.get(name, 0) for name in names], mask, np.int64)
        for metrics, mask in zip(found, unknown, strict=True)
    ]
    return Table(
        {
            "metric": np.array([name for name, _ in names], object),
            "part_of": np.array([whole for _, whole in names], object),
            "base_ns": columns[0],
            "new_ns": columns[1],
            "delta_ns": columns[1] - columns[0],
        }
    )


_COPIES_AND_IDLE = "copies and idle"
"""One part where a run does not tell copies from idle time."""
_WAITING = ("waiting for other ranks", "communication")
_ALL = (
    (_PARTS[0][0], WHOLE),
    *((name, _PARTS[0][0]) for name in CLASSES),
    *((name, WHOLE) for name, _ in _PARTS[1:]),
    (_COPIES_AND_IDLE, WHOLE),
    (WHOLE, ""),
    ("communication", ""),
    _WAITING,
)
"""Metrics, and of what they are part, in the order in which they are told."""


def _metrics(
    figures: Figures, share: float, *, vector_known: bool, copies_apart: bool
) -> dict[tuple[str, str], int]:
    overlap = figures.overlap
    sums = {name: int(np.ma.filled(overlap[column], 0).sum()) for name, column in _PARTS}
    if not copies_apart:
        sums[_COPIES_AND_IDLE] = sums.pop("copies") + sums.pop("idle")
    found = {(name, WHOLE): total_ns for name, total_ns in sums.items()}
    operators = _operators(figures)
    columns = (operators[name].tolist() for name in ("type", "name", "core", "total_ns"))
    for kind, name, core, total_ns in zip(*columns, strict=True):
        key = computing_class(kind, name, core, told=vector_known), "computing"
        found[key] = found.get(key, 0) + total_ns
    found[WHOLE, ""] = int(extent_ns(figures.overlap).sum())
    found["communication", ""] = int(figures.overlap["communication_ns"].sum())
    if figures.waiting["shared"].any() or figures.waiting["alone"].any():
        found[_WAITING] = int(np.ma.filled(figures.waiting["waited_ns"], 0).sum())
    return {name: round(total_ns * share) for name, total_ns in found.items()}


def _knows_copies(figures: Figures) -> bool:
    """Whether copies are told from idle time on all ranks."""
    return not np.ma.getmaskarray(figures.overlap["copies_ns"]).any()


def _knows_waiting(figures: Figures) -> bool:
    """Whether ranks share collectives, or have none to wait in."""
    waiting = figures.waiting
    return bool(waiting["shared"].any() or not waiting["alone"].any())


def _steps(base: Figures, new: Figures) -> Table:
    sides = [slowest_rank_of_each_step(side.steps) for side in (base, new)]
    count = min(map(len, sides))
    first = [table.take(np.arange(count)) if count else _NO_STEPS for table in sides]
    names = {
        f"{run}_{name}": table[name]
        for run, table in zip(_RUNS, first, strict=True)
        for name in ("graph", "step", "rank")
    }
    base_ns, new_ns = (np.ma.filled(table["span_ns"], 0) for table in first)
    return Table({**names, "base_ns": base_ns, "new_ns": new_ns, "delta_ns": new_ns - base_ns})


_NO_STEPS = Table(dict.fromkeys(("graph", "step", "rank", "span_ns"), np.zeros(0, np.int64)))


def _ranks(sides: tuple[Figures, Figures], counts: list[dict[int, int]]) -> Table:
    times = [_rank_times(*side) for side in zip(sides, counts, strict=True)]
    both = sorted(times[0].keys() & times[1].keys())
    columns = [np.array([times_ns[rank] for rank in both], np.int64) for times_ns in times]
    return Table(
        {
            "rank": np.array(both, np.int64),
            "base_ns": columns[0],
            "new_ns": columns[1],
            "delta_ns": columns[1] - columns[0],
        }
    )


def _rank_times(figures: Figures, counts: dict[int, int]) -> dict[int, int]:
    used = _used(figures)
    spans = zip(used["rank"].tolist(), extent_ns(used).tolist(), strict=True)
    return {rank: round(span_ns / counts[rank]) for rank, span_ns in spans}


def _warnings(sides: tuple[Figures, Figures], counts: list[dict[int, int]]) -> Iterator[str]:
    """In what the runs do not match, so that people know what is compared with what."""
    ranks = [set(steps_of_rank) for steps_of_rank in counts]
    for run, of_run, other in zip(_RUNS, ranks, reversed(ranks), strict=True):
        if not of_run:
            yield f"{run}: holds no device records of the selection."
        elif other and of_run - other:
            yield f"{run}: {_spelled(of_run - other)} in this run only, and in its means."
    if not all(ranks):
        return
    steps = [len(slowest_rank_of_each_step(side.steps)) for side in sides]
    for run, figures in zip(_RUNS, sides, strict=True):
        without = set(_used(figures)["rank"].tolist()) - _step_counts(figures).keys()
        if without:
            yield (
                f"{run}: {_spelled(without)} without steps, so times of both runs are the mean of "
                "a rank; they compare where both runs did the same work."
            )
    if all(steps) and steps[0] != steps[1]:
        counts_told = " and ".join(spell_count(count, "step") for count in steps)
        yield (
            f"the runs have {counts_told}: the first {min(steps)} of both are compared one by "
            "one, in order; means are of all."
        )


def _spelled(ranks: set[int]) -> str:
    return f"rank {spell_ids(ranks)} is" if len(ranks) == 1 else f"ranks {spell_ids(ranks)} are"
