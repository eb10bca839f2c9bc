"""Comparison of two runs: in total, by step, rank and operator, and a gate for CI."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from timeline.analysis.work.work_classes import distinguish_vector
from timeline.columns.columns import Int64
from timeline.comparison.pairs import (
    MOST_HOST_CALLS,
    MOST_MODULES,
    ONE_RUN_ONLY,
    OperatorNames,
    RunOperators,
    missing_in_one_run,
    pair_framework_operators,
    pair_host_calls,
    pair_modules,
    pair_operator_memory,
    pair_operators,
    pair_peaks,
    pair_sums,
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
from timeline.comparison.sentences import count_steps, kernel_changes, sentences_of
from timeline.comparison.sides import RUNS, Sides
from timeline.errors import format_ids
from timeline.records.not_given import NO_ID
from timeline.tables.table import Table, join_columns
from timeline.tables.times import extent_ns
from timeline.tracks.assemble import BASE, NEW
from timeline.tracks.root_rows import SLOWS_OTHERS, RunRank
from timeline.units import format_count, format_duration
from timeline.verdict.figures import Figures
from timeline.verdict.verdict import slowest_rank_of_each_step

LEAST_STEPS = 5
"""Minimum number of steps of a run whose quartiles distinguish a change from noise."""


@dataclass(frozen=True)
class Gate:
    """A check that the median step did not become longer by more than a limit.

    limit: allowed increase, as a share. ratio: median step of the new run / that of the base, None
    if a run holds nothing. separated: whether the first quartile of the new run exceeds the third
    of the base, None if a run has fewer than `LEAST_STEPS` steps. failed: whether the new run is
    slower than allowed; False if a run has too few steps for quartiles. base_ns, new_ns: the
    medians. base_steps, new_steps: number of steps. If a run has no steps, these are 0, times are
    from end to end, and only their ratio counts.
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
        """Compare the times of the steps of both runs with the limit.

        Args:
            limit: allowed increase, as a share.
            base_ns, new_ns: (n,) and (k,) times of steps.
            whole_ns: times of both runs from end to end, used if a run has no steps.
        """
        counts = (len(base_ns), len(new_ns))
        if not all(counts):
            return cls._decide(limit, *whole_ns, None, (0, 0))
        separated = None
        if min(counts) >= LEAST_STEPS:
            separated = bool(np.quantile(new_ns, 0.25) > np.quantile(base_ns, 0.75))
        medians_ns = (int(np.median(base_ns)), int(np.median(new_ns)))
        return cls._decide(limit, *medians_ns, separated, counts)

    @classmethod
    def _decide(
        cls, limit: float, base_ns: int, new_ns: int, separated: bool | None, steps: tuple[int, int]
    ) -> Gate:
        ratio = new_ns / base_ns if base_ns and new_ns else None
        longer = ratio is not None and ratio > 1 + limit
        failed = longer and (separated is True or not any(steps))
        return cls(limit, ratio, separated, failed, base_ns, new_ns, *steps)

    @property
    def warning(self) -> str:
        """Return a warning about the basis of the result, empty for none."""
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

    def sentence(self, sides: Sides = RUNS) -> str:
        """Return the result as a sentence."""
        limit = f"{100 * self.limit:g}%"
        if self.ratio is None:
            return f"Gate of {limit}: a run holds nothing that it could judge."
        what = "median step" if self.base_steps else "end to end"
        times = sides.both(format_duration(self.base_ns), format_duration(self.new_ns))
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
_UNCHANGED_NAMES = OperatorNames()


def _no_table() -> Any:
    return field(default_factory=lambda: Table({}))


def _no_times() -> Any:
    return field(default_factory=_NO_TIMES.copy)


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side; times are sums over all ranks, divided by the steps of all ranks.

    They include the time between steps, and runs of different lengths and numbers of ranks can be
    compared. If any rank has no steps, sums of both runs are divided by their number of ranks
    instead (per_step is False).

    overall: metric, part_of (another metric, or ""), base_ns, new_ns, delta_ns, masked if a run
    does not record it; then classes of device work, see `pair_classes`. causes: the metrics that
    have no parts, which add up to the whole: cause, part_of and the times, the largest change
    first. steps: a row per step in order, with the period on the rank where it took longest:
    base_graph, base_step, base_rank, new_graph, new_step, new_rank, base_ns, new_ns, delta_ns.
    ranks: ranks of both runs: rank, base_ns, new_ns, delta_ns, new_rank (another one if sides of
    one run have other ranks, which are paired in order; waited_for_rank is as recorded, and in
    other tables rank is that of the base).
    operators, collectives: see `pair_operators`.

    The following are results of `pair_sums`: waiting, by the rank waited for (waited_for_rank,
    masked if unknown); idle_causes, by cause; idle_calls, by cause and the host call meanwhile;
    copies, by task; hccl_tasks, by the kind of collective and the task in it; launchers, by the
    framework operator that launched the work (launched_by), and phase; host_calls, by layer and
    name, see `pair_host_calls`. memory: see `pair_peaks`.

    rank_causes: changes on the rank to which most of the change in waiting is due: rank, and the
    columns of causes. frequencies: of the AI cores of each rank while they compute: rank, base_mhz,
    new_mhz.

    framework_operators, operator_memory, modules: see `pair_framework_operators`,
    `pair_operator_memory` and `pair_modules`.

    in_one_run: number of rows of operators and collectives that ran in one run only. row_counts:
    number of rows of steps, ranks and modules; a file keeps these numbers even if it leaves rows
    out. warnings: sentences on differences between the runs that limit the comparison.
    ranks_of_runs: number of ranks with device work in each. base_steps_ns, new_steps_ns: times of
    all steps of each run. sides: names of both. without_first: see `of`.
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
    host_calls: Table = _no_table()
    sides: Sides = RUNS
    kernels: tuple[str, ...] = ()
    """Sentences on the kernels of two captures of few operators."""
    without_first: tuple[bool, bool] = (False, False)

    @classmethod
    def of(
        cls,
        base: Figures,
        new: Figures,
        base_steps_ns: Int64 = _NO_TIMES,
        new_steps_ns: Int64 = _NO_TIMES,
        *,
        without_first: tuple[bool, bool] = (False, False),
        causes_alike: bool = True,
        names: OperatorNames = _UNCHANGED_NAMES,
        called: Sides = RUNS,
    ) -> Comparison:
        """Compare two runs.

        Args:
            base_steps_ns, new_steps_ns: times of steps, see `longest_periods_ns`.
            without_first: whether the first step of each is left out, as it may warm up.
            causes_alike: whether causes of idle time are recorded alike and can be compared.
            names: names by which operators and modules of the framework are compared.
            called: names of both runs, and the way to pair their ranks.
        """
        sides = (base, new)
        per_step = all(_has_steps(side) for side in sides)
        counts = [_counts(side, per_step=per_step) for side in sides]
        shares = (_share(counts[0]), _share(counts[1]))
        like = _like_ranks(counts, called)
        vector_known = distinguish_vector(*(side.operators["core"].tolist() for side in sides))
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
            _awaited(sides),
            ("waited_for_rank", "profiled"),
            shares,
            time="waited_ns",
            counts=("times",),
        )
        copies, hccl = (
            (rows_where(base.task_sums, "hccl", value), rows_where(new.task_sums, "hccl", value))
            for value in (0, 1)
        )
        steps, ranks = _steps(base, new), _ranks(sides, counts, like)
        launching = (base.framework_operators, new.framework_operators)
        in_modules = (base.framework_modules, new.framework_modules)
        modules = pair_modules(in_modules, shares, names)
        host_calls = pair_host_calls((base.host_calls_by_name, new.host_calls_by_name), shares)
        return cls(
            with_classes(parts, classes),
            causes_of(parts),
            steps,
            ranks,
            operators,
            collectives,
            per_step,
            (
                *_warnings(sides, counts, like, called, without_first=without_first),
                *missing_in_one_run(launching, in_modules),
                *_left_out(modules, "module", MOST_MODULES),
                *_left_out(host_calls, "host call", MOST_HOST_CALLS),
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
            _rank_causes(sides, counts, waiting, like, causes_alike=causes_alike),
            _frequencies(sides, like),
            (len(counts[0]), len(counts[1])),
            base_steps_ns,
            new_steps_ns,
            {
                name: table["matched"].tolist().count(ONE_RUN_ONLY)
                for name, table in (("operators", operators), ("collectives", collectives))
                if len(table)
            },
            {
                "steps": len(steps),
                "ranks": len(ranks),
                "modules": len(modules),
                "host_calls": len(host_calls),
            },
            framework_operators=pair_framework_operators(launching, shares, names),
            operator_memory=pair_operator_memory(launching, shares, names),
            modules=modules.take(slice(MOST_MODULES)),
            host_calls=host_calls.take(slice(MOST_HOST_CALLS)),
            kernels=tuple(kernel_changes(base, new, called)),
            sides=called,
            without_first=without_first,
        )

    @property
    def whole(self) -> dict[str, Any]:
        """Return the row of `parts` for the whole."""
        return next(row for row in self.parts.to_dicts() if row["metric"] == WHOLE)

    @property
    def parts(self) -> Table:
        """Return the whole, its parts, and their parts: `overall` without classes of work."""
        return select_parts(self.overall)

    def sentences(self) -> Iterator[str]:
        """Yield sentences on what changed: causes by size, then details of them."""
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
            "sides": self.sides.to_dict(),
            "sentences": list(self.sentences()),
            **{name: one.to_dicts() for name, one in tables.items() if isinstance(one, Table)},
        }


def _like_ranks(counts: list[dict[int, int]], called: Sides) -> dict[int, int]:
    """Return the rank of the new run for each rank of the base, of those that did anything."""
    base, new = counts
    if called.by_order:
        return dict(zip(sorted(base), sorted(new), strict=False))
    return {rank: rank for rank in sorted(base.keys() & new.keys())}


def _rank_causes(
    sides: tuple[Figures, Figures],
    counts: list[dict[int, int]],
    waiting: Table,
    like: dict[int, int],
    *,
    causes_alike: bool,
) -> Table:
    """Return the changes on the rank to which most of the change in waiting is due, if any."""
    rank = most_waited_for(waiting)
    if rank is None or rank not in like:
        return Table({})
    pair = (rank, like[rank])
    own = (figures_of_rank(sides[0], pair[0]), figures_of_rank(sides[1], pair[1]))
    shares = (1 / max(1, counts[0][pair[0]]), 1 / max(1, counts[1][pair[1]]))
    vector_known = distinguish_vector(*(side.operators["core"].tolist() for side in own))
    parts = overall_parts(own, shares, vector_known=vector_known, causes_alike=causes_alike)
    causes = causes_of(parts)
    is_own = (causes["part_of"] != EXPOSED) & (causes["cause"] != EXPOSED)
    causes = causes.take(is_own & (np.ma.filled(causes["delta_ns"], 0) != 0))
    return Table({"rank": np.full(len(causes), rank, np.int64), **causes.columns})


def _awaited(sides: tuple[Figures, Figures]) -> tuple[Table, Table]:
    """Return the rows of WAITED_FOR of both sides; a rank is read if either side has read it."""
    read = np.concatenate([side.waiting["rank"] for side in sides])

    def of(side: Figures) -> Table:
        whom = np.ma.filled(side.waited_for["waited_for_rank"], NO_ID)
        profiled = np.isin(whom, read).astype(object)
        return Table({**side.waited_for.columns, "profiled": profiled})

    return of(sides[0]), of(sides[1])


def most_waited_for(waiting: Table) -> int | None:
    """Return the rank that accounts for more than half of the change in waiting, None for none."""
    known = [row for row in waiting.to_dicts() if row["waited_for_rank"] is not None]
    most = max(known, key=lambda row: abs(row["delta_ns"]), default=None)
    all_ns = int(waiting["delta_ns"].sum()) if len(waiting) else 0
    # The change may be 0 in total if two ranks changed places.
    if most is None or not all_ns or 2 * most["delta_ns"] / all_ns <= 1:
        return None
    return int(most["waited_for_rank"])


def remarks_of_comparison(comparison: Comparison) -> dict[RunRank, str]:
    """Return a remark on the rank for which waiting changed, in the run with the longer waits."""
    rank = most_waited_for(comparison.waiting)
    if rank is None:
        return {}
    rows = np.ma.filled(comparison.waiting["waited_for_rank"] == rank, False)
    worse = int(comparison.waiting["delta_ns"][rows].sum()) > 0
    return {(NEW if worse else BASE, rank): SLOWS_OTHERS}


def _frequencies(sides: tuple[Figures, Figures], like: dict[int, int]) -> Table:
    known = [
        {
            row["rank"]: row["frequency_mhz"]
            for row in side.computing_causes.to_dicts()
            if row["frequency_mhz"] is not None
        }
        for side in sides
    ]
    both = [(base, new) for base, new in like.items() if base in known[0] and new in known[1]]
    rows = [(base, known[0][base], known[1][new]) for base, new in both]
    return Table.of_rows({"rank": int, "base_mhz": float, "new_mhz": float}, rows)


def _used(figures: Figures) -> Table:
    """Return the rows of overlap of ranks with device work."""
    return figures.overlap.take(figures.overlap["span_ns"] > 0)


def _step_counts(figures: Figures) -> dict[int, int]:
    """Return the number of steps with device work, by rank."""
    ranks_of_steps = figures.steps["rank"][~np.ma.getmaskarray(figures.steps["span_ns"])]
    ranks, counts = np.unique(ranks_of_steps, return_counts=True)
    return dict(zip(ranks.tolist(), counts.tolist(), strict=True))


def _has_steps(figures: Figures) -> bool:
    """Return whether each rank with device work has steps with device work."""
    used = set(_used(figures)["rank"].tolist())
    return bool(used) and used <= _step_counts(figures).keys()


def _counts(figures: Figures, *, per_step: bool) -> dict[int, int]:
    """Return the divisor of times, by rank with device work: its steps, or 1."""
    ranks = _used(figures)["rank"].tolist()
    counts = _step_counts(figures) if per_step else dict.fromkeys(ranks, 1)
    return {rank: counts[rank] for rank in ranks}


def _share(counts: dict[int, int]) -> float:
    return 1 / max(1, sum(counts.values()))


def _run_operators(
    figures: Figures, share: float, communication: int, *, vector_known: bool
) -> RunOperators:
    """Return the operators, or the collectives, of one run.

    Names of collectives that HCCL numbers are dropped, as they do not match between runs.
    """
    chosen = figures.operators["communication"] == communication
    table = figures.operators.take(chosen)
    classes = None
    if communication:
        names = ["" if name.startswith("hcom_") else name for name in table["name"].tolist()]
        table = Table({**table.columns, "name": np.array(names, object)})
    else:
        classes = classes_of(table, vector_known=vector_known)
    if not len(figures.lengths):
        return RunOperators(table, share, classes)
    row = np.cumsum(chosen) - 1
    lengths = figures.lengths.take(chosen[figures.lengths["operator"]])
    return RunOperators(table, share, classes, row[lengths["operator"]], lengths["length_ns"])


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


def _ranks(
    sides: tuple[Figures, Figures], counts: list[dict[int, int]], like: dict[int, int]
) -> Table:
    base, new = (_rank_times(*side) for side in zip(sides, counts, strict=True))
    rows = [
        (one, base[one], new[other], new[other] - base[one], other) for one, other in like.items()
    ]
    names = ("rank", "base_ns", "new_ns", "delta_ns", "new_rank")
    return Table.of_rows(dict.fromkeys(names, int), rows)


def _rank_times(figures: Figures, counts: dict[int, int]) -> dict[int, int]:
    used = _used(figures)
    spans = zip(used["rank"].tolist(), extent_ns(used).tolist(), strict=True)
    return {rank: round(span_ns / counts[rank]) for rank, span_ns in spans}


def _left_out(rows: Table, noun: str, most: int) -> Iterator[str]:
    """Yield a sentence on modules or host calls that a comparison leaves out."""
    if len(rows) > most:
        count = format_count(len(rows), "row")
        yield f"of {count} of {noun}s, the {most} that changed most are kept."


def _warnings(
    sides: tuple[Figures, Figures],
    counts: list[dict[int, int]],
    like: dict[int, int],
    called: Sides,
    *,
    without_first: tuple[bool, bool],
) -> Iterator[str]:
    """Yield sentences on differences between the runs that limit the comparison."""
    ranks, paired = [set(steps_of_rank) for steps_of_rank in counts], ({*like}, {*like.values()})
    only = "on this side only" if called.in_one_run else "in this run only"
    for run, of_run, in_both in zip(called.labels, ranks, paired, strict=True):
        alone = of_run - in_both
        if not of_run:
            yield f"{run}: holds no device records of the selection."
        elif all(ranks) and alone:
            yield f"{run}: {_ranks_are(alone)} {only}, and in its means."
    if not all(ranks):
        return
    steps = [len(slowest_rank_of_each_step(side.steps)) for side in sides]
    for run, figures in zip(called.labels, sides, strict=True):
        without = set(_used(figures)["rank"].tolist()) - _step_counts(figures).keys()
        if without:
            yield (
                f"{run}: {_ranks_are(without)} without steps, so times of both runs are means per "
                "rank; they can be compared only if both runs did the same work."
            )
    if all(steps) and steps[0] != steps[1]:
        both = count_steps((steps[0], steps[1]), without_first)
        but = " but a first step, which may warm up" if any(without_first) else ""
        yield (
            f"{'both sides' if called.in_one_run else 'the runs'} have {both}: the first "
            f"{min(steps)} of both are compared one by one, in order; means are of all{but}."
        )


def _ranks_are(ranks: set[int]) -> str:
    return f"rank {format_ids(ranks)} is" if len(ranks) == 1 else f"ranks {format_ids(ranks)} are"
