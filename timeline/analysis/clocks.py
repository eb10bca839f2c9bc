"""Turns the clocks of ranks into one: recorded within a host, wall time between hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from timeline.records.clock import EARLIEST_WALL_NS, Clock, shifted
from timeline.records.tables import Records

__all__ = ["JoinedClock", "join_clocks"]


@dataclass(frozen=True)
class JoinedClock:
    """Records on one clock, what each rank was moved by, and wall time less that clock."""

    records: tuple[Records, ...]
    offsets_ns: tuple[int, ...]
    wall_offset_ns: int | None
    method: str
    warnings: tuple[str, ...]


def join_clocks(ranks: Sequence[tuple[Records, Clock]]) -> JoinedClock:
    """Put ranks on one clock.

    Exports that hold wall time stay as they are. Monotonic clocks stay as they are too while all
    ranks ran on one host: that is one clock. Otherwise every rank moves to wall time, by the
    offset of its host's lowest rank, so that ranks of one host keep their distance.
    """
    monotonic = [_is_monotonic(records) for records, _ in ranks]
    if not any(monotonic):
        return _as_recorded(ranks, 0)
    hosts = {clock.host for _, clock in ranks}
    if all(monotonic) and len(hosts) == 1 and (len(ranks) == 1 or "" not in hosts):
        return _as_recorded(ranks, ranks[0][1].wall_offset_ns)
    return _on_wall_time(ranks, monotonic)


def _as_recorded(ranks: Sequence[tuple[Records, Clock]], wall_ns: int | None) -> JoinedClock:
    records = tuple(own for own, _ in ranks)
    return JoinedClock(records, (0,) * len(ranks), wall_ns, "recorded", ())


def _on_wall_time(ranks: Sequence[tuple[Records, Clock]], monotonic: list[bool]) -> JoinedClock:
    by_host: dict[str, int] = {}
    for _, clock in ranks:
        if clock.host and clock.wall_offset_ns is not None:
            by_host.setdefault(clock.host, clock.wall_offset_ns)
    moved, offsets, warnings = [], [], []
    for (records, clock), is_monotonic in zip(ranks, monotonic, strict=True):
        offset = by_host.get(clock.host, clock.wall_offset_ns) if is_monotonic else 0
        if offset is None:
            warnings.append(
                f"rank {records.rank}: its clock counts from the start of its host and nothing "
                "relates it to the other ranks; it is drawn at its own times."
            )
            offset = 0
        moved.append(shifted(records, offset))
        offsets.append(offset)
    return JoinedClock(tuple(moved), tuple(offsets), 0, "wall clock", tuple(warnings))


def _is_monotonic(records: Records) -> bool:
    for table in (records.tasks, records.ops, records.steps, records.host):
        if len(table):
            return bool(np.min(table.start_ns) < EARLIEST_WALL_NS)
    return False
