"""Findings: what to mend first in a run, and how much time that saves.

A candidate is a set of parts that take longer than comparable parts. The run is replayed with these
parts shortened to the time of their peers; the gain is how much shorter the run becomes. Losses are
found one at a time: the one with the largest gain first, each further one on top of those already
mended.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from timeline.analysis.gains.mends import Mends, Part, split_odd
from timeline.analysis.gains.replay import Played, RecordedRank, Replay
from timeline.columns.columns import Bool, Codes, Int64, Rows
from timeline.columns.distinct import distinct, rows_by_value
from timeline.columns.intervals import union
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_ID

NOTABLE = 0.02
"""Minimum gain of a finding, as a share of the recording."""
PROMISING = 0.015
"""Minimum time that a candidate mends on the critical path to be replayed, as a share of the
recording.
"""
ALIKE = 0.9
"""Candidates with at least this share of the largest gain are taken to explain the same loss."""
MOST_FINDINGS = 6
MOST_REPLAYS = 12
"""Maximum number of candidates replayed per finding, the most promising first."""
MOST_RESIDUAL = 0.05
"""Maximum error of the unchanged replay, as a share of the recording, for gains to be reported."""
FAR_MORE = 5
"""A lever comes first if it gains more than this many times the gain of the largest fault."""
FASTER = 10
"""The largest operator is assumed to become faster by one part in this many."""
LEAST_PART = 0.1
"""Minimum share of a mend for a kind of parts to count in how long the mended parts took."""
MAIN = 2 / 3
"""Minimum share of a mend that one cause must account for to be named as its cause."""


class FindingKind(enum.StrEnum):
    """Kind of loss or lever that a finding describes."""

    SLOW_RANK = "slow_rank"
    SLOW_RANKS = "slow_ranks"
    SLOW_STEPS = "slow_steps"
    STARVED = "starved"
    SLOW_HOSTS = "slow_hosts"
    SLOW_LINK = "slow_link"
    PIPELINE = "pipeline"
    EXPOSED_COMMUNICATION = "exposed_communication"
    SLOW_OPERATOR = "slow_operator"


class Cause(enum.StrEnum):
    """Cause of a loss, the most specific first."""

    INPUT = "input"
    MEMORY = "memory"
    LINK = "link"
    FREQUENCY = "frequency"
    COMPUTING = "computing"
    COMMUNICATION = "communication"
    PIPELINE = "pipeline"
    HOST = "host"
    UNKNOWN = "unknown"


class Basis(enum.StrEnum):
    """Basis of a gain: a replay, or an upper bound."""

    REPLAY = "replay"
    BOUND = "bound"


@dataclass(frozen=True)
class Finding:
    """A loss to mend, or a lever to pull.

    ranks: positions of the ranks, None for all. absent: number of a rank that is not recorded, in
    place of ranks. steps: numbers of the steps, None for all. gain_ns: gain if only this is mended;
    further_ns: gain on top of the findings before it. took_ns, less_ns: time of the mended parts on
    the rank where they took longest, and how much less they would take. name: what ran longest in
    them. fault: True if something is worse than its peers; False for a lever, which makes a healthy
    run faster.
    """

    kind: FindingKind
    ranks: tuple[int, ...] | None
    steps: tuple[int, ...] | None
    cause: Cause
    gain_ns: int
    further_ns: int
    took_ns: int
    less_ns: int
    name: str = ""
    basis: Basis = Basis.REPLAY
    fault: bool = True
    absent: int | None = None
    slower: tuple[int, ...] = ()
    """Positions of the ranks that would take less, by at least half of the largest reduction."""
    copies: bool = False
    """True if the mended parts are only copies."""


@dataclass(frozen=True)
class Findings:
    """All findings of a run, in the order in which to mend them.

    recording_ns: duration of the run. residual_ns: error of the unchanged replay. reason: why no
    gains are reported, empty if they are. is_whole: whether all members of all groups are recorded;
    if not, gains are at least as large as reported.
    """

    found: tuple[Finding, ...] = ()
    recording_ns: int = 0
    residual_ns: int = 0
    reason: str = ""
    is_whole: bool = True
    classes: tuple[int, ...] = ()
    step_numbers: tuple[int, ...] = ()
    step_times_ns: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """A recorded run to search for losses.

    step_times_ns: (steps,) duration of each step. is_cut: (steps,) whether the edge of the
    recording or a window cuts through it. recording_ns: duration of the run. classes: (ranks,) a
    number shared by ranks that do the same work. stages: (ranks,) pipeline stage of each rank,
    NO_ID for none. is_whole: whether all members of all groups are recorded. has_gaps: whether
    steps between those of the run are left out.
    """

    ranks: Sequence[RecordedRank]
    steps: Sequence[Int64]
    step_numbers: Int64
    step_times_ns: Int64
    is_cut: Bool
    start_ns: int
    recording_ns: int
    classes: Sequence[int]
    stages: Sequence[int]
    is_whole: bool
    has_gaps: bool = False

    @property
    def is_linked(self) -> bool:
        """Return whether ranks are recorded to share a communication op, or there is only one."""
        ops = np.concatenate([distinct(rank.ops.op) for rank in self.ranks])
        return len(self.ranks) == 1 or len(distinct(ops)) < len(ops)


@dataclass(frozen=True)
class _Candidate:
    """A set of parts that could be mended.

    rows: (k,) rows of the parts. less_ns: (k,) how much less time each would take.
    """

    kind: FindingKind
    ranks: tuple[int, ...] | None
    steps: tuple[int, ...] | None
    cause: Cause
    rows: Rows
    less_ns: Int64
    basis: Basis = Basis.REPLAY
    fault: bool = True
    absent: int | None = None

    def on_top_of(self, mended_ns: Int64) -> Int64:
        """Return the time saved per part, (parts,), with this candidate mended as well."""
        both_ns = mended_ns.copy()
        if self.kind is FindingKind.SLOW_OPERATOR:  # only its remaining time becomes faster
            both_ns[self.rows] += self.less_ns - mended_ns[self.rows] // FASTER
            return both_ns
        both_ns[self.rows] = np.maximum(both_ns[self.rows], self.less_ns)
        return both_ns

    @property
    def is_alone(self) -> bool:
        """Return whether the candidate is a rank whose links to the other ranks are not known."""
        return self.fault and self.basis is Basis.BOUND

    @property
    def narrowness(self) -> tuple[float, float, int]:
        """Return a sort key that is smallest for the narrowest explanation."""
        return (
            float("inf") if self.ranks is None else max(len(self.ranks), 1),
            float("inf") if self.steps is None else len(self.steps),
            [*Cause].index(self.cause),
        )


def find_losses(run: Run) -> Findings:
    """Find the losses of a run, in the order in which to mend them."""
    findings = Findings(
        recording_ns=run.recording_ns,
        is_whole=run.is_whole,
        classes=tuple(run.classes),
        step_numbers=tuple(run.step_numbers.tolist()),
        step_times_ns=tuple(run.step_times_ns.tolist()),
    )
    if run.has_gaps:
        return replace(findings, reason="the selected steps do not follow each other")
    replay = Replay(run.ranks, run.start_ns)
    findings = replace(findings, residual_ns=replay.residual_ns)
    if replay.residual_ns > MOST_RESIDUAL * run.recording_ns:
        return replace(findings, reason="the run cannot be replayed as it was recorded")
    search = _Search(run, replay, _mends_of(run, replay))
    return replace(findings, found=tuple(search.findings()))


def _mends_of(run: Run, replay: Replay) -> Mends:
    in_sections = not len(run.step_numbers)
    return Mends.of(replay, run.ranks, run.steps, run.classes, in_sections=in_sections)


def estimate_gain_ns(run: Run, rank: int) -> int:
    """Return how much shorter a run would be if one rank were as fast as its peers.

    rank: position of the rank.
    """
    replay = Replay(run.ranks, run.start_ns)
    mends = _mends_of(run, replay)
    is_of_rank = (mends.parts.rank == rank) & (mends.parts.part < Part.TRANSFER)
    played = replay.play(mends.sooner_ns(np.where(is_of_rank, mends.peers_ns, 0)))
    return replay.unchanged.total_ns - played.total_ns


class _Search:
    """Search for losses, one at a time, and then for levers."""

    def __init__(self, run: Run, replay: Replay, mends: Mends) -> None:
        self._run, self._replay, self._mends = run, replay, mends

    def findings(self) -> list[Finding]:
        """Return faults, then levers; a lever that gains far more comes first.

        Constant waits for data never come first, since handing over data may take that long.
        """
        faults, mended_ns = self._losses(list(_faults(self._run, self._mends)))
        levers = self._gains_of_levers(mended_ns)
        most_ns = FAR_MORE * max((one.gain_ns for one in faults), default=0)
        is_first = any(
            one.kind is FindingKind.SLOW_HOSTS
            or (one.basis is Basis.REPLAY and one.kind is not FindingKind.STARVED)
            for one in levers[:1]
        )
        if is_first and levers[0].gain_ns > most_ns:
            return [*levers, *faults]
        return [*faults, *levers]

    def _gains_of_levers(self, mended_ns: Int64) -> list[Finding]:
        """Return the levers with notable gains, the largest further gain first."""
        levers, steps_ns = list[Finding](), (np.zeros_like(mended_ns), mended_ns)
        # For the lever of communication, waiting for ranks that are not recorded is part of the
        # gain.
        waiting_ns, in_time_ns = (
            [self._total_ns(less_ns, in_time=in_time) for less_ns in steps_ns]
            for in_time in (False, True)
        )
        is_whole = self._run.is_whole and self._run.is_linked
        works = [rank.recording.work for rank in self._run.ranks]
        has_launches = any((work.launch != NO_ID).any() for work in works)
        for lever in _levers(self._mends, is_whole=is_whole, has_launches=has_launches):
            waits = lever.kind is FindingKind.EXPOSED_COMMUNICATION
            alone, further = (
                before_ns - self._total_ns(lever.on_top_of(less_ns), in_time=True)
                for before_ns, less_ns in zip(
                    waiting_ns if waits else in_time_ns, steps_ns, strict=True
                )
            )
            if lever.kind is FindingKind.SLOW_HOSTS:
                # Kernels of several streams may also overlap in a replay, which hosts do not win.
                alone, further = (min(gain_ns, sum(self._idle_ns)) for gain_ns in (alone, further))
            # The gain alone may include the loss of a fault that was found before.
            if further >= NOTABLE * self._run.recording_ns:
                levers.append(self._finding(lever, alone, further))
        levers.sort(key=lambda one: -one.further_ns)
        # If members are not recorded, all communication may be waiting for them.
        sure = [one for one in levers if one.kind is not FindingKind.EXPOSED_COMMUNICATION]
        unsure = [one for one in levers if one not in sure]
        replayed_ns = [one.further_ns for one in sure if one.basis is Basis.REPLAY]
        most_ns = FAR_MORE * max(replayed_ns, default=0)
        if not self._run.is_whole and any(one.further_ns <= most_ns for one in unsure):
            return [*sure, *unsure]
        return levers

    @cached_property
    def _idle_ns(self) -> list[int]:
        """Time of each rank in which nothing runs on the device.

        Without steps, that is between the first and the last task of each.
        """
        works = [rank.recording.work for rank in self._run.ranks]
        busy = [union(work.start_ns, work.end_ns) for work in works]
        spans = [one.span_ns or (0, 0) for one in busy]
        spans_ns = [end_ns - start_ns for start_ns, end_ns in spans]
        if len(self._run.step_numbers):
            spans_ns = [self._run.recording_ns] * len(busy)
        return [span_ns - one.total_ns for span_ns, one in zip(spans_ns, busy, strict=True)]

    def _total_ns(self, less_ns: Int64, *, in_time: bool) -> int:
        """Return the duration of the run if its parts take less time.

        less_ns: (parts,). in_time: whether ranks that are not recorded arrive no later than others.
        """
        sooner_ns = self._mends.sooner_ns(less_ns)
        if in_time:
            sooner_ns[1][self._replay.pinned] += self._run.recording_ns
        return self._replay.play(sooner_ns).total_ns

    def _losses(self, candidates: Sequence[_Candidate]) -> tuple[list[Finding], Int64]:
        """Return the losses, each on top of those before it, and the time saved per part."""
        findings = list[Finding]()
        now = self._replay.unchanged
        mended_ns = np.zeros(len(self._mends.parts), np.int64)
        for _ in range(MOST_FINDINGS):
            best = self._best(candidates, mended_ns, now)
            if best is None:
                break
            candidate, further_ns, played = best
            nothing_ns = np.zeros_like(mended_ns)
            alone = self._replay.play(self._mends.sooner_ns(candidate.on_top_of(nothing_ns)))
            gain_ns = self._won_ns(candidate, self._replay.unchanged, alone)
            findings.append(self._finding(candidate, gain_ns, further_ns))
            mended_ns = candidate.on_top_of(mended_ns)
            now = played
        return findings, mended_ns

    def _won_ns(self, candidate: _Candidate, before: Played, after: Played) -> int:
        """Return how much sooner the run ends, or only the rank if its links are not known."""
        if not candidate.is_alone:
            return before.total_ns - after.total_ns
        (rank,) = candidate.ranks or ()
        items = slice(self._replay.first_item[rank], self._replay.first_item[rank + 1])
        nodes = self._replay.item_end[items]
        return int(before.times_ns[nodes].max() - after.times_ns[nodes].max())

    def _finding(self, candidate: _Candidate, gain_ns: int, further_ns: int) -> Finding:
        """Return the finding of a candidate with these gains."""
        parts, rows, less_ns = self._mends.parts, candidate.rows, candidate.less_ns
        by_rank = np.bincount(parts.rank[rows], less_ns)
        most = int(np.argmax(by_rank))
        of_part = np.bincount(parts.part[rows], less_ns * (parts.rank[rows] == most))
        is_main = of_part >= LEAST_PART * of_part.sum()
        is_most = (parts.rank[rows] == most) & is_main[parts.part[rows]]
        longest, longest_less_ns = rows[is_most], less_ns[is_most]
        alike = np.isin(parts.part, np.unique(parts.part[longest])) & (parts.rank == most)
        if candidate.steps is not None:
            alike &= np.isin(parts.step, np.unique(parts.step[longest]))
        is_operator = candidate.kind is FindingKind.SLOW_OPERATOR
        name = parts.type if is_operator else parts.name
        names = np.bincount(name[longest], longest_less_ns)
        took_ns, mended_ns = int(parts.time_ns[alike].sum()), int(longest_less_ns.sum())
        if candidate.kind is FindingKind.SLOW_HOSTS:
            # Several streams may wait for the host at a time.
            took_ns, mended_ns = (min(one, self._idle_ns[most]) for one in (took_ns, mended_ns))
        return Finding(
            candidate.kind,
            candidate.ranks,
            candidate.steps,
            self._main_cause(candidate),
            gain_ns,
            further_ns,
            took_ns,
            mended_ns,
            self._mends.names[int(np.argmax(names))],
            basis=candidate.basis,
            fault=candidate.fault,
            absent=candidate.absent,
            slower=tuple(np.flatnonzero(2 * by_rank >= by_rank[most]).tolist()),
            copies=bool((parts.part[longest] == Part.COPYING).all()),
        )

    def _main_cause(self, candidate: _Candidate) -> Cause:
        """Return the cause that accounts for most of a candidate, Cause.UNKNOWN if none does."""
        if candidate.cause is not Cause.UNKNOWN:
            return candidate.cause
        parts = self._mends.parts
        sums = {
            cause: int(candidate.less_ns[mask].sum())
            for cause, mask in _masks(parts.part[candidate.rows])
            if cause is not Cause.UNKNOWN
        }
        cause = max(sums, key=sums.__getitem__)
        most = MAIN * sum(sums.values())
        return cause if sums[cause] and sums[cause] >= most else Cause.UNKNOWN

    def _best(
        self, candidates: Sequence[_Candidate], mended_ns: Int64, now: Played
    ) -> tuple[_Candidate, int, Played] | None:
        """Return the narrowest candidate among those with nearly the largest gain.

        Returns the candidate, its gain on top of what is mended, and the replay; None if no gain is
        notable.
        """
        parts = self._mends.parts
        on_path = np.zeros(self._mends.nodes, np.bool_)
        on_path[self._replay.path(now, self._mends.sooner_ns(mended_ns))] = True
        is_on_path = on_path[parts.node]
        least_ns = PROMISING * self._run.recording_ns
        promising = []
        for candidate in candidates:
            more_ns = np.maximum(candidate.less_ns - mended_ns[candidate.rows], 0)
            counts = candidate.is_alone | is_on_path[candidate.rows]
            bound_ns = int(more_ns[counts].sum())
            if bound_ns >= least_ns:
                promising.append((bound_ns, candidate))
        promising.sort(key=lambda one: (-one[0], one[1].narrowness))
        tried = list[tuple[int, _Candidate, Played]]()
        most_ns = 0
        for bound_ns, candidate in promising[:MOST_REPLAYS]:
            if bound_ns < ALIKE * most_ns:
                break
            played = self._replay.play(self._mends.sooner_ns(candidate.on_top_of(mended_ns)))
            won_ns = self._won_ns(candidate, now, played)
            most_ns = max(most_ns, won_ns)
            tried.append((won_ns, candidate, played))
        alike = [one for one in tried if one[0] >= ALIKE * most_ns]
        if not alike or most_ns < NOTABLE * self._run.recording_ns:
            return None
        won_ns, candidate, played = min(alike, key=lambda one: (one[1].narrowness, -one[0]))
        return candidate, won_ns, played


def _candidates(
    kind: FindingKind,
    ranks: tuple[int, ...] | None,
    steps: tuple[int, ...] | None,
    cause: Cause,
    less_ns: Int64,
    first: int = 0,
    **more: Any,
) -> Iterator[_Candidate]:
    """Yield a candidate if it mends anything.

    less_ns: (k,) how much less time the parts take, from row `first` on.
    """
    rows = np.flatnonzero(less_ns)
    if len(rows):
        yield _Candidate(kind, ranks, steps, cause, first + rows, less_ns[rows], **more)


def _faults(run: Run, mends: Mends) -> Iterator[_Candidate]:
    """Yield candidates for everything that may be worse than its peers."""
    parts, steps = mends.parts, len(run.step_numbers)
    if len(run.ranks) > 1:
        yield from _of_ranks(run, mends)
        yield from _of_sets(run, mends)
        yield from _of_stages(run, mends)
    yield from _of_absent(mends)
    yield from _of_links(run, mends)
    odd_steps = np.zeros(steps, np.bool_)
    whole_ns = run.step_times_ns[~run.is_cut]
    odd_steps[~run.is_cut] = split_odd(whole_ns, in_order=True, fewer=True)
    if odd_steps.any():
        is_odd = np.append(odd_steps, False)[parts.step]
        yield from _of_steps(run, mends, is_odd, tuple(run.step_numbers[odd_steps].tolist()))
    late_ns = mends.late_data(int(np.median(run.step_times_ns)) if steps else run.recording_ns)
    yield from _candidates(FindingKind.STARVED, None, None, Cause.INPUT, late_ns)
    yield from _candidates(FindingKind.SLOW_HOSTS, None, None, Cause.HOST, mends.stalls())


_TASKS = (Part.COMPUTING, Part.COPYING)


def _masks(part: Codes) -> Iterator[tuple[Cause, Bool]]:
    """Yield each cause with a mask of the parts it affects; UNKNOWN covers all but transfers."""
    yield Cause.COMPUTING, np.isin(part, _TASKS)
    yield Cause.HOST, part == Part.HOST
    yield Cause.INPUT, part == Part.INPUT
    yield Cause.UNKNOWN, part < Part.TRANSFER


def _slower_ranks(run: Run, mends: Mends, less_ns: Int64) -> Iterator[tuple[int, slice]]:
    """Yield each rank with parts that would take notably less time, and the slice of its parts."""
    bounds = np.searchsorted(mends.parts.rank, np.arange(len(run.ranks) + 1)).tolist()
    for rank, (first, stop) in enumerate(pairwise(bounds)):
        if int(less_ns[first:stop].sum()) >= PROMISING * run.recording_ns:
            yield rank, slice(first, stop)


def _of_ranks(run: Run, mends: Mends) -> Iterator[_Candidate]:
    """Yield candidates for one rank that is slower than its peers, in all steps and in odd ones.

    If nothing links the ranks, it is unknown whether others wait for it, so the gain is a bound.
    """
    step = mends.parts.step
    basis = Basis.REPLAY if run.is_linked else Basis.BOUND
    for cause, mask in _masks(mends.parts.part):
        less_ns = np.where(mask, mends.peers_ns, 0)
        kind = FindingKind.STARVED if cause is Cause.INPUT else FindingKind.SLOW_RANK
        for rank, rows in _slower_ranks(run, mends, less_ns):
            rank_ns = less_ns[rows]
            yield from _candidates(kind, (rank,), None, cause, rank_ns, rows.start, basis=basis)
            if not len(run.step_numbers):
                continue
            by_step = np.zeros(len(run.step_numbers) + 1, np.int64)
            np.add.at(by_step, step[rows], rank_ns)
            odd = split_odd(by_step[:-1], in_order=True)
            numbers = tuple(run.step_numbers[odd].tolist())
            in_odd_ns = np.where(np.append(odd, False)[step[rows]], rank_ns, 0)
            yield from _candidates(
                kind, (rank,), numbers, cause, in_odd_ns, rows.start, basis=basis
            )


def _of_steps(run: Run, mends: Mends, odd: Bool, numbers: tuple[int, ...]) -> Iterator[_Candidate]:
    """Yield candidates for odd steps that are slower than the others, on all ranks and on each."""
    beyond_ns = mends.beyond_steps(odd)
    for cause, mask in _masks(mends.parts.part):
        less_ns = np.where(mask, beyond_ns, 0)
        yield from _candidates(FindingKind.SLOW_STEPS, None, numbers, cause, less_ns)
        if len(run.ranks) == 1:
            continue
        for rank, rows in _slower_ranks(run, mends, less_ns):
            kind = FindingKind.SLOW_RANK
            yield from _candidates(kind, (rank,), numbers, cause, less_ns[rows], rows.start)


def _of_sets(run: Run, mends: Mends) -> Iterator[_Candidate]:
    """Yield candidates for several ranks that are slower than all others that do the same work."""
    parts = mends.parts
    classes = np.array(run.classes)
    for cause, mask in _masks(parts.part):
        by_rank = np.zeros(len(run.ranks), np.int64)
        counted = mask & (parts.step != NO_ID)
        np.add.at(by_rank, parts.rank[counted], parts.time_ns[counted])
        slow = np.zeros(len(run.ranks), np.bool_)
        for number in set(run.classes):
            peers = np.flatnonzero(classes == number)
            slow[peers] = split_odd(by_rank[peers])
        if np.count_nonzero(slow) > 1:
            less_ns = np.where(mask, mends.beyond_ranks(slow[parts.rank]), 0)
            ranks = tuple(np.flatnonzero(slow).tolist())
            yield from _candidates(FindingKind.SLOW_RANKS, ranks, None, cause, less_ns)


def _of_stages(run: Run, mends: Mends) -> Iterator[_Candidate]:
    """Yield a candidate that brings all pipeline stages to their mean; it names the slowest."""
    parts, stages = mends.parts, np.array(run.stages)
    numbers = np.unique(stages[stages != NO_ID])
    if len(numbers) < 2:
        return
    computing = parts.part == Part.COMPUTING
    by_rank = np.zeros(len(run.ranks), np.int64)
    np.add.at(by_rank, parts.rank[computing], parts.time_ns[computing])
    by_stage = np.array([np.median(by_rank[stages == stage]) for stage in numbers])
    mean_ns = by_stage.mean()
    of_rank = np.ones(len(run.ranks))
    for stage, stage_ns in zip(numbers.tolist(), by_stage.tolist(), strict=True):
        of_rank[stages == stage] = mean_ns / stage_ns if stage_ns else 1.0
    less = 1 - of_rank[parts.rank]
    less_ns = np.where(computing, parts.time_ns * less, 0).astype(np.int64)
    slowest = tuple(np.flatnonzero(stages == numbers[int(np.argmax(by_stage))]).tolist())
    yield from _candidates(FindingKind.PIPELINE, slowest, None, Cause.PIPELINE, less_ns)


def _of_absent(mends: Mends) -> Iterator[_Candidate]:
    """Yield a candidate for each identified rank that is not recorded and that ops wait for."""
    parts = mends.parts
    rows = np.flatnonzero(parts.part == Part.ABSENCE)
    for rank, positions in rows_by_value(parts.group[rows]):
        kind, cause = FindingKind.SLOW_RANK, Cause.UNKNOWN
        yield _Candidate(
            kind, (), None, cause, rows[positions], parts.time_ns[rows[positions]], absent=int(rank)
        )


def _of_links(run: Run, mends: Mends) -> Iterator[_Candidate]:
    """Yield candidates for slow transfers of a group, or of all slow groups of one rank.

    If several groups of a rank are slow, the rank is a candidate as well as each group.
    """
    parts = mends.parts
    slow_ns = mends.slow_transfers()
    rows = np.flatnonzero(slow_ns > 0)
    slow = list[tuple[frozenset[int], Rows]]()
    for _, positions in rows_by_value(parts.group[rows]):
        of_group = rows[positions]
        if int(slow_ns[of_group].sum()) >= PROMISING * run.recording_ns:
            slow.append((frozenset(parts.rank[of_group].tolist()), of_group))
    kind, cause = FindingKind.SLOW_LINK, Cause.LINK
    for members, transfers in slow:
        yield _Candidate(kind, tuple(sorted(members)), None, cause, transfers, slow_ns[transfers])
    for rank in sorted(set[int]().union(*(members for members, _ in slow))):
        groups = [transfers for members, transfers in slow if rank in members]
        if len(groups) > 1:
            transfers = np.sort(np.concatenate(groups))
            yield _Candidate(kind, (rank,), None, cause, transfers, slow_ns[transfers])


def _levers(mends: Mends, *, is_whole: bool, has_launches: bool) -> Iterator[_Candidate]:
    """Yield candidates that would make a run without faults faster.

    If members are not recorded, part of the apparent transfer time is waiting, and they may have
    their data in time: those gains are bounds. Without recorded launches, hosts are no candidate.
    """
    parts = mends.parts
    exposed_ns = np.minimum(parts.exposed_ns, parts.time_ns)
    kind, cause = FindingKind.EXPOSED_COMMUNICATION, Cause.COMMUNICATION
    basis = Basis.REPLAY if is_whole else Basis.BOUND
    yield from _candidates(kind, None, None, cause, exposed_ns, basis=basis, fault=False)
    computing = np.flatnonzero((parts.part == Part.COMPUTING) & (parts.type != NO_NAME))
    if len(computing):
        by_type = np.bincount(parts.type[computing], parts.time_ns[computing])
        is_it = (parts.part == Part.COMPUTING) & (parts.type == int(np.argmax(by_type)))
        less_ns = np.where(is_it, parts.time_ns // FASTER, 0)
        kind, cause = FindingKind.SLOW_OPERATOR, Cause.COMPUTING
        yield from _candidates(kind, None, None, cause, less_ns, fault=False)
    data_ns = np.where(parts.part == Part.INPUT, parts.time_ns, 0)
    kind, cause = FindingKind.STARVED, Cause.INPUT
    yield from _candidates(kind, None, None, cause, data_ns, basis=basis, fault=False)
    if not has_launches:
        return
    # The time between tasks with unknown launches may have any cause.
    hosts_ns = np.where((parts.part == Part.HOST) & parts.on_host, parts.time_ns, 0)
    kind, cause = FindingKind.SLOW_HOSTS, Cause.HOST
    yield from _candidates(kind, None, None, cause, hosts_ns, basis=Basis.BOUND, fault=False)
