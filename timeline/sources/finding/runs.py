"""Turns who was captured when into runs: the captures that belong together, oldest run first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["LONGEST_NS", "SAME_RUN_NS", "Session", "are_certain", "runs_of"]

SAME_RUN_NS = 60 * 10**9
"""Captures of different devices whose starts are closer than this belong to one run."""
LONGEST_NS = 3_600 * 10**9
"""No capture lasts as long: what starts further apart does not overlap."""


@dataclass(frozen=True)
class Session:
    """Who was captured, and when, as far as it is known; all times are of one clock.

    rank: None where none is told. host and worker: empty where not known. end_ns: None where only
    the start, or some moment near it, is known. hardware: what kind of device it is of.
    """

    path: str
    rank: int | None = None
    host: str = ""
    device: int | None = None
    worker: str = ""
    start_ns: int | None = None
    end_ns: int | None = None
    hardware: str = ""

    def places(self) -> Iterator[tuple[str, Hashable]]:
        """What can be in one capture at a time only: a rank, a card of a host, a process."""
        if self.rank is not None:
            yield "rank", self.rank
        if self.device is not None:
            yield "card", (self.host, self.device)
        if self.worker:
            yield "worker", self.worker


def runs_of(sessions: Sequence[Session]) -> list[list[int]]:
    """The places of the sessions of each run, ascending; runs by their latest start.

    Sessions belong together where they overlap, or where they start within SAME_RUN_NS and are
    of different ranks, cards or processes. Two of one rank, card or process that do not overlap
    are of two runs, however close.
    """
    timed = [(own.start_ns, at) for at, own in enumerate(sessions) if own.start_ns is not None]
    timed.sort(key=lambda own: (own[0], sessions[own[1]].path, own[1]))
    open_runs, runs = list[_Run](), list[_Run]()
    for start_ns, at in timed:
        own = sessions[at]
        open_runs = [run for run in open_runs if run.may_go_on(start_ns)]
        fitting = [run for run in _not_before(open_runs, own) if run.takes(own)]
        overlapping = [run for run in fitting if start_ns < run.end_ns]
        chosen = (overlapping or fitting)[-1:]
        if not chosen:
            chosen = [_Run()]
            open_runs += chosen
            runs += chosen
        chosen[0].add(at, own)
    runs.sort(key=lambda run: run.latest_ns)
    return _with_timeless(sessions, [sorted(run.members) for run in runs])


def _with_timeless(sessions: Sequence[Session], runs: list[list[int]]) -> list[list[int]]:
    """The runs with sessions of which no time is known, those of one hardware together.

    They are of the newest run where nothing in it is of their ranks, cards or processes, and else
    a run of which nobody knows when it was: it comes first.
    """
    blocks: dict[str, list[int]] = defaultdict(list)
    for at, own in enumerate(sessions):
        if own.start_ns is None:
            blocks[own.hardware].append(at)
    newest = runs[-1] if runs else []
    for hardware, block in blocks.items():
        is_same = {sessions[at].hardware for at in newest} == {hardware}
        taken = {place for at in newest for place in sessions[at].places()}
        if is_same and not any(taken.intersection(sessions[at].places()) for at in block):
            newest += block
            newest.sort()
        else:
            runs.insert(0, block)
    return runs


def are_certain(sessions: Sequence[Session], runs: Sequence[Sequence[int]]) -> bool:
    """Whether no better times could change the runs.

    They are where all times are known from start to end. Else each run is one session or different
    ranks, and those that follow each other start hours apart, have the same ranks, or one lacks
    some of the other's and they start far apart.
    """
    if len(sessions) < 2 or all(own.end_ns is not None for own in sessions):
        return True
    if any(own.start_ns is None for own in sessions):
        return False
    ranks = [[sessions[at].rank for at in members] for members in runs]
    if any(len(own) > 1 and (None in own or len(set(own)) < len(own)) for own in ranks):
        return False
    starts = [[sessions[at].start_ns or 0 for at in members] for members in runs]
    gaps = [min(starts[at + 1]) - max(starts[at]) for at in range(len(runs) - 1)]
    return all(
        gap >= LONGEST_NS or (None not in one + other and _are_turns(one, other, gap))
        for one, other, gap in zip(ranks[:-1], ranks[1:], gaps, strict=True)
    )


def _are_turns(one: Sequence[int | None], other: Sequence[int | None], gap_ns: int) -> bool:
    """Whether the ranks of two runs are the same, or part of each other with a gap between."""
    if set(one) == set(other):
        return True
    return gap_ns >= SAME_RUN_NS and (set(one) < set(other) or set(other) < set(one))


@dataclass
class _Run:
    """A run to which sessions are added in order of their starts."""

    members: list[int] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    at_place: dict[tuple[str, Hashable], list[Session]] = field(
        default_factory=lambda: defaultdict(list)
    )
    latest_ns: int = 0
    end_ns: int = 0

    def add(self, at: int, session: Session) -> None:
        assert session.start_ns is not None
        self.members.append(at)
        self.sessions.append(session)
        for place in session.places():
            self.at_place[place].append(session)
        self.latest_ns = session.start_ns
        self.end_ns = max(self.end_ns, _end_ns(session)) if self.members[1:] else _end_ns(session)

    def may_go_on(self, start_ns: int) -> bool:
        """Whether a session that starts then or later may still be of the run."""
        return start_ns <= self.end_ns or start_ns - self.latest_ns < SAME_RUN_NS

    def is_before(self, session: Session) -> bool:
        """Whether it holds an earlier turn of the same rank, card or process."""
        return any(
            _are_successive(own, session)
            for place in session.places()
            for own in self.at_place.get(place, ())
        )

    def takes(self, session: Session) -> bool:
        """Whether a session that starts no earlier than all others is of the run by its time."""
        start_ns = session.start_ns
        assert start_ns is not None
        if start_ns < self.end_ns or start_ns == self.latest_ns:
            return True
        for own in reversed(self.sessions):
            assert own.start_ns is not None
            if start_ns - own.start_ns >= SAME_RUN_NS:
                return False
            if _are_different(own, session):
                return True
        return False


def _not_before(runs: Sequence[_Run], session: Session) -> list[_Run]:
    """The runs behind the last one that holds an earlier turn of a session."""
    for number, run in reversed(list(enumerate(runs))):
        if run.is_before(session):
            return list(runs[number + 1 :])
    return list(runs)


def _end_ns(session: Session) -> int:
    assert session.start_ns is not None
    return session.start_ns if session.end_ns is None else session.end_ns


def _are_successive(before: Session, behind: Session) -> bool:
    """Whether two sessions, in order of their starts, are two turns of one rank, card or process.

    Where an end is not known, two processes or cards that claim one rank within a minute are not:
    that is a contradiction.
    """
    assert before.start_ns is not None
    assert behind.start_ns is not None
    if before.start_ns == behind.start_ns or behind.start_ns < _end_ns(before):
        return False
    one, other = dict(before.places()), dict(behind.places())
    shared = {kind for kind in one.keys() & other.keys() if one[kind] == other[kind]}
    if not shared:
        return False
    apart = (one.keys() & other.keys()) - shared
    return (
        before.end_ns is not None
        or behind.start_ns - before.start_ns >= SAME_RUN_NS
        or shared != {"rank"}
        or not apart
    )


def _are_different(one: Session, other: Session) -> bool:
    """Whether two sessions are known to be of different ranks, cards or processes."""
    places, others = dict(one.places()), dict(other.places())
    return any(places[kind] != others[kind] for kind in places.keys() & others.keys())
