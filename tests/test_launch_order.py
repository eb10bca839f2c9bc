"""Turns orders of collectives, of which ranks hold different parts, into evidence of true pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timeline.analysis.alignment import align
from timeline.analysis.collectives import RankCollectives, rank_collectives
from timeline.analysis.launch_order import matched_by_order
from timeline.analysis.waiting import waiting_of
from timeline.records.columns import Int64
from timeline.records.strings import StringPool
from timeline.records.tables import NO_ID, NO_TIME, CommunicationOps, Records

STEP_OPS = 9
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

    def recorded(self, rank: int, held: Held, *, steps: bool = False) -> RankCollectives:
        """The collectives of one rank, as far as it recorded them."""
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
    group: str = "0",
    late: int | None = None,
) -> Run:
    """Collectives that all ranks ran one after another, each recorded on its own clock.

    Every rank computes for a time of its own before each; nobody leaves before the last has come.

    Args:
        offset_ns: how far clocks are off at most.
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
    return Run(start_ns + off_ns, end_ns + off_ns, named, group)


def pairs(whole: Run, held: Sequence[Held], ranks: Sequence[RankCollectives]) -> tuple[int, int]:
    """How many ops of ranks are one by their keys, and how many of these are not in truth."""
    number_of: dict[int, set[int]] = {}
    count: dict[int, int] = {}
    for part, own in zip(held, ranks, strict=True):
        for key, number in zip(own.ops.key.tolist(), whole.numbers(part).tolist(), strict=True):
            if key != NO_ID:
                number_of.setdefault(key, set()).add(number)
                count[key] = count.get(key, 0) + 1
    true = sum(own for key, own in count.items() if len(number_of[key]) == 1 and own > 1)
    return true, sum(1 for numbers in number_of.values() if len(numbers) > 1)


held_parts = st.builds(Held, st.integers(0, 12), st.integers(0, 12), st.integers(0, 5))


@given(
    held=st.lists(held_parts, min_size=2, max_size=5),
    seed=st.integers(0, 1 << 30),
    kinds=st.sampled_from([KINDS, ("all_reduce",), ("all_to_all", "all_reduce")]),
    offset_ns=st.sampled_from([0, 50_000, 10_000_000_000]),
    steps=st.booleans(),
)
@settings(max_examples=150)
def test_pairs_are_true_or_none(
    held: list[Held], seed: int, kinds: tuple[str, ...], offset_ns: int, steps: bool
) -> None:
    """However many ops a rank lacks at the front and the back, and however clocks are off."""
    whole = run(len(held), 45, kinds=kinds, seed=seed, offset_ns=offset_ns)
    ranks = [whole.recorded(rank, part, steps=steps) for rank, part in enumerate(held)]
    true, false = pairs(whole, held, matched_by_order(ranks))
    assert false == 0
    common = set.intersection(*(set(whole.numbers(part).tolist()) for part in held))
    assert true >= len(held) * len(common)


@given(held=st.lists(held_parts, min_size=2, max_size=4), seed=st.integers(0, 1 << 30))
@settings(max_examples=60)
def test_few_ops_make_no_false_pairs(held: list[Held], seed: int) -> None:
    """Of a short run ranks may hold none in common, or so few that nothing can be told."""
    whole = run(len(held), 13, kinds=("all_reduce",), seed=seed)
    ranks = [whole.recorded(rank, part) for rank, part in enumerate(held)]
    matched = matched_by_order(ranks)
    waiting = waiting_of(matched)
    true, false = pairs(whole, held, matched)
    if false:  # so few that only their times tell that they did not run together
        assert waiting.mismatched == false
    assert waiting.basis.compared <= true
