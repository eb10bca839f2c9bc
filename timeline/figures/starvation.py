"""The rank whose device idles for data, where it loses more time so than in any other way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from timeline.analysis.idle.idle_sums import CAUSES, IdleCause
from timeline.columns.columns import Int64
from timeline.columns.distinct import distinct_values
from timeline.figures.advice import mean_intervals
from timeline.figures.data_tables import Bottleneck
from timeline.figures.mean_step import mean_steps
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table
from timeline.frozen import dataclass

LEAST_SHARE = 0.5
"""A device idles for data if it waits for data for this share at least of the time from one step to
the next; every device waits some time."""
LEAST_SHARE_OF_LATE = 0.1
"""The same where queues of the rank say that data is late."""
_LATE = {Bottleneck.PROCESSING.value, Bottleneck.SENDING.value}


@dataclass(frozen=True)
class Starved:
    """Where a rank loses time in a mean step, in it and up to the next.

    data_ns: the device waits for data. most_ns: the largest of all other losses. period_ns: from
    one step to the next. steps: ordinary ones, 0 where the step trace alone tells.
    """

    rank: int
    data_ns: int
    most_ns: int
    period_ns: int
    steps: int
    of_steps: bool = True

    @property
    def share(self) -> float:
        return self.data_ns / max(self.period_ns, 1)

    @property
    def lost_ns(self) -> int:
        """How long the device waits for data in all of these steps."""
        return self.data_ns * max(self.steps, 1)

    def is_told(self, bottleneck: str | None) -> bool:
        """Whether it is, given what limits the preparation of data of the rank."""
        if bottleneck == Bottleneck.NONE.value:
            return False
        least = LEAST_SHARE_OF_LATE if bottleneck in _LATE else LEAST_SHARE
        return self.share >= least and self.data_ns > self.most_ns


def find_starved(figures: Figures) -> Starved | None:
    """Return the rank whose device idles longest for data, None where none idles for it.

    A device idles for data if that takes LEAST_SHARE at least of the time from one step to the
    next, or LEAST_SHARE_OF_LATE where queues say that data is late, and more than each other loss:
    exposed communication, copies, and every other cause of idle time. How long it does is the idle
    time whose cause is waiting for data; where queues say that data is late, or there are no tasks,
    the interval of the step trace, if that is longer. A rank in whose queues there was data does
    not idle for it.
    """
    bottlenecks = {
        row["rank"]: row["bottleneck"]
        for row in figures.data_preparation.to_dicts()
        if row["bottleneck"] is not None
    }
    found: dict[int, Starved] = {loss.rank: loss for loss in _by_idle_time(figures)}
    for loss in _by_interval(figures):
        known = found.get(loss.rank)
        if known is None:
            found[loss.rank] = loss
        elif bottlenecks.get(loss.rank) in _LATE and loss.data_ns > known.data_ns:
            found[loss.rank] = Starved(
                loss.rank, loss.data_ns, max(loss.most_ns, known.most_ns), loss.period_ns, 0
            )
    starved = [loss for loss in found.values() if loss.is_told(bottlenecks.get(loss.rank))]
    return max(starved, key=lambda loss: (loss.data_ns, -loss.rank)) if starved else None


def _by_idle_time(figures: Figures) -> Iterator[Starved]:
    """The losses of each rank of whose idle time causes are known."""
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

    For the rows of `mean_steps`; of all that is selected where there are no steps.
    """
    idle, ranks = figures.idle, means["rank"].tolist()
    place = {rank: at for at, rank in enumerate(ranks)}
    code = {cause.value: at for at, cause in enumerate(CAUSES)}
    at = np.array([place.get(rank, -1) for rank in idle["rank"].tolist()], np.int64)
    cause = np.array([code[cause] for cause in idle["cause"].tolist()], np.int64)
    chosen = np.ma.getmaskarray(idle["step"])
    if means["steps"].any():
        rows = figures.steps.take(figures.steps["ordinary"] == 1)
        names = ("rank", "graph", "step")
        keys = set(zip(*(rows[name].tolist() for name in names), strict=True))
        every = zip(*(idle[name].tolist() for name in names), strict=True)
        chosen = np.fromiter((key in keys for key in every), np.bool_, len(idle)) & ~chosen
    chosen &= at >= 0
    sums_ns = np.zeros((len(ranks), len(CAUSES)), np.int64)
    np.add.at(sums_ns, (at[chosen], cause[chosen]), idle["total_ns"][chosen])
    mean_ns: Int64 = sums_ns // np.maximum(means["steps"], 1)[:, None]
    return mean_ns


def _by_interval(figures: Figures) -> Iterator[Starved]:
    """The interval of the step trace of each rank, beside what it communicates alone."""
    alone_ns: dict[int, int] = {}
    if len(figures.parallel_times):
        for row in figures.parallel_times.to_dicts():
            if row["step"] is None:
                time_ns = row["communication_alone_ns"] or 0
                alone_ns[row["rank"]] = max(alone_ns.get(row["rank"], 0), time_ns)
    rest_ns = _rest_of_steps_ns(figures.step_trace)
    for mean in mean_intervals(figures.step_trace):
        if mean["interval_ns"] is None:
            continue
        rank, interval_ns = mean["rank"], mean["interval_ns"]
        step_ns = rest_ns.get(rank, 0)
        period_ns = max(mean["total_ns"] or 0, interval_ns + step_ns)
        yield Starved(rank, interval_ns, alone_ns.get(rank, 0), period_ns, 0)


def _rest_of_steps_ns(step_trace: Table) -> dict[int, int]:
    """What the mean step of each rank takes beside its interval, by rank."""
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
