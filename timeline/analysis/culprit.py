"""The rank that holds up the others: which it is, how long they wait for it, and why it is late."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timeline.analysis.ordinary_steps import ordinary_ops
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waiting import Waiting, Waits
from timeline.columns.columns import Bool, Int64
from timeline.columns.distinct import distinct
from timeline.columns.group_by import group_by
from timeline.columns.intervals import union
from timeline.records.tables import NO_ID

__all__ = ["Cause", "Culprit", "HeldUp", "Waiter", "find_culprit"]


class Cause(enum.Enum):
    """Why a rank comes last to collectives."""

    COMPUTING = "computing"
    """It computes longer before it comes."""
    HOST = "host"
    """Its device idles longer: it is launched late."""
    INPUT = "input"
    """Its device idles longer, mainly because it waits for data."""
    FREQUENCY = "frequency"
    """It computes longer because its AI Cores run at a lower frequency."""
    LINK = "link"
    """Links toward it are much slower than those of the same kind elsewhere."""
    UNKNOWN = "unknown"
    """It is not profiled, or nothing tells."""


@dataclass(frozen=True)
class Waiter:
    """A rank that waits for the culprit: how long, and how long all its communication took."""

    rank: int
    waited_ns: int
    communication_ns: int


@dataclass(frozen=True)
class Culprit:
    """The rank that causes the most waiting in more than half of the ordinary steps.

    rank: its global number. profiled: whether it is among the ranks read. waited_ns: how long
    others waited for it, summed over them, in ordinary steps. share: the part of a mean ordinary
    step that each of them waits for it. steps: in how many ordinary steps it causes the most
    waiting.
    """

    rank: int
    profiled: bool
    cause: Cause
    waited_ns: int
    share: float
    steps: int
    waiting_steps: int = 1
    """Ordinary steps in which any rank waits; 1 for a capture without steps."""
    ordinary: int = 0
    """Ordinary steps; 0 for a capture without steps."""
    step_ns: int = 0
    """The mean ordinary step of all ranks; the time of a capture without steps."""
    ranks: int = 1
    """How many ranks are read."""
    members: int | None = None
    """How many ranks the run has at least, where more are known than are read."""
    waiters: tuple[Waiter, ...] = ()
    """Who waits for it, longest first."""
    compute_share: float | None = None
    """How much of its lateness is computing, and not idling; None where nothing tells."""

    @property
    def each_ns(self) -> int:
        """How long each of those that wait for it does so in a mean step."""
        return round(self.share * self.step_ns)

    def to_dict(self) -> dict[str, Any]:
        """The culprit under the names of the report."""
        return {
            "rank": self.rank,
            "profiled": self.profiled,
            "cause": self.cause.value,
            "waited_ns": self.waited_ns,
            "share": round(self.share, 6),
            "steps": self.steps,
        }


@dataclass(frozen=True)
class HeldUp:
    """How long ranks wait for each other in ordinary steps, and for whom most, if for anybody.

    waited_ns: summed over all ranks. share: the part of a mean step that a rank waits. unknown_ns:
    what of waited_ns was waited for ranks of which nothing is known but that they are not read.
    """

    culprit: Culprit | None = None
    waited_ns: int = 0
    share: float = 0.0
    step_ns: int = 0
    ordinary: int = 0
    unknown_ns: int = 0


def find_culprit(ranks: Sequence[RankFacts], waiting: Waiting, ordinary: Sequence[Bool]) -> HeldUp:
    """Find who holds up the others, in the collectives of ordinary steps.

    Waits in receives of a pipeline are not among them: nobody is blamed for those.

    Args:
        ranks: on one clock.
        waiting: of these ranks.
        ordinary: what `ordinary_steps` told of the ranks.
    """
    chosen = ordinary_ops(ranks, ordinary)
    rows = _of_ops(waiting.waits, chosen)
    waits = waiting.waits.take(rows & (waiting.waits.waited_ns > 0))
    count, step_ns = _mean_step(ranks, ordinary)
    if not len(waits) or not step_ns:
        return HeldUp(step_ns=step_ns, ordinary=count)
    waited_ns = int(waits.waited_ns.sum())
    last = waits.last_rank
    held = HeldUp(
        None,
        waited_ns,
        waited_ns / (len(distinct(waits.rank)) * max(count, 1) * step_ns),
        step_ns,
        count,
        int(waits.waited_ns[last == NO_ID].sum()),
    )
    worst = _worst_of_steps(ranks, waits, has_steps=count > 0)
    found, times = np.unique(worst, return_counts=True)
    most = int(np.argmax(times))
    if times[most] * 2 <= len(worst) or found[most] == NO_ID:
        return held
    its = waits.take(last == found[most])
    waiters = _waiters(ranks, its, chosen)
    its_ns = int(its.waited_ns.sum())
    compute_share = _compute_share(ranks, waiting, int(found[most]))
    culprit = Culprit(
        int(found[most]),
        bool(its.last_profiled[0]),
        _cause(compute_share),
        its_ns,
        its_ns / (len(waiters) * max(count, 1) * step_ns),
        int(times[most]),
        len(worst),
        count,
        step_ns,
        len(ranks),
        None,
        waiters,
        compute_share,
    )
    return HeldUp(culprit, held.waited_ns, held.share, step_ns, count, held.unknown_ns)


def _of_ops(waits: Waits, chosen: Sequence[Bool]) -> Bool:
    """The waits in ops that are chosen."""
    first = np.cumsum([0, *map(len, chosen)])
    return np.concatenate([np.zeros(0, np.bool_), *chosen])[first[waits.rank] + waits.row]


def _mean_step(ranks: Sequence[RankFacts], ordinary: Sequence[Bool]) -> tuple[int, int]:
    """How many ordinary steps there are, and their mean; 0 and the mean capture without any."""
    spans_ns = np.concatenate(
        [np.zeros(0, np.int64)]
        + [rank.step_totals.span_ns[rows] for rank, rows in zip(ranks, ordinary, strict=True)]
    )
    if len(spans_ns):
        return max(int(rows.sum()) for rows in ordinary), round(spans_ns.sum() / len(spans_ns))
    lengths_ns = [
        rank.overlap_ns["computing_ns"]
        + rank.overlap_ns["not_overlapped_ns"]
        + rank.overlap_ns["free_ns"]
        for rank in ranks
    ]
    return 0, round(sum(lengths_ns) / max(len(lengths_ns), 1))


def _worst_of_steps(ranks: Sequence[RankFacts], waits: Waits, *, has_steps: bool) -> Int64:
    """For each step in which ranks wait, the rank that causes most of it."""
    step = np.zeros(len(waits), np.int64)
    if has_steps:
        for at, rank in enumerate(ranks):
            its = waits.rank == at
            step[its] = rank.collectives.ops.iteration[waits.row[its]]
    pairs = group_by(len(waits), [step, waits.last_rank])
    total_ns = pairs.sum(waits.waited_ns)
    step, last = step[pairs.first], waits.last_rank[pairs.first]
    order = np.lexsort((last, -total_ns, step))
    heads = np.ones(len(order), np.bool_)
    heads[1:] = np.diff(step[order]) != 0
    return last[order[heads]]


def _waiters(
    ranks: Sequence[RankFacts], waits: Waits, chosen: Sequence[Bool]
) -> tuple[Waiter, ...]:
    waited_ns = np.zeros(len(ranks), np.int64)
    np.add.at(waited_ns, waits.rank, waits.waited_ns)
    found = []
    for at in np.argsort(-waited_ns, kind="stable").tolist():
        if waited_ns[at]:
            ops = ranks[at].collectives.ops.take(chosen[at])
            communication_ns = union(ops.start_ns, ops.end_ns).total_ns
            found.append(Waiter(ranks[at].rank, int(waited_ns[at]), communication_ns))
    return tuple(found)


def _compute_share(ranks: Sequence[RankFacts], waiting: Waiting, culprit: int) -> float | None:
    """How much of the lateness of a rank is computing; None for one that is not read."""
    numbers = [rank.rank for rank in ranks]
    if culprit not in numbers:
        return None
    at = numbers.index(culprit)
    stragglers = waiting.stragglers
    caused_ns = int(stragglers.caused_ns[at])
    return int(stragglers.compute_late_ns[at]) / caused_ns if caused_ns else None


def _cause(compute_share: float | None) -> Cause:
    if compute_share is None:
        return Cause.UNKNOWN
    return Cause.COMPUTING if compute_share >= 0.5 else Cause.HOST
