"""The collectives of a cluster whose clocks and late ranks are known, from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from timeline.analysis.waits.collectives import RankCollectives, rank_collectives
from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_GRAPH, NO_ID
from timeline.records.tables import CommunicationOps, GroupMembers, PlaneTasks, Records, Tasks

STEP_NS = 40_000_000
COMPUTE_NS = 300_000
TRANSFER_NS = 100_000
NOTIFY_NS = 9_000
"""How long after its op starts a rank has sent its notifies."""


@dataclass(frozen=True)
class Cluster:
    """What every rank recorded, and what is true of it.

    offsets_ns: (ranks,) what each clock is ahead; drifts_ppb: what it runs ahead more. last: for
    each op, by its name, the rank that came last. start_ns: for each op, when each rank came.
    """

    ranks: tuple[RankCollectives, ...]
    records: tuple[Records, ...]
    offsets_ns: Int64
    drifts_ppb: Int64
    last: Mapping[str, int]
    start_ns: Mapping[str, Mapping[int, int]]


def grid_groups(ranks: int, width: int) -> list[tuple[int, ...]]:
    """Rows and columns of ranks laid out in a grid, as tensor and data parallel groups are."""
    rows = [tuple(range(at, min(at + width, ranks))) for at in range(0, ranks, width)]
    columns = [tuple(range(at, ranks, width)) for at in range(min(width, ranks))]
    return rows + columns


def simulate(
    ranks: int,
    *,
    width: int = 4,
    groups: Sequence[tuple[int, ...]] | None = None,
    ops: int = 40,
    steps: int = 1,
    kind: str = "allReduce",
    noise_ns: int = 0,
    offset_ns: int = 0,
    late: Mapping[int, int] | None = None,
    lost: float = 0.0,
    drift_ppb: int = 0,
    profiled: Sequence[int] | None = None,
    tasks: bool = False,
    seed: int = 1,
) -> Cluster:
    """Simulate a cluster.

    Every rank computes, then takes part in a collective of its groups in turn. Nobody leaves a
    collective before the last has come.

    Args:
        groups: sets of ranks; rows and columns of a grid by default.
        ops: collectives of each group over all steps.
        noise_ns: standard deviation of what the record of an end is off.
        offset_ns: largest amount by which a clock is ahead or behind.
        late: how much longer each named rank takes before every collective.
        lost: share of the collectives that a rank did not record.
        drift_ppb: largest amount by which a clock runs fast or slow, in ns a second.
        profiled: the ranks that recorded anything; all by default.
        tasks: whether they recorded the HCCL tasks of a full mesh.
    """
    generator = np.random.default_rng(seed)
    late = late or {}
    offsets_ns = generator.integers(-offset_ns, offset_ns + 1, ranks)
    drifts_ppb = (
        generator.integers(-drift_ppb, drift_ppb + 1, ranks) if drift_ppb else offsets_ns * 0
    )
    now_ns = generator.integers(0, 50_000, ranks)
    spans: list[list[tuple[int, int, str, int]]] = [[] for _ in range(ranks)]
    computing: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    last: dict[str, int] = {}
    came_ns: dict[str, dict[int, int]] = {}
    members = list(groups if groups is not None else grid_groups(ranks, width))
    for number in range(ops):
        for place, group in enumerate(members):
            ranks_of_group = np.array(group)
            takes_ns = COMPUTE_NS + generator.integers(0, 20_000, len(ranks_of_group))
            waits_ns = np.array([late.get(rank, 0) for rank in group])
            for rank, compute_ns, wait_ns in zip(
                group, takes_ns.tolist(), waits_ns.tolist(), strict=True
            ):
                computing[rank].append((now_ns[rank], now_ns[rank] + compute_ns + wait_ns))
            start_ns = now_ns[ranks_of_group] + takes_ns + waits_ns
            end_ns = int(start_ns.max()) + TRANSFER_NS
            now_ns[ranks_of_group] = end_ns
            name = f"hcom_{kind}__{place:03d}_{number}_1"
            last[name] = int(ranks_of_group[np.argmax(start_ns)])
            came_ns[name] = dict(zip(group, start_ns.tolist(), strict=True))
            noise = (
                np.abs(generator.normal(0, noise_ns, len(ranks_of_group)))
                if noise_ns
                else np.zeros(len(ranks_of_group))
            )
            recorded = generator.random(len(ranks_of_group)) >= lost
            for rank, start, off, held in zip(
                group, start_ns.tolist(), noise.tolist(), recorded.tolist(), strict=True
            ):
                if held:
                    spans[rank].append((start, end_ns + int(off), name, number * steps // ops))
    recording = range(ranks) if profiled is None else profiled
    records = tuple(
        _records(
            rank,
            spans[rank],
            computing[rank],
            ClockMove(int(offsets_ns[rank]), int(drifts_ppb[rank])),
            members,
            came_ns if tasks else {},
        )
        for rank in recording
    )
    iterations = [np.array([span[3] for span in spans[rank]], np.int64) for rank in recording]
    return Cluster(
        tuple(
            rank_collectives(record, steps, read_ranks=frozenset(recording))
            for record, steps in zip(records, iterations, strict=True)
        ),
        records,
        offsets_ns,
        drifts_ppb,
        last,
        came_ns,
    )


def _records(
    rank: int,
    spans: list[tuple[int, int, str, int]],
    computing: list[tuple[int, int]],
    clock: ClockMove,
    groups: Sequence[tuple[int, ...]],
    came_ns: Mapping[str, Mapping[int, int]],
) -> Records:
    strings = StringPool()
    ops = CommunicationOps.of(
        len(spans),
        {
            "start_ns": [clock.of_time(span[0]) for span in spans],
            "end_ns": [clock.of_time(span[1]) for span in spans],
            "name": strings.codes(span[2] for span in spans),
            "group": strings.codes(f"Group {span[2].split('_')[3]}" for span in spans),
            "count": np.full(len(spans), 1 << 20),
            "data_type": np.full(len(spans), strings.code("FP32")),
        },
    )
    tasks = Tasks.of(
        len(computing),
        {
            "start_ns": [clock.of_time(span[0]) for span in computing],
            "end_ns": [clock.of_time(span[1]) for span in computing],
            "stream": np.full(len(computing), 3),
            "graph": np.full(len(computing), NO_GRAPH),
            "name": np.full(len(computing), strings.code("MatMulV2")),
            "compute": np.ones(len(computing), np.bool_),
        },
    )
    planes = _planes(rank, spans, clock, came_ns, strings)
    return Records(
        rank, strings, tasks=tasks, ops=ops, planes=planes, members=_members(groups, strings)
    )


def _members(groups: Sequence[tuple[int, ...]], strings: StringPool) -> GroupMembers:
    """The members of each group, by the number in the names of its ops."""
    rows = [(place, rank, len(group)) for place, group in enumerate(groups) for rank in group]
    return GroupMembers.of(
        len(rows),
        {
            "group": strings.codes(str(place) for place, _, _ in rows),
            "rank": [rank for _, rank, _ in rows],
            "size": [size for _, _, size in rows],
        },
    )


def _planes(
    rank: int,
    spans: list[tuple[int, int, str, int]],
    clock: ClockMove,
    came_ns: Mapping[str, Mapping[int, int]],
    strings: StringPool,
) -> PlaneTasks:
    """The notifies of a full mesh: to each peer on a plane of its own, then from it."""
    rows = []
    for start_ns, end_ns, name, _ in spans:
        for plane, (peer, peer_ns) in enumerate(sorted(came_ns.get(name, {}).items())):
            sent_ns = start_ns + NOTIFY_NS
            if peer != rank:
                rows.append((name, "Notify_Record", peer, plane, sent_ns - 700, sent_ns))
                arrived_ns = max(peer_ns + NOTIFY_NS, sent_ns + 500)
                rows.append((name, "Notify_Wait", peer, plane, sent_ns + 500, arrived_ns))
                rows.append((name, "Memcpy", peer, plane, end_ns - 2000, end_ns - 1000))
    return PlaneTasks.of(
        len(rows),
        {
            "start_ns": [clock.of_time(start_ns) for *_, start_ns, _ in rows],
            "end_ns": [clock.of_time(end_ns) for *_, end_ns in rows],
            "group": strings.codes(f"Group {name.split('_')[3]}" for name, *_ in rows),
            "plane": [plane for _, _, _, plane, _, _ in rows],
            "name": strings.codes(kind for _, kind, *_ in rows),
            "source_rank": np.full(len(rows), rank),
            "target_rank": [peer for _, _, peer, *_ in rows],
            "size_bytes": [4096 if kind == "Memcpy" else NO_ID for _, kind, *_ in rows],
        },
    )
