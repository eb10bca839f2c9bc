"""Comparison of two runs, in all, by step, rank and operator, and its gate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from timeline.analysis.work.work_classes import tells_vector
from timeline.columns.columns import Int64
from timeline.comparison.pairs import (
    MOST_MODULES,
    ONE_RUN_ONLY,
    OperatorNames,
    RunOperators,
    pair_framework_operators,
    pair_modules,
    pair_operator_memory,
    pair_operators,
    pair_peaks,
    pair_sums,
    told_by_one_run,
)
from timeline.comparison.parts import (
    EXPOSED,
    WHOLE,
    causes_of,
    classes_of,
    figures_of_rank,
    of_all_steps,
    overall_parts,
    pair_classes,
    rows_where,
    select_parts,
    with_classes,
)
from timeline.comparison.sentences import sentences_of
from timeline.errors import format_ids
from timeline.tables.table import Table, join_columns
from timeline.tables.times import extent_ns
from timeline.tracks.assemble import BASE, NEW
from timeline.tracks.root_rows import SLOWS_OTHERS, RunRank
from timeline.units import format_count, format_duration
from timeline.verdict.figures import Figures
from timeline.verdict.verdict import slowest_rank_of_each_step

LEAST_STEPS = 5
"""Minimum number of steps of a run for quartiles that separate a change from noise."""


@dataclass(frozen=True)
class Gate:
    """A check that the median step did not become longer by more than a limit.

    limit: the share that is allowed. ratio: the median step of the new run as a multiple of that of
    the base, None where a run holds nothing. separated: whether the quartiles of the new run lie
    above those of the base; None where a run has fewer than `LEAST_STEPS` steps. failed: whether
    the run is slower than allowed; never where a run has too few steps for quartiles. base_ns,
    new_ns: the medians; base_steps, new_steps: of how many steps. Where a run has no steps at all,
    these are 0, and times are from end to end, whose ratio decides alone.
    """

    limit: float
    ratio: float | None
    separated: bool | None
    failed: bool
    base_ns: int
    new_ns: int
    base_steps: int
    new_steps: int

    @classmethod
    def of(cls, limit: float, base_ns: Int64, new_ns: Int64, whole_ns: tuple[int, int]) -> Gate:
        """Judge the times of the steps of both runs.

        Args:
            base_ns, new_ns: (n,) and (k,) times of steps.
            whole_ns: of both runs from end to end, which count where a run has no steps.
        """
        counts = (len(base_ns), len(new_ns))
        if not all(counts):
            return cls._judged(limit, *whole_ns, None, (0, 0))
        separated = None
        if min(counts) >= LEAST_STEPS:
            separated = bool(np.quantile(new_ns, 0.25) > np.quantile(base_ns, 0.75))
        medians_ns = (int(np.median(base_ns)), int(np.median(new_ns)))
        return cls._judged(limit, *medians_ns, separated, counts)

    @classmethod
    def _judged(
        cls, limit: float, base_ns: int, new_ns: int, separated: bool | None, steps: tuple[int, int]
    ) -> Gate:
        ratio = new_ns / base_ns if base_ns and new_ns else None
        longer = ratio is not None and ratio > 1 + limit
        failed = longer and (separated is True or not any(steps))
        return cls(limit, ratio, separated, failed, base_ns, new_ns, *steps)

    @property
    def warning(self) -> str:
        """Return what to know about the basis of the judgement, empty if there is nothing."""
        if self.ratio is None:
            return "the gate is open: a run holds nothing that it could judge."
        if not self.base_steps:
            return "the gate stands on times from end to end: a run has no steps."
        if self.separated is None:
            steps = " and ".join(str(count) for count in (self.base_steps, self.new_steps))
            return (
                f"the gate does not fail on {steps} steps: fewer than {LEAST_STEPS} do not tell a "
                "change from noise."
            )
        return ""

    def sentence(self) -> str:
        """Return the judgement as a sentence."""
        limit = f"{100 * self.limit:g}%"
        if self.ratio is None:
            return f"Gate of {limit}: a run holds nothing that it could judge."
        what = "median step" if self.base_steps else "end to end"
        times = f"{format_duration(self.base_ns)} before, {format_duration(self.new_ns)} now"
        verdict = "fails" if self.failed else "passes"
        return f"Gate of {limit} {verdict}: {what} {self.ratio - 1:+.1%} ({times}){self._pardon}."

    @property
    def _pardon(self) -> str:
        """Return why the gate passes though the median step is longer than allowed."""
        if self.failed or self.ratio is None or self.ratio <= 1 + self.limit:
            return ""
        if self.separated is None:
            return f", but fewer than {LEAST_STEPS} steps do not tell a change from noise"
        return ", but the quartiles of both runs overlap"

    def to_dict(self) -> dict[str, Any]:
        """Return the gate as plain values."""
        return {
            "limit": self.limit,
            "ratio": None if self.ratio is None else round(self.ratio, 6),
            "separated": self.separated,
            "failed": self.failed,
            "base_ns": self.base_ns,
            "new_ns": self.new_ns,
            "base_steps": self.base_steps,
            "new_steps": self.new_steps,
        }


_RUNS = ("base", "new")
_NO_TIMES: Int64 = np.empty(0, np.int64)
_NAMES_AS_TOLD = OperatorNames()


def _no_table() -> Any:
    return field(default_factory=lambda: Table({}))


def _no_times() -> Any:
    return field(default_factory=_NO_TIMES.copy)


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side; times are sums over all ranks, divided by the steps of all ranks.

    So they hold what lies between steps too, and runs of other lengths and numbers of ranks
    compare; where a rank has no steps, sums of both runs are divided by their ranks.

    overall: metric, part_of (another metric, or ""), base_ns, new_ns, delta_ns, masked where a run
    does not tell; then classes of device work, see `pair_classes`. causes: the metrics that have no
    parts, which together are the whole: cause, part_of and the times, what changed most first.
    steps: a row per step in order, its period on the rank where it took longest: base_graph,
    base_step, base_rank, new_graph, new_step, new_rank, base_ns, new_ns, delta_ns. ranks: those of
    both runs: rank, base_ns, new_ns, delta_ns. operators, collectives: see `pair_operators`.

    See `pair_sums` for: waiting, by the rank that was waited for (waited_for_rank, masked where it
    is only some rank); idle_causes, by cause; idle_calls, by cause and the host call meanwhile;
    copies, by task; hccl_tasks, by the kind of collective and the task in it; launchers, by the
    operator of the framework that launched what ran (launched_by), and phase. memory: see
    `pair_peaks`.

    rank_causes: of the rank for which others wait much longer or less, what changed besides: rank,
    and the columns of causes. frequencies: of the AI cores of each rank while they compute: rank,
    base_mhz, new_mhz.

    framework_operators, operator_memory, modules: see `pair_framework_operators`,
    `pair_operator_memory` and `pair_modules`.

    in_one_run: of operators and collectives, how many rows ran in one run only; row_counts: how
    many rows steps and ranks have; a file keeps those where it leaves rows out. warnings: in what
    the runs do not match. ranks_of_runs: how many of each did anything.
    base_steps_ns, new_steps_ns: the times of all steps of each run.
    """

    overall: Table
    causes: Table
    steps: Table
    ranks: Table
    operators: Table
    collectives: Table
    per_step: bool
    warnings: tuple[str, ...]
    waiting: Table = _no_table()
    idle_causes: Table = _no_table()
    idle_calls: Table = _no_table()
    copies: Table = _no_table()
    hccl_tasks: Table = _no_table()
    launchers: Table = _no_table()
    memory: Table = _no_table()
    rank_causes: Table = _no_table()
    frequencies: Table = _no_table()
    ranks_of_runs: tuple[int, int] = (0, 0)
    base_steps_ns: Int64 = _no_times()
    new_steps_ns: Int64 = _no_times()
    in_one_run: dict[str, int] = field(default_factory=dict)
    row_counts: dict[str, int] = field(default_factory=dict)
    framework_operators: Table = _no_table()
    operator_memory: Table = _no_table()
    modules: Table = _no_table()

    @classmethod
    def of(
        cls,
        base: Figures,
        new: Figures,
        base_steps_ns: Int64 = _NO_TIMES,
        new_steps_ns: Int64 = _NO_TIMES,
        *,
        causes_alike: bool = True,
        names: OperatorNames = _NAMES_AS_TOLD,
    ) -> Comparison:
        """Compare two runs.

        Args:
            base_steps_ns, new_steps_ns: the times of steps, see `longest_periods_ns`.
            causes_alike: whether both runs tell as much of why devices idle, so that it compares.
            names: what operators and modules of the framework are called.
        """
        sides = (base, new)
        per_step = all(_has_steps(side) for side in sides)
        counts = [_counts(side, per_step=per_step) for side in sides]
        shares = (_share(counts[0]), _share(counts[1]))
        vector_known = tells_vector(*(side.operators["core"].tolist() for side in sides))
        operators, collectives = (
            pair_operators(
                *(
                    _run_operators(side, share, kind, vector_known=vector_known)
                    for side, share in zip(sides, shares, strict=True)
                )
            )
            for kind in (0, 1)
        )
        parts = overall_parts(sides, shares, vector_known=vector_known, causes_alike=causes_alike)
        classes = pair_classes((base.work_classes, new.work_classes), shares)
        waiting = pair_sums(
            (base.waited_for, new.waited_for),
            ("waited_for_rank", "profiled"),
            shares,
            time="waited_ns",
            counts=("times",),
        )
        copies, hccl = (
            (rows_where(base.task_sums, "hccl", value), rows_where(new.task_sums, "hccl", value))
            for value in (0, 1)
        )
        steps, ranks = _steps(base, new), _ranks(sides, counts)
        launching = (base.framework_operators, new.framework_operators)
        in_modules = (base.framework_modules, new.framework_modules)
        modules = pair_modules(in_modules, shares, names)
        return cls(
            with_classes(parts, classes),
            causes_of(parts),
            steps,
            ranks,
            operators,
            collectives,
            per_step,
            (
                *_warnings(sides, counts),
                *told_by_one_run(launching, in_modules),
                *_left_out(modules),
            ),
            waiting,
            pair_sums(of_all_steps((base.idle, new.idle)), ("cause",), shares, counts=("gaps",)),
            pair_sums(
                of_all_steps((base.idle_calls, new.idle_calls)),
                ("cause", "call"),
                shares,
                counts=(),
            ),
            pair_sums(copies, ("task",), shares, counts=("count", "size_bytes")),
            pair_sums(hccl, ("collective", "task"), shares, counts=("count", "size_bytes")),
            pair_sums(
                (base.launchers, new.launchers), ("communication", "launched_by", "phase"), shares
            ),
            pair_peaks((base.memory, new.memory), ("metric", "group", "name"), "peak_bytes"),
            _rank_causes(sides, counts, waiting, causes_alike=causes_alike),
            _frequencies(sides),
            (len(counts[0]), len(counts[1])),
            base_steps_ns,
            new_steps_ns,
            {
                name: sum(how == ONE_RUN_ONLY for how in table["matched"].tolist())
                for name, table in (("operators", operators), ("collectives", collectives))
                if len(table)
            },
            {"steps": len(steps), "ranks": len(ranks), "modules": len(modules)},
            framework_operators=pair_framework_operators(launching, shares, names),
            operator_memory=pair_operator_memory(launching, shares, names),
            modules=modules.take(slice(MOST_MODULES)),
        )

    @property
    def whole(self) -> dict[str, Any]:
        """Return the row of the whole in `parts`."""
        return next(row for row in self.parts.to_dicts() if row["metric"] == WHOLE)

    @property
    def parts(self) -> Table:
        """Return the whole, its parts, and their parts: `overall` without classes of work."""
        return select_parts(self.overall)

    def sentences(self) -> Iterator[str]:
        """Return what changed: causes first, by size, then what explains them."""
        return sentences_of(self)

    def all_operators(self) -> Table:
        """Return operators and collectives in one table, with a column `what`."""
        tables = (self.operators, self.collectives)
        whats = [
            np.full(len(table), what, object)
            for table, what in zip(tables, ("operator", "collective"), strict=True)
        ]
        columns = {
            name: join_columns([table[name] for table in tables]) for name in self.operators.columns
        }
        return Table({"what": np.concatenate(whats), **columns})

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        tables = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            "per_step": self.per_step,
            "sentences": list(self.sentences()),
            **{name: one.to_dicts() for name, one in tables.items() if isinstance(one, Table)},
        }


def _rank_causes(
    sides: tuple[Figures, Figures],
    counts: list[dict[int, int]],
    waiting: Table,
    *,
    causes_alike: bool,
) -> Table:
    """Return what changed on the rank to which most of the change in waiting is due, if any."""
    rank = most_waited_for(waiting)
    if rank is None or not all(rank in steps_of_rank for steps_of_rank in counts):
        return Table({})
    own = (figures_of_rank(sides[0], rank), figures_of_rank(sides[1], rank))
    shares = (1 / max(1, counts[0][rank]), 1 / max(1, counts[1][rank]))
    vector_known = tells_vector(*(side.operators["core"].tolist() for side in own))
    parts = overall_parts(own, shares, vector_known=vector_known, causes_alike=causes_alike)
    causes = causes_of(parts)
    is_own = (causes["part_of"] != EXPOSED) & (causes["cause"] != EXPOSED)
    causes = causes.take(is_own & (np.ma.filled(causes["delta_ns"], 0) != 0))
    return Table({"rank": np.full(len(causes), rank, np.int64), **causes.columns})


def most_waited_for(waiting: Table) -> int | None:
    """Return the rank by which more than half of all waiting changed, in the same direction."""
    known = [row for row in waiting.to_dicts() if row["waited_for_rank"] is not None]
    most = max(known, key=lambda row: abs(row["delta_ns"]), default=None)
    all_ns = int(waiting["delta_ns"].sum()) if len(waiting) else 0
    # Of two ranks that changed places, waiting may have changed by nothing in all.
    if most is None or not all_ns or 2 * most["delta_ns"] / all_ns <= 1:
        return None
    return int(most["waited_for_rank"])


def remarks_of_comparison(comparison: Comparison) -> dict[RunRank, str]:
    """Return the remark on the one rank that waiting changed for, in the run that waits longer."""
    rank = most_waited_for(comparison.waiting)
    if rank is None:
        return {}
    rows = np.ma.filled(comparison.waiting["waited_for_rank"] == rank, False)
    worse = int(comparison.waiting["delta_ns"][rows].sum()) > 0
    return {(NEW if worse else BASE, rank): SLOWS_OTHERS}


def _frequencies(sides: tuple[Figures, Figures]) -> Table:
    found = [
        {row["rank"]: row["frequency_mhz"] for row in side.computing_causes.to_dicts()}
        for side in sides
    ]
    both = [
        rank
        for rank in sorted(found[0].keys() & found[1].keys())
        if found[0][rank] is not None and found[1][rank] is not None
    ]
    columns = [np.array([of_run[rank] for rank in both], np.float64) for of_run in found]
    return Table({"rank": np.array(both, np.int64), "base_mhz": columns[0], "new_mhz": columns[1]})


def _used(figures: Figures) -> Table:
    """Return the overlap of the ranks that did anything."""
    return figures.overlap.take(figures.overlap["span_ns"] > 0)


def _step_counts(figures: Figures) -> dict[int, int]:
    """Return how many steps of each rank hold device work."""
    ranks_of_steps = figures.steps["rank"][~np.ma.getmaskarray(figures.steps["span_ns"])]
    ranks, counts = np.unique(ranks_of_steps, return_counts=True)
    return dict(zip(ranks.tolist(), counts.tolist(), strict=True))


def _has_steps(figures: Figures) -> bool:
    """Return whether each rank that did anything has steps."""
    used = set(_used(figures)["rank"].tolist())
    return bool(used) and used <= _step_counts(figures).keys()


def _counts(figures: Figures, *, per_step: bool) -> dict[int, int]:
    """Return the divisor of the times of each rank that did anything."""
    ranks = _used(figures)["rank"].tolist()
    counts = _step_counts(figures) if per_step else dict.fromkeys(ranks, 1)
    return {rank: counts[rank] for rank in ranks}


def _share(counts: dict[int, int]) -> float:
    return 1 / max(1, sum(counts.values()))


def _run_operators(
    figures: Figures, share: float, communication: int, *, vector_known: bool
) -> RunOperators:
    """Return the operators, or the collectives, of one run; names from HCCL are only counters."""
    chosen = figures.operators["communication"] == communication
    table = figures.operators.take(chosen)
    classes = None
    if communication:
        names = ["" if name.startswith(_COUNTED) else name for name in table["name"].tolist()]
        table = Table({**table.columns, "name": np.array(names, object)})
    else:
        classes = classes_of(table, vector_known=vector_known)
    if not len(figures.lengths):
        return RunOperators(table, share, classes)
    row = np.cumsum(chosen) - 1
    its = figures.lengths.take(chosen[figures.lengths["operator"]])
    return RunOperators(table, share, classes, row[its["operator"]], its["length_ns"])


_COUNTED = "hcom_"


def _steps(base: Figures, new: Figures) -> Table:
    sides = [slowest_rank_of_each_step(side.steps) for side in (base, new)]
    count = min(map(len, sides))
    first = [table.take(np.arange(count)) if count else _NO_STEPS for table in sides]
    names = {
        f"{run}_{name}": table[name]
        for run, table in zip(_RUNS, first, strict=True)
        for name in ("graph", "step", "rank")
    }
    base_ns, new_ns = (table["period_ns"] for table in first)
    return Table({**names, "base_ns": base_ns, "new_ns": new_ns, "delta_ns": new_ns - base_ns})


_NO_STEPS = Table(dict.fromkeys(("graph", "step", "rank", "period_ns"), np.zeros(0, np.int64)))


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


def _left_out(modules: Table) -> Iterator[str]:
    """Return how many modules a comparison has no room for."""
    if len(modules) > MOST_MODULES:
        yield (
            f"of {format_count(len(modules), 'row')} of modules, the {MOST_MODULES} that changed "
            "most are told."
        )


def _warnings(sides: tuple[Figures, Figures], counts: list[dict[int, int]]) -> Iterator[str]:
    """Yield how the runs do not match, so that people know what is compared."""
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
        counts_told = " and ".join(format_count(count, "step") for count in steps)
        yield (
            f"the runs have {counts_told}: the first {min(steps)} of both are compared one by "
            "one, in order; means are of all."
        )


def _spelled(ranks: set[int]) -> str:
    return f"rank {format_ids(ranks)} is" if len(ranks) == 1 else f"ranks {format_ids(ranks)} are"
