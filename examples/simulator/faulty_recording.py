"""What is wrong with how a simulated run was recorded: clocks of hosts, and lost records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

from simulator.model import Counter, Iteration, RankRun, Run
from simulator.truth import Truth

_Record = TypeVar("_Record")


@dataclass(frozen=True)
class FaultyRecording:
    """Faults by rank, of profilers and not of the run.

    clock_ns: how far the clock of its host is ahead. drift_ppb: by how many ns it runs ahead more
    each second of the run. lost: positions of its collectives that have no record; their launches
    have.
    """

    clock_ns: Mapping[int, int] = field(default_factory=dict)
    drift_ppb: Mapping[int, int] = field(default_factory=dict)
    lost: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def record(self, run: Run) -> Run:
        """The run as it was recorded; its truth says what was wrong."""
        ranks = tuple(self._recorded(rank) for rank in run.ranks)
        return replace(run, ranks=ranks, truth=self._told(run.truth))

    def _told(self, truth: Truth) -> Truth:
        clocks = tuple(
            (rank, self.clock_ns.get(rank, 0), self.drift_ppb.get(rank, 0))
            for rank in sorted({*self.clock_ns, *self.drift_ppb})
        )
        lost = tuple((rank, position) for rank, all_of in self.lost.items() for position in all_of)
        return replace(truth, clocks=clocks, lost=lost)

    def _recorded(self, rank: RankRun) -> RankRun:
        lost = set(self.lost.get(rank.rank, ()))
        place, steps = 0, []
        for step in rank.steps:
            kept = []
            for one in step.iterations:
                positions = range(place, place + len(one.collectives))
                kept.append(_without(one, {at - place for at in positions if at in lost}))
                place += len(one.collectives)
            steps.append(replace(step, iterations=tuple(kept)))
        recorded = replace(rank, steps=tuple(steps))
        offset_ns, drift_ppb = (of.get(rank.rank, 0) for of in (self.clock_ns, self.drift_ppb))
        if not offset_ns and not drift_ppb:
            return recorded

        def move(time_ns: int) -> int:
            return time_ns + offset_ns + (time_ns - rank.start_ns) * drift_ppb // 10**9

        moved: RankRun = _moved(recorded, move)
        return moved


def _without(iteration: Iteration, lost: set[int]) -> Iteration:
    kept = [one for at, one in enumerate(iteration.collectives) if at not in lost]
    return replace(iteration, collectives=tuple(kept))


def _moved(record: _Record, move: Any) -> _Record:
    """A record with all times moved to another clock, and those of the records in it."""
    if isinstance(record, tuple):
        return type(record)(_moved(one, move) for one in record)
    if isinstance(record, Counter):
        samples = tuple((move(time_ns), value) for time_ns, value in record.samples)
        return replace(record, samples=samples)
    if not is_dataclass(record) or isinstance(record, type):
        return record
    changed = {}
    for one in fields(record):
        value = getattr(record, one.name)
        if one.name.endswith("_ns"):
            is_pair = isinstance(value, tuple)
            changed[one.name] = tuple(map(move, value)) if is_pair else move(value)
        elif isinstance(value, tuple) or is_dataclass(value):
            changed[one.name] = _moved(value, move)
    return replace(record, **changed)
