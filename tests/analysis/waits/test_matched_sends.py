"""Proves that sends and receives without names are matched in order, or not at all."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timeline.analysis.waits.collectives import Collectives, RankCollectives, kind_numbers
from timeline.analysis.waits.pipeline import match_sends

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
