"""Proves that a step called slow is slower than the one called usual, and what more it holds."""

from __future__ import annotations

import numpy as np

from timeline.tables.table import Table
from timeline.verdict.figures import Figures
from timeline.verdict.slow_step import SlowBesideUsual

MS = 1_000_000
STEPS, SAVES, RANKS = 8, (4, 8), 4
"""Rank 0 saves for 80 ms, half of it copies, at the end of some steps; others wait in the next."""


def figures() -> Figures:
    """Steps of 8 ms, and idle time that is half of each save."""
    rank, step = np.repeat(np.arange(RANKS), STEPS), np.tile(np.arange(1, STEPS + 1), RANKS)
    saves = (rank == 0) & np.isin(step, SAVES)
    waits = (rank > 0) & np.isin(step - 1, SAVES)
    zero = np.zeros(len(rank), np.int64)
    unknown = np.ma.masked_array(zero, np.ones(len(rank), np.bool_))
    steps = {
        "rank": rank,
        "graph": unknown,
        "step": step,
        "period_ns": 8 * MS + 80 * MS * (saves | waits) + step,
        "span_ns": 8 * MS + 80 * MS * waits,
        "computing_ns": zero + 8 * MS,
        "not_overlapped_ns": 80 * MS * waits,
        "copies_ns": zero,
        "idle_ns": zero,
        "before_ns": zero,
        "between_ns": 80 * MS * saves,
        "ordinary": zero + 1,
    }
    idle = {
        **{name: steps[name] for name in ("rank", "graph", "step")},
        "cause": np.full(len(rank), "host_not_asked", object),
        "total_ns": 40 * MS * saves,
    }
    exposed = Table({"waiting_ns": unknown, "transfer_ns": unknown})
    return Figures({"steps": Table(steps), "exposed_steps": exposed, "idle": Table(idle)})


def test_a_step_in_which_others_wait_for_the_slow_one_is_not_usual() -> None:
    """Step 5 is as short as any on the rank that saved before it, and long on all others."""
    made = figures()
    (at,) = np.flatnonzero((made.steps["rank"] == 0) & (made.steps["step"] == 8))
    found = SlowBesideUsual.of(made, made.steps.take(np.array([at])), SAVES)
    assert found is not None
    assert found.slow == 8
    assert found.usual not in {4, 5, 8}


def test_copies_between_steps_are_named() -> None:
    """The whole of a save is named, not only the time in which the device idles."""
    made = figures()
    (at,) = np.flatnonzero((made.steps["rank"] == 0) & (made.steps["step"] == 8))
    found = SlowBesideUsual.of(made, made.steps.take(np.array([at])), SAVES)
    assert found is not None
    assert dict(found.longer) == {"idle (host busy elsewhere)": 40 * MS, "copies": 40 * MS}


def test_no_step_is_called_slow_that_others_are_longer_than() -> None:
    """The longest step of a rank may be shorter than a usual one, as a mean over ranks."""
    made = figures()
    steps = made.steps.take((made.steps["step"] == 5) | (made.steps["step"] == 8))
    (at,) = np.flatnonzero((steps["rank"] == 0) & (steps["step"] == 8))
    both = made.with_tables(steps=steps, exposed_steps=made.exposed_steps.take(slice(len(steps))))
    assert SlowBesideUsual.of(both, steps.take(np.array([at]))) is None
