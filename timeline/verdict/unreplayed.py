"""Losses found without a replay, from idle time, step traces and small tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import numpy as np

from timeline.analysis.gains.findings import NOTABLE, Basis, Cause, FindingKind
from timeline.analysis.idle.idle_sums import CAUSES, IdleCause
from timeline.analysis.work.operators import HOST_CORE
from timeline.columns.columns import Int64
from timeline.columns.distinct import distinct_values
from timeline.tables.data import Bottleneck
from timeline.tables.parallel import stage_of
from timeline.tables.table import Table
from timeline.units import format_flop, format_like, format_share, format_short
from timeline.verdict.advice import mean_intervals, mean_rows
from timeline.verdict.figures import Figures
from timeline.verdict.findings import ReportedFinding, pipeline_text
from timeline.verdict.mean_step import are_of_ordinary_steps, mean_steps

LEAST_SHARE = 0.5
"""Minimum share of the time from one step to the next that a device waits for data to be reported;
every device waits for data a little."""
LEAST_SHARE_OF_LATE = 0.1
"""The same if queues of the rank show that data come late."""
_LATE = {Bottleneck.PROCESSING.value, Bottleneck.SENDING.value}


@dataclass(frozen=True)
class Starved:
    """The time that the device of a rank waits for data in a mean step.

    data_ns: time it waits for data. most_ns: the largest of all other losses. period_ns: from one
    step to the next. steps: number of ordinary steps, 0 if only the step trace is known. of_steps:
    whether the times are means of steps.
    """

    rank: int
    data_ns: int
    most_ns: int
    period_ns: int
    steps: int
    of_steps: bool = True

    @property
    def share(self) -> float:
        """Return the share of the period in which the device waits for data."""
        return self.data_ns / max(self.period_ns, 1)

    @property
    def lost_ns(self) -> int:
        """Return how long the device waits for data in all steps."""
        return self.data_ns * max(self.steps, 1)

    def to_finding(self) -> ReportedFinding:
        """Return the loss as a finding; its gain is a bound, since other ranks may be late too."""
        period_ns = self.period_ns
        waited, whole = format_like(self.data_ns, period_ns), format_like(period_ns, period_ns)
        every = f"every {whole}" if self.of_steps else whole
        return ReportedFinding(
            FindingKind.STARVED,
            (self.rank,),
            None,
            Cause.INPUT,
            self.lost_ns,
            self.share,
            self.lost_ns,
            self.share,
            Basis.BOUND,
            True,
            {"data_ns": self.data_ns, "period_ns": period_ns},
            f"rank {self.rank} waits {waited} of {every} for data: at most "
            f"{format_share(self.share, 1)} to win",
            "Input-bound",
        )

    def is_notable(self, bottleneck: str | None) -> bool:
        """Return whether to report the rank, given the bottleneck of its data preparation."""
        if bottleneck == Bottleneck.NONE.value:
            return False
        least = LEAST_SHARE_OF_LATE if bottleneck in _LATE else LEAST_SHARE
        return self.share >= least and self.data_ns > self.most_ns


def find_starved(figures: Figures) -> Starved | None:
    """Return the rank whose device idles longest for data, None if none does.

    A device idles for data if it waits for at least LEAST_SHARE of the time from one step to the
    next, or LEAST_SHARE_OF_LATE if queues show that data come late, and longer than any other loss:
    exposed communication, copies, and each other cause of idle time. The wait is the idle time with
    that cause, or the interval of the step trace if that is longer and queues show that data come
    late, or if there are no tasks. A rank whose queues held data does not idle for it.
    """
    bottlenecks = {
        row["rank"]: row["bottleneck"]
        for row in figures.data_preparation.to_dicts()
        if row["bottleneck"] is not None
    }
    losses: dict[int, Starved] = {loss.rank: loss for loss in _by_idle_time(figures)}
    for loss in _by_interval(figures):
        by_idle_time = losses.get(loss.rank)
        if by_idle_time is None:
            losses[loss.rank] = loss
        elif bottlenecks.get(loss.rank) in _LATE and loss.data_ns > by_idle_time.data_ns:
            most_ns = max(loss.most_ns, by_idle_time.most_ns)
            losses[loss.rank] = Starved(loss.rank, loss.data_ns, most_ns, loss.period_ns, 0)
    notable = [loss for loss in losses.values() if loss.is_notable(bottlenecks.get(loss.rank))]
    return max(notable, key=lambda loss: (loss.data_ns, -loss.rank), default=None)


def find_uneven_stages(figures: Figures) -> ReportedFinding | None:
    """Return the stage that limits a pipeline by the mean steps of its ranks, None if none does.

    The loss is the computing time of the slowest stage beyond the mean of stages, which all would
    take if they were even.
    """
    means = mean_steps(figures)
    by_stage: dict[int, list[int]] = {}
    ranks: dict[int, list[int]] = {}
    for row in means.to_dicts() if len(means) else []:
        stage = stage_of(row["rank"], figures.parallel)
        if stage is not None and row["steps"]:
            by_stage.setdefault(stage, []).append(row["computing_ns"] or 0)
            ranks.setdefault(stage, []).append(row["rank"])
    computing_ns = {stage: round(median(sums_ns)) for stage, sums_ns in by_stage.items()}
    if len(computing_ns) < 2:
        return None
    slowest = max(computing_ns, key=lambda stage: computing_ns[stage])
    took_ns, even_ns = computing_ns[slowest], round(mean(computing_ns.values()))
    period_ns, steps = int(means["period_ns"].max()), int(means["steps"].max())
    share = (took_ns - even_ns) / max(period_ns, 1)
    if share < NOTABLE:
        return None
    gain_ns = steps * (took_ns - even_ns)
    text = pipeline_text(ranks[slowest], took_ns, even_ns)
    return ReportedFinding(
        FindingKind.PIPELINE,
        tuple(sorted(ranks[slowest])),
        None,
        Cause.PIPELINE,
        gain_ns,
        share,
        gain_ns,
        share,
        Basis.BOUND,
        True,
        {"took_ns": steps * took_ns, "less_ns": gain_ns, "steps": steps, "stage": slowest},
        f"{text}: at most {format_share(share, 1)} to win",
    )


def _by_idle_time(figures: Figures) -> Iterator[Starved]:
    """Yield the wait of each rank by the causes of its idle time."""
    means = mean_steps(figures)
    if not len(means) or not len(figures.idle):
        return
    idle_ns = _mean_idle_ns(figures, means)
    data = CAUSES.index(IdleCause.WAITING_FOR_DATA)
    other_ns = np.delete(idle_ns, data, axis=1).max(axis=1)
    for name in ("not_overlapped_ns", "copies_ns"):
        other_ns = np.maximum(other_ns, np.ma.filled(means[name], 0))
    period_ns = means["period_ns"]
    yield from map(
        Starved,
        *(
            column.tolist()
            for column in (
                means["rank"],
                idle_ns[:, data],
                other_ns,
                period_ns,
                means["steps"],
                means["steps"] > 0,
            )
        ),
    )


def _mean_idle_ns(figures: Figures, means: Table) -> Int64:
    """Return the idle time of the mean ordinary step of each rank by cause, (ranks, causes).

    Without steps, it is that of the whole selection.

    means: rows of `mean_steps`.
    """
    idle, ranks = figures.idle, means["rank"].tolist()
    place = {rank: at for at, rank in enumerate(ranks)}
    code = {cause.value: at for at, cause in enumerate(CAUSES)}
    at = np.array([place.get(rank, -1) for rank in idle["rank"].tolist()], np.int64)
    cause = np.array([code[cause] for cause in idle["cause"].tolist()], np.int64)
    chosen = np.ma.getmaskarray(idle["step"])
    if means["steps"].any():
        chosen = are_of_ordinary_steps(idle, figures.steps)
    chosen &= at >= 0
    sums_ns = np.zeros((len(ranks), len(CAUSES)), np.int64)
    np.add.at(sums_ns, (at[chosen], cause[chosen]), idle["total_ns"][chosen])
    mean_ns: Int64 = sums_ns // np.maximum(means["steps"], 1)[:, None]
    return mean_ns


def _by_interval(figures: Figures) -> Iterator[Starved]:
    """Yield the wait of each rank by the interval of its step trace."""
    alone_ns: dict[int, int] = {}
    if len(figures.parallel_times):
        for row in figures.parallel_times.to_dicts():
            if row["step"] is None:
                time_ns = row["communication_alone_ns"] or 0
                alone_ns[row["rank"]] = max(alone_ns.get(row["rank"], 0), time_ns)
    rest_ns = _rest_of_steps_ns(figures.step_trace)
    for row in mean_intervals(figures.step_trace):
        if row["interval_ns"] is None:
            continue
        rank, interval_ns = row["rank"], row["interval_ns"]
        step_ns = rest_ns.get(rank, 0)
        period_ns = max(row["total_ns"] or 0, interval_ns + step_ns)
        yield Starved(rank, interval_ns, alone_ns.get(rank, 0), period_ns, 0)


def _rest_of_steps_ns(step_trace: Table) -> dict[int, int]:
    """Return the mean time of the other phases of a step, by rank."""
    if not len(step_trace):
        return {}
    steps = step_trace.take(~np.ma.getmaskarray(step_trace["step"]))
    ranks, which = distinct_values(np.ma.getdata(steps["rank"]))
    rest_ns = np.zeros(len(ranks), np.int64)
    for part in ("fp_bp_ns", "tail_ns"):
        np.add.at(rest_ns, which, np.ma.filled(steps[part], 0))
    counts = np.bincount(which, minlength=len(ranks)).tolist()
    return {
        rank: round(sum_ns / count)
        for rank, sum_ns, count in zip(ranks.tolist(), rest_ns.tolist(), counts, strict=True)
    }


MOST_OPERATORS = 3
"""Maximum number of host operators named in a sentence."""


def untimed_sentences(figures: Figures) -> Iterator[str]:
    """Yield sentences on figures without times: steps, operator types and use of the peak."""
    yield from _host_alone(figures)
    steps = figures.step_trace
    yield from _longest_step(
        mean_rows(steps.take(np.ma.filled(steps["total_ns"], 0) > 0)) if len(steps) else []
    )
    yield from _longest_type(figures)
    yield from _lowest_use(figures.flops)


def _host_alone(figures: Figures) -> Iterator[str]:
    """Yield sentences on steps and operators of the host, if no device is recorded."""
    operators = figures.operators.to_dicts()
    if not any(row["core"] == HOST_CORE for row in operators):
        return
    steps = figures.steps
    lengths_ns = (steps["end_ns"] - steps["start_ns"])[steps["end_ns"] > steps["start_ns"]]
    if len(lengths_ns):
        of = f", the mean of {len(lengths_ns)}" if len(lengths_ns) > 1 else ""
        mean_ns = int(lengths_ns.sum()) // len(lengths_ns)
        yield f"Host only: a step takes {format_short(mean_ns)}{of}."
    own_ns: dict[str, int] = {}
    for row in operators:
        own_ns[row["type"]] = own_ns.get(row["type"], 0) + row["total_ns"]
    all_ns = sum(own_ns.values())
    longest = sorted(own_ns.items(), key=lambda item: (-item[1], item[0]))[:MOST_OPERATORS]
    listed = ", ".join(
        f"{name} {format_short(time_ns)} ({format_share(time_ns, all_ns)})"
        for name, time_ns in longest
    )
    yield f"Host only: operators take {format_short(all_ns)} without those they call: {listed}."


def _longest_step(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence on the phases of a mean step, on the rank where it takes longest."""
    if not rows:
        return
    row = max(rows, key=lambda row: row["total_ns"])
    whole_ns = row["total_ns"]
    names = ("forward and backward", "fp_bp_ns"), ("tail", "tail_ns"), ("interval", "interval_ns")
    parts = [f"{name} {format_share(row[key], whole_ns)}" for name, key in names if row[key]]
    step = "Step" if row["step"] is None else f"Step {row['step']}"
    on = f" on rank {row['rank']}, where it takes longest" if len(rows) > 1 else ""
    yield f"{step} ({format_short(whole_ns)}{on}): {', '.join(parts)}."


def _longest_type(figures: Figures) -> Iterator[str]:
    """Yield a sentence on the operator type that takes longest, by the sums in files.

    AI CPU types count only if there are no AI Core types: their sums are over all steps.
    """
    by_source: dict[str, list[dict[str, Any]]] = {}
    for row in figures.operator_sums.to_dicts():
        by_source.setdefault(row["source"], []).append(row)
    sums = by_source.get("aicore_intermediate") or by_source.get("aicpu_intermediate")
    steps = [row for row in figures.operator_steps.to_dicts() if row["level"] == "type"]
    types_ns = Counter[str]()
    for row in sums or steps:
        types_ns[row["type"]] += row["total_ns"] or 0
    all_ns = types_ns.total()
    if all_ns:
        longest = max(types_ns, key=lambda name: (types_ns[name], name))
        took, whole = (format_like(time_ns, all_ns) for time_ns in (types_ns[longest], all_ns))
        share = format_share(types_ns[longest], all_ns)
        yield f"Of operators {longest} takes longest: {took} of {whole} ({share})."


def _lowest_use(flops: Table) -> Iterator[str]:
    """Yield a sentence on the rank that uses the smallest share of its device's peak."""
    rows = [
        row
        for row in flops.to_dicts()
        if row["level"] == "rank" and row["unit"] == "all" and row["utilization"] is not None
    ]
    if rows:
        row = min(rows, key=lambda row: row["utilization"])
        work = "" if row["flop"] is None else f": its operators compute {format_flop(row['flop'])}"
        at = "" if row["flop_per_s"] is None else f", at {format_flop(row['flop_per_s'])}/s"
        yield (
            f"Rank {row['rank']} uses {row['utilization']:.1%} of the FLOP/s of its device between "
            f"forward and backward{work}{at}."
        )
