"""Proves what is said of who holds up whom, on culprits that are made."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.analysis.idle.idle_sums import IdleCause
from timeline.analysis.waits.culprit import Culprit, HeldUp, Waiter
from timeline.analysis.waits.lateness import Cause, Lateness
from timeline.analysis.waits.slow_links import SlowLink
from timeline.figures import verdict_words as words
from timeline.figures.mean_step import MeanStep

MS = 1_000_000
ONE_OF_64 = Culprit(
    rank=1,
    profiled=True,
    cause=Cause.HOST,
    waited_ns=round(0.467 * MS) * 63 * 20,
    share=0.467 / 3.07,
    steps=18,
    waiting_steps=20,
    ordinary=20,
    step_ns=3_070_000,
    ranks=64,
    waiters=tuple(Waiter(rank, 20 * 467_000, 40 * MS) for rank in range(64) if rank != 1),
    lateness=Lateness(Cause.HOST, 0.1),
)
UNPROFILED = Culprit(
    rank=5,
    profiled=False,
    cause=Cause.UNKNOWN,
    waited_ns=198 * MS,
    share=0.7,
    steps=1,
    ordinary=1,
    step_ns=134 * MS,
    ranks=2,
    members=8,
    waiters=(Waiter(0, 101_768_000, 106_004_000), Waiter(1, 96_160_000, 100_387_000)),
)
SAID = (
    (
        ONE_OF_64,
        "Rank 1 holds up the other 63: they wait 0.47 ms of every 3.07 ms step (15% of the step) "
        "for it, in 18 of 20 steps.",
    ),
    (
        replace(ONE_OF_64, steps=4, waiting_steps=5),
        "Rank 1 holds up the other 63: they wait 0.47 ms of every 3.07 ms step (15% of the step) "
        "for it, in 4 of the 5 steps in which ranks wait.",
    ),
    (
        replace(ONE_OF_64, waiters=ONE_OF_64.waiters[:7]),
        "Rank 1 holds up 7 of the other 63 ranks: they each wait 0.47 ms of every 3.07 ms step "
        "(15% of the step) for it, in 18 of 20 steps.",
    ),
    (
        replace(ONE_OF_64, ranks=2, waiters=ONE_OF_64.waiters[:1], ordinary=1, steps=1),
        "Rank 1 holds up rank 0, which waits 0.47 ms of the 3.07 ms step (15% of the step) for it.",
    ),
    (
        replace(ONE_OF_64, ordinary=0, steps=1, waiting_steps=1),
        "Rank 1 holds up the other 63: they wait 0.47 ms of 3.07 ms (15%) for it.",
    ),
    (
        UNPROFILED,
        "Rank 5, which is not in this profile (2 of 8 ranks), holds up the others: rank 0 spent "
        "101.8 of 106.0 ms of communication waiting for it, rank 1 96.2 ms.",
    ),
    (
        replace(UNPROFILED, members=None, waiters=UNPROFILED.waiters[:1]),
        "Rank 5, which is not in this profile, holds up the others: rank 0 spent 101.8 of "
        "106.0 ms of communication waiting for it.",
    ),
    (
        replace(ONE_OF_64, share=0.002),
        "Ranks hardly wait in collectives: 0.01 ms of every 3.07 ms step (<1% of the step), mostly "
        "for rank 1.",
    ),
    (
        replace(ONE_OF_64, slow_link=SlowLink(1, "HCCS", 2.1, 8.3, ())),
        "Rank 1 holds up the others: transfers to it take 0.47 ms of every 3.07 ms step (15% of "
        "the step) longer.",
    ),
)


@pytest.mark.parametrize(("culprit", "sentence"), SAID)
def test_who_holds_up_whom(culprit: Culprit, sentence: str) -> None:
    """The culprit first, then who waits, how long, of what, and how often."""
    assert words.culprit_sentence(culprit) == sentence


@pytest.mark.parametrize(
    ("lateness", "sentence"),
    [
        (
            Lateness(Cause.HOST, 0.1),
            "Cause: its host launches late (90% of the lateness; compute 10%).",
        ),
        (
            Lateness(Cause.HOST, 0.0, IdleCause.QUEUED, 400_000),
            "Cause: its host launches late (100% of the lateness): its device idles 400 us per "
            "step longer than others (queued on the host).",
        ),
        (
            Lateness(Cause.INPUT, 0.0, IdleCause.WAITING_FOR_DATA, 400_000),
            "Cause: its input is late (100% of the lateness): it waits 400 us longer for data per "
            "step.",
        ),
        (
            Lateness(Cause.COMPUTING, 0.75),
            "Cause: it computes longer (75% of the lateness; late launches 25%).",
        ),
        (
            Lateness(Cause.HOST, 0.25, same_work=True),
            "Cause: its host launches late (75% of the lateness; work that others do earlier 25%).",
        ),
        (
            Lateness(Cause.UNKNOWN, 0.75, same_work=True),
            "Why it is late is not clear: it computes longer before it comes (75% of the "
            "lateness), but not in a whole step.",
        ),
        (Lateness(), "Why rank 1 is late is not in this profile."),
    ],
)
def test_why_it_is_late(lateness: Lateness, sentence: str) -> None:
    """Each cause has its words, with its share of the lateness."""
    culprit = replace(ONE_OF_64, cause=lateness.cause, lateness=lateness)
    assert words.cause_sentence(culprit) == sentence


def test_why_another_rank_is_late_is_not_known() -> None:
    assert words.cause_sentence(UNPROFILED) == ("Why rank 5 is late is not known: profile it too.")


def test_slow_links_are_told_with_both_bandwidths() -> None:
    link = SlowLink(1, "HCCS", 2.06, 8.25, ())
    assert words.cause_sentence(replace(ONE_OF_64, slow_link=link)) == (
        "Cause: links to it are slow, HCCS at 2.06 GB/s against 8.25 GB/s between other ranks."
    )


def test_nobody_is_blamed_where_different_ranks_come_last() -> None:
    held = HeldUp(None, 10 * MS, 0.15, 3_070_000, 20)
    assert words.no_culprit_sentence(held) == (
        "Ranks wait 0.46 ms of every 3.07 ms step (15% of the step) for no single rank: different "
        "ranks come last."
    )
    assert words.no_culprit_sentence(HeldUp()) is None
    unclear = words.no_culprit_sentence(HeldUp(unclear_ns=145_000))
    assert unclear is not None
    assert "145 us" in unclear


@given(
    share=st.floats(0.0001, 1),
    step_ns=st.integers(10**5, 10**11),
    ordinary=st.integers(0, 100),
    waiters=st.integers(1, 9),
    profiled=st.booleans(),
)
def test_no_sentence_is_silly(
    share: float, step_ns: int, ordinary: int, waiters: int, *, profiled: bool
) -> None:
    """Whatever the culprit: its rank is told, nothing is counted to one, no time is a bare 0."""
    culprit = replace(
        ONE_OF_64,
        profiled=profiled,
        share=share,
        step_ns=step_ns,
        ordinary=ordinary,
        steps=max(ordinary, 1),
        waiting_steps=max(ordinary, 1),
        ranks=waiters + 1,
        waiters=tuple(Waiter(rank + 2, 7, 9) for rank in range(waiters)),
    )
    said = words.culprit_sentence(culprit)
    assert "ank 1" in said
    assert "1 steps" not in re.sub(r"\d1 steps", "", said)
    assert not re.search(r"(?<![\d.])0(\.0+)? (s|ms|us) ", said)
    assert said.endswith(".")


MEAN = MeanStep(
    ranks=64,
    steps=19,
    single=None,
    span_ns=1000 * MS,
    computing_ns=600 * MS,
    communication_ns=500 * MS,
    exposed_ns=350 * MS,
    waiting_ns=150 * MS,
    transfer_ns=200 * MS,
    copies_ns=0,
    idle_ns=50 * MS,
    between_ns=0,
)


@pytest.mark.parametrize(
    ("mean", "sentence"),
    [
        (
            MEAN,
            "Step (1.00 s): compute 60%, exposed communication 35% (waiting 15, transfer 20), "
            "idle 5%. Mean of 64 ranks and 19 steps.",
        ),
        (
            replace(MEAN, ranks=1, steps=1, single=50, waiting_ns=None, transfer_ns=None),
            "Step 50 (1.00 s): compute 60%, exposed communication 35%, idle 5%.",
        ),
        (
            replace(MEAN, ranks=1, steps=0, exposed_ns=0, waiting_ns=0, transfer_ns=0),
            "Device time (1.00 s): compute 60%, idle 5%.",
        ),
        (
            replace(MEAN, transfer_ns=50 * MS),
            "Step (1.00 s): compute 60%, exposed communication 35% (waiting 15, transfer 5, not "
            "known 15), idle 5%. Mean of 64 ranks and 19 steps.",
        ),
        (
            replace(MEAN, ranks=1, computing_ns=0),
            "Step (1.00 s): communication 50%; no compute tasks in this profile. Mean of 19 steps.",
        ),
    ],
)
def test_where_a_step_goes(mean: MeanStep, sentence: str) -> None:
    """Parts of nothing are not told, and waiting only where it is known."""
    assert words.step_sentence(mean) == sentence
