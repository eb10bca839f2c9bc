"""Proves that extremes in columns of profiles break none of the promises of exports."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from simulator.layouts import LAYOUTS
from tests.fuzz.findings import Fault
from tests.fuzz.sweep import Case, Sweeper, Tally
from tests.fuzz.sweep_seeds import Seed, made_seeds

CASES = 2
SEEDS = [seed for seed in made_seeds() if seed.name in LAYOUTS]


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)
def test_extremes_keep_what_exports_promise(seed: Seed) -> None:
    """A small slice of the sweep, always the same: whole runs, loaded and checked."""
    tally = Tally()
    sweeper = Sweeper(seed, tally, Random(1))
    try:
        found: list[tuple[Case, Fault]] = [
            (case, fault) for case, fault in islice(sweeper.sweep(), CASES) if fault is not None
        ]
    finally:
        sweeper.close()
    assert isinstance(sweeper.plain, bytes), sweeper.plain
    assert not found, "\n".join(f"{case.name}: {fault.told}" for case, fault in found)
    assert tally.drew
