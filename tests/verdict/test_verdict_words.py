"""Proves what is said of where a step goes, on mean steps that are made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from timeline.analysis.waits.waiting import Basis
from timeline.verdict import words
from timeline.verdict.mean_step import MeanStep

MS = 1_000_000
MEAN = MeanStep(
    ranks=64,
    steps=19,
    single=None,
    period_ns=1000 * MS,
    computing_ns=600 * MS,
    communication_ns=500 * MS,
    exposed_ns=350 * MS,
    waiting_ns=150 * MS,
    transfer_ns=200 * MS,
    copies_ns=0,
    idle_ns=50 * MS,
    before_ns=0,
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


def test_nothing_to_mend_is_said_with_what_devices_do() -> None:
    """How busy they are, from step to step, and which operator takes longest."""
    assert words.nothing_sentence(MEAN, "MatMul 60% of computing") == (
        "Device busy 95%: only faster kernels help; MatMul 60% of computing."
    )
    assert words.nothing_sentence(MEAN, "") == "Device busy 95%: only faster kernels help."


def test_how_much_is_known_of_who_waits_is_said_where_that_is_little() -> None:
    assert words.basis_sentence(Basis(4, 10, 300, 1000)) == (
        "Who waits for whom is known of 4 of 10 collectives (30% of communication time)."
    )
    assert words.basis_sentence(Basis(9, 10, 950, 1000)) is None
    assert words.basis_sentence(Basis(0, 10, 0, 1000)) is None
