"""Why a rank comes late: by its computing or by its host, and what that is due to."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

from timeline.analysis.idle.call_kinds import names_waiting_for_data
from timeline.analysis.idle.idle_sums import CAUSES, IdleCause
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.step_membership import NO_STEP
from timeline.analysis.work.computing_causes import ComputingCause, computing_causes
from timeline.columns.columns import Int64
from timeline.columns.intervals import union
from timeline.frozen import dataclass
from timeline.records.tables import Records

__all__ = ["Cause", "Lateness", "fetching_ns", "find_lateness"]

EXPLAINED = 0.5
"""A rank that is late because it computes longer does so, in a whole step, by so much at least."""


class Cause(enum.Enum):
    """Why a rank comes last to collectives."""

    COMPUTING = "computing"
    """It computes longer before it comes."""
    HOST = "host"
    """Its collectives, or what they wait for, are launched late."""
    INPUT = "input"
    """They are launched late, mainly because it waits for data."""
    FREQUENCY = "frequency"
    """It computes longer because its AI Cores run at a lower frequency."""
    LINK = "link"
    """Links toward it are much slower than those of the same kind elsewhere."""
    UNKNOWN = "unknown"
    """It is not profiled, or nothing tells, or its computing is no longer in a whole step."""


@dataclass(frozen=True)
class Lateness:
    """Why a rank is late.

    compute_share: how much of that is computing, and not its host; None where nothing tells.
    idle_cause: to what most of what its device idles longer than others is due, None where that is
    not known; idle_more_ns: how much longer, per measured step. same_work: whether it computes
    longer before the collectives it comes last to, but not in a whole step: what it computes there,
    others compute at another time.
    """

    cause: Cause = Cause.UNKNOWN
    compute_share: float | None = None
    idle_cause: IdleCause | None = None
    idle_more_ns: int = 0
    same_work: bool = False


def find_lateness(
    ranks: Sequence[RankFacts],
    late: int,
    compute_share: float,
    steps: int,
    *,
    late_ns: int,
    computing_ns: Int64,
) -> Lateness:
    """Find why one of the ranks is late.

    Args:
        late: its position.
        compute_share: how much of its lateness is computing.
        steps: with device work.
        late_ns: how long others wait for it in a step.
        computing_ns: (ranks,) how long each computes in a mean step.
    """
    idle_cause, more_ns, lost_ns = _longer_idle(ranks, late)
    if lost_ns > 0:  # that time is not the host's: kernels ran that are not recorded
        compute_ns = compute_share * late_ns
        host_ns = max(late_ns - compute_ns - lost_ns / max(steps, 1), 0.0)
        if not compute_ns + host_ns:
            return Lateness()
        compute_share = compute_ns / (compute_ns + host_ns)
    longer_ns = computing_ns[late] - np.median(np.delete(computing_ns, late))
    same_work = bool(longer_ns < EXPLAINED * compute_share * late_ns)
    if compute_share >= 0.5 and same_work:
        cause = Cause.UNKNOWN
    elif compute_share >= 0.5:
        causes = computing_causes([rank.work for rank in ranks]).causes
        slower = int(causes.cause[late]) == ComputingCause.FREQUENCY
        cause = Cause.FREQUENCY if slower else Cause.COMPUTING
    elif idle_cause is IdleCause.WAITING_FOR_DATA and _fetches_longer(ranks, late, more_ns):
        cause = Cause.INPUT
    else:
        cause = Cause.HOST
        if idle_cause is IdleCause.WAITING_FOR_DATA:
            idle_cause = None
    return Lateness(cause, compute_share, idle_cause, round(more_ns / max(steps, 1)), same_work)


def fetching_ns(records: Records) -> int:
    """How long the host waits for data, in calls that are recorded."""
    host = records.host
    rows = np.isin(host.name, names_waiting_for_data(records.strings))
    return union(host.start_ns[rows], host.end_ns[rows]).total_ns


def _fetches_longer(ranks: Sequence[RankFacts], late: int, more_ns: int) -> bool:
    """Whether the host of a rank waits longer for data too, or nothing is recorded of that.

    Every host waits some time for data; a device that is not behind its host idles meanwhile.
    """
    times_ns = [rank.fetching_ns for rank in ranks]
    if not all(times_ns):
        return True
    others_ns = np.median(np.delete(np.array(times_ns), late))
    return bool(2 * (times_ns[late] - others_ns) >= more_ns)


def _longer_idle(ranks: Sequence[RankFacts], late: int) -> tuple[IdleCause | None, int, int]:
    """Find for what cause most of all the device of a rank idles longer than those of the others.

    Returns:
        The cause, None where it does not idle longer on the whole, and how much longer; then for
        how much longer kernels were not recorded, which is no idle time.
    """
    if len(ranks) < 2:
        return None, 0, 0
    times_ns = np.zeros((len(ranks), len(CAUSES)), np.int64)
    for at, rank in enumerate(ranks):
        causes = rank.idle.causes.take(rank.idle.causes.step == NO_STEP) if rank.idle else None
        if causes is None:
            return None, 0, 0
        np.add.at(times_ns[at], causes.cause, causes.total_ns)
    usual_ns = np.median(np.delete(times_ns, late, axis=0), axis=0)
    more_ns = np.rint(times_ns[late] - usual_ns).astype(np.int64)
    lost = CAUSES.index(IdleCause.KERNELS_NOT_RECORDED)
    lost_ns, more_ns[lost] = int(more_ns[lost]), 0
    at = int(np.argmax(more_ns))
    return (CAUSES[at], int(more_ns[at]), lost_ns) if more_ns.sum() > 0 else (None, 0, lost_ns)
