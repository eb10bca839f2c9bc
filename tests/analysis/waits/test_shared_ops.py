"""Proves that ranks which were not profiled are found by what others waited for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import at_most
from tests.support.simulated_cluster import NOTIFY_NS, TRANSFER_NS, Cluster, simulate
from timeline.analysis.waits.collectives import RankCollectives, rank_collectives
from timeline.analysis.waits.group_members import (
    find_groups,
    group_in_name,
    group_number,
    with_global_ranks,
)
from timeline.analysis.waits.shared_ops import TIE_NS
from timeline.analysis.waits.waiting import Waiting, measure_waiting
from timeline.analysis.work.task_sums import rank_links
from timeline.columns.strings import StringPool
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import GroupMembers, PlaneTasks, Records

ONE_GROUP = (0, 1, 2, 3, 4, 5, 6, 7)


def rows_by_name(
    waiting: Waiting, ranks: tuple[RankCollectives, ...]
) -> list[tuple[str, int, int]]:
    """Name of the op, rank, and row of `Waits`, of every row."""
    waits = waiting.waits
    return [
        (ranks[rank].strings[ranks[rank].ops.name[row]], ranks[rank].rank, at)
        for at, (rank, row) in enumerate(zip(waits.rank.tolist(), waits.row.tolist(), strict=True))
    ]


def collectives_of(records: Records, profiled: frozenset[int]) -> RankCollectives:
    """The collectives of all records."""
    return rank_collectives(records, np.zeros(len(records.ops), np.int64), read_ranks=profiled)


@given(
    profiled=st.sets(st.integers(0, 7), min_size=1),
    late=st.dictionaries(st.integers(0, 7), st.integers(0, 3_000_000), max_size=3),
    seed=st.integers(0, 1 << 30),
)
@settings(max_examples=at_most(80), deadline=None)
def test_the_last_rank_is_named_whether_it_was_profiled_or_not(
    profiled: set[int], late: Mapping[int, int], seed: int
) -> None:
    """With any subset of ranks profiled: who came last, how long each waited, and the transfer."""
    chosen = sorted(profiled)
    cluster = simulate(
        8, groups=[ONE_GROUP], ops=6, late=late, profiled=chosen, tasks=True, seed=seed
    )
    waiting = measure_waiting(cluster.ranks)
    waits = waiting.waits
    rows = rows_by_name(waiting, cluster.ranks)
    assert len(rows) == 6 * len(chosen)
    for name, rank, at in rows:
        came = cluster.start_ns[name]
        last_read = max(chosen, key=lambda one: (came[one], -one))
        last = cluster.last[name]
        if last not in profiled and came[last] - came[last_read] <= TIE_NS:
            last = last_read
        is_read = last in profiled
        last_ns = came[last] + (0 if is_read else NOTIFY_NS)
        end_ns = max(came.values()) + TRANSFER_NS
        assert (int(waits.last_rank[at]), bool(waits.last_profiled[at])) == (last, is_read)
        assert (waits.last[at] != NO_ID) == is_read
        assert int(waits.waited_ns[at]) == last_ns - came[rank]
        assert int(waits.transfer_ns[at]) == end_ns - last_ns
        moved = 2 * 7 / 8 * 4 * (1 << 20)
        assert waits.bandwidth[at] == pytest.approx(moved / (end_ns - last_ns))
    waited_for = waiting.waited_for
    assert waited_for.waited_ns.sum() == waits.waited_ns.sum()
    blamed = waits.take(waits.last != NO_ID)
    assert waiting.stragglers.caused_ns.sum() == blamed.waited_ns.sum()
    order = np.lexsort((-waited_for.waited_ns, waited_for.rank))
    assert (order == np.arange(len(order))).all()


def without_metadata(
    cluster: Cluster, planes: Callable[[PlaneTasks], PlaneTasks] = lambda same: same
) -> tuple[RankCollectives, ...]:
    """What ranks tell without knowing the members of their groups, by changed HCCL tasks."""
    profiled = frozenset(records.rank for records in cluster.records)
    return tuple(
        collectives_of(
            replace(records, members=GroupMembers.empty(), planes=planes(records.planes)),
            profiled,
        )
        for records in cluster.records
    )


def test_a_mesh_tells_its_members_itself() -> None:
    """Where two ranks saw the same peers without a gap, those are all; so they are by one of 8."""
    late = {5: 2_000_000}
    for profiled in ([0, 1], [3]):
        cluster = simulate(8, groups=[ONE_GROUP], late=late, profiled=profiled, tasks=True, ops=4)
        waits = measure_waiting(without_metadata(cluster)).waits
        assert set(waits.last_rank.tolist()) == {5}
        assert np.isfinite(waits.bandwidth).all()


@pytest.mark.parametrize("seen", [{0, 1, 7}, {0, 1, 2}, {0, 1, 2, 3, 4}])
def test_neighbours_alone_tell_only_that_some_rank_was_late(seen: set[int]) -> None:
    """A ring or a hierarchy shows some ranks: the wait is known, not for whom, nor the transfer."""
    cluster = simulate(8, groups=[ONE_GROUP], late={1: 2_000_000}, profiled=[0], tasks=True, ops=4)
    (records,) = cluster.records
    near = np.isin(records.planes.target_rank, list(seen))
    ring = replace(records, members=GroupMembers.empty(), planes=records.planes.take(near))
    waiting = measure_waiting([collectives_of(ring, frozenset({0}))])
    waits = waiting.waits
    assert len(waits) == 4
    assert set(waits.last_rank.tolist()) == {NO_ID}
    assert not waits.last_profiled.any()
    assert (waits.waited_ns > 1_900_000).all()
    assert (waits.transfer_ns == NO_TIME).all()
    assert np.isnan(waits.bandwidth).all()
    assert waiting.waited_for.last_rank.tolist() == [NO_ID]


def test_nothing_is_said_where_nothing_tells() -> None:
    """Members are known and some are missing, without HCCL tasks: unknown, not a guess."""
    cluster = simulate(8, groups=[ONE_GROUP], profiled=[0, 1], ops=4)
    waiting = measure_waiting(cluster.ranks)
    assert not len(waiting.waits)
    assert waiting.stragglers.unknown.tolist() == [4, 4]
    assert waiting.stragglers.shared.tolist() == [0, 0]
    assert (waiting.basis.compared, waiting.basis.collectives) == (0, 4)


def test_tasks_without_names_tell_nothing() -> None:
    """The lowest level records HCCL tasks without names and ranks: who came last is not known."""
    cluster = simulate(8, groups=[ONE_GROUP], profiled=[0, 1], tasks=True, ops=4)

    def unnamed(planes: PlaneTasks) -> PlaneTasks:
        nothing = np.full(len(planes), NO_ID, np.int64)
        return replace(planes, source_rank=nothing, target_rank=nothing)

    waiting = measure_waiting(without_metadata(cluster, unnamed))
    assert not len(waiting.waits)
    assert waiting.stragglers.unnamed.tolist() == [4, 4]


def test_what_is_not_read_is_not_known() -> None:
    """Without HCCL tasks read, ranks of unknown groups are not taken for all members."""
    cluster = simulate(8, groups=[ONE_GROUP], profiled=[0, 1], ops=4)
    ranks = [
        rank_collectives(
            replace(records, members=GroupMembers.empty()),
            np.zeros(len(records.ops), np.int64),
            recorded=False,
        )
        for records in cluster.records
    ]
    assert not len(measure_waiting(ranks).waits)


def test_a_second_level_is_no_wait() -> None:
    """A wait that begins after the first transfer is over belongs to the transfer."""
    cluster = simulate(4, groups=[(0, 1, 2, 3)], profiled=[0], tasks=True, ops=1)
    (records,) = cluster.records
    strings = records.strings
    start_ns, end_ns = int(records.ops.start_ns[0]), int(records.ops.end_ns[0])
    rows = [
        ("Notify_Record", 1, start_ns + 4_000, start_ns + 5_000),
        ("Notify_Wait", 1, start_ns + 5_000, start_ns + 9_000),
        ("Memcpy", 1, start_ns + 9_000, start_ns + 30_000),
        ("Notify_Wait", 2, start_ns + 31_000, end_ns - 1),
    ]
    planes = PlaneTasks.of(
        len(rows),
        {
            "start_ns": [begin for _, _, begin, _ in rows],
            "end_ns": [end for *_, end in rows],
            "group": np.full(len(rows), records.ops.group[0]),
            "plane": np.zeros(len(rows)),
            "name": strings.codes(name for name, *_ in rows),
            "source_rank": np.zeros(len(rows)),
            "target_rank": [peer for _, peer, _, _ in rows],
            "size_bytes": [4096 if name == "Memcpy" else NO_ID for name, *_ in rows],
        },
    )
    waits = measure_waiting([collectives_of(replace(records, planes=planes), frozenset({0}))]).waits
    assert waits.waited_ns.tolist() == [9_000]
    assert waits.last_rank.tolist() == [NO_ID]


def test_a_member_that_lost_the_record_is_known_by_the_others() -> None:
    """A profiled rank without a record of an op is named by the notify that others waited for."""
    cluster = simulate(
        8, groups=[ONE_GROUP], late={1: 2_000_000}, profiled=[0, 1], tasks=True, ops=3
    )
    kept = np.arange(3) != 1
    lost = replace(cluster.records[1], ops=cluster.records[1].ops.take(kept))
    both = frozenset({0, 1})
    ranks = [collectives_of(records, both) for records in (cluster.records[0], lost)]
    waits = measure_waiting(ranks).waits
    assert waits.last_rank.tolist() == [1] * 5
    assert waits.last_profiled.all()
    assert waits.last.tolist() == [1, NO_ID, 1, 1, 1]


def test_ops_that_cannot_be_one_are_told_by_the_tasks_of_each_rank() -> None:
    """Clocks that are far off: nothing is compared; each rank still knows whom it waited for."""
    late = {5: 2_000_000}
    cluster = simulate(8, groups=[ONE_GROUP], late=late, profiled=[0, 1], tasks=True, ops=4)
    far = cluster.ranks[1].moved(ClockMove(10**12))
    waiting = measure_waiting([cluster.ranks[0], far])
    assert waiting.mismatched == 4
    assert waiting.waits.last_rank.tolist() == [5] * 8
    near = measure_waiting(cluster.ranks).waits
    assert waiting.waits.waited_ns.tolist() == near.waited_ns.tolist()
    assert waiting.waits.transfer_ns.tolist() == near.transfer_ns.tolist()


def test_members_are_found_by_name_number_and_digits() -> None:
    """A group is known by its raw name, by the number that CANN makes of it, and by its end."""
    name = "90.91.105.46%enp189s0f0_60000_0_1736410538306028"
    assert group_number(name) == 17148521525495523210
    for group_name, op in (
        (name, "any"),
        (str(group_number(name)), "any"),
        ("", "hcom_x__210_0_1"),
    ):
        cluster = simulate(2, groups=[(0, 1)], profiled=[0], tasks=True, ops=2)
        (records,) = cluster.records
        strings = records.strings
        ops = replace(
            records.ops,
            group_name=strings.codes([group_name] * 2),
            name=strings.codes([op] * 2),
        )
        members = GroupMembers.of(
            2,
            {
                "group": strings.codes([name] * 2),
                "name": strings.codes(["dp"] * 2),
                "rank": [3, 7],
                "size": [2, 2],
            },
        )
        made = with_global_ranks(replace(records, ops=ops, members=members))
        (group,) = find_groups(made).values()
        assert (group.name, group.members, group.size) == ("dp", (3, 7), 2)
        assert set(made.planes.target_rank.tolist()) == {7}
        assert set(made.planes.source_rank.tolist()) == {3}
        assert {made.strings[code] for code in made.ops.group.tolist()} == {"Group 000 dp"}
        assert (made.planes.group == made.ops.group[0]).all()


def test_a_number_within_a_group_names_no_rank() -> None:
    """One rank does not know its group and numbers it from 0; those ranks were in another one.

    It saw them come a little later than they say, as with notifies that take long.
    """
    groups = [(0, 1, 2, 3), (4, 5, 6, 7), (2, 6)]
    cluster = simulate(8, groups=groups, late={5: 50_000}, tasks=True, ops=4)
    profiled = frozenset(range(8))
    ranks = list(cluster.ranks)
    lost = cluster.records[6]
    waited = lost.planes.name == lost.strings.find("Notify_Wait")
    planes = replace(
        lost.planes,
        target_rank=lost.planes.target_rank % 4,
        end_ns=lost.planes.end_ns + 2 * TIE_NS * waited,
    )
    ranks[6] = collectives_of(replace(lost, members=GroupMembers.empty(), planes=planes), profiled)
    waiting = measure_waiting(ranks)
    rows = rows_by_name(waiting, tuple(ranks))
    assert len(rows) == 4 * (4 + 4 + 2)
    for name, _, at in rows:
        assert int(waiting.waits.last_rank[at]) == cluster.last[name]


@pytest.mark.parametrize("told", [False, True])
def test_links_of_several_groups_are_not_mixed(told: bool) -> None:
    """Rank 1 of one group is another than rank 1 of another: by members, or told apart."""
    cluster = simulate(3, groups=[(0, 1), (0, 2)], profiled=[0], tasks=True, ops=3)
    (records,) = cluster.records
    inside = np.ones(len(records.planes), np.int64)
    members = records.members if told else GroupMembers.empty()
    local = replace(records, members=members, planes=replace(records.planes, target_rank=inside))
    links = rank_links(with_global_ranks(local), None, whole=True)
    groups = [links.strings[code] for code in links.times.group.tolist()]
    assert links.times.count.tolist() == [3, 3]
    assert links.times.target_rank.tolist() == ([1, 2] if told else [1, 1])
    assert groups == (["", ""] if told else ["Group 000", "Group 001"])


def test_the_name_of_a_group_may_be_endless_digits() -> None:
    """Numbers of groups have 64 bits: what is longer is a name, and tells no digits."""
    members = GroupMembers.of(1, {"group": [1], "size": [2], "rank": [0]})
    strings = StringPool()
    strings.code("9" * 5000)
    assert find_groups(Records(0, strings, members=members)) == {}
    assert group_in_name(f"hcom_allReduce__{'9' * 5000}_0_1") == ""
