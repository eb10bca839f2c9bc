"""The rank that holds up the others: which it is, how long they wait for it, and why it is late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from timeline.analysis.ordinary_steps import ordinary_ops
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.lateness import Cause, Lateness, find_lateness
from timeline.analysis.waits.slow_links import SlowLink, find_slow_link
from timeline.analysis.waits.waiting import Waiting, Waits
from timeline.columns.columns import Bool, Int64
from timeline.columns.distinct import are_first, distinct
from timeline.columns.group_by import group_by
from timeline.columns.intervals import union
from timeline.frozen import dataclass
from timeline.records.not_given import NO_ID

__all__ = ["Culprit", "HeldUp", "Waiter", "find_culprit"]


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
    others waited for it, summed over them, in ordinary steps; of slow links, how much longer
    transfers to it took; None where it is its own device that idles for data. share: the part of a
    mean ordinary step that each of them waits for it; then of the time from one step to the next
    that it idles. steps: in how many ordinary steps it causes the most waiting.
    """

    rank: int
    profiled: bool
    cause: Cause
    waited_ns: int | None
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
    lateness: Lateness = Lateness()
    """Why it is late."""
    slow_link: SlowLink | None = None
    """The links that are its cause, where they are: then others wait for their transfers."""
    of_steps: bool = True
    """Of one that idles for data: whether that is of a mean step, and not of all its time."""

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
    unclear_ns: how far clocks may be off, where ranks of which both are read waited no longer than
    that, which tells nothing; 0 where they did not.
    """

    culprit: Culprit | None = None
    waited_ns: int = 0
    share: float = 0.0
    step_ns: int = 0
    ordinary: int = 0
    unknown_ns: int = 0
    unclear_ns: int = 0


def find_culprit(ranks: Sequence[RankFacts], waiting: Waiting, ordinary: Sequence[Bool]) -> HeldUp:
    """Find who holds up the others, in the collectives of ordinary steps.

    Waits in receives of a pipeline are not among them: nobody is blamed for those.

    Args:
        ranks: on one clock.
        waiting: of these ranks.
        ordinary: what `ordinary_steps` told of the ranks.
    """
    chosen = ordinary_ops(ranks, ordinary)
    rows = _of_ops(waiting.waits, chosen) & (waiting.waits.waited_ns > 0)
    # What a rank's own tasks tell of another does not depend on clocks.
    slack_ns = waiting.waits.slack_ns
    clear = ~waiting.waits.last_profiled | (waiting.waits.waited_ns > slack_ns)
    waits, compute_late_ns = waiting.waits.take(rows & clear), waiting.compute_late_ns[rows & clear]
    count, step_ns = _mean_step(ranks, ordinary)
    if not step_ns:
        return HeldUp(ordinary=count)
    unclear_ns = int(slack_ns[rows & ~clear].max(initial=0))
    held = HeldUp(step_ns=step_ns, ordinary=count, unclear_ns=unclear_ns)
    if len(waits):
        waited_ns = int(waits.waited_ns.sum())
        unknown_ns = int(waits.waited_ns[waits.last_rank == NO_ID].sum())
        mean_ns = waited_ns / (len(distinct(waits.rank)) * max(count, 1))
        culprit = _latest(ranks, waits, compute_late_ns, ordinary, held)
        held = replace(
            held,
            culprit=culprit,
            waited_ns=waited_ns,
            share=mean_ns / step_ns,
            unknown_ns=unknown_ns,
        )
    link = find_slow_link([rank.links for rank in ranks])
    slowed = None if link is None else _behind_slow_links(ranks, link, held)
    return held if slowed is None else replace(held, culprit=slowed)


def _latest(
    ranks: Sequence[RankFacts],
    waits: Waits,
    compute_late_ns: Int64,
    ordinary: Sequence[Bool],
    held: HeldUp,
) -> Culprit | None:
    """The rank that came last to most steps, counted by what others waited for it."""
    chosen = ordinary_ops(ranks, ordinary)
    worst = _worst_of_steps(ranks, waits, has_steps=held.ordinary > 0)
    found, times = np.unique(worst, return_counts=True)
    most = int(np.argmax(times))
    if times[most] * 2 <= len(worst) or found[most] == NO_ID:
        return None
    rank, rows = int(found[most]), waits.last_rank == found[most]
    waits = waits.take(rows)
    waiters = _waiters(ranks, waits, chosen)
    waited_ns = int(waits.waited_ns.sum())
    compute_share = int(compute_late_ns[rows].sum()) / waited_ns
    share = waited_ns / (len(waiters) * max(held.ordinary, 1) * held.step_ns)
    lateness = Lateness()  # nothing is known of one that is not read, or of which no task is
    for at, one in enumerate(ranks):
        if one.rank == rank and one.tasks:
            late_ns, computing_ns = round(share * held.step_ns), _mean_computing_ns(ranks, ordinary)
            lateness = find_lateness(
                ranks,
                at,
                compute_share,
                _measured(ranks),
                late_ns=late_ns,
                computing_ns=computing_ns,
            )
    return Culprit(
        rank,
        bool(waits.last_profiled[0]),
        lateness.cause,
        waited_ns,
        share,
        steps=int(times[most]),
        waiting_steps=len(worst),
        waiters=waiters,
        lateness=lateness,
        **_among(ranks, held),
    )


def _among(ranks: Sequence[RankFacts], held: HeldUp) -> dict[str, Any]:
    """What a culprit is one of: ordinary steps and ranks, under the names of `Culprit`."""
    views = (view for rank in ranks for view in rank.collectives.arrivals.views.values())
    most = max(
        (max(view.group.most, view.group.size, len(view.peers) + 1) for view in views), default=0
    )
    return {
        "ordinary": held.ordinary,
        "step_ns": held.step_ns,
        "ranks": len(ranks),
        "members": most if most > len(ranks) else None,
    }


def _behind_slow_links(ranks: Sequence[RankFacts], link: SlowLink, held: HeldUp) -> Culprit | None:
    """The rank behind slow links, where those cost more than ranks wait."""
    steps = max(_measured(ranks), 1)
    ordinary = max(held.ordinary, 1)
    excess_ns = round(link.total_ns * ordinary / steps)
    if excess_ns <= held.waited_ns:
        return None
    numbers = [rank.rank for rank in ranks]
    waiters = sorted(
        (
            Waiter(source, round(more_ns * ordinary / steps), 0)
            for source, more_ns in link.excess_ns
            if source in numbers
        ),
        key=lambda one: (-one.waited_ns, one.rank),
    )
    return Culprit(
        link.rank,
        link.rank in numbers,
        Cause.LINK,
        excess_ns,
        excess_ns / (len(link.excess_ns) * ordinary * held.step_ns),
        steps=ordinary,
        waiting_steps=ordinary,
        waiters=tuple(waiters),
        lateness=Lateness(Cause.LINK),
        slow_link=link,
        **_among(ranks, held),
    )


def _measured(ranks: Sequence[RankFacts]) -> int:
    """How many steps have device work, on the rank that has most of them."""
    return max((int(rank.step_totals.known.sum()) for rank in ranks), default=0)


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
    return last[order[are_first(step[order])]]


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


def _mean_computing_ns(ranks: Sequence[RankFacts], ordinary: Sequence[Bool]) -> Int64:
    """How long each rank computes in a mean ordinary step; in all of it without any, (ranks,)."""
    means = [
        rank.step_totals.computing_ns[rows].sum() // max(int(rows.sum()), 1)
        if rows.any()
        else rank.overlap_ns["computing_ns"]
        for rank, rows in zip(ranks, ordinary, strict=True)
    ]
    return np.array(means, np.int64)
