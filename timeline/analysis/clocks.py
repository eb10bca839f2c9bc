"""Turns the clocks of ranks into one: recorded within a host, wall time between hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timeline.records.clock import Clock

__all__ = ["JoinedClock", "RankClock", "join_clocks"]


@dataclass(frozen=True)
class RankClock:
    """What joining needs to know of one rank: its clock, and whether its times count from boot."""

    rank: int
    clock: Clock
    monotonic: bool


@dataclass(frozen=True)
class JoinedClock:
    """What each rank is moved by to be on one clock, and wall time less that clock."""

    offsets_ns: tuple[int, ...]
    wall_offset_ns: int | None
    method: str
    warnings: tuple[str, ...]


def join_clocks(ranks: Sequence[RankClock]) -> JoinedClock:
    """Find the moves that put ranks on one clock.

    Exports that hold wall time stay as they are. Monotonic clocks stay as they are too while all
    ranks ran on one host: that is one clock. Otherwise every rank moves to wall time, by the
    offset of its host's lowest rank, so that ranks of one host keep their distance.
    """
    monotonic = [rank.monotonic for rank in ranks]
    if not any(monotonic):
        return JoinedClock((0,) * len(ranks), 0, "recorded", ())
    hosts = {rank.clock.host for rank in ranks}
    if all(monotonic) and len(hosts) == 1 and (len(ranks) == 1 or "" not in hosts):
        return JoinedClock((0,) * len(ranks), ranks[0].clock.wall_offset_ns, "recorded", ())
    return _on_wall_time(ranks)


def _on_wall_time(ranks: Sequence[RankClock]) -> JoinedClock:
    by_host: dict[str, int] = {}
    for rank in ranks:
        if rank.clock.host and rank.clock.wall_offset_ns is not None:
            by_host.setdefault(rank.clock.host, rank.clock.wall_offset_ns)
    offsets, warnings = [], []
    for rank in ranks:
        offset = by_host.get(rank.clock.host, rank.clock.wall_offset_ns) if rank.monotonic else 0
        if offset is None:
            warnings.append(
                f"rank {rank.rank}: its clock counts from the start of its host and nothing "
                "relates it to the other ranks; it is drawn at its own times."
            )
            offset = 0
        offsets.append(offset)
    return JoinedClock(tuple(offsets), 0, "wall clock", tuple(warnings))
