"""Proves that collectives, sends and receives are paired truly, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import at_most
from timeline.analysis.alignment import align
from timeline.analysis.waits.collectives import (
    Collectives,
    RankCollectives,
    kind_numbers,
    rank_collectives,
)
from timeline.analysis.waits.launch_order import match_by_order
from timeline.analysis.waits.pipeline import match_sends
from timeline.analysis.waits.waiting import measure_waiting
from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, Records

# -- collectives -----------------------------------------------------------------------------------


STEP_OPS = 9
RESTART = 40
"""Numbers of ops begin again after so many, as those of a group that is built again."""
KINDS = ("all_reduce", "all_to_all", "all_reduce", "all_gather", "all_to_all")


@dataclass(frozen=True)
class Held:
    """The part that a rank recorded: not the first, not the last, and not the launch of some.

    lost: numbers of ops that it lost in between.
    """

    front: int = 0
    back: int = 0
    running: int = 0
    lost: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """What all ranks ran: (ops, ranks) times, and the kind of each op."""

    start_ns: Int64
    end_ns: Int64
    kinds: tuple[str, ...]
    group: str = "0"

    def recorded(
        self, rank: int, held: Held, *, steps: bool = False, numbered: bool = False
    ) -> RankCollectives:
        """The collectives of one rank, as far as it recorded them; some sources number them."""
        numbers = self.numbers(held)
        strings = StringPool()
        start_ns = self.start_ns[numbers, rank]
        running = np.arange(len(numbers)) < held.running
        ops = CommunicationOps.of(
            len(numbers),
            {
                "start_ns": start_ns,
                "end_ns": self.end_ns[numbers, rank],
                "launch_ns": np.where(running, NO_TIME, start_ns - 1000),
                "name": strings.codes([self.kinds[number] for number in numbers.tolist()]),
                "sequence": numbers % RESTART if numbered else np.full(len(numbers), NO_ID),
                "group": strings.codes(["NCCL"] * len(numbers)),
                "group_name": strings.codes([self.group] * len(numbers)),
            },
        )
        iterations = np.where(running | (not steps), NO_ID, numbers // STEP_OPS)
        return rank_collectives(
            Records(rank, strings, ops=ops, hardware="GPU", numbered_ops=False), iterations
        )

    def numbers(self, held: Held) -> Int64:
        """The numbers of the ops that a rank recorded."""
        every = np.arange(held.front, len(self.kinds) - held.back)
        return every[~np.isin(every, held.lost)]


def run(
    ranks: int,
    count: int,
    *,
    kinds: Sequence[str] = KINDS,
    seed: int = 1,
    offset_ns: int = 0,
    drift: float = 0.0,
    group: str = "0",
    late: int | None = None,
) -> Run:
    """Collectives that all ranks ran one after another, each recorded on its own clock.

    Every rank computes for a time of its own before each; nobody leaves before the last has come.

    Args:
        offset_ns: how far clocks are off at most.
        drift: how much they run fast or slow at most.
        late: a rank that computes 2 ms longer than the others each time.
    """
    chance = np.random.default_rng(seed)
    own_ns = chance.integers(0, 500_000, (count, ranks))
    computed_ns = chance.integers(100_000, 3_000_000, (count, 1)) + own_ns
    if late is not None:
        computed_ns[:, late] += 2_000_000
    start_ns, end_ns = np.zeros((2, count, ranks), np.int64)
    now_ns = chance.integers(0, 500_000, ranks) + 10**18
    for number in range(count):
        start_ns[number] = now_ns + computed_ns[number]
        length_ns = int(chance.integers(20_000, 400_000))
        end_ns[number] = start_ns[number].max() + length_ns + chance.integers(0, 2000, ranks)
        now_ns = end_ns[number]
    off_ns = chance.integers(-offset_ns, offset_ns + 1, ranks)
    named = tuple(kinds[number % len(kinds)] for number in range(count))
    fast = chance.uniform(-drift, drift, ranks)
    start_ns, end_ns = (
        times_ns + off_ns + np.rint(fast * (times_ns - 10**18)).astype(np.int64)
        for times_ns in (start_ns, end_ns)
    )
    return Run(start_ns, end_ns, named, group)


def pairs(whole: Run, held: Sequence[Held], ranks: Sequence[RankCollectives]) -> tuple[int, int]:
    """How many ops of ranks are one by their keys, and how many of these are not in truth."""
    number_of: dict[int, set[int]] = {}
    count: dict[int, int] = {}
    for part, rank in zip(held, ranks, strict=True):
        for key, number in zip(rank.ops.key.tolist(), whole.numbers(part).tolist(), strict=True):
            if key != NO_ID:
                number_of.setdefault(key, set()).add(number)
                count[key] = count.get(key, 0) + 1
    true = sum(one for key, one in count.items() if len(number_of[key]) == 1 and one > 1)
    return true, sum(1 for numbers in number_of.values() if len(numbers) > 1)


held_parts = st.builds(Held, st.integers(0, 12), st.integers(0, 12), st.integers(0, 5))


@given(
    held=st.lists(held_parts, min_size=2, max_size=5),
    seed=st.integers(0, 1 << 30),
    kinds=st.sampled_from([KINDS, ("all_reduce",), ("all_to_all", "all_reduce")]),
    offset_ns=st.sampled_from([0, 50_000, 10_000_000_000]),
    steps=st.booleans(),
)
@settings(max_examples=at_most(60))
def test_pairs_are_true_or_none(
    held: list[Held], seed: int, kinds: tuple[str, ...], offset_ns: int, steps: bool
) -> None:
    """However many ops a rank lacks at the front and the back, and however clocks are off."""
    whole = run(len(held), 45, kinds=kinds, seed=seed, offset_ns=offset_ns)
    ranks = [whole.recorded(rank, part, steps=steps) for rank, part in enumerate(held)]
    true, false = pairs(whole, held, match_by_order(ranks))
    assert false == 0
    common = set.intersection(*(set(whole.numbers(part).tolist()) for part in held))
    assert true >= len(held) * len(common)


@given(held=st.lists(held_parts, min_size=2, max_size=4), seed=st.integers(0, 1 << 30))
@settings(max_examples=at_most(60))
def test_few_ops_make_no_false_waits(held: list[Held], seed: int) -> None:
    """Of a short run ranks may hold none in common, or so few that nothing can be told."""
    whole = run(len(held), 13, kinds=("all_reduce",), seed=seed)
    assert_true_waits(whole, held)


@given(lost=st.lists(st.integers(0, 59), min_size=2, max_size=4), seed=st.integers(0, 1 << 30))
@settings(max_examples=at_most(40))
def test_records_lost_in_between_make_no_false_waits(lost: list[int], seed: int) -> None:
    """A profiler that drops records shifts all behind them."""
    held = [Held(lost=(number,)) for number in lost]
    assert_true_waits(run(len(held), 60, seed=seed), held)


@given(
    lost=st.lists(st.lists(st.integers(0, 69), max_size=4), min_size=2, max_size=4),
    seed=st.integers(0, 1 << 30),
    offset_ns=st.sampled_from([0, 50_000, 5_000_000]),
    drift=st.sampled_from([0.0, 50e-6]),
    kinds=st.sampled_from([KINDS, ("all_reduce",)]),
    numbered=st.booleans(),
)
@settings(max_examples=at_most(60), deadline=None)
def test_a_lost_record_loses_one_op(
    lost: list[list[int]],
    seed: int,
    offset_ns: int,
    drift: float,
    kinds: tuple[str, ...],
    numbered: bool,
) -> None:
    """All ops that ranks have in common are paired, whichever each of them lost in between."""
    held = [Held(lost=tuple(numbers)) for numbers in lost]
    whole = run(len(held), 70, kinds=kinds, seed=seed, offset_ns=offset_ns, drift=drift)
    ranks = [whole.recorded(rank, one, numbered=numbered) for rank, one in enumerate(held)]
    true, false = pairs(whole, held, match_by_order(ranks))
    assert false == 0
    have = np.array([np.isin(np.arange(70), whole.numbers(one)) for one in held]).sum(axis=0)
    assert true == have[have > 1].sum()


@pytest.mark.parametrize("count", [2, 3, 8])
def test_numbers_pair_few_ops(count: int) -> None:
    """Where the source numbers ops, a lost record loses one op even of very few."""
    held = [Held(), Held(lost=(1,))]
    whole = run(2, count)
    matched = match_by_order(
        [whole.recorded(at, one, numbered=True) for at, one in enumerate(held)]
    )
    assert pairs(whole, held, matched) == (2 * (count - 1), 0)


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("offset_ns", [0, 400_000])
def test_replicas_whose_groups_have_one_name_are_not_mixed(numbered: bool, offset_ns: int) -> None:
    """Each replica calls its group "0" and counts alike: those that end together are one group."""
    replicas = [run(2, 24, seed=seed, offset_ns=offset_ns) for seed in range(4)]
    ranks = [one.recorded(at, Held(), numbered=numbered) for one in replicas for at in (0, 1)]
    matched = match_by_order(ranks)
    keys = [set(rank.ops.key.tolist()) - {NO_ID} for rank in matched]
    for at in range(0, 8, 2):
        assert len(keys[at]) == 24
        assert keys[at] == keys[at + 1]
        assert not any(keys[at] & keys[other] for other in range(8) if other // 2 != at // 2)


def _streams(parts: Sequence[RankCollectives], labels: Sequence[str]) -> RankCollectives:
    """Ops of several groups as one rank has them whose profile names none."""
    ops = Collectives.concat(
        [
            replace(
                part.ops,
                named=np.zeros(len(part.ops), np.bool_),
                communicator=np.full(len(part.ops), hash(label) & 0xFFFF),
            )
            for part, label in zip(parts, labels, strict=True)
        ]
    )
    return replace(parts[0], ops=ops.take(np.argsort(ops.start_ns, kind="stable")))


@pytest.mark.parametrize("offset_ns", [0, 300_000])
def test_streams_that_end_together_are_one_group(offset_ns: int) -> None:
    """Streams have other numbers on each rank, and two pairs of ranks launch the same sequence."""
    pairs_of = [run(2, 30, kinds=("all_reduce",), seed=seed) for seed in (1, 2)]
    every = run(4, 25, kinds=("all_gather", "all_to_all"), seed=3)
    ranks = []
    for at in range(4):
        parts = [pairs_of[at // 2].recorded(at % 2, Held()), every.recorded(at, Held())]
        made = _streams(parts, (f"stream {at}", f"stream {at + 9}"))
        off_ns = at * offset_ns
        ops = replace(
            made.ops, start_ns=made.ops.start_ns + off_ns, end_ns=made.ops.end_ns + off_ns
        )
        ranks.append(replace(made, ops=ops))
    matched = match_by_order(ranks)
    keys = [rank.ops.key.tolist() for rank in matched]
    groups = [sorted(set(rank.ops.communicator.tolist())) for rank in matched]
    assert NO_ID not in set().union(*keys)
    common = [len(set(keys[0]) & set(its)) for its in keys]
    assert common == [55, 55, 25, 25]
    assert len(set(keys[2]) & set(keys[3])) == 55
    assert [len(its) for its in groups] == [2] * 4
    assert len(set().union(*groups)) == 3


def test_streams_that_end_apart_have_no_known_group() -> None:
    """Ranks that launch the same sequence and never end together are in no group that is known."""
    ranks = [
        _streams([run(1, 30, kinds=("all_reduce",), seed=at).recorded(0, Held())], ["stream 7"])
        for at in range(3)
    ]
    matched = match_by_order(ranks)
    assert all((rank.ops.key == NO_ID).all() for rank in matched)
    stragglers = measure_waiting(matched).stragglers
    assert stragglers.unmatched.tolist() == [30] * 3
    assert stragglers.alone.tolist() == [0] * 3


def assert_true_waits(whole: Run, held: Sequence[Held]) -> None:
    """Whoever is said to have waited did so in the op that the last rank came to."""
    ranks = [whole.recorded(rank, part) for rank, part in enumerate(held)]
    waits = measure_waiting(match_by_order(ranks)).waits
    numbers = [whole.numbers(part) for part in held]
    for rank, row, last, last_row in zip(
        waits.rank.tolist(),
        waits.row.tolist(),
        waits.last.tolist(),
        waits.last_row.tolist(),
        strict=True,
    ):
        assert numbers[rank][row] == numbers[last][last_row]


def test_ops_that_ran_before_the_capture_began_are_matched_from_the_back() -> None:
    """Ranks hold four, four, three and four of them, and the late rank is named."""
    held = [Held(0, 0, 4), Held(0, 0, 4), Held(1, 0, 3), Held(0, 0, 4)]
    whole = run(4, 30, late=2)
    waiting = measure_waiting(
        match_by_order([whole.recorded(rank, part) for rank, part in enumerate(held)])
    )
    assert waiting.stragglers.shared.tolist() == [30, 30, 29, 30]
    assert int(np.argmax(waiting.stragglers.caused_ns)) == 2
    assert waiting.stragglers.times_last.tolist()[2] >= 28


@pytest.mark.parametrize("offset_ns", [0, 3_000_000])
def test_groups_are_not_mixed(offset_ns: int) -> None:
    """Two groups of two ranks run the same kinds at other times: no clock moves, nobody waits."""
    one, other = run(2, 12, seed=1, group="0 [0, 1]"), run(2, 12, seed=2, group="1 [2, 3]")
    late = Run(other.start_ns + offset_ns, other.end_ns + offset_ns, other.kinds, other.group)
    ranks = [part.recorded(rank, Held()) for part in (one, late) for rank in (0, 1)]
    matched = match_by_order(ranks)
    found = align(matched)
    assert np.abs(found.offsets_ns).max() < 2000
    assert found.island.tolist() in ([0, 0, 2, 2], [-1, -1, -1, -1])
    stragglers = measure_waiting(matched).stragglers
    assert stragglers.shared.tolist() == [12] * 4
    assert measure_waiting(matched[:3]).stragglers.alone.tolist() == [0, 0, 12]


def test_kinds_that_differ_are_no_pair() -> None:
    """Ranks that did other things at one place did not do one thing there."""
    whole = run(2, 20, kinds=("all_reduce",))
    odd = Run(whole.start_ns, whole.end_ns, ("all_gather",) * 20)
    matched = match_by_order([whole.recorded(0, Held()), odd.recorded(1, Held())])
    told = measure_waiting(matched)
    assert told.stragglers.unmatched.tolist() == [20, 20]
    assert (told.basis.compared, told.basis.collectives) == (0, 20)


def test_ops_that_all_ran_at_one_moment_are_paired_without_a_warning() -> None:
    """Nothing tells a drift then, and nothing is computed of none."""
    moment = np.full((30, 2), 1_000_000)
    run = Run(moment, moment + 500, ("all_reduce",) * 30)
    ranks = [run.recorded(rank, Held()) for rank in range(2)]
    assert len(match_by_order(ranks)) == 2


# -- sends and receives ----------------------------------------------------------------------------


Op = tuple[int, int, int, str, int]
"""Start, end, step, kind and group."""


def rank_of(ops: list[Op]) -> RankCollectives:
    """The ops of one rank, in order of start."""
    columns = list(zip(*sorted(ops), strict=True)) or [()] * 5
    values = {
        "start_ns": columns[0],
        "end_ns": columns[1],
        "iteration": columns[2],
        "kind": kind_numbers(columns[3]),
        "communicator": columns[4],
        **{name: [0] * len(ops) for name in ("key", "sign", "name", "group")},
    }
    return RankCollectives(ops=Collectives.of(len(ops), values))


@st.composite
def passed(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """What is passed between two ranks: step, sender, and when send and receive begin."""
    at_ns, made = 0, []
    for step in range(draw(st.integers(1, 4))):
        for sender in draw(st.lists(st.integers(0, 1), max_size=5)):
            at_ns += 100
            made.append((step, sender, at_ns, at_ns + draw(st.integers(-49, 49))))
    return made


@given(passed(), st.data())
def test_the_nth_send_is_the_nth_receive(
    made: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    """In each step of which no send or receive of that way is lost, and in no other."""
    lost = data.draw(st.sets(st.tuples(st.sampled_from(range(len(made) + 1)), st.booleans())))
    ops: list[list[Op]] = [[], []]
    wanted = set()
    for number, (step, sender, send_ns, receive_ns) in enumerate(made):
        if (number, True) not in lost:
            ops[sender].append((send_ns, send_ns + 1, step, "Send", 7))
        if (number, False) not in lost:
            end_ns = max(send_ns, receive_ns) + 1
            ops[1 - sender].append((receive_ns, end_ns, step, "Receive", 7))
    for step, sender in {one[:2] for one in made}:
        numbers = [number for number, one in enumerate(made) if one[:2] == (step, sender)]
        if not {number for number, _ in lost} & set(numbers):
            wanted |= {(sender, made[number][2], made[number][3]) for number in numbers}
    ranks = [rank_of(its) for its in ops]
    pairs = match_sends(ranks, 0)
    found = {
        (
            sender,
            int(ranks[sender].ops.start_ns[send]),
            int(ranks[receiver].ops.start_ns[receive]),
        )
        for sender, send, receiver, receive in zip(
            *(column.tolist() for column in pairs.columns().values()), strict=True
        )
    }
    assert wanted <= found
    told = {(sender, send_ns): receive_ns for sender, send_ns, receive_ns in found}
    for step, sender, send_ns, _ in made:
        if (sender, send_ns) in told and not lost:
            assert (sender, send_ns, told[sender, send_ns]) in wanted, step
    sends = {op[0] for its in ops for op in its if op[3] == "Send"}
    counts = {
        (step, sender): sum(one[:2] == (step, sender) and one[2] in sends for one in made)
        for step, sender in {one[:2] for one in made}
    }
    received = {
        (step, sender): sum(op[2] == step and op[3] == "Receive" for op in ops[1 - sender])
        for step, sender in counts
    }
    assert all(
        counts[step, sender] == received[step, sender]
        for step, sender, send_ns, _ in made
        if (sender, send_ns) in told
    )


def test_three_ranks_in_a_group_are_not_matched() -> None:
    """Who sends to whom is not known there."""
    one = [(0, 1, 1, "Send", 7)]
    ranks = [rank_of(one), rank_of([(0, 2, 1, "Receive", 7)]), rank_of([(5, 6, 1, "Send", 7)])]
    assert not len(match_sends(ranks, 0))
    assert len(match_sends(ranks[:2], 0)) == 1
    assert not len(match_sends(ranks[:1], 0))
    assert not len(match_sends([], 0))


def test_a_receive_that_is_over_before_its_send_is_another() -> None:
    """A step in which that would be is not matched, unless clocks may be so far off."""
    ranks = [rank_of([(50, 51, 1, "Send", 7)]), rank_of([(0, 20, 1, "Receive", 7)])]
    assert not len(match_sends(ranks, 29))
    (pair,) = zip(
        *(column.tolist() for column in match_sends(ranks, 30).columns().values()), strict=True
    )
    assert pair == (0, 0, 1, 0)
    assert np.array_equal(match_sends(ranks[::-1], 30).sender, [1])
