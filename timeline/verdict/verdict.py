"""The answer to "what is slow": which rank, which step, which operators, who waits.

Sentences, shares and extremes are derived from the tables of `timeline/verdict/figures.py`. Their
sums per rank are computed elsewhere: device time of ranks and steps in
`timeline/analysis/overlap.py`, operators in `timeline/analysis/work/operators.py`, and waiting in
`timeline/analysis/waits/waiting.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.gains.findings import Cause, FindingKind
from timeline.analysis.ordinary_steps import has_several_graphs
from timeline.analysis.waits.culprit import Culprit
from timeline.analysis.waits.waiting import Basis
from timeline.columns.columns import Bool, Int64
from timeline.tables.operators import total_by_type
from timeline.tables.parallel import parts_of_run, pipeline_sentences
from timeline.tables.table import Table
from timeline.tables.times import extent_ns
from timeline.tracks.root_rows import IDLES_FOR_DATA, SLOWS_OTHERS, Highlights, RunRank, SlowStep
from timeline.units import format_duration, format_like, format_share, format_short
from timeline.verdict import words
from timeline.verdict.advice import ABOUT_DATA, STEP_INTERVAL, STEP_INTERVAL_OF_RANKS, worst_of_each
from timeline.verdict.figures import Figures
from timeline.verdict.findings import ReportedFinding, ReportedFindings
from timeline.verdict.kernel_gaps import gaps_of, has_reason, host_outside_sentence
from timeline.verdict.mean_step import MeanStep, edges_ns, mean_steps, own_times_ns
from timeline.verdict.one_off import one_off_sentence
from timeline.verdict.slow_step import SlowBesideUsual
from timeline.verdict.unreplayed import untimed_sentences
from timeline.verdict.words import (
    compute_sentence,
    idle_sentence,
    kernel_sentences,
    mean_idle,
    work_sentence,
)

MOST_OPERATORS = 5
_OF_KERNELS = (FindingKind.SLOW_HOSTS, FindingKind.SLOW_OPERATOR)
BOUND = ("bound", "bound_share")
MEASURED = ("cores", "clock_ghz", "outside_core", "flop_per_s", "utilization")
MOST_BARS = 24
BARS = " ▁▂▃▄▅▆▇█"
LEAST_LATE = 50
"""A rank needs to be late by more than one part in this many of the latest rank to have bars."""
LEAST_COMPUTE = 0.2
"""Share of a mean step that must compute for a sentence on what bounds that."""
NOTABLE = 0.05
"""Minimum share by which a rank or step exceeds others to be notably longer."""
BUSY = 0.95
"""Share of a mean step from which computing leaves nothing to win by faster data."""
MOST = 2 / 3
"""Minimum share of all waiting that a rank causes for it to be named."""


@dataclass(frozen=True)
class Extreme:
    """The slowest and the fastest of several ranks or steps, and the median."""

    slowest: int
    slowest_ns: int
    fastest: int
    fastest_ns: int
    median_ns: int
    rank: int | None = None
    """Rank on which the slowest step took longest."""
    graph: int | None = None
    """Graph of the slowest step."""

    @property
    def spread(self) -> float:
        """Return how much longer the slowest took than the fastest, as a share of the fastest."""
        return self.slowest_ns / self.fastest_ns - 1 if self.fastest_ns else 0.0

    @property
    def is_notable(self) -> bool:
        """Return whether the slowest took notably longer than the median."""
        return self.slowest_ns >= (1 + NOTABLE) * self.median_ns

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the names of the report."""
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
    """The answer to "what is slow".

    ranks: a row per rank, with `step_ns`, the mean period of its ordinary steps. steps: a row per
    graph and step with device tasks (or all steps, if none has any), of the rank where it took
    longest, with the columns of `Figures.steps` and `Figures.exposed_steps`. rank_extreme,
    step_extreme: of ranks, and of ordinary steps. operators, collectives: the types that took
    longest over all ranks, with their share of all computing or communication. stragglers: a row
    per rank that kept others waiting in collectives, the one that caused most waiting first. basis:
    communication that this is based on. findings: what to fix first. culprit: the rank that the
    first finding names. mean: parts of the mean ordinary step, None if no rank has device work.
    mean_steps: the same, a row per rank. ends: sentence on the last step with device tasks, if more
    are marked. idle: sentence on causes of idle time. used_ranks, unused_ranks: number of ranks
    with and without device work. step_count: number of steps with device work, measured_steps: of
    them, in `steps`. rank_means: unweighted mean over ranks of each column of mean_steps, None if
    no rank recorded it. bubbles: sentences on a pipeline. data_advice, advice: sentences on data
    preparation, and on other small tables of the profiler. untimed: sentences on these tables if no
    rank has device work with known times.
    """

    ranks: Table
    steps: Table
    rank_extreme: Extreme | None
    step_extreme: Extreme | None
    operators: Table
    collectives: Table
    stragglers: Table
    basis: Basis
    findings: ReportedFindings
    culprit: Culprit | None
    mean: MeanStep | None
    mean_steps: Table
    ends: str | None
    idle: str | None
    used_ranks: int = 0
    unused_ranks: int = 0
    step_count: int = 0
    rank_means: dict[str, int | None] = field(default_factory=dict)
    bubbles: tuple[str, ...] = ()
    measured_steps: int = 0
    data_advice: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    untimed: tuple[str, ...] = ()
    finding_steps: tuple[tuple[int, ...], ...] = ()
    """Steps that show each finding, see `_steps_to_see`."""
    kernels: tuple[str, ...] = ()
    """Sentences on the kernels of a capture of few operators."""
    compute: tuple[str, ...] = ()
    """Sentences on what bounds compute and how fast it is, as far as it was measured."""
    pair_to_see: SlowBesideUsual | None = None
    """The longest step of the first finding of odd steps, or the slowest one, and a usual one."""
    slow_step: SlowBesideUsual | None = None
    """The slowest step beside a usual one, if it takes notably longer."""
    compare_command: str = ""
    """Command that compares `pair_to_see`, or empty; added after `of`."""
    commands: tuple[str, ...] = ()
    """Command that shows each finding in detail, an empty string for none; added after `of`."""
    host_outside: str | None = None
    """Sentence on host calls outside the time of few operators; None unless they take longer."""
    is_unexplained: bool = False
    """Whether the device idles notably, and nearly all of that time has no recorded launch."""
    one_off: str | None = None
    """Sentence on a host call that took most of the idle time once; None without any."""

    @classmethod
    def of(cls, figures: Figures) -> Verdict:
        """Return the verdict on some ranks."""
        rank_steps = Table({**figures.steps.columns, **figures.exposed_steps.columns})
        steps = slowest_rank_of_each_step(rank_steps)
        ordinary = slowest_rank_of_each_step(figures.steps, ordinary=True)
        extreme = _step_extreme(ordinary)
        with_work = steps
        if len(steps):
            computes = np.ma.filled(rank_steps["computing_ns"], 0) > 0
            with_work = rank_steps.take((rank_steps["tasks"] > 0) | computes)
        measured = slowest_rank_of_each_step(with_work)
        measured = measured if len(measured) else steps
        totals = total_by_type(figures.operators, facts=figures.facts)
        communication = totals["communication"] == 1
        means = mean_steps(figures)
        mean = MeanStep.of(figures, means)
        idle = None if mean is None else mean_idle(figures)
        between = mean is not None and words.is_notable(mean.between_ns, mean)
        culprit = figures.culprit
        advice = list(
            worst_of_each(figures.all_advice(), None if culprit is None else culprit.rank)
        )
        # Time between steps is reported once, in the sentence with the most information.
        late_data = [
            one for one in figures.findings.found if one.cause is Cause.INPUT and one.fault
        ]
        if late_data or between or any(one.about == STEP_INTERVAL_OF_RANKS for one in advice):
            advice = [one for one in advice if one.about != STEP_INTERVAL]
        blamed = {rank for one in late_data for rank in one.ranks or ()}
        advice = [
            one for one in advice if one.about != STEP_INTERVAL_OF_RANKS or one.rank not in blamed
        ]
        if mean is not None and mean.computing_ns >= BUSY * mean.period_ns:
            advice = [one for one in advice if one.about not in ABOUT_DATA]  # data come in time
        is_notable = extreme is not None and extreme.is_notable
        slow_step = SlowBesideUsual.of(figures, ordinary) if is_notable else None
        odd = (one.steps for one in figures.findings.found if one.steps)
        pairs = (SlowBesideUsual.of(figures, _rows_of(steps, one), one) for one in odd)
        stages = next((row["stages"] for row in figures.parallel.to_dicts()), None)
        kernels = tuple(kernel_sentences(figures))
        # Sentences on kernels say why if the launches that would are not recorded.
        said = bool(kernels) and any(has_reason(gaps_of(rank)) for rank in figures.facts)
        return cls(
            figures.overlap,
            measured,
            _rank_extreme(figures.overlap),
            extreme,
            _longest(totals, ~communication),
            _longest(totals, communication),
            _stragglers(figures.waiting, figures.steps),
            figures.basis,
            figures.findings,
            culprit,
            mean,
            means,
            words.ends_sentence(figures.steps),
            None
            if mean is None or idle is None or said
            else idle_sentence(
                idle,
                steps=mean.steps,
                span_ns=mean.period_ns,
                computing=mean.computing_ns > 0,
                beyond=mean.before_ns + mean.between_ns > 0,
                copies_ns=0
                if any(idle.left_out.values())
                else mean.before_ns + mean.idle_ns + mean.between_ns - idle.total_ns,
            ),
            len(means),
            len(figures.overlap) - len(means),
            len(steps),
            {name: _mean_of(column) for name, column in means.columns.items()},
            tuple(pipeline_sentences(figures.pipeline, stages)),
            len(measured),
            tuple(one.text for one in advice if one.about in ABOUT_DATA),
            tuple(one.text for one in advice if one.about not in ABOUT_DATA),
            () if mean is not None else tuple(untimed_sentences(figures)),
            tuple(
                _steps_to_see(figures.steps, steps, ordinary, finding)
                for finding in figures.findings.found
            ),
            kernels=kernels,
            compute=tuple(_compute_sentences(figures, totals, mean, with_bounds=not kernels)),
            host_outside=host_outside_sentence(gaps_of(figures.facts[0]))
            if kernels and len(figures.facts) == 1
            else None,
            one_off=None
            if mean is None or idle is None
            else one_off_sentence(figures.facts, idle.left_out),
            is_unexplained=mean is not None
            and idle is not None
            and idle.is_unexplained
            and bool(idle.largest(mean.period_ns)),
            slow_step=slow_step,
            pair_to_see=next(pairs, slow_step),
        )

    @property
    def slow_rank(self) -> int | None:
        """Return the rank that the first finding names, None for none.

        If the run cannot be replayed, it is the rank whose steps take notably longer.
        """
        if self.culprit is not None:
            return self.culprit.rank
        return self._slowest_by_steps

    @property
    def _slowest_by_steps(self) -> int | None:
        """Return the rank whose steps take notably longer, if the run could not be replayed."""
        extreme = self.rank_extreme
        if extreme is None or not self.findings.reason or extreme.spread < NOTABLE:
            return None
        return extreme.slowest

    @property
    def ranks_to_see(self) -> tuple[int, ...]:
        """Return the ranks to look at: the culprit, if profiled, and who waits longest for it.

        Without a culprit, it is the rank on which the slowest step took longest, else the slowest
        rank; none if nothing is known.
        """
        culprit, step, rank = self.culprit, self.step_extreme, self.rank_extreme
        if culprit is not None:
            waits = tuple(waiter.rank for waiter in culprit.waiters[:1])
            return (culprit.rank, *waits) if culprit.profiled else waits
        if step is not None and step.rank is not None:
            return (step.rank,)
        return () if rank is None else (rank.slowest,)

    @property
    def steps_to_see(self) -> tuple[int, ...]:
        """Return the steps to look at: those of the first finding, else the slowest one, if any."""
        if self.finding_steps:
            return self.finding_steps[0]
        return () if self.step_extreme is None else (self.step_extreme.slowest,)

    def commands_text(self, see_why: str) -> Iterator[str]:
        """Yield the first command, and those of findings that it does not show.

        see_why: the first command, empty for none.
        """
        if see_why:
            yield f"See why: {see_why}"
        shown = {"", see_why}
        for number, command in enumerate(self.commands, 1):
            if command not in shown:
                yield f"Finding {number}: {command}"
            shown.add(command)
        if self.compare_command:
            yield f"A slow and a usual step: {self.compare_command}"

    def sentences(self) -> Iterator[str]:
        """Yield the answers for people, the most important first."""
        findings = [one.sentence for one in self.findings.found]
        yield from self.kernels
        if self.kernels:
            # Sentences on kernels say more of these.
            findings = [one.sentence for one in self.findings.found if one.kind not in _OF_KERNELS]
        yield from findings[:1]
        if self.mean is not None and not (findings or self.findings.reason or self.kernels):
            if self.is_unexplained:
                busy = format_share(self.mean.computing_ns, self.mean.period_ns)
                yield f"Device computes {busy} of the time; launches are not recorded."
            else:
                yield words.nothing_sentence(self.mean, self._longest_operator())
        yield from self.data_advice
        yield from self.advice
        yield from self.untimed
        if self.mean is not None:
            yield from self._where_time_goes(self.mean)
            if self.findings.reason and not findings and self.used_ranks and not self.untimed:
                yield f"What could be won is not known: {self.findings.reason}."
        for number, sentence in enumerate(findings[1:], 2):
            yield f"{number}. {sentence}"
        if any(one.ranks is None or len(one.ranks) != 1 for one in self.findings.found[:1]):
            yield from filter(None, [words.basis_sentence(self.basis)])

    def _longest_operator(self) -> str:
        """Return the type of operator that takes longest, with its share; empty for none."""
        row = next(iter(self.operators.to_dicts()), None)
        return "" if row is None else f"{row['type']} {row['share']:.0%} of computing"

    def _where_time_goes(self, mean: MeanStep) -> Iterator[str]:
        """Yield sentences on the parts of a mean step, and on the slowest step and rank."""
        yield words.step_sentence(mean)
        yield from self._most_waited_for(mean)
        yield from self.compute
        yield from self.bubbles
        yield from self._outside(mean)
        yield from filter(None, [self.host_outside, self.idle, self.one_off, self.ends])
        yield from self._slowest_step()
        yield from self._slowest_rank()

    def _most_waited_for(self, mean: MeanStep) -> Iterator[str]:
        """Yield the rank that causes most of the waiting, if no finding names it."""
        rows = self.stragglers.to_dicts()
        caused_ns = sum(row["caused_ns"] for row in rows)
        if not caused_ns or (mean.waiting_ns or 0) < NOTABLE * mean.period_ns:
            return
        first = rows[0]
        named = {rank for one in self.findings.found for rank in one.ranks or ()}
        if first["rank"] not in named and first["caused_ns"] >= MOST * caused_ns:
            share = format_share(first["caused_ns"], caused_ns)
            yield f"Most of the waiting, {share}, is for rank {first['rank']}."

    def _outside(self, mean: MeanStep) -> Iterator[str]:
        """Yield a sentence on free time before and after the time that shares are of."""
        outside_ns = np.ma.filled(self.ranks["outside_ns"], 0)
        if outside_ns.any() and not mean.steps:
            at = int(np.argmax(outside_ns))
            row = self.ranks.take(np.array([at])).to_dicts()[0]
            yield from _outside(row, mean, several=len(self.ranks) > 1)

    def _slowest_step(self) -> Iterator[str]:
        extreme = self.step_extreme
        if extreme is None:
            return
        slowest, fastest, median = (
            format_like(time_ns, extreme.slowest_ns)
            for time_ns in (extreme.slowest_ns, extreme.fastest_ns, extreme.median_ns)
        )
        if not extreme.is_notable:
            alike = 100 * (extreme.slowest_ns - extreme.fastest_ns) < extreme.median_ns
            which = "" if alike else f", the slowest is {extreme.slowest}"
            # In a pipeline, ranks differ in how long a step takes.
            is_above = self.mean is not None and extreme.fastest_ns > 1.01 * self.mean.period_ns
            each = ", each on its slowest rank" if is_above else ""
            yield f"Steps take {fastest} to {slowest}{each}{which}."
            return
        on = f" on rank {extreme.rank}" if len(self.ranks) > 1 else ""
        longer = "" if self.slow_step is None else self.slow_step.text()
        more = f": {longer}" if longer else ""
        yield f"Slowest step: {extreme.slowest} ({slowest}{on}; median {median}){more}."

    def _slowest_rank(self) -> Iterator[str]:
        """Yield a sentence on the rank whose steps take longest, if the run could not be replayed.

        Otherwise findings name the rank: waiting for each other evens out the steps of ranks.
        """
        extreme = self.rank_extreme
        if extreme is None or self._slowest_by_steps is None:
            return
        per = " per step" if self.mean is not None and self.mean.steps > 1 else ""
        more = (
            f"{extreme.spread:.0%} slower than"
            if extreme.spread < 1
            else f"{1 + extreme.spread:.1f} times as long as"
        )
        yield (
            f"Slowest rank: {extreme.slowest} ({format_short(extreme.slowest_ns)}{per}, {more} "
            f"rank {extreme.fastest})."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return {
            "sentences": list(self.sentences()),
            "ranks": [_report_row(row) for row in self.ranks.to_dicts()],
            "mean_step": None if self.mean is None else self.mean.to_dict(),
            "mean_steps": [_report_row(row) for row in self.mean_steps.to_dicts()],
            "slowest_rank": None if self.rank_extreme is None else self.rank_extreme.to_dict(),
            "slowest_step": None if self.step_extreme is None else self.step_extreme.to_dict(),
            "operators": self.operators.to_dicts(),
            "collectives": self.collectives.to_dicts(),
            "stragglers": self.stragglers.to_dicts(),
            "waiting_basis": {**asdict(self.basis), "share": round(self.basis.share, 6)},
            "culprit": None if self.culprit is None else self.culprit.to_dict(),
            "findings": [
                one.to_dict() | {"command": next(iter(self.commands[at : at + 1]), "")}
                for at, one in enumerate(self.findings.found)
            ],
            "replay": self.findings.to_dict(),
        }


def highlights_of(verdict: Verdict, figures: Figures) -> Highlights:
    """Return the ranks and the step to mark in names of rows; a single rank gets no remark."""
    culprit, slowest = verdict.culprit, verdict.step_extreme
    remarks = dict[RunRank, str]()
    if culprit is not None and culprit.profiled and len(figures.facts) > 1:
        is_starved = culprit.cause is Cause.INPUT
        remarks["", culprit.rank] = IDLES_FOR_DATA if is_starved else SLOWS_OTHERS
    step = None if slowest is None else SlowStep(slowest.graph, slowest.slowest)
    parts = parts_of_run(figures.facts, figures.parallel, figures.pipeline)
    means, own_ns = verdict.mean_steps, dict[int, int]()
    if len(means):
        times_ns = np.ma.filled(own_times_ns(means), 0).tolist()
        own_ns = dict(zip(means["rank"].tolist(), times_ns, strict=True))
    return Highlights(remarks, step, verdict.ranks_to_see, parts, own_ns)


def _report_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of `Figures.overlap` under the names of the report."""
    names = {"not_overlapped_ns": "exposed_communication_ns"}
    return {names.get(name, name): value for name, value in row.items()}


def _outside(row: dict[str, Any], mean: MeanStep, *, several: bool) -> Iterator[str]:
    """Yield a sentence on the free time at the edges of a rank, unless it is hardly any.

    A kernel of FFTS+ begins about 1 us before the time that counts as computing.
    """
    after_ns = row["outside_ns"] - row["before_ns"]
    edges = ((row["before_ns"], "before the first"), (after_ns, "after the last"))
    lengths = [
        f"{format_duration(length_ns)} {where}"
        for length_ns, where in edges
        if words.is_notable(length_ns, mean)
    ]
    if lengths:
        lengths[0] += " kernel"
        of_rank = f"on rank {row['rank']} " if several else ""
        outside = f"{of_rank}{' and '.join(lengths)}"
        yield f"Not in these shares: {outside}, which the profiler counts as free."


def _rank_times_ns(ranks: Table) -> npt.NDArray[Any]:
    """Return the mean step of each rank, or the whole time of each if any rank has no steps."""
    steps_ns = ranks["step_ns"]
    return extent_ns(ranks) if np.ma.getmaskarray(steps_ns).any() else steps_ns


def _rank_extreme(ranks: Table) -> Extreme | None:
    used = ranks.take(ranks["span_ns"] > 0) if len(ranks) else ranks
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


def slowest_rank_of_each_step(steps: Table, *, ordinary: bool = False) -> Table:
    """Return the row of the slowest rank for each graph and step, in order of time.

    Each rank numbers its graphs independently, so steps are matched by their number alone unless a
    rank has several graphs.

    ordinary: whether to use only ordinary steps.
    """
    if not len(steps):
        return steps
    rows = np.flatnonzero(np.ma.filled(steps["span_ns"], 0) > 0)
    period_ns = np.asarray(steps["period_ns"])
    graph = np.ma.filled(steps["graph"], -1)
    if not has_several_graphs(steps["rank"][rows], graph[rows]):
        graph = np.zeros_like(graph)
    if ordinary:
        rows = rows[np.ma.filled(steps["ordinary"], 0)[rows] == 1]
        if not len(rows):
            return steps.take(rows)
    step = np.asarray(steps["step"])
    rows = rows[np.lexsort((-period_ns[rows], step[rows], graph[rows]))]
    first = np.ones(len(rows), np.bool_)
    first[1:] = (np.diff(graph[rows]) != 0) | (np.diff(step[rows]) != 0)
    longest = rows[first]
    start_ns = np.asarray(steps["start_ns"])[longest]
    return steps.take(longest[np.argsort(start_ns, kind="stable")])


def _mean_of(times_ns: Int64) -> int | None:
    known = np.ma.compressed(times_ns)
    return round(float(np.mean(known))) if len(known) else None


def _step_extreme(steps: Table) -> Extreme | None:
    if len(steps) < 2:
        return None
    times_ns = np.asarray(steps["period_ns"])
    if times_ns.min() == times_ns.max():
        return None
    at = int(np.argmax(times_ns))
    row = steps.take(np.array([at])).to_dicts()[0]
    return _extreme(steps["step"], times_ns, rank=row["rank"], graph=row["graph"])


def _rows_of(steps: Table, numbers: Sequence[int]) -> Table:
    return steps.take(np.isin(np.asarray(steps["step"]), numbers)) if len(steps) else steps


def _steps_to_see(
    of_ranks: Table, steps: Table, ordinary: Table, finding: ReportedFinding
) -> tuple[int, ...]:
    """Return the steps that show a finding, none if there are fewer than two steps.

    For a finding on some steps, it is the first of them and its neighbours, to compare with; for
    late data, the ordinary step with the longest time before and after the device's work; for a
    lever, a median step; for a slow rank, the step in which it came latest; else the slowest step.

    Args:
        of_ranks: `Figures.steps`.
        steps, ordinary: a row per step, of all steps and of ordinary ones, in order of time.
    """
    if len(steps) < 2:
        return ()
    numbers = list(dict.fromkeys(steps["step"].tolist()))
    if finding.steps:
        at = numbers.index(finding.steps[0])
        first = min(max(at - 1, 0), max(len(numbers) - 3, 0))
        return tuple(numbers[first : first + 3])
    ordinary = ordinary if len(ordinary) else steps
    order = np.argsort(ordinary["period_ns"], kind="stable")
    if finding.cause is Cause.INPUT:
        is_blamed = of_ranks["ordinary"] == 1
        if finding.ranks:
            is_blamed &= np.isin(of_ranks["rank"], finding.ranks)
        rows = of_ranks.take(is_blamed)
        around_ns = edges_ns(rows)
        if len(rows) and around_ns.max() > 0:
            return (int(rows["step"][int(np.argmax(around_ns))]),)
    if not finding.fault:
        return (int(ordinary["step"][order[len(order) // 2]]),)
    if finding.ranks and len(finding.ranks) == 1:
        rows = of_ranks.take(of_ranks["rank"] == finding.ranks[0])
        late_ns = np.ma.filled(rows["late_ns"], 0)
        if len(late_ns) and late_ns.max() > 0:
            return (int(rows["step"][int(np.argmax(late_ns))]),)
    return (int(ordinary["step"][order[-1]]),)


def _compute_sentences(
    figures: Figures, totals: Table, mean: MeanStep | None, *, with_bounds: bool
) -> Iterator[str]:
    """Yield what bounds compute, and how fast products run, if a mean step computes long enough.

    The rate is also given if the user states the peak, as that asks for it.
    """
    if mean is None:
        return
    is_notable = mean.computing_ns >= LEAST_COMPUTE * mean.period_ns
    if is_notable and with_bounds:
        yield from filter(None, [compute_sentence(totals.to_dicts())])
    if is_notable or any(one.operators.shapes.peak_flop_per_s for one in figures.facts):
        yield from filter(None, [work_sentence(figures)])


def _longest(totals: Table, chosen: Bool) -> Table:
    """Return the first of the chosen rows, with their share of all chosen rows."""
    rows = totals.take(chosen)
    all_ns = int(rows["total_ns"].sum())
    top = rows.take(np.arange(min(len(rows), MOST_OPERATORS)))
    names = ("type", "core", "count", "total_ns", *BOUND, "utilization", "line")
    columns = {name: top[name] for name in names}
    share = top["total_ns"] / all_ns if all_ns else np.zeros(len(top))
    return Table({**columns, "share": np.round(share, 6)})


def _stragglers(waiting: Table, steps: Table) -> Table:
    """Return the ranks that others waited for, by the waiting they caused, with their lateness.

    Added columns: late_ns, the maximum lateness in a step; history, a string of bars for the
    lateness in each step, or in several, on one scale for all ranks, and empty if it is unknown or
    far below that of the latest rank.
    """
    caused_ns = np.ma.filled(waiting["caused_ns"], 0)
    order = np.argsort(-caused_ns, kind="stable")
    rows = waiting.take(order[caused_ns[order] > 0])
    late = [
        np.maximum(np.ma.compressed(steps["late_ns"][steps["rank"] == rank]), 0)
        if len(steps)
        else np.zeros(0, np.int64)
        for rank in rows["rank"].tolist()
    ]
    late_ns = np.array([of_steps.max(initial=0) for of_steps in late], np.int64)
    most_ns = int(late_ns.max(initial=0))
    history = np.array([_late_bars(of_steps, most_ns) for of_steps in late], object)
    return Table({**rows.columns, "late_ns": np.ma.masked_equal(late_ns, 0), "history": history})


def _late_bars(late_ns: npt.NDArray[np.int64], most_ns: int) -> str:
    if len(late_ns) < 2 or late_ns.max() * LEAST_LATE <= most_ns:
        return ""
    groups = np.array_split(late_ns, min(len(late_ns), MOST_BARS))
    levels = (int(group.max()) * (len(BARS) - 1) // most_ns for group in groups)
    return "".join(BARS[level] for level in levels)
