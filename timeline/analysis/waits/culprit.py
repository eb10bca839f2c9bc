"""Culprit: the rank named by the first finding, and the ranks that wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timeline.analysis.gains.findings import Cause, Findings
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.waiting import Waiting


@dataclass(frozen=True)
class Waiter:
    """A rank that waits for the culprit."""

    rank: int
    waited_ns: int


@dataclass(frozen=True)
class Culprit:
    """A rank that is slower than its peers, so that the run takes longer.

    rank: global rank. profiled: whether it is among the ranks read. waited_ns: how long others
    waited for it, summed. share: gain of mending it as a share of the run; gain_ns: the gain.
    steps: number of steps in which it is slow. waiters: ranks that wait for it, longest first.
    """

    rank: int
    profiled: bool
    cause: Cause
    waited_ns: int
    share: float
    gain_ns: int
    steps: int
    waiters: tuple[Waiter, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the culprit under the keys of the report."""
        return {
            "rank": self.rank,
            "profiled": self.profiled,
            "cause": self.cause.value,
            "waited_ns": self.waited_ns,
            "share": round(self.share, 6),
            "steps": self.steps,
            "estimated_gain_ns": self.gain_ns,
        }


def find_culprit(
    ranks: Sequence[RankFacts], waiting: Waiting, findings: Findings
) -> Culprit | None:
    """Return the rank of the first fault of a single rank, None if there is none.

    Args:
        ranks: on one clock.
        waiting: of these ranks.
        findings: of their run.
    """
    for one in findings.found:
        alone = one.ranks is not None and len(one.ranks) == 1
        if not one.fault or not (alone or one.absent is not None):
            continue
        rank = ranks[one.ranks[0]].rank if one.absent is None and one.ranks else one.absent
        assert rank is not None, "a fault of one rank has a rank"
        waiters = _waiters(ranks, waiting, rank)
        return Culprit(
            rank,
            any(facts.rank == rank for facts in ranks),
            one.cause,
            sum(waiter.waited_ns for waiter in waiters),
            one.gain_ns / max(findings.recording_ns, 1),
            one.gain_ns,
            len(findings.step_numbers) if one.steps is None else len(one.steps),
            waiters,
        )
    return None


def _waiters(ranks: Sequence[RankFacts], waiting: Waiting, rank: int) -> tuple[Waiter, ...]:
    """Return the ranks that wait for a rank, longest first."""
    waits = waiting.waits.take(waiting.waits.last_rank == rank)
    waited_ns = np.zeros(len(ranks), np.int64)
    np.add.at(waited_ns, waits.rank, waits.waited_ns)
    order = np.argsort(-waited_ns, kind="stable").tolist()
    return tuple(Waiter(ranks[at].rank, int(waited_ns[at])) for at in order if waited_ns[at])
